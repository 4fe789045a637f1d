"""Keys that log files deleted come back to the file group whose base file has them, on Spark as in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.index.bloom import search
from support.write_tables import SCHEMA, content, rows

pytestmark = pytest.mark.rest

ON_SPARK = {"lakebed.local.rows": 0, "hoodie.parquet.small.file.limit": 0}


@pytest.mark.parametrize("index", ["simple", "bloom"])
def test_deleted_keys_return_to_the_file_group_that_has_them(
    spark: Any, tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "KEYS_HERE", 0)
    table = lakebed.create(
        str(tmp_path / "t"), SCHEMA, key="id", partition_by="city", ordering="ts", type="mor", index=index, spark=spark,
        properties={"hoodie.compact.inline": False},
    )  # fmt: skip
    table.upsert(rows(*[(key, city, "old", 10) for key in range(50) for city in "ab"]))
    table.delete([3, 5])
    before = {one.file_id: one for one in lakebed.open(table.uri).files}
    frame = spark.createDataFrame(rows((3, "a", "new", 1), (4, "b", "changed", 11), (99, "a", "new", 1)).to_pandas())
    result = lakebed.open(table.uri, spark=spark).upsert(frame, options=ON_SPARK)
    assert (result.inserted, result.updated) == (2, 1)
    after = {one.file_id: one for one in lakebed.open(table.uri).files}
    assert after.keys() > before.keys()
    renewed = {one.partition for one in before.values() if after[one.file_id].base_file != one.base_file}
    assert renewed == {"a"}
    expected = {(key, city): ("old", 10) for key in range(50) for city in "ab" if key not in (3, 5)}
    expected |= {(3, "a"): ("new", 1), (4, "b"): ("changed", 11), (99, "a"): ("new", 1)}
    assert content(table) == sorted((*place, *row) for place, row in expected.items())
