"""Making, listing and dropping indexes of the metadata table, under the table lock; the plan of an index that is
built while others write: an `indexing` on the timeline, as real Hudi has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebed.concurrency.heartbeat import Heartbeat, is_dead, newest_heartbeat, remove_heartbeat
from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Engine
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption, UnsupportedFeature
from lakebed.expressions.index_functions import ZONE
from lakebed.format.file_names import is_data_path
from lakebed.index.registry import check_new_indexes, index_of, recorded_index
from lakebed.metadata.lookups import snapshot_of
from lakebed.metadata_kinds.base import required
from lakebed.metadata_kinds.expression_results import (
    KINDS,
    ExpressionIndex,
    ZoneNote,
    created_at,
    expression_index_definition,
    expression_partition,
    noting,
    zone_notes,
)
from lakebed.metadata_kinds.layered_kind import LayeredKind
from lakebed.metadata_kinds.registry import (
    REQUESTED_PROPERTY,
    find_kind,
    kind_of,
    parse_index_name,
    remembered_indexes,
    remembered_property,
)
from lakebed.metadata_kinds.text_store import text_index_definition, text_partition
from lakebed.metadata_kinds.vector_definitions import vector_index_definition, vector_partition
from lakebed.metadata_records.definitions import (
    TEXT_KIND,
    VECTOR_KIND,
    IndexDefinition,
    IndexName,
    load_definitions,
    write_definitions,
)
from lakebed.metadata_records.layout import COLUMN_STATS, EXPRESSION_INDEX, FILES, GroupSizing, secondary_index_name
from lakebed.metadata_upkeep.build_jobs import build_by_job, can_build, is_large
from lakebed.metadata_upkeep.creation import drop, without_definitions
from lakebed.metadata_upkeep.maintain import MetadataUpkeep, locked_table
from lakebed.model import RECORD_INDEX, Action, Instant, State, has_completion_times
from lakebed.properties.file import update_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.schema.column_names import near_or_nothing
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.plans import PlannedIndex, encode_index_plan, last_before_pending, planned_indexes
from lakebed.timeline.instants import InstantClock
from lakebed.timeline.timeline import Timeline
from lakebed.timeline.transitions import TimelineWriter
from lakebed.wording import Printed

# How many file groups an index is to get, if its maker named a number.
_GROUPS = "lakebed.file_groups"


@dataclass(frozen=True, repr=False)
class IndexPlan(Printed):
    """A plan of indexes that are waiting to be built, or being built: `partitions` of the metadata table, under
    `instant`. `is_running` is true while a process builds them."""

    instant: str
    partitions: tuple[str, ...]
    is_running: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {"instant": self.instant, "indexes": list(self.partitions), "running": self.is_running}

    def __str__(self) -> str:
        state = "is being built" if self.is_running else "waits to be built"
        return f"{', '.join(self.partitions)} {state} (indexing {self.instant})"


def pending_indexings(timeline: Timeline) -> list[Instant]:
    """The plans that are to be run, oldest first."""
    return [instant for instant in timeline.pending if instant.action is Action.INDEXING]


def index_plans(storage: Storage, timeline: Timeline) -> list[IndexPlan]:
    """The indexing plans of the timeline, each with the indexes that it builds."""
    return [
        IndexPlan(
            instant.time,
            tuple(index.partition for index in planned_indexes(timeline.plan(instant))),
            instant.state is State.INFLIGHT and not is_dead(storage, instant.time),
        )
        for instant in pending_indexings(timeline)
    ]


def planned_partitions(timeline: Timeline) -> dict[str, str]:
    """The partitions of the metadata table that plans are about, with the instant of each."""
    plans = ((i.time, planned_indexes(timeline.plan(i))) for i in pending_indexings(timeline))
    return {index.partition: time for time, indexes in plans for index in indexes}


def plan_index(
    snapshot: Snapshot,
    name: IndexName,
    sizing: GroupSizing | None,
    settings: WriteSettings,
    lock_is_held: Callable[[], bool],
) -> IndexPlan:
    """Write the plan of an index, which the table may have, to the timeline. The caller holds the lock, and read
    `snapshot` under it. Raises `CommitConflict` if the lock was lost; then there is no plan."""
    storage, config, timeline = snapshot.storage, snapshot.config, snapshot.timeline
    if not has_completion_times(config.version):
        raise UnsupportedFeature(
            f"an index of table {config.name!r}, of version {config.version}, cannot be built while others write",
            hint="Build it at once, with wait=True, or upgrade the table: t.maintenance.upgrade().",
            context={"feature": "indexing", "version": config.version},
        )
    needed = kind_of(name.partition).dropped_with
    if needed is not None and needed not in config.metadata_partitions:
        raise InvalidOption(
            f"{name.partition} of table {config.name!r} is made from {needed}, which it does not have yet",
            hint=f"Build {needed} first.",
            context={"index": name.partition},
        )
    definition = kind_of(name.partition).definition(name, snapshot, settings)
    if definition is not None:
        # where the process that runs the plan reads it; readers do not use an index that has only a definition
        every = {**load_definitions(storage, config), definition.name: definition}
        changes = write_definitions(storage, config, every.values())
        config = update_table_config(storage, changes, lock_is_held) if changes else config
    extra = {_GROUPS: str(sizing.minimum)} if sizing is not None else {}
    planned = PlannedIndex(name.partition, last_before_pending(timeline), extra)
    instant = InstantClock(config.timezone).next(after=max(timeline.greatest_time, newest_heartbeat(storage)))
    with Heartbeat(storage, instant):
        writer = TimelineWriter(storage, config)
        requested = writer.request(Action.INDEXING, instant, encode_index_plan([planned]))
        is_lost = not lock_is_held()
        if is_lost:
            writer.remove_pending(requested)
    remove_heartbeat(storage, instant)
    if is_lost:
        raise CommitConflict(
            f"the table lock was lost while the index {name.partition} was planned",
            hint="Another process took it after it expired; try again.",
            context={"index": name.partition},
            kind=ConflictKind.LOCK_LOST,
        )
    return IndexPlan(instant, (name.partition,))


def take_plans_off(
    storage: Storage, config: TableConfig, timeline: Timeline, partition: str, lock_is_held: Callable[[], bool]
) -> TableConfig:
    """Remove the plans for a partition of the metadata table from the timeline, with its definition if the partition
    does not exist. A process that runs such a plan notices it. Returns the table's settings after that. The caller
    holds the lock."""
    planned = planned_partitions(timeline)
    if partition not in planned:
        return config
    for instant in pending_indexings(timeline):
        if partition in {index.partition for index in planned_indexes(timeline.plan(instant))}:
            TimelineWriter(storage, config).remove_pending(instant)
            remove_heartbeat(storage, instant.time)
    if partition in (*config.metadata_partitions, *config.metadata_partitions_inflight):
        return config
    return without_definitions(storage, config, [partition], lock_is_held)


def named_indexes(snapshot: Snapshot, planned: Sequence[PlannedIndex]) -> list[tuple[IndexName, GroupSizing | None]]:
    """The indexes that a plan names, each with the number of its file groups (None: the default). Raises
    `UnsupportedFeature` for an index that lakebed cannot build, and `CorruptFile` if the definition of an index is
    missing."""
    definitions = load_definitions(snapshot.storage, snapshot.config)
    return [_named(index, definitions) for index in planned]


def _named(planned: PlannedIndex, definitions: Mapping[str, IndexDefinition]) -> tuple[IndexName, GroupSizing | None]:
    is_name = "/" not in planned.partition and is_data_path(f"{planned.partition}/-")
    upkeep = find_kind(planned.partition) if is_name else None
    if upkeep is None:
        raise UnsupportedFeature(
            f"an indexing plan names {planned.partition!r}, which lakebed does not build",
            hint="Run it with the engine that made it, or take it off: t.indexes.drop().",
            context={"feature": "indexing plan", "partition": planned.partition},
        )
    groups = planned.extra.get(_GROUPS, "")
    count = int(groups) if groups.isdecimal() else 0
    if count > _MAX_GROUPS:
        raise InvalidOption(f"an indexing plan asks for {count} file groups", hint="Drop the index and plan it again.")
    sizing = GroupSizing(minimum=count, maximum=count) if count else None
    return upkeep.index_name(planned.partition, definitions.get(planned.partition)), sizing


_MAX_GROUPS = 10_000


@dataclass(frozen=True)
class Expression:
    """The values that a named index covers: the results of a `function` (with Hudi's `options` for it) over a `column`,
    as records of this `kind`: "column_stats" or "bloom_filters". A "secondary_index" covers the column's values, a
    "vector_index" the vectors of the column, with the options of such an index, a "text_index" its words."""

    column: str
    function: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kind: str = COLUMN_STATS


_NAME = re.compile(r"[A-Za-z0-9_]+")
SECONDARY_KIND = "secondary_index"
"""The kind of a secondary index with a name of its own."""
_LAYERED_KINDS = {VECTOR_KIND: ("vector", vector_index_definition), TEXT_KIND: ("text", text_index_definition)}


def create_index(
    storage: Storage,
    name: str,
    *,
    expression: Expression | None = None,
    partitioned: bool | None = None,
    groups: int | None = None,
    settings: WriteSettings | None = None,
    engine: Engine | None = None,
    wait: bool = True,
) -> IndexPlan | None:
    """Build an index from the table's files, and create the metadata table if there is none.

    `name` is "record_index", "bloom_filters", "column_stats", "partition_stats" or a column for a secondary index;
    with an `expression` it is the name that the index gets. `partitioned` (None: as the table's index has it) is a
    record index's kind, `groups` the number of its (or a secondary index's) file groups instead of Hudi's estimate.
    Large tables are read by a Spark job, given its engine. Without `wait` only the plan is put on the timeline, for
    `build_planned`, and given back.

    Raises `InvalidOption`, `SchemaConflict` or `UnsupportedFeature` for an index that the table has or cannot have,
    `IndexInconsistent` for a record index on keys that are not unique; nothing is changed then.
    """
    settings = settings or WriteSettings()
    index_name = parse_index_name(name) if expression is None else _by_expression(name, expression)
    sizing = _sizing(index_name, groups)
    with locked_table(storage, settings) as (snapshot, lock_is_held):
        config, timeline = snapshot.config, snapshot.timeline
        if index_name.partition in (*config.metadata_partitions, *config.metadata_partitions_inflight):
            raise InvalidOption(
                f"table {config.name!r} has the index {index_name.partition} already",
                hint="Drop it first to build it again, or look what is wrong with it: t.indexes.verify().",
                context={"index": index_name.partition},
            )
        if (planned := planned_partitions(timeline).get(index_name.partition)) is not None:
            raise InvalidOption(
                f"the index {index_name.partition} of table {config.name!r} waits to be built (indexing {planned})",
                hint="Build it with t.indexes.build() or `lakebed maintenance run`, or take the plan off:"
                " t.indexes.drop().",
                context={"index": index_name.partition, "instant": planned},
            )
        index = index_of(snapshot, for_write=False)
        if index_name.partition == RECORD_INDEX:
            index_name = IndexName(
                RECORD_INDEX, partitioned=_partitioned(index_name, partitioned, config, index.is_global)
            )
        check_new_indexes([index_name], config, snapshot.schema, index)
        kind = kind_of(index_name.partition)
        if isinstance(kind, LayeredKind):
            definition = required(index_name.partition, index_name.expression)
            kind.check_only(definition, load_definitions(storage, config).values())
        if config.version == 6 and timeline.pending:
            raise CommitConflict(
                f"{index_name.partition} cannot be built while a write to the table is pending",
                hint="Try again when the writers are done.",
                kind=ConflictKind.BUSY,
            )
        if not wait:
            return plan_index(snapshot, index_name, sizing, settings, lock_is_held)
        table = MetadataUpkeep(snapshot, settings, engine, lock_is_held)
        if index_name.partition.startswith(EXPRESSION_INDEX) and index_name.expression is not None:
            config = table.add(index_name)
            note_zone(snapshot, config, ExpressionIndex.of(index_name.expression, snapshot.schema), lock_is_held)
        elif engine is None or not can_build(index_name.partition) or not is_large(snapshot, engine):
            table.add(index_name, sizing=sizing)
        else:
            table.add()
            build_by_job(table.store, snapshot, index_name, sizing, engine)
    return None


def drop_index(storage: Storage, name: str, *, settings: WriteSettings | None = None) -> TableConfig:
    """Remove an index of the table, by its name as in `create_index`, or by its partition, and return the new settings
    of the table. If the column statistics are removed, so are the partition statistics.

    Raises `InvalidOption` for one that the table does not have, that its writes go by, or that others need.
    """
    settings = settings or WriteSettings()
    with locked_table(storage, settings) as (snapshot, lock_is_held):
        config, timeline = snapshot.config, snapshot.timeline
        partitions = (*config.metadata_partitions, *config.metadata_partitions_inflight)
        existing = (*partitions, *planned_partitions(timeline))
        names = (name, expression_partition(name), vector_partition(name), text_partition(name))
        partition = next((n for n in names if n in existing), None)
        if partition is None:
            partition = name if find_kind(name) is not None else parse_index_name(name).partition
        remembered = [n for n in remembered_indexes(config.properties) if n.partition != partition]
        is_remembered = len(remembered) < len(remembered_indexes(config.properties))
        if is_remembered:
            changes: dict[str, str | None] = {REQUESTED_PROPERTY: None, **remembered_property(remembered)}
            config = update_table_config(storage, changes, lock_is_held)
        if partition not in (*partitions, *planned_partitions(timeline)) and not is_remembered:
            raise InvalidOption(
                f"table {config.name!r} has no index {name!r}",
                hint=f"{near_or_nothing(name, partitions)}It has {', '.join(partitions) or 'none'}.",
                context={"index": name},
            )
        _check_free(storage, config, partition)
        known_partitions = dict.fromkeys((*partitions, *planned_partitions(timeline)))
        needing = [name for name in known_partitions if kind_of(name).dropped_with == partition]
        for planned in (partition, *needing):
            config = take_plans_off(storage, config, timeline, planned, lock_is_held)
        if partition not in partitions:
            return config
        dropped = [partition, *(name for name in needing if name in partitions)]
        upkeep = MetadataUpkeep(snapshot_of(storage, config, timeline), settings, None, lock_is_held)
        config = drop(upkeep.store, dropped)
        forgotten = noting(config.properties, partition, None) if partition in zone_notes(config.properties) else {}
        return update_table_config(storage, forgotten, lock_is_held) if forgotten else config


def _by_expression(name: str, expression: Expression) -> IndexName:
    if expression.kind not in (*KINDS, SECONDARY_KIND, *_LAYERED_KINDS):
        raise InvalidOption(
            f"an expression index of kind {expression.kind!r}",
            hint=f"There are {', '.join((*KINDS, SECONDARY_KIND, VECTOR_KIND))} and {TEXT_KIND}.",
            context={"index": name, "kind": expression.kind},
        )
    if not _NAME.fullmatch(name):
        raise InvalidOption(
            f"{name!r} is no name for an index of a column",
            hint="Take letters, digits and underscores.",
            context={"index": name},
        )
    if expression.kind in _LAYERED_KINDS:
        noun, make = _LAYERED_KINDS[expression.kind]
        if expression.function != "identity":
            raise InvalidOption(
                f"a {noun} index {name!r} has a function", hint=f"It is on a {noun} column, without a function."
            )
        definition = make(name, expression.column, expression.options)
        return IndexName(definition.name, expression=definition)
    if expression.kind == SECONDARY_KIND:
        if expression.function != "identity" or expression.options:
            raise InvalidOption(
                f"a secondary index {name!r} has a function",
                hint="It holds the values of its column; an expression index holds the results of a function.",
                context={"index": name},
            )
        return IndexName(secondary_index_name(name), column=expression.column)
    definition = expression_index_definition(
        name, expression.column, expression.function, expression.options, expression.kind
    )
    return IndexName(definition.name, expression=definition)


def note_zone(
    snapshot: Snapshot, config: TableConfig, index: ExpressionIndex, lock_is_held: Callable[[], bool]
) -> TableConfig:
    """Record in the table's properties the time zone in which the results of an expression index were computed, if it
    makes a difference. Returns the table's settings after that."""
    if not index.function.zoned:
        return config
    before = min((i.time for i in snapshot.timeline.pending), default=None)
    times = [i.time for i in snapshot.timeline.completed if before is None or i.time < before]
    note = ZoneNote(ZONE, created_at(snapshot.storage, index.partition), max(times, default="0" * 17))
    return update_table_config(snapshot.storage, noting(config.properties, index.partition, note), lock_is_held)


def _sizing(name: IndexName, groups: int | None) -> GroupSizing | None:
    if groups is None:
        return None
    if not kind_of(name.partition).grows or groups < 1:
        raise InvalidOption(
            f"{name.partition} with groups={groups}",
            hint="A record index or a secondary index has one file group or more; those of others are fixed.",
            context={"index": name.partition, "groups": groups},
        )
    return GroupSizing(minimum=groups, maximum=groups)


def _partitioned(name: IndexName, partitioned: bool | None, config: TableConfig, is_global: bool) -> bool:
    if partitioned is None:
        return name.partitioned or (bool(config.partition_fields) and not is_global and config.version >= 9)
    return partitioned


def _check_free(storage: Storage, config: TableConfig, partition: str) -> None:
    """Raise `InvalidOption` for an index that the table's writes use, or that the table or other indexes need."""
    index = recorded_index(config.index_settings, missing_ok=True)
    if index is not None and any(name.partition == partition for name in index.metadata_indexes):
        raise InvalidOption(
            f"writes to table {config.name!r} go by its {index.name} index",
            hint="Give the table another index first: t.indexes.adopt('global_simple').",
        )
    upkeep = find_kind(partition)
    if upkeep is not None:
        upkeep.check_drop(storage, config)


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """One index: its partition of the metadata table, its kind, its fields, the number of its file groups, the bytes of
    their latest slices, and the newest instant that wrote to it."""

    name: str
    kind: str
    fields: tuple[str, ...]
    file_groups: int
    bytes: int
    instant: str = ""


def list_indexes(snapshot: Snapshot) -> Sequence[IndexFacts]:
    """The complete indexes, `files` first; each takes one listing."""
    metadata = snapshot.metadata
    if metadata is None:
        return ()
    names = sorted(metadata.slices.partitions, key=lambda name: (name != FILES, name))
    return tuple(_facts(snapshot, name) for name in names)


def _facts(snapshot: Snapshot, name: str) -> IndexFacts:
    assert snapshot.metadata is not None
    slices = snapshot.metadata.slices.file_slices(name)
    definition = snapshot.metadata.slices.definitions.get(name)
    size = sum(file.size for s in slices for file in (*([s.base_file] if s.base_file else []), *s.log_files))
    kind = kind_of(name).describe(definition) or name.replace("_", " ")
    fields = definition.source_fields if definition is not None else ()
    newest = max((file.instant for s in slices for file in s.files), default="")
    return IndexFacts(name, kind, fields, len(slices), size, newest)
