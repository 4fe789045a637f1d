"""BLOB columns on Spark: written, read with their type, and `read_blob` in SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from support.blob_tables import blob_table, data_of, outside

BYTES = bytes(range(100))
pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_read_blob_gives_the_bytes_of_each_row(kind: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "all.bin").write_bytes(BYTES)
    table = blob_table(kind, str(tmp_path / "t"))
    table.upsert(outside(tmp_path / "all.bin", ["o1"], [10], [5]))
    values = {"k001": data_of(1), "k010": None, "o1": BYTES[10:15]}
    text = (
        "select id, read_blob(pic) as b from {} where id in ('k001', 'k010', 'o1')"
        " and (id = 'k010' or length(read_blob(pic)) > 1)"
    )
    frame: Any = lakebed.sql(text.format("t"), tables={"t": table}, spark=spark)
    rows = frame.collect()
    assert {row["id"]: row["b"] for row in rows} == values
    lakebed.spark.create_views(spark, {"pictures": str(tmp_path / "t")})
    rows = spark.sql(text.format("pictures")).collect()
    assert {row["id"]: row["b"] for row in rows} == values


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_frames_with_blobs_are_written_and_keep_their_type(kind: str, spark: Any, tmp_path: Path) -> None:
    table = blob_table(kind, str(tmp_path / "t"))
    on_spark = lakebed.open(table.uri, spark=spark)
    frame = on_spark.scan(where="id in ('k001', 'k010')").to_spark()
    assert frame.schema["pic"].metadata == {"hudi_type": "BLOB"}
    on_spark.upsert(frame.withColumn("ts", frame.ts + 5).withColumn("name", frame.id))
    assert dict(zip(["k001", "k010"], table.read_blob(["k001", "k010"], "pic"), strict=True)) == {
        "k001": data_of(1),
        "k010": None,
    }
    assert table.get(["k001"])["name"].to_pylist() == ["k001"]
    loaded = lakebed.load(str(tmp_path / "loaded"), frame, key="id", spark=spark)
    assert next(column.type for column in loaded.columns if column.name == "pic") == "BLOB"
    assert pa.types.is_struct(loaded.schema.field("pic").type)
