"""What a compaction gives back: which slices were merged, into what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.handles.compact import Compacted
from lakebed.timeline.bodies.plans import CompactionPlan
from lakebed.wording import count_text, size_text


@dataclass(frozen=True, slots=True)
class CompactedSlice:
    """One file group of a run: how many log files and records went into `file`, and what became of its rows."""

    partition: str
    file_id: str
    file: str
    bytes: int
    rows: int
    updated: int
    inserted: int
    deleted: int
    log_files: int
    log_records: int
    log_bytes: int

    @classmethod
    def of(cls, done: Compacted) -> CompactedSlice:
        status, totals = done.status, done.totals
        return cls(
            status.partition,
            status.file_id,
            status.path or "",
            status.file_size,
            status.num_writes,
            status.num_updates,
            status.num_inserts,
            status.num_deletes,
            totals.get("totalLogFilesCompacted", 0),
            totals.get("totalLogRecords", 0),
            totals.get("totalLogSizeCompacted", 0),
        )


@dataclass(frozen=True)
class CompactionRun:
    """One plan that was run. `checkpoint` is when it completed."""

    instant: str
    checkpoint: str
    operation: str
    slices: tuple[CompactedSlice, ...]
    seconds: float = 0.0
    rolled_back: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the files that were written."""
        return sum(s.rows for s in self.slices)

    @property
    def log_files(self) -> int:
        return sum(s.log_files for s in self.slices)

    @property
    def log_records(self) -> int:
        return sum(s.log_records for s in self.slices)

    @property
    def bytes(self) -> int:
        """Bytes of the files that were written."""
        return sum(s.bytes for s in self.slices)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "instant": self.instant,
            "checkpoint": self.checkpoint,
            "operation": self.operation,
            "file_groups": len(self.slices),
            "log_files": self.log_files,
            "log_records": self.log_records,
            "rows": self.rows,
            "updated": sum(s.updated for s in self.slices),
            "inserted": sum(s.inserted for s in self.slices),
            "deleted": sum(s.deleted for s in self.slices),
            "bytes": self.bytes,
            "files": [s.file for s in self.slices],
            "seconds": round(self.seconds, 4),
            "rolled_back": list(self.rolled_back),
        }

    def __str__(self) -> str:
        done = self.to_dict()
        counts = ", ".join(f"{done[word]:,} {word}" for word in ("updated", "inserted", "deleted") if done[word])
        return (
            f"{self.operation} {self.instant}: {count_text(self.log_files, 'log file')} with"
            f" {count_text(self.log_records, 'record')} of {count_text(len(self.slices), 'file group')} merged into"
            f" {size_text(self.bytes)}, {count_text(self.rows, 'row')}"
            f" ({counts or 'none changed'}, {self.seconds:.2f} s)"
        )

    __repr__ = __str__


@dataclass(frozen=True)
class CompactionResult:
    """What `compact` did: the plans that were `runs`, the `plan` that was only made and its instant, and in `notes` why
    something was not done."""

    runs: tuple[CompactionRun, ...] = ()
    plan: CompactionPlan | None = None
    planned: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def instants(self) -> tuple[str, ...]:
        """Of the plans that were run."""
        return tuple(run.instant for run in self.runs)

    @property
    def slices(self) -> Sequence[CompactedSlice]:
        """All slices that were merged."""
        return [one for run in self.runs for one in run.slices]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        planned = None
        if self.plan is not None:
            planned = {
                "instant": self.planned,
                "file_groups": len(self.plan.slices),
                "log_files": sum(len(s.log_files) for s in self.plan.slices),
                "log_bytes": sum(log.size for s in self.plan.slices for log in s.log_files),
            }
        return {"runs": [run.to_dict() for run in self.runs], "planned": planned, "notes": list(self.notes)}

    def __str__(self) -> str:
        lines = [str(run) for run in self.runs]
        if self.plan is not None:
            lines.append(f"planned {self.planned}: {self.plan}" if self.planned else f"to be done: {self.plan}")
        return "\n".join([*lines, *self.notes]) or "nothing to compact"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{self}</pre>"
