"""Merging the records of a file slice: the base file's and those of each log block, newer over older, per key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings
from lakebed.metadata.kinds.files_records import SCHEMA as FILES_SCHEMA
from lakebed.metadata.kinds.stats_records import COUNTS, plain, stats_schema
from lakebed.metadata.kinds.stats_types import as_type, common_type

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layer:
    """What one file or block says: records, or keys that it deletes."""

    records: pa.Table | None = None
    deleted: pa.Array | None = None


def newest(layers: Sequence[Layer]) -> pa.Table | None:
    """The newest record of every key (column `key`), layers given oldest first; keys whose last word is a delete are
    left out. None where no layer has records.

    >>> old = pa.table({"key": ["a", "b"], "x": [1, 2]})
    >>> new = pa.table({"key": ["a"], "x": [3]})
    >>> newest([Layer(old), Layer(new), Layer(deleted=pa.array(["b"]))]).to_pylist()
    [{'key': 'a', 'x': 3}]
    """
    filled = _filled(layers)
    if len(filled) < 2:
        return filled[0].records if filled else None
    base, above = filled[0].records, _newest_of_all(filled[1:]) if filled[0].records is not None else None
    if base is None:
        return _newest_of_all(filled)
    # a base file has each key once and is large: only what stands above it is sorted out by key
    named = pa.concat_arrays([names for layer in filled[1:] for names, _ in _keys(layer)])
    kept = base.filter(pc.invert(pc.is_in(base["key"], value_set=named)))
    return kept if above is None else pa.concat_tables([kept, above]).unify_dictionaries()


def alive(layers: Sequence[Layer]) -> pa.Table | None:
    """The records behind the last delete of their key, oldest first: for records that are more than the newest of them.
    None where no layer has records."""
    filled = _filled(layers)
    if len(filled) == 1 or all(layer.records is None for layer in filled):
        return filled[0].records if filled else None
    history = _History.of(filled)
    last_delete = np.full(history.count, -1, np.int64)
    last_delete[history.keys[history.is_delete]] = np.flatnonzero(history.is_delete)
    kept = ~history.is_delete & (np.arange(len(history.keys)) > last_delete[history.keys])
    return history.records.take(pa.array(history.row[kept]))


def newest_files(records: pa.Table) -> pa.Table:
    """The files of every partition, from all records that are alive, oldest first.

    Maps of one key are united; a delete takes the name off, or stays as a delete where there was none to take off; a
    file that is named again has the greater of its sizes. A key that keeps no entry has one row with a null name.
    """
    rows = records.combine_chunks()
    return _united(rows, _codes(plain_strings(rows["key"])))


def newest_stats(tables: Sequence[pa.Table]) -> pa.Table:
    """Stats of one column, records given oldest first: a newer record replaces the older one of its key if either is
    deleted or the newer is tight, else their ranges are united and their counts added. Deleted ones are left out."""
    kind = common_type([table.schema.field("min").type for table in tables])
    rows = pa.concat_tables([_with_bounds(table, kind) for table in tables])
    keys = _codes(plain_strings(rows["key"]))
    if len(keys) > int(keys.max(initial=-1)) + 1:
        rows = _newest_ranges(rows, keys)
    return rows.filter(pc.invert(rows["is_deleted"]))


def _filled(layers: Sequence[Layer]) -> list[Layer]:
    return [
        layer for layer in layers if layer.records is not None or (layer.deleted is not None and len(layer.deleted))
    ]


def _keys(layer: Layer) -> list[tuple[pa.Array, bool]]:
    """Keys of the records, then those of the deletes, and whether they are deletes."""
    found = [] if layer.records is None else [(plain_strings(layer.records["key"]), False)]
    return found if layer.deleted is None else [*found, (layer.deleted, True)]


def _newest_of_all(layers: Sequence[Layer]) -> pa.Table | None:
    if all(layer.records is None for layer in layers):
        return None
    history = _History.of(layers)
    last = np.zeros(history.count, np.int64)
    last[history.keys] = np.arange(len(history.keys))
    last = np.sort(last[~history.is_delete[last]])
    return history.records.take(pa.array(history.row[last]))


@dataclass(frozen=True, slots=True)
class _History:
    """All records and deletes, oldest first: a number for the key (below `count`), whether it is a delete, and a
    record's row in `records`."""

    keys: Int64s
    count: int
    is_delete: Bools
    row: Int64s
    records: pa.Table

    @classmethod
    def of(cls, layers: Sequence[Layer]) -> _History:
        names: list[pa.Array] = []
        deletes: list[Bools] = []
        for layer in layers:
            for array, is_delete in _keys(layer):
                names.append(array)
                deletes.append(np.full(len(array), is_delete))
        encoded = pa.concat_arrays(names).dictionary_encode()
        flags = np.concatenate(deletes)
        rows = np.where(flags, -1, np.cumsum(~flags) - 1)
        records = pa.concat_tables([layer.records for layer in layers if layer.records is not None])
        codes = encoded.indices.to_numpy().astype(np.int64)
        return cls(codes, len(encoded.dictionary), flags, rows, records.unify_dictionaries())


def _united(rows: pa.Table, keys: Int64s) -> pa.Table:
    """One row for each live entry and each lasting delete, from all entries oldest first."""
    named = rows["name"].is_valid().to_numpy()
    names = pc.fill_null(plain_strings(rows["name"]), "").dictionary_encode().indices.to_numpy().astype(np.int64)
    order = np.flatnonzero(named)
    entry = keys[order] * (int(names.max(initial=0)) + 1) + names[order]
    order = order[np.argsort(entry, kind="stable")]
    starts, lasts = _runs(np.sort(entry))
    deleted = pc.fill_null(rows["is_deleted"], False).to_numpy()[order]
    sizes = pc.fill_null(rows["size"], 0).to_numpy()[order]
    took_off = deleted[lasts] & (lasts > starts) & ~deleted[lasts - 1]
    size = np.where(deleted[lasts], sizes[lasts], _greatest_since_delete(sizes, deleted, starts, lasts))
    kept = order[lasts[~took_off]]
    table = rows.take(pa.array(kept)).set_column(2, "size", pa.array(size[~took_off]))
    blank, first = np.unique(keys, return_index=True)
    first = first[~np.isin(blank, keys[kept])]
    nulls = [pa.nulls(len(first), field.type) for field in list(FILES_SCHEMA)[1:]]
    empty = pa.Table.from_arrays([plain_strings(rows["key"]).take(pa.array(first)), *nulls], schema=FILES_SCHEMA)
    return pa.concat_tables([table, empty]).sort_by([("key", "ascending"), ("name", "ascending")])


def _greatest_since_delete(sizes: Int64s, deleted: Bools, starts: Int64s, lasts: Int64s) -> Int64s:
    """The greatest size in each run behind its last delete."""
    if not len(starts):
        return sizes
    at = np.arange(len(sizes))
    behind = np.maximum.reduceat(np.where(deleted, at + 1, 0), starts)
    counts = at >= np.repeat(np.maximum(behind, starts), lasts + 1 - starts)
    return np.maximum.reduceat(np.where(counts, sizes, 0), starts)


def _runs(values: Int64s) -> tuple[Int64s, Int64s]:
    """First and last position of each run of equal values."""
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])) if len(values) else np.empty(0, np.int64)
    return starts, np.append(starts[1:], len(values)) - 1 if len(values) else starts


def _codes(keys: pa.Array) -> Int64s:
    """A number for each key, the same for the same text."""
    return keys.dictionary_encode().indices.to_numpy().astype(np.int64)


def _with_bounds(table: pa.Table, kind: pa.DataType) -> pa.Table:
    if table.schema.field("min").type == kind:
        return table
    bounds = {name: as_type(plain(table[name]), kind) for name in ("min", "max")}
    schema = stats_schema(kind)
    return pa.Table.from_arrays([bounds.get(name, table[name]) for name in schema.names], schema=schema)


def _newest_ranges(records: pa.Table, keys: Int64s) -> pa.Table:
    """The newest record of each key, widened by the older ones that it does not replace."""
    order = np.argsort(keys, kind="stable")
    first, lasts = _runs(keys[order])
    deleted, tight = (records[name].to_numpy()[order] for name in ("is_deleted", "is_tight"))
    opens = deleted | tight | np.append(False, deleted[:-1])
    opens[first] = True
    starts = np.flatnonzero(opens)
    begins = starts[np.searchsorted(starts, lasts, side="right") - 1]
    rows = records.take(pa.array(order[lasts])).combine_chunks()
    wide = np.flatnonzero(lasts > begins)
    if not len(wide):
        return rows
    members = np.concatenate([np.arange(begins[i], lasts[i] + 1) for i in wide.tolist()])
    ranges = np.repeat(wide, lasts[wide] - begins[wide] + 1)
    return _widened(rows, wide, ranges, records.take(pa.array(order[members])))


def _widened(rows: pa.Table, wide: Int64s, ranges: Int64s, members: pa.Table) -> pa.Table:
    """Rows at `wide` with the bounds and counts of all their members; `ranges` says whose member each is."""
    mask = np.zeros(len(rows), np.bool_)
    mask[wide] = True

    def put(name: str, values: Any) -> pa.Table:
        column = pc.replace_with_mask(plain(rows[name]), pa.array(mask), values.cast(rows.schema.field(name).type))
        return rows.set_column(rows.schema.get_field_index(name), name, column)

    firsts, _ = _runs(ranges)
    for name, direction in (("min", "ascending"), ("max", "descending")):
        sortable = pa.table({"range": ranges, "bound": members[name]})
        by_bound = pc.sort_indices(sortable, sort_keys=[("range", "ascending"), ("bound", direction)])
        bounds = plain(members[name]).take(by_bound.take(pa.array(firsts)))
        unknown = pa.array(np.logical_or.reduceat(_unknown(members, name), firsts))
        rows = put(name, pc.if_else(unknown, pa.scalar(None, bounds.type), bounds))
    for name in COUNTS:
        rows = put(name, pa.array(np.add.reduceat(pc.fill_null(members[name], 0).to_numpy(), firsts)))
    return rows


def _unknown(stats: pa.Table, side: str) -> Bools:
    """Where a bound is null although there are values: it is not known, and nor is that of what it is united with."""
    none = pc.or_(pc.equal(stats["null_count"], stats["value_count"]), pc.equal(stats["value_count"], 0))
    return pc.and_not(stats[side].is_null(), pc.fill_null(none, False)).to_numpy()
