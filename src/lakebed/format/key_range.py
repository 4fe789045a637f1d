"""The smallest and greatest record key of a base file, in the order of Java strings (UTF-16 code units), and which of
many ranges hold some of many keys: by one sort of keys and range ends together, no pair is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings, value_buffer

Int64s = npt.NDArray[np.int64]
# First bytes of UTF-8 characters from U+E000 on. UTF-16 puts those beyond the basic plane before the others of them.
_PRIVATE_USE = 0xEE
_IN_JAVA_ORDER = np.arange(256, dtype=np.uint8)
_IN_JAVA_ORDER[0xEE:0xF5] = [0xF5, 0xF6, 0xEE, 0xEF, 0xF0, 0xF1, 0xF2]

# First byte of a UTF-8 character outside the basic plane: only there do UTF-8 and UTF-16 sort differently.
_BEYOND_BASIC_PLANE = 0xF0


def _java_order(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


class KeyRange:
    """Grows with each batch of keys.

    >>> keys = KeyRange()
    >>> keys.add(pa.array(["b", "a", "c"]))
    >>> keys.range()
    ('a', 'c')
    """

    def __init__(self, low: str | None = None, high: str | None = None) -> None:
        self._low = low
        self._high = high

    def add(self, keys: pa.Array) -> None:
        for key in _extremes(keys):
            if self._low is None or _java_order(key) < _java_order(self._low):
                self._low = key
            if self._high is None or _java_order(key) > _java_order(self._high):
                self._high = key

    def range(self) -> tuple[str | None, str | None]:
        return self._low, self._high


def _extremes(keys: pa.Array) -> list[str]:
    """Keys among which the range's ends are."""
    if len(keys) == 0:
        return []
    data, offsets = value_buffer(keys)
    used = data[offsets[0] : offsets[-1]]
    if used.size and used.max() >= _BEYOND_BASIC_PLANE:
        odd = pc.match_substring_regex(keys, r"[\x{10000}-\x{10FFFF}]")
        plain = keys.filter(pc.invert(odd))
        return [*keys.filter(odd).to_pylist(), *_extremes(plain)]  # rare: keys with characters outside the basic plane
    ends = pc.min_max(keys).as_py()
    return [ends["min"], ends["max"]]


@dataclass(frozen=True, slots=True)
class Spans:
    """`order` are the numbers of the keys, in ascending order of the keys where there are several ranges. The keys of
    range i stand in it from `starts[i]` up to `ends[i]`."""

    order: Int64s
    starts: Int64s
    ends: Int64s

    @property
    def counts(self) -> Int64s:
        """How many keys each range holds."""
        return np.maximum(self.ends - self.starts, 0)

    def of(self, number: int) -> Int64s:
        """The numbers of the keys in a range."""
        return self.order[self.starts[number] : self.ends[number]]

    def pairs(self) -> tuple[Int64s, Int64s]:
        """Every range with every key that it holds: their numbers."""
        counts = self.counts
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(np.arange(len(counts)), counts), self.order[np.repeat(self.starts, counts) + within]


class KeyRanges:
    """Ranges of keys, both ends in them; None is a range that nothing is known of, and that may hold any key.

    Keys are in the order of Java strings (UTF-16 code units), or in that of their bytes, as Parquet has it.

    >>> spans = KeyRanges([("a", "c"), ("x", "z"), None]).spans(pa.array(["c", "b", "d"]))
    >>> [spans.of(i).tolist() for i in range(3)]
    [[1, 0], [], [1, 0, 2]]
    """

    def __init__(self, ranges: Sequence[tuple[str, str] | None], *, java_order: bool = True) -> None:
        self._java_order = java_order
        self._known = np.array([one is not None for one in ranges], np.bool_)
        low, high = zip(*(one for one in ranges if one is not None), strict=True) if self._known.any() else ((), ())
        self._low, self._high = (self._ordered(pa.array(side, pa.string())) for side in (low, high))

    def __len__(self) -> int:
        return len(self._known)

    def spans(self, keys: Any) -> Spans:
        """Where the keys of each range are; the keys have no null."""
        texts = self._ordered(plain_strings(keys))
        if len(self) == 1:
            return self._of_one(texts)
        ranges, count = len(self._low), len(texts)
        # the sort is stable: an end that equals keys stands outside of them
        sorted_ = pc.sort_indices(pa.concat_arrays([self._low, texts, self._high])).to_numpy().astype(np.int64)
        is_key = (sorted_ >= ranges) & (sorted_ < ranges + count)
        before = np.cumsum(is_key)
        is_low, is_high = sorted_ < ranges, sorted_ >= ranges + count
        starts, ends = np.zeros(len(self), np.int64), np.full(len(self), count, np.int64)
        numbers = np.flatnonzero(self._known)
        starts[numbers[sorted_[is_low]]] = before[is_low]
        ends[numbers[sorted_[is_high] - ranges - count]] = before[is_high]
        return Spans(sorted_[is_key] - ranges, starts, ends)

    def _of_one(self, texts: pa.Array) -> Spans:
        """Two comparisons of each key cost less than a sort."""
        inside = np.ones(len(texts), np.bool_)
        if self._known[0]:
            low, high = pc.greater_equal(texts, self._low[0]), pc.less_equal(texts, self._high[0])
            inside = pc.and_(low, high).to_numpy(zero_copy_only=False)
        order = np.concatenate([np.flatnonzero(inside), np.flatnonzero(~inside)])
        return Spans(order, np.zeros(1, np.int64), np.array([np.count_nonzero(inside)]))

    def _ordered(self, texts: pa.Array) -> pa.Array:
        """The texts as bytes that are in the wanted order."""
        data, offsets = value_buffer(texts)
        used = data[offsets[0] : offsets[-1]]
        if not self._java_order or not used.size or used.max() < _PRIVATE_USE:
            return texts.cast(pa.binary())
        # only the first byte of a character is changed
        changed = pa.py_buffer(_IN_JAVA_ORDER[used].tobytes())
        starts = pa.py_buffer((offsets - offsets[0]).astype(np.int32).tobytes())
        return pa.Array.from_buffers(pa.binary(), len(texts), [None, starts, changed])


def orders_agree(text: str) -> bool:
    """Whether a text stands among all others at the same place in both orders.

    >>> orders_agree("é"), orders_agree("\\U0001f600")
    (True, False)
    """
    return text.isascii() or max(text.encode("utf-8", "surrogatepass"), default=0) < _PRIVATE_USE
