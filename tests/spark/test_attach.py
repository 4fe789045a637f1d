"""`lakebed.spark.attach`: a session's own methods on the tables of a warehouse, and on all else as before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import ParseException

import lakebed
from lakebed.errors import InvalidOption, LakebedError, TableExists, UnsupportedFeature

ORDERS = pa.table({"id": [1, 2, 3], "who": [7, 8, 7]})
COUNTS = ["num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows"]


@pytest.fixture
def warehouse(spark: Any, tmp_path: Path) -> Iterator[lakebed.Warehouse]:
    """A warehouse with a table, attached to the session for one test."""
    w = lakebed.Warehouse(str(tmp_path / "lake"))
    w.load("sales.orders", ORDERS, key="id", index="bucket", buckets=2, progress=False)
    lakebed.spark.attach(spark, w)
    yield w
    lakebed.spark.detach(spark)


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def counts(frame: Any) -> tuple[int, ...]:
    assert frame.columns == COUNTS
    (row,) = frame.collect()
    return tuple(row)


def stored(w: lakebed.Warehouse, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in w.open(name).scan().to_arrow().to_pylist())


def test_statements_change_the_tables_of_the_warehouse_and_count_rows(spark: Any, warehouse: lakebed.Warehouse) -> None:
    created = spark.sql(
        """-- a new table
        CREATE TABLE sales.items USING lakebed TBLPROPERTIES (primaryKey = 'id')
        AS SELECT id, who + 1 AS n FROM sales.orders;"""
    )
    assert (created.columns, created.collect()) == ([], [])
    assert stored(warehouse, "sales.items") == [(1, 8), (2, 9), (3, 8)]
    merged = spark.sql(
        """MERGE INTO sales.items t USING (SELECT * FROM sales.orders WHERE id < 3) s ON t.id = s.id
        WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET n = 0"""
    )
    assert counts(merged) == (2, 1, 1, 0)
    assert counts(spark.sql("UPDATE sales.items SET n = n + :by WHERE id = :id", {"by": 5, "id": 2})) == (1, 1, 0, 0)
    assert counts(spark.sql("UPDATE sales.items SET n = ? WHERE id = ?", [6, 2])) == (1, 1, 0, 0)
    assert counts(spark.sql("INSERT INTO sales.items VALUES (9, 9), (10, 10)")) == (2, 0, 0, 2)
    assert counts(spark.sql("DELETE FROM sales.items WHERE id = 10")) == (1, 0, 1, 0)
    assert stored(warehouse, "sales.items") == [(2, 6), (3, 8), (9, 9)]
    assert spark.sql("VACUUM sales.items").columns == spark.sql("OPTIMIZE sales.items").columns == ["result"]
    commits = spark.sql("CALL show_commits(table => 'sales.items', limit => 2)").select("action")
    assert rows_of(commits) == [("commit",), ("replacecommit",)]  # of the DELETE, and of OPTIMIZE
    assert spark.sql("DROP TABLE sales.items").collect() == []
    assert warehouse.list() == ["sales.orders"]


def test_queries_give_lazy_frames_of_the_session(spark: Any, warehouse: lakebed.Warehouse, tmp_path: Path) -> None:
    first = warehouse.open("sales.orders").timeline.last
    assert first is not None
    spark.sql("UPDATE sales.orders SET who = 70 WHERE id = 1")
    frame = spark.sql("WITH o AS (SELECT * FROM Sales.ORDERS) SELECT id, who FROM o WHERE who > :least", {"least": 7})
    assert rows_of(frame) == [(1, 70), (2, 8)]
    frame.createOrReplaceTempView("dear")
    joined = "SELECT o.id FROM sales.orders o JOIN dear ON dear.id = o.id AND dear.who > 8"
    assert rows_of(spark.sql(joined)) == [(1,)]
    frame.write.parquet(str(tmp_path / "out"))
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == [(1, 70), (2, 8)]
    earlier = f"SELECT who FROM sales.orders VERSION AS OF '{first.time}' WHERE id = 1"
    assert rows_of(spark.sql(earlier)) == [(7,)]
    changed = f"SELECT id, who FROM lakebed_changes('sales.orders', '{first.completion_time}')"
    assert rows_of(spark.sql(changed)) == [(1, 70)]
    for text in ("DESCRIBE sales.orders", "DESC TABLE sales.orders"):
        assert [row[:2] for row in spark.sql(text).collect()] == [("id", "bigint"), ("who", "bigint")]
    for text in (
        "DESCRIBE EXTENDED sales.orders",
        "DESCRIBE TABLE EXTENDED sales.orders",
        "DESC FORMATTED sales.orders",
    ):
        assert ("Name", "sales.orders", "") in rows_of(spark.sql(text)), text
    assert rows_of(spark.sql("TABLE sales.orders")) == [(1, 70), (2, 8), (3, 7)]
    assert rows_of(spark.sql("SHOW COLUMNS IN sales.orders")) == [("id",), ("who",)]
    assert rows_of(spark.sql("SHOW TABLES IN sales")) == [("sales", "orders", False)]
    assert rows_of(spark.sql("SHOW TABLES FROM sales LIKE 'x*'")) == []
    assert spark.sql("SHOW TABLES FROM sales LIKE 'x*'").columns == ["namespace", "tableName", "isTemporary"]
    assert "FileScan parquet" in spark.sql("EXPLAIN SELECT * FROM sales.orders").collect()[0][0]


def test_a_database_that_both_have_lists_the_tables_of_both(spark: Any, warehouse: lakebed.Warehouse) -> None:
    databases = {("default",), ("sales",)}
    assert databases <= set(rows_of(spark.sql("SHOW DATABASES")))
    assert rows_of(spark.sql("SHOW SCHEMAS LIKE 'sal*'")) == [("sales",)]
    spark.sql("CREATE DATABASE sales")
    try:
        assert rows_of(spark.sql("SHOW DATABASES LIKE 'sal*'")) == [("sales",)]
        spark.sql("CREATE TABLE sales.of_spark USING parquet AS SELECT 1 AS id")
        for kind in ("TABLES", "TABLE EXTENDED"):
            listed = spark.sql(f"SHOW {kind} IN sales LIKE '*'").where("not isTemporary").collect()
            assert sorted(row["tableName"] for row in listed) == ["of_spark", "orders"], kind
        texts = {row["tableName"]: row["information"] for row in listed}
        assert "Provider: parquet" in texts["of_spark"]
        about = texts["orders"].splitlines()
        assert {"Name: sales.orders", "Provider: lakebed", "Record key: id"} <= {*about}
        assert about[-3:] == ["Schema: root", " |-- id: bigint (nullable = true)", " |-- who: bigint (nullable = true)"]
    finally:
        spark.sql("DROP DATABASE sales CASCADE")


def test_variables_of_spark_sql_are_frames_texts_and_columns(spark: Any, warehouse: lakebed.Warehouse) -> None:
    from pyspark.sql.functions import col

    new = spark.createDataFrame([(3, 30), (4, 40)], "id long, who long")
    merge = """MERGE INTO sales.orders t USING {new} s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    assert counts(spark.sql(merge, new=new)) == (2, 1, 0, 1)
    query = "SELECT o.id, {column}, {text} AS t, {number} AS n FROM sales.orders o JOIN {new} s ON o.id = s.id"
    given = {"new": new, "column": col("s.who"), "text": "it's {}", "number": 5}
    assert rows_of(spark.sql(query, **given)) == [(3, 30, "it's {}", 5), (4, 40, "it's {}", 5)]
    assert rows_of(spark.sql("SELECT {new.who} AS w FROM {new}", new=new)) == [(30,), (40,)]
    with pytest.raises(KeyError, match="absent"):
        spark.sql("SELECT {absent} FROM sales.orders", new=new)


# Statements that lakebed does not know, or that are about tables of Spark: their results and errors are Spark's.
OF_SPARK = [
    "SELECT 1 AS a, 'x;y' AS b, \"z\" AS c",
    "/* sales.orders */ SELECT count(*) FROM here -- sales.orders",
    "SELECT id FROM here WHERE id IS NOT DISTINCT FROM 1",
    "SELECT h.id FROM spark_catalog.default.here h WHERE h.id > 1",
    "DESCRIBE here",
    "DESCRIBE EXTENDED nope.nope",
    "SHOW TABLES IN default LIKE 'he*'",
    "SHOW COLUMNS IN here",
    "EXPLAIN UPDATE nope.nope SET a = 1",
    "SELECT * FROM nope.nope",
    "SELECT * FROM sales.nope",
    "SELECT * FROM nope.nope VERSION AS OF (1 + 1)",
    "SELECT * FROM lakebed_changes(nope.nope x)",
    "UPDATE nope.nope SET a = 1 WHERE (",
    "WITH x AS (SELECT 1) DELETE FROM nope.nope",
    "DELETE FROM here WHERE id = 1",
    "MERGE INTO nope.nope t USING here s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "MERGE WITH SCHEMA EVOLUTION INTO nope.nope t USING here s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "INSERT INTO nope.nope VALUES (1)",
    "ALTER TABLE nope.nope FOO",
    "TRUNCATE TABLE nope.nope",
    "DROP TABLE nope.nope",
    "DROP TABLE IF EXISTS nope.nope",
    "CREATE INDEX ON",
    "CREATE INDEX i ON here (id)",
    "CREATE TABLE orders USING hudi AS SELECT 1 AS id",
    "CREATE TABLE nope.nope (id int) USING parquet",
    "CALL run_compaction(op => 'run', table => 'nope.nope')",
    "CALL nope.nope(1, )",
    "OPTIMIZE nope.nope",
    "VACUUM nope.nope RETAIN x",
    "SHOW INDEXES IN nope.nope",
    "RESTORE TABLE nope.nope TO VERSION AS OF 1",
    "SELECT 1; SELECT 2",
    "SELECT 'a",
    "SELEC 1",
    "-- nothing",
    "",
]


def outcome(spark: Any, text: str, *args: Any, **kwargs: Any) -> Any:
    """The rows and columns of a statement, or its error. Numbers of expressions differ at each run."""
    try:
        frame = spark.sql(text, *args, **kwargs)
        return frame.dtypes, rows_of(frame)
    except Exception as error:
        return type(error), str(error).split("\n'")[0]


def test_other_statements_have_the_results_and_errors_of_spark(spark: Any, warehouse: lakebed.Warehouse) -> None:
    lakebed.spark.detach(spark)
    spark.range(3).createOrReplaceTempView("here")
    before = [outcome(spark, text) for text in OF_SPARK]
    values = [
        ("SELECT :a AS a", {"a": 1, "b": 2}),
        ("SELECT :a AS a", {"b": 2}),
        ("SELECT ? AS a", [1, 2]),
        ("SELECT 1", 5),
        ("UPDATE nope.nope SET a = :a", {"b": 1}),
    ]
    before += [outcome(spark, *pair) for pair in values]
    before += [outcome(spark, "SELECT * FROM {f} WHERE id > {n}", f=spark.range(2), n=0)]
    lakebed.spark.attach(spark, warehouse)
    after = [outcome(spark, text) for text in OF_SPARK]
    after += [outcome(spark, *pair) for pair in values]
    after += [outcome(spark, "SELECT * FROM {f} WHERE id > {n}", f=spark.range(2), n=0)]
    for text, one, other in zip([*OF_SPARK, *map(str, values), "{f}"], before, after, strict=True):
        assert one == other, text


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("sales.ordrs", "Did you mean 'sales.orders'? "),
        ("sale.orders", "Did you mean 'sales.orders'? "),
        ("orders", "Did you mean 'sales.orders'? "),
        ("sales.xyz", ""),
        ("xyz", ""),
    ],
)
def test_sparks_error_about_a_name_has_a_note_with_names_of_the_warehouse(
    name: str, near: str, spark: Any, warehouse: lakebed.Warehouse
) -> None:
    for call in (lambda: spark.sql(f"SELECT * FROM {name}"), lambda: spark.sql(f"UPDATE {name} SET who = 1")):
        with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND") as raised:
            call()
        assert type(raised.value).__module__.startswith("pyspark")
        assert raised.value.__notes__ == [f"{near}The warehouse {warehouse.uri} has no table {name}."]
    lakebed.spark.detach(spark)
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND") as raised:
        spark.sql(f"SELECT * FROM {name}")
    assert not hasattr(raised.value, "__notes__")


def test_names_of_the_session_are_found_in_the_warehouse_first(spark: Any, warehouse: lakebed.Warehouse) -> None:
    expected = [(1, 7), (2, 8), (3, 7)]
    spark.range(2).createOrReplaceTempView("orders")
    for frame in (spark.table("sales.orders"), spark.read.table("Sales.`orders`")):
        assert rows_of(frame) == expected
    assert rows_of(spark.table("orders")) == rows_of(spark.sql("SELECT * FROM orders")) == [(0,), (1,)]
    assert rows_of(spark.read.option("where", "id > 2").table("sales.orders")) == [(3, 7)]
    names = [("sales.orders",), ("orders", "sales"), ("orders",), ("sales.nope",)]
    assert [spark.catalog.tableExists(*name) for name in names] == [True, True, True, False]
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("sales.nope")
    with pytest.raises(Exception, match="NOT_STR"):
        spark.table(5)


def test_a_temporary_view_shows_the_tables_as_they_are_at_each_query(spark: Any, warehouse: lakebed.Warehouse) -> None:
    spark.sql(
        "CREATE TEMPORARY VIEW costly AS SELECT o.id, orders.who FROM sales.orders o JOIN sales.orders USING (id)"
    )
    spark.sql("CREATE OR REPLACE TEMP VIEW costly (a, b) AS SELECT id, orders.who FROM sales.orders WHERE who > 7")
    assert rows_of(spark.sql("SELECT * FROM costly")) == [(2, 8)]
    warehouse.open("sales.orders").upsert({"id": [9], "who": [90]})
    assert rows_of(spark.table("costly")) == [(2, 8), (9, 90)]
    merge = """MERGE INTO sales.orders t USING (SELECT a AS id, b + 1 AS who FROM costly) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET *"""
    assert counts(spark.sql(merge)) == (2, 2, 0, 0)
    assert rows_of(spark.sql("SELECT * FROM costly")) == [(2, 9), (9, 91)]
    first = warehouse.open("sales.orders").timeline.last
    assert first is not None
    for rows in (f"sales.orders VERSION AS OF '{first.time}'", f"lakebed_changes('sales.orders', '{first.time}')"):
        with pytest.raises(UnsupportedFeature, match="whole tables"):
            spark.sql(f"CREATE TEMPORARY VIEW v AS SELECT * FROM {rows}")
    assert not spark.catalog.tableExists("v")
    spark.sql("DROP VIEW costly")


def test_stored_queries_over_tables_of_the_warehouse_are_refused(spark: Any, warehouse: lakebed.Warehouse) -> None:
    for begin in (
        "CREATE OR REPLACE VIEW v AS",
        "CREATE GLOBAL TEMPORARY VIEW v AS",
        "CACHE TABLE v AS",
        "CACHE LAZY TABLE v",
    ):
        with pytest.raises(UnsupportedFeature, match="createOrReplaceTempView"):
            spark.sql(f"{begin} SELECT * FROM sales.orders")
        assert not spark.catalog.tableExists("v")
    assert stored(warehouse, "sales.orders") == [(1, 7), (2, 8), (3, 7)]


def test_wrong_statements_about_the_warehouse_say_why_and_change_nothing(
    spark: Any, warehouse: lakebed.Warehouse
) -> None:
    wrong = {
        "UPDATE sales.orders SET nope = 1": "no column 'nope'",
        "UPDATE sales.orders SET who = :who": "no value for :who",
        "UPDATE sales.orders SET who = 1 WHERE (": "closing parenthesis",
        "WITH x AS (SELECT 1) DELETE FROM sales.orders": "common table expressions",
        "INSERT INTO sales.orders VALUES (1)": "1 values for 2 columns",
        "MERGE WITH SCHEMA EVOLUTION INTO sales.orders t USING s ON t.id = s.id WHEN MATCHED THEN DELETE": "MERGE",
        "SELECT * FROM sales.orders VERSION AS OF (1 + 1)": "no constant",
        "CREATE TABLE orders USING lakebed AS SELECT 1 AS id": "where it is to be",
        "CREATE OR REPLACE TABLE sales.orders (id int) USING lakebed": "OR REPLACE",
        "CALL run_compaction(op => 'run'": "parenthesis",
        "ALTER TABLE sales.orders FOO": "ALTER",
    }
    for text, message in wrong.items():
        with pytest.raises(InvalidOption, match=message):
            spark.sql(text)
    assert stored(warehouse, "sales.orders") == [(1, 7), (2, 8), (3, 7)]
    assert warehouse.list() == ["sales.orders"]


def test_a_session_has_one_warehouse_and_detaching_restores_everything(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    objects = (spark, spark.catalog, DataFrameReader, DataFrameWriter, DataStreamWriter)
    before = [dict(vars(one)) for one in objects]
    w = lakebed.Warehouse(str(tmp_path / "lake"))
    w.load("sales.orders", ORDERS, key="id", progress=False)
    lakebed.spark.attach(spark, w)
    lakebed.spark.attach(spark, str(tmp_path / "lake"))
    with pytest.raises(InvalidOption, match="detach"):
        lakebed.spark.attach(spark, str(tmp_path / "other"))
    other = spark.newSession()
    for session in (other, spark.newSession()):
        with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
            session.sql("SELECT * FROM sales.orders")
    lakebed.spark.attach(other, str(tmp_path / "other"))
    lakebed.spark.detach(spark)
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM sales.orders")
    rows = other.createDataFrame([(1, 2)], "id long, n long")
    rows.write.format("lakebed").option("key", "id").saveAsTable("a.b")
    assert rows_of(other.table("a.b")) == [(1, 2)]
    lakebed.spark.detach(other)
    lakebed.spark.detach(other)
    assert [dict(vars(one)) for one in objects] == before


def test_a_method_that_was_replaced_after_attaching_stays(spark: Any, tmp_path: Path) -> None:
    lakebed.spark.attach(spark, str(tmp_path / "lake"))
    attached = spark.sql

    def counted(*args: Any, **kwargs: Any) -> Any:
        return attached(*args, **kwargs)

    spark.sql = counted
    try:
        lakebed.spark.detach(spark)
        assert spark.sql is counted
        assert rows_of(spark.sql("SELECT 1")) == [(1,)]
    finally:
        del spark.sql


def test_threads_and_functions_of_streams_share_the_warehouse(
    spark: Any, warehouse: lakebed.Warehouse, tmp_path: Path
) -> None:
    found: list[Any] = []

    def count() -> None:
        found.append(spark.sql("SELECT count(*) FROM sales.orders").collect()[0][0])

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [3] * 4

    def merge(batch: Any, number: int) -> None:
        lakebed.spark.attach(batch.sparkSession, warehouse)
        batch.createOrReplaceTempView("batch")
        batch.sparkSession.sql(
            "MERGE INTO sales.orders t USING batch s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
            " WHEN NOT MATCHED THEN INSERT *"
        )

    stream_of(spark, tmp_path).foreachBatch(merge).start().awaitTermination()
    assert stored(warehouse, "sales.orders") == [(1, 7), (2, 20), (3, 7), (4, 40)]


def stream_of(spark: Any, folder: Path) -> Any:
    """A writer of a stream with the rows (2, 20) and (4, 40)."""
    rows = spark.createDataFrame([(2, 20), (4, 40)], "id long, who long").coalesce(1)
    rows.write.mode("overwrite").parquet(str(folder / "in"))
    stream = spark.readStream.schema(rows.schema).parquet(str(folder / "in"))
    number = len(list(folder.glob("checkpoint*")))
    checkpoint = str(folder / f"checkpoint{number}")
    return stream.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)


def test_writers_create_and_fill_tables_by_name(spark: Any, warehouse: lakebed.Warehouse) -> None:
    rows = spark.createDataFrame([(2, 5, "a"), (9, 9, "b")], "id long, n long, day string")
    of_hudi = {
        "hoodie.table.name": "items",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.precombine.field": "n",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.operation": "upsert",
    }
    rows.write.format("lakebed").options(**of_hudi).mode("append").saveAsTable("sales.items")
    properties = warehouse.open("sales.items").properties
    assert properties["hoodie.table.type"] == "MERGE_ON_READ"
    assert properties["hoodie.table.partition.fields"] == "day"
    later = spark.createDataFrame([(2, 1, "a"), (9, 10, "b")], "id long, n long, day string")  # (2, 1) is late
    later.write.format("lakebed").options(**of_hudi).mode("append").saveAsTable("sales.items")
    assert stored(warehouse, "sales.items") == [(2, 5, "a"), (9, 10, "b")]
    later.where("id = 2").selectExpr("3 as id", "n", "day").write.mode("append").saveAsTable("sales.items")
    later.selectExpr("id + 10", "n", "day").write.insertInto("sales.items")
    assert stored(warehouse, "sales.items") == [(2, 5, "a"), (3, 1, "a"), (9, 10, "b"), (12, 1, "a"), (19, 10, "b")]
    own = spark.table("sales.items").where("id < 9")
    own.write.mode("overwrite").saveAsTable("sales.items")
    assert stored(warehouse, "sales.items") == [(2, 5, "a"), (3, 1, "a")]
    rows.write.insertInto("sales.items", overwrite=True)
    assert (9, 9, "b") in stored(warehouse, "sales.items")
    new = rows.write.format("lakebed").option("key", "id")
    new.partitionBy("day").saveAsTable("crm.items", index="bucket", buckets=3)
    table = warehouse.open("crm.items")
    assert (table.indexes.index.name, table.properties["hoodie.table.partition.fields"]) == ("bucket", "day")
    assert stored(warehouse, "crm.items") == [(2, 5, "a"), (9, 9, "b")]


def test_save_modes_are_those_of_spark(spark: Any, warehouse: lakebed.Warehouse, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, 1)], "id long, n long")
    path = str(tmp_path / "by-path")

    def modes(save: Any, read: Any) -> None:
        def written(mode: str | None, n: int) -> None:
            frame = rows.selectExpr(f"id + {n} AS id", "n")
            writer = frame.write.format("lakebed").option("key", "id")
            save(writer if mode is None else writer.mode(mode))

        written(None, 0)
        with pytest.raises(lakebed.TableExists, match="append"):
            written(None, 1)
        with pytest.raises(lakebed.TableExists, match="append"):
            written("errorifexists", 1)
        written("ignore", 1)
        assert read() == [(1, 1)]
        written("append", 1)
        assert read() == [(1, 1), (2, 1)]
        written("overwrite", 2)
        assert read() == [(3, 1)]

    modes(lambda writer: writer.save(path), lambda: rows_of(spark.read.format("lakebed").load(path)))
    modes(lambda writer: writer.saveAsTable("hr.staff"), lambda: stored(warehouse, "hr.staff"))
    for number, mode in enumerate(("ignore", "append", "overwrite")):
        rows.write.format("lakebed").mode(mode).option("primaryKey", "id").saveAsTable(f"hr.new{number}")
        assert stored(warehouse, f"hr.new{number}") == [(1, 1)]


def test_writers_refuse_wrong_names_and_options_and_leave_no_table(
    spark: Any, warehouse: lakebed.Warehouse, tmp_path: Path
) -> None:
    rows = spark.createDataFrame([(1, 1), (5, 1)], "id long, n long")

    def writer(**options: str) -> Any:
        return rows.write.format("lakebed").options(**{"key": "id", **options})

    for name in ("orders", "sales.", "sales.`a-b`", "sales.orders o", "a.b.c"):
        with pytest.raises(InvalidOption, match="no name of a table"):
            writer().saveAsTable(name)
    with pytest.raises(lakebed.TableNotFound, match="Name its key"):
        rows.write.format("lakebed").saveAsTable("sales.new")
    with pytest.raises(InvalidOption, match="Did you mean 'key'"):
        writer(kye="id").saveAsTable("sales.new")
    with pytest.raises(InvalidOption, match="takes a number"):
        writer(buckets="many").saveAsTable("sales.new")
    with pytest.raises(lakebed.SchemaConflict, match="not in the schema"):
        writer(key="nope").saveAsTable("sales.new")
    with pytest.raises(InvalidOption, match="Give the columns once"):
        writer(partition_by="id").partitionBy("n").saveAsTable("sales.new")
    with pytest.raises(InvalidOption, match=r"recordkey\.fields"):
        writer(key="who").mode("append").saveAsTable("sales.orders")
    with pytest.raises(InvalidOption, match="format is 'json'"):
        rows.write.format("json").mode("append").saveAsTable("sales.orders")
    with pytest.raises(InvalidOption, match="1 values for 2 columns"):
        rows.select("id").write.insertInto("sales.orders")
    with pytest.raises(InvalidOption, match="partitionBy"):
        rows.write.partitionBy("id").insertInto("sales.orders")
    for layout in (writer().bucketBy(2, "id"), writer().bucketBy(2, "id").sortBy("n"), writer().clusterBy("n")):
        with pytest.raises(InvalidOption, match="option\\('buckets', 8\\)"):
            layout.saveAsTable("sales.new")
    failing = rows.selectExpr("id", "if(id < 5, n, cast(raise_error('row 5') as long)) AS n")
    for mode in ("errorifexists", "append", "overwrite", "ignore"):
        with pytest.raises(Exception, match="row 5"):
            failing.write.format("lakebed").option("key", "id").mode(mode).saveAsTable("sales.new")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.parquet").write_bytes(b"of another")
    for mode in ("append", "overwrite"):
        with pytest.raises(lakebed.TableExists, match="not empty"):
            writer().mode(mode).save(str(tmp_path / "other"))
    assert [path.name for path in (tmp_path / "other").rglob("*")] == ["x.parquet"]
    assert warehouse.list() == ["sales.orders"]
    assert stored(warehouse, "sales.orders") == [(1, 7), (2, 8), (3, 7)]


def test_a_message_of_the_session_is_noted_with_its_commits(spark: Any, warehouse: lakebed.Warehouse) -> None:
    spark.sql("SET lakebed.message = a new owner")
    try:
        spark.sql("UPDATE sales.orders SET who = 9 WHERE id = 1")
    finally:
        spark.sql("RESET lakebed.message")
    spark.sql("UPDATE sales.orders SET who = 7 WHERE id = 1")
    newest = warehouse.open("sales.orders").versions.to_arrow().to_pylist()[-2:]
    assert [one["message"] for one in newest] == ["a new owner", None]


def test_tables_of_spark_are_written_as_before(spark: Any, warehouse: lakebed.Warehouse, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, 1), (5, 1)], "id long, n long")
    try:
        rows.write.saveAsTable("plain", mode="overwrite", partitionBy="n")
        rows.write.mode("append").insertInto("plain")
        assert (
            rows_of(spark.table("plain"))
            == rows_of(spark.sql("SELECT * FROM plain"))
            == [(1, 1), (1, 1), (5, 1), (5, 1)]
        )
        spark.sql("INSERT INTO plain SELECT id, who FROM sales.orders WHERE id = 2")
        assert rows_of(spark.table("plain").where("id = 2")) == [(2, 8)]
        stream_of(spark, tmp_path).toTable("plain_stream").awaitTermination()
        assert rows_of(spark.read.table("plain_stream")) == [(2, 20), (4, 40)]
        rows.write.save(str(tmp_path / "plain"), format="json", mode="append", compression="gzip")
        assert rows_of(spark.read.json(str(tmp_path / "plain"))) == [(1, 1), (5, 1)]
        assert list((tmp_path / "plain").glob("*.json.gz"))
    finally:
        spark.sql("DROP TABLE IF EXISTS plain")
        spark.sql("DROP TABLE IF EXISTS plain_stream")


def test_streams_write_to_names_and_create_tables(spark: Any, warehouse: lakebed.Warehouse, tmp_path: Path) -> None:
    new = stream_of(spark, tmp_path).format("lakebed").queryName("new").outputMode("append")
    new.toTable("sales.stream", partitionBy="who", key="id").awaitTermination()
    assert stored(warehouse, "sales.stream") == [(2, 20), (4, 40)]
    assert warehouse.open("sales.stream").properties["hoodie.table.partition.fields"] == "who"
    stream_of(spark, tmp_path).toTable("sales.orders").awaitTermination()
    assert stored(warehouse, "sales.orders") == [(1, 7), (2, 20), (3, 7), (4, 40)]
    with pytest.raises(lakebed.TableNotFound, match="Name its key"):
        stream_of(spark, tmp_path).format("lakebed").toTable("sales.nope")
    with pytest.raises(InvalidOption, match="format is 'json'"):
        stream_of(spark, tmp_path).format("json").toTable("sales.orders")
    assert warehouse.list() == ["sales.orders", "sales.stream"]


def test_tables_of_the_warehouse_are_cloned(spark: Any, warehouse: lakebed.Warehouse) -> None:
    copied = spark.sql("CREATE TABLE sales.copied DEEP CLONE sales.orders")
    assert (copied.columns, copied.collect()) == ([], [])
    warehouse.load("sales.items", ORDERS, key="id", index="simple", progress=False)
    spark.sql("CREATE TABLE sales.seen SHALLOW CLONE sales.items")
    assert [saved.name for saved in warehouse.open("sales.items").savepoints] == [
        f"clone file://{warehouse.open('sales.seen').uri}"
    ]
    spark.sql("UPDATE sales.seen SET who = 70 WHERE id = 1")
    spark.sql("DELETE FROM sales.orders WHERE id = 2")
    assert rows_of(spark.sql("SELECT id, who FROM sales.seen")) == [(1, 70), (2, 8), (3, 7)]
    assert rows_of(spark.sql("SELECT id, who FROM sales.copied")) == [(1, 7), (2, 8), (3, 7)]
    assert (stored(warehouse, "sales.items"), stored(warehouse, "sales.orders")) == (
        [(1, 7), (2, 8), (3, 7)],
        [(1, 7), (3, 7)],
    )


def test_a_clone_that_cannot_be_made_on_a_session_leaves_nothing(spark: Any, warehouse: lakebed.Warehouse) -> None:
    warehouse.load("sales.items", ORDERS, key="id", index="simple", progress=False)
    spark.sql("CREATE TABLE sales.seen SHALLOW CLONE sales.items")
    names = warehouse.list()
    with pytest.raises(TableExists):
        spark.sql("CREATE TABLE sales.seen DEEP CLONE sales.orders")
    assert spark.sql("CREATE TABLE IF NOT EXISTS sales.seen DEEP CLONE sales.orders").collect() == []
    with pytest.raises(UnsupportedFeature, match="files of yet another table"):
        spark.sql("CREATE TABLE sales.again SHALLOW CLONE sales.seen")
    for wrong in ("sales.items VERSION AS OF 1", "sales.items LOCATION '/tmp/elsewhere'"):
        with pytest.raises(LakebedError):
            spark.sql(f"CREATE TABLE sales.again DEEP CLONE {wrong}")
    for source in ("sales.orderz", "of_spark"):
        with pytest.raises(ParseException) as caught:  # a statement that other extensions of Spark may have
            spark.sql(f"CREATE TABLE sales.again DEEP CLONE {source}")
        assert f"has no table {source}" in caught.value.__notes__[-1]
    assert warehouse.list() == names
    assert stored(warehouse, "sales.seen") == [(1, 7), (2, 8), (3, 7)]
    spark.sql("CREATE TABLE sales.again DEEP CLONE sales.seen")
    assert stored(warehouse, "sales.again") == [(1, 7), (2, 8), (3, 7)]


def test_statements_that_change_rows_are_explained_and_not_run(spark: Any, warehouse: lakebed.Warehouse) -> None:
    spark.createDataFrame([(1, 9)], "id bigint, who bigint").createOrReplaceTempView("changed")
    for text, part in {
        "UPDATE sales.orders SET who = 1 WHERE id = 1": "writes      who",
        "DELETE FROM sales.orders WHERE id = :id": "delete from table 'orders'",
        "INSERT INTO sales.orders VALUES (9, 2)": "insert into table 'orders'",
        "MERGE INTO sales.orders t USING changed s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *": "by key",
    }.items():
        frame = spark.sql(f"EXPLAIN {text}", {"id": 1} if ":id" in text else None)
        ((plan,),) = frame.collect()
        assert (frame.columns, part in plan) == (["plan"], True), plan
    with pytest.raises(UnsupportedFeature, match="no plan of an INSERT that replaces"):
        spark.sql("EXPLAIN INSERT OVERWRITE sales.orders VALUES (1, 2)")
    assert stored(warehouse, "sales.orders") == [(1, 7), (2, 8), (3, 7)]
