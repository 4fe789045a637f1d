"""Compaction: the log files of a merge-on-read table are merged into new base files, by plans on the timeline.

The plan decides whether a compaction is due and which file slices it takes, with the reason if it takes none. It is
made under the table lock and run outside it, by this process or another, while writes go on.

The metadata table is compacted by a service of its own, under the table lock: writes leave that to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, cast

import pyarrow as pa

from lakebed.concurrency.conflicts import COMPACT_OPERATION
from lakebed.config.settings import CompactionSettings
from lakebed.engine.base import GroupFunction, Task
from lakebed.errors import CorruptFile, InvalidOption
from lakebed.handles.compact import COMPACTED_SCHEMA, Compacted, SliceCompactor, compacted, operation_rows
from lakebed.model import Action, FileGroupId, FileSlice, Instant, has_completion_times
from lakebed.operations.context import WriteContext, file_format
from lakebed.policies.compaction import (
    CompactionTrigger,
    LogBounds,
    Selection,
    StrategyName,
    TriggerName,
    changed_partitions,
    delta_commits_since_compaction,
    last_compaction,
    plan_compaction,
)
from lakebed.progress import Advance, progress
from lakebed.services.driver import (
    NothingToDo,
    PlannedService,
    Service,
    ServiceResult,
    ServiceRun,
    ServiceState,
)
from lakebed.services.service import ServiceTransaction
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.commit import commit_from_record
from lakebed.timeline.bodies.plans import (
    CompactionOperation,
    CompactionPlan,
    RequestedBody,
    compaction_body,
    compaction_operations,
)
from lakebed.timeline.instants import parse_time
from lakebed.timeline.timeline import COMMITS, Timeline
from lakebed.wording import Printed, count_text, size_text
from lakebed.write_status import checked_statuses


@dataclass(frozen=True, slots=True)
class CompactedSlice:
    """One file group of a run: the numbers of log files and records that were merged into `file`, and the counts of
    changed rows."""

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


@dataclass(frozen=True, repr=False)
class CompactionRun(ServiceRun):
    """One run of a compaction. `checkpoint` is when it completed."""

    operation: str
    slices: tuple[CompactedSlice, ...]

    @property
    def rows(self) -> int:
        """The number of rows in the files that were written."""
        return sum(s.rows for s in self.slices)

    @property
    def log_files(self) -> int:
        return sum(s.log_files for s in self.slices)

    @property
    def log_records(self) -> int:
        return sum(s.log_records for s in self.slices)

    @property
    def bytes(self) -> int:
        """The bytes of the files that were written."""
        return sum(s.bytes for s in self.slices)

    def counts(self) -> Mapping[str, int]:
        """The counts of the run by name, for metrics."""
        read = {"file_slices": len(self.slices), "log_files": self.log_files, "log_records": self.log_records}
        return read | {"rows": self.rows, "bytes": self.bytes}

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
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


class CompactionResult(ServiceResult[CompactionPlan, CompactionRun]):
    """The result of `compact`: the `runs`, one per plan; `plan`, a plan that was made but not run, and its instant; and
    `notes`, the reasons why something was not done."""

    _nothing = "nothing to compact"

    @property
    def slices(self) -> Sequence[CompactedSlice]:
        """All slices that were merged."""
        return [compacted_slice for run in self.runs for compacted_slice in run.slices]


class SliceCompaction(PlannedService[CompactionPlan, CompactionRun, CompactionResult]):
    """The common part of compaction and log compaction: plans of file slices with log files, on merge-on-read
    tables."""

    reads = "logs"
    result = CompactionResult

    def admit(self, context: WriteContext) -> None:
        """Raise an error for a table that has no log files or that a compaction would damage."""
        if context.config.table_type != "mor":
            raise InvalidOption(
                f"table {context.config.name!r} is copy-on-write: it has no log files to compact",
                hint="Only merge-on-read tables are compacted.",
            )
        context.check_write("compact")

    def body(self, snapshot: Snapshot, plan: CompactionPlan) -> RequestedBody:
        return compaction_body(plan)


class Compaction(SliceCompaction):
    """The service that merges log files into new base files."""

    name = "compact"
    title = noun = "compaction"
    action = Action.COMPACTION
    operation = COMPACT_OPERATION
    after_write = ("compaction.inline",)
    plan_after_write = "compaction.schedule_inline"
    left = "was left"

    def due(self, state: ServiceState) -> str | None:
        if state.context.config.table_type != "mor":
            return None
        if state.settings.compaction.due == "logs":
            return self._due_by_logs(state)
        trigger, zone = trigger_of(state.settings.compaction), state.context.config.timezone
        # the next write sees what other writers have done since this write began
        if not self.pending(state.timeline) and not trigger.verdict(state.instants, state.now, zone).is_due:
            return None
        state.reload()
        if why := state.waiting(self.pending(state.timeline)):
            return why
        verdict = trigger.verdict(state.timeline.instants, state.now, zone)
        return verdict.why if verdict.is_due else None

    def _due_by_logs(self, state: ServiceState) -> str | None:
        bounds, zone = bounds_of(state.settings.compaction), state.context.config.timezone
        weights = state.written_logs
        # after a write only the file slices that it appended to are examined, by what the write knows of them
        if weights is not None and not self.pending(state.timeline):
            oldest = bounds.oldest(state.now, zone)
            if not any(bounds.exceeded(weight, oldest) for weight in weights):
                return None
        state.reload()
        if why := state.waiting(self.pending(state.timeline)):
            return why
        examined = _examined(state.context.opened, state.settings.compaction, state.now, when_due=True)
        _, verdict = bounds.due(examined.free, state.now, zone)
        return verdict.why if verdict.is_due else None

    def plan(
        self, context: WriteContext, snapshot: Snapshot, instant: str, *, when_due: bool
    ) -> CompactionPlan | NothingToDo:
        settings, timeline, config = context.services.compaction, snapshot.timeline, snapshot.config
        if not has_completion_times(config.version):
            waiting = next((i for i in timeline.pending if i.action in COMMITS), None)
            if waiting is not None:
                # its log blocks are in the slices that would be merged
                return NothingToDo(f"no compaction was planned: {waiting.action} {waiting.time} is pending")
        by_logs = when_due and settings.due == "logs"
        if when_due and not by_logs:
            verdict = trigger_of(settings).verdict(timeline.instants, instant, config.timezone)
            if not verdict.is_due:
                return NothingToDo(f"no compaction is due: {verdict.why}")
        examined = _examined(snapshot, settings, instant, when_due=when_due)
        due: Collection[FileGroupId] | None = None
        if by_logs:
            due_slices, verdict = bounds_of(settings).due(examined.free, instant, config.timezone)
            if not verdict.is_due:
                return NothingToDo(f"no compaction is due: {verdict.why}")
            due = {(file_slice.partition, file_slice.file_id) for file_slice in due_slices}
        plan = plan_compaction(
            examined.slices,
            due=due,
            busy=examined.busy,
            strategy=examined.selection.slices,
            passed_over=examined.passed_over,
            remembers=settings.incremental,
        )
        return plan if plan.slices else NothingToDo(examined.why_none())

    def run(self, context: WriteContext, tx: ServiceTransaction, plan: Mapping[str, Any]) -> CompactionRun:
        snapshot = tx.snapshot
        operations = compaction_operations(plan)
        reader = replace(snapshot.reader, memory=context.settings.memory)
        writer = SliceCompactor(reader, tx.instant, file_format(context, snapshot))
        done = run_operations(context, writer, operations, f"compacting {count_text(len(operations), 'file slice')}")
        return completed_run(done, snapshot, self.operation, tx)


@dataclass(frozen=True, slots=True)
class _Examined:
    """The latest file slices that a plan examines: those of the partition paths that `selection` selects among
    `partitions`. File groups that are `busy` are in a plan already."""

    selection: Selection
    partitions: frozenset[str]
    selected: list[str]
    slices: list[FileSlice]
    busy: Mapping[FileGroupId, Instant]

    @property
    def free(self) -> list[FileSlice]:
        """The slices that are in no plan."""
        return [s for s in self.slices if (s.partition, s.file_id) not in self.busy]

    @property
    def passed_over(self) -> set[str]:
        """The partition paths that are not selected."""
        return set(self.partitions) - set(self.selected)

    def why_none(self) -> str:
        """The reason why no slice is compacted."""
        logged = [s for s in self.slices if s.log_files]
        waiting = [s for s in logged if (s.partition, s.file_id) in self.busy]
        if not logged:
            looked = f"the {len(self.selected)} of {len(self.partitions)} partition paths"
            everywhere = len(self.selected) == len(self.partitions)
            where = "in the table" if everywhere else f"in {looked} that {self.selection.name} takes"
            return f"no compaction was planned: no file slice {where} has log files that are not in a plan already"
        if len(waiting) == len(logged):
            instants = ", ".join(sorted({self.busy[s.partition, s.file_id].time for s in waiting}))
            return f"no compaction was planned: all {len(logged)} slices with log files are in pending {instants}"
        return f"no compaction was planned: {self.selection.name} takes none of the {len(logged)} slices with log files"


def _examined(snapshot: Snapshot, settings: CompactionSettings, instant: str, *, when_due: bool) -> _Examined:
    """The file slices that a compaction of the time `instant` examines."""
    selection = selection_of(settings)
    partitions = None
    if settings.incremental and when_due:
        # a call looks at all partition paths: a plan of real Hudi may have left some out
        partitions = partitions_since_compaction(snapshot.timeline)
    if partitions is None:
        partitions = frozenset(snapshot.partitions())
    selected = selection.partitions(partitions, parse_time(instant, snapshot.config.timezone).date())
    return _Examined(selection, partitions, selected, slices_of(snapshot, selected), groups_in_plans(snapshot.timeline))


def bounds_of(settings: CompactionSettings) -> LogBounds:
    """The bounds of the log files of a file slice that the settings name."""
    return LogBounds(settings.slice_log_percent, settings.slice_log_files, settings.slice_log_seconds)


def trigger_of(settings: CompactionSettings) -> CompactionTrigger:
    """The trigger that the settings name."""
    name = cast("TriggerName", settings.trigger)
    return CompactionTrigger(name, settings.delta_commits, settings.delta_seconds)


def selection_of(settings: CompactionSettings) -> Selection:
    """The strategy that the settings name."""
    return Selection(
        cast("StrategyName", settings.strategy.removesuffix("CompactionStrategy")),
        settings.min_log_bytes,
        settings.min_log_files,
        settings.target_megabytes,
        settings.days,
        settings.partition_regex,
    )


def partitions_since_compaction(timeline: Timeline) -> frozenset[str] | None:
    """The partition paths that were written since the last compaction or that it left; None if they are unknown."""
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
    return {**timeline.pending_compaction, **timeline.pending_clustering}


def run_operations(
    context: WriteContext, writer: GroupFunction, operations: Sequence[CompactionOperation], label: str
) -> list[Compacted]:
    """Run a task for each file slice, on Spark or in this process. Returns the results; raises the first error of a
    task."""
    if not operations:
        return []
    engine = context.engine
    with progress(label, None if engine.is_distributed else len(operations)) as advance:
        fn = writer if engine.is_distributed else _Counted(writer, advance)
        rows = engine.from_arrow(operation_rows(operations))
        mapped = engine.group_map(rows, fn, COMPACTED_SCHEMA, groups=len(operations), one_group_per_task=True)
        table = engine.collect(mapped)
    checked_statuses(table)
    return compacted(table)


def completed_run(
    done: Sequence[Compacted], snapshot: Snapshot, operation: str, tx: ServiceTransaction
) -> CompactionRun:
    """Complete a compaction or log compaction that has written these file slices."""
    stats: dict[str, list[dict[str, Any]]] = {}
    for outcome in sorted(done, key=attrgetter("status.partition", "status.file_id")):
        stats.setdefault(outcome.status.partition, []).append(outcome.stat())
    notes = tx.context.writer_notes(tx.writer_id)
    extra = {**tx.settings.extra_metadata, **notes, "schema": snapshot.avro_schema}
    record = {"partitionToWriteStats": stats, "extraMetadata": extra, "operationType": operation}
    completed = tx.finish(commit_from_record(record), [outcome.status for outcome in done])
    slices = tuple(map(CompactedSlice.of, done))
    return CompactionRun(tx.instant, completed.completion_time or tx.instant, operation.lower(), slices)


@dataclass(frozen=True, slots=True)
class _Counted:
    """A task function that also reports each finished file slice to `advance`."""

    function: GroupFunction
    advance: Advance

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        yield from self.function(partition, number, batches, task)
        self.advance(1)


@dataclass(frozen=True, repr=False)
class MaintainedMetadata(Printed):
    """The work done in the metadata table, a text for each step."""

    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"metadata table: {', '.join(self.steps)}" if self.steps else "nothing to do in the metadata table"


class MetadataMaintenance(Service[MaintainedMetadata]):
    """The service that compacts the metadata table when it has enough delta commits, and cleans and archives it then:
    so no write of a table that a process maintains does it."""

    name = "metadata"
    title = "maintenance of the metadata table"

    def due(self, state: ServiceState) -> str | None:
        config, settings = state.context.config, state.context.settings
        if not has_completion_times(config.version) and state.timeline.pending:
            return None  # a pending writer of version 6 will log to the present file slices
        metadata = state.context.opened.metadata
        if metadata is None:
            return None
        commits = delta_commits_since_compaction(metadata.slices.timeline.commits)
        if commits >= settings.metadata_compact_after:
            return f"the metadata table has {count_text(commits, 'delta commit')} since its last compaction"
        logs = settings.metadata_log_compaction and commits >= settings.metadata_log_compact_after
        return "logs of the metadata table can be merged" if logs else None

    def serve(self, state: ServiceState) -> MaintainedMetadata:
        return maintain_metadata(state.context)

    def has_changed(self, outcome: MaintainedMetadata) -> bool:
        return bool(outcome.steps)


def maintain_metadata(context: WriteContext) -> MaintainedMetadata:
    """Do what is due in the metadata table, under the table lock. A run that dies is finished by the next writer."""
    with ServiceTransaction(context, Action.COMMIT, "SERVICES") as tx, tx.begin():
        tx.prepare_metadata()
        return MaintainedMetadata(tuple(tx.metadata_upkeep(tx.timeline).maintain()))
