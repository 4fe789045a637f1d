"""lakebed's side, and Spark alone in the same session: the baselines that lakebed is held against."""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from serve import Commands, local_session, serve

import lakebed
from lakebed.config.options import resolve_options
from lakebed.engine.base import Task
from lakebed.engine.spark import SparkEngine
from lakebed.storage import open_storage
from lakebed.timeline.table_config import load_table_config
from lakebed.write.job import write_context
from lakebed.write.prepare import prepare
from lakebed.write.status import STATUS_SCHEMA, WriteStatus, to_batch
from lakebed.write.upsert import KeyedWrite, admitted_rows


class CountRows:
    """A group's writer that writes nothing: what is left is the JVM's share of the job."""

    def __call__(
        self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        yield to_batch([WriteStatus(partition, rows_in=sum(batch.num_rows for batch in batches))])


class LakebedSide:
    """Bucket index, zstd, no metadata table."""

    def __init__(self) -> None:
        self.spark = local_session({})

    def load(self, table: str, data: str, buckets: int) -> dict[str, float]:
        shutil.rmtree(table, ignore_errors=True)
        rows = self.spark.read.parquet(data)
        made = lakebed.create(table, rows, key="id", ordering="ts", index="bucket", buckets=buckets, spark=self.spark)
        return dict(made.bulk_insert(rows).seconds)

    def upsert(self, table: str, data: str, buckets: int) -> dict[str, float]:
        rows = self.spark.read.parquet(data)
        return dict(lakebed.open(table, spark=self.spark).upsert(rows).seconds)

    def sums(self, table: str) -> list[Any]:
        rows = lakebed.open(table, spark=self.spark).scan().to_spark()
        return list(rows.selectExpr("count(*)", "sum(ts)", "count(distinct id)").collect()[0])

    def count_only(self, table: str, data: str) -> int:
        """The same job up to the writer: rows read, tagged, shuffled, handed to Python and counted."""
        storage = open_storage(table)
        engine = SparkEngine(self.spark)
        context = write_context(storage, load_table_config(storage), engine, resolve_options(None))
        rows, schema = admitted_rows(context, self.spark.read.parquet(data), KeyedWrite("UPSERT", "keys", True))
        counted = engine.group_map(
            prepare(context, rows, schema),
            CountRows(),
            STATUS_SCHEMA,
            groups=context.index.buckets,  # pyright: ignore[reportAttributeAccessIssue]
            one_group_per_task=True,
        )
        return sum(engine.collect(counted).column("rows_in").to_pylist())

    def spark_write(self, data: str, out: str, buckets: int) -> None:
        """Spark alone: the same rows, tagged in plain SQL, one shuffle, `write.parquet`."""
        from pyspark.sql import functions as F

        hashed = F.expr("cast(java_method('java.util.Objects', 'hashCode', id) as bigint)")
        rows = self.spark.read.parquet(data).withColumn("_bucket", (((31 + hashed) % 2**31) % buckets).cast("int"))
        placed = rows.repartitionById(buckets, F.col("_bucket")).drop("_bucket")
        placed.write.mode("overwrite").parquet(out)

    def scan(self, table: str) -> None:
        _consume(lakebed.open(table, spark=self.spark).scan().to_spark())

    def scan_files(self, table: str, columns: list[str]) -> None:
        """The same files and columns through `spark.read.parquet`."""
        files = [table + "/" + file.path for file in lakebed.open(table).scan().files]
        _consume(self.spark.read.parquet(*files).select(columns))

    def files(self, table: str) -> list[str]:
        return sorted(glob.glob(f"{table}/*.parquet"))


def _consume(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _start() -> Commands:
    side = LakebedSide()
    names = ("load", "upsert", "sums", "count_only", "spark_write", "scan", "scan_files", "files")
    return {name: getattr(side, name) for name in names}


if __name__ == "__main__":
    serve(_start)
