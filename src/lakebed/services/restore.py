"""Restore: the table as it was when a commit completed. Everything later is rolled back, newest first. Rollback of
the last completed commit.

Once its plan is on the timeline, writers are refused until this process, or the next one that restores, completes the
restore. Meanwhile readers see the table as some commit in between left it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lakebed.concurrency.heartbeat import Heartbeat, is_dead, newest_heartbeat, remove_heartbeat
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption, UnsupportedFeature
from lakebed.format.file_names import parse_log_file
from lakebed.metadata.lookups import MetadataTable, snapshot_of
from lakebed.metadata_kinds.files import file_records
from lakebed.metadata_records.layout import FILES
from lakebed.metadata_records.records import record_form
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.comparison import align, metadata_instant, rebuild
from lakebed.metadata_upkeep.maintain import MetadataUpkeep
from lakebed.metadata_upkeep.rollback import is_compacted
from lakebed.model import Action, Instant, has_completion_times
from lakebed.operations.context import WriteContext
from lakebed.operations.rollback_plan import plan_rollback
from lakebed.policies.rollback import later_actions
from lakebed.read.reopening import MISSING, path_of
from lakebed.services.undo import (
    UndoTransaction,
    check_no_file_lost,
    check_not_running,
    check_not_savepointed,
    completed_commit,
)
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.rollback import (
    RollbackPlan,
    encode_restore_metadata,
    encode_restore_plan,
    planned_rollbacks,
    restored_instant,
)
from lakebed.timeline.timeline import Timeline, completed_at
from lakebed.timeline.transitions import TimelineWriter
from lakebed.wording import Printed, count_text


@dataclass(frozen=True, repr=False)
class RestoreResult(Printed):
    """The result of a restore, or a preview: the instants that it takes back, newest first. `instant` is the restore's
    own, None if nothing was done."""

    to: str
    rolled_back: tuple[Instant, ...]
    instant: str | None = None
    files_deleted: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "instant": self.instant,
            "to": self.to,
            "rolled_back": [{"instant": i.time, "action": i.action.value} for i in self.rolled_back],
            "files_deleted": self.files_deleted,
            "seconds": round(self.seconds, 4),
        }

    def __str__(self) -> str:
        if not self.rolled_back:
            return f"nothing to restore: {self.to} is the last commit"
        names = ", ".join(f"{i.action} {i.time}" for i in self.rolled_back)
        done = (
            f"{count_text(self.files_deleted, 'file')} deleted, {self.seconds:.2f} s"
            if self.instant
            else "nothing was done"
        )
        return f"restore to {self.to}: {count_text(len(self.rolled_back), 'instant')} rolled back, {names} ({done})"


def restore(
    context: WriteContext,
    to: str | None = None,
    *,
    dry_run: bool = False,
    check: Callable[[Timeline], None] = lambda _: None,
) -> RestoreResult:
    """Restore the table to its state when the commit `to` completed; without `to` finish an interrupted restore. With
    `dry_run` nothing is written. `check` gets the timeline under the lock, and raises what stands against the restore.

    Raises `InvalidOption` if there is no such commit, a later one has a savepoint, or files that are needed were
    cleaned, before anything happens; `CommitConflict` if another process restores the table.
    """
    if dry_run:
        timeline = context.opened.timeline
        unfinished = _unfinished(timeline)
        if unfinished is not None:
            plan = timeline.plan(unfinished)
            return RestoreResult(restored_instant(plan), tuple(planned_rollbacks(plan)))
        return RestoreResult(*_planned(context.opened, to))
    started = time.monotonic()
    with (
        UndoTransaction.of(context, Action.RESTORE, "restore", during_restore=True) as tx,
        tx.locked_view() as snapshot,
    ):
        unfinished = _unfinished(tx.timeline)
        if unfinished is not None:
            _check_dead(tx, unfinished)
            done = _Restore(tx, unfinished.time, is_new=False).run(started)
            if to in (None, done.to):
                return done
            snapshot = snapshot_of(tx.storage, tx.config, tx.timeline)
        check(snapshot.timeline)
        time_to, instants = _planned(snapshot, to)
        if not instants:
            return RestoreResult(time_to, ())
        return _Restore.begun(tx, time_to, instants).run(started)


def _unfinished(timeline: Timeline) -> Instant | None:
    return next((i for i in timeline.pending if i.action is Action.RESTORE), None)


def _check_dead(tx: UndoTransaction, restore: Instant) -> None:
    if not is_dead(tx.storage, restore.time):
        raise CommitConflict(
            f"the table is being restored by another process (instant {restore.time})",
            hint="Leave it to that one. If it died, try again a little later; after real Hudi half an hour later.",
            context={"instant": restore.time},
            kind=ConflictKind.BUSY,
        )


def _planned(snapshot: Snapshot, to: str | None) -> tuple[str, tuple[Instant, ...]]:
    """The target, and the instants to undo; every reason against the restore is raised here."""
    timeline, config = snapshot.timeline, snapshot.config
    if to is None:
        raise InvalidOption("there is no unfinished restore", hint="Name the commit to go back to: t.restore(instant).")
    target = completed_commit(timeline, to, "restore to")
    later = later_actions(timeline.instants, target, version=config.version, is_mor=config.table_type == "mor")
    for instant in later:
        check_not_savepointed(timeline, instant)
    indexing = next((i for i in timeline.pending if i.action is Action.INDEXING), None)
    if indexing is not None:
        raise CommitConflict(
            f"the table cannot be restored while an index is being built (instant {indexing.time})",
            hint="Try again when it is done.",
            context={"instant": indexing.time},
            kind=ConflictKind.BUSY,
        )
    check_no_file_lost(snapshot, {i.time for i in later}, f"a restore to {to}")
    return to, tuple(later)


class _Restore:
    """One restore whose plan is on the timeline. `is_new` is whether no step of it was done yet."""

    def __init__(self, tx: UndoTransaction, instant: str, *, is_new: bool) -> None:
        self._tx = tx
        self._instant = instant
        self._is_new = is_new
        plan = tx.timeline.plan(next(i for i in tx.timeline.pending if i.time == instant))
        self._to = restored_instant(plan)
        self._planned = planned_rollbacks(plan)

    @classmethod
    def begun(cls, tx: UndoTransaction, to: str, instants: Sequence[Instant]) -> _Restore:
        """Write the plan of the restore to the timeline, and return the restore that runs it."""
        instant = tx.clock.next(after=max(tx.timeline.greatest_time, newest_heartbeat(tx.storage)))
        with Heartbeat(tx.storage, instant, tx.writer_id):
            TimelineWriter(tx.storage, tx.config).request(Action.RESTORE, instant, encode_restore_plan(instants, to))
            _check_lock(tx, instant)
        tx.timeline = tx.load()
        return cls(tx, instant, is_new=True)

    def run(self, started: float) -> RestoreResult:
        """Roll back the plan's instants that are still on the timeline, correct the metadata table, and complete the
        restore."""
        tx = self._tx
        writer = TimelineWriter(tx.storage, tx.config)
        with Heartbeat(tx.storage, self._instant, tx.writer_id):
            if not any(i.time == self._instant and i.state.name == "INFLIGHT" for i in tx.timeline.pending):
                writer.inflight(Action.RESTORE, self._instant)
            self._forget_hidden_logs()
            # rollbacks before this process took the restore up may have left records in it
            folded = not self._is_new
            for planned in self._planned:
                instant = tx.timeline.find(planned.time, planned.action)
                if instant is None:
                    continue
                _check_lock(tx, self._instant)
                folded = folded or (instant.is_completed and is_compacted(tx.metadata_store(), instant.time))
                tx.take_back(instant, with_plan=True, doomed={i.time for i in self._planned})
            self._align(everything=folded)
            _check_lock(tx, self._instant)
            bodies = self._rollbacks()
            millis = int((time.monotonic() - started) * 1000)
            tx.timeline = tx.load()
            completed = tx.clock.next(after=max(self._instant, tx.timeline.greatest_time))
            body = encode_restore_metadata(self._instant, self._planned, bodies, millis)
            writer.complete(Action.RESTORE, self._instant, completed, body)
        self._tidy(writer)
        deleted = sum(body["totalFilesDeleted"] for group in bodies.values() for body in group)
        return RestoreResult(self._to, tuple(self._planned), self._instant, deleted, time.monotonic() - started)

    def _forget_hidden_logs(self) -> None:
        """Remove, before version 8, the log files that earlier rollbacks added to slices which are deleted now from the
        metadata table's list: no delta commit of an undone instant names them."""
        tx = self._tx
        if has_completion_times(tx.config.version) or FILES not in tx.config.metadata_partitions:
            return
        doomed = {i.time for i in self._planned}
        undone = [i for planned in self._planned if (i := tx.timeline.commit(planned.time)) is not None]
        bodies = tx.timeline.commits_metadata(undone)
        named = {path for body in bodies for path in body.paths}
        removed: dict[str, list[str]] = {}
        store = tx.metadata_store()
        listed = MetadataTable(store.slices).files()
        for partition, name in zip(listed["partition"].to_pylist(), listed["name"].to_pylist(), strict=True):
            log = parse_log_file(partition, name, 0)
            if log is not None and log.instant in doomed and log.path not in named:
                removed.setdefault(partition, []).append(name)
        if removed:
            records = file_records([], record_form(tx.config.version), removed=removed)
            apply_delta(store, metadata_instant(tx.storage, tx.config, tx.timeline), {FILES: records})

    def _align(self, *, everything: bool) -> None:
        """Make the metadata table list the existing files. If its base files have records of undone instants, compare
        all its partitions with the table."""
        tx = self._tx
        if FILES not in tx.config.metadata_partitions:
            return
        if everything:
            upkeep = MetadataUpkeep(tx.view(tx.timeline), tx.settings, tx.context.engine, tx.lock_is_held)
            tx.config = upkeep.without_unknown()
        snapshot = snapshot_of(tx.storage, tx.config, tx.timeline)
        partitions = tx.config.metadata_partitions if everything else (FILES,)
        verification = align(snapshot, partitions, tx.settings, tx.lock_is_held)
        if verification.left_out:
            rebuild(
                snapshot_of(tx.storage, tx.config, tx.timeline), verification.left_out, tx.settings, tx.lock_is_held
            )

    def _rollbacks(self) -> Mapping[str, list[Mapping[str, Any]]]:
        """The bodies of the rollbacks of this restore, by the instant that each undid."""
        timeline = self._tx.timeline
        bodies: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for instant in timeline.completed_after(self._instant):
            if instant.action is Action.ROLLBACK:
                bodies[timeline.undone_by(instant)].append(timeline.metadata(instant))
        return {i.time: bodies.get(i.time, []) for i in self._planned}

    def _tidy(self, writer: TimelineWriter) -> None:
        """Remove the rollbacks, whose content is in the restore's body. If this fails the restore is still valid."""
        tx = self._tx
        with suppress(Exception):
            for instant in tx.timeline.completed_after(self._to):
                if instant.action is Action.ROLLBACK:
                    writer.remove_completed(instant)
            remove_heartbeat(tx.storage, self._instant)
        tx.timeline = tx.load()


def _check_lock(tx: UndoTransaction, instant: str) -> None:
    if not tx.lock_is_held():
        raise CommitConflict(
            f"the table lock was lost while the table was restored (instant {instant})",
            hint="Another process took it after it expired. Restore again: t.restore() goes on where this one ended.",
            context={"instant": instant},
            kind=ConflictKind.LOCK_LOST,
        )


@dataclass(frozen=True, repr=False)
class RollbackResult(Printed):
    """The result of a rollback, or a preview: `plan` names the files that it deletes. `instant` is the rollback's own,
    None if nothing was done."""

    plan: RollbackPlan
    instant: str | None = None
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "instant": self.instant,
            "rolled_back": self.plan.target.time,
            "action": self.plan.target.action.value,
            "files": list(self.plan.files),
            "hidden_in": list(self.plan.logs),
            "seconds": round(self.seconds, 4),
        }

    def __str__(self) -> str:
        return str(self.plan) + ("" if self.instant else " (nothing was done)")


def rollback(
    context: WriteContext, instant: str, *, dry_run: bool = False, check: Callable[[Timeline], None] = lambda _: None
) -> RollbackResult:
    """Roll back the last completed commit. With `dry_run` nothing is written. `check` gets the timeline under the lock,
    and raises what stands against the rollback.

    Raises `InvalidOption` if it is not the last one, has a savepoint, or needs files that were cleaned, and
    `CommitConflict` where something is pending that began after it; nothing has happened then.
    """
    if dry_run:
        target = _checked(context.opened, instant)
        return RollbackResult(plan_rollback(context.storage, context.opened.timeline, target))
    started = time.monotonic()
    with UndoTransaction.of(context, Action.ROLLBACK, "rollback") as tx, tx.locked_view() as snapshot:
        check(snapshot.timeline)
        target = _checked(snapshot, instant)
        if is_compacted(tx.metadata_store(), target.time):
            raise _folded(snapshot.timeline, target)
        plan = plan_rollback(tx.storage, snapshot.timeline, target)
        try:
            done = tx.take_back(target)
        except MISSING as error:
            raise _cut_off(target, error) from error
    return RollbackResult(plan, done, time.monotonic() - started)


def _checked(snapshot: Snapshot, instant: str) -> Instant:
    timeline = snapshot.timeline
    target = completed_commit(timeline, instant, "roll back")
    check_not_savepointed(timeline, target)
    later = [i for i in timeline.commits if i.time > target.time or completed_at(i) > completed_at(target)]
    if later:
        before = commit_before(timeline, target)
        raise InvalidOption(
            f"{target.action} {target.time} is not the last commit: {later[-1].action} {later[-1].time} and"
            f" {len(later) - 1} others are based on it",
            hint=f'Roll those back first, newest first, or take all back: t.restore("{before}").'
            if before
            else "Roll those back first, newest first.",
            context={"instant": target.time, "later": [i.time for i in later]},
        )
    check_not_running(timeline, target.time, f"rolling {target.action} {target.time} back")
    check_no_file_lost(snapshot, {target.time}, f"rolling {target.action} {target.time} back")
    return target


def _cut_off(target: Instant, error: Exception) -> CommitConflict:
    return CommitConflict(
        f"the rollback of {target.action} {target.time} was cut off, since {path_of(error)} is not there any more",
        hint="The next write finishes it; lakebed timeline show URI shows whether the commit is there.",
        context={"instant": target.time, "path": path_of(error)},
        kind=ConflictKind.TAKEN_BACK,
    )


def commit_before(timeline: Timeline, target: Instant) -> str:
    """The requested time of the last commit before another one; empty if that is the first."""
    return next((i.time for i in reversed(timeline.commits) if i.time < target.time), "")


def _folded(timeline: Timeline, target: Instant) -> UnsupportedFeature:
    before = commit_before(timeline, target)
    return UnsupportedFeature(
        f"{target.action} {target.time} cannot be rolled back by itself: the metadata table was compacted, or an index"
        " built, since it was written",
        hint=f'Take it back by a restore, which puts the metadata table right: t.restore("{before}").'
        if before
        else "It is the table's first commit: delete its rows, or create the table again.",
        context={"feature": "rollback", "instant": target.time},
    )
