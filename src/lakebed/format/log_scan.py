"""The blocks of a log file by ranged reads: heads first, contents when they are wanted."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.held_source import WHOLE_BYTES, HeldSource
from lakebed.format.hfile.source import ReadRange, SliceSource
from lakebed.format.log_file import FORMAT_VERSION, MAGIC, BlockType, HeaderKey

_SIZE_END = len(MAGIC) + 8
_TOTAL_BYTES = 8


@dataclass(frozen=True, slots=True)
class BlockHead:
    """A block of a log file without its content. CORRUPT stands for bytes that are no whole block.

    `offset` is where the block starts, `end` where it ends; `content_offset` and `content_length` say where its content
    lies in the file.
    """

    type: BlockType
    offset: int
    end: int
    content_offset: int
    content_length: int
    headers: Mapping[int, str] = field(repr=False)
    source: ReadRange = field(repr=False, compare=False)

    def header(self, key: HeaderKey) -> str | None:
        return self.headers.get(key)

    @property
    def instant(self) -> str:
        """The instant that wrote the block."""
        return self.headers.get(HeaderKey.INSTANT_TIME, "")

    @property
    def content(self) -> ReadRange:
        """The content as a file of its own, nothing of it read yet."""
        return SliceSource(self.source, self.content_offset, self.content_length)

    def read(self) -> bytes | memoryview:
        """The whole content."""
        return self.source.read(self.content_offset, self.content_length)


def scan_blocks(source: ReadRange) -> list[BlockHead]:
    """The blocks of a log file in order. A small file takes one request, a large one another for each block.

    Damage is taken as `read_blocks` takes it: bytes that are no whole block come back as CORRUPT, and reading goes on
    at the next magic. Raises `UnsupportedFeature` for the block format of releases before 0.5.
    """
    window = HeldSource(source)
    blocks: list[BlockHead] = []
    position = 0
    while position < source.size:
        end = _block_end(window, position)
        if end is None:
            end = _next_magic(window, position + 1)
            blocks.append(BlockHead(BlockType.CORRUPT, position, end, position, end - position, {}, window))
        else:
            blocks.append(_head(window, position, end))
        position = end
    return blocks


def _block_end(window: HeldSource, start: int) -> int | None:
    """Where the block that starts here ends, None if it is cut off or its two lengths differ."""
    head = bytes(window.ahead(start, _SIZE_END))
    if head[: len(MAGIC)] != MAGIC or len(head) < _SIZE_END or window.size - start < _SIZE_END + _TOTAL_BYTES:
        return None
    (size,) = struct.unpack_from(">q", head, len(MAGIC))
    end = start + _SIZE_END + size
    if size < _TOTAL_BYTES or end > window.size:
        return None
    # read with what follows it: the next block's head
    (total,) = struct.unpack(">q", window.ahead(end - _TOTAL_BYTES, _TOTAL_BYTES))
    return end if total == size + len(MAGIC) else None


def _next_magic(window: HeldSource, start: int) -> int:
    """Where the next magic is; the end of the file if there is none."""
    while start < window.size:
        piece = bytes(window.ahead(start, WHOLE_BYTES))
        found = piece.find(MAGIC)
        if found >= 0:
            return start + found
        start += max(1, len(piece) - len(MAGIC) + 1)
    return window.size


def _head(window: HeldSource, start: int, end: int) -> BlockHead:
    at = _Fields(window, start, end)
    try:
        version, kind, count = at.ints(3)
        if version != FORMAT_VERSION:
            raise UnsupportedFeature(
                f"{window.name}: block at offset {start} has log format version {version}",
                hint="Compact the table with Hudi first.",
                context={"path": window.name, "offset": start},
            )
        headers: dict[int, str] = {}
        for _ in range(count):
            key, length = at.ints(2)
            headers[key] = at.text(length)
        (length,) = at.longs(1)
        if not 0 <= length <= end - _TOTAL_BYTES - at.position:
            raise ValueError(f"its content of {length} bytes reaches beyond its end")
        return BlockHead(BlockType(kind), start, end, at.position, length, headers, window)
    except (struct.error, ValueError) as cause:
        raise CorruptFile(
            f"{window.name}: block at offset {start} cannot be read: {cause}",
            context={"path": window.name, "offset": start},
        ) from cause


class _Fields:
    """Reads the fields of a block's head one after the other."""

    def __init__(self, window: HeldSource, start: int, end: int) -> None:
        self._window = window
        self._end = end
        self.position = start + _SIZE_END

    def ints(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{count}i", self._next(4 * count))

    def longs(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{count}q", self._next(8 * count))

    def text(self, length: int) -> str:
        return self._next(length).decode()

    def _next(self, length: int) -> bytes:
        if length < 0 or self.position + length > self._end:
            raise ValueError("a header reaches beyond its end")
        data = bytes(self._window.ahead(self.position, length))
        self.position += length
        return data
