"""`lakebed.Warehouse`: tables by their names, in every way in."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import lakebed
from lakebed.errors import InvalidOption, StorageError, TableExists, TableNotFound
from lakebed.model import WAREHOUSE
from support.inspected import inspector, page

ORDERS = pa.table({"id": [1, 2, 3], "who": [7, 8, 7], "total": [5.0, 2.5, 4.0]})
PEOPLE = pa.table({"id": [7, 8], "name": ["Ann", "Bo"]})
JOIN = (
    "select p.name, sum(o.total) as total from sales.orders o join crm.people p on o.who = p.id group by 1 order by 1"
)
SUMS = [{"name": "Ann", "total": 9.0}, {"name": "Bo", "total": 2.5}]


@pytest.fixture
def w(tmp_path: Path) -> lakebed.Warehouse:
    warehouse = lakebed.Warehouse(str(tmp_path / "lake"))
    warehouse.load("sales.orders", ORDERS, key="id", type="mor", index="bucket", buckets=1)
    warehouse.load("crm.people", PEOPLE, key="id")
    return warehouse


def rows(table: lakebed.Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


def test_a_table_is_the_folder_of_its_name(w: lakebed.Warehouse) -> None:
    assert w.open("sales.orders").uri == f"{w.uri}/sales/orders" == w.table_uri("sales.orders")
    assert w.open("sales.orders").name == "orders"
    assert lakebed.open(f"{w.uri}/sales/orders").count() == 3
    assert (w.list(), w.list("crm"), w.databases()) == (
        ["crm.people", "sales.orders"],
        ["crm.people"],
        ["crm", "sales"],
    )
    assert (w.exists("sales.orders"), w.exists("sales.items")) == (True, False)


def test_a_join_of_names_needs_no_tables(w: lakebed.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    assert w.sql(JOIN).to_pylist() == SUMS
    monkeypatch.setenv(WAREHOUSE, w.uri)
    assert lakebed.sql(JOIN).to_pylist() == SUMS
    assert lakebed.sql(JOIN.replace("sales.orders", "SALES.Orders").replace("crm.", "`crm`.")).to_pylist() == SUMS


def test_names_and_uris_and_given_tables_are_in_one_statement(w: lakebed.Warehouse) -> None:
    text = f"select o.id from sales.orders o join '{w.uri}/crm/people' p on o.who = p.id join given on given.n = o.id"
    assert w.sql(text, {"given": pa.table({"n": [2, 3]})}).to_arrow().column("id").to_pylist() == [2, 3]


def test_every_function_takes_names_of_the_environment(
    w: lakebed.Warehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(WAREHOUSE, w.uri)
    monkeypatch.chdir(tmp_path)
    lakebed.create("hr.staff", PEOPLE, key="id").upsert(PEOPLE)
    assert lakebed.load("hr.all", PEOPLE, key="id", progress=False).count() == 2
    options = {"hoodie.table.name": "jobs", "hoodie.datasource.write.recordkey.field": "id"}
    lakebed.write(PEOPLE, "hr.jobs", options)
    assert w.list("hr") == ["hr.all", "hr.jobs", "hr.staff"]
    assert [lakebed.open(f"hr.{name}").count() for name in ("all", "jobs", "staff")] == [2, 2, 2]
    assert lakebed.polars.scan("hr.staff").collect().height == 2
    assert lakebed.maintenance.doctor("hr.staff").severity.name == "FINE"
    assert lakebed.maintenance.repair("hr.staff").to_dict() is not None
    assert list(lakebed.maintenance.run(["hr.staff", "hr.all"], once=True)) == []
    lakebed.maintenance.erase({"hr.staff": [7]})
    assert rows(lakebed.open("hr.staff")) == [8]
    job = {
        "source": {"kind": "table", "uri": "hr.all"},
        "target": {"uri": "hr.copied", "create": {"key": "id"}},
        "errors": {"table": "hr.bad"},
    }
    assert lakebed.ingest(job, once=True).rows == 2
    assert rows(lakebed.open("hr.copied")) == [7, 8]
    lakebed.drop("hr.copied")
    assert w.list("hr") == ["hr.all", "hr.jobs", "hr.staff"]
    assert not list(tmp_path.glob("*.*"))  # no name was taken for a path


def test_names_are_paths_without_a_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WAREHOUSE, raising=False)
    monkeypatch.chdir(tmp_path)
    lakebed.create("sales.orders", ORDERS, key="id")
    assert (tmp_path / "sales.orders" / ".hoodie").is_dir()
    with pytest.raises(TableNotFound, match=WAREHOUSE):
        lakebed.open("sales.items")
    with pytest.raises(InvalidOption, match=WAREHOUSE):
        lakebed.Warehouse()


@pytest.mark.parametrize(
    "name", ["orders", "../up.x", "sales/orders", ".hoodie.x", "sales.orders/x", "Sales.orders", ""]
)
def test_every_method_refuses_what_is_no_name(name: str, w: lakebed.Warehouse) -> None:
    calls = [
        lambda: w.create(name, ORDERS, key="id"),
        lambda: w.load(name, ORDERS, key="id"),
        lambda: w.open(name),
        lambda: w.exists(name),
        lambda: w.drop(name),
        lambda: w.rename(name, "sales.x"),
        lambda: w.rename("sales.orders", name),
        lambda: w.table_uri(name),
    ]
    for call in calls:
        with pytest.raises(InvalidOption):
            call()
    assert w.list() == ["crm.people", "sales.orders"]
    assert rows(w.open("sales.orders")) == [1, 2, 3]


def test_a_name_that_is_missing_has_a_similar_one_in_its_error(w: lakebed.Warehouse) -> None:
    with pytest.raises(TableNotFound):
        w.drop("sales.order")
    for call in (lambda: w.open("sales.order"), lambda: w.sql("select * from sales.order")):
        with pytest.raises(TableNotFound, match=r"Did you mean 'sales\.orders'"):
            call()
    assert w.drop("sales.order", missing_ok=True) == []


PROGRAM = """
import sys, lakebed, pyarrow as pa
w = lakebed.Warehouse(sys.argv[1])
schema = pa.schema([("id", pa.int64()), (f"of_{sys.argv[2]}", pa.int64())])
print("ready", flush=True)
sys.stdin.readline()
try:
    w.create("sales.shared", schema, key="id")
    print("created")
except lakebed.TableExists:
    print("exists")
"""


def test_of_two_processes_that_create_one_name_at_once_one_wins(tmp_path: Path) -> None:
    for number in range(4):
        folder = tmp_path / str(number)
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(folder), which],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for which in "ab"
        ]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline().strip() == "ready"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        said = [worker.communicate(timeout=60)[0].strip() for worker in workers]
        assert sorted(said) == ["created", "exists"]
        winner = "ab"[said.index("created")]
        assert lakebed.Warehouse(str(folder)).open("sales.shared").schema.names == ["id", f"of_{winner}"]


def test_of_many_threads_that_create_one_name_one_wins() -> None:
    w = lakebed.Warehouse("memory://threads/lake")
    outcomes: list[str] = []

    def create() -> None:
        try:
            outcomes.append(w.create("sales.shared", ORDERS, key="id").name)
        except TableExists:
            outcomes.append("exists")

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["exists"] * 7 + ["shared"]


def test_a_renamed_table_has_its_rows_history_and_new_commits(w: lakebed.Warehouse) -> None:
    before = w.open("sales.orders")
    before.upsert({"id": [3, 4], "who": [8, 8], "total": [1.0, 1.0]})
    instants = [instant.time for instant in before.timeline]
    before.catalogs.publish("iceberg")
    table = w.rename("sales.orders", "crm.purchases")
    assert (table.name, table.properties["hoodie.table.name"]) == ("purchases", "purchases")
    assert [instant.time for instant in table.timeline] == instants
    assert rows(table) == [1, 2, 3, 4]
    assert table.upsert({"id": [5], "who": [7], "total": [1.0]}).rows == 1
    assert rows(w.open("crm.purchases")) == [1, 2, 3, 4, 5]
    assert table.indexes.verify().differences.num_rows == 0
    assert (w.list(), w.databases()) == (["crm.people", "crm.purchases"], ["crm", "sales"])
    with pytest.raises(TableNotFound):
        before.upsert(ORDERS)
    table.catalogs.publish("iceberg")
    assert f"{w.uri}/sales" not in (Path(w.uri) / "crm/purchases/metadata/v1.metadata.json").read_text()


def test_a_name_that_is_in_use_is_not_taken(w: lakebed.Warehouse) -> None:
    for to in ("crm.people", "sales.orders"):
        with pytest.raises((TableExists, InvalidOption)):
            w.rename("sales.orders", to)
    (Path(w.uri) / "sales" / "files").mkdir()
    (Path(w.uri) / "sales" / "files" / "a.csv").write_text("id\n1\n")
    with pytest.raises(TableExists):
        w.rename("sales.orders", "sales.files")
    with pytest.raises(TableNotFound):
        w.rename("sales.items", "sales.things")
    assert rows(w.open("sales.orders")) == [1, 2, 3]
    assert rows(w.open("crm.people")) == [7, 8]


def test_statements_create_change_rename_describe_and_drop_names(w: lakebed.Warehouse) -> None:
    w.sql("create database if not exists hr")
    w.sql("create database if not exists hr")
    with pytest.raises(TableExists):
        w.sql("create schema hr")
    created = w.sql("create table hr.staff (id bigint, name string) using lakebed tblproperties (primaryKey = 'id')")
    assert created.uri == f"{w.uri}/hr/staff"
    w.sql("create table if not exists hr.staff (id bigint) using lakebed tblproperties (primaryKey = 'id')")
    assert w.sql("insert into hr.staff (id, name) values (1, 'Al'), (2, 'Be')").inserted == 2
    assert w.sql("update hr.staff set name = 'Cy' where staff.id = 1").updated == 1
    assert w.sql("delete from hr.staff where id = 2").deleted == 1
    merged = w.sql("merge into hr.staff t using crm.people s on t.id = s.id when not matched then insert *")
    assert merged.inserted == 2
    assert w.sql("select * from hr.staff order by id").to_pylist() == [
        {"id": 1, "name": "Cy"},
        {"id": 7, "name": "Ann"},
        {"id": 8, "name": "Bo"},
    ]
    instant = w.open("hr.staff").timeline.to_arrow().column("time")[0].as_py()
    assert w.sql(f"select count(*) as n from hr.staff version as of '{instant}'").to_pylist() == [{"n": 2}]
    assert w.sql("select count(*) as n from lakebed_timeline('hr.staff')").to_pylist() == [{"n": 4}]
    assert (
        w.sql(
            "create table hr.copied using lakebed tblproperties (primaryKey = 'id') as select * from hr.staff"
        ).count()
        == 3
    )
    assert w.sql("alter table hr.copied rename to kept").name == "kept"
    assert w.sql("alter table hr.kept rename to crm.kept").uri == f"{w.uri}/crm/kept"
    assert w.sql("show tables").to_pylist() == [
        {"database": "crm", "table": "kept"},
        {"database": "crm", "table": "people"},
        {"database": "hr", "table": "staff"},
        {"database": "sales", "table": "orders"},
    ]
    assert w.sql("show tables in crm like 'k*|x'").to_pylist() == [{"database": "crm", "table": "kept"}]
    assert w.sql("show databases").to_arrow().column("database").to_pylist() == ["crm", "hr", "sales"]
    assert w.sql("show schemas like '*r*'").to_arrow().column("database").to_pylist() == ["crm", "hr"]
    assert w.sql("drop table crm.kept") == []
    assert w.sql("drop table if exists crm.kept") == []
    with pytest.raises(TableNotFound):
        w.sql("show tables in marketing")
    described = w.sql("describe extended sales.orders").to_pylist()
    assert described[:3] == [
        {"col_name": "id", "data_type": "BIGINT", "comment": ""},
        {"col_name": "who", "data_type": "BIGINT", "comment": ""},
        {"col_name": "total", "data_type": "DOUBLE", "comment": ""},
    ]
    facts = {row["col_name"]: row["data_type"] for row in described[3:]}
    assert (facts["Name"], facts["Location"], facts["Type"], facts["Index"]) == (
        "sales.orders",
        f"{w.uri}/sales/orders",
        "MERGE_ON_READ",
        "bucket",
    )
    assert w.sql("describe sales.orders").to_arrow().column("column_name").to_pylist() == ["id", "who", "total"]


@pytest.mark.parametrize(
    "text",
    [
        "create table sales.x (id bigint) using lakebed location '/elsewhere'",
        "create table sales.`a-b` (id bigint) using lakebed",
        "create database `a.b`",
        "create database",
        "show tables in",
        "show tables of sales",
        "alter table sales.orders rename to `Purchases-2`",
        "select * from a.b.c",
    ],
)
def test_statements_with_bad_names_are_refused(text: str, w: lakebed.Warehouse) -> None:
    with pytest.raises(InvalidOption):
        w.sql(text)
    assert w.list() == ["crm.people", "sales.orders"]


def test_schemas_of_duckdb_are_no_databases(w: lakebed.Warehouse) -> None:
    assert w.sql("select count(*) as n from information_schema.schemata where schema_name = 'main'").count() == 1


GLOBAL_ROWS = pa.table({"id": [1, 2]})


@pytest.mark.parametrize(
    "data",
    [
        ORDERS,
        ORDERS.to_batches()[0],
        ORDERS.to_reader(),
        ds.dataset(ORDERS),
        pd.DataFrame(ORDERS.to_pydict()),
        pl.DataFrame(ORDERS.to_pydict()),
        pl.LazyFrame(ORDERS.to_pydict()),
    ],
    ids=lambda data: f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}",
)
def test_variables_with_rows_are_tables(data: object, w: lakebed.Warehouse) -> None:
    here = data
    assert here is data
    assert lakebed.sql("select sum(total) as total from here").to_pylist() == [{"total": 11.5}]


def test_tables_scans_and_results_are_variables_too(w: lakebed.Warehouse) -> None:
    table_of_orders = w.open("sales.orders")
    scan, result = table_of_orders.scan(where="id > 1"), lakebed.sql("select 1 as id")
    assert scan is not result
    assert lakebed.sql("select count(*) as n from TABLE_OF_ORDERS").to_pylist() == [{"n": 3}]
    assert lakebed.sql("select count(*) as n from scan join result using (id)").to_pylist() == [{"n": 0}]
    assert w.sql(
        "select count(*) as n from global_rows_of_all join GLOBAL_ROWS using (id)", {"global_rows_of_all": ORDERS}
    ).to_pylist() == [{"n": 2}]
    assert w.sql("select count(*) as n from sales.orders join GLOBAL_ROWS using (id)").to_pylist() == [{"n": 2}]
    assert lakebed.sql("insert into table_of_orders values (9, 9, 9.0)").rows == 1
    assert table_of_orders.count() == 4


def test_given_tables_and_common_tables_come_before_variables(w: lakebed.Warehouse) -> None:
    orders, text = ORDERS, "a text is no table"
    assert orders is not text
    assert lakebed.sql("select count(*) as n from orders", {"orders": GLOBAL_ROWS}).to_pylist() == [{"n": 2}]
    assert lakebed.sql("with orders as (select 1 as id) select count(*) as n from orders").to_pylist() == [{"n": 1}]
    for name in ("text", "pytest", "no_such_variable", "self"):
        with pytest.raises(InvalidOption, match="DuckDB cannot run"):
            lakebed.sql(f"select * from {name}")


def test_only_the_callers_variables_are_tables() -> None:
    def query() -> list[dict[str, int]]:
        return lakebed.sql("select * from rows_of_outer").to_pylist()

    rows_of_outer = GLOBAL_ROWS
    assert rows_of_outer.num_rows == 2
    with pytest.raises(InvalidOption):
        query()


def test_two_warehouses_have_their_own_names(tmp_path: Path) -> None:
    one, other = lakebed.Warehouse(str(tmp_path / "one")), lakebed.Warehouse(str(tmp_path / "other"))
    one.create("a.t", ORDERS, key="id")
    assert (one.list(), other.list(), other.databases()) == (["a.t"], [], [])
    assert repr(one) == f"Warehouse('{tmp_path}/one')"


def test_the_inspector_opens_names(w: lakebed.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WAREHOUSE, w.uri)
    with inspector("sales.orders") as server:
        assert "sales.orders" in page(server, "/t/0/timeline")
        assert "who" in page(server, "/t/0/query?where=id%20%3D%201&columns=who")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select sales.orders.total from sales.orders where sales.orders.id = 2", [{"total": 2.5}]),
        ("select sales.orders.* from sales.orders order by SALES.Orders.id desc limit 1", [ORDERS.to_pylist()[2]]),
        (
            "select sales.orders.id, crm.orders.id as other from sales.orders join crm.orders"
            " on sales.orders.id = crm.orders.id",
            [{"id": 2, "other": 2}],
        ),
        ("show tables like 'ord%'", [{"database": d, "table": "orders"} for d in ("crm", "sales")]),
        ("show columns in sales.orders", [{"col_name": name} for name in ORDERS.column_names]),
        (
            "describe table sales.orders",
            [
                {"col_name": name, "data_type": kind, "comment": ""}
                for name, kind in (("id", "BIGINT"), ("who", "BIGINT"), ("total", "DOUBLE"))
            ],
        ),
    ],
)
def test_statements_name_columns_with_database_and_table_and_show_facts(
    w: lakebed.Warehouse, text: str, expected: list[dict[str, object]]
) -> None:
    w.load("crm.orders", {"id": [2], "total": [0.5]}, key="id", progress=False)
    assert w.sql(text).to_pylist() == expected


def test_the_properties_of_a_table_are_shown(w: lakebed.Warehouse) -> None:
    shown = {row["key"]: row["value"] for row in w.sql("show tblproperties sales.orders").to_pylist()}
    assert shown == dict(w.open("sales.orders").properties)
    assert w.sql("describe formatted crm.people").to_pylist() == w.sql("describe extended crm.people").to_pylist()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("select * from orders", "sales.orders"),
        ('select * from "sales.orders"', "sales.orders"),
        ("select * from sale.orders", "sales.orders"),
    ],
)
def test_a_table_that_sql_does_not_find_has_the_name_that_may_be_meant(
    w: lakebed.Warehouse, text: str, meant: str
) -> None:
    with pytest.raises((InvalidOption, TableNotFound), match=f"Did you mean '?{meant}"):
        w.sql(text).to_pylist()


def test_a_database_is_not_called_as_a_schema_of_sql(w: lakebed.Warehouse) -> None:
    for name in ("main", "system", "temp", "pg_catalog", "information_schema"):
        for call in (lambda n: w.create_database(n), lambda n: w.load(f"{n}.t", PEOPLE, key="id", progress=False)):
            with pytest.raises(InvalidOption, match="SQL has a schema of this name"):
                call(name)
    assert w.databases() == ["crm", "sales"]


def test_a_link_is_neither_listed_nor_opened_nor_written_through(w: lakebed.Warehouse, tmp_path: Path) -> None:
    lakebed.load(str(tmp_path / "other/t"), PEOPLE, key="id", progress=False)
    (Path(w.uri) / "linked").symlink_to(tmp_path / "other")
    assert (w.exists("linked.t"), w.databases()) == (False, ["crm", "sales"])
    for call in (lambda: w.open("linked.t"), lambda: w.load("linked.new", PEOPLE, key="id", progress=False)):
        with pytest.raises((StorageError, TableNotFound), match="is a link"):
            call()
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["t"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("show create table sales.orders", "DESCRIBE EXTENDED t and SHOW TBLPROPERTIES t show"),
        ("drop database sales", "DROP TABLE deletes its tables"),
        ("drop schema if exists sales cascade", "DROP TABLE deletes its tables"),
    ],
)
def test_statements_of_spark_that_there_are_not_are_answered_with_what_there_is(
    text: str, hint: str, tmp_path: Path
) -> None:
    w = lakebed.Warehouse(str(tmp_path / "lake"))
    w.load("sales.orders", {"id": [1]}, key="id", progress=False)
    with pytest.raises(
        lakebed.UnsupportedFeature, match=r"lakebed has no (SHOW CREATE|DROP (DATABASE|SCHEMA))"
    ) as raised:
        w.sql(text)
    assert hint in raised.value.hint
    assert w.list() == ["sales.orders"]
