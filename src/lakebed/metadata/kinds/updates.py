"""What an action on the data table says to the metadata table: its files, ranges of their columns and of partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.column_ranges import COUNTS
from lakebed.metadata.keys import (
    column_stats_keys,
    file_keys,
    h64,
    partition_stats_keys,
)
from lakebed.metadata.kinds import stats_records
from lakebed.metadata.kinds.file_ranges import UNKNOWN_COUNTS
from lakebed.metadata.kinds.stats_records import Stats, Types, stats_schema
from lakebed.metadata.kinds.stats_types import as_type, have_room, widest_bounds
from lakebed.metadata.record_values import RecordType
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm
from lakebed.upkeep.stored_files import NewFile

Int64s = npt.NDArray[np.int64]


def stats_of(files: Sequence[NewFile], kinds: Types, index_version: int, *, with_unknown: bool = False) -> Stats:
    """A stats table for each column, of the files that have ranges; `kinds` names the columns and their types.

    Where a column has NaN its bounds are the infinities, and where its range is not known the widest of its type: real
    Hudi takes no comparison with NaN for true when it skips files, and a file without a record, once another one has
    it, for a file of nulls. It has none where its type has no widest bounds, and where a record of the index's version
    has no room for its own. `with_unknown`: bounds that are not known are null.
    """
    ranged = [(f, f.ranges, frozenset(f.ranges.schema.names)) for f in files if f.ranges is not None]
    all_keys = file_keys([f.partition for f, _, _ in ranged], [f.name for f, _, _ in ranged])
    all_names = pa.array([f.name for f, _, _ in ranged], pa.string())
    found: Stats = {}
    for column, kind in kinds.items():
        having = [i for i, (_, _, columns) in enumerate(ranged) if column in columns]
        if not having:
            continue
        keys, names = all_keys, all_names
        if len(having) < len(ranged):
            keys, names = (texts.take(pa.array(having)) for texts in (all_keys, all_names))
        ranges = [ranged[i][1].column(column) for i in having]
        bounds = [pa.concat_arrays([as_type(r.field(side), kind) for r in ranges]) for side in ("min", "max")]
        counts = {name: pa.concat_arrays([r.field(name) for r in ranges]) for name in COUNTS}
        table = _stats_table(column_stats_keys(column, keys), names, bounds, counts, tight=False)
        if not with_unknown and any(bound.null_count for bound in bounds):
            table = _widened(table, _is_unknown(table))
        if pa.types.is_decimal(kind):
            low, high = (have_room(table[side].combine_chunks(), index_version) for side in ("min", "max"))
            table = table.filter(pc.and_(low, high))
        found[column] = without_nan(table)
    return found


def without_nan(stats: pa.Table) -> pa.Table:
    """Stats of files with the infinities as bounds where there is NaN, see `stats_of`."""
    return _widened(stats, _has_nan(stats)) if pa.types.is_floating(stats.schema.field("min").type) else stats


def _widened(stats: pa.Table, which: pa.ChunkedArray) -> pa.Table:
    """With the widest bounds where `which` says; without those rows where the type has no such bounds."""
    if not pc.any(which).as_py():
        return stats
    kind = stats.schema.field("min").type
    widest = widest_bounds(kind)
    if widest is None:
        return stats.filter(pc.invert(which))
    for side, bound in zip(("min", "max"), widest, strict=True):
        at = stats.schema.get_field_index(side)
        stats = stats.set_column(at, stats.schema.field(at), pc.if_else(which, bound, stats[side]))
    return stats


def _is_unknown(stats: pa.Table) -> pa.ChunkedArray:
    """Which stats of files have no bounds although there are values."""
    all_null = pc.fill_null(pc.equal(stats["null_count"], stats["value_count"]), False)
    return pc.and_not(pc.or_(stats["min"].is_null(), stats["max"].is_null()), all_null)


def _has_nan(stats: pa.Table) -> pa.ChunkedArray:
    """For stats of floating numbers."""
    return pc.fill_null(pc.is_nan(stats["max"]), False)


def _stats_table(
    keys: pa.Array, names: pa.Array, bounds: Sequence[pa.Array], counts: Mapping[str, pa.Array], *, tight: bool
) -> pa.Table:
    n = len(keys)
    flags = {"is_deleted": pa.repeat(pa.scalar(False), n), "is_tight": pa.repeat(pa.scalar(tight), n)}
    columns = {"key": keys, "file_name": names, "min": bounds[0], "max": bounds[1], **counts, **flags}
    schema = stats_schema(bounds[0].type)
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def column_stats_records(stats: Stats, form: RecordForm, index_version: int) -> Records:
    """Records of `column_stats`."""
    return Records.upserts(*stats_records.encode(stats, form, index_version=index_version))


def partition_stats_records(
    known: Stats,
    new: Stats,
    live: Mapping[str, Collection[str]],
    kinds: Types,
    form: RecordForm,
    index_version: int,
    *,
    tight: bool = True,
) -> Records:
    """Records of `partition_stats` for the partition paths in `live`, which names the files that each has after the
    action; `known` and `new` are the stats of older and of new files.

    A partition of which some files have no range for a column gets the widest record of the column's type, one where no
    file has any gets none: an old one is deleted, and real Hudi takes it for one of nulls. Without
    `tight` the records widen what there is instead of replacing it: for an action that others which were requested
    before it may complete after.
    """
    merged, deleted = merged_partition_stats(known, new, live, kinds, tight=tight)
    records = stats_records.encode(merged, form, index_version=index_version, record_type=RecordType.PARTITION_STATS)
    return Records(*records, deleted=pa.array(deleted, pa.string()))


def merged_partition_stats(
    known: Stats,
    new: Stats,
    live: Mapping[str, Collection[str]],
    kinds: Types,
    *,
    of_expression: bool = False,
    zero_is_known: bool = False,
    tight: bool = True,
) -> tuple[Stats, list[str]]:
    """Stats of the partition paths in `live`, from those of their files, see `partition_stats_records`; and the keys of
    columns and paths that have none. `of_expression`: they are those of an expression index, in whose stats the
    nulls are not among the values. `zero_is_known`: a range of floating numbers from 0.0 to 0.0 counts as one."""
    paths = sorted(live)
    pairs = [(number, path, name) for number, path in enumerate(paths) for name in sorted(live[path])]
    owners = np.array([number for number, _, _ in pairs], np.int64)
    keys = file_keys([path for _, path, _ in pairs], [name for _, _, name in pairs])
    file_counts = np.bincount(owners, minlength=len(paths))
    merged: Stats = {}
    deleted: list[str] = []
    for column, kind in kinds.items():
        sources = [s[column] for s in (known, new) if column in s]
        rows = [_bounded(stats, kind, of_expression=of_expression, zero_is_known=zero_is_known) for stats in sources]
        stats_keys = partition_stats_keys(column, paths, of_expression=of_expression)
        table, whole = (
            _by_partition(column, pa.concat_tables(rows), keys, owners, file_counts, paths, stats_keys, tight=tight)
            if rows
            else (None, frozenset[int]())
        )
        widest = widest_bounds(kind)
        partly = sorted(_owners_of(column, sources, keys, owners) - whole)
        if table is not None and partly and widest is not None:
            wide = _widest_stats(stats_keys.take(pa.array(partly)), [paths[n] for n in partly], widest, tight=tight)
            table, whole = pa.concat_tables([table, wide]), whole | {*partly}
        if table is not None and len(table):
            merged[column] = table
        deleted += [stats_keys[number].as_py() for number in range(len(paths)) if number not in whole]
    return merged, deleted


def _owners_of(column: str, sources: Sequence[pa.Table], keys: pa.Array, owners: Int64s) -> set[int]:
    """The numbers of the partitions that have a live file with a record of the column."""
    prefix = len(h64(column))
    rows = [pc.index_in(pc.utf8_slice_codeunits(t["key"], prefix), value_set=keys).drop_null() for t in sources]
    return {*chain.from_iterable(owners[found.to_numpy()].tolist() for found in rows)}


def _widest_stats(
    keys: pa.Array, paths: Sequence[str], widest: tuple[pa.Scalar, pa.Scalar], *, tight: bool
) -> pa.Table:
    """Stats that leave everything possible: values, and nulls."""
    n = len(keys)
    counts = {name: pa.repeat(pa.scalar(UNKNOWN_COUNTS[name]), n) for name in COUNTS}
    bounds = [pa.repeat(bound, n) for bound in widest]
    return _stats_table(keys, pa.array(paths, pa.string()), bounds, counts, tight=tight)


def _bounded(stats: pa.Table, kind: pa.DataType, *, of_expression: bool, zero_is_known: bool) -> pa.Table:
    """Stats whose bounds are known, in the column's type of today; of a column of nulls nothing is unknown."""
    for side in ("min", "max"):
        at = stats.schema.get_field_index(side)
        bound = as_type(stats[side].combine_chunks(), kind)
        stats = stats.set_column(at, pa.field(side, kind), bound)
    all_null = pc.equal(pa.scalar(0) if of_expression else stats["null_count"], stats["value_count"])
    known = pc.and_(stats["min"].is_valid(), stats["max"].is_valid())
    if pa.types.is_floating(kind):  # 0.0 to 0.0 is what real Hudi says of a file with NaN
        zero = pc.and_(pc.equal(stats["min"], 0.0), pc.equal(stats["max"], 0.0))
        unsure = _has_nan(stats) if zero_is_known else pc.or_(pc.fill_null(zero, False), _has_nan(stats))
        known = pc.and_not(known, unsure)
    return stats.filter(pc.or_(known, pc.fill_null(all_null, False)))


def _by_partition(
    column: str,
    stats: pa.Table,
    keys: pa.Array,
    owners: Int64s,
    file_counts: Int64s,
    paths: Sequence[str],
    stats_keys: pa.Array,
    *,
    tight: bool,
) -> tuple[pa.Table, frozenset[int]]:
    """One row a partition of which every live file has a range, and the numbers of those partitions.

    `keys` are the live files' and `owners` the numbers of their partitions, of which each has `file_counts` files and
    one of the `stats_keys`.
    """
    found = pc.index_in(pc.utf8_slice_codeunits(stats["key"], len(h64(column))), value_set=keys)
    rows = stats.filter(found.is_valid())
    owner = owners[found.drop_null().to_numpy()]
    rows = rows.select(["min", "max", *COUNTS]).append_column("owner", pa.array(owner))
    sums = rows.group_by("owner", use_threads=False).aggregate(
        [("min", "min"), ("max", "max"), *((name, "sum") for name in COUNTS), ("owner", "count")]
    )
    has_all = file_counts[sums["owner"].to_numpy()] == sums["owner_count"].to_numpy()
    sums = sums.filter(pa.array(has_all)).combine_chunks()
    numbers: list[int] = sums["owner"].to_pylist()
    partitions = [paths[number] for number in numbers]
    counts = {name: sums[f"{name}_sum"].combine_chunks().cast(pa.int64()) for name in COUNTS}
    bounds = [sums[side].combine_chunks() for side in ("min_min", "max_max")]
    own = stats_keys.take(pa.array(numbers, pa.int64()))
    table = _stats_table(own, pa.array(partitions, pa.string()), bounds, counts, tight=tight)
    return table, frozenset(numbers)
