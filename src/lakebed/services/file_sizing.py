"""File sizing: the small base files of a partition path become few larger ones, by clusterings of those alone. What is
written is what a write's own sizing aims at: files of less than `hoodie.parquet.small.file.limit` are put together up
to `hoodie.parquet.max.file.size`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from lakebed.config.features import check_write
from lakebed.config.options import service_settings
from lakebed.config.settings import ClusteringSettings
from lakebed.errors import InvalidOption
from lakebed.model import FileSlice
from lakebed.operations.context import WriteContext
from lakebed.services.clustering import next_instant, plan_clustering, run_clustering, schedule_clustering
from lakebed.services.clustering_result import ClusteringResult
from lakebed.services.compaction_plan import groups_in_plans
from lakebed.slices.facts import table_features
from lakebed.slices.snapshot import Snapshot

# By hand: fewer cannot become one.
_FEWEST = 2


def merge_small_files(
    context: WriteContext, *, least: int | None = None, plan_only: bool = False, dry_run: bool = False
) -> ClusteringResult:
    """Put the small files together of each partition path that has `least` of them or more (None: two).

    `plan_only` makes the plan for another job to run, `dry_run` only shows it. Raises `InvalidOption` for a table whose
    index has a file group for each bucket of keys.
    """
    if least is not None and least < _FEWEST:
        raise InvalidOption(f"{least} small files of a partition path", hint=f"{_FEWEST} or more become one.")
    if not can_merge(context):
        raise InvalidOption(
            f"the files of table {context.config.name!r} cannot be put together: its {context.index.name} index"
            " has file groups for each bucket",
            hint="The number of buckets says how large files are: t.rescale() for a bucket index, t.cluster() for"
            " a consistent one, or a table with another index.",
            context={"index": context.index.name},
        )
    check_write(context.config.properties, table_features(context.opened), "cluster")
    counts = partitions_with_small_files(context, least or _FEWEST)
    if not counts:
        return ClusteringResult(notes=("no partition path has small files enough to put together",))
    settings = _sizing(context, counts)
    if dry_run:
        plan = plan_clustering(context, context.opened, settings, next_instant(context))
        return ClusteringResult(plan=plan if plan.groups else None)
    scheduled = schedule_clustering(context, settings, when_due=False)
    if scheduled.instant is None:
        return ClusteringResult(notes=(scheduled.why,))
    if plan_only:
        return ClusteringResult((), scheduled.plan, scheduled.instant)
    return ClusteringResult((run_clustering(context, settings, scheduled.instant),))


def can_merge(context: WriteContext) -> bool:
    """Whether file groups of the table may become one: a bucket's stay apart."""
    return not context.index.is_hashed


def partitions_with_small_files(context: WriteContext, least: int) -> Mapping[str, int]:
    """The number of small files that are in no pending plan, of each partition path that has `least` or more."""
    snapshot, limit = context.opened, context.settings.small_file_limit
    busy = _busy(snapshot)
    counts = Counter(one.partition for one in snapshot.file_slices() if _is_small(one, limit, busy))
    return {path: count for path, count in sorted(counts.items()) if count >= least}


def _is_small(one: FileSlice, limit: int, busy: Collection[tuple[str, str]]) -> bool:
    base = one.base_file
    return base is not None and base.size < limit and (one.partition, one.file_id) not in busy


def _busy(snapshot: Snapshot) -> Collection[tuple[str, str]]:
    return {*groups_in_plans(snapshot.timeline), *snapshot.timeline.pending_log_compaction()}


def _sizing(context: WriteContext, paths: Collection[str]) -> ClusteringSettings:
    """A clustering of the small files in these partition paths, in the order that the table's own clustering has."""
    usual = service_settings(context.options.given, context.config.properties).clustering
    return replace(
        usual,
        plan_strategy="SparkSizeBasedClusteringPlanStrategy",
        partitions=tuple(paths),
        partition_regex="",
        partition_filter="NONE",
        small_file_limit=context.settings.small_file_limit,
        group_bytes=context.settings.max_file_size,
        file_bytes=context.settings.max_file_size,
        singles=False,
    )
