"""Every type of value into every type of column, by every way in: the same value is stored, or the same class of error
is raised, and it names the column."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRecord, LakebedError
from lakebed.ingestion.job import IngestJob, Target
from lakebed.ingestion.source import IngestPoll
from lakebed.schema.arrow import list_of, map_of
from lakebed.schema.assignment import DATA as DATA_RULE
from lakebed.schema.assignment import SQL, Rule, check_fits, in_column
from lakebed.schema.evolution import reconcile
from lakebed.statements.commands import OF_DUCKDB
from lakebed.table import Table

Way = Callable[[Table, pa.Table], Any]
Case = tuple[str, pa.DataType, pa.DataType, Any]

# Types, each with a value that is small and one that is great.
VALUES: dict[pa.DataType, tuple[Any, Any]] = {
    pa.bool_(): (True, False),
    pa.int32(): (7, 2**31 - 1),
    pa.int64(): (7, 2**62 + 1),
    pa.float32(): (1.5, 2.0**127),
    pa.float64(): (1.5, 1e300),
    pa.decimal128(10, 2): (Decimal("1.25"), Decimal("99999999.99")),
    pa.decimal128(38, 10): (Decimal("1.2345678901"), Decimal("9" * 28)),
    pa.string(): ("7", "x" * 100),
    pa.binary(): (b"7", b"\xff"),
    pa.date32(): (date(2024, 1, 2), date(9999, 12, 31)),
    pa.timestamp("us", "UTC"): (datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 2, 3, 4, 5, 678901, UTC)),
    pa.timestamp("us"): (datetime(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5, 678901)),
}
NESTED: dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any]]] = {
    "plain": (lambda kind: kind, lambda value: value),
    "struct": (lambda kind: pa.struct([("x", kind), ("y", pa.int32())]), lambda value: {"x": value, "y": 1}),
    "list": (list_of, lambda value: [value, None]),
    "map": (map_of, lambda value: [("k", value)]),
}


def by_sql(text: str) -> Way:
    return lambda table, rows: lakebed.sql(text, {"t": table, "s": rows})


class OneRound:
    """A source of ingest that has rows once."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        rows = self._rows if checkpoint is None else None
        return IngestPoll(rows, None, "1")


def ingested(table: Table, rows: pa.Table) -> Any:
    return lakebed.ingest(IngestJob(OneRound(rows), Target(table.uri)), once=True)


DATA: dict[str, Way] = {
    "upsert": lambda t, rows: t.upsert(rows),
    "upsert of known columns": lambda t, rows: t.upsert(rows, partial=True),
    "insert": lambda t, rows: t.insert(rows),
    "insert_overwrite": lambda t, rows: t.insert_overwrite(rows),
    "bulk_insert": lambda t, rows: t.bulk_insert(rows),
    "ingest": ingested,
}
STATEMENTS: dict[str, Way] = {
    "merge by key": lambda t, rows: t.merge(rows).when_matched_update().when_not_matched_insert().execute(),
    "merge by join": lambda t, rows: (
        t.merge(rows, "t.id <= s.id AND t.id >= s.id").when_matched_update().when_not_matched_insert().execute()
    ),
    "merge of expressions": lambda t, rows: (
        t.merge(rows).when_not_matched_insert({name: f"s.{name}" for name in rows.column_names}).execute()
    ),
    "MERGE": by_sql("MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"),
}
INSERTS: dict[str, Way] = {
    "INSERT": by_sql("INSERT INTO t SELECT * FROM s"),
    "INSERT BY NAME": by_sql("INSERT INTO t BY NAME SELECT * FROM s"),
    "INSERT OVERWRITE": by_sql("INSERT OVERWRITE t SELECT * FROM s"),
    "REPLACE WHERE": by_sql("INSERT INTO t REPLACE WHERE id = 2 SELECT * FROM s"),
}


GROUPS = [(DATA_RULE, DATA), (SQL, STATEMENTS), (OF_DUCKDB, INSERTS)]


def cases() -> list[Case]:
    pairs = product(NESTED, VALUES, VALUES)
    return [(nesting, kind, to, value) for nesting, kind, to in pairs for value in VALUES[kind]]


def decided(kind: pa.DataType, to: pa.DataType, value: Any, rule: Rule) -> tuple[str, Any]:
    """What the rule says of a value: stored as what, or the class of the error."""
    field = pa.field("c", to)
    try:
        if rule.sql:
            check_fits(kind, field, rule)
        else:
            reconcile(pa.schema([field]), pa.schema([("c", kind)]), evolution="add")
        (stored,) = in_column(pa.array([value], kind), field, rule).to_pylist()
    except LakebedError as error:
        return type(error).__name__, None
    return "stored", stored


def table_of(name: str, columns: pa.Schema) -> Table:
    table = lakebed.create(f"memory://values/{name}", columns, key="id", index="simple")
    table.upsert(pa.Table.from_pylist([{"id": 1}], columns))
    return table


def check_stored(rule: Rule, ways: dict[str, Way]) -> None:
    """All values that the rule stores, a column for each, by every way."""
    stored: list[tuple[Case, pa.DataType, pa.DataType, Any, Any]] = []
    for case in cases():
        nesting, kind, to, value = case
        wrap, of = NESTED[nesting]
        sort, kept = decided(wrap(kind), wrap(to), of(value), rule)
        if sort == "stored":
            stored.append((case, wrap(kind), wrap(to), of(value), kept))
    assert len(stored) >= 200
    names = [f"c{number}" for number in range(len(stored))]
    columns = pa.schema([("id", pa.int64()), *zip(names, (to for _, _, to, _, _ in stored), strict=True)])
    rows = pa.table(
        [pa.array([2], pa.int64()), *(pa.array([value], kind) for _, kind, _, value, _ in stored)], ["id", *names]
    )
    for name, way in ways.items():
        table = table_of(name, columns)
        way(table, rows)
        (row,) = (row for row in table.scan().to_arrow().to_pylist() if row["id"] == 2)
        different = [
            (case, row[column], kept)
            for column, (case, _, _, _, kept) in zip(names, stored, strict=True)
            if repr(row[column]) != repr(kept)
        ]
        assert different == [], name
        assert table.schema.types[1:] == columns.types[1:], name


def check_refused(rule: Rule, ways: dict[str, Way], *, every_way: bool) -> None:
    """Values that the rule refuses, some of them by one of the ways, or all by each: nothing is changed."""
    tables: dict[pa.DataType, Table] = {}
    numbered = list(ways.items())
    for number, case in enumerate(cases()):
        nesting, kind, to, value = case
        wrap, of = NESTED[nesting]
        sort, _ = decided(wrap(kind), wrap(to), of(value), rule)
        if sort == "stored" or (not every_way and number % 7):
            continue
        column = pa.schema([("id", pa.int64()), ("c", wrap(to))])
        if wrap(to) not in tables:
            tables[wrap(to)] = table_of(f"refused {numbered[0][0]} {every_way} {len(tables)}", column)
        rows = pa.table([pa.array([2], pa.int64()), pa.array([of(value)], wrap(kind))], ["id", "c"])
        for name, way in numbered if every_way else [numbered[number // 7 % len(numbered)]]:
            try:
                way(tables[wrap(to)], rows)
            except LakebedError as raised:
                error = raised
            else:
                pytest.fail(f"{name} stores {case}")
            column_name = error.context.get("column", error.context.get("columns"))
            is_named = "column c" in str(error) if column_name is None else "c" in str(column_name)  # of a bad row
            assert (type(error).__name__, is_named) == (sort, True), (name, case, str(error))
            if isinstance(error, InvalidRecord):
                assert error.context.get("value", str(error)).rstrip(".") in str(error), (name, case)
    for table in tables.values():
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "c": None}]


def extended(kind: pa.DataType, to: pa.DataType) -> bool:
    """Whether statements take these values where an upsert does not: docs/types.md lists these pairs."""
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if any(is_one(kind) for is_one in numbers) and any(is_one(to) for is_one in numbers):
        return True
    if pa.types.is_string(to):
        return pa.types.is_date(kind) or pa.types.is_boolean(kind)
    return pa.types.is_string(kind) and (pa.types.is_date(to) or pa.types.is_decimal(to))


def test_every_way_stores_the_values_of_the_rule() -> None:
    for rule, ways in GROUPS:
        check_stored(rule, ways)


@pytest.mark.rest
def test_every_way_refuses_what_the_rule_refuses() -> None:
    for rule, ways in GROUPS:
        check_refused(rule, ways, every_way=False)


@pytest.mark.full
def test_each_way_refuses_each_value_that_the_rule_refuses() -> None:
    for rule, ways in GROUPS:
        check_refused(rule, ways, every_way=True)


def test_statements_take_what_an_upsert_takes_and_the_pairs_of_their_extension() -> None:
    for nesting, kind, to, value in cases():
        wrap, of = NESTED[nesting]
        data = decided(wrap(kind), wrap(to), of(value), DATA_RULE)
        statement = decided(wrap(kind), wrap(to), of(value), SQL)
        same = data == statement or (data[0] == "SchemaConflict" and extended(kind, to))
        assert same, (nesting, kind, to, value, data, statement)
