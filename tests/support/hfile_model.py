"""HFiles the plain way, entry by entry: a reader to compare with, and a builder of such as lakebed never writes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lakebed.format.log_file import BlockType, read_blocks
from support.golden_tables import GoldenTable

Entry = tuple[bytes, bytes]
TAIL = b"\0" + b"\x7f" + b"\xff" * 7 + b"\x04"
_COUNTS = {5: "data blocks", 6: "meta blocks", 7: "entries", 8: "levels", 12: "codec"}


@dataclass
class Model:
    """What is in a file: payloads are inflated; the index has the whole keys as they stand."""

    entries: list[Entry] = field(default_factory=list[Entry])
    blocks: list[bytes] = field(default_factory=list[bytes])
    index: list[bytes] = field(default_factory=list[bytes])
    metas: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    info: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    native: bool = True


def golden_hfiles(table: GoldenTable) -> Iterator[tuple[str, bytes]]:
    """Every HFile of a golden table's metadata table: base files and the contents of log blocks."""
    for name, data in table.files().items():
        if ".hoodie/metadata/" not in name:
            continue
        if name.endswith(".hfile"):
            yield name, data
        elif ".log." in name:
            for block in read_blocks(data):
                if block.type is BlockType.HFILE_DATA:
                    yield f"{name} {block.offset}", block.content


def parse(data: bytes) -> Model:
    """A file with a root index only, trusted."""
    trailer = dict(_fields(_sized(data[-4096:], 8)))
    model = Model(native=data[-4] == 0, counts={_COUNTS[n]: int(v) for n, v in trailer.items() if n in _COUNTS})
    codec = model.counts["codec"]
    root, at = _block(data, int(trailer[2]), codec)
    for key, offset in _index(root, model.counts["data blocks"]):
        model.index.append(key)
        model.blocks.append(_block(data, offset, codec)[0])
        model.entries += _entries(model.blocks[-1])
    metas, at = _block(data, at, codec)
    for name, offset in _index(metas, model.counts.get("meta blocks", 0)):
        model.metas[name] = _block(data, offset, codec)[0]
    info, _ = _block(data, at, codec)
    for _, pair in _fields(_sized(info, 4)):
        both = dict(_fields(bytes(pair)))  # type: ignore[arg-type]
        model.info[bytes(both[1])] = bytes(both[2])  # type: ignore[arg-type]
    return model


def build(
    blocks: Sequence[Sequence[Entry]],
    *,
    index: Sequence[bytes] | None = None,
    levels: int = 1,
    fan: int = 3,
    codec: int = 1,
    version: bytes | None = b"\0",
    tail: bytes = TAIL,
) -> bytes:
    """A file as HBase may write it: these blocks, `index` instead of their first keys, `levels` of index blocks with
    `fan` entries each, a `version` behind each entry (None: no such thing in the file)."""
    out = bytearray()
    handles: list[tuple[bytes, int, int]] = []
    for n, block in enumerate(blocks):
        payload = b"".join(_entry(*entry, version, tail) for entry in block)
        key = block[0][0] if index is None else index[n]
        handles.append((struct.pack(">H", len(key)) + key + TAIL, *_put(out, b"DATABLK*", payload, codec)))
    count = len(handles)
    for level in range(levels - 1):
        above: list[tuple[bytes, int, int]] = []
        for n in range(0, len(handles), fan):
            items = [struct.pack(">qi", at, size) + key for key, at, size in handles[n : n + fan]]
            ends = [sum(len(item) for item in items[:i]) for i in range(len(items) + 1)]
            payload = struct.pack(f">{len(ends) + 1}i", len(items), *ends) + b"".join(items)
            above.append((handles[n][0], *_put(out, b"IDXINTE2" if level else b"IDXLEAF2", payload, codec)))
        handles = above
    load_on_open = len(out)
    root = b"".join(struct.pack(">qi", at, size) + _vint(len(key)) + key for key, at, size in handles)
    _put(out, b"IDXROOT2", root, codec)
    _put(out, b"IDXROOT2", b"", codec)
    info = b"" if version is None else _bytes(1, _bytes(1, b"KEY_VALUE_VERSION") + _bytes(2, b"\0\0\0\1"))
    info_at, _ = _put(out, b"FILEINF2", b"PBUF" + _uvarint(len(info)) + info, codec)
    entries = sum(len(block) for block in blocks)
    numbers = {1: info_at, 2: load_on_open, 5: len(handles) if levels > 1 else count, 7: entries, 8: levels, 12: codec}
    message = b"".join(_uvarint(n << 3) + _uvarint(value) for n, value in numbers.items())
    head = b'TRABLK"$' + _uvarint(len(message)) + message
    return bytes(out) + head.ljust(4092, b"\0") + b"\x03\0\0\x03"


def _entry(key: bytes, value: bytes, version: bytes | None, tail: bytes) -> bytes:
    head = struct.pack(">iiH", len(key) + 2 + len(tail), len(value), len(key))
    return head + key + tail + value + (version or b"")


def _put(out: bytearray, magic: bytes, payload: bytes, codec: int) -> tuple[int, int]:
    offset = len(out)
    squeeze = zlib.compressobj(6, zlib.DEFLATED, 31)
    stored = squeeze.compress(payload) + squeeze.flush() if codec == 1 else payload
    size = 33 + len(stored)
    sums = bytes(-(-size // 16384) * 4)
    out += struct.pack(">8siiqBii", magic, len(stored) + len(sums), len(payload), -1, 2, 16384, size) + stored + sums
    return offset, len(out) - offset


def _block(data: bytes, at: int, codec: int) -> tuple[bytes, int]:
    _, on_disk, plain, _, _, _, with_header = struct.unpack_from(">8siiqBii", data, at)
    body = data[at + 33 : at + with_header]
    payload = zlib.decompress(body, 31) if codec == 1 else body
    assert len(payload) == plain
    return payload, at + 33 + on_disk


def _entries(payload: bytes) -> Iterator[Entry]:
    at = 0
    while at < len(payload):
        key, value, row = struct.unpack_from(">iiH", payload, at)
        begin = at + 8 + key
        yield payload[at + 10 : at + 10 + row], payload[begin : begin + value]
        assert payload[begin + value] == 0
        at = begin + value + 1


def _index(payload: bytes, count: int) -> Iterator[tuple[bytes, int]]:
    at = 0
    for _ in range(count):
        (offset,) = struct.unpack_from(">q", payload, at)
        first = payload[at + 12]
        extra = 256 - 112 - first if first > 127 else 0
        size = int.from_bytes(payload[at + 13 : at + 13 + extra], "big") if extra else first
        at += 13 + extra
        yield payload[at : at + size], offset
        at += size


def _sized(data: bytes, at: int) -> bytes:
    size, at = _read_uvarint(data, at)
    return data[at : at + size]


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _read_uvarint(data, at)
        number, at = _read_uvarint(data, at)
        if tag & 7 == 2:
            yield tag >> 3, data[at : at + number]
            at += number
        else:
            yield tag >> 3, number


def _read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7


def _uvarint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _vint(number: int) -> bytes:
    if number < 128:
        return bytes([number])
    size = (number.bit_length() + 7) // 8
    return bytes([256 - 112 - size]) + number.to_bytes(size, "big")


def _bytes(number: int, value: bytes) -> bytes:
    return _uvarint(number << 3 | 2) + _uvarint(len(value)) + value
