"""Change data on Spark: DataFrames and the data source give what the in-process read gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from support.golden_tables import golden
from support.same_rows import assert_same_rows


@pytest.mark.parametrize("name", ["v9_cow_cdc_data_before_after", "v9_mor_cdc_data_before_after"])
def test_spark_gives_the_same_changes(name: str, tmp_path: Path, spark: Any) -> None:
    path = str(golden(name).unpack(tmp_path))
    here = lakebed.open(path).cdc("000")
    table = lakebed.open(path, spark=spark)
    frame = table.cdc("000").to_spark()
    assert frame.columns == ["op", "ts_ms", "before", "after"]
    assert_same_rows(frame.toArrow(), here.to_arrow())
    assert frame.where("op = 'd' and before.region = 'us'").count() > 0

    source = spark.read.format("lakebed").option("query", "cdc")
    assert_same_rows(source.load(path).toArrow(), here.to_arrow())
    last = [i for i in table.timeline if i.is_completed][-2].completion_time
    some = source.option("start", last).option("columns", "id,qty").load(path)
    assert_same_rows(some.toArrow(), lakebed.open(path).cdc(last, columns=["id", "qty"]).to_arrow())
    hudi = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.query.incremental.format": "cdc",
        "hoodie.datasource.read.begin.instanttime": "000",
    }
    texts = spark.read.format("lakebed").options(**hudi).load(path)
    assert_same_rows(texts.toArrow(), lakebed.open(path).cdc("000", images="json").to_arrow())
    changes = spark.read.format("lakebed").option("query", "incremental").option("start", last).load(path)
    assert_same_rows(changes.toArrow(), lakebed.open(path).changes(last).to_arrow())
    assert table.cdc(table.cdc("000").end).to_spark().count() == 0
    with pytest.raises(Exception, match="no option 'where'"):
        source.option("where", "qty > 1").load(path).count()


def test_writes_of_dataframes_log_their_changes(tmp_path: Path, spark: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])
    table = lakebed.create(
        str(tmp_path / "t"), schema, key="id", ordering="ts", spark=spark, properties={"hoodie.table.cdc.enabled": True}
    )
    local = {"lakebed.local.rows": 0}
    table.upsert(spark.createDataFrame([(1, "a", 1), (2, "b", 1)], "id long, v string, ts long"), options=local)
    start = table.cdc("000").end
    table.upsert(spark.createDataFrame([(1, "c", 2), (3, "d", 1)], "id long, v string, ts long"), options=local)
    found = table.cdc(start).to_spark().select("op", "before.v", "after.v").collect()
    assert sorted(map(tuple, found), key=repr) == [("i", None, "d"), ("u", "a", "c")]
    with pytest.raises(InvalidOption):
        table.cdc("000", columns=["nothing"]).to_spark()
