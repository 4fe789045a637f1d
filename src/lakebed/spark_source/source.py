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
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from lakebed.engine.spark_worker import SentToWorkers
from lakebed.errors import UnsupportedFeature
from lakebed.filters.predicates import Node
from lakebed.read.scan import Scan
from lakebed.schema.spark import arrow_to_spark_ddl, read_by_spark, spark_json_to_arrow
from lakebed.spark_sink.options import write_options
from lakebed.spark_sink.writers import BatchTarget, StreamTarget
from lakebed.spark_source.filters import split_filters, zoned_filter
from lakebed.spark_source.options import SourceOptions, source_options
from lakebed.spark_source.partitions import (
    ChangeBatch,
    SliceBatch,
    change_batches,
    read_changes,
    read_rows,
    slice_batches,
)
from lakebed.spark_source.stream import stream_reader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_PUSHDOWN_WORKER = "data_source_pushdown_filters"


class LakebedSource(SentToWorkers, DataSource):
    """The data source named `lakebed`. Options: `SourceOptions`."""

    @classmethod
    def name(cls) -> str:
        return "lakebed"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._option_texts = dict(options.items())

    def schema(self) -> str:
        return arrow_to_spark_ddl(read_by_spark(self._options().schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options()
        options.refuse_of_streams()
        if options.query_type == "cdc":
            return ChangesReader(options)
        # a reader with pushFilters raises where the session has pushdown off, so there are two classes
        kind = PushdownReader if _pushed_filters_stay_apart() and _in_pushdown_worker() else TableReader
        return kind(options, [f.name for f in schema.fields])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return stream_reader(self._options(), schema)

    def _options(self) -> SourceOptions:
        options = source_options(self._option_texts)
        if options.pushdown == "always" and not _pushed_filters_stay_apart():
            raise UnsupportedFeature(
                f"pushdown=always would give wrong rows on PySpark {pyspark.__version__}: it answers a query with the"
                " files and the filters of an earlier one on the same DataFrame",
                hint="leave the option out, and give the condition as the option where, which prunes everywhere",
                context={"feature": "filter pushdown", "found": pyspark.__version__},
            )
        return options

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        columns = spark_json_to_arrow(schema.json())
        return BatchTarget(write_options(self._option_texts, streaming=False), columns, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        columns = spark_json_to_arrow(schema.json())
        return StreamTarget(write_options(self._option_texts, streaming=True), columns, overwrite=overwrite)


class TableReader(SentToWorkers, DataSourceReader):
    """A reader that plans in `partitions` and reads files in `read`, through lakebed's own storage."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self.options = options
        self.columns = columns
        self.nodes: list[Node] = []

    def partitions(self) -> list[InputPartition]:
        zoned = zoned_filter(self.options.where, self._scan().available, self.nodes)
        # what depends on the session's zone, which only tasks know, is left to them
        scan = self._scan() if zoned is None else self._scan(where=None).narrowed([zoned.for_every_zone])
        return slice_batches(scan, zoned)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SliceBatch):
            yield from read_rows(partition, self.columns)

    def _scan(self, **changes: Any) -> Scan:
        scan = replace(self.options, columns=tuple(self.columns), meta=False, **changes).scan()
        return scan.narrowed(self.nodes) if self.nodes else scan


class ChangesReader(SentToWorkers, DataSourceReader):
    """A reader that plans the sources of a range's changes, and reads them in tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        return change_batches(self.options.change_log())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChangeBatch):
            yield from read_changes(partition)


class PushdownReader(TableReader):
    """A reader for sessions with `spark.sql.python.filterPushdown.enabled` and a Spark that does not mix pushed filters
    of queries.

    Spark up to 4.3.0 keeps the files planned for one filter and gives them to the next query on the same DataFrame, and
    to the other side of a union or join, which then lack rows. There no filter is pushed. The option `where` prunes
    everywhere.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        self.nodes, left = split_filters(filters, self._scan().available)
        return left


def _pushed_filters_stay_apart() -> bool:
    """Whether this Spark plans every scan separately: it does since it can push limits, which 4.3.0 cannot."""
    return hasattr(DataSourceReader, "pushLimit")


def _in_pushdown_worker() -> bool:
    """Whether Spark is planning with filter pushdown, for which it has a separate worker program."""
    frame: Any = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if _PUSHDOWN_WORKER in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
