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


def test_recorded_queries_read_the_table_alone_and_write_nothing(
    spark: Any, table: lakebed.Table, tmp_path: Path
) -> None:
    secret, written = tmp_path / "secret", tmp_path / "written"
    spark.range(3).write.csv(str(secret))
    spark.range(3).createOrReplaceTempView("of_the_session")
    queries = (
        f"insert overwrite directory '{written}' using csv select * from <TABLE_NAME>",
        f"create table kept using csv location '{written}' as select 1",
        f"select count(*) from csv.`{secret}`",
        "select count(*) from of_the_session",
        f"select count(*) from <TABLE_NAME> -- \\\n/*\n, csv.`{secret}` -- \\\n*/",
        f"select transform(id) using 'touch {written}' as (x string) from <TABLE_NAME>",
        f"select java_method('java.nio.file.Files', 'exists', '{secret}') from <TABLE_NAME>",
    )
    for query in queries:
        single = {OPTION: "SqlQuerySingleResultPreCommitValidator", f"{OPTION}.single.value.sql.queries": f"{query}#1"}
        equality = {OPTION: "SqlQueryEqualityPreCommitValidator", f"{OPTION}.equality.sql.queries": query}
        for options in (single, equality):
            with pytest.raises(InvalidOption, match="cannot be run: it "):
                table.upsert(frame(spark, 40, 45), options={**options, **ON_SPARK})
    for condition in (f"count(*) > (select count(*) from csv.`{secret}`)", "count(*) > 1) from of_the_session -- "):
        with pytest.raises(InvalidOption, match=r"cannot be evaluated|no SQL condition"):
            table.checks.add("reads", condition, on="table")
    assert not written.exists()
    assert not spark.catalog.tableExists("kept")
    assert (table.count(), leftovers(table.uri), len(table.checks)) == (40, [], 0)
