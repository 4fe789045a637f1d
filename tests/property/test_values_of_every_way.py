"""Every type of value into every type of column, by every way in: the same value is stored, or the same class of error is
raised, and it names the column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRecord, LakebedError, SchemaConflict
from lakebed.ingestion.source import IngestPoll
from lakebed.schema.arrow import list_of, map_of
from lakebed.table import Table

Way = Callable[[Table, pa.Table], Any]
Outcome = tuple[str, Any]

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
        return IngestPoll(self._rows if checkpoint is None else None, None, "1")


DATA: dict[str, Way] = {
    "upsert": lambda t, rows: t.upsert(rows),
    "upsert of known columns": lambda t, rows: t.upsert(rows, partial=True),
    "insert": lambda t, rows: t.insert(rows),
    "insert_overwrite": lambda t, rows: t.insert_overwrite(rows),
    "bulk_insert": lambda t, rows: t.bulk_insert(rows),
}
STATEMENTS: dict[str, Way] = {
    "merge by key": lambda t, rows: t.merge(rows).when_matched_update().when_not_matched_insert().execute(),
    "merge of an expression": lambda t, rows: t.merge(rows).when_not_matched_insert({"id": "s.id", "c": "s.c"}).execute(),
    "merge by join": lambda t, rows: (
        t.merge(rows, "t.id <= s.id AND t.id >= s.id").when_matched_update().when_not_matched_insert().execute()
    ),
    "MERGE": by_sql("MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"),
    "INSERT": by_sql("INSERT INTO t SELECT id, c FROM s"),
    "INSERT BY NAME": by_sql("INSERT INTO t BY NAME SELECT * FROM s"),
    "INSERT OVERWRITE": by_sql("INSERT OVERWRITE t SELECT * FROM s"),
    "REPLACE WHERE": by_sql("INSERT INTO t REPLACE WHERE id = 2 SELECT * FROM s"),
}


@pytest.fixture(scope="module")
def tables() -> Iterator[Callable[[pa.DataType], Table]]:
    made: dict[pa.DataType, Table] = {}

    def of(kind: pa.DataType) -> Table:
        if kind not in made:
            schema = pa.schema([("id", pa.int64()), ("c", kind)])
            made[kind] = lakebed.create(f"memory://values/{len(made)}", schema, key="id", index="simple")
            made[kind].upsert(pa.Table.from_pylist([{"id": 1}], schema))
        return made[kind]

    yield of
    for table in made.values():
        lakebed.drop(table.uri)


def outcome(table: Table, way: Way, value: Any, kind: pa.DataType) -> Outcome:
    """What a way stores of a value, or the class of its error; the table is as before then."""
    rows = pa.table({"id": pa.array([2], pa.int64()), "c": pa.array([value], kind)})
    try:
        way(table, rows)
    except LakebedError as error:
        assert "c" in str(error.context.get("column", error.context.get("columns", ""))), (str(error), error.context)
        if isinstance(error, InvalidRecord):
            assert error.context["value"] in str(error), (str(error), error.context)
        return type(error).__name__, None
    (stored,) = (row for row in table.scan().to_arrow().to_pylist() if row["id"] == 2)
    return "stored", stored["c"]


def cases(nestings: list[str]) -> Iterator[tuple[str, pa.DataType, pa.DataType, Any]]:
    for nesting, kind, to in product(nestings, VALUES, VALUES):
        for value in VALUES[kind]:
            yield nesting, kind, to, value


def check(tables: Callable[[pa.DataType], Table], nestings: list[str], part: int, parts: int) -> list[str]:
    """The differences between the ways."""
    problems: list[str] = []
    for number, (nesting, kind, to, value) in enumerate(cases(nestings)):
        if number % parts != part:
            continue
        wrap, of = NESTED[nesting]
        case = f"{value!r} ({kind}) into {to}, {nesting}"
        found: dict[str, Outcome] = {}
        for name, way in (DATA | STATEMENTS).items():
            table = tables(wrap(to))
            found[name] = outcome(table, way, of(value), wrap(kind))
            if found[name][0] == "stored":
                table.delete({"id": [2]})
        for ways in (DATA, STATEMENTS):
            if len({repr(found[name]) for name in ways}) > 1:
                problems.append(f"{case}: {({name: found[name] for name in ways})}")
        data, statement = found["upsert"], found["MERGE"]
        if data != statement and not (data[0] == "SchemaConflict" and extended(kind, to)):
            problems.append(f"{case}: {data} as data, {statement} in a statement")
    return problems


def extended(kind: pa.DataType, to: pa.DataType) -> bool:
    """Whether statements take these values where an upsert does not: docs/types.md lists these pairs."""
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if any(is_one(kind) for is_one in numbers) and any(is_one(to) for is_one in numbers):
        return True
    if pa.types.is_string(to):
        return pa.types.is_date(kind) or pa.types.is_boolean(kind)
    return pa.types.is_string(kind) and (pa.types.is_date(to) or pa.types.is_decimal(to))


def test_every_way_in_stores_the_same_value_or_raises_the_same_error(tables: Callable[[pa.DataType], Table]) -> None:
    assert check(tables, ["plain"], 0, 7) + check(tables, ["struct", "list", "map"], 0, 61) == []


@pytest.mark.rest
@pytest.mark.parametrize("nesting", NESTED)
def test_every_pair_of_types_by_every_way(tables: Callable[[pa.DataType], Table], nesting: str) -> None:
    assert check(tables, [nesting], 0, 1) == []
