"""Which keys of a write can be in which file slices, by the slices' key ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.key_sweep import KeyRanges, Spans
from lakebed.index.bloom.known_files import Range
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileSlice

Int64s = npt.NDArray[np.int64]
Asked = tuple[Int64s, Int64s, Spans]


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
        """For each partition path: the numbers of its slices, of its keys, and the keys of each slice among these.

        `keys` has the record keys, and the partition paths where they are asked in these."""
        found: list[Asked] = []
        for path, rows in self._by_path(keys):
            if path in self.ranges:
                texts = keys.column(RECORD_KEY).take(pa.array(rows))
                found.append((self.numbers[path], rows, self.ranges[path].spans(texts)))
        return found

    def _by_path(self, keys: pa.Table) -> list[tuple[str | None, Int64s]]:
        if None in self.ranges or not self.ranges:
            return [(None, np.arange(len(keys)))]
        codes = keys.column(PARTITION_PATH).combine_chunks().dictionary_encode(null_encoding="encode")
        at = codes.indices.to_numpy()
        order = np.argsort(at, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(at[order])) + 1)
        return [(codes.dictionary[int(at[rows[0]])].as_py(), rows) for rows in parts if len(rows)]
