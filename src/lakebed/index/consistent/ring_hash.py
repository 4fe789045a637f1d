"""Where a key is on the ring: XXH32 of its hash fields' values, over whole Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lakebed.format.hashes import Int32s, Int64s, UInt32s, joined_hash_values, plain_strings, value_buffer

# The numbers of the XXH32 specification.
_P1, _P2, _P3, _P4, _P5 = (np.uint32(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393))
_STRIPE = 16
_ROWS = 1 << 16
RING_SIZE = (1 << 31) - 1
"""The greatest value on the ring."""


def ring_hashes(keys: Any, fields: Sequence[str]) -> Int32s:
    """The place on the ring (0 to `RING_SIZE`) of every record key text, as Hudi's consistent hashing reckons it.

    `fields` are the hash fields, a subset of the key fields (empty: all).

    >>> import pyarrow as pa
    >>> ring_hashes(pa.array(["k0", "id:1,ts:2"]), ["id"]).tolist()
    [1521402247, 921487538]
    """
    return (xxh32(joined_hash_values(keys, fields)) & np.uint32(RING_SIZE)).view(np.int32)


def xxh32(strings: Any, seed: int = 0) -> UInt32s:
    """XXH32 of the bytes of every value of a string column; a null counts as empty text.

    >>> import pyarrow as pa
    >>> [f"{h:08x}" for h in xxh32(pa.array(["", "abc"])).tolist()]
    ['02cc5d05', '32d153ff']
    """
    array = plain_strings(strings)
    data, offsets = value_buffer(array)
    result = np.empty(len(array), np.uint32)
    # words are read at any byte; the last ones begin up to three bytes before the end
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    words = np.ndarray(len(padded) - 3, "<u4", padded, strides=(1,))
    for first in range(0, len(array), _ROWS):
        last = min(first + _ROWS, len(array))
        result[first:last] = _hashed(padded, words, offsets[first : last + 1], np.uint32(seed))
    return result


def _hashed(data: npt.NDArray[np.uint8], words: npt.NDArray[Any], offsets: Int64s, seed: np.uint32) -> UInt32s:
    """A step takes the next word, or byte, of all rows that have one: the longest rows come first, so that they are
    always the first so many."""
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    sizes, at = lengths[order], offsets[:-1][order].copy()
    with np.errstate(over="ignore"):
        total = _stripes(words, sizes, at, seed) + sizes.astype(np.uint32)
        left = sizes % _STRIPE
        for step in range(3):
            rows = np.flatnonzero(left >= 4 * (step + 1))
            taken = words[at[rows] + 4 * step].astype(np.uint32)
            total[rows] = _turned(total[rows] + taken * _P3, 17) * _P4
        at += left // 4 * 4
        for step in range(3):
            rows = np.flatnonzero(left % 4 > step)
            total[rows] = _turned(total[rows] + data[at[rows] + step].astype(np.uint32) * _P5, 11) * _P1
        total ^= total >> np.uint32(15)
        total *= _P2
        total ^= total >> np.uint32(13)
        total *= _P3
        total ^= total >> np.uint32(16)
    result = np.empty_like(total)
    result[order] = total
    return result


def _stripes(words: npt.NDArray[Any], sizes: Int64s, at: Int64s, seed: np.uint32) -> UInt32s:
    """What whole stripes of 16 bytes give; `at` goes on to what is behind them."""
    total = np.full(len(sizes), seed + _P5, np.uint32)
    long = int(np.searchsorted(-sizes, -_STRIPE, side="right"))
    if not long:
        return total
    starts = (seed + _P1 + _P2, seed + _P2, seed, seed - _P1)
    lanes = [np.full(long, start, np.uint32) for start in starts]
    for stripe in range(int(sizes[0]) // _STRIPE):
        rows = int(np.searchsorted(-sizes, -_STRIPE * (stripe + 1), side="right"))
        for number, lane in enumerate(lanes):
            taken = words[at[:rows] + 4 * number].astype(np.uint32)
            lane[:rows] = _turned(lane[:rows] + taken * _P2, 13) * _P1
        at[:rows] += _STRIPE
    total[:long] = sum(
        (_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)), np.zeros(long, np.uint32)
    )
    return total


def _turned(values: UInt32s, by: int) -> UInt32s:
    return (values << np.uint32(by)) | (values >> np.uint32(32 - by))
