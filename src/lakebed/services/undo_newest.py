"""Undo: the newest write is taken back, with what services did after it. A write that nothing is based on is rolled
back; otherwise the table is restored to the commit before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakebed.config.commit_notes import MESSAGE, operation_of
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption, UnsupportedFeature
from lakebed.model import SERVICE_OPERATIONS, Instant
from lakebed.operations.context import WriteContext
from lakebed.read.reopening import MISSING, path_of
from lakebed.services.restore import RestoreResult, RollbackResult, commit_before, restore, rollback
from lakebed.timeline.timeline import Timeline
from lakebed.wording import Printed


@dataclass(frozen=True, repr=False)
class UndoResult(Printed):
    """The write that was taken back, or that would be: its instant, operation, counts of rows and message. `by` is the
    rollback, or the restore, that does it."""

    undone: str
    operation: str
    inserted: int
    updated: int
    deleted: int
    message: str | None
    by: RollbackResult | RestoreResult

    @property
    def instant(self) -> str | None:
        """The instant of the rollback or restore; None if nothing was done."""
        return self.by.instant

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {**Printed.to_dict(self), "instant": self.instant}

    def __str__(self) -> str:
        note = f", {self.message!r}" if self.message else ""
        rows = f"{self.inserted:,} inserted, {self.updated:,} updated, {self.deleted:,} deleted"
        outcome = "undone" if self.instant else "would be undone"
        return f"{self.operation} {self.undone} ({rows}{note}) {outcome}: {self.by}"


def undo(renew: Callable[[], WriteContext], *, dry_run: bool = False) -> UndoResult:
    """Take the newest write back; with `dry_run` nothing is written. `renew` gives the context of the table as it is.

    Raises `InvalidOption` if there is no write on the active timeline, if it has a savepoint, or if files that are
    needed were cleaned; `CommitConflict` if another process takes it back, or writes, at the same time. Nothing is
    changed then.
    """
    context = renew()
    timeline = context.opened.timeline
    try:
        newest = _newest_write(timeline)
        body = timeline.commit_metadata(newest)
    except MISSING as error:  # a body that was there when the timeline was listed
        raise _lost_race(f"a commit ({path_of(error)})", {"path": path_of(error)}) from error
    by = _taken_back(context, renew, newest, dry_run=dry_run)
    operation = operation_of(body.operation, body.extra)
    return UndoResult(newest.time, operation, **body.row_counts, message=body.extra.get(MESSAGE), by=by)


def _newest_write(timeline: Timeline) -> Instant:
    for commit in reversed(timeline.commits_by_completion):
        if timeline.commit_metadata(commit).operation not in SERVICE_OPERATIONS:
            return commit
    raise InvalidOption(
        "there is no write to undo on the active timeline",
        hint="`lakebed timeline show URI` lists its commits." if timeline.commits else "Nothing was written yet.",
    )


def _taken_back(
    context: WriteContext, renew: Callable[[], WriteContext], newest: Instant, *, dry_run: bool
) -> RollbackResult | RestoreResult:
    timeline = context.opened.timeline
    before = commit_before(timeline, newest)
    check = partial(_check_newest, newest)
    if timeline.commits_by_completion[-1] == newest == timeline.commits[-1]:
        try:
            return rollback(context, newest.time, dry_run=dry_run, check=check)
        except UnsupportedFeature:  # the metadata table has folded the commit
            if not before:
                raise
            context = renew()
    if not before:
        raise InvalidOption(
            f"the write {newest.time} cannot be undone: it is the table's first, and services have run since",
            hint="Delete its rows, or drop the table and create it again.",
            context={"instant": newest.time},
        )
    return restore(context, before, dry_run=dry_run, check=check)


def _check_newest(newest: Instant, timeline: Timeline) -> None:
    """Raise `CommitConflict` if the write is not the newest one of this timeline, which was read under the lock."""
    if not timeline.is_completed_or_archived(newest.time):
        raise _lost_race(f"the write {newest.time}", {"instant": newest.time})
    later = _newest_write(timeline)
    if later.time != newest.time:
        raise CommitConflict(
            f"the write {newest.time} is not the newest any more: another writer committed {later.time} meanwhile",
            hint="Nothing was taken back. Look at the newest write (t.versions) before t.undo() takes that back.",
            context={"instant": newest.time, "later": later.time},
            kind=ConflictKind.COMMITTED,
        )


def _lost_race(subject: str, context: dict[str, str]) -> CommitConflict:
    return CommitConflict(
        f"{subject} was taken back by another undo, rollback or restore meanwhile",
        hint="This undo took nothing back; t.undo() again takes back the write that is the newest now.",
        context=context,
        kind=ConflictKind.TAKEN_BACK,
    )
