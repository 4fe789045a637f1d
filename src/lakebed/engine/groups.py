"""From a stream of batches sorted by group to one call a group: what both engines do inside a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GroupFunction, Task
from lakebed.model import DERIVED, PARTITION_PATH

GROUP = f"{DERIVED}group"


def distinct_values(profile: pa.Table, *columns: str) -> list[list[Any]]:
    """The values of each of these columns, once and without null.

    >>> distinct_values(pa.table({"a": [1, 1, None]}), "a")
    [[1]]
    """
    return [pc.unique(profile.column(name)).drop_null().to_pylist() for name in columns]


class _Cursor:
    """A stream of batches that can be left in the middle of one."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._current: pa.RecordBatch | None = None

    def head(self) -> pa.RecordBatch | None:
        while self._current is None or self._current.num_rows == 0:
            self._current = next(self._batches, None)
            if self._current is None:
                return None
        return self._current

    def group(self, partition: str, number: int) -> Iterator[pa.RecordBatch]:
        while (batch := self.head()) is not None:
            end = _run_length(batch, partition, number)
            if end == 0:
                return
            self._current = batch.slice(end) if end < batch.num_rows else None
            yield batch.slice(0, end) if end < batch.num_rows else batch
            if self._current is not None:
                return


def _run_length(batch: pa.RecordBatch, partition: str, number: int) -> int:
    same = pc.and_(pc.equal(batch.column(PARTITION_PATH), partition), pc.equal(batch.column(GROUP), number)).to_numpy(
        zero_copy_only=False
    )
    return batch.num_rows if same.all() else int(np.argmin(same))


def map_groups(batches: Iterator[pa.RecordBatch], fn: GroupFunction, task: Task) -> Iterator[pa.RecordBatch]:
    """Call `fn` once per group, in the order of the stream; what it does not read of its group is skipped."""
    cursor = _Cursor(iter(batches))
    while (head := cursor.head()) is not None:
        partition, number = head.column(PARTITION_PATH)[0].as_py(), head.column(GROUP)[0].as_py()
        rows = cursor.group(partition, number)
        yield from fn(partition, number, rows, task)
        for _ in rows:
            pass
