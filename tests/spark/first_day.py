"""What a new user who knows Hudi types in: the steps of its Spark quickstart in their order, on lakebed. Run by
`test_new_user.py` in an environment of its own; what came out goes to standard output as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import col

import lakebed
from lakebed.errors import LakebedError

COLUMNS = ["ts", "uuid", "rider", "driver", "fare", "city"]
TRIPS = [
    (1000, "u1", "rider-A", "driver-K", 19.5, "san_francisco"),
    (1001, "u2", "rider-C", "driver-M", 27.75, "san_francisco"),
    (1002, "u3", "rider-D", "driver-L", 33.5, "san_francisco"),
    (1003, "u4", "rider-F", "driver-P", 34.25, "sao_paulo"),
    (1004, "u5", "rider-J", "driver-T", 17.75, "chennai"),
]
OPERATION = "hoodie.datasource.write.operation"
# as the guide writes them: the table without a key first, then with one, then as the guides of 0.x had them
KEYLESS = {"hoodie.table.name": "trips_table", "hoodie.datasource.write.partitionpath.field": "city"}
MERGE_ON_READ = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
KEYED = KEYLESS | {
    "hoodie.datasource.write.recordkey.field": "uuid",
    "hoodie.datasource.write.precombine.field": "ts",
}
OLDER = KEYED | {
    "hoodie.datasource.write.table.name": "trips_table",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    OPERATION: "upsert",
    "hoodie.upsert.shuffle.parallelism": 2,
    "hoodie.insert.shuffle.parallelism": 2,
}


class Guide:
    """The guide's steps on one table; each gives what its query shows."""

    def __init__(self, spark: SparkSession, path: str, options: dict[str, Any]) -> None:
        self.spark, self.path, self.options = spark, path, options
        self.instants: list[str] = []

    def read(self, **options: Any) -> Any:
        # real Hudi's reads have its meta columns without being asked
        return self.spark.read.format("lakebed").options(**{"meta": "true", **options}).load(self.path)

    def write(self, rows: Any, mode: str, **more: Any) -> None:
        result = lakebed.write(rows, self.path, self.options | more, mode=mode)
        assert result is not None
        self.instants.append(result.instant)

    def fares(self, **options: Any) -> dict[str, float]:
        return {row.rider: row.fare for row in self.read(**options).collect()}

    def insert(self) -> dict[str, float]:
        self.write(self.spark.createDataFrame(TRIPS).toDF(*COLUMNS), "overwrite")
        self.read().createOrReplaceTempView("trips_table")
        dear = self.spark.sql("SELECT rider, fare FROM trips_table WHERE fare > 20.0 ORDER BY fare").collect()
        return {row.rider: row.fare for row in dear}

    def meta(self) -> list[Row]:
        return self.spark.sql(
            "SELECT _hoodie_record_key, _hoodie_partition_path FROM trips_table WHERE rider = 'rider-F'"
        ).collect()

    def update(self) -> dict[str, float]:
        self.write(self.read().filter("rider == 'rider-D'").withColumn("fare", col("fare") * 10), "append")
        return self.fares()

    def delete(self) -> dict[str, float]:
        self.write(self.read().filter("rider == 'rider-F'"), "append", **{OPERATION: "delete"})
        return self.fares()

    def time_travel(self) -> list[dict[str, float]]:
        first = self.instants[0]
        day = f"{first[:4]}-{first[4:6]}-{first[6:8]}"
        second = f"{day} {first[8:10]}:{first[10:12]}:{first[12:14]}.{first[14:17]}"
        return [self.fares(**{"as.of.instant": when}) for when in (first, second)]

    def incremental(self) -> dict[str, float]:
        self.read().createOrReplaceTempView("trips_table")
        commits = self.spark.sql("SELECT DISTINCT(_hoodie_commit_time) AS t FROM trips_table ORDER BY t").collect()
        begin = commits[len(commits) - 2].t
        return self.fares(
            **{"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": begin}
        )

    def changes(self) -> list[str]:
        asked = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.query.incremental.format": "cdc",
            "hoodie.datasource.read.begin.instanttime": "000",
        }
        changes = self.spark.read.format("lakebed").options(**asked).load(self.path)
        return sorted(f"{row.op} {json.loads(row.before or row.after)['rider']}" for row in changes.collect())

    def append(self) -> dict[str, float]:
        rows = [(1500, "u7", "rider-B", "driver-B", 40.5, "chennai")]
        self.write(self.spark.createDataFrame(rows).toDF(*COLUMNS), "append")
        return self.fares()

    def insert_overwrite(self) -> dict[str, float]:
        rows = [(2000, "u9", "rider-Z", "driver-Z", 50.5, "san_francisco")]
        self.write(self.spark.createDataFrame(rows).toDF(*COLUMNS), "append", **{OPERATION: "insert_overwrite"})
        return self.fares()


def refusal(write: Any) -> str:
    try:
        write()
    except LakebedError as error:
        return f"{type(error).__name__}: {error}"
    return "taken"


def walk_without_key(guide: Guide) -> dict[str, Any]:
    """What the guide does without a key: steps that go by keys are refused, and rows are deleted by a condition."""
    seen: dict[str, Any] = {
        "insert": guide.insert(),
        "update": refusal(guide.update),
        "delete": refusal(guide.delete),
        "payload": refusal(
            lambda: guide.write(guide.read(), "append", **{"hoodie.datasource.write.payload.class": "com.Own"})
        ),
        "refused": guide.fares(),
    }
    lakebed.open(guide.path, spark=guide.spark).delete(where="rider = 'rider-F'")
    return seen | {
        "by_condition": guide.fares(),
        "append": guide.append(),
        "incremental": guide.incremental(),
        "time_travel": guide.time_travel(),
        "insert_overwrite": guide.insert_overwrite(),
    }


def walk(spark: SparkSession, folder: str) -> dict[str, Any]:
    seen: dict[str, Any] = {"module": lakebed.__file__}
    for name, options in (("keyless", KEYLESS), ("keyless, merge-on-read", KEYLESS | MERGE_ON_READ)):
        seen[name] = walk_without_key(Guide(spark, f"{folder}/{name[-4:]}", options))
    for name, options in (("keyed", KEYED | {"hoodie.table.cdc.enabled": "true"}), ("older", OLDER)):
        guide = Guide(spark, f"{folder}/{name}", options)
        steps: list[Any] = [guide.insert, guide.meta, guide.update, guide.delete, guide.time_travel, guide.incremental]
        if name == "keyed":
            steps.append(guide.changes)
        seen[name] = {step.__name__: step() for step in (*steps, guide.insert_overwrite)}
    return seen


if __name__ == "__main__":
    session = SparkSession.builder.getOrCreate()
    print(json.dumps(walk(session, sys.argv[1])))
