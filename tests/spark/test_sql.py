"""`lakebed.sql` on Spark: statements as they are written prune files and join by buckets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRecord
from lakebed.read.scan import Scan
from lakebed.statements.inserts import replace_where
from support.documented_examples import ROOT

CITIES = ("beijing", "oslo", "rome", "lima")
ROWS = pa.table(
    {
        "colA": pa.array(range(64), pa.int64()),
        "x": pa.array([n % 10 for n in range(64)]),
        "city": [CITIES[n % 4] for n in range(64)],
    }
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sql")
    tables: dict[str, Any] = {}
    for name, buckets, options in (("t1", 8, {}), ("t2", 4, {"type": "mor"})):
        t = lakebed.create(str(folder / name), ROWS, key="colA", index="bucket", buckets=buckets, **options)
        t.upsert(ROWS.slice(0, 40) if name == "t2" else ROWS)
        tables[name] = lakebed.open(t.uri, spark=spark)
    cities = ROWS.set_column(0, "colA", ROWS["colA"])
    t = lakebed.create(
        str(folder / "cities"), cities, key=["city", "colA"], index="bucket", hash_fields="city", buckets=8
    )
    t.upsert(cities)
    tables["T1"] = t.uri
    t2 = lakebed.open(tables["t2"].uri)
    t2.upsert(pa.table({"colA": pa.array([1], pa.int64()), "x": pa.array([100]), "city": ["oslo"]}))
    t2.delete([39])
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    yield {"a": tables["t1"], "b": tables["t2"], "cities": tables["T1"]}
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def plan_of(frame: Any) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


def views(spark: Any, tables: dict[str, Any]) -> None:
    for name, table in tables.items():
        table = lakebed.open(table) if isinstance(table, str) else lakebed.open(table.uri)
        spark.createDataFrame(table.to_arrow()).createOrReplaceTempView(name)


# Statements that need no exchange.
BY_BUCKETS = (
    "select colA from a group by colA",
    "select count(*) from a join b using (colA)",
    "select a.*, b.x from a left join b on a.colA = b.colA and b.x > 3 where a.city = 'oslo'",
    "with c as (select colA, sum(x) as s from b group by colA) select a.colA, s from a join c on a.colA = c.colA",
    "select * from (select colA, x as y from a where x < 5) q join b on q.colA = b.colA",
    "select colA, count(*) from (select colA from a union all select colA from b where x > 2) group by colA",
    "select colA, x from a where colA in (select colA from b where x = 100)",
    "select distinct colA from a where city = 'rome'",
    "select colA, row_number() over (partition by colA order by x) from b",
)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_joins_and_groups_by_the_bucket_key_have_no_exchange(spark: Any, tables: dict[str, Any], adaptive: str) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        for text in BY_BUCKETS:
            frame = lakebed.sql(text, tables)
            # the last step of a count over everything brings one number of each partition together
            exchanges = plan_of(frame).count("Exchange ")
            singles = plan_of(frame).count("Exchange SinglePartition")
            assert exchanges == singles == text.count("count(*) from a join"), f"{text}\n{plan_of(frame)}"
            views(spark, tables)
            assert rows_of(frame) == rows_of(spark.sql(text)), text
            assert frame.columns == spark.sql(text).columns
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_conditions_and_columns_reach_the_scan(
    spark: Any, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[Scan] = []
    to_spark = Scan.to_spark

    def noting(self: Scan, **options: Any) -> Any:
        scans.append(self)
        return to_spark(self, **options)

    monkeypatch.setattr(Scan, "to_spark", noting)
    found = lakebed.sql("select * from T1 where city = 'beijing'", {"T1": tables["cities"]}, spark=spark)
    assert rows_of(found) == sorted(
        (tuple(row.values()) for row in ROWS.to_pylist() if row["city"] == "beijing"), key=str
    )
    assert [len(scan.files) for scan in scans] == [1]
    for text in (
        "with x as (select * from T1) select * from x where city = 'beijing'",
        "select * from (select * from (select * from T1) p where colA >= 0) q where q.city = 'beijing'",
        "with x as (select colA as k, x, city as c from T1) select k, x, c from x where c = 'beijing'",
    ):
        scans.clear()
        assert rows_of(lakebed.sql(text, {"T1": tables["cities"]}, spark=spark)) == rows_of(found)
        assert [len(scan.files) for scan in scans] == [1], text
    scans.clear()
    text = "select * from (select colA, x from a union all (select x, colA from b where colA < 9)) q where colA = 1"
    assert rows_of(lakebed.sql(text, tables, spark=spark)) == [(1, 1)]
    assert [len(scan.plan.slices) for scan in scans] == [1, 4]
    scans.clear()
    text = "with x as (select * from T1 limit 50) select count(*) from x where city = 'nowhere'"
    assert rows_of(lakebed.sql(text, {"T1": tables["cities"]}, spark=spark)) == [(0,)]
    assert len(scans[0].plan.slices) > 1
    scans.clear()
    text = "select b.x from a join b using (colA) where colA = :key"
    assert rows_of(lakebed.sql(text, tables, {"key": 1})) == [(100,)]
    assert [len(scan.plan.slices) for scan in scans] == [1, 1]
    assert [scan.plan.columns for scan in scans] == [("colA",), ("colA", "x")]


def test_names_uris_times_and_functions_are_those_of_duckdb(spark: Any, tables: dict[str, Any]) -> None:
    uri = tables["b"].uri
    first = next(iter(tables["b"].timeline)).time
    texts = {
        f"select count(*) from '{uri}'": [(39,)],
        f"select max(t2.x) from lakebed.`{uri}` where t2.colA < 9": [(100,)],
        f"select count(*), max(x) from b version as of '{first}'": [(40, 9)],
        "select operation from lakebed_timeline('b') order by time": [("delete",), ("upsert",), ("upsert",)],
        "with a as (select 1 as one) select one from a": [(1,)],
        "select '{x}' from b where colA = 1": [("{x}",)],
        "select count(*) from lakebed_changes(b)": [(39,)],
    }
    for text, expected in texts.items():
        assert rows_of(lakebed.sql(text, tables, spark=spark)) == expected, text
    extra = pa.table({"colA": [1, 2]})
    assert rows_of(lakebed.sql("select sum(x) from b join extra using (colA)", {**tables, "extra": extra})) == [(102,)]
    assert not [table.name for table in spark.catalog.listTables() if "lakebed" in table.name]


@pytest.mark.rest
def test_the_examples_of_the_page_of_queries_run(spark: Any, tables: dict[str, Any], tmp_path: Path) -> None:
    blocks = re.findall(r"^```py\n(.*?)^```", (ROOT / "docs/queries.md").read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"lakebed": lakebed, "spark": spark, "t1": tables["a"], "t2": tables["b"]}
    for name, column in (("orders", "city"), ("payments", "paid")):
        rows = pa.table({"id": [1, 2], column: ["Rome", "Oslo"] if column == "city" else [20, 30]})
        t = lakebed.load(str(tmp_path / name), rows, key="id", index="bucket", buckets=2, progress=False)
        names[name] = lakebed.open(t.uri, spark=spark)
    for block in blocks:
        exec(block, names)
    assert rows_of(names["joined"]) == [(10,)]
    assert rows_of(names["operations"]) == [("delete", 1)]


def test_a_session_has_views_of_tables_and_the_table_functions(
    spark: Any, tables: dict[str, Any], tmp_path: Path
) -> None:
    logged = lakebed.create(
        str(tmp_path / "it's"), ROWS, key="colA", index="bucket", properties={"hoodie.table.cdc.enabled": True}
    )
    checkpoint = logged.upsert(ROWS.slice(0, 2)).checkpoint
    logged.delete([1])
    lakebed.spark.create_views(spark, {"logged": logged, "b": tables["b"].uri})
    expected = {
        "select count(*), max(x) from b": [(39, 100)],
        "select colA, city from logged": [(0, "beijing")],
        "select colA, x from lakebed_changes('b') where x > 9": [(1, 100)],
        f"select colA from lakebed_changes('{logged.uri.replace(chr(39), chr(92) + chr(39))}')": [(0,)],
        f"select op, before like '%oslo%' from lakebed_cdc('logged', '{checkpoint}')": [("d", True)],
        "select operation, inserted from lakebed_timeline('LOGGED') order by time": [("delete", 0), ("upsert", 2)],
        "select count(*), sum(log_files) from lakebed_files('b')": [(4, 2)],
    }
    for text, rows in expected.items():
        assert rows_of(spark.sql(text)) == rows, text
    with pytest.raises(Exception, match="at most 0 more constants"):
        spark.sql("select * from lakebed_files('b', 'c')").collect()


def test_statements_about_tables_run_in_a_session_and_all_others_are_the_sessions(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    tables = {"t": uri}
    create = f"""CREATE TABLE t USING hudi PARTITIONED BY (city) LOCATION '{uri}'
        TBLPROPERTIES (primaryKey = 'id', type = 'mor', index = 'bucket', buckets = 1)
        AS SELECT id, 'it\\'s' AS city, id * 2 AS n FROM range(3)"""
    t: Any = lakebed.sql(create, tables, spark=spark)
    assert t.opened.spark is spark
    assert t.properties["hoodie.table.type"] == "MERGE_ON_READ"
    lakebed.sql("ALTER TABLE t ADD COLUMN note STRING COMMENT 'free'", tables, spark=spark)
    lakebed.sql("INSERT INTO t (id, city, n) VALUES (7, 'rome', 1)", tables, spark=spark)
    assert [row.partition for row in lakebed.sql("SHOW PARTITIONS t", tables, spark=spark).collect()] == [
        "it's",
        "rome",
    ]
    commits: Any = lakebed.sql("CALL show_commits(table => 't', limit => 1)", tables, spark=spark)
    assert [row.total_records_written for row in commits.collect()] == [1]
    lakebed.sql(
        "INSERT INTO t PARTITION (city = 'rome') (n, id) SELECT id + 1, id + 20 FROM range(2)", tables, spark=spark
    )
    lakebed.sql("INSERT OVERWRITE t PARTITION (city = 'rome') (id, n) SELECT 7, 1 WHERE false", tables, spark=spark)
    lakebed.sql("INSERT INTO t PARTITION (city = 'rome') (id, n) VALUES (8, 2)", tables, spark=spark)
    with pytest.raises(InvalidRecord, match="do not fulfil the condition of REPLACE WHERE"):
        lakebed.sql("INSERT INTO t REPLACE WHERE city = 'rome' SELECT 7, 'x', 1, null", tables, spark=spark)
    replace = "INSERT INTO t REPLACE WHERE T.City IS NOT DISTINCT FROM 'rome' SELECT 7, 'rome', 1, null"
    assert lakebed.sql(replace, tables, spark=spark).deleted == 1  # type: ignore[union-attr]
    assert [
        tuple(row) for row in lakebed.sql("SELECT id, city, n FROM t WHERE id > 2", tables, spark=spark).collect()
    ] == [(7, "rome", 1)]
    cached: Any = spark.sql("SELECT 7L AS id, 'rome' AS city, 1 AS n, CAST(NULL AS STRING) AS note").cache()
    assert cached.count() == 1
    stored = set(cached.sparkSession.sparkContext._jsc.getPersistentRDDs())
    assert replace_where(lakebed.open(uri, spark=spark), cached, "city = 'rome'").updated == 1
    assert cached.storageLevel.useMemory  # the cache of the caller is left to the caller
    assert set(cached.sparkSession.sparkContext._jsc.getPersistentRDDs()) == stored
    cached.unpersist()
    lakebed.spark.create_views(spark, tables)
    lakebed.sql("DELETE FROM t WHERE id = 7", spark=spark)  # the name of `register`
    assert lakebed.sql("SELECT id FROM t WHERE n > 1", spark=spark).count() == 2
    for text, name in (
        ("CREATE TABLE other (id INT) USING parquet", ""),
        ("INSERT INTO other VALUES (1)", ""),
        ("INSERT INTO default.other VALUES (2)", ""),
        ("DELETE FROM other WHERE id = 1", "DELETE"),
        ("ALTER TABLE other ADD COLUMNS (n INT)", ""),
        ("ALTER TABLE default.other SET TBLPROPERTIES ('a' = 'b')", ""),
        ("DESCRIBE HISTORY other", "DESCRIBE|HISTORY"),
        ("DROP TABLE other", ""),
    ):
        if name:
            with pytest.raises(Exception, match=name):
                lakebed.sql(text, tables, spark=spark)
        else:
            lakebed.sql(text, tables, spark=spark)
    assert not spark.catalog.tableExists("other")
    assert lakebed.sql("TRUNCATE TABLE t", tables, spark=spark).operation == "delete_partition"  # type: ignore[union-attr]
    assert lakebed.sql("DROP TABLE t", tables, spark=spark) == []
    spark.catalog.dropTempView("t")
