"""Small files of metadata tables, opened once and kept by the process: each commit reads those of the one before.

A file is known by its path, size and time of change, so that one which grew, or stands where another stood, is read
anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from lakebed.format.bounded_cache import BoundedCache, Kept
from lakebed.format.hfile.entries import BLOCKS
from lakebed.format.hfile.reader import HFileReader, open_hfile
from lakebed.format.log_file import BlockHead, scan_blocks
from lakebed.format.sources import WHOLE_BYTES, ReadRange

T = TypeVar("T")
_KEPT_BYTES: Final = 32 << 20
_BASES_BYTES: Final = 4 << 20
_MEMORY_OF_A_BASE: Final = 500
# What is inflated and decoded of a file takes several times its size.
_MEMORY_OF_A_BYTE: Final = 8
_MEMORY_OF_A_FILE: Final = 4 << 10


class SmallFiles(Generic[T]):
    """Caches what `make` gives for a small file. Its bytes are held, so it is not read from storage again."""

    def __init__(self, make: Callable[[ReadRange], T]) -> None:
        self._make = make
        self._kept = BoundedCache[Kept[T]](_KEPT_BYTES)

    def of(self, source: ReadRange, file_size: int | None = None) -> T:
        """`file_size`: of the file of which the source is a stretch."""
        if not source.key or (source.size if file_size is None else file_size) > WHOLE_BYTES:
            return self._make(source)
        known = self._kept.get(source.key)
        if known is None:
            known = Kept(self._make(source), _MEMORY_OF_A_FILE + _MEMORY_OF_A_BYTE * source.size)
            self._kept.put(source.key, known)
        return known.content

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()


@dataclass(frozen=True, slots=True)
class _Base:
    instant: str
    blocks: tuple[tuple[Any, ...], int]


def remember_newest_base(group: str, instant: str, reader: HFileReader) -> None:
    """Note that this is the newest base file of a file group, given by its URL. Cached blocks of the one before are
    dropped at once: in a process that lives long they would fill the cache."""
    known = _BASES.get(group)
    if known is None or known.content.instant < instant:
        _BASES.put(group, Kept(_Base(instant, reader.blocks), _MEMORY_OF_A_BASE + len(group)))
        if known is not None:
            BLOCKS.drop_file(*known.content.blocks)


_BASES = BoundedCache[Kept[_Base]](_BASES_BYTES)
HFILES = SmallFiles[HFileReader](lambda source: open_hfile(source, keep_entries=source.size <= WHOLE_BYTES))
LOGS = SmallFiles[list[BlockHead]](scan_blocks)
