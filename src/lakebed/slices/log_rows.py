"""The rows of log records that stay, decoded when they are wanted or, where logs are large, once into a mapped file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.engine.spill import Spill
from lakebed.format.data_block import DataBlock
from lakebed.merge.incoming import gather
from lakebed.merge.log_entries import LogEntries, Positions
from lakebed.model import RECORD_KEY
from lakebed.slices.base_rows import DICTIONARY_META, ColumnNames, shaped, stored_name
from lakebed.slices.logs import SliceLogs

_BATCH_ROWS = 1 << 16
# Of wide rows a batch has fewer.
_BATCH_BYTES = 16 << 20


@dataclass
class LogRows:
    """Columns of the records of a slice's data blocks, in the types of `schema`; texts may come as dictionaries."""

    logs: SliceLogs
    entries: LogEntries
    schema: pa.Schema
    names: ColumnNames | None
    _spilled: pa.Table | None = None
    _held: pa.RecordBatch | None = None
    _places: Positions = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def kinds(self) -> list[pa.DataType]:
        """The types that the columns come in."""
        return [_coded(one) for one in self.schema]

    def spill(self, spill: Spill) -> None:
        """Decode all records that are no deletes, for logs whose blocks do not stay open."""
        every = np.flatnonzero(~self.entries.deletes)
        self._places = np.zeros(len(self.entries), np.int64)
        self._places[every] = np.arange(len(every))
        schema = pa.schema([pa.field(one.name, one.type) for one in self.schema])
        for number, rows in _by_block(self.entries.block[every], self.entries.row[every]):
            size = rows_of_batch(len(rows), self.logs.blocks[number].content_length)
            for start in range(0, len(rows), size):
                columns, _ = self.of_block(number, rows[start : start + size])
                spill.append(pa.RecordBatch.from_arrays([plain(c) for c in columns], schema=schema))
        self._spilled = spill.table(schema)

    def hold(self) -> None:
        """Decode all records that are no deletes, for few of them."""
        every = np.flatnonzero(~self.entries.deletes)
        held = self.take(every)
        self._places = np.zeros(len(self.entries), np.int64)
        self._places[every] = np.arange(len(every))
        self._held = held

    def take(self, entries: Positions) -> pa.RecordBatch:
        """The rows of some entries, in their order."""
        if self._held is not None:
            return self._held.take(pa.array(self._places[entries]))
        if self._spilled is not None:
            return gather(self._spilled, self._places[entries])
        ascends = bool((np.diff(entries) > 0).all())
        sought = entries if ascends else np.unique(entries)
        parts = list(self._decoded(sought))
        if not parts:
            return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in self.kinds], names=self.schema.names)
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        return rows if ascends else rows.take(pa.array(np.searchsorted(sought, entries)))

    def batches(self, entries: Positions) -> Iterator[pa.RecordBatch]:
        """The same, some at a time."""
        rows, stored = len(self.entries), self.logs.data_bytes
        if self._spilled is not None:
            rows, stored = self._spilled.num_rows, self._spilled.nbytes
        size = rows_of_batch(rows, stored)
        for start in range(0, len(entries), size):
            yield self.take(entries[start : start + size])

    def of_block(self, number: int, rows: Positions) -> tuple[list[pa.Array], list[str]]:
        """The columns of records of a block, by ascending row, and those that the records of a partial block lack."""
        return self._columns(self.logs.block(number), number, rows)

    def _columns(self, block: DataBlock, number: int, rows: Positions) -> tuple[list[pa.Array], list[str]]:
        names = {} if self.names is None else self.names.stored_names(self.logs.blocks[number].instant, self.schema)
        stored = {name: stored_name(name, block.schema, names) for name in self.schema.names}
        read = block.read([name for name in dict.fromkeys(stored.values()) if name] or [RECORD_KEY], rows)
        lacking = [name for name, own in stored.items() if own is None] if self.logs.is_partial(number) else []
        return shaped(read, self.schema, names), lacking

    def _decoded(self, places: Positions) -> Iterator[pa.RecordBatch]:
        """The rows of some entries, ascending."""
        blocks, rows, block_at = self.entries.block[places], self.entries.row[places], self.logs.block
        if self.names is None:  # else each instant may have had names of its own
            blocks, rows = self._in_units(blocks, rows)
            block_at = self._unit_block
        for number, some in _by_block(blocks, rows):
            columns, _ = self._columns(block_at(number), number, some)
            arrays = [_as(column, kind) for column, kind in zip(columns, self.kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=self.schema.names)

    def _unit_block(self, number: int) -> DataBlock:
        return self.logs.unit(number).block

    def _in_units(self, blocks: npt.NDArray[np.int32], rows: Positions) -> tuple[Positions, Positions]:
        """Rows of blocks as rows of the first blocks of their units."""
        leader = np.arange(len(self.logs.blocks))
        before = np.zeros(len(self.logs.blocks), np.int64)
        for number in np.flatnonzero(np.bincount(blocks, minlength=1)).tolist():
            unit = self.logs.unit(number)
            leader[number] = unit.numbers[0]
            before[number] = unit.rows_of[number].start
        return leader[blocks], rows + before[blocks]


def rows_of_batch(rows: int, stored: int) -> int:
    """How many of so many rows, which take so many bytes, one batch has."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, stored)))


def plain(column: pa.Array) -> pa.Array:
    """The column without a dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _by_block(blocks: npt.NDArray[Any], rows: Positions) -> Iterator[tuple[int, Positions]]:
    """Rows by the numbers of their blocks, as they follow one another."""
    edges: Sequence[int] = [*(np.flatnonzero(np.diff(blocks, prepend=-1))).tolist(), len(blocks)]
    for start, end in pairwise(edges):
        yield int(blocks[start]), rows[start:end]


def _coded(one: pa.Field) -> pa.DataType:
    if one.name in DICTIONARY_META and pa.types.is_string(one.type):
        return pa.dictionary(pa.int32(), one.type)
    return one.type


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type.equals(kind):
        return column
    if not pa.types.is_dictionary(kind):
        return plain(column)
    return column.cast(kind) if pa.types.is_dictionary(column.type) else column.dictionary_encode()
