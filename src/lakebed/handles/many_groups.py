"""Many small file groups whose rows are all in this process, taken in at once.

What taking rows in, encoding them and finding their ranges costs whatever the rows are, is then paid once and not for
each file group: a thousand rows for 256 buckets cost about what they cost for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.engine.base import GroupOfRows, Task
from lakebed.expressions.plain_keys import PlainKeys
from lakebed.format.avro.writer import encode_records
from lakebed.format.column_ranges import ranges_by_group
from lakebed.format.hashes import value_buffer
from lakebed.handles.file_writer import FileFormat
from lakebed.merge.incoming import Incoming, Intake
from lakebed.merge.meta_columns import MetaOfGroups

# From about so many rows a file group on, threads that each take in one are as fast.
_MOST_ROWS = 4096


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Rows as a log file has them: Avro records one behind the other, the row of their columns' ranges, and whether no
    key of them can be misread (None: nobody asks)."""

    rows: int
    records: bytes
    ranges: pa.RecordBatch | None
    plain_keys: bool | None = None


@dataclass(frozen=True, slots=True)
class TakenIn:
    """The rows of a file group, and those of them that are no deletes encoded for a log file."""

    incoming: Incoming
    encoded: EncodedRows


def are_small(groups: Sequence[GroupOfRows]) -> bool:
    """Whether file groups are so many, and so small, that taking them in together pays."""
    return len(groups) > 1 and sum(group.rows for group in groups) <= _MOST_ROWS * len(groups)


def take_in(
    rows: pa.Table,
    groups: Sequence[GroupOfRows],
    file_ids: Sequence[str],
    intake: Intake,
    format_: FileFormat,
    instant: str,
) -> list[TakenIn]:
    """The rows of each group, which stand behind one another; they go to log files with Avro blocks of these file ids.
    Of several rows of a key one wins. Raises `InvalidRecord` and `SchemaConflict`, which do not say of which group."""
    batches = rows.combine_chunks().to_batches()
    checked = pa.Table.from_batches(list(intake.checked(iter(batches), Task())))
    edges = np.array([0, *(group.stop for group in groups)], np.int64)
    whole = intake.split(checked, edges)
    ends = edges if whole.places is None else np.searchsorted(whole.places, edges)
    codes = np.repeat(np.arange(len(groups), dtype=np.int32), np.diff(ends))
    encoded = _encoded(whole, codes, groups, file_ids, format_, instant)
    return [
        TakenIn(whole.part(*ends[at : at + 2].tolist(), *edges[at : at + 2].tolist()), encoded[at])
        for at in range(len(groups))
    ]


def _encoded(
    whole: Incoming,
    codes: npt.NDArray[np.int32],
    groups: Sequence[GroupOfRows],
    file_ids: Sequence[str],
    format_: FileFormat,
    instant: str,
) -> list[EncodedRows]:
    alive = np.flatnonzero(~whole.deletes)
    if not len(alive):
        return [EncodedRows(0, b"", None)] * len(groups)
    codes = codes[alive]
    meta = MetaOfGroups(format_.schema, instant, groups, file_ids, format_.populate_meta)
    rows = meta.with_meta(codes, whole.keys.take(pa.array(alive)), whole.take(alive))
    data, places = value_buffer(encode_records(rows, format_.avro_schema))
    ranges: dict[int, pa.RecordBatch] = {}
    if format_.range_columns:
        ranges = ranges_by_group(rows, codes, format_.schema, format_.range_columns)
    edges = list(pairwise(np.searchsorted(codes, np.arange(len(groups) + 1)).tolist()))
    plain = _plain_keys(rows, edges, format_)
    return [
        EncodedRows(stop - start, data[int(places[start]) : int(places[stop])].tobytes(), ranges.get(at), plain[at])
        for at, (start, stop) in enumerate(edges)
    ]


def _plain_keys(rows: pa.RecordBatch, edges: Sequence[tuple[int, int]], format_: FileFormat) -> list[bool] | list[None]:
    """Whether no key of each group can be misread."""
    whole = format_.key_texts()
    if whole is None:
        return [None] * len(edges)
    whole.add(rows)
    if whole.hold:
        return [True] * len(edges)
    found: list[bool] = []
    for start, stop in edges:
        one = PlainKeys(format_.plain_keys)
        one.add(rows.slice(start, stop - start))
        found.append(one.hold)
    return found
