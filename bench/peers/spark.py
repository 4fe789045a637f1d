"""What the sides on Spark have in common: DataFrames come and go, and reads are consumed without a result."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from serve import local_session

from .base import DAYS, KEY, Peer, quoted

DIGEST = (
    "count(*)",
    f"count(distinct {KEY})",
    "coalesce(sum(ts & 4294967295), 0)",
    "coalesce(sum(cast(round(fare * 100) as bigint)), 0)",
    "coalesce(sum(if(status = 'done', 1, 0)), 0)",
)


class SparkPeer(Peer):
    """A table of a local Spark session."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        self.spark: Any = self.session(settings)
        self.rows: Any = None
        self.result: Any = None

    def session(self, settings: Mapping[str, str]) -> Any:
        return local_session(settings)

    def about(self) -> dict[str, Any]:
        found = super().about()
        return {**found, "versions": {**found["versions"], "spark": self.spark.version}}

    def give(self, data: str) -> None:
        self.use(self.spark.read.parquet(data))

    def use(self, rows: Any) -> None:
        self.rows = rows
        rows.createOrReplaceTempView("changes")

    @abstractmethod
    def frame(self) -> Any:
        """The table as a DataFrame of the columns of the rows."""

    def keys(self) -> list[str]:
        return [row[0] for row in self.rows.select(KEY).collect()]

    def lookup(self) -> None:
        self._collect(self.frame().where(f"{KEY} IN ({quoted(self.keys())})"))

    def range(self) -> None:
        self._consume(self.frame().where(f"day >= DATE '{DAYS[0]}' AND day <= DATE '{DAYS[1]}'"))

    def scan(self) -> None:
        self._consume(self.frame())

    def commits(self, most: int, seconds: float) -> int:
        ends, schema = time.monotonic() + seconds, self.rows.schema
        rows = self.rows.collect()
        for number in range(most):
            self.use(self.spark.createDataFrame(rows[number * 10 : number * 10 + 10], schema))
            self.upsert()
            if time.monotonic() > ends:
                return number + 1
        return most

    def digest(self, of: str) -> list[int]:
        rows = self.frame() if of == "table" else self.result
        return [int(value) for value in rows.selectExpr(*DIGEST).collect()[0]]

    def _collect(self, rows: Any) -> None:
        self.result = rows
        rows.collect()

    def _consume(self, rows: Any) -> None:
        self.result = rows
        rows.write.format("noop").mode("overwrite").save()


class SqlPeer(SparkPeer):
    """A format whose upserts are MERGE statements. `name` is how statements call the table."""

    name: str

    def upsert(self) -> None:
        self._merge("WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")

    def delete(self) -> None:
        self._merge("WHEN MATCHED THEN DELETE")

    def merge(self) -> None:
        self._merge("WHEN MATCHED THEN UPDATE SET fare = t.fare + s.fare, ts = s.ts WHEN NOT MATCHED THEN INSERT *")

    def frame(self) -> Any:
        return self.spark.table(self.name)

    def _merge(self, clauses: str) -> None:
        self.spark.sql(f"MERGE INTO {self.name} AS t USING changes AS s ON t.{KEY} = s.{KEY} {clauses}").collect()


def jars() -> str:
    """The jars that page.py has fetched for this side."""
    return os.environ["BENCH_JARS"]
