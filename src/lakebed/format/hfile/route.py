"""Which blocks of an HFile can hold a key or the keys with a prefix, by the keys of its block index."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from lakebed.format.hfile.search import Queries
from lakebed.format.hfile.spans import Int64s

# UTF-8 and UTF-16 sort alike but for characters from U+E000 on, whose first byte is not below this one.
_FIRST_ODD_BYTE: Final = 0xEE
_Order = Callable[[bytes], bytes]


class Route:
    """The index keys of a file's blocks, which ascend in byte order, or, where real Hudi sorted rare characters, in the
    order of UTF-16. Keys without such characters have the same place in both orders; the others are sent by each order
    in which the index is sorted, and everywhere where it is in neither."""

    def __init__(self, index: Sequence[bytes]) -> None:
        self._index = index
        odd = any(_is_odd(key) for key in index)
        orders: list[_Order] = [bytes, _utf16] if odd else [bytes]
        self._orders = [(order, keys) for order in orders if _ascends(keys := [order(key) for key in index])]
        self._alike = not odd

    def keys(self, queries: Queries) -> Mapping[int, Int64s]:
        """Block numbers, each with the positions of the queries that it may answer."""
        count = len(queries)
        if not count or not self._index:
            return {}
        if not self._orders:
            return self._everywhere(count)
        if not self._alike and bool((queries.data >= _FIRST_ODD_BYTE).any()):
            return self._one_by_one(queries, self._blocks_of_key)
        if count < len(self._index):
            return self._one_by_one(queries, self._blocks_of_key)
        # the queries ascend: each block's are a run of them
        cuts = [bisect_left(range(count), key, key=queries.__getitem__) for key in self._index]
        runs = enumerate(pairwise([*cuts, count]))
        return {number: np.arange(start, end) for number, (start, end) in runs if start < end}

    def few(self, keys: Sequence[bytes]) -> Mapping[int, Int64s]:
        """The same for a few keys in any order."""
        return self._one_by_one(keys, self._blocks_of_key) if self._orders else self._everywhere(len(keys))

    def prefixes(self, queries: Queries) -> Mapping[int, Int64s]:
        """The same for prefixes."""
        if not self._orders:
            return self._everywhere(len(queries))
        return self._one_by_one(queries, self._blocks_of_prefix)

    def _everywhere(self, count: int) -> Mapping[int, Int64s]:
        return {number: np.arange(count) for number in range(len(self._index))}

    def _one_by_one(
        self, queries: Queries | Sequence[bytes], blocks: Callable[[bytes], set[int]]
    ) -> Mapping[int, Int64s]:
        found: dict[int, list[int]] = {}
        for position in range(len(queries)):
            for number in blocks(queries[position]):
                found.setdefault(number, []).append(position)
        return {number: np.array(positions, np.int64) for number, positions in found.items()}

    def _blocks_of_key(self, key: bytes) -> set[int]:
        found = {bisect_right(keys, order(key)) - 1 for order, keys in self._orders}
        return found - {-1}

    def _blocks_of_prefix(self, prefix: bytes) -> set[int]:
        found: set[int] = set()
        for order, keys in self._orders:
            target = order(prefix)
            first = max(bisect_right(keys, target) - 1, 0)
            end = bisect_right(keys, target, key=lambda key: key[: len(target)])
            found.update(range(first, end))
        return found


def _is_odd(key: bytes) -> bool:
    return any(byte >= _FIRST_ODD_BYTE for byte in key)


def _utf16(key: bytes) -> bytes:
    return key.decode("utf-8", "ignore").encode("utf-16-be")


def _ascends(keys: Sequence[bytes]) -> bool:
    return all(one <= other for one, other in pairwise(keys))
