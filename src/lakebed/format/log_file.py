"""Log files: a sequence of blocks, each with a type, headers and content. Reading tolerates damage at the end;
writing appends. Heads are read first, by ranges, contents when they are asked for.
"""

from __future__ import annotations

import base64
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.encoder import decode_record
from lakebed.format.bounded_cache import BoundedCache, CacheEntry
from lakebed.format.sources import SMALL_FILE_BYTES, CachedRanges, ReadRange, SliceSource

if TYPE_CHECKING:
    from lakebed.format.hfile.reader import Written

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1
_AVRO_BLOCK_VERSION = 3
_SIZE_END = len(MAGIC) + 8
_TOTAL_BYTES = 8
# The number of footers, which is always zero.
_FOOTER_BYTES = 4
_WRITTEN_BYTES = 8 << 20


class BlockType(IntEnum):
    """The kind of a block's content. CORRUPT is never on disk: it marks bytes that cannot be read."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(IntEnum):
    """The keys that a block's headers may have."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block of a log file; `offset` is where it starts. Headers with unknown keys have their number as the key."""

    type: BlockType
    headers: Mapping[int, str] = field(default_factory=dict[int, str])
    content: bytes = b""
    offset: int = 0

    def header(self, key: HeaderKey) -> str | None:
        return self.headers.get(key)


WrittenBlock = tuple[LogBlock, "Written | None"]
"""A block of a log file, with what its HFile was written from (None: it has none)."""
WRITTEN_LOGS = BoundedCache[CacheEntry[Sequence[WrittenBlock]]](_WRITTEN_BYTES)
"""The blocks of small log files of metadata tables that this process has written, by URL, size and 0 (the time of
change is not known): its next commit does not read and decode them."""


def read_blocks(data: bytes, path: str = "") -> list[LogBlock]:
    """The blocks of a log file in order. Bytes that are not a complete block become a CORRUPT block, and reading
    continues at the next magic. A block whose two lengths agree counts, whatever follows it.

    Raises `UnsupportedFeature` for the block format of releases before 0.5.
    """
    return list(_blocks(data, path))


def block_bytes(block: LogBlock) -> bytes:
    """The bytes of the block in a log file, headers in their given order.

    >>> command = LogBlock(BlockType.COMMAND, {HeaderKey.INSTANT_TIME: "2"})
    >>> read_blocks(block_bytes(command))[0].header(HeaderKey.INSTANT_TIME)
    '2'
    """
    head = [struct.pack(">iii", FORMAT_VERSION, block.type, len(block.headers))]
    for key, value in block.headers.items():
        encoded = value.encode()
        head.append(struct.pack(">ii", key, len(encoded)) + encoded)
    body = b"".join([*head, struct.pack(">q", len(block.content)), block.content, struct.pack(">i", 0)])
    size = len(body) + 8
    return b"".join([MAGIC, struct.pack(">q", size), body, struct.pack(">q", size + len(MAGIC))])


def rollback_block(target: str, instant: str) -> LogBlock:
    """The command block that hides the blocks of instant `target` from readers (table version 6)."""
    headers = {
        HeaderKey.TARGET_INSTANT_TIME: target,
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
    }
    return LogBlock(BlockType.COMMAND, cast("Mapping[int, str]", headers))


def avro_data_block(schema: str, records: Sequence[bytes], instant: str | None = None) -> LogBlock:
    """A data block of records in Avro binary under `schema`; archive blocks have no instant."""
    headers: dict[int, str] = {HeaderKey.SCHEMA: schema}
    if instant is not None:
        headers[HeaderKey.INSTANT_TIME] = instant
    framed = [struct.pack(">i", len(record)) + record for record in records]
    return avro_block(framed, len(records), schema, headers)


def avro_block(
    records: Sequence[bytes],
    count: int,
    avro_schema: str,
    headers: Mapping[int, str],
    kind: BlockType = BlockType.AVRO_DATA,
) -> LogBlock:
    """A block of `count` records in Avro binary, each with its length (4 bytes) in front. `headers` are written as
    given, and SCHEMA is added."""
    content = b"".join([struct.pack(">ii", _AVRO_BLOCK_VERSION, count), *records])
    return LogBlock(kind, {**headers, int(HeaderKey.SCHEMA): avro_schema}, content)


def hfile_data_block(schema: str, hfile: bytes, instant: str) -> LogBlock:
    """A data block of the metadata table: a complete HFile (with at least one entry) whose values have this schema."""
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema}
    return LogBlock(BlockType.HFILE_DATA, cast("Mapping[int, str]", headers), hfile)


def delete_block(content: bytes, instant: str, schema: str | None = None) -> LogBlock:
    """A block of deletes; `encode_deletes` makes its content. The block that creates a file group of the metadata table
    is empty and has no schema.

    >>> from lakebed.format.delete_block import encode_deletes
    >>> len(block_bytes(delete_block(encode_deletes(None), "00000000000000000")))
    80
    """
    headers: dict[int, str] = {HeaderKey.INSTANT_TIME: instant}
    if schema is not None:
        headers[HeaderKey.SCHEMA] = schema
    return LogBlock(BlockType.DELETE, headers, content)


def avro_records(block: LogBlock, path: str = "") -> list[dict[str, Any]]:
    """The records of an AVRO_DATA or CDC_DATA block, decoded with its own schema.

    Meant for small blocks such as archived instants. Raises `CorruptFile` naming `path` and the block's offset.
    """
    schema = block.headers.get(HeaderKey.SCHEMA, "")
    try:
        return [decode_record(schema, record) for record in raw_records(block.content)]
    except Exception as cause:  # fastavro raises whatever the broken bytes lead it to
        raise CorruptFile(
            f"{path or 'log file'}: the data block at offset {block.offset} cannot be decoded: {cause}",
            context={"path": path, "offset": block.offset},
        ) from cause


def raw_records(content: bytes) -> Iterator[bytes]:
    """The Avro binary of each record of an Avro data block's content."""
    _, count = struct.unpack_from(">ii", content)
    position = 8
    if count < 0:
        raise ValueError(f"a block of {count} records")
    for _ in range(count):
        (length,) = struct.unpack_from(">i", content, position)
        position += 4
        if not 0 <= length <= len(content) - position:
            raise ValueError(f"a record of {length} bytes reaches beyond its end")
        yield content[position : position + length]
        position += length


def _blocks(data: bytes, path: str) -> Iterator[LogBlock]:
    position = 0
    while position < len(data):
        end = _block_end(data, position)
        if end is None:
            after = data.find(MAGIC, position + 1)
            end = len(data) if after < 0 else after
            yield LogBlock(BlockType.CORRUPT, content=data[position:end], offset=position)
        else:
            yield _block(data, position, end, path)
        position = end


def _block_end(data: bytes, start: int) -> int | None:
    """The end of the block that starts at `start`; None if the block is cut off or its two lengths differ."""
    if data[start : start + len(MAGIC)] != MAGIC or len(data) - start < _SIZE_END + 8:
        return None
    (size,) = struct.unpack_from(">q", data, start + len(MAGIC))
    end = start + _SIZE_END + size
    if size < 8 or end > len(data):
        return None
    (total,) = struct.unpack_from(">q", data, end - 8)
    return end if total == size + len(MAGIC) else None


def _block(data: bytes, start: int, end: int, path: str) -> LogBlock:
    where = f"{path or 'log file'}: block at offset {start}"
    try:
        version, kind, headers = struct.unpack_from(">iii", data, start + _SIZE_END)
        if version != FORMAT_VERSION:
            raise UnsupportedFeature(
                f"{where} has log format version {version}",
                hint="Compact the table with Hudi first.",
                context={"path": path, "offset": start},
            )
        position = start + _SIZE_END + 12
        header_texts: dict[int, str] = {}
        for _ in range(headers):
            key, length = struct.unpack_from(">ii", data, position)
            if not 0 <= length <= end - position - 8:
                raise ValueError("a header reaches beyond its end")
            header_texts[key] = data[position + 8 : position + 8 + length].decode()
            position += 8 + length
        (length,) = struct.unpack_from(">q", data, position)
        if not 0 <= length <= end - _TOTAL_BYTES - position - 8:
            raise ValueError(f"its content of {length} bytes reaches beyond its end")
        return LogBlock(BlockType(kind), header_texts, data[position + 8 : position + 8 + length], start)
    except (struct.error, ValueError) as cause:
        raise CorruptFile(f"{where} cannot be read: {cause}", context={"path": path, "offset": start}) from cause


@dataclass(frozen=True, slots=True)
class BlockHead:
    """A block of a log file without its content. The type CORRUPT marks bytes that are not a complete block.

    `offset` is where the block starts, `end` where it ends; `content_offset` and `content_length` locate its content
    in the file.
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
        """The content of the block as a file. Nothing of it has been read yet."""
        return SliceSource(self.source, self.content_offset, self.content_length)

    def read(self) -> bytes | memoryview:
        """The whole content."""
        return self.source.read(self.content_offset, self.content_length)


def written_heads(blocks: Sequence[LogBlock], source: ReadRange) -> list[BlockHead]:
    """The heads that `scan_blocks` reads from `source`, a log file that was written from these blocks."""
    heads: list[BlockHead] = []
    offset = 0
    for block in blocks:
        length, end = len(block.content), offset + len(block_bytes(block))
        content = end - _TOTAL_BYTES - _FOOTER_BYTES - length
        heads.append(BlockHead(block.type, offset, end, content, length, block.headers, source))
        offset = end
    return heads


def scan_blocks(source: ReadRange) -> list[BlockHead]:
    """The blocks of a log file in order. A small file takes one request, a large one another for each block.

    Damage is handled as by `read_blocks`: bytes that are no complete block become CORRUPT, and reading continues at the
    next magic. Raises `UnsupportedFeature` for the block format of releases before 0.5.
    """
    window = CachedRanges(source)
    blocks: list[BlockHead] = []
    position = 0
    while position < source.size:
        end = _block_end_in_window(window, position)
        if end is None:
            end = _next_magic(window, position + 1)
            blocks.append(BlockHead(BlockType.CORRUPT, position, end, position, end - position, {}, window))
        else:
            blocks.append(_head(window, position, end))
        position = end
    return blocks


def _block_end_in_window(window: CachedRanges, start: int) -> int | None:
    """The end of the block that starts at `start`; None if the block is cut off or its two lengths differ."""
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


def _next_magic(window: CachedRanges, start: int) -> int:
    """The position of the next magic; the end of the file if there is none."""
    while start < window.size:
        piece = bytes(window.ahead(start, SMALL_FILE_BYTES))
        offset = piece.find(MAGIC)
        if offset >= 0:
            return start + offset
        start += max(1, len(piece) - len(MAGIC) + 1)
    return window.size


def _head(window: CachedRanges, start: int, end: int) -> BlockHead:
    position = start + _SIZE_END

    def take(length: int) -> bytes:
        """The next `length` bytes of the block's head. Raises `ValueError` if the block ends before."""
        nonlocal position
        if length < 0 or position + length > end:
            raise ValueError("a header reaches beyond its end")
        position += length
        return bytes(window.ahead(position - length, length))

    try:
        version, kind, count = struct.unpack(">3i", take(12))
        if version != FORMAT_VERSION:
            raise UnsupportedFeature(
                f"{window.name}: block at offset {start} has log format version {version}",
                hint="Compact the table with Hudi first.",
                context={"path": window.name, "offset": start},
            )
        headers: dict[int, str] = {}
        for _ in range(count):
            key, length = struct.unpack(">2i", take(8))
            headers[key] = take(length).decode()
        (length,) = struct.unpack(">q", take(8))
        if not 0 <= length <= end - _TOTAL_BYTES - position:
            raise ValueError(f"its content of {length} bytes reaches beyond its end")
        return BlockHead(BlockType(kind), start, end, position, length, headers, window)
    except (struct.error, ValueError) as cause:
        raise CorruptFile(
            f"{window.name}: block at offset {start} cannot be read: {cause}",
            context={"path": window.name, "offset": start},
        ) from cause


Int64s = npt.NDArray[np.int64]
_TOO_LARGE = 1 << 63


def encode_positions(positions: npt.ArrayLike) -> str:
    """The header of positions that are ascending, each once.

    >>> encode_positions([0])
    'AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAAAEAAAAAAA'
    """
    return base64.b64encode(positions_bitmap(np.ascontiguousarray(positions, np.int64))).decode()


def positions_bitmap(positions: Int64s) -> bytes:
    """Row numbers, ascending and each once, as a Roaring bitmap of 64 bits in its portable form."""
    values = np.ascontiguousarray(positions, np.int64)
    if (values[:1] < 0).any() or (np.diff(values) <= 0).any():
        raise ValueError("record positions must be ascending, each once")
    bitmap = BitMap64(array("Q", values.tobytes()))
    bitmap.run_optimize()
    return bitmap.serialize()


def decode_positions(header: str, limit: int, path: str = "", offset: int = 0) -> Int64s:
    """The positions in a block's header, ascending. Raises `CorruptFile` if the header has no positions, or more than
    `limit`, the number of the block's records.

    >>> decode_positions(encode_positions([3, 4, 5, 70000]), 4).tolist()
    [3, 4, 5, 70000]
    """
    try:
        return _positions(base64.b64decode(header, validate=True), limit)
    except (ValueError, IndexError) as cause:  # an empty header is an index error
        raise CorruptFile(
            f"{path or 'log file'}: the record positions of the block at offset {offset} cannot be read: {cause}",
            context={"path": path, "offset": offset},
        ) from cause


def _positions(data: bytes, limit: int) -> Int64s:
    bitmap = BitMap64.deserialize(data)  # checks what it reads, from release 1.1 on
    if len(bitmap) > limit:  # counted without making them: a few bytes may encode billions
        raise ValueError("there are more of them than records")
    if len(bitmap) and bitmap.max() >= _TOO_LARGE:
        raise ValueError("they are beyond 63 bits")
    return np.array(bitmap.to_array(), np.uint64).view(np.int64)
