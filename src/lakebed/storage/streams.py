"""Ranges of a file: near ones merged into one request, a seekable file over a store that only reads ranges; and
`StreamUpload`, the part of an `Upload` that is the same for every store.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from lakebed.storage.base import Upload

if TYPE_CHECKING:
    from typing_extensions import Buffer

BLOCK_BYTES = 1 << 20
CACHE_BLOCKS = 24
AHEAD_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class Request:
    """One request for `length` bytes at `offset`; `members` are the positions of the requested ranges that it
    answers."""

    offset: int
    length: int
    members: tuple[int, ...]


def coalesce(
    ranges: Sequence[tuple[int, int]], gap: int, max_bytes: int | None = None, max_members: int | None = None
) -> list[Request]:
    """Merge ranges that are at most `gap` bytes apart, up to `max_bytes` bytes and `max_members` ranges a request
    (None: no bound); a longer range is a request of its own. Empty ranges need no request.

    >>> [(r.offset, r.length, r.members) for r in coalesce([(100, 10), (0, 4), (6, 4)], gap=8)]
    [(0, 10, (1, 2)), (100, 10, (0,))]
    """
    order = sorted((i for i, (_, length) in enumerate(ranges) if length > 0), key=lambda i: ranges[i])
    requests: list[Request] = []
    members: list[int] = []
    start = end = 0
    for i in order:
        offset, length = ranges[i]
        is_full = max_bytes is not None and max(end, offset + length) - start > max_bytes
        if members and (offset - end > gap or is_full or len(members) == max_members):
            requests.append(Request(start, end - start, tuple(members)))
            members = []
        if not members:
            start, end = offset, offset
        members.append(i)
        end = max(end, offset + length)
    if members:
        requests.append(Request(start, end - start, tuple(members)))
    return requests


def read_coalesced(ranges: Sequence[tuple[int, int]], gap: int, fetch: Callable[[int, int], bytes]) -> list[bytes]:
    """The bytes of each range, with one `fetch(offset, length)` for nearby ranges."""
    out = [b""] * len(ranges)
    for request in coalesce(ranges, gap):
        data = fetch(request.offset, request.length)
        for i in request.members:
            offset, length = ranges[i]
            out[i] = data[offset - request.offset : offset - request.offset + length]
    return out


class RangeFile(io.RawIOBase):
    """A seekable file over `fetch(offset, length)`, for `pyarrow.PythonFile`.

    Reads go through blocks of `block` bytes, of which the last used `blocks` are kept: Parquet reads one slow stream
    per column, so each stream finds its own block again. A miss right after a cached block counts as sequential and
    fetches some blocks ahead in the same request. Reads of more than the cache's quarter go straight to the store.
    """

    def __init__(
        self,
        fetch: Callable[[int, int], bytes],
        size: int,
        *,
        block: int = BLOCK_BYTES,
        blocks: int = CACHE_BLOCKS,
    ) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._block = block
        self._limit = max(blocks, AHEAD_BLOCKS + 1)
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._position = 0
        self._lock = threading.Lock()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        with self._lock:
            left = max(0, self._size - self._position)
            length = left if size is None or size < 0 else min(size, left)
            data = self._read_at(self._position, length)
            self._position += len(data)
            return data

    def readall(self) -> bytes:
        return self.read()

    def close(self) -> None:
        self._cache.clear()
        super().close()

    def _read_at(self, offset: int, length: int) -> bytes:
        if length == 0:
            return b""
        if length > self._block * (self._limit // 4):
            return self._fetch(offset, length)
        first, last = offset // self._block, (offset + length - 1) // self._block
        self._load(first, last)
        parts = [self._cache[i] for i in range(first, last + 1)]
        start = offset - first * self._block
        if len(parts) == 1:
            return parts[0][start : start + length]
        return b"".join(parts)[start : start + length]

    def _load(self, first: int, last: int) -> None:
        """Load the blocks `first` to `last` into the cache, with one request for each gap."""
        missing = [i for i in range(first, last + 1) if i not in self._cache]
        for i in range(first, last + 1):
            if i in self._cache:
                self._cache.move_to_end(i)
        while missing:
            start = missing[0]
            end = start
            while end + 1 in missing:
                end += 1
            missing = [i for i in missing if i > end]
            if start - 1 in self._cache and end == last:
                end = self._ahead(end)
            self._fill(start, end)
        while len(self._cache) > max(self._limit, last - first + 1 + AHEAD_BLOCKS):
            self._cache.popitem(last=False)

    def _ahead(self, end: int) -> int:
        final = (self._size - 1) // self._block
        for _ in range(AHEAD_BLOCKS - 1):
            if end + 1 > final or end + 1 in self._cache:
                break
            end += 1
        return end

    def _fill(self, start: int, end: int) -> None:
        offset = start * self._block
        length = min((end + 1) * self._block, self._size) - offset
        data = self._fetch(offset, length)
        for i in range(start, end + 1):
            at = (i - start) * self._block
            self._cache[i] = data[at : at + self._block]


class StreamUpload(Upload):
    """A file that is written from front to back. Stores implement `_append`, `_finish` (make it visible) and `_discard`
    (remove it).

    As a context manager it closes at the end of the block and aborts when the block raised.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._position = 0
        self._closed = False

    def _append(self, data: memoryview) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    def _discard(self) -> None:
        raise NotImplementedError

    def write(self, data: Buffer, /) -> int:
        if self._closed:
            raise ValueError(f"write to the closed upload of {self._path}")
        view = memoryview(data)
        if view.format != "B" or view.ndim != 1:
            view = view.cast("B")
        self._append(view)
        self._position += view.nbytes
        return view.nbytes

    def close(self) -> None:
        """Make the file durable and visible. If that fails the file is removed, and the error is raised."""
        if self._closed:
            return
        self._closed = True
        try:
            self._finish()
        except Exception:
            self._discard()
            raise

    def abort(self) -> None:
        """Discard the file. Does nothing after `close`."""
        if not self._closed:
            self._closed = True
            self._discard()

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        return None

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def isatty(self) -> bool:
        return False

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def mode(self) -> str:
        return "wb"

    @property
    def name(self) -> str:
        return self._path

    def __enter__(self) -> StreamUpload:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()
