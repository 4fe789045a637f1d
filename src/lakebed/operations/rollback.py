"""Undoing a write that did not finish: its files go by its markers, its pending files last."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from lakebed.errors import CommitConflict, CorruptFile, UnsupportedFeature
from lakebed.format.file_names import parse_log_file
from lakebed.metadata.store.writer import MetadataWriter
from lakebed.model import Action, Instant, State
from lakebed.slices.listing import list_table
from lakebed.storage.base import Storage
from lakebed.timeline.actions import (
    encode_rollback_metadata,
    encode_rollback_plan,
    rollback_files,
    rollback_logs,
    rollback_target,
)
from lakebed.timeline.clock import InstantClock
from lakebed.timeline.heartbeat import Heartbeat, is_dead, remove_heartbeat
from lakebed.timeline.markers import delete_markers, list_markers
from lakebed.timeline.table_config import TableConfig
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.timeline.transitions import TimelineWriter
from lakebed.timeline.written_files import is_written_by

# What a writer leaves pending when it dies; table services are finished or undone by their own kind.
_WRITES = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)


def without_refused_rollbacks(storage: Storage, config: TableConfig, timeline: Timeline) -> Timeline:
    """Take rollbacks off the timeline that must not be run, and give the timeline without them. Lock held.

    Hudi refuses some rollbacks of completed commits after it has written their plan, which stays behind. What undoes a
    completed commit takes its completed file away first: where that is still there nothing was deleted. A plan that
    names no instant goes too; whatever it was meant for is still pending, and gets a plan of its own.
    """
    changed = False
    for pending in timeline.pending:
        if pending.action is not Action.ROLLBACK or not is_dead(storage, pending.time):
            continue
        target = rollback_target(_plan_of(timeline, pending))
        if not target or _is_committed(timeline, target):
            TimelineWriter(storage, config).remove_pending(pending)
            remove_heartbeat(storage, pending.time)
            changed = True
    return load_timeline(storage, config) if changed else timeline


def _plan_of(timeline: Timeline, rollback: Instant) -> Mapping[str, Any]:
    try:
        return timeline.plan(rollback)
    except CorruptFile:
        return {}


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
            others.add(rollback_target(_plan_of(timeline, pending)))
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
    files = files_of(storage, timeline, target)
    instant = clock.next(after=timeline.greatest_time)
    writer = TimelineWriter(storage, config)
    plan = encode_rollback_plan(storage.url(), target, files)
    with Heartbeat(storage, instant, uuid.uuid4().hex):
        writer.request(Action.ROLLBACK, instant, plan)
        writer.inflight(Action.ROLLBACK, instant)
        if not still_mine():
            writer.remove_pending(Instant(instant, Action.ROLLBACK, State.INFLIGHT))
            remove_heartbeat(storage, instant)
            raise CommitConflict(
                f"the table lock was lost before instant {target.time} of a dead writer could be rolled back",
                hint="another writer took it after it expired; run the write again",
            )
        _execute(storage, config, timeline, target, instant, files, clock, forget)
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
    plan = timeline.plan(rollback)
    undone = rollback_target(plan)
    action = Action((plan.get("instantToRollback") or {}).get("action") or Action.COMMIT)
    target = next((i for i in timeline.pending if i.time == undone), Instant(undone, action, State.INFLIGHT))
    _refuse_logs(timeline, undone, rollback_logs(plan))
    named = {*rollback_files(plan), *(m.path for m in list_markers(storage, undone))}
    files = _own_files(timeline, undone, named)
    with Heartbeat(storage, rollback.time, uuid.uuid4().hex):
        if rollback.state is State.REQUESTED:
            TimelineWriter(storage, config).inflight(Action.ROLLBACK, rollback.time)
        _execute(storage, config, timeline, target, rollback.time, files, clock, forget)
    remove_heartbeat(storage, rollback.time)
    return undone


def files_of(storage: Storage, timeline: Timeline, target: Instant) -> list[str]:
    """Data files a pending write may have left: by its markers, by name where it has no marker folder."""
    markers = list_markers(storage, target.time)
    if markers or target.state is State.REQUESTED:
        _refuse_logs(timeline, target.time, [m.path for m in markers if m.kind == "APPEND"])
        return _own_files(timeline, target.time, {m.path for m in markers})
    return files_named(storage, target.time)


def files_named(storage: Storage, instant: str) -> list[str]:
    """Data files that carry the instant in their name; lists the whole table."""
    listing = list_table(storage)
    return sorted(f.path for f in (*listing.base_files, *listing.log_files) if f.instant == instant)


def _own_files(timeline: Timeline, instant: str, paths: Collection[str]) -> list[str]:
    """Of the files that markers or a plan name those that the instant wrote, as their names say. What a delta commit
    adds to the new groups of a resize carries the instant of the clustering that goes on."""
    resizes = {i.time for i in timeline.pending if timeline.is_pending_clustering(i)}
    return sorted(
        path
        for path in paths
        if is_written_by(path, [instant]) or (".log." in path.rpartition("/")[2] and is_written_by(path, resizes))
    )


def _refuse_logs(timeline: Timeline, instant: str, logs: Collection[str]) -> None:
    """Before version 8 blocks may have been added to log files of earlier instants, where only a command block behind
    them undoes that."""
    if timeline.config.version >= 8:
        return
    for path in logs:
        partition, _, name = path.rpartition("/")
        file = parse_log_file(partition, name, 0)
        if file is not None and file.instant != instant and is_written_by(path, [file.instant]):
            raise UnsupportedFeature(
                f"instant {instant} did not finish and may have added to the log file {path}",
                hint="Let the engine that began it write to the table once, which rolls it back, then write again.",
                context={"feature": "rollback of log blocks", "instant": instant, "path": path},
            )


def _execute(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    target: Instant,
    instant: str,
    files: list[str],
    clock: InstantClock,
    forget: Callable[[str], None],
) -> None:
    started = time.monotonic()
    deleted = [path for path in files if storage.delete(path)]
    if config.metadata_partitions or config.metadata_partitions_inflight:
        MetadataWriter(storage, config, timeline).roll_back(target.time, instant)
    forget(target.time)
    writer = TimelineWriter(storage, config)
    writer.remove_pending(target)
    millis = int((time.monotonic() - started) * 1000)
    body = encode_rollback_metadata(storage.url(), target, instant, files, deleted, millis)
    completed = clock.next(after=max(instant, timeline.greatest_time))
    writer.complete(Action.ROLLBACK, instant, completed, body)
    delete_markers(storage, target.time)
    remove_heartbeat(storage, target.time)


def delete_data_files(storage: Storage, paths: Iterable[str], instant: str) -> list[str]:
    """Delete those of the files that carry the instant in their name; gives those that existed."""
    return [path for path in paths if is_written_by(path, [instant]) and storage.delete(path)]
