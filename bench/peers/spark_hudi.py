"""Real Hudi, in the environment of the interop tests."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hudi_side import hudi_session

from .base import KEY, ORDERING
from .spark import SparkPeer

_WRITE = "hoodie.datasource.write."


class SparkHudi(SparkPeer):
    """The same kind of table and index as lakebed's; all else is as Hudi has it by default."""

    packages = ("pyspark",)
    settings = (
        "merge-on-read, bucket index of 8 buckets, ordering column, metadata table; many keys by a join; zstd;"
        " defaults: writes clean and archive, and compact only where a job asks for it"
    )
    missing = {"merge": "it refuses stored values in a MERGE of a merge-on-read table"}
    since: str

    def __init__(self) -> None:
        super().__init__({})

    def session(self, settings: Any) -> Any:
        return hudi_session()

    def load(self) -> None:
        self._write("bulk_insert", "overwrite")

    def upsert(self) -> None:
        self._write("upsert", "append")

    def delete(self) -> None:
        self._write("delete", "append")

    def mark(self) -> None:
        """Now: Hudi compares the time at which a commit was completed."""
        self.since = f"{datetime.now():%Y%m%d%H%M%S}{datetime.now().microsecond // 1000:03d}"

    def incremental(self) -> None:
        options = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": self.since,
        }
        rows = self.spark.read.format("hudi").options(**options).load(self.path)
        self._consume(rows.select(self.rows.columns))

    def lookup(self) -> None:
        """A list of a thousand keys ends in a StackOverflowError of Hudi's pruning of files."""
        if len(self.keys()) <= 100:
            super().lookup()
        else:
            self._collect(self.frame().join(self.rows.select(KEY).hint("broadcast"), KEY))

    def frame(self) -> Any:
        return self.spark.read.format("hudi").load(self.path).select(self.columns)

    def _write(self, operation: str, mode: str) -> None:
        self.columns = self.rows.columns
        options = {
            "hoodie.table.name": "trips",
            _WRITE + "operation": operation,
            _WRITE + "table.type": "MERGE_ON_READ",
            _WRITE + "recordkey.field": KEY,
            _WRITE + "precombine.field": ORDERING,
            _WRITE + "keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "SIMPLE",
            "hoodie.bucket.index.num.buckets": "8",
            "hoodie.bucket.index.hash.field": KEY,
            "hoodie.parquet.compression.codec": "zstd",
            "hoodie.bulkinsert.shuffle.parallelism": "8",
            "hoodie.upsert.shuffle.parallelism": "8",
        }
        self.rows.write.format("hudi").options(**options).mode(mode).save(self.path)
