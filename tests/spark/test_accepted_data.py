"""What a write on Spark takes: void columns, names in another case, Arrow's many layouts, types that would change."""

from __future__ import annotations

from datetime import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakebed
from lakebed.errors import InvalidRecord, SchemaConflict, UnsupportedFeature
from lakebed.operations import hudi_job
from lakebed.read.spark import TIME_TYPE
from lakebed.table import Table

pytestmark = pytest.mark.rest

ON_SPARK = {"lakebed.local.rows": 0}
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int32())])
NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("l", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)


def new(folder: Path, spark: SparkSession, schema: pa.Schema = SCHEMA, **more: Any) -> Table:
    uri = str(folder / str(len(list(folder.iterdir()))))
    return lakebed.create(uri, schema, key="id", index="bucket", buckets=2, spark=spark, **more)


def rows_of(table: Table) -> list[dict[str, Any]]:
    """The rows as both engines read them."""
    here = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    there = sorted(table.scan().to_spark().toArrow().to_pylist(), key=lambda row: row["id"])
    assert here == there
    return here


def test_void_columns_take_the_tables_type(spark: SparkSession, tmp_path: Path) -> None:
    table = new(tmp_path, spark)
    void = spark.range(2).select("id", F.lit(None).alias("name"), F.lit(1).alias("n"))
    assert table.explain(upsert=void, options=ON_SPARK).engine == "spark"
    done = table.upsert(spark.sql("SELECT 1L AS id, NULL AS name, 1 AS n"), options=ON_SPARK)
    assert (done.inserted, done.schema_changes) == (1, ())
    assert rows_of(table) == [{"id": 1, "name": None, "n": 1}]
    assert table.schema == SCHEMA
    with pytest.raises(SchemaConflict, match="column extra has type null"):
        table.upsert(spark.sql("SELECT 1L AS id, 'a' AS name, 1 AS n, NULL AS extra"), options=ON_SPARK)
    with pytest.raises(InvalidRecord, match="null"):
        table.upsert(spark.sql("SELECT NULL AS id, 'a' AS name, 1 AS n"), options=ON_SPARK)
    assert table.count() == 1


def test_voids_inside_structs_lists_and_maps_take_the_tables_type(spark: SparkSession, tmp_path: Path) -> None:
    table = new(tmp_path, spark, NESTED)
    sql = "SELECT 1L AS id, named_struct('x', NULL, 'y', 't') AS s, array(NULL) AS l, map('k', NULL) AS m"
    table.upsert(spark.sql(sql), options=ON_SPARK)
    assert rows_of(table) == [{"id": 1, "s": {"x": None, "y": "t"}, "l": [None], "m": [("k", None)]}]
    assert [f.type for f in table.schema][1] == NESTED.field("s").type


def test_names_match_in_another_case(spark: SparkSession, tmp_path: Path) -> None:
    table = new(tmp_path, spark, partition_by="name")
    table.upsert(spark.sql("SELECT 1L AS ID, 'a' AS Name, 1 AS N"), options=ON_SPARK)
    assert rows_of(table) == [{"id": 1, "name": "a", "n": 1}]
    assert table.delete(spark.sql("SELECT 1L AS ID, 'a' AS NAME"), options=ON_SPARK).deleted == 1


def test_arrow_data_too_big_for_one_process_comes_in_every_layout(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hudi_job, "IN_PROCESS_BYTES", 0)
    coded = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array(["a"], pa.string_view()))
    columns = {
        "id": pa.array([1, 2]),
        "coded": coded,
        "runs": pa.RunEndEncodedArray.from_arrays([1, 2], ["a", None]),
        "views": pa.array(["a", None], pa.string_view()),
        "lists": pa.array([["a"], None], pa.list_view(pa.string_view())),
        "large": pa.array([["a"], None], pa.large_list_view(pa.string())),
        "coded_lists": pa.ListArray.from_arrays([0, None, 1], pa.array(["a"]).dictionary_encode()),
        "untyped": pa.nulls(2),
        "inside": pa.array([{"x": 5}, None], pa.struct([pa.field("x", pa.int64(), nullable=False)])),
    }
    texts, one = pa.string(), pa.list_(pa.string())
    kinds = [pa.int64(), texts, texts, texts, one, one, one, pa.int32(), columns["inside"].type]
    table = new(tmp_path, spark, pa.schema(list(zip(columns, kinds, strict=True))))
    plan = table.explain(upsert=pa.table(columns))
    assert plan.engine == "spark"
    table.upsert(pa.table(columns))
    first = dict.fromkeys(columns, "a") | {"id": 1, "lists": ["a"], "large": ["a"], "coded_lists": ["a"]}
    first |= {"untyped": None, "inside": {"x": 5}}
    assert rows_of(table) == [first, dict.fromkeys(columns) | {"id": 2}]


def test_times_of_a_day_are_written_in_this_process_where_spark_has_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hudi_job, "IN_PROCESS_BYTES", 0)
    table = new(tmp_path, spark, pa.schema([("id", pa.int64()), ("t", pa.time64("us"))]), type="mor")
    data = pa.table({"id": [1], "t": pa.array([1999], pa.time64("ns"))})
    plan = table.explain(upsert=data)
    assert plan.engine == "local"
    assert "Arrow's time" in str(plan)
    table.upsert(data)
    here = [{"id": 1, "t": time(0, 0, 0, 1)}]
    assert table.scan().to_arrow().to_pylist() == here
    with pytest.raises(UnsupportedFeature, match="column t holds times") as refused:
        table.scan().to_spark()
    assert TIME_TYPE in refused.value.hint
    spark.conf.set(TIME_TYPE, "true")
    try:
        table.upsert(spark.sql("SELECT 2L AS id, TIME'12:00:01' AS t"), options=ON_SPARK)
        there = [*here, {"id": 2, "t": time(12, 0, 1)}]
        assert rows_of(table) == there
        table.upsert(spark.sql("SELECT 2L AS id, TIME'12:00:01' AS t"), options=ON_SPARK)
        assert rows_of(table) == there
        read = spark.read.format("lakebed").load(table.uri)
        assert sorted(tuple(row) for row in read.collect()) == [tuple(row.values()) for row in there]
    finally:
        spark.conf.unset(TIME_TYPE)


def test_types_change_on_spark_only_as_the_option_says(spark: SparkSession, tmp_path: Path) -> None:
    table = new(tmp_path, spark)
    table.upsert(spark.sql("SELECT 1L AS id, 'a' AS name, 1 AS n"), options=ON_SPARK)
    wider = spark.sql("SELECT 2L AS id, 'b' AS name, 1099511627776L AS n")
    with pytest.raises(SchemaConflict, match=r"column n is INT.*CAST\(n AS INT\).*lakebed.write.evolution=widen"):
        table.upsert(wider, options=ON_SPARK)
    with pytest.raises(SchemaConflict, match="extra"):
        table.upsert(wider.selectExpr("id", "name", "1 AS n", "1 AS extra"), options=ON_SPARK | {EVOLUTION: "strict"})
    assert table.count() == 1
    done = table.upsert(wider, options=ON_SPARK | {EVOLUTION: "widen"})
    assert done.schema_changes == ("column n is BIGINT now, it was INT",)
    more = spark.sql("SELECT 3L AS id, 'c' AS name, 3L AS n, 'x' AS extra")
    assert table.upsert(more, options=ON_SPARK).schema_changes == ("column extra is new (STRING)",)
    assert [tuple(row.values()) for row in rows_of(table)] == [
        (1, "a", 1, None),
        (2, "b", 1 << 40, None),
        (3, "c", 3, "x"),
    ]


EVOLUTION = "lakebed.write.evolution"


def test_elements_that_are_never_null(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("l", pa.list_(pa.field("element", pa.int32(), nullable=False))),
            ("m", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
            ("s", pa.struct([pa.field("x", pa.int64(), nullable=False)])),
            ("deep", pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int32(), nullable=False)]), False))),
        ]
    )
    rows = [
        {"id": 1, "l": [1, 2], "m": [("k", 3)], "s": {"x": 4}, "deep": [{"x": 5}]},
        {"id": 2, "l": None, "m": None, "s": None, "deep": None},
        {"id": 3, "l": [], "m": [], "s": {"x": 6}, "deep": []},
    ]
    sql = (
        "SELECT id, if(id = 2, NULL, slice(array(1, 2), 1, if(id = 1, 2, 0))) AS l,"
        " if(id = 2, NULL, map_filter(map('k', 3L), (k, v) -> id = 1)) AS m,"
        " if(id = 2, NULL, named_struct('x', if(id = 1, 4L, 6L))) AS s,"
        " if(id = 2, NULL, slice(array(named_struct('x', 5)), 1, if(id = 1, 1, 0))) AS deep FROM range(1, 4)"
    )
    data = pa.Table.from_pylist(rows, schema)
    for made_from, given, options in (
        (schema, data, {}),
        (schema, spark.sql(sql), ON_SPARK),
        (spark.sql(sql), spark.sql(sql), ON_SPARK),
        (spark.sql(sql), data, {}),
    ):
        table = new(tmp_path, spark, made_from, type="mor")
        table.upsert(given, options=options)
        assert rows_of(table) == rows
        table.upsert(given, options=options)
        assert rows_of(table) == rows
        assert any(file_slice.log_files for file_slice in table.files)
        read = spark.read.format("lakebed").load(table.uri)
        assert sorted(read.toArrow().to_pylist(), key=lambda row: row["id"]) == rows
        assert read.filter("size(l) = 2").select("s.x").collect()[0].x == 4


@pytest.mark.parametrize("type", ["cow", "mor"])
def test_lists_of_lists_may_all_be_empty(spark: SparkSession, tmp_path: Path, type: str) -> None:
    """Spark gives no offsets for inner lists where there are none, and Arrow dies of looking for the first."""
    lists = pa.list_(pa.list_(pa.string()))
    maps = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int32()))]))
    table = new(tmp_path, spark, pa.schema([("id", pa.int64()), ("l", lists), ("m", maps)]), type=type)
    names = "cast(array() AS array<array<string>>) AS l, cast(array() AS array<struct<m: map<string, int>>>) AS m"
    empty = spark.sql(f"SELECT id, {names} FROM range(0, 3, 1, 2)")
    assert table.upsert(empty, options=ON_SPARK).inserted == 3
    assert table.upsert(empty.limit(2), options=ON_SPARK).rows == 2
    assert table.upsert(empty.limit(1)).rows == 1
    assert rows_of(table) == [{"id": n, "l": [], "m": []} for n in range(3)]
