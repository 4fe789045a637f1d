"""Compaction: the log files of a merge-on-read table are merged into new base files, by plans on the timeline.

The plan decides whether a compaction is due and which file slices it takes, with the reason if it takes none. It is
made under the table lock and run outside it, by this process or another, while writes go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from lakebed.concurrency.conflicts import COMPACT_OPERATION
from lakebed.config.features import check_write
from lakebed.config.options import compaction_settings
from lakebed.config.settings import CompactionSettings
from lakebed.engine.base import GroupFunction, Task
from lakebed.errors import CommitConflict, CorruptFile, InvalidOption
from lakebed.handles.compact import COMPACTED_SCHEMA, Compacted, SliceCompactor, compacted, operation_rows
from lakebed.model import WRITER_ID, Action, CommitMetadata, FileGroupId, FileSlice, Instant, has_completion_times
from lakebed.operations.context import WriteContext, file_format
from lakebed.policies.compaction import (
    CompactionTrigger,
    Selection,
    StrategyName,
    TriggerName,
    changed_partitions,
    last_compaction,
    plan_compaction,
)
from lakebed.services.service import Advance, ServiceTransaction, progress
from lakebed.slices.snapshot import Snapshot, table_features
from lakebed.timeline.bodies.commit import commit_from_record
from lakebed.timeline.bodies.plans import (
    CompactionOperation,
    CompactionPlan,
    compaction_operations,
    encode_compaction_plan,
)
from lakebed.timeline.instants import InstantClock, parse_time
from lakebed.timeline.timeline import COMMITS, Timeline
from lakebed.wording import count_text, size_text
from lakebed.write_status import checked_statuses


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


@dataclass(frozen=True)
class Scheduled:
    """A plan that was put on the timeline, or why none was."""

    instant: str | None
    plan: CompactionPlan | None
    why: str = ""


def schedule_compaction(context: WriteContext, settings: CompactionSettings, *, when_due: bool) -> Scheduled:
    """Plan a compaction of what has log files; with `when_due` only if the trigger fires."""
    return schedule(context, Action.COMPACTION, COMPACT_OPERATION, CompactionPlanner(settings, when_due))


def schedule(context: WriteContext, action: Action, operation: str, planner: Planner) -> Scheduled:
    """Put a plan of this service on the timeline, where there is something to do."""

    def body(snapshot: Snapshot, instant: str) -> bytes | None:
        found = planner.plan(snapshot, instant)
        if isinstance(found, str):
            planner.why = found
            return None
        planner.made = found
        return encode_compaction_plan(found)

    with ServiceTransaction(context, action, operation) as tx:
        instant = tx.plan(body)
    return Scheduled(instant, planner.made if instant else None, planner.why)


def preview(context: WriteContext, action: Action, planner: Planner) -> CompactionResult:
    """What the planner would plan, and what waits; nothing is written."""
    timeline = context.opened.timeline
    notes = [f"{action} {i.time} waits to be run" for i in timeline.pending if i.action is action]
    instant = InstantClock(context.config.timezone).next(after=timeline.greatest_time)
    found = planner.plan(context.opened, instant)
    if isinstance(found, str):
        return CompactionResult(notes=(*notes, found))
    return CompactionResult(plan=found, notes=tuple(notes))


class Planner:
    """Makes a plan, or gives the reason why there is none."""

    def __init__(self, settings: CompactionSettings, when_due: bool) -> None:
        self.settings = settings
        self.when_due = when_due
        self.made: CompactionPlan | None = None
        self.why = ""

    def plan(self, snapshot: Snapshot, instant: str) -> CompactionPlan | str:
        raise NotImplementedError


class CompactionPlanner(Planner):
    def plan(self, snapshot: Snapshot, instant: str) -> CompactionPlan | str:
        settings, timeline, config = self.settings, snapshot.timeline, snapshot.config
        if not has_completion_times(config.version):
            waiting = next((i for i in timeline.pending if i.action in COMMITS), None)
            if waiting is not None:
                # its log blocks are in files of the slices that would be merged
                return f"no compaction was planned: {waiting.action} {waiting.time} is pending"
        if self.when_due:
            verdict = trigger_of(settings).verdict(timeline.instants, instant, config.timezone)
            if not verdict.is_due:
                return f"no compaction is due: {verdict.why}"
        selection = selection_of(settings)
        known = self._partitions(snapshot)
        today = parse_time(instant, config.timezone).date()
        chosen = selection.partitions(known, today)
        busy = groups_in_plans(timeline)
        slices = slices_of(snapshot, chosen)
        plan = plan_compaction(
            slices,
            busy=busy,
            strategy=selection.slices,
            passed_over=set(known) - set(chosen),
            remembers=settings.incremental,
        )
        return plan if plan.slices else _why_none(slices, busy, selection, known, chosen)

    def _partitions(self, snapshot: Snapshot) -> frozenset[str]:
        """The partition paths that may have log files. By hand all are looked at: a plan of real Hudi may have
        forgotten some."""
        if self.settings.incremental and self.when_due:
            changed = partitions_since_compaction(snapshot.timeline)
            if changed is not None:
                return changed
        return frozenset(snapshot.partitions())


def trigger_of(settings: CompactionSettings) -> CompactionTrigger:
    """The trigger that the settings name."""
    name = cast("TriggerName", settings.trigger)
    return CompactionTrigger(name, settings.delta_commits, settings.delta_seconds)


def selection_of(settings: CompactionSettings) -> Selection:
    """The strategy that the settings name."""
    return Selection(
        cast("StrategyName", settings.strategy.removesuffix("CompactionStrategy")),
        settings.least_log_bytes,
        settings.least_log_files,
        settings.target_megabytes,
        settings.days,
        settings.partition_regex,
    )


def partitions_since_compaction(timeline: Timeline) -> frozenset[str] | None:
    """The partition paths that were written since the last compaction or that it left; None where that is not known."""
    last = last_compaction(timeline.commits)
    if last is None:
        return None
    try:
        plan = timeline.plan(last)
    except (CorruptFile, FileNotFoundError):
        return None
    if not plan:
        return None
    since = [i for i in timeline.commits if i.action is not Action.COMMIT]
    bodies = timeline.commits_metadata(since)
    return changed_partitions(zip(since, bodies, strict=True), last, plan.get("missingSchedulePartitions") or ())


def slices_of(snapshot: Snapshot, partitions: list[str] | tuple[str, ...]) -> list[FileSlice]:
    """The latest slices of these partition paths, in the order of the paths."""
    order = {path: at for at, path in enumerate(partitions)}
    return sorted(snapshot.file_slices(partitions), key=lambda s: order[s.partition])


def groups_in_plans(timeline: Timeline) -> dict[FileGroupId, Instant]:
    return {**timeline.pending_compaction(), **timeline.pending_clustering()}


def _why_none(
    slices: list[FileSlice],
    busy: dict[FileGroupId, Instant],
    selection: Selection,
    known: frozenset[str],
    chosen: list[str],
) -> str:
    logged = [s for s in slices if s.log_files]
    waiting = [s for s in logged if (s.partition, s.file_id) in busy]
    if not logged:
        looked = f"the {len(chosen)} of {len(known)} partition paths that {selection.name} takes"
        where = "in the table" if len(chosen) == len(known) else f"in {looked}"
        return f"no compaction was planned: no file slice {where} has log files that are not in a plan already"
    if len(waiting) == len(logged):
        instants = ", ".join(sorted({busy[s.partition, s.file_id].time for s in waiting}))
        return f"no compaction was planned: all {len(logged)} slices with log files are in pending {instants}"
    return f"no compaction was planned: {selection.name} takes none of the {len(logged)} slices with log files"


def compact(
    context: WriteContext,
    *,
    plan_only: bool = False,
    dry_run: bool = False,
    when_due: bool = False,
    pending: bool = True,
) -> CompactionResult:
    """Run the plans that are pending, real Hudi's too, then make one of everything else that has log files and run it.

    `plan_only` makes the plan for another job to run, `dry_run` only shows it; `when_due` makes one only where the
    table's trigger fires.
    Plans that another process runs are left to it. Raises `InvalidOption` for a copy-on-write table.
    """
    settings = settings_of(context)
    admit_compaction(context)
    if dry_run:
        return preview(context, Action.COMPACTION, CompactionPlanner(settings, when_due))
    runs: list[CompactionRun] = []
    notes: list[str] = []
    if pending and not plan_only:
        for instant in pending_plans(context.opened):
            try:
                runs.append(run_compaction(context, instant.time))
            except CommitConflict as conflict:
                notes.append(f"compaction {instant.time} was left: {conflict.message}")
    scheduled = schedule_compaction(context, settings, when_due=when_due)
    if scheduled.instant is None:
        return CompactionResult(tuple(runs), notes=(*notes, scheduled.why))
    if plan_only:
        return CompactionResult((), scheduled.plan, scheduled.instant, tuple(notes))
    runs.append(run_compaction(context, scheduled.instant))
    return CompactionResult(tuple(runs), notes=tuple(notes))


def settings_of(context: WriteContext) -> CompactionSettings:
    """How the table's logs are compacted, by the options of the job and the table."""
    return compaction_settings(context.options.explicit, context.config.properties)


def pending_plans(snapshot: Snapshot, action: Action = Action.COMPACTION) -> list[Instant]:
    """The plans that are to be run, oldest first."""
    return [i for i in snapshot.timeline.pending if i.action is action]


def run_compaction(context: WriteContext, instant: str) -> CompactionRun:
    """Run a plan. Raises `CommitConflict` where another process runs it or has completed it; what raises leaves nothing
    visible, and the plan as it was."""
    started = time.monotonic()
    with ServiceTransaction(context, Action.COMPACTION, COMPACT_OPERATION) as tx:
        tx.take_up(instant)
        snapshot = tx.snapshot
        operations = operations_of(snapshot, instant, Action.COMPACTION)
        reader = replace(snapshot.reader, memory=context.settings.memory)
        writer = SliceCompactor(reader, instant, file_format(context, snapshot))
        done = run_operations(context, writer, operations, f"compacting {count_text(len(operations), 'file slice')}")
        metadata = commit_of(done, snapshot, COMPACT_OPERATION, tx)
        completed = tx.finish(metadata, [one.status for one in done])
    return CompactionRun(
        instant,
        completed.completion_time or instant,
        COMPACT_OPERATION.lower(),
        tuple(map(CompactedSlice.of, done)),
        time.monotonic() - started,
        tuple(tx.rolled_back),
    )


def operations_of(snapshot: Snapshot, instant: str, action: Action) -> list[CompactionOperation]:
    """What a pending plan asks for."""
    found = snapshot.timeline.find(instant, action)
    return compaction_operations(snapshot.timeline.plan(found)) if found is not None else []


def run_operations(
    context: WriteContext, writer: GroupFunction, operations: Sequence[CompactionOperation], what: str
) -> list[Compacted]:
    """A task for each file slice, on Spark or in this process; raises the first error that one met."""
    if not operations:
        return []
    engine = context.engine
    with progress(what, len(operations), counted=not engine.is_distributed) as advance:
        fn = writer if engine.is_distributed else _Counted(writer, advance)
        rows = engine.from_arrow(operation_rows(operations))
        mapped = engine.group_map(rows, fn, COMPACTED_SCHEMA, groups=len(operations), one_group_per_task=True)
        table = engine.collect(mapped)
    checked_statuses(table)
    return compacted(table)


def commit_of(done: Sequence[Compacted], snapshot: Snapshot, operation: str, tx: ServiceTransaction) -> CommitMetadata:
    """The body of the completed service."""
    stats: dict[str, list[dict[str, Any]]] = {}
    for one in sorted(done, key=lambda one: (one.status.partition, one.status.file_id)):
        stats.setdefault(one.status.partition, []).append(one.stat())
    extra = {**tx.settings.extra_metadata, WRITER_ID: tx.writer_id, "schema": snapshot.avro_schema}
    record = {"partitionToWriteStats": stats, "extraMetadata": extra, "operationType": operation}
    return commit_from_record(record)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Reports each file slice that is done."""

    function: GroupFunction
    advance: Advance

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        yield from self.function(partition, number, batches, task)
        self.advance(1)


def admit_compaction(context: WriteContext) -> None:
    """Refuse a table that has no log files or that a compaction could not keep right."""
    if context.config.table_type != "mor":
        raise InvalidOption(
            f"table {context.config.name!r} is copy-on-write: it has no log files to compact",
            hint="Only merge-on-read tables are compacted.",
        )
    check_write(context.config.properties, table_features(context.opened), "compact")
