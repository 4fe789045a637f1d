"""What `test_connect` does through a Spark Connect session: a process of its own, since one holds a single kind of
session. Arguments: the server's URL, a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

import lakebed
from lakebed.read import spark_untouched

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())])
Model = dict[int, tuple[Any, ...]]


def rows(ids: range, v: str, ts: int) -> list[tuple[Any, ...]]:
    return [(i, f"c{i % 3}", v, ts) for i in ids]


def frame(spark: SparkSession, ids: range, v: str, ts: int) -> Any:
    """From Python's own rows: nothing of it needs a gateway."""
    return spark.createDataFrame(rows(ids, v, ts), "id long, city string, v string, ts long").repartition(3)


def model(ids: range, v: str, ts: int) -> Model:
    return {row[0]: row for row in rows(ids, v, ts)}


def check(table: lakebed.Table, expected: Model) -> None:
    """The same through Spark and in this process."""
    want = sorted(expected.values())
    assert sorted(tuple(r) for r in table.scan().to_spark().collect()) == want
    assert sorted(tuple(r.values()) for r in table.scan().to_arrow().to_pylist()) == want
    assert table.count() == len(want)


def make(spark: SparkSession, folder: Path, name: str, index: str, **more: Any) -> lakebed.Table:
    more |= {"buckets": 4} if index == "bucket" else {}
    return lakebed.create(
        str(folder / name), SCHEMA, key="id", ordering="ts", index=index, spark=spark, partition_by="city", **more
    )


def upserts(spark: SparkSession, table: lakebed.Table) -> tuple[Model, list[lakebed.WriteResult]]:
    first = table.upsert(frame(spark, range(60), "a", 1))
    assert (first.rows, first.inserted) == (60, 60)
    plan = table.explain(upsert=frame(spark, range(40, 90), "b", 2))
    assert (plan.rows, table.count()) == (50, 60)
    second = table.upsert(frame(spark, range(40, 90), "b", 2))
    assert (second.inserted, second.updated) == (30, 20)
    state = model(range(60), "a", 1) | model(range(40, 90), "b", 2)
    check(table, state)
    return state, [first, second]


def bucket(spark: SparkSession, folder: Path) -> None:
    table = make(spark, folder, "bucket", "bucket")
    state, (first, second) = upserts(spark, table)
    assert table.insert(frame(spark, range(90, 100), "c", 3)).inserted == 10
    assert table.bulk_insert(frame(spark, range(100, 110), "d", 3)).inserted == 10
    state |= model(range(90, 100), "c", 3) | model(range(100, 110), "d", 3)
    changed = table.changes(second.checkpoint)
    assert sorted(r.id for r in changed.to_spark().collect()) == list(range(90, 110))

    assert table.delete([1, 2, 3]).deleted == 3
    assert table.delete(frame(spark, range(10, 20), "", 0).select("id")).deleted == 10
    assert table.delete(where="v = 'c'").deleted == 10
    for i in (1, 2, 3, *range(10, 20), *range(90, 100)):
        del state[i]
    check(table, state)

    filtered = table.scan(columns=["id"], where="id >= 100 and city = 'c1'").to_spark()
    assert sorted(r.id for r in filtered.collect()) == [100, 103, 106, 109]
    assert table.scan(as_of=first.instant).to_spark().count() == 60
    assert table.insert_overwrite(frame(spark, range(7), "e", 4), "table").inserted == 7
    check(table, model(range(7), "e", 4))

    read = spark.read.format("lakebed").load(table.uri)
    assert sorted(tuple(r) for r in read.collect()) == rows(range(7), "e", 4)
    assert sorted(r.id for r in read.filter("city = 'c1' and id > 1").collect()) == [4]


def untouched(spark: SparkSession, folder: Path) -> None:
    """Of a merge-on-read table only the rows that logs touch come through Python."""
    table = make(spark, folder, "untouched", "bucket", type="mor", properties={"hoodie.compact.inline": False})
    table.bulk_insert(frame(spark, range(200), "a", 1))
    table.upsert(frame(spark, range(190, 210), "b", 2))
    with patch.multiple(spark_untouched, _MIN_BYTES=0, _LOGS_OF_BASE=1e9):
        assert "that no log record touches" in table.scan().explain()
        check(table, model(range(200), "a", 1) | model(range(190, 210), "b", 2))


def simple(spark: SparkSession, folder: Path) -> None:
    table = make(spark, folder, "simple", "simple")
    state, _ = upserts(spark, table)
    assert table.delete(frame(spark, range(10, 50), "", 0)).deleted == 40
    check(table, {i: row for i, row in state.items() if not 10 <= i < 50})


def job(spark: SparkSession, folder: Path) -> None:
    """A Hudi job's options, and the session found without being named."""
    uri = str(folder / "job")
    options = {
        "hoodie.table.name": "job",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.precombine.field": "ts",
    }
    for ids, v, ts in ((range(20), "a", 1), (range(10, 30), "b", 2)):
        lakebed.write(frame(spark, ids, v, ts), uri, options)
    found = lakebed.open(uri).scan().to_spark().collect()
    assert sorted(tuple(r) for r in found) == sorted((model(range(20), "a", 1) | model(range(10, 30), "b", 2)).values())


def given(spark: SparkSession, folder: Path) -> None:
    """Tables made from a DataFrame, or its schema; columns of nothing but null, elements that are never null."""
    sql = "SELECT 1L AS id, array(1, 2) AS l, map('k', named_struct('x', 3)) AS m, named_struct('x', 4) AS s, 'a' AS v"
    row = {"id": 1, "l": [1, 2], "m": [("k", {"x": 3})], "s": {"x": 4}, "v": "a"}
    data = spark.sql(sql)
    for name, made_from in (("frame", data), ("schema", data.schema)):
        uri = str(folder / f"given-{name}")
        table = lakebed.create(uri, made_from, key="id", index="bucket", buckets=1, type="mor", spark=spark)
        assert table.upsert(data).inserted == 1
        assert table.upsert(spark.sql("SELECT 1L AS ID, NULL AS l, NULL AS m, NULL AS s, 'b' AS V")).rows == 1
        assert table.scan().to_arrow().to_pylist() == [dict.fromkeys(row) | {"id": 1, "v": "b"}]
        table.upsert(data)
        assert table.scan().to_arrow().to_pylist() == [row]
        assert table.scan(columns=["l", "v"]).to_spark().toArrow().to_pylist() == [{"l": [1, 2], "v": "a"}]
        read = spark.read.format("lakebed").load(uri)
        assert read.select("l", "s.x", "v").toArrow().to_pylist() == [{"l": [1, 2], "x": 4, "v": "a"}]
    assert lakebed.create(str(folder / "given-auto"), data, key="id").schema.names == list(row)


def joined(spark: SparkSession, folder: Path) -> None:
    """Bucket by bucket, in tasks: the rows of a join of the two in this process."""
    left = make(spark, folder, "left", "bucket")
    left.upsert(frame(spark, range(40), "a", 1))
    right = lakebed.create(str(folder / "right"), SCHEMA, key="id", index="bucket", buckets=2, spark=spark)
    right.upsert(frame(spark, range(30, 60), "b", 2))
    hows: list[tuple[Literal["inner", "left", "anti", "full"], range]] = [
        ("inner", range(30, 40)),
        ("left", range(40)),
        ("anti", range(30)),
        ("full", range(60)),
    ]
    for how, ids in hows:
        join = left.join(right.scan(columns=["id", "ts"]), on="id", how=how, columns=["id"])
        assert sorted(row.id for row in join.to_spark().collect()) == list(ids), how
        assert sorted(join.to_arrow()["id"].to_pylist()) == list(ids), how
    with_columns = left.join(right, on="id", columns=["id", "v", "v_right"])
    expected = sorted((i, "a", "b") for i in range(30, 40))
    assert sorted(tuple(row) for row in with_columns.to_spark().collect()) == expected


def statements(spark: SparkSession, folder: Path) -> None:
    """Queries, MERGE, UPDATE and DELETE by `lakebed.sql`, and the views and table functions of
    `lakebed.spark.create_views`."""
    trips, cities = make(spark, folder, "trips", "bucket"), str(folder / "cities")
    lakebed.load(cities, {"city": ["c0", "c1", "c2"], "country": ["no", "it", "fr"]}, key="city", index="simple")
    state, (first, _) = upserts(spark, trips)
    names = {"trips": trips, "cities": cities}
    text = "SELECT c.country, count(*) n FROM trips t JOIN cities c ON t.city = c.city WHERE t.id < :most GROUP BY 1"
    counted: Any = lakebed.sql(text, names, {"most": 60}, spark=spark)
    assert sorted(tuple(row) for row in counted.collect()) == [("fr", 20), ("it", 20), ("no", 20)]
    earlier: Any = lakebed.sql(f"SELECT max(v) FROM trips VERSION AS OF '{first.instant}'", names)
    assert earlier.collect()[0][0] == "a"

    source = frame(spark, range(85, 95), "c", 3)
    merge = """MERGE INTO trips t USING source s ON t.id = s.id AND t.city = s.city
        WHEN MATCHED THEN UPDATE SET v = upper(s.v), ts = s.ts WHEN NOT MATCHED THEN INSERT *"""
    lakebed.sql(merge, {**names, "source": source})
    state |= model(range(85, 90), "C", 3) | model(range(90, 95), "c", 3)
    lakebed.sql("UPDATE trips SET v = concat(v, '!'), ts = ts + 1 WHERE id < 2", names)
    state |= model(range(2), "a!", 2)
    lakebed.sql("DELETE FROM trips WHERE id BETWEEN 10 AND 19", names)
    check(trips, {i: row for i, row in state.items() if not 10 <= i < 20})

    lakebed.spark.create_views(spark, {"trips": trips})
    assert spark.sql("SELECT sum(ts) FROM trips WHERE id < 3").collect()[0][0] == 5
    changed = spark.sql(f"SELECT id FROM lakebed_changes('trips', '{first.checkpoint}')").collect()
    assert {row.id for row in changed} == {0, 1, *range(40, 95)}


def attached(spark: SparkSession, folder: Path) -> None:
    """A warehouse attached to the session: statements, names, writers and streams; then everything is as before."""
    from pyspark.sql.connect.readwriter import DataFrameReader, DataFrameWriter
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    objects = (spark, spark.catalog, DataFrameReader, DataFrameWriter, DataStreamWriter)
    before = [dict(vars(one)) for one in objects]
    w = lakebed.Warehouse(str(folder / "lake"))
    w.load("sales.trips", frame(spark, range(9), "a", 1), key="id")
    lakebed.spark.attach(spark, w)
    source = frame(spark, range(8, 12), "b", 2)
    merge = """MERGE INTO sales.trips t USING {source} s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    merged = spark.sql(merge, source=source)
    assert merged.columns == ["num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows"]
    assert [tuple(row) for row in merged.collect()] == [(4, 1, 0, 3)]
    state = model(range(8), "a", 1) | model(range(8, 12), "b", 2)
    for read in (spark.sql("SELECT * FROM sales.trips"), spark.table("Sales.trips"), spark.read.table("sales.trips")):
        assert sorted(tuple(row) for row in read.collect()) == sorted(state.values())
    picked = spark.read.option("where", "id > 10").table("sales.trips")
    assert [row.id for row in picked.collect()] == [11]
    assert spark.catalog.tableExists("sales.trips")
    assert not spark.catalog.tableExists("sales.nope")
    spark.sql("DELETE FROM sales.trips WHERE id >= :least", {"least": 2})
    check(w.open("sales.trips", spark=spark), model(range(2), "a", 1))
    assert spark.sql("SELECT :a AS a", {"a": 1}).collect()[0].a == 1
    assert spark.sql("CREATE TABLE sales.made (id int) USING lakebed TBLPROPERTIES (primaryKey = 'id')").columns == []

    keyed = source.write.format("lakebed").option("hoodie.datasource.write.recordkey.field", "id")
    keyed.partitionBy("city").saveAsTable("sales.saved")
    for save in (lambda: keyed.saveAsTable("sales.saved"), lambda: keyed.mode("error").saveAsTable("sales.saved")):
        try:
            save()
        except lakebed.TableExists:
            continue
        raise AssertionError("a table was created twice")
    frame(spark, range(10, 14), "c", 3).write.mode("append").saveAsTable("sales.saved")
    frame(spark, range(20, 21), "d", 3).write.insertInto("sales.saved")
    saved = model(range(8, 10), "b", 2) | model(range(10, 14), "c", 3) | model(range(20, 21), "d", 3)
    check(w.open("sales.saved", spark=spark), saved)
    source.write.format("lakebed").option("key", "id").mode("overwrite").save(str(folder / "saved"))
    check(lakebed.open(str(folder / "saved"), spark=spark), model(range(8, 12), "b", 2))

    source.write.parquet(str(folder / "in"))
    stream = spark.readStream.schema(source.schema).parquet(str(folder / "in")).writeStream.format("lakebed")
    stream = stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    stream.toTable("sales.streamed", key="id").awaitTermination()
    check(w.open("sales.streamed", spark=spark), model(range(8, 12), "b", 2))
    source.write.mode("overwrite").saveAsTable("plain")
    assert spark.table("plain").count() == 4
    spark.sql("DROP TABLE plain")
    lakebed.spark.detach(spark)
    assert [dict(vars(one)) for one in objects] == before


def main(remote: str, folder: Path) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    before = dict(spark.conf.getAll)
    for step in (bucket, untouched, simple, job, given, joined, statements, attached):
        step(spark, folder)
    assert dict(spark.conf.getAll) == before, "the session's settings were changed"
    assert SparkContext._gateway is None, "a gateway was started"
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
