"""Every table service: when it is due by the settings of a table, and how it is then run.

Being due is told from the timeline, and where that does not say enough from the list of the table's files; nothing is
written. Whether a service runs within writes, too, plays no part: what they have done is not due any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lakebed.config.options import Options, service_settings
from lakebed.model import Action
from lakebed.operations.context import WriteContext
from lakebed.operations.rollback import dead_writes
from lakebed.services.archiving import archive, planned_archival
from lakebed.services.cleaning import clean
from lakebed.services.cleaning_plan import find_cleanable
from lakebed.services.clustering import cluster, clustering_verdict, pending_clusterings
from lakebed.services.compaction import compact, pending_plans
from lakebed.services.compaction_plan import trigger_of
from lakebed.services.file_sizing import can_merge, merge_small_files, partitions_with_small_files
from lakebed.services.index_building.plan import pending_indexings
from lakebed.services.index_building.run import IndexingResult, build_planned
from lakebed.services.log_compaction import compact_logs, is_log_compaction_due
from lakebed.services.partition_ttl import expire_partitions, expired_partitions, never_expires
from lakebed.services.service_transaction import ServiceTransaction, can_be_run
from lakebed.timeline.instants import InstantClock
from lakebed.upkeep.metadata_upkeep import MetadataUpkeep
from lakebed.wording import count_text


class Done(Protocol):
    """What a service gives back."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class TableService:
    """One kind of work. `due` says why it is due, None where it is not; `run` does it; `did` says of what that gave
    whether something changed. With `clusters` it may read the whole table, with `merges` all log files."""

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
        return "\n".join([*lines, *([f"built {', '.join(self.built)}"] if self.built else [])]) or "nothing to settle"


def _settle(context: WriteContext, _: Options) -> Settled:
    before = set(context.config.metadata_partitions)
    with ServiceTransaction.of(context, Action.COMMIT, "SERVICES") as tx, tx.begin():
        tx.prepare_metadata()
    return Settled(tuple(tx.rolled_back), tuple(sorted({*tx.config.metadata_partitions} - before)))


def _build_indexes(context: WriteContext, settings: Options) -> IndexingResult:
    """Build what waits beside writers, then what the settings ask for and is missing, under the lock."""
    done = IndexingResult()
    if pending_indexings(context.opened.timeline):
        done = build_planned(context.storage, context.settings, context.engine)
    settled = _settle(context, settings)
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
    return f"{sum(found.values())} small files lie in {count_text(len(found), 'partition path')}" if found else None


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
    TableService("rollback", _rollback_is_due, _settle, lambda done: bool(done.rolled_back)),
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


def settings_of(context: WriteContext) -> Options:
    """How the table's services run, as the job's options and the table say."""
    return service_settings(context.options.given, context.config.properties)
