"""Iceberg on Spark: its runtime jar."""

from __future__ import annotations

import os

from .spark import SqlPeer, jars

_MODES = ("delete", "update", "merge")


class SparkIceberg(SqlPeer):
    """Merge-on-read with deletion vectors, in a catalog that is a folder."""

    packages = ("pyspark",)
    settings = (
        "format version 3, merge-on-read (deletion vectors); changes are read from a copy-on-write table of its own"
    )

    def __init__(self) -> None:
        super().__init__(
            {
                "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
                "spark.sql.catalog.bench": "org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.catalog.bench.type": "hadoop",
                "spark.sql.catalog.bench.warehouse": os.environ["BENCH_WORK"],
                "spark.jars": jars(),
            }
        )
        self.name = ""

    def start(self, path: str) -> None:
        super().start(path)
        inside = os.path.relpath(path, os.environ["BENCH_WORK"]).split("/")
        self.name = "bench." + ".".join(f"`{part}`" for part in inside)

    def load(self) -> None:
        self._load("merge-on-read")

    def _load(self, mode: str) -> None:
        table = self.rows.writeTo(self.name).using("iceberg").tableProperty("format-version", "3")
        for verb in _MODES:
            table = table.tableProperty(f"write.{verb}.mode", mode)
        table.create()

    def prepare_incremental(self, inputs: str, work: str) -> None:
        table, name = self.path, self.name
        self.start(f"{work}/tracked")
        self.give(f"{inputs}/load")
        self._load("copy-on-write")
        self.give(f"{inputs}/percent")
        self.upsert()
        snapshots = self.spark.sql(f"SELECT snapshot_id FROM {self.name}.snapshots ORDER BY committed_at").collect()
        self.tracked, self.since = self.name.removeprefix("bench."), str(snapshots[0][0])
        self.path, self.name = table, name

    def incremental(self) -> None:
        self.spark.sql(
            f"CALL bench.system.create_changelog_view(table => '{self.tracked}', changelog_view => 'changed',"
            f" options => map('start-snapshot-id', '{self.since}'), net_changes => true)"
        ).collect()
        changed = self.spark.table("changed").where("_change_type <> 'DELETE' AND _change_type <> 'UPDATE_BEFORE'")
        self._consume(changed.select(self.rows.columns))
