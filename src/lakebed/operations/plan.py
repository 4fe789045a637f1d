"""What a write is about to do, as an object that prints, with the predicted cost of finding its keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakebed.engine.base import GROUP, Rows
from lakebed.handles.append import has_partial_blocks
from lakebed.index.base import Hashed, KeyLookup, Numbered
from lakebed.index.costs import Batch, TaggingCosts
from lakebed.metadata_kinds.record_index import data_partition_of
from lakebed.model import PARTITION_PATH, RECORD_INDEX, Action, FileSlice
from lakebed.operations.assign import Assignment
from lakebed.operations.context import WriteContext
from lakebed.operations.growth import Growth
from lakebed.slices.row_size import of_stored
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.timeline import Timeline
from lakebed.wording import Printed, count_text


def tagging_costs(
    context: WriteContext, snapshot: Snapshot, keys: int, partitions: Collection[str]
) -> TaggingCosts | None:
    """The cost of looking up `keys` keys of rows in these partition paths; None for a table without base files.

    A global index finds a key wherever it is, so it is compared with the global simple one; the others look into these
    partition paths alone.
    """
    index = context.index
    everywhere = index.is_global
    files = snapshot.base_files() if everywhere else snapshot.base_files(set(partitions) & set(snapshot.partitions()))
    if not snapshot.commits or not files:
        return None
    rows = round(sum(file.size for file in files) / of_stored(snapshot))
    batch = Batch(keys, len(files), rows, **_of_index(snapshot, None if everywhere else partitions))
    return TaggingCosts.of(index.name, batch, simple="global_simple" if everywhere else "simple")


def _of_index(snapshot: Snapshot, partitions: Collection[str] | None) -> dict[str, Any]:
    """The shards, files and bytes of the record index, if the table has one that covers these partition paths;
    otherwise empty."""
    metadata = snapshot.metadata
    if metadata is None or not metadata.has(RECORD_INDEX):
        return {}
    slices = [
        s
        for s in metadata.slices.file_slices(RECORD_INDEX)
        if (path := data_partition_of(s.file_id)) is None or partitions is None or path in partitions
    ]
    sizes = [f.size for s in slices for f in (*([s.base_file] if s.base_file else []), *s.log_files)]
    if not sizes:
        return {}
    return {"shards": len(slices), "index_files": len(sizes), "index_bytes": sum(sizes)}


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file group of a write. `updates` and `inserts` are None if they are known only when the write runs. Rows for
    a file group that `appends` are written to its log files."""

    partition: str
    file_id: str | None
    rows: int
    updates: int | None
    inserts: int | None
    bytes_rewritten: int
    appends: bool = False


@dataclass(frozen=True, repr=False)
class WritePlan(Printed):
    """The plan of a write: index, file groups, rows, bytes of base files that will be rewritten. `tagging` is the cost
    of finding the keys (None: there are no stored keys yet), `waiting` the planned services, `schema_changes` the
    columns of the table that are new or change, `bucket_changes` the partition paths that get more buckets, `lookup`
    the index's search for the keys, and `twice` the number of rows that count in two file groups."""

    operation: str
    index: str
    engine: str
    files: tuple[PlannedFile, ...]
    note: str = ""
    tagging: TaggingCosts | None = None
    waiting: tuple[str, ...] = ()
    schema_changes: tuple[str, ...] = ()
    bucket_changes: tuple[str, ...] = ()
    lookup: KeyLookup | None = None
    twice: int = 0

    @property
    def rows(self) -> int:
        """The number of incoming rows. A row that leaves its partition path, or is also written to a file group of a
        pending resize, counts in two file groups."""
        return sum(f.rows for f in self.files) - self.twice

    @property
    def rewritten(self) -> int:
        """The number of file groups that have a base file which will be rewritten."""
        return sum(1 for f in self.files if f.bytes_rewritten)

    def touched(self) -> set[tuple[str, str]]:
        """The existing file groups that the write changes."""
        changed = (f for f in self.files if f.bytes_rewritten or f.appends)
        return {(f.partition, f.file_id) for f in changed if f.file_id is not None}

    @property
    def appended(self) -> int:
        """The number of file groups whose rows are written to log files."""
        return sum(1 for f in self.files if f.appends)

    def to_dict(self) -> dict[str, Any]:
        return {
            "operation": self.operation,
            "index": self.index,
            "engine": self.engine,
            "rows": self.rows,
            "file_groups": len(self.files),
            "file_groups_rewritten": self.rewritten,
            "file_groups_appended": self.appended,
            "bytes_rewritten": sum(f.bytes_rewritten for f in self.files),
            "note": self.note,
            "waiting": list(self.waiting),
            "schema_changes": list(self.schema_changes),
            "bucket_changes": list(self.bucket_changes),
            "tagging_seconds": dict(self.tagging.seconds) if self.tagging else {},
            "lookup": self.lookup.to_dict() if self.lookup else None,
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
            f"{self.operation.lower()} of {count_text(self.rows, 'row')} on the {self.engine} engine",
            f"  index: {self.index}",
            f"  file groups: {len(self.files)}, {self.rewritten} of them rewritten ({size:.1f} MiB of base files)"
            + (f", {self.appended} appended to" if self.appended else ""),
        ]
        if self.lookup is not None and self.lookup.files:
            lines.append(f"  {self.lookup}")
        if self.note:
            lines.append(f"  {self.note}")
        lines += [f"  {line}" for line in (self.tagging.lines() if self.tagging else ())]
        for f in self.files[:10]:
            split = "" if f.updates is None else f" ({f.updates:,} updates, {f.inserts:,} inserts)"
            where = f.partition or "(no partition)"
            kind = "append" if f.appends else "rewrite" if f.bytes_rewritten else "new"
            lines.append(f"    {where} {f.file_id or '-'} {kind}: {count_text(f.rows, 'row')}{split}")
        if len(self.files) > 10:
            lines.append(f"    ... and {len(self.files) - 10} more")
        lines += [f"  {line}" for line in (*self.schema_changes, *self.bucket_changes, *self.waiting)]
        return "\n".join(lines)


def waiting_services(timeline: Timeline) -> tuple[str, ...]:
    """A line of text about each pending compaction and log compaction, with its number of file slices."""
    kinds = (Action.COMPACTION, Action.LOGCOMPACTION)
    planned = [i for i in timeline.pending if i.action in kinds]
    counts = (len(timeline.plan(i).get("operations") or ()) for i in planned)
    return tuple(
        f"{i.action} {i.time} of {count_text(n, 'file slice')} is pending" for i, n in zip(planned, counts, strict=True)
    )


def plan_of_assignment(
    context: WriteContext,
    snapshot: Snapshot,
    assignment: Assignment,
    operation: str,
    lookup: KeyLookup | None = None,
) -> WritePlan:
    appends = snapshot.config.table_type == "mor"
    hashing = context.index.hashing
    blind = hashing is not None and hashing.key_hash is None  # which rows are new is not looked up
    files = tuple(
        PlannedFile(
            g.partition,
            g.target.file_id,
            g.updates + g.inserts,
            None if blind else g.updates,
            None if blind else g.inserts,
            0 if appends and not g.target.rewrites else _base_bytes(g.target.slice),
            appends and not g.target.rewrites and g.target.slice is not None,
        )
        for g in assignment.groups
    )
    tagging = tagging_costs(context, snapshot, sum(f.rows for f in files), {f.partition for f in files})
    note = context.engine.note
    index = context.index.explain_for(snapshot)
    return WritePlan(operation, index, context.engine.name, files, note, tagging, lookup=lookup)


def plan_of_hashed(
    context: WriteContext, snapshot: Snapshot, prepared: Rows, hashed: Hashed, operation: str
) -> WritePlan:
    """The plan of a write with rows counted by file group; which of them are updates is known only when the file is
    merged."""
    counted = context.engine.aggregate(prepared, [PARTITION_PATH, GROUP])
    appends = snapshot.config.table_type == "mor"
    if hashed.several is None:
        files = tuple(_hashed_files(counted.to_pylist(), hashed.existing, appends=appends))
        explanation = "file groups are found while the write runs; no data file is read to tag"
    else:
        files = tuple(_files_of_buckets(counted.to_pylist(), hashed.several, appends=appends))
        explanation = (
            "the task that has a bucket's rows looks their keys up among its file groups, of which all are shown"
        )
    note = _notes(explanation, context.engine.note)
    rows = sum(f.rows for f in files)
    tagging = tagging_costs(context, snapshot, rows, {f.partition for f in files})
    lookup = KeyLookup(keys=rows, by_hash=True) if hashed.several is None else None
    return WritePlan(operation, context.index.explain(), context.engine.name, files, note, tagging, lookup=lookup)


def plan_of_numbered(context: WriteContext, snapshot: Snapshot, numbered: Numbered, operation: str) -> WritePlan:
    """The plan of a write with rows counted by file group; which of them are updates is not looked up."""
    counted = context.engine.aggregate(numbered.rows, [PARTITION_PATH, GROUP]).to_pylist()
    files: list[PlannedFile] = []
    twice = 0
    for row in sorted(counted, key=lambda r: (r[PARTITION_PATH] or "", r[GROUP])):
        group = (row[PARTITION_PATH], row[GROUP])
        twice += row["rows"] if group in numbered.parents else 0
        file_id, is_known = numbered.names.file_id(*group), group in numbered.existing
        files.append(PlannedFile(group[0], file_id, row["rows"], None, None, 0, is_known))
    rows = sum(f.rows for f in files)
    tagging = tagging_costs(context, snapshot, rows, {f.partition for f in files})
    index, engine = context.index.explain_for(snapshot), context.engine
    lookup = KeyLookup(keys=rows - twice, by_hash=True)
    return WritePlan(operation, index, engine.name, tuple(files), engine.note, tagging, lookup=lookup, twice=twice)


def plan_of_tasks(context: WriteContext, operation: str) -> WritePlan:
    """The plan of a write whose tasks open new file groups; the number of these file groups is known only after the
    write."""
    note = _notes("every task writes its rows to new file groups; no key is looked up", context.engine.note)
    return WritePlan(operation, context.index.explain(), context.engine.name, (), note)


def with_absent(plan: WritePlan, context: WriteContext, absent: Sequence[str]) -> WritePlan:
    """The plan with a note about the columns that the rows do not have."""
    if not absent:
        return plan
    listed = ", ".join(absent[:5]) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
    if context.rules.partial == "IGNORE_DEFAULTS":
        how = "they get nulls"
    elif context.config.table_type == "mor" and has_partial_blocks(context.config.version, context.rules, absent):
        how = "log blocks hold the given columns only"
    else:
        how = "stored rows are read to fill them in"
    return replace(plan, note=_notes(f"partial rows without {listed}: known keys keep them, {how}", plan.note))


def with_splits(plan: WritePlan, growth: Growth, snapshot: Snapshot) -> WritePlan:
    """The plan of a write that splits buckets: all base files of their partition paths are rewritten, also those of
    buckets without incoming rows."""
    slices = {
        (file_slice.partition, file_slice.file_id): file_slice
        for file_slice in snapshot.file_slices(sorted(growth.splits))
    }
    rows = {(f.partition, f.file_id): f.rows for f in plan.files}
    files = [f for f in plan.files if (f.partition, f.file_id) not in slices]
    files += [
        PlannedFile(*group, rows.get(group, 0), None, None, _base_bytes(file_slice))
        for group, file_slice in slices.items()
    ]
    files.sort(key=lambda f: (f.partition, f.file_id or ""))
    return replace(plan, files=tuple(files), bucket_changes=growth.lines)


def _notes(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _hashed_files(
    counted: Iterable[dict[str, Any]], existing: Mapping[tuple[str, int], FileSlice], *, appends: bool
) -> Iterable[PlannedFile]:
    for row in sorted(counted, key=lambda r: (r[PARTITION_PATH] or "", r[GROUP] or 0)):
        file_slice = existing.get((row[PARTITION_PATH], row[GROUP]))
        file_id = file_slice.file_id if file_slice else None
        rewritten = 0 if appends else _base_bytes(file_slice)
        yield PlannedFile(
            row[PARTITION_PATH], file_id, row["rows"], None, None, rewritten, appends and file_slice is not None
        )


def _files_of_buckets(
    counted: Iterable[dict[str, Any]], several: Mapping[tuple[str, int], Sequence[FileSlice]], *, appends: bool
) -> Iterable[PlannedFile]:
    """All file groups of the buckets of the rows; the ones that get rows are known only when the keys are looked up."""
    for row in sorted(counted, key=lambda r: (r[PARTITION_PATH] or "", r[GROUP] or 0)):
        rows = row["rows"]
        for file_slice in several.get((row[PARTITION_PATH], row[GROUP]), ()):
            rewritten = 0 if appends else _base_bytes(file_slice)
            yield PlannedFile(row[PARTITION_PATH], file_slice.file_id, rows, None, None, rewritten, appends)
            rows = 0
        if rows:
            yield PlannedFile(row[PARTITION_PATH], None, rows, None, None, 0)


def _base_bytes(file_slice: FileSlice | None) -> int:
    return file_slice.base_file.size if file_slice is not None and file_slice.base_file is not None else 0
