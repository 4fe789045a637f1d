"""What a table's settings make due after a write: cleaning, archival, compaction, clustering and the expiry of
partitions, in this order. Nothing of it fails the write.

Whether something is to be cleaned or archived is told from the timeline that the write has read: where nothing is,
storage is not asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lakebed.config.options import service_settings
from lakebed.config.settings import CompactionSettings
from lakebed.engine.base import Engine
from lakebed.errors import CommitConflict
from lakebed.model import Action, Instant, State
from lakebed.operations.context import WriteContext
from lakebed.operations.job import IN_PROCESS_BYTES, session_engine
from lakebed.operations.result import WriteResult
from lakebed.policies.archival import ArchivalBounds, is_archival_due, plan_archival
from lakebed.properties.file import load_table_config
from lakebed.services.archiving import archive, bounds_of, limits_by_timeline
from lakebed.services.cleaning import clean
from lakebed.services.cleaning_plan import find_cleanable
from lakebed.services.clustering import cluster, clustering_verdict, pending_clusterings
from lakebed.services.clustering_result import ClusteringResult
from lakebed.services.compaction import compact, pending_plans, settings_of
from lakebed.services.compaction_plan import trigger_of
from lakebed.services.compaction_result import CompactionResult
from lakebed.services.log_compaction import compact_logs, is_log_compaction_due
from lakebed.services.partition_ttl import expire_partitions, never_expires
from lakebed.services.service_transaction import can_be_run
from lakebed.slices.reopening import read_again, reopened
from lakebed.slices.snapshot import Snapshot, open_snapshot
from lakebed.timeline.bodies.plans import CleaningPolicy
from lakebed.timeline.instants import InstantClock
from lakebed.timeline.timeline import load_timeline

_log = logging.getLogger("lakebed")


def run_due_services(context: WriteContext, result: WriteResult, spark: Any | None = None) -> WriteResult:
    """Run what is due; gives the result of the write with a line about each service. The write stands whatever fails
    here, which is logged, and tried again after the next write."""
    if not result.instant:
        return result
    views = [context]

    def renew() -> bool:
        """Other writers archive and clean, drop indexes and build them, while a service is planned."""
        opened = reopened(views[-1].opened)
        if opened is not None:
            views.append(replace(context, opened=opened))
        return opened is not None

    services: tuple[tuple[str, Callable[[], Iterator[str]]], ...] = (
        ("cleaning", lambda: _clean_if_due(views[-1], result)),
        ("archival", lambda: _archive_if_due(views[-1], result)),
        ("compaction", lambda: _lines(_compact_if_due(context, spark))),
        ("clustering", lambda: _lines(_cluster_if_due(context, spark))),
        ("partition TTL", lambda: _expire_if_due(context)),
    )
    lines: list[str] = []
    for service, run in services:
        try:
            lines += read_again(context.storage, lambda: [*run()], renew)  # noqa: B023
        except CommitConflict as conflict:
            _log.info("the write %s leaves its %s to another process: %s", result.instant, service, conflict)
        except Exception as error:
            _log.warning("the write %s stands; %s after it failed: %s", result.instant, service, error)
    return replace(result, services=tuple(lines)) if lines else result


def _lines(done: Sequence[CompactionResult | ClusteringResult]) -> Iterator[str]:
    for one in done:
        if one.runs or one.plan is not None:
            yield from str(one).splitlines()


def _commits(context: WriteContext, result: WriteResult) -> tuple[Instant, ...]:
    """The completed commits that this process knows of, with the one that it has just made."""
    known = context.opened.timeline.commits
    if context.opened.timeline.is_completed(result.instant):
        return known
    action = Action.DELTACOMMIT if context.config.table_type == "mor" else Action.COMMIT
    return (*known, Instant(result.instant, action, State.COMPLETED, result.checkpoint))


def _clean_if_due(context: WriteContext, result: WriteResult) -> Iterator[str]:
    settings = service_settings(context.options.given, context.config.properties)
    cleaning = settings.cleaning
    if not settings.compaction.services or not cleaning.automatic:
        return
    timeline, commits = context.opened.timeline, _commits(context, result)
    waiting = [i for i in timeline.pending if i.action is Action.CLEAN]
    if not any(can_be_run(context.storage, plan) for plan in waiting):
        if CleaningPolicy(cleaning.policy) is CleaningPolicy.KEEP_LATEST_FILE_VERSIONS:
            timeline = load_timeline(context.storage, context.config)  # the write itself may have left something
            commits = timeline.commits
        if isinstance(find_cleanable(timeline, commits, cleaning, result.instant, when_due=True), str):
            return
    done = clean(context, when_due=True)
    yield from map(str, done.runs)


def _archive_if_due(context: WriteContext, result: WriteResult) -> Iterator[str]:
    settings = service_settings(context.options.given, context.config.properties)
    archival = settings.archival
    if not settings.compaction.services or not archival.automatic:
        return
    timeline, commits = context.opened.timeline, _commits(context, result)
    if not is_archival_due(commits, ArchivalBounds(archival.above, archival.down_to)):
        return
    bounds = bounds_of(timeline, commits, settings)
    if not plan_archival(commits, (), bounds, limits_by_timeline(timeline, settings)).commits:
        return
    done = archive(context)
    if done.instants:
        yield str(done)


def _compact_if_due(context: WriteContext, spark: Any | None) -> list[CompactionResult]:
    if context.config.table_type != "mor":
        return []
    settings = settings_of(context)
    merges_logs = settings.log_compaction or settings.log_compaction_inline
    if not settings.services or not (settings.inline or settings.schedule_inline or merges_logs):
        return []
    config = load_table_config(context.storage)
    snapshot = open_snapshot(context.storage, config)
    fresh = replace(context, opened=snapshot)
    if (settings.inline or settings.schedule_inline) and _is_compaction_due(snapshot, settings):
        fresh = replace(fresh, engine=engine_for(snapshot, context.engine, spark))
        return [compact(fresh, plan_only=settings.schedule_inline, when_due=True)]
    if merges_logs and is_log_compaction_due(snapshot.timeline, settings):
        return [compact_logs(replace(fresh, engine=engine_for(snapshot, context.engine, spark)), when_due=True)]
    return []


def _cluster_if_due(context: WriteContext, spark: Any | None) -> list[ClusteringResult]:
    settings = service_settings(context.options.given, context.config.properties).clustering
    if not settings_of(context).services or not (settings.inline or settings.schedule_inline):
        return []
    snapshot = open_snapshot(context.storage, load_table_config(context.storage))
    waits = settings.inline and any(
        can_be_run(snapshot.storage, plan) for plan in pending_clusterings(snapshot.timeline)
    )
    if not waits and clustering_verdict(snapshot.timeline, settings) is not None:
        return []
    engine = engine_for_all(snapshot, context.engine, spark)
    fresh = replace(context, opened=snapshot, engine=engine)
    return [cluster(fresh, plan_only=settings.schedule_inline, when_due=True)]


def _expire_if_due(context: WriteContext) -> Iterator[str]:
    settings = service_settings(context.options.given, context.config.properties)
    ttl = settings.partition_ttl
    if not settings.compaction.services or not ttl.inline or never_expires(context, ttl):
        return
    fresh = open_snapshot(context.storage, load_table_config(context.storage))
    done = expire_partitions(replace(context, opened=fresh))
    if done.paths:
        yield str(done)


def _is_compaction_due(snapshot: Snapshot, settings: CompactionSettings) -> bool:
    if settings.inline and any(can_be_run(snapshot.storage, plan) for plan in pending_plans(snapshot)):
        return True
    zone = snapshot.config.timezone
    now = InstantClock(zone).next(after=snapshot.timeline.greatest_time)
    return trigger_of(settings).verdict(snapshot.timeline.instants, now, zone).is_due


def engine_for(snapshot: Snapshot, engine: Engine, spark: Any | None) -> Engine:
    """What merges the table's log files: Spark where there is a session and more to merge than this process takes on,
    else the engine."""
    if engine.is_distributed or spark is None or snapshot.storage.spec.in_this_process:
        return engine
    size = sum(file_slice.size for file_slice in snapshot.file_slices() if file_slice.log_files)
    return session_engine(spark) if size > IN_PROCESS_BYTES else engine


def engine_for_all(snapshot: Snapshot, engine: Engine, spark: Any | None) -> Engine:
    """What rewrites the table (clusters it, moves its rows to other buckets): Spark where there is a session and the
    table is larger than this process takes on, else the engine."""
    if engine.is_distributed or spark is None or snapshot.storage.spec.in_this_process:
        return engine
    return session_engine(spark) if sum(one.size for one in snapshot.file_slices()) > IN_PROCESS_BYTES else engine
