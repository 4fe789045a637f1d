"""Spark's own reader of base files: what is missing or changed is an error that names it, whatever the session says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import CorruptFile
from lakebed.format.footer_cache import FOOTERS
from support.write_tables import SCHEMA, rows

GIVEN = [(n, "oslo", f"text of row {n}", n) for n in range(400)]


@pytest.fixture
def forgiving(spark: Any) -> Any:
    """A session that passes over missing and damaged files."""
    keys = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    for key in keys:
        spark.conf.set(key, "true")
    yield spark
    for key in keys:
        spark.conf.unset(key)


@pytest.mark.parametrize("missing", [True, False])
def test_a_damaged_file_is_no_empty_file(forgiving: Any, tmp_path: Path, missing: bool) -> None:
    uri = str(tmp_path / "t")
    lakebed.create(uri, SCHEMA, key="id", partition_by="city", ordering="ts", index="simple").upsert(rows(*GIVEN))
    table = lakebed.open(uri, spark=forgiving)
    assert table.scan().to_spark().count() == 400
    (path,) = (tmp_path / "t").rglob("*.parquet")
    frame = table.scan().to_spark()
    if missing:
        path.unlink()
    else:
        column = pq.ParquetFile(path).metadata.row_group(0).column(7)
        damaged = bytearray(path.read_bytes())
        damaged[column.data_page_offset + column.total_compressed_size // 2] ^= 1
        path.write_bytes(bytes(damaged))
    with pytest.raises(Exception, match="parquet") as error:
        frame.toArrow()
    assert path.name in str(error.value) or "checksum" in str(error.value).lower()


@pytest.mark.parametrize("damage", ["missing", "replaced"])
@pytest.mark.parametrize("index", ["simple", "bucket"])
def test_a_write_on_spark_names_the_file(spark: Any, tmp_path: Path, index: str, damage: str) -> None:
    """Tagging reads keys by Spark's own reader, merging reads the file in a task."""
    uri = str(tmp_path / "t")
    buckets = {"buckets": 1} if index == "bucket" else {}
    table = lakebed.create(
        uri, SCHEMA, key="id", partition_by="city", ordering="ts", index=index, spark=spark, **buckets
    )
    table.upsert(rows(*GIVEN))
    (path,) = (path for path in (tmp_path / "t").rglob("*.parquet") if ".hoodie" not in path.parts)
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"PAR1" + b"something else" * 100 + b"PAR1")
    FOOTERS.clear()
    frame = spark.createDataFrame(rows(*GIVEN[:3]))
    with pytest.raises(CorruptFile, match=path.name) as error:
        lakebed.open(uri, spark=spark).upsert(frame, options={"lakebed.local.rows": 0})
    assert error.value.hint
    if damage == "missing":
        with pytest.raises(CorruptFile, match=path.name):
            lakebed.open(uri, spark=spark).scan().to_spark()
