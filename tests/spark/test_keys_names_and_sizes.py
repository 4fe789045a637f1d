"""What a write keeps to on Spark as in this process: a key once, names that SQL knows otherwise, sizes of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed

pytestmark = pytest.mark.rest

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())])


def rows(*given: tuple[Any, ...]) -> pa.Table:
    columns = [pa.array(list(c), f.type) for c, f in zip(zip(*given, strict=True), SCHEMA, strict=True)]
    return pa.table(columns, schema=SCHEMA)


@pytest.mark.parametrize("index", ["bucket", "global_simple", "record"])
def test_keys_that_come_twice_in_a_batch_are_one_row(index: str, tmp_path: Path, spark: Any) -> None:
    buckets: dict[str, Any] = {"buckets": 2} if index == "bucket" else {}
    table = lakebed.create(
        str(tmp_path / "t"), SCHEMA, key="id", partition_by="city", ordering="ts", index=index, **buckets
    )
    table.upsert(rows((1, "c", "a", 1), (2, "c", "a", 1)))
    repeated = rows(*[(key, "c", f"at {ts}", ts) for key in (1, 5) for ts in (3, 5, 4)])
    table.upsert(spark.createDataFrame(repeated).repartition(3), options={"hoodie.combine.before.upsert": False})
    found = table.scan().to_arrow().sort_by("id")
    assert found["id"].to_pylist() == [1, 2, 5]
    assert found["v"].to_pylist() == ["at 5", "a", "at 5"]
    gone = rows((1, "c", "x", 9), (5, "c", "x", 1), (1, "c", "x", 2)).select(["id", "city"])
    assert table.delete(spark.createDataFrame(gone).repartition(2)).deleted == 2
    assert table.scan().to_arrow()["id"].to_pylist() == [2]


@pytest.mark.parametrize("name", ["select", "日本"])
def test_columns_named_as_sql_words_are_written_and_read(name: str, tmp_path: Path, spark: Any) -> None:
    schema = pa.schema([("id", pa.int64()), (name, pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
    words: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "simple"}
    table = lakebed.create(str(tmp_path / "t"), schema, spark=spark, **words)
    first = table.upsert(spark.createDataFrame(pa.table([[1, 2], [10, 20], ["a", "b"], [1, 1]], schema=schema)))
    table.upsert(spark.createDataFrame(pa.table([[2], [21], ["b"], [2]], schema=schema)))
    for scan, expected in (
        (table.scan(), [10, 21]),
        (table.scan([name], f"`{name}` > 15"), [21]),
        (table.changes(first.checkpoint), [21]),
    ):
        assert sorted(row[name] for row in scan.to_spark().select(name).collect()) == expected
    by_option = spark.read.format("lakebed").option("where", f"`{name}` > 15").load(table.uri)
    assert [row[name] for row in by_option.collect()] == [21]
    assert table.indexes.verify().ok


def test_files_keep_to_their_maximum(tmp_path: Path, spark: Any) -> None:
    limit = 300_000
    sizes = {"hoodie.parquet.max.file.size": limit, "hoodie.parquet.small.file.limit": limit // 2}
    dice = np.random.default_rng(7)
    # rows that are small in the file, then such that no codec makes smaller
    values = [b"x" * 200] * 4_000 + [dice.bytes(200) for _ in range(4_000)]
    given = pa.table({"id": range(8_000), "v": pa.array(values, pa.binary()), "ts": [1] * 8_000})
    for operation in ("upsert", "bulk_insert"):
        uri = str(tmp_path / operation)
        table = lakebed.create(uri, given.schema, key="id", ordering="ts", index="simple")
        getattr(table, operation)(spark.createDataFrame(given).coalesce(1), options=sizes)
        written = [file_slice.base_file.size for file_slice in table.files if file_slice.base_file]
        assert max(written) <= limit * 1.1, (operation, written)
        assert table.scan().to_arrow().sort_by("id").equals(given)
