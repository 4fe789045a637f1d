"""When a compaction or a log compaction is due: pure rules over the instants of a timeline, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lakebed.model import Action, Instant
from lakebed.timeline.instants import completes_as, parse_time
from lakebed.timeline.listed import completed_at

TriggerName = Literal["NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_OR_TIME", "NUM_AND_TIME"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether something is due, and why (not)."""

    is_due: bool
    why: str


@dataclass(frozen=True, slots=True)
class CompactionTrigger:
    """After how many delta commits, how many seconds, or both, a compaction is due."""

    name: TriggerName = "NUM_COMMITS"
    delta_commits: int = 5
    delta_seconds: int = 3600

    def verdict(self, instants: Sequence[Instant], now: str, zone: str) -> Verdict:
        """Whether a compaction requested `now` (an instant time in the table's zone) is due; `instants` are those of
        the active timeline."""
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
        what = "the first delta commit" if start.action is Action.DELTACOMMIT else "the last compaction"
        return Verdict(seconds >= self.delta_seconds, f"{seconds} s since {what}, due from {self.delta_seconds} s on")


def last_compaction(commits: Sequence[Instant]) -> Instant | None:
    """The last completed compaction of a merge-on-read table: its only instants that complete as a commit."""
    return next((i for i in reversed(commits) if i.action is Action.COMMIT), None)


def delta_commits_since_compaction(commits: Sequence[Instant]) -> int:
    """How many delta commits completed since the last completed compaction was requested, all without one."""
    last = last_compaction(commits)
    return sum(1 for i in commits if i.action is Action.DELTACOMMIT and (last is None or completed_at(i) > last.time))


def log_compaction_verdict(instants: Sequence[Instant], log_compactions: Sequence[Instant], threshold: int) -> Verdict:
    """Whether a log compaction is due: so many delta commits since the last compaction and since the last log
    compaction (`log_compactions` has the completed ones), and none is pending."""
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
