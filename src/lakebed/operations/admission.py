"""What is refused before a write touches anything: features that cannot be kept right, groups in a clustering."""

from __future__ import annotations

from lakebed.config.features import check_write
from lakebed.model import path_in
from lakebed.operations.context import WriteContext
from lakebed.operations.plan import WritePlan
from lakebed.slices.facts import table_features
from lakebed.slices.snapshot import Snapshot


def admit(context: WriteContext, operation: str) -> None:
    """Raise `UnsupportedFeature` for a table whose features this operation could not keep right."""
    check_write(context.config.properties, table_features(context.opened), operation.lower())


def file_groups_in_clustering(snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    """(partition path, file id) of every file group that a pending clustering is about to replace."""
    return frozenset(snapshot.timeline.pending_clustering())


def refuse_clustered(snapshot: Snapshot, plan: WritePlan) -> None:
    """Refuse a write that would update a file group which a pending clustering rewrites."""
    met = sorted(plan.touched() & file_groups_in_clustering(snapshot))
    if met:
        partition, file_id = met[0]
        facts = table_features(snapshot, updated_in_clustering=path_in(partition, file_id))
        check_write(snapshot.config.properties, facts, plan.operation.lower())
