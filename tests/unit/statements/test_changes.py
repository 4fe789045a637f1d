"""MERGE, UPDATE, DELETE and INSERT as SQL, in this process: the rows, the places of errors, odd texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.errors import InvalidOption
from support.merges import CASES, SCHEMA, Case, by_duckdb, content, data, in_order, statement

TRIPS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])


@pytest.fixture
def trips(request: pytest.FixtureRequest) -> Iterator[lakebed.Table]:
    yield from filled(request.node.name)


@pytest.fixture(scope="module")
def unchanged() -> Iterator[lakebed.Table]:
    """A table for tests whose statements are all refused: they share it."""
    yield from filled("unchanged")


def filled(name: str) -> Iterator[lakebed.Table]:
    table = lakebed.create(f"memory://changes/{name}", TRIPS, key="id", index="simple")
    table.upsert({"id": [1, 2, 3], "city": ["rome", "oslo", "it's"], "fare": [1.0, 2.0, None]})
    yield table
    lakebed.drop(table.uri)


def visible_rows(table: lakebed.Table) -> list[tuple[Any, ...]]:
    return in_order([tuple(row.values()) for row in table.scan().to_arrow().to_pylist()])


@pytest.mark.parametrize("case", [case for case in CASES if not case.refused], ids=lambda case: case.name)
def test_a_merge_is_the_call_of_the_same_clauses(case: Case) -> None:
    table = lakebed.create(f"memory://changes/{case.name}", SCHEMA, key="id", index="simple")
    table.upsert(data(case.stored))
    done = lakebed.sql(statement(case, "tgt", "src"), {"tgt": table, "src": data(case.source)})
    assert isinstance(done, lakebed.MergeResult)
    assert [name for name, _ in done.clauses] == [method for method, _ in case.clauses]
    assert content(table) == by_duckdb(case)
    lakebed.drop(table.uri)


def test_parts_of_a_merge_reach_the_table_as_they_are_written(trips: lakebed.Table) -> None:
    source = pa.table({"id": [1, 2, 3, 7], "fare": [10.0, 200.0, 30.0, None]})
    text = """
        merge into trips as `t t` using (select id, fare from more where id < 8) as S   -- WHEN MATCHED THEN DELETE
        on `t t`.id = S.id and (s.fare is null or s.fare between 5 and 300)
        when matched and S.fare > 150 /* THEN DELETE */ then delete
        when matched then update set City = 'a, b) THEN x = ; when', `t t`.fare =
            case when `t t`.fare > 0.5 and s.fare in (10, 11) then s.fare + `t t`.fare else -1.5 end
        when not matched by target and s.id <> 8 then insert (id, fare) values (s.id, coalesce(s.fare, 0.25));"""
    lakebed.sql(text, {"trips": trips, "more": source})
    assert visible_rows(trips) == [
        (1, "a, b) THEN x = ; when", 11.0),
        (3, "a, b) THEN x = ; when", -1.5),
        (7, None, 0.25),
    ]


def test_rows_are_updated_deleted_and_inserted(trips: lakebed.Table) -> None:
    tables = {"trips": trips}
    done = lakebed.sql("UPDATE trips x SET fare = x.fare * 2, city = upper(City) WHERE x.id IN (1, 2)", tables)
    assert (done.operation, done.updated) == ("update", 2)  # type: ignore[union-attr]
    lakebed.sql("insert into trips values (4, 'bern', 4), (5, null, 5.5)", tables)
    lakebed.sql("INSERT INTO trips (FARE, id) SELECT fare + 1, id + 10 FROM trips WHERE id = 4", tables)
    lakebed.sql("INSERT INTO TABLE trips BY NAME SELECT 20 AS id, 'x' AS city", tables)
    assert lakebed.sql(f"DELETE FROM '{trips.uri}' WHERE city = 'ROME' OR fare = 5.5").deleted == 2  # type: ignore[union-attr]
    expected = [(2, "OSLO", 4.0), (3, "it's", None), (4, "bern", 4.0), (14, None, 5.0), (20, "x", None)]
    assert visible_rows(trips) == expected
    lakebed.sql("INSERT OVERWRITE trips VALUES (9, 'only', 0.5)", tables)
    assert visible_rows(trips) == [(9, "only", 0.5)]
    lakebed.sql("DELETE FROM trips", tables)
    assert visible_rows(trips) == []


def test_signs_in_texts_and_words_in_names_are_no_parts_of_a_statement(trips: lakebed.Table) -> None:
    tables = {"trips": trips, "s": pa.table({"id": [3], "set": [4.0], "end": [1], "when": ["x"]})}
    lakebed.sql("UPDATE trips SET city = '(', fare = 3 WHERE city = 'rome' AND city <> ')'", tables)
    lakebed.sql("UPDATE trips SET city = ',' WHERE id = 2", tables)
    lakebed.sql("INSERT INTO trips (id, city) VALUES (4, '='), (5, '(')", tables)
    lakebed.sql("DELETE FROM trips WHERE city = '(' AND id = 5", tables)
    lakebed.sql(
        "MERGE INTO trips t USING s ON t.id = s.id AND s.end = 1"
        " WHEN MATCHED AND s.when = 'x' THEN UPDATE SET fare = s.set",
        tables,
    )
    lakebed.sql("INSERT INTO trips (SELECT 6, ')', 1.5)", tables)
    expected = [(1, "(", 3.0), (2, ",", 2.0), (3, "it's", 4.0), (4, "=", None), (6, ")", 1.5)]
    assert visible_rows(trips) == expected


def test_two_quotes_in_a_text_are_one(trips: lakebed.Table) -> None:
    tables = {"trips": trips}
    lakebed.sql("UPDATE trips SET city = 'L''Aquila' WHERE city = 'it''s' OR city = ''''", tables)
    lakebed.sql('UPDATE trips SET city = "a""b" WHERE city = \'rome\'', tables)
    lakebed.sql(
        "MERGE INTO trips USING (SELECT 3 AS id, 'x''y' AS c) s ON trips.id = s.id AND city = 'L''Aquila'"
        " WHEN MATCHED AND s.c = 'x''y' THEN UPDATE SET city = concat(s.c, ''''''), fare = length('''')",
        tables,
    )
    assert visible_rows(trips) == [(1, 'a"b', 1.0), (2, "oslo", 2.0), (3, "x'y''", 1.0)]
    assert lakebed.sql("DELETE FROM trips WHERE city IN ('', 'x''y''''')", tables).deleted == 1  # type: ignore[union-attr]
    parts = lakebed.create("memory://changes/quotes", TRIPS, key="id", index="simple", partition_by="city")
    tables = {"parts": parts}
    lakebed.sql("INSERT INTO parts PARTITION (city = 'a''b') VALUES (1, 2.5)", tables)
    lakebed.sql("INSERT OVERWRITE parts PARTITION (city = 'a''b') VALUES (2, 3.5)", tables)
    assert visible_rows(parts) == [(2, "a'b", 3.5)]
    lakebed.sql("ALTER TABLE parts DROP PARTITION (city = 'a''b')", tables)
    assert visible_rows(parts) == []
    with pytest.raises(InvalidOption, match="has a backslash that is no plain escape"):
        lakebed.sql(r"INSERT INTO parts PARTITION (city = 'a\d\b') VALUES (1, 2.5)", tables)
    lakebed.drop(parts.uri)


def test_a_column_that_is_given_twice_is_refused(unchanged: lakebed.Table) -> None:
    tables, before = {"trips": unchanged, "s": pa.table({"id": [1], "fare": [1.0]})}, visible_rows(unchanged)
    merge = "MERGE INTO trips USING s ON trips.id = s.id WHEN"
    for text, column in (
        ("UPDATE trips SET fare = 1, city = 'a', fare = 2", "fare"),
        ("UPDATE trips SET fare = 1, FARE = 2", "fare"),
        ("UPDATE trips x SET x.fare = 1, fare = 2", "fare"),
        (f"{merge} MATCHED THEN UPDATE SET fare = 1, fare = 2", "fare"),
        (f"{merge} MATCHED THEN UPDATE SET fare = 1, Fare = 2", "fare"),
        (f"{merge} NOT MATCHED THEN INSERT (id, fare, id) VALUES (1, 2, 3)", "id"),
        (f"{merge} NOT MATCHED BY SOURCE THEN UPDATE SET fare = 1, fare = 2", "fare"),
        ("INSERT INTO trips (id, id) VALUES (7, 8)", "id"),
        ("INSERT INTO trips (id, ID) VALUES (7, 8)", "id"),
        ("INSERT INTO trips BY NAME SELECT 7 AS id, 8 AS `ID`", "id"),
        ("INSERT OVERWRITE trips (id, city, city) VALUES (7, 'a', 'b')", "city"),
        ("INSERT INTO trips (id, id) REPLACE WHERE id = 7 SELECT 7, 7", "id"),
        ("MERGE INTO trips USING s AS x(id, ID) ON trips.id = x.id WHEN MATCHED THEN DELETE", "id"),
    ):
        with pytest.raises(InvalidOption, match=f"'{column}' (is given )?twice"):
            lakebed.sql(text.replace("`", '"'), tables)
    assert visible_rows(unchanged) == before


def test_a_merge_counts_rows_not_pairs(trips: lakebed.Table) -> None:
    source = pa.table({"id": [1, 1, 1, 2, 2, 9], "kind": ["a", "b", "c", "a", "b", "a"]})
    tables = {"trips": trips, "s": source}
    for on, path in (
        ("t.id = s.id", "key"),
        ("t.id = s.id AND t.fare >= 1.0 AND s.kind <> 'z'", "key"),
        ("t.fare = s.id", "join"),
    ):
        done = lakebed.sql(
            f"MERGE INTO trips t USING s ON {on} WHEN MATCHED AND s.kind = 'a' THEN DELETE WHEN MATCHED THEN DELETE"
            " WHEN NOT MATCHED AND s.id = 9 THEN INSERT (id, city) VALUES (s.id, 'new')",
            tables,
        )
        assert isinstance(done, lakebed.MergeResult)
        assert (done.deleted, done.inserted, done.rows, sum(rows or 0 for _, rows in done.clauses)) == (2, 1, 3, 3), on
        assert done.path == path
        assert visible_rows(trips) == [(3, "it's", None), (9, "new", None)]
        trips.delete([9])
        trips.upsert({"id": [1, 2], "city": ["rome", "oslo"], "fare": [1.0, 2.0]})


def test_a_condition_of_one_word_is_no_name_of_a_column(trips: lakebed.Table) -> None:
    one = pa.table({"id": [9], "city": ["new"]})
    insert = "WHEN NOT MATCHED THEN INSERT (id, city) VALUES (s.id, s.city)"
    for condition in ("false", "FALSE -- never", "(null)", "NULL", "s.id < 0"):
        done = lakebed.sql(
            f"MERGE INTO trips USING s ON {condition}\nWHEN MATCHED THEN DELETE {insert}", {"trips": trips, "s": one}
        )
        assert (done.deleted, done.inserted) == (0, 1), condition  # type: ignore[union-attr]
        assert trips.delete([9]).deleted == 1
    done = lakebed.sql(
        "MERGE INTO trips USING s ON true WHEN MATCHED AND trips.id < 3 THEN UPDATE SET city = s.city"
        f" WHEN MATCHED THEN DELETE {insert}",
        {"trips": trips, "s": one},
    )
    assert (done.updated, done.deleted, done.inserted) == (2, 1, 0)  # type: ignore[union-attr]
    assert visible_rows(trips) == [(1, "new", 1.0), (2, "new", 2.0)]
    flags = pa.schema([("id", pa.int64()), ("flag", pa.bool_())])
    flagged = lakebed.create("memory://changes/flags", flags, key="id", index="simple")
    flagged.upsert({"id": [1, 2], "flag": [True, False]})
    lakebed.sql("MERGE INTO f USING s ON flag WHEN MATCHED THEN DELETE", {"f": flagged, "s": one})
    assert flagged.to_arrow().to_pylist() == [{"id": 2, "flag": False}]
    lakebed.drop(flagged.uri)


def test_an_alias_of_a_source_gives_names_to_its_columns(trips: lakebed.Table) -> None:
    tables = {"trips": trips, "src": pa.table({"a": [2, 3], "b": ["two", "three"]})}
    lakebed.sql(
        "MERGE INTO trips t USING (VALUES (1, 'x''y'), (8, ?)) AS s(id, c) ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET city = s.c WHEN NOT MATCHED THEN INSERT (id, city) VALUES (s.id, s.c)",
        tables,
        ["--"],
    )
    assert visible_rows(trips) == [(1, "x'y", 1.0), (2, "oslo", 2.0), (3, "it's", None), (8, "--", None)]
    update = "WHEN MATCHED THEN UPDATE SET city = x.`the name`"
    lakebed.sql(f"MERGE INTO trips USING src AS x(id, `the name`) ON trips.id = x.id {update}", tables)
    lakebed.sql(
        f"WITH w AS (SELECT 8, 'w') MERGE INTO trips USING w x (id, `the name`) ON trips.id = x.id {update}", tables
    )
    assert visible_rows(trips) == [(1, "x'y", 1.0), (2, "two", 2.0), (3, "three", None), (8, "w", None)]
    with pytest.raises(InvalidOption, match="1 names for 2 columns in the MERGE near"):
        lakebed.sql("MERGE INTO trips USING src AS x(id) ON trips.id = x.id WHEN MATCHED THEN DELETE", tables)
    with pytest.raises(InvalidOption, match="the name of a column is missing in the MERGE"):
        lakebed.sql("MERGE INTO trips USING src AS x(id, 5) ON trips.id = x.id WHEN MATCHED THEN DELETE", tables)


def test_common_table_expressions_come_before_merge_and_insert(trips: lakebed.Table) -> None:
    tables = {"trips": trips, "s": pa.table({"id": [1, 8], "fare": [5.0, 8.0]})}
    lakebed.sql(
        "WITH x AS (SELECT id + 10 AS id FROM trips), y (id) AS (SELECT id FROM x WHERE id < :most)"
        " INSERT INTO trips (id, city) SELECT id, 'INSERT (' FROM y",
        tables,
        {"most": 13},
    )
    lakebed.sql(
        "with x as (select 20 as id) insert into trips (id) with y as (select id + 1 as id from x) select id from y",
        tables,
    )
    lakebed.sql(
        "WITH `S` AS (SELECT id, fare * 2 AS fare FROM s WHERE id <> 8), z AS (SELECT 1)"
        " MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET fare = s.fare",
        tables,
    )
    lakebed.sql(
        "WITH more AS (SELECT * FROM s) MERGE INTO trips t USING (SELECT id FROM more WHERE id = 8) m"
        " ON t.id = m.id WHEN NOT MATCHED THEN INSERT (id, city) VALUES (m.id, 'with')",
        tables,
    )
    expected = [
        (1, "rome", 10.0),
        (2, "oslo", 2.0),
        (3, "it's", None),
        (8, "with", None),
        (11, "INSERT (", None),
        (12, "INSERT (", None),
        (21, None, None),
    ]
    assert visible_rows(trips) == expected
    lakebed.sql("WITH x AS (SELECT 9 AS id) INSERT OVERWRITE trips BY NAME SELECT id FROM x", tables)
    assert visible_rows(trips) == [(9, None, None)]
    with pytest.raises(InvalidOption, match=r"common table expressions are not possible .* in the DELETE near 'WITH x"):
        lakebed.sql("WITH x AS (SELECT 9 AS id) DELETE FROM trips WHERE id = 9", tables)
    with pytest.raises(InvalidOption, match=r"common table expressions are not possible .* in the UPDATE"):
        lakebed.sql("WITH x AS (SELECT 9 AS id) UPDATE trips SET id = 9", tables)
    assert visible_rows(trips) == [(9, None, None)]


def test_values_are_given_as_arguments(trips: lakebed.Table) -> None:
    named, tables = {"city": "it's; DELETE FROM trips", "most": 1.5, "key": 1}, {"trips": trips}
    lakebed.sql("UPDATE trips SET city = :city WHERE fare <= :most AND id = :key", tables, named)
    lakebed.sql("DELETE FROM trips WHERE id = ? AND city <> '?'", tables, [2])
    lakebed.sql("INSERT INTO trips (id, city) SELECT ?, ? WHERE '?' <> ?", tables, [2**40, "it's :x ?", "x"])
    lakebed.sql("DELETE FROM trips WHERE city = :city AND id = :id", tables, {"city": "it's :x ?", "id": 2**40})
    assert visible_rows(trips) == [(1, "it's; DELETE FROM trips", 1.0), (3, "it's", None)]
    with pytest.raises(InvalidOption, match="too few values for \\? in the SQL text near"):
        lakebed.sql("DELETE FROM trips WHERE id = ?", tables, [])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("MERGE INTO trips t USING s ON t.id = s.id", "WHEN is missing in the MERGE near the end"),
        ("MERGE INTO trips USING s WHEN MATCHED THEN DELETE", "ON is missing in the MERGE near 'WHEN MATCHED"),
        (
            "MERGE INTO trips USING s ON trips.id = s.id WHEN MATCHED DELETE",
            "THEN is missing .* near 'WHEN MATCHED",
        ),
        (
            "MERGE INTO trips USING s ON trips.id = s.id WHEN MATCHED THEN INSERT *",
            "INSERT is no action",
        ),
        ("MERGE INTO trips t USING s ON t.id = s.id WHEN NOT MATCHED THEN DELETE", "DELETE is no action"),
        (
            "MERGE INTO trips USING s ON trips.id = s.id WHEN MATCHED THEN UPDATE SET",
            "is missing in the MERGE near the end",
        ),
        (
            "MERGE INTO trips USING s ON trips.id = s.id WHEN MATCHED BY SOURCE THEN DELETE",
            "BY SOURCE or BY TARGET",
        ),
        (
            "MERGE INTO trips USING s ON trips.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (1, 2)",
            "2 values for 1",
        ),
        (
            "MERGE INTO trips t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (1, 2",
            "a closing parenthesis is missing in the MERGE near '\\(1, 2'",
        ),
        (
            "MERGE INTO trips t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id VALUES (1)",
            "a closing parenthesis is missing in the MERGE near '\\(id VALUES \\(1\\)'",
        ),
        (
            "MERGE INTO trips t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (1), (2)",
            "the values of one row in parentheses in the MERGE near 'VALUES \\(1\\), \\(2\\)'",
        ),
        (
            "MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED AND (s.id > 1 THEN DELETE",
            "a closing parenthesis is missing in the MERGE near '\\(s.id > 1 THEN",
        ),
        ("DELETE FROM trips WHERE id = 1)", "a parenthesis is closed that is not open in the DELETE near '\\)'"),
        ("DELETE FROM trips VERSION AS OF '20260101' WHERE id = 1", "as of '20260101'"),
        ("UPDATE trips SET fare + 1 = 2", "the name of a column is missing in the UPDATE near 'fare \\+ 1"),
        ("MERGE INTO trips USING nope ON 1 = 1 WHEN MATCHED THEN DELETE", "there is no source 'nope'"),
        ("MERGE INTO s USING trips ON 1 = 1 WHEN MATCHED THEN DELETE", "'s', which is no table of lakebed"),
        ("UPDATE trips fare = 1", "SET is missing in the UPDATE near '= 1'"),
        ("UPDATE trips SET fare", "column = value is missing in the UPDATE near 'fare'"),
        ("UPDATE trips SET farre = 1", "no column 'farre', which update sets. Did you mean 'fare'"),
        ("UPDATE nope SET fare = 1", "'nope', which is no table of lakebed"),
        ("DELETE trips", "FROM is missing in the DELETE near 'trips'"),
        ("DELETE FROM trips WHERE", "condition is missing in the DELETE near the end"),
        ("DELETE FROM trips id = 1", "WHERE is missing in the DELETE near '= 1'"),
        ("INSERT INTO trips VALUES (1, 2)", "2 values for 3 columns in the INSERT near 'VALUES"),
        ("INSERT INTO trips (id, fare", "a closing parenthesis is missing in the INSERT near '\\(id, fare'"),
        ("MERGE INTO trips USING (SELECT 1 AS id ON 1 = 1", "a closing parenthesis is missing in the MERGE near"),
        ("INSERT INTO trips (id, nope) VALUES (1, 2)", "the table has no column 'nope'"),
        ("DELETE FROM trips WHERE id = 1; DROP TABLE trips", "more than one statement"),
        ("GRANT SELECT ON trips TO me", "does not run GRANT without a session"),
    ],
)
def test_a_text_that_is_no_statement_names_the_place(unchanged: lakebed.Table, text: str, match: str) -> None:
    before = visible_rows(unchanged)
    with pytest.raises(InvalidOption, match=match):
        lakebed.sql(text, {"trips": unchanged, "s": pa.table({"id": [1], "fare": [1.0]})})
    assert visible_rows(unchanged) == before


def test_the_command_line_merges_and_updates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri, rows = str(tmp_path / "t"), str(tmp_path / "rows.csv")
    lakebed.create(uri, TRIPS, key="id", index="simple").upsert({"id": [1, 2], "city": ["a", "b"], "fare": [1.0, 2.0]})
    pacsv.write_csv(pa.table({"id": [2, 3], "fare": [20.5, 30.5]}), rows)
    assert invoke(["merge", uri, rows, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["clauses"] == [
        {"clause": "when_matched_update", "rows": 1},
        {"clause": "when_not_matched_insert", "rows": 1},
    ]
    when = ["--when", "MATCHED AND s.fare > 30 THEN DELETE", "--when", "MATCHED THEN UPDATE SET city = 'm'"]
    assert invoke(["merge", uri, rows, "--on", "t.id = s.id", *when]) == 0
    assert (
        invoke(["update", uri, "--set", "fare=fare * 2", "--set", "city=concat(city, '!')", "--where", "id = 2"]) == 0
    )
    assert invoke(["sql", f"delete from '{uri}' where id = 1"]) == 0
    assert visible_rows(lakebed.open(uri)) == [(2, "m!", 41.0)]


def test_a_statement_notes_its_message_and_metadata(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1], "city": ["Oslo"]}, key="id")
    table.upsert({"id": [1, 2], "city": ["Oslo", "Rome"]})
    note = {"message": "a rename", "metadata": {"ticket": "OPS-7"}}
    lakebed.sql("update t set city = 'Bonn' where id = 1", {"t": table}, **note)
    lakebed.sql("delete from t where id = 2", {"t": table}, message="gone")
    lakebed.sql("insert into t values (3, 'Graz')", {"t": table})
    source = {"id": [3], "city": ["Bern"]}
    merge = "merge into t using s on t.id = s.id when matched then update set city = s.city"
    lakebed.sql(merge, {"t": table, "s": source}, message="joined", metadata={"ticket": "OPS-8"})
    notes = [(one["message"], one["metadata"]) for one in table.versions.to_arrow().to_pylist()]
    assert notes == [
        *((None, None), ("a rename", '{"ticket": "OPS-7"}'), ("gone", None), (None, None)),
        ("joined", '{"ticket": "OPS-8"}'),
    ]
    assert [version.operation for version in table.versions] == ["upsert", "update", "delete", "insert", "merge"]
    for wrong in ({"message": 7}, {"metadata": "ticket"}):
        with pytest.raises(InvalidOption, match="not"):
            lakebed.sql("delete from t", {"t": table}, **wrong)
    assert table.count() == 2
