"""`array()` and `map()` of Spark, whose elements are of no type and declared as never null."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import SchemaConflict


@pytest.mark.parametrize("local_rows", [0, 1000])
def test_empty_collections_take_the_tables_type(spark: Any, tmp_path: Path, local_rows: int) -> None:
    schema = pa.schema([("id", pa.int64()), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32()))])
    table = lakebed.create(str(tmp_path / "t"), schema, key="id", index="bucket", buckets=1, spark=spark)
    table.upsert(spark.sql("SELECT 1L AS id, array() AS l, map() AS m"), options={"lakebed.local.rows": local_rows})
    assert lakebed.open(table.uri).scan().to_arrow().to_pylist() == [{"id": 1, "l": [], "m": []}]
    with pytest.raises(SchemaConflict, match="column x"):
        table.upsert(spark.sql("SELECT 1L AS id, array() AS l, map() AS m, array() AS x"))
