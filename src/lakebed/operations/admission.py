"""What stops a write: features that cannot be kept right, and a pending clustering of its file groups that does not
give way."""

from __future__ import annotations

from collections.abc import Collection

from lakebed.config.features import check_write
from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, InvalidOption
from lakebed.index.registry import check_partition_counts
from lakebed.metadata.kinds.key_indexes import KeyIndexes
from lakebed.model import FileGroupId
from lakebed.operations.context import CONCURRENCY, WriteContext
from lakebed.operations.transaction import GIVES_WAY, clusterings_that_give_way
from lakebed.slices.facts import table_features
from lakebed.slices.snapshot import Snapshot


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
    if not context.has_appended_groups:
        raise InvalidOption(
            f"non-blocking writers need a merge-on-read table of version 8 or later with a bucket index, and table"
            f" {config.name!r} is none",
            hint=f"write with {CONCURRENCY}=OPTIMISTIC_CONCURRENCY_CONTROL",
            context={"option": CONCURRENCY},
        )
    kept = KeyIndexes.of(context.storage, config).partitions
    if kept:
        raise InvalidOption(
            f"non-blocking writers cannot keep {', '.join(kept)} of table {config.name!r} right",
            hint=f"write with {CONCURRENCY}=OPTIMISTIC_CONCURRENCY_CONTROL, or drop the index",
            context={"option": CONCURRENCY, "partitions": list(kept)},
        )


def refuse_clustered(
    snapshot: Snapshot, settings: WriteSettings, groups: Collection[FileGroupId], beside: Collection[FileGroupId] = ()
) -> None:
    """Raise `CommitConflict` where one of these file groups, which a write would change, is in a pending clustering
    that does not give way. `beside` are groups whose rows the write brings to the new ones as well."""
    planned = snapshot.timeline.pending_clustering()
    met = sorted(set(groups) & planned.keys() - set(beside))
    if not met:
        return
    giving_way = clusterings_that_give_way(snapshot.storage, snapshot.timeline, settings)
    for partition, file_id in met:
        instant = planned[partition, file_id].time
        if instant not in giving_way:
            raise CommitConflict(
                f"file group {file_id} in partition {partition!r} is in the pending clustering {instant}",
                hint="Nothing of this write is visible. Run it again when the clustering is done: retries= waits for"
                " it, t.cluster() runs a plan that waits. Or let the clustering give way: write with"
                f" hoodie.clustering.updates.strategy={GIVES_WAY}.",
                context={"partition": partition, "file_id": file_id, "instant": instant},
            )
