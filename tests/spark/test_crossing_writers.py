"""Two Spark jobs that insert the same new key cross: one of them is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict, InvalidRecord
from property.crossing import Change, Model, Write, Writer, held_writers

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int32())])
NEW_FILES = {"hoodie.parquet.small.file.limit": 0}


def rows(*given: tuple[int, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, one, strict=True)) for one in given], SCHEMA)


@pytest.mark.parametrize(("index", "cities"), [("simple", "aa"), ("global_simple", "ab"), ("record", "ab")])
def test_two_jobs_write_the_same_new_key(index: str, cities: str, tmp_path: Path, spark: Any) -> None:
    uri = str(tmp_path / "t")
    lakebed.create(uri, SCHEMA, key="id", partition_by="city", index=index, spark=spark)
    table = lakebed.open(uri, spark=spark)
    table.upsert(rows((1, "a", 1), (2, "b", 2)), options=NEW_FILES)

    def write(data: pa.Table) -> Write:
        frame = spark.createDataFrame(data.to_pylist(), "id long, city string, v int")
        return Write("upsert", lambda t: t.upsert(frame, options=NEW_FILES), lambda _: Change())

    given = [write(rows((10, city, n), (11 + n, city, n))) for n, city in enumerate(cities)]
    with held_writers():
        writers = [Writer(uri, one, spark=spark) for one in given]
        for step in (*writers, *writers, *reversed(writers)):
            step.step(Model(False))
    assert isinstance(writers[0].error, CommitConflict)
    assert writers[0].error.context["record_key"] == "10"
    assert writers[1].error is None
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 10, 12]
    assert table.indexes.verify().ok
    if index != "simple":
        with pytest.raises(InvalidRecord, match="'b'"):
            table.insert_overwrite(rows((2, "a", 9)))
