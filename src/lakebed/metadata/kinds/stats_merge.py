"""Several stats of one column and file, or partition path, as one: a newer record replaces or widens the older."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings
from lakebed.metadata.keys import FILE_KEY_LENGTH
from lakebed.metadata.kinds import stats_records
from lakebed.metadata.kinds.stats_records import COUNTS, plain, stats_schema
from lakebed.metadata.kinds.stats_types import as_type, common_type
from lakebed.metadata.read.merge_records import codes, runs
from lakebed.metadata.record_values import RecordType, record_type_of
from lakebed.metadata.schemas import RecordForm

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


class StatsUnion:
    """Ranges of one key are united, in `column_stats`, `partition_stats` and expression indexes of ranges."""

    def applies(self, value: bytes) -> bool:
        return record_type_of(value) in (RecordType.COLUMN_STATS, RecordType.PARTITION_STATS)

    def encoded(
        self, keys: pa.Array, values: Any, schema_json: str, form: RecordForm, index_version: Callable[[], int]
    ) -> tuple[pa.Array, pa.Array]:
        of_files = pc.equal(pc.binary_length(keys), FILE_KEY_LENGTH)
        found: list[tuple[pa.Array, pa.Array]] = []
        for which, kind in ((of_files, RecordType.COLUMN_STATS), (pc.invert(of_files), RecordType.PARTITION_STATS)):
            some, theirs = keys.filter(which), values.filter(which)
            if len(some):
                by_column = stats_records.decode(some, theirs, schema_json)
                merged = {column: newest_stats([table]) for column, table in by_column.items()}
                some, theirs = stats_records.encode(merged, form, index_version=index_version(), record_type=kind)
            found.append((some, theirs))
        return pa.concat_arrays([keys for keys, _ in found]), pa.concat_arrays([values for _, values in found])

    def decoded(self, records: pa.Table) -> pa.Table:
        return newest_stats([records])


def newest_stats(tables: Sequence[pa.Table]) -> pa.Table:
    """Stats of one column, records given oldest first: a newer record replaces the older one of its key if either is
    deleted or the newer is tight, else their ranges are united and their counts added. Deleted ones are left out."""
    kind = common_type([table.schema.field("min").type for table in tables])
    rows = pa.concat_tables([_with_bounds(table, kind) for table in tables])
    keys = codes(plain_strings(rows["key"]))
    if len(keys) > int(keys.max(initial=-1)) + 1:
        rows = _newest_ranges(rows, keys)
    return rows.filter(pc.invert(rows["is_deleted"]))


def _with_bounds(table: pa.Table, kind: pa.DataType) -> pa.Table:
    if table.schema.field("min").type == kind:
        return table
    bounds = {name: as_type(plain(table[name]), kind) for name in ("min", "max")}
    schema = stats_schema(kind)
    return pa.Table.from_arrays([bounds.get(name, table[name]) for name in schema.names], schema=schema)


def _newest_ranges(records: pa.Table, keys: Int64s) -> pa.Table:
    """The newest record of each key, widened by the older ones that it does not replace."""
    order = np.argsort(keys, kind="stable")
    first, lasts = runs(keys[order])
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

    firsts, _ = runs(ranges)
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
