"""What the data says of ranges: the columns that have statistics, and the files with theirs, read once for column and
partition statistics."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.config.settings import WriteSettings
from lakebed.format.base_file import read_footer
from lakebed.format.column_ranges import from_stream
from lakebed.metadata.kinds.definitions import load_definitions
from lakebed.metadata.kinds.file_ranges import ranges_of_file, ranges_of_log, unknown_ranges
from lakebed.metadata.kinds.stats_columns import Kinds, index_version_of, stats_columns
from lakebed.metadata.kinds.stats_records import Stats
from lakebed.metadata.kinds.updates import merged_partition_stats, stats_of
from lakebed.metadata.layout import COLUMN_STATS
from lakebed.model import META_COLUMNS, BaseFile, LogFile, path_in
from lakebed.properties.table_config import TableConfig
from lakebed.schema.arrow import leaf_paths, without_meta
from lakebed.schema.avro import avro_to_arrow
from lakebed.schema.java_text import to_java_text
from lakebed.slices.listing import list_table
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map
from lakebed.upkeep.comparison import COMPARED, joined
from lakebed.upkeep.kind import FirstBuild, StoredTable, TableAction
from lakebed.upkeep.stored_files import NewFile, StoredFiles, completed_files, completed_logs, is_base_file


class ActionStatistics:
    """The ranges of the files that an action wrote."""

    def __init__(self, action: TableAction) -> None:
        self._action = action
        self.index_version = index_version_of(action.snapshot.config.version)

    @cached_property
    def kinds(self) -> Kinds:
        """The columns with statistics, with their types."""
        action = self._action
        schema = without_meta(avro_to_arrow(action.commit.schema))
        return columns_with_stats(action.snapshot.storage, action.snapshot.config, schema, action.settings)

    @cached_property
    def dropped(self) -> Sequence[str]:
        """The columns that leave the table's schema with this action."""
        before, after = self._action.snapshot.avro_schema, self._action.commit.table_schema
        if not before or not after or before == after:
            return ()
        stay = {path for path, _ in leaf_paths(without_meta(avro_to_arrow(after)))}
        return [path for path, _ in leaf_paths(without_meta(avro_to_arrow(before))) if path not in stay]

    @cached_property
    def files(self) -> list[NewFile]:
        """The files with their ranges. A base file whose task did not report them is read; those of a log file are not
        known then."""
        action = self._action
        reported = {s.path: s.ranges for s in action.statuses if s.path is not None}
        found: list[NewFile] = []
        for partition, stats in action.commit.stats.items():
            for stat in stats:
                stream = reported.get(stat.path)
                ranges = from_stream(stream) if stream is not None else None
                if self.kinds and ranges is None:
                    is_base = is_base_file(stat.path)
                    ranges = unknown_ranges(self.kinds)
                    if is_base:
                        ranges = ranges_of_file(action.snapshot.storage, stat.path, stat.file_size, self.kinds)
                found.append(NewFile(partition, stat.path.rpartition("/")[2], stat.file_size, ranges))
        return found

    @cached_property
    def stats(self) -> Stats:
        return stats_of(self.files, self.kinds, self.index_version)


class FirstStatistics:
    """The ranges of all base and log files of completed actions, for a first build."""

    def __init__(self, build: FirstBuild) -> None:
        snapshot = build.snapshot
        self.index_version = index_version_of(snapshot.config.version)
        self.kinds = wanted_stats(snapshot.storage, snapshot.config, snapshot.schema, build.settings)
        listing = list_table(snapshot.storage)
        bases = completed_files(snapshot, listing.base_files)
        logs = completed_logs(snapshot, [f for f in listing.log_files if not f.is_cdc])

        def ranges(file: BaseFile | LogFile) -> pa.RecordBatch | None:
            read = ranges_of_log if isinstance(file, LogFile) else ranges_of_file
            return read(snapshot.storage, file.path, file.size, self.kinds)

        files = [*bases, *logs]
        found = zip(files, parallel_map(ranges, files), strict=True)
        self.files = [NewFile(f.partition, f.name, f.size, r) for f, r in found if r is not None]

    @property
    def stats(self) -> Stats:
        return stats_of(self.files, self.kinds, self.index_version)


class StoredStatistics:
    """The ranges of all base files of completed actions, to be compared with those of the metadata table."""

    def __init__(self, table: StoredTable) -> None:
        self._snapshot = table.snapshot
        self._stored = table.shared(StoredFiles)
        self.index_version = index_version_of(table.snapshot.config.version)

    @cached_property
    def kinds(self) -> Kinds:
        """The columns with statistics; on version 6 without meta columns, which some releases give statistics there and
        others not."""
        config = self._snapshot.config
        definition = load_definitions(self._snapshot.storage, config).get(COLUMN_STATS)
        if COLUMN_STATS not in config.metadata_partitions:
            return {}
        kinds = stats_columns(
            self._snapshot.schema, definition, version=config.version, populate_meta=config.populate_meta_fields
        )
        return {c: kind for c, kind in kinds.items() if config.version >= 8 or c not in META_COLUMNS}

    @cached_property
    def files(self) -> list[NewFile]:
        """The base files with their ranges."""

        def read(file: NewFile) -> NewFile:
            path = path_in(file.partition, file.name)
            ranges = ranges_of_file(self._snapshot.storage, path, file.size, self.kinds) if self.kinds else None
            return replace(file, ranges=ranges)

        return parallel_map(read, self._stored.base_files)

    @cached_property
    def stats(self) -> Stats:
        return stats_of(self.files, self.kinds, self.index_version)

    @cached_property
    def of_partitions(self) -> Stats:
        """Statistics of partition paths, of all live files of each."""
        return self.merged(self.stats)

    def merged(self, stats: Stats, *, zero_is_known: bool = False) -> Stats:
        """Statistics of partition paths from those of files."""
        return merged_partition_stats({}, stats, self._stored.live, self.kinds, zero_is_known=zero_is_known)[0]

    @cached_property
    def as_written(self) -> Stats | None:
        """Statistics with the ranges in the types that they are stored in, which may have another order than the
        columns of today have; None where all types are those of today."""

        def read(file: NewFile) -> NewFile:
            storage, path = self._snapshot.storage, path_in(file.partition, file.name)
            stored = dict(leaf_paths(read_footer(storage, path, file.size).schema))
            kinds = {column: stored.get(column, kind) for column, kind in self.kinds.items()}
            if kinds == dict(self.kinds):
                return file
            return replace(file, ranges=ranges_of_file(storage, path, file.size, kinds))

        found = parallel_map(read, self.files)
        if all(a is b for a, b in zip(found, self.files, strict=True)):
            return None
        return stats_of(found, self.kinds, self.index_version, with_unknown=True)


def columns_with_stats(storage: Storage, config: TableConfig, schema: pa.Schema, settings: WriteSettings) -> Kinds:
    """The columns whose ranges a file of this schema (without meta columns) must tell; none where the table keeps no
    stats."""
    kept = {*config.metadata_partitions, *config.metadata_partitions_inflight}
    return wanted_stats(storage, config, schema, settings) if COLUMN_STATS in kept else {}


def wanted_stats(storage: Storage, config: TableConfig, schema: pa.Schema, settings: WriteSettings) -> Kinds:
    """The columns that column stats have, or would have, for files of this schema."""
    definition = load_definitions(storage, config).get(COLUMN_STATS)
    return stats_columns(
        schema,
        definition,
        version=config.version,
        populate_meta=config.populate_meta_fields,
        named=settings.stats_columns,
        most=settings.stats_most_columns,
    )


def has_statistics(settings: WriteSettings, config: TableConfig) -> bool:
    """Whether a metadata table that is made begins with statistics: as asked for, else from version 9 on."""
    return bool(settings.column_stats or (settings.column_stats is None and config.version >= 9))


def stats_under_keys(stats: Stats, keys: pa.Array) -> Stats:
    """Those with these keys, of the columns that have any."""
    chosen = {column: table.filter(pc.is_in(table["key"], value_set=keys)) for column, table in stats.items()}
    return {column: table for column, table in chosen.items() if len(table)}


def comparable_stats(stats: Stats, partitions: Mapping[str, str], *, of_expression: bool = False) -> pa.Table:
    """Statistics of known bounds; `partitions` has the partition path of each file name, for labels. Where all values
    are null the bounds count for nothing: real Hudi notes 0 to 0 there. (`of_expression`: nulls are not among the
    values of an expression index.)"""
    tables: list[pa.Table] = []
    for column, table in stats.items():
        known = table.filter(pc.invert(table["is_deleted"]))
        has_none = pc.fill_null(pc.equal(known["value_count"], 0 if of_expression else known["null_count"]), False)
        bounds = [pc.if_else(has_none, None, _bound_text(known[side])).combine_chunks() for side in ("min", "max")]
        counts = [known[name].cast(pa.string()) for name in ("null_count", "value_count")]
        text = pc.binary_join_element_wise(*bounds, *counts, " ", null_handling="replace", null_replacement="-")
        names = known["file_name"].combine_chunks().cast(pa.string())
        whole = [partitions.get(name) for name in names.to_pylist()]
        paths = [f"{p}/{n}" if p else str(n) for p, n in zip(whole, names.to_pylist(), strict=True)]
        labels = pa.array([f"{column} of {path}" for path in paths], pa.string())
        empty = pa.repeat(pa.scalar(""), len(known))
        tables.append(pa.Table.from_arrays([known["key"], empty, labels, text], schema=COMPARED))
    return joined(tables)


def as_expected(found: Stats, expected: Stats) -> Stats:
    """Statistics of partition paths, those that are not tight as they are expected: they were united while writers
    crossed, and are right where they hold all that is there. The next write to the path makes them tight again."""
    return {c: _as_expected(t, expected[c]) if c in expected else t for c, t in found.items()}


def _as_expected(found: pa.Table, expected: pa.Table) -> pa.Table:
    at = pc.index_in(found["key"], value_set=expected["key"].combine_chunks())
    required = {name: expected[name].take(at) for name in ("min", "max", "null_count", "value_count")}
    holds = [
        pc.or_kleene(required["min"].is_null(), pc.less_equal(found["min"], required["min"])),
        pc.or_kleene(required["max"].is_null(), pc.greater_equal(found["max"], required["max"])),
        *(pc.greater_equal(found[name], required[name]) for name in ("null_count", "value_count")),
        pc.invert(found["is_tight"]),
    ]
    right = pc.fill_null(functools.reduce(pc.and_, holds), False)
    for name, values in required.items():
        kind = found.schema.field(name).type
        found = found.set_column(
            found.schema.get_field_index(name), name, pc.if_else(right, values.cast(kind), found[name])
        )
    return found


def _bound_text(values: pa.ChunkedArray) -> pa.Array:
    array = values.combine_chunks()
    if pt.is_floating(array.type):
        array = pc.add(array, pa.scalar(0.0, array.type))  # no difference between the two zeros
    return to_java_text(array).cast(pa.string())
