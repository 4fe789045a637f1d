"""Values of chosen rows from Parquet's data pages that hold them one after another, without decoding the others.

Whatever is not plain is left to Arrow: dictionaries, nulls, texts of several lengths, and bytes that are damaged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt
from isal import isal_zlib

from lakebed.format.row_groups.chunks import CODECS, number_in, read_struct
from lakebed.format.varints import read_varint, unzigzag, varint
from lakebed.schema.arrow import plain_type

Rows = npt.NDArray[np.int64]

# Fields of a column of the schema by their numbers in parquet.thrift; its types, encodings and codecs.
_TYPE, _TYPE_LENGTH, _REPETITION, _CHILDREN = 1, 2, 3, 5
_ELEMENT_NUMBERS: Final = frozenset((_TYPE, _TYPE_LENGTH, _REPETITION, _CHILDREN))
_REQUIRED, _OPTIONAL = 0, 1
_WIDTHS: Final = {1: 4, 2: 8, 4: 4, 5: 8}
_TEXT, _FIXED = 6, 7
_PLAIN: Final = b"\0"
NO_CODEC, _SNAPPY, _GZIP, _ZSTD, _LZ4 = (CODECS[name] for name in ("none", "snappy", "gzip", "zstd", "lz4"))
_CODEC_NAMES: Final = {_SNAPPY: "snappy", _GZIP: "gzip", _ZSTD: "zstd", _LZ4: "lz4_raw"}
PLAIN_CODECS: Final = frozenset({NO_CODEC, *_CODEC_NAMES})
_LENGTH_BYTES: Final = 4
_DECIMAL_BYTES: Final = 16
_MAX_BYTES: Final = 256 << 20
# A header of a page that `_HEAD` or `_HEAD_2` matches, and the levels of a page without nulls, have fewer bytes.
HEAD_BYTES: Final = 96
# Values of so many bytes are read one by one, without their pages.
PLACED_BYTES: Final = 64
# Heads of data pages of both versions as most writers put them: without statistics.
_NUMBER: Final = rb"\x15(?P<%s>[\x80-\xff]{0,4}[\x00-\x7f])"
_SIZES: Final = _NUMBER % b"inflated" + _NUMBER % b"stored"
_CRC: Final = rb"(?:" + _NUMBER % b"crc"
_ENCODING: Final = rb"\x15(?P<encoding>[\x00\x0c])"
_HEAD: Final = re.compile(
    rb"\x15\x00" + _SIZES + _CRC + rb"\x1c|\x2c)" + _NUMBER % b"values" + _ENCODING + rb"\x15\x06\x15[\x06\x08]\0\0"
)
_HEAD_2: Final = re.compile(
    rb"\x15\x06" + _SIZES + _CRC + rb"\x4c|\x5c)" + _NUMBER % b"values" + rb"\x15\x00" + _NUMBER % b"rows"
    + _ENCODING + _NUMBER % b"levels" + rb"\x15\x00(?P<compressed>[\x11\x12]?)\0\0"
)  # fmt: skip
_NOT_COMPRESSED: Final = b"\x12"


class PlainChunk(NamedTuple):
    """Consecutive pages of a column chunk: their codec, their bytes, the bytes and the rows of each page, and the
    positions (ascending) of the requested rows among them."""

    codec: int
    data: bytes
    sizes: Sequence[int]
    rows: Sequence[int]
    positions: Rows


class PlainColumn(NamedTuple):
    """A column whose values can be picked from pages: its type, the bytes of a value (0: values differ in length), and
    whether it has no nulls."""

    type: pa.DataType
    width: int
    is_required: bool

    @classmethod
    def of(cls, element: bytes, stored: pa.DataType) -> PlainColumn | None:
        """The column of a schema element that Arrow reads as the type `stored`; None if its values cannot be picked
        from pages."""
        numbers = {f.number: number_in(f.value) for f in read_struct(element)[0] if f.number in _ELEMENT_NUMBERS}
        physical, repetition = numbers.get(_TYPE), numbers.get(_REPETITION)
        kind = plain_type(stored)
        if numbers.get(_CHILDREN) or repetition not in (_REQUIRED, _OPTIONAL):
            return None
        if physical == _TEXT:
            width = 0 if pt.is_string(kind) or pt.is_binary(kind) else None
        elif physical == _FIXED:
            width = numbers.get(_TYPE_LENGTH, 0)
            fits = pt.is_decimal128(kind) and 0 < width <= _DECIMAL_BYTES
            width = width if fits or (kind == pa.binary(width) and width > 0) else None
        else:
            width = _WIDTHS.get(physical or 0)
            is_number = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_temporal(kind)
            width = width if is_number and width is not None and kind.bit_width == 8 * width else None
        return None if width is None else cls(kind, width, repetition == _REQUIRED)

    def picked(self, chunks: Sequence[PlainChunk]) -> pa.Array | None:
        """The values of the requested rows of all chunks; None if a page is not plain."""
        parts: list[npt.NDArray[np.uint8]] = []
        for chunk in chunks:
            values = _values(chunk, self)
            if values is None:
                return None
            ends = np.cumsum(chunk.rows, dtype=np.int64)
            pages = np.searchsorted(ends, chunk.positions, "right")
            at = values.starts[pages] + (chunk.positions - (ends - chunk.rows)[pages]) * values.step
            data, length = values.data, values.length
            # a line for each place where a value may start
            parts.append(np.ndarray((len(data) - length + 1, length), np.uint8, data, strides=(1, 1))[at])
        count = sum(map(len, parts))
        if pt.is_decimal128(self.type):
            flat = np.concatenate(parts)
            numbers = np.where(flat[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0)).repeat(_DECIMAL_BYTES, axis=1)
            numbers[:, : self.width] = flat[:, ::-1]
            return pa.Array.from_buffers(self.type, count, [None, pa.py_buffer(numbers)])
        flat = np.concatenate([part.reshape(-1) for part in parts])
        if self.width:
            return pa.Array.from_buffers(self.type, count, [None, pa.py_buffer(flat)])
        if len(flat) > np.iinfo(np.int32).max:
            return None
        lengths = np.repeat([part.shape[1] for part in parts], [len(part) for part in parts])
        offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
        return pa.Array.from_buffers(self.type, count, [None, pa.py_buffer(offsets), pa.py_buffer(flat)])


class _Values(NamedTuple):
    """Decompressed pages: the position of the first value in each, the bytes from a value to the next, and the bytes of
    a value."""

    data: memoryview
    starts: Rows
    step: int
    length: int


def is_plain_page(head_bytes: bytes, size: int, rows: int, column: PlainColumn) -> bool:
    """Whether a page of `size` bytes ends with the values of its rows, all of one length, one after another: it has no
    codec and no nulls. `head_bytes` are its first `HEAD_BYTES`; a page with an unusual header is taken for another."""
    first = _HEAD.match(head_bytes)
    head, run = first or _HEAD_2.match(head_bytes), _run(rows, column)
    if head is None or head["encoding"] != _PLAIN or number_in(head["values"]) != rows:
        return False
    if first is None:
        if number_in(head["rows"]) != rows or number_in(head["levels"]) != len(run):
            return False
    elif run:
        run = len(run).to_bytes(_LENGTH_BYTES, "little") + run
    body = head.end()
    sizes = {number_in(head["stored"]), number_in(head["inflated"]), size - body, len(run) + rows * column.width}
    return len(sizes) == 1 and head_bytes[body : body + len(run)] == run


def _run(rows: int, column: PlainColumn) -> bytes:
    """The levels of a page without nulls: one run that says so."""
    return b"" if column.is_required else varint(rows << 1) + b"\1"


def _values(chunk: PlainChunk, column: PlainColumn) -> _Values | None:
    """The positions of a column's values in the pages of a chunk; None if a page has nulls, values of other sizes, a
    wrong checksum or an unusual header."""
    data = memoryview(chunk.data)
    runs = {rows: _run(rows, column) for rows in set(chunk.rows)}
    bodies: list[memoryview] = []
    sizes: list[int] = []
    prefixes: list[bytes] = []
    are_stored: list[bool] = []
    encoding, step, at = b"", column.width, 0
    for page_size, rows in zip(chunk.sizes, chunk.rows, strict=True):
        first = _HEAD.match(chunk.data, at)
        head = first or _HEAD_2.match(chunk.data, at)
        if head is None:
            return None
        body, run = head.end(), runs[rows]
        at += page_size
        size, crc = number_in(head["inflated"]), head["crc"]
        page, prefix, is_stored = data[body:at], b"", chunk.codec == NO_CODEC
        if number_in(head["values"]) != rows or len(page) != number_in(head["stored"]):
            return None
        if crc is None and chunk.codec == _LZ4:
            return None  # only a checksum shows bytes that give fewer than they should
        if crc is not None and isal_zlib.crc32(page) != number_in(crc) & 0xFFFFFFFF:
            return None
        if first is None:
            levels = page[: len(run)].tobytes()
            if number_in(head["rows"]) != rows or number_in(head["levels"]) != len(run) or levels != run:
                return None
            page, size = page[len(run) :], size - len(run)
            is_stored = is_stored or head["compressed"] == _NOT_COMPRESSED
        elif run:
            prefix = len(run).to_bytes(_LENGTH_BYTES, "little") + run
        if not bodies:
            encoding = head["encoding"]
            step = step or max(0, size - len(prefix)) // rows
        # nulls, and texts of several lengths, mostly show by the size, before anything is decompressed
        fits = size - len(prefix) == rows * step if encoding == _PLAIN else size >= 0 and not column.width
        if head["encoding"] != encoding or not fits:
            return None
        bodies.append(page)
        sizes.append(size)
        prefixes.append(prefix)
        are_stored.append(is_stored)
    if at != len(data) or sum(sizes) > _MAX_BYTES:
        return None
    pages = _decompressed(chunk.codec, bodies, sizes, are_stored)
    if pages is None:
        return None
    ends = np.cumsum(sizes, dtype=np.int64)
    starts = ends - sizes
    for start, prefix in zip(starts.tolist(), prefixes, strict=True):
        if pages[start : start + len(prefix)].tobytes() != prefix:
            return None
    starts += np.array([len(prefix) for prefix in prefixes], np.int64)
    if column.width:
        return _Values(pages, starts, step, step)
    if encoding != _PLAIN:
        return _joined_texts(pages, starts, ends, chunk.rows)
    length = step - _LENGTH_BYTES
    for start, rows in zip(starts.tolist(), chunk.rows, strict=True):
        if length < 0 or (np.ndarray((rows,), "<u4", pages, start, (step,)) != length).any():
            return None
    return _Values(pages, starts + _LENGTH_BYTES, step, length)


def _decompressed(
    codec: int, bodies: Sequence[memoryview], sizes: Sequence[int], are_stored: Sequence[bool]
) -> memoryview | None:
    """The bodies, decompressed and concatenated; None if one does not have its declared size."""
    if all(are_stored):
        return memoryview(b"".join(bodies)) if list(map(len, bodies)) == list(sizes) else None
    arrow = pa.Codec(_CODEC_NAMES[codec])
    try:
        if codec == _ZSTD and not any(are_stored):
            # frames may follow one another, and a call takes as long as a small page
            return memoryview(arrow.decompress(b"".join(bodies), sum(sizes))).cast("B")
        pages: list[bytes | memoryview] = []
        for body, size, is_stored in zip(bodies, sizes, are_stored, strict=True):
            if codec == _SNAPPY and not is_stored and read_varint(body, 0)[0] != size:
                return None
            if codec == _GZIP and not is_stored and int.from_bytes(body[-_LENGTH_BYTES:], "little") != size:
                return None
            pages.append(body if is_stored else memoryview(arrow.decompress(body, size)).cast("B"))
            if len(pages[-1]) != size:
                return None
        return memoryview(b"".join(pages))
    except (OSError, ValueError, IndexError, pa.ArrowException):
        return None


def _joined_texts(data: memoryview, starts: Rows, ends: Rows, rows: Sequence[int]) -> _Values | None:
    """The texts of pages with delta-encoded lengths, if all texts have one length; otherwise None."""
    texts_at: list[int] = []
    lengths: set[int] = set()
    try:
        for start, end, count in zip(starts.tolist(), ends.tolist(), rows, strict=True):
            block, at = read_varint(data, start)
            parts, at = read_varint(data, at)
            total, at = read_varint(data, at)
            length, at = read_varint(data, at)
            lengths.add(unzigzag(length))
            # of each block its smallest difference and the bits of its parts
            zeros = (1 + parts) * -(-(count - 1) // max(1, block))
            texts_at.append(at + zeros)
            if total != count or at + zeros + count * unzigzag(length) != end or any(data[at : at + zeros]):
                return None
    except IndexError:
        return None
    if len(lengths) > 1 or min(lengths) < 0:
        return None
    (length,) = lengths
    return _Values(data, np.array(texts_at), length, length)
