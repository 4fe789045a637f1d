"""Compaction: the log files of a merge-on-read table are merged into new base files, by plans on the timeline.

A plan is made under the table lock and run outside it, by this process or another, while writes go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakebed.concurrency.conflicts import COMPACT_OPERATION
from lakebed.config.features import check_write
from lakebed.config.options import compaction_settings
from lakebed.config.settings import CompactionSettings
from lakebed.engine.base import GroupFunction, Task
from lakebed.errors import CommitConflict, InvalidOption
from lakebed.handles.compact import COMPACTED_SCHEMA, Compacted, SliceCompactor, compacted, operation_rows
from lakebed.handles.file_writer import FileFormat
from lakebed.model import WRITER_ID, Action, CommitMetadata, Instant
from lakebed.operations.context import WriteContext
from lakebed.schema.arrow import with_meta
from lakebed.schema.avro import avro_with_meta
from lakebed.services.compaction_plan import CompactionPlanner, schedule_compaction, shown
from lakebed.services.compaction_result import CompactedSlice, CompactionResult, CompactionRun
from lakebed.services.progress import Advance, progress
from lakebed.services.service_transaction import ServiceTransaction
from lakebed.slices.facts import table_features
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.commit import commit_from_record
from lakebed.timeline.bodies.plans import CompactionOperation, compaction_operations
from lakebed.upkeep.statistics import columns_with_stats
from lakebed.wording import count_text
from lakebed.write_status import checked_statuses


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
    table's trigger says so.
    Plans that another process runs are left to it. Raises `InvalidOption` for a copy-on-write table.
    """
    settings = settings_of(context)
    admit_compaction(context)
    if dry_run:
        return shown(context, Action.COMPACTION, CompactionPlanner(settings, when_due))
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
    """How the table's logs are compacted, as the job's options and the table say."""
    return compaction_settings(context.options.given, context.config.properties)


def pending_plans(snapshot: Snapshot, action: Action = Action.COMPACTION) -> list[Instant]:
    """The plans that are to be run, oldest first."""
    return [i for i in snapshot.timeline.pending if i.action is action]


def run_compaction(context: WriteContext, instant: str) -> CompactionRun:
    """Run a plan. Raises `CommitConflict` where another process runs it or has completed it; what raises leaves nothing
    visible, and the plan as it was."""
    started = time.monotonic()
    with ServiceTransaction.of(context, Action.COMPACTION, COMPACT_OPERATION) as tx:
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


def file_format(context: WriteContext, snapshot: Snapshot) -> FileFormat:
    """How base files and log blocks of the table's columns of today are written."""
    config, settings = snapshot.config, context.file_settings
    return FileFormat(
        with_meta(snapshot.schema),
        avro_with_meta(snapshot.avro_schema),
        settings,
        config.populate_meta_fields,
        tuple(columns_with_stats(snapshot.storage, config, snapshot.schema, settings)),
        None,
        config.sorts_by_key,
        settings.log_block_format or config.log_block_format,
        config.change_log,
        context.watched_keys(snapshot.schema),
    )


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
    """Tells of each file slice that is done."""

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
