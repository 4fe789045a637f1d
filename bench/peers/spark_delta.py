"""Delta Lake on Spark: delta-spark."""

from __future__ import annotations

from typing import Any

from .spark import SqlPeer, jars


class SparkDelta(SqlPeer):
    """Eight files, with deletion vectors, as Delta advises for merges."""

    packages = ("pyspark",)
    settings = "deletion vectors; changes are read from a table of its own with the change data feed"

    def __init__(self) -> None:
        super().__init__(
            {
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
                "spark.jars": jars(),
            }
        )

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"delta.`{self.path}`"

    def load(self) -> None:
        self.rows.repartition(8).write.format("delta").save(self.path)

    def _consume(self, rows: Any) -> None:
        """As RDD: Delta cannot plan a filter below a writer that is not its own ("non-pinned table snapshot")."""
        self.result = rows
        rows._jdf.queryExecution().toRdd().count()

    def prepare_incremental(self, inputs: str, work: str) -> None:
        table, self.path = self.path, f"{work}/fed"
        self.give(f"{inputs}/load")
        self.rows.repartition(8).write.format("delta").option("delta.enableChangeDataFeed", "true").save(self.path)
        self.give(f"{inputs}/percent")
        self.upsert()
        self.fed, self.path = self.path, table

    def incremental(self) -> None:
        options = {"readChangeFeed": "true", "startingVersion": "1"}
        feed = self.spark.read.format("delta").options(**options).load(self.fed)
        self._consume(feed.where("_change_type <> 'update_preimage'").select(self.rows.columns))
