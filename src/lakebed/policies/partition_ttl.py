"""Which partition paths have outlived their time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from lakebed.errors import InvalidOption
from lakebed.timeline.instants import format_time, parse_time


@dataclass(frozen=True, slots=True)
class PartitionTtl:
    """For how many `days` a partition path stays, 0 or less for ever, and how many go `most` at once."""

    days: int
    most: int = 1000

    def expired(self, since: Mapping[str, str], now: str) -> dict[str, str]:
        """Of partition paths with the instant that they count from those that are over at the instant `now`, the oldest
        ones first. A text that is no time never gets old."""
        if self.days <= 0:
            return {}
        ends = {path: self._end(time) for path, time in since.items()}
        over = sorted((since[path], path) for path, end in ends.items() if end and end < now)
        return {path: time for time, path in over[: self.most]}

    def _end(self, since: str) -> str:
        # as texts in one zone without gaps, whatever the table's zone is: real Hudi's too
        try:
            return format_time(parse_time(since, "UTC") + timedelta(days=self.days), "UTC")
        except (InvalidOption, OverflowError):
            return ""
