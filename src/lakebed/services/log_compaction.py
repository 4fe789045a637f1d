"""Log compaction: the many log blocks of file slices become few, without reading or writing base files."""

from __future__ import annotations

import time
from dataclasses import replace

from lakebed.concurrency.conflicts import LOG_COMPACT_OPERATION
from lakebed.config.settings import CompactionSettings
from lakebed.errors import CommitConflict, UnsupportedFeature
from lakebed.handles.compact import LogCompactor
from lakebed.merge.rules import MergeRules
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import Action, FileSlice, Instant, State, has_completion_times
from lakebed.operations.context import WriteContext, file_format
from lakebed.policies.compaction import log_compaction_verdict, plan_log_compaction
from lakebed.services.compaction import (
    CompactedSlice,
    CompactionResult,
    CompactionRun,
    Planner,
    Scheduled,
    admit_compaction,
    commit_of,
    groups_in_plans,
    operations_of,
    preview,
    run_operations,
    schedule,
    settings_of,
    slices_of,
)
from lakebed.services.service import ServiceTransaction
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.plans import CompactionPlan
from lakebed.timeline.instants import completes_as
from lakebed.timeline.timeline import COMMITS, Timeline
from lakebed.wording import count_text


def compact_logs(
    context: WriteContext,
    *,
    plan_only: bool = False,
    dry_run: bool = False,
    when_due: bool = False,
    pending_only: bool = False,
) -> CompactionResult:
    """Run the log compaction that is pending, or (not with `pending_only`) make a plan of the slices with many log
    blocks and run it.

    A plan that a compaction has overtaken, or whose runner died, is taken off the timeline: nothing is lost with it.
    """
    admit_compaction(context)
    settings = settings_of(context)
    if dry_run:
        return preview(context, Action.LOGCOMPACTION, _LogCompactionPlanner(settings, when_due))
    notes: list[str] = []
    runs: list[CompactionRun] = []
    waiting = [i for i in context.opened.timeline.pending if i.action is Action.LOGCOMPACTION]
    for instant in [] if plan_only else waiting:
        try:
            runs.append(run_log_compaction(context, instant.time))
        except (CommitConflict, UnsupportedFeature) as cause:
            notes.append(f"log compaction {instant.time} was not run: {cause.message}")
    if pending_only:
        return CompactionResult(tuple(runs), notes=tuple(notes))
    if waiting and not plan_only:
        context = replace(context, opened=open_snapshot(context.storage))
    scheduled = schedule_log_compaction(context, settings, when_due=when_due)
    if scheduled.instant is None:
        return CompactionResult(tuple(runs), notes=(*notes, scheduled.why))
    if plan_only:
        return CompactionResult(tuple(runs), scheduled.plan, scheduled.instant, tuple(notes))
    runs.append(run_log_compaction(context, scheduled.instant))
    return CompactionResult(tuple(runs), notes=tuple(notes))


def schedule_log_compaction(context: WriteContext, settings: CompactionSettings, *, when_due: bool) -> Scheduled:
    """Plan a log compaction of the slices with many log blocks."""
    return schedule(context, Action.LOGCOMPACTION, LOG_COMPACT_OPERATION, _LogCompactionPlanner(settings, when_due))


class _LogCompactionPlanner(Planner):
    def plan(self, snapshot: Snapshot, instant: str) -> CompactionPlan | str:
        settings, timeline = self.settings, snapshot.timeline
        if not has_completion_times(snapshot.config.version):
            return "no log compaction was planned: lakebed merges the logs of tables from version 8 on"
        if not MergeRules.of_table(snapshot.config).picks_winners:
            return (
                "no log compaction was planned: by this table's merge mode a row of a log does not stay as it is;"
                " compact() merges them with their base files"
            )
        waiting = next((i for i in timeline.pending if i.action is Action.LOGCOMPACTION), None)
        if waiting is not None:
            return f"no log compaction was planned: {waiting.time} is pending"
        if self.when_due:
            verdict = log_compaction_verdict(timeline.instants, log_compactions(timeline), settings.log_blocks)
            if not verdict.is_due:
                return f"no log compaction is due: {verdict.why}"
        plan = plan_log_compaction(
            slices_of(snapshot, snapshot.partitions()),
            least_blocks=settings.log_blocks,
            count_blocks=lambda file_slice: mergeable_blocks(snapshot, file_slice),
            # the merged block takes the place of the newest that it covers: no block may come in between
            before=min((i.time for i in timeline.pending if completes_as(i.action) in COMMITS), default=None),
            busy=groups_in_plans(timeline),
        )
        return plan if plan.slices else f"no log compaction was planned: no file slice has {settings.log_blocks} blocks"


def is_log_compaction_due(timeline: Timeline, settings: CompactionSettings) -> bool:
    """Whether there are delta commits enough since the last compaction and the last log compaction."""
    return log_compaction_verdict(timeline.instants, log_compactions(timeline), settings.log_blocks).is_due


def mergeable_blocks(snapshot: Snapshot, file_slice: FileSlice) -> int:
    """How many blocks a log compaction would merge; none if some hold partial records, which are needed
    one by one."""
    logs = snapshot.reader.logs(file_slice)
    return 0 if any(map(logs.is_partial, logs.data)) else len(logs.blocks)


def run_log_compaction(context: WriteContext, instant: str) -> CompactionRun:
    """Run a plan. What raises leaves nothing visible, and takes the plan off the timeline."""
    started = time.monotonic()
    with ServiceTransaction(context, Action.LOGCOMPACTION, LOG_COMPACT_OPERATION) as tx:
        tx.take_up(instant)
        snapshot = tx.snapshot
        _refuse_overtaken(snapshot.timeline, instant)
        operations = operations_of(snapshot, instant, Action.LOGCOMPACTION)
        reader = replace(snapshot.reader, memory=context.settings.memory)
        writer = LogCompactor(reader, instant, file_format(context, snapshot))
        done = run_operations(
            context, writer, operations, f"merging the logs of {count_text(len(operations), 'file slice')}"
        )
        done = [one for one in done if one.status.path is not None]
        metadata = commit_of(done, snapshot, LOG_COMPACT_OPERATION, tx)
        completed = tx.finish(metadata, [one.status for one in done])
    return CompactionRun(
        instant,
        completed.completion_time or instant,
        LOG_COMPACT_OPERATION.lower(),
        tuple(map(CompactedSlice.of, done)),
        time.monotonic() - started,
        tuple(tx.rolled_back),
    )


def log_compactions(timeline: Timeline) -> list[Instant]:
    """The completed ones: they complete as delta commits, and their requested files identify them."""
    found: list[Instant] = []
    for instant in timeline.commits:
        name = timeline.requested.get((instant.time, Action.DELTACOMMIT), "")
        if instant.action is Action.DELTACOMMIT and f".{Action.LOGCOMPACTION}." in name:
            found.append(instant)
    return found


def _refuse_overtaken(timeline: Timeline, instant: str) -> None:
    """After a compaction the merged block would be in a slice that has none of the blocks that it covers."""
    later = next((i for i in timeline.instants if i.time > instant and _begins_slices(i)), None)
    if later is not None:
        raise CommitConflict(
            f"{later.action} {later.time} begins new file slices since it was planned",
            hint="Its plan is taken off the timeline; plan another one.",
            context={"instant": instant},
        )


def _begins_slices(instant: Instant) -> bool:
    return instant.action is Action.COMPACTION or (instant.action is Action.COMMIT and instant.state is State.COMPLETED)
