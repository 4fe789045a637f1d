"""Reading stats: records of all columns lie side by side in a file slice, and come back as one table a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakebed.metadata.kinds import stats_records
from lakebed.metadata.kinds.stats_merge import newest_stats
from lakebed.metadata.kinds.stats_records import Stats, Types
from lakebed.metadata.read.lookup import slice_by_prefixes, whole_slice
from lakebed.metadata.read.merge_records import alive, decoded
from lakebed.metadata.store.slices import MetadataSlices
from lakebed.model import FileSlice
from lakebed.storage.parallel import parallel_map


def read_stats(
    view: MetadataSlices, slices: Sequence[FileSlice], prefixes: pa.Array | None, types: Types | None
) -> Stats:
    """The stats in these slices, whose keys begin with one of the prefixes or all, one table a column.

    Records are sorted out by key while they are bytes yet, so that each slice is decoded once.
    """

    def read(file_slice: FileSlice) -> pa.Table | None:
        return alive(
            whole_slice(view, file_slice) if prefixes is None else slice_by_prefixes(view, file_slice, prefixes)
        )

    def decode(keys: pa.Array, values: Any, schema_json: str) -> Stats:
        return stats_records.decode(keys, values, schema_json, types)

    found: dict[str, list[pa.Table]] = {}
    for rows in parallel_map(read, slices):
        for stats in decoded(rows, decode):
            for column, table in stats.items():
                found.setdefault(column, []).append(table)
    merged = {column: newest_stats(tables) for column, tables in found.items()}
    return {column: table for column, table in merged.items() if len(table)}
