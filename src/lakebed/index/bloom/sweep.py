"""Which keys of a write can be in which file slices, by the slices' key ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings
from lakebed.format.key_order import KeyRanges, Spans
from lakebed.index.bloom.known_files import Range
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileSlice

Int64s = npt.NDArray[np.int64]
# The numbers of some slices, the keys of a partition path, each once, and those of each slice among them.
Asked = tuple[Int64s, pa.Array, Spans]
_NO_SLICES = np.empty(0, np.int64)


@dataclass(frozen=True)
class Sweep:
    """File slices with their key ranges, by the partition path in which they are asked; None: in all of them at once.

    `numbers` are those of the slices, in the order of the ranges.
    """

    ranges: Mapping[str | None, KeyRanges]
    numbers: Mapping[str | None, Int64s]

    @classmethod
    def of(cls, slices: Sequence[FileSlice], ranges: Sequence[Range | None], *, in_path: bool) -> Sweep:
        numbers: dict[str | None, list[int]] = {}
        for number, one in enumerate(slices):
            numbers.setdefault(one.partition if in_path else None, []).append(number)
        return cls(
            {path: KeyRanges([ranges[n] for n in own]) for path, own in numbers.items()},
            {path: np.array(own, np.int64) for path, own in numbers.items()},
        )

    def spans(self, keys: pa.Table) -> list[Asked]:
        """For each partition path what its slices are asked for.

        `keys` has the record keys, and the partition paths where they are asked in these."""
        found: list[Asked] = []
        for path, texts in self._by_path(keys):
            once = plain_strings(pc.unique(texts).drop_null())
            ranges = self.ranges.get(path, KeyRanges([]))
            found.append((self.numbers.get(path, _NO_SLICES), once, ranges.spans(once)))
        return found

    def _by_path(self, keys: pa.Table) -> list[tuple[str | None, pa.ChunkedArray]]:
        texts = keys.column(RECORD_KEY)
        if None in self.ranges or PARTITION_PATH not in keys.column_names:
            return [(None, texts)]
        codes = keys.column(PARTITION_PATH).combine_chunks().dictionary_encode(null_encoding="encode")
        if len(codes.dictionary) == 1:
            return [(codes.dictionary[0].as_py(), texts)]
        at = codes.indices.to_numpy()
        order = np.argsort(at, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(at[order])) + 1)
        return [(codes.dictionary[int(at[p[0]])].as_py(), texts.take(pa.array(p))) for p in parts if len(p)]
