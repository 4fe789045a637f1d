"""Column statistics as values: of new files, of files in storage (by footer or by rows), combined by file or partition
path, and which columns have them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.format.base_file import Footer, read_base_file, read_footer
from lakebed.format.bounded_cache import cached_by_schema
from lakebed.format.column_ranges import COUNTS, ColumnRanges, has_range
from lakebed.format.data_block import open_data_block
from lakebed.format.hashes import plain_strings
from lakebed.format.log_file import BlockType, scan_blocks
from lakebed.format.parquet_encodings import leaves
from lakebed.format.row_groups.nan_chunks import leaves_out_bounds
from lakebed.format.sources import FileSource
from lakebed.metadata_kinds.stored import NewFile
from lakebed.metadata_records import stats_codec
from lakebed.metadata_records.definitions import RANGES_OPTION, IndexDefinition
from lakebed.metadata_records.layout import (
    COLUMN_STATS,
    FILE_KEY_LENGTH,
    PARTITION_STATS,
    column_stats_keys,
    file_keys,
    h64,
    partition_stats_keys,
)
from lakebed.metadata_records.merge_records import codes, runs
from lakebed.metadata_records.records import RecordForm, Records, RecordType, record_type_of
from lakebed.metadata_records.stats_codec import (
    Stats,
    Types,
    as_type,
    common_type,
    has_room_for_all,
    have_room,
    stats_schema,
    widest_bounds,
)
from lakebed.model import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakebed.properties.table_config import TableConfig
from lakebed.schema.arrow import leaf_paths
from lakebed.schema.conversion import cast_column
from lakebed.schema.plain_arrow import as_numpy, grouped_rows, one_array
from lakebed.storage.base import Storage

DATA_BLOCKS = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA)


def ranges_of_file(
    storage: Storage, path: str, size: int, kinds: Mapping[str, pa.DataType], footer: Footer | None = None
) -> pa.RecordBatch:
    """A row in the form of `ColumnRanges`, for the columns (Parquet paths) of `kinds` that the file has, in those
    types. The footer is read unless it is given as `footer`.

    Rows are read for floating columns whose footer has nothing reliable on NaN, for columns stored in another type,
    and for those of which a row group has no statistics; the others cost the footer only. Raises `CorruptFile`.
    """
    footer = footer or read_footer(storage, path, size)
    stored = dict(leaf_paths(footer.schema))
    present = {column: kind for column, kind in kinds.items() if column in stored}
    footer_ranges = _footer_ranges(footer, present)
    exact = leaves_out_bounds(path, (footer.source or footer).metadata.created_by)
    read = [
        column
        for column, kind in present.items()
        if not _is_recorded(footer_ranges, column, stored[column], kind, exact=exact)
    ]
    counted = _Extremes({column: present[column] for column in read})
    if read:
        known_names = frozenset(footer.schema.names)
        tops = sorted({column if column in known_names else column.split(".")[0] for column in read})
        for batch in read_base_file(storage, path, size, tops):
            counted.see(batch)
    counts = dict.fromkeys(footer_ranges.schema.names, footer_ranges)
    rows = {
        c: counted.row(c, counts.get(c)) if c in read else footer_ranges.column(c)
        for c in present
        if has_range(stored[c])
    }
    return pa.RecordBatch.from_arrays(list(rows.values()), names=list(rows))


def _footer_ranges(footer: Footer, columns: Collection[str]) -> pa.RecordBatch:
    """The ranges of these columns in the footer; for a skeleton file also the ranges in its source file's footer."""
    parts = [footer] if footer.source is None else [replace(footer, source=None), footer.source]
    ranges: dict[str, pa.Array] = {}
    for part in parts:
        stored = {part.metadata.schema.column(n).path for n in range(part.metadata.num_columns)}
        part_columns = [column for column in columns if column in stored and column not in ranges]
        row = ColumnRanges(part.schema, part_columns).row(part.metadata)
        ranges |= dict(zip(row.schema.names, row.columns, strict=True))
    return pa.RecordBatch.from_arrays(list(ranges.values()), names=list(ranges))


def ranges_of_log(storage: Storage, path: str, size: int, kinds: Mapping[str, pa.DataType]) -> pa.RecordBatch | None:
    """The ranges of the records in a log file's data blocks; None if it has no data blocks. Columns that a block does
    not have are missing. Raises `CorruptFile`."""
    counted = _Extremes(kinds)
    everywhere = set(kinds)
    rows = 0
    for head in scan_blocks(FileSource(storage, path, size)):
        if head.type not in DATA_BLOCKS:
            continue
        block = open_data_block(head, path)
        stored = dict(leaf_paths(block.schema))
        everywhere &= stored.keys()
        known_names = frozenset(block.schema.names)
        tops = {column if column in known_names else column.split(".")[0] for column in everywhere}
        counted.see(block.read(sorted(tops)))
        rows += block.rows
    if not rows:
        return None
    present = [column for column in kinds if column in everywhere]
    return pa.RecordBatch.from_arrays([counted.row(column) for column in present], names=present)


def unknown_ranges(kinds: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    """A row for a file whose ranges are unknown: it may have values and nulls."""
    columns: list[pa.StructArray] = []
    for kind in kinds.values():
        fields = {side: pa.nulls(1, kind) for side in ("min", "max")}
        fields |= {name: pa.array([UNKNOWN_COUNTS[name]], pa.int64()) for name in COUNTS}
        columns.append(pa.StructArray.from_arrays(list(fields.values()), names=list(fields)))
    return pa.RecordBatch.from_arrays(columns, names=list(kinds))


def _is_recorded(
    footer_ranges: pa.RecordBatch, column: str, stored: pa.DataType, kind: pa.DataType, *, exact: bool
) -> bool:
    if (pt.is_floating(stored) and not exact) or stored != kind or column not in footer_ranges.schema.names:
        return False
    row = footer_ranges.column(column)[0].as_py()
    if row["null_count"] is None:
        return False
    return row["null_count"] == row["value_count"] or None not in (row["min"], row["max"])


# The ranges of this many files share buffers.
_TOGETHER = 128
_FALSE, _TRUE = pa.scalar(False, pa.bool_()), pa.scalar(True, pa.bool_())
# Counts for unknown values: some are null, and some are not.
UNKNOWN_COUNTS = {"value_count": 2, "null_count": 1, "total_size": 0, "total_uncompressed": 0}


class _Extremes:
    """The smallest and the greatest value of columns, updated batch by batch; NaN is the greatest."""

    def __init__(self, kinds: Mapping[str, pa.DataType]) -> None:
        self._kinds = kinds
        self._bounds: dict[str, list[Any]] = {column: [] for column in kinds}
        self._nan: set[str] = set()
        self._nulls = dict.fromkeys(kinds, 0)
        self._values = dict.fromkeys(kinds, 0)

    def see(self, batch: pa.RecordBatch) -> None:
        for top in batch.schema.names:
            for path, values in leaves(top, batch.column(top)):
                if path in self._kinds:
                    self._add(path, cast_column(values, self._kinds[path]))

    def _add(self, path: str, values: pa.Array) -> None:
        self._nulls[path] += values.null_count
        self._values[path] += len(values)
        if pt.is_floating(values.type):
            isnan = pc.fill_null(pc.is_nan(values), False)
            if pc.any(isnan).as_py():
                self._nan.add(path)
                values = values.filter(pc.invert(isnan))
        extremes = pc.min_max(values)
        if extremes["min"].is_valid:
            self._bounds[path] += [extremes["min"].as_py(), extremes["max"].as_py()]

    def row(self, path: str, footer_ranges: pa.RecordBatch | None = None) -> pa.StructArray:
        """The column's struct, with the counts of the footer if it has them."""
        kind = self._kinds[path]
        extremes = pc.min_max(pa.array(self._bounds[path], kind))
        low, high = extremes["min"], extremes["max"]
        if path in self._nan:
            high = pa.scalar(float("nan"), kind)
            low = low if low.is_valid else high
        fields = {"min": pa.repeat(low, 1), "max": pa.repeat(high, 1)}
        if footer_ranges is None:
            counts = {"value_count": self._values[path]}
            fields |= {name: pa.array([counts.get(name, 0)], pa.int64()) for name in COUNTS}
        else:
            fields |= {name: footer_ranges.column(path).field(name) for name in COUNTS}
        fields["null_count"] = pa.array([self._nulls[path]], pa.int64())
        return pa.StructArray.from_arrays(list(fields.values()), names=list(fields))


Int64s = npt.NDArray[np.int64]


def stats_of(runs: Iterable[FileRanges], kinds: Types, index_version: int, *, with_unknown: bool = False) -> Stats:
    """A stats table for each column, of files with their ranges; `kinds` names the columns and their types.

    If a column has NaN its bounds are the infinities, since for real Hudi no comparison with NaN is true when it skips
    files. If its range is unknown it gets the widest bounds of its type, since real Hudi reads a missing record as a
    file of nulls once another file has one. It has no record if its type has no widest bounds, or if a record of the
    index's version cannot store its bounds. `with_unknown`: unknown bounds are null.
    """
    parts: dict[str, list[pa.Table]] = {}
    for run in runs:
        keys, names, ranges = file_keys(run.partitions, run.names), pa.array(run.names, pa.string()), run.ranges
        for column, kind in kinds.items():
            if column not in ranges.schema.names:
                continue
            column_ranges = ranges.column(column)
            bounds = [as_type(column_ranges.field(side), kind) for side in ("min", "max")]
            counts = {name: column_ranges.field(name) for name in COUNTS}
            table = _stats_table(column_stats_keys(column, keys), names, bounds, counts, tight=False)
            parts.setdefault(column, []).append(table)
    stats: Stats = {}
    for column, kind in kinds.items():
        if column not in parts:
            continue
        table = pa.concat_tables(parts[column])
        if not with_unknown and (table["min"].null_count or table["max"].null_count):
            table = _widened(table, _is_unknown(table))
        if pa.types.is_decimal(kind):
            low, high = (have_room(table[side].combine_chunks(), index_version) for side in ("min", "max"))
            table = table.filter(pc.and_(low, high))
        stats[column] = without_nan(table)
    return stats


class FileRanges(NamedTuple):
    """Files with ranges of the same columns: their partition paths, their names, and a row in the form of
    `ColumnRanges` for each. A separate batch for each file would take many times its content."""

    partitions: Sequence[str]
    names: Sequence[str]
    ranges: pa.RecordBatch


def together(files: Iterable[NewFile]) -> Iterator[FileRanges]:
    """The ranges of the files that have some, in the order of the files, of many files at a time."""
    ranged = ((file, file.ranges) for file in files if file.ranges is not None)
    while file_batch := list(islice(ranged, _TOGETHER)):
        start = 0
        for end in range(1, len(file_batch) + 1):
            if end == len(file_batch) or not file_batch[end][1].schema.equals(file_batch[start][1].schema):
                run = file_batch[start:end]
                ranges = pa.concat_batches([ranges for _, ranges in run])
                yield FileRanges([file.partition for file, _ in run], [file.name for file, _ in run], ranges)
                start = end


def without_nan(stats: pa.Table) -> pa.Table:
    """The statistics of files, with infinities as bounds of columns with NaN (see `stats_of`)."""
    return _widened(stats, _has_nan(stats)) if pa.types.is_floating(stats.schema.field("min").type) else stats


def _widened(stats: pa.Table, which: pa.ChunkedArray) -> pa.Table:
    """The stats with the widest bounds in the rows `which`; without these rows if the type has no widest bounds."""
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
    """Flags of the statistics that have no bounds although there are values."""
    all_null = pc.fill_null(pc.equal(stats["null_count"], stats["value_count"]), False)
    return pc.and_not(pc.or_(stats["min"].is_null(), stats["max"].is_null()), all_null)


def _has_nan(stats: pa.Table) -> pa.ChunkedArray:
    """Flags of the stats of floating numbers whose values include NaN."""
    return pc.fill_null(pc.is_nan(stats["max"]), False)


def _stats_table(
    keys: pa.Array, names: pa.Array, bounds: Sequence[pa.Array], counts: Mapping[str, pa.Array], *, tight: bool
) -> pa.Table:
    n = len(keys)
    flags = {
        "is_deleted": pa.repeat(_FALSE, n),
        "is_tight": pa.repeat(_TRUE if tight else _FALSE, n),
    }
    columns = {"key": keys, "file_name": names, "min": bounds[0], "max": bounds[1], **counts, **flags}
    schema = stats_schema(bounds[0].type)
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def column_stats_records(stats: Stats, form: RecordForm, index_version: int) -> Records:
    """The records of `column_stats` for these statistics."""
    return Records.upserts(*stats_codec.encode(stats, form, index_version=index_version))


def partition_stats_records(
    existing: Stats,
    new: Stats,
    live: Mapping[str, Collection[str]],
    kinds: Types,
    form: RecordForm,
    index_version: int,
    *,
    tight: bool = True,
) -> Records:
    """The records of `partition_stats` for the partition paths in `live`, which has the names of the files that each
    has after the action; `existing` and `new` are the statistics of older and of new files.

    If some files of a partition have no range for a column, its record has the widest bounds of the column's type. If
    no file has one, an old record is deleted, and real Hudi assumes only nulls. Without `tight` the records widen the
    existing ones instead of replacing them: this is for an action after which earlier requested actions may still
    complete.
    """
    combined, deleted = combined_partition_stats(existing, new, live, kinds, tight=tight)
    records = stats_codec.encode(combined, form, index_version=index_version, record_type=RecordType.PARTITION_STATS)
    return Records(*records, deleted=pa.array(deleted, pa.string()))


def combined_partition_stats(
    existing: Stats,
    new: Stats,
    live: Mapping[str, Collection[str]],
    kinds: Types,
    *,
    of_expression: bool = False,
    zero_is_known: bool = False,
    tight: bool = True,
) -> tuple[Stats, list[str]]:
    """The statistics of the partition paths in `live`, combined from those of their files (see
    `partition_stats_records`), and the keys of columns and paths that have none. With `of_expression` they are those of
    an expression index, in which nulls are not among the values. With `zero_is_known` a range of floating-point numbers
    from 0.0 to 0.0 counts as known."""
    paths = sorted(live)
    pairs = [(number, path, name) for number, path in enumerate(paths) for name in sorted(live[path])]
    owners = np.array([number for number, _, _ in pairs], np.int64)
    keys = file_keys([path for _, path, _ in pairs], [name for _, _, name in pairs])
    file_counts = np.bincount(owners, minlength=len(paths))
    combined: Stats = {}
    deleted: list[str] = []
    for column, kind in kinds.items():
        sources = [s[column] for s in (existing, new) if column in s]
        rows = [_bounded(stats, kind, of_expression=of_expression, zero_is_known=zero_is_known) for stats in sources]
        stats_keys = partition_stats_keys(column, paths, of_expression=of_expression)
        table, complete = (
            _by_partition(column, pa.concat_tables(rows), keys, owners, file_counts, paths, stats_keys, tight=tight)
            if rows
            else (None, frozenset[int]())
        )
        widest = widest_bounds(kind)
        # partition paths that have a live file with a record of the column
        with_record: set[int] = set()
        for stats in sources:
            at = pc.index_in(pc.utf8_slice_codeunits(stats["key"], len(h64(column))), value_set=keys).drop_null()
            with_record.update(owners[as_numpy(at)].tolist())
        partly = sorted(with_record - complete)
        if table is not None and partly and widest is not None:
            wide = _widest_stats(stats_keys.take(pa.array(partly)), [paths[n] for n in partly], widest, tight=tight)
            table, complete = pa.concat_tables([table, wide]), complete | {*partly}
        if table is not None and len(table):
            combined[column] = table
        deleted += [stats_keys[number].as_py() for number in range(len(paths)) if number not in complete]
    return combined, deleted


def _widest_stats(
    keys: pa.Array, paths: Sequence[str], widest: tuple[pa.Scalar, pa.Scalar], *, tight: bool
) -> pa.Table:
    """Statistics with the widest bounds, which include every value and nulls."""
    n = len(keys)
    counts = {name: pa.repeat(pa.scalar(UNKNOWN_COUNTS[name]), n) for name in COUNTS}
    bounds = [pa.repeat(bound, n) for bound in widest]
    return _stats_table(keys, pa.array(paths, pa.string()), bounds, counts, tight=tight)


def _bounded(stats: pa.Table, kind: pa.DataType, *, of_expression: bool, zero_is_known: bool) -> pa.Table:
    """The statistics whose bounds are known, in the column's present type. The bounds of a column of nulls count as
    known."""
    for side in ("min", "max"):
        at = stats.schema.get_field_index(side)
        bound = as_type(stats[side].combine_chunks(), kind)
        stats = stats.set_column(at, pa.field(side, kind), bound)
    all_null = pc.equal(pa.scalar(0) if of_expression else stats["null_count"], stats["value_count"])
    has_bounds = pc.and_(stats["min"].is_valid(), stats["max"].is_valid())
    if pa.types.is_floating(kind):  # 0.0 to 0.0 is what real Hudi writes for a file with NaN
        zero = pc.and_(*(pc.equal(stats[side], pa.scalar(0.0, stats[side].type)) for side in ("min", "max")))
        unsure = _has_nan(stats) if zero_is_known else pc.or_(pc.fill_null(zero, False), _has_nan(stats))
        has_bounds = pc.and_not(has_bounds, unsure)
    return stats.filter(pc.or_(has_bounds, pc.fill_null(all_null, False)))


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
    """One row for each partition in which every live file has a range, and the numbers of those partitions.

    `keys` are the live files' and `owners` the numbers of their partitions, of which each has `file_counts` files and
    one of the `stats_keys`.
    """
    positions = pc.index_in(pc.utf8_slice_codeunits(stats["key"], len(h64(column))), value_set=keys)
    rows = stats.filter(positions.is_valid())
    owner = owners[as_numpy(positions.drop_null())]
    rows = rows.select(["min", "max", *COUNTS]).append_column("owner", pa.array(owner))
    sums = grouped_rows(
        rows, ["owner"], [("min", "min"), ("max", "max"), *[(name, "sum") for name in COUNTS], ("owner", "count")]
    )
    has_all = file_counts[as_numpy(sums["owner"])] == as_numpy(sums["owner_count"])
    sums = sums.filter(pa.array(has_all)).combine_chunks()
    numbers: list[int] = sums["owner"].to_pylist()
    partitions = [paths[number] for number in numbers]
    counts = {name: sums[f"{name}_sum"].combine_chunks().cast(pa.int64()) for name in COUNTS}
    bounds = [sums[side].combine_chunks() for side in ("min_min", "max_max")]
    complete_keys = stats_keys.take(pa.array(numbers, pa.int64()))
    table = _stats_table(complete_keys, pa.array(partitions, pa.string()), bounds, counts, tight=tight)
    return table, frozenset(numbers)


Bools = npt.NDArray[np.bool_]


class StatsUnion:
    """Unites the ranges of one key, in `column_stats`, `partition_stats` and expression indexes of ranges."""

    def applies(self, value: bytes) -> bool:
        return record_type_of(value) in (RecordType.COLUMN_STATS, RecordType.PARTITION_STATS)

    def encoded(
        self, keys: pa.Array, values: Any, schema_json: str, form: RecordForm, index_version: Callable[[], int]
    ) -> tuple[pa.Array, pa.Array]:
        of_files = pc.equal(pc.binary_length(keys), FILE_KEY_LENGTH)
        parts: list[tuple[pa.Array, pa.Array]] = []
        for which, kind in ((of_files, RecordType.COLUMN_STATS), (pc.invert(of_files), RecordType.PARTITION_STATS)):
            part_keys, part_values = keys.filter(which), values.filter(which)
            if len(part_keys):
                by_column = stats_codec.decode(part_keys, part_values, schema_json)
                combined = {column: newest_stats([table]) for column, table in by_column.items()}
                part_keys, part_values = stats_codec.encode(
                    combined, form, index_version=index_version(), record_type=kind
                )
            parts.append((part_keys, part_values))
        return pa.concat_arrays([keys for keys, _ in parts]), pa.concat_arrays([values for _, values in parts])

    def decoded(self, records: pa.Table) -> pa.Table:
        return newest_stats([records])


def newest_stats(tables: Sequence[pa.Table]) -> pa.Table:
    """The statistics of one column, one per key, from tables in the order oldest first: a newer record replaces the
    older one of its key if either is deleted or the newer is tight, otherwise their ranges are united and their counts
    added. Deleted records are left out."""
    kind = common_type([table.schema.field("min").type for table in tables])
    of_kind = [t if t.schema.field("min").type == kind else _with_bounds(t, kind) for t in tables]
    rows = pa.concat_tables(of_kind)
    keys = codes(plain_strings(rows["key"]))
    if len(keys) > int(keys.max(initial=-1)) + 1:
        rows = _newest_ranges(rows, keys)
    return rows.filter(pc.invert(rows["is_deleted"]))


def _with_bounds(table: pa.Table, kind: pa.DataType) -> pa.Table:
    bounds = {name: as_type(one_array(table[name]), kind) for name in ("min", "max")}
    schema = stats_schema(kind)
    return pa.Table.from_arrays([bounds.get(name, table[name]) for name in schema.names], schema=schema)


def _newest_ranges(records: pa.Table, keys: Int64s) -> pa.Table:
    """The newest record of each key, widened by the older records that it does not replace."""
    order = np.argsort(keys, kind="stable")
    first, lasts = runs(keys[order])
    deleted, tight = (as_numpy(records[name])[order] for name in ("is_deleted", "is_tight"))
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
    return _with_member_bounds(rows, wide, ranges, records.take(pa.array(order[members])))


def _with_member_bounds(rows: pa.Table, wide: Int64s, ranges: Int64s, members: pa.Table) -> pa.Table:
    """The rows, those at `wide` with the bounds and counts of all their members; `ranges` has the row that each member
    belongs to."""
    mask = np.zeros(len(rows), np.bool_)
    mask[wide] = True

    def put(name: str, values: Any) -> pa.Table:
        column = pc.replace_with_mask(one_array(rows[name]), pa.array(mask), values.cast(rows.schema.field(name).type))
        return rows.set_column(rows.schema.get_field_index(name), name, column)

    firsts, _ = runs(ranges)
    for name, direction in (("min", "ascending"), ("max", "descending")):
        sortable = pa.table({"range": ranges, "bound": members[name]})
        by_bound = pc.sort_indices(sortable, sort_keys=[("range", "ascending"), ("bound", direction)])
        bounds = one_array(members[name]).take(by_bound.take(pa.array(firsts)))
        unknown = pa.array(np.logical_or.reduceat(_unknown(members, name), firsts))
        rows = put(name, pc.if_else(unknown, pa.scalar(None, bounds.type), bounds))
    for name in COUNTS:
        rows = put(name, pa.array(np.add.reduceat(as_numpy(pc.fill_null(members[name], 0)), firsts)))
    return rows


def _unknown(stats: pa.Table, side: str) -> Bools:
    """Flags of the bounds that are null although there are values. Such bounds are unknown, and so is each range united
    with them."""
    no_rows = pc.equal(stats["value_count"], pa.scalar(0, pa.int64()))
    none = pc.or_(pc.equal(stats["null_count"], stats["value_count"]), no_rows)
    return as_numpy(pc.and_not(stats[side].is_null(), pc.fill_null(none, False)))


# Hudi's own limit to the columns that get stats when no option names them.
MAX_COLUMNS = 32
# Indexed ahead of the table's own columns, where `has_meta_stats`.
META_WITH_STATS = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)

Kinds = dict[str, pa.DataType]


def stats_columns(
    schema: pa.Schema,
    definition: IndexDefinition | None,
    *,
    version: int,
    with_meta: bool,
    named: Sequence[str] = (),
    limit: int = MAX_COLUMNS,
) -> Kinds:
    """The columns (Parquet paths) for which a file of this schema (without meta columns) gets statistics, with their
    types.

    `definition` is the table's for `column_stats`, where it has one; if not, `with_meta` (`has_meta_stats`) adds meta
    columns. `named` is what the user asked for. Columns that came to the table after the definition was made join
    it, up to `limit`, unless the definition left some out.
    """
    defined = tuple(definition.source_fields) if definition is not None else ()
    return dict(_stats_columns(schema, defined, tuple(named), index_version_of(version), limit, with_meta=with_meta))


@cached_by_schema
def _stats_columns(
    schema: pa.Schema, defined: Sequence[str], named: Sequence[str], index_version: int, limit: int, *, with_meta: bool
) -> Kinds:
    kinds = dict(leaf_paths(schema))
    plain = [f.name for f in schema if f.name in kinds and has_range(f.type)]
    meta = list(META_WITH_STATS) if with_meta else []
    columns = list(named) or plain[:limit]
    if defined:
        definition_columns = [c for c in defined if c not in META_COLUMNS]
        meta = [c for c in defined if c in META_COLUMNS]
        columns = [*definition_columns, *_joining(plain, definition_columns, limit)] if not named else columns
    meta_kinds: Kinds = dict.fromkeys(meta, pa.string())
    return meta_kinds | {
        c: kinds[c] for c in columns if c in kinds and has_range(kinds[c]) and has_room_for_all(kinds[c], index_version)
    }


def has_meta_stats(config: TableConfig) -> bool:
    """Whether files get statistics of meta columns if no definition names the columns. On version 6 only if there are
    partition statistics: these come from release 1.2.0, which gives them meta columns in every version."""
    by_newer_release = config.version >= 8 or PARTITION_STATS in config.metadata_partitions
    return config.populate_meta_fields and by_newer_release


def _joining(plain: Sequence[str], recorded: Sequence[str], limit: int) -> list[str]:
    """The columns after the last recorded one; empty if an earlier column was left out on purpose."""
    positions = [plain.index(c) for c in recorded if c in plain]
    if not positions or len(recorded) >= limit or set(plain[: max(positions) + 1]) - set(recorded):
        return []
    return list(plain[max(positions) + 1 :][: limit - len(recorded)])


def stats_definitions(columns: Sequence[str], *, version: int) -> Mapping[str, IndexDefinition]:
    """The definition that names the columns with statistics, by partition; empty for versions before 8."""
    if version < 8:
        return {}
    definition = IndexDefinition(
        COLUMN_STATS, COLUMN_STATS, COLUMN_STATS, tuple(columns), {RANGES_OPTION: "true"}, index_version_of(version)
    )
    return {COLUMN_STATS: definition}


def index_version_of(version: int) -> int:
    """The version of the stats that tables of this version keep: 2 notes value types."""
    return 2 if version >= 9 else 1
