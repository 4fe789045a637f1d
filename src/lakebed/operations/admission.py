"""What is refused before a write touches anything: features that cannot be kept right, groups in a clustering."""

from __future__ import annotations

from lakebed.config.features import check_write
from lakebed.errors import InvalidOption
from lakebed.index.base import Index
from lakebed.index.registry import check_partition_counts
from lakebed.metadata.kinds.key_indexes import KeyIndexes
from lakebed.model import path_in
from lakebed.operations.context import WriteContext
from lakebed.operations.plan import WritePlan
from lakebed.slices.facts import table_features
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.instants import has_completion_times


def admit(context: WriteContext, operation: str) -> None:
    """Raise `UnsupportedFeature` for a table whose features this operation could not keep right."""
    features = table_features(context.opened)
    check_write(context.config.properties, features, operation.lower())
    if features.partition_buckets:
        check_partition_counts(context.opened, context.index)
    _ = context.rules  # a merger that is not installed
    if context.is_non_blocking:
        _check_non_blocking(context)


def _check_non_blocking(context: WriteContext) -> None:
    """Writers that do not wait for one another only append, to file groups that follow from the key; which rows are
    alive is then known to readers alone, not to the writer that an index of keys would be kept by."""
    config = context.config
    fits = context.index.is_hashed and context.index.has_fixed_groups
    known = config.table_type == "mor" and has_completion_times(config.version) and fits
    if not known:
        raise InvalidOption(
            f"non-blocking writers need a merge-on-read table of version 8 or later with a bucket index, and table"
            f" {config.name!r} is none",
            hint="write with hoodie.write.concurrency.mode=OPTIMISTIC_CONCURRENCY_CONTROL",
            context={"option": "hoodie.write.concurrency.mode"},
        )
    kept = KeyIndexes.of(context.storage, config).partitions
    if kept:
        raise InvalidOption(
            f"non-blocking writers cannot keep {', '.join(kept)} of table {config.name!r} right",
            hint="write with hoodie.write.concurrency.mode=OPTIMISTIC_CONCURRENCY_CONTROL, or drop the index",
            context={"option": "hoodie.write.concurrency.mode", "partitions": list(kept)},
        )


def file_groups_in_clustering(snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    """(partition path, file id) of every file group that a pending clustering is about to replace."""
    return frozenset(snapshot.timeline.pending_clustering())


def refuse_clustered(snapshot: Snapshot, plan: WritePlan, index: Index) -> None:
    """Refuse a write that would update a file group which a pending clustering rewrites, where the index does not bring
    its rows to the new ones as well."""
    met = sorted((plan.touched() & file_groups_in_clustering(snapshot)) - index.resizes(snapshot).parents.keys())
    if met:
        partition, file_id = met[0]
        facts = table_features(snapshot, updated_in_clustering=path_in(partition, file_id))
        check_write(snapshot.config.properties, facts, plan.operation.lower())
