"""The entries of an HFile's data block, as Arrow columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptFile
from lakebed.format.hfile.blocks import Buffer
from lakebed.format.hfile.spans import Bytes, Int32s, Int64s, find_spans


@dataclass(frozen=True, slots=True)
class Entries:
    """Keys and values of entries, side by side: binary columns (large binary beyond 2 GiB)."""

    keys: pa.Array
    values: pa.Array

    def __len__(self) -> int:
        return len(self.keys)

    def strings(self) -> pa.Array:
        """The keys as a string column, without a copy. Raises `CorruptFile` where one is not UTF-8."""
        wide = pa.types.is_large_binary(self.keys.type)
        try:
            return self.keys.cast(pa.large_string() if wide else pa.string())
        except pa.ArrowInvalid as cause:
            raise CorruptFile(f"a key of an HFile is not UTF-8: {cause}") from cause


def joined(parts: list[Entries]) -> Entries:
    """All entries of the parts as one."""
    keys, values = [part.keys for part in parts], [part.values for part in parts]
    return Entries(_concat(keys), _concat(values))


def _concat(arrays: list[pa.Array]) -> pa.Array:
    if not arrays:
        return pa.array([], pa.binary())
    if len(arrays) == 1:
        return arrays[0]
    if sum(part.nbytes for part in arrays) >= 1 << 31:
        arrays = [part.cast(pa.large_binary()) for part in arrays]
    return pa.concat_arrays(arrays)


class EntryBlock:
    """The entries of one data block, over its bytes.

    `row_starts`, `row_ends`, `value_starts`, `value_ends` count from the block's first byte.
    """

    __slots__ = ("_cells", "count", "data", "search", "spans")

    def __init__(self, data: Bytes, spans: Int32s) -> None:
        self.data = data
        self.count = len(spans)
        self.spans = spans
        # what a lookup has worked out about the keys, kept with the block
        self.search: Any = None
        # the spans are the offsets of a column of rows, gaps, values, gaps ... over the whole block
        self._cells = pa.Array.from_buffers(
            pa.binary(), max(4 * self.count - 1, 0), [None, pa.py_buffer(spans), pa.py_buffer(data)]
        )

    @property
    def nbytes(self) -> int:
        """What it holds in memory, with what a lookup will add."""
        return self.data.nbytes + self.spans.nbytes + 12 * self.count

    def entries(self, positions: Int64s | None = None) -> Entries:
        """The entries at these positions, copied out of the block; all without positions."""
        rows = 4 * (np.arange(self.count) if positions is None else positions)
        return Entries(self._cells.take(pa.array(rows)), self._cells.take(pa.array(rows + 2)))

    def key(self, position: int) -> bytes:
        start, end = self.spans[position, :2]
        return self.data[start:end].tobytes()


def parse_entries(payload: Buffer, *, mvcc: bool) -> EntryBlock:
    """The entries of a data block's payload. `mvcc`: a version number in Hadoop's variable form ends each entry."""
    data = np.frombuffer(payload, np.uint8)
    return EntryBlock(data, find_spans(data, mvcc) if len(data) else np.empty((0, 4), np.int32))
