"""Log compaction: the many log blocks of file slices become few, without reading or writing base files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lakebed.concurrency.conflicts import LOG_COMPACT_OPERATION
from lakebed.config.settings import CompactionSettings
from lakebed.errors import CommitConflict, ConflictKind, UnsupportedFeature
from lakebed.handles.compact import LogCompactor
from lakebed.merge.rules import MergeRules
from lakebed.model import Action, FileSlice, Instant, State, has_completion_times
from lakebed.operations.context import WriteContext, file_format
from lakebed.policies.compaction import Verdict, log_compaction_verdict, plan_log_compaction
from lakebed.services.compaction import (
    CompactionRun,
    SliceCompaction,
    completed_run,
    groups_in_plans,
    run_operations,
    slices_of,
)
from lakebed.services.driver import NothingToDo, ServiceState
from lakebed.services.service import ServiceTransaction
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.plans import CompactionPlan, compaction_operations
from lakebed.timeline.instants import completes_as
from lakebed.timeline.timeline import COMMITS, Timeline
from lakebed.wording import count_text


class LogCompaction(SliceCompaction):
    """The service that merges log blocks with each other. A plan that a compaction has overtaken, or whose process
    died, is removed from the timeline: nothing is lost with it."""

    name = "log_compact"
    title = noun = "log compaction"
    action = Action.LOGCOMPACTION
    operation = LOG_COMPACT_OPERATION
    after_write = asked_by = ("compaction.log_compaction", "compaction.log_compaction_inline")
    leaves = (CommitConflict, UnsupportedFeature)

    def due(self, state: ServiceState) -> str | None:
        if state.context.config.table_type != "mor":
            return None
        state.reload()
        if why := state.waiting(self.pending(state.timeline)):
            return why
        settings = state.settings
        if not self.is_asked(settings) or not _verdict(state.timeline, settings.compaction).is_due:
            return None
        return f"{count_text(settings.compaction.log_blocks, 'delta commit')} or more since the last (log) compaction"

    def plan(
        self, context: WriteContext, snapshot: Snapshot, instant: str, *, when_due: bool
    ) -> CompactionPlan | NothingToDo:
        settings, timeline = context.services.compaction, snapshot.timeline
        if not has_completion_times(snapshot.config.version):
            return NothingToDo("no log compaction was planned: lakebed merges the logs of tables from version 8 on")
        if not MergeRules.of_table(snapshot.config).picks_winners:
            return NothingToDo(
                "no log compaction was planned: by this table's merge mode a row of a log does not stay as it is;"
                " compact() merges them with their base files"
            )
        waiting = next(iter(self.pending(timeline)), None)
        if waiting is not None:
            return NothingToDo(f"no log compaction was planned: {waiting.time} is pending")
        if when_due and not (verdict := _verdict(timeline, settings)).is_due:
            return NothingToDo(f"no log compaction is due: {verdict.why}")
        plan = plan_log_compaction(
            slices_of(snapshot, snapshot.partitions()),
            min_blocks=settings.log_blocks,
            count_blocks=lambda file_slice: compactable_blocks(snapshot, file_slice),
            # the merged block takes the place of its newest block: no pending block may come in between
            before=min((i.time for i in timeline.pending if completes_as(i.action) in COMMITS), default=None),
            busy=groups_in_plans(timeline),
        )
        if not plan.slices:
            return NothingToDo(f"no log compaction was planned: no file slice has {settings.log_blocks} blocks")
        return plan

    def run(self, context: WriteContext, tx: ServiceTransaction, plan: Mapping[str, Any]) -> CompactionRun:
        snapshot = tx.snapshot
        _refuse_overtaken(snapshot.timeline, tx.instant)
        operations = compaction_operations(plan)
        reader = replace(snapshot.reader, memory=context.settings.memory)
        writer = LogCompactor(reader, tx.instant, file_format(context, snapshot))
        description = f"merging the logs of {count_text(len(operations), 'file slice')}"
        done = run_operations(context, writer, operations, description)
        return completed_run(
            [outcome for outcome in done if outcome.status.path is not None], snapshot, self.operation, tx
        )


def _verdict(timeline: Timeline, settings: CompactionSettings) -> Verdict:
    """The verdict on whether there are enough delta commits since the last compaction and the last log compaction."""
    return log_compaction_verdict(timeline.instants, log_compactions(timeline), settings.log_blocks)


def compactable_blocks(snapshot: Snapshot, file_slice: FileSlice) -> int:
    """The number of blocks that a log compaction would merge; 0 if some have partial records, which are needed one by
    one."""
    logs = snapshot.reader.logs(file_slice)
    return 0 if any(map(logs.is_partial, logs.data)) else len(logs.blocks)


def log_compactions(timeline: Timeline) -> list[Instant]:
    """The completed log compactions. They complete as delta commits; their requested files identify them."""
    instants: list[Instant] = []
    for instant in timeline.commits:
        name = timeline.requested.get((instant.time, Action.DELTACOMMIT), "")
        if instant.action is Action.DELTACOMMIT and f".{Action.LOGCOMPACTION}." in name:
            instants.append(instant)
    return instants


def _refuse_overtaken(timeline: Timeline, instant: str) -> None:
    """Raise `CommitConflict` for a plan that a compaction has overtaken: the merged block would be in a slice without
    the blocks that it replaces."""
    later = next((i for i in timeline.instants if i.time > instant and _begins_slices(i)), None)
    if later is not None:
        raise CommitConflict(
            f"{later.action} {later.time} begins new file slices since it was planned",
            hint="Its plan is taken off the timeline; plan another one.",
            context={"instant": instant},
            kind=ConflictKind.COMMITTED,
        )


def _begins_slices(instant: Instant) -> bool:
    return instant.action is Action.COMPACTION or (instant.action is Action.COMMIT and instant.state is State.COMPLETED)
