"""Stages and pre-commit validators with a Spark session: tasks write the files, Spark reads the staged view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption, ValidationFailed
from support.crash_tables import leftovers

OPTION = "hoodie.precommit.validators"
ON_SPARK = {"lakebed.local.rows": 0}


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> lakebed.Table:
    t = lakebed.create(
        str(tmp_path / "t"),
        {"id": [1], "city": ["x"], "fare": [1.0]},
        key="id",
        partition_by="city",
        type="mor",
        index="bucket",
        buckets=2,
        spark=spark,
    )
    t.upsert(frame(spark, 0, 40), options=ON_SPARK)
    return t


def frame(spark: Any, first: int, end: int, fare: float = 1.0) -> Any:
    return spark.range(first, end).selectExpr("id", "concat('c', id % 2) as city", f"cast({fare} as double) as fare")


def test_spark_writes_a_stage_and_reads_it(spark: Any, table: lakebed.Table) -> None:
    with table.stage() as staged:
        result = staged.upsert(frame(spark, 30, 60, 5.0), options=ON_SPARK)
        assert result.checkpoint == ""
        rows = staged.scan(where="fare > 2").to_spark()
        assert (rows.count(), staged.scan().to_spark().count(), table.scan().to_spark().count()) == (30, 60, 40)
        assert rows.agg({"id": "min"}).collect()[0][0] == 30
        assert staged.diff().summary.inserted == 20
        staged.commit()
    assert table.scan(where="fare > 2").to_spark().count() == 30
    with table.stage() as staged:
        staged.delete(where="id % 2 = 0", options=ON_SPARK)
        assert staged.scan().to_spark().count() == 30
    assert (table.scan().to_spark().count(), leftovers(table.uri)) == (60, [])


def test_queries_of_validators_are_of_spark_where_there_is_a_session(spark: Any, table: lakebed.Table) -> None:
    options = {
        OPTION: "SqlQuerySingleResultPreCommitValidator,SqlQueryEqualityPreCommitValidator",
        f"{OPTION}.single.value.sql.queries": "select count(`fare`) from <TABLE_NAME> where fare < 0#0;"
        "select max(id) div 1 from <TABLE_NAME>#44;select avg(fare) > 0 from <TABLE_NAME>#true",
        f"{OPTION}.equality.sql.queries": "select id, fare from <TABLE_NAME> where id < 40 order by id",
    }
    table.upsert(frame(spark, 40, 45), options={**options, **ON_SPARK})
    with pytest.raises(ValidationFailed) as caught:
        table.upsert(frame(spark, 44, 46, -1.0), options={**options, **ON_SPARK})
    assert caught.value.context["found"] == "2"
    with pytest.raises(InvalidOption, match="cannot be run"):
        table.upsert(frame(spark, 44, 45), options={**options, **ON_SPARK, f"{OPTION}.equality.sql.queries": "selec"})
    assert (table.count(), leftovers(table.uri)) == (45, [])
    assert not [one.name for one in spark.catalog.listTables() if one.name.startswith("lakebed_")]
