"""Statements about indexes, services and history: the parts of their texts, and what they do to a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption, LakebedError
from support.statements import parts

GOLDEN = {
    "CREATE INDEX record_index ON t (id)": (
        "CreateIndex",
        {"table": "t", "name": "record_index", "kind": "record_index", "columns": ["id"]},
    ),
    "CREATE INDEX IF NOT EXISTS `by city` ON TABLE t (city)": (
        "CreateIndex",
        {"table": "t", "name": "by city", "kind": "secondary_index", "columns": ["city"], "if_not_exists": True},
    ),
    "create index i on t using bloom_filters(a.b) options (expr='lower', 'fpp' = 0.1)": (
        "CreateIndex",
        {
            "table": "t",
            "name": "i",
            "kind": "bloom_filters",
            "columns": ["a.b"],
            "options": {"expr": "lower", "fpp": "0.1"},
        },
    ),
    "CREATE INDEX column_stats ON t": ("CreateIndex", {"table": "t", "name": "column_stats", "kind": "column_stats"}),
    "DROP INDEX IF EXISTS i ON t": ("DropIndex", {"table": "t", "name": "i", "if_exists": True}),
    "SHOW INDEXES FROM t": ("ShowIndexes", {"table": "t"}),
    "show indexes in table t": ("ShowIndexes", {"table": "t"}),
    "SHOW PARTITIONS t PARTITION (city = 'a, b')": ("ShowPartitions", {"table": "t", "values": {"city": "a, b"}}),
    "DESC HISTORY t LIMIT 5": ("DescribeHistory", {"table": "t", "limit": 5}),
    "DESCRIBE HISTORY lakebed.`/lake/x`": ("DescribeHistory", {"table": "/lake/x"}),
    "OPTIMIZE t WHERE day > 'ZORDER BY (x' AND (a = 1) ZORDER BY (a, `b c`)": (
        "Optimize",
        {
            "table": "t",
            "condition": "day > 'ZORDER BY (x' AND (a = 1)",
            "columns": ["a", "b c"],
            "layout": "zorder",
        },
    ),
    "OPTIMIZE t ORDER BY a, b": ("Optimize", {"table": "t", "columns": ["a", "b"]}),
    "VACUUM t RETAIN 7 DAYS DRY RUN": (
        "Vacuum",
        {
            "table": "t",
            "options": {"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS", "hoodie.clean.hours.retained": 168},
            "dry_run": True,
        },
    ),
    "VACUUM t": ("Vacuum", {"table": "t"}),
    "RESTORE TABLE t TO TIMESTAMP AS OF '2026-11-21 10:00:00'": (
        "Restore",
        {"table": "t", "to": "2026-11-21 10:00:00", "is_time": True},
    ),
    "RESTORE t TO VERSION AS OF 20261121100000000": ("Restore", {"table": "t", "to": "20261121100000000"}),
}


@pytest.mark.parametrize("text", GOLDEN)
def test_a_statement_about_a_table_is_taken_apart(text: str) -> None:
    assert parts(text) == GOLDEN[text]


def filled(name: str) -> Iterator[lakebed.Table]:
    uri = f"memory://statement-services/{name}"
    t = lakebed.create(uri, {"id": [1], "city": ["x"], "n": [1]}, key="id", partition_by="city", index="record")
    t.upsert({"id": [1, 2, 3], "city": ["oslo", "rome", "rome"], "n": [1, 2, 3]})
    yield t
    lakebed.drop(uri)


def rows(text: str, t: lakebed.Table) -> list[dict[str, Any]]:
    return lakebed.sql(text, {"t": t}).to_pylist()  # type: ignore[union-attr]


def names(t: lakebed.Table) -> list[str]:
    return [index.name for index in t.indexes.list()]


def test_indexes_are_created_listed_and_dropped(t: lakebed.Table) -> None:
    tables = {"t": t}
    lakebed.sql("CREATE INDEX by_n ON t (n)", tables)
    lakebed.sql("CREATE INDEX IF NOT EXISTS by_n ON t (n)", tables)
    lakebed.sql("CREATE INDEX lower_city ON t USING column_stats (city) OPTIONS (expr = 'lower')", tables)
    assert {"secondary_index_by_n", "expr_index_lower_city"} <= set(names(t))
    assert [one["fields"] for one in rows("SHOW INDEXES FROM t", t) if one["index"] == "secondary_index_by_n"] == ["n"]
    with pytest.raises(InvalidOption, match="has the index secondary_index_by_n already"):
        lakebed.sql("CREATE INDEX by_n ON t (n)", tables)
    t.upsert({"id": [2], "city": ["rome"], "n": [20]})
    assert t.indexes.verify().ok
    lakebed.sql("DROP INDEX by_n ON t", tables)
    lakebed.sql("DROP INDEX lower_city ON TABLE t", tables)
    lakebed.sql("DROP INDEX IF EXISTS by_n ON t", tables)
    assert not any("by_n" in name or "lower_city" in name for name in names(t))
    with pytest.raises(InvalidOption, match="no index 'by_n'"):
        lakebed.sql("DROP INDEX by_n ON t", tables)
    lakebed.sql("DROP INDEX column_stats ON t", tables)
    lakebed.sql("CREATE INDEX column_stats ON t", tables)
    assert "column_stats" in names(t)


def test_a_record_index_is_an_index_of_the_key() -> None:
    t = lakebed.create("memory://statement-services/keys", {"id": [1], "n": [1]}, key="id", index="simple")
    t.upsert({"id": [1], "n": [1]})
    with pytest.raises(InvalidOption, match="a record index on n, which is not the record key"):
        lakebed.sql("CREATE INDEX record_index ON t (n)", {"t": t})
    lakebed.sql("CREATE INDEX record_index ON t (ID)", {"t": t})
    assert "record_index" in names(t)
    lakebed.drop(t.uri)


def test_partitions_and_history_are_rows(t: lakebed.Table) -> None:
    assert rows("SHOW PARTITIONS t", t) == [{"partition": "oslo"}, {"partition": "rome"}]
    assert rows("SHOW PARTITIONS t PARTITION (city = 'rome')", t) == [{"partition": "rome"}]
    t.delete([1])
    history = rows("DESCRIBE HISTORY t", t)
    assert [(one["operation"], one["inserted"], one["deleted"]) for one in history] == [
        ("delete", 0, 1),
        ("upsert", 3, 0),
    ]
    assert rows("DESC HISTORY t LIMIT 1", t) == history[:1]
    history_table = lakebed.sql("DESCRIBE history", {"history": t}).to_pylist()  # type: ignore[union-attr]
    assert [one["column_name"] for one in history_table] == ["id", "city", "n"]


def test_files_are_clustered_and_cleaned(t: lakebed.Table) -> None:
    t.bulk_insert({"id": [4, 5], "city": ["rome", "oslo"], "n": [0, 0]})
    done: Any = lakebed.sql("OPTIMIZE t WHERE city = 'rome' ZORDER BY (n, id)", {"t": t})
    assert len(done.runs) == 1
    assert sorted(f.partition for f in t.files) == ["oslo", "oslo", "rome"]
    none: Any = lakebed.sql("OPTIMIZE t WHERE city = 'bern'", {"t": t})
    assert str(none) == "nothing to cluster: no partition path fulfils city = 'bern'"
    assert sorted(f.partition for f in t.files) == ["oslo", "oslo", "rome"]
    with pytest.raises(InvalidOption, match="is not over partition columns"):
        lakebed.sql("OPTIMIZE t WHERE city = 'rome' AND n > 1", {"t": t})
    planned: Any = lakebed.sql("VACUUM t RETAIN 1 VERSIONS DRY RUN", {"t": t})
    assert planned.plan is not None
    assert planned.runs == ()
    cleaned: Any = lakebed.sql("VACUUM t RETAIN 1 VERSIONS", {"t": t})
    assert cleaned.files >= 1
    assert t.count() == 5


def test_a_table_is_restored_to_an_instant_and_to_a_time(t: lakebed.Table) -> None:
    first, second = t.timeline.last, t.delete([1])
    third = t.delete([2])
    assert first is not None
    with pytest.raises(InvalidOption, match="no commit up to '20200101'"):
        lakebed.sql("RESTORE TABLE t TO TIMESTAMP AS OF '20200101'", {"t": t})
    assert rows(f"SELECT id FROM t VERSION AS OF '{second.instant}' ORDER BY id", t) == [{"id": 2}, {"id": 3}]
    middle = str(int(third.instant) - 1)
    done: Any = lakebed.sql(f"RESTORE TABLE t TO TIMESTAMP AS OF '{middle}'", {"t": t})
    assert (done.to, t.count()) == (second.instant, 2)
    lakebed.sql("RESTORE TABLE t TO VERSION AS OF :to", {"t": t}, {"to": first.time})
    assert t.count() == 3


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("CREATE INDEX i ON nope (n)", "'nope', which is no table of lakebed"),
        ("CREATE INDEX i ON t USING lucene (n)", "no index of kind 'lucene'"),
        ("CREATE INDEX i ON t (n, city)", "on several columns \\(n, city\\)"),
        ("CREATE INDEX i ON t (n", "a closing parenthesis is missing"),
        ("CREATE INDEX i ON t (lower(n))", "the name of a column is missing"),
        ("CREATE INDEX i ON t (n) OPTIONS (expr='lower')", "has a function"),
        ("CREATE INDEX i t (n)", "ON is missing in the CREATE near 't \\(n\\)'"),
        ("CREATE INDEX i ON t", "'i' is no column|column"),
        ("DROP INDEX i", "ON is missing in the DROP near the end"),
        ("DROP INDEX i ON t; DROP TABLE t", "more than one statement"),
        ("SHOW INDEXES t", "IN is missing"),
        ("SHOW PARTITIONS t PARTITION (n = 1)", "no partition column 'n'"),
        ("DESCRIBE HISTORY t LIMIT many", "is no constant"),
        ("DESCRIBE HISTORY t LIMIT -1", "takes a whole number"),
        ("OPTIMIZE t WHERE ZORDER BY (n)", "the condition is missing"),
        ("OPTIMIZE t ZORDER (n)", "BY is missing"),
        ("OPTIMIZE t FULL", "goes on where it should end in the OPTIMIZE near 'FULL'"),
        ("OPTIMIZE t ORDER BY (nn)", "nn"),
        ("VACUUM t RETAIN 3", "HOURS, DAYS, COMMITS or VERSIONS is missing in the VACUUM near the end"),
        ("VACUUM t RETAIN 0.5 HOURS", "takes a whole number"),
        ("VACUUM t DRY", "goes on where it should end"),
        ("RESTORE TABLE t VERSION AS OF '1'", "no AS OF|TO is missing"),
        ("RESTORE TABLE t TO VERSION AS OF '99'", "has no version 99"),
        ("RESTORE TABLE t TO '1'", "VERSION is missing"),
        ("DROP INDEX i ON `memory://statement-services/x'; DROP TABLE t", "cannot be read"),
    ],
)
def test_a_wrong_statement_is_refused_with_its_place(unchanged: lakebed.Table, text: str, match: str) -> None:
    before = unchanged.timeline.to_arrow(), names(unchanged)
    with pytest.raises(LakebedError, match=match):
        lakebed.sql(text, {"t": unchanged})
    assert (unchanged.timeline.to_arrow(), names(unchanged)) == before
