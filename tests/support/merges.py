"""MERGE statements as data, the same as SQL for DuckDB, and the differences between the two that are on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from lakebed.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("grp", pa.string()), ("a", pa.int64()), ("b", pa.string())])
Row = tuple[Any, ...]
STORED: Sequence[Row] = [(1, "x", 10, "p"), (2, "x", 20, "q"), (3, "y", 30, None), (4, "y", None, "r")]
UPDATE, DELETE, INSERT = "when_matched_update", "when_matched_delete", "when_not_matched_insert"
STALE_UPDATE, STALE_DELETE = "when_not_matched_by_source_update", "when_not_matched_by_source_delete"


@dataclass(frozen=True)
class Case:
    """One statement: its source rows, the join condition, the clauses as method names and arguments. `refused` is what
    lakebed refuses and DuckDB does, or the other way round."""

    name: str
    source: Sequence[Row]
    on: Any
    clauses: Sequence[tuple[str, Mapping[str, Any]]]
    refused: str = ""
    stored: Sequence[Row] = field(default_factory=lambda: STORED)


def data(rows: Sequence[Row]) -> pa.Table:
    """Rows of the schema."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows in an order that nulls do not disturb."""
    return sorted(rows, key=lambda row: tuple((value is None, value) for value in row))


def content(table: Table) -> list[Row]:
    """The rows of a table."""
    return in_order([tuple(row.values()) for row in table.scan(SCHEMA.names).to_arrow().to_pylist()])


def run(table: Table, case: Case) -> Any:
    """Carry the case out."""
    merge = table.merge(data(case.source), case.on)
    for method, words in case.clauses:
        merge = getattr(merge, method)(**words)
    return merge.execute()


def statement(case: Case, target: str = "t", source: str = "s") -> str:
    """The case as SQL."""
    on = ["id"] if case.on is None else [case.on] if isinstance(case.on, str) and case.on.isidentifier() else case.on
    condition = on if isinstance(on, str) else " AND ".join(f"t.{name} = s.{name}" for name in on)
    text = f"MERGE INTO {target} AS t USING {source} AS s ON ({condition})"
    for method, words in case.clauses:
        when = "NOT MATCHED BY SOURCE" if "by_source" in method else "NOT MATCHED" if "not_" in method else "MATCHED"
        also = f" AND ({words['condition']})" if words.get("condition") else ""
        text += f" WHEN {when}{also} THEN {_action(method, words)}"
    return text


def _action(method: str, words: Mapping[str, Any]) -> str:
    if method.endswith("delete"):
        return "DELETE"
    values = words.get("set" if method.endswith("update") else "values", "all")
    if values == "all":
        return "UPDATE SET *" if method.endswith("update") else "INSERT *"
    if method.endswith("update"):
        return "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in values.items())
    return f"INSERT ({', '.join(values)}) VALUES ({', '.join(map(str, values.values()))})"


def by_duckdb(case: Case) -> list[Row]:
    """The rows that DuckDB has after the statement."""
    connection = duckdb.connect()
    for name, rows in (("t", data(case.stored)), ("s", data(case.source))):
        connection.register(f"given_{name}", rows)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")
    connection.execute(statement(case))
    return in_order(connection.execute("SELECT * FROM t").fetchall())


_SOME = [(1, "x", 11, "s1"), (3, "y", 31, "s3"), (5, "z", 50, "n5")]
_TWICE = [(1, "x", 11, "s1"), (1, "x", 12, "s2"), (5, "z", 50, "n5")]
_NULLS = [(1, "x", None, None), (5, None, None, None)]
_ALL: Mapping[str, Any] = {}


def _set(condition: str | None = None, **values: Any) -> dict[str, Any]:
    return {"set": values, "condition": condition}


def _values(condition: str | None = None, **values: Any) -> dict[str, Any]:
    return {"values": values, "condition": condition}


CASES = [
    Case("all columns of known keys, new keys", _SOME, None, [(UPDATE, _ALL), (INSERT, _ALL)]),
    Case("known keys alone", _SOME, "id", [(UPDATE, _ALL)]),
    Case("new keys alone", _SOME, ["id"], [(INSERT, _ALL)]),
    Case("deletes", _SOME, "id", [(DELETE, _ALL)]),
    Case("an update under a condition", _SOME, "t.id = s.id", [(UPDATE, _set("s.a > 20", a="s.a"))]),
    Case(
        "the first of two updates",
        _SOME,
        "t.id = s.id",
        [(UPDATE, _set("t.grp = 'x'", a="s.a + 100")), (UPDATE, _set(b="'second'"))],
    ),
    Case(
        "a delete before an update",
        _SOME,
        "t.id = s.id",
        [(DELETE, {"condition": "s.a < 20"}), (UPDATE, _set(a="s.a + t.a", b="t.b || '!'"))],
    ),
    Case("some columns of new rows", _SOME, "t.id = s.id", [(INSERT, _values(id="s.id", a="s.a * 2"))]),
    Case(
        "two kinds of new rows",
        [*_SOME, (6, "w", 60, "n6")],
        "t.id = s.id",
        [(INSERT, _values("s.a > 55", id="s.id", b="'big'")), (INSERT, _ALL)],
    ),
    Case("a condition that no new row fulfils", _SOME, "t.id = s.id", [(INSERT, {"condition": "s.a > 1000"})]),
    Case("two source rows update one", _TWICE, "id", [(UPDATE, _ALL)], refused="AmbiguousMerge"),
    Case("a condition leaves one of two", _TWICE, "t.id = s.id", [(UPDATE, {"condition": "s.a = 12"})]),
    Case(
        "an update and a delete of one row",
        _TWICE,
        "t.id = s.id",
        [(UPDATE, _set("s.a = 12", a="1")), (DELETE, _ALL)],
        refused="AmbiguousMerge",
    ),
    Case("two source rows delete one", _TWICE, "t.id = s.id", [(DELETE, _ALL)], refused="DuckDB"),
    Case(
        "two source rows insert one key",
        [(7, "z", 1, "a"), (7, "z", 2, "b")],
        "id",
        [(INSERT, _ALL)],
        refused="AmbiguousMerge",
    ),
    Case("a condition that is null", _NULLS, "t.id = s.id", [(UPDATE, _set("s.a > 0", b="'never'"))]),
    Case(
        "a null key matches nothing", [(None, "x", 1, "k"), (1, "x", 5, "k1")], "t.id = s.id", [(UPDATE, _set(a="s.a"))]
    ),
    Case("a null key is not inserted", [(None, "x", 1, "k")], "t.id = s.id", [(INSERT, _ALL)], refused="InvalidRecord"),
    Case("nulls are set", _NULLS, "t.id = s.id", [(UPDATE, _set(a="NULL", b="s.b"))]),
    Case("ON with a condition on the source", _SOME, "t.id = s.id AND s.a > 20", [(UPDATE, _set(a="s.a"))]),
    Case(
        "ON with a condition on the source, and an insert",
        _SOME,
        "t.id = s.id AND s.a > 20",
        [(UPDATE, _set(a="s.a")), (INSERT, {"condition": "s.id >= 5"})],
    ),
    Case(
        "a stored key is not inserted",
        _SOME,
        "t.id = s.id AND s.a > 20",
        [(UPDATE, _set(a="s.a")), (INSERT, _ALL)],
        refused="InvalidRecord",
    ),
    Case("ON with a condition on the target", _SOME, "t.id = s.id AND t.grp = 'x'", [(UPDATE, _set(a="s.a"))]),
    Case(
        "ON with another column, which decides",
        [(1, "x", 11, "s1"), (2, "z", 12, "s2"), (5, "z", 50, "n5")],
        ["id", "grp"],
        [(UPDATE, _set(a="s.a")), (INSERT, {"condition": "s.id = 5"})],
    ),
    Case("ON with the key twice", [(1, "x", 1, "s"), (2, "x", 9, "s")], "t.id = s.id AND t.id = s.a", [(UPDATE, _ALL)]),
    Case("ON with a range", [(0, "x", 15, "r")], "t.a > s.a", [(UPDATE, _set(b="s.b"))]),
    Case(
        "ON with a column that is no key",
        [(0, "y", 1, "gy")],
        "t.grp = s.grp",
        [(UPDATE, _set(b="s.b", a="coalesce(t.a, 0) + s.a"))],
    ),
    Case(
        "two source rows update a group",
        [(0, "y", 1, "g1"), (9, "y", 2, "g2")],
        "t.grp = s.grp",
        [(UPDATE, _set(b="s.b"))],
        refused="AmbiguousMerge",
    ),
    Case("ON with an expression over the key", [(10, "x", 77, "e")], "t.id = s.id / 10", [(UPDATE, _set(a="s.a"))]),
    Case("ON with a key that is computed", [(0, "x", 77, "e")], "t.id = s.id + 1", [(UPDATE, _set(a="s.a"))]),
    Case("ON that never holds", _SOME, "1 = 0", [(UPDATE, _ALL), (INSERT, {"condition": "s.id = 5"})]),
    Case("stale rows are deleted", _SOME, "t.id = s.id", [(STALE_DELETE, _ALL)]),
    Case("some stale rows are updated", _SOME, "t.id = s.id", [(STALE_UPDATE, _set("t.grp = 'y'", b="'gone'"))]),
    Case(
        "stale rows by a condition of ON",
        [(1, "x", 11, "s1")],
        "t.id = s.id AND t.grp = 'x'",
        [(UPDATE, _set(a="s.a")), (STALE_UPDATE, _set(b="'stale'"))],
    ),
    Case("a full synchronisation", _SOME, "t.id = s.id", [(UPDATE, _ALL), (INSERT, _ALL), (STALE_DELETE, _ALL)]),
    Case(
        "two clauses for stale rows",
        _SOME,
        "t.id = s.id",
        [(STALE_DELETE, {"condition": "t.a IS NULL"}), (STALE_UPDATE, _set(a="t.a + 1"))],
    ),
    Case("no source rows, stale rows deleted", [], "t.id = s.id", [(STALE_DELETE, {"condition": "t.grp = 'x'"})]),
    Case("no source rows", [], "t.id = s.id", [(UPDATE, _ALL), (INSERT, _ALL)]),
    Case(
        "all kinds of clauses",
        [*_SOME, (2, "x", 0, "del")],
        "t.id = s.id",
        [
            (DELETE, {"condition": "s.b = 'del'"}),
            (UPDATE, _set("s.a > 20", a="s.a")),
            (UPDATE, _set(b="'low'")),
            (INSERT, _ALL),
            (STALE_UPDATE, _set(b="'orphan'")),
        ],
    ),
]
