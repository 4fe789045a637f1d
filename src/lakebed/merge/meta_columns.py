"""Fresh values of the meta columns, made as columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Task


def constant(value: str, rows: int) -> pa.DictionaryArray:
    """A column that says the same in every row, without a string per row."""
    return pa.DictionaryArray.from_arrays(np.zeros(rows, dtype=np.int32), pa.array([value]))


def sequence_numbers(instant: str, task: Task, rows: int) -> pa.Array:
    """Unique `_hoodie_commit_seqno` values: instant, task partition, running number."""
    first = task.take(rows)
    numbers = pa.array(np.arange(first, first + rows)).cast(pa.string())
    return pc.binary_join_element_wise(f"{instant}_{task.partition}", numbers, "_")
