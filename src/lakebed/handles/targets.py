"""Where the rows of a group go: to a file group that exists, or to a new one with a name known beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lakebed.format.file_names import new_file_id
from lakebed.model import FileSlice


@dataclass(frozen=True, slots=True)
class Target:
    """A file group to write to; `slice` is its latest file slice, None for a new group. `size_limited`: may grow to the
    maximum file size only, further rows open another file group."""

    file_id: str
    slice: FileSlice | None
    size_limited: bool


class Targets(Protocol):
    def of(self, partition: str, group: int) -> Target: ...


@dataclass(frozen=True, slots=True)
class PlannedTargets:
    """Targets by group number, as the plan laid them out."""

    targets: tuple[Target, ...]

    def of(self, partition: str, group: int) -> Target:
        return self.targets[group]


@dataclass(frozen=True, slots=True)
class HashedTargets:
    """One file group per (partition path, number); a number without one gets it from the instant."""

    instant: str
    existing: dict[tuple[str, int], FileSlice]

    def of(self, partition: str, group: int) -> Target:
        known = self.existing.get((partition, group))
        file_id = known.file_id if known else new_file_id(self.instant, partition, group, bucket=group)
        return Target(file_id, known, size_limited=False)
