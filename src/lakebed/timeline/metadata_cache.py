"""A bounded cache of decoded commit bodies, shared by all tables and timelines of the process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from lakebed.model import CommitMetadata

_MAX_BYTES = 32 << 20


class MetadataCache:
    """Keeps the bodies used last, up to `max_bytes` of their encoded size. Safe to use from several threads.

    >>> cache = MetadataCache(max_bytes=10)
    >>> cache.put("a", CommitMetadata("UPSERT"), size=6)
    >>> cache.put("b", CommitMetadata("INSERT"), size=6)
    >>> cache.get("a") is None, cache.get("b").operation
    (True, 'INSERT')
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[Hashable, tuple[CommitMetadata, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> CommitMetadata | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, meta: CommitMetadata, size: int) -> None:
        """Remember a body; one larger than the whole cache is not kept."""
        with self._lock:
            if key in self._entries or size > self._max_bytes:
                return
            self._entries[key] = (meta, size)
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._bytes -= dropped


COMMIT_BODIES = MetadataCache()
