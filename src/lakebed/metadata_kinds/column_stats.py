"""The partitions `column_stats` and `partition_stats`: ranges and counts of columns, of each file and partition
path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.format.base_file import read_footer
from lakebed.format.column_ranges import from_stream
from lakebed.format.file_names import parse_base_file
from lakebed.metadata_kinds.base import (
    Comparison,
    FirstBuild,
    LaterLayers,
    NewIndex,
    NewPartition,
    PartitionKind,
    Removal,
    StoredTable,
    TableAction,
)
from lakebed.metadata_kinds.routing import grouped
from lakebed.metadata_kinds.stats_values import (
    UNKNOWN_COUNTS,
    FileRanges,
    Kinds,
    StatsUnion,
    column_stats_records,
    combined_partition_stats,
    has_meta_stats,
    index_version_of,
    partition_stats_records,
    ranges_of_file,
    ranges_of_log,
    stats_columns,
    stats_definitions,
    stats_of,
    together,
    unknown_ranges,
)
from lakebed.metadata_kinds.stored import (
    COMPARED,
    LiveFiles,
    NewFile,
    StoredFiles,
    completed_files,
    completed_logs,
    has_earlier_neighbour,
    is_base_file,
    joined,
    live_around,
    live_files,
)
from lakebed.metadata_records import stats_codec
from lakebed.metadata_records.definitions import IndexDefinition, IndexName, load_definitions
from lakebed.metadata_records.layout import (
    COLUMN_STATS,
    FILE_KEY_LENGTH,
    PARTITION_STATS,
    GroupSizing,
    column_stats_keys,
    file_keys,
    partition_stats_keys,
)
from lakebed.metadata_records.merge_records import decoded
from lakebed.metadata_records.records import RecordForm, Records, RecordType
from lakebed.metadata_records.stats_codec import Stats, widest_bounds
from lakebed.model import ALTER_OPERATION, META_COLUMNS, BaseFile, LogFile, path_in
from lakebed.properties.table_config import TableConfig
from lakebed.schema.arrow import leaf_paths, without_meta
from lakebed.schema.avro import avro_to_arrow
from lakebed.schema.java_text import to_java_text
from lakebed.schema.plain_arrow import as_numpy
from lakebed.sharing import once
from lakebed.slices.listing import list_table
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.schema_history import columns_since
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map, threads_of_files

S = TypeVar("S", bound=NewFile | BaseFile | LogFile)
# This many files are read before their ranges are combined.
_READ_TOGETHER = 512


class ActionStatistics:
    """The ranges of the files that an action wrote."""

    def __init__(self, action: TableAction) -> None:
        self._action = action
        self.index_version = index_version_of(action.snapshot.config.version)

    @once
    def kinds(self) -> Kinds:
        """The columns with statistics, with their types."""
        action = self._action
        schema = without_meta(avro_to_arrow(action.commit.schema))
        return columns_with_stats(action.snapshot, schema, action.settings)

    @once
    def dropped(self) -> Sequence[str]:
        """The columns that this action removes from the table's schema, and for a change of columns also those that get
        another type: real Hudi's next write cannot unite ranges of the two types."""
        before, after = self._action.snapshot.avro_schema, self._action.commit.table_schema
        if not before or not after or before == after:
            return ()
        stay = dict(leaf_paths(without_meta(avro_to_arrow(after))))
        alters = self._action.commit.operation == ALTER_OPERATION
        were = leaf_paths(without_meta(avro_to_arrow(before)))
        return [path for path, kind in were if path not in stay or (alters and stay[path] != kind)]

    @once
    def stats(self) -> Stats:
        return stats_of(together(self._files()), self.kinds, self.index_version)

    def _files(self) -> Iterator[NewFile]:
        """The files with their ranges. If the task did not report the ranges of a base file it is read; those of a log
        file are then unknown."""
        action = self._action
        reported: dict[str, pa.RecordBatch] = {}
        for status in action.statuses:
            if status.ranges is not None and status.path is not None:
                rows, paths = from_stream(status.ranges), status.ranged_paths or [status.path]
                reported |= {path: rows.slice(at, 1) for at, path in enumerate(paths)}
        for partition, stats in action.commit.stats.items():
            for stat in stats:
                ranges = reported.get(stat.path)
                if self.kinds and ranges is None:
                    is_base = is_base_file(stat.path)
                    ranges = unknown_ranges(self.kinds)
                    if is_base:
                        ranges = ranges_of_file(action.snapshot.storage, stat.path, stat.file_size, self.kinds)
                yield NewFile(partition, stat.path.rpartition("/")[2], stat.file_size, ranges)


class FirstStatistics:
    """The ranges of all base and log files of completed actions, for a first build."""

    def __init__(self, build: FirstBuild) -> None:
        snapshot = build.snapshot
        self.index_version = index_version_of(snapshot.config.version)
        self.kinds = requested_stats(snapshot.storage, snapshot.config, snapshot.schema, build.settings)
        listing = list_table(snapshot.storage)
        bases = completed_files(snapshot, listing.base_files)
        logs = completed_logs(snapshot, [f for f in listing.log_files if not f.is_cdc])

        def read(file: BaseFile | LogFile) -> NewFile:
            ranges_of = ranges_of_log if isinstance(file, LogFile) else ranges_of_file
            kinds = columns_since(snapshot.history, file.instant, self.kinds)
            return NewFile(
                file.partition, file.name, file.size, ranges_of(snapshot.storage, file.path, file.size, kinds)
            )

        self._ranges = _read_together(snapshot.storage, read, [*bases, *logs])

    @once
    def stats(self) -> Stats:
        return stats_of(self._ranges, self.kinds, self.index_version)


def _read_together(storage: Storage, read: Callable[[S], NewFile], files: Sequence[S]) -> list[FileRanges]:
    """The ranges that `read` returns for each file."""
    threads = threads_of_files(storage, [file.size for file in files])
    return [
        ranges
        for start in range(0, len(files), _READ_TOGETHER)
        for ranges in together(parallel_map(read, files[start : start + _READ_TOGETHER], threads))
    ]


class StoredStatistics:
    """The ranges of all base files of completed actions, for a comparison with those of the metadata table."""

    def __init__(self, table: StoredTable) -> None:
        self._snapshot = table.snapshot
        self._stored = table.shared(StoredFiles)
        self.index_version = index_version_of(table.snapshot.config.version)

    @once
    def kinds(self) -> Kinds:
        """The columns with statistics, with their types; empty if the table has no column statistics."""
        config = self._snapshot.config
        definition = load_definitions(self._snapshot.storage, config).get(COLUMN_STATS)
        if COLUMN_STATS not in config.metadata_partitions:
            return {}
        return stats_columns(
            self._snapshot.schema, definition, version=config.version, with_meta=has_meta_stats(config)
        )

    @once
    def _ranges(self) -> list[FileRanges]:
        """The ranges of the base files."""
        storage = self._snapshot.storage
        if not self.kinds:
            return []

        def read(file: NewFile) -> NewFile:
            path, kinds = path_in(file.partition, file.name), self._kinds_of(file)
            footer = read_footer(storage, path, file.size)
            stored = dict(leaf_paths(footer.schema))
            file_kinds = {column: stored.get(column, kind) for column, kind in kinds.items()}
            if file_kinds != kinds:
                self._own_kinds[path] = file_kinds
            return replace(file, ranges=ranges_of_file(storage, path, file.size, kinds, footer))

        return _read_together(storage, read, list(self.files.values()))

    @once
    def files(self) -> dict[str, NewFile]:
        """The base files by their paths, without ranges. Real Hudi has no statistics of files of other formats."""
        files = self._stored.base_files
        return {path_in(f.partition, f.name): f for f in files if f.name.endswith(".parquet")}

    @once
    def paths(self) -> dict[str, str]:
        """The partition path of each base file, by its name."""
        return {file.name: file.partition for file in self.files.values()}

    @once
    def _own_kinds(self) -> dict[str, Kinds]:
        """The column types of files that differ from the table's types, by path; filled as the files are read."""
        return {}

    @once
    def stats(self) -> Stats:
        return stats_of(self._ranges, self.kinds, self.index_version)

    @once
    def of_partitions(self) -> Stats:
        """The statistics of partition paths, from all live files of each."""
        return self.combined(self.stats)

    def combined(self, stats: Stats, *, zero_is_known: bool = False) -> Stats:
        """The statistics of partition paths, combined from those of files."""
        return combined_partition_stats({}, stats, self._stored.live, self.kinds, zero_is_known=zero_is_known)[0]

    def _kinds_of(self, file: NewFile) -> Kinds:
        """The columns for which a base file has statistics."""
        named = parse_base_file(file.partition, file.name, file.size)
        return dict(columns_since(self._snapshot.history, named.instant if named else "", self.kinds))

    @once
    def as_written(self) -> Stats | None:
        """The statistics with ranges in the types of the files, whose order may differ from that of the present types;
        None if all files have the present types."""
        ranges, storage = self._ranges, self._snapshot.storage
        if not self._own_kinds:
            return None

        def reread(run: FileRanges) -> Iterator[NewFile]:
            for at, path in enumerate(map(path_in, run.partitions, run.names)):
                file = self.files[path]
                kinds = self._own_kinds.get(path)
                row = run.ranges.slice(at, 1) if kinds is None else ranges_of_file(storage, path, file.size, kinds)
                yield replace(file, ranges=row)

        files = (file for run in ranges for file in reread(run))
        return stats_of(together(files), self.kinds, self.index_version, with_unknown=True)


def columns_with_stats(snapshot: Snapshot, schema: pa.Schema, settings: WriteSettings) -> Kinds:
    """The columns whose ranges a file of this schema (without meta columns) must have; empty if the table has no column
    statistics."""
    config = snapshot.config
    if COLUMN_STATS not in {*config.metadata_partitions, *config.metadata_partitions_inflight}:
        return {}
    metadata = snapshot.metadata
    if metadata is None:
        return requested_stats(snapshot.storage, config, schema, settings)
    return _stats_columns(metadata.slices.definitions, config, schema, settings)


def requested_stats(storage: Storage, config: TableConfig, schema: pa.Schema, settings: WriteSettings) -> Kinds:
    """The columns that column stats have, or would have, for files of this schema."""
    return _stats_columns(load_definitions(storage, config), config, schema, settings)


def _stats_columns(
    definitions: Mapping[str, IndexDefinition], config: TableConfig, schema: pa.Schema, settings: WriteSettings
) -> Kinds:
    definition = definitions.get(COLUMN_STATS)
    return stats_columns(
        schema,
        definition,
        version=config.version,
        with_meta=has_meta_stats(config),
        named=settings.stats_columns,
        limit=settings.max_stats_columns,
    )


def has_statistics(settings: WriteSettings, config: TableConfig) -> bool:
    """Whether a new metadata table begins with statistics: as the settings request, otherwise from version 9 on."""
    requested = bool(settings.column_stats or (settings.column_stats is None and config.version >= 9))
    return requested and _may_have_statistics(config)


def _may_have_statistics(config: TableConfig) -> bool:
    """Whether the table may have column statistics: real Hudi has none of tables with Lance base files, even where a
    job asks for them."""
    return config.base_format != "LANCE"


def stats_under_keys(stats: Stats, keys: pa.Array) -> Stats:
    """The statistics with these keys. A column without such statistics is left out."""
    matches = {column: table.filter(pc.is_in(table["key"], value_set=keys)) for column, table in stats.items()}
    return {column: table for column, table in matches.items() if len(table)}


def comparable_stats(stats: Stats, partitions: Mapping[str, str], *, of_expression: bool = False) -> pa.Table:
    """The statistics with known bounds as comparable rows; `partitions` has the partition path of each file name, for
    labels. If all values are null the bounds are ignored, since real Hudi writes 0 to 0. (With `of_expression` nulls
    are not among the values.)"""
    tables: list[pa.Table] = []
    file_names = pa.array(partitions, pa.string())
    folder_of_file = pa.array([f"{path}/" if path else "" for path in partitions.values()], pa.string())
    for column, table in stats.items():
        rows = table.filter(pc.invert(table["is_deleted"]))
        has_none = pc.fill_null(pc.equal(rows["value_count"], 0 if of_expression else rows["null_count"]), False)
        bounds = [pc.if_else(has_none, None, _bound_text(rows[side])).combine_chunks() for side in ("min", "max")]
        counts = [rows[name].cast(pa.string()) for name in ("null_count", "value_count")]
        text = pc.binary_join_element_wise(*bounds, *counts, " ", null_handling="replace", null_replacement="-")
        names = rows["file_name"].combine_chunks().cast(pa.string())
        folders = folder_of_file.take(pc.index_in(names, value_set=file_names))
        labels = pc.binary_join_element_wise(f"{column} of ", folders, names, "", null_handling="replace")
        empty = pa.repeat(pa.scalar(""), len(rows))
        tables.append(pa.Table.from_arrays([rows["key"], empty, labels, text], schema=COMPARED))
    return joined(tables)


def as_expected(stored: Stats, expected: Stats) -> Stats:
    """The statistics of partition paths, in which a range that is not tight but includes the expected one is replaced
    by it. Such ranges come from concurrent writers and are valid. The next write to the path makes them tight again."""
    return {c: _as_expected(t, expected[c]) if c in expected else t for c, t in stored.items()}


def _as_expected(stored: pa.Table, expected: pa.Table) -> pa.Table:
    at = pc.index_in(stored["key"], value_set=expected["key"].combine_chunks())
    required = {name: expected[name].take(at) for name in ("min", "max", "null_count", "value_count")}
    holds = [
        pc.or_kleene(required["min"].is_null(), pc.less_equal(stored["min"], required["min"])),
        pc.or_kleene(required["max"].is_null(), pc.greater_equal(stored["max"], required["max"])),
        *(pc.greater_equal(stored[name], required[name]) for name in ("null_count", "value_count")),
        pc.invert(stored["is_tight"]),
    ]
    right = pc.fill_null(functools.reduce(pc.and_, holds), False)
    for name, values in required.items():
        kind = stored.schema.field(name).type
        stored = stored.set_column(
            stored.schema.get_field_index(name), name, pc.if_else(right, values.cast(kind), stored[name])
        )
    return stored


def _with_those_lacking(stored: pa.Table, expected: pa.Table, table: StoredTable) -> pa.Table:
    """The stored rows; for a table with a schema history also the expected rows that are missing. There a file has
    statistics only of the columns that existed when it was written, and readers read a file without statistics."""
    if table.snapshot.history is None:
        return stored
    lacking = pc.invert(pc.is_in(expected["key"], value_set=stored["key"].combine_chunks()))
    return joined([stored, expected.filter(lacking)])


def _bound_text(values: pa.ChunkedArray) -> pa.Array:
    array = values.combine_chunks()
    if pt.is_floating(array.type):
        array = pc.add(array, pa.scalar(0.0, array.type))  # makes -0.0 and 0.0 equal
    return to_java_text(array).cast(pa.string())


def narrows_ranges(
    records: Records, form: RecordForm, later: LaterLayers, definition: Callable[[], IndexDefinition | None]
) -> bool:
    """Whether later ranges of partition paths omit ranges that these records add: a record that is not tight is united
    with an earlier one, a tight record replaces it, every record replaces an earlier one without a known range, and a
    delete removes the earlier one. Real Hudi then treats the path as empty if other paths have a record."""
    keys = pa.concat_arrays([records.keys, records.deleted])
    added = np.arange(len(keys)) < len(records.keys)
    of_paths = pc.not_equal(pc.utf8_length(keys), FILE_KEY_LENGTH)
    keys, added = keys.filter(of_paths), added[as_numpy(of_paths)]
    present = added.copy()  # whether a record exists that includes these ranges
    wrong = np.zeros(len(keys), np.bool_)
    for layer in later(keys):
        if layer.records is None:
            at = as_numpy(pc.index_in(layer.deleted, value_set=keys).drop_null())
            present[at], wrong[at] = False, added[at]
            continue
        for stats in decoded(layer.records, stats_codec.decode):
            for table in stats.values():
                at = as_numpy(pc.index_in(table["key"], value_set=keys))
                removed, tight = (as_numpy(table[name]) for name in ("is_deleted", "is_tight"))
                wrong[at] = np.where(removed, added[at], wrong[at] | tight | ~present[at])
                present[at] &= ~removed
    return bool(wrong.any())


class PartitionStatsKind(PartitionKind):
    needs_log_rows: ClassVar[bool] = True

    def records_of_action(self, partition: str, action: TableAction) -> Records | None:
        if COLUMN_STATS not in action.partitions:
            return None
        records, metadata = self._of_files(action), action.snapshot.metadata
        dropped = action.shared(ActionStatistics).dropped
        if not dropped or metadata is None:
            return records
        dropped_keys = [partition_stats_keys(column, metadata.partitions()) for column in dropped]
        return replace(records, deleted=pa.concat_arrays([records.deleted, *dropped_keys]))

    def _of_files(self, action: TableAction) -> Records:
        written, snapshot = action.shared(ActionStatistics), action.snapshot
        kinds, new = written.kinds, written.stats
        files = live_around(snapshot, action.commit)
        widened = _widened(files, written, action)
        if widened is not None:
            return widened
        live = files.after
        names = {path.rpartition("/")[2] for path in action.commit.paths}
        old = [path for path, live_names in live.items() if live_names - names]
        old_stats = {}
        # while column statistics are being built, the ranges of old files are not known: the paths have none then
        if old and snapshot.metadata is not None and snapshot.metadata.has(COLUMN_STATS):
            old_stats = snapshot.metadata.column_stats(list(kinds), old, kinds)
        tight = not has_earlier_neighbour(snapshot.timeline, action.instant)
        return partition_stats_records(old_stats, new, live, kinds, action.form, written.index_version, tight=tight)

    def check_new(self, index: NewIndex) -> None:
        config = index.config
        # a metadata table that is made with it has them from version 9 on
        has_stats = COLUMN_STATS in index.partitions or (config.version >= 9 and not config.metadata_partitions)
        if config.version < 8 or not config.partition_fields or not has_stats:
            raise InvalidOption(
                f"table {config.name!r} cannot have partition statistics",
                hint="They are for partitioned tables from version 8 on that have column_stats: create that first.",
            )

    def reason_not_maintained(self, partition: str, table: StoredTable) -> str | None:
        """The reason why partition statistics cannot be kept up to date: they require the statistics of files. None if
        the table has these."""
        has_stats = COLUMN_STATS in table.snapshot.config.metadata_partitions
        return None if has_stats else f"the table has no complete {COLUMN_STATS}"

    def first_records(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        first = build.shared(FirstStatistics)
        live = live_files(build.snapshot.file_slices())
        records = partition_stats_records({}, first.stats, live, first.kinds, build.form, first.index_version)
        return grouped(name.partition, records), None

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        stored = table.shared(StoredStatistics)
        return comparable_stats(stored.of_partitions, {})

    def acceptable_alternatives(self, partition: str, table: StoredTable) -> Sequence[pa.Table]:
        """Statistics in which ranges that were written before their column changed its type are unknown, and in which,
        as in real Hudi, 0.0 to 0.0 is the range of a partition path for which lakebed suspects NaN."""
        stored = table.shared(StoredStatistics)
        sources = [stored.stats, *([stored.as_written] if stored.as_written is not None else [])]
        alternatives = [
            comparable_stats(stored.combined(stats, zero_is_known=zero_is_known), {})
            for stats in sources
            for zero_is_known in (True, False)
        ]
        if len(sources) == 1:
            return alternatives
        unknown: Stats = {}
        widest: Stats = {}
        for column, stats in stored.of_partitions.items():
            kind = stats.schema.field("min").type
            unknown[column] = _with_values(stats, dict.fromkeys(("min", "max"), pa.scalar(None, kind)))
            bounds = widest_bounds(kind)
            if bounds is not None:
                values = {name: pa.scalar(count) for name, count in UNKNOWN_COUNTS.items()}
                widest[column] = _with_values(stats, values | dict(zip(("min", "max"), bounds, strict=True)))
        return [*alternatives, comparable_stats(unknown, {}), comparable_stats(widest, {})]

    def found(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> pa.Table:
        stored = table.shared(StoredStatistics)
        stats = metadata.partition_stats(list(stored.kinds), stored.kinds)
        rows = comparable_stats(as_expected(stats, stored.of_partitions), {})
        return _with_those_lacking(rows, self.expected(partition, table), table)

    def repair_missing(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        stored = table.shared(StoredStatistics)
        stats = stats_under_keys(stored.of_partitions, rows["key"].combine_chunks())
        version, kind = stored.index_version, RecordType.PARTITION_STATS
        return Records.upserts(*stats_codec.encode(stats, table.form, index_version=version, record_type=kind))

    def is_in_every_table(self, settings: WriteSettings, config: TableConfig) -> bool:
        return has_statistics(settings, config) and _has_paths(config)

    def is_requested(self, settings: WriteSettings, config: TableConfig) -> bool:
        return super().is_requested(settings, config) and _has_paths(config) and _may_have_statistics(config)


def _column_of(stats: Stats, column: str) -> Stats:
    """The statistics of one column; empty if it has none."""
    return {column: stats[column]} if column in stats else {}


def _expected_of(stored: StoredStatistics, column: str) -> pa.Table:
    """The statistics of one column that the metadata table should have."""
    return comparable_stats(_column_of(stored.stats, column), stored.paths)


def _with_values(stats: pa.Table, values: Mapping[str, pa.Scalar]) -> pa.Table:
    """The stats, in which each column named in `values` has this value in all rows."""
    columns = [
        pa.repeat(values[field.name].cast(field.type), len(stats)) if field.name in values else stats[field.name]
        for field in stats.schema
    ]
    return pa.table(columns, stats.schema)


def _widened(files: LiveFiles, written: ActionStatistics, action: TableAction) -> Records | None:
    """Records that widen the existing ones by the ranges of the new files alone, so that the cost of a small write does
    not grow with the files of its partition paths. None if that is not possible: a file is removed, a path is new, a
    range of a path or a new file is unknown, the partition is still being built, or a column holds bytes, which real
    Hudi's readers compare as signed."""
    metadata, kinds = action.snapshot.metadata, written.kinds
    shrinking = [path for path, names in files.after.items() if not files.before[path] <= names]
    if metadata is None or not metadata.has(PARTITION_STATS) or shrinking or not all(files.before.values()):
        return None
    if any(pt.is_binary(kind) or pt.is_fixed_size_binary(kind) for kind in kinds.values()):
        return None
    paths = sorted(files.after)
    if not metadata.has_partition_stats(list(kinds), paths):
        return None
    added = {path: files.after[path] - files.before[path] for path in paths}
    form, version = action.form, written.index_version
    records = partition_stats_records({}, written.stats, added, kinds, form, version, tight=False)
    return None if len(records.deleted) else records


def _has_paths(config: TableConfig) -> bool:
    return config.version >= 8 and bool(config.partition_fields)


class ColumnStatsKind(PartitionKind):
    def definition(self, name: IndexName, snapshot: Snapshot, settings: WriteSettings) -> IndexDefinition | None:
        kinds = requested_stats(snapshot.storage, snapshot.config, snapshot.schema, settings)
        return stats_definitions(list(kinds), version=snapshot.config.version).get(COLUMN_STATS)

    def records_of_action(self, partition: str, action: TableAction) -> Records:
        written = action.shared(ActionStatistics)
        records = column_stats_records(written.stats, action.form, written.index_version)
        metadata = action.snapshot.metadata
        if not written.dropped or metadata is None:
            return records
        # cleaning later knows only the current columns, so the dropped columns' records of all files are deleted now
        listed = metadata.files()
        files = file_keys(listed["partition"].to_pylist(), listed["name"].to_pylist())
        dropped_keys = [column_stats_keys(column, files) for column in written.dropped]
        return replace(records, deleted=pa.concat_arrays([records.deleted, *dropped_keys]))

    def records_of_clean(self, partition: str, removal: Removal) -> Records:
        snapshot, files = removal.snapshot, removal.keys
        definition = load_definitions(snapshot.storage, snapshot.config).get(COLUMN_STATS)
        if definition is None:  # tables of older releases have none
            columns = [*META_COLUMNS, *(path for path, _ in leaf_paths(snapshot.schema))]
        else:  # and columns that the table got after the index was made
            joined = requested_stats(snapshot.storage, snapshot.config, snapshot.schema, removal.settings)
            columns = [*dict.fromkeys([*definition.source_fields, *joined])]
        return Records.deletes(pa.concat_arrays([column_stats_keys(column, files) for column in columns]))

    def first_records(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        first = build.shared(FirstStatistics)
        definition = stats_definitions(list(first.kinds), version=build.snapshot.config.version).get(COLUMN_STATS)
        records = column_stats_records(first.stats, build.form, first.index_version)
        return grouped(name.partition, records), definition

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        stored = table.shared(StoredStatistics)
        return comparable_stats(stored.stats, stored.paths)

    def found(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> pa.Table:
        stored = table.shared(StoredStatistics)
        return joined([self._found(column, _expected_of(stored, column), metadata, table) for column in stored.kinds])

    def comparisons(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> Iterator[Comparison]:
        """The comparisons, one per column, since a large table has many files."""
        stored = table.shared(StoredStatistics)
        for column in stored.kinds:
            expected = _expected_of(stored, column)
            actual = self._found(column, expected, metadata, table)
            yield Comparison(expected, actual, self._alternatives(stored, column))

    def _found(self, column: str, expected: pa.Table, metadata: MetadataLookups, table: StoredTable) -> pa.Table:
        stats = metadata.column_stats([column], None, table.shared(StoredStatistics).kinds)
        # ranges of log files cannot be compared without the rows that they change
        of_bases = {c: t.filter(pc.ends_with(t["file_name"], ".parquet")) for c, t in stats.items()}
        return _with_those_lacking(comparable_stats(of_bases, {}), expected, table)

    def _alternatives(self, stored: StoredStatistics, column: str) -> list[pa.Table]:
        """Statistics in which ranges that were written before their column changed its type are unknown, and statistics
        without files that have no rows, as real Hudi writes them."""
        stats = _column_of(stored.stats, column)
        with_rows = {c: t.filter(pc.greater(t["value_count"], 0)) for c, t in stats.items()}
        as_written = [] if stored.as_written is None else [_column_of(stored.as_written, column)]
        return [comparable_stats(part, stored.paths) for part in (*as_written, with_rows)]

    def repair_missing(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        stored = table.shared(StoredStatistics)
        stats = stats_under_keys(stored.stats, rows["key"].combine_chunks())
        return column_stats_records(stats, table.form, stored.index_version)

    def check_new(self, index: NewIndex) -> None:
        if not _may_have_statistics(index.config):
            raise UnsupportedFeature(
                f"table {index.config.name!r} has Lance base files, of which Hudi keeps no column statistics",
                hint="filter by the columns of the record index or of bloom filters",
                context={"feature": COLUMN_STATS, "format": index.config.base_format},
            )

    def is_in_every_table(self, settings: WriteSettings, config: TableConfig) -> bool:
        return has_statistics(settings, config)

    def is_requested(self, settings: WriteSettings, config: TableConfig) -> bool:
        return super().is_requested(settings, config) and _may_have_statistics(config)


COLUMN_STATS_KIND = ColumnStatsKind(
    COLUMN_STATS,
    file_id_start="col-stats",
    file_groups=2,
    union=StatsUnion(),
    build_position=10,
    requested_by=("column_stats",),
)

PARTITION_STATS_KIND = PartitionStatsKind(
    PARTITION_STATS,
    file_id_start="partition-stats",
    union=StatsUnion(),
    is_overruled=narrows_ranges,
    build_position=60,
    dropped_with=COLUMN_STATS,
    requested_by=("column_stats",),
)
