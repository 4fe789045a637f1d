"""lakebed on Spark."""

from __future__ import annotations

from typing import Any

import lakebed

from .base import KEY, ORDERING
from .spark import SparkPeer


class SparkLakebed(SparkPeer):
    """A bucket index of eight buckets; all else is as lakebed has it by default."""

    packages = ("lakebed", "pyspark", "pyarrow")
    settings = (
        "merge-on-read, bucket index of 8 buckets, ordering column, metadata table; lookups by `t.get`; defaults: zstd"
        " of level 1, writes clean, archive, and compact file slices by what their logs weigh"
    )
    table: lakebed.Table
    columns: list[str]
    since: str

    def __init__(self) -> None:
        super().__init__({})

    def load(self) -> None:
        self.columns = self.rows.columns
        words: dict[str, Any] = {"key": KEY, "ordering": ORDERING, "type": "mor", "index": "bucket", "buckets": 8}
        self.table = lakebed.create(self.path, self.rows, spark=self.spark, **words)
        self.since = self.table.bulk_insert(self.rows).checkpoint

    def upsert(self) -> None:
        self.services = len(self.table.upsert(self.rows).services)

    def delete(self) -> None:
        self.table.delete(self.rows.select(KEY))

    def merge(self) -> None:
        merge = self.table.merge(self.rows).when_matched_update({"fare": "t.fare + s.fare", "ts": "s.ts"})
        merge.when_not_matched_insert().execute()

    def incremental(self) -> None:
        self._consume(self.table.changes(self.since, columns=self.columns).to_spark())

    def lookup(self) -> None:
        self.result = self.table.get(self.keys(), columns=self.columns)

    def digest(self, of: str) -> list[int]:
        if of == "result" and not hasattr(self.result, "selectExpr"):
            self.result = self.spark.createDataFrame(self.result)
        return super().digest(of)

    def frame(self) -> Any:
        return self.table.scan(columns=self.columns).to_spark()
