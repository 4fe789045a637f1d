"""The entries of an HFile's data block as Arrow columns, and the cache of inflated blocks.

Entries are found by a few passes over the block's bytes. Each way checks that the entries follow each other from the
first byte to the last; where one finds nothing the next is tried, down to a plain walk.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptFile
from lakebed.format.bounded_cache import BoundedCache
from lakebed.format.hfile.blocks import KEY_TAIL, Buffer, Damaged, read_vint

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Key length, value length, row length; the row follows.
_LENGTHS = struct.Struct(">iiH")
_HEAD: Final = _LENGTHS.size
_KEY_BEYOND_ROW: Final = 12
_MIN_ENTRY: Final = 20
_SCAN_BYTES: Final = 1 << 17
_NEWEST = int.from_bytes(KEY_TAIL[1:9], "big")
_ONES: Final = 0xFFFFFFFF
_LOOKED_AT: Final = 32
# The few entries of a block up to this size are read one after the other: that takes less time than passes over it.
_MAX_JOINED_BYTES: Final = 4 << 10
_MAX_LENGTHS: Final = 6


def _even(data: Bytes, mvcc: bool) -> Int32s | None:
    """The spans of all entries if all rows have one length and all values have one length; otherwise None."""
    key_size, value_size, row_size = _LENGTHS.unpack_from(data.data)
    size = 8 + key_size + value_size + mvcc
    if key_size != row_size + _KEY_BEYOND_ROW or value_size < 0 or len(data) % size:
        return None
    count = len(data) // size
    lengths, rows = (np.ndarray((count,), kind, data, at, (size,)) for kind, at in (("<u8", 0), ("<u2", 8)))
    if (lengths != lengths[0]).any() or (rows != rows[0]).any():
        return None
    first = np.array([_HEAD, _HEAD + row_size, 8 + key_size, 8 + key_size + value_size], np.int32)
    return np.arange(0, len(data), size, dtype=np.int32)[:, None] + first


def _has_few_entries(data: Bytes, mvcc: bool) -> bool:
    """Whether the entries at the start of a block are so large that few fill it."""
    at, view = 0, data.data
    for _ in range(_LOOKED_AT):
        key_size, value_size, _ = _LENGTHS.unpack_from(view, at)
        at += 8 + key_size + value_size + mvcc
        if key_size < 0 or value_size < 0 or at > len(view) - _HEAD:
            return True
    return False


def _by_tails(data: Bytes, mvcc: bool) -> Int32s | None:
    """The spans of all entries, located by the tails of the cell keys after the rows; None unless all rows have one
    length, or the values have one of a few lengths."""
    rows, values = map(sorted, map(set, _first_lengths(data, mvcc)))
    if len(rows) == 1:
        return _chained(data, _tails(data) - rows[0] - _HEAD, mvcc)
    if not 0 < len(values) <= _MAX_LENGTHS:
        return None
    tails = _tails(data)
    # the last byte of each head, the low one of its row length, if the value before it has the smallest size
    smallest = tails[:-1] + (len(KEY_TAIL) + values[0] + mvcc + _HEAD - 1)
    if len(smallest) and smallest[-1] + values[-1] - values[0] >= len(data):
        return None
    starts = np.zeros(len(tails), np.int64)
    starts[1:] = smallest - (_HEAD - 1)
    for size in values[1:]:
        more = size - values[0]
        at = smallest + more
        starts[1:] += more * (data[at] == (tails[1:] - at - 1).astype(np.uint8))
    return _chained(data, starts, mvcc)


def _first_lengths(data: Bytes, mvcc: bool) -> tuple[list[int], list[int]]:
    """The row lengths and the value lengths of the entries at the start of the block."""
    rows, values, at, view = list[int](), list[int](), 0, data.data
    while at <= len(view) - _HEAD and len(rows) < _LOOKED_AT:
        key_size, value_size, row_size = _LENGTHS.unpack_from(view, at)
        if key_size < 0 or value_size < 0:
            break
        rows.append(row_size)
        values.append(value_size)
        at += 8 + key_size + value_size + mvcc
    return rows, values


def _tails(data: Bytes) -> Int64s:
    """The positions where the tail of a cell key may start: seven bytes of ones contain exactly one aligned word of
    ones."""
    words = data[: len(data) // 4 * 4].view("<u4")
    positions = np.flatnonzero(words == _ONES)
    positions = positions[positions > 0]
    before = words[positions - 1]
    ones = (before >= 0xFF000000).view(np.int8) + (before >= 0xFFFF0000) + (before >= 0xFFFFFF00)
    # the row's end is a zero and the 7f of the timestamp before the ones
    return positions * 4 - ones - 2


def _by_heads(data: Bytes, mvcc: bool) -> Int32s | None:
    """The spans of all entries, located by bytes that look like the head of an entry; None if these do not form a
    chain."""
    starts = _heads(data)
    spans = _chained(data, starts, mvcc)
    if spans is None and len(starts):
        # a value's bytes look like a head: a true one has the tail of a cell key after its row
        halves = np.ndarray((len(data) - 1,), ">u2", data, 0, (1,))
        spans = _chained(data, starts[_has_tail(data, starts + _HEAD + halves[starts + 8])], mvcc)
    return spans


def _heads(data: Bytes) -> Int64s:
    """The positions that have two zero bytes, and where the low bytes of key length and row length differ by the number
    of bytes that a cell key adds to its row."""
    last = len(data) - _MIN_ENTRY + 1
    heads: list[Int64s] = []
    for start in range(0, last, _SCAN_BYTES):
        end = min(start + _SCAN_BYTES, last)
        near = np.flatnonzero((data[start + 3 : end + 3] - data[start + 9 : end + 9]) == _KEY_BEYOND_ROW) + start
        heads.append(near[(data[near] | data[near + 1]) == 0])
    return np.concatenate(heads)


def _has_tail(data: Bytes, at: Int64s) -> Bools:
    inside = at <= len(data) - len(KEY_TAIL)
    at = np.where(inside, at, 0)
    stamps = np.ndarray((len(data) - 7,), ">u8", data, 0, (1,))
    return inside & (data[at] == 0) & (stamps[at + 1] == _NEWEST)


def _chained(data: Bytes, starts: Int64s, mvcc: bool) -> Int32s | None:
    """The spans, in bytes, of the entries at `starts`; None unless the positions are those of entries that follow each
    other without a gap."""
    if not len(starts) or starts[0] != 0 or starts.max() + _HEAD > len(data):
        return None
    heads = np.ndarray((len(data) - _HEAD + 1,), "V10", data, 0, (1,))[starts]
    fields = heads.view([("key", ">i4"), ("value", ">i4"), ("row", ">u2")])
    keys, values, rows = [fields[name].astype(np.int64) for name in ("key", "value", "row")]
    value_starts = starts + 8 + keys
    value_ends = value_starts + values
    ends = value_ends + mvcc
    if ends[-1] != len(data) or (ends[:-1] != starts[1:]).any():
        return None
    # a version of several bytes would break the chain
    if (keys != rows + _KEY_BEYOND_ROW).any() or values.min() < 0:
        return None
    spans = np.empty((len(starts), 4), np.int32)
    spans[:, 0] = starts + _HEAD
    spans[:, 1] = spans[:, 0] + rows
    spans[:, 2] = value_starts
    spans[:, 3] = value_ends
    return spans


def _walked(data: Bytes, mvcc: bool) -> Int32s:
    """The spans of all entries, read one after the other; works for any cell keys and version numbers."""
    view, at, end = data.data, 0, len(data)
    spans = array("i")
    while at < end:
        if end - at < _HEAD:
            raise Damaged("an entry's head is cut off")
        key_size, value_size, row_size = _LENGTHS.unpack_from(view, at)
        value = at + 8 + key_size
        if key_size < row_size + _KEY_BEYOND_ROW or value_size < 0 or value + value_size > end:
            raise Damaged(f"an entry's lengths ({key_size}, {value_size}, {row_size}) are wrong")
        spans.extend((at + _HEAD, at + _HEAD + row_size, value, value + value_size))
        at = value + value_size
        if mvcc:
            _, at = read_vint(view, at)
    return np.frombuffer(spans, np.int32).reshape(-1, 4)


@dataclass(frozen=True, slots=True)
class Entries:
    """The keys and values of entries, as two binary columns of equal length (large binary beyond 2 GiB)."""

    keys: pa.Array
    values: pa.Array

    def __len__(self) -> int:
        return len(self.keys)

    def strings(self) -> pa.Array:
        """The keys as a string column, without a copy. Raises `CorruptFile` if one is not UTF-8."""
        wide = pa.types.is_large_binary(self.keys.type)
        try:
            return self.keys.cast(pa.large_string() if wide else pa.string())
        except pa.ArrowInvalid as cause:
            raise CorruptFile(f"a key of an HFile is not UTF-8: {cause}") from cause


def joined(parts: list[Entries]) -> Entries:
    """The entries of all parts as one `Entries`."""
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

    `spans` has a row for each entry: start and end of its row and of its value, from the block's first byte.
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
        """The bytes of memory that the block takes, including what a lookup adds."""
        return self.data.nbytes + self.spans.nbytes + 12 * self.count

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
    is_small = len(data) <= max(_MAX_JOINED_BYTES, 2 * _MIN_ENTRY)
    for way in () if is_small or _has_few_entries(data, mvcc) else (_even, _by_tails, _by_heads):
        spans = way(data, mvcc)
        if spans is not None:
            return EntryBlock(data, spans)
    return EntryBlock(data, _walked(data, mvcc))


_MAX_BYTES = 256 << 20


class BlockCache(BoundedCache[EntryBlock]):
    """A cache of the blocks used last, up to `max_bytes` of memory. Several threads may use it."""

    def __init__(self, max_bytes: int = _MAX_BYTES, name: str = "") -> None:
        super().__init__(max_bytes, name)

    def drop_file(self, source: tuple[Any, ...], count: int) -> None:
        """Drop the blocks of a file that no lookup will need again; `count` is the number of its blocks."""
        for number in range(count):
            self.drop((*source, number))


BLOCKS = BlockCache(name="metadata table blocks")
