"""Planning a scan: which file slices, which columns of each, and what pruned the rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed import telemetry
from lakebed.config.settings import ReadSettings
from lakebed.expressions.key_text import value_of_key_text
from lakebed.filters.text import resolve_columns
from lakebed.format.bounded_cache import requests_of_caches
from lakebed.format.file_names import has_exact_ranges
from lakebed.model import (
    ALL_META_COLUMNS,
    COMMIT_TIME,
    META_COLUMNS,
    OPERATION_COLUMN,
    WRITER_ID,
    BaseFile,
    FileSlice,
)
from lakebed.properties.table_config import printed_partition_fields
from lakebed.read.keys import bucket_layout, partition_layout, partition_paths_may_be_stale
from lakebed.read.prune import demands_keys, depends_on_path, prune_partitions, slices_in_buckets, slices_without
from lakebed.schema.conversion import can_cast, project
from lakebed.schema.logical_types import logical_metadata
from lakebed.schema.spark import spark_type
from lakebed.slices.reader import Query, readable_slices
from lakebed.slices.snapshot import Snapshot
from lakebed.wording import count_text

if TYPE_CHECKING:
    from lakebed.filters.predicates import Node, Predicate
    from lakebed.slices.base_rows import ColumnNames
    from lakebed.slices.schema_history import SchemaHistory
    from lakebed.timeline.timeline import Timeline

PathValues = Mapping[str, Mapping[str, object]]
_READS = ReadSettings()
PRUNING = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        ("base_file", pa.string()),
        pa.field("log_files", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        ("pruned_by", pa.string()),
    ]
)


@dataclass(frozen=True)
class Provenance:
    """Determines who wrote the base files of a table; `made_by_lakebed` is whether lakebed made the table."""

    timeline: Timeline
    made_by_lakebed: bool

    def leaving_out_nan(self, files: Iterable[BaseFile]) -> frozenset[str]:
        """The paths of the files whose statistics may leave out NaN: files of lakebed from before file names showed it,
        by the commits on the timeline. Files of archived commits count as lakebed's if it made the table."""
        inexact_files = [file for file in files if not has_exact_ranges(file.write_token)]
        if not inexact_files:
            return frozenset()
        times = {file.instant for file in inexact_files}
        commits = [instant for instant in self.timeline.commits if instant.time in times]
        bodies = self.timeline.commits_metadata(commits)
        by_lakebed = {instant.time: WRITER_ID in body.extra for instant, body in zip(commits, bodies, strict=True)}
        return frozenset(file.path for file in inexact_files if by_lakebed.get(file.instant, self.made_by_lakebed))


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """The source of a column of the table in a slice: a stored column (`stored`, with its type), the partition path
    (`from_path`), or none (null)."""

    name: str
    stored: str | None
    type: pa.DataType | None
    from_path: bool = False


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Columns in the types of `schema`, each with its source; `path_values` has by partition path the values of those
    that only the path holds."""

    sources: tuple[ColumnSource, ...]
    schema: pa.Schema
    path_values: PathValues | None = None

    @property
    def stored(self) -> list[str]:
        """The columns of files from which they are made."""
        return list(dict.fromkeys(s.stored for s in self.sources if s.stored is not None))

    def divided(self, names: Collection[str]) -> tuple[TableColumns, TableColumns]:
        """These columns as two parts: the columns with these names, and the others."""
        named, others = (
            tuple(source for source in self.sources if (source.name in names) is within) for within in (True, False)
        )
        return self._only(named), self._only(others)

    def _only(self, sources: tuple[ColumnSource, ...]) -> TableColumns:
        return TableColumns(sources, pa.schema([self.schema.field(s.name) for s in sources]), self.path_values)

    def of(self, rows: pa.RecordBatch, partition: str) -> pa.RecordBatch:
        """Stored rows of a partition path in the columns and types of the table."""
        arrays: list[pa.Array] = []
        names: list[str] = []
        present = frozenset(rows.schema.names)
        for source in self.sources:
            if source.from_path:
                value = (self.path_values or {})[partition][source.name]
                arrays.append(pa.repeat(pa.scalar(value, self.schema.field(source.name).type), rows.num_rows))
            elif source.stored is not None and source.stored in present:
                arrays.append(rows.column(source.stored))
            else:
                continue
            names.append(source.name)
        if not arrays:
            return null_rows(self.schema, rows.num_rows)
        return project(pa.RecordBatch.from_arrays(arrays, names=names), self.schema)


def null_rows(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Rows in which all values are null."""
    if not len(schema):  # made of no arrays a batch would have no rows
        return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))
    return pa.RecordBatch.from_arrays([pa.nulls(rows, f.type) for f in schema], schema=schema)


@dataclass(frozen=True, slots=True)
class SliceSet:
    """File slices that are read in one way: with the same stored columns in the same types."""

    slices: tuple[FileSlice, ...]
    sources: tuple[ColumnSource, ...]
    native: bool
    """Whether a Parquet reader that is given the table's own types reads their base files right."""

    @property
    def files(self) -> tuple[BaseFile, ...]:
        """The base files."""
        return tuple(s.base_file for s in self.slices if s.base_file is not None)

    @property
    def stored(self) -> pa.Schema:
        return pa.schema([pa.field(s.stored, s.type) for s in self.sources if s.stored is not None])


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The plan of a scan; prints itself. `read_schema` are the columns that it reads, in the table's types (including
    those of the filter); `columns` those that it returns. Rows of commits before `since` need not be read. `pruned` are
    the file slices that are not read, by the step that rules them out, in the order of these steps."""

    table: str
    query: Query
    as_of: str | None
    columns: tuple[str, ...]
    read_schema: pa.Schema
    sets: tuple[SliceSet, ...]
    predicate: Predicate | None = None
    implied: tuple[Node, ...] = ()
    """What the condition says of generated columns, which rules out files besides."""
    total_files: int = 0
    total_partitions: int = 0
    remaining_partitions: int = 0
    pruned: Mapping[str, Sequence[FileSlice]] = field(default_factory=dict[str, Sequence[FileSlice]])
    partition_values: PathValues | None = None
    page_checksums: bool = True
    names: ColumnNames | None = None
    provenance: Provenance | None = None
    since: str = ""
    base_sources: Mapping[str, tuple[ColumnSource, ...]] = field(default_factory=dict[str, tuple[ColumnSource, ...]])
    """The columns of base files that have log files, by the instants of the files."""

    @property
    def slices(self) -> tuple[FileSlice, ...]:
        return tuple([s for slice_set in self.sets for s in slice_set.slices])

    @property
    def files(self) -> tuple[BaseFile, ...]:
        """The base files of all slices."""
        return tuple(f for slice_set in self.sets for f in slice_set.files)

    @property
    def schema(self) -> pa.Schema:
        """The result's schema."""
        return pa.schema([self.read_schema.field(c) for c in self.columns])

    @property
    def pruned_by(self) -> dict[str, int]:
        """How many file slices each step rules out, in the order of the steps."""
        return {step: len(slices) for step, slices in self.pruned.items()}

    def pruning(self) -> pa.Table:
        """The table that `Scan.pruning` returns."""
        listed: list[tuple[str | None, FileSlice]] = [(None, file_slice) for file_slice in self.slices]
        listed += [(step, file_slice) for step, slices in self.pruned.items() for file_slice in slices]
        columns = [
            [file_slice.partition for _, file_slice in listed],
            [file_slice.file_id for _, file_slice in listed],
            [file_slice.base_file.name if file_slice.base_file else None for _, file_slice in listed],
            [len(file_slice.log_files) for _, file_slice in listed],
            [file_slice.size for _, file_slice in listed],
            [step for step, _ in listed],
        ]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, PRUNING, strict=True)], schema=PRUNING)

    def __str__(self) -> str:
        return self.text()

    def text(self, names: int = 0) -> str:
        """The plan as text, with at most `names` names of the files that are read, and of those that each step rules
        out."""
        files = self.files
        size = sum(f.size for f in files)
        merged = [s for s in self.slices if s.log_files]
        lines = [
            f"scan of {self.table}: {self.query}" + (f" as of {self.as_of}" if self.as_of else ""),
            f"  files       {len(files)} of {self.total_files} ({size / (1 << 20):.1f} MiB)",
            *_names(self.slices, names),
            f"  partitions  {self.remaining_partitions} of {self.total_partitions}",
        ]
        if merged:
            logs = [log for file_slice in merged for log in file_slice.log_files]
            weight = sum(log.size for log in logs) / (1 << 20)
            lines.append(f"  log files   {len(logs)} of {len(merged)} file slices are merged ({weight:.1f} MiB)")
        for step, slices in self.pruned.items():
            if slices:
                lines += [f"  pruned      {count_text(len(slices), 'file')} by {step}", *_names(slices, names)]
        if self.predicate is not None:
            lines.append(f"  where       {self.predicate}")
        if self.implied:
            lines.append(f"  implied     {_text_of(self.implied)} (of generated columns)")
        lines.append(f"  columns     {', '.join(self.columns)}")
        skeletons = sum(f.is_skeleton for f in files)
        if skeletons:
            lines.append(
                f"  source files {count_text(skeletons, 'base file')} with the other columns in another folder"
            )
        rewritten = [s for s in self.sets if not s.native and all(file_slice.is_base_file for file_slice in s.slices)]
        if rewritten:
            lines.append(
                f"  old schemas {sum(len(s.slices) for s in rewritten)} files in {len(rewritten)} sets are cast"
            )
        return "\n".join(lines)


def _text_of(conditions: Sequence[Node]) -> str:
    from lakebed.filters.predicates import node_to_spark

    return " AND ".join(map(node_to_spark, conditions))


def _names(slices: Sequence[FileSlice], limit: int) -> list[str]:
    """Lines with the names of at most `limit` file slices, and the number of further ones."""
    lines = [f"    {file_slice.label}" for file_slice in slices[:limit]]
    return [*lines, f"    and {len(slices) - limit:,} more"] if 0 < limit < len(slices) else lines


def table_columns(snapshot: Snapshot, *, operations: bool = False) -> pa.Schema:
    """All columns that a scan can return: meta columns, the table's own, and partition columns that only paths have.
    `_hoodie_operation` is included if the caller requests `operations` and the table has it, which may take a look at a
    file."""
    meta = ALL_META_COLUMNS if operations and snapshot.has_operations else META_COLUMNS
    fields = [pa.field(m, pa.string()) for m in meta]
    fields += [
        pa.field(f.name, f.type, metadata=logical_metadata(f))
        for f in snapshot.schema
        if f.name not in ALL_META_COLUMNS
    ]
    names = {f.name for f in fields}
    if snapshot.config.drop_partition_columns:
        created = _create_types(snapshot)
        # what a path has of a time is its printed text: real Hudi gives that, too
        created |= dict.fromkeys(printed_partition_fields(snapshot.config, pa.schema(created.items())), pa.string())
        fields += [pa.field(p, created.get(p, pa.string())) for p in snapshot.config.partition_fields if p not in names]
    return pa.schema(fields)


def data_columns(snapshot: Snapshot) -> pa.Schema:
    """The table's columns without meta columns, as it declares them, including which may not be null."""
    declared = {f.name: f for f in snapshot.schema}
    return pa.schema([declared.get(f.name, f) for f in table_columns(snapshot) if f.name not in ALL_META_COLUMNS])


def _create_types(snapshot: Snapshot) -> dict[str, pa.DataType]:
    from lakebed.schema.avro import avro_to_arrow

    text = snapshot.config.create_schema
    return {f.name: f.type for f in avro_to_arrow(text)} if text else {}


def plan_scan(
    snapshot: Snapshot,
    predicate: Predicate | None = None,
    columns: Sequence[str] | None = None,
    *,
    query: Query = "snapshot",
    slices: Sequence[FileSlice] | None = None,
    column_view: Snapshot | None = None,
    reads: ReadSettings = _READS,
    choosing: Sequence[Node] = (),
) -> ScanPlan:
    """The plan of a scan. `columns` None: all data columns; names in any case; meta columns by name.

    `slices` overrides the file slices of the snapshot: an incremental read has those of its commits, of which a
    condition on the commit time rules out none. `column_view` is the view whose columns are given, where that is
    another. `reads`: whether indexes and statistics of the metadata table rule out files, and whether pages are
    checked. `choosing` are conditions that rule out files besides, and that the plan's reader does not test. Raises
    `InvalidOption` for unknown columns, `UnsupportedFeature` for tables and log files that cannot be read right.
    """
    began = time.monotonic()
    column_view = column_view or snapshot
    named = (*(columns or ()), *(predicate.columns if predicate else ()))
    available = table_columns(column_view, operations=OPERATION_COLUMN in named)
    if columns is None:
        column_names = [n for n in available.names if n not in ALL_META_COLUMNS]
    else:
        column_names = resolve_columns(columns, available)
    needed = [*column_names, *[c for c in (predicate.columns if predicate else ()) if c not in column_names]]
    read_schema = pa.schema([available.field(c) for c in needed])
    everything = snapshot.file_slices() if slices is None else slices
    chooser = predicate
    if slices is not None and predicate is not None:
        from lakebed.filters.predicates import columns_of, combine, conjuncts

        nodes = tuple(conjuncts(predicate.root))
        others = tuple(node for node in nodes if {*columns_of(node)} != {COMMIT_TIME})
        chooser = predicate if len(others) == len(nodes) else combine(None, others)
    implied: Sequence[Node] = ()
    if predicate is not None and snapshot.config.generated:
        from lakebed.filters.generated import generated_column, implied_conditions

        generated = [generated_column(name, text, available) for name, text in snapshot.config.generated.items()]
        implied = tuple(implied_conditions(predicate.root, generated))
    if choosing or implied:
        from lakebed.filters.predicates import And, Predicate

        chooser = Predicate(And((*choosing, *implied, *([predicate.root] if predicate else []))))
    remaining_slices, pruned, partitions = _prune(snapshot, chooser, everything, available, of_snapshot=slices is None)
    if chooser is not None and reads.data_skipping:
        from lakebed.read.skip import skip_slices

        remaining_slices, skipped = skip_slices(
            snapshot, chooser, remaining_slices, available, log_files=query == "snapshot"
        )
        pruned |= skipped
        partitions = len({s.partition for s in remaining_slices}) if any(skipped.values()) else partitions
    remaining_slices = readable_slices(snapshot.config, remaining_slices, query)
    history = column_view.history
    sets = _slice_sets(snapshot, remaining_slices, read_schema, history)
    base_sources = _base_sources(snapshot, remaining_slices, read_schema, history)
    from_path = {source.name for slice_set in sets for source in slice_set.sources if source.from_path}
    plan = ScanPlan(
        table=snapshot.config.name,
        query=query,
        as_of=snapshot.as_of,
        columns=tuple(column_names),
        read_schema=read_schema,
        sets=sets,
        predicate=predicate,
        implied=implied,
        total_files=sum([s.base_file is not None for s in everything]),
        total_partitions=len({s.partition for s in everything}),
        remaining_partitions=partitions,
        pruned=pruned,
        partition_values=_path_values(snapshot, remaining_slices, read_schema, from_path) if from_path else None,
        page_checksums=reads.page_checksums,
        names=_NamesInFiles.of(history, base_sources),
        provenance=Provenance(snapshot.timeline, snapshot.config.is_made_by_lakebed),
        base_sources=base_sources,
    )
    if telemetry.is_active():
        files = {"read": len(plan.files), **{f"pruned by {step}": count for step, count in plan.pruned_by.items()}}
        size, seconds = sum(file.size for file in plan.files), time.monotonic() - began
        telemetry.read_planned(snapshot.storage.spec.uri, query, seconds, files, size)
        telemetry.caches_used(requests_of_caches())
    return plan


def _prune(
    snapshot: Snapshot,
    predicate: Predicate | None,
    slices: Sequence[FileSlice],
    available: pa.Schema,
    *,
    of_snapshot: bool,
) -> tuple[list[FileSlice], dict[str, list[FileSlice]], int]:
    """Rule out file slices by partition path and by bucket.

    Returns the slices that remain, the slices that each step ruled out by the step's name, and the number of partition
    paths that remain. `of_snapshot` is whether `slices` are all slices of the snapshot's view; the view may know other
    slices only in part.
    """
    pruned: dict[str, list[FileSlice]] = {}
    remaining_slices = list(slices)
    partitions = list(dict.fromkeys([s.partition for s in slices]))
    if predicate is None:
        return remaining_slices, pruned, len(partitions)
    by_path = depends_on_path(predicate, snapshot.config.partition_fields)
    layout = partition_layout(snapshot.config, available) if by_path else None
    if layout is not None and not partition_paths_may_be_stale(snapshot.storage, snapshot.config):
        matching = set(prune_partitions(predicate, layout, partitions))
        pruned["partition"] = [s for s in remaining_slices if s.partition not in matching]
        remaining_slices = [s for s in remaining_slices if s.partition in matching]
        partitions = [p for p in partitions if p in matching]
    bucketed = bucket_layout(snapshot, available) if demands_keys(predicate, snapshot.config.key_fields) else None
    if bucketed is not None and not of_snapshot:
        bucketed = replace(bucketed, plain=None)
    bucket_slices = None if bucketed is None else slices_in_buckets(predicate, bucketed, remaining_slices)
    if bucket_slices is not None:
        pruned["bucket"] = slices_without(remaining_slices, bucket_slices)
        remaining_slices = bucket_slices
    return remaining_slices, pruned, len(partitions)


def _slice_sets(
    snapshot: Snapshot, slices: Sequence[FileSlice], read_schema: pa.Schema, history: SchemaHistory | None
) -> tuple[SliceSet, ...]:
    by_instant: dict[str, tuple[ColumnSource, ...]] = {}
    sets: dict[tuple[tuple[ColumnSource, ...], bool], list[FileSlice]] = {}
    for file_slice in slices:
        if not file_slice.is_base_file:
            sources = _merged_sources(snapshot, read_schema)
        else:
            # one commit writes with one schema
            cached_sources = by_instant.get(file_slice.instant)
            sources = _sources(snapshot, file_slice, read_schema, history) if cached_sources is None else cached_sources
            by_instant[file_slice.instant] = sources
        sets.setdefault((sources, file_slice.is_base_file), []).append(file_slice)
    return tuple(
        [
            SliceSet(tuple(file_slices), sources, is_file and is_native(sources, read_schema))
            for (sources, is_file), file_slices in sets.items()
        ]
    )


def _merged_sources(snapshot: Snapshot, read_schema: pa.Schema) -> tuple[ColumnSource, ...]:
    """The sources of columns in slices that consist of several files: their reader returns the table's own columns and
    types."""
    in_path = set(snapshot.config.partition_fields) if snapshot.config.drop_partition_columns else set[str]()
    return tuple(
        [
            ColumnSource(f.name, None, None, from_path=True)
            if f.name in in_path
            else ColumnSource(f.name, f.name, f.type)
            for f in read_schema
        ]
    )


@dataclass(frozen=True, slots=True)
class _NamesInFiles:
    """The names of columns in files that are merged. `hidden` are the columns, by instant of the files, that have the
    name of a table column but are a different one."""

    history: SchemaHistory | None
    hidden: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(
        cls, history: SchemaHistory | None, base_sources: Mapping[str, Sequence[ColumnSource]]
    ) -> _NamesInFiles | None:
        """The names in files; None if all names are the table's."""
        hidden = {
            instant: tuple([s.name for s in sources if s.stored is None and not s.from_path])
            for instant, sources in base_sources.items()
        }
        return cls(history, hidden) if history or any(hidden.values()) else None

    def stored_names(self, instant: str, columns: pa.Schema) -> dict[str, str | None]:
        named = self.history.stored_names(instant, columns) if self.history else {}
        return {**named, **dict.fromkeys(self.hidden.get(instant, ()), None)}


def _base_sources(
    snapshot: Snapshot, slices: Sequence[FileSlice], read_schema: pa.Schema, history: SchemaHistory | None
) -> dict[str, tuple[ColumnSource, ...]]:
    """The columns of the base files that have log files, by instant, since one commit writes with one schema."""
    sources: dict[str, tuple[ColumnSource, ...]] = {}
    for file_slice in slices:
        base = file_slice.base_file
        if file_slice.log_files and base is not None and base.instant not in sources:
            sources[base.instant] = _sources(snapshot, file_slice.without_logs(), read_schema, history)
    return sources


def _sources(
    snapshot: Snapshot, file_slice: FileSlice, read_schema: pa.Schema, history: SchemaHistory | None
) -> tuple[ColumnSource, ...]:
    stored = snapshot.schema_of(file_slice)
    lower = Counter([n.lower() for n in stored.names])
    by_lower = {n.lower(): n for n in stored.names if lower[n.lower()] == 1}
    names = history.stored_names(file_slice.instant, read_schema) if history else {}
    path_columns = set(snapshot.config.partition_fields) if snapshot.config.drop_partition_columns else set[str]()
    types = {f.name: f.type for f in stored}
    sources: list[ColumnSource] = []
    for column in read_schema:
        source = _source(column, types, by_lower, names, path_columns)
        is_other = _is_of_another_column(snapshot, file_slice, source, column.type)
        sources.append(ColumnSource(column.name, None, None) if is_other else source)
    return tuple(sources)


def _is_of_another_column(snapshot: Snapshot, file_slice: FileSlice, source: ColumnSource, kind: pa.DataType) -> bool:
    """Whether the stored column was dropped from the table, and its name was added again with a type to which its
    values do not convert. (Values that convert are shown under the name again, as in Hudi.)"""
    if source.stored is None or source.type is None or can_cast(source.type, kind):
        return False
    return snapshot.lacked_since(file_slice.instant, source.stored)


def _source(
    field: pa.Field,
    stored: Mapping[str, pa.DataType],
    by_lower: Mapping[str, str],
    names: Mapping[str, str | None],
    in_path: set[str],
) -> ColumnSource:
    name = field.name
    if name in ALL_META_COLUMNS:
        return ColumnSource(name, name, field.type)
    stored_name = names.get(name, name)
    if stored_name is None:
        return ColumnSource(name, None, None)
    if stored_name not in stored:
        stored_name = by_lower.get(stored_name.lower(), stored_name)
    if stored_name in stored:
        type_ = stored[stored_name]
        return ColumnSource(name, stored_name, field.type if same_type(type_, field.type) else type_)
    if name in in_path:
        return ColumnSource(name, None, None, from_path=True)
    # a reader gives null for a column that the file lacks
    return ColumnSource(name, name, field.type)


def is_native(sources: Sequence[ColumnSource], read_schema: pa.Schema) -> bool:
    """Whether files with these columns have the table's names and types."""
    return [(s.stored, s.type) for s in sources] == [(s.name, read_schema.field(s.name).type) for s in sources]


def same_type(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether two types hold the same values; nullability and the names of list elements do not matter."""
    if pa.types.is_timestamp(a) and pa.types.is_timestamp(b):
        return a.unit == b.unit and (a.tz is None) == (b.tz is None)
    return a.equals(b) or _plain(a) == _plain(b)


def _plain(type_: pa.DataType) -> str:
    return spark_type(type_).replace(" NOT NULL", "")


def _path_values(
    snapshot: Snapshot, slices: Sequence[FileSlice], read_schema: pa.Schema, columns: set[str]
) -> dict[str, dict[str, object]]:
    keys = snapshot.config.keys
    values: dict[str, dict[str, object]] = {}
    for partition in dict.fromkeys(s.partition for s in slices):
        texts = keys.partition_values(partition)
        row = {c: texts.get(c) for c in columns}
        values[partition] = {c: value_of_key_text(t, read_schema.field(c).type) for c, t in row.items()}
    return values
