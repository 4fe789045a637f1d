"""Rows of the HBase table and the places that they stand for.

A row's key is the record key, behind the number of its bucket where rows are spread. Its cells are real Hudi's:
`commit_ts`, `file_name` (the file id) and `partition_path`. They count where that commit is one of the table, so what a
write that failed put there counts for nothing. What it took away would be lost: lakebed notes that in a cell of its
own, which real Hudi does not ask for:

- `<instant> 0 <commit> 0 <file id> 0 <partition path>`, beside a place of that instant: where the key was before;
- `<instant>` alone: that instant deleted the key. Its row goes once the instant is complete.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import java_hash
from lakebed.index.hbase.wire import joined
from lakebed.model import DERIVED, FILE_ID, INSTANT, OLD_PARTITION, RECORD_KEY

DELETED = f"{DERIVED}deleted"
PLACES = pa.schema(
    [
        (RECORD_KEY, pa.string()),
        (OLD_PARTITION, pa.string()),
        (FILE_ID, pa.string()),
        (INSTANT, pa.string()),
        (DELETED, pa.bool_()),
    ]
)
"""Places of keys; `DELETED` where a commit says that it deleted the key, which a later one may have put back."""

IsVisible = Callable[[str], bool]
_SEPARATOR = "\0"
_LEAST = -(2**31)


def row_keys(keys: pa.Array, buckets: int | None) -> pa.BinaryArray:
    """The row of each record key.

    >>> row_keys(pa.array(["a", "b"]), 8).to_pylist()
    [b'1a', b'2b']
    """
    texts = keys.cast(pa.string()).cast(pa.binary())
    if buckets is None:
        return texts
    hashes = java_hash(keys).astype(np.int64)
    # as in Java, whose least number has no positive one: the rest of its division is negative
    numbers = np.where(hashes == _LEAST, np.fmod(hashes, buckets), np.abs(hashes) % buckets)
    found, codes = np.unique(numbers, return_inverse=True)
    width = len(str(buckets - 1))
    prefixes = pa.array([f"{number:0{width}d}".encode() for number in found.tolist()], pa.binary())
    return joined(prefixes.take(pa.array(codes.reshape(-1))), texts)


def visible_places(keys: pa.Array, found: pa.Table, buckets: int | None, is_visible: IsVisible) -> pa.Table:
    """The place of each key (`PLACES`), null where it has none; `found` are rows as the client gives them."""
    rows = row_keys(keys, buckets)
    at = pc.index_in(rows, value_set=_array(found, "row"))
    instant, file_id, partition, note = (
        _array(found, name).take(at).cast(pa.string()) for name in ("instant", "file_id", "partition", "note")
    )
    noted, before, before_id, before_partition = split_notes(note)
    shown = _shown(instant, is_visible)
    stands_for = pc.fill_null(pc.equal(noted, instant), False)
    falls_back = pc.and_(pc.and_(stands_for, pc.invert(shown)), _shown(before, is_visible))
    later = pc.fill_null(pc.greater(noted, instant), False)
    deleted = pc.and_(pc.and_(shown, pc.and_(later, before.is_null())), _shown(noted, is_visible))
    there = pc.or_(shown, falls_back)

    def place(own: pa.Array, earlier: pa.Array) -> pa.Array:
        return pc.if_else(there, pc.if_else(falls_back, earlier, own), pa.scalar(None, pa.string()))

    columns = [place(partition, before_partition), place(file_id, before_id), place(instant, before), deleted]
    return pa.Table.from_arrays([keys.cast(pa.string()), *columns], schema=PLACES)


def notes_of(instant: str, places: pa.Table) -> pa.BinaryArray:
    """The notes of an instant beside new places of keys that were at `places`; empty where they were in none."""
    before = pc.binary_join_element_wise(
        pa.scalar(instant), places[INSTANT], places[FILE_ID], places[OLD_PARTITION], _SEPARATOR
    )
    return pc.fill_null(before, "").combine_chunks().cast(pa.binary())


def split_notes(notes: pa.StringArray) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """Of each note the instant that made it, and commit, file id and partition path of the place that it names."""
    kept = pc.if_else(pc.equal(notes, ""), pa.scalar(None, pa.string()), notes)
    some = np.flatnonzero(kept.is_valid())
    lists = pc.split_pattern(kept.take(pa.array(some)), _SEPARATOR, max_splits=3)
    sizes, starts = (np.asarray(array) for array in (pc.list_value_length(lists), lists.offsets[:-1]))
    found: list[pa.Array] = []
    for part in range(4):
        has = sizes > part if part == 0 else sizes == 4
        of_row = np.full(len(notes), -1, np.int64)
        of_row[some[has]] = starts[has] + part
        found.append(lists.values.take(pa.array(of_row, mask=of_row < 0)))
    return found[0], found[1], found[2], found[3]


def _array(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()


def _shown(instants: pa.Array, is_visible: IsVisible) -> pa.BooleanArray:
    """Which are commits of the table; false for null."""
    encoded = instants.dictionary_encode()
    shown = pa.array([is_visible(text) for text in encoded.dictionary.to_pylist()], pa.bool_())
    return pc.fill_null(shown.take(encoded.indices), False)
