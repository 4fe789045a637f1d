"""Real Hudi's side: runs in the oracle's environment (PySpark 3.5, the Hudi bundle) and imports nothing of lakebed."""

from __future__ import annotations

import os
from typing import Any

from serve import Commands, local_session, serve

# Packages that Hudi's Kryo reaches into and JDK 17 keeps shut.
_OPENED = ("lang", "lang.invoke", "lang.reflect", "io", "math", "net", "nio", "text", "time", "util", "util.concurrent")
_METADATA = os.environ.get("BENCH_METADATA") == "1"
_WRITE = "hoodie.datasource.write."


class HudiSide:
    """Bucket index of 8 buckets, zstd, the metadata table as asked: the work that lakebed does."""

    def __init__(self) -> None:
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
        self.spark = local_session(settings)

    def load(self, table: str, data: str, buckets: int) -> None:
        self._write(table, data, "bulk_insert", buckets, "overwrite")

    def upsert(self, table: str, data: str, buckets: int) -> None:
        self._write(table, data, "upsert", buckets, "append")

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

    def sums(self, table: str) -> list[Any]:
        rows = self.spark.read.format("hudi").load(table)
        return list(rows.selectExpr("count(*)", "sum(ts)", "count(distinct id)").collect()[0])


def _start() -> Commands:
    side = HudiSide()
    return {"load": side.load, "upsert": side.upsert, "sums": side.sums}


if __name__ == "__main__":
    serve(_start)
