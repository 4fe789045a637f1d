"""Values of `args=`: whatever they are and wherever they stand, the statement keeps its words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.filters.coercion import constant_text, parse_zone
from lakebed.filters.predicates import Literal
from lakebed.filters.sql import ConditionReader, parse_tree
from lakebed.opened_table import OpenedTable
from lakebed.properties.file import load_table_config
from lakebed.statements.arguments import with_values
from lakebed.statements.statement import Statement, parse_statement
from lakebed.storage import open_storage
from lakebed.testing import CountingStorage

WEST = timezone(-timedelta(hours=7, minutes=30))
NUMBERS: tuple[Any, ...] = (0, 5, -5, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**63, -(10**37), 1.5, -1.5, 1e300, -1e-300)
NUMBERS += (-0.0, float("inf"), -float("inf"), Decimal("1.50"), Decimal("-1.50"), Decimal("1E+3"))
TEXTS = (
    "",
    "rome",
    "it's",
    "''",
    '"',
    "a--b",
    "--",
    "/*",
    "*/",
    ";",
    "a\\b",
    "\\",
    "\\'",
    "a\nb",
    ":p",
    "?",
    "x' OR '1'='1",
)
TEXTS += ("${x}", "`", "(", ")", "é日本", "\u0000", "NULL", "5")
OTHERS: tuple[Any, ...] = (None, True, False, b"", b"a'--\x00\xff", date(1, 1, 1), date(2024, 2, 29))
OTHERS += (datetime(2024, 2, 29, 1, 2, 3, 4), datetime(1, 1, 1, 0, 0, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=WEST))
VALUES = (*NUMBERS, *TEXTS, *OTHERS)
SIGNS = (
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "|",
    "^",
    "=",
    "==",
    "<",
    ">",
    "<=",
    ">=",
    "<>",
    "!=",
    "<=>",
    "||",
    "~",
    "- -",
    "-",
)
WORDS = (
    "AND",
    "OR",
    "NOT",
    "DIV",
    "IN(1,",
    "LIKE",
    "RLIKE",
    "BETWEEN",
    "IS DISTINCT FROM",
    "THEN",
    "ELSE",
    "coalesce(",
    "(",
)
# Statements with the places of expressions and constants as `{}`.
STATEMENTS = (
    "UPDATE t SET n = {} WHERE id = 1",
    "UPDATE t SET n = 1, m = {}, k = 2",
    "DELETE FROM t WHERE {} OR id = 1",
    "DELETE FROM t WHERE id = 1 AND {}",
    "INSERT INTO t (id, n) VALUES (1, {}), ({}, 2)",
    "INSERT INTO t SELECT {} FROM u WHERE {}",
    "INSERT INTO t REPLACE WHERE {} SELECT 1",
    "MERGE INTO t USING (SELECT {} AS id) s ON t.id = s.id AND {} WHEN MATCHED AND {} THEN UPDATE SET n = {}"
    " WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, {}) WHEN NOT MATCHED BY SOURCE AND {} THEN DELETE",
    "CREATE TABLE t USING lakebed AS SELECT {} AS n",
    "OPTIMIZE t WHERE {} ZORDER BY (a)",
)


def outer_words(statement: Statement, args: Any) -> tuple[list[str], list[str]]:
    """The words of a statement without its markers, and those of the statement with values without these."""
    written = with_values(statement, args)
    spans = list(written.values)
    outside = [t.text for t in written.tokens if not any(start <= t.start < end for start, end in spans)]
    words: list[str] = []
    for at, token in enumerate(statement.tokens):
        if token.text == "?" or (token.text == ":" and statement.tokens[at + 1].text == "p"):
            continue
        if not (at and statement.tokens[at - 1].text == ":"):
            words.append(token.text)
    return words, outside


@pytest.mark.parametrize("marker", [":p", "?"])
def test_a_value_changes_no_word_around_it(marker: str) -> None:
    operands = [f"n{sign}{marker}" for sign in SIGNS] + [f"{marker}{sign}n" for sign in SIGNS]
    operands += (
        [f"a {word}{marker}" for word in WORDS]
        + [f"{marker}{' ' * (marker != '?')}{word} b" for word in WORDS]
        + [f"-{marker}", marker]
    )
    texts = [text.replace("{}", f"{operand} /* :x */") for operand in operands for text in STATEMENTS]
    assert len(texts) % len(VALUES)  # so that every value comes to every statement and every sign
    for n, text in enumerate(texts * 3):
        statement, value = parse_statement(text, is_spark=True), VALUES[n % len(VALUES)]
        count = STATEMENTS[n % len(STATEMENTS)].count("{}")
        words, outside = outer_words(statement, {"p": value} if marker == ":p" else [value] * count)
        assert outside == words, (text, value)


def test_a_constant_is_read_as_the_value_that_was_given() -> None:
    reader = ConditionReader(pa.schema([]), parse_zone("UTC"))
    for value in VALUES:
        text = constant_text(value)
        assert text is not None, value
        for form in (f"({text})", f"( {text}\n)"):
            read = reader.values.read(parse_tree(form, "value", "expression"))
            assert isinstance(read, Literal)
            expected = value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
            assert read.value == expected, value
            if isinstance(value, int | float | str | bytes) and abs(value if isinstance(value, int) else 0) < 2**63:
                assert (type(read.value), repr(read.value)) == (type(value), repr(value))
        negated = parse_tree(f"3-({text})", "value", "expression")
        assert type(negated).__name__ == "Sub"
    assert repr(reader.values.read(parse_tree(f"({constant_text(float('nan'))})")).value) == "nan"  # type: ignore[union-attr]
    assert constant_text([1, None]) == "array(1L, NULL)"
    no_column = (Decimal(10**40), 10**38, "\ud800", Decimal("NaN"))
    for value in ({"a": 1}, [{"a": 1}], time(1), timedelta(1), object(), *no_column):
        assert constant_text(value) is None


SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int64()),
        ("d", pa.float64()),
        ("x", pa.decimal128(20, 2)),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("flag", pa.bool_()),
    ]
)
GIVEN = {
    "n": (-5, 0, 2**63 - 1, -(2**63), None),
    "d": (-1.5, float("inf"), 1e300, None),
    "x": (Decimal("-1.50"), Decimal("99999999999999.99"), None),
    "s": (*TEXTS, None),
    "b": (b"", b"a'--\x00\xff", None),
    "day": (date(2024, 2, 29), date(1969, 12, 31), None),
    "at": (datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=WEST), None),
    "local": (datetime(2024, 2, 29, 1, 2, 3, 4), datetime(1900, 1, 1), None),
    "flag": (True, False, None),
}


def filled(name: str) -> Iterator[lakebed.Table]:
    table = lakebed.create(f"memory://arguments/{name}", SCHEMA, key="id", index="simple")
    rows = [{"id": 1, "n": 3, "s": "rome"}, {"id": 2, "n": 30, "s": "oslo"}]
    table.upsert(pa.Table.from_pylist(rows, schema=SCHEMA))
    yield table
    lakebed.drop(table.uri)


def rows_of(table: lakebed.Table, *names: str) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table.to_arrow()[name].to_pylist() for name in ("id", *names)), strict=True))


def test_every_kind_of_value_is_stored_found_and_changed_as_it_was_given(t: lakebed.Table) -> None:
    tables = {"t": t}
    rows = [(10 + n, name, value) for n, (name, value) in enumerate((k, v) for k, vs in GIVEN.items() for v in vs)]
    listed = ", ".join("(" + ", ".join(["?"] * len(SCHEMA)) + ")" for _ in rows)
    args = [
        id_ if name == "id" else value if name == column else None
        for id_, column, value in rows
        for name in SCHEMA.names
    ]
    lakebed.sql(f"INSERT INTO t VALUES {listed}", tables, args)
    expected = {(id_, column, value) for id_, column, value in rows}
    found = {row["id"]: row for row in t.to_arrow().to_pylist()}
    assert {(id_, column, found[id_][column]) for id_, column, _ in rows} == expected
    for id_, column, value in rows:
        where = "IS NULL" if value is None else "=:v"
        args = {"id": id_} if value is None else {"id": id_, "v": value}
        texts = f"SELECT id FROM t WHERE id=:id AND(t.{column} {where})"
        assert lakebed.sql(texts, tables, args).to_pylist() == [{"id": id_}], (column, value)
    whole = [(id_, value) for id_, name, value in rows if name == "s" and value is not None]
    cases = " ".join("WHEN s=? THEN?" for _ in whole)
    lakebed.sql(
        f"UPDATE t SET n=CASE {cases}END WHERE id>=10", tables, [part for id_, s in whole for part in (s, -id_)]
    )
    changed = {id_: n for id_, n in rows_of(t, "n") if id_ >= 10}
    assert changed == {id_: -id_ if (id_, value) in whole else None for id_, _, value in rows}
    merge = "MERGE INTO t USING(SELECT:id AS id,:v AS v)s ON t.id=s.id AND s.id>:less"
    merge += " WHEN MATCHED AND(t.id=:id)THEN UPDATE SET"
    for id_, column, value in rows[::5]:
        sets = "n=3-:p" if column == "n" else f"{column}=:v,n=3-:p"
        lakebed.sql(f"{merge} {sets}", tables, {"id": id_, "v": value, "less": -1, "p": -5})
    after = {row["id"]: row for row in t.to_arrow().to_pylist()}
    for id_, column, value in rows[::5]:
        assert (after[id_]["n"], after[id_][column]) == (8, 8 if column == "n" else value)
    lakebed.sql(
        "DELETE FROM t WHERE id>=10 AND NOT s IN(?,?)OR day=?OR x<?", tables, ["--", "/*", date(2024, 2, 29), -1]
    )
    assert {id_ for id_, s in rows_of(t, "s") if id_ >= 10 and s is not None} == {
        id_ for id_, column, s in rows if column == "s" and s in ("--", "/*")
    }


def test_a_negative_value_after_a_minus_is_subtracted(t: lakebed.Table) -> None:
    for marker, args in ((":p", {"p": -5}), ("?", [-5])):
        assert lakebed.sql(f"UPDATE t SET n = 3-{marker} WHERE id = 1", {"t": t}, args).updated == 1  # type: ignore[union-attr]
        assert rows_of(t, "n") == [(1, 8), (2, 30)]
        assert lakebed.sql(f"DELETE FROM t WHERE n = 3-{marker} AND id = 2", {"t": t}, args).deleted == 0  # type: ignore[union-attr]
        found = lakebed.sql(f"SELECT n-{marker} AS n FROM t WHERE id = 1", {"t": t}, args)
        assert found.to_pylist() == [{"n": 13}]
        lakebed.sql("UPDATE t SET n = 3 WHERE id = 1", {"t": t})


def test_constants_of_statements_about_a_table_are_given_as_arguments() -> None:
    tables = {"c": "memory://arguments/c"}
    created = lakebed.sql(
        "CREATE TABLE c (id BIGINT COMMENT :note, p STRING, day DATE) USING lakebed PARTITIONED BY (p)"
        " TBLPROPERTIES (primaryKey = :key, buckets = :n, index = 'bucket')",
        tables,
        {"note": "it's -- a \\ note", "key": "id", "n": 2},
    )
    assert (created.schema.field("id").metadata or {}).get(b"comment", b"").decode() in ("", "it's -- a \\ note")
    odd = "L'Aquila--"
    lakebed.sql("INSERT INTO c PARTITION (p = ?) VALUES (1, ?), (?, ?)", tables, [odd, None, -2, date(2024, 2, 29)])
    lakebed.sql("INSERT INTO c VALUES (?, ?, ?)", tables, [3, "rome", None])
    assert rows_of(created, "p", "day") == [(-2, odd, date(2024, 2, 29)), (1, odd, None), (3, "rome", None)]
    assert len(lakebed.sql("CALL show_commits(table => 'c', limit => :n)", tables, {"n": 1}).to_pylist()) == 1
    assert len(lakebed.sql("DESCRIBE HISTORY c LIMIT?", tables, [1]).to_pylist()) == 1
    lakebed.sql("OPTIMIZE c WHERE p=:p ORDER BY (id)", tables, {"p": "rome"})
    lakebed.sql("INSERT OVERWRITE c PARTITION (p = :p) VALUES (:id, NULL)", tables, {"p": odd, "id": -7})
    assert rows_of(created, "p") == [(-7, odd), (3, "rome")]
    lakebed.sql("INSERT INTO c REPLACE WHERE id=3-:more SELECT :id, 'oslo', NULL", tables, {"more": 10, "id": -7})
    assert rows_of(created, "p") == [(-7, "oslo"), (3, "rome")]
    lakebed.sql("TRUNCATE TABLE c PARTITION (p =?)", tables, ["rome"])
    assert rows_of(created, "p") == [(-7, "oslo")]
    lakebed.sql("VACUUM c RETAIN :n COMMITS", tables, {"n": 10})
    with pytest.raises(InvalidOption, match="RETAIN takes a whole number"):
        lakebed.sql("VACUUM c RETAIN :n COMMITS", tables, {"n": -10})
    with pytest.raises(InvalidOption, match="the value of 'buckets' is no constant"):
        lakebed.sql("ALTER TABLE c SET TBLPROPERTIES (buckets = ?)", tables, [b"a"])
    lakebed.drop(tables["c"])


def test_a_value_that_has_no_constant_goes_into_queries_alone(t: lakebed.Table) -> None:
    tables = {"t": t}
    assert lakebed.sql("SELECT list_sum(:many) AS n", args={"many": [1, 2]}).to_pylist() == [{"n": 3}]
    lakebed.sql("INSERT INTO t (id, n) SELECT 3, list_sum(:many)", tables, {"many": [1, 2]})
    lakebed.sql(
        "MERGE INTO t USING (SELECT unnest(?) AS id) s ON t.id = s.id WHEN MATCHED AND t.n <>? THEN UPDATE SET n = -1",
        tables,
        [[1, 3], 3],
    )
    assert rows_of(t, "n") == [(1, 3), (2, 30), (3, 3)]
    with pytest.raises(
        InvalidOption, match="args gives a value of type dict, which has no constant here, in the DELETE"
    ):
        lakebed.sql("DELETE FROM t WHERE struct_contains(:many, id)", tables, {"many": {"a": 1}})
    with pytest.raises(InvalidOption, match="a value of type time"):
        lakebed.sql("UPDATE t SET s = ? WHERE id = 1", tables, [time(1, 2)])
    assert rows_of(t, "n") == [(1, 3), (2, 30), (3, 3)]


@pytest.mark.parametrize(
    ("text", "args", "match"),
    [
        ("UPDATE t SET n = :a", {"a": 1, "b": 2}, "args has the value 'b', and the SQL text has no :b. It has a"),
        ("UPDATE t SET n = 1", {"a": 1}, "args has the value 'a', and the SQL text has no :a"),
        ("UPDATE t SET n = ?", [1, 2], "args has 2 values, and the SQL text has 1 places"),
        ("DELETE FROM t WHERE id = 1", [1], "args has 1 values, and the SQL text has 0 places"),
        ("DELETE FROM t WHERE id = ? OR id = ?", [1], r"too few values for \? in the SQL text near '\?': 1 for 2"),
        (
            "DELETE FROM t WHERE id = :a",
            {"A": 1},
            "args has no value for :a in the SQL text near ':a'. Did you mean 'A'",
        ),
        ("DELETE FROM t WHERE id = :a", None, "args has no value for :a"),
        ("DELETE FROM t WHERE id = ?", None, "too few values"),
        ("DELETE FROM t WHERE id = :a", [1], "args has no value for :a"),
        ("DELETE FROM t WHERE id = ?", {"a": 1}, r"args has no value for \?"),
        ("DELETE FROM t WHERE id = ':a' OR id = 1 -- :b", {"b": 1}, "the SQL text has no :b"),
        ("SELECT * FROM t WHERE id = :a", {"a": 1, "b": 2}, "no :b"),
        ("SELECT * FROM t WHERE id = :a", None, "args has no value for :a"),
        ("SELECT * FROM t WHERE id = :a", {"b": 2}, "args has no value for :a"),
        ("SELECT * FROM t WHERE id = ?", [1, 2], "2 values"),
        ("SELECT * FROM t WHERE id = ?", [], "too few"),
        ("SELECT * FROM t WHERE id = $a", {"a": 1, "b": 2}, "no :b"),
        ("SELECT * FROM t WHERE s = 'a'", "a", "takes a dict or a list of values as args"),
        ("CALL show_commits(table => 't')", {"limit": 1}, "no :limit"),
        ("DESCRIBE HISTORY t LIMIT ?", [1, 2], "2 values"),
        ("MERGE INTO t USING (SELECT :a AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE", {"a": 1, "c": 3}, "no :c"),
        (
            "MERGE INTO t USING (SELECT :a AS id) s ON t.id = s.id WHEN MATCHED AND n = :b THEN DELETE",
            {"a": 1},
            "for :b",
        ),
    ],
)
def test_a_value_too_many_and_one_too_few_are_errors(
    unchanged: lakebed.Table, text: str, args: Any, match: str
) -> None:
    before = rows_of(unchanged, "n", "s")
    with pytest.raises(InvalidOption, match=match):
        lakebed.sql(text, {"t": unchanged}, args)
    assert rows_of(unchanged, "n", "s") == before


def test_a_colon_that_is_no_marker_stays_as_it_is(t: lakebed.Table) -> None:
    text = "SELECT [1, 2, 3][1:2] AS a, [1, 2, 3][:id] AS b, {'x':id}.x AS c, id::VARCHAR AS d, $$?$$ AS e, y: 7 FROM t"
    (row,) = lakebed.sql(f"{text} WHERE id = 2", {"t": t}).to_pylist()
    assert row == {"a": [1, 2], "b": [1, 2], "c": 2, "d": "2", "e": "?", "y": 7}
    assert lakebed.sql("SELECT $1 + $2 AS n", args=[1, 2]).to_pylist() == [{"n": 3}]
    found = lakebed.sql("SELECT [id, 5][1:n] AS a FROM t WHERE id =:n", {"t": t}, {"n": 2})
    assert found.to_pylist() == [{"a": [2, 5]}]


def test_numbers_of_numpy_are_values_of_every_statement() -> None:
    columns = pa.schema([("id", pa.int64()), ("n", pa.float64()), ("ok", pa.bool_())])
    table = lakebed.create("memory://arguments/numpy", columns, key="id")
    values = {"id": np.int64(-7), "n": np.float32(2.5), "ok": np.bool_(True)}
    lakebed.sql("INSERT INTO t VALUES (:id, :n, :ok)", {"t": table}, values)
    lakebed.sql("INSERT INTO t SELECT ?, ?, ?", {"t": table}, [np.int32(8), np.float64(1.5), np.bool_(False)])
    lakebed.sql("UPDATE t SET n = n + :by WHERE id = :id", {"t": table}, {"by": np.int64(1), "id": np.int64(-7)})
    (row,) = lakebed.sql("SELECT * FROM t WHERE id = ?", {"t": table}, [np.int64(-7)]).to_pylist()  # pyright: ignore
    assert row == {"id": -7, "n": 3.5, "ok": True}
    assert sorted(table.scan(["id"]).to_arrow().column("id").to_pylist()) == [-7, 8]


def test_the_number_of_an_interval_is_given_as_an_argument(t: lakebed.Table) -> None:
    tables = {"t": t}
    lakebed.sql("UPDATE t SET day = DATE '2024-01-05' WHERE id = 1", tables)
    places: list[tuple[str, Any]] = [(":n", {"n": 4}), ("?", [4]), (":n", {"n": "4"}), ("?", [np.int64(4)])]
    for marker, args in places:
        for literal in (True, False):
            count, values = ("'4'", None) if literal else (marker, args)
            condition = f"day = DATE '2024-01-01' + INTERVAL {count} DAY"
            found: Any = lakebed.sql(f"SELECT id FROM t WHERE {condition}", tables, values)
            assert found.to_pylist() == [{"id": 1}]
            assert lakebed.sql(f"UPDATE t SET n = n + 1 WHERE {condition}", tables, values).updated == 1  # type: ignore[union-attr]
            source = f"SELECT 1 AS id, DATE '2024-01-01' + INTERVAL {count} DAY AS day"
            merge = f"MERGE INTO t USING ({source}) s ON t.id = s.id AND t.day = CAST(s.day AS DATE) WHEN MATCHED"
            assert lakebed.sql(f"{merge} THEN UPDATE SET n = t.n + 1", tables, values).updated == 1  # type: ignore[union-attr]
    assert rows_of(t, "n") == [(1, 3 + 2 * 8), (2, 30)]
    back = "UPDATE t SET day = day - INTERVAL {} MONTH WHERE day = DATE '2024-01-09' + INTERVAL {} DAYS"
    lakebed.sql(back.format(":m", "-:n"), tables, {"m": -1, "n": 4})
    assert rows_of(t, "day")[0] == (1, date(2024, 2, 5))
    lakebed.sql(back.format("?", "? "), tables, [1, 27])
    assert rows_of(t, "day")[0] == (1, date(2024, 1, 5))
    lakebed.sql(back.format("?", "-?"), tables, [0, 4])
    for wrong in (None, 1.5, True, "x", [1]):
        with pytest.raises((InvalidOption, UnsupportedFeature), match=r"DELETE|Spark only"):
            lakebed.sql("DELETE FROM t WHERE day >= DATE '2020-01-01' + INTERVAL :n DAY", tables, {"n": wrong})
    assert rows_of(t, "day") == [(1, date(2024, 1, 5)), (2, None)]


def test_a_condition_with_values_opens_the_files_that_the_one_with_constants_opens() -> None:
    day = date(2024, 1, 1)
    columns = pa.schema([("id", pa.int64()), ("p", pa.string()), ("day", pa.date32()), ("n", pa.int64())])
    table = lakebed.create("memory://arguments/pruned", columns, key="id", partition_by="p", index="simple")
    for n in range(4):
        table.insert({"id": [n], "p": ["abcd"[n]], "day": [day + timedelta(n)], "n": [n]})
    counted = CountingStorage(open_storage(table.uri))
    table = lakebed.Table(OpenedTable(counted, load_table_config(counted)))
    conditions: list[tuple[str, list[str], list[Any]]] = [
        ("{}.p = {}", ["'b'"], ["b"]),
        ("{}.day >= {} + INTERVAL {} DAY", ["DATE '2024-01-01'", "3"], [day, 3]),
        ("{}.n > 5 - {}", ["(-5)"], [-5]),
        ("{}.id IN ({}, {})", ["0", "3"], [0, 3]),
        ("({}.p = {} OR n = {})", ["'a'", "2"], ["a", 2]),
        ("{}.p = {} AND day < {}", ["'b'", "DATE '2024-01-03'"], ["b", date(2024, 1, 3)]),
    ]
    statements = (
        "SELECT id FROM t WHERE {}",
        "UPDATE t SET n = n WHERE {}",
        "DELETE FROM t WHERE {} AND n % 2 = 5",
        "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id AND {} WHEN MATCHED AND n < 0 THEN DELETE",
        "MERGE INTO t USING (SELECT 9 AS x) s ON t.n = s.x AND {} WHEN MATCHED THEN DELETE",
    )
    for statement in statements:
        for condition, constants, values in conditions:
            named = {f"v{n}": value for n, value in enumerate(values)}
            opened: list[list[str]] = []
            for marks, args in ((constants, None), (["?"] * len(values), values), ([f":{n}" for n in named], named)):
                counted.reset()
                done = lakebed.sql(statement.format(condition.format("t", *marks)), {"t": table}, args)
                if statement.startswith("SELECT"):
                    done.to_arrow()  # type: ignore[union-attr]
                paths = {path.split("/")[0] for path in counted.opened if path.endswith(".parquet")}
                opened.append(sorted(paths - {".hoodie"}))
            assert opened[0] == opened[1] == opened[2], (statement, condition)
            assert len(opened[0]) < 4, (statement, condition, opened)
