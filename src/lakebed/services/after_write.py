"""What a table's settings make due after a write: compaction and clustering. Nothing of it fails the write."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from lakebed.config.options import service_settings
from lakebed.config.settings import CompactionSettings
from lakebed.engine.base import Engine
from lakebed.model import Instant, State
from lakebed.operations.context import WriteContext
from lakebed.operations.job import IN_PROCESS_BYTES, session_engine
from lakebed.operations.result import WriteResult
from lakebed.services.clustering import cluster, clustering_verdict, pending_clusterings
from lakebed.services.clustering_result import ClusteringResult
from lakebed.services.compaction import compact, pending_plans, settings_of
from lakebed.services.compaction_plan import trigger_of
from lakebed.services.compaction_result import CompactionResult
from lakebed.services.log_compaction import compact_logs, is_log_compaction_due
from lakebed.slices.snapshot import Snapshot, open_snapshot
from lakebed.timeline.clock import InstantClock
from lakebed.timeline.locks.heartbeat import is_dead
from lakebed.timeline.properties_file import load_table_config

_log = logging.getLogger("lakebed")


def run_due_services(context: WriteContext, result: WriteResult, spark: Any | None = None) -> WriteResult:
    """Run what is due; gives the result of the write with a line about each service. The write stands whatever fails
    here, which is logged, and tried again after the next write."""
    done: list[CompactionResult | ClusteringResult] = []
    for service, run in (("compaction", _compact_if_due), ("clustering", _cluster_if_due)):
        try:
            done += run(context, spark)
        except Exception as error:
            _log.warning("the write %s stands; %s after it failed: %s", result.instant, service, error)
    lines = tuple(line for one in done if one.runs or one.plan is not None for line in str(one).splitlines())
    return replace(result, services=lines) if lines else result


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
        return [compact_logs(fresh, when_due=True)]
    return []


def _cluster_if_due(context: WriteContext, spark: Any | None) -> list[ClusteringResult]:
    settings = service_settings(context.options.given, context.config.properties).clustering
    if not settings_of(context).services or not (settings.inline or settings.schedule_inline):
        return []
    snapshot = open_snapshot(context.storage, load_table_config(context.storage))
    waits = settings.inline and any(_can_be_run(snapshot, plan) for plan in pending_clusterings(snapshot.timeline))
    if not waits and clustering_verdict(snapshot.timeline, settings) is not None:
        return []
    engine = engine_for_all(snapshot, context.engine, spark)
    fresh = replace(context, opened=snapshot, engine=engine)
    return [cluster(fresh, plan_only=settings.schedule_inline, when_due=True)]


def _is_compaction_due(snapshot: Snapshot, settings: CompactionSettings) -> bool:
    if settings.inline and any(_can_be_run(snapshot, plan) for plan in pending_plans(snapshot)):
        return True
    zone = snapshot.config.timezone
    now = InstantClock(zone).next(after=snapshot.timeline.greatest_time)
    return trigger_of(settings).verdict(snapshot.timeline.instants, now, zone).is_due


def _can_be_run(snapshot: Snapshot, plan: Instant) -> bool:
    """Whether nobody runs the plan."""
    return plan.state is State.REQUESTED or is_dead(snapshot.storage, plan.time)


def engine_for(snapshot: Snapshot, engine: Engine, spark: Any | None) -> Engine:
    """What compacts the table: Spark where there is a session and more to merge than this process takes on, else the
    engine."""
    if engine.is_distributed or spark is None:
        return engine
    size = sum(file_slice.size for file_slice in snapshot.file_slices() if file_slice.log_files)
    return session_engine(spark) if size > IN_PROCESS_BYTES else engine


def engine_for_all(snapshot: Snapshot, engine: Engine, spark: Any | None) -> Engine:
    """What clusters the table: Spark where there is a session and the table is larger than this process takes on, else
    the engine."""
    if engine.is_distributed or spark is None:
        return engine
    return session_engine(spark) if sum(one.size for one in snapshot.file_slices()) > IN_PROCESS_BYTES else engine
