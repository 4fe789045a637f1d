"""Archival: the oldest instants of a long timeline move to the archived one, which is not listed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed import telemetry
from lakebed.config.options import Options
from lakebed.model import Action, Instant
from lakebed.operations.context import WriteContext
from lakebed.policies.archival import (
    ArchivalBounds,
    ArchivalLimit,
    ArchivalPlan,
    before_due_compaction,
    before_metadata,
    before_pending,
    before_savepoint,
    before_uncleaned,
    before_unread,
    is_archival_due,
    plan_archival,
)
from lakebed.policies.cleaning import Retention
from lakebed.policies.compaction import last_compaction
from lakebed.services.cleaning import retention_of
from lakebed.services.consumers import needs_of_consumers
from lakebed.services.driver import Service, ServiceState
from lakebed.services.service import ServiceTransaction
from lakebed.slices.listing import list_metadata, list_table
from lakebed.slices.snapshot import Snapshot, metadata_damage_named
from lakebed.timeline.archive_writer import archive as move
from lakebed.timeline.bodies.plans import CleaningPolicy
from lakebed.timeline.consumers import ConsumerNeed
from lakebed.timeline.history import last_clean
from lakebed.timeline.instants import by_this_clock, completes_as, without_suffix
from lakebed.timeline.timeline import COMMITS, Timeline
from lakebed.wording import Printed, count_text

_OPERATION = "ARCHIVE"


@dataclass(frozen=True, repr=False)
class ArchivalResult(Printed):
    """The result of an archival, or with `dry_run` a preview: the instants that left the active timeline, and the limit
    that prevented more."""

    plan: ArchivalPlan
    dry_run: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def instants(self) -> tuple[Instant, ...]:
        """The instants that were archived."""
        return () if self.dry_run else self.plan.instants

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        limit = self.plan.limit
        return {
            "commits": [i.time for i in self.plan.commits],
            "others": [f"{i.time} {i.action.value}" for i in self.plan.others],
            "held_back": f"{limit.time or 'the start'}: {limit.reason}" if limit else None,
            "dry_run": self.dry_run,
            "seconds": round(self.seconds, 4),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        if not self.plan.commits:
            return "\n".join([*([str(self.plan)] if self.plan.limit else []), *self.notes])
        took = "" if self.dry_run else f" ({self.seconds:.2f} s)"
        return f"{'would be an ' if self.dry_run else ''}{self.plan}{took}"


class Archival(Service[ArchivalResult]):
    """The service that moves the oldest instants to the archived timeline, under the table lock throughout."""

    name = "archive"
    title = "archival"
    after_write = ("archival.automatic",)
    due_over = "archival.above"

    def due(self, state: ServiceState) -> str | None:
        settings = state.settings
        bounds = bounds_of(state.timeline, state.commits, settings)
        if not is_archival_due(state.commits, bounds):
            return None
        needs = needs_of_consumers(state.timeline, settings.consumers, state.now)
        if not plan_archival(state.commits, (), bounds, limits_by_timeline(state.timeline, settings, needs)).commits:
            return None
        state.reload()
        commits = planned_archival(state.context.opened, settings).commits
        return f"{count_text(len(commits), 'commit')} can leave the timeline" if commits else None

    def serve(self, state: ServiceState) -> ArchivalResult:
        return archive(state.context)

    def has_changed(self, outcome: ArchivalResult) -> bool:
        return bool(outcome.instants)


def archive(context: WriteContext, *, dry_run: bool = False) -> ArchivalResult:
    """Archive by the settings of the job and the table; `dry_run` only reports. The lock is held throughout."""
    context.check_write("archive")
    started = time.monotonic()
    settings = context.services
    if dry_run:
        return _result(planned_archival(context.opened, settings), settings, context.opened.timeline, dry_run=True)
    with ServiceTransaction(context, Action.COMMIT, _OPERATION) as tx, tx.begin():
        tx.prepare_metadata()
        plan = planned_archival(tx.snapshot, settings)
        tx.refuse_lost("archive")
        move(tx.timeline, plan.instants, tx.lock_is_held)
    done = _result(plan, settings, tx.timeline, seconds=time.monotonic() - started)
    if plan.instants:
        counts = {"instants_archived": len(plan.instants)}
        telemetry.service_completed(context.storage.spec.uri, Archival.name, done.seconds, counts, tx.rolled_back)
    return done


def _result(
    plan: ArchivalPlan, settings: Options, timeline: Timeline, *, dry_run: bool = False, seconds: float = 0.0
) -> ArchivalResult:
    notes: tuple[str, ...] = ()
    if not plan.commits and plan.limit is None:
        bounds = bounds_of(timeline, timeline.commits, settings)
        commits = count_text(len(timeline.commits), "commit")
        notes = (f"nothing to archive: the timeline has {commits}, {bounds.above} may stay",)
    return ArchivalResult(plan, dry_run, seconds, notes)


def bounds_of(timeline: Timeline, commits: Sequence[Instant], settings: Options) -> ArchivalBounds:
    """The number of completed commits above which archival starts, and the number that it leaves: at least the commits
    that cleaning retains and two more, which cleaning needs to decide what to delete."""
    cleaning = settings.cleaning
    bounds = ArchivalBounds(settings.archival.above, settings.archival.down_to)
    if CleaningPolicy(cleaning.policy) is CleaningPolicy.KEEP_LATEST_COMMITS:
        bounds = bounds.keeping(cleaning.commits + 2)
    now = by_this_clock(commits[-1].time, timeline.config.timezone) if commits else ""
    retention = retention_of(timeline, commits, cleaning, now) if commits else None
    if isinstance(retention, Retention) and retention.earliest is not None:
        later = sum(i.time > retention.earliest.time for i in commits)
        bounds = bounds.keeping(later + 2)
    return bounds


def planned_archival(snapshot: Snapshot, settings: Options) -> ArchivalPlan:
    """The instants to archive, for the table as read under the lock."""
    timeline = snapshot.timeline
    bounds = bounds_of(timeline, timeline.commits, settings)
    if not is_archival_due(timeline.commits, bounds):
        return ArchivalPlan()
    now = by_this_clock(timeline.latest_time, timeline.config.timezone)
    needs = needs_of_consumers(timeline, settings.consumers, now)
    limits = [*limits_by_timeline(timeline, settings, needs), _limit_by_metadata(snapshot)]
    plan = plan_archival(timeline.commits, timeline.completed, bounds, limits)
    hidden = next(_hidden(snapshot, plan.commits), None)
    return plan_archival(timeline.commits, timeline.completed, bounds, [*limits, hidden]) if hidden else plan


def limits_by_timeline(
    timeline: Timeline, settings: Options, needs: Sequence[ConsumerNeed]
) -> Iterator[ArchivalLimit | None]:
    """Yields the limits of archival from the timeline and from the commits that consumers have not read; None for each
    limit that retains nothing."""
    if needs:
        yield before_unread(timeline.commits, needs[0].commit, str(needs[0]))
    yield before_pending(timeline.commits, (i for i in timeline.pending if completes_as(i.action) in COMMITS))
    if timeline.config.table_type == "mor" and settings.compaction.trigger in ("NUM_COMMITS", "NUM_AND_TIME"):
        yield before_due_compaction(timeline.instants, settings.compaction.delta_commits)
    last = last_clean(timeline)
    yield before_uncleaned(timeline.instants, (last.earliest or last.time) if last else None)
    yield before_savepoint(timeline.instants)


def _limit_by_metadata(snapshot: Snapshot) -> ArchivalLimit | None:
    if snapshot.metadata is None:
        return None
    compaction = last_compaction(snapshot.metadata.slices.timeline.commits)
    time = without_suffix(compaction.time) if compaction else None
    return before_metadata(snapshot.timeline.commits, time)


def _hidden(snapshot: Snapshot, commits: Sequence[Instant]) -> Iterator[ArchivalLimit]:
    """The limits from replacecommits whose replaced files still exist: once archived, such a commit would no longer
    hide these files."""
    timeline = snapshot.timeline
    for instant in commits:
        if instant.action is not Action.REPLACECOMMIT:
            continue
        replaced = timeline.commit_metadata(instant).replaced
        groups = {(partition, file_id) for partition, ids in replaced.items() for file_id in ids}
        if snapshot.metadata is None:
            listing = list_table(snapshot.storage, replaced)
        else:
            with metadata_damage_named(snapshot.storage):
                listing = list_metadata(snapshot.metadata, snapshot.storage, replaced)
        if any((f.partition, f.file_id) in groups for f in (*listing.base_files, *listing.log_files)):
            yield ArchivalLimit(instant.time, "files that it replaced are not cleaned yet")
