"""Every table service: when it is due by the settings of a table, and how it is then run, after a write or by a
process.

Whether a service is due follows from the timeline, and where that is not enough from the list of the table's files;
nothing is written. After a write cleaning, archival, compaction, clustering and the expiry of partitions run in this
order where they are due; nothing of it fails the write. Where nothing is to be cleaned or archived, storage is not
asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from lakebed.config.options import Options, service_settings
from lakebed.config.settings import CompactionSettings
from lakebed.engine.base import Engine
from lakebed.errors import CommitConflict
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata.maintain import MetadataUpkeep
from lakebed.model import Action, Instant, State
from lakebed.operations.context import WriteContext
from lakebed.operations.hudi_job import IN_PROCESS_BYTES, session_engine
from lakebed.operations.result import WriteResult
from lakebed.operations.rollback import dead_writes
from lakebed.policies.archival import ArchivalBounds, is_archival_due, plan_archival
from lakebed.properties.file import load_table_config
from lakebed.read.reopening import read_again, reopened
from lakebed.services.archival import archive, bounds_of, limits_by_timeline, planned_archival
from lakebed.services.build_index import IndexingResult, build_planned
from lakebed.services.cleaning import clean, find_cleanable
from lakebed.services.clustering import (
    ClusteringResult,
    can_merge,
    cluster,
    clustering_verdict,
    merge_small_files,
    partitions_with_small_files,
    pending_clusterings,
)
from lakebed.services.compaction import CompactionResult, compact, pending_plans, settings_of, trigger_of
from lakebed.services.create_index import pending_indexings
from lakebed.services.log_compaction import compact_logs, is_log_compaction_due
from lakebed.services.partition_ttl import expire_partitions, expired_partitions, never_expires
from lakebed.services.service import ServiceTransaction, can_be_run
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.plans import CleaningPolicy
from lakebed.timeline.instants import InstantClock
from lakebed.timeline.timeline import load_timeline
from lakebed.wording import count_text


class Done(Protocol):
    """What a service gives back."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class TableService:
    """One kind of work. `due` is the reason why it is due, None if it is not; `run` does it; `did` is whether its
    result changed something. With `clusters` it may read the complete table, with `merges` all log files."""

    name: str
    due: Callable[[WriteContext, Options], str | None]
    run: Callable[[WriteContext, Options], Done]
    did: Callable[[Any], bool]
    clusters: bool = False
    merges: bool = False


@dataclass(frozen=True)
class Settled:
    """What was put right before any service: writes of dead writers that were taken back, and partitions of the
    metadata table that were built."""

    rolled_back: tuple[str, ...] = ()
    built: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"rolled_back": list(self.rolled_back), "built": list(self.built)}

    def __str__(self) -> str:
        lines = [f"rollback of {', '.join(self.rolled_back)}, whose writers are dead"] if self.rolled_back else []
        return "\n".join([*lines, *([f"built {', '.join(self.built)}"] if self.built else [])]) or "nothing to finish"


def _finish_interrupted(context: WriteContext, _: Options) -> Settled:
    before = set(context.config.metadata_partitions)
    with ServiceTransaction(context, Action.COMMIT, "SERVICES") as tx, tx.begin():
        tx.prepare_metadata()
    return Settled(tuple(tx.rolled_back), tuple(sorted({*tx.config.metadata_partitions} - before)))


def _build_indexes(context: WriteContext, settings: Options) -> IndexingResult:
    """Build the planned indexes while others write, then what the settings ask for and is missing, under the lock."""
    done = IndexingResult()
    if pending_indexings(context.opened.timeline):
        done = build_planned(context.storage, context.settings, context.engine)
    settled = _finish_interrupted(context, settings)
    notes = (str(settled),) if settled.built or settled.rolled_back else ()
    return IndexingResult(done.runs, (*done.notes, *notes), settled.built)


def _rollback_is_due(context: WriteContext, _: Options) -> str | None:
    dead = dead_writes(context.storage, context.opened.timeline)
    return f"the writers of {', '.join(i.time for i in dead)} are dead" if dead else None


def _indexing_is_due(context: WriteContext, _: Options) -> str | None:
    timeline = context.opened.timeline
    if why := _waiting(context, pending_indexings(timeline)):
        return why
    if not timeline.commits:
        return None
    upkeep = MetadataUpkeep(context.storage, context.config, timeline, context.settings, context.engine)
    missing = upkeep.missing()
    return f"{', '.join(missing)} of the metadata table are to be built" if missing else None


def _clean_is_due(context: WriteContext, settings: Options) -> str | None:
    timeline = context.opened.timeline
    if why := _waiting(context, [i for i in timeline.pending if i.action is Action.CLEAN]):
        return why
    found = find_cleanable(timeline, timeline.commits, settings.cleaning, _now(context), when_due=True)
    if isinstance(found, str):
        return None
    earliest = found.retention.earliest
    return (
        f"what only commits before {earliest.time} see"
        if earliest
        else f"older than {count_text(found.retention.versions, 'file slice')}"
    )


def _archival_is_due(context: WriteContext, settings: Options) -> str | None:
    found = planned_archival(context.opened, settings).commits
    return f"{count_text(len(found), 'commit')} can leave the timeline" if found else None


def _compaction_is_due(context: WriteContext, settings: Options) -> str | None:
    if context.config.table_type != "mor":
        return None
    if why := _waiting(context, pending_plans(context.opened)):
        return why
    timeline = context.opened.timeline
    verdict = trigger_of(settings.compaction).verdict(timeline.instants, _now(context), context.config.timezone)
    return verdict.why if verdict.is_due else None


def _log_compaction_is_due(context: WriteContext, settings: Options) -> str | None:
    if context.config.table_type != "mor":
        return None
    timeline = context.opened.timeline
    if why := _waiting(context, pending_plans(context.opened, Action.LOGCOMPACTION)):
        return why
    if not _merges_logs(settings) or not is_log_compaction_due(timeline, settings.compaction):
        return None
    return f"{count_text(settings.compaction.log_blocks, 'delta commit')} or more since the last (log) compaction"


def _merges_logs(settings: Options) -> bool:
    return settings.compaction.log_compaction or settings.compaction.log_compaction_inline


def _clustering_is_due(context: WriteContext, settings: Options) -> str | None:
    timeline = context.opened.timeline
    if why := _waiting(context, pending_clusterings(timeline)):
        return why
    clustering = settings.clustering
    if not _clusters(settings) or clustering_verdict(timeline, clustering) is not None:
        return None
    return f"{count_text(clustering.due_after, 'commit')} or more since the last clustering"


def _file_sizing_is_due(context: WriteContext, settings: Options) -> str | None:
    least = settings.file_sizing.files
    if least < 1 or not can_merge(context):
        return None
    found = partitions_with_small_files(context, max(2, least))
    return f"{sum(found.values())} small files are in {count_text(len(found), 'partition path')}" if found else None


def _clusters(settings: Options) -> bool:
    clustering = settings.clustering
    return clustering.inline or clustering.schedule_inline or clustering.by_services


def _expiry_is_due(context: WriteContext, settings: Options) -> str | None:
    ttl = settings.partition_ttl
    if never_expires(context, ttl):
        return None
    over, _ = expired_partitions(context.opened, ttl, _now(context))
    return f"{len(over)} partition paths are older than {ttl.days} days" if over else None


def _waiting(context: WriteContext, plans: Sequence[Any]) -> str | None:
    found = [plan.time for plan in plans if can_be_run(context.storage, plan)]
    return f"the plan of {', '.join(found)} waits to be run" if found else None


def _now(context: WriteContext) -> str:
    return InstantClock(context.config.timezone).next(after=context.opened.timeline.greatest_time)


def _has_runs(done: Any) -> bool:
    return bool(done.runs)


# In the order in which real Hudi runs them after a write.
SERVICES = (
    TableService("rollback", _rollback_is_due, _finish_interrupted, lambda done: bool(done.rolled_back)),
    TableService("indexing", _indexing_is_due, _build_indexes, lambda done: bool(done.built), clusters=True),
    TableService("clean", _clean_is_due, lambda context, _: clean(context, when_due=True), _has_runs),
    TableService("archive", _archival_is_due, lambda context, _: archive(context), lambda done: bool(done.instants)),
    TableService(
        "compact", _compaction_is_due, lambda context, _: compact(context, when_due=True), _has_runs, merges=True
    ),
    TableService(
        "log_compact",
        _log_compaction_is_due,
        lambda context, settings: compact_logs(context, when_due=True, pending_only=not _merges_logs(settings)),
        _has_runs,
        merges=True,
    ),
    TableService(
        "cluster",
        _clustering_is_due,
        lambda context, settings: cluster(context, when_due=True, pending_only=not _clusters(settings)),
        _has_runs,
        clusters=True,
    ),
    TableService(
        "merge_small_files",
        _file_sizing_is_due,
        lambda context, settings: merge_small_files(context, least=max(2, settings.file_sizing.files)),
        _has_runs,
        clusters=True,
    ),
    TableService(
        "expire_partitions",
        _expiry_is_due,
        lambda context, _: expire_partitions(context),
        lambda done: bool(done.paths),
    ),
)


def due_settings(context: WriteContext) -> Options:
    """How the table's services run, by the options of the job and the table."""
    return service_settings(context.options.explicit, context.config.properties)


_log = logging.getLogger("lakebed")


def run_due_services(context: WriteContext, result: WriteResult, spark: Any | None = None) -> WriteResult:
    """Run what is due; gives the result of the write with a line about each service. The write is valid whatever fails
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
            _log.warning("the write %s is valid; %s after it failed: %s", result.instant, service, error)
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
    settings = service_settings(context.options.explicit, context.config.properties)
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
    settings = service_settings(context.options.explicit, context.config.properties)
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
    settings = service_settings(context.options.explicit, context.config.properties).clustering
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
    settings = service_settings(context.options.explicit, context.config.properties)
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
