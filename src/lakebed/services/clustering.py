"""Clustering: the rows of file slices are written to other file groups: fewer and larger, or in an order that
filters gain from. A plan is made under the table lock and run outside it, by this process or another.

File sizing is a clustering of small base files alone: those of less than `hoodie.parquet.small.file.limit` are put
together up to `hoodie.parquet.max.file.size`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from lakebed.concurrency.conflicts import CLUSTER_OPERATION
from lakebed.config.settings import ClusteringSettings
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption, UnsupportedFeature
from lakebed.handles.cluster import BY_KEY, GroupClusterer, RowOrder, clustering_rows
from lakebed.handles.file_writer import FileFormat
from lakebed.index.base import key_hash_of, pending_resizes
from lakebed.metadata.lookups import snapshot_of
from lakebed.model import Action, CommitMetadata, FileGroupId, FileSlice, Instant, has_completion_times
from lakebed.operations.context import WriteContext, file_format
from lakebed.operations.overwrite import match_partitions, refuse_no_partitions
from lakebed.operations.rollback_plan import files_named
from lakebed.operations.transaction import Transaction, TransactionHooks
from lakebed.policies.clustering import GroupSizes, PartitionChoice, commits_since_clustering, replaced_ids
from lakebed.progress import progress
from lakebed.schema.arrow import leaf_paths
from lakebed.schema.column_names import did_you_mean
from lakebed.schema.logical_types import is_vector, vector_name
from lakebed.services.driver import (
    NothingToDo,
    PlannedService,
    ServiceResult,
    ServiceRun,
    ServiceState,
    run_service,
)
from lakebed.services.service import ServiceTransaction
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.plans import (
    ClusteringPlan,
    CompactionOperation,
    PlannedClustering,
    RequestedBody,
    clustering_body,
    planned_clustering,
)
from lakebed.timeline.instants import parse_time
from lakebed.timeline.timeline import Timeline
from lakebed.timeline.transitions import TimelineWriter
from lakebed.wording import count_text, size_text
from lakebed.write_status import STATUS_SCHEMA, WriteStatus, checked_statuses


@dataclass(frozen=True, repr=False)
class ClusteringRun(ServiceRun):
    """One run of a clustering. `checkpoint` is when it completed, `slices` is the number of slices that were read,
    `files` are those that were written, with `rows` rows in `bytes` bytes."""

    slices: int
    files: tuple[str, ...]
    rows: int
    bytes: int

    def counts(self) -> Mapping[str, int]:
        """The counts of the run by name, for metrics."""
        return {"file_slices": self.slices, "files_written": len(self.files), "rows": self.rows, "bytes": self.bytes}

    def __str__(self) -> str:
        return (
            f"cluster {self.instant}: {count_text(self.slices, 'file slice')} became"
            f" {count_text(len(self.files), 'file')} of {size_text(self.bytes)}, {count_text(self.rows, 'row')}"
            f" ({self.seconds:.2f} s)"
        )


class ClusteringResult(ServiceResult[ClusteringPlan, ClusteringRun]):
    """The result of `cluster`: the `runs`, one per plan; `plan`, a plan that was made but not run, and its instant; and
    `notes`, the reasons why something was not done."""

    _nothing = "nothing to cluster"


@dataclass(frozen=True)
class Clustering(PlannedService[ClusteringPlan, ClusteringRun, ClusteringResult]):
    """The service that writes the rows of file slices to other file groups, in these `partitions` (None: as the table's
    settings choose). On version 6 a clustering is a replacecommit from the start."""

    partitions: tuple[str, ...] | None = None

    name = "cluster"
    title = noun = "clustering"
    action = Action.CLUSTERING
    operation = CLUSTER_OPERATION
    after_write = ("clustering.inline",)
    plan_after_write = "clustering.schedule_inline"
    asked_by = ("clustering.inline", "clustering.schedule_inline", "clustering.by_services")
    reads = "files"
    result = ClusteringResult

    def admit(self, context: WriteContext) -> None:
        context.check_write("cluster")

    def pending(self, timeline: Timeline) -> list[Instant]:
        return pending_clusterings(timeline)

    def due(self, state: ServiceState) -> str | None:
        state.reload()
        if why := state.waiting(self.pending(state.timeline)):
            return why
        settings = state.settings
        if not self.is_asked(settings) or clustering_verdict(state.timeline, settings.clustering) is not None:
            return None
        return f"{count_text(settings.clustering.due_after, 'commit')} or more since the last clustering"

    def settings(self, context: WriteContext) -> ClusteringSettings:
        settings = context.services.clustering
        return settings if self.partitions is None else replace(settings, partitions=self.partitions)

    def plan(
        self, context: WriteContext, snapshot: Snapshot, instant: str, *, when_due: bool
    ) -> ClusteringPlan | NothingToDo:
        settings = self.settings(context)
        if when_due and (why := clustering_verdict(snapshot.timeline, settings)) is not None:
            return NothingToDo(f"no clustering is due: {why}")
        return _plan_or_none(plan_clustering(context, snapshot, settings, instant))

    def body(self, snapshot: Snapshot, plan: ClusteringPlan) -> RequestedBody:
        return clustering_body(snapshot.storage.url(), plan)

    def transaction(self, context: WriteContext) -> ServiceTransaction:
        action = self.action if has_completion_times(context.config.version) else Action.REPLACECOMMIT
        return ServiceTransaction(context, action, self.operation)

    def run(self, context: WriteContext, tx: ServiceTransaction, plan: Mapping[str, Any]) -> ClusteringRun:
        snapshot = tx.snapshot
        planned = _planned(tx, plan)
        tx.hooks = inputs = _PlannedInputs(planned)
        inputs.check_slices(tx, snapshot)
        writer = _writer(context, snapshot, self.settings(context), planned, tx.instant)
        statuses = _run(context, writer, planned)
        replaced = replaced_ids(
            (file_slice.partition, file_slice.file_id) for op in planned.operations for file_slice in op.slices
        )
        completed = tx.finish(tx.commit_metadata(statuses, snapshot.avro_schema, replaced), statuses)
        with suppress(Exception):  # the clustering is valid
            context.index.committed(tx.instant, snapshot_of(tx.storage, tx.config, tx.load()))
        return ClusteringRun(
            tx.instant,
            completed.completion_time or tx.instant,
            sum(len(op.slices) for op in planned.operations),
            tuple(s.path for s in statuses if s.path is not None),
            sum(s.num_writes for s in statuses),
            sum(s.file_size for s in statuses),
        )


def cluster(
    context: WriteContext,
    *,
    partitions: Sequence[str] | None = None,
    plan_only: bool = False,
    dry_run: bool = False,
    when_due: bool = False,
) -> ClusteringResult:
    """Cluster the partitions that the table's settings choose, see `run_service`, or `partitions`: paths, or patterns
    with `*`. Raises `InvalidOption` for partition paths that the table does not have, unless `when_due`."""
    service = Clustering()
    if partitions is not None:
        refuse_no_partitions(partitions, "cluster")
        service = Clustering(tuple(match_partitions(partitions, context.opened.partitions())))
    elif (selected := context.services.clustering.partitions) and not when_due:
        match_partitions(tuple(selected), context.opened.partitions())
    return run_service(context, service, plan_only=plan_only, dry_run=dry_run, when_due=when_due)


def _plan_or_none(plan: ClusteringPlan) -> ClusteringPlan | NothingToDo:
    return (
        plan
        if plan.groups
        else NothingToDo("no clustering was planned: no file slices that the settings choose are free")
    )


def pending_clusterings(timeline: Timeline) -> list[Instant]:
    """The plans that are to be run, oldest first."""
    return [i for i in timeline.pending if timeline.is_pending_clustering(i)]


def clustering_verdict(timeline: Timeline, settings: ClusteringSettings) -> str | None:
    """The reason why no clustering is due, as a sentence; None if one is due."""
    done = timeline.replacecommits
    bodies = timeline.commits_metadata(done)
    times = [i.time for i, body in zip(done, bodies, strict=True) if body.operation == CLUSTER_OPERATION]
    times += [i.time for i in pending_clusterings(timeline)]
    commits = commits_since_clustering(timeline.instants, times)
    threshold = settings.due_after
    return (
        None if commits >= threshold else f"{count_text(commits, 'commit')} since the last clustering, of {threshold}"
    )


def plan_clustering(
    context: WriteContext, snapshot: Snapshot, settings: ClusteringSettings, instant: str
) -> ClusteringPlan:
    """The plan of a clustering of the table in its present state. Raises `InvalidOption` for invalid sort columns."""
    check_sort_columns(snapshot, settings)
    index = context.index
    single_file = key_hash_of(index) is not None or settings.plan_strategy in _SINGLE_FILE_PLANS
    choice = PartitionChoice(
        settings.partitions,
        settings.partition_regex,
        settings.partition_filter,
        settings.recent_days,
        settings.skipped_days,
        settings.first_partition,
        settings.last_partition,
    )
    paths, left = choice.of(snapshot.partitions(), parse_time(instant, snapshot.config.timezone))
    order = {path: at for at, path in enumerate(paths)}
    slices = sorted(snapshot.file_slices(paths), key=lambda file_slice: order[file_slice.partition])
    if index.resizing is not None:
        max_bytes = context.settings.max_file_size
        groups = index.resizing.clustering_groups(snapshot, slices, instant, settings, max_bytes)
        selected_groups = groups[: settings.max_groups]
        cut = [group.partition for group in groups[settings.max_groups :]]
        missing = None if snapshot.config.version < 9 else tuple(sorted({*left, *cut}))
        return ClusteringPlan(tuple(selected_groups), settings.sort_columns, settings.layout, missing=missing)
    sorts = bool(settings.sort_columns)
    sizes = GroupSizes(
        settings.max_small_file_size,
        settings.group_bytes,
        settings.file_bytes,
        settings.max_groups,
        settings.slice_order,
        # without a sort order, rewriting a single file would change nothing
        settings.singles and sorts,
        single_file,
        context.settings.max_file_size,
    )
    busy = snapshot.timeline.groups_of_services()
    if single_file and not sorts:
        slices = [file_slice for file_slice in slices if file_slice.log_files]
    groups, cut = sizes.groups(slices, busy)
    waiting = {file_slice.partition for file_slice in slices if (file_slice.partition, file_slice.file_id) in busy}
    missing = None if snapshot.config.version < 9 else tuple(sorted({*left, *cut, *waiting}))
    return ClusteringPlan(tuple(groups), settings.sort_columns, settings.layout, single_file, missing)


_SINGLE_FILE_PLANS = ("SparkSingleFileSortPlanStrategy", "SparkSingleFileSortClusteringPlanStrategy")


def check_sort_columns(snapshot: Snapshot, settings: ClusteringSettings) -> None:
    """Refuse sort columns that the table does not have, and all sort columns for a table that sorts by key."""
    columns = settings.sort_columns
    if not columns:
        return
    if snapshot.config.sorts_by_key:
        raise InvalidOption(
            f"table {snapshot.config.name!r} keeps its files in the order of the record key (sort='key')",
            hint="Cluster it without sort columns: rows stay in that order.",
            context={"columns": ", ".join(columns)},
        )
    column_paths = dict(leaf_paths(snapshot.schema))
    unknown = [name for name in columns if name not in column_paths]
    vectors = [name for name in columns if name in column_paths and is_vector(column_paths[name])]
    if vectors:
        raise InvalidOption(
            f"table {snapshot.config.name!r} cannot be sorted by column {vectors[0]!r}:"
            f" {vector_name(column_paths[vectors[0]])} has no order",
            hint="sort by other columns",
            context={"column": vectors[0]},
        )
    if unknown:
        raise InvalidOption(
            f"table {snapshot.config.name!r} has no column {unknown[0]!r} to sort by",
            hint=did_you_mean(unknown[0], sorted(column_paths), "it has"),
            context={"column": unknown[0]},
        )


def _planned(tx: ServiceTransaction, plan: Mapping[str, Any]) -> PlannedClustering:
    planned = planned_clustering(plan)
    if not planned.operations:
        tx.require_pending(tx.load())  # another process may have removed it, or completed and archived it
        raise UnsupportedFeature(
            f"the plan of clustering {tx.instant} names no file slices",
            hint="Take it off the timeline with the engine that made it.",
            context={"feature": "clustering plan", "instant": tx.instant},
        )
    return planned


def _writer(
    context: WriteContext, snapshot: Snapshot, settings: ClusteringSettings, planned: PlannedClustering, instant: str
) -> GroupClusterer:
    format_: FileFormat = replace(file_format(context, snapshot, key_changes=True), change_log=None)
    order = None
    if snapshot.config.sorts_by_key:
        order = BY_KEY
    elif planned.sort_columns:
        order = RowOrder(planned.sort_columns, planned.layout or settings.layout)
    reader = replace(snapshot.reader, memory=context.settings.memory)
    outputs = tuple(op.outputs for op in planned.operations)
    resizing = context.index.resizing
    by_key = tuple(None if resizing is None else resizing.outputs(operation) for operation in planned.operations)
    return GroupClusterer(reader, instant, format_, order, settings.file_bytes, planned.single_file, outputs, by_key)


def _run(context: WriteContext, writer: GroupClusterer, planned: PlannedClustering) -> list[WriteStatus]:
    """A task for each group, on Spark or in this process."""
    engine, count = context.engine, len(planned.operations)
    with progress(f"clustering {count} groups of file slices"):
        rows = engine.from_arrow(clustering_rows(planned.operations))
        mapped = engine.group_map(rows, writer, STATUS_SCHEMA, groups=count, one_group_per_task=True)
        return checked_statuses(engine.collect(mapped))


@dataclass
class _PlannedInputs(TransactionHooks):
    """Lets a clustering complete only if the slices that it read are still the newest of the table."""

    planned: PlannedClustering
    _is_stale: bool = False

    def check(self, tx: Transaction, timeline: Timeline, others: Sequence[CommitMetadata] = ()) -> None:
        self.check_slices(tx, snapshot_of(tx.storage, tx.config, timeline))

    def before_completion(
        self, tx: Transaction, timeline: Timeline, metadata: CommitMetadata, statuses: Sequence[WriteStatus]
    ) -> None:
        """Inform an index outside the table that rows have moved to other file groups."""
        tx.index.update(statuses, tx.instant, snapshot_of(tx.storage, tx.config, timeline), metadata.replaced)

    def reason_to_take_back(self, tx: Transaction, timeline: Timeline) -> str | None:
        """The reason to take this clustering back, if a write that committed before it changed a slice of the plan;
        otherwise None."""
        try:
            self.check(tx, timeline.before_completion(tx.instant))
        except CommitConflict as conflict:
            return conflict.message
        return None

    def aborted(self, tx: Transaction) -> None:
        """If the plan's slices have changed, remove the plan together with its run."""
        if not self._is_stale:
            return
        with tx.locked():
            timeline = tx.load()
            instant = timeline.find(tx.instant, tx.action)
            if instant is not None and not instant.is_completed and tx.lock_is_held():
                if files_named(tx.storage, tx.instant):
                    # concurrent writes have added rows to new file groups that will not exist
                    tx.rollbacks().roll_back(timeline, instant, with_plan=True)
                    return
                TimelineWriter(tx.storage, tx.config).remove_pending(instant)

    def check_slices(self, tx: Transaction, snapshot: Snapshot) -> None:
        """Raise `CommitConflict` if a slice of the plan was replaced or has newer files: deleted rows would reappear,
        or new rows be lost."""
        planned = {
            (file_slice.partition, file_slice.file_id): file_slice
            for op in self.planned.operations
            for file_slice in op.slices
        }
        slices = snapshot.file_slices({path for path, _ in planned}, groups_of_ids({name for _, name in planned}))
        now = {(file_slice.partition, file_slice.file_id): file_slice for file_slice in slices}
        for group, file_slice in planned.items():
            if group not in now or not _is_as_planned(tx, file_slice, now[group], snapshot):
                self._is_stale = True
                raise _changed(group, tx.instant)


def _is_as_planned(tx: Transaction, planned: CompactionOperation, now: FileSlice, snapshot: Snapshot) -> bool:
    """Whether a slice still has exactly the files of the plan. Log files that writes added later are ignored if these
    writes also wrote their rows to the new file groups."""
    files = {*filter(None, [planned.base_file]), *planned.log_files}
    current = {*([now.base_file.name] if now.base_file else []), *(log.name for log in now.log_files)}
    later = current - files
    if files - current or (now.base_file is not None and now.base_file.name in later):
        return False
    group = now.partition, now.file_id
    resizes = pending_resizes(tx.index, snapshot)
    if later and resizes.parents.get(group) != tx.instant:
        return False
    children = {file_id for path, file_id in resizes.children if path == now.partition}
    return not later or _bring_rows_along(snapshot.timeline, now.partition, later, children)


def _bring_rows_along(timeline: Timeline, partition: str, logs: Collection[str], children: Collection[str]) -> bool:
    """Whether each commit that wrote one of these log files also wrote to the new file groups."""
    left = set(logs)
    for commit in timeline.commits_metadata(timeline.commits):
        stats = commit.stats.get(partition, ())
        commit_logs = {stat.path.rpartition("/")[2] for stat in stats} & left
        if commit_logs and not any(stat.file_id in children for stat in stats):
            return False
        left -= commit_logs
    return not left


def _changed(group: FileGroupId, instant: str) -> CommitConflict:
    partition, file_id = group
    return CommitConflict(
        f"file group {file_id} in partition {partition!r} has changed since clustering {instant} was planned",
        hint="Nothing was lost: the plan was removed from the timeline, and the next clustering makes a new one.",
        context={"instant": instant, "partition": partition, "file_id": file_id},
        kind=ConflictKind.CHANGED,
    )


# For calls: two files are the fewest that can become one.
_MIN_FILES = 2


@dataclass(frozen=True)
class SmallFiles(Clustering):
    """The service that merges the small files of each partition path that has at least `min_files` of them; its plans
    are those of a clustering."""

    min_files: int = _MIN_FILES

    name = "merge_small_files"
    title = "file sizing"
    after_write = asked_by = ()
    plan_after_write = ""

    def due(self, state: ServiceState) -> str | None:
        min_files = state.settings.file_sizing.files
        if min_files < 1 or not can_merge(state.context):
            return None
        counts = partitions_with_small_files(state.context, state.context.opened, max(_MIN_FILES, min_files))
        return (
            f"{sum(counts.values())} small files are in {count_text(len(counts), 'partition path')}" if counts else None
        )

    def serve(self, state: ServiceState) -> ClusteringResult:
        return merge_small_files(state.context, min_files=max(_MIN_FILES, state.settings.file_sizing.files))

    def pending(self, timeline: Timeline) -> list[Instant]:
        """Always empty: the clustering service runs the plans that this service makes."""
        return []

    def settings(self, context: WriteContext) -> ClusteringSettings:
        """The settings of a clustering of small files; the row order is that of the table's own clustering."""
        return replace(
            context.services.clustering,
            plan_strategy="SparkSizeBasedClusteringPlanStrategy",
            partition_regex="",
            partition_filter="NONE",
            max_small_file_size=context.settings.max_small_file_size,
            group_bytes=context.settings.max_file_size,
            file_bytes=context.settings.max_file_size,
            singles=False,
        )

    def plan(
        self, context: WriteContext, snapshot: Snapshot, instant: str, *, when_due: bool
    ) -> ClusteringPlan | NothingToDo:
        paths = tuple(partitions_with_small_files(context, snapshot, self.min_files))
        if not paths:
            return NothingToDo(_NO_SMALL_FILES)
        settings = replace(self.settings(context), partitions=paths)
        return _plan_or_none(plan_clustering(context, snapshot, settings, instant))


_NO_SMALL_FILES = "no partition path has small files enough to put together"


def merge_small_files(
    context: WriteContext, *, min_files: int | None = None, plan_only: bool = False, dry_run: bool = False
) -> ClusteringResult:
    """Merge the small files of each partition path that has at least `min_files` of them (None: two).

    `plan_only` makes the plan for another job to run, `dry_run` only shows it. Raises `InvalidOption` for a table whose
    index has a file group for each bucket of keys.
    """
    if min_files is not None and min_files < _MIN_FILES:
        raise InvalidOption(f"{min_files} small files of a partition path", hint=f"{_MIN_FILES} or more become one.")
    if not can_merge(context):
        raise InvalidOption(
            f"the files of table {context.config.name!r} cannot be put together: its {context.index.name} index"
            " has file groups for each bucket",
            hint="The number of buckets decides how large files are: t.maintenance.rescale() for a bucket index,"
            " t.maintenance.cluster() for"
            " a consistent one, or a table with another index.",
            context={"index": context.index.name},
        )
    sizing = SmallFiles(min_files=min_files or _MIN_FILES)
    if not partitions_with_small_files(context, context.opened, sizing.min_files):
        sizing.admit(context)
        return ClusteringResult(notes=(_NO_SMALL_FILES,))
    return run_service(context, sizing, plan_only=plan_only, dry_run=dry_run)


def can_merge(context: WriteContext) -> bool:
    """Whether file groups of the table may be merged; those of buckets may not."""
    return context.index.hashing is None


def partitions_with_small_files(context: WriteContext, snapshot: Snapshot, min_files: int) -> Mapping[str, int]:
    """The number of small files that are in no pending plan, by partition path, for paths with at least `min_files` of
    them."""
    limit = context.settings.max_small_file_size
    busy = snapshot.timeline.groups_of_services()
    counts = Counter(
        file_slice.partition for file_slice in snapshot.file_slices() if _is_small(file_slice, limit, busy)
    )
    return {path: count for path, count in sorted(counts.items()) if count >= min_files}


def _is_small(file_slice: FileSlice, limit: int, busy: Collection[tuple[str, str]]) -> bool:
    base = file_slice.base_file
    return base is not None and base.size < limit and (file_slice.partition, file_slice.file_id) not in busy
