"""What goes by the session: its zone, all of its SQL, scans that ask for no column."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import time_machine
from pyspark.sql import SparkSession

import lakebed
from lakebed.engine.spark_python import use_this_python
from lakebed.errors import InvalidOption
from lakebed.table import Table

ROWS = pa.table({"id": list(range(20)), "city": ["oslo", "rome"] * 10, "v": [n * 2 for n in range(20)]})
ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    made = lakebed.create(
        str(tmp_path / "t"), ROWS, key="id", partition_by="city", index="bucket", buckets=2, type="mor", spark=spark
    )
    made.upsert(ROWS)
    return made


@pytest.fixture
def tokyo(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(ZONE, "Asia/Tokyo")
    yield spark
    spark.conf.set(ZONE, "UTC")


def ids(table: Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


@pytest.mark.parametrize("logs", [False, True], ids=["base files", "log files"])
def test_a_scan_of_no_columns_counts_right(table: Table, logs: bool) -> None:
    if logs:
        table.upsert(ROWS.slice(0, 4))
    assert table.scan(columns=[]).to_spark().count() == 20
    assert table.scan(columns=[], where="v >= 20").to_spark().count() == 10
    assert table.scan(columns=[]).limit(7).to_spark().count() == 7
    assert table.scan(columns=[]).to_spark().columns == []
    assert table.scan(columns=["id"]).limit(3).to_spark().toArrow().num_rows == 3
    assert table.scan(columns=["id"]).head(3).num_rows == 3


def test_naive_datetimes_are_in_the_sessions_zone(spark: SparkSession, tmp_path: Path, tokyo: SparkSession) -> None:
    uri = str(tmp_path / "t")
    table = lakebed.create(uri, ROWS, key="id", index="bucket", buckets=1, spark=tokyo)
    for day, part in ((1, ROWS.slice(0, 5)), (2, ROWS.slice(5, 5))):
        with time_machine.travel(datetime(2026, 3, day, 12, tzinfo=UTC), tick=True):
            table.upsert(part)
    before = datetime(2026, 3, 2, 20, 59)  # 11:59 in UTC
    for frame in (table.scan(as_of=before).to_spark(), table.changes(before).to_spark()):
        assert frame.count() == 5
    spark.conf.set(ZONE, "UTC")
    assert table.scan(as_of=before).to_spark().count() == 10
    assert table.changes(before).to_spark().count() == 0


@pytest.mark.rest
def test_the_option_filter_uses_the_zone_of_the_session_as_where_does(tokyo: SparkSession, tmp_path: Path) -> None:
    at = [datetime(2026, 3, 1, hour, tzinfo=UTC) for hour in (14, 15, 16)]
    rows = pa.table({"id": [1, 2, 3], "at": pa.array(at, pa.timestamp("us", "UTC"))})
    table = lakebed.create(str(tmp_path / "t"), rows, key="id", index="bucket", buckets=1, spark=tokyo)
    table.upsert(rows)
    condition = "at >= '2026-03-02 00:00:00'"  # 15:00 in UTC
    read = tokyo.read.format("lakebed")
    assert sorted(r.id for r in read.option("where", condition).load(table.uri).collect()) == [2, 3]
    assert sorted(r.id for r in read.load(table.uri).where(condition).collect()) == [2, 3]
    assert sorted(table.scan(where=condition).to_arrow()["id"].to_pylist()) == [2, 3]
    assert table.delete(where=condition).deleted == 2


def test_a_delete_takes_all_of_sparks_sql(table: Table) -> None:
    assert table.delete(where="levenshtein(city, 'rom') = 1 AND v < 10").deleted == 2
    assert table.delete(where="regexp_extract(city, '^(o.)', 1) = 'os' and id % 4 = 0").deleted == 5
    gone = {1, 3, 0, 4, 8, 12, 16}
    assert ids(table) == sorted(set(range(20)) - gone)
    alone = lakebed.open(table.uri)
    with pytest.raises(InvalidOption, match="on Spark only: LEVENSHTEIN"):
        alone.delete(where="levenshtein(city, 'rom') = 1")
    assert len(ids(table)) == 13


def test_a_condition_that_spark_does_not_know_is_refused_before_the_write(table: Table, spark: Any) -> None:
    before = len(table.timeline)
    with pytest.raises(Exception, match="no_such_function"):
        table.delete(where="no_such_function(city) = 1")
    assert len(lakebed.open(table.uri).timeline) == before


def test_reads_of_a_table_of_a_session_take_all_of_sparks_sql(table: Table) -> None:
    condition = "levenshtein(city, 'rom') = 1 AND v < 10"
    table.upsert(table.scan(where="id < 3").to_arrow())
    read = table.scan(where=condition)
    expected = sorted(row["id"] for row in read.to_spark().select("id").toArrow().to_pylist())
    assert expected
    assert read.count() == len(expected)
    assert read.to_arrow().schema == table.scan().to_arrow().schema
    assert sorted(read.to_arrow()["id"].to_pylist()) == expected
    assert sorted(read.to_pandas()["id"]) == expected
    assert sorted(row for batch in read.to_batches() for row in batch["id"].to_pylist()) == expected
    assert read.head(1).num_rows == 1
    assert read.limit(1).count() == 1
    assert set(read.head(1)["id"].to_pylist()) <= set(expected)
    changes = table.changes("000", where=condition)
    assert sorted(changes.to_arrow()["id"].to_pylist()) == expected
    assert changes.count() == len(expected)
    assert table.scan(columns=["v"], where=condition).to_arrow().column_names == ["v"]
    with pytest.raises(InvalidOption, match="on Spark only: LEVENSHTEIN"):
        lakebed.open(table.uri).scan(where=condition).count()


def test_another_object_for_a_session_costs_no_call_to_the_jvm(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams have one for each batch."""
    monkeypatch.delenv("PYSPARK_PYTHON")
    use_this_python(spark)
    session: Any = spark
    another = type(spark)(session.sparkContext, session._jsparkSession)
    client = session.sparkContext._gateway._gateway_client
    calls: list[str] = []
    send = client.send_command

    def count(command: str, *more: Any, **words: Any) -> Any:
        calls.append(command)
        return send(command, *more, **words)

    monkeypatch.setattr(client, "send_command", count)
    use_this_python(another)
    assert calls == []
