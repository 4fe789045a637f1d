"""What a write costs, counted: shuffles in the plan, files opened, storage requests."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakebed
from lakebed.engine.base import GROUP
from lakebed.storage.opening import wrapping
from lakebed.testing import CountingStorage
from support.spark_plans import recorded_plans

EXCHANGE = re.compile(r"\bExchange\b")


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The physical plan of every DataFrame that an engine collects."""
    return recorded_plans(monkeypatch)


@pytest.mark.parametrize("partition_by", [None, "city"])
@pytest.mark.parametrize("verb", ["upsert", "bulk_insert", "delete"])
def test_a_bucket_write_is_one_job_with_one_exchange(
    spark: SparkSession, tmp_path: Path, plans: list[str], partition_by: str | None, verb: str
):
    rows = spark.range(100).selectExpr("id", "concat('c', id % 3) city", "id ts")
    t = lakebed.create(
        str(tmp_path / "t"), rows, key="id", partition_by=partition_by, ordering="ts", index="bucket", buckets=4
    )
    t.upsert(rows)
    plans.clear()
    getattr(t, verb)(rows.filter("id < 50"))
    assert [len(EXCHANGE.findall(plan)) for plan in plans] == [1]
    assert plans[0].count("MapInArrow") == 1
    assert "PythonUDF" not in plans[0]
    assert "ArrowEvalPython" not in plans[0]


@pytest.mark.parametrize("partition_by", [None, "city"])
@pytest.mark.parametrize("verb", ["upsert", "insert_overwrite"])
def test_a_write_under_consistent_hashing_is_one_job_with_one_exchange(
    spark: SparkSession, tmp_path: Path, plans: list[str], partition_by: str | None, verb: str
):
    rows = spark.range(100).selectExpr("id", "concat('c', id % 3) city", "id ts")
    t = lakebed.create(
        str(tmp_path / "t"),
        rows,
        key="id",
        partition_by=partition_by,
        ordering="ts",
        type="mor",
        index="consistent",
        buckets=4,
    )
    t.upsert(rows)
    plans.clear()
    # rows of a partition path that has no ring yet, too
    changed = rows.filter("id < 50").withColumn("city", F.expr("if(id < 5, 'c9', city)"))
    getattr(t, verb)(changed)
    assert [len(EXCHANGE.findall(plan)) for plan in plans] == [1], plans
    assert plans[0].count("MapInArrow") == 1
    # of the key, once
    assert plans[0].count("ArrowEvalPython") == 1
    stored = t.scan().to_arrow().to_pylist()
    kept = 50 if verb == "insert_overwrite" else 100
    assert len(stored) == (kept + 5 if partition_by and verb == "upsert" else 50 if verb == "insert_overwrite" else 100)


@pytest.mark.rest
def test_rows_during_a_pending_resize_are_written_by_the_same_one_job(
    spark: SparkSession, tmp_path: Path, plans: list[str]
):
    rows = spark.range(100).selectExpr("id", "concat('c', id % 2) city", "id ts")
    t = lakebed.create(
        str(tmp_path / "t"),
        rows,
        key="id",
        partition_by="city",
        merge="commit_time",
        type="mor",
        index="consistent",
        buckets=2,
    )
    t.upsert(rows)
    splits = {"hoodie.bucket.index.max.num.buckets": 4, "hoodie.parquet.max.file.size": 300}
    assert t.maintenance.cluster(plan_only=True, options=splits).planned is not None
    plans.clear()
    done = t.upsert(rows.filter("id < 40").withColumn("ts", F.lit(7)))
    assert (done.rows, done.updated) == (40, None)
    assert [len(EXCHANGE.findall(plan)) for plan in plans] == [1], plans
    assert {row["id"] for row in t.scan(where="ts = 7").to_arrow().to_pylist()} == set(range(40))
    t.maintenance.cluster()
    assert {row["id"] for row in t.scan(where="ts = 7").to_arrow().to_pylist()} == set(range(40))
    assert t.count() == 100


def test_a_bucket_upsert_opens_only_the_files_of_its_buckets(tmp_path: Path):
    rows = pa.table({"id": list(range(400)), "ts": [0] * 400})
    counting: list[CountingStorage] = []

    def wrap(storage: object) -> CountingStorage:
        counting.append(CountingStorage(storage))  # pyright: ignore[reportArgumentType]
        return counting[-1]

    t = lakebed.create(str(tmp_path / "t"), rows, key="id", ordering="ts", index="bucket", buckets=16)
    t.upsert(rows)
    with wrapping(wrap):  # pyright: ignore[reportArgumentType]
        t = lakebed.open(str(tmp_path / "t"))
        result = t.upsert(pa.table({"id": [1, 2, 3], "ts": [5, 5, 5]}))
    touched = {name.rpartition("/")[2].split("_")[0] for name in result.files}
    opened = {p.rpartition("/")[2].split("_")[0] for c in counting for p in c.opened if p.endswith(".parquet")}
    assert opened == touched
    assert len(touched) <= 3


@pytest.mark.parametrize("key", ["name", "id"])
def test_a_key_that_is_a_text_column_is_not_sent_twice(spark: SparkSession, tmp_path: Path, plans: list[str], key: str):
    rows = spark.range(100).selectExpr("id", "concat('n', id) name", "id ts")
    t = lakebed.create(str(tmp_path / "t"), rows, key=key, ordering="ts", index="bucket", buckets=4)
    t.upsert(rows)
    sent = re.search(r"MapInArrow run\(([^)]*)\)", plans[-1])
    assert sent is not None
    names = [c.split("#")[0] for c in sent.group(1).split(", ")]
    assert names == ["_hoodie_record_key"] * (key == "id") + [GROUP, "id", "name", "ts"]
    stored = t.scan(meta=True).to_arrow()
    assert stored.column("_hoodie_record_key").to_pylist() == [str(v) for v in stored.column(key).to_pylist()]
    assert set(stored.column("_hoodie_partition_path").to_pylist()) == {""}
    assert sorted(stored.column("id").to_pylist()) == list(range(100))
