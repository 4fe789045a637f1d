"""Which buckets a partition path has: a count, and where single buckets were split, how often (extendible hashing)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lakebed.format.hashes import Int32s

# A bucket's number is less than a hash, which has 31 bits.
_HASH_BITS = 31


@dataclass(frozen=True)
class Buckets:
    """The buckets of a partition path: hash modulo `count`, but for buckets that were split.

    `depths` has (number, depth) of every bucket that came of a split: its keys are those whose hash modulo
    `count << depth` is its number. A bucket b that splits becomes b and b + (count << depth), each one deeper.

    >>> Buckets(2, ((1, 1), (3, 1))).numbers(np.array([0, 1, 2, 3, 5], np.int32)).tolist()
    [0, 1, 0, 3, 1]
    """

    count: int
    depths: tuple[tuple[int, int], ...] = ()

    @cached_property
    def moduli(self) -> dict[int, int]:
        """What the hash of a key is taken modulo of, by the number of each bucket."""
        split = {number % self.count for number, _ in self.depths}
        whole = {number: self.count for number in range(self.count) if number not in split}
        return {**whole, **{number: self.count << depth for number, depth in self.depths}}

    @property
    def numbers_end(self) -> int:
        """One more than the greatest number."""
        return max((self.count, *(number + 1 for number, _ in self.depths)))

    def has(self, number: int) -> bool:
        """Whether there is a bucket of this number."""
        return number < self.count if not self.depths else number in self.moduli

    def numbers(self, hashes: Int32s) -> Int32s:
        """The bucket of each hash (sign bit off)."""
        found = (hashes % np.int32(self.count)).astype(np.int32)
        for modulus, leaves in self.by_modulus():
            places = (hashes.astype(np.int64) % modulus).astype(np.int32)
            mine = np.isin(places, np.array(leaves, np.int32))
            found[mine] = places[mine]
        return found

    def by_modulus(self) -> list[tuple[int, list[int]]]:
        """The numbers of the buckets that came of splits, by what the hash is taken modulo of."""
        found: dict[int, list[int]] = {}
        for number, depth in sorted(self.depths):
            found.setdefault(self.count << depth, []).append(number)
        return sorted(found.items())

    def spread(self, number: int, other: Buckets) -> tuple[int, ...]:
        """The buckets of `other` that keys of the bucket `number` may be in."""
        if not self.depths and not other.depths:
            step = np.gcd(self.count, other.count)
            return tuple(range(number % int(step), other.count, int(step)))
        mine = self.moduli[number]
        return tuple(n for n, m in sorted(other.moduli.items()) if (n - number) % int(np.gcd(mine, m)) == 0)

    def split(self, number: int, times: int = 1) -> Buckets:
        """With a bucket that is split so many times, into twice as many each time."""
        depth = dict(self.depths).get(number, 0)
        if (self.count << (depth + times)) >> _HASH_BITS:
            raise ValueError(f"bucket {number} cannot be split {times} times")
        step = self.count << depth
        leaves = [(number + at * step, depth + times) for at in range(1 << times)]
        return Buckets(self.count, tuple(sorted([*(d for d in self.depths if d[0] != number), *leaves])))


def hash_of(list_hash: Int32s) -> npt.NDArray[np.int32]:
    """A list hash with its sign bit off."""
    return list_hash & np.int32(0x7FFFFFFF)
