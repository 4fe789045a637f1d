"""Delta Lake's side: runs in real Hudi's environment (PySpark 3.5) and imports nothing of lakebed."""

from __future__ import annotations

import os
from typing import Any

from serve import Commands, local_session, serve

PACKAGE = "io.delta:delta-spark_2.12:3.3.2"


class DeltaSide:
    """A table without partitions, as the others have it; deletion vectors are on, as in Delta's own advice."""

    def __init__(self) -> None:
        self.spark = local_session(
            {
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
                "spark.jars.packages": PACKAGE,
                "spark.jars.ivy": os.environ["BENCH_IVY"],
            }
        )

    def load(self, table: str, data: str, buckets: int) -> None:
        self.spark.read.parquet(data).repartition(buckets).write.format("delta").mode("overwrite").save(table)

    def merge(self, table: str, data: str, statement: str) -> None:
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS trips USING delta LOCATION 'file://{table}'")
        self.spark.read.parquet(data).createOrReplaceTempView("changes")
        self.spark.sql(statement).collect()

    def forget(self) -> None:
        """Drop the name of the table that was merged into; its files stay."""
        self.spark.sql("DROP TABLE IF EXISTS trips")

    def sums(self, table: str) -> list[Any]:
        rows = self.spark.read.format("delta").load(table)
        return list(rows.selectExpr("count(*)", "sum(ts % 1000003)", "count(distinct id)").collect()[0])


def _start() -> Commands:
    side = DeltaSide()
    return {name: getattr(side, name) for name in ("load", "merge", "forget", "sums")}


if __name__ == "__main__":
    serve(_start)
