"""What a clustering gives back: how many file slices became which files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakebed.timeline.bodies.plans import ClusteringPlan
from lakebed.wording import count_text, size_text


@dataclass(frozen=True)
class ClusteringRun:
    """One plan that was run. `checkpoint` is when it completed, `slices` are those that were read, `files` those that
    were written, with `rows` in `bytes`."""

    instant: str
    checkpoint: str
    slices: int
    files: tuple[str, ...]
    rows: int
    bytes: int
    seconds: float = 0.0
    rolled_back: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "instant": self.instant,
            "checkpoint": self.checkpoint,
            "slices": self.slices,
            "files": list(self.files),
            "rows": self.rows,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 4),
            "rolled_back": list(self.rolled_back),
        }

    def __str__(self) -> str:
        return (
            f"cluster {self.instant}: {count_text(self.slices, 'file slice')} became"
            f" {count_text(len(self.files), 'file')} of {size_text(self.bytes)}, {count_text(self.rows, 'row')}"
            f" ({self.seconds:.2f} s)"
        )

    __repr__ = __str__


@dataclass(frozen=True)
class ClusteringResult:
    """What `cluster` did: the plans that were `runs`, the `plan` that was only made and its instant, and in `notes` why
    something was not done."""

    runs: tuple[ClusteringRun, ...] = ()
    plan: ClusteringPlan | None = None
    planned: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def instants(self) -> tuple[str, ...]:
        """Of the plans that were run."""
        return tuple(run.instant for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        planned = None
        if self.plan is not None:
            slices = [one for group in self.plan.groups for one in group.slices]
            planned = {
                "instant": self.planned,
                "groups": len(self.plan.groups),
                "slices": len(slices),
                "bytes": sum(one.size for one in slices),
                "files": sum(group.outputs for group in self.plan.groups),
                "sort_columns": list(self.plan.sort_columns),
                "layout": self.plan.layout,
            }
        return {"runs": [run.to_dict() for run in self.runs], "planned": planned, "notes": list(self.notes)}

    def __str__(self) -> str:
        lines = [str(run) for run in self.runs]
        if self.plan is not None:
            lines.append(f"planned {self.planned}: {self.plan}" if self.planned else f"to be done: {self.plan}")
        return "\n".join([*lines, *self.notes]) or "nothing to cluster"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{self}</pre>"
