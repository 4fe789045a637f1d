"""The SQL that Spark gets of a condition: it means the same in every session, and names only columns that are read."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed.filters.sql import parse_filter

INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("Name", pa.string()),
        ("timestamp", INSTANT),
        ("s", pa.struct([("X", pa.struct([("Y", pa.int32())]))])),
        ("l", pa.list_(pa.struct([("A", pa.int32())]))),
    ]
)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("ID = 1 AND Name = 'ID'", "`id` = 1 AND Name = 'ID'"),
        ("S.x.y > 3 AND `S`.`X`.y = 4 -- S.x", "`s`.`X`.`Y` > 3 AND `s`.`X`.`Y` = 4 -- S.x"),
        ("L[0].A = 1", "`l`[0].A = 1"),
        ("exists(L, Name -> Name.A = 1)", "exists(`l`, Name -> Name.A = 1)"),
        ("timestamp > TIMESTAMP '2026-01-01'", "timestamp > TIMESTAMP_LTZ '2026-01-01'"),
        ("CAST(name AS timestamp) = `TimeStamp`", "CAST(`Name` AS TIMESTAMP_LTZ) = `timestamp`"),
        ("Name::TIMESTAMP > timestamp /* TIMESTAMP */", "Name::TIMESTAMP_LTZ > timestamp /* TIMESTAMP */"),
        ("timestamp > TIMESTAMP_NTZ '2026-01-01'", "timestamp > TIMESTAMP_NTZ '2026-01-01'"),
        ("Name = 'as TIMESTAMP'", "Name = 'as TIMESTAMP'"),
    ],
)
def test_columns_and_types_are_those_of_the_table(given: str, sent: str) -> None:
    predicate = parse_filter(given, SCHEMA)
    assert predicate.to_spark_sql() == sent
    assert str(predicate) == given


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ("id = NULL OR Name = 'x'", ["Name", "id"]),
        ("id BETWEEN NULL AND NULL", ["id"]),
        ("NOT (ID = NULL)", ["id"]),
        ("Name LIKE NULL AND id = 1", ["Name", "id"]),
        ("startswith(Name, NULL) OR id = 1", ["Name", "id"]),
    ],
)
def test_columns_that_are_compared_with_null_are_read(given: str, columns: list[str]) -> None:
    assert sorted(parse_filter(given, SCHEMA).columns) == columns


@pytest.mark.parametrize("given", ["id = NULL", "NULL", "Name LIKE NULL", "Name NOT LIKE NULL", "endswith(Name, NULL)"])
def test_a_condition_that_is_null_for_every_row_names_no_column(given: str) -> None:
    predicate = parse_filter(given, SCHEMA)
    assert predicate.to_spark_sql() == "CAST(NULL AS BOOLEAN)"
    assert predicate.columns == ()


NULL_CONDITIONS = {
    "v = NULL": [],
    "v != NULL": [],
    "v IN (NULL)": [],
    "v BETWEEN NULL AND NULL": [],
    "v BETWEEN 1 AND NULL": [],
    "NOT (v BETWEEN 2 AND NULL)": [0, 1],
    "v = NULL OR id = 1": [1],
    "NOT (v = NULL) OR id = 1": [1],
    "v <=> NULL": [3],
    "text LIKE NULL OR id = 2": [2],
    "startswith(text, NULL)": [],
    "NULL": [],
    "NULL OR id = 0": [0],
}


@pytest.mark.parametrize("condition", NULL_CONDITIONS)
def test_null_constants_select_rows_as_spark_does(condition: str) -> None:
    rows = pa.table({"id": [0, 1, 2, 3], "v": [0, 1, 2, None], "text": ["a", "b", "c", "d"]})
    table = lakebed.create("memory://null-constants/t", rows, key="id", index="simple")
    try:
        table.upsert(rows)
        found = table.scan(["id"], where=condition).to_arrow()["id"].to_pylist()
        assert sorted(found) == NULL_CONDITIONS[condition]
    finally:
        lakebed.drop("memory://null-constants/t")
