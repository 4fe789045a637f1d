"""What a clean gives back: which files went, and from when on views of the past are whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.timeline.bodies.plans import CleanPlan
from lakebed.wording import count_text


@dataclass(frozen=True, slots=True)
class CleanRun:
    """One plan that was carried out: the names of the `files` by partition path, the partition paths that are gone, and
    the first commit that was kept whole (empty where versions are). `checkpoint` is when it completed."""

    instant: str
    checkpoint: str
    files: Mapping[str, Sequence[str]]
    partitions: tuple[str, ...] = ()
    earliest: str = ""
    seconds: float = 0.0
    rolled_back: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Files that were deleted."""
        return sum(map(len, self.files.values()))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "instant": self.instant,
            "checkpoint": self.checkpoint,
            "files": self.count,
            "partitions": len(self.files),
            "deleted_partitions": list(self.partitions),
            "earliest_kept": self.earliest,
            "seconds": round(self.seconds, 4),
            "rolled_back": list(self.rolled_back),
        }

    def __str__(self) -> str:
        gone = f", {count_text(len(self.partitions), 'partition')} deleted" if self.partitions else ""
        kept = f", what {self.earliest} and later commits see is kept" if self.earliest else ""
        return (
            f"clean {self.instant}: {count_text(self.count, 'file')} in {count_text(len(self.files), 'partition')}"
            f" deleted{gone}{kept} ({self.seconds:.2f} s)"
        )

    __repr__ = __str__


@dataclass(frozen=True)
class CleanResult:
    """What `clean` did: the plans that were `runs`, the `plan` that was only made and its instant (None where it was
    only shown), and in `notes` why something was not done."""

    runs: tuple[CleanRun, ...] = ()
    plan: CleanPlan | None = None
    planned: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def instants(self) -> tuple[str, ...]:
        """Of the plans that were carried out."""
        return tuple(run.instant for run in self.runs)

    @property
    def files(self) -> int:
        """Files that were deleted."""
        return sum(run.count for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        planned = None
        if self.plan is not None:
            planned = {
                "instant": self.planned,
                "files": {partition: list(names) for partition, names in self.plan.files.items()},
                "deleted_partitions": list(self.plan.partitions),
                "earliest_kept": self.plan.earliest.time if self.plan.earliest else "",
                "policy": self.plan.policy.value,
            }
        return {"runs": [run.to_dict() for run in self.runs], "planned": planned, "notes": list(self.notes)}

    def __str__(self) -> str:
        lines = [str(run) for run in self.runs]
        if self.plan is not None:
            lines.append(f"planned {self.planned}: {self.plan}" if self.planned else f"would be a {self.plan}")
        return "\n".join([*lines, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{self}</pre>"
