"""The rows of one file group as a write task receives them: collected, checked, projected, combined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Task
from lakebed.engine.spill import Spill
from lakebed.errors import InvalidRecord
from lakebed.format.key_order import key_order
from lakebed.merge.meta_columns import sequence_numbers
from lakebed.merge.rules import MergeRules, winners
from lakebed.model import DELETE, PARTITION_PATH, RECORD_KEY
from lakebed.schema.kept_values import project_kept

Positions = npt.NDArray[np.int64]

_BATCH_ROWS = 1 << 17
_BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Incoming:
    """Rows of one group: record keys, where their data lies, and which rows are deletes.

    The data may be a mapped file, so it is never copied as a whole: `take` and `batches` give the rows that are needed.
    `forced` marks deletes that win whatever the ordering value says (the delete operation, a move to another place).
    """

    keys: pa.Array
    deletes: npt.NDArray[np.bool_]
    forced: npt.NDArray[np.bool_]
    received: int
    _data: pa.Table
    _places: Positions | None

    @property
    def rows(self) -> int:
        return len(self.keys)

    @property
    def alive(self) -> int:
        return int(self.rows - self.deletes.sum())

    @property
    def data_bytes(self) -> int:
        """Bytes of the data in memory."""
        return self._data.nbytes

    @property
    def columns(self) -> list[str]:
        return self._data.column_names

    def by_key(self) -> Incoming:
        """The same rows in the order of their keys; the data stays where it is."""
        order = key_order(self.keys)
        if order is None:
            return self
        return replace(
            self,
            keys=self.keys.take(pa.array(order)),
            deletes=self.deletes[order],
            forced=self.forced[order],
            _places=order if self._places is None else self._places[order],
        )

    def take(self, rows: Positions, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The data of these rows, in their order."""
        data = self._data if columns is None else self._data.select(list(columns))
        return gather(data, rows if self._places is None else self._places[rows])

    def batches(self, rows: Positions) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """Keys and data of these rows, in batches of bounded size."""
        for start in range(0, len(rows), self.batch_rows):
            part = rows[start : start + self.batch_rows]
            yield self.keys.take(pa.array(part)), self.take(part)

    def alive_batches(self) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """Keys and data of all rows but deletes; without a copy where every row stays."""
        if self._places is not None or self.deletes.any():
            yield from self.batches(np.flatnonzero(~self.deletes))
            return
        at = 0
        for batch in self._data.to_batches(max_chunksize=self.batch_rows):
            yield self.keys.slice(at, batch.num_rows), batch
            at += batch.num_rows

    @property
    def batch_rows(self) -> int:
        """How many rows of the group's mean width make a batch of bounded size."""
        mean = self._data.nbytes / max(1, self._data.num_rows)
        return int(max(1, min(_BATCH_ROWS, _BATCH_BYTES / max(1.0, mean))))


@dataclass(frozen=True, slots=True)
class Intake:
    """How rows are taken in: the columns to keep, the rules, the memory bound."""

    schema: pa.Schema
    rules: MergeRules
    combine: bool
    all_deletes: bool
    memory: int
    auto_keys: str | None = None

    def checked(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        """Batches reduced to key, delete flag and the table's columns in the table's types."""
        for batch in batches:
            if self.auto_keys is not None:
                batch = batch.set_column(
                    batch.schema.get_field_index(RECORD_KEY),
                    RECORD_KEY,
                    sequence_numbers(self.auto_keys, task, batch.num_rows),
                )
            keys = batch.column(RECORD_KEY)
            if keys.null_count:
                raise null_key(batch)
            carried = [RECORD_KEY, *([DELETE] if DELETE in batch.schema.names else [])]
            data = batch if self.all_deletes else project_kept(batch, self.schema)
            names = [] if self.all_deletes else self.schema.names
            if not self.all_deletes:
                self.rules.check_ordering(
                    pa.RecordBatch.from_arrays([keys, *data.columns], names=[RECORD_KEY, *names])
                    if self.rules.ordering
                    else batch
                )
            yield pa.RecordBatch.from_arrays(
                [*(batch.column(c) for c in carried), *(data.column(n) for n in names)], names=[*carried, *names]
            )

    def collect(self, batches: Iterator[pa.RecordBatch], spill: Spill, task: Task) -> Incoming:
        """All rows of the group; beyond the memory bound they lie in a mapped file."""
        spill.extend(self.checked(batches, task))
        table = spill.table()
        if not spill.spilled and table.nbytes <= self.memory // 4:
            table = table.combine_chunks()
        return self.split(table)

    def split(self, table: pa.Table) -> Incoming:
        """Checked rows taken apart; of several rows with one key only the winner stays, where they are combined."""
        forced = np.full(table.num_rows, self.all_deletes)
        if DELETE in table.column_names:
            forced |= pc.fill_null(table.column(DELETE), False).to_numpy(zero_copy_only=False)
        marked = None if self.all_deletes else self.rules.is_delete(table)
        deletes = forced if marked is None else forced | marked.to_numpy(zero_copy_only=False)
        keys = one_array(table.column(RECORD_KEY))
        data = table.select([n for n in table.column_names if n not in (RECORD_KEY, DELETE)])
        rules = MergeRules() if self.all_deletes else self.rules
        places = winners(table, [RECORD_KEY], rules) if self.combine else None
        if places is not None:
            keys, deletes, forced = keys.take(pa.array(places)), deletes[places], forced[places]
        return Incoming(keys, deletes, forced, table.num_rows, data, places)


def null_key(batch: pa.RecordBatch) -> InvalidRecord:
    """A null or empty record key: the key generator found none in the row."""
    partition = batch.column(PARTITION_PATH)[0].as_py() if PARTITION_PATH in batch.schema.names else None
    return InvalidRecord(
        f"{batch.column(RECORD_KEY).null_count} row(s) have a null or empty record key",
        hint="every row needs a value in its key field(s): filter such rows out or fill the key before writing",
        context={"partition": partition},
    )


def one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def gather(table: pa.Table, rows: Positions) -> pa.RecordBatch:
    """Rows of a table by position, chunk by chunk: costs the rows taken, not the table."""
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0].take(pa.array(rows))
    if not len(rows):
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], schema=table.schema)
    starts = np.cumsum([0, *(b.num_rows for b in batches)])
    chunk = np.searchsorted(starts, rows, side="right") - 1
    order = np.argsort(chunk, kind="stable")
    parts = [batches[c].take(pa.array(rows[order[chunk[order] == c]] - starts[c])) for c in np.unique(chunk).tolist()]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return pa.concat_batches(parts).take(pa.array(back))
