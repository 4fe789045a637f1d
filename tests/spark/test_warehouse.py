"""Names of a warehouse in statements with a Spark session; names that it does not have are Spark's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.model import WAREHOUSE

ORDERS = pa.table({"id": [1, 2, 3], "who": [7, 8, 7]})
PEOPLE = pa.table({"id": [7, 8], "name": ["Ann", "Bo"]})


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_names_of_the_warehouse_and_tables_of_spark_are_in_one_statement(spark: Any, tmp_path: Path) -> None:
    w = lakebed.Warehouse(str(tmp_path / "lake"))
    w.load("sales.orders", ORDERS, key="id", index="bucket", buckets=2, progress=False)
    w.load("crm.people", PEOPLE, key="id", index="bucket", buckets=2, progress=False)
    spark.sql("create or replace temporary view extra as select 7 as id, 'x' as note")
    text = "select o.id, p.name from sales.orders o join crm.people p on o.who = p.id where o.id > 1"
    assert rows_of(w.sql(text, spark=spark)) == [(2, "Bo"), (3, "Ann")]
    noted = "select orders.id, note from Sales.Orders join extra on orders.who = extra.id"
    assert rows_of(w.sql(noted, spark=spark)) == [(1, "x"), (3, "x")]
    assert w.sql("update crm.people set name = upper(name) where id = 7", spark=spark).updated == 1
    merged = (
        "merge into crm.people t using sales.orders s on t.id = s.id when not matched then insert (id) values (s.id)"
    )
    assert w.sql(merged, spark=spark).inserted == 3
    w.sql(
        "create table hr.staff using lakebed tblproperties (primaryKey = 'id') as select * from crm.people", spark=spark
    )
    assert w.open("hr.staff").count() == 5
    assert rows_of(w.sql("select name from hr.staff where id = 7", spark=spark)) == [("ANN",)]
    assert rows_of(w.sql("describe extended hr.staff", spark=spark))[0][0] == ""
    assert w.sql("alter table hr.staff rename to crm.staff", spark=spark).count() == 5
    assert w.list("crm") == ["crm.people", "crm.staff"]


def test_a_name_that_the_warehouse_lacks_is_left_to_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAREHOUSE, str(tmp_path / "lake"))
    lakebed.create("sales.orders", ORDERS, key="id")
    spark.sql("create database if not exists other_of_spark")
    try:
        spark.sql(f"create table other_of_spark.t using parquet location '{tmp_path}/t' as select 1 as id")
        assert rows_of(lakebed.sql("select id from other_of_spark.t", spark=spark)) == [(1,)]
        joined = "select count(*) from other_of_spark.t left join sales.orders using (id)"
        assert rows_of(lakebed.sql(joined, spark=spark)) == [(1,)]
        databases = lakebed.sql("show databases", spark=spark)
        assert "other_of_spark" in {row[0] for row in databases.collect()}
        with pytest.raises(Exception, match=r"TABLE_OR_VIEW_NOT_FOUND"):
            lakebed.sql("select * from sales.nope", spark=spark).collect()
        with pytest.raises(InvalidOption):
            lakebed.sql("create table sales.`a-b` (id bigint) using lakebed", spark=spark)
    finally:
        spark.sql("drop database other_of_spark cascade")
