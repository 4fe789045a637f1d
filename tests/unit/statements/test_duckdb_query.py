"""`lakebed.sql` in this process: DuckDB over tables."""

from __future__ import annotations

import sys
from datetime import date

import duckdb
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CorruptFile, InvalidOption, LakebedError, TableNotFound, UnsupportedFeature
from lakebed.opened_table import OpenedTable
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.testing import CountingStorage

TRIPS = pa.table({"id": pa.array(range(20)), "city": [("oslo", "rome")[n % 2] for n in range(20)], "fare": range(20)})
RIDERS = pa.table({"id": pa.array(range(0, 40, 2)), "name": [f"r{n}" for n in range(20)]})


@pytest.fixture(scope="module")
def tables() -> dict[str, lakebed.Table]:
    trips = lakebed.create("memory://sql/trips", TRIPS, key="id", partition_by="city", index="bucket", buckets=4)
    trips.upsert(TRIPS)
    trips.delete([19])
    riders = lakebed.create("memory://sql/riders", RIDERS, key="id", type="mor", index="bucket", buckets=2)
    riders.upsert(RIDERS)
    riders.upsert(RIDERS.slice(0, 2).set_column(1, "name", pa.array(["new", "newer"])))
    return {"trips": trips, "riders": riders}


def rows(text: str, *arguments: object, **options: object) -> list[tuple[object, ...]]:
    found = lakebed.sql(text, *arguments, **options)  # pyright: ignore
    return [tuple(row.values()) for row in found.to_pylist()]


def test_a_query_reads_tables_by_name_by_uri_and_as_of_a_time(tables: dict[str, lakebed.Table]) -> None:
    first = next(iter(tables["trips"].timeline)).time
    assert rows("select count(*) from trips", tables) == [(19,)]
    assert rows("select count(*) from Trips", {"TRIPS": "memory://sql/trips"}) == [(19,)]
    assert rows("select max(trips.id) from 'memory://sql/trips' where trips.city = 'rome'") == [(17,)]
    assert rows("select count(*) from lakebed.`memory://sql/trips` t") == [(19,)]
    assert rows(f"select count(*) from trips timestamp as of '{first}'", tables) == [(20,)]
    text = f"select a.id from trips version as of {first} a left join trips b using (id) where b.id is null"
    assert rows(text, tables) == [(19,)]


def test_common_table_expressions_subqueries_unions_and_joins(tables: dict[str, lakebed.Table]) -> None:
    text = """
        with trips as (select id, fare from trips where fare > 15 union all select id, 0 from riders where id > 36)
        select t.id, name from trips t left join riders using (id)
        where t.id in (select id from riders) order by 1"""
    assert rows(text, tables) == [(16, "r8"), (18, "r9"), (38, "r19")]
    assert rows("select name from riders where id < 4 order by id", tables) == [("new",), ("newer",)]


def test_values_are_given_as_arguments(tables: dict[str, lakebed.Table]) -> None:
    by_name = "select id from trips where city = :city and id >= :least and ':city' != 'x'"
    assert rows(by_name, tables, {"city": "rome", "least": 16}) == [(17,)]
    assert rows("select id from trips where id = ?", tables, [3]) == [(3,)]
    assert rows("select id from trips where id = $id", tables, {"id": 3}) == [(3,)]
    assert rows("select [1, 2, 3][1:n] from (select 2 as n)", tables, {}) == [([1, 2],)]


def test_table_functions_show_changes_timeline_and_files(tables: dict[str, lakebed.Table]) -> None:
    changed = "select id, name from lakebed_changes('riders', :start) order by id".replace(
        ":start",
        f"'{tables['riders'].timeline.last.completion_time}'",  # pyright: ignore
    )
    assert rows(changed, tables) == []
    assert rows("select count(*) from lakebed_changes(riders)", tables) == [(20,)]
    assert rows("select operation, inserted from lakebed_timeline('trips') order by time", tables) == [
        ("upsert", 20),
        ("delete", 0),
    ]
    assert rows("select count(*), max(log_files) from lakebed_files('memory://sql/riders')") == [(2, 1)]
    logged = lakebed.create(
        "memory://sql/logged", RIDERS, key="id", index="bucket", properties={"hoodie.table.cdc.enabled": True}
    )
    logged.upsert(RIDERS.slice(0, 2))
    logged.delete([0])
    assert rows("select op, count(*) from lakebed_cdc('memory://sql/logged') group by op order by op") == [
        ("d", 1),
        ("i", 2),
    ]


def test_a_point_query_opens_one_file(tables: dict[str, lakebed.Table]) -> None:
    storage = CountingStorage(open_storage("memory://sql/trips"))
    table = lakebed.Table(OpenedTable(storage, load_table_config(storage)))
    found = lakebed.sql("select t.fare from trips t where t.id in (7) and city = 'rome'", {"trips": table})
    storage.reset()
    assert found.to_arrow().to_pylist() == [{"fare": 7}]
    opened = {path for path in storage.opened if path.endswith(".parquet") and ".hoodie" not in path}
    assert len(opened) == 1 < len(table.files)


def test_a_result_is_given_in_every_form_and_prints_its_first_rows(tables: dict[str, lakebed.Table]) -> None:
    found = lakebed.sql("select id, city from trips order by id", tables)
    assert isinstance(found, lakebed.QueryResult)
    assert found.columns == ["id", "city"]
    assert found.schema == pa.schema([("id", pa.int64()), ("city", pa.string())])
    assert (len(found), found.count(), found.head(2)["id"].to_pylist()) == (19, 19, [0, 1])
    assert found.to_pandas()["id"].sum() == found.to_polars()["id"].sum() == sum(range(19))
    assert pa.table(found) == found.to_arrow()
    assert sum(batch.num_rows for batch in found) == 19
    assert "rome" in repr(found)
    assert ">18</td>" in found._repr_html_()
    many = lakebed.sql("select * from range(100)")
    assert repr(many).endswith("the first 20 rows; to_arrow() has all")


def test_a_result_reads_the_instants_of_its_call(tables: dict[str, lakebed.Table]) -> None:
    table = lakebed.create("memory://sql/instants", {"id": [1]}, key="id", index="bucket", buckets=1)
    table.upsert({"id": [1]})
    found = lakebed.sql("select count(*) from t", {"t": table})
    table.upsert({"id": [2]})
    assert found.to_pylist() == [{"count_star()": 1}] == found.to_pylist()


def test_other_data_joins_tables(tables: dict[str, lakebed.Table]) -> None:
    wanted = pa.table({"id": [3, 4]})
    scan = tables["trips"].scan(where="id > 2")
    assert rows("select sum(fare) from trips join wanted using (id)", {"trips": scan, "wanted": wanted}) == [(7,)]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("select x from trips", InvalidOption, 'Referenced column "x" not found'),
        ("select * from nowhere", InvalidOption, "nowhere does not exist"),
        ("select 1; select 2", InvalidOption, "more than one statement"),
        ("drop table nope", InvalidOption, "'nope', which is no table of lakebed"),
        ("create table x (a int)", InvalidOption, "USING lakebed is missing"),
        ("select * from 'memory://sql/none'", TableNotFound, "memory://sql/none"),
        ("select * from none timestamp as of '2026-01-01'", InvalidOption, "'none', which tables= lacks"),
        ("select * from trips timestamp as of '2020-01-01'", InvalidOption, "before its first commit"),
        ("select * from lakebed_cdc('trips')", InvalidOption, "no change log"),
        ("select id // 0, error('no') from trips", InvalidOption, "DuckDB cannot run"),
    ],
)
def test_a_text_that_does_not_run_says_why(
    tables: dict[str, lakebed.Table], text: str, error: type[LakebedError], message: str
) -> None:
    with pytest.raises(error, match=message):
        rows(text, tables)


@pytest.mark.parametrize("name", ['t" union select 1 --', "a.b", "", "1a", 'x"', 7])
def test_a_name_that_is_no_word_is_refused(name: object) -> None:
    with pytest.raises(InvalidOption, match="no name of a table"):
        lakebed.sql("select 1", {name: "memory://sql/trips"})  # pyright: ignore


def test_the_error_of_a_damaged_table_arrives_as_it_is() -> None:
    table = lakebed.create("memory://sql/damaged", TRIPS, key="id", index="bucket", buckets=1)
    table.upsert(TRIPS)
    found = lakebed.sql("select * from t", {"t": table})
    (one,) = table.files
    assert one.base_file is not None
    open_storage("memory://sql/damaged").delete(one.base_file.path)
    with pytest.raises(CorruptFile, match="is missing"):
        found.to_arrow()


def test_variables_of_lakebed_itself_are_no_tables() -> None:
    for name in ("text", "calls", "args", "statement", "sources"):
        with pytest.raises(InvalidOption, match="does not exist"):
            lakebed.sql(f"select * from {name}")


def test_without_duckdb_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UnsupportedFeature, match=r"lakebed\[duckdb\]"):
        lakebed.sql("select 1")


@pytest.mark.parametrize(("argument", "value"), [("text", 1), ("tables", ["t"]), ("args", "x"), ("args", 5)])
def test_wrong_arguments_are_refused(argument: str, value: object) -> None:
    with pytest.raises(InvalidOption, match=argument):
        lakebed.sql(**{"text": "select 1", argument: value})  # pyright: ignore


def test_conditions_with_any_function_are_those_of_duckdb() -> None:
    rows = pa.table(
        {
            "id": pa.array(range(12), pa.int64()),
            "s": ["a-1", "Ünï", "", None, "RoM", "rom ", "%_", "x", "y", "z", "1", "L'Aquila"],
            "d": [float("nan"), -0.0, 1.5, None, *([2.5] * 8)],
            "day": pa.array([date(2024, 2, 29), None, *([date(2023, 12, 31)] * 10)], pa.date32()),
        }
    )
    table = lakebed.create("memory://duckdb_query/functions", rows, key="id", index="bucket", buckets=2)
    table.upsert(rows)
    conditions = (
        *(
            "lower(s) = 'rom'",
            "trim(s) = 'rom'",
            "length(s) > 2",
            "coalesce(s, 'x') = 'x'",
            "year(day) = 2024",
            "abs(d) = 1.5",
        ),
        *(
            "id % 3 = 1",
            "id + 1 = 2",
            "CASE WHEN id > 5 THEN s END = 'z'",
            "CAST(id AS VARCHAR) = '10'",
            "s ILIKE 'r%'",
        ),
        *(
            "regexp_matches(s, '^[a-z]')",
            "levenshtein(s, 'Rom') < 2",
            "list_contains([1, 7], id)",
            "isnan(d)",
            "s IN (lower(s), 'RoM')",
        ),
        *(
            "concat_ws('-', s, s) = ''",
            "id = (SELECT max(id) FROM t)",
            "s = 'L''Aquila'",
            "s = chr(120) AND id > 2",
            "hash(s) % 2 = 0",
        ),
        *(
            "strftime(day, '%Y') = '2023' AND id BETWEEN 3 AND 6",
            "len(string_split(s, '-')) = 2",
            "{'a': id}.a = 4",
            "id IN (id, 5)",
        ),
    )
    plain = duckdb.connect()
    plain.register("t", rows)
    for condition in conditions:
        for text in (
            f"SELECT id FROM t WHERE {condition} ORDER BY id",
            f"WITH c AS (SELECT * FROM t) SELECT id FROM c WHERE NOT ({condition}) OR id = 3 ORDER BY id",
            f"SELECT t.id FROM t JOIN (SELECT id AS k FROM t) u ON t.id = u.k AND {condition} ORDER BY id",
            f"SELECT count(*) AS id FROM t WHERE {condition}",
        ):
            found = lakebed.sql(text, {"t": table}).to_arrow()["id"].to_pylist()
            assert found == [row[0] for row in plain.sql(text).fetchall()], text
    target = lakebed.create("memory://duckdb_query/target", {"id": [0]}, key="id", index="simple")
    condition = " OR ".join(f"({one})" for one in conditions[::3])
    lakebed.sql(f"INSERT INTO target SELECT id FROM t WHERE {condition}", {"t": table, "target": target})
    lakebed.sql(f"MERGE INTO target USING (SELECT id FROM t WHERE {condition} OR id = 11) s ON target.id = s.id"
                " WHEN NOT MATCHED THEN INSERT *", {"t": table, "target": target})  # fmt: skip
    expected = plain.sql(f"SELECT id FROM t WHERE {condition} OR id = 11 ORDER BY id").fetchall()
    assert sorted(target.to_arrow()["id"].to_pylist()) == [row[0] for row in expected]
    lakebed.drop(table.uri)
    lakebed.drop(target.uri)
