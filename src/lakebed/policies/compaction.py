"""When a compaction or a log compaction is due, which file slices it merges, and the plans it makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from operator import attrgetter
from typing import Literal

from lakebed.model import Action, CommitMetadata, FileGroupId, FileSlice, Instant, LogWeight
from lakebed.timeline.bodies.plans import TOTAL_MEGABYTES, CompactionPlan, cost_metrics
from lakebed.timeline.instants import completes_as, format_time, parse_time
from lakebed.timeline.timeline import completed_at
from lakebed.wording import count_text

__all__ = [
    "CompactionStrategy",
    "LogBounds",
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

TriggerName = Literal["NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_OR_TIME", "NUM_AND_TIME"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a compaction or log compaction is due, and a sentence that says why or why not."""

    is_due: bool
    why: str


@dataclass(frozen=True, slots=True)
class CompactionTrigger:
    """The condition for a compaction: after a number of delta commits, a number of seconds, or both."""

    name: TriggerName = "NUM_COMMITS"
    delta_commits: int = 5
    delta_seconds: int = 3600

    def verdict(self, instants: Sequence[Instant], now: str, zone: str) -> Verdict:
        """The verdict on whether a compaction requested `now` (an instant time in the table's zone) is due; `instants`
        are those of the active timeline."""
        if self.name == "NUM_COMMITS":
            return self._by_number(instants)
        if self.name == "NUM_COMMITS_AFTER_LAST_REQUEST":
            return self._by_requests(instants)
        elapsed = self._by_time(instants, now, zone)
        if self.name == "TIME_ELAPSED":
            return elapsed
        number = self._by_number(instants)
        if self.name == "NUM_OR_TIME":
            return Verdict(number.is_due or elapsed.is_due, f"{number.why}; {elapsed.why}")
        return Verdict(number.is_due and elapsed.is_due, f"{number.why}; {elapsed.why}")

    def _by_number(self, instants: Sequence[Instant]) -> Verdict:
        commits = [i for i in instants if i.is_completed]
        return self._enough(delta_commits_since_compaction(commits), "since the last compaction")

    def _by_requests(self, instants: Sequence[Instant]) -> Verdict:
        waiting = [i for i in instants if i.action is Action.COMPACTION]
        last = waiting[-1] if waiting else last_compaction([i for i in instants if i.is_completed])
        deltas = [i for i in instants if completes_as(i.action) is Action.DELTACOMMIT]
        count = sum(1 for i in deltas if last is None or i.time > last.time)
        return self._enough(count, "since the last compaction was requested")

    def _enough(self, count: int, since: str) -> Verdict:
        return Verdict(count >= self.delta_commits, f"{count} delta commits {since}, due from {self.delta_commits} on")

    def _by_time(self, instants: Sequence[Instant], now: str, zone: str) -> Verdict:
        commits = [i for i in instants if i.is_completed]
        first = next((i for i in commits if i.action is Action.DELTACOMMIT), None)
        start = last_compaction(commits) or first
        if start is None:
            return Verdict(False, "no delta commit yet")
        seconds = int((parse_time(now, zone) - parse_time(start.time, zone)).total_seconds())
        event = "the first delta commit" if start.action is Action.DELTACOMMIT else "the last compaction"
        return Verdict(seconds >= self.delta_seconds, f"{seconds} s since {event}, due from {self.delta_seconds} s on")


# Log files of no more bytes are light, however small the base file is: each file of a small table is a large part of
# its base file, and a compaction costs more than a read of so few records.
LIGHT_LOG_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of the log files of a file slice, beyond which the slice is due for a compaction: the bytes of its log
    files in `percent` of its base file's, the number of log `files`, and the age of the oldest one in `seconds`. Log
    files of no more than `LIGHT_LOG_BYTES` together are not due by their bytes."""

    percent: int
    files: int
    seconds: int

    def oldest(self, now: str, zone: str) -> str:
        """The instant of the oldest log file that is not due by its age at the instant time `now`, in the table's
        zone."""
        return format_time(parse_time(now, zone) - timedelta(seconds=self.seconds), zone)

    def exceeded(self, weight: LogWeight, oldest: str) -> Literal["bytes", "number", "age"] | None:
        """The first bound that these log files exceed; None if they exceed none. Log files that are older than `oldest`
        exceed the age."""
        if weight.log_bytes > LIGHT_LOG_BYTES and 100 * weight.log_bytes > self.percent * weight.base_bytes:
            return "bytes"
        if weight.log_files > self.files:
            return "number"
        return "age" if weight.log_files and weight.oldest < oldest else None

    def due(self, slices: Iterable[FileSlice], now: str, zone: str) -> tuple[list[FileSlice], Verdict]:
        """The slices that are due at the instant time `now`, and the verdict on all of them."""
        oldest = self.oldest(now, zone)
        logged = [file_slice for file_slice in slices if file_slice.log_files]
        bounds = [self.exceeded(file_slice.log_weight, oldest) for file_slice in logged]
        due = [file_slice for file_slice, bound in zip(logged, bounds, strict=True) if bound is not None]
        of_all = f"of {count_text(len(logged), 'file slice')} with log files"
        limits = {
            "bytes": f"more than {self.percent} % of the base file's bytes in log files",
            "number": f"more than {count_text(self.files, 'log file')}",
            "age": f"a log file that is older than {self.seconds} s",
        }
        if not logged:
            return due, Verdict(False, "no file slice has log files")
        if not due:
            return due, Verdict(False, f"none {of_all} has {', '.join(limits.values())}")
        counts = [f"{bounds.count(bound)} with {text}" for bound, text in limits.items() if bound in bounds]
        return due, Verdict(True, f"{len(due)} {of_all}: {', '.join(counts)}")


def last_compaction(commits: Sequence[Instant]) -> Instant | None:
    """The last completed compaction of a merge-on-read table, None if there is none: only compactions complete as a
    commit in it."""
    compactions = [i for i in commits if i.action is Action.COMMIT]
    return compactions[-1] if compactions else None


def delta_commits_since_compaction(commits: Sequence[Instant]) -> int:
    """The number of delta commits that completed since the last completed compaction was requested; of all without
    one."""
    last = last_compaction(commits)
    return sum([1 for i in commits if i.action is Action.DELTACOMMIT and (last is None or completed_at(i) > last.time)])


def log_compaction_verdict(instants: Sequence[Instant], log_compactions: Sequence[Instant], threshold: int) -> Verdict:
    """The verdict on whether a log compaction is due: there are `threshold` delta commits since the last compaction and
    since the last log compaction (`log_compactions` has the completed ones), and none is pending."""
    waiting = next((i for i in instants if i.action is Action.LOGCOMPACTION), None)
    if waiting is not None:
        return Verdict(False, f"log compaction {waiting.time} is pending")
    commits = [i for i in instants if i.is_completed]
    count = delta_commits_since_compaction(commits)
    if log_compactions:
        last = log_compactions[-1].time
        later = sum(1 for i in commits if i.action is Action.DELTACOMMIT and i.time > last)
        count = min(count, later)
    return Verdict(
        count >= threshold, f"{count} delta commits since the last (log) compaction, due from {threshold} on"
    )


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
    """The strategy that merges all slices."""
    return slices


def most_log_bytes(*, at_least: int = 0, target_megabytes: int = 512_000) -> CompactionStrategy:
    """The strategy that takes slices with the most bytes in log files first, as long as some of `target_megabytes` to
    read and write is left: the first slice is taken even if it is larger."""
    return Selection("LogFileSizeBased", at_least, 0, target_megabytes).slices


@dataclass(frozen=True, slots=True)
class Selection:
    """A strategy by its name, with the settings of all strategies: the least bytes and the least number of log files of
    a slice, the megabytes to read and write in one compaction, the number of days of `DayBased` and of the strategy
    bounded by days, and the expression for the paths of `PartitionRegexBased`."""

    name: StrategyName = "LogFileSizeBased"
    min_log_bytes: int = 0
    min_log_files: int = 0
    target_megabytes: int = 512_000
    days: int = 10
    partition_regex: str = ""

    def partitions(self, paths: Iterable[str], today: date) -> list[str]:
        """The partition paths to examine, in the order in which their slices are taken."""
        sorted_paths = sorted(set(paths))
        if self.name == "PartitionRegexBased":
            pattern = re.compile(self.partition_regex)
            return [path for path in sorted_paths if pattern.fullmatch(path)]
        if self.name not in _BY_DAY:
            return sorted_paths
        dated = sorted(sorted_paths, key=lambda path: (day_of(path) or date.min, path), reverse=True)
        if self.name == "DayBased":
            return dated[: self.days]
        first = today - timedelta(days=self.days)
        recent = {path for path in sorted_paths if (day := day_of(path)) is not None and day >= first}
        return [path for path in dated if (path in recent) == (self.name == "BoundedPartitionAware")]

    def slices(self, slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """The slices to compact, of the given slices with log files, the most urgent by the strategy first."""
        if self.name == "LogFileSizeBased":
            enough = [s for s in slices if s.log_bytes >= self.min_log_bytes]
            return self._within_target(sorted(enough, key=attrgetter("log_bytes"), reverse=True))
        if self.name == "LogFileNumBased":
            enough = [s for s in slices if len(s.log_files) >= self.min_log_files]
            return self._within_target(sorted(enough, key=lambda s: -len(s.log_files)))
        return self._within_target(slices) if self.name == "BoundedIO" else slices

    def _within_target(self, slices: Sequence[FileSlice]) -> list[FileSlice]:
        selected: list[FileSlice] = []
        left: float = self.target_megabytes
        for file_slice in slices:
            if left <= 0:
                break
            selected.append(file_slice)
            left -= cost_metrics([file_slice])[TOTAL_MEGABYTES]
        return selected


def day_of(partition: str) -> date | None:
    """The day in the name of a partition path; None for any other path.

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
    """The partition paths that a plan examines after the compaction `since`: those written by delta commits and replace
    commits that completed no earlier than it was requested, and those that its plan had left (`missing`)."""
    written = (
        {*meta.stats, *meta.replaced}
        for instant, meta in commits
        if instant.action in (Action.DELTACOMMIT, Action.REPLACECOMMIT) and completed_at(instant) >= since.time
    )
    return frozenset(missing).union(*written)


def plan_compaction(
    slices: Iterable[FileSlice],
    *,
    due: Collection[FileGroupId] | None = None,
    busy: Collection[FileGroupId] = frozenset(),
    strategy: CompactionStrategy = unbounded,
    passed_over: Collection[str] = (),
    remembers: bool = True,
) -> CompactionPlan:
    """The plan of a compaction of those of the latest slices that have log files and are `due` (None: all). File groups
    that are `busy`, in a pending compaction or clustering, are left out. The partition paths of all slices with log
    files that are left, and those `passed_over`, are `missing` in the plan, unless it `remembers` none."""
    logged = [file_slice for file_slice in slices if file_slice.log_files]
    free = [file_slice for file_slice in logged if (file_slice.partition, file_slice.file_id) not in busy]
    selected = tuple(strategy([s for s in free if due is None or (s.partition, s.file_id) in due]))
    groups = {(file_slice.partition, file_slice.file_id) for file_slice in selected}
    left = {s.partition for s in logged if (s.partition, s.file_id) not in groups}
    return CompactionPlan(selected, tuple(sorted({*left, *passed_over})) if remembers else None)


def plan_log_compaction(
    slices: Iterable[FileSlice],
    *,
    min_blocks: int,
    count_blocks: Callable[[FileSlice], int],
    before: str | None = None,
    busy: Collection[FileGroupId] = frozenset(),
) -> CompactionPlan:
    """The log compaction of slices with at least `min_blocks` log files and blocks; `count_blocks` is asked only for
    slices with enough files.

    With `before` only logs of earlier instants count and are merged: the merged block takes the place of the last of
    them, so nothing that is still pending may come in between.
    """
    selected: list[FileSlice] = []
    for file_slice in slices:
        if (file_slice.partition, file_slice.file_id) in busy:
            continue
        if before is not None:
            logs = tuple(log for log in file_slice.log_files if log.instant < before)
            file_slice = replace(file_slice, log_files=logs)
        if len(file_slice.log_files) >= min_blocks and count_blocks(file_slice) >= min_blocks:
            selected.append(file_slice)
    return CompactionPlan(tuple(selected), is_log_compaction=True)
