"""INSERT with PARTITION and REPLACE WHERE, in this process: the rows, what is replaced, the places of errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import AmbiguousMerge, InvalidOption, InvalidRecord, SchemaConflict, UnsupportedFeature
from support.merges import in_order

TRIPS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])
PLACES = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64()), ("day", pa.int32())])


def visible_rows(table: lakebed.Table) -> list[tuple[Any, ...]]:
    return in_order([tuple(row.values()) for row in table.scan().to_arrow().to_pylist()])


@pytest.fixture(params=["cow", "mor"])
def places(request: pytest.FixtureRequest) -> Iterator[lakebed.Table]:
    name, index = f"memory://changes/{request.node.name}", "simple"
    table = lakebed.create(name, PLACES, key="id", index=index, partition_by=["city", "day"], type=request.param)
    table.upsert({"id": [1, 2, 3], "city": ["rome", "rome", "oslo"], "fare": [1.0, 2.0, 3.0], "day": [7, 8, 7]})
    yield table
    lakebed.drop(name)


def test_values_of_partition_are_constants_of_the_rows(places: lakebed.Table) -> None:
    tables = {"places": places, "more": pa.table({"id": [10], "fare": [5.0], "d": [9]})}
    lakebed.sql("INSERT INTO places PARTITION (city = 'bern', day = '7') VALUES (4, 0.5), (5, null)", tables)
    lakebed.sql(
        "INSERT INTO TABLE places PARTITION (City = :city, day) SELECT id, fare, d FROM more", tables, {"city": "x'"}
    )
    lakebed.sql("INSERT INTO places PARTITION (day = 1) (fare, id, city) VALUES (0, 6, 'rome')", tables)
    lakebed.sql(
        "WITH m AS (SELECT 11 AS id) INSERT INTO places PARTITION (day = 1, city = NULL) BY NAME SELECT id FROM m",
        tables,
    )
    expected = [
        (1, "rome", 1.0, 7),
        (2, "rome", 2.0, 8),
        (3, "oslo", 3.0, 7),
        (4, "bern", 0.5, 7),
        (5, "bern", None, 7),
        (6, "rome", 0.0, 1),
        (10, "x'", 5.0, 9),
        (11, None, None, 1),
    ]
    assert visible_rows(places) == expected


def test_an_overwrite_of_a_partition_replaces_its_paths_alone_even_without_rows(places: lakebed.Table) -> None:
    tables = {"places": places}
    lakebed.sql("INSERT OVERWRITE places PARTITION (city = 'rome', day = 7) VALUES (9, 9)", tables)
    assert visible_rows(places) == [(2, "rome", 2.0, 8), (3, "oslo", 3.0, 7), (9, "rome", 9.0, 7)]
    lakebed.sql("INSERT OVERWRITE places PARTITION (city = 'new', day = 7) SELECT 5, 5.0 WHERE false", tables)
    lakebed.sql("INSERT OVERWRITE TABLE places PARTITION (city = 'oslo', day = '7') SELECT 5, 5.0 WHERE false", tables)
    assert visible_rows(places) == [(2, "rome", 2.0, 8), (9, "rome", 9.0, 7)]
    lakebed.sql("INSERT OVERWRITE places PARTITION (city = 'bern', day) SELECT 4, 4.0, 4", tables)
    lakebed.sql("INSERT OVERWRITE places PARTITION (city = 'rome', day) SELECT 5, 5.0, 8", tables)
    assert visible_rows(places) == [(4, "bern", 4.0, 4), (5, "rome", 5.0, 8)]
    lakebed.sql("INSERT OVERWRITE places PARTITION (day = 8) (id, city) SELECT 6, 'oslo' WHERE false", tables)
    assert visible_rows(places) == [(4, "bern", 4.0, 4)]


def test_rows_that_fulfil_a_condition_are_replaced_in_one_commit(places: lakebed.Table) -> None:
    tables = {"places": places, "more": pa.table({"id": [2, 7], "fare": [0.25, 0.75]})}
    before = len(places.timeline.to_arrow())
    lakebed.sql(
        "WITH m AS (SELECT * FROM more) INSERT INTO places REPLACE WHERE places.Fare < 3"
        " AND (city <> 'SELECT' OR day IN (1, 2))"
        " SELECT id, 'oslo', fare, 7 FROM m",
        tables,
    )
    assert visible_rows(places) == [(2, "oslo", 0.25, 7), (3, "oslo", 3.0, 7), (7, "oslo", 0.75, 7)]
    assert len(places.timeline.to_arrow()) == before + 1
    lakebed.sql("INSERT INTO places (id, fare, city, day) REPLACE WHERE id IN (2, 3) (SELECT 3, 1.5, 'b', 1)", tables)
    assert visible_rows(places) == [(3, "b", 1.5, 1), (7, "oslo", 0.75, 7)]
    lakebed.sql("INSERT INTO places REPLACE WHERE city = 'oslo' SELECT * FROM places WHERE id = 99", tables)
    assert visible_rows(places) == [(3, "b", 1.5, 1)]
    for key in (3, 8):  # a stored key in a row that is not replaced, and a new key
        with pytest.raises(InvalidRecord, match=r"1 row\(s\) of the query do not fulfil the condition .* `day` = 2"):
            lakebed.sql(f"INSERT INTO places REPLACE WHERE day = 2 VALUES ({key}, 'c', 1, 3)", tables)
    with pytest.raises(
        InvalidRecord, match="record key 'id:3' cannot be inserted: the table holds it in a row that REPLACE"
    ):
        lakebed.sql("INSERT INTO places REPLACE WHERE day = 2 VALUES (3, 'c', 1, 2)", tables)
    with pytest.raises(AmbiguousMerge, match="record key 'id:9'"):
        lakebed.sql("INSERT INTO places REPLACE WHERE day = 2 VALUES (9, 'c', 1, 2), (9, 'd', 1, 2)", tables)
    assert visible_rows(places) == [(3, "b", 1.5, 1)]


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", ["bucket", "global_simple", "record"])
def test_a_replaced_row_with_a_smaller_ordering_value_is_an_error(index: str, kind: str, request: Any) -> None:
    uri = f"memory://changes/{request.node.name}"
    more = {"buckets": 1} if index == "bucket" else {}
    table = lakebed.create(uri, PLACES, key="id", ordering="fare", index=index, partition_by="city", type=kind, **more)
    table.upsert({"id": [1, 2], "city": ["rome", "rome"], "fare": [5.0, 6.0], "day": [1, 1]})
    with pytest.raises(AmbiguousMerge, match=r"record key '1' cannot be replaced: .* the stored row is greater"):
        lakebed.sql("INSERT INTO t REPLACE WHERE day = 1 VALUES (1, 'rome', 4.5, 1)", {"t": table})
    assert visible_rows(table) == [(1, "rome", 5.0, 1), (2, "rome", 6.0, 1)]
    lakebed.sql("INSERT INTO t REPLACE WHERE day = 1 VALUES (1, 'rome', 5, 1), (3, 'oslo', 0, 1)", {"t": table})
    assert visible_rows(table) == [(1, "rome", 5.0, 1), (3, "oslo", 0.0, 1)]
    lakebed.drop(uri)


def test_rows_are_not_replaced_in_a_table_that_generates_its_keys() -> None:
    table = lakebed.create("memory://changes/generated", TRIPS)
    table.insert({"id": [1], "city": ["rome"], "fare": [1.0]})
    with pytest.raises(UnsupportedFeature, match="takes a record key") as error:
        lakebed.sql("INSERT INTO t REPLACE WHERE id = 1 VALUES (1, 'x', 2)", {"t": table})
    assert "INSERT OVERWRITE t PARTITION" in (error.value.hint or "")
    assert visible_rows(table) == [(1, "rome", 1.0)]
    lakebed.drop(table.uri)


def test_values_of_partition_are_those_that_their_columns_take() -> None:
    cases: list[tuple[pa.DataType, Any, Any]] = [
        (pa.decimal128(8, 2), "1.5", Decimal("1.50")),
        (pa.decimal128(8, 2), "-1", Decimal("-1.00")),
        (pa.decimal128(8, 2), "'1.5'", Decimal("1.50")),
        (pa.decimal128(8, 2), [Decimal("1.1")], Decimal("1.10")),
        (pa.decimal128(8, 2), [1.1], Decimal("1.10")),
        (pa.decimal128(8, 2), "1.555", InvalidOption),
        (pa.decimal128(8, 2), "'1.555'", InvalidOption),
        (pa.decimal128(8, 2), "1000000", InvalidRecord),
        (pa.int32(), "2147483647", 2**31 - 1),
        (pa.int32(), "2147483648", InvalidRecord),
        (pa.int32(), "3.0", 3),
        (pa.int32(), "3.7", InvalidOption),
        (pa.int32(), "true", SchemaConflict),
        (pa.bool_(), "true", True),
        (pa.bool_(), "1", SchemaConflict),
        (pa.string(), "true", "true"),
        (pa.string(), [date(2024, 1, 2)], "2024-01-02"),
        (pa.string(), [datetime(2024, 1, 2)], SchemaConflict),
        (pa.date32(), "'2024-01-02'", date(2024, 1, 2)),
        (pa.date32(), "20240102", SchemaConflict),
        (pa.date32(), "DATE '2024-01-02'", date(2024, 1, 2)),
        (pa.date32(), "CAST('2024-01-02' AS DATE)", date(2024, 1, 2)),
        (pa.date32(), "DATE('2024-01-02')", date(2024, 1, 2)),
        (pa.date32(), "DATE '2024-01-32'", InvalidOption),
        (pa.date32(), "-DATE '2024-01-02'", InvalidOption),
        (pa.date32(), "CAST(id AS DATE)", InvalidOption),
        (pa.string(), "DATE '2024-01-02'", "2024-01-02"),
        (pa.int32(), "CAST('7' AS INT)", 7),
        (pa.int32(), "-CAST(7 AS INT)", -7),
        (pa.int32(), "DATE '2024-01-02'", SchemaConflict),
        (pa.timestamp("us", "UTC"), "TIMESTAMP '2024-01-02 03:04:05'", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), "TIMESTAMP '2024-01-02 03:04:05+02:00'", datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), "'2024-01-02 03:04:05'", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), "'tomorrow'", InvalidOption),
        (pa.timestamp("us"), "TIMESTAMP_NTZ '2024-01-02 03:04:05'", datetime(2024, 1, 2, 3, 4, 5)),
    ]
    for at, (kind, value, stored) in enumerate(cases):
        columns = pa.schema([("id", pa.int64()), ("c", kind)])
        table = lakebed.create(f"memory://changes/constants/{at}", columns, key="id", partition_by="c")
        text, args = (value, None) if isinstance(value, str) else ("?", value)

        def insert(text: str = text, args: Any = args, table: lakebed.Table = table) -> None:
            lakebed.sql(f"INSERT INTO t PARTITION (c = {text}) VALUES (1)", {"t": table}, args)

        if isinstance(stored, type):
            with pytest.raises(stored, match=r"\bc\b|'c'"):
                insert()
            assert table.count() == 0, (kind, value)
        else:
            insert()
            assert table.scan(["id", "c"]).to_arrow().to_pylist() == [{"id": 1, "c": stored}], (kind, value)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "INSERT INTO t PARTITION (fare = 1) VALUES (1)",
            "no partition column 'fare' .it has city, day. in the INSERT near 'fare = 1",
        ),
        ("INSERT INTO t PARTITION (day = 'x', city) VALUES (1)", "'x' is no INT in the INSERT near \"day = 'x'"),
        ("INSERT INTO t PARTITION (day = 1.5) (id) VALUES (1)", "1.5 is no INT in the INSERT near 'day = 1.5"),
        ("INSERT INTO t PARTITION (day = 1, DAY = 2) VALUES (1)", "'day' is given twice in the INSERT near 'DAY = 2"),
        ("INSERT INTO t PARTITION (day = 1 + 1) VALUES (1)", "something follows 'day' in the INSERT near '\\+ 1"),
        ("INSERT INTO t PARTITION (day = 1) (id, day) VALUES (1, 2)", "'day' has its value in PARTITION already"),
        ("INSERT INTO t PARTITION (day = 1) BY NAME SELECT 1 AS day", "'day' has its value in PARTITION already"),
        ("INSERT INTO t PARTITION (day = 1) VALUES (1)", "1 values for 3 columns in the INSERT near 'VALUES"),
        ("INSERT INTO t PARTITION () VALUES (1)", "the columns of a partition in parentheses are missing"),
        ("INSERT INTO t PARTITION (city) VALUES (1, 'x', 1, 1)", "city are not the last columns of the table"),
        ("INSERT OVERWRITE t PARTITION (day = 1) IF NOT EXISTS VALUES (1)", "IF NOT EXISTS is not possible"),
        ("INSERT INTO t REPLACE WHERE id = 1", "the query is missing after the condition in the INSERT near the end"),
        ("INSERT INTO t REPLACE WHERE SELECT 1", "2? ?.* is missing|values for 4 columns"),
        ("INSERT INTO t REPLACE WHERE nope = 1 VALUES (1, 'a', 1, 1)", "nope"),
        (
            "INSERT OVERWRITE t REPLACE WHERE id = 1 VALUES (1)",
            "REPLACE WHERE comes after INSERT INTO without PARTITION",
        ),
        ("INSERT INTO t PARTITION (day = 1) REPLACE WHERE id = 1 VALUES (1)", "near 'REPLACE WHERE"),
    ],
)
def test_a_wrong_insert_names_the_place_and_writes_nothing(places: lakebed.Table, text: str, match: str) -> None:
    before = visible_rows(places)
    with pytest.raises(InvalidOption, match=match):
        lakebed.sql(text, {"t": places})
    assert visible_rows(places) == before


def test_typed_constants_name_partition_paths_in_every_statement() -> None:
    kinds: list[tuple[pa.DataType, str, str, str]] = [
        (pa.date32(), "DATE '2024-01-02'", "CAST('2024-01-03' AS DATE)", "'2024-01-32'"),
        (pa.timestamp("us", "UTC"), "TIMESTAMP '2024-01-02 03:04:05'", "'2024-01-02 03:04:06'", "'x'"),
        (pa.decimal128(8, 2), "1.5", "CAST(2.5 AS DECIMAL(8, 2))", "'x'"),
    ]
    for at, (kind, first, second, wrong) in enumerate(kinds):
        columns = pa.schema([("id", pa.int64()), ("c", kind)])
        table = lakebed.create(f"memory://changes/typed/{at}", columns, key="id", partition_by="c")
        tables = {"t": table}
        lakebed.sql(f"INSERT INTO t PARTITION (c = {first}) VALUES (1), (2)", tables)
        lakebed.sql(f"INSERT INTO t PARTITION (c = {second}) VALUES (3)", tables)
        lakebed.sql(f"INSERT OVERWRITE t PARTITION (c = {first}) VALUES (4)", tables)
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [3, 4], kind
        shown = lakebed.sql(f"SHOW PARTITIONS t PARTITION (c = {second})", tables)
        assert len(shown.to_arrow()) == 1, kind  # type: ignore[union-attr]
        for statement in ("SHOW PARTITIONS t", "TRUNCATE TABLE t", "ALTER TABLE t DROP"):
            with pytest.raises(InvalidOption, match=" is no "):
                lakebed.sql(f"{statement} PARTITION (c = {wrong})", tables)
        lakebed.sql(f"ALTER TABLE t DROP PARTITION (c = {first})", tables)
        assert table.scan().to_arrow()["id"].to_pylist() == [3], kind
        lakebed.sql(f"TRUNCATE TABLE t PARTITION (c = {second})", tables)
        assert table.count() == 0, kind


def test_a_number_with_the_letters_of_its_type_is_a_constant_of_every_statement() -> None:
    kinds: list[tuple[pa.DataType, tuple[str, str, str], Any]] = [
        (pa.int64(), ("7L", "7", "7S"), 7),
        (pa.int64(), ("-9223372036854775807L", "-9223372036854775807", "-9223372036854775807l"), -(2**63) + 1),
        (pa.int32(), ("2S", "2Y", "2L"), 2),
        (pa.int32(), ("-128Y", "-128", "-128S"), -128),
        (pa.decimal128(4, 2), ("1.5BD", "1.50", "1.5D"), Decimal("1.50")),
        (pa.float64(), ("1.5D", "1.5BD", "1.5"), 1.5),
    ]
    for at, (kind, numbers, value) in enumerate(kinds):
        columns = pa.schema([("id", pa.int64()), ("c", kind)])
        table = lakebed.create(f"memory://changes/suffixes/{at}", columns, key="id", partition_by="c")
        tables = {"t": table}
        for id_, number in enumerate(numbers):
            lakebed.sql(f"INSERT INTO t PARTITION (c = {number}) VALUES ({id_})", tables)
            assert table.scan(where=f"c = {number}").count() == id_ + 1, number
            shown = lakebed.sql(f"SHOW PARTITIONS t PARTITION (c = {number})", tables)
            assert len(shown.to_arrow()) == 1, number  # type: ignore[union-attr]
        assert table.scan().to_arrow()["c"].to_pylist() == [value] * 3, kind
        for wrong in ("7X", "128Y", "-129Y", "32768S", "9223372036854775808L", "-32769S", "7 L"):
            with pytest.raises(InvalidOption, match="TRUNCATE"):
                lakebed.sql(f"TRUNCATE TABLE t PARTITION (c = {wrong})", tables)
        assert table.count() == 3
        lakebed.sql(f"TRUNCATE TABLE t PARTITION (c = {numbers[0]})", tables)
        assert table.count() == 0, kind
