"""Hudi's MurmurHash2 over many keys at once: its bloom filters hash each key some thirty times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from lakebed.format.hashes import plain_strings, value_buffer

UInt32s = npt.NDArray[np.uint32]
_M = np.uint32(0x5BD1E995)
# Keys hashed together: their words stay in the processor's cache through all seeds.
_BLOCK_ROWS = 8192


class KeyBlock:
    """Keys of one length: `rows` says where they stand in the column, `murmur2` hashes them under any seed."""

    def __init__(self, rows: npt.NDArray[np.int64], keys: npt.NDArray[np.uint8]) -> None:
        self.rows = rows
        self._length = keys.shape[1]
        words = self._length >> 2
        body = np.ascontiguousarray(keys[:, : words * 4]).view("<u4").T if words else np.empty((0, len(keys)), "<u4")
        mixed = np.ascontiguousarray(body).astype(np.uint32, copy=False) * _M
        mixed ^= mixed >> np.uint32(24)
        self._words = mixed * _M
        self._tail = _tail(keys[:, words * 4 :])

    def only(self, kept: npt.NDArray[np.bool_]) -> KeyBlock:
        """The block of these keys alone."""
        block = KeyBlock.__new__(KeyBlock)
        block.rows, block._length = self.rows[kept], self._length
        block._words = self._words[:, kept]
        block._tail = None if self._tail is None else self._tail[kept]
        return block

    def murmur2(self, seed: Any) -> UInt32s:
        """The hash of each key under its seed (an array) or one seed for all."""
        h = np.full(len(self.rows), self._length, np.uint32)
        h ^= seed
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


def _tail(rest: npt.NDArray[np.uint8]) -> UInt32s | None:
    """The last bytes as Hudi mixes them in: Java bytes are signed, so one above 127 also flips all bits left of it.

    The bytes count from the end of the key, so the last one is the lowest.
    """
    size = rest.shape[1]
    if not size:
        return None
    signed = rest.view(np.int8).astype(np.int32)
    total = signed[:, size - 1]
    for back, shift in ((2, 8), (3, 16)):
        if size >= back:
            total = total ^ (signed[:, size - back] << shift)
    return np.ascontiguousarray(total).view(np.uint32)


def key_blocks(keys: Any) -> Iterator[KeyBlock]:
    """A string column as blocks of keys of one length; null keys are in none."""
    array = plain_strings(keys)
    data, offsets = value_buffer(array)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
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
    """The bytes of keys of one length, a row a key."""
    if not length:
        return np.empty((len(starts), 0), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(data, length)[starts]


def murmur2(keys: Any, seed: Any = 0) -> UInt32s:
    """Hudi's MurmurHash2 of every key's UTF-8 bytes; `seed` one number or one a key; a null key gives 0.

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

    The first few, which tell almost every key that a filter does not hold, are kept for all keys: filters of one table
    are asked about the same keys. Null keys hash to anything.
    """

    KEPT = 4

    def __init__(self, keys: Any) -> None:
        self.keys = plain_strings(keys)
        self._levels: list[UInt32s] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def levels(self) -> list[UInt32s]:
        """The first hashes, one array a hash."""
        if self._levels is None:
            self._levels = self._made()
        return self._levels

    def _made(self) -> list[UInt32s]:
        levels = [np.zeros(len(self.keys), np.uint32) for _ in range(self.KEPT)]
        for block in key_blocks(self.keys):
            seed: Any = np.uint32(0)
            for level in levels:
                seed = block.murmur2(seed)
                level[block.rows] = seed
        return levels
