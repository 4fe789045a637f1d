"""Scans as datasets of Ray and Dask: a task for each file slice of the plan, which reads its rows where it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.model import FileSlice
from lakebed.read.batches import RowReader, row_readers
from lakebed.read.plan import ScanPlan
from lakebed.read.reopening import in_task
from lakebed.read.scan import require
from lakebed.slices.reader import SliceReader

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd
    import ray.data


@dataclass(frozen=True)
class SliceRows:
    """The matching rows of one file slice, read by the process that asks for them. It can be pickled."""

    file_slice: FileSlice
    reader: RowReader
    slices: SliceReader
    schema: pa.Schema

    def to_arrow(self) -> pa.Table:
        """The rows in the types of the scan."""
        rows = in_task(self.slices.storage, self.reader.read(self.slices, self.file_slice))
        return pa.Table.from_batches(list(rows), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """The rows in the types of Arrow: nulls change the type of no column, as they do in pandas' own."""
        return _in_arrow_types(self.to_arrow())


def slice_rows(plan: ScanPlan, slices: SliceReader) -> list[SliceRows]:
    """The rows of the plan by file slices. Raises `InvalidOption` for a condition that only Spark can evaluate."""
    schema = plan.schema
    return [SliceRows(file_slice, reader, slices, schema) for file_slice, reader in row_readers(plan, plan.predicate)]


def dask_frame(plan: ScanPlan, slices: SliceReader) -> dd.DataFrame:
    """A lazy DataFrame of Dask with a partition for each file slice; one without rows where there is none."""
    frames = require("dask.dataframe")
    tasks = slice_rows(plan, slices)
    empty = _in_arrow_types(plan.schema.empty_table())
    if not tasks:
        return frames.from_pandas(empty, npartitions=1)
    return frames.from_map(SliceRows.to_pandas, tasks, meta=empty, label="lakebed", enforce_metadata=False)


def _in_arrow_types(rows: pa.Table) -> pd.DataFrame:
    return rows.to_pandas(types_mapper=require("pandas").ArrowDtype)


def ray_dataset(plan: ScanPlan, slices: SliceReader) -> ray.data.Dataset:
    """A lazy Dataset of Ray with a read task for each file slice."""
    data = require("ray.data")
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    schema, tasks = plan.schema, slice_rows(plan, slices)

    class FileSlices(Datasource):  # pyright: ignore[reportUntypedBaseClass]
        """The file slices of a scan. Ray's workers get this class by its code, not by its name."""

        def get_name(self) -> str:
            return "lakebed"

        def estimate_inmemory_data_size(self) -> int | None:
            return None  # the sizes of compressed files say little

        def get_read_tasks(self, parallelism: int, *_more: Any, **_options: Any) -> Sequence[ReadTask]:
            def read_task(rows: SliceRows) -> ReadTask:
                facts = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
                return ReadTask(lambda: [rows.to_arrow()], facts, schema=schema)

            return [read_task(rows) for rows in tasks]

    return data.read_datasource(FileSlices()) if tasks else data.from_arrow(schema.empty_table())
