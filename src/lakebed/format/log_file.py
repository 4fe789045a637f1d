"""Log files: a sequence of blocks, each with a type, headers and content. Reading tolerates damage; writing appends."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, cast

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.container import decode_record

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1
_AVRO_BLOCK_VERSION = 3
_SIZE_END = len(MAGIC) + 8
_TOTAL_BYTES = 8


class BlockType(IntEnum):
    """What a block holds; CORRUPT is never on disk, it stands for bytes that cannot be read."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(IntEnum):
    """The known keys of a block's headers."""

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
    """One block of a log file; `offset` is where it starts. Headers with keys that are not known keep their number."""

    type: BlockType
    headers: Mapping[int, str] = field(default_factory=dict[int, str])
    content: bytes = b""
    offset: int = 0

    def header(self, key: HeaderKey) -> str | None:
        return self.headers.get(key)


def read_blocks(data: bytes, path: str = "") -> list[LogBlock]:
    """The blocks of a log file in order. Bytes that are no whole block come back as a CORRUPT block, and reading goes
    on at the next magic. A block whose two lengths agree is kept whatever follows it.

    Raises `UnsupportedFeature` for the block format of releases before 0.5.
    """
    return list(_blocks(data, path))


def block_bytes(block: LogBlock) -> bytes:
    """The block as it stands in a file, headers in their given order.

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
    """A data block of records already in Avro binary under `schema`; archive blocks carry no instant."""
    headers: dict[int, str] = {HeaderKey.SCHEMA: schema}
    if instant is not None:
        headers[HeaderKey.INSTANT_TIME] = instant
    parts = [struct.pack(">ii", _AVRO_BLOCK_VERSION, len(records))]
    parts += [struct.pack(">i", len(record)) + record for record in records]
    return LogBlock(BlockType.AVRO_DATA, headers, b"".join(parts))


def hfile_data_block(schema: str, hfile: bytes, instant: str) -> LogBlock:
    """A data block of the metadata table: a whole HFile (with at least one entry) whose values have this schema."""
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema}
    return LogBlock(BlockType.HFILE_DATA, cast("Mapping[int, str]", headers), hfile)


def delete_block(content: bytes, instant: str, schema: str | None = None) -> LogBlock:
    """A block of deletes (`encode_deletes` makes the content). The one that creates a file group of the metadata table
    is empty and goes without a schema.

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
    """Where the block that starts here ends, None if it is cut off or its two lengths differ."""
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
        found: dict[int, str] = {}
        for _ in range(headers):
            key, length = struct.unpack_from(">ii", data, position)
            if not 0 <= length <= end - position - 8:
                raise ValueError("a header reaches beyond its end")
            found[key] = data[position + 8 : position + 8 + length].decode()
            position += 8 + length
        (length,) = struct.unpack_from(">q", data, position)
        if not 0 <= length <= end - _TOTAL_BYTES - position - 8:
            raise ValueError(f"its content of {length} bytes reaches beyond its end")
        return LogBlock(BlockType(kind), found, data[position + 8 : position + 8 + length], start)
    except (struct.error, ValueError) as cause:
        raise CorruptFile(f"{where} cannot be read: {cause}", context={"path": path, "offset": start}) from cause
