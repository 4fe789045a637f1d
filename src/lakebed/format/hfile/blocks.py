"""The parts of an HFile (version 3) around its entries: block headers, trailer, indexes, file info."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, cast

from isal import isal_zlib

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.varints import read_varint, varint

DATA, LEAF_INDEX, INTERMEDIATE_INDEX = b"DATABLK*", b"IDXLEAF2", b"IDXINTE2"
ROOT_INDEX, META, FILE_INFO = b"IDXROOT2", b"METABLKc", b"FILEINF2"
TRAILER_MAGIC = b'TRABLK"$'
TRAILER_BYTES: Final = 4096
HEADER = struct.Struct(">8siiqBii")
# Of an entry of the index: offset and size of a block, the first byte of its key's length.
_INDEX_ENTRY = struct.Struct(">qib")
GZIP, NONE = 1, 2
CODECS: Mapping[int, str] = {0: "lzo", 1: "gzip", 2: "none", 3: "snappy", 4: "lz4", 5: "bzip2", 6: "zstd"}

# Family length 0, the newest timestamp there is, type Put: what follows the row in every cell key that Hudi writes.
KEY_TAIL = b"\x00" + struct.pack(">qB", 0x7FFFFFFFFFFFFFFF, 4)
# No block is larger: Hudi's hold 1 MiB, or one record where that is larger.
MAX_BLOCK_BYTES: Final = 64 << 20
# The most that deflate can make of one byte.
_MAX_INFLATION = 1032
# A stream that can become no larger, and declares the block's size, is inflated at once into memory of
# that size; any other stops after the block's end.
_IN_ONE_GO = 256 << 20
_INFLATE_ERRORS: tuple[type[Exception], ...] = (cast("Any", isal_zlib.error), zlib.error, ValueError, EOFError)
_INFO_MAGIC = b"PBUF"
_MAX_LEVELS = 8

Buffer = bytes | memoryview
InfoMap = Mapping[bytes, bytes]


class Damaged(Exception):
    """The error for broken bytes of an HFile; the reader turns it into `CorruptFile` with the file's name."""


@dataclass(frozen=True, slots=True)
class Trailer:
    """The last 4096 bytes of an HFile; offsets count from the file's start."""

    file_info_offset: int
    load_on_open_offset: int
    data_index_count: int
    meta_index_count: int
    entry_count: int
    index_levels: int
    codec: int


class BlockHandle(NamedTuple):
    """The location of a block: `size` counts its header, payload and checksums. `key` is the index's key for the block:
    not greater than the block's first row, and greater than the last row of the block before it."""

    key: bytes
    offset: int
    size: int


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """A protobuf varint and the position after it."""
    try:
        return read_varint(data, at)
    except IndexError as cause:
        raise Damaged("a varint is cut off, or too long") from cause


def vint(number: int) -> bytes:
    """A number >= 0 in Hadoop's own variable form.

    >>> vint(127).hex(), vint(300).hex()
    ('7f', '8e012c')
    """
    if number <= 127:
        return bytes([number])
    size = (number.bit_length() + 7) // 8
    return bytes([(-112 - size) & 0xFF]) + number.to_bytes(size, "big")


def read_vint(data: Buffer, at: int) -> tuple[int, int]:
    """A number in Hadoop's variable form and the position after it."""
    if at >= len(data):
        raise Damaged("a number is cut off")
    first = data[at] - 256 if data[at] > 127 else data[at]
    if first >= -112:
        return first, at + 1
    negative = first < -120
    end = at + 1 + (-120 - first if negative else -112 - first)
    if end > len(data):
        raise Damaged("a number is cut off")
    value = int.from_bytes(data[at + 1 : end], "big")
    return (~value if negative else value), end


def protobuf_fields(data: Buffer) -> Iterator[tuple[int, int | bytes]]:
    """The number and the value of each field of a message that consists of varints and byte strings."""
    at = 0
    while at < len(data):
        tag, at = read_uvarint(data, at)
        if tag & 7 == 0:
            value, at = read_uvarint(data, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            size, at = read_uvarint(data, at)
            if size > len(data) - at:
                raise Damaged("a field is cut off")
            yield tag >> 3, bytes(data[at : at + size])
            at += size
        else:
            raise Damaged(f"a field has wire type {tag & 7}")


def read_trailer(data: Buffer, size: int) -> Trailer:
    """The trailer in the last bytes of a file of `size` bytes. Raises `UnsupportedFeature` for a codec other than
    gzip and none, and for an encrypted file."""
    if len(data) != TRAILER_BYTES or bytes(data[:8]) != TRAILER_MAGIC:
        raise Damaged("its last 4096 bytes are no trailer")
    if data[-1] != 3 or bytes(data[-3:-1]) != b"\0\0":
        raise Damaged(f"its version is {int.from_bytes(data[-3:], 'big')}, not 3")
    length, at = read_uvarint(data, 8)
    if length > TRAILER_BYTES - 4 - at:
        raise Damaged("the trailer's message is cut off")
    fields = dict(protobuf_fields(data[at : at + length]))
    if fields.get(13):
        raise UnsupportedFeature("an HFile is encrypted", hint="Write the metadata table without encryption.")
    numbers = {number: value for number, value in fields.items() if isinstance(value, int)}
    trailer = Trailer(
        numbers.get(1, -1),
        numbers.get(2, -1),
        numbers.get(5, 0),
        numbers.get(6, 0),
        numbers.get(7, 0),
        numbers.get(8, 1),
        numbers.get(12, NONE),
    )
    if trailer.codec not in CODECS:
        raise Damaged(f"the trailer's codec {trailer.codec} does not exist")
    if trailer.codec not in (GZIP, NONE):
        raise UnsupportedFeature(
            f"an HFile is compressed with {CODECS[trailer.codec]}",
            hint="Set hoodie.hfile.compression.algorithm to GZ or NONE and let Hudi compact the metadata table.",
        )
    if not 0 <= trailer.load_on_open_offset <= trailer.file_info_offset <= size - TRAILER_BYTES - HEADER.size:
        raise Damaged("the trailer's offsets are outside the file")
    if not 1 <= trailer.index_levels <= _MAX_LEVELS:
        raise Damaged(f"the trailer has {trailer.index_levels} index levels")
    return trailer


def read_block(data: Buffer, at: int, magic: bytes, codec: int) -> tuple[Buffer, int]:
    """The decompressed payload of the block that starts at `at`, and the position of the next block."""
    if at < 0 or at + HEADER.size > len(data):
        raise Damaged("a block's header is cut off")
    block_magic, on_disk, plain, _, _, _, with_header = HEADER.unpack_from(data, at)
    if on_disk < 0 or on_disk > len(data) - at - HEADER.size:
        raise Damaged("a block is cut off")
    end = at + HEADER.size + on_disk
    if block_magic != magic:
        raise Damaged(f"a block has the magic {block_magic!r}, not {magic!r}")
    if not HEADER.size <= with_header <= end - at:
        raise Damaged("a block's sizes contradict each other")
    stored = memoryview(data)[at + HEADER.size : at + with_header]
    return (_inflate(stored, plain) if codec == GZIP else _plain(stored, plain)), end


def _plain(stored: memoryview, size: int) -> memoryview:
    if len(stored) != size:
        raise Damaged(f"a block of {size} bytes has {len(stored)}")
    return stored


def _inflate(stored: memoryview, size: int) -> bytes:
    max_inflated = _MAX_INFLATION * len(stored)
    if not 0 <= size <= min(MAX_BLOCK_BYTES, max_inflated):
        raise Damaged(f"{len(stored)} bytes cannot hold a block of {size}")
    try:
        # one byte more than it should hold: then a longer one shows
        if max_inflated <= _IN_ONE_GO and int.from_bytes(stored[-4:], "little") == size:
            data, is_complete = isal_zlib.decompress(stored, 31, size + 1), True
        else:
            inflate: Any = isal_zlib.decompressobj(31)
            data = inflate.decompress(stored, size + 1)
            is_complete = inflate.eof
    except _INFLATE_ERRORS as cause:
        raise Damaged(f"a block cannot be inflated: {cause}") from cause
    if len(data) != size or not is_complete:
        raise Damaged(f"a block of {size} bytes holds {'more' if len(data) > size else 'fewer'}")
    return data


def read_root_index(data: Buffer, count: int, *, rows: bool, is_complete: bool = True) -> list[BlockHandle]:
    """The handles in a root index. With `rows` its keys are cell keys, of which the row is taken (the meta index has
    plain names). With `is_complete` the handles reach to the end of `data`; in a root with lower levels other data
    follow them."""
    if count * 13 > len(data):
        raise Damaged(f"an index of {count} blocks has {len(data)} bytes")
    data = bytes(data)
    at, handles = 0, list[BlockHandle]()
    for _ in range(count):  # large files have thousands of blocks
        if at + 13 > len(data):
            raise Damaged("an index is cut off")
        offset, size, length = _INDEX_ENTRY.unpack_from(data, at)
        at += 13
        if length < 0:  # more than one byte
            length, at = read_vint(data, at - 1)
        end = at + length
        if length < 0 or end > len(data):
            raise Damaged("an index key is cut off")
        handles.append(BlockHandle(row_of(data[at:end]) if rows else data[at:end], offset, size))
        at = end
    if at != len(data) and is_complete:
        raise Damaged(f"an index of {count} blocks has {len(data) - at} bytes more")
    return handles


def read_lower_index(data: Buffer) -> list[BlockHandle]:
    """The handles in an intermediate or leaf index block, which HBase writes for large files."""
    count = struct.unpack_from(">i", data)[0] if len(data) >= 4 else -1
    if count < 0 or count * 18 + 8 > len(data):
        raise Damaged("an index block's count is wrong")
    starts: Sequence[int] = struct.unpack_from(f">{count + 1}i", data, 4)
    base = 4 + 4 * (count + 1)
    handles: list[BlockHandle] = []
    for start, end in pairwise(starts):
        if not 0 <= start <= end - 14 or base + end > len(data):
            raise Damaged("an index block's offsets are wrong")
        offset, size = struct.unpack_from(">qi", data, base + start)
        handles.append(BlockHandle(row_of(bytes(data[base + start + 12 : base + end])), offset, size))
    return handles


def row_of(cell_key: bytes) -> bytes:
    """The row in a cell key: two bytes of length, then the row; other parts may follow."""
    size = int.from_bytes(cell_key[:2], "big")
    if len(cell_key) < 2 + size:
        raise Damaged("a cell key is cut off")
    return cell_key[2 : 2 + size]


def check_handles(handles: Sequence[BlockHandle], limit: int) -> None:
    """Raise `Damaged` unless the blocks are in order, do not overlap and end before `limit`."""
    at = 0
    for handle in handles:
        if handle.offset < at or handle.size < HEADER.size or handle.offset + handle.size > limit:
            raise Damaged(f"the index has a block of {handle.size} bytes at {handle.offset}")
        at = handle.offset + handle.size


def read_file_info(data: Buffer) -> dict[bytes, bytes]:
    """The file info's map."""
    if bytes(data[:4]) != _INFO_MAGIC:
        raise Damaged("the file info is no protobuf message")
    length, at = read_uvarint(data, 4)
    if length > len(data) - at:
        raise Damaged("the file info is cut off")
    info: dict[bytes, bytes] = {}
    for number, pair in protobuf_fields(memoryview(data)[at : at + length]):
        if number != 1 or not isinstance(pair, bytes):
            continue
        fields = dict(protobuf_fields(pair))
        name, value = fields.get(1), fields.get(2)
        if not isinstance(name, bytes) or not isinstance(value, bytes):
            raise Damaged("an entry of the file info has no name or no value")
        info[name] = value
    return info


def file_info_payload(info: InfoMap) -> bytes:
    """The file info's bytes, its entries in the order in which a Java map of 16 buckets has them."""
    body = b"".join([_info_entry(name, info[name]) for name in sorted(info, key=_java_bucket)])
    return _INFO_MAGIC + varint(len(body)) + body


@lru_cache(maxsize=64)
def _info_entry(name: bytes, value: bytes) -> bytes:
    return _field(1, _field(1, name) + _field(2, value))


def trailer_bytes(fields: Mapping[int, int | bytes]) -> bytes:
    """A trailer of 4096 bytes with these protobuf fields."""
    message = b"".join(
        [
            varint(number << 3) + varint(value) if isinstance(value, int) else _field(number, value)
            for number, value in fields.items()
        ]
    )
    head = TRAILER_MAGIC + varint(len(message)) + message
    return head.ljust(TRAILER_BYTES - 4, b"\0") + b"\0\0\0\x03"


def _field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


@lru_cache(maxsize=64)
def _java_bucket(name: bytes) -> int:
    # of a UTF8String-like key: 31 h + byte, the upper half folded in as java.util.HashMap does
    hashed = 0
    for byte in name:
        hashed = (31 * hashed + byte) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & 15


def corrupt(name: str, problem: object, offset: int | None = None) -> CorruptFile:
    """The error for a damaged HFile."""
    where = "" if offset is None else f" (block at {offset})"
    context: dict[str, Any] = {"path": name} if offset is None else {"path": name, "offset": offset}
    return CorruptFile(
        f"{name}{where} is no whole HFile: {problem}",
        hint="If it belongs to a metadata table, drop the metadata table and let the next write rebuild it.",
        context=context,
    )
