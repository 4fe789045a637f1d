"""Which files cleaning deletes: those that no reader of the retained commits needs, nor a savepoint or a pending plan.

A policy decides what is retained (`retain_commits`, `retain_since`, `retain_versions`); `plan_cleaning` gives the
files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakebed.model import Action, CommitMetadata, FileGroupId, Instant
from lakebed.timeline.bodies.commit import NEW_FILE
from lakebed.timeline.bodies.plans import CleaningPolicy, CleanPlan
from lakebed.timeline.file_slices import GroupSlices, SliceFiles


@dataclass(frozen=True, slots=True)
class Retention:
    """The files that cleaning retains: all that commits from `earliest` on need, or `versions` slices of each file
    group."""

    policy: CleaningPolicy
    earliest: Instant | None = None
    versions: int = 0


@dataclass(frozen=True, slots=True)
class Protected:
    """The files that are retained under every policy.

    - `savepointed`: paths of files that a savepoint names; their slices stay whole, unless `later_logs_go`: then log
      files of commits that were requested after all savepoints go.
    - `saved`: the instants of savepoints; the slice that each shows of a file group stays. A savepoint does not name
      the files of a commit that was requested before it and completed after it was made.
    - `planned`: by file group the instant of the slice that a pending compaction or log compaction works on; that one
      and newer ones stay. With "" the whole file group does.
    - `unread`: the oldest commit that a consumer has not read. What it and later commits see stays, as under a policy
      that retains commits from it on.
    """

    savepointed: Collection[str] = frozenset()
    saved: Collection[str] = frozenset()
    planned: Mapping[FileGroupId, str] = field(default_factory=dict[FileGroupId, str])
    unread: Instant | None = None
    later_logs_go: bool = False


def retain_commits(commits: Sequence[Instant], pending: Iterable[Instant], count: int) -> Retention | None:
    """The retention of what the last `count` completed commits need, and of more if something older is pending; None if
    there are no more commits than that."""
    if count < 1 or len(commits) <= count:
        return None
    return _retain_from(commits[-count], commits, pending, CleaningPolicy.KEEP_LATEST_COMMITS)


def retain_since(commits: Sequence[Instant], pending: Iterable[Instant], time: str) -> Retention | None:
    """The retention of the files that commits of this instant time or later need, and of older files if something older
    is pending; None if there are no such commits."""
    at = bisect_left(commits, time, key=_time)
    if at == len(commits):
        return None
    return _retain_from(commits[at], commits, pending, CleaningPolicy.KEEP_LATEST_BY_HOURS)


def retain_versions(count: int) -> Retention | None:
    """The retention of the newest `count` slices of each file group; None for less than one, which would empty the
    table."""
    return Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, versions=count) if count >= 1 else None


def passing_at_most(retention: Retention, commits: Sequence[Instant], since: str, count: int) -> Retention:
    """The retention, moved back so that at most `count` of the commits since `since` lose their files."""
    earliest = retention.earliest
    at = bisect_left(commits, since, key=_time) + count
    if earliest is None or at >= len(commits) or commits[at].time >= earliest.time:
        return retention
    return replace(retention, earliest=commits[at])


def superseded_partitions(commit: CommitMetadata) -> frozenset[str]:
    """The partition paths in which a commit began a further slice of a file group, or replaced file groups: when it
    falls before the earliest retained commit, there is something to clean."""
    # log files are added to a slice; a compaction does not name slices without a base file that its own slices follow
    compacts = commit.operation == "COMPACT"
    partitions = [
        partition
        for partition, stats in commit.stats.items()
        for stat in stats
        if (compacts or stat.prev_commit not in ("", NEW_FILE)) and not stat.path.rpartition("/")[2].startswith(".")
    ]
    return frozenset({*partitions, *commit.replaced})


def has_expired_since(last_clean: str, commits: Sequence[Instant], retention: Retention, retained_before: int) -> bool:
    """Whether a slice may have expired since the last clean (its time; "" for none), which retained `retained_before`
    commits: one does when a newer slice, of a compaction or a replacement, falls before the earliest commit. This is
    valid if every other commit only adds log files."""
    earliest = retention.earliest
    if earliest is None:
        return True
    first = bisect_left(commits, last_clean, key=_time) - retained_before
    if first < 0:
        return True
    return any(i.time < earliest.time for i in commits[first:] if i.action is not Action.DELTACOMMIT)


def plan_cleaning(
    groups: Iterable[GroupSlices],
    commits: Sequence[Instant],
    retention: Retention,
    replaced: Mapping[FileGroupId, Instant],
    protected: Protected,
) -> CleanPlan:
    """The files to delete of these file groups, which are given with all their slices. `replaced`: which completed
    instant replaced a file group."""
    files: dict[str, list[str]] = {}
    for group in groups:
        names = [file.name for part in _expired(group, retention, replaced, protected) for file in part.files]
        if names:
            files.setdefault(group.partition, []).extend(names)
    return CleanPlan(
        {partition: sorted(names) for partition, names in files.items()},
        retention.earliest,
        commits[-1].time if commits else "",
        retention.policy,
    )


def _retain_from(
    earliest: Instant, commits: Sequence[Instant], pending: Iterable[Instant], policy: CleaningPolicy
) -> Retention | None:
    """The retention that begins at the commit `earliest`, or, if a pending instant is older, at the last commit before
    that instant, since its readers need the files. None if there is no such commit."""
    first = min(map(_time, pending), default=None)
    if first is None or earliest.time <= first:
        return Retention(policy, earliest)
    before = next((i for i in reversed(commits) if i.time < first), None)
    return Retention(policy, before) if before is not None else None


def _expired(
    group: GroupSlices, retention: Retention, replaced: Mapping[FileGroupId, Instant], protected: Protected
) -> Iterator[SliceFiles]:
    planned = protected.planned.get(group.id)
    replacement = replaced.get(group.id)
    if retention.policy is not CleaningPolicy.KEEP_LATEST_FILE_VERSIONS:
        expired = _before_commit(group, retention, replacement)
    elif replacement is not None:
        expired = list(group.slices)
    else:
        expired = _beyond_versions(group.slices, retention.versions, planned)
    if protected.unread is not None:
        as_read = _before_commit(group, replace(retention, earliest=protected.unread), replacement)
        expired = [part for part in expired if part in as_read]
    saved = [time for time in protected.saved if replacement is None or replacement.time > time]
    saved_instants = {
        max((part.instant for part in group.slices if part.instant <= time), default="") for time in saved
    }
    for part in expired:
        if planned is not None and part.instant >= planned:
            continue
        named = [file for file in part.files if file.path in protected.savepointed]
        if part.instant not in saved_instants and not named:
            yield part
        elif protected.later_logs_go:
            newest = max(protected.saved, default="")
            later = [log for log in part.log_files if log.instant > newest and log not in named]
            yield replace(part, base_files=(), log_files=tuple(later))


def _before_commit(group: GroupSlices, retention: Retention, replacement: Instant | None) -> list[SliceFiles]:
    """The slices of a group that no reader of the earliest retained commit, or of a later one, needs."""
    if replacement is None:
        return _unseen(group.slices, retention)
    return list(group.slices) if _is_before(replacement.time, retention) else []


def _unseen(slices: Sequence[SliceFiles], retention: Retention) -> list[SliceFiles]:
    """The slices older than the newest one that a reader of the earliest commit needs; the newest slice is always
    retained."""
    before = [part for part in slices[:-1] if _is_before(part.instant, retention)]
    if slices and _is_before(slices[-1].instant, retention):
        return before
    return before[:-1]


def _beyond_versions(slices: Sequence[SliceFiles], versions: int, planned: str | None) -> list[SliceFiles]:
    """The slices beyond the newest `versions`; a slice that a pending plan works on counts as a version."""
    if planned is not None and any(part.instant >= planned for part in slices):
        slices = [part for part in slices if part.instant < planned]
        versions -= 1
    return list(slices[: max(len(slices) - versions, 0)])


def _is_before(time: str, retention: Retention) -> bool:
    return retention.earliest is not None and time < retention.earliest.time


def _time(instant: Instant) -> str:
    return instant.time
