"""The entries of an HFile's data block, found by a few passes over its bytes and handed on as Arrow columns."""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptFile
from lakebed.format.hfile_blocks import KEY_TAIL, Buffer, Damaged, read_vint

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

# Key length, value length, row length; the row follows.
_HEAD: Final = 10
_KEY_BEYOND_ROW: Final = 12
_SMALLEST_ENTRY: Final = 20
_SCAN_BYTES: Final = 1 << 17
_NEWEST = int.from_bytes(KEY_TAIL[1:9], "big")


@dataclass(frozen=True, slots=True)
class Entries:
    """Keys and values of entries, side by side: binary columns (large binary beyond 2 GiB)."""

    keys: pa.Array
    values: pa.Array

    def __len__(self) -> int:
        return len(self.keys)

    def strings(self) -> pa.Array:
        """The keys as a string column, without a copy. Raises `CorruptFile` where one is not UTF-8."""
        wide = pa.types.is_large_binary(self.keys.type)
        try:
            return self.keys.cast(pa.large_string() if wide else pa.string())
        except pa.ArrowInvalid as cause:
            raise CorruptFile(f"a key of an HFile is not UTF-8: {cause}") from cause


def joined(parts: list[Entries]) -> Entries:
    """All entries of the parts as one."""
    keys, values = [part.keys for part in parts], [part.values for part in parts]
    return Entries(_concat(keys), _concat(values))


def _concat(arrays: list[pa.Array]) -> pa.Array:
    if not arrays:
        return pa.array([], pa.binary())
    if len(arrays) == 1:
        return arrays[0]
    if sum(part.nbytes for part in arrays) >= 1 << 31:
        arrays = [part.cast(pa.large_binary()) for part in arrays]
    return pa.concat_arrays(arrays)


class EntryBlock:
    """The entries of one data block, over its bytes.

    `row_starts`, `row_ends`, `value_starts`, `value_ends` count from the block's first byte.
    """

    __slots__ = ("_cells", "count", "data", "search", "spans")

    def __init__(self, data: Bytes, spans: Int32s) -> None:
        self.data = data
        self.count = len(spans)
        self.spans = spans
        # what a lookup has worked out about the keys, kept with the block
        self.search: Any = None
        # the spans are the offsets of a column of rows, gaps, values, gaps ... over the whole block
        self._cells = pa.Array.from_buffers(
            pa.binary(), max(4 * self.count - 1, 0), [None, pa.py_buffer(spans), pa.py_buffer(data)]
        )

    @property
    def nbytes(self) -> int:
        """What it holds in memory, with what a lookup will add."""
        return self.data.nbytes + self.spans.nbytes + 8 * self.count

    def entries(self, positions: Int64s | None = None) -> Entries:
        """The entries at these positions, copied out of the block; all without positions."""
        rows = 4 * (np.arange(self.count) if positions is None else positions)
        return Entries(self._cells.take(pa.array(rows)), self._cells.take(pa.array(rows + 2)))

    def key(self, position: int) -> bytes:
        start, end = self.spans[position, :2]
        return self.data[start:end].tobytes()


def parse_entries(payload: Buffer, *, mvcc: bool) -> EntryBlock:
    """The entries of a data block's payload. `mvcc`: a version number in Hadoop's variable form ends each entry."""
    data = np.frombuffer(payload, np.uint8)
    if not len(data):
        return EntryBlock(data, np.empty((0, 4), np.int32))
    spans = _even_spans(data, mvcc)
    if spans is None:
        spans = _scanned_spans(data, mvcc)
    if spans is None:
        spans = _walked_spans(data, mvcc)
    return EntryBlock(data, spans)


def _even_spans(data: Bytes, mvcc: bool) -> Int32s | None:
    """The spans where all entries have the same lengths; None where they do not."""
    if len(data) < _SMALLEST_ENTRY:
        return None
    key_size, value_size, row_size = struct.unpack_from(">iiH", data.data)
    size = 8 + key_size + value_size + mvcc
    if key_size != row_size + _KEY_BEYOND_ROW or value_size < 0 or len(data) % size:
        return None
    count = len(data) // size
    lengths, rows = (np.ndarray((count,), kind, data, at, (size,)) for kind, at in (("<u8", 0), ("<u2", 8)))
    if (lengths != lengths[0]).any() or (rows != rows[0]).any() or (mvcc and data[size - 1 :: size].any()):
        return None
    first = np.array([_HEAD, _HEAD + row_size, 8 + key_size, 8 + key_size + value_size], np.int32)
    return np.arange(0, len(data), size, dtype=np.int32)[:, None] + first


def _scanned_spans(data: Bytes, mvcc: bool) -> Int32s | None:
    """The spans found by looking for entry heads anywhere and checking that they follow each other from the first byte
    to the last; None where they do not (an odd entry, or damage)."""
    starts = _candidates(data)
    for final in (False, True):
        if not len(starts) or starts[0] != 0:
            return None
        heads = np.ndarray((len(data) - _HEAD + 1,), "V10", data, 0, (1,))[starts]
        fields = heads.view([("key", ">i4"), ("value", ">i4"), ("row", ">u2")])
        keys, values, rows = (fields[name].astype(np.int64) for name in ("key", "value", "row"))
        ends = starts + 8 + keys + values + mvcc
        sound = (keys == rows + _KEY_BEYOND_ROW) & (values >= 0)
        if ends[-1] == len(data) and (ends[:-1] == starts[1:]).all() and sound.all():
            break
        if final:
            return None
        # a value's bytes look like a head: a true one has the cell key's tail behind its row
        starts = starts[sound & _has_tail(data, starts + _HEAD + rows)]
    if mvcc and data[ends - 1].any():
        return None
    value_starts = starts + 8 + keys
    return np.stack([starts + _HEAD, starts + _HEAD + rows, value_starts, value_starts + values], 1).astype(np.int32)


def _candidates(data: Bytes) -> Int64s:
    """Where two zero bytes stand and the low bytes of key and row length differ by what a cell key adds to its row."""
    last = len(data) - _SMALLEST_ENTRY + 1
    found: list[Int64s] = []
    for start in range(0, last, _SCAN_BYTES):
        end = min(start + _SCAN_BYTES, last)
        here = (data[start + 3 : end + 3] - data[start + 9 : end + 9]) == _KEY_BEYOND_ROW
        here &= (data[start:end] | data[start + 1 : end + 1]) == 0
        found.append(np.flatnonzero(here) + start)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _has_tail(data: Bytes, at: Int64s) -> npt.NDArray[np.bool_]:
    inside = at <= len(data) - len(KEY_TAIL)
    at = np.where(inside, at, 0)
    stamps = np.ndarray((len(data) - 7,), ">u8", data, 0, (1,))
    return inside & (data[at] == 0) & (stamps[np.minimum(at + 1, len(stamps) - 1)] == _NEWEST)


def _walked_spans(data: Bytes, mvcc: bool) -> Int32s:
    """The spans found entry by entry: any cell key, any version number."""
    view, at, end = data.data, 0, len(data)
    spans = array("i")
    head = struct.Struct(">iiH")
    while at < end:
        if end - at < _HEAD:
            raise Damaged("an entry's head is cut off")
        key_size, value_size, row_size = head.unpack_from(view, at)
        value = at + 8 + key_size
        if key_size < row_size + _KEY_BEYOND_ROW or value_size < 0 or value + value_size > end:
            raise Damaged(f"an entry's lengths ({key_size}, {value_size}, {row_size}) are wrong")
        spans.extend((at + _HEAD, at + _HEAD + row_size, value, value + value_size))
        at = value + value_size
        if mvcc:
            _, at = read_vint(view, at)
    return np.frombuffer(spans, np.int32).reshape(-1, 4)
