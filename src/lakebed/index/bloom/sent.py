"""File slices as rows that go to tasks, some to each."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakebed.engine.base import GROUP
from lakebed.model import PARTITION_PATH, FileSlice


def sent_slices(slices: Sequence[FileSlice], each: int) -> pa.Table:
    """The slices with their numbers, in groups of so many."""
    return pa.table(
        {
            PARTITION_PATH: pa.repeat(pa.scalar(""), len(slices)),
            GROUP: pa.array(np.arange(len(slices)) // each, pa.int32()),
            "number": pa.array(np.arange(len(slices)), pa.int32()),
            "slice": pa.array(map(pickle.dumps, slices), pa.binary()),
        }
    )


def slices_in(batch: pa.RecordBatch) -> tuple[list[int], list[FileSlice]]:
    """Numbers and slices of such rows."""
    return batch.column("number").to_pylist(), [pickle.loads(one) for one in batch.column("slice").to_pylist()]
