"""Golden tables with their metadata table opened."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cache

from lakebed.metadata.lookups import MetadataTable, open_metadata
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage
from lakebed.timeline.timeline import Timeline, load_timeline
from support.golden_tables import GoldenTable, golden, golden_tables

# Of these the records of the metadata table are known as real Hudi shows them.
WITH_METADATA = [
    t.name
    for t in golden_tables(lambda t: bool(t.entry.get("metadata_partitions")) and not t.entry.get("without_dump"))
]
WITH_INDEXES = [t for t in WITH_METADATA if len(golden(t).entry["metadata_partitions"]) > 1]


@dataclass(frozen=True)
class Opened:
    table: GoldenTable
    storage: CountingStorage
    config: TableConfig
    timeline: Timeline
    metadata: MetadataTable


def unpacked(name: str) -> CountingStorage:
    """The golden table's files in memory, where nothing of them is known to any cache."""
    storage = MemoryStorage(f"metadata-{name}-{uuid.uuid4().hex}")
    for path, data in golden(name).files().items():
        storage.write(path, data)
    return CountingStorage(storage)


@cache
def opened(name: str) -> Opened:
    storage = unpacked(name)
    config = load_table_config(storage)
    timeline = load_timeline(storage, config)
    metadata = open_metadata(storage, config, timeline)
    assert metadata is not None
    return Opened(golden(name), storage, config, timeline, metadata)
