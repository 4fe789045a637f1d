"""A bounded cache of inflated HFile blocks, shared by all readers of the process."""

from __future__ import annotations

from typing import Any

from lakebed.format.bounded_cache import BoundedCache
from lakebed.format.hfile.entries import EntryBlock

_MAX_BYTES = 256 << 20


class BlockCache(BoundedCache[EntryBlock]):
    """Keeps the blocks used last, up to `max_bytes` of memory. Safe to use from several threads."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        super().__init__(max_bytes)

    def drop_file(self, source: tuple[Any, ...], count: int) -> None:
        """Forget the blocks of a file that nobody is going to ask again."""
        for number in range(count):
            self.drop((*source, number))


BLOCKS = BlockCache()
