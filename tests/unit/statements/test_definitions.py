"""CREATE, DROP, TRUNCATE and ALTER TABLE: the parts of their texts, what they do to a table, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import (
    CheckFailed,
    InvalidOption,
    LakebedError,
    SchemaConflict,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from support.statements import parts

# A statement, and the fields of its command that are no defaults.
GOLDEN = {
    """CREATE TABLE IF NOT EXISTS t (
        id BIGINT NOT NULL COMMENT 'the key, (of a row)',  -- , )
        `odd name` map<string, array<decimal(10, 2)>>, at TIMESTAMP, c struct<a: int, b: string> comment "it's"
       ) USING Hudi PARTITIONED BY (city STRING, day)
       TBLPROPERTIES (primaryKey = 'id, city', 'type' = 'MOR', preCombineField = 'at', buckets = 4, index 'bucket',
         hoodie.compact.inline = true, 'hoodie.x' = '=,)') LOCATION 's3://lake/t'""": (
        "CreateTable",
        {
            "table": "t",
            "uri": "s3://lake/t",
            "columns": [
                ("id", "BIGINT", "the key, (of a row)", False),
                ("odd name", "map<string, array<decimal(10, 2)>>", "", True),
                ("at", "TIMESTAMP", "", True),
                ("c", "struct<a: int, b: string>", "it's", True),
                ("city", "STRING", "", True),
            ],
            "partition_by": ["city", "day"],
            "arguments": {"key": ["id", "city"], "type": "mor", "ordering": ["at"], "buckets": 4, "index": "bucket"},
            "properties": {"hoodie.compact.inline": "true", "hoodie.x": "=,)"},
            "if_not_exists": True,
        },
    ),
    "create table t using lakebed options (orderingFields='a,b', path='/x') as select ')' as a -- 'x": (
        "CreateTable",
        {"table": "t", "uri": "/x", "arguments": {"ordering": ["a", "b"]}, "query": "select ')' as a"},
    ),
    "CREATE EXTERNAL TABLE lakebed.`/lake/a b` USING lakebed WITH x AS (SELECT 1) SELECT * FROM x": (
        "CreateTable",
        {"table": "/lake/a b", "uri": "/lake/a b", "query": "WITH x AS (SELECT 1) SELECT * FROM x"},
    ),
    "DROP TABLE IF EXISTS t PURGE;": ("DropTable", {"table": "t", "if_exists": True}),
    "truncate table t partition (day = '2026-01-01', hour = 3)": (
        "TruncateTable",
        {"table": "t", "values": {"day": "2026-01-01", "hour": 3}},
    ),
    "ALTER TABLE t DROP IF EXISTS PARTITION (city = NULL)": (
        "TruncateTable",
        {"table": "t", "values": {"city": None}, "missing_ok": True},
    ),
    "ALTER TABLE t ADD COLUMNS (a map<int, string> COMMENT 'x, y' AFTER `b c`, s.d int FIRST)": (
        "AlterColumns",
        {
            "table": "t",
            "changes": [
                {"verb": "add", "column": "a", "type": "map<int, string>", "comment": "x, y", "after": "b c"},
                {"verb": "add", "column": "s.d", "type": "int", "first": True},
            ],
        },
    ),
    "ALTER TABLE t ADD COLUMNS (a int DEFAULT (1 + 2) COMMENT 'x', b string DEFAULT NULL AFTER a)": (
        "AlterColumns",
        {
            "table": "t",
            "changes": [
                {"verb": "add", "column": "a", "type": "int", "comment": "x", "default": "(1 + 2)"},
                {"verb": "add", "column": "b", "type": "string", "after": "a", "default": "NULL"},
            ],
        },
    ),
    "ALTER TABLE t ALTER COLUMN a SET DEFAULT current_date()": (
        "AlterDefault",
        {"table": "t", "column": "a", "value": "current_date()"},
    ),
    "ALTER TABLE t ALTER COLUMN a DROP DEFAULT": ("AlterDefault", {"table": "t", "column": "a", "value": None}),
    "ALTER TABLE t ADD CONSTRAINT `low` CHECK (a < 3 AND b <> ')' -- x)\n)": (
        "AlterChecks",
        {"table": "t", "verb": "add", "name": "low", "condition": "a < 3 AND b <> ')'"},
    ),
    "ALTER TABLE t DROP CONSTRAINT IF EXISTS low": (
        "AlterChecks",
        {"table": "t", "verb": "drop", "name": "low", "missing_ok": True},
    ),
    "ALTER TABLE t ALTER COLUMN a.b SET NOT NULL": ("AlterChecks", {"table": "t", "verb": "require", "name": "a.b"}),
    "ALTER TABLE t CHANGE COLUMN a DROP NOT NULL": (
        "AlterChecks",
        {"table": "t", "verb": "drop_required", "name": "a"},
    ),
    "ALTER TABLE t ADD COLUMN a decimal(10, 2)": (
        "AlterColumns",
        {"table": "t", "changes": [{"verb": "add", "column": "a", "type": "decimal(10, 2)"}]},
    ),
    "ALTER TABLE t DROP COLUMNS (a, b.c)": (
        "AlterColumns",
        {"table": "t", "changes": [{"verb": "drop", "column": "a"}, {"verb": "drop", "column": "b.c"}]},
    ),
    "ALTER TABLE t RENAME COLUMN `a` TO `to`": (
        "AlterColumns",
        {"table": "t", "changes": [{"verb": "rename", "column": "a", "name": "to"}]},
    ),
    "ALTER TABLE t ALTER COLUMN a TYPE decimal(20, 2) COMMENT 'it\\'s' AFTER b": (
        "AlterColumns",
        {
            "table": "t",
            "changes": [
                {"verb": "widen", "column": "a", "type": "decimal(20, 2)"},
                {"verb": "comment", "column": "a", "comment": "it's"},
                {"verb": "move", "column": "a", "after": "b"},
            ],
        },
    ),
    "ALTER TABLE t CHANGE COLUMN a b bigint COMMENT '' FIRST": (
        "AlterColumns",
        {
            "table": "t",
            "changes": [
                {"verb": "rename", "column": "a", "name": "b"},
                {"verb": "widen", "column": "b", "type": "bigint"},
                {"verb": "move", "column": "b", "first": True},
            ],
        },
    ),
    "ALTER TABLE t SET TBLPROPERTIES ('hoodie.clean.commits.retained' = 24, hoodie.clean.async=false)": (
        "SetProperties",
        {"table": "t", "settings": {"hoodie.clean.commits.retained": "24", "hoodie.clean.async": "false"}},
    ),
    "ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('a.b', c.d)": (
        "SetProperties",
        {"table": "t", "settings": {"a.b": None, "c.d": None}},
    ),
}


@pytest.mark.parametrize("text", GOLDEN)
def test_a_definition_is_taken_apart(text: str) -> None:
    assert parts(text) == GOLDEN[text]


@pytest.fixture
def uri(request: pytest.FixtureRequest) -> Iterator[str]:
    uri = f"memory://definitions/{request.node.originalname}"
    yield uri
    lakebed.drop(uri, missing_ok=True)


def test_a_table_is_created_filled_and_dropped(uri: str) -> None:
    tables = {"trips": uri}
    text = """CREATE TABLE trips (id BIGINT NOT NULL COMMENT 'the key', fare DECIMAL(8, 2), at TIMESTAMP)
              USING lakebed PARTITIONED BY (city STRING) TBLPROPERTIES (primaryKey='id', orderingFields='at',
              type='mor', index='bucket', buckets=2, hoodie.datasource.write.hive_style_partitioning='true')"""
    t: Any = lakebed.sql(text, tables)
    assert isinstance(t, lakebed.Table)
    named = {"hoodie.table.type": "MERGE_ON_READ", "hoodie.table.recordkey.fields": "id"}
    assert named.items() <= t.properties.items()
    assert [(c.name, c.type, c.nullable, c.comment) for c in t.columns] == [
        ("id", "BIGINT", False, "the key"),
        ("fare", "DECIMAL(8,2)", True, ""),
        ("at", "TIMESTAMP_LTZ", True, ""),
        ("city", "STRING", True, ""),
    ]
    lakebed.sql("INSERT INTO trips (id, fare, at, city) VALUES (1, 2.5, TIMESTAMP '2026-01-01', 'rome')", tables)
    assert t.partitions == ("city=rome",)
    assert t.columns.to_arrow()["comment"][0].as_py() == "the key"
    with pytest.raises(TableExists):
        lakebed.sql(text, tables)
    kept: Any = lakebed.sql(text.replace("TABLE trips", "TABLE IF NOT EXISTS trips"), tables)
    assert kept.count() == 1
    assert lakebed.sql("DROP TABLE trips", tables) == []
    assert not lakebed.list_tables(uri, depth=0)
    assert lakebed.sql("DROP TABLE IF EXISTS trips", tables) == []
    with pytest.raises(TableNotFound):
        lakebed.sql("DROP TABLE trips", tables)


def test_a_table_is_created_of_a_query(uri: str) -> None:
    source = pa.table({"id": [1, 2], "city": ["rome", "it's"]})
    text = (
        f"CREATE TABLE copy USING hudi PARTITIONED BY (city) LOCATION '{uri}' TBLPROPERTIES (primaryKey 'id') AS SELECT"
    )
    t: Any = lakebed.sql(f"{text} id, city, id * 2 AS n FROM s WHERE city <> :no", {"s": source}, {"no": "x"})
    assert t.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "city": "rome", "n": 2},
        {"id": 2, "city": "it's", "n": 4},
    ]
    lakebed.drop(uri)
    with pytest.raises(LakebedError):  # two rows of one key
        lakebed.sql(f"{text} 1 AS id, lower('X') AS city FROM s", {"s": source})
    assert not lakebed.list_tables(uri, depth=0)


def test_rows_of_partitions_are_removed(uri: str) -> None:
    t = lakebed.create(uri, {"id": [1], "city": ["x"], "hour": [1]}, key="id", partition_by=["city", "hour"])
    t.upsert({"id": [1, 2, 3, 4], "city": ["a", "a", "b", None], "hour": [1, 2, 1, 1]})
    done: Any = lakebed.sql("TRUNCATE TABLE t PARTITION (City = 'a', hour = 2)", {"t": t})
    assert (done.operation, t.scan().to_arrow()["id"].to_pylist().__len__()) == ("delete_partition", 3)
    lakebed.sql("ALTER TABLE t DROP PARTITION (city = NULL)", {"t": t})
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 3]
    with pytest.raises(InvalidOption, match="no partition with city = 'zz'"):
        lakebed.sql("TRUNCATE TABLE t PARTITION (city = 'zz')", {"t": t})
    lakebed.sql("ALTER TABLE t DROP IF EXISTS PARTITION (city = 'zz')", {"t": t})
    with pytest.raises(InvalidOption, match="no partition column 'id'"):
        lakebed.sql("TRUNCATE TABLE t PARTITION (id = 1)", {"t": t})
    lakebed.sql("TRUNCATE TABLE t", {"t": t})
    assert t.count() == 0
    lakebed.sql("TRUNCATE TABLE t", {"t": t})
    t.upsert({"id": [1, 2], "city": ["a*", "ab"], "hour": [1, 1]})
    with pytest.raises(UnsupportedFeature, match="has a \\*, which stands for any text"):
        lakebed.sql("TRUNCATE TABLE t PARTITION (city = 'a*')", {"t": t})
    assert t.count() == 2


def test_columns_and_settings_are_changed(uri: str) -> None:
    t = lakebed.create(uri, {"id": [1], "fare": [1], "city": ["x"]}, key="id")
    t.upsert({"id": [1], "fare": [1], "city": ["x"]})
    tables = {"t": t}
    lakebed.sql("ALTER TABLE t ADD COLUMNS (tip DOUBLE COMMENT 'extra' AFTER id, note STRING)", tables)
    lakebed.sql("ALTER TABLE t RENAME COLUMN City TO town", tables)
    lakebed.sql("ALTER TABLE t ALTER COLUMN note COMMENT 'free; text' FIRST", tables)
    lakebed.sql("ALTER TABLE t CHANGE COLUMN tip tips DOUBLE COMMENT :text", tables, {"text": "it's\n'; DROP TABLE t"})
    lakebed.sql("ALTER TABLE t DROP COLUMN fare", tables)
    assert [(c.name, c.type, c.comment) for c in t.columns] == [
        ("note", "STRING", "free; text"),
        ("id", "BIGINT", ""),
        ("tips", "DOUBLE", "it's\n'; DROP TABLE t"),
        ("town", "STRING", ""),
    ]
    assert t.scan().to_arrow().to_pylist() == [{"note": None, "id": 1, "tips": None, "town": "x"}]
    before = len(t.timeline)
    with pytest.raises(SchemaConflict):
        lakebed.sql("ALTER TABLE t ADD COLUMNS (a INT, town INT)", tables)
    with pytest.raises(SchemaConflict):
        lakebed.sql("ALTER TABLE t ADD COLUMNS (a INT, b INTT)", tables)
    assert len(t.timeline) == before
    lakebed.sql("ALTER TABLE t SET TBLPROPERTIES (hoodie.clean.commits.retained = 24)", tables)
    assert t.properties["lakebed.clean.commits.retained"] == "24"
    lakebed.sql("ALTER TABLE t UNSET TBLPROPERTIES ('hoodie.clean.commits.retained')", tables)
    assert "lakebed.clean.commits.retained" not in t.properties


REFUSED = [
    ("CREATE TABLE t2 (id INT) USING lakebed", "nothing says where it is to be"),
    ("CREATE TABLE t (id INT)", "USING lakebed is missing in the CREATE near 'CREATE TABLE"),
    ("CREATE TABLE t (id INT) USING parquet", "USING lakebed is missing"),
    ("CREATE OR REPLACE TABLE t (id INT) USING lakebed", "and a DROP TABLE has to come first, in the CREATE near 'OR"),
    ("ALTER TABLE IF EXISTS t DROP COLUMN v", "ALTER TABLE has no IF EXISTS in the ALTER near 'IF EXISTS"),
    ("TRUNCATE TABLE IF EXISTS t", "TRUNCATE TABLE has no IF EXISTS"),
    ("CREATE TABLE t USING lakebed", "the columns, or AS and a query, are missing in the CREATE near the end"),
    ("CREATE TABLE t (id INT, USING lakebed", "a closing parenthesis is missing"),
    ("CREATE TABLE t (id INT, (b INT)) USING lakebed", "the name of a column is missing .* near '\\(b INT"),
    ("CREATE TABLE t (id) USING lakebed", "the type of column 'id' is missing"),
    ("CREATE TABLE t (id INT PRIMARY KEY) USING lakebed", "column 'id' cannot have PRIMARY"),
    ("CREATE TABLE t (id INTT) USING lakebed LOCATION 'memory://definitions/no'", "INTT"),
    ("CREATE TABLE t (id INT) USING lakebed COMMENT 'x'", "a table has no COMMENT"),
    ("CREATE TABLE t (id INT) USING lakebed CLUSTERED BY (id) INTO 4 BUCKETS", "CLUSTERED is no clause"),
    ("CREATE TABLE t (id INT) USING lakebed PARTITIONED BY (bucket(4, id))", "no function of one"),
    ("CREATE TABLE t (id INT) USING lakebed LOCATION 5", "LOCATION takes a URI in quotes"),
    ("CREATE TABLE t (id INT) USING lakebed LOCATION 'a' LOCATION 'b'", "two locations"),
    ("CREATE TABLE t (id INT) USING lakebed TBLPROPERTIES (primaryKeys='id')", "Did you mean 'primaryKey'"),
    ("CREATE TABLE t (id INT) USING lakebed TBLPROPERTIES (primaryKey='id', key='a')", "key is given twice"),
    ("CREATE TABLE t (id INT) USING lakebed TBLPROPERTIES (type='cow' 'mor')", "something follows the value of 'type'"),
    (
        "CREATE TABLE t (id INT) USING lakebed TBLPROPERTIES (type=concat('c', 'ow'))",
        "the value of 'type' is no constant",
    ),
    ("CREATE TABLE t (id INT) USING lakebed TBLPROPERTIES (buckets='many')", "takes a number, not 'many'"),
    ("CREATE TABLE t (id INT) USING lakebed AS SELECT 1", "takes its columns from the query"),
    ("CREATE TABLE t (id INT) USING lakebed; DROP TABLE t", "more than one statement"),
    ("DROP TABLE nope", "'nope', which is no table of lakebed"),
    ("DROP TABLE data", "'data', which is no table of lakebed"),
    ("DROP TABLE t, u", "goes on where it should end in the DROP near ', u'"),
    ("DROP TABLE t WHERE 1 = 1", "goes on where it should end"),
    ("TRUNCATE TABLE t PARTITION ()", "the columns of a partition in parentheses are missing"),
    ("TRUNCATE TABLE t PARTITION (city = lower('A'))", "the value of 'city' is no constant .* near \"lower"),
    ("TRUNCATE TABLE t VERSION AS OF '1'", "has no AS OF"),
    ("ALTER TABLE t RENAME TO u", "is not renamed"),
    ("ALTER TABLE t ADD COLUMN a INT NOT NULL", "null in the rows that there are"),
    ("ALTER TABLE t ADD (a INT)", "COLUMNS is missing in the ALTER near '\\(a INT"),
    ("ALTER TABLE t ALTER COLUMN city SET TYPE INT", "SET is no change of a column"),
    ("ALTER TABLE t ALTER COLUMN city SET DEFAULT", "the default is missing"),
    ("ALTER TABLE t ALTER COLUMN city DROP DEFAULT 1", "goes on where it should end"),
    ("ALTER TABLE t ADD COLUMN a INT GENERATED ALWAYS AS (id)", "a column that is added is not generated"),
    ("ALTER TABLE t RENAME COLUMN city", "TO is missing in the ALTER near the end"),
    ("ALTER TABLE t DROP COLUMN city, id", "goes on where it should end"),
    ("ALTER TABLE t SET TBLPROPERTIES (hoodie.table.type = 'x')", "hoodie.table.type"),
    ("ALTER TABLE t", "nothing is no change of a table"),
    ("ALTER TABLE `memory://definitions/none`; x", "more than one statement"),
    ("SET x = 1", "sql\\(\\) does not run SET without a session"),
    ("CREATE VIEW v AS SELECT 1", "does not run CREATE without a session"),
]


@pytest.mark.parametrize(("text", "match"), REFUSED)
def test_a_wrong_definition_is_refused_with_its_place_and_nothing_is_written(uri: str, text: str, match: str) -> None:
    t = lakebed.create(uri, {"id": [1], "city": ["x"]}, key="id", partition_by="city")
    t.upsert({"id": [1], "city": ["x"]})
    before = t.timeline.to_arrow(), dict(t.properties)
    with pytest.raises(LakebedError, match=match):
        lakebed.sql(text, {"t": t, "data": pa.table({"id": [1]})})
    assert (t.timeline.to_arrow(), dict(t.properties)) == before
    assert t.count() == 1
    assert not lakebed.list_tables("memory://definitions/no", depth=0)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("CREATE TABLE x (id BIGINT) USING lakebed USING hudi", "USING is given twice in the CREATE near 'USING hudi"),
        (
            "CREATE TABLE x (a INT, b INT) USING lakebed PARTITIONED BY (a) PARTITIONED BY (b)",
            "PARTITIONED is given twice",
        ),
        ("CREATE TABLE x (a INT COMMENT 'a' COMMENT 'b') USING lakebed", "column 'a' cannot have COMMENT"),
        ("CREATE TABLE x (a INT, A INT) USING lakebed", "the columns hold the names a and A"),
        ("ALTER TABLE t ALTER COLUMN city COMMENT 'a' COMMENT 'b'", "COMMENT is given twice in the ALTER"),
        ("ALTER TABLE t ALTER COLUMN city FIRST AFTER id", "FIRST or AFTER is given twice"),
        ("ALTER TABLE t ADD COLUMNS (a INT, A INT)", "the table has a column 'a' already"),
        ("ALTER TABLE t DROP COLUMNS (city, city)", "the table has no column 'city'"),
    ],
)
def test_what_is_given_twice_is_refused(text: str, match: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string())])
    table = lakebed.create("memory://definitions/repeated", schema, key="id", index="simple")
    with pytest.raises(LakebedError, match=match):
        lakebed.sql(text, {"t": table, "x": "memory://definitions/twice"})
    assert lakebed.open(table.uri).schema.names == ["id", "city"]
    assert not lakebed.list_tables("memory://definitions/twice", depth=0)
    lakebed.drop(table.uri)


def test_constraints_are_checks_of_the_table() -> None:
    table = lakebed.load("memory://statements/constraints", {"id": [1, 2], "fare": [1.0, None]}, key="id")
    tables = {"t": table}

    def run(text: str) -> Any:
        return lakebed.sql(text, tables)

    try:
        assert run("ALTER TABLE t ADD CONSTRAINT positive CHECK (fare >= 0)").condition == "fare >= 0"
        with pytest.raises(CheckFailed, match="positive"):
            run("INSERT INTO t VALUES (3, -1)")
        with pytest.raises(CheckFailed, match="positive"):
            run("UPDATE t SET fare = -1 WHERE id = 1")
        with pytest.raises(CheckFailed, match="fare_not_null"):
            run("ALTER TABLE t ALTER COLUMN fare SET NOT NULL")
        run("DELETE FROM t WHERE fare IS NULL")
        run("ALTER TABLE t ALTER COLUMN fare SET NOT NULL")
        with pytest.raises(CheckFailed, match="fare_not_null"):
            run("INSERT INTO t VALUES (3, NULL)")
        run("ALTER TABLE t ALTER COLUMN fare DROP NOT NULL")
        run("ALTER TABLE t DROP CONSTRAINT IF EXISTS other")
        with pytest.raises(InvalidOption, match="no check 'other'"):
            run("ALTER TABLE t DROP CONSTRAINT other")
        run("ALTER TABLE t DROP CONSTRAINT POSITIVE")
        run("INSERT INTO t VALUES (3, -1), (4, NULL)")
        assert table.count() == 3
        for wrong in ("ADD CONSTRAINT x", "ADD CONSTRAINT x CHECK", "ADD CONSTRAINT x CHECK ()", "DROP CONSTRAINT"):
            with pytest.raises(InvalidOption):
                run(f"ALTER TABLE t {wrong}")
    finally:
        lakebed.drop(table.uri)
