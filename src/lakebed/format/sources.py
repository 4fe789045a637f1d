"""Where bytes come from: a file in storage, a range of one, or bytes in memory. `CachedRanges` caches ranges, so that
reading near what was read before takes no further request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lakebed.errors import CorruptFile
from lakebed.format.bounded_cache import BoundedCache
from lakebed.storage.parallel import is_remote

if TYPE_CHECKING:
    from lakebed.storage.base import Storage


class ReadRange(Protocol):
    """The bytes that an HFile's reader reads. `key` identifies them in the cache of blocks; with an empty key blocks
    are not cached."""

    @property
    def size(self) -> int: ...

    @property
    def key(self) -> tuple[Any, ...]: ...

    @property
    def name(self) -> str:
        """The name of the file in errors."""
        ...

    def read(self, offset: int, length: int) -> bytes | memoryview: ...

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        """The bytes of each (offset, length); nearby ranges share a request."""
        ...


# Bytes of the small files that this process has written, and in all.
MAX_REMEMBERED_FILE = 64 << 10
_MAX_REMEMBERED = 8 << 20
_REMEMBERED = BoundedCache[memoryview](_MAX_REMEMBERED)


def remember_written(storage: Storage, path: str, data: bytes) -> None:
    """Keep the bytes of a small file that this process has just written under a name that no other file ever gets. On a
    slow storage they are not read again while this process needs them next."""
    if len(data) <= MAX_REMEMBERED_FILE and is_remote(storage):
        _REMEMBERED.put((storage.url(path), len(data)), memoryview(data))


def forget_written() -> None:
    """Forget the files that this process has written, as in one that has just begun."""
    _REMEMBERED.clear()


class FileSource:
    """A complete file in storage. `size` saves a request if a listing has it; `modified` distinguishes the file from
    one that had its path and size before. A file that this process remembers is not read."""

    def __init__(self, storage: Storage, path: str, size: int | None = None, modified: int = 0) -> None:
        self._storage = storage
        self.name = path
        self.size = _size_of(storage, path) if size is None else size
        self.key: tuple[Any, ...] = (storage.url(path), self.size, modified)

    def read(self, offset: int, length: int) -> memoryview:
        return self.read_many([(offset, length)])[0]

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Sequence[memoryview]:
        # ranges that touch become one, which is not copied apart again
        runs: list[tuple[int, int]] = []
        for offset, length in ranges:
            if runs and sum(runs[-1]) == offset:
                runs[-1] = (runs[-1][0], runs[-1][1] + length)
            else:
                runs.append((offset, length))
        remembered = _REMEMBERED.get(self.key[:2])
        if remembered is not None:
            return [remembered[offset : offset + length] for offset, length in ranges]
        views = iter([memoryview(data) for data in self._storage.read_ranges(self.name, runs)])
        parts: list[memoryview] = []
        end, start, view = -1, 0, memoryview(b"")
        for offset, length in ranges:
            if offset != end:
                start, view = offset, next(views)
            parts.append(view[offset - start : offset - start + length])
            end = offset + length
        return parts


class SliceSource:
    """A stretch of another source, e.g. the content of a log file's block.

    >>> SliceSource(BytesSource(b"head and tail"), 5, 3).read(0, 3).tobytes()
    b'and'
    """

    def __init__(self, source: ReadRange, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > source.size:
            raise CorruptFile(
                f"{source.name}: {length} bytes at {offset} reach beyond its end at {source.size}",
                context={"path": source.name, "offset": offset},
            )
        self._source = source
        self._offset = offset
        self.size = length
        self.name = f"{source.name} (at {offset})"
        self.key: tuple[Any, ...] = (*source.key, offset, length) if source.key else ()

    def read(self, offset: int, length: int) -> bytes | memoryview:
        return self._source.read(self._offset + offset, length)

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        return self._source.read_many([(self._offset + offset, length) for offset, length in ranges])


class BytesSource:
    """Bytes in memory. Their blocks are cached only if the caller gives a `key`."""

    def __init__(self, data: bytes | memoryview, name: str = "HFile", key: tuple[Any, ...] = ()) -> None:
        self._data = memoryview(data)
        self.name = name
        self.key = key
        self.size = len(self._data)

    def read(self, offset: int, length: int) -> memoryview:
        return self._data[offset : offset + length]

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Sequence[memoryview]:
        return [self._data[offset : offset + length] for offset, length in ranges]


def _size_of(storage: Storage, path: str) -> int:
    info = storage.head(path)
    if info is None:
        raise FileNotFoundError(path)
    return info.size


# Files up to this size come whole in one request; of larger ones so much is read ahead.
SMALL_FILE_BYTES = 256 << 10
AHEAD_BYTES = 32 << 10


class CachedRanges:
    """A source that caches a small file completely, and of a large file the two ranges that were read ahead last.

    >>> from lakebed.format.sources import BytesSource
    >>> CachedRanges(BytesSource(b"abcdef")).ahead(4, 10).tobytes()
    b'ef'
    """

    def __init__(self, source: ReadRange) -> None:
        self._source = source
        self._stretches: list[tuple[int, bytes | memoryview]] = []
        self.size = source.size
        self.key: tuple[Any, ...] = source.key
        self.name = source.name

    def read(self, offset: int, length: int) -> bytes | memoryview:
        return self.read_many([(offset, length)])[0]

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        if self.size <= SMALL_FILE_BYTES:
            return [self.ahead(offset, length) for offset, length in ranges]
        cached = [self._held(offset, length) for offset, length in ranges]
        parts = [data for data in cached if data is not None]
        return parts if len(parts) == len(ranges) else self._source.read_many(ranges)

    def ahead(self, offset: int, length: int) -> bytes | memoryview:
        """The bytes at `offset`; fewer than `length` at the end of the file. Bytes after them are read in the same
        request and cached."""
        length = min(length, self.size - offset)
        cached = self._held(offset, length)
        if cached is not None:
            return cached
        if self.size <= SMALL_FILE_BYTES:
            start, span = 0, self.size
        else:
            start, span = offset, min(max(length, AHEAD_BYTES), self.size - offset)
        data = self._source.read(start, span)
        self._stretches = [(start, data), *self._stretches[:1]]
        return data[offset - start : offset - start + length]

    def _held(self, offset: int, length: int) -> bytes | memoryview | None:
        for start, data in self._stretches:
            if start <= offset and offset + length <= start + len(data):
                return data[offset - start : offset - start + length]
        return None
