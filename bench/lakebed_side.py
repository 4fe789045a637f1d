"""lakebed's side, and Spark alone in the same session: the baselines that lakebed is held against."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from serve import Commands, hadoop_bytes, local_session, serve, shuffled_bytes

import lakebed
from lakebed.engine.base import Task
from lakebed.engine.spark import SparkEngine
from lakebed.write_status import WriteStatus, to_batch

_SORT = "key" if os.environ.get("BENCH_SORT") == "key" else "none"
_METADATA = os.environ.get("BENCH_METADATA") == "1"


class CountRows:
    """A group's writer that writes nothing: what is left is the JVM's share of the job."""

    def __call__(
        self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        yield to_batch([WriteStatus(partition, rows_in=sum(batch.num_rows for batch in batches))])


@contextmanager
def _counting() -> Generator[None]:
    """Jobs count rows while this is open, whatever they were to write."""
    whole = SparkEngine.group_map

    def group_map(self: SparkEngine, rows: Any, fn: Any, schema: pa.Schema, **how: Any) -> Any:
        return whole(self, rows, CountRows(), schema, **how)

    SparkEngine.group_map = group_map
    try:
        yield
    finally:
        SparkEngine.group_map = whole


class LakebedSide:
    """Bucket index, zstd, the metadata table as asked: none, or files, column stats and record index."""

    def __init__(self) -> None:
        self.spark = local_session({})
        self._frames: dict[str, Any] = {}

    def frame(self, data: str) -> None:
        """The DataFrame that the next upsert of this data takes."""
        self._frames = {data: self.spark.read.parquet(data)}

    def load(self, table: str, data: str, buckets: int, sort: Any = _SORT, addresses: bool = False) -> dict[str, float]:
        shutil.rmtree(table, ignore_errors=True)
        rows = self.spark.read.parquet(data)
        made = lakebed.create(
            table,
            rows,
            key="id",
            ordering="ts",
            index="bucket",
            buckets=buckets,
            indexes="record_index" if _METADATA else None,
            sort=sort,
            spark=self.spark,
            properties={"hoodie.metadata.enable": _METADATA, "lakebed.row.addresses": addresses},
        )
        return dict(made.bulk_insert(rows).seconds)

    def upsert(self, table: str, data: str, buckets: int) -> dict[str, float]:
        rows = self.spark.read.parquet(data)
        return dict(lakebed.open(table, spark=self.spark).upsert(rows).seconds)

    def merge(self, table: str, data: str, statement: str) -> str:
        self.spark.read.parquet(data).createOrReplaceTempView("changes")
        return str(lakebed.sql(statement, spark=self.spark, tables={"trips": table}))

    def forget(self) -> None:
        """The session has no name for a table."""

    def sums(self, table: str) -> list[Any]:
        rows = lakebed.open(table, spark=self.spark).scan().to_spark()
        return list(rows.selectExpr("count(*)", "sum(ts % 1000003)", "count(distinct id)").collect()[0])

    def upsert_by(self, table: str, data: str) -> dict[str, float]:
        """Upsert under the table's own index; gives seconds by stage, bytes shuffled, and those that the JVM read."""
        before, read = shuffled_bytes(self.spark), hadoop_bytes(self.spark)
        options = {"hoodie.parquet.small.file.limit": 0}
        done = lakebed.open(table, spark=self.spark).upsert(self.spark.read.parquet(data), options=options)
        moved = {"shuffled": shuffled_bytes(self.spark) - before, "read": hadoop_bytes(self.spark) - read}
        return {**done.seconds, **moved}

    def upsert_told(self, table: str, data: str) -> dict[str, Any]:
        """As `upsert_by`, with what the index tells of its search."""
        before = shuffled_bytes(self.spark)
        options = {"hoodie.parquet.small.file.limit": 0}
        done = lakebed.open(table, spark=self.spark).upsert(self.spark.read.parquet(data), options=options)
        told = done.lookup.to_dict() if done.lookup else {}
        return {**done.seconds, "shuffled": shuffled_bytes(self.spark) - before, "told": told, "engine": str(done)}

    def mor_load(self, table: str, data: str, index: str, buckets: int) -> dict[str, float]:
        shutil.rmtree(table, ignore_errors=True)
        rows = self.spark.read.parquet(data)
        kind = {"index": "bucket", "buckets": buckets} if index == "bucket" else {"index": index}
        made = lakebed.create(
            table,
            rows,
            key="id",
            ordering="ts",
            type="mor",
            **kind,
            spark=self.spark,
            properties={"hoodie.compact.inline": False} | ({} if _METADATA else without_statistics(index)),
        )
        return dict(made.bulk_insert(rows).seconds)

    def mor_upsert(self, table: str, data: str, index: str, buckets: int) -> dict[str, float]:
        return dict(lakebed.open(table, spark=self.spark).upsert(self._frames[data]).seconds)

    def collect(self, data: str) -> int:
        """What Spark alone takes to hand these rows to Python."""
        return self._frames[data].toArrow().num_rows

    def mor_read(self, table: str) -> None:
        _consume(lakebed.open(table, spark=self.spark).scan().to_spark())

    def mor_compact(self, table: str) -> str:
        done = lakebed.open(table, spark=self.spark).maintenance.compact()
        if not done.runs:
            raise RuntimeError(f"nothing was compacted in {table}: {done}")
        return str(done)

    def cluster(self, table: str, sort: list[str], layout: str) -> None:
        """Small files written as larger ones: in an order, or as they come."""
        order: Any = {"sort_columns": sort, "layout": layout} if sort else {}
        if not lakebed.open(table, spark=self.spark).maintenance.cluster(**order).runs:
            raise RuntimeError(f"nothing was clustered in {table}")

    def clean(self, table: str, retained: int) -> int:
        """Gives the number of files deleted."""
        options = {"hoodie.clean.commits.retained": retained}
        return lakebed.open(table, spark=self.spark).maintenance.clean(options=options).files

    def archive(self, table: str, least: int, most: int, retained: int) -> int:
        names = ("hoodie.keep.min.commits", "hoodie.keep.max.commits", "hoodie.clean.commits.retained")
        options = dict(zip(names, (least, most, retained), strict=True))
        return len(lakebed.open(table, spark=self.spark).maintenance.archive(options=options).instants)

    def count_only(self, table: str, data: str) -> int:
        """The same job up to the writer: rows read, tagged, shuffled, handed to Python and counted; an empty commit."""
        with _counting():
            return lakebed.open(table, spark=self.spark).upsert(self.spark.read.parquet(data)).rows

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


def without_statistics(index: str) -> dict[str, bool]:
    """No metadata table, or nothing in it but what the index is."""
    return {"hoodie.metadata.enable": index == "record", "hoodie.metadata.index.column.stats.enable": False}


def _start() -> Commands:
    side = LakebedSide()
    names = ("load", "upsert", "sums", "count_only", "spark_write", "scan", "scan_files", "files", "upsert_by")
    names += (
        "merge",
        "forget",
        "frame",
        "collect",
        "mor_load",
        "mor_upsert",
        "mor_read",
        "mor_compact",
        "cluster",
        "clean",
        "archive",
        "upsert_told",
    )
    return {name: getattr(side, name) for name in names}


if __name__ == "__main__":
    serve(_start)
