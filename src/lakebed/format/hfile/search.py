"""Finding many keys, or keys with given prefixes, among the sorted keys of a block: by words of eight bytes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings, value_buffer
from lakebed.format.hfile.entries import Bytes, EntryBlock, Int64s
from lakebed.schema.plain_arrow import as_numpy

Words = npt.NDArray[np.uint64]
Ranges = tuple[Int64s, Int64s]
_WORD: Final = 8
# So many keys with a query's word are all candidates; among more the query is looked for further.
_MAX_ITEMS: Final = 4
_WORTH_LEAVING_OUT: Final = 4
# So few keys are compared one after the other.
_MAX_COMPARED: Final = 8
# The first n bytes of a word.
_MASKS = np.array([((1 << 8 * n) - 1) << 8 * (8 - n) for n in range(9)], np.uint64)


class Rows:
    """Byte strings in one buffer, read as big-endian words, so that words compare as the bytes do; zeros follow the end
    of a string.

    The buffer goes on for at least eight bytes after each string's end.
    """

    __slots__ = ("_shortest", "_words", "lengths", "starts")

    def __init__(self, data: Bytes, starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
        self._words = np.ndarray((max(len(data) - _WORD + 1, 0),), ">u8", data, 0, (1,))
        self._shortest = int(lengths.min()) if len(lengths) else 0
        self.starts = starts
        self.lengths = lengths

    def words(self, which: Any, at: int) -> Words:
        """The eight bytes from byte `at` on of each string at the positions `which`, as one word per string."""
        starts = self.starts[which]
        if self._shortest >= at + _WORD:
            return self._words[starts + at].astype(np.uint64)
        left = np.clip(self.lengths[which] - at, 0, _WORD)
        return self._words[starts + np.where(left > 0, at, 0)].astype(np.uint64) & _MASKS[left]


class Queries:
    """The keys (or prefixes) to look for, in ascending byte order without nulls; `positions` are their positions in the
    caller's column."""

    def __init__(self, query: Any) -> None:
        array = as_binary(query)
        positions = np.arange(len(array), dtype=np.int32)
        if array.null_count:
            positions = positions[as_numpy(array.is_valid())]
            array = array.drop_null()
        if len(array) > 1 and not pc.all(pc.less_equal(array.slice(0, len(array) - 1), array.slice(1))).as_py():
            order = pc.array_sort_indices(array)
            array, positions = array.take(order), positions[as_numpy(order)]
        self.array = array
        self.positions = positions
        data, offsets = value_buffer(array)
        first, last = int(offsets[0]), int(offsets[-1])
        self.data = np.concatenate([data[first:last], np.zeros(_WORD, np.uint8)])
        self.rows = Rows(self.data, offsets[:-1] - first, np.diff(offsets))

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, position: int) -> bytes:
        return self.array[position].as_py()


def as_binary(strings: Any) -> pa.Array:
    """The values of any Arrow string or binary column as a plain binary column."""
    array = plain_strings(strings)
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    return array.view(pa.large_binary()) if pa.types.is_large_string(array.type) else array


@dataclass(frozen=True, slots=True)
class _SortedKeys:
    """A block's keys as a lookup needs them. `words` are their words after the `shared` bytes with which all of them
    begin; `ties` are the words that several keys have; `order` are the positions of the keys in key order, None if the
    block is in that order."""

    rows: Rows
    shared: int
    words: Words
    ties: Words
    order: Int64s | None

    def is_tied(self, query: Words) -> bool:
        """Whether several keys of the block have one of the query words."""
        if not len(self.ties):
            return False
        at = np.searchsorted(self.ties, query)
        at[at == len(self.ties)] = 0
        return bool((self.ties[at] == query).any())

    def position(self, number: int) -> int:
        """The position in the block of the key that is number `number` in sorted order."""
        return number if self.order is None else int(self.order[number])


def exact(block: EntryBlock, queries: Queries, which: Int64s) -> tuple[Int64s, Int64s]:
    """Candidates for the queries at the positions `which`: positions of queries and of the block's entries. All entries
    with an equal key are among them; the caller must compare the keys."""
    if not block.count:
        return _nothing()
    keys = _sorted_keys(block)
    query = queries.rows.words(which, keys.shared)
    low = np.searchsorted(keys.words, query)
    if keys.order is None and not keys.is_tied(query):
        low[low == block.count] = 0
        hit = np.flatnonzero(keys.words[low] == query)
        return which[hit], low[hit]
    high = np.searchsorted(keys.words, query, side="right")
    several = np.flatnonzero(high - low > _MAX_ITEMS)
    if len(several):
        low[several], high[several] = _narrow(
            keys.rows, queries.rows, which[several], (low[several], high[several]), keys.shared + _WORD, is_exact=True
        )
    return _spread(keys, which, low, high)


def entries_of(block: EntryBlock, key: bytes) -> list[int]:
    """The positions of the block's entries with this key."""
    if block.count <= _MAX_COMPARED:
        return [position for position in range(block.count) if block.key(position) == key]
    keys = _sorted_keys(block)
    word = np.uint64(int.from_bytes(key[keys.shared : keys.shared + _WORD].ljust(_WORD, b"\0"), "big"))
    low, high = int(keys.words.searchsorted(word)), int(keys.words.searchsorted(word, side="right"))
    at = bisect_left(range(low, high), key, key=lambda n: block.key(keys.position(n))) + low
    positions: list[int] = []
    while at < high and block.key(keys.position(at)) == key:
        positions.append(keys.position(at))
        at += 1
    return positions


def with_prefix(block: EntryBlock, queries: Queries, which: Int64s) -> tuple[Int64s, Int64s]:
    """The positions of prefixes (among those at `which`) and of the block's entries, as pairs: the entry's key begins
    with the prefix."""
    if not block.count:
        return _nothing()
    keys = _sorted_keys(block)
    all_keys = np.zeros(len(which), np.int64), np.full(len(which), block.count, np.int64)
    low, high = _narrow(keys.rows, queries.rows, which, all_keys, 0, is_exact=False)
    return _spread(keys, which, low, high)


def _nothing() -> tuple[Int64s, Int64s]:
    return np.empty(0, np.int64), np.empty(0, np.int64)


def _spread(keys: _SortedKeys, which: Int64s, low: Int64s, high: Int64s) -> tuple[Int64s, Int64s]:
    """The ranges of entries as single positions: the query's position and the entry's position, one pair per entry."""
    counts = np.maximum(high - low, 0)
    before = np.cumsum(counts) - counts
    positions = np.arange(counts.sum()) - np.repeat(before - low, counts)
    return np.repeat(which, counts), positions if keys.order is None else keys.order[positions]


def _sorted_keys(block: EntryBlock) -> _SortedKeys:
    """The block's keys prepared for lookups; computed at the first lookup and cached with the block."""
    if block.search is None:
        block.search = _sort_keys(block)
    return block.search


def _sort_keys(block: EntryBlock) -> _SortedKeys:
    starts, lengths = block.spans[:, 0], block.spans[:, 1] - block.spans[:, 0]
    rows = Rows(block.data, starts, lengths)
    every = slice(None)
    shared = _common(block.key(0), block.key(block.count - 1))
    # leaving few bytes out costs more than the ties that it saves
    if shared < _WORTH_LEAVING_OUT or not _all_share(rows, shared):
        shared = 0
    words = rows.words(every, shared)
    if (words[1:] >= words[:-1]).all():
        ties = np.flatnonzero(words[1:] == words[:-1])
        following = shared + _WORD
        unsure = ties[rows.words(ties, following) >= rows.words(ties + 1, following)]
        if not len(unsure) or _in_order(block, unsure):
            return _SortedKeys(rows, shared, words, words[ties], None)
    keys = block.entries().keys
    # Hudi sorts by UTF-16 and searches by UTF-8: keys with rare characters are out of order
    order = as_numpy(pc.array_sort_indices(keys)).astype(np.int64)
    rows = Rows(block.data, starts[order], lengths[order])
    words = rows.words(every, 0)
    return _SortedKeys(rows, 0, words, words[1:][words[1:] == words[:-1]], order)


def _in_order(block: EntryBlock, which: Int64s) -> bool:
    """Whether each entry at `which` has a key that is at most the key of the next entry."""
    return bool(pc.all(pc.less_equal(block.entries(which).keys, block.entries(which + 1).keys)).as_py())


def _common(key: bytes, other: bytes) -> int:
    """The number of leading bytes that two keys share."""
    return next((i for i, (a, b) in enumerate(zip(key, other, strict=False)) if a != b), min(len(key), len(other)))


def _all_share(rows: Rows, size: int) -> bool:
    """Whether all strings begin with the same `size` bytes; bytes after the end of a string count as zeros."""
    every = slice(None)
    for at in range(0, size, _WORD):
        words = rows.words(every, at) & _MASKS[min(size - at, _WORD)]
        if (words != words[0]).any():
            return False
    return True


def _narrow(keys: Rows, queries: Rows, which: Int64s, ranges: Ranges, at: int, *, is_exact: bool) -> Ranges:
    """The part of each query's range of keys (which agree with the query up to byte `at`) that begins with the query,
    or with `is_exact` equals it."""
    low, high = (bound.copy() for bound in ranges)
    sizes = queries.lengths[which]
    open_ = np.flatnonzero((sizes > at) & (low < high))
    while len(open_):
        query, mask = queries.words(which[open_], at), _MASKS[np.minimum(sizes[open_] - at, _WORD)]

        def word(open_ranges: Int64s, position: Int64s, at: int = at, mask: Words = mask) -> Words:
            return keys.words(position, at) & mask[open_ranges]

        low[open_], high[open_] = _bisect(word, query, low[open_], high[open_])
        at += _WORD
        open_ = open_[(sizes[open_] > at) & (low[open_] < high[open_])]

    # keys that zeros would make equal to the query are shorter, and come first
    def length(open_ranges: Int64s, position: Int64s) -> Any:
        del open_ranges
        return keys.lengths[position]

    shortest, longest = _bisect(length, sizes, low, high)
    return (shortest, longest) if is_exact else (shortest, high)


def _bisect(read: Any, query: Any, low: Int64s, high: Int64s) -> Ranges:
    """For each query, the first position in its range whose key is not less, and the first whose key is greater."""
    return _first(lambda stored, open_ranges: stored >= query[open_ranges], read, low, high), _first(
        lambda stored, open_ranges: stored > query[open_ranges], read, low, high
    )


def _first(holds: Any, read: Any, low: Int64s, high: Int64s) -> Int64s:
    low, high = low.copy(), high.copy()
    open_ranges = np.flatnonzero(low < high)
    while len(open_ranges):
        middle = (low[open_ranges] + high[open_ranges]) >> 1
        reached = holds(read(open_ranges, middle), open_ranges)
        high[open_ranges[reached]] = middle[reached]
        low[open_ranges[~reached]] = middle[~reached] + 1
        open_ranges = open_ranges[low[open_ranges] < high[open_ranges]]
    return low
