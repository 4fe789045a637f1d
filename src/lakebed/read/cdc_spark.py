"""Change data on Spark: the sources are spread over tasks, which read them as the in-process engine does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.spark_session import parallelism, require_spark
from lakebed.engine.spark_worker import for_workers, use_own_python
from lakebed.read.cdc import ChangeJob
from lakebed.read.cdc_rows import ChangeReader
from lakebed.schema.spark import arrow_to_spark_ddl, as_spark_reads, read_by_spark
from lakebed.slices.reopening import in_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASKS_PER_CORE = 4
_SOURCES_PER_TASK = 64


def changes_frame(
    jobs: Sequence[ChangeJob],
    reader: ChangeReader,
    schema: pa.Schema,
    spark: SparkSession,
    *,
    worker_tuning: bool = True,
) -> DataFrame:
    """The changes of all sources as a lazy DataFrame."""
    require_spark()
    use_own_python(spark)
    ddl = arrow_to_spark_ddl(read_by_spark(schema))
    if not jobs:
        return spark.createDataFrame([], schema=ddl)
    tasks = max(1, min(len(jobs), max(parallelism(spark) * _TASKS_PER_CORE, len(jobs) // _SOURCES_PER_TASK)))
    numbers = spark.range(0, len(jobs), 1, tasks)
    read = for_workers(partial(_read_sources, reader, list(jobs)), tuning=worker_tuning)
    return numbers.mapInArrow(read, ddl)


def _read_sources(
    reader: ChangeReader, jobs: Sequence[ChangeJob], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():  # one a source
            yield from map(as_spark_reads, in_task(reader.slices.storage, reader.read(*jobs[number])))
