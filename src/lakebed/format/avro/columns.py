"""Avro binary of many records of one schema, read and written side by side: field by field over all records at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.avro.cursors import PACK
from lakebed.format.avro.encoder import encode_long
from lakebed.format.hashes import value_buffer

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
_MAX_VARINT = 10
_WORD = 8
_MORE = np.uint64(0x8080808080808080)
# Groups of seven bits move apart: those that stay, those that move, and by how much.
_SPREAD = tuple((stay, move >> by, by) for stay, move, by in reversed(PACK))
# So many numbers are encoded one by one: for a few that is a tenth of the work.
_MAX_ITEMS = 64
_NOTHING = pa.scalar(b"", pa.binary())
_NULL_BRANCH = pa.scalar(b"\x00", pa.binary())


class AvroCursors:
    """The read position of each record in a buffer of many records. Every read returns an array with one value per
    record, and moves all positions past the values.

    >>> records = AvroCursors.over(pa.array([b"\\x02\\x04ab", b"\\x03\\x02c"], pa.binary()))
    >>> records.longs().tolist(), records.texts().to_pylist()
    ([1, -2], ['ab', 'c'])

    A read beyond a record's end, and a value that its type does not have, raises `CorruptFile`.
    """

    def __init__(self, buffer: pa.Buffer | None, data: Bytes, at: Int64s, ends: Int64s, label: str) -> None:
        self._buffer = buffer
        self._data = data
        self.at = at
        self.ends = ends
        self._label = label

    @classmethod
    def over(cls, records: pa.BinaryArray, label: str = "an Avro record") -> AvroCursors:
        """Cursors at the start of each record; `label` names the records in errors."""
        data, offsets = value_buffer(records)
        return cls(records.buffers()[2], data, offsets[:-1].copy(), offsets[1:], label)

    def __len__(self) -> int:
        return len(self.at)

    def part(self, rows: Rows) -> AvroCursors:
        """Cursors over the records at `rows` (ascending); `rejoin` writes their positions back into this object."""
        return AvroCursors(self._buffer, self._data, self.at[rows], self.ends[rows], self._label)

    def rejoin(self, rows: Rows, part: AvroCursors) -> None:
        self.at[rows] = part.at

    def rest(self, row: int) -> bytes:
        """The bytes of record number `row`, from its current position to its end."""
        return self._data[int(self.at[row]) : int(self.ends[row])].tobytes()

    def longs(self) -> Int64s:
        """Read an int or long of each record, as int64."""
        self._need(1)
        first = self._data[self.at]
        self.at = self.at + 1
        value = first.astype(np.uint64)
        rows = np.flatnonzero(first & 0x80)
        if len(rows):
            self._continue_varints(value, rows)
        return (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)

    def booleans(self) -> Bools:
        self._need(1)
        values = self._data[self.at]
        self.at = self.at + 1
        if (values > 1).any():
            self._fail("a boolean is neither 0 nor 1")
        return values.view(np.bool_)

    def branches(self, count: int) -> Int64s:
        """Read the branch number of a union of `count` types, one for each record."""
        branch = self.longs()
        if ((branch < 0) | (branch >= count)).any():
            self._fail(f"a union of {count} has no such branch")
        return branch

    def present(self) -> Bools:
        """Read the branch of a union of null and one type: True for each record that has a value."""
        return self.branches(2).astype(np.bool_)

    def fixed(self, kind: str) -> npt.NDArray[Any]:
        """The values of a fixed-width field, one per record; `kind` is `<f4` for float and `<f8` for double."""
        width = np.dtype(kind).itemsize
        self._need(width)
        raw = self._data[self.at[:, None] + np.arange(width)]
        self.at = self.at + width
        return np.ascontiguousarray(raw).view(kind)[:, 0]

    def binaries(self) -> pa.BinaryArray:
        """The values of a bytes or string field, as binary, one per record."""
        starts = self.skip_bytes()
        return self.between(starts, self.at)

    def texts(self) -> pa.StringArray:
        values = self.binaries()
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid as cause:
            raise self._failure("a text is not UTF-8") from cause

    def skip_bytes(self) -> Int64s:
        """Move past a bytes or string field; returns the position where each record's content starts."""
        length = self.longs()
        starts = self.at
        if ((length < 0) | (length > self.ends - starts)).any():
            self._fail("a text or byte value is longer than its record")
        self.at = starts + length
        return starts

    def between(self, starts: Int64s, ends: Int64s) -> pa.BinaryArray:
        """The bytes between two positions of each record, copied out in one go."""
        wide = len(self._data) > np.iinfo(np.int32).max
        edges = np.empty(2 * len(starts) + 1, np.int64 if wide else np.int32)
        edges[:-1:2], edges[1::2] = starts, ends
        edges[-1] = edges[-2] if len(starts) else 0
        kind = pa.large_binary() if wide else pa.binary()
        spans_and_gaps = pa.Array.from_buffers(kind, 2 * len(starts), [None, pa.py_buffer(edges), self._buffer])
        return spans_and_gaps.take(pa.array(np.arange(0, 2 * len(starts), 2))).cast(pa.binary())

    def nullable_longs(self) -> tuple[Int64s, Bools]:
        """The values of a nullable int or long field (0 for null), and a mask that is true where a value is present."""
        present = self.present()
        if present.all():
            return self.longs(), present
        values = np.zeros(len(self), np.int64)
        rows = np.flatnonzero(present)
        part = self.part(rows)
        values[rows] = part.longs()
        self.rejoin(rows, part)
        return values, present

    def nullable_texts(self) -> pa.StringArray:
        present = self.present()
        if present.all():
            return self.texts()
        rows = np.flatnonzero(present)
        part = self.part(rows)
        texts = part.texts()
        self.rejoin(rows, part)
        return spread(texts, present)

    def skip_nulls(self, count: int) -> None:
        """Move past `count` unions that are null in every record. Raises `CorruptFile` if one is not null."""
        if not self.skip_if_null(count):
            self._fail("a field that should be null is not")

    def skip_if_null(self, count: int) -> bool:
        """Move past `count` unions if they are null in every record, and return whether they are."""
        self._need(count)
        are_null = not np.any([self._data[self.at + i].any() for i in range(count)])
        if are_null:
            self.at = self.at + count
        return are_null

    def finish(self) -> None:
        """Raise `CorruptFile` unless every record was read to its end."""
        if (self.at != self.ends).any():
            self._fail("bytes are left over after the last field")

    def _continue_varints(self, value: npt.NDArray[np.uint64], rows: Rows) -> None:
        value[rows] &= np.uint64(0x7F)
        at, ends, data = self.at, self.ends, self._data
        for i in range(1, _MAX_VARINT):
            positions = at[rows]
            if (positions >= ends[rows]).any():
                self._fail("it ends within a number")
            byte = data[positions]
            at[rows] = positions + 1
            value[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * i)
            rows = rows[byte >= 0x80]
            if not len(rows):
                return
        self._fail("a number has more than ten bytes")

    def _need(self, count: int) -> None:
        if (self.at + count > self.ends).any():
            self._fail("it ends too soon")

    def _fail(self, why: str) -> None:
        raise self._failure(why)

    def _failure(self, why: str) -> CorruptFile:
        return CorruptFile(f"{self._label} cannot be decoded: {why}")


def spread(values: pa.Array, present: Bools) -> pa.Array:
    """The values in the rows where `present` is true, in order; null in all other rows."""
    if present.all():
        return values
    if not len(values):
        return pa.nulls(len(present), values.type)
    at = np.cumsum(present) - 1
    return values.take(pa.array(at, mask=~present))


def encode_longs(values: npt.ArrayLike) -> pa.BinaryArray:
    """Ints or longs in Avro's variable-length form, one binary per value.

    >>> encode_longs([0, -1, 64]).to_pylist()
    [b'\\x00', b'\\x01', b'\\x80\\x01']
    """
    numbers = np.ascontiguousarray(values, np.int64)
    if len(numbers) <= _MAX_ITEMS:
        return pa.array([encode_long(number) for number in numbers.tolist()], pa.binary())
    zigzags = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    lengths = np.ones(len(zigzags), np.int32)
    for bits in range(7, 64, 7):
        longer = zigzags >= np.uint64(1 << bits)
        if not longer.any():
            break
        lengths += longer
    offsets = np.zeros(len(zigzags) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    longest = int(lengths.max())
    out = _word_bytes(zigzags, lengths, longest) if longest <= _WORD else _long_bytes(zigzags, lengths, offsets)
    return pa.BinaryArray.from_buffers(pa.binary(), len(zigzags), [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _word_bytes(numbers: npt.NDArray[np.uint64], lengths: npt.NDArray[np.int32], longest: int) -> Bytes:
    """The variable-length bytes of numbers that need at most eight bytes: their groups of seven bits are spread within
    a 64-bit word, for all numbers at once."""
    if longest == 1:
        return numbers.astype(np.uint8)
    words = numbers
    for stay, move, by in _SPREAD:
        words = (words & stay) | ((words & move) << by)
    # all bytes but the last mark that more follow
    words |= _MORE & ((np.uint64(1) << (np.uint64(8) * (lengths - 1).astype(np.uint64))) - np.uint64(1))
    table = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, _WORD)[:, :longest]
    if (lengths == longest).all():
        return np.ascontiguousarray(table).ravel()
    return table[np.arange(longest) < lengths[:, None]]


def _long_bytes(
    numbers: npt.NDArray[np.uint64], lengths: npt.NDArray[np.int32], offsets: npt.NDArray[np.int32]
) -> Bytes:
    out = np.empty(int(offsets[-1]), np.uint8)
    at, rows = offsets[:-1], np.arange(len(numbers))
    for i in range(int(lengths.max())):
        rows = rows[lengths[rows] > i]
        more = (lengths[rows] > i + 1).astype(np.uint8) << 7
        out[at[rows] + i] = ((numbers[rows] >> np.uint64(7 * i)) & np.uint64(0x7F)).astype(np.uint8) | more
    return out


def encode_binaries(values: pa.Array) -> pa.BinaryArray:
    """Strings or bytes with their length in front; nulls stay null."""
    raw = values.cast(pa.binary())
    _, offsets = value_buffer(raw)
    return join_pieces([encode_longs(np.diff(offsets)), raw])


def encode_fixed(values: npt.NDArray[Any]) -> pa.BinaryArray:
    """Numbers of a fixed width (booleans, floats, doubles) as little-endian bytes, one binary per number."""
    width = values.dtype.itemsize
    offsets = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    data = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def encode_nullable(values: pa.BinaryArray, branch: bytes = b"\x02") -> pa.BinaryArray:
    """The union of null and a type: the byte `branch` in front of each value, and one zero byte for a null."""
    return pc.fill_null(join_pieces([branch, values]), _NULL_BRANCH)


def join_pieces(pieces: Sequence[pa.BinaryArray | bytes]) -> pa.BinaryArray:
    """The pieces of each record, concatenated. A piece given as bytes is the same in every record. The result is null
    where a piece is null."""
    columns = [pa.scalar(piece, pa.binary()) if isinstance(piece, bytes) else piece for piece in pieces]
    return pc.binary_join_element_wise(*columns, _NOTHING)
