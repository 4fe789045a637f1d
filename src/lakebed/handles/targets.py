"""Where the rows of a group go: to a file group that exists, or to a new one with a name known beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lakebed.format.file_names import new_file_id
from lakebed.model import BaseFile


@dataclass(frozen=True, slots=True)
class Target:
    """A file group to write to; `base` is its latest base file, None for a new group. `size_limited`: may grow to the
    maximum file size only, further rows open another file group."""

    file_id: str
    base: BaseFile | None
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
    existing: dict[tuple[str, int], BaseFile]

    def of(self, partition: str, group: int) -> Target:
        base = self.existing.get((partition, group))
        file_id = base.file_id if base else new_file_id(self.instant, partition, group, bucket=group)
        return Target(file_id, base, size_limited=False)
