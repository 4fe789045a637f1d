"""A SQL database as a source: new and changed rows by a column, also those with the value of the last one."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord, SchemaConflict, SourceError, UnsupportedFeature
from lakebed.ingestion.sources.sql import SqlSource

adbc = pytest.importorskip("adbc_driver_sqlite", reason="adbc-driver-sqlite is not installed")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("CREATE TABLE rides(id INTEGER PRIMARY KEY, city TEXT, fare REAL, at INTEGER)")
    yield connection
    connection.close()


def put(database: sqlite3.Connection, *rows: tuple[Any, ...]) -> None:
    database.executemany("INSERT OR REPLACE INTO rides VALUES (?, ?, ?, ?)", rows)


def job_of(tmp_path: Path, uri: str = "", **source: Any) -> dict[str, Any]:
    settings = {"kind": "sql", "uri": f"sqlite:///{tmp_path}/shop.db", "column": "at"}
    settings |= {} if "query" in source else {"table": "rides"}
    target = {"uri": uri or f"memory://sql-source/{uuid.uuid4().hex}", "create": {"key": "id"}}
    return {"source": {**settings, **source}, "target": target}


def rows(job: dict[str, Any]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in lakebed.open(job["target"]["uri"]).to_arrow().to_pylist())


def test_new_and_changed_rows_are_read_by_the_column(database: sqlite3.Connection, tmp_path: Path) -> None:
    job = job_of(tmp_path)
    assert lakebed.ingest(job, once=True).commits == 0
    put(database, (1, "rome", 9.5, 1), (2, None, None, 2))
    result = lakebed.ingest(job, once=True)
    assert (result.rows, str(result.checkpoint).partition("\n")[0]) == (2, "2")
    assert lakebed.ingest(job, once=True).commits == 0
    put(database, (1, "Rome", 9.5, 3))
    assert lakebed.ingest(job, once=True).commits == 1
    assert rows(job) == [(1, "Rome", 9.5, 3), (2, None, None, 2)]


def test_another_row_or_another_state_with_the_value_of_the_last_row_is_new(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    job = job_of(tmp_path)
    put(database, (1, "a", 1.0, 5))
    lakebed.ingest(job, once=True)
    put(database, (2, "b", 2.0, 5))
    assert lakebed.ingest(job, once=True).commits == 1
    put(database, (1, "A", 1.0, 5))
    assert lakebed.ingest(job, once=True).commits == 1
    assert lakebed.ingest(job, once=True).commits == 0
    assert rows(job) == [(1, "A", 1.0, 5), (2, "b", 2.0, 5)]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_a_round_reads_so_many_rows_and_all_of_its_last_value(
    database: sqlite3.Connection, tmp_path: Path, limit: int
) -> None:
    job = job_of(tmp_path) | {"max_rows": limit}
    put(database, *((n, "x", 0.0, n // 3) for n in range(9)))
    result = lakebed.ingest(job, once=True)
    assert [row[0] for row in rows(job)] == list(range(9))
    # rows of the last value are read again, and only with others
    assert result.commits == {1: 3, 2: 3, 3: 3, 7: 1}[limit]


@pytest.mark.rest
def test_values_of_each_type_are_checkpoints(database: sqlite3.Connection, tmp_path: Path) -> None:
    database.execute("CREATE TABLE typed(id INTEGER PRIMARY KEY, n REAL, t TEXT)")
    values = [(1, 0.1 + 0.2, "it's"), (2, 1e300, "z"), (3, 2.5, "2024-01-01 00:00:00")]
    database.executemany("INSERT INTO typed VALUES (?, ?, ?)", values)
    for column in ("n", "t", "id"):
        for max_rows in (1, 10):
            job = job_of(tmp_path, table="typed", column=column) | {"max_rows": max_rows}
            lakebed.ingest(job, once=True)
            assert lakebed.ingest(job, once=True).commits == 0
            assert rows(job) == values
    # an expression has no type in SQLite
    job = job_of(tmp_path, query="SELECT id, n, id * 10 AS v FROM typed", column="v") | {"max_rows": 1}
    assert lakebed.ingest(job, once=True).commits == 3


def test_rows_that_no_checkpoint_finds_are_an_error_or_left_out(database: sqlite3.Connection, tmp_path: Path) -> None:
    put(database, (1, "a", 1.0, None), (2, "b", 1.0, 1))
    with pytest.raises(InvalidRecord, match="1 row of the source have null in at"):
        lakebed.ingest(job_of(tmp_path), once=True)
    job = job_of(tmp_path, on_null="skip")
    assert lakebed.ingest(job, once=True).rows == 1
    assert rows(job) == [(2, "b", 1.0, 1)]


def test_types_of_columns_are_those_that_the_job_names(database: sqlite3.Connection, tmp_path: Path) -> None:
    put(database, (1, "17", 1.0, 1))
    job = job_of(tmp_path, columns={"city": "bigint", "at": "int"})
    lakebed.ingest(job, once=True)
    assert [str(column.type) for column in lakebed.open(job["target"]["uri"]).schema] == [
        "int64",
        "int64",
        "double",
        "int32",
    ]
    put(database, (2, "many", 1.0, 2))
    with pytest.raises(InvalidRecord, match="column city of the source has a value that is no int64"):
        lakebed.ingest(job, once=True)


def test_another_driver_of_the_db_api_is_named_by_its_module(database: sqlite3.Connection, tmp_path: Path) -> None:
    put(database, (1, "rome", 9.5, 1), (2, None, 1.5, 2))
    job = job_of(tmp_path, uri="memory://sql-source/dbapi") | {}
    job["source"] |= {"driver": "sqlite3", "uri": f"{tmp_path}/shop.db"}
    assert lakebed.ingest(job, once=True).rows == 2
    assert lakebed.ingest(job, once=True).commits == 0
    assert rows(job) == [(1, "rome", 9.5, 1), (2, None, 1.5, 2)]


def test_a_query_that_fails_and_a_database_that_is_down_are_named_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nothing"):
        lakebed.ingest(job_of(tmp_path, table="nothing"), once=True)
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    job = job_of(tmp_path)
    job["source"]["uri"] = "postgresql://me:secret@127.0.0.1:1/shop"
    with pytest.raises(SourceError, match="does not answer") as error:
        lakebed.ingest(job, once=True)
    assert "secret" not in str(error.value)


def test_a_description_that_does_not_go_is_refused() -> None:
    settings = {"uri": "sqlite:///x.db", "column": "at"}
    for change, message in (
        ({}, "table and query"),
        ({"table": "t", "query": "select 1"}, "table and query"),
        ({"table": "t; drop table t"}, "plain name"),
        ({"table": "t", "column": "a b"}, "plain name"),
        ({"table": "t", "on_null": "keep"}, "fail, skip"),
        ({"table": "t", "uri": "oracle://x"}, "no driver is known"),
    ):
        with pytest.raises(InvalidOption, match=message):
            SqlSource.of(settings | change)
    with pytest.raises(UnsupportedFeature, match="pip install what has the module not_there"):
        SqlSource.of(settings | {"table": "t", "driver": "not_there"})


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_an_operation_that_would_write_rows_twice_is_refused(tmp_path: Path, operation: str) -> None:
    job = job_of(tmp_path)
    job["target"]["operation"] = operation
    with pytest.raises(InvalidOption, match="would write them twice"):
        lakebed.ingest(job, once=True)


def test_the_extra_of_the_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "adbc_driver_postgresql.dbapi", None)
    with pytest.raises(UnsupportedFeature, match=r"lakebed\[sql\]"):
        SqlSource.of({"uri": "postgresql://x", "column": "a", "table": "t"})


def test_columns_of_sqlite_have_their_declared_types(database: sqlite3.Connection, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE declared(id INTEGER PRIMARY KEY, late TEXT, never TEXT, n NUMERIC, price DECIMAL(10, 2),"
        " u NUMERIC(20), code VARCHAR(3), data BLOB, real DOUBLE)"
    )
    early = [(n, None, None, n, n, n, "a", None, n) for n in range(1100)]
    database.executemany("INSERT INTO declared VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", early)
    last = (2000, "late", None, 2.5, 9.99, 12, "b", b"x", 0.5)
    database.execute("INSERT INTO declared VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", last)
    expected = {
        "id": "int64",
        "late": "string",
        "never": "string",
        "n": "double",
        "price": "decimal128(10, 2)",
        "u": "decimal128(20, 0)",
        "code": "string",
        "data": "binary",
        "real": "double",
    }
    queries: list[dict[str, Any]] = [{"table": "declared"}, {"query": "SELECT * FROM declared WHERE id >= 0"}]
    for source in queries:
        job = job_of(tmp_path, column="id", **source) | {"max_rows": 1000}
        assert lakebed.ingest(job, once=True).commits == 2
        table = lakebed.open(job["target"]["uri"])
        assert {column.name: str(column.type) for column in table.schema} == expected
        (row,) = table.scan(where="id = 2000").to_arrow().to_pylist()
        assert tuple(row.values()) == (2000, "late", None, 2.5, Decimal("9.99"), Decimal(12), "b", b"x", 0.5)
        assert table.count() == 1101
        assert table.scan(where="late is null and n = id and price = id and u = id").count() == 1100


def test_a_value_of_sqlite_that_is_not_of_the_declared_type_is_named(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    put(database, *((n, "x", 1.0, n) for n in range(1100)))
    database.execute("CREATE TABLE odd(id INTEGER PRIMARY KEY, n INTEGER)")
    database.executemany("INSERT INTO odd VALUES (?, ?)", [*((n, n) for n in range(1100)), (2000, "many")])
    with pytest.raises(InvalidRecord, match="column n of the source has a value that is no int64"):
        lakebed.ingest(job_of(tmp_path, table="odd", column="id"), once=True)
    job = job_of(tmp_path, table="odd", column="id")
    job["source"] |= {"driver": "sqlite3", "uri": f"{tmp_path}/shop.db"}
    with pytest.raises(SchemaConflict, match="column n has values of several types: int in row 0"):
        lakebed.ingest(job, once=True)


def test_a_large_whole_number_beside_fractions_in_sqlite_is_exact_or_named(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    for number, is_exact in {
        2**53: True,
        2**53 + 1: False,
        -(2**53) - 1: False,
        -(2**63): True,
        2**63 - 1: False,
    }.items():
        database.execute("DROP TABLE IF EXISTS mixed")
        database.execute('CREATE TABLE mixed(id INTEGER PRIMARY KEY, "a n" NUMERIC)')
        database.executemany("INSERT INTO mixed VALUES (?, ?)", [(1, number), (2, 0.5), (3, None)])
        source = SqlSource.of({"uri": f"sqlite:///{tmp_path}/shop.db", "table": "mixed", "column": "id"})
        if is_exact:
            rows = source.poll(None, 10).rows
            assert rows is not None
            assert rows["a n"].to_pylist() == [float(number), 0.5, None]
        else:
            with pytest.raises(InvalidRecord, match=f"column a n of the source has fractions and {number}, which no"):
                source.poll(None, 10)
        source.close()


def test_a_column_of_sqlite_without_a_type_is_of_what_it_holds_and_of_texts_where_that_is_mixed_or_null(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    kinds: dict[str, tuple[str, list[Any], str, list[Any]]] = {
        "texts and whole numbers": ("", [5, "a", None], "string", ["5", "a", None]),
        "texts and fractions": ("", [0.1, "a", 0.1 + 0.2], "string", ["0.1", "a", "0.30000000000000004"]),
        "nothing but nulls": ("", [None, None, None], "string", [None, None, None]),
        "nothing but nulls, declared": ("BLOB", [None, None, None], "binary", [None, None, None]),
        "texts": ("", ["b", "a", ""], "string", ["b", "a", ""]),
        "whole numbers": ("", [5, None, 7], "int64", [5, None, 7]),
        "fractions": ("", [0.5, None, 7], "double", [0.5, None, 7.0]),
        "bytes": ("", [b"\xff", None, b"a"], "binary", [b"\xff", None, b"a"]),
        "bytes and fractions": ("", [b"\xff", 0.5, "a"], "binary", [b"\xff", b"0.5", b"a"]),
        "texts, declared as bytes": ("BLOB", ["a", None, "b"], "binary", [b"a", None, b"b"]),
    }
    for name, (declared, values, kind, expected) in kinds.items():
        database.execute("DROP TABLE IF EXISTS odd")
        database.execute(f"CREATE TABLE odd(id INTEGER PRIMARY KEY, v {declared})")
        database.executemany("INSERT INTO odd VALUES (?, ?)", list(enumerate(values)))
        sources: list[dict[str, Any]] = [{"table": "odd"}, {"query": "SELECT * FROM odd WHERE id >= 0"}]
        for source in sources:
            job = job_of(tmp_path, column="id", **source)
            lakebed.ingest(job, once=True)
            table = lakebed.open(job["target"]["uri"])
            assert str(table.schema.field("v").type) == kind, name
            assert [row[1] for row in rows(job)] == expected, name


def test_a_column_without_a_type_that_was_null_takes_the_texts_that_come_later(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE odd(id INTEGER PRIMARY KEY, v)")
    database.execute("INSERT INTO odd VALUES (1, NULL)")
    job = job_of(tmp_path, column="id", table="odd")
    for number, value in ((2, "a"), (3, 7), (4, None), (5, 2.5)):
        lakebed.ingest(job, once=True)
        database.execute("INSERT INTO odd VALUES (?, ?)", (number, value))
    lakebed.ingest(job, once=True)
    assert rows(job) == [(1, None), (2, "a"), (3, "7"), (4, None), (5, "2.5")]


def test_a_number_of_a_database_beyond_its_column_is_refused_and_not_infinity(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE great(id INTEGER PRIMARY KEY, t TEXT, r REAL)")
    database.execute("INSERT INTO great VALUES (1, '1e400', 1e39), (2, 'Infinity', 9e999)")
    for columns, refused in {"t": "1e400", "r": r"1e\+39"}.items():
        job = job_of(tmp_path, table="great", column="id", columns={columns: "float"})
        with pytest.raises(InvalidRecord, match=rf"column {columns} of the source .* '{refused}' is too great"):
            lakebed.ingest(job, once=True)
    database.execute("DELETE FROM great WHERE id = 1")
    job = job_of(tmp_path, table="great", column="id", columns={"t": "double", "r": "float"})
    lakebed.ingest(job, once=True)
    assert rows(job) == [(2, float("inf"), float("inf"))]
