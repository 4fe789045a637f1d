"""The plan of an index that is to be built beside writers: an `indexing` on the timeline, as real Hudi has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.concurrency.heartbeat import Heartbeat, is_dead, newest_heartbeat, remove_heartbeat
from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.format.file_names import is_data_path
from lakebed.metadata.kinds.definitions import (
    DEFINITIONS_PATH,
    DEFINITIONS_PROPERTY,
    IndexDefinition,
    dump_definitions,
    load_definitions,
)
from lakebed.metadata.kinds.index_names import IndexName
from lakebed.metadata.kinds.registry import kind_of
from lakebed.metadata.layout import GroupSizing
from lakebed.model import Action, Instant, State, has_completion_times
from lakebed.properties.file import update_table_config
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.plans import PlannedIndex, encode_index_plan, last_before_pending, planned_indexes
from lakebed.timeline.instants import InstantClock
from lakebed.timeline.timeline import Timeline
from lakebed.timeline.transitions import TimelineWriter
from lakebed.upkeep.registry import find_upkeep, upkeep_of

# How many file groups an index is to get, where its maker said so.
_GROUPS = "lakebed.file_groups"


@dataclass(frozen=True)
class IndexPlan:
    """Indexes that wait to be built, or are: `partitions` of the metadata table, under `instant`. `is_running` while a
    process is at it."""

    instant: str
    partitions: tuple[str, ...]
    is_running: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"instant": self.instant, "indexes": list(self.partitions), "running": self.is_running}

    def __str__(self) -> str:
        state = "is being built" if self.is_running else "waits to be built"
        return f"{', '.join(self.partitions)} {state} (indexing {self.instant})"

    __repr__ = __str__


def pending_indexings(timeline: Timeline) -> list[Instant]:
    """The plans that are to be run, oldest first."""
    return [instant for instant in timeline.pending if instant.action is Action.INDEXING]


def index_plans(storage: Storage, timeline: Timeline) -> list[IndexPlan]:
    """The same with what they are to build."""
    return [
        IndexPlan(
            instant.time,
            tuple(one.partition for one in planned_indexes(timeline.plan(instant))),
            instant.state is State.INFLIGHT and not is_dead(storage, instant.time),
        )
        for instant in pending_indexings(timeline)
    ]


def planned_partitions(timeline: Timeline) -> dict[str, str]:
    """The partitions of the metadata table that plans are about, with the instant of each."""
    plans = ((i.time, planned_indexes(timeline.plan(i))) for i in pending_indexings(timeline))
    return {one.partition: time for time, indexes in plans for one in indexes}


def plan_index(snapshot: Snapshot, name: IndexName, sizing: GroupSizing | None, settings: WriteSettings) -> IndexPlan:
    """Put the plan of an index, which the table may have, on the timeline. Lock held, `snapshot` read under it."""
    storage, config, timeline = snapshot.storage, snapshot.config, snapshot.timeline
    if not has_completion_times(config.version):
        raise UnsupportedFeature(
            f"an index of table {config.name!r}, of version {config.version}, cannot be built beside writers",
            hint="Build it at once, with wait=True, or upgrade the table: t.upgrade().",
            context={"feature": "indexing", "version": config.version},
        )
    needed = kind_of(name.partition).dropped_with
    if needed is not None and needed not in config.metadata_partitions:
        raise InvalidOption(
            f"{name.partition} of table {config.name!r} is made from {needed}, which it does not have yet",
            hint=f"Build {needed} first.",
            context={"index": name.partition},
        )
    definition = upkeep_of(name.partition).definition(name, snapshot, settings)
    if definition is not None:
        _define(storage, snapshot, definition)
    extra = {_GROUPS: str(sizing.minimum)} if sizing is not None else {}
    planned = PlannedIndex(name.partition, last_before_pending(timeline), extra)
    instant = InstantClock(config.timezone).next(after=max(timeline.greatest_time, newest_heartbeat(storage)))
    with Heartbeat(storage, instant):
        TimelineWriter(storage, config).request(Action.INDEXING, instant, encode_index_plan([planned]))
    remove_heartbeat(storage, instant)
    return IndexPlan(instant, (name.partition,))


def take_plans_off(storage: Storage, timeline: Timeline, partition: str) -> None:
    """Take the plans off the timeline that are about a partition of the metadata table, with its definition where it is
    not there; a process that runs one finds out. Lock held."""
    config = timeline.config
    planned = planned_partitions(timeline)
    if partition not in planned:
        return
    for instant in pending_indexings(timeline):
        if partition in {one.partition for one in planned_indexes(timeline.plan(instant))}:
            TimelineWriter(storage, config).remove_pending(instant)
            remove_heartbeat(storage, instant.time)
    known = load_definitions(storage, config)
    if partition in known and partition not in (*config.metadata_partitions, *config.metadata_partitions_inflight):
        left = (one for name, one in known.items() if name != partition)
        storage.write(DEFINITIONS_PATH, dump_definitions(left, config.version))


def named_indexes(snapshot: Snapshot, planned: Sequence[PlannedIndex]) -> list[tuple[IndexName, GroupSizing | None]]:
    """What a plan is about. Raises `UnsupportedFeature` for what lakebed does not build, `CorruptFile` where the
    definition of an index is missing."""
    definitions = load_definitions(snapshot.storage, snapshot.config)
    return [_named(one, definitions) for one in planned]


def _named(one: PlannedIndex, definitions: Mapping[str, IndexDefinition]) -> tuple[IndexName, GroupSizing | None]:
    is_name = "/" not in one.partition and is_data_path(f"{one.partition}/-")
    upkeep = find_upkeep(one.partition) if is_name else None
    if upkeep is None:
        raise UnsupportedFeature(
            f"an indexing plan names {one.partition!r}, which lakebed does not build",
            hint="Run it with the engine that made it, or take it off: t.indexes.drop().",
            context={"feature": "indexing plan", "partition": one.partition},
        )
    groups = one.extra.get(_GROUPS, "")
    count = int(groups) if groups.isdecimal() else 0
    if count > _MOST_GROUPS:
        raise InvalidOption(f"an indexing plan asks for {count} file groups", hint="Drop the index and plan it anew.")
    sizing = GroupSizing(minimum=count, maximum=count) if count else None
    return upkeep.index_name(one.partition, definitions.get(one.partition)), sizing


_MOST_GROUPS = 10_000


def _define(storage: Storage, snapshot: Snapshot, definition: IndexDefinition) -> None:
    """Whoever runs the plan finds there what the index is on; nobody reads an index that only has a definition."""
    config = snapshot.config
    known = load_definitions(storage, config)
    body = dump_definitions({**known, definition.name: definition}.values(), config.version)
    storage.write(DEFINITIONS_PATH, body)
    if not config.properties.get(DEFINITIONS_PROPERTY):
        update_table_config(storage, {DEFINITIONS_PROPERTY: DEFINITIONS_PATH})
