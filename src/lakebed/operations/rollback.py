"""Rolls back writes: deletes the files that they wrote, then their instants. The next action on the table rolls back
those of dead writers.

A completed write loses its completion first: from then on no reader sees what it wrote. Before table version 8 a log
file belongs to its slice's instant and may hold blocks of others: a command block after it hides those of the write.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from lakebed.concurrency.conflicts import TouchedFiles
from lakebed.concurrency.heartbeat import Heartbeat, heartbeat_path, is_dead, newest_heartbeat, remove_heartbeat
from lakebed.concurrency.markers import delete_markers, list_markers, write_marker
from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, ConflictKind
from lakebed.format.file_names import is_written_by, log_file_name, parse_log_file
from lakebed.format.log_file import block_bytes, rollback_block
from lakebed.handles.log_writer import token_of
from lakebed.metadata.lookups import snapshot_of
from lakebed.metadata_kinds.files import file_records
from lakebed.metadata_kinds.stored import NewFile
from lakebed.metadata_records.layout import FILES
from lakebed.metadata_records.records import record_form
from lakebed.metadata_upkeep import rollback as metadata_rollback
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.comparison import align, rebuild
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.model import Action, FileGroupId, Instant, State, has_completion_times, path_in
from lakebed.operations.rollback_plan import CLUSTERS, files_named, plan_by_paths, plan_rollback
from lakebed.policies.rollback import is_log_path, is_void
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.storage.atomic_file import aside_name
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


@dataclass(frozen=True)
class Rollbacks:
    """The rollbacks of instants of a table, by a process that has its lock. `forget` is called with each instant before
    it is removed from the timeline. `corrects` is whether records that the metadata table has compacted are corrected;
    a restore does that itself after its last rollback.

    Once the plan of a rollback is on the timeline, other processes see the rollback, and finish it if it was cut off.
    """

    storage: Storage
    config: TableConfig
    clock: InstantClock
    lock_is_held: Callable[[], bool]
    forget: Callable[[str], None] = lambda _: None
    corrects: bool = True

    def roll_back(
        self, timeline: Timeline, target: Instant, *, with_plan: bool = False, doomed: Collection[str] = frozenset()
    ) -> str:
        """Undo one instant, with the actions on the timeline that real Hudi makes. Returns the rollback's instant.
        Raises `CommitConflict` if the lock was lost, since a pending target may have completed meanwhile.

        The plan of a pending service stays, unless it is taken off `with_plan`. Blocks in log files of `doomed` slices
        are not hidden: the instants that began those are undone next.
        """
        plan = plan_rollback(self.storage, timeline, target, with_plan=with_plan)
        if doomed:
            logs = {path: size for path, size in plan.logs.items() if not is_written_by(path, doomed)}
            plan = replace(plan, logs=logs)
        keep_plan = not with_plan and (target.action in _KEEP_THEIR_PLAN or is_plan_of_clustering(timeline, target))
        return self._run(timeline, plan, keep_plan=keep_plan)

    def roll_back_late(self, timeline: Timeline, target: Instant) -> None:
        """Undo the work of a writer that continued after another one had rolled it back. Its own files are deleted;
        blocks in log files of other writers' slices (before table version 8) are hidden by a new rollback."""
        marked = [marker.path for marker in list_markers(self.storage, target.time)]
        logs = () if has_completion_times(self.config.version) else marked
        plan = plan_by_paths(timeline, target, [*files_named(self.storage, target.time), *marked], logs)
        for path in plan.files:
            self.storage.delete(path)
        if any(self.storage.head(path) is not None for path in plan.logs):
            replace(self, forget=lambda _: None)._run(timeline, plan, keep_plan=False)
        delete_markers(self.storage, target.time)

    def roll_back_dead_writers(self, timeline: Timeline) -> list[str]:
        """Roll back every pending write whose writer is dead, and finish rollbacks that were interrupted. Returns the
        instants that were rolled back; the caller reloads the timeline if there are any."""
        undone: list[str] = []
        rollback_targets: set[str] = set()
        for pending in timeline.pending:
            if pending.action is not Action.ROLLBACK:
                continue
            if is_dead(self.storage, pending.time):
                undone.append(self._finish(timeline, pending))
            else:
                rollback_targets.add(timeline.undone_by(pending))
        for pending in timeline.pending:
            if pending.action not in _WRITES or pending.time in undone or pending.time in rollback_targets:
                continue
            if not is_plan_of_clustering(timeline, pending) and is_dead(self.storage, pending.time):
                self.roll_back(timeline, pending)
                undone.append(pending.time)
        return undone

    def remove_overtaken_plans(
        self, timeline: Timeline, written: TouchedFiles, resized_groups: Collection[FileGroupId]
    ) -> None:
        """Remove the plans of clusterings whose file groups a write has changed, unless a process runs them, which
        notices before it completes."""
        planned = timeline.pending_clustering
        met = [group for group in written.overlap(frozenset(planned)) if group not in resized_groups]
        for plan in {planned[group].time: planned[group] for group in met}.values():
            if self.storage.head(heartbeat_path(plan.time)) is not None and not is_dead(self.storage, plan.time):
                continue
            if plan.state is State.INFLIGHT and not is_dead(self.storage, plan.time):
                continue
            # it has written files, or concurrent writes (before or after this one) may have named log files after it
            if plan.state is State.INFLIGHT or names_its_groups(timeline, plan):
                self.roll_back(timeline, plan, with_plan=True)
            elif self.lock_is_held():
                TimelineWriter(self.storage, self.config).remove_pending(plan)

    def _run(self, timeline: Timeline, plan: RollbackPlan, *, keep_plan: bool) -> str:
        """Write a rollback to the timeline and execute it; returns its instant."""
        instant = self.clock.next(after=max(timeline.greatest_time, newest_heartbeat(self.storage)))
        writer = TimelineWriter(self.storage, self.config)
        requested = encode_rollback_plan(self.storage.url(), plan)
        with Heartbeat(self.storage, instant, uuid.uuid4().hex):
            writer.request(Action.ROLLBACK, instant, requested)
            writer.inflight(Action.ROLLBACK, instant)
            if not self.lock_is_held():
                writer.remove_pending(Instant(instant, Action.ROLLBACK, State.INFLIGHT))
                remove_heartbeat(self.storage, instant)
                raise _lock_lost(plan.target)
            self._execute(timeline, plan, instant, keep_plan=keep_plan)
        remove_heartbeat(self.storage, instant)
        return instant

    def _finish(self, timeline: Timeline, rollback: Instant) -> str:
        """Run an interrupted rollback again, from its plan; returns the instant that it undoes."""
        record = timeline.plan(rollback)
        undone = rollback_target(record)
        action = Action((record.get("instantToRollback") or {}).get("action") or Action.COMMIT)
        target = next((i for i in timeline.pending if i.time == undone), Instant(undone, action, State.INFLIGHT))
        if timeline.is_completed(undone):
            target = timeline.find(undone, action) or target
        marked = [marker.path for marker in list_markers(self.storage, undone)]
        plan = plan_by_paths(timeline, target, [*rollback_files(record), *marked], rollback_logs(record))
        with Heartbeat(self.storage, rollback.time, uuid.uuid4().hex):
            if rollback.state is State.REQUESTED:
                TimelineWriter(self.storage, self.config).inflight(Action.ROLLBACK, rollback.time)
            # of a completed compaction, which is a commit, the plan goes too
            keep_plan = action in _KEEP_THEIR_PLAN or is_plan_of_clustering(timeline, target)
            self._execute(timeline, plan, rollback.time, keep_plan=keep_plan)
        remove_heartbeat(self.storage, rollback.time)
        return undone

    def _execute(self, timeline: Timeline, plan: RollbackPlan, instant: str, *, keep_plan: bool) -> None:
        """Execute the plan, and complete the rollback `instant`."""
        started = time.monotonic()
        storage, config, target = self.storage, self.config, plan.target
        pending = _as_pending(timeline, target)
        writer = TimelineWriter(storage, config)
        if target.is_completed:
            writer.make_pending(target, pending.action)
            timeline = load_timeline(storage, config)
        deleted = [path for path in plan.files if storage.delete(path)]
        if plan.logs and not self.lock_is_held():
            raise _lock_lost(target)
        hiding = _hide_blocks(storage, plan.logs, target.time, instant)
        if config.metadata_partitions or config.metadata_partitions_inflight:
            metadata = MetadataStore(storage, config, timeline, lock_is_held=self.lock_is_held)
            # other writers' log files that are named after a clustering (before version 8: after any slice) were found
            # by these names
            is_of_others = pending.action in CLUSTERS or not has_completion_times(config.version)
            removed_logs = _by_partition(path for path in plan.files if is_log_path(path)) if is_of_others else {}
            if (hiding or removed_logs) and FILES in metadata.partitions:
                files = _named_files(storage, [*plan.logs, *hiding])
                apply_delta(
                    metadata, instant, {FILES: file_records(files, record_form(config.version), removed=removed_logs)}
                )
            if self.corrects and metadata_rollback.is_merged(metadata, target.time):
                self._correct(metadata)
            metadata_rollback.roll_back(metadata, target.time, instant)
        self.forget(target.time)
        if keep_plan:
            writer.remove_inflight(pending)
        else:
            writer.remove_pending(pending)
        millis = int((time.monotonic() - started) * 1000)
        body = encode_rollback_metadata(storage.url(), plan, instant, deleted, millis, hiding)
        completed = self.clock.next(after=max(instant, timeline.greatest_time))
        writer.complete(Action.ROLLBACK, instant, completed, body)
        delete_markers(storage, target.time)
        if hiding:
            delete_markers(storage, instant)
        remove_heartbeat(storage, target.time)

    def _correct(self, metadata: MetadataStore) -> None:
        """Compare the metadata table with the table if base files of the metadata table have records of the undone
        instant: its services ran after the instant had completed."""
        timeline, settings = load_timeline(self.storage, self.config), WriteSettings()
        snapshot = snapshot_of(self.storage, self.config, timeline)
        verification = align(snapshot, self.config.metadata_partitions, settings, self.lock_is_held)
        if verification.left_out:
            snapshot = snapshot_of(self.storage, self.config, timeline)
            rebuild(snapshot, verification.left_out, settings, self.lock_is_held)
        metadata.changed(load_table_config(self.storage))


def _lock_lost(target: Instant) -> CommitConflict:
    return CommitConflict(
        f"the table lock was lost before instant {target.time} could be rolled back",
        hint="another writer took it after it expired; run the write again",
        kind=ConflictKind.LOCK_LOST,
    )


def dead_writes(storage: Storage, timeline: Timeline) -> list[Instant]:
    """The pending writes, rollbacks and savepoints whose writers are dead, which the next writer undoes or finishes."""
    kinds = (*_WRITES, Action.ROLLBACK, Action.SAVEPOINT)
    waiting = (i for i in timeline.pending if i.action in kinds)
    return [i for i in waiting if not is_plan_of_clustering(timeline, i) and is_dead(storage, i.time)]


def is_plan_of_clustering(timeline: Timeline, pending: Instant) -> bool:
    """Whether a pending instant is a clustering. On version 6 it looks like a replacecommit; its requested file has the
    plan."""
    return pending.action is Action.REPLACECOMMIT and timeline.is_pending_clustering(pending)


def names_its_groups(timeline: Timeline, plan: Instant) -> bool:
    """Whether the plan of a clustering names the file groups that it creates, so that writes may continue during it."""
    return any(operation.extra for operation in planned_clustering(timeline.plan(plan)).operations)


def without_refused_rollbacks(storage: Storage, config: TableConfig, timeline: Timeline) -> Timeline:
    """Remove rollbacks from the timeline that must not be run, and return the timeline without them. The caller holds
    the lock."""
    changed = False
    for pending in timeline.pending:
        if pending.action is not Action.ROLLBACK or not is_dead(storage, pending.time):
            continue
        target = timeline.undone_by(pending)
        if is_void(target, timeline.is_completed_or_archived) and not _lost_its_files(timeline, target):
            TimelineWriter(storage, config).remove_pending(pending)
            remove_heartbeat(storage, pending.time)
            changed = True
    return load_timeline(storage, config) if changed else timeline


def _lost_its_files(timeline: Timeline, target: str) -> bool:
    """Whether a completed rollback on the timeline has deleted the files of the instant. This happens if its writer was
    suspended and published the instant after the rollback. Services do not count: they run again from their plan after
    a rollback, and complete the same instant."""
    done = (i for i in timeline.instants if i.action is Action.ROLLBACK and i.is_completed and i.time > target)
    records = (rollback_record(timeline, i) for i in done)
    undone = (record.get("instantToRollback") or {} for record in records if rollback_target(record) == target)
    return any(instant.get("action") in (Action.COMMIT, Action.DELTACOMMIT) for instant in undone)


def without_dead_savepoints(storage: Storage, config: TableConfig, timeline: Timeline) -> Timeline:
    """Remove savepoints from the timeline whose process died, and return the timeline without them. They protect
    nothing, and would prevent cleaning and archival. The caller holds the lock."""
    pending = [i for i in timeline.pending if i.action is Action.SAVEPOINT and is_dead(storage, i.time)]
    for instant in pending:
        TimelineWriter(storage, config).remove_pending(instant)
        remove_heartbeat(storage, instant.time)
    return load_timeline(storage, config) if pending else timeline


def _as_pending(timeline: Timeline, target: Instant) -> Instant:
    """The target with the action of its pending files: a commit may be that of a compaction."""
    requested = timeline.requested.get(key_of(target))
    instant = parse_instant_file(requested, timeline.config.version) if requested else None
    return Instant(target.time, instant.action if instant is not None else target.action, State.INFLIGHT)


def _hide_blocks(storage: Storage, logs: Iterable[str], target: str, instant: str) -> dict[str, int]:
    """Write a log file of `instant` after the log files of each slice that the files `logs` belong to, which hides the
    blocks of the instant `target`. Returns the paths of these log files with sizes, including those of an earlier run
    that was interrupted. Slices whose named log files are all missing get none."""
    written = {file.path: file.size for file in _left_by_earlier_run(storage, instant)}
    slices: set[tuple[str, str, str]] = set()
    for path in logs:
        partition, _, name = path.rpartition("/")
        log = parse_log_file(partition, name, 0)
        if log is None or (partition, log.file_id, log.instant) in slices:
            continue
        if storage.head(path) is None:
            # remove its unfinished form; a writer that is not dead may still create the file itself
            storage.delete(path_in(partition, aside_name(name)))
            continue
        slices.add((partition, log.file_id, log.instant))
        files = (parse_log_file(partition, file_name, 0) for file_name in storage.list_names(partition))
        same = [o.version for o in files if o is not None and (o.file_id, o.instant) == (log.file_id, log.instant)]
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
    """The log files of an interrupted rollback: they stay, so they are listed like those of the run that finishes
    it."""
    infos = (storage.head(marker.path) for marker in list_markers(storage, instant) if marker.kind == "APPEND")
    return [info for info in infos if info is not None and info.path.endswith(f"_{_token(instant)}")]


def _token(rollback: str) -> str:
    """The write token of a rollback's log files, different for each rollback. A clean may be deleting a log file of an
    earlier rollback with the same version: under one name, the metadata table could not distinguish the two."""
    return token_of(rollback, 1, 1)


def _named_files(storage: Storage, paths: Iterable[str]) -> list[NewFile]:
    """The existing files among `paths`, in the form in which the metadata table lists them."""
    infos = (storage.head(path) for path in paths)
    split = [(info.path.rpartition("/"), info.size) for info in infos if info is not None]
    return [NewFile(partition, name, size) for (partition, _, name), size in split]


def _by_partition(paths: Iterable[str]) -> dict[str, list[str]]:
    names_by_partition: dict[str, list[str]] = {}
    for path in paths:
        partition, _, name = path.rpartition("/")
        names_by_partition.setdefault(partition, []).append(name)
    return names_by_partition
