"""Slices with log files on Spark: its own reader gives the rows that no log record touches, and these alone do not come
through Python. `tests/unit/read/test_untouched_slices.py` has which slices are read so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.handles import file_writer
from lakebed.metadata.lookups import open_snapshot
from lakebed.read import spark_untouched
from lakebed.read.scan import Scan
from lakebed.read.spark_untouched import divided
from lakebed.storage import open_storage
from lakebed.table import Table
from support.golden_tables import golden
from support.same_rows import assert_same_rows
from support.spark_plans import rows_from_python

COUNT = 600
UPDATED = (*range(10), 350, 550)


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_untouched, "_MIN_BYTES", 0)
    monkeypatch.setattr(spark_untouched, "_LOGS_OF_BASE", 1e9)


def rows_of(ids: Sequence[int], value: str, ordering: Sequence[int]) -> pa.Table:
    # in partitions of 300, 200 and 100 rows, whose base files have different sizes
    places = ["a" if n < 300 else "b" if n < 500 else "c" for n in ids]
    return pa.table({"id": ids, "p": places, "v": [value] * len(ids), "n": ids, "o": ordering})


def table_of(folder: Path, spark: Any) -> Table:
    """Three base files of one bucket each; of the rows logs update 0 to 9, 350 and 550 and insert 700, delete 20 to 24,
    and have one that is too late."""
    rows = rows_of(range(COUNT), "old", [5] * COUNT)
    table = lakebed.create(
        str(folder / "t"), rows, key="id", ordering="o", partition_by="p", type="mor", index="bucket", buckets=1,
        properties={"hoodie.compact.inline": False},
    )  # fmt: skip
    table.bulk_insert(rows)
    table.upsert(rows_of([*UPDATED, 700, 30], "new", [*[9] * (len(UPDATED) + 1), 1]))
    table.delete(list(range(20, 25)))
    return lakebed.open(table.uri, spark=spark)


def expected_rows() -> dict[int, str]:
    return {n: "new" if n in UPDATED else "old" for n in range(COUNT) if not 20 <= n < 25} | {700: "new"}


def as_dict(rows: pa.Table) -> dict[int, str]:
    assert rows.num_rows == len(set(rows["id"].to_pylist()))
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


def test_only_rows_that_logs_touch_come_through_python(tmp_path: Path, spark: Any, any_size: None) -> None:
    frame = table_of(tmp_path, spark).scan().to_spark()
    assert {row.id: row.v for row in frame.collect()} == expected_rows()
    # the updated rows and an inserted one
    assert rows_from_python(frame) == [len(UPDATED) + 1]


def test_conditions_and_columns_of_a_frame_reach_the_parquet_reader(
    tmp_path: Path, spark: Any, any_size: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "ROW_GROUP_ROWS", 50)
    frame = table_of(tmp_path, spark).scan().to_spark()
    some: Any = frame.where("n >= 8 and n < 28").select("v")
    rows = some.groupBy("v").count().collect()
    assert {row.v: row["count"] for row in rows} == {"new": 2, "old": 13}
    plan = some._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThanOrEqual(n,8)" in plan
    assert "ReadSchema: struct<v:string,n:bigint" in plan
    asked = table_of(tmp_path / "asked", spark).scan(["v"], where="n >= 8 and n < 28").to_spark()
    assert sorted(row.v for row in asked.collect()) == ["new"] * 2 + ["old"] * 13


def test_rows_are_counted_without_columns(tmp_path: Path, spark: Any, any_size: None) -> None:
    table = table_of(tmp_path, spark)
    assert table.scan([]).to_spark().count() == table.scan().to_spark().count() == len(expected_rows())


def test_a_frame_may_meet_itself_and_be_written(tmp_path: Path, spark: Any, any_size: None) -> None:
    table = table_of(tmp_path, spark)
    frame = table.scan().to_spark()
    both = frame.alias("a").join(frame.alias("b"), "id").select("id", "a.v")
    assert {row.id: row.v for row in both.collect()} == expected_rows()
    table.upsert(frame.where("id < 30").selectExpr("id", "p", "'third' AS v", "n", "o + 10 AS o"))
    expected = {n: "third" if n < 30 else v for n, v in expected_rows().items()}
    assert {row.id: row.v for row in table.scan().to_spark().collect()} == expected
    assert as_dict(table.scan().to_arrow()) == expected


@pytest.mark.parametrize(
    "name",
    [
        "v6_mor_delete_blocks",
        "v6_mor_rollback",
        "v8_mor_bucket_consistent",
        "v8_mor_partial_update_sql",
        "v9_mor_debezium_postgres",
        "v9_mor_event_time",
        "v9_mor_evolve_read",
        "v9_mor_evolve_write",
        "v9_mor_rich_types",
        "v9_mor_small_files",
    ],
)
def test_reads_what_hudi_wrote(name: str, tmp_path: Path, spark: Any, any_size: None) -> None:
    scan = Scan(open_snapshot(open_storage(str(golden(name).unpack(tmp_path)))), spark=spark, meta=True)
    assert_same_rows(scan.to_spark().toArrow(), golden(name).expected)


def test_a_base_file_that_is_not_the_listed_one_is_an_error(tmp_path: Path, spark: Any, any_size: None) -> None:
    scan = table_of(tmp_path, spark).scan()
    (part,), _ = divided(scan.plan, scan.plan.sets, scan.reader.config)
    touched = part.touched(scan.plan, spark, scan.reader, tuning=True)
    files = spark.read.parquet(*(scan.reader.storage.url(file.path) for file in part.base_files.files))
    # five rows were deleted
    assert touched.dropped_from(files).count() == COUNT - len(UPDATED) - 5
    with pytest.raises(Exception, match="a base file is not the one that the table has listed"):
        replace(touched, numbers=[-1] * touched.divisor).dropped_from(files).count()


def test_explain_says_how_slices_with_log_files_are_read(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = table_of(tmp_path, spark).scan()
    assert "its own Parquet reader, through Python where log files are merged" in scan.explain()
    monkeypatch.setattr(spark_untouched, "_MIN_BYTES", 0)
    monkeypatch.setattr(spark_untouched, "_LOGS_OF_BASE", 1e9)
    text = "its own Parquet reader, also for the rows of 3 file slices that no log record touches"
    assert text in table_of(tmp_path / "again", spark).scan().explain()
