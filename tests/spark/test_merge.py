"""MERGE and UPDATE on Spark: the rows that DuckDB gives, no join where the key is equated, Spark's own functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.errors import AmbiguousMerge, InvalidOption, SchemaConflict
from lakebed.table import Table
from support.merges import CASES, SCHEMA, Case, by_duckdb, content, data, in_order
from support.spark_plans import recorded_plans

ON_SPARK = {"lakebed.local.rows": 0}
COLUMNS = "id long, grp string, a long, b string"


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The physical plan of every DataFrame that an engine collects."""
    return recorded_plans(monkeypatch)


def table_of(spark: SparkSession, folder: Path, case: Case, **words: Any) -> Table:
    table = lakebed.create(str(folder), SCHEMA, key="id", spark=spark, **words)
    table.upsert(data(case.stored))
    return table


def run(spark: SparkSession, table: Table, case: Case) -> Any:
    merge = table.merge(spark.createDataFrame(list(case.source), COLUMNS), case.on)
    for method, words in case.clauses:
        merge = getattr(merge, method)(**words)
    return merge.execute(options=ON_SPARK)


@pytest.mark.parametrize("case", [CASES[-1], *CASES[:-1]], ids=lambda case: case.name)
@pytest.mark.parametrize(("kind", "index"), [("cow", "bucket"), ("mor", "simple")])
def test_a_statement_gives_the_rows_that_duckdb_gives(
    spark: SparkSession, tmp_path: Path, case: Case, kind: Any, index: str
) -> None:
    table = table_of(spark, tmp_path / "t", case, type=kind, index=index)
    if case.refused in ("AmbiguousMerge", "InvalidRecord"):
        with pytest.raises(lakebed.errors.InvalidRecord):
            run(spark, table, case)
        assert content(table) == in_order(case.stored)
        return
    run(spark, table, case)
    deleted = [(2, "x", 20, "q"), (3, "y", 30, None), (4, "y", None, "r")]
    assert content(table) == (deleted if case.refused else by_duckdb(case))


def test_where_the_key_is_equated_nothing_is_joined(spark: SparkSession, tmp_path: Path, plans: list[str]) -> None:
    rows = spark.range(100).selectExpr("id", "concat('g', id % 3) grp", "id a", "'b' b")
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", index="bucket", buckets=4, spark=spark)
    table.upsert(rows)
    plans.clear()
    merge = table.merge(rows.selectExpr("id + 50 id", "a")).when_matched_update({"a": "t.a + s.a"})
    done = merge.when_not_matched_insert().execute(options=ON_SPARK)
    assert (done.path, done.updated, done.inserted) == ("key", 50, 50)
    assert [(plan.count("Exchange"), plan.count("Join")) for plan in plans] == [(1, 0)]
    assert {row["id"]: row["a"] for row in table.scan().to_arrow().to_pylist()} == {
        n: n if n < 50 else n + n - 50 if n < 100 else n - 50 for n in range(150)
    }


def test_a_row_does_not_move_to_a_partition_path_that_has_its_key(spark: SparkSession, tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", partition_by="grp", index="simple", spark=spark)
    before = [(1, "x", 10, "p"), (1, "y", 20, "q"), (2, "x", 30, "r")]
    table.upsert(data(before))
    holds = "would move record key '1' to partition path 'y', and that path holds a row of that key"
    with pytest.raises(lakebed.InvalidRecord, match=holds):
        table.update({"grp": "'y'"}, where="id = 1", options=ON_SPARK)
    source = spark.createDataFrame([(1, "y", 99, "s")], COLUMNS)
    merge = table.merge(source, "t.id = s.id and t.a < s.a").when_matched_update({"grp": "s.grp"})
    with pytest.raises(lakebed.InvalidRecord, match=holds):
        merge.execute(options=ON_SPARK)
    assert content(table) == in_order(before)
    assert table.update({"grp": "'y'"}, where="id = 2", options=ON_SPARK).updated == 1
    assert content(table) == in_order([*before[:2], (2, "y", 30, "r")])


class TestSparkAlone:
    """Expressions that only Spark evaluates."""

    @pytest.fixture
    def table(self, spark: SparkSession, tmp_path: Path) -> Table:
        table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", partition_by="grp", index="simple", spark=spark)
        table.upsert(data([(1, "x", 10, "kitten"), (2, "x", 20, "it's"), (3, "y", 30, None)]))
        return table

    def test_expressions_reach_spark_as_they_are_written(self, spark: SparkSession, table: Table) -> None:
        source = spark.createDataFrame([(1, "sitting"), (2, "a\\b"), (9, "new")], "id long, word string")
        merge = table.merge(source, "t.id = s.id").when_matched_update(
            {"a": "levenshtein(t.b, s.word)", "b": "regexp_replace(word, 'it+', 'IT') -- ' \"`"},
            condition="length(s.word) > 3",
        )
        done = merge.when_matched_update({"b": r"concat(s.word, '\'\n', t.b)"}).execute()
        assert (done.path, done.clauses) == ("join", (("when_matched_update", 1), ("when_matched_update", 1)))
        assert content(table) == [(1, "x", 3, "sITing"), (2, "x", 20, "a\\b'\nit's"), (3, "y", 30, None)]

    def test_updates_by_them_move_rows(self, table: Table) -> None:
        done = table.update({"grp": "lpad(grp, 2, 'z')", "a": "a DIV 3"}, where="soundex(coalesce(b, '')) = 'K350'")
        assert (done.updated, done.operation) == (1, "update")
        assert content(table) == [(1, "zx", 3, "kitten"), (2, "x", 20, "it's"), (3, "y", 30, None)]
        assert table.indexes.verify().ok

    def test_expressions_that_do_not_fit_are_refused(self, spark: SparkSession, table: Table) -> None:
        before = content(table)
        source = spark.createDataFrame([(1, "w"), (1, "v")], "id long, word string")
        with pytest.raises(SchemaConflict, match="'a' is BIGINT, and 'soundex"):
            table.merge(source, "t.id = s.id").when_matched_update({"a": "soundex(word)"}).execute()
        with pytest.raises(AmbiguousMerge, match="2 source rows would change the row of record key '1'"):
            table.merge(source, "t.id = s.id").when_matched_update({"b": "soundex(word)"}).execute()
        with pytest.raises(InvalidOption, match="no column 'wrod'"):
            table.merge(source, "t.id = s.id").when_matched_update({"b": "soundex(wrod)"}).execute()
        assert content(table) == before


@pytest.mark.rest
def test_a_move_with_a_lower_ordering_value_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    fields = [("id", pa.int64()), ("p", pa.string()), ("at", pa.struct([("n", pa.int64())])), ("ts", pa.int64())]
    of_paths: dict[str, Any] = {"buckets": 3, "partition_buckets": "a,7;b,2"}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("bucket", {"ordering": "at.n", **of_paths}),
        ("simple", {"ordering": ["ts", "at.n"]}),
        ("global_simple", {"ordering": "ts"}),
    ]
    for index, words in cases:
        words |= {"key": "id", "partition_by": "p", "type": "mor", "spark": spark}
        table = lakebed.create(str(tmp_path / index), pa.schema(fields), index=index, **words)
        table.upsert([{"id": n, "p": "a", "at": {"n": 10}, "ts": 10} for n in range(6)])

        def stored(table: Table = table) -> list[tuple[Any, ...]]:
            rows = table.scan().to_arrow().to_pylist()
            return sorted((row["id"], row["p"], row["at"]["n"], row["ts"]) for row in rows)

        late = spark.sql("SELECT id, 'b' p, named_struct('n', 8 + id) at, 8 + id ts FROM range(4)")
        table.merge(late, "id").when_matched_update().execute(options=ON_SPARK)
        moved = [(2, "b", 10, 10), (3, "b", 11, 11), (4, "a", 10, 10), (5, "a", 10, 10)]
        assert stored() == [(0, "a", 10, 10), (1, "a", 10, 10), *moved], index
        table.update({"p": "'a'"}, where="id = 2", options=ON_SPARK)
        assert stored() == [(0, "a", 10, 10), (1, "a", 10, 10), (2, "a", 10, 10), *moved[1:]], index
        assert table.get(list(range(6))).num_rows == 6, index


@pytest.mark.rest
def test_a_row_is_deleted_and_inserted_again_by_one_merge(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("ts", pa.int64())])
    for index, path in (("bucket", "a"), ("global_simple", "b")):
        table = lakebed.create(
            str(tmp_path / index), schema, key="id", partition_by="p", ordering="ts", index=index, spark=spark
        )
        table.upsert([{"id": n, "p": "a", "ts": 10} for n in range(3)])

        def replace(ts: int, table: Table = table, path: str = path) -> Any:
            source = spark.sql(f"SELECT 1L id, '{path}' p, {ts}L ts UNION ALL SELECT 7L, 'c', 1L")
            merge = table.merge(source, "t.id = s.id AND t.ts > 50").when_matched_update({"ts": "s.ts"})
            merge = merge.when_not_matched_insert().when_not_matched_by_source_delete(condition="t.id < 2")
            return merge.execute(options=ON_SPARK)

        with pytest.raises(lakebed.InvalidRecord, match="delete record key '1' and insert it again with a lower"):
            replace(9)
        assert replace(10).clauses[1:] == (("when_not_matched_insert", 2), ("when_not_matched_by_source_delete", 2))
        rows = sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())
        assert rows == [(1, path, 10), (2, "a", 10), (7, "c", 1)], index


def test_null_keys_match_nothing_and_are_not_inserted(spark: SparkSession, tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", partition_by="grp", index="simple", spark=spark)
    table.upsert(data([(1, "x", 10, "p"), (2, None, 20, "q")]))
    source = spark.createDataFrame([(None, "x", 1, "n"), (None, "x", 2, "n"), (2, None, 3, "n")], COLUMNS)
    for on in ("id", "t.id = s.id AND t.grp = s.grp"):
        with pytest.raises(lakebed.InvalidRecord):
            table.merge(source, on).when_matched_update({"a": "s.a"}).when_not_matched_insert().execute(
                options=ON_SPARK
            )
    done = table.merge(source, "t.id = s.id AND t.grp = s.grp").when_matched_update({"a": "s.a"})
    assert done.execute(options=ON_SPARK).updated == 0
    assert content(table) == in_order([(1, "x", 10, "p"), (2, None, 20, "q")])
