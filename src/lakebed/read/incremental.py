"""Incremental reads: the rows that the commits of a range wrote, in their latest state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.config.settings import ReadSettings
from lakebed.errors import InvalidOption
from lakebed.filters.predicates import Column, In, Literal, Predicate, combine
from lakebed.model import COMMIT_ACTIONS, COMMIT_TIME, Action, FileSlice, Instant, has_completion_times
from lakebed.policies.compaction import last_compaction
from lakebed.read.moments import BEGINNING, When, check_digits, named_time, to_instant_time
from lakebed.read.plan import ScanPlan, plan_scan
from lakebed.read.reopening import read_again
from lakebed.read.scan import Scan
from lakebed.sharing import once
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.history import being_cleaned
from lakebed.timeline.instants import completes_as, format_time, without_suffix
from lakebed.wording import Lines, count_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.filters.sql import Condition


def refuse_outside(view: Snapshot) -> None:
    """Raise `InvalidOption` for a view as of a time before the table's first commit, or in the future. A table without
    commits is empty at any time."""
    as_of, timeline = view.as_of, view.timeline
    if as_of is None or not timeline.commits:
        return
    first, last = timeline.commits[0].time, timeline.commits[-1].time
    now = format_time(datetime.now(UTC), view.config.timezone)
    if as_of < first:
        first = min([i.time for i in timeline.archived_commits()], default=first)
    if first <= as_of <= max(now, last):
        return
    where = "before its first commit" if as_of < first else "in the future"
    raise InvalidOption(
        f"the time {as_of} is {where}, so table {view.config.name!r} cannot be read as of then",
        hint=f"Its commits are from {first} to {last}: name a time from the first on, up to now.",
        context={"option": "as_of", "value": as_of, "first": first, "last": last},
    )


@dataclass(frozen=True, slots=True)
class CommitRange:
    """The commits of an incremental read, in requested order. `start` and `end` are completion times (version 6:
    requested times); the next read continues at `end`."""

    start: str
    end: str
    commits: tuple[Instant, ...]
    archived_to: str = ""
    """The time of the last of them that is archived, empty where none is."""

    @property
    def archived(self) -> bool:
        """Whether some of the commits are archived."""
        return bool(self.archived_to)

    @property
    def last(self) -> str:
        """The greatest requested time among the commits, empty without commits."""
        return self.commits[-1].time if self.commits else ""


def select_commits(snapshot: Snapshot, start: When, end: When | None = None) -> CommitRange:
    """The commits in (start, end], by completion time (version 6: by requested time).

    A text that equals a requested time of the table means that commit's completion time, so the commit itself is
    left out (`start`) or in (`end`). On version 6 the range stops before the first pending commit: what completes
    later with an earlier time would be lost otherwise. Raises `InvalidOption` for a start after the end or in the
    future.
    """
    by_completion = has_completion_times(snapshot.config.version)
    low = _bound(snapshot, start, "start")
    high = None if end is None else _bound(snapshot, end, "end")
    if high is not None and high < low:
        raise InvalidOption(
            f"the range of commits begins at {low}, which is after its end {high}",
            hint="give the earlier time as start, the later one as end",
            context={"start": low, "end": high},
        )
    _refuse_future(snapshot, low)
    active = [(position_of(i, by_completion), i) for i in snapshot.commits]
    archived = _archived(snapshot, low, [p for p, _ in active], by_completion)
    if not by_completion and (hole := first_pending(snapshot)) is not None:
        active = [(p, i) for p, i in active if i.time < hole]
    selected = [(p, i) for p, i in (*archived, *active) if p > low and (high is None or p <= high)]
    old = {i.time for _, i in archived}
    return CommitRange(
        start=low,
        end=max((p for p, _ in selected), default=low),
        commits=tuple(sorted((i for _, i in selected), key=lambda i: i.time)),
        archived_to=max((p for p, i in selected if i.time in old), default=""),
    )


def _refuse_future(snapshot: Snapshot, start: str) -> None:
    """Raise `InvalidOption` for a start after the table's times and after this machine's clock: commits made until then
    would never be read."""
    latest = snapshot.timeline.latest_time
    if start <= latest or start <= (now := format_time(datetime.now(UTC), snapshot.config.timezone)):
        return
    raise InvalidOption(
        f"the start {start} is in the future: it is {now}, and the latest time of table {snapshot.config.name!r} is"
        f" {latest or 'none'}",
        hint='give a time up to now; "000" is the beginning',
        context={"option": "start", "value": start, "latest": latest},
    )


def _archived(snapshot: Snapshot, low: str, active: Sequence[str], by_completion: bool) -> list[tuple[str, Instant]]:
    """The archived commits that may be after `low`, with their times; `active` are the times of the active commits.

    Archival goes by requested times: a commit that was requested before all that are active may have completed after
    some of them. Commits that completed and were archived after the timeline was listed are left to the next read:
    commits that completed before them may be in neither list.
    """
    timeline = snapshot.timeline
    if active and low >= min(active) and not (by_completion and _may_be_archived(snapshot, low)):
        return []
    active_times = {i.time for i in (*snapshot.commits, *timeline.pending)}
    last = timeline.latest_time
    return [
        (position_of(i, by_completion), i)
        for i in timeline.archived().instants
        if i.is_completed
        and i.action in COMMIT_ACTIONS
        and i.time not in active_times
        and (not active or i.time <= last)
    ]


def _may_be_archived(snapshot: Snapshot, low: str) -> bool:
    """Whether a commit that completed after `low` can be archived: in a table with a metadata table no commit is
    archived that completed after the last compaction of the metadata table, also by real Hudi."""
    metadata = snapshot.metadata
    compaction = None if metadata is None else last_compaction(metadata.slices.timeline.commits)
    return compaction is None or low < without_suffix(compaction.time)


def position_of(instant: Instant, by_completion: bool) -> str:
    """The position of a completed commit in ranges: its completion time, or its requested time without
    `by_completion`."""
    return (instant.completion_time or instant.time) if by_completion else instant.time


def first_pending(snapshot: Snapshot) -> str | None:
    """The requested time of the first pending commit, None if there is none: on version 6 no range of commits goes
    beyond it."""
    return next(
        (
            i.time
            for i in snapshot.timeline.pending
            if completes_as(i.action) in COMMIT_ACTIONS
            and i.action is not Action.COMPACTION
            and not snapshot.timeline.is_pending_clustering(i)
        ),
        None,
    )


def _bound(snapshot: Snapshot, when: When, name: str) -> str:
    when = named_time(when, lambda: snapshot.timeline, option=name)
    if isinstance(when, str):
        text = when.strip()
        if text.lower() in ("", BEGINNING):
            return ""
        if text.isdigit():
            instant = next((i for i in snapshot.commits if i.time == text), None) or _archived_commit(snapshot, text)
            if instant is not None:
                return position_of(instant, has_completion_times(snapshot.config.version))
            if text.strip("0"):
                check_digits(text, name)
            return text
    return to_instant_time(when, snapshot.config.timezone, option=name)


def _archived_commit(snapshot: Snapshot, time: str) -> Instant | None:
    """The archived commit with this requested time; None if there is none. The archive is read only if it can have one,
    and if the time is not a completion time."""
    start = snapshot.timeline.start
    if start is None or time >= start or not has_completion_times(snapshot.config.version):
        return None
    return next((i for i in snapshot.timeline.archived_commits() if i.time == time), None)


class Changes(Scan):
    """The rows written in (start, end]: each changed row once, as of the last commit in the range, without deletes.

    Columns are those of the table now, as in real Hudi, whatever schema the commits of the range had. Where files or
    commits of the range are missing (cleaned, archived), the rows that the newest snapshot still shows from the range's
    commits are given. `end` is the checkpoint: the `start` of the next read.

    Rows of log files are those that a snapshot shows: a late row that loses against an older one is none. With
    `filter_before_merge` in `reads` it is one, as in real Hudi, where the older one was not written in the range.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        start: When,
        end: When | None = None,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        spark: SparkSession | None = None,
        meta: bool = False,
        reads: ReadSettings | None = None,
    ) -> None:
        if not snapshot.config.populate_meta_fields:
            raise InvalidOption(
                f"table {snapshot.config.name!r} has no meta fields, so its rows do not show which commit wrote them",
                hint="read a snapshot, or compare two as_of reads",
            )
        super().__init__(snapshot, columns, where, "snapshot", spark, meta, reads)
        self._newest = snapshot
        self._start = start
        self._end = end
        self._looked_again = False

    @once
    def range(self) -> CommitRange:
        """The commits that are read, with the start and end of the range."""
        return read_again(self._storage(), lambda: select_commits(self._newest, self._start, self._end), self._renew)

    def _renew(self) -> bool:
        cached_range: CommitRange | None = self.__dict__.pop("range", None)
        if not super()._renew():
            return False
        if cached_range is not None:
            self._end = cached_range.end  # a checkpoint that was given stays
        self._newest = self._snapshot
        self._looked_again = True
        self.__dict__.pop("_view", None)
        return True

    @property
    def start(self) -> str:
        """The checkpoint before these rows; empty for the beginning."""
        return self.range.start

    @property
    def end(self) -> str:
        """The checkpoint after these rows: pass it as `start` to read the rows that follow."""
        return self.range.end

    @once
    def _view(self) -> tuple[Snapshot, tuple[FileSlice, ...], bool]:
        """The view from which the rows are read, its file slices that can have some, and whether it is the view as of
        the last commit."""
        view, slices, is_whole = slices_of_range(self._newest, self.range)
        if self._looked_again and is_whole and self.range.commits:
            latest_paths = {file.path for file_slice in self._newest.file_slices() for file in file_slice.files}
            older = {file.path for file_slice in slices for file in file_slice.files} - latest_paths
            # a cleaner that leaves the metadata table as it was deletes files that it still lists
            if None in parallel_map(view.storage.head, sorted(older)):
                return self._newest, _written_since(self._newest, self.range.commits[0].time), False
        return view, slices, is_whole

    @property
    def reader(self) -> SliceReader:
        view, _, is_whole = self._view
        reader = view.reader
        if not self.reads.filter_before_merge or not is_whole:
            return reader
        return reader.of_instants(frozenset(i.time for i in self.range.commits))

    def _plan(self) -> ScanPlan:
        view, slices, _ = self._view
        predicate = _in_commits(self.parsed_filter(), self.range)
        plan = plan_scan(view, predicate, self._requested(), slices=slices, column_view=self._newest, reads=self.reads)
        return replace(plan, since=min((i.time for i in self.range.commits), default=""))

    @property
    def available(self) -> pa.Schema:
        return read_again(self._storage(), lambda: self._columns_of(self._newest), self._renew)

    def explain(self, files: int = 0) -> Lines:
        commits = self.range
        span = f"({commits.start or 'beginning'}, {commits.end}]"
        _, *lines = super().explain(files).splitlines()
        if self.parsed_filter() is None:  # the condition that the plan shows is that of the range
            lines = [line for line in lines if not line.startswith("  where ")]
        head = (
            f"changes of {self._newest.config.name}: the rows written by {count_text(len(commits.commits), 'commit')}"
        )
        return Lines("\n".join([head, *lines, f"  commits     {len(commits.commits)} in {span}"]))


Groups = Mapping[tuple[str, str], Sequence[tuple[str, str]]]


def slices_of_range(newest: Snapshot, commits: CommitRange) -> tuple[Snapshot, tuple[FileSlice, ...], bool]:
    """The view from which the rows of a range are read, its file slices that can have some, and whether it is the view
    as of the last commit: it is the newest view if files or commits of the range are missing."""
    if not commits.commits:
        return newest, (), True
    first = commits.commits[0].time
    if not commits.archived:
        view = _as_of(newest, commits.last)
        slices = _written_since(view, first)
        groups = _groups_of(view, commits)
        if _all_there(view, groups, slices):
            # a base file that is no older may have got the rows from another group
            newer = (s.base_file is not None and s.base_file.instant >= first for s in slices)
            written = ((s.partition, s.file_id) in groups for s in slices)
            return view, tuple(s for s, *holds in zip(slices, newer, written, strict=True) if any(holds)), True
    return newest, _written_since(newest, first), False


def _as_of(snapshot: Snapshot, instant: str) -> Snapshot:
    return snapshot if snapshot.instant == instant else snapshot.at(instant)


def _written_since(view: Snapshot, first: str) -> tuple[FileSlice, ...]:
    """The slices with a file that is not older than `first`: a row is in a file no older than the commit that wrote
    it."""
    return tuple(
        s for s in view.file_slices() if s.log_files or (s.base_file is not None and s.base_file.instant >= first)
    )


def _groups_of(view: Snapshot, commits: CommitRange) -> Groups:
    """The file groups that the commits wrote, as partition path and file id, each with the paths of the files (empty
    for a delete that emptied the group's file) and the instants of their commits."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for instant, meta in zip(commits.commits, view.timeline.commits_metadata(commits.commits), strict=True):
        for partition, stats in meta.stats.items():
            for stat in stats:
                group = (stat.partition or partition, stat.file_id)
                groups.setdefault(group, []).append((stat.path, instant.time))
    return groups


def _all_there(view: Snapshot, groups: Groups, slices: Sequence[FileSlice]) -> bool:
    """Whether every file group that commits wrote still has its state as of the last of them."""
    going = being_cleaned(view.timeline)
    if going and any(file.path in going for file_slice in slices for file in file_slice.files):
        return False
    instant_of = {(s.partition, s.file_id): s.base_file.instant if s.base_file else s.instant for s in slices}
    logs = {log.path for s in slices for log in s.log_files}
    replaced = {
        group
        for group, instant in view.timeline.replaced_files.items()
        if view.as_of is None or instant.time <= view.as_of
    }
    for group, files in groups.items():
        for path, instant in files:
            if group not in replaced and path and path not in logs and instant_of.get(group, "") < instant:
                return False
    return True


def _in_commits(predicate: Predicate | None, commits: CommitRange) -> Predicate | None:
    column = Column((COMMIT_TIME,), pa.string())
    return combine(predicate, [In(column, tuple(Literal(i.time, pa.string()) for i in commits.commits))])
