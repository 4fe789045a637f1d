"""Real Hudi's side: runs in the oracle's environment (PySpark 3.5, the Hudi bundle) and imports nothing of lakebed."""

from __future__ import annotations

import os
from typing import Any

from serve import Commands, hadoop_bytes, local_session, serve, shuffled_bytes

# Packages that Hudi's Kryo reaches into and JDK 17 keeps shut.
_OPENED = ("lang", "lang.invoke", "lang.reflect", "io", "math", "net", "nio", "text", "time", "util", "util.concurrent")
_METADATA = os.environ.get("BENCH_METADATA") == "1"
_WRITE = "hoodie.datasource.write."


def hudi_session() -> Any:
    """A Spark session with the bundle that the environment names."""
    opens = " ".join(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED)
    opens += " --add-opens=java.base/sun.nio.ch=ALL-UNNAMED"
    settings = {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.driver.extraJavaOptions": opens,
    }
    if os.environ.get("BENCH_HUDI_JAR"):
        settings["spark.jars"] = os.environ["BENCH_HUDI_JAR"]
    else:
        settings["spark.jars.packages"] = os.environ["BENCH_HUDI_PACKAGE"]
        settings["spark.jars.ivy"] = os.environ["BENCH_HUDI_IVY"]
    return local_session(settings)


class HudiSide:
    """Bucket index of 8 buckets, zstd, the metadata table as asked: the work that lakebed does."""

    def __init__(self) -> None:
        self.spark = hudi_session()
        self._frames: dict[str, Any] = {}

    def frame(self, data: str) -> None:
        """The DataFrame that the next upsert of this data takes."""
        self._frames = {data: self.spark.read.parquet(data)}

    def load(self, table: str, data: str, buckets: int) -> None:
        self._write(table, data, "bulk_insert", buckets, "overwrite")

    def upsert(self, table: str, data: str, buckets: int) -> None:
        self._write(table, data, "upsert", buckets, "append")

    def merge(self, table: str, data: str, statement: str) -> None:
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS trips USING hudi LOCATION 'file://{table}'")
        self.spark.read.parquet(data).createOrReplaceTempView("changes")
        self.spark.sql(statement).collect()

    def forget(self) -> None:
        """Drop the name of the table that was merged into; its files stay."""
        self.spark.sql("DROP TABLE IF EXISTS trips")

    def _write(self, table: str, data: str, operation: str, buckets: int, mode: str) -> None:
        options = {
            "hoodie.table.name": "trips",
            _WRITE + "operation": operation,
            _WRITE + "recordkey.field": "id",
            _WRITE + "precombine.field": "ts",
            _WRITE + "keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "SIMPLE",
            "hoodie.bucket.index.num.buckets": str(buckets),
            "hoodie.bucket.index.hash.field": "id",
            "hoodie.metadata.enable": str(_METADATA).lower(),
            "hoodie.metadata.index.column.stats.enable": str(_METADATA).lower(),
            "hoodie.metadata.global.record.level.index.enable": str(_METADATA).lower(),
            "hoodie.parquet.compression.codec": "zstd",
            "hoodie.bulkinsert.shuffle.parallelism": str(buckets),
            "hoodie.upsert.shuffle.parallelism": str(buckets),
        }
        self.spark.read.parquet(data).write.format("hudi").options(**options).mode(mode).save(table)

    def upsert_by(self, table: str, data: str, index: str, buckets: int) -> dict[str, float]:
        """Upsert into a table partitioned by `day` under this index; gives the bytes shuffled, and those read."""
        before, read = shuffled_bytes(self.spark), hadoop_bytes(self.spark)
        indexes = {
            "record": {"hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX"},
            "record_level_index": {
                "hoodie.index.type": "RECORD_LEVEL_INDEX",
                "hoodie.metadata.record.level.index.enable": "true",
            },
            "simple": {"hoodie.index.type": "SIMPLE"},
            "global_simple": {
                "hoodie.index.type": "GLOBAL_SIMPLE",
                "hoodie.simple.index.update.partition.path": "false",
            },
            "bucket": {
                "hoodie.index.type": "BUCKET",
                "hoodie.index.bucket.engine": "SIMPLE",
                "hoodie.bucket.index.num.buckets": str(buckets),
                "hoodie.bucket.index.hash.field": "id",
            },
            "consistent": {
                "hoodie.index.type": "BUCKET",
                "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
                "hoodie.bucket.index.num.buckets": str(buckets),
                "hoodie.bucket.index.hash.field": "id",
                _WRITE + "table.type": "MERGE_ON_READ",
                "hoodie.compact.inline": "false",
                "hoodie.datasource.compaction.async.enable": "false",
            },
            "bloom": {"hoodie.index.type": "BLOOM"},
            "global_bloom": {
                "hoodie.index.type": "GLOBAL_BLOOM",
                "hoodie.bloom.index.update.partition.path": "false",
            },
        }
        options = {
            "hoodie.table.name": "wide",
            _WRITE + "operation": "upsert",
            _WRITE + "recordkey.field": "id",
            _WRITE + "partitionpath.field": "day",
            _WRITE + "precombine.field": "ts",
            _WRITE + "keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
            **indexes[index],
            "hoodie.metadata.enable": "true",
            "hoodie.metadata.index.column.stats.enable": "true",
            "hoodie.metadata.index.column.stats.column.list": "ts",
            "hoodie.metadata.global.record.level.index.enable": str(index == "record").lower(),
            "hoodie.parquet.small.file.limit": "0",
            "hoodie.parquet.compression.codec": "zstd",
            "hoodie.upsert.shuffle.parallelism": "8",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
        }
        self.spark.read.parquet(data).write.format("hudi").options(**options).mode("append").save(table)
        return {"shuffled": shuffled_bytes(self.spark) - before, "read": hadoop_bytes(self.spark) - read}

    def mor_load(self, table: str, data: str, index: str, buckets: int) -> None:
        self._merge_on_read(table, self.spark.read.parquet(data), "bulk_insert", index, buckets, "overwrite")

    def mor_upsert(self, table: str, data: str, index: str, buckets: int) -> None:
        self._merge_on_read(table, self._frames[data], "upsert", index, buckets, "append")

    def _merge_on_read(self, table: str, rows: Any, operation: str, index: str, buckets: int, mode: str) -> None:
        indexes = {
            "record": {"hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX"},
            "bucket": {
                "hoodie.index.type": "BUCKET",
                "hoodie.index.bucket.engine": "SIMPLE",
                "hoodie.bucket.index.num.buckets": str(buckets),
                "hoodie.bucket.index.hash.field": "id",
            },
        }
        options = {
            "hoodie.table.name": "trips",
            _WRITE + "table.type": "MERGE_ON_READ",
            _WRITE + "operation": operation,
            _WRITE + "recordkey.field": "id",
            _WRITE + "precombine.field": "ts",
            _WRITE + "keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
            **indexes[index],
            **({} if _METADATA else without_statistics(index)),
            "hoodie.metadata.global.record.level.index.enable": str(index == "record").lower(),
            "hoodie.parquet.compression.codec": "zstd",
            "hoodie.compact.inline": "false",
            "hoodie.datasource.compaction.async.enable": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
            "hoodie.bulkinsert.shuffle.parallelism": str(buckets),
            "hoodie.upsert.shuffle.parallelism": str(buckets),
        }
        rows.write.format("hudi").options(**options).mode(mode).save(table)

    def mor_read(self, table: str) -> None:
        """A snapshot of all rows and data columns; they are consumed, nothing is written."""
        rows = self.spark.read.format("hudi").load(table)
        data = [name for name in rows.columns if not name.startswith("_hoodie_")]
        rows.select(data).write.format("noop").mode("overwrite").save()

    def mor_compact(self, table: str) -> None:
        options = "hoodie.parquet.compression.codec=zstd,hoodie.compact.inline.max.delta.commits=1"
        call = f"call run_compaction(op => 'scheduleAndExecute', path => '{table}', options => '{options}')"
        if not self.spark.sql(call).collect():
            raise RuntimeError(f"nothing was compacted in {table}")

    def cluster(self, table: str, sort: list[str], layout: str) -> None:
        """Small files written as larger ones: in an order, or as they come."""
        order = f"order => '{','.join(sort)}', order_strategy => '{layout}'," if sort else ""
        options = "hoodie.parquet.compression.codec=zstd,hoodie.clean.automatic=false,hoodie.archive.automatic=false"
        call = f"call run_clustering(path => '{table}', {order} op => 'scheduleAndExecute', options => '{options}')"
        if not self.spark.sql(call).collect():
            raise RuntimeError(f"nothing was clustered in {table}")

    def clean(self, table: str, retained: int) -> int:
        """Gives the number of files deleted."""
        self.spark.sql("drop table if exists cleaned")
        self.spark.sql(f"create table cleaned using hudi location '{table}'")
        call = f"call run_clean(table => 'cleaned', retain_commits => {retained})"
        return sum(int(row["total_files_deleted"]) for row in self.spark.sql(call).collect())

    def archive(self, table: str, least: int, most: int, retained: int) -> None:
        call = f"call archive_commits(path => '{table}', min_commits => {least}, max_commits => {most}, "
        self.spark.sql(call + f"retain_commits => {retained}, enable_metadata => true)").collect()

    def point_query(self, table: str, key: str) -> list[Any]:
        """The row of a key through the record index."""
        options = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
        rows = self.spark.read.format("hudi").options(**options).load(table).where(f"id = '{key}'")
        return [list(row) for row in rows.select("id", "ts").collect()]

    def sums(self, table: str) -> list[Any]:
        rows = self.spark.read.format("hudi").load(table)
        return list(rows.selectExpr("count(*)", "sum(ts % 1000003)", "count(distinct id)").collect()[0])


def without_statistics(index: str) -> dict[str, str]:
    """No metadata table, or nothing in it but what the index is."""
    return {
        "hoodie.metadata.enable": str(index == "record").lower(),
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
    }


def _start() -> Commands:
    side = HudiSide()
    names = ("load", "upsert", "merge", "forget", "sums", "upsert_by", "point_query")
    names += ("frame", "mor_load", "mor_upsert", "mor_read", "mor_compact", "cluster", "clean", "archive")
    return {name: getattr(side, name) for name in names}


if __name__ == "__main__":
    serve(_start)
