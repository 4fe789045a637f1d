"""Rolls back writes: deletes the files that their markers name, or (of completed ones) their write stats, then their
instants; removes what dead writers left next to the timeline, and plans of clusterings that give way to a write.

A completed write loses its completion first: from then on no reader sees what it wrote. Before table version 8 a log
file belongs to its slice's instant and may hold blocks of others: a command block after it hides those of the write.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from lakebed.concurrency.conflicts import TouchedFiles
from lakebed.concurrency.heartbeat import (
    HEARTBEAT_FOLDER,
    Heartbeat,
    heartbeat_path,
    is_dead,
    newest_heartbeat,
    remove_heartbeat,
)
from lakebed.concurrency.markers import delete_markers, list_markers, write_marker
from lakebed.errors import CommitConflict, CorruptFile
from lakebed.format.file_names import is_written_by, log_file_name, parse_base_file, parse_log_file
from lakebed.format.log_file import block_bytes, rollback_block
from lakebed.handles.log_writer import token_of
from lakebed.metadata.layout import FILES, METADATA_FOLDER
from lakebed.metadata.partitions.files import file_records
from lakebed.metadata.partitions.stored import NewFile
from lakebed.metadata.records import record_form
from lakebed.metadata.store import rollback as metadata_rollback
from lakebed.metadata.store.commit import apply_delta
from lakebed.metadata.store.store import MetadataStore
from lakebed.model import Action, FileGroupId, Instant, LogFile, State, has_completion_times, path_in
from lakebed.policies.rollback import files_of_instant, is_log_path, is_void, plan_rollback_by_paths
from lakebed.properties.table_config import TableConfig
from lakebed.slices.listing import list_table
from lakebed.storage.atomic_file import aside_name, remove_asides
from lakebed.storage.base import FileInfo, Storage
from lakebed.storage.exactly_once import create_exactly_once
from lakebed.timeline.bodies.plans import planned_clustering
from lakebed.timeline.bodies.rollback import (
    RollbackPlan,
    encode_rollback_metadata,
    encode_rollback_plan,
    rollback_files,
    rollback_logs,
    rollback_target,
)
from lakebed.timeline.history import rollback_record
from lakebed.timeline.instants import InstantClock, parse_instant_file
from lakebed.timeline.timeline import Timeline, key_of, load_timeline
from lakebed.timeline.transitions import TimelineWriter

# What a writer leaves pending when it dies; table services are finished or undone by their own kind.
_WRITES = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)
# Of these only the run is taken back: the plan stays, and is run again.
_KEEP_THEIR_PLAN = (Action.COMPACTION, Action.CLUSTERING)
_CLUSTERS = (Action.CLUSTERING, Action.REPLACECOMMIT)


def without_refused_rollbacks(storage: Storage, config: TableConfig, timeline: Timeline) -> Timeline:
    """Remove rollbacks from the timeline that must not be run, and give the timeline without them. Lock held."""
    changed = False
    for pending in timeline.pending:
        if pending.action is not Action.ROLLBACK or not is_dead(storage, pending.time):
            continue
        target = rollback_target(rollback_record(timeline, pending))
        if is_void(target, timeline.has_completed) and not _lost_its_files(timeline, target):
            TimelineWriter(storage, config).remove_pending(pending)
            remove_heartbeat(storage, pending.time)
            changed = True
    return load_timeline(storage, config) if changed else timeline


def _lost_its_files(timeline: Timeline, target: str) -> bool:
    """Whether a rollback of the instant has completed: its writer, which was suspended, published it after that.
    Services do not count: they run again from their plan after a rollback, and complete the same instant."""
    done = (i for i in timeline.instants if i.action is Action.ROLLBACK and i.is_completed and i.time > target)
    records = (rollback_record(timeline, i) for i in done)
    undone = (record.get("instantToRollback") or {} for record in records if rollback_target(record) == target)
    return any(one.get("action") in (Action.COMMIT, Action.DELTACOMMIT) for one in undone)


def without_dead_savepoints(storage: Storage, config: TableConfig, timeline: Timeline) -> Timeline:
    """Remove savepoints from the timeline whose process died; give the timeline without them. They protect
    nothing, and would hold back cleaning and archival. Lock held."""
    pending = [i for i in timeline.pending if i.action is Action.SAVEPOINT and is_dead(storage, i.time)]
    for instant in pending:
        TimelineWriter(storage, config).remove_pending(instant)
        remove_heartbeat(storage, instant.time)
    return load_timeline(storage, config) if pending else timeline


def roll_back_dead_writers(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    clock: InstantClock,
    lock_is_held: Callable[[], bool],
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
            undone.append(_finish_rollback(storage, config, timeline, pending, clock, lock_is_held, forget))
        else:
            others.add(rollback_target(rollback_record(timeline, pending)))
    for pending in timeline.pending:
        if pending.action not in _WRITES or pending.time in undone or pending.time in others:
            continue
        if is_plan_of_clustering(timeline, pending):
            continue
        if is_dead(storage, pending.time):
            roll_back(storage, config, timeline, pending, clock, lock_is_held, forget)
            undone.append(pending.time)
    return undone


def dead_writes(storage: Storage, timeline: Timeline) -> list[Instant]:
    """The pending writes, rollbacks and savepoints whose writers are dead: what the next writer takes back, or
    finishes."""
    kinds = (*_WRITES, Action.ROLLBACK, Action.SAVEPOINT)
    waiting = (i for i in timeline.pending if i.action in kinds)
    return [i for i in waiting if not is_plan_of_clustering(timeline, i) and is_dead(storage, i.time)]


def is_plan_of_clustering(timeline: Timeline, pending: Instant) -> bool:
    """On version 6 a pending clustering looks like a replacecommit; its requested file holds the plan."""
    return pending.action is Action.REPLACECOMMIT and timeline.is_pending_clustering(pending)


def _keeps_its_plan(timeline: Timeline, target: Instant) -> bool:
    return target.action in _KEEP_THEIR_PLAN or is_plan_of_clustering(timeline, target)


def roll_back(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    target: Instant,
    clock: InstantClock,
    lock_is_held: Callable[[], bool],
    forget: Callable[[str], None] = lambda _: None,
    *,
    with_plan: bool = False,
    doomed: Collection[str] = frozenset(),
) -> str:
    """Undo one write, on the timeline as real Hudi does it; gives the rollback's instant. Lock held: raises
    `CommitConflict` where it was lost, since a pending target may have completed by now. From the plan on others see
    what is going on, and finish it. A service that is pending is taken off `with_plan`, or its plan stays. Blocks in
    log files of `doomed` slices are not hidden: the instants that began those are undone next."""
    plan = plan_rollback(storage, timeline, target, with_plan=with_plan)
    if doomed:
        plan = replace(plan, logs={path: size for path, size in plan.logs.items() if not is_written_by(path, doomed)})
    keep_plan = _keeps_its_plan(timeline, target) and not with_plan
    return _run(storage, config, timeline, plan, clock, lock_is_held, forget, keep_plan=keep_plan)


def roll_back_late(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    target: Instant,
    clock: InstantClock,
    lock_is_held: Callable[[], bool],
) -> None:
    """Undo what a writer wrote after another one had rolled it back. Files of its own are deleted; blocks in log files
    of others' slices (before table version 8) are hidden by a rollback of its own. Lock held."""
    marked = [marker.path for marker in list_markers(storage, target.time)]
    logs = () if has_completion_times(config.version) else marked
    plan = _plan_by_paths(timeline, target, [*files_named(storage, target.time), *marked], logs)
    for path in plan.files:
        storage.delete(path)
    if any(storage.head(path) is not None for path in plan.logs):
        _run(storage, config, timeline, plan, clock, lock_is_held, lambda _: None, keep_plan=False)
    delete_markers(storage, target.time)


def _run(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    plan: RollbackPlan,
    clock: InstantClock,
    lock_is_held: Callable[[], bool],
    forget: Callable[[str], None],
    *,
    keep_plan: bool,
) -> str:
    """Put a rollback on the timeline and do it; gives its instant."""
    instant = clock.next(after=max(timeline.greatest_time, newest_heartbeat(storage)))
    writer = TimelineWriter(storage, config)
    requested = encode_rollback_plan(storage.url(), plan)
    with Heartbeat(storage, instant, uuid.uuid4().hex):
        writer.request(Action.ROLLBACK, instant, requested)
        writer.inflight(Action.ROLLBACK, instant)
        if not lock_is_held():
            writer.remove_pending(Instant(instant, Action.ROLLBACK, State.INFLIGHT))
            remove_heartbeat(storage, instant)
            raise CommitConflict(
                f"the table lock was lost before instant {plan.target.time} could be rolled back",
                hint="another writer took it after it expired; run the write again",
            )
        _execute(storage, config, timeline, plan, instant, clock, lock_is_held, forget, keep_plan=keep_plan)
    remove_heartbeat(storage, instant)
    return instant


def _finish_rollback(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    rollback: Instant,
    clock: InstantClock,
    lock_is_held: Callable[[], bool],
    forget: Callable[[str], None],
) -> str:
    """Run a rollback that was cut off again, from its plan; gives the instant it undoes."""
    record = timeline.plan(rollback)
    undone = rollback_target(record)
    action = Action((record.get("instantToRollback") or {}).get("action") or Action.COMMIT)
    target = next((i for i in timeline.pending if i.time == undone), Instant(undone, action, State.INFLIGHT))
    if timeline.is_completed(undone):
        target = timeline.find(undone, action) or target
    marked = [marker.path for marker in list_markers(storage, undone)]
    plan = _plan_by_paths(timeline, target, [*rollback_files(record), *marked], rollback_logs(record))
    with Heartbeat(storage, rollback.time, uuid.uuid4().hex):
        if rollback.state is State.REQUESTED:
            TimelineWriter(storage, config).inflight(Action.ROLLBACK, rollback.time)
        # of a completed compaction, which is a commit, the plan goes too
        keep_plan = action in _KEEP_THEIR_PLAN or is_plan_of_clustering(timeline, target)
        _execute(storage, config, timeline, plan, rollback.time, clock, lock_is_held, forget, keep_plan=keep_plan)
    remove_heartbeat(storage, rollback.time)
    return undone


def plan_rollback(storage: Storage, timeline: Timeline, target: Instant, *, with_plan: bool = False) -> RollbackPlan:
    """The data files that a pending write may have left: by its markers, by name where it has no marker folder; those
    that a completed one wrote."""
    if target.is_completed:
        return _plan_by_stats(storage, timeline, target)
    if with_plan and target.action is Action.COMPACTION and not has_completion_times(timeline.config.version):
        # who wrote to the slice that it began was taken back before it
        return RollbackPlan(target, tuple(files_named(storage, target.time)))
    markers = list_markers(storage, target.time)
    if timeline.is_pending_clustering(target):
        # writes during it may have named log files after it: they stay as long as the plan does
        named = files_named(storage, target.time, logs=with_plan)
        return _plan_by_paths(timeline, target, [*(marker.path for marker in markers), *named], [])
    # a compaction's instant is also in the names of log files of version 6 that others write meanwhile
    if markers or target.state is State.REQUESTED or target.action is Action.COMPACTION:
        appended = [marker.path for marker in markers if marker.kind == "APPEND"]
        return _plan_by_paths(timeline, target, [marker.path for marker in markers], appended)
    return RollbackPlan(target, tuple(files_named(storage, target.time)))


def _plan_by_stats(storage: Storage, timeline: Timeline, target: Instant) -> RollbackPlan:
    """What the write stats name, and what lost task attempts left next to it: only files of the target's own."""
    metadata = timeline.commit_metadata(target)
    listing = list_table(storage, set(metadata.stats))
    named = [file.path for file in files_of_instant((*listing.base_files, *listing.log_files), target.time)]
    logs = [path for path in metadata.paths if is_log_path(path)]
    return _plan_by_paths(timeline, target, [*metadata.paths, *named], logs)


def _plan_by_paths(timeline: Timeline, target: Instant, paths: Collection[str], logs: Collection[str]) -> RollbackPlan:
    return plan_rollback_by_paths(target, paths, logs, resizes=_resizes(timeline, target.time, paths, logs))


def _resizes(timeline: Timeline, target: str, paths: Iterable[str], appended: Iterable[str]) -> set[str]:
    """The instants after which the target may have named log files (among `paths`, which its markers or stats name)
    that are to be deleted: of clusterings during which it wrote, also of those that were removed from the timeline; and
    of slices that were undone, to which it `appended`."""
    by_own = has_completion_times(timeline.config.version)
    if by_own:
        # named so by the target alone: others have log files under their own instant, or that of another clustering
        found = {i.time for i in timeline.instants if i.action in _CLUSTERS and i.time < target}
    else:
        found = {i.time for i in timeline.pending if timeline.is_pending_clustering(i)}
        # alone in a slice that was taken back they would be its newest
        slices = (parse_log_file("", path.rpartition("/")[2], 0) for path in appended)
        found |= {log.instant for log in slices if log is not None and not timeline.begins_slices(log.instant)}
    known = {i.time for i in timeline.instants}
    split = (path.rpartition("/") for path in paths)
    logs = [log for folder, _, name in split if (log := parse_log_file(folder, name, 0)) is not None]
    unknown = {log.instant for log in logs if log.instant < target and log.instant not in known}
    if unknown and not by_own:
        unknown -= _of_slices_with_base_file(timeline.storage, [log for log in logs if log.instant in unknown])
    with suppress(CorruptFile):  # a damaged archive does not stop a rollback
        found |= {time for time in unknown if timeline.is_taken_off(time)}
        if by_own and unknown:
            found |= {i.time for i in timeline.archived().instants if i.time in unknown and i.action in _CLUSTERS}
    return found


def _of_slices_with_base_file(storage: Storage, logs: Sequence[LogFile]) -> set[str]:
    """The instants of those log files whose slice has a base file."""
    names = {folder: storage.list_names(folder) for folder in {log.partition for log in logs}}
    bases = {
        (base.partition, base.file_id, base.instant)
        for folder, found in names.items()
        for name in found
        if (base := parse_base_file(folder, name, 0)) is not None
    }
    return {log.instant for log in logs if (log.partition, log.file_id, log.instant) in bases}


def files_named(storage: Storage, instant: str, *, logs: bool = True) -> list[str]:
    """Data files that carry the instant in their name (without `logs` base files alone); lists the whole table."""
    listing = list_table(storage)
    return sorted(file.path for file in files_of_instant((*listing.base_files, *listing.log_files), instant, logs=logs))


def _execute(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    plan: RollbackPlan,
    instant: str,
    clock: InstantClock,
    lock_is_held: Callable[[], bool],
    forget: Callable[[str], None],
    *,
    keep_plan: bool,
) -> None:
    started = time.monotonic()
    target = plan.target
    pending = _as_pending(timeline, target)
    writer = TimelineWriter(storage, config)
    if target.is_completed:
        writer.make_pending(target, pending.action)
        timeline = load_timeline(storage, config)
    deleted = [path for path in plan.files if storage.delete(path)]
    hiding = _hide_blocks(storage, plan.logs, target.time, instant)
    if config.metadata_partitions or config.metadata_partitions_inflight:
        metadata = MetadataStore(storage, config, timeline, lock_is_held=lock_is_held)
        # log files that others named after a clustering, before version 8 after any slice, were found by those
        is_of_others = pending.action in _CLUSTERS or not has_completion_times(config.version)
        gone = _by_partition(path for path in plan.files if is_log_path(path)) if is_of_others else {}
        if (hiding or gone) and FILES in metadata.partitions:
            files = _named_files(storage, [*plan.logs, *hiding])
            apply_delta(metadata, instant, {FILES: file_records(files, record_form(config.version), removed=gone)})
        metadata_rollback.roll_back(metadata, target.time, instant)
    forget(target.time)
    if keep_plan:
        writer.remove_inflight(pending)
    else:
        writer.remove_pending(pending)
    millis = int((time.monotonic() - started) * 1000)
    body = encode_rollback_metadata(storage.url(), plan, instant, deleted, millis, hiding)
    completed = clock.next(after=max(instant, timeline.greatest_time))
    writer.complete(Action.ROLLBACK, instant, completed, body)
    delete_markers(storage, target.time)
    if hiding:
        delete_markers(storage, instant)
    remove_heartbeat(storage, target.time)


def _as_pending(timeline: Timeline, target: Instant) -> Instant:
    """The target by the action of its pending files: a commit may be a compaction's."""
    requested = timeline.requested.get(key_of(target))
    asked = parse_instant_file(requested, timeline.config.version) if requested else None
    return Instant(target.time, asked.action if asked is not None else target.action, State.INFLIGHT)


def _hide_blocks(storage: Storage, logs: Iterable[str], target: str, instant: str) -> dict[str, int]:
    """Write a log file of `instant` after those of each slice that the log files `logs` belong to, which hides the
    blocks of the instant `target`; gives their paths with sizes, and those of a run that was cut off. Slices of log
    files that are not there need none."""
    written = {file.path: file.size for file in _left_by_earlier_run(storage, instant)}
    slices: set[tuple[str, str, str]] = set()
    for path in logs:
        partition, _, name = path.rpartition("/")
        log = parse_log_file(partition, name, 0)
        if log is None or (partition, log.file_id, log.instant) in slices:
            continue
        if storage.head(path) is None:
            # what was not finished of it; the file itself may come now, from a writer that is not dead
            storage.delete(path_in(partition, aside_name(name)))
            continue
        slices.add((partition, log.file_id, log.instant))
        others = (parse_log_file(partition, other, 0) for other in storage.list_names(partition))
        same = [o.version for o in others if o is not None and (o.file_id, o.instant) == (log.file_id, log.instant)]
        content = block_bytes(rollback_block(target, instant))
        version = max(same, default=log.version)
        while True:
            version += 1
            hiding = log_file_name(log.file_id, log.instant, version, _token(instant))
            write_marker(storage, instant, partition, hiding, "APPEND")
            if create_exactly_once(storage, path_in(partition, hiding), content):
                break
        written[path_in(partition, hiding)] = len(content)
    return written


def _left_by_earlier_run(storage: Storage, instant: str) -> list[FileInfo]:
    """Log files of a rollback that was cut off: they stay, so they are listed like those of the run that ends it."""
    found = (storage.head(marker.path) for marker in list_markers(storage, instant) if marker.kind == "APPEND")
    return [info for info in found if info is not None and info.path.endswith(f"_{_token(instant)}")]


def _token(rollback: str) -> str:
    """Of log files that no task wrote. A clean may be deleting a file of an earlier rollback with the same version: the
    metadata table would take the one for the other."""
    return token_of(rollback, 1, 1)


def _named_files(storage: Storage, paths: Iterable[str]) -> list[NewFile]:
    """The files that are there, as the metadata table lists them."""
    found = (storage.head(path) for path in paths)
    split = [(info.path.rpartition("/"), info.size) for info in found if info is not None]
    return [NewFile(partition, name, size) for (partition, _, name), size in split]


def _by_partition(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        partition, _, name = path.rpartition("/")
        found.setdefault(partition, []).append(name)
    return found


def delete_data_files(
    storage: Storage, paths: Iterable[str], instant: str, copied_as: Collection[str] = ()
) -> list[str]:
    """Delete those of the files that carry the instant in their name, and log files with one of `copied_as`; gives
    those that existed."""
    own = (path for path in paths if is_written_by(path, [instant, *(copied_as if is_log_path(path) else ())]))
    return [path for path in own if storage.delete(path)]


# A small file that was not finished, on a file system where it has a name before it is: `.<name>.tmp`.
_UNFINISHED = re.compile(r"^\.(?P<instant>\d{14,})[._].*tmp$")


def remove_leftovers(
    storage: Storage,
    timeline: Timeline,
    marked: Sequence[str],
    heartbeats: Sequence[str],
    *,
    after_rollback: bool,
    roll_back_again: Callable[[str], None],
) -> str:
    """Remove what is left of writes that are not pending any more; gives the greatest instant whose heartbeat stays
    (empty for none). `marked` are the instants that have a folder of markers, `heartbeats` the names of the files in
    the folder of heartbeats. Lock held, `timeline` loaded under it.

    A write that committed and died before it cleaned up leaves its markers and heartbeat. One that died in its first
    step leaves a heartbeat without an instant. A writer or a task attempt that outlived its rollback may have written
    files since: where those are log files of others' slices, before version 8, `roll_back_again` hides their blocks.
    """
    pending = {i.time for i in timeline.pending}
    found = after_rollback
    for instant in marked:
        # a later one began since the timeline was loaded: the lock ran out while this process was suspended
        if instant not in pending and instant <= timeline.greatest_time:
            found = True
            if _logged_late(storage, timeline, instant):
                roll_back_again(instant)
                continue
            remove_lost(storage, timeline, instant)
    finished = {i.time for i in timeline.completed} - pending  # a savepoint has the time of its commit
    standing = ""
    for instant in heartbeats:
        if instant in finished or (instant.isdigit() and instant not in pending and is_dead(storage, instant)):
            found = True
            remove_heartbeat(storage, instant)
        elif instant.isdigit():
            standing = max(standing, instant)
    if found or any(_is_unfinished(name, pending) for name in heartbeats):
        _remove_unfinished(storage, timeline, pending)
    return standing


def remove_unfinished(storage: Storage, timeline: Timeline, instant: str) -> None:
    """Remove what a pending service, that is run again, left unfinished when its runner died. Lock held."""
    _remove_unfinished(storage, timeline, {i.time for i in timeline.pending} - {instant})


def _remove_unfinished(storage: Storage, timeline: Timeline, pending: set[str]) -> None:
    folders = [HEARTBEAT_FOLDER, timeline.config.timeline_path]
    if timeline.config.metadata_partitions:
        folders.append(f"{METADATA_FOLDER}/{timeline.config.timeline_path}")
        # it is written under the lock, so no other process uses its files
        for partition in timeline.config.metadata_partitions:
            remove_asides(storage, f"{METADATA_FOLDER}/{partition}")
    for folder in folders:
        for path in _unfinished_files(storage, folder, pending):
            storage.delete(path)


def remove_lost(storage: Storage, timeline: Timeline, instant: str) -> None:
    """Delete what an instant that is not pending has left by its markers, and those. Lock held."""
    for path in lost_files(storage, timeline, instant):
        storage.delete(path)
    delete_markers(storage, instant)


def lost_files(storage: Storage, timeline: Timeline, instant: str) -> Sequence[str]:
    """Files of an instant by its markers that no completed instant names, here or in the archive. Nothing where neither
    tells whether it completed."""
    marked = [marker.path for marker in list_markers(storage, instant)]
    named = _named_by(timeline, instant) if marked else None
    if named is None:
        return ()
    lost = [path for path in marked if path not in named]
    return _plan_by_paths(timeline, Instant(instant, Action.DELTACOMMIT, State.INFLIGHT), lost, []).files


def _named_by(timeline: Timeline, instant: str) -> Collection[str] | None:
    """The files that a completed instant names, none of one that was taken off the timeline; None where an instant may
    be archived, and the archive does not go back so far."""
    commit = timeline.commit(instant)
    if commit is not None:
        return set(timeline.commit_metadata(commit).paths)
    if timeline.start is None or instant >= timeline.start:
        return ()
    with suppress(CorruptFile):  # a damaged archive does not stop a write
        archived = timeline.archived()
        with suppress(FileNotFoundError):
            metadata = archived.commit_metadata(instant)
            return set(metadata.paths) if metadata.stats else None
        if timeline.is_taken_off(instant) or not archived.instants:
            return ()
    return None


def _logged_late(storage: Storage, timeline: Timeline, instant: str) -> bool:
    """Whether there are log files by the markers of an instant that was taken off the timeline, before version 8."""
    if has_completion_times(timeline.config.version) or timeline.config.table_type == "cow":
        return False
    if any(i.time == instant for i in timeline.instants):
        return False
    logs = [marker.path for marker in list_markers(storage, instant) if is_log_path(marker.path)]
    return any(storage.head(path) is not None for path in logs) and timeline.is_taken_off(instant)


def _unfinished_files(storage: Storage, folder: str, pending: set[str]) -> list[str]:
    return [f"{folder}/{name}" for name in storage.list_names(folder) if _is_unfinished(name, pending)]


def _is_unfinished(name: str, pending: set[str]) -> bool:
    match = _UNFINISHED.match(name)
    return match is not None and match["instant"] not in pending


def remove_overtaken_plans(
    storage: Storage,
    timeline: Timeline,
    written: TouchedFiles,
    beside: Collection[FileGroupId],
    clock: InstantClock,
    lock_is_held: Callable[[], bool],
) -> None:
    """Remove the plans of clusterings from the timeline whose file groups a write has changed, if no process runs them;
    a process that does finds out before it completes. Lock held."""
    planned = timeline.pending_clustering()
    met = [group for group in written.overlap(frozenset(planned)) if group not in beside]
    for plan in {planned[group].time: planned[group] for group in met}.values():
        if storage.head(heartbeat_path(plan.time)) is not None and not is_dead(storage, plan.time):
            continue
        if plan.state is State.INFLIGHT and not is_dead(storage, plan.time):
            continue
        # files of its own, or those that writes during it, of before or after this one, have named after it
        if plan.state is State.INFLIGHT or names_its_groups(timeline, plan):
            roll_back(storage, timeline.config, timeline, plan, clock, lock_is_held, with_plan=True)
        elif lock_is_held():
            TimelineWriter(storage, timeline.config).remove_pending(plan)


def names_its_groups(timeline: Timeline, plan: Instant) -> bool:
    """Whether the plan of a clustering names the file groups that it makes, so that writes may continue during it."""
    return any(one.extra for one in planned_clustering(timeline.plan(plan)).operations)
