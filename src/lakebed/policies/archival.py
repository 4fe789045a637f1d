"""Which instants leave the active timeline: the oldest commits where there are many, up to the first that must stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakebed.model import Action, Instant

# What goes with the commits around it.
_FOLLOWING = (Action.CLEAN, Action.ROLLBACK)


@dataclass(frozen=True, slots=True)
class ArchivalBounds:
    """With more than `above` commits on the active timeline, archival leaves `down_to`."""

    above: int
    down_to: int


@dataclass(frozen=True, slots=True)
class ArchivalLimit:
    """The time from which on instants stay, and why; with "" everything does."""

    time: str
    reason: str


@dataclass(frozen=True, slots=True)
class ArchivalPlan:
    """The instants to archive, commits first, and the limit that holds back more, if one does."""

    commits: tuple[Instant, ...] = ()
    others: tuple[Instant, ...] = ()
    limit: ArchivalLimit | None = None

    @property
    def instants(self) -> tuple[Instant, ...]:
        return (*self.commits, *self.others)

    def __str__(self) -> str:
        held = f"; from {self.limit.time or 'the start'} on: {self.limit.reason}" if self.limit else ""
        if not self.commits:
            return f"archival of nothing{held}"
        return f"archival of {len(self.commits)} commits up to {self.commits[-1].time}{held}"


def is_archival_due(commits: Sequence[Instant], bounds: ArchivalBounds) -> bool:
    """Whether there are more commits than the bounds allow."""
    return len(commits) > bounds.above


def before_pending(commits: Sequence[Instant], pending: Iterable[Instant]) -> ArchivalLimit | None:
    """The last commit before the first of these pending instants stays, and all behind it."""
    first = min((i.time for i in pending), default=None)
    if first is None:
        return None
    last = max((i.time for i in commits if i.time < first), default="")
    return ArchivalLimit(last, f"{first} is pending")


def plan_archival(
    commits: Sequence[Instant],
    completed: Sequence[Instant],
    bounds: ArchivalBounds,
    limits: Iterable[ArchivalLimit | None],
) -> ArchivalPlan:
    """The oldest commits beyond the bounds, as far as all limits allow, with the cleans and rollbacks before the last
    of them."""
    if not is_archival_due(commits, bounds):
        return ArchivalPlan()
    limit = min((one for one in limits if one is not None), key=lambda one: one.time, default=None)
    candidates = commits[: len(commits) - bounds.down_to]
    oldest = tuple(i for i in candidates if limit is None or i.time < limit.time)
    if not oldest:
        return ArchivalPlan(limit=limit)
    others = tuple(i for i in completed if i.action in _FOLLOWING and i.time < oldest[-1].time)
    return ArchivalPlan(oldest, others, limit if len(oldest) < len(candidates) else None)
