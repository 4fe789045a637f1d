"""Scans whose buckets Spark knows: no exchange in joins, group-bys and windows by key, no sort of sorted files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
import lakebed.read.spark_buckets as spark_buckets
from lakebed import sharing
from lakebed.errors import InvalidOption, SchemaConflict, UnsupportedFeature

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")


def new_table(folder: Path, spark: Any, name: str, rows: pa.Table, **given: Any) -> lakebed.Table:
    uri = str(folder / name)
    lakebed.create(uri, rows, **{"key": "id", "index": "bucket", "buckets": 4} | given).upsert(rows)
    return lakebed.open(uri, spark=spark)


def trips() -> pa.Table:
    return pa.table({"id": [f"k{n}" for n in range(60)], "x": list(range(60)), "city": ["Oslo", "Rome", "Bern"] * 20})


def fares() -> pa.Table:
    return pa.table({"id": [f"k{n}" for n in range(30, 90)], "y": [n * 1.5 for n in range(60)]})


def plan_of(frame: Any) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


def check(frame: Any, expected: Any, *, sort: bool) -> None:
    """The rows that the same query has over ordinary DataFrames, with no exchange, and sorted only if need be."""
    plan = plan_of(frame)
    assert "Exchange" not in plan, plan
    assert ("Sort [" in plan) == sort, plan
    assert rows_of(frame) == rows_of(expected)


@pytest.fixture
def plain(spark: Any) -> Any:
    """Small tables are not broadcast here: what is asked is what large ones would do."""
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    yield spark
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def views(spark: Any, **tables: tuple[Any, Any]) -> None:
    for name, (bucketed, ordinary) in tables.items():
        bucketed.createOrReplaceTempView(name)
        ordinary.createOrReplaceTempView(f"{name}_plain")


def test_sorted_tables_join_and_group_without_exchange_and_sort(tmp_path: Path, plain: Any) -> None:
    a = new_table(tmp_path, plain, "a", trips(), sort="key")
    b = new_table(tmp_path, plain, "b", fares(), sort="key")
    a_rows, b_rows = a.scan(), b.scan(where="y > 10")
    left, right = a_rows.to_spark(bucketed=True), b_rows.to_spark(bucketed=True)
    assert left.columns == ["id", "x", "city", "_bucket"]
    views(plain, a=(left, a_rows.to_spark()), b=(right, b_rows.to_spark()))
    for how in HOWS:
        join = lambda one, other, how=how: one.join(other, one["id"] == other["id"], how)  # noqa: E731
        columns = ["x", "city"] if "semi" in how or "anti" in how else ["x", "city", "y"]
        expected = join(a_rows.to_spark(), b_rows.to_spark()).select(*columns)
        check(lakebed.spark.by_buckets(join(left, right).select(*columns)), expected, sort=False)
    for query in (
        "SELECT a.id, x, y FROM a JOIN b ON a.id = b.id",
        "SELECT a.id, y FROM a JOIN b ON a.id = b.id AND a.x < b.y WHERE x > 5 AND city <> 'Rome'",
        "SELECT id, sum(x) FROM a GROUP BY id",
        "SELECT id, sum(x) FROM (SELECT id, x FROM a WHERE x > 7) GROUP BY id",
        "SELECT id, max(x) OVER (PARTITION BY id) FROM a",
        "SELECT a.id, sum(x + y) FROM a JOIN b ON a.id = b.id GROUP BY a.id",
        "SELECT id, x, y FROM a FULL JOIN b USING (id)",
    ):
        ordinary = query.replace("FROM a", "FROM a_plain a").replace("JOIN b", "JOIN b_plain b")
        check(lakebed.spark.by_buckets(plain.sql(query)), plain.sql(ordinary), sort=False)


@pytest.mark.rest
def test_partitions_log_files_and_a_multiple_of_buckets(tmp_path: Path, plain: Any) -> None:
    """A bucket spans partition paths; slices with log files come through Python, in one partition with the others."""
    a = new_table(tmp_path, plain, "a", trips(), partition_by="city", type="mor")
    b = new_table(tmp_path, plain, "b", fares(), buckets=8, type="mor", sort="key")
    lakebed.open(a.uri).upsert(pa.table({"id": ["k0", "k41"], "x": [-1, -41], "city": ["Oslo", "Bern"]}))
    lakebed.open(b.uri).delete(["k50"])
    scan = b.scan(["id", "y"], where="y >= 3")
    left, right = a.scan().to_spark(bucketed=scan), scan.to_spark(bucketed=4)
    assert left.rdd.getNumPartitions() == right.rdd.getNumPartitions() == 4
    for how in HOWS:
        columns = ["id", "x"] if "semi" in how or "anti" in how else ["id", "x", "y"]
        joined = left.join(right, ["id", "_bucket"], how).select(*columns)
        check(joined, a.scan().to_spark().join(scan.to_spark(), "id", how).select(*columns), sort=True)
    merged = b.scan().to_spark(bucketed=True)
    counted = lakebed.spark.by_buckets(merged.groupBy("id").count())
    check(counted, b.scan().to_spark().groupBy("id").count(), sort=False)


@pytest.mark.rest
def test_queries_give_the_same_rows_with_and_without_buckets(tmp_path: Path, plain: Any) -> None:
    a, b = new_table(tmp_path, plain, "a", trips()), new_table(tmp_path, plain, "b", fares())
    views(
        plain,
        a=(a.scan().to_spark(bucketed=True), a.scan().to_spark()),
        b=(b.scan().to_spark(bucketed=True), b.scan().to_spark()),
    )
    for query in (
        "SELECT b.id, count(*) FROM a LEFT JOIN b ON a.id = b.id GROUP BY b.id",
        "SELECT a.id, count(*) FROM a FULL JOIN b ON a.id = b.id GROUP BY a.id",
        "SELECT DISTINCT city, y > 30 FROM a FULL JOIN b ON a.id = b.id",
        "SELECT id, count(*) FROM (SELECT id FROM a UNION ALL SELECT id FROM b) GROUP BY id",
        "SELECT id FROM a EXCEPT SELECT id FROM b",
        "SELECT city, id, sum(x) FROM a GROUP BY ROLLUP (city, id)",
        "WITH c AS (SELECT id, x FROM a) SELECT c.id, d.x FROM c JOIN c d ON c.id = d.id",
        "SELECT DISTINCT id FROM a WHERE id IN (SELECT id FROM b)",
        "SELECT upper(id) AS id, sum(x) FROM a GROUP BY upper(id)",
        "SELECT id FROM a ORDER BY x DESC LIMIT 3",
    ):
        ordinary = query.replace("FROM a", "FROM a_plain a").replace("FROM b", "FROM b_plain b")
        ordinary = ordinary.replace("JOIN b", "JOIN b_plain b")
        assert rows_of(lakebed.spark.by_buckets(plain.sql(query))) == rows_of(plain.sql(ordinary)), query


def test_ctes_keep_their_buckets(tmp_path: Path, plain: Any) -> None:
    a, b = new_table(tmp_path, plain, "a", trips()), new_table(tmp_path, plain, "b", fares())
    views(
        plain,
        a=(a.scan().to_spark(bucketed=True), a.scan().to_spark()),
        b=(b.scan().to_spark(bucketed=True), b.scan().to_spark()),
    )
    for query in (
        "WITH c AS (SELECT id, x FROM a WHERE x > 3) SELECT c.id, x, y FROM c JOIN b ON c.id = b.id",
        "WITH c AS (SELECT id, x FROM a), d AS (SELECT id, sum(x) AS s FROM c GROUP BY id) SELECT id, s FROM d",
    ):
        ordinary = query.replace("FROM a", "FROM a_plain a").replace("JOIN b", "JOIN b_plain b")
        changed = lakebed.spark.by_buckets(plain.sql(query))
        assert "Exchange" not in plan_of(changed), query
        assert rows_of(changed) == rows_of(plain.sql(ordinary))


def both(folder: Path, spark: Any, **counts: int) -> None:
    """The views a and b, of as many buckets as is said, and the same rows as a_plain and b_plain."""
    for name, rows in (("a", trips()), ("b", fares())):
        table = new_table(folder, spark, name, rows, buckets=counts.get(name, 4))
        views(spark, **{name: (table.scan().to_spark(bucketed=True), table.scan().to_spark())})


def ordinary(query: str) -> str:
    return query.replace("FROM a", "FROM a_plain a").replace("FROM b", "FROM b_plain b")


@pytest.mark.rest
def test_subqueries_in_conditions_are_followed(tmp_path: Path, plain: Any) -> None:
    both(tmp_path, plain)
    for query in (
        "SELECT id, x FROM a WHERE id IN (SELECT id FROM b WHERE y > 5)",
        "SELECT id, x FROM a WHERE x > 3 AND EXISTS (SELECT 1 FROM b WHERE b.id = a.id AND b.y > a.x)",
        "SELECT id, x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id)",
        "SELECT id, x FROM a WHERE x < 5 OR id IN (SELECT id FROM b)",
        "SELECT id, x FROM a WHERE x < (SELECT max(y) FROM b WHERE b.id = a.id)",
        "SELECT id, (SELECT sum(y) FROM b WHERE b.id = a.id) AS s FROM a",
        "SELECT id, count(*) FROM a WHERE id IN (SELECT id FROM b) GROUP BY id",
        "SELECT id, x FROM a WHERE id IN (SELECT id FROM a WHERE x > 50)",
    ):
        changed, expected = lakebed.spark.by_buckets(plain.sql(query)), plain.sql(ordinary(query))
        assert plan_of(expected).count("Exchange") == 2, query
        assert "Exchange" not in plan_of(changed), plan_of(changed)
        assert changed.columns == expected.columns
        assert rows_of(changed) == rows_of(expected), query


def test_the_plan_of_a_subquery_that_gives_one_value_is_followed(tmp_path: Path, plain: Any) -> None:
    both(tmp_path, plain)
    query = "SELECT id, x FROM a WHERE x > (SELECT max(n) FROM (SELECT id, count(*) n FROM b GROUP BY id))"
    changed, expected = lakebed.spark.by_buckets(plain.sql(query)), plain.sql(ordinary(query))
    assert plan_of(expected).count("Exchange") > 1
    # one row a partition for the greatest of all
    assert plan_of(changed).count("Exchange") == 1, plan_of(changed)
    assert rows_of(changed) == rows_of(expected)


def test_explain_of_not_in_states_that_it_uses_no_buckets(tmp_path: Path, plain: Any) -> None:
    both(tmp_path, plain)
    query = "SELECT id, x FROM a WHERE id NOT IN (SELECT id FROM b)"
    with pytest.warns(UserWarning, match="NOT IN compares with all buckets.*NOT EXISTS"):
        changed = lakebed.spark.by_buckets(plain.sql(query))
    assert rows_of(changed) == rows_of(plain.sql(ordinary(query)))


def test_a_subquery_over_other_buckets_says_that_it_shuffles(tmp_path: Path, plain: Any) -> None:
    both(tmp_path, plain, a=8)
    query = "SELECT id, x FROM a WHERE id IN (SELECT id FROM b)"
    with pytest.warns(UserWarning, match=r"8 with 4 buckets shuffles both sides.*bucketed=4"):
        changed = lakebed.spark.by_buckets(plain.sql(query))
    assert rows_of(changed) == rows_of(plain.sql(ordinary(query)))


def test_a_group_by_over_a_union_needs_no_exchange(tmp_path: Path, plain: Any) -> None:
    both(tmp_path, plain)
    for query in (
        "SELECT id, count(*) FROM (SELECT id FROM a UNION ALL SELECT id FROM b) GROUP BY id",
        "SELECT id, sum(v) FROM (SELECT x AS v, id FROM a UNION ALL SELECT y AS v, id FROM b WHERE y > 9) GROUP BY id",
        "SELECT id, sum(x) FROM (SELECT id, x FROM a UNION ALL SELECT id, x + 1 FROM a) GROUP BY id",
        "SELECT DISTINCT id FROM (SELECT id FROM a UNION ALL SELECT id FROM b)",
    ):
        changed, expected = lakebed.spark.by_buckets(plain.sql(query)), plain.sql(ordinary(query))
        assert "Exchange" in plan_of(expected)
        assert "Exchange" not in plan_of(changed), plan_of(changed)
        assert changed.columns == expected.columns
        assert rows_of(changed) == rows_of(expected), query


def test_a_union_that_nothing_groups_stays_as_it_was(tmp_path: Path, plain: Any) -> None:
    both(tmp_path, plain)
    query = "SELECT id FROM (SELECT id FROM a UNION ALL SELECT id FROM b) WHERE id = 'k31'"
    changed = lakebed.spark.by_buckets(plain.sql(query))
    # the condition is pushed below the union
    assert plan_of(changed).count("Filter") == 2, plan_of(changed)
    assert rows_of(changed) == [("k31",), ("k31",)]


def test_a_union_whose_sides_have_other_keys_or_buckets_is_grouped_right(tmp_path: Path, plain: Any) -> None:
    both(tmp_path, plain, a=8)
    # the key of one side stands where the other has another text
    query = "SELECT id, count(*) FROM (SELECT id, city FROM a UNION ALL SELECT upper(id), id FROM b) GROUP BY id"
    assert rows_of(lakebed.spark.by_buckets(plain.sql(query))) == rows_of(plain.sql(ordinary(query)))
    query = "SELECT id, count(*) FROM (SELECT id FROM a UNION ALL SELECT id FROM b) GROUP BY id"
    with pytest.warns(UserWarning, match=r"a union of 4 with 8 buckets shuffles.*bucketed=4"):
        changed = lakebed.spark.by_buckets(plain.sql(query))
    assert rows_of(changed) == rows_of(plain.sql(ordinary(query)))


def test_a_join_of_other_numbers_of_buckets_says_that_it_shuffles(tmp_path: Path, plain: Any) -> None:
    a, b = new_table(tmp_path, plain, "a", trips(), buckets=8), new_table(tmp_path, plain, "b", fares())
    left, right = a.scan().to_spark(bucketed=True), b.scan().to_spark(bucketed=True)
    joined = left.join(right, left["id"] == right["id"])
    with pytest.warns(UserWarning, match=r"8 with 4 buckets shuffles both sides.*bucketed=4"):
        changed = lakebed.spark.by_buckets(joined)
    assert plan_of(changed).count("Exchange") == 2
    four = a.scan().to_spark(bucketed=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(lakebed.spark.by_buckets(four.join(right, four["id"] == right["id"]).select("x", "y")),
              joined.select("x", "y"), sort=True)  # fmt: skip


@pytest.mark.rest
def test_a_hash_field_next_to_a_text_joins_and_groups_alone(tmp_path: Path, plain: Any) -> None:
    given = {"key": ["city", "id"], "hash_fields": "city"}
    a = new_table(tmp_path, plain, "a", trips(), **given)
    b = new_table(tmp_path, plain, "b", trips().slice(0, 6), **given)

    def queries(one: Any, other: Any) -> list[Any]:
        by_city, by_key = one["city"] == other["city"], (one["city"] == other["city"]) & (one["id"] == other["id"])
        return [
            one.join(other, by_city).select(one["id"], other["x"]),
            one.groupBy("city").count(),
            one.join(other, by_key).select(one["id"], other["x"]),
            one.groupBy("id", "city").count(),
        ]

    left, right = a.scan().to_spark(bucketed=True), b.scan().to_spark(bucketed=True)
    expected = queries(a.scan().to_spark(), b.scan().to_spark())
    for query, ordinary in zip(queries(left, right), expected, strict=True):
        changed = lakebed.spark.by_buckets(query)
        assert "Exchange" not in plan_of(changed)
        assert rows_of(changed) == rows_of(ordinary)
    # a text that can be misread: only the whole key says where a row of that table is
    lakebed.open(b.uri).upsert(pa.table({"id": ["1,city:Oslo"], "x": [7], "city": ["Rome"]}))
    b = lakebed.open(b.uri, spark=plain)
    left, right = a.scan().to_spark(bucketed=True), b.scan().to_spark(bucketed=True)
    expected = queries(a.scan().to_spark(), b.scan().to_spark())
    shuffles = []
    for query, ordinary in zip(queries(left, right), expected, strict=True):
        changed = lakebed.spark.by_buckets(query)
        shuffles.append("Exchange" in plan_of(changed))
        assert rows_of(changed) == rows_of(ordinary)
    assert shuffles == [True, False, False, False]


def test_any_dataframe_is_brought_to_the_buckets_by_a_shuffle_of_its_own(tmp_path: Path, plain: Any) -> None:
    a = new_table(tmp_path, plain, "a", trips(), sort="key")
    left = a.scan().to_spark(bucketed=True)
    visits = plain.createDataFrame([(f"k{n % 70}", n) for n in range(100)], "trip string, n int")
    placed = lakebed.spark.bucketed(visits, a, on="trip")
    joined = lakebed.spark.by_buckets(left.join(placed, left["id"] == placed["trip"]))
    plan = plan_of(joined)
    # the table's scan is printed before the one exchange, the DataFrame's below it
    assert [part.count("Scan ") for part in plan.split("Exchange")] == [1, 1], plan
    ordinary = a.scan().to_spark()
    expected = ordinary.join(visits, ordinary["id"] == visits["trip"]).select("id", "x", "n")
    assert rows_of(joined.select("id", "x", "n")) == rows_of(expected)
    with pytest.raises(SchemaConflict, match="Cast the DataFrame's column"):
        lakebed.spark.bucketed(visits, a, on="n")
    with pytest.raises(InvalidOption, match="has no column 'id'"):
        lakebed.spark.bucketed(visits, a)


def test_a_plain_dataframe_is_never_taken_for_a_bucketed_one(tmp_path: Path, plain: Any) -> None:
    """Also one that has the column: both sides are shuffled then."""
    a = new_table(tmp_path, plain, "a", trips())
    left = a.scan().to_spark(bucketed=True)
    saved = plain.createDataFrame(left.collect(), left.schema)
    joined = left.join(saved, ["id", "_bucket"])
    assert plan_of(joined).count("Exchange") == 2
    assert joined.count() == 60
    # a bucket out of a struct still says whose it is, but the key beside it is another by now
    cut = left.selectExpr("struct(substring(id, 1, 2) AS id, _bucket) AS s").select("s.*").groupBy("id").count()
    assert rows_of(lakebed.spark.by_buckets(cut)) == rows_of(cut)
    assert rows_of(cut)[:2] == [("k0", 1), ("k1", 11)]


def test_a_join_by_buckets_in_python_tasks(tmp_path: Path, plain: Any) -> None:
    a, b = (
        new_table(tmp_path, plain, "a", trips(), partition_by="city"),
        new_table(tmp_path, plain, "b", fares(), buckets=2),
    )
    joined = a.join(b, columns=["id", "x", "y"], where="y > 5")
    frame = joined.to_spark()
    assert "Exchange" not in plan_of(frame)
    assert rows_of(frame) == sorted((tuple(r.values()) for r in joined.to_arrow().to_pylist()), key=str)
    assert joined.count() == 26


def test_rows_are_the_same_where_the_planner_knows_no_buckets(
    tmp_path: Path, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = new_table(tmp_path, plain, "a", trips()), new_table(tmp_path, plain, "b", fares(), buckets=8)
    expected = a.scan().to_spark(bucketed=True).join(b.scan().to_spark(bucketed=4), ["id", "_bucket"])
    monkeypatch.setattr(spark_buckets, "can_lay_out", lambda _: False)
    monkeypatch.setattr(sharing, "matters", set[Any]())
    with pytest.warns(UserWarning, match="joins of it shuffle"):
        left = a.scan().to_spark(bucketed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = b.scan().to_spark(bucketed=4)
    assert left.columns == ["id", "x", "city", "_bucket"]
    assert rows_of(left.join(right, ["id", "_bucket"])) == rows_of(expected)


def test_bucket_counts_that_a_table_does_not_have_are_refused(tmp_path: Path, plain: Any) -> None:
    a = new_table(tmp_path, plain, "a", trips())
    with pytest.raises(InvalidOption, match="4 buckets of table 'a' cannot be put together to 3"):
        a.scan().to_spark(bucketed=3)
    simple = new_table(tmp_path, plain, "s", trips(), index="simple", buckets=None)
    with pytest.raises(UnsupportedFeature, match="are not in buckets"):
        simple.scan().to_spark(bucketed=True)
