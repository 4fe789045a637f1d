"""Rolls back writes that did not finish: deletes the files that their markers name, then their pending instants."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable

from lakebed.errors import CommitConflict, UnsupportedFeature
from lakebed.metadata.store.writer import MetadataWriter
from lakebed.model import Action, Instant, State
from lakebed.policies.rollback import files_of_instant, is_void, plan_rollback_by_paths
from lakebed.slices.listing import list_table
from lakebed.storage.base import Storage
from lakebed.timeline.actions import (
    RollbackPlan,
    encode_rollback_metadata,
    encode_rollback_plan,
    rollback_files,
    rollback_logs,
    rollback_target,
)
from lakebed.timeline.clock import InstantClock
from lakebed.timeline.locks.heartbeat import Heartbeat, is_dead, remove_heartbeat
from lakebed.timeline.markers import delete_markers, list_markers
from lakebed.timeline.rolled_back import rollback_record
from lakebed.timeline.table_config import TableConfig
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.timeline.transitions import TimelineWriter
from lakebed.timeline.written_files import is_written_by

# What a writer leaves pending when it dies; table services are finished or undone by their own kind.
_WRITES = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)


def without_refused_rollbacks(storage: Storage, config: TableConfig, timeline: Timeline) -> Timeline:
    """Take rollbacks off the timeline that must not be run, and give the timeline without them. Lock held."""
    changed = False
    for pending in timeline.pending:
        if pending.action is not Action.ROLLBACK or not is_dead(storage, pending.time):
            continue
        if is_void(rollback_target(rollback_record(timeline, pending)), lambda time: _is_committed(timeline, time)):
            TimelineWriter(storage, config).remove_pending(pending)
            remove_heartbeat(storage, pending.time)
            changed = True
    return load_timeline(storage, config) if changed else timeline


def _is_committed(timeline: Timeline, target: str) -> bool:
    """Whether the instant is completed, here or in the archive."""
    if timeline.is_completed(target):
        return True
    if any(i.time == target for i in timeline.pending) or not timeline.is_committed(target):
        return False
    return any(i.time == target for i in timeline.archived().instants)


def roll_back_dead_writers(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    clock: InstantClock,
    still_mine: Callable[[], bool],
    forget: Callable[[str], None],
) -> list[str]:
    """Roll back every pending write whose writer is dead, and finish rollbacks that were cut off. Lock held.

    `forget` is called with each instant before it is taken off the timeline. Gives the instants that were rolled back;
    the caller reloads the timeline when there are any.
    """
    undone: list[str] = []
    others: set[str] = set()
    for pending in timeline.pending:
        if pending.action is not Action.ROLLBACK:
            continue
        if is_dead(storage, pending.time):
            undone.append(_finish_rollback(storage, config, timeline, pending, clock, forget))
        else:
            others.add(rollback_target(rollback_record(timeline, pending)))
    for pending in timeline.pending:
        if pending.action not in _WRITES or pending.time in undone or pending.time in others:
            continue
        if is_plan_of_clustering(timeline, pending):
            continue
        if is_dead(storage, pending.time):
            roll_back(storage, config, timeline, pending, clock, still_mine, forget)
            undone.append(pending.time)
    return undone


def is_plan_of_clustering(timeline: Timeline, pending: Instant) -> bool:
    """On version 6 a pending clustering looks like a replacecommit; its requested file holds the plan."""
    return pending.action is Action.REPLACECOMMIT and timeline.is_pending_clustering(pending)


def roll_back(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    target: Instant,
    clock: InstantClock,
    still_mine: Callable[[], bool] = lambda: True,
    forget: Callable[[str], None] = lambda _: None,
) -> None:
    """Undo one pending write, on the timeline as real Hudi does it. Lock held: raises `CommitConflict` where it was
    lost, since the target may have completed by now. From the plan on others see what is going on, and finish it."""
    plan = plan_rollback(storage, timeline, target)
    instant = clock.next(after=timeline.greatest_time)
    writer = TimelineWriter(storage, config)
    requested = encode_rollback_plan(storage.url(), plan)
    with Heartbeat(storage, instant, uuid.uuid4().hex):
        writer.request(Action.ROLLBACK, instant, requested)
        writer.inflight(Action.ROLLBACK, instant)
        if not still_mine():
            writer.remove_pending(Instant(instant, Action.ROLLBACK, State.INFLIGHT))
            remove_heartbeat(storage, instant)
            raise CommitConflict(
                f"the table lock was lost before instant {target.time} of a dead writer could be rolled back",
                hint="another writer took it after it expired; run the write again",
            )
        _execute(storage, config, timeline, plan, instant, clock, forget)
    remove_heartbeat(storage, instant)


def _finish_rollback(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    rollback: Instant,
    clock: InstantClock,
    forget: Callable[[str], None],
) -> str:
    """Run a rollback that was cut off again, from its plan; gives the instant it undoes."""
    record = timeline.plan(rollback)
    undone = rollback_target(record)
    action = Action((record.get("instantToRollback") or {}).get("action") or Action.COMMIT)
    target = next((i for i in timeline.pending if i.time == undone), Instant(undone, action, State.INFLIGHT))
    marked = [marker.path for marker in list_markers(storage, undone)]
    plan = _plan_by_paths(timeline, target, [*rollback_files(record), *marked], rollback_logs(record))
    with Heartbeat(storage, rollback.time, uuid.uuid4().hex):
        if rollback.state is State.REQUESTED:
            TimelineWriter(storage, config).inflight(Action.ROLLBACK, rollback.time)
        _execute(storage, config, timeline, plan, rollback.time, clock, forget)
    remove_heartbeat(storage, rollback.time)
    return undone


def plan_rollback(storage: Storage, timeline: Timeline, target: Instant) -> RollbackPlan:
    """The data files that a pending write may have left: by its markers, by name where it has no marker folder."""
    markers = list_markers(storage, target.time)
    if markers or target.state is State.REQUESTED:
        appended = [marker.path for marker in markers if marker.kind == "APPEND"]
        return _plan_by_paths(timeline, target, [marker.path for marker in markers], appended)
    return RollbackPlan(target, tuple(files_named(storage, target.time)))


def _plan_by_paths(timeline: Timeline, target: Instant, paths: Collection[str], logs: Collection[str]) -> RollbackPlan:
    """Raises `UnsupportedFeature` where log files of earlier instants hold blocks of the target."""
    version = timeline.config.version
    resizes = {i.time for i in timeline.pending if timeline.is_pending_clustering(i)}
    plan = plan_rollback_by_paths(target, paths, logs, version=version, resizes=resizes)
    if plan.logs:
        path = next(iter(plan.logs))
        raise UnsupportedFeature(
            f"instant {target.time} did not finish and may have added to the log file {path}",
            hint="Let the engine that began it write to the table once, which rolls it back, then write again.",
            context={"feature": "rollback of log blocks", "instant": target.time, "path": path},
        )
    return plan


def files_named(storage: Storage, instant: str) -> list[str]:
    """Data files that carry the instant in their name; lists the whole table."""
    listing = list_table(storage)
    return sorted(file.path for file in files_of_instant((*listing.base_files, *listing.log_files), instant))


def _execute(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    plan: RollbackPlan,
    instant: str,
    clock: InstantClock,
    forget: Callable[[str], None],
) -> None:
    started = time.monotonic()
    target = plan.target
    deleted = [path for path in plan.files if storage.delete(path)]
    if config.metadata_partitions or config.metadata_partitions_inflight:
        MetadataWriter(storage, config, timeline).roll_back(target.time, instant)
    forget(target.time)
    writer = TimelineWriter(storage, config)
    writer.remove_pending(target)
    millis = int((time.monotonic() - started) * 1000)
    body = encode_rollback_metadata(storage.url(), plan, instant, deleted, millis)
    completed = clock.next(after=max(instant, timeline.greatest_time))
    writer.complete(Action.ROLLBACK, instant, completed, body)
    delete_markers(storage, target.time)
    remove_heartbeat(storage, target.time)


def delete_data_files(storage: Storage, paths: Iterable[str], instant: str) -> list[str]:
    """Delete those of the files that carry the instant in their name; gives those that existed."""
    return [path for path in paths if is_written_by(path, [instant]) and storage.delete(path)]
