"""What the read and write matrix wants to know of a table beyond its properties."""

from __future__ import annotations

from lakebed.config.features import BUCKET_FOLDER, SCHEMA_FOLDER, TableFacts
from lakebed.model import HOODIE, Action
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage


def table_features(snapshot: Snapshot) -> TableFacts:
    """Look at the folders that show a feature, and at the timeline for an unfinished restore."""
    storage = snapshot.storage
    folders = set(storage.list_folders(HOODIE))
    seen = TableFacts.from_paths(_paths(storage, folders))
    restore = next((i.time for i in snapshot.timeline.pending if i.action is Action.RESTORE), "")
    return TableFacts(
        metadata_table=bool(snapshot.config.metadata_partitions) or "metadata" in folders,
        schema_history=seen.schema_history,
        partition_buckets=seen.partition_buckets,
        consistent_buckets=seen.consistent_buckets,
        pending_restore=restore,
    )


def _paths(storage: Storage, folders: set[str]) -> list[str]:
    present = [f for f in (SCHEMA_FOLDER, BUCKET_FOLDER) if f.removeprefix(HOODIE + "/") in folders]
    return [info.path for folder in present for info in storage.list(folder)]
