"""Fresh values of the meta columns, made as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Task
from lakebed.model import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY


def constant(value: str, rows: int) -> pa.DictionaryArray:
    """A column that says the same in every row, without a string per row."""
    return pa.DictionaryArray.from_arrays(np.zeros(rows, dtype=np.int32), pa.array([value]))


def sequence_numbers(instant: str, task: Task, rows: int) -> pa.Array:
    """Unique `_hoodie_commit_seqno` values: instant, task partition, running number."""
    first = task.take(rows)
    numbers = pa.array(np.arange(first, first + rows)).cast(pa.string())
    return pc.binary_join_element_wise(f"{instant}_{task.partition}", numbers, "_")


@dataclass(frozen=True, slots=True)
class FreshMeta:
    """The meta columns of rows that a task writes to one partition path.

    `schema` has all columns of the file, meta columns among them; without `populated` these are null.
    """

    schema: pa.Schema
    instant: str
    partition: str
    task: Task
    populated: bool = True

    def commit_columns(self, rows: int) -> dict[str, pa.Array]:
        """Commit time and sequence number of so many rows."""
        return {
            COMMIT_TIME: constant(self.instant, rows),
            COMMIT_SEQNO: sequence_numbers(self.instant, self.task, rows),
        }

    def with_meta(self, keys: pa.Array, rows: pa.RecordBatch) -> pa.RecordBatch:
        """New rows in the file's schema; the file's name is filled in as they are written."""
        n = rows.num_rows
        if self.populated:
            meta: dict[str, pa.Array] = {
                **self.commit_columns(n),
                RECORD_KEY: keys,
                PARTITION_PATH: constant(self.partition, n),
                FILE_NAME: pa.nulls(n, pa.string()),
            }
        else:
            meta = {name: pa.nulls(n, pa.string()) for name in META_COLUMNS}
        columns = [meta[f.name] if f.name in meta else rows.column(f.name) for f in self.schema]
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names)
