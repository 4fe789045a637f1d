"""The commits that a stream or a consumer has not read, in the order in which they completed, and where its next batch
ends. Commits of table services are left out: they change no row.

The rows of a batch are as of its end. Where cleaning has deleted files of that view, `CheckpointBehind` is raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from lakebed.errors import CheckpointBehind, InvalidOption
from lakebed.filters.predicates import Column, In, Literal, Not, combine
from lakebed.model import (
    COMMIT_TIME,
    ERASED_ROWS,
    SERVICE_OPERATIONS,
    Action,
    CommitMetadata,
    FileSlice,
    Instant,
    has_completion_times,
)
from lakebed.read.cdc import first_readable
from lakebed.read.incremental import (
    Changes,
    CommitRange,
    first_pending,
    position_of,
    select_commits,
    slices_of_range,
)
from lakebed.read.moments import LATEST, When
from lakebed.read.plan import ScanPlan, plan_scan
from lakebed.read.reopening import read_again
from lakebed.read.scan import refuse_cleaned
from lakebed.sharing import once
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.consumers import is_service

# Bodies of commits that are read at a time while a batch is planned.
_BODIES = 16


@dataclass(frozen=True, slots=True)
class CommitCost:
    """The size of one commit: the rows that it inserted, updated and deleted, and the bytes and number of the files
    that it wrote."""

    rows: int = 0
    bytes: int = 0
    files: int = 0

    @classmethod
    def of(cls, commit: CommitMetadata) -> CommitCost:
        """The cost of a commit, from its body."""
        stats = [stat for group in commit.stats.values() for stat in group]
        rows = sum(stat.num_inserts + stat.num_updates + stat.num_deletes for stat in stats)
        return cls(rows, sum(stat.file_size for stat in stats), len(stats))


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The most that one batch may have; None for no limit. A batch has at least one commit."""

    commits: int | None = None
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return (self.commits, self.rows, self.bytes, self.files) != (None, None, None, None)

    def takes(self, costs: Iterable[CommitCost]) -> int:
        """The number of the next commits that fit into one batch, given their costs in order.

        >>> BatchLimits(rows=10).takes([CommitCost(rows=6), CommitCost(rows=4), CommitCost(rows=1)])
        2
        >>> BatchLimits(rows=10).takes([CommitCost(rows=50)])
        1
        """
        count = rows = size = files = 0
        for cost in costs:
            rows, size, files = rows + cost.rows, size + cost.bytes, files + cost.files
            pairs = ((count + 1, self.commits), (rows, self.rows), (size, self.bytes), (files, self.files))
            if count and any(limit is not None and total > limit for total, limit in pairs):
                break
            count += 1
        return count


class CommitFeed:
    """The commits after a position, and the ends of batches.

    `upto` leaves out commits that completed later. Without `strict` a feed goes on after what is archived.
    """

    def __init__(
        self, snapshot: Snapshot, start: When, *, upto: str = "", cdc: bool = False, strict: bool = True
    ) -> None:
        self._snapshot = snapshot
        self._upto = upto
        self._cdc = cdc
        self._strict = strict
        self.range = select_commits(snapshot, start)

    @property
    def start(self) -> str:
        """The position before the commits; empty for the beginning."""
        return self.range.start

    @once
    def commits(self) -> list[tuple[str, Instant]]:
        """The positions and commits, in the order of the positions."""
        snapshot = self._snapshot
        by_completion = has_completion_times(snapshot.config.version)
        pairs = [(position_of(i, by_completion), i) for i in self.range.commits if not is_service(snapshot.timeline, i)]
        return sorted(pair for pair in pairs if not self._upto or pair[0] <= self._upto)

    def end(self, limits: BatchLimits) -> str:
        """The end of the next batch: its last commit's position, or the start if there is nothing to read.

        Raises `CheckpointBehind` where commits after the start are archived.
        """
        if self.range.archived and (self.start or self._cdc) and self._strict:
            raise self.refusal("some of these commits are archived")
        commits = self.commits
        together = self._together()
        timeline = self._snapshot.timeline
        if limits.is_limited:
            parts = ([i for _, i in commits[at : at + _BODIES]] for at in range(0, len(commits), _BODIES))
            costs = (CommitCost.of(body) for part in parts for body in timeline.commits_metadata(part))
            count = max(together, limits.takes(costs))
            while count < len(commits) and all(self._is_rewriting(instant) for _, instant in commits[:count]):
                count += 1  # a batch of no change would be the next one for ever
            commits = commits[:count]
        while len(commits) > together and self._is_rewriting(commits[-1][1]):
            commits = commits[:-1]
        return self._beyond_erasures(commits[-1][0]) if commits else self.start

    def _beyond_erasures(self, end: str) -> str:
        """The end of a batch; if rows of its view were erased meanwhile, the first later position whose view exists: an
        erasure deletes no row that the batch would have at that position."""
        timeline = self._snapshot.timeline
        bodies = timeline.commits_metadata([instant for _, instant in self.commits])
        if self._cdc or not self.start or not any(ERASED_ROWS in body.extra for body in bodies):
            return end
        by_completion = has_completion_times(self._snapshot.config.version)
        positions = {instant: position_of(instant, by_completion) for instant in self.range.commits}
        for position in sorted(p for p in positions.values() if p >= end and (not self._upto or p <= self._upto)):
            part = tuple(instant for instant in self.range.commits if positions[instant] <= position)
            if slices_of_range(self._snapshot, CommitRange(self.start, position, part, self.range.archived_to))[2]:
                return position
        return end

    def _is_rewriting(self, commit: Instant) -> bool:
        """Whether a commit changes no row although its action does not show it (an erasure, or on version 6)."""
        return self._snapshot.timeline.commit_metadata(commit).operation in SERVICE_OPERATIONS

    def _together(self) -> int:
        """The number of commits that cannot be read one by one: the archived ones, and at the beginning of a table
        whose oldest files are cleaned all of them."""
        last = self.range.archived_to
        if self.start:
            return sum(position <= last for position, _ in self.commits) if last else 0
        is_cleaned = any(instant.action is Action.CLEAN for instant in self._snapshot.timeline.instants)
        return len(self.commits) if last or is_cleaned else 0

    def refusal(self, why: str, consumer: str = "") -> CheckpointBehind:
        """The error for a start after which not all changes can be read any more; it has the first start that can be
        read."""
        checkpoint = self.first_start()
        name = self._snapshot.config.name
        user = f"consumer {consumer!r} of table" if consumer else "a read of changes of table"
        go_on = f"consumer: t.consumers.move({consumer!r}, {checkpoint!r})" if consumer else f"start: {checkpoint!r}"
        return CheckpointBehind(
            f"{user} {name!r} would go on from {self.start or 'the beginning'}, and not every change since can be read:"
            f" {why}",
            hint=f"Read a snapshot, then go on from the first position whose changes are all there, as the {go_on}."
            " lakebed.consumers.max_lag sets for how long commits are retained for a consumer.",
            context={"start": self.start, "checkpoint": checkpoint, "consumer": consumer},
        )

    def first_start(self) -> str:
        """The first position, not before the start, after which each commit can be read."""
        snapshot, earliest = self._snapshot, max(self.start, self.range.archived_to)
        if self._cdc:
            return first_readable(snapshot, snapshot.commits, earliest)
        start = earliest
        for position, instant in self.commits:
            alone = CommitRange(start, position, (instant,))
            if position > earliest and not slices_of_range(snapshot, alone)[2]:
                start = position
        return start


class BatchOfChanges(Changes):
    """The rows of a batch, exactly as of its end: `Changes` of a closed range that raises `CheckpointBehind` if files
    of that view are missing. A batch from the beginning has all rows of the table as of its end."""

    strict = True
    consumer = ""

    def check(self) -> None:
        """Raise `CheckpointBehind` if some of the rows cannot be read any more."""
        if self.range.commits:
            read_again(self._storage(), lambda: self._view, self._renew)

    @once
    def _view(self) -> tuple[Snapshot, tuple[FileSlice, ...], bool]:
        commits = self.range
        if not commits.start and (view := self._as_of_end) is not None:
            return view, view.file_slices(), True
        range_view = slices_of_range(self._newest, commits)
        if not range_view[2] and commits.start and self.strict:
            feed = CommitFeed(self._newest, commits.start)
            raise feed.refusal("files that their view needs are cleaned", self.consumer)
        return range_view

    def _plan(self) -> ScanPlan:
        view, slices, _ = self._view
        if self.range.start or self._as_of_end is None:
            return super()._plan()
        predicate, by_completion = self.parsed_filter(), has_completion_times(view.config.version)
        later_times = [i.time for i in view.commits if position_of(i, by_completion) > self.range.end]
        if later_times:
            column = Column((COMMIT_TIME,), pa.string())
            predicate = combine(predicate, [Not(In(column, tuple(Literal(time, pa.string()) for time in later_times)))])
        return plan_scan(view, predicate, self._requested(), slices=slices, column_view=self._newest, reads=self.reads)

    @once
    def _as_of_end(self) -> Snapshot | None:
        """The view of the table as of the end; None if files of it are cleaned or there is no commit."""
        commits = self.range
        if not commits.commits:
            return None
        view = self._newest if self._newest.instant == commits.last else self._newest.at(commits.last)
        try:
            refuse_cleaned(view)
        except InvalidOption:
            return None
        return view

    def _renew(self) -> bool:
        self.__dict__.pop("_as_of_end", None)
        return super()._renew()


def newest_position(snapshot: Snapshot) -> str:
    """The position after all commits that a read of changes sees; empty on a table without commits."""
    by_completion = has_completion_times(snapshot.config.version)
    hole = None if by_completion else first_pending(snapshot)
    return max((position_of(i, by_completion) for i in snapshot.commits if hole is None or i.time < hole), default="")


def resolve_start(snapshot: Snapshot, start: When) -> str:
    """The position that `earliest`, `latest`, a checkpoint, an instant or a time means. Raises `InvalidOption` for a
    time after the newest commit: commits that complete before it would be skipped."""
    if isinstance(start, str) and start.strip().lower() == LATEST:
        return newest_position(snapshot)
    if isinstance(start, str) and start.strip() == "000":
        return ""
    position = select_commits(snapshot, start, start).start
    newest = newest_position(snapshot)
    if position > max(newest, snapshot.timeline.latest_time):
        raise InvalidOption(
            f"the start {start} is after the newest commit of table {snapshot.config.name!r}, {newest or 'none'}",
            hint=f"'{LATEST}' is the position after that commit",
            context={"option": "start", "value": str(start), "newest": newest},
        )
    return position
