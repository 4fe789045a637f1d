"""Which file slices a clustering rewrites together: partition paths, slices, groups of slices."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Literal

from lakebed.model import Action, FileGroupId, FileSlice, Instant
from lakebed.timeline.bodies.plans import ClusteringGroup

PartitionFilter = Literal["NONE", "RECENT_DAYS", "SELECTED_PARTITIONS", "DAY_ROLLING"]
SliceOrder = Literal["SIZE", "INSTANT_TIME"]
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """The partition paths of a clustering: those `selected` by name, otherwise those that the `pattern` matches
    completely, of which the filter selects some. RECENT_DAYS selects `recent_days` of the last ones in the order of
    their names after skipping `skipped_days`, SELECTED_PARTITIONS those from `first` to `last`, DAY_ROLLING every 24th
    from the hour of the day on."""

    selected: Collection[str] = ()
    pattern: str = ""
    filter: PartitionFilter = "NONE"
    recent_days: int = 2
    skipped_days: int = 0
    first: str = ""
    last: str = ""

    def of(self, paths: Iterable[str], now: datetime) -> tuple[list[str], list[str]]:
        """The paths to cluster now, and the paths that the filter leaves to a later clustering, both sorted by name."""
        selected = (path for path in paths if not self.selected or path in self.selected)
        candidates = sorted(path for path in selected if not self.pattern or re.fullmatch(self.pattern, path))
        match self.filter:
            case "RECENT_DAYS":
                newest = candidates[::-1]
                recent = newest[self.skipped_days : self.skipped_days + self.recent_days]
                return sorted(recent), sorted(newest[: self.skipped_days])
            case "SELECTED_PARTITIONS":
                return [p for p in candidates if p >= self.first and (not self.last or p <= self.last)], []
            case "DAY_ROLLING":
                return [path for at, path in enumerate(candidates) if at % 24 == now.hour], []
            case _:
                return candidates, []


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """The rules by which slices are grouped, in bytes. Slices of at least `max_small_file_size` are not rewritten. A
    group has up to `group_bytes`, for files of about `file_bytes` each; a slice without a base file counts as
    `new_file_bytes`. A group that would make one file of one base file is left out without `singles`. With
    `single_file` each slice is a group. A clustering has at most `max_groups`."""

    max_small_file_size: int = 300 * _MIB
    group_bytes: int = 2048 * _MIB
    file_bytes: int = 1024 * _MIB
    max_groups: int = 30
    order: SliceOrder = "SIZE"
    singles: bool = True
    single_file: bool = False
    new_file_bytes: int = 120 * _MIB

    def groups(
        self, slices: Iterable[FileSlice], busy: Collection[FileGroupId] = frozenset()
    ) -> tuple[list[ClusteringGroup], list[str]]:
        """The groups of a clustering, and the partition paths of groups beyond the limit; `slices` are ordered by
        partition path, `busy` are file groups of pending plans."""
        groups: list[ClusteringGroup] = []
        left: list[str] = []
        for partition, partition_slices in groupby(slices, key=lambda file_slice: file_slice.partition):
            free = [
                file_slice
                for file_slice in partition_slices
                if (file_slice.partition, file_slice.file_id) not in busy and self._is_small(file_slice)
            ]
            for group in self._of_partition(free):
                if len(groups) < self.max_groups:
                    groups.append(group)
                elif partition not in left:
                    left.append(partition)
        return groups, left

    def _is_small(self, file_slice: FileSlice) -> bool:
        return file_slice.base_file is None or file_slice.base_file.size < self.max_small_file_size

    def _of_partition(self, slices: Sequence[FileSlice]) -> Iterator[ClusteringGroup]:
        if self.order == "INSTANT_TIME":
            ordered = sorted(slices, key=lambda file_slice: file_slice.instant)
        else:
            ordered = sorted(slices, key=lambda file_slice: -self._bytes(file_slice))
        if self.single_file:
            yield from (ClusteringGroup((file_slice,)) for file_slice in ordered)
            return
        together: list[FileSlice] = []
        for file_slice in ordered:
            if together and sum(map(self._bytes, together)) + self._bytes(file_slice) > self.group_bytes:
                yield from self._group(together)
                together = []
            together.append(file_slice)
        yield from self._group(together)

    def _group(self, slices: Sequence[FileSlice]) -> Iterator[ClusteringGroup]:
        outputs = max(1, -(-sum(map(self._bytes, slices)) // self.file_bytes))
        is_single = len(slices) == 1 and outputs == 1 and not slices[0].log_files
        if slices and (self.singles or not is_single):
            yield ClusteringGroup(tuple(slices), outputs)

    def _bytes(self, file_slice: FileSlice) -> int:
        return file_slice.base_file.size if file_slice.base_file else self.new_file_bytes


def commits_since_clustering(instants: Iterable[Instant], clusterings: Collection[str]) -> int:
    """The number of writes that have completed since the last clustering, pending clusterings included; `clusterings`
    are the requested times of all."""
    last = max(clusterings, default="")
    writes = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)
    return sum(1 for i in instants if i.is_completed and i.action in writes and i.time > last)


def replaced_ids(groups: Iterable[FileGroupId]) -> Mapping[str, tuple[str, ...]]:
    """The file ids by partition path."""
    ordered = sorted(groups)
    return {
        path: tuple(file_id for _, file_id in path_groups)
        for path, path_groups in groupby(ordered, key=lambda group: group[0])
    }
