"""The same writes through Spark and in this process give the same table."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakebed

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("v", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(12, 2)),
        ("tags", pa.list_(pa.string())),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
DROP_KNOWN = {"hoodie.datasource.write.insert.drop.duplicates": True}


def batch(chance: random.Random, ids: range) -> pa.Table:
    """Rows with duplicates, deletes and nulls; two of one key never tie."""
    rows: list[dict[str, Any]] = []
    for n, i in enumerate(chance.choices(ids, k=120)):
        rows.append(
            {
                "id": i,
                "city": ["oslo", "rome", None, "a b/c"][i % 4],
                "v": f"v{chance.randrange(9)}",
                "ts": chance.randrange(1000) * 1_000_000 + n,
                "price": None if i % 7 == 0 else f"{chance.randrange(9999) / 100:.2f}",
                "tags": None if i % 5 == 0 else [f"t{i}", None],
                "_hoodie_is_deleted": chance.random() < 0.1,
            }
        )
    columns = [
        pa.array([r["price"] for r in rows], pa.string()).cast(f.type)
        if f.name == "price"
        else pa.array([r[f.name] for r in rows], f.type)
        for f in SCHEMA
    ]
    return pa.table(columns, schema=SCHEMA)


def rows_of(table: pa.Table) -> list[str]:
    names = [f.name for f in SCHEMA]
    return sorted(repr(list(r.values())) for r in table.select(names).to_pylist())


def counts(result: lakebed.WriteResult) -> tuple[int, int, int, int]:
    return result.rows, result.inserted, result.updated, result.deleted


@pytest.mark.parametrize("partition_by", [None, "city"])
@pytest.mark.parametrize("index", ["bucket", "simple", "global_simple"])
def test_same_history_same_table(spark: SparkSession, tmp_path: Path, index: str, partition_by: str | None):
    def create(name: str, session: SparkSession | None) -> lakebed.Table:
        return lakebed.create(
            str(tmp_path / name),
            SCHEMA,
            key="id",
            partition_by=partition_by,
            ordering="ts",
            index=index,
            buckets=5 if index == "bucket" else None,
            spark=session,
            properties={"hoodie.datasource.write.partitionpath.urlencode": True},
        )

    local, distributed = create("local", None), create("spark", spark)
    chance = random.Random(7)
    for n, (verb, data, options) in enumerate(
        [
            ("bulk_insert", batch(chance, range(40)).slice(0, 1), None),
            ("upsert", batch(chance, range(80)), None),
            ("upsert", batch(chance, range(40, 160)), None),
            ("insert", batch(chance, range(100, 220)), DROP_KNOWN),
        ]
    ):
        frame = spark.createDataFrame(data).repartition(3)  # pyright: ignore[reportArgumentType]
        mine = getattr(local, verb)(data, options=options)
        theirs = getattr(distributed, verb)(frame, options=options)
        if verb != "insert":
            assert counts(mine) == counts(theirs), f"step {n}"
        assert mine.rows == theirs.rows == data.num_rows, f"step {n}"
        stored = rows_of(local.scan().to_arrow())
        if verb == "insert":  # which of two new rows of one key comes first is Spark's to choose without a tie-break
            assert len(stored) == distributed.count()
            continue
        assert rows_of(distributed.scan().to_arrow()) == stored, f"step {n}"
        assert rows_of(distributed.scan().to_spark().toArrow()) == stored, f"step {n}"
    for what in ({"keys": [3, 5, 8]}, {"where": "v = 'v1'"}):
        counted = [table.delete(**what, dry_run=True).deleted for table in (local, distributed)]
        assert [table.delete(**what).deleted for table in (local, distributed)] == counted
        assert counted[0] == counted[1]


@pytest.mark.parametrize("java", [True, False], ids=["java", "no java"])
@pytest.mark.parametrize("index", ["bucket", "record_index", "simple"])
def test_text_keys_of_every_kind_get_the_same_place(
    spark: SparkSession, tmp_path: Path, index: str, java: bool, monkeypatch: pytest.MonkeyPatch
):
    """Also keys that Hudi's parser takes for lists of fields, and where the platform lets SQL call no Java."""
    from lakebed.engine import spark_columns

    monkeypatch.setitem(spark_columns._allowed, spark, java)
    keys = [f"k{n}" for n in range(40)] + ["id:1,id:2", "a,b:c", "x:1,id:7,id:8", ",:", "é,id:ü", "😀:,id:😀"]
    rows = pa.table({"id": keys, "n": range(len(keys)), "ts": [1] * len(keys)})
    again = rows.set_column(1, "n", pa.array(range(100, 100 + len(keys)))).slice(30)
    placed: list[list[tuple[Any, ...]]] = []
    for name, session in (("spark", spark), ("local", None)):
        t = lakebed.create(
            str(tmp_path / name),
            rows,
            key="id",
            ordering="ts",
            index=index,
            indexes=["record_index"] if index == "record_index" else [],
            buckets=4 if index == "bucket" else None,
        )
        for data in (rows, again):
            t = lakebed.open(str(tmp_path / name), spark=session)
            t.upsert(data if session is None else session.createDataFrame(data))
        stored = t.scan(meta=True).to_arrow().sort_by("id")
        buckets = [n[:8] if index == "bucket" else "" for n in stored.column("_hoodie_file_name").to_pylist()]
        placed.append(list(zip(stored.column("id").to_pylist(), stored.column("n").to_pylist(), buckets, strict=True)))
    assert placed[0] == placed[1]
    expected = dict(zip(keys, range(len(keys)), strict=True)) | dict(zip(keys[30:], range(130, 146), strict=True))
    assert {row[0]: row[1] for row in placed[0]} == expected
