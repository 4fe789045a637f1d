"""Records of the `files` partition: the data table's partition paths, and the files of each with their sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.avro.columns import (
    AvroCursors,
    encode_binaries,
    encode_fixed,
    encode_longs,
    join_pieces,
)
from lakebed.format.avro.encoder import decode_long
from lakebed.format.bounded_cache import BoundedCache, Kept
from lakebed.format.hashes import plain_strings
from lakebed.metadata.keys import (
    ALL_PARTITIONS,
    partition_identifier,
)
from lakebed.metadata.record_values import RecordType, SubRecord, enter, leave, value_head, value_tail
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm
from lakebed.upkeep.stored_files import NewFile

SCHEMA = pa.schema([("key", pa.string()), ("name", pa.string()), ("size", pa.int64()), ("is_deleted", pa.bool_())])

_FIELD = SubRecord.FILES
# So many records that still have entries are read side by side, fewer one after the other: that costs less then.
_SIDE_BY_SIDE = 32
Int64s = npt.NDArray[np.int64]

# What was made of the lists of partitions with many files, by their bytes.
_LONG: BoundedCache[Kept[tuple[Int64s, int]]] = BoundedCache(32 << 20)
_WORTH_KEEPING = 4096


def encode(table: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """Keys and values from one row a map entry: `key` (a partition identifier, or `__all_partitions__` with identifiers
    as names), `name`, `size` in bytes, `is_deleted`. Rows of one key must follow each other; a null name stands for an
    empty map.

    >>> from lakebed.metadata.schemas import V9, record_schema
    >>> rows = pa.Table.from_pylist([{"key": "p", "name": "f", "size": 7, "is_deleted": False}], SCHEMA)
    >>> keys, values = encode(rows, V9)
    >>> decode(keys, values, record_schema(V9)).to_pylist()
    [{'key': 'p', 'name': 'f', 'size': 7, 'is_deleted': False}]
    """
    rows = table.select(SCHEMA.names).combine_chunks()
    keys, counts = _runs(plain_strings(rows["key"]))
    named = rows["name"].is_valid()
    filled = rows.filter(named)
    entries = join_pieces(
        [
            encode_binaries(plain_strings(filled["name"])),
            encode_longs(filled["size"].to_numpy()),
            encode_fixed(filled["is_deleted"].to_numpy()),
        ]
    )
    sizes = np.add.reduceat(named.to_numpy().astype(np.int64), np.cumsum(counts) - counts) if len(counts) else counts
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    maps = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), entries), pa.scalar(b"", pa.binary()))
    head, tail = value_head(RecordType.FILES, _FIELD), value_tail(form, _FIELD)
    filled_maps = join_pieces([encode_longs(sizes), maps, b"\x00"])
    bodies = pc.if_else(pa.array(sizes == 0), pa.scalar(b"\x00", pa.binary()), filled_maps)
    values = join_pieces([head, bodies, tail])
    lists = join_pieces([value_head(RecordType.PARTITION_LIST, _FIELD), bodies, tail])
    return keys, pc.if_else(pc.equal(keys, ALL_PARTITIONS), lists, values)


def decode(keys: pa.Array, values: pa.BinaryArray, schema_json: str) -> pa.Table:
    """One row a map entry, the keys in the given order; a record with an empty map gives a row with a null name. Raises
    `CorruptFile`.
    """
    cursors, form = enter(values, schema_json, _FIELD)
    rows, starts, ends, sizes, deleted = _entries(cursors)
    leave(cursors, form, _FIELD)
    names = _texts(cursors, starts, ends)
    counts = np.bincount(rows, minlength=len(values))
    empty = np.flatnonzero(counts == 0)
    table = pa.Table.from_arrays(
        [keys.cast(pa.string()).take(pa.array(rows)), names, pa.array(sizes), pa.array(deleted)], schema=SCHEMA
    )
    if not len(empty):
        return table
    blank = pa.Table.from_arrays([keys.cast(pa.string()).take(pa.array(empty)), *_nulls(len(empty))], schema=SCHEMA)
    order = np.argsort(np.concatenate([rows, empty]), kind="stable")
    return pa.concat_tables([table, blank]).take(pa.array(order))


def _nulls(count: int) -> list[pa.Array]:
    return [pa.nulls(count, field.type) for field in list(SCHEMA)[1:]]


def _texts(cursors: AvroCursors, starts: Int64s, ends: Int64s) -> pa.StringArray:
    try:
        return cursors.between(starts, ends).cast(pa.string())
    except pa.ArrowInvalid as cause:
        raise CorruptFile("a file name in the metadata table is not UTF-8") from cause


def _entries(cursors: AvroCursors) -> tuple[Int64s, Int64s, Int64s, Int64s, npt.NDArray[np.bool_]]:
    """Of every map entry: its record, start and end of the name, size, deleted flag; by record and position."""
    found: list[tuple[Int64s, ...]] = []
    rows = np.arange(len(cursors))
    left = _block_counts(cursors)
    rows = rows[left > 0]
    left = left[rows]
    while len(rows) >= _SIDE_BY_SIDE:
        part = cursors.part(rows)
        starts = part.skip_bytes()
        ends = part.at
        found.append((rows, starts, ends, part.longs(), part.booleans().astype(np.int64)))
        left = left - 1
        done = np.flatnonzero(left == 0)
        if len(done):
            again = part.part(done)
            left[done] = _block_counts(again)
            part.rejoin(done, again)
        cursors.rejoin(rows, part)
        rows, left = rows[left > 0], left[left > 0]
    for row, count in zip(rows.tolist(), left.tolist(), strict=True):
        found.append(_one_by_one(cursors, row, count))
    if not found:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing, nothing, np.empty(0, np.bool_)
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    order = np.argsort(columns[1], kind="stable")
    row, start, end, size, deleted = (column[order] for column in columns)
    return row, start, end, size, deleted.astype(np.bool_)


def _block_counts(cursors: AvroCursors) -> Int64s:
    """The number of entries in each record's next map block; a negative count is followed by the block's length."""
    counts = cursors.longs()
    sized = np.flatnonzero(counts < 0)
    if len(sized):
        part = cursors.part(sized)
        part.longs()
        cursors.rejoin(sized, part)
        counts[sized] = -counts[sized]
    if (counts > cursors.ends - cursors.at).any() or (counts < 0).any():
        raise CorruptFile("a record of the metadata table has more entries than bytes")
    return counts


def _one_by_one(cursors: AvroCursors, row: int, count: int) -> tuple[Int64s, ...]:
    """The remaining entries of one long record, which are the same from commit to commit until the next compaction."""
    data = cursors.rest(row)
    columns, at = _walked(data, count) if len(data) < _WORTH_KEEPING else _walked_once(data, count)
    start = int(cursors.ends[row]) - len(data)
    cursors.at[row] = start + at
    return np.full(len(columns), row), columns[:, 0] + start, columns[:, 1] + start, columns[:, 2], columns[:, 3]


def _walked_once(data: bytes, count: int) -> tuple[Int64s, int]:
    known = _LONG.get((data, count))
    if known is None:
        found = _walked(data, count)
        known = Kept(found, len(data) + found[0].nbytes)
        _LONG.put((data, count), known)
    return known.content


def _walked(data: bytes, count: int) -> tuple[Int64s, int]:
    """Start and end of the name, size and deleted flag of `count` entries and those of the map blocks behind them, and
    where the map ends: where an entry starts is known only when the one before has been read."""
    at = 0
    found: list[int] = []
    try:
        while count:
            for _ in range(count):
                length, at = decode_long(data, at)
                end = at + length
                if length < 0 or end > len(data) - 2:
                    raise IndexError
                size, after = decode_long(data, end)
                if data[after] > 1:
                    raise IndexError
                found += (at, end, size, data[after])
                at = after + 1
            count, at = decode_long(data, at)
            if count < 0:
                _, at = decode_long(data, at)
                count = -count
    except IndexError:
        raise CorruptFile("a list of files in the metadata table is cut off") from None
    return np.array(found, np.int64).reshape(-1, 4), at


def _runs(keys: Any) -> tuple[pa.StringArray, Int64s]:
    """The keys once each and how many rows follow each other under it."""
    if not len(keys):
        return keys, np.empty(0, np.int64)
    runs = pc.run_end_encode(keys)
    ends = runs.run_ends.to_numpy().astype(np.int64)
    return plain_strings(runs.values), np.diff(ends, prepend=0)


def file_records(
    files: Sequence[NewFile],
    form: RecordForm,
    *,
    partitions: Iterable[str] = (),
    removed: Mapping[str, Collection[str]] | None = None,
    gone: Collection[str] = (),
) -> Records:
    """Records of `files`: what was written, the action's other `partitions`, the names `removed` from each, and the
    partition paths that are `gone` from the list of them. The list is always there, as in Hudi."""
    removed = removed or {}
    named = sorted({*partitions, *(f.partition for f in files), *removed} - set(gone))
    keys: list[str] = [ALL_PARTITIONS] * (len(named) + len(gone))
    names: list[str | None] = [partition_identifier(p) for p in (*named, *gone)]
    sizes, deleted = [0] * len(names), [False] * len(named) + [True] * len(gone)
    by_partition: dict[str, list[NewFile]] = {p: [] for p in named}
    for file in files:
        by_partition[file.partition].append(file)
    for partition in named:
        entries = [(f.name, f.size, False) for f in by_partition[partition]]
        entries += [(name, 0, True) for name in sorted(removed.get(partition, ()))]
        for name, size, is_deleted in entries:
            keys.append(partition_identifier(partition))
            names.append(name)
            sizes.append(size)
            deleted.append(is_deleted)
    if not names:
        keys, names, sizes, deleted = [ALL_PARTITIONS], [*names, None], [0], [False]
    return Records.upserts(*encode(pa.Table.from_arrays(_arrays(keys, names, sizes, deleted), schema=SCHEMA), form))


def _arrays(keys: list[str], names: list[str | None], sizes: list[int], deleted: list[bool]) -> list[pa.Array]:
    return [pa.array(keys, pa.string()), pa.array(names, pa.string()), pa.array(sizes, pa.int64()), pa.array(deleted)]
