"""Golden tables unpacked into memory, with every request counted."""

from __future__ import annotations

from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage
from support.golden_tables import golden, golden_tables

WITH_METADATA = [t.name for t in golden_tables(lambda t: bool(t.entry.get("metadata_partitions")))]
WITH_INDEXES = [t.name for t in golden_tables(lambda t: len(t.entry.get("metadata_partitions") or ()) > 1)]


def in_memory(name: str, room: str) -> CountingStorage:
    """The golden table's files under a name of the room's own."""
    place = f"{room}-{name}"
    MemoryStorage.drop(place)
    storage = MemoryStorage(place)
    for path, data in golden(name).files().items():
        storage.write(path, data)
    return CountingStorage(storage)
