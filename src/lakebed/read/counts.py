"""Numbers of rows, and least and greatest values, from what is recorded of base files, which then are not opened.

Write stats of commits and column statistics of the metadata table have them. Neither is always right where real Hudi
wrote it (a write stat counts rows that could not be written; statistics of a file that are recorded twice are added
up), so a number counts where lakebed wrote it, or where both agree. A number that is not certain counts as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.filters.ranges import Bools, Bounds
from lakebed.format.file_names import has_exact_ranges
from lakebed.metadata_records.definitions import RANGES_OPTION
from lakebed.metadata_records.layout import COLUMN_STATS
from lakebed.metadata_records.stats_codec import Stats, widest_bounds
from lakebed.model import COMMIT_TIME, DERIVED, WRITER_ID, BaseFile
from lakebed.read.batches import row_readers, scan_batches
from lakebed.read.plan import ScanPlan, null_rows
from lakebed.read.statistics import bounds_of_files, can_bound, unknown
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot, metadata_damage_named
from lakebed.storage.parallel import parallel_map

Int64s = npt.NDArray[np.int64]
UNKNOWN = -1
"""The number of rows of a file where it is not known."""
# The statistics of so many partition paths are asked for one by one; for more of them all are read.
_MAX_PARTITIONS = 32
_READERS = 16
# So many rows of nulls are in a batch.
_NULLS = 1 << 20
_ROW = f"{DERIVED}row"


@dataclass(frozen=True)
class RecordedRows:
    """The recorded row counts and statistics of the base files of a view.

    `schema` are the table's columns with their types.
    """

    snapshot: Snapshot
    schema: pa.Schema

    def row_counts(self, files: Sequence[BaseFile]) -> Int64s:
        """The number of rows of each file, `UNKNOWN` if it is not certain."""
        written, by_lakebed = self._written(files)
        counts = np.where(by_lakebed, written, UNKNOWN)
        open_files = np.flatnonzero(counts == UNKNOWN)
        if not len(open_files):
            return counts
        unknown_files = [files[at] for at in open_files.tolist()]
        measured = self._value_counts(unknown_files)
        agree = (measured == written[open_files]) | ((written[open_files] == UNKNOWN) & self._statistics_are_lakebeds)
        counts[open_files] = np.where(agree, measured, UNKNOWN)
        return counts

    def constants(self, files: Sequence[BaseFile], columns: Sequence[str]) -> tuple[pa.RecordBatch, Bools]:
        """The value that all rows of a file have in each of the columns, and for which files that is certain of all
        columns."""
        certain = np.ones(len(files), np.bool_)
        bounds = self._bounds(files, columns, self._exact(files))
        for name, column_bounds in bounds.items():
            # a zero has two signs
            is_plain = not pa.types.is_floating(self.schema.field(name).type)
            certain &= column_bounds.are_equal() & ~column_bounds.may_null & is_plain
        return pa.RecordBatch.from_arrays(
            [column_bounds.low for column_bounds in bounds.values()], schema=self._schema_of(columns)
        ), certain

    def extremes(self, files: Sequence[BaseFile], columns: Sequence[str]) -> tuple[pa.Table, Bools]:
        """Rows with the least and the greatest value of each column (except nulls) in all files for which both are
        certain, and a mask of these files."""
        exact = self._exact(files)
        certain = np.ones(len(files), np.bool_)
        bounds_by_column: dict[str, pa.Array] = {}
        for name, file_bounds in self._bounds(files, columns, exact).items():
            bounds = _occurring(file_bounds, exact, self.schema.field(name).type)
            has_bounds = as_numpy(pc.and_(bounds.low.is_valid(), bounds.high.is_valid()))
            certain &= has_bounds | ~bounds.may_hold
            bounds_by_column[name] = bounds
        values = [
            pa.concat_arrays(
                [column_bounds.low.filter(pa.array(certain)), column_bounds.high.filter(pa.array(certain))]
            )
            for column_bounds in bounds_by_column.values()
        ]
        return pa.Table.from_arrays(values, schema=self._schema_of(columns)), certain

    def _schema_of(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in columns])

    def _exact(self, files: Sequence[BaseFile]) -> Bools:
        """Flags of the files whose rows and statistics lakebed wrote."""
        exact = np.array([has_exact_ranges(file.write_token) for file in files], np.bool_)
        return exact & self._statistics_are_lakebeds

    def _bounds(self, files: Sequence[BaseFile], columns: Sequence[str], exact: Bools) -> dict[str, Bounds]:
        """Bounds of the columns in each file."""
        kinds = {name: self.schema.field(name).type for name in columns}
        version, built = self._index_version, self._statistics_are_lakebeds
        usable = {name: kind for name, kind in kinds.items() if can_bound(kind, version=version, exact=built)}
        if self.snapshot.history is not None:
            usable = {}  # files are matched by column ids there, statistics have the names of their time
        stats = self._statistics(files, usable)
        names = pa.array([file.name for file in files], pa.string())
        return {
            name: bounds_of_files(stats.get(name), names, exact, kind) if name in usable else unknown(len(files), kind)
            for name, kind in kinds.items()
        }

    def _written(self, files: Sequence[BaseFile]) -> tuple[Int64s, Bools]:
        """The numbers of rows by write stats, `UNKNOWN` for a file without one, and flags of the numbers that lakebed
        wrote."""
        timeline = self.snapshot.timeline
        commits = {time: timeline.commit(time) for time in {file.instant for file in files}}
        active = [instant for instant in commits.values() if instant is not None]
        rows: dict[str, Mapping[str, int]] = {}
        lakebeds: set[str] = set()
        for instant, body in zip(active, timeline.commits_metadata(active), strict=True):
            rows[instant.time] = body.rows_by_path
            if WRITER_ID in body.extra:
                lakebeds.add(instant.time)
        none: Mapping[str, int] = {}
        counts = [rows.get(file.instant, none).get(file.path, UNKNOWN) for file in files]
        by_lakebed = [file.instant in lakebeds and has_exact_ranges(file.write_token) for file in files]
        return np.array(counts, np.int64), np.array(by_lakebed, np.bool_)

    def _value_counts(self, files: Sequence[BaseFile]) -> Int64s:
        """The number of rows of each file by the column statistics of a column that has a value in every row; `UNKNOWN`
        (-1) for a file without certain statistics."""
        counts = np.full(len(files), UNKNOWN, np.int64)
        column = self._counted_column
        kind = pa.string() if column == COMMIT_TIME or column is None else self.schema.field(column).type
        table = None if column is None else self._statistics(files, {column: kind}).get(column)
        if table is None:
            return counts
        names = pa.array([file.name for file in files], pa.string())
        # a file of a column without nulls, and of one name
        records = table.filter(pc.fill_null(pc.equal(table["null_count"], 0), False))
        repeated = pc.value_counts(records["file_name"])
        once = repeated.field("values").filter(pc.equal(repeated.field("counts"), 1))
        records = records.filter(pc.is_in(records["file_name"], value_set=once)).combine_chunks()
        at = pc.index_in(names, value_set=records["file_name"])
        value_counts = pc.fill_null(records["value_count"].take(at), UNKNOWN)
        return as_numpy(value_counts).astype(np.int64)

    @property
    def _counted_column(self) -> str | None:
        """A column with statistics that has a value in every row; None if there is none."""
        metadata = self.snapshot.metadata
        definition = None if metadata is None else metadata.slices.definitions.get(COLUMN_STATS)
        config = self.snapshot.config
        candidates = [COMMIT_TIME, *config.key_fields] if config.populate_meta_fields else [*config.key_fields]
        if definition is not None and definition.source_fields:
            candidates = [name for name in candidates if name in definition.source_fields]
        else:
            candidates = [name for name in candidates if name in self.schema.names and name != COMMIT_TIME]
        return candidates[0] if candidates else None

    @property
    def _metadata(self) -> MetadataLookups | None:
        metadata = self.snapshot.metadata
        return metadata if metadata is not None and metadata.has(COLUMN_STATS) else None

    @property
    def _index_version(self) -> int:
        metadata = self._metadata
        definition = None if metadata is None else metadata.slices.definitions.get(COLUMN_STATS)
        return definition.version if definition else 2 if self.snapshot.config.version >= 9 else 1

    @property
    def _statistics_are_lakebeds(self) -> bool:
        """Whether lakebed built the partition of column statistics."""
        metadata = self._metadata
        definition = None if metadata is None else metadata.slices.definitions.get(COLUMN_STATS)
        return definition is not None and RANGES_OPTION in definition.options

    def _statistics(self, files: Sequence[BaseFile], kinds: Mapping[str, pa.DataType]) -> Stats:
        """The tables of statistics of some columns; empty if another process is building or dropping them."""
        metadata = self._metadata
        if metadata is None or not files or not kinds:
            return {}
        partitions = {file.partition for file in files}
        few = partitions if len(partitions) <= _MAX_PARTITIONS else None
        with metadata_damage_named(self.snapshot.storage):
            try:
                return metadata.column_stats(list(kinds), few, dict(kinds))
            except (CorruptFile, FileNotFoundError):
                if metadata.slices.has_other_partitions():
                    return {}
                raise


def _occurring(bounds: Bounds, exact: Bools, kind: pa.DataType) -> Bounds:
    """The bounds that certainly occur as values; null where they may be wider. Bounds of other types than numbers and
    dates occur if lakebed wrote them; the widest range of a type means an unknown range, and a zero may have either
    sign."""
    in_every_footer = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)
    certain: Any = pa.array(exact | in_every_footer)
    for side, bound in zip((bounds.low, bounds.high), widest_bounds(kind) or (), strict=False):
        certain = pc.and_(certain, pc.fill_null(pc.not_equal(side, bound), False))
    if pa.types.is_floating(kind):
        for side in (bounds.low, bounds.high):
            doubtful = pc.or_(pc.is_nan(side), pc.equal(side, 0))
            certain = pc.and_(certain, pc.invert(pc.fill_null(doubtful, True)))
    nothing = pa.scalar(None, kind)
    low, high = (pc.if_else(certain, side, nothing) for side in (bounds.low, bounds.high))
    return Bounds(low, high, bounds.may_hold, bounds.may_null)


def count_rows(plan: ScanPlan, slices: SliceReader, recorded: RecordedRows) -> int:
    """The number of rows of a plan. Without a filter, and for a filter over partition columns, it is recorded for most
    files without log files, and in the footers of the others."""
    if not _is_of_partitions(plan, slices):
        return sum(b.num_rows for b in scan_batches(plan, slices))
    _, counts, remaining_plan = _decided(plan, slices, recorded)
    if plan.predicate is None:
        return int(counts.sum()) + sum(parallel_map(slices.count, remaining_plan.slices, _READERS))
    jobs = row_readers(remaining_plan, plan.predicate)
    return int(counts.sum()) + sum(parallel_map(lambda job: job[1].count(slices, job[0]), jobs, _READERS))


def summarized_rows(plan: ScanPlan, slices: SliceReader, recorded: RecordedRows) -> Iterator[pa.RecordBatch]:
    """Batches with as many rows as the plan has, with the same least and greatest values in their columns, but with
    nulls in place of other values if these extremes are recorded, for callers who only need the number of rows and the
    extremes."""
    if not _is_of_partitions(plan, slices):
        yield from scan_batches(plan, slices)
        return
    files, counts, remaining_plan = _decided(plan, slices, recorded)
    count = int(counts.sum())
    if files and plan.columns:
        values, certain = recorded.extremes(files, plan.columns)
        unread = [file for file, is_certain in zip(files, certain.tolist(), strict=True) if not is_certain]
        remaining_ids = {id(file) for file in unread} | {id(file_slice) for file_slice in remaining_plan.slices}
        sets = (
            replace(
                slice_set,
                slices=tuple(s for s in slice_set.slices if id(s) in remaining_ids or id(s.base_file) in remaining_ids),
            )
            for slice_set in plan.sets
        )
        remaining_plan = replace(plan, sets=tuple(slice_set for slice_set in sets if slice_set.slices))
        count = int(counts[certain].sum())
        sides = [pc.min_max(values[name]) for name in plan.columns]
        arrays = [pa.concat_arrays([pa.repeat(side, 1) for side in bounds.values()]) for bounds in sides]
        extremes = pa.RecordBatch.from_arrays(arrays, schema=plan.schema)
        # of a single row both are the same
        yield extremes.slice(0, count)
        count -= min(count, len(extremes))
    for start in range(0, count, _NULLS):
        yield null_rows(plan.schema, min(_NULLS, count - start))
    yield from scan_batches(remaining_plan, slices)


def _is_of_partitions(plan: ScanPlan, slices: SliceReader) -> bool:
    """Whether the plan has no filter, or one over partition columns only."""
    return plan.predicate is None or set(plan.predicate.columns) <= set(slices.config.partition_fields)


def _decided(plan: ScanPlan, slices: SliceReader, recorded: RecordedRows) -> tuple[list[BaseFile], Int64s, ScanPlan]:
    """The files in which all rows match and are counted by records, and their numbers of rows; and the plan without
    them, and without files in which by records no row matches."""
    # the other files have columns under other names or types, or not at all
    files = [
        s.base_file
        for slice_set in plan.sets
        if slice_set.native or plan.predicate is None
        for s in slice_set.slices
        if s.base_file is not None and not slices.is_merged(s)
    ]
    counts = recorded.row_counts(files)
    certain = counts != UNKNOWN
    matching = certain.copy()
    if plan.predicate is not None and files:
        values, is_constant = recorded.constants(files, plan.predicate.columns)
        certain &= is_constant
        columns = {**dict(zip(values.schema.names, values.columns, strict=True)), _ROW: pa.array(np.arange(len(files)))}
        rows = pa.table(columns).filter(plan.predicate.to_arrow())
        matching = np.zeros(len(files), np.bool_)
        matching[as_numpy(rows[_ROW])] = True
        matching &= certain
    decided = {id(files[at]) for at in np.flatnonzero(certain).tolist()}
    sets = (
        replace(s, slices=tuple(file_slice for file_slice in s.slices if id(file_slice.base_file) not in decided))
        for s in plan.sets
    )
    remaining_plan = replace(plan, sets=tuple(slice_set for slice_set in sets if slice_set.slices))
    return [files[at] for at in np.flatnonzero(matching).tolist()], counts[matching], remaining_plan
