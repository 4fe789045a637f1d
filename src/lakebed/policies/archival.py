"""Which instants leave the active timeline: the oldest commits where there are many, up to the first that must stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakebed.model import Action, Instant
from lakebed.timeline.timeline import completed_at
from lakebed.wording import count_text

# What goes with the commits around it.
_FOLLOWING = (Action.CLEAN, Action.ROLLBACK)


@dataclass(frozen=True, slots=True)
class ArchivalBounds:
    """The number of commits on the active timeline above which archival starts (`above`), and the number that it leaves
    (`down_to`)."""

    above: int
    down_to: int

    def keeping(self, commits: int) -> ArchivalBounds:
        """These bounds, raised so that at least `commits` commits are left."""
        more = max(commits - self.down_to, 0)
        return ArchivalBounds(self.above + more, self.down_to + more)


@dataclass(frozen=True, slots=True)
class ArchivalLimit:
    """The time from which on instants stay, and why; with "" everything does."""

    time: str
    reason: str


@dataclass(frozen=True, slots=True)
class ArchivalPlan:
    """The instants to archive, commits first, and the limit that retains further instants, None if no limit does."""

    commits: tuple[Instant, ...] = ()
    others: tuple[Instant, ...] = ()
    limit: ArchivalLimit | None = None

    @property
    def instants(self) -> tuple[Instant, ...]:
        return (*self.commits, *self.others)

    def __str__(self) -> str:
        limit_text = f"; from {self.limit.time or 'the start'} on: {self.limit.reason}" if self.limit else ""
        if not self.commits:
            return f"archival of nothing{limit_text}"
        return f"archival of {count_text(len(self.commits), 'commit')} up to {self.commits[-1].time}{limit_text}"


def is_archival_due(commits: Sequence[Instant], bounds: ArchivalBounds) -> bool:
    """Whether there are more commits than the bounds allow."""
    return len(commits) > bounds.above


def before_pending(commits: Sequence[Instant], pending: Iterable[Instant]) -> ArchivalLimit | None:
    """The limit at the last commit before the first of these pending instants; None without pending instants."""
    first = min((i.time for i in pending), default=None)
    if first is None:
        return None
    last = max((i.time for i in commits if i.time < first), default="")
    return ArchivalLimit(last, f"{first} is pending")


def before_due_compaction(instants: Iterable[Instant], delta_commits: int) -> ArchivalLimit | None:
    """The limit that retains the delta commits which decide whether a compaction is due: all since the last compaction,
    or the last compaction itself. None if nothing has to be retained."""
    relevant = [i for i in instants if i.is_completed or i.action is Action.DELTACOMMIT]
    compaction = next((i for i in reversed(relevant) if i.is_completed and i.action is Action.COMMIT), None)
    since = [i for i in relevant if i.action is Action.DELTACOMMIT and (compaction is None or i.time > compaction.time)]
    if len(since) >= delta_commits:
        first = since[-delta_commits]
    else:
        first = compaction or (since[0] if since else None)
    return ArchivalLimit(first.time, "delta commits since the last compaction are counted") if first else None


def before_uncleaned(instants: Iterable[Instant], cleaned_to: str | None) -> ArchivalLimit | None:
    """The limit at the first replacement that the last clean did not reach: the replaced files would become visible
    again. `cleaned_to` is the time from which on that clean retained everything; None without a clean."""
    kinds = (Action.REPLACECOMMIT, Action.CLUSTERING)
    first = next((i for i in instants if i.action in kinds and i.time >= (cleaned_to or "")), None)
    return ArchivalLimit(first.time, "files that it replaced are not cleaned yet") if first else None


def before_metadata(commits: Iterable[Instant], compaction: str | None) -> ArchivalLimit | None:
    """The limit at the first commit that completed after the last compaction of the metadata table, since the delta
    commit of that commit counts only while the commit is on the timeline. Without a compaction everything is retained;
    None if no commit completed since."""
    if compaction is None:
        return ArchivalLimit("", "the metadata table was not compacted yet")
    first = next((i for i in commits if completed_at(i) >= compaction), None)
    return ArchivalLimit(first.time, "the metadata table was not compacted since") if first else None


def before_savepoint(instants: Iterable[Instant]) -> ArchivalLimit | None:
    """The limit at the first savepoint: it and all later instants are retained. None without a savepoint."""
    first = next((i for i in instants if i.action is Action.SAVEPOINT), None)
    return ArchivalLimit(first.time, "it has a savepoint") if first else None


def before_unread(commits: Sequence[Instant], unread: Instant, reason: str) -> ArchivalLimit:
    """The limit that retains the last two commits before one that a consumer has not read, and all after them: the one
    from which on cleaning retains everything, and the one before."""
    earlier = [i.time for i in commits if i.time < unread.time]
    return ArchivalLimit(earlier[-2] if len(earlier) > 1 else "", reason)


def plan_archival(
    commits: Sequence[Instant],
    completed: Sequence[Instant],
    bounds: ArchivalBounds,
    limits: Iterable[ArchivalLimit | None],
) -> ArchivalPlan:
    """The plan to archive the oldest commits above the bounds that all limits allow, and the cleans and rollbacks
    before the last of these commits."""
    if not is_archival_due(commits, bounds):
        return ArchivalPlan()
    limit = min(
        (archival_limit for archival_limit in limits if archival_limit is not None),
        key=lambda archival_limit: archival_limit.time,
        default=None,
    )
    candidates = commits[: len(commits) - bounds.down_to]
    oldest = tuple(i for i in candidates if limit is None or i.time < limit.time)
    if not oldest:
        return ArchivalPlan(limit=limit)
    other_instants = tuple(i for i in completed if i.action in _FOLLOWING and i.time < oldest[-1].time)
    return ArchivalPlan(oldest, other_instants, limit if len(oldest) < len(candidates) else None)
