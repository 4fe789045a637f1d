"""The rows of one file group as a write task receives them: collected, checked, projected, combined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Task
from lakebed.engine.spill import Spill
from lakebed.errors import InvalidRecord
from lakebed.index.base import DELETE
from lakebed.merge.rules import MergeRules, combine
from lakebed.model import PARTITION_PATH, RECORD_KEY
from lakebed.schema.evolution import project
from lakebed.write.meta_columns import sequence_numbers


@dataclass(frozen=True, slots=True)
class Incoming:
    """Rows of one group: record keys, the data in the file's columns, and which rows are deletes.

    `forced` marks deletes that win whatever the ordering value says (the delete operation, a move to another place).
    """

    keys: pa.Array
    data: pa.RecordBatch
    deletes: npt.NDArray[np.bool_]
    forced: npt.NDArray[np.bool_]
    received: int

    @property
    def rows(self) -> int:
        return len(self.keys)

    @property
    def alive(self) -> int:
        return int(self.rows - self.deletes.sum())


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
            data = batch if self.all_deletes else project(batch, self.schema)
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
        received = table.num_rows
        if self.combine:
            table = combine(table, [RECORD_KEY], self.rules if not self.all_deletes else MergeRules())
        batch = _one_batch(table)
        return self.split(batch, received)

    def split(self, batch: pa.RecordBatch, received: int) -> Incoming:
        forced = np.full(batch.num_rows, self.all_deletes)
        if DELETE in batch.schema.names:
            forced |= pc.fill_null(batch.column(DELETE), False).to_numpy(zero_copy_only=False)
        marked = None if self.all_deletes else self.rules.is_delete(batch)
        deletes = forced if marked is None else forced | marked.to_numpy(zero_copy_only=False)
        data = batch.select([n for n in batch.schema.names if n not in (RECORD_KEY, DELETE)])
        return Incoming(batch.column(RECORD_KEY), data, deletes, forced, received)


def null_key(batch: pa.RecordBatch) -> InvalidRecord:
    """A null or empty record key: the key generator found none in the row."""
    partition = batch.column(PARTITION_PATH)[0].as_py() if PARTITION_PATH in batch.schema.names else None
    return InvalidRecord(
        f"{batch.column(RECORD_KEY).null_count} row(s) have a null or empty record key",
        hint="every row needs a value in its key field(s): filter such rows out or fill the key before writing",
        context={"partition": partition},
    )


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    combined = table.combine_chunks()
    batches = combined.to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], schema=table.schema)
    return pa.concat_batches(batches)
