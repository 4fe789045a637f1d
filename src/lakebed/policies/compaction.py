"""Which file slices a compaction or a log compaction merges: strategies, and the plans they make."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Literal

from lakebed.model import Action, CommitMetadata, FileGroupId, FileSlice, Instant
from lakebed.policies.compaction_triggers import delta_commits_since_compaction, last_compaction
from lakebed.timeline.listed import completed_at
from lakebed.timeline.service_plans import CompactionCost, CompactionPlan

__all__ = [
    "CompactionStrategy",
    "Selection",
    "StrategyName",
    "changed_partitions",
    "delta_commits_since_compaction",
    "last_compaction",
    "most_log_bytes",
    "plan_compaction",
    "plan_log_compaction",
    "unbounded",
]

CompactionStrategy = Callable[[Sequence[FileSlice]], Sequence[FileSlice]]
"""Which of the slices with log files are merged now, in which order."""

StrategyName = Literal[
    "LogFileSizeBased",
    "LogFileNumBased",
    "BoundedIO",
    "UnBounded",
    "DayBased",
    "BoundedPartitionAware",
    "UnBoundedPartitionAware",
    "PartitionRegexBased",
]
_BY_DAY = ("DayBased", "BoundedPartitionAware", "UnBoundedPartitionAware")
_DATE_FORMATS = ("%Y/%m/%d", "%Y-%m-%d")
_KEY = re.compile(r"[^/=]+=")


def unbounded(slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
    """The strategy that merges all of them."""
    return slices


def most_log_bytes(*, at_least: int = 0, target_megabytes: int = 512_000) -> CompactionStrategy:
    """The strategy that takes slices with the most bytes in log files first, as long as there is something left of
    `target_megabytes` to read and write: the first goes in though it be larger."""
    return Selection("LogFileSizeBased", at_least, 0, target_megabytes).slices


@dataclass(frozen=True, slots=True)
class Selection:
    """A strategy by its name with all that one may be told: least bytes and number of log files of a slice, megabytes
    to read and write in one compaction, how many days `DayBased` and the bounded one take, the paths of
    `PartitionRegexBased`."""

    name: StrategyName = "LogFileSizeBased"
    least_log_bytes: int = 0
    least_log_files: int = 0
    target_megabytes: int = 512_000
    days: int = 10
    partition_regex: str = ""

    def partitions(self, paths: Iterable[str], today: date) -> list[str]:
        """The partition paths that are looked at, in the order in which their slices come."""
        known = sorted(set(paths))
        if self.name == "PartitionRegexBased":
            pattern = re.compile(self.partition_regex)
            return [path for path in known if pattern.fullmatch(path)]
        if self.name not in _BY_DAY:
            return known
        dated = sorted(known, key=lambda path: (day_of(path) or date.min, path), reverse=True)
        if self.name == "DayBased":
            return dated[: self.days]
        first = today - timedelta(days=self.days)
        recent = {path for path in known if (day := day_of(path)) is not None and day >= first}
        return [path for path in dated if (path in recent) == (self.name == "BoundedPartitionAware")]

    def slices(self, slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """Which of the slices with log files are merged, in which order."""
        if self.name == "LogFileSizeBased":
            enough = [s for s in slices if _log_bytes(s) >= self.least_log_bytes]
            return self._within_target(sorted(enough, key=lambda s: -_log_bytes(s)))
        if self.name == "LogFileNumBased":
            enough = [s for s in slices if len(s.log_files) >= self.least_log_files]
            return self._within_target(sorted(enough, key=lambda s: -len(s.log_files)))
        return self._within_target(slices) if self.name == "BoundedIO" else slices

    def _within_target(self, slices: Sequence[FileSlice]) -> list[FileSlice]:
        taken: list[FileSlice] = []
        left = self.target_megabytes
        for file_slice in slices:
            if left <= 0:
                break
            taken.append(file_slice)
            left -= CompactionCost.of(file_slice).megabytes
        return taken


def day_of(partition: str) -> date | None:
    """The day that a partition path names, None for another path.

    >>> day_of("year=2026/month=11/day=23"), day_of("dt=2026-11-23"), day_of("oslo")
    (datetime.date(2026, 11, 23), datetime.date(2026, 11, 23), None)
    """
    text = _KEY.sub("", partition)
    for form in _DATE_FORMATS:
        try:
            return datetime.strptime(text, form).date()
        except ValueError:
            continue
    return None


def changed_partitions(
    commits: Iterable[tuple[Instant, CommitMetadata]], since: Instant, missing: Iterable[str]
) -> frozenset[str]:
    """The partition paths that a plan looks at after the compaction `since`: those that delta commits and replace
    commits wrote to which completed no earlier than it was requested, and those that its plan had left (`missing`)."""
    written = (
        {*meta.stats, *meta.replaced}
        for instant, meta in commits
        if instant.action in (Action.DELTACOMMIT, Action.REPLACECOMMIT) and completed_at(instant) >= since.time
    )
    return frozenset(missing).union(*written)


def plan_compaction(
    slices: Iterable[FileSlice],
    *,
    busy: Collection[FileGroupId] = frozenset(),
    strategy: CompactionStrategy = unbounded,
    passed_over: Collection[str] = (),
    remembers: bool = True,
) -> CompactionPlan:
    """The compaction of those of the latest slices that have log files. File groups that are `busy`, in a pending
    compaction or clustering, are left out; the partition paths of these, of what the strategy leaves and those that
    were `passed_over` are `missing` in the plan, unless it is one that `remembers` none."""
    logged = [file_slice for file_slice in slices if file_slice.log_files]
    free = [file_slice for file_slice in logged if (file_slice.partition, file_slice.file_id) not in busy]
    taken = tuple(strategy(free))
    groups = {(file_slice.partition, file_slice.file_id) for file_slice in taken}
    left = {s.partition for s in logged if (s.partition, s.file_id) not in groups}
    return CompactionPlan(taken, tuple(sorted({*left, *passed_over})) if remembers else None)


def plan_log_compaction(
    slices: Iterable[FileSlice],
    *,
    least_blocks: int,
    count_blocks: Callable[[FileSlice], int],
    before: str | None = None,
    busy: Collection[FileGroupId] = frozenset(),
) -> CompactionPlan:
    """The log compaction of slices with at least so many log files and blocks; `count_blocks` is asked only for slices
    with enough files.

    With `before` only logs of earlier instants count and are merged: the merged block stands where the last of them
    stood, so nothing that is still pending may come in between.
    """
    found: list[FileSlice] = []
    for file_slice in slices:
        if (file_slice.partition, file_slice.file_id) in busy:
            continue
        if before is not None:
            logs = tuple(log for log in file_slice.log_files if log.instant < before)
            file_slice = replace(file_slice, log_files=logs)
        if len(file_slice.log_files) >= least_blocks and count_blocks(file_slice) >= least_blocks:
            found.append(file_slice)
    return CompactionPlan(tuple(found), is_log_compaction=True)


def _log_bytes(file_slice: FileSlice) -> int:
    return sum(log.size for log in file_slice.log_files)
