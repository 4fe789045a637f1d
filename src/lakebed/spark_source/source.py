"""`spark.read.format("lakebed")`: tables through PySpark's Python Data Source API.

The API gives no column pruning and rows go through Python; `lakebed.open(uri, spark=spark).scan().to_spark()` uses
Spark's own Parquet reader.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from lakebed.engine.spark_worker import SentToWorkers
from lakebed.errors import UnsupportedFeature
from lakebed.filters.predicates import Node
from lakebed.model import FileSlice
from lakebed.read.batches import RowReader, row_readers
from lakebed.read.cdc import ChangeJob
from lakebed.read.cdc_rows import ChangeReader
from lakebed.read.reopening import in_task
from lakebed.read.scan import Scan
from lakebed.schema.spark import arrow_to_spark_ddl, as_spark_reads, read_by_spark, spark_json_to_arrow
from lakebed.slices.reader import SliceReader
from lakebed.spark_sink.options import write_options
from lakebed.spark_sink.writers import BatchTarget, StreamTarget
from lakebed.spark_source.filters import ZonedFilter, session_zone, split_filters, zoned_filter
from lakebed.spark_source.options import SourceOptions, source_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# A task reads about this many bytes (less where there is little, so that a few cores have work), and not more files.
_TASK_BYTES = 128 << 20
_LEAST_TASK_BYTES = 8 << 20
_LEAST_TASKS = 8
_TASK_FILES = 64
_PUSHDOWN_WORKER = "data_source_pushdown_filters"


class SliceBatch(InputPartition):
    """The file slices of one task, each with the number of its reader. Whole in itself: Spark pickles the source's
    reader before it asks for partitions."""

    def __init__(
        self,
        slice_reader: SliceReader,
        readers: list[RowReader],
        slices: list[tuple[FileSlice, int]],
        zoned: ZonedFilter | None = None,
    ) -> None:
        super().__init__(None)
        self.slice_reader = slice_reader
        self.readers = readers
        self.slices = slices
        self.zoned = zoned

    def __repr__(self) -> str:
        return f"SliceBatch({len(self.slices)} file slices)"


class LakebedSource(SentToWorkers, DataSource):
    """The data source named `lakebed`. Options: `SourceOptions`."""

    @classmethod
    def name(cls) -> str:
        return "lakebed"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options.items())

    def schema(self) -> str:
        options = self._options()
        asked = options.change_log() if options.query_type == "cdc" else options.scan()
        return arrow_to_spark_ddl(read_by_spark(asked.schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options()
        if options.query_type == "cdc":
            return ChangesReader(options)
        # a reader with pushFilters raises where the session has pushdown off, so there are two classes
        kind = PushdownReader if _pushed_filters_stay_apart() and _in_pushdown_worker() else TableReader
        return kind(options, [f.name for f in schema.fields])

    def _options(self) -> SourceOptions:
        options = source_options(self._given)
        if options.pushdown == "always" and not _pushed_filters_stay_apart():
            raise UnsupportedFeature(
                f"pushdown=always would give wrong rows on PySpark {pyspark.__version__}: it answers a query with the"
                " files and the filters of an earlier one on the same DataFrame",
                hint="leave the option out, and give the condition as the option filter, which prunes everywhere",
                context={"feature": "filter pushdown", "found": pyspark.__version__},
            )
        return options

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        columns = spark_json_to_arrow(schema.json())
        return BatchTarget(write_options(self._given, streaming=False), columns, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        columns = spark_json_to_arrow(schema.json())
        return StreamTarget(write_options(self._given, streaming=True), columns, overwrite=overwrite)


class TableReader(SentToWorkers, DataSourceReader):
    """Plans in `partitions` and reads files in `read`, through lakebed's own storage."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self.options = options
        self.columns = columns
        self.nodes: list[Node] = []

    def partitions(self) -> list[InputPartition]:
        zoned = zoned_filter(self.options.filter, self._scan().available, self.nodes)
        # what depends on the session's zone, which only tasks know, is left to them
        scan = self._scan() if zoned is None else self._scan(filter=None).narrowed([zoned.for_every_zone])
        plan = scan.plan
        condition = plan.predicate.to_arrow() if plan.predicate is not None and zoned is None else None
        jobs = row_readers(plan, condition)
        readers = list({id(reader.sources): reader for _, reader in jobs}.values())
        numbers = {id(reader.sources): n for n, reader in enumerate(readers)}
        placed = [(file_slice, numbers[id(reader.sources)]) for file_slice, reader in jobs]
        return [SliceBatch(scan.reader, readers, slices, zoned) for slices in _tasks(placed)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SliceBatch):
            return
        readers = partition.readers
        if partition.zoned is not None:
            condition = partition.zoned.in_zone(session_zone(partition.zoned.planners_zone)).to_arrow()
            readers = [replace(reader, condition=condition) for reader in readers]
        for file_slice, number in partition.slices:
            reader = partition.slice_reader
            for batch in in_task(reader.storage, readers[number].read(reader, file_slice)):
                yield as_spark_reads(batch.select(self.columns))

    def _scan(self, **changes: Any) -> Scan:
        scan = replace(self.options, columns=tuple(self.columns), meta=False, **changes).scan()
        return scan.narrowed(self.nodes) if self.nodes else scan


class ChangeBatch(InputPartition):
    """The sources of changes that one task reads."""

    def __init__(self, reader: ChangeReader, jobs: list[ChangeJob]) -> None:
        super().__init__(None)
        self.reader = reader
        self.jobs = jobs


class ChangesReader(SentToWorkers, DataSourceReader):
    """Plans the sources of a range's changes and reads them, each where a task is."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        asked = self.options.change_log()
        jobs = asked.jobs
        size = max(1, min(_TASK_FILES, -(-len(jobs) // _LEAST_TASKS)))
        return [ChangeBatch(asked.reader, jobs[start : start + size]) for start in range(0, len(jobs), size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChangeBatch):
            for job in partition.jobs:
                rows = in_task(partition.reader.slices.storage, partition.reader.read(*job))
                yield from map(as_spark_reads, rows)


class PushdownReader(TableReader):
    """For sessions with `spark.sql.python.filterPushdown.enabled` and a Spark that keeps pushed filters apart.

    Spark up to 4.3.0 keeps the files planned for one filter and gives them to the next query on the same DataFrame, and
    to the other side of a union or join, which then lack rows. There no filter is pushed. The option `filter` prunes
    everywhere.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        self.nodes, left = split_filters(filters, self._scan().available)
        return left


def _tasks(slices: list[tuple[FileSlice, int]]) -> Iterator[list[tuple[FileSlice, int]]]:
    """The file slices by tasks of about the same size."""
    total = sum(file_slice.size for file_slice, _ in slices)
    limit = min(_TASK_BYTES, max(_LEAST_TASK_BYTES, total // _LEAST_TASKS))
    task: list[tuple[FileSlice, int]] = []
    size = 0
    for file_slice, number in slices:
        if task and (size + file_slice.size > limit or len(task) >= _TASK_FILES):
            yield task
            task, size = [], 0
        task.append((file_slice, number))
        size += file_slice.size
    if task:
        yield task


def _pushed_filters_stay_apart() -> bool:
    """Whether this Spark plans every scan for itself: it does since it can push limits, which 4.3.0 cannot."""
    return hasattr(DataSourceReader, "pushLimit")


def _in_pushdown_worker() -> bool:
    """Whether Spark is planning with filter pushdown: it has a worker program of its own for that."""
    frame: Any = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if _PUSHDOWN_WORKER in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
