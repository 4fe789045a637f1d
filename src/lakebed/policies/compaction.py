"""Whether a compaction is due, and which file slices a compaction or a log compaction merges."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from lakebed.model import Action, FileGroupId, FileSlice, Instant
from lakebed.timeline.listed import completed_at
from lakebed.timeline.service_plans import CompactionCost, CompactionPlan

CompactionStrategy = Callable[[Sequence[FileSlice]], Sequence[FileSlice]]
"""Which of the slices with log files are merged now, in which order."""


def last_compaction(commits: Sequence[Instant]) -> Instant | None:
    """The last completed compaction of a merge-on-read table: its only instants that complete as a commit."""
    return next((i for i in reversed(commits) if i.action is Action.COMMIT), None)


def delta_commits_since_compaction(commits: Sequence[Instant]) -> int:
    """How many delta commits completed since the last completed compaction was requested, all without one."""
    last = last_compaction(commits)
    return sum(1 for i in commits if i.action is Action.DELTACOMMIT and (last is None or completed_at(i) > last.time))


def unbounded(slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
    """The strategy that merges all of them."""
    return slices


def most_log_bytes(*, at_least: int = 0, target_megabytes: int = 512_000) -> CompactionStrategy:
    """The strategy that takes slices with the most bytes in log files first, as long as there is something left of
    `target_megabytes` to read and write: the first goes in though it be larger."""

    def chosen(slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
        costs = [(CompactionCost.of(file_slice), file_slice) for file_slice in slices]
        costs = [entry for entry in costs if entry[0].log_bytes >= at_least]
        taken: list[FileSlice] = []
        left = target_megabytes
        for cost, file_slice in sorted(costs, key=lambda entry: -entry[0].log_bytes):
            if left <= 0:
                break
            taken.append(file_slice)
            left -= cost.megabytes
        return taken

    return chosen


def plan_compaction(
    slices: Iterable[FileSlice],
    *,
    busy: Collection[FileGroupId] = frozenset(),
    strategy: CompactionStrategy = unbounded,
) -> CompactionPlan:
    """The compaction of those of the latest slices that have log files. File groups that are `busy`, in a pending
    compaction or clustering, are left out; the partition paths of these and of what the strategy leaves are `missing`
    in the plan."""
    logged = [file_slice for file_slice in slices if file_slice.log_files]
    free = [file_slice for file_slice in logged if (file_slice.partition, file_slice.file_id) not in busy]
    taken = tuple(strategy(free))
    groups = {(file_slice.partition, file_slice.file_id) for file_slice in taken}
    left = {s.partition for s in logged if (s.partition, s.file_id) not in groups}
    return CompactionPlan(taken, tuple(sorted(left)))


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
