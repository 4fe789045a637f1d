"""Values of `args=`, texts and duplicates in statements on Spark: what is stored and found is what was given."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption

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
        ("flag", pa.bool_()),
    ]
)
GIVEN: dict[str, tuple[Any, ...]] = {
    "n": (-5, 2**63 - 1, -(2**63)),
    "d": (-1.5, float("-inf"), 1e300),
    "x": (Decimal("-1.50"), Decimal("99999999999999.99")),
    "s": ("it's", "a\\d\\", "--", "/*", "${x}", '"', "é\n", ":p ?"),
    "b": (b"a'--\x00\xff",),
    "day": (date(2024, 2, 29),),
    "at": (datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC),),
    "flag": (False,),
}


@pytest.fixture
def t(tmp_path: Any, spark: Any) -> Iterator[lakebed.Table]:
    rows = [{"id": 1, "n": 3, "s": "rome"}, {"id": 2, "n": 30, "s": "oslo"}, {"id": 3, "n": 31}]
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", index="bucket", buckets=1)
    table.upsert(pa.Table.from_pylist(rows, schema=SCHEMA))
    return lakebed.open(table.uri, spark=spark)


def rows_of(table: lakebed.Table, *names: str) -> list[tuple[Any, ...]]:
    rows = lakebed.open(table.uri).to_arrow()
    return sorted(zip(*(rows[name].to_pylist() for name in ("id", *names)), strict=True))


def test_every_kind_of_value_is_stored_and_found_as_it_was_given(t: lakebed.Table, spark: Any) -> None:
    tables = {"t": t}
    given = [(10 + n, name, value) for n, (name, value) in enumerate((k, v) for k, vs in GIVEN.items() for v in vs)]
    sets = {name: [(id_, value) for id_, column, value in given if column == name] for name in GIVEN}
    lakebed.sql("INSERT INTO t (id) VALUES " + ", ".join("(?)" for _ in given), tables, [id_ for id_, _, _ in given])
    assignments = [f"{name}=CASE {'WHEN id=?THEN?' * len(pairs)} END" for name, pairs in sets.items()]
    args = [part for pairs in sets.values() for pair in pairs for part in pair]
    lakebed.sql(f"UPDATE t SET {', '.join(assignments)} WHERE id>=?AND NOT id=-?", tables, [*args, 10, -10])
    stored = {row["id"]: row for row in lakebed.open(t.uri).to_arrow().to_pylist()}
    expected = {id_: dict.fromkeys(GIVEN) | {name: value} for id_, name, value in given if id_ != 10}
    assert {id_: {name: row[name] for name in GIVEN} for id_, row in stored.items() if id_ > 10} == expected
    assert stored[10]["n"] is None
    for escaped in ("false", "true"):
        spark.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
        try:
            conditions = [f"(id = ? AND {name} = ?)" for _, name, _ in given]
            both = [part for id_, _, value in given for part in (id_, value)]
            found = lakebed.sql(f"SELECT id FROM t WHERE {' OR '.join(conditions)}", tables, both)
            assert sorted(row["id"] for row in found.collect()) == [id_ for id_, _, _ in given[1:]]
            merge = "MERGE INTO t USING(SELECT :id AS id, :v AS v)s ON t.id=s.id AND t.s=:v"
            merge += " WHEN MATCHED AND s.v=:v THEN UPDATE SET"
            done = lakebed.sql(f"{merge} n=3-:p, s=:v", tables, {"id": 19, "v": GIVEN["s"][1], "p": -5})
            assert (done.updated, rows_of(t, "n", "s")[12]) == (1, (19, 8, GIVEN["s"][1]))
        finally:
            spark.conf.unset("spark.sql.parser.escapedStringLiterals")
    lakebed.sql("DELETE FROM t WHERE s IN(?,?)OR x<-?", tables, ["--", "/*", 1])
    gone = {id_ for id_, name, value in given if value in ("--", "/*") or (name == "x" and value < -1)}
    assert {id_ for (id_,) in rows_of(t) if id_ > 9} == {id_ for id_, _, _ in given} - gone


def test_a_value_after_a_minus_a_value_too_many_and_a_list(t: lakebed.Table) -> None:
    tables = {"t": t}
    assert lakebed.sql("UPDATE t SET n = 3-:p WHERE id = 1", tables, {"p": -5}).updated == 1
    assert rows_of(t, "n") == [(1, 8), (2, 30), (3, 31)]
    lakebed.sql("INSERT INTO t (id, n) SELECT 4, array_max(:many)", tables, {"many": [1, 7]})
    assert rows_of(t, "n")[3:] == [(4, 7)]
    for text, args, match in (
        ("SELECT * FROM t WHERE id = :a", {"a": 1, "b": 2}, "no :b"),
        ("SELECT * FROM t WHERE id = ?", [1, 2], "2 values"),
        ("SELECT * FROM t WHERE id = :a", None, "no value for :a"),
        ("UPDATE t SET n = 1", {"a": 1}, "no :a"),
        ("DELETE FROM t WHERE array_contains(:a, id)", {"a": {"b": 1}}, "a value of type dict"),
    ):
        with pytest.raises(InvalidOption, match=match):
            lakebed.sql(text, tables, args)
    assert lakebed.sql("DELETE FROM t WHERE array_contains(:a, id)", tables, {"a": [1, 9]}).deleted == 1


def test_doubled_quotes_are_one_in_every_session(tmp_path: Any, spark: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("n", pa.int64())])
    made = lakebed.create(str(tmp_path / "c"), schema, key="id", index="bucket", buckets=1, partition_by="city")
    tables = {"c": lakebed.open(made.uri, spark=spark)}
    lakebed.sql("INSERT INTO c PARTITION (city = 'L''Aquila') VALUES (1, 5), (2, 6)", tables)
    lakebed.sql("INSERT INTO c VALUES (3, 'LAquila', 7)", tables)
    assert rows_of(made, "city", "n") == [(1, "L'Aquila", 5), (2, "L'Aquila", 6), (3, "LAquila", 7)]
    for legacy in ("false", "true"):
        spark.conf.set("spark.sql.legacy.consecutiveStringLiterals.enabled", legacy)
        try:
            lakebed.sql("UPDATE c SET n = n + 1 WHERE city = 'L''Aquila'", tables)
            assert tables["c"].scan(["id"], "city = 'L''Aquila'").to_spark().count() == 2
            # the text of a query is the session's
            found = lakebed.sql("SELECT id FROM c WHERE city = 'L''Aquila'", tables).collect()
            assert sorted(row["id"] for row in found) == ([1, 2] if legacy == "false" else [3])
        finally:
            spark.conf.unset("spark.sql.legacy.consecutiveStringLiterals.enabled")
    assert rows_of(made, "n") == [(1, 7), (2, 8), (3, 7)]


def test_merges_count_rows_and_name_the_columns_of_their_source(t: lakebed.Table) -> None:
    tables = {"t": t, "s": pa.table({"id": [1, 1, 1, 2, 2, 9]})}
    text = "MERGE INTO t USING s ON {} WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN DELETE"
    for on, kept, lost in (
        ("t.id = s.id", [(3, 31)], 2),
        ("t.n = s.id + 29", [(1, 3), (2, 30)], 1),
        ("false", [(1, 3), (2, 30), (3, 31)], 0),
        ("true", [], 3),
    ):
        before = lakebed.open(t.uri).to_arrow()
        if on == "t.n = s.id + 29":
            lakebed.sql("UPDATE t SET n = 30 WHERE id = 3", tables)
            kept = [(1, 3)]
            lost = 2
        done = lakebed.sql(text.format(on), tables)
        assert (done.deleted, rows_of(t, "n")) == (lost, kept), on
        lakebed.open(t.uri).upsert(before)
    lakebed.sql(
        "MERGE INTO t USING (VALUES (1, 'x'), (8, 'y')) AS v(id, c) ON t.id = v.id"
        " WHEN MATCHED THEN UPDATE SET s = v.c WHEN NOT MATCHED THEN INSERT (id, s) VALUES (v.id, v.c)",
        tables,
    )
    assert rows_of(t, "s") == [(1, "x"), (2, "oslo"), (3, None), (8, "y")]
    for text in ("UPDATE t SET n = 1, N = 2", "INSERT INTO t (id, id) VALUES (7, 8)"):
        with pytest.raises(InvalidOption, match="is given twice"):
            lakebed.sql(text, tables)


def test_the_number_of_an_interval_is_given_as_an_argument(t: lakebed.Table) -> None:
    tables = {"t": t}
    lakebed.sql("UPDATE t SET day = DATE '2024-01-05' WHERE id = 1", tables)
    places: tuple[tuple[str, Any], ...] = ((":n", {"n": 4}), ("?", [4]))
    for mark, args in places:
        condition = f"day = DATE '2024-01-01' + INTERVAL {mark} DAY"
        found: Any = lakebed.sql(f"SELECT id FROM t WHERE {condition}", tables, args)
        assert [row.id for row in found.collect()] == [1]
        # `power` is Spark's to evaluate
        for more in ("", " AND power(id, 2) = 1"):
            assert lakebed.sql(f"UPDATE t SET n = n + 1 WHERE {condition}{more}", tables, args).updated == 1  # type: ignore[union-attr]
    assert rows_of(t, "n") == [(1, 7), (2, 30), (3, 31)]
    back = "DELETE FROM t WHERE day = DATE '2024-01-09' + INTERVAL -:n DAY AND power(id, 2) = 1"
    assert lakebed.sql(back, tables, {"n": 4}).deleted == 1  # type: ignore[union-attr]


@pytest.mark.rest
def test_nulls_are_equal_in_a_merge_that_says_so(tmp_path: Any, spark: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.int64())])
    rows = pa.table({"id": [1, 2, 3], "p": ["a", None, "c"], "n": [1, 2, 3]}, schema)
    text = "MERGE INTO t USING s ON t.id = s.id AND t.p {} s.p WHEN MATCHED THEN UPDATE SET *"
    for index in ("record", "simple"):
        made = lakebed.create(str(tmp_path / index), schema, key="id", index=index, partition_by="p")
        made.insert(rows)
        table = lakebed.open(made.uri, spark=spark)
        for sign, factor, updated in (("=", 10, 2), ("<=>", 100, 3)):
            source = spark.createDataFrame(
                [(1, "a", factor), (2, None, 2 * factor), (3, "c", 3 * factor)], "id long, p string, n long"
            )
            done: Any = lakebed.sql(text.format(sign), {"t": table, "s": source}, spark=spark)
            assert done.updated == updated, (index, sign)
        assert rows_of(made, "p", "n") == [(1, "a", 100), (2, None, 200), (3, "c", 300)], index
    keyed = lakebed.create(str(tmp_path / "keyed"), schema, key=["id", "p"], index="simple")
    keyed.insert(rows)
    source = spark.createDataFrame([(2, None, 20), (3, "c", 30)], "id long, p string, n long")
    for _ in range(2):
        tables = {"t": lakebed.open(keyed.uri, spark=spark), "s": source}
        done = lakebed.sql(f"{text.format('<=>')} WHEN NOT MATCHED THEN INSERT *", tables, spark=spark)
        assert (done.updated, done.inserted) == (2, 0)
    assert rows_of(keyed, "p", "n") == [(1, "a", 1), (2, None, 20), (3, "c", 30)]


@pytest.mark.rest
def test_typed_constants_of_partitions_are_read_in_the_zone_of_the_session(tmp_path: Any, spark: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    made = lakebed.create(str(tmp_path / "zoned"), schema, key="id", partition_by="at", index="simple")
    tables = {"t": lakebed.open(made.uri, spark=spark)}
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    written = "TIMESTAMP '2024-01-02 03:04:05'"
    try:
        lakebed.sql(f"INSERT INTO t PARTITION (at = {written}) VALUES (1)", tables, spark=spark)
        lakebed.sql(f"INSERT INTO t SELECT 2, {written}", tables, spark=spark)
        moment = datetime(2024, 1, 1, 18, 4, 5, tzinfo=UTC)
        assert rows_of(made, "at") == [(1, moment), (2, moment)]
        found: Any = lakebed.sql(f"SELECT id FROM t WHERE at = {written}", tables, spark=spark)
        assert found.count() == 2
        for constant in (written, "'2024-01-02 03:04:05'", "CAST('2024-01-01 18:04:05Z' AS TIMESTAMP)"):
            shown: Any = lakebed.sql(f"SHOW PARTITIONS t PARTITION (at = {constant})", tables, spark=spark)
            assert shown.count() == 1, constant
        lakebed.sql(f"INSERT OVERWRITE t PARTITION (at = {written}) VALUES (3)", tables, spark=spark)
        assert rows_of(made, "at") == [(3, moment)]
        lakebed.sql("ALTER TABLE t DROP PARTITION (at = '2024-01-02 03:04:05')", tables, spark=spark)
        assert rows_of(made) == []
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
