"""Where keys are in row groups that were read before: eight bytes a row, shared by all lookups of the process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.bounded_cache import BoundedCache
from lakebed.format.hashes import java_hash

# Rows of eight million keys, about.
_MAX_BYTES = 64 << 20
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class KeyPositions:
    """The rows of a row group by the hashes of their keys: hash in the upper, row number in the lower half, sorted.

    >>> held = KeyPositions.of(pa.array(["a", "b", "a"]))
    >>> held.rows(pa.array(["a", "nobody"])).tolist()
    [0, 2]
    """

    packed: Hashes

    @classmethod
    def of(cls, keys: pa.Array) -> KeyPositions:
        packed = _upper(keys) | np.arange(len(keys), dtype=np.uint64)
        packed.sort()
        return cls(packed)

    @property
    def nbytes(self) -> int:
        return self.packed.nbytes

    def rows(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """Rows, ascending, that may have one of the keys: all that do, and rarely one with another key."""
        searched = np.unique(_upper(keys))
        starts = np.searchsorted(self.packed, searched, "left")
        counts = np.searchsorted(self.packed, searched | np.uint64(0xFFFFFFFF), "right") - starts
        at = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return np.sort((self.packed[at] & np.uint64(0xFFFFFFFF)).astype(np.int64))


def _upper(keys: pa.Array) -> Hashes:
    return java_hash(keys).view(np.uint32).astype(np.uint64) << np.uint64(32)


POSITIONS = BoundedCache[KeyPositions](_MAX_BYTES)
"""By a file's URL and size and the number of the row group."""
