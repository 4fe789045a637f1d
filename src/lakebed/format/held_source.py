"""`HeldSource`: ranges of a file where those near to what was read before cost no further request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakebed.format.hfile.source import ReadRange

# Files up to this size come whole in one request; of larger ones so much is read ahead.
WHOLE_BYTES = 256 << 10
AHEAD_BYTES = 32 << 10


class HeldSource:
    """A source that holds a small file whole, and of a large one the two stretches that were read ahead last.

    >>> from lakebed.format.hfile.source import BytesSource
    >>> HeldSource(BytesSource(b"abcdef")).ahead(4, 10).tobytes()
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
        if self.size <= WHOLE_BYTES:
            return [self.ahead(offset, length) for offset, length in ranges]
        held = [self._held(offset, length) for offset, length in ranges]
        found = [data for data in held if data is not None]
        return found if len(found) == len(ranges) else self._source.read_many(ranges)

    def ahead(self, offset: int, length: int) -> bytes | memoryview:
        """These bytes (fewer at the end of the file); what lies behind them is read along."""
        length = min(length, self.size - offset)
        held = self._held(offset, length)
        if held is not None:
            return held
        if self.size <= WHOLE_BYTES:
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
