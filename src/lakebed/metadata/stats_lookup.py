"""Reading stats: records of all columns lie side by side in a file slice, and come back as one table a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.metadata import stats_records
from lakebed.metadata.lookup import slice_by_prefixes, whole_slice
from lakebed.metadata.merge_records import alive, newest_stats
from lakebed.metadata.slices import MetadataSlices
from lakebed.model import FileSlice

Types = Mapping[str, pa.DataType]
Stats = dict[str, pa.Table]


def read_stats(
    view: MetadataSlices, slices: Sequence[FileSlice], prefixes: pa.Array | None, types: Types | None
) -> Stats:
    """The stats in these slices, whose keys begin with one of the prefixes or all, one table a column.

    Records are sorted out by key while they are bytes yet, so that each slice is decoded once.
    """

    def read(file_slice: FileSlice) -> pa.Table | None:
        if prefixes is None:
            return alive(whole_slice(view, file_slice, _undecoded))
        return alive(slice_by_prefixes(view, file_slice, _undecoded, prefixes))

    found: dict[str, list[pa.Table]] = {}
    for rows in view.each(read, slices):
        for part in _runs_of_a_schema(rows):
            keys, values = (part[name].combine_chunks() for name in ("key", "value"))
            schema = part["schema"][0].as_py()
            for column, table in stats_records.decode(keys, values, schema, types).items():
                found.setdefault(column, []).append(table)
    merged = {column: newest_stats(tables) for column, tables in found.items()}
    return {column: table for column, table in merged.items() if len(table)}


def _undecoded(keys: pa.Array, values: Any, schema_json: str) -> pa.Table:
    schema = pa.DictionaryArray.from_arrays(np.zeros(len(keys), np.int32), pa.array([schema_json]))
    return pa.table({"key": keys, "value": values, "schema": schema})


def _runs_of_a_schema(rows: pa.Table | None) -> list[pa.Table]:
    """Records of writers with different schemas apart, in their order: a later one counts more."""
    if rows is None or not len(rows):
        return []
    codes = rows.unify_dictionaries()["schema"].combine_chunks().indices.to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    return [rows.slice(start, end - start) for start, end in pairwise(edges)]
