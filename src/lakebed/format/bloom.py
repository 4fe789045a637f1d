"""Hudi's bloom filters, SIMPLE and DYNAMIC_V0, of base-file footers and of the metadata table; MurmurHash2 over many
keys.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.hashes import plain_strings, value_buffer
from lakebed.schema.plain_arrow import as_numpy

UInt32s = npt.NDArray[np.uint32]
_M = np.uint32(0x5BD1E995)
# Keys hashed together: their words stay in the processor's cache through all seeds.
_BLOCK_ROWS = 8192
# So few long keys are hashed one after another: an operation on an array costs as much as one on some ten integers.
_MAX_ROWS = 4


class KeyBlock:
    """Keys of one length. `rows` are their positions in the column, and `murmur2` computes their hashes under any
    seed."""

    def __init__(self, rows: npt.NDArray[np.int64], keys: npt.NDArray[np.uint8]) -> None:
        self.rows = rows
        self._length = keys.shape[1]
        words = self._length >> 2
        body = np.ascontiguousarray(keys[:, : words * 4]).view("<u4").T if words else np.empty((0, len(keys)), "<u4")
        mixed = np.ascontiguousarray(body).astype(np.uint32, copy=False) * _M
        mixed ^= mixed >> np.uint32(24)
        self._words = mixed * _M
        self._tail = _tail(keys[:, words * 4 :])

    def only(self, mask: npt.NDArray[np.bool_]) -> KeyBlock:
        """The block of these keys alone."""
        block = KeyBlock.__new__(KeyBlock)
        block.rows, block._length = self.rows[mask], self._length
        block._words = self._words[:, mask]
        block._tail = None if self._tail is None else self._tail[mask]
        return block

    def murmur2(self, seed: Any) -> UInt32s:
        """The hash of each key; `seed` is one number for all keys or an array with one number per key."""
        h = np.full(len(self.rows), self._length, np.uint32)
        h ^= seed
        if len(h) <= _MAX_ROWS and len(self._words) > len(h):
            h = np.fromiter(map(_mixed, h.tolist(), self._words.T), np.uint32, len(h))
        else:
            for word in self._words:
                h *= _M
                h ^= word
        if self._tail is not None:
            h ^= self._tail
            h *= _M
        h ^= h >> np.uint32(13)
        h *= _M
        h ^= h >> np.uint32(15)
        return h


def _mixed(h: int, words: UInt32s) -> int:
    """The hash of one key after all its words are mixed into `h`."""
    factor = int(_M)
    for word in words.tolist():
        h = (h * factor ^ word) & 0xFFFFFFFF
    return h


def _tail(last_bytes: npt.NDArray[np.uint8]) -> UInt32s | None:
    """The bytes of each key after its last complete word, as numbers in the form in which Hudi mixes them into the
    hash: Java bytes are signed, so a byte above 127 also flips all bits left of it. None if there are no such bytes.

    The bytes count from the end of the key, so the last one is the lowest.
    """
    size = last_bytes.shape[1]
    if not size:
        return None
    signed = last_bytes.view(np.int8).astype(np.int32)
    total = signed[:, size - 1]
    for back, shift in ((2, 8), (3, 16)):
        if size >= back:
            total = total ^ (signed[:, size - back] << shift)
    return np.ascontiguousarray(total).view(np.uint32)


def key_blocks(keys: Any) -> Iterator[KeyBlock]:
    """The keys of a string column as blocks of keys of one length; null keys are in no block."""
    array = plain_strings(keys)
    data, offsets = value_buffer(array)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths[as_numpy(array.is_null())] = -1
    if not len(lengths):
        return
    order = np.argsort(lengths, kind="stable") if (lengths != lengths[0]).any() else np.arange(len(lengths))
    ends = np.flatnonzero(np.diff(lengths[order])) + 1
    for rows in np.split(order, ends):
        length = int(lengths[rows[0]])
        if length < 0:
            continue
        for at in range(0, len(rows), _BLOCK_ROWS):
            part = rows[at : at + _BLOCK_ROWS]
            yield KeyBlock(part, _matrix(data, offsets[part], length))


def _matrix(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint8]:
    """The bytes of keys of one length as a matrix with one row per key."""
    if not length:
        return np.empty((len(starts), 0), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(data, length)[starts]


def murmur2(keys: Any, seed: Any = 0) -> UInt32s:
    """Hudi's MurmurHash2 of the UTF-8 bytes of each key. `seed` is one number, or one for each key; a null key has the
    hash 0.

    >>> import pyarrow as pa
    >>> murmur2(pa.array(["hudi"])).tolist()
    [1271591479]
    """
    array = plain_strings(keys)
    result = np.zeros(len(array), np.uint32)
    seeds = np.broadcast_to(np.asarray(seed, np.uint32), len(array))
    for block in key_blocks(array):
        result[block.rows] = block.murmur2(seeds[block.rows])
    return result


class ChainedHashes:
    """The hashes of keys as bloom filters ask for them: each is seeded with the one before.

    The first few, which exclude almost every key that a filter does not hold, are cached for all keys: filters of one
    table are asked about the same keys. Null keys hash to anything.
    """

    BUFFERED = 4

    def __init__(self, keys: Any) -> None:
        self.keys = plain_strings(keys)
        self._levels: list[UInt32s] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def levels(self) -> list[UInt32s]:
        """The first few hashes of all keys, one array per hash."""
        if self._levels is None:
            self._levels = self._made()
        return self._levels

    def _made(self) -> list[UInt32s]:
        levels = [np.zeros(len(self.keys), np.uint32) for _ in range(self.BUFFERED)]
        for block in key_blocks(self.keys):
            seed: Any = np.uint32(0)
            for level in levels:
                seed = block.murmur2(seed)
                level[block.rows] = seed
        return levels


TypeCode = Literal["SIMPLE", "DYNAMIC_V0"]
_VERSIONED = -1
_MURMUR = 1
_HEADER = struct.Struct(">iibi")
_GROWTH = struct.Struct(">iii")
_MAX_ENTRIES = 100_000
# Beyond any rate of false positives; a damaged filter must not be asked for ever.
_MAX_HASHES = 1024
Bits = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
# So many hashes are asked of a block before those that met no bit are left out.
_HASHES_TOGETHER = 4
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)


class BloomFilter:
    """A set of record keys that may accept a key it does not hold, and never rejects one it holds.

    The bytes are Hudi's: a filter built from the same keys in the same order is the same text.

    >>> keys = BloomFilter.simple(2, 0.1)
    >>> keys.add(pa.array(["a", "b"]))
    >>> keys.to_text()
    '/////wAAAAQBAAAACr0C'
    >>> BloomFilter.from_text(keys.to_text(), "SIMPLE").might_contain(pa.array(["a", "zz"])).to_pylist()
    [True, False]
    """

    def __init__(
        self,
        type_code: TypeCode,
        rows: list[Bits],
        *,
        bits: int,
        hashes: int,
        entries: int = 0,
        max_entries: int = 0,
        current: int = 0,
    ) -> None:
        self.type_code: TypeCode = type_code
        self.bits = bits
        self.hashes = hashes
        self._rows = rows
        self._size = np.uint32(bits)
        self._entries = entries
        self._max_entries = max_entries
        self._current = current
        self._full = False
        self._turn = 0

    @classmethod
    def simple(cls, entries: int = 60_000, fpp: float = 1e-9) -> BloomFilter:
        """An empty filter of fixed size for that many keys at that rate of false positives."""
        bits, hashes = _size(entries, fpp)
        return cls("SIMPLE", [_empty(bits)], bits=bits, hashes=hashes)

    @classmethod
    def dynamic(cls, entries: int = 60_000, fpp: float = 1e-9, max_entries: int = _MAX_ENTRIES) -> BloomFilter:
        """An empty filter that takes a further row of bits each `entries` keys until it has room for `max_entries`.

        >>> keys = BloomFilter.dynamic(2, 0.1, max_entries=3)
        >>> keys.add(pa.array(["a", "b", "c"]))
        >>> keys.to_text()
        '/////wAAAAQBAAAACgAAAAIAAAABAAAAAv////8AAAAEAQAAAAq9Av////8AAAAEAQAAAAo2AA=='
        """
        bits, hashes = _size(entries, fpp)
        return cls("DYNAMIC_V0", [_empty(bits)], bits=bits, hashes=hashes, entries=entries, max_entries=max_entries)

    def add(self, keys: Any) -> None:
        """Add every key of a string column; nulls are left out."""
        strings = pc.drop_null(keys)
        if self.type_code == "SIMPLE":
            self._put(0, strings)
            return
        at, total = 0, len(strings)
        while at < total and not self._full:
            if self._current >= self._entries and len(self._rows) * self._entries < self._max_entries:
                self._rows.append(_empty(self.bits))
                self._current = 0
            elif self._current >= self._entries:
                # the key that finds the filter full still goes to the first row
                self._full = True
            room = 1 if self._full else self._entries - self._current
            count = min(room, total - at)
            self._put(0 if self._full else len(self._rows) - 1, strings.slice(at, count))
            self._current += count
            at += count
        if at < total:
            self._add_in_turn(strings.slice(at))

    def _add_in_turn(self, strings: pa.Array) -> None:
        """Add keys to a dynamic filter that has its greatest size: they go to its rows of bits in turn."""
        rows = len(self._rows)
        order = np.arange(len(strings))
        for row in range(rows):
            positions = order[(row - self._turn) % rows :: rows]
            if len(positions):
                self._put(row, strings.take(pa.array(positions)))
        self._turn += len(strings)
        self._current += len(strings)

    def _put(self, row: int, strings: pa.Array) -> None:
        flags = np.zeros(self.bits, np.bool_)
        for block in key_blocks(strings):
            for position in self._positions(block):
                flags[position] = True
        self._rows[row] |= np.packbits(flags, bitorder="little")

    def might_contain(self, keys: Any) -> pa.BooleanArray:
        """Whether the filter may hold each key: a boolean per key, null for a null key."""
        matches = self.holds(ChainedHashes(keys), np.arange(len(keys)))
        valid = keys.is_valid() if keys.null_count else None
        return pa.array(matches, mask=None if valid is None else as_numpy(pc.invert(valid)))

    def holds(self, hashes: ChainedHashes, rows: npt.NDArray[np.int64]) -> Flags:
        """Whether the filter may hold each key in these rows: a flag per row. A key that the filter does not hold costs
        two hashes on average, which are computed once for all filters."""
        buffered = min(self.hashes, hashes.BUFFERED)
        levels = hashes.levels[:buffered]
        left = [self._left(bits, levels, rows) for bits in self._rows]
        if buffered == self.hashes:
            matches = np.zeros(len(rows), np.bool_)
            for positions in left:
                matches[positions] = True
            return matches
        return self._found(hashes, rows, left)

    def _left(self, bits: Bits, levels: Sequence[UInt32s], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The positions among `rows` whose first hashes all hit a set bit."""
        positions = np.flatnonzero(self._set(bits, levels[0][rows]))
        for level in levels[1:]:
            positions = positions[self._set(bits, level[rows[positions]])]
        return positions

    def _found(
        self, hashes: ChainedHashes, rows: npt.NDArray[np.int64], left: Sequence[npt.NDArray[np.int64]]
    ) -> Flags:
        """Flags that are true for the keys that pass all hashes; `left` are the positions of the keys that passed the
        first few hashes."""
        matches = np.zeros(len(rows), np.bool_)
        positions = left[0] if len(left) == 1 else np.unique(np.concatenate(left))
        if not len(positions):
            return matches
        last = hashes.levels[-1][rows[positions]]
        hits = [
            np.isin(positions, row_positions, assume_unique=True) if len(left) > 1 else None for row_positions in left
        ]
        for block in key_blocks(hashes.keys.take(pa.array(rows[positions]))):
            flags = [np.ones(len(block.rows), np.bool_) if hit is None else hit[block.rows] for hit in hits]
            for flag, at in self._ask(block, last[block.rows], flags):
                matches[positions[at[flag]]] = True
        return matches

    def _ask(self, block: KeyBlock, seed: UInt32s, flags: list[Flags]) -> Iterator[tuple[Flags, npt.NDArray[np.int64]]]:
        """For each row of bits, the flags of the keys in `block` that the row may hold, and the numbers of the bits
        that the hashes of the keys select."""
        for number in range(ChainedHashes.BUFFERED, self.hashes):
            seed = block.murmur2(seed)
            for flag, bits in zip(flags, self._rows, strict=True):
                flag &= self._set(bits, seed)
            if number % _HASHES_TOGETHER == 0:
                is_candidate = np.logical_or.reduce(flags)
                if not is_candidate.any():
                    return
                if 2 * np.count_nonzero(is_candidate) < len(is_candidate):
                    block, seed, flags = (
                        block.only(is_candidate),
                        seed[is_candidate],
                        [flag[is_candidate] for flag in flags],
                    )
        for flag in flags:
            yield flag, block.rows

    def _set(self, bits: Bits, hashes: UInt32s) -> Flags:
        """Whether the bit of each hash is set."""
        at = self._bit_of(hashes)
        return (bits[at >> np.uint32(3)] >> (at & np.uint32(7)).astype(np.uint8) & np.uint8(1)).view(np.bool_)

    def _bit_of(self, hashes: UInt32s) -> UInt32s:
        """The bit number of each hash, which Hudi takes as a signed int."""
        positive = np.abs(hashes.view(np.int32)).view(np.uint32)
        return positive - positive // self._size * self._size

    @property
    def holds_everything(self) -> bool:
        """Whether this is the filter of one byte that accepts every key."""
        return self.bits <= 8

    @property
    def rate(self) -> float:
        """The expected share of false positives (0 to 1), by the number of bits that are set."""
        shares = (int(_ONES[row].sum()) / self.bits for row in self._rows)
        return 1.0 - math.prod(1.0 - min(1.0, share) ** self.hashes for share in shares)

    def _positions(self, block: KeyBlock) -> Iterator[UInt32s]:
        """The number of the bit that each key selects, as one array per hash."""
        seed: Any = np.uint32(0)
        for _ in range(self.hashes):
            seed = block.murmur2(seed)
            yield self._bit_of(seed)

    def to_text(self) -> str:
        """The filter as base64 text, as footers store it."""
        header = _HEADER.pack(_VERSIONED, self.hashes, _MURMUR, self.bits)
        if self.type_code == "SIMPLE":
            return base64.b64encode(header + self._rows[0].tobytes()).decode()
        growth = _GROWTH.pack(self._entries, self._current, len(self._rows))
        rows = b"".join(header + row.tobytes() for row in self._rows)
        return base64.b64encode(header + growth + rows).decode()

    @classmethod
    def from_text(
        cls, text: str | bytes, type_code: str = "SIMPLE", *, max_entries: int = _MAX_ENTRIES, path: str = ""
    ) -> BloomFilter:
        """The filter that a footer stores as text. The text does not have the limit of a dynamic filter: `max_entries`
        is the number of keys up to which it may grow. Raises `CorruptFile` for text that is not a filter."""
        try:
            data = base64.b64decode(text, validate=True)
            if type_code == "SIMPLE":
                bits, hashes, row, at = _read_row(data, 0)
                if at != len(data):
                    raise ValueError(f"it goes on for {len(data) - at} bytes after its end")
                return cls("SIMPLE", [row], bits=bits, hashes=hashes)
            if type_code != "DYNAMIC_V0":
                raise ValueError("such filters do not exist")
            entries, current, count = _GROWTH.unpack_from(data, _HEADER.size)
            at, rows, shapes = _HEADER.size + _GROWTH.size, list[Bits](), set[tuple[int, int]]()
            bits = hashes = 0
            for _ in range(count):
                bits, hashes, row, at = _read_row(data, at)
                rows.append(row)
                shapes.add((bits, hashes))
            if len(shapes) != 1 or at != len(data):
                raise ValueError(f"it has rows of {len(shapes)} sizes, and ends at {at} of {len(data)} bytes")
        except (ValueError, struct.error) as error:
            raise CorruptFile(
                f"{path or 'a base file'} has no {type_code} bloom filter: {error}",
                hint="Restore the file, or roll back the commit that wrote it.",
                context={"path": path},
            ) from error
        return cls(
            "DYNAMIC_V0", rows, bits=bits, hashes=hashes, entries=entries, max_entries=max_entries, current=current
        )


def all_ones() -> BloomFilter:
    """A filter of one byte that holds every key: Hudi's bloom lookup then goes by the key range alone, and stays right.

    >>> all_ones().might_contain(pa.array(["anything"])).to_pylist()
    [True]
    """
    return BloomFilter("SIMPLE", [np.full(1, 0xFF, np.uint8)], bits=8, hashes=1)


def _size(entries: int, fpp: float) -> tuple[int, int]:
    """The number of bits and the number of hashes of a filter."""
    bits = math.ceil(entries * (-math.log(fpp) / (math.log(2) * math.log(2))))
    return bits, math.ceil(math.log(2) * bits / entries)


def _empty(bits: int) -> Bits:
    return np.zeros((bits + 7) // 8, np.uint8)


def _read_row(data: bytes, at: int) -> tuple[int, int, Bits, int]:
    """The number of bits, the number of hashes and the bytes of a row of bits, and the position of the next row."""
    version, hashes, kind, bits = _HEADER.unpack_from(data, at)
    if version != _VERSIONED or kind != _MURMUR:
        raise ValueError(f"version {version} with hash type {kind} is unknown")
    at += _HEADER.size
    size = (bits + 7) // 8
    if bits <= 0 or not 0 < hashes <= _MAX_HASHES or at + size > len(data):
        raise ValueError("its bits end too soon, or its hashes are too many")
    return bits, hashes, np.frombuffer(data, np.uint8, size, at).copy(), at + size


ALL_ONES_TEXT = all_ones().to_text()
