"""VARIANT columns on Spark: Spark's own type in and out, wherever rows go through Python or Spark's reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakebed
from lakebed import variant
from lakebed.errors import SchemaConflict
from support.variant_tables import shredded_table

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.string()), ("v", variant.TYPE), ("ts", pa.int64())])
FIRST = {"a": {"b": 1, "a": "x"}, "b": [1, 2], "c": None, "d": {"a": {"k": [1, {"z": None}]}}}


def frame_of(spark: Any, model: dict[str, Any], ts: int) -> Any:
    texts = [(key, None if value is None else json.dumps(value)) for key, value in model.items()]
    frame = spark.createDataFrame(texts, "id string, j string")
    return frame.selectExpr("id", "parse_json(j) AS v", f"{ts}L AS ts")


def values(frame: Any) -> dict[str, Any]:
    """The documents of a DataFrame with variants, by their keys, as Spark reads them."""
    assert frame.schema["v"].dataType.typeName() == "variant"
    rows = frame.selectExpr("id", "to_json(v) AS j").collect()
    return {row["id"]: None if row["j"] is None else json.loads(row["j"]) for row in rows}


@pytest.mark.parametrize(("kind", "index"), [("cow", "bloom"), ("mor", "bucket"), ("mor", "record")])
def test_variants_of_spark_are_written_and_read(
    kind: Literal["cow", "mor"], index: str, spark: Any, tmp_path: Path
) -> None:
    model = dict(FIRST)
    logged = {"hoodie.table.cdc.enabled": "true"}
    layout: Any = {"ordering": "ts", "type": kind, "index": index, "properties": logged}
    table = lakebed.create(str(tmp_path / "t"), frame_of(spark, model, 1), key="id", **layout)
    assert (table.schema.field("v").metadata or {})[b"hudi_type"] == b"VARIANT"
    table.upsert(frame_of(spark, model, 1))
    assert values(table.scan().to_spark()) == model

    changed = {"a": {"new": True}, "e": 5, "f": None}
    table.upsert(frame_of(spark, changed, 2))
    model |= changed
    assert values(table.scan().to_spark()) == model
    in_process = table.scan().to_arrow()
    assert dict(zip(in_process["id"].to_pylist(), variant.decode(in_process["v"]), strict=True)) == model

    table = lakebed.open(table.uri, spark=spark)
    changed = {"b": {"m": 1}, "z": "new"}
    merge = table.merge(frame_of(spark, changed, 3))
    merge.when_matched_update({"v": "s.v", "ts": "s.ts"}).when_not_matched_insert().execute()
    model |= changed
    table.update({"v": "parse_json('{\"u\":2}')", "ts": "ts + 9"}, where="id = 'd'")
    model["d"] = {"u": 2}
    table.delete(spark.createDataFrame([("a",)], "id string"))
    del model["a"]
    assert values(table.scan().to_spark()) == model
    assert values(table.changes("0").to_spark()) == model
    assert values(table.scan(where="variant_get(v, '$.m', 'int') = 1").to_spark()) == {"b": {"m": 1}}
    images = table.cdc("0").to_spark().where("op <> 'd'").selectExpr("after.id AS id", "after.v AS v", "after.ts AS ts")
    assert values(images.where("id = 'b' AND ts = 3")) == {"b": {"m": 1}}
    assert values(images.where("id = 'c'")) == {"c": None}
    if kind == "mor":
        table.maintenance.compact()
    else:
        table.maintenance.cluster()
    assert values(table.scan().to_spark()) == model
    # the types of a table that is read go into another one
    copy = lakebed.create(str(tmp_path / "copy"), table.scan().to_spark(), key="id")
    copy.bulk_insert(table.scan().to_spark())
    assert values(copy.scan().to_spark()) == model


def test_the_data_source_and_sql_have_the_type_variant(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = lakebed.create(uri, SCHEMA, key="id", ordering="ts", type="mor", index="bucket", buckets=2)
    frame_of(spark, FIRST, 1).write.format("lakebed").mode("append").save(uri)
    model = FIRST | {"a": [None]}
    lakebed.sql("INSERT INTO t VALUES ('a', parse_json('[null]'), 2L)", tables={"t": table}, spark=spark)
    assert values(spark.read.format("lakebed").load(uri)) == model
    queried: Any = lakebed.sql("SELECT id, v FROM t WHERE id <> 'b'", tables={"t": table}, spark=spark)
    assert values(queried) == {key: value for key, value in model.items() if key != "b"}


def test_rows_with_variants_are_joined_by_buckets(spark: Any, tmp_path: Path) -> None:
    sides = [
        lakebed.create(str(tmp_path / name), SCHEMA, key="id", index="bucket", buckets=2, type=kind)
        for name, kind in (("cow", "cow"), ("mor", "mor"))
    ]
    for side in sides:
        side.upsert(frame_of(spark, FIRST, 1))
        side.upsert(frame_of(spark, {"a": 7}, 2))
    one, other = (lakebed.open(side.uri, spark=spark).scan().to_spark(bucketed=True) for side in sides)
    assert values(one) == values(other) == FIRST | {"a": 7}
    joined = one.join(other.selectExpr("id", "v AS w", "_bucket"), ["id", "_bucket"])
    assert values(joined.select("id", "v")) == FIRST | {"a": 7}
    assert values(joined.selectExpr("id", "w AS v")) == FIRST | {"a": 7}


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_shredded_variants_are_read(kind: Literal["cow", "mor"], spark: Any, tmp_path: Path) -> None:
    rows = [{"a": n, "b": f"t{n}", "rest": [n]} if n % 3 else {"a": "text"} for n in range(50)]
    table = shredded_table(tmp_path, rows, kind)
    assert values(table.scan().to_spark()) == dict(enumerate(rows))
    table.upsert(pa.table({"id": [1], "v": variant.encode([{"a": -1}]), "note": ["n"]}))
    rows[1] = {"a": -1}
    assert values(lakebed.open(table.uri).scan().to_spark()) == dict(enumerate(rows))


def test_a_variant_inside_another_type_is_refused_by_its_name(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 1L AS id, named_struct('inner', parse_json('1')) AS s")
    with pytest.raises(SchemaConflict, match=r"column s\.inner has Spark type variant"):
        lakebed.create(str(tmp_path / "t"), frame, key="id")


def test_values_at_paths_are_those_of_spark(spark: Any) -> None:
    document = {
        "s": "2.7",
        "e": "1e3",
        "sp": " 12 ",
        "i": 5,
        "big": 2**40,
        "n": 2.7,
        "m": -2.7,
        "z": -0.5,
        "h": 123456789012.9,
        "far": 1e20,
        "t": True,
        "yes": "true",
        "no": "maybe",
        "null": None,
        "o": {"x": [1, "t"]},
        "l": [1, None, 2],
        "day": "2024-01-02",
    }
    column = variant.encode([document, {"o": {}, "l": []}, 7, None])
    frame = spark.createDataFrame([(json.dumps(document),), ('{"o": {}, "l": []}',), ("7",), (None,)], "j string")
    frame = frame.selectExpr("parse_json(j) AS v")
    types = ["int", "bigint", "string", "double", "boolean", "date", "decimal(20, 3)", "array<int>", "array<string>"]
    types += ["struct<x: array<string>, y: int>"]
    paths = ["$", "$.o.x[1]", "$.o.x[5]", "$.l[1]", "$['sp']", *[f"$.{name}" for name in document]]
    # the texts of large numbers differ
    asked = [(path, kind) for path in paths for kind in types if kind != "string" or path not in ("$", "$.far")]
    texts_only = ("$.day", "$.epoch", "$.inf", "$.letters", "$.yes", "$.null", "$.nothing")
    asked += [(path, kind) for path in texts_only for kind in ("timestamp", "binary")]
    texts = [f"try_variant_get(v, \"{path}\", '{kind}') AS c{n}" for n, (path, kind) in enumerate(asked)]
    expected = [list(row.values()) for row in frame.selectExpr(*texts).toArrow().to_pylist()]
    for number, (path, kind) in enumerate(asked):
        found = variant.get(column, path, kind, invalid="null").to_pylist()
        assert found == [row[number] for row in expected], (path, kind)
