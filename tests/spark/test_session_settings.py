"""Settings of a session that change how Spark reads Parquet or SQL change nothing that lakebed answers."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.engine.spark import read_parquet, shifts_times, with_row_numbers
from lakebed.schema.spark import arrow_to_spark_ddl
from lakebed.table import Table
from support.same_rows import assert_same_rows
from support.sampling import HISTORIES, todays

pytestmark = pytest.mark.rest

SETTINGS = [
    ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
    ("spark.sql.caseSensitive", "true"),
    ("spark.sql.parquet.int96TimestampConversion", "true"),
    ("spark.sql.parquet.int96AsTimestamp", "false"),
    ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
    ("spark.sql.parquet.datetimeRebaseModeInRead", "EXCEPTION"),
    ("spark.sql.parquet.int96RebaseModeInRead", "LEGACY"),
    ("spark.sql.parquet.int96RebaseModeInRead", "EXCEPTION"),
    ("spark.sql.parquet.binaryAsString", "true"),
    ("spark.sql.parquet.inferTimestampNTZ.enabled", "false"),
    ("spark.sql.files.ignoreCorruptFiles", "true"),
    ("spark.sql.files.ignoreMissingFiles", "true"),
    ("spark.sql.optimizer.nestedPredicatePushdown.supportedFileSources", ""),
    ("spark.sql.optimizer.nestedSchemaPruning.enabled", "false"),
    ("spark.sql.parquet.enableVectorizedReader", "false"),
    ("spark.sql.parquet.enableNestedColumnVectorizedReader", "false"),
    ("spark.sql.parquet.filterPushdown", "false"),
    ("spark.sql.parquet.mergeSchema", "true"),
    ("spark.sql.parquet.fieldId.read.enabled", "true"),
    ("spark.sql.sources.useV1SourceList", ""),
    ("spark.sql.legacy.parquet.nanosAsLong", "true"),
    ("spark.sql.parser.escapedStringLiterals", "true"),
    ("spark.sql.ansi.enabled", "false"),
]
# These have a way of lakebed's own through them; of the others some are tried each day.
ALWAYS, SOME = SETTINGS[:3], SETTINGS[3:]
ZONE = "spark.sql.session.timeZone"
COUNT = 8
TIMES = [datetime(1500 if n < 2 else 2026, 3, 1, n, tzinfo=UTC) for n in range(COUNT)]
ROWS = pa.table(
    {
        "id": pa.array(range(COUNT), pa.int64()),
        "at": pa.array(TIMES, pa.timestamp("us", "UTC")),
        "local": pa.array([t.replace(tzinfo=None) for t in TIMES], pa.timestamp("us")),
        "day": pa.array([date(1500, 1, 1 + n) for n in range(COUNT)]),
        "bytes": pa.array([b"\xff%d" % n for n in range(COUNT)], pa.binary()),
        "Name": [f"n{n}" for n in range(COUNT)],
        "deep": pa.array(
            [{"X": n, "at": t} for n, t in enumerate(TIMES)],
            pa.struct([("X", pa.int32()), ("at", pa.timestamp("us", "UTC"))]),
        ),
        "times": pa.array([[t] for t in TIMES], pa.list_(pa.timestamp("us", "UTC"))),
    }
)
# The session is in Tokyo, nine hours before UTC.
CONDITIONS = {
    "at >= '2026-03-01 14:00:00'": [5, 6, 7],
    "at >= TIMESTAMP '2026-03-01 14:00:00'": [5, 6, 7],
    "at > CAST('2026-03-01T04:00:00Z' AS TIMESTAMP)": [5, 6, 7],
    "local >= '2026-03-01 05:00:00'": [5, 6, 7],
    "deep.AT >= '2026-03-01 05:00:00Z' AND DEEP.x < 7": [5, 6],
    "NAME = 'n3' OR levenshtein(name, 'n4') = 0": [3, 4],
    "at < '1600-01-01' AND day >= DATE '1500-01-02' AND bytes = X'FF31'": [1],
}


@contextmanager
def set_to(spark: SparkSession, key: str, value: str) -> Generator[None]:
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with set_to(spark, ZONE, "Asia/Tokyo"):
        yield spark


@pytest.fixture(scope="module")
def tables(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Table]:
    folder = tmp_path_factory.mktemp("settings")
    files = lakebed.create(str(folder / "files"), ROWS, key="id", ordering="at", index="simple", spark=session)
    files.upsert(ROWS)
    logs = lakebed.create(
        str(folder / "logs"), ROWS, key="id", ordering="at", index="bucket", buckets=2, type="mor", spark=session
    )
    logs.upsert(ROWS)
    logs.upsert(ROWS.slice(0, 3))
    return [files, logs]


def ids(rows: Any) -> list[int]:
    return sorted(rows.toArrow().column("id").to_pylist())


@pytest.mark.filterwarnings("ignore:lakebed scans through Python")
@pytest.mark.parametrize(("key", "value"), [*ALWAYS, *todays(SOME, 5, HISTORIES)])
def test_a_setting_changes_no_answer(key: str, value: str, tables: list[Table], session: SparkSession) -> None:
    with set_to(session, key, value):
        for table in tables:
            frame = table.scan().to_spark()
            assert_same_rows(frame.toArrow(), ROWS)
            assert_same_rows(session.read.format("lakebed").load(table.uri).toArrow(), ROWS)
            for condition, expected in CONDITIONS.items():
                assert ids(table.scan(where=condition).to_spark()) == expected, condition
            # what was read is written back, keys are found, and the table is as before
            assert table.upsert(frame.where("id < 4")).rows == 4
            assert table.delete(where="NAME = 'n7' AND at = TIMESTAMP '2026-03-01 16:00:00'").deleted == 1
            again = table.upsert(ROWS.slice(7))
            # no key is looked for where rows go to the log files of their buckets
            is_looked_for = table.properties["hoodie.table.type"] == "COPY_ON_WRITE"
            assert (again.inserted, again.updated) == ((1, 0) if is_looked_for else (None, None))
            assert_same_rows(table.scan().to_arrow(), ROWS)


@pytest.mark.parametrize("int96", [False, True], ids=["micros", "INT96"])
def test_a_file_that_names_no_writer_is_read_the_same_way(int96: bool, tmp_path: Path, session: SparkSession) -> None:
    """Files of other writers lack the footer key by which Spark knows their calendar."""
    path = str(tmp_path / "f.parquet")
    rows = ROWS.select(["id", "at", "bytes"] if int96 else ["id", "at", "day", "local", "bytes"])
    pq.write_table(rows, path, use_deprecated_int96_timestamps=int96)
    for key, value in SETTINGS:
        with set_to(session, key, value):
            if shifts_times(session, rows.schema):
                continue
            frame = read_parquet(session, [path], arrow_to_spark_ddl(rows.schema), numbered=True)
            frame = with_row_numbers(frame, "number")
            found = frame.toArrow()
            expected = rows.append_column("number", pa.array(range(COUNT), pa.int64()))
            assert_same_rows(found, expected)


@pytest.mark.filterwarnings("ignore:lakebed scans through Python")
def test_a_session_that_shifts_times_reads_them_through_python(tables: list[Table], session: SparkSession) -> None:
    names = ROWS.select(["id", "Name"]).schema
    assert not shifts_times(session, ROWS.schema)
    with set_to(session, "spark.sql.parquet.int96TimestampConversion", "true"):
        assert shifts_times(session, ROWS.schema)
        assert not shifts_times(session, names)
        scan = tables[0].scan(["id", "deep"])
        assert not scan.to_spark().inputFiles()
        assert tables[0].scan(["id", "Name"]).to_spark().inputFiles()
        assert_same_rows(scan.to_spark().toArrow(), ROWS.select(["id", "deep"]))
