"""A bounded cache of inflated HFile blocks, shared by all readers of the process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from lakebed.format.hfile_entries import EntryBlock

_MAX_BYTES = 256 << 20


class BlockCache:
    """Keeps the blocks used last, up to `max_bytes` of memory. Safe to use from several threads."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._blocks: OrderedDict[Hashable, EntryBlock] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """What the blocks in it hold in memory."""
        return self._bytes

    def get(self, key: Hashable) -> EntryBlock | None:
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
            return block

    def put(self, key: Hashable, block: EntryBlock) -> None:
        """Remember a block; one larger than the whole cache is not kept."""
        with self._lock:
            if key in self._blocks or block.nbytes > self._max_bytes:
                return
            self._blocks[key] = block
            self._bytes += block.nbytes
            while self._bytes > self._max_bytes:
                _, dropped = self._blocks.popitem(last=False)
                self._bytes -= dropped.nbytes

    def clear(self) -> None:
        """Forget every block."""
        with self._lock:
            self._blocks.clear()
            self._bytes = 0


BLOCKS = BlockCache()
