"""Search on Spark: in an exact one tasks find the nearest rows of their file slices, and one step takes the nearest of
these. The rows that a search by an index has found are handed on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.spark_session import parallelism
from lakebed.read.search import DISTANCE, QUERY_INDEX, SearchTask
from lakebed.read.spark import frame_of_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Where there are many file slices each core has several tasks, since slices differ in size.
_TASKS_PER_CORE = 4
_RANK = "_lakebed_rank"


def search_frame(task: SearchTask, spark: SparkSession, *, tuning: bool) -> DataFrame:
    """The rows of a search as a lazy DataFrame, in ascending order of the distance."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    count = max(1, min(len(task.jobs), parallelism(spark) * _TASKS_PER_CORE))
    parts = tuple(tuple(range(number, len(task.jobs), count)) for number in range(count))
    of_tasks = replace(task, threads=1, parts=parts)
    frame = frame_of_parts(spark, of_tasks, count, task.schema, tuning=tuning)
    if QUERY_INDEX not in task.schema.names:
        return frame.orderBy(DISTANCE).limit(task.nearest.count)
    rank = F.row_number().over(Window.partitionBy(QUERY_INDEX).orderBy(DISTANCE))
    ranked = frame.withColumn(_RANK, rank).where(F.col(_RANK) <= task.nearest.count).drop(_RANK)
    return ranked.orderBy(QUERY_INDEX, DISTANCE)


@dataclass(frozen=True)
class _Answer:
    """The rows that a search has found, for one task."""

    rows: pa.Table

    def __call__(self, part: int) -> Iterator[pa.RecordBatch]:
        yield from self.rows.to_batches()


def answer_frame(rows: pa.Table, spark: SparkSession, *, tuning: bool) -> DataFrame:
    """The rows that a search by an index has found in this process, as a DataFrame in their order."""
    return frame_of_parts(spark, _Answer(rows), 1, rows.schema, tuning=tuning)
