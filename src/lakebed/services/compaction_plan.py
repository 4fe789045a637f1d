"""The plan of a compaction: whether one is due, and which file slices it takes, with the reason where it takes none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from lakebed.concurrency.conflicts import COMPACT_OPERATION
from lakebed.config.settings import CompactionSettings
from lakebed.errors import CorruptFile
from lakebed.model import Action, FileGroupId, FileSlice, Instant, has_completion_times
from lakebed.operations.context import WriteContext
from lakebed.policies.compaction import (
    CompactionTrigger,
    Selection,
    StrategyName,
    TriggerName,
    changed_partitions,
    last_compaction,
    plan_compaction,
)
from lakebed.services.compaction_result import CompactionResult
from lakebed.services.service_transaction import ServiceTransaction
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.plans import CompactionPlan, encode_compaction_plan
from lakebed.timeline.instants import InstantClock, parse_time
from lakebed.timeline.timeline import COMMITS, Timeline


@dataclass(frozen=True)
class Scheduled:
    """A plan that was put on the timeline, or why none was."""

    instant: str | None
    plan: CompactionPlan | None
    why: str = ""


def schedule_compaction(context: WriteContext, settings: CompactionSettings, *, when_due: bool) -> Scheduled:
    """Plan a compaction of what has log files; with `when_due` only where the trigger says so."""
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

    with ServiceTransaction.of(context, action, operation) as tx:
        instant = tx.plan(body)
    return Scheduled(instant, planner.made if instant else None, planner.why)


def shown(context: WriteContext, action: Action, planner: Planner) -> CompactionResult:
    """What the planner would plan, and what waits; nothing is written."""
    timeline = context.opened.timeline
    notes = [f"{action} {i.time} waits to be run" for i in timeline.pending if i.action is action]
    instant = InstantClock(context.config.timezone).next(after=timeline.greatest_time)
    found = planner.plan(context.opened, instant)
    if isinstance(found, str):
        return CompactionResult(notes=(*notes, found))
    return CompactionResult(plan=found, notes=tuple(notes))


class Planner:
    """Makes a plan, or says why there is none."""

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
