"""Rollback of the last completed commit: its files go, and what it replaced comes back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from lakebed.errors import CommitConflict, InvalidOption, UnsupportedFeature
from lakebed.model import Action, Instant
from lakebed.operations.context import WriteContext
from lakebed.operations.rollback import plan_rollback
from lakebed.services.undoing import (
    Undoing,
    check_no_file_lost,
    check_nobody_runs,
    check_not_savepointed,
    completed_commit,
)
from lakebed.slices.reopening import MISSING, path_of
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.rollback import RollbackPlan
from lakebed.timeline.timeline import Timeline, completed_at


@dataclass(frozen=True)
class RollbackResult:
    """What a rollback did, or would do: `plan` says which files go. `instant` is the rollback's own, None where nothing
    was done."""

    plan: RollbackPlan
    instant: str | None = None
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
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

    __repr__ = __str__


def rollback(context: WriteContext, instant: str, *, dry_run: bool = False) -> RollbackResult:
    """Take back the last completed commit. With `dry_run` nothing is written.

    Raises `InvalidOption` where it is not the last one, has a savepoint, or needs files that were cleaned, and
    `CommitConflict` where something is pending that began after it; nothing has happened then.
    """
    if dry_run:
        target = _checked(context.opened, instant)
        return RollbackResult(plan_rollback(context.storage, context.opened.timeline, target))
    started = time.monotonic()
    with Undoing.of(context, Action.ROLLBACK, "rollback") as tx, tx.held() as snapshot:
        target = _checked(snapshot, instant)
        if tx.metadata_writer().is_folded(target.time):
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
        before = _before(timeline, target)
        raise InvalidOption(
            f"{target.action} {target.time} is not the last commit: {later[-1].action} {later[-1].time} and"
            f" {len(later) - 1} others stand on it",
            hint=f'Roll those back first, newest first, or take all back: t.restore("{before}").'
            if before
            else "Roll those back first, newest first.",
            context={"instant": target.time, "later": [i.time for i in later]},
        )
    check_nobody_runs(timeline, target.time, f"rolling {target.action} {target.time} back")
    check_no_file_lost(snapshot, {target.time}, f"rolling {target.action} {target.time} back")
    return target


def _cut_off(target: Instant, error: Exception) -> CommitConflict:
    return CommitConflict(
        f"the rollback of {target.action} {target.time} was cut off, since {path_of(error)} is not there any more",
        hint="The next write finishes it; lakebed timeline show URI tells whether the commit is there.",
        context={"instant": target.time, "path": path_of(error)},
    )


def _before(timeline: Timeline, target: Instant) -> str:
    return next((i.time for i in reversed(timeline.commits) if i.time < target.time), "")


def _folded(timeline: Timeline, target: Instant) -> UnsupportedFeature:
    before = _before(timeline, target)
    return UnsupportedFeature(
        f"{target.action} {target.time} cannot be rolled back by itself: the metadata table was compacted, or an index"
        " built, since it was written",
        hint=f'Take it back by a restore, which puts the metadata table right: t.restore("{before}").'
        if before
        else "It is the table's first commit: delete its rows, or make the table anew.",
        context={"feature": "rollback", "instant": target.time},
    )
