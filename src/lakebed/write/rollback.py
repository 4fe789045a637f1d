"""Undoing a write that did not finish: its files go by its markers, its pending files last."""

from __future__ import annotations

import time
import uuid

from lakebed.metadata.writer import MetadataWriter
from lakebed.model import Action, Instant, State
from lakebed.slices.listing import list_table
from lakebed.storage.base import Storage
from lakebed.timeline.actions import (
    encode_rollback_metadata,
    encode_rollback_plan,
    rollback_files,
    rollback_target,
)
from lakebed.timeline.clock import InstantClock
from lakebed.timeline.heartbeat import Heartbeat, is_dead, remove_heartbeat
from lakebed.timeline.markers import delete_markers, list_markers
from lakebed.timeline.table_config import TableConfig
from lakebed.timeline.timeline import Timeline
from lakebed.timeline.transitions import TimelineWriter

# What a writer leaves pending when it dies; table services are finished or undone by their own kind.
_WRITES = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)


def roll_back_dead_writers(storage: Storage, config: TableConfig, timeline: Timeline, clock: InstantClock) -> list[str]:
    """Roll back every pending write whose writer is dead, and finish rollbacks that were cut off. Lock held.

    Gives the instants that were rolled back; the caller reloads the timeline when there are any.
    """
    undone: list[str] = []
    others: set[str] = set()
    for pending in timeline.pending:
        if pending.action is not Action.ROLLBACK:
            continue
        if is_dead(storage, pending.time):
            undone.append(_finish_rollback(storage, config, timeline, pending, clock))
        else:
            others.add(rollback_target(timeline.plan(pending)))
    for pending in timeline.pending:
        if pending.action not in _WRITES or pending.time in undone or pending.time in others:
            continue
        if is_plan_of_clustering(timeline, pending):
            continue
        if is_dead(storage, pending.time):
            roll_back(storage, config, timeline, pending, clock)
            undone.append(pending.time)
    return undone


def is_plan_of_clustering(timeline: Timeline, pending: Instant) -> bool:
    """On version 6 a pending clustering looks like a replacecommit; its requested file holds the plan."""
    return pending.action is Action.REPLACECOMMIT and timeline.is_pending_clustering(pending)


def roll_back(storage: Storage, config: TableConfig, timeline: Timeline, target: Instant, clock: InstantClock) -> None:
    """Undo one pending write, on the timeline as real Hudi does it. Lock held."""
    files = files_of(storage, target)
    instant = clock.next(after=timeline.greatest_time)
    writer = TimelineWriter(storage, config)
    plan = encode_rollback_plan(storage.url(), target, files)
    with Heartbeat(storage, instant, uuid.uuid4().hex):
        writer.request(Action.ROLLBACK, instant, plan)
        writer.inflight(Action.ROLLBACK, instant)
        _execute(storage, config, timeline, target, instant, files, clock)
    remove_heartbeat(storage, instant)


def _finish_rollback(
    storage: Storage, config: TableConfig, timeline: Timeline, rollback: Instant, clock: InstantClock
) -> str:
    """Run a rollback that was cut off again, from its plan; gives the instant it undoes."""
    plan = timeline.plan(rollback)
    undone = rollback_target(plan)
    action = Action((plan.get("instantToRollback") or {}).get("action") or Action.COMMIT)
    target = next((i for i in timeline.pending if i.time == undone), Instant(undone, action, State.INFLIGHT))
    files = sorted({*rollback_files(plan), *(m.path for m in list_markers(storage, undone))})
    with Heartbeat(storage, rollback.time, uuid.uuid4().hex):
        if rollback.state is State.REQUESTED:
            TimelineWriter(storage, config).inflight(Action.ROLLBACK, rollback.time)
        _execute(storage, config, timeline, target, rollback.time, files, clock)
    remove_heartbeat(storage, rollback.time)
    return undone


def files_of(storage: Storage, target: Instant) -> list[str]:
    """Data files a pending write may have left: by its markers, by name where it has no marker folder."""
    markers = list_markers(storage, target.time)
    if markers or target.state is State.REQUESTED:
        return sorted({m.path for m in markers})
    return files_named(storage, target.time)


def files_named(storage: Storage, instant: str) -> list[str]:
    """Data files that carry the instant in their name; lists the whole table."""
    listing = list_table(storage)
    return sorted(f.path for f in (*listing.base_files, *listing.log_files) if f.instant == instant)


def _execute(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    target: Instant,
    instant: str,
    files: list[str],
    clock: InstantClock,
) -> None:
    started = time.monotonic()
    deleted = delete_data_files(storage, files)
    if config.metadata_partitions or config.metadata_partitions_inflight:
        MetadataWriter(storage, config, timeline).roll_back(target.time, instant)
    writer = TimelineWriter(storage, config)
    writer.remove_pending(target)
    millis = int((time.monotonic() - started) * 1000)
    body = encode_rollback_metadata(storage.url(), target, instant, files, deleted, millis)
    completed = clock.next(after=max(instant, timeline.greatest_time))
    writer.complete(Action.ROLLBACK, instant, completed, body)
    delete_markers(storage, target.time)
    remove_heartbeat(storage, target.time)


def delete_data_files(storage: Storage, paths: list[str]) -> list[str]:
    """Delete files; gives those that existed."""
    return [path for path in paths if storage.delete(path)]
