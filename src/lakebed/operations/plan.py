"""What a write is about to do, as an object that prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakebed.engine.base import Rows
from lakebed.engine.groups import GROUP
from lakebed.index.base import Hashed
from lakebed.index.costs import TaggingCosts
from lakebed.model import PARTITION_PATH, FileSlice
from lakebed.operations.assign import Assignment
from lakebed.operations.context import WriteContext
from lakebed.operations.tagging_costs import tagging_costs
from lakebed.slices.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file group of a write. `updates` and `inserts` are None where the split is known only when it runs."""

    partition: str
    file_id: str | None
    rows: int
    updates: int | None
    inserts: int | None
    bytes_rewritten: int


@dataclass(frozen=True)
class WritePlan:
    """The plan of a write: index, file groups, rows, bytes of base files that will be rewritten; `tagging` says what
    finding the keys costs (None: there is nothing to look through yet)."""

    operation: str
    index: str
    engine: str
    files: tuple[PlannedFile, ...]
    note: str = ""
    tagging: TaggingCosts | None = None

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    @property
    def rewritten(self) -> int:
        """File groups that have a base file which will be rewritten."""
        return sum(1 for f in self.files if f.bytes_rewritten)

    def touched(self) -> set[tuple[str, str]]:
        return {(f.partition, f.file_id) for f in self.files if f.file_id is not None and f.bytes_rewritten}

    def to_dict(self) -> dict[str, Any]:
        return {
            "operation": self.operation,
            "index": self.index,
            "engine": self.engine,
            "rows": self.rows,
            "file_groups": len(self.files),
            "file_groups_rewritten": self.rewritten,
            "bytes_rewritten": sum(f.bytes_rewritten for f in self.files),
            "note": self.note,
            "tagging_seconds": dict(self.tagging.seconds) if self.tagging else {},
            "cheaper_index": self.tagging.cheaper if self.tagging else None,
            "files": [
                {
                    "partition": f.partition,
                    "file_id": f.file_id,
                    "rows": f.rows,
                    "updates": f.updates,
                    "inserts": f.inserts,
                    "bytes_rewritten": f.bytes_rewritten,
                }
                for f in self.files
            ],
        }

    def __str__(self) -> str:
        size = sum(f.bytes_rewritten for f in self.files) / (1 << 20)
        lines = [
            f"{self.operation.lower()} of {self.rows:,} rows on the {self.engine} engine",
            f"  index: {self.index}",
            f"  file groups: {len(self.files)}, {self.rewritten} of them rewritten ({size:.1f} MiB of base files)",
        ]
        if self.note:
            lines.append(f"  {self.note}")
        lines += [f"  {line}" for line in (self.tagging.lines() if self.tagging else ())]
        for f in self.files[:10]:
            split = "" if f.updates is None else f" ({f.updates:,} updates, {f.inserts:,} inserts)"
            where = f.partition or "(no partition)"
            kind = "rewrite" if f.bytes_rewritten else "new"
            lines.append(f"    {where} {f.file_id or '-'} {kind}: {f.rows:,} rows{split}")
        if len(self.files) > 10:
            lines.append(f"    ... and {len(self.files) - 10} more")
        return "\n".join(lines)

    __repr__ = __str__


def plan_of_assignment(context: WriteContext, snapshot: Snapshot, assignment: Assignment, operation: str) -> WritePlan:
    files = tuple(
        PlannedFile(
            g.partition,
            g.target.file_id,
            g.updates + g.inserts,
            g.updates,
            g.inserts,
            _base_bytes(g.target.slice),
        )
        for g in assignment.groups
    )
    tagging = tagging_costs(context, snapshot, sum(f.rows for f in files), {f.partition for f in files})
    return WritePlan(operation, context.index.explain(), context.engine.name, files, tagging=tagging)


def plan_of_hashed(
    context: WriteContext, snapshot: Snapshot, prepared: Rows, hashed: Hashed, operation: str
) -> WritePlan:
    """Rows counted by file group; which of them are updates shows only when the file is merged."""
    counted = context.engine.aggregate(prepared, [PARTITION_PATH, GROUP])
    files = tuple(_hashed_files(counted.to_pylist(), hashed.existing))
    note = "file groups are found while the write runs; no data file is read to tag"
    tagging = tagging_costs(context, snapshot, sum(f.rows for f in files), {f.partition for f in files})
    return WritePlan(operation, context.index.explain(), context.engine.name, files, note, tagging)


def plan_of_tasks(context: WriteContext, operation: str) -> WritePlan:
    """Every task opens file groups of its own: how many is known when it has run."""
    note = "every task writes its rows to new file groups; no key is looked up"
    return WritePlan(operation, context.index.explain(), context.engine.name, (), note)


def _hashed_files(
    counted: Iterable[dict[str, Any]], existing: Mapping[tuple[str, int], FileSlice]
) -> Iterable[PlannedFile]:
    for row in sorted(counted, key=lambda r: (r[PARTITION_PATH] or "", r[GROUP] or 0)):
        known = existing.get((row[PARTITION_PATH], row[GROUP]))
        file_id = known.file_id if known else None
        yield PlannedFile(row[PARTITION_PATH], file_id, row["rows"], None, None, _base_bytes(known))


def _base_bytes(file_slice: FileSlice | None) -> int:
    return file_slice.base_file.size if file_slice is not None and file_slice.base_file is not None else 0
