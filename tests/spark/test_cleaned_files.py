"""Files that are cleaned between the plan of a Spark job and its run: a read says what to do, a write runs again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakebed
from lakebed.engine.spark import SparkEngine
from lakebed.errors import CommitConflict
from lakebed.read.scan import Scan
from lakebed.table import Table
from support.changing_tables import delete_old_slices
from support.sampling import CRASH, todays
from support.write_tables import SCHEMA, content, rows

GIVEN = [(n, "oslo", f"v{n}", n) for n in range(40)]
THEIRS = [(n, "oslo", "theirs", 100) for n in range(20)]
OURS = [(n, "oslo", "ours", 200) for n in (1, 2, 30, 50)]
QUIET = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.compact.inline": False}
CLEAN = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}


def new_table(uri: str, index: str, spark: SparkSession) -> Table:
    """A table of two commits; the second one is in log files where it is a merge-on-read one."""
    name = index.removeprefix("mor-")
    lakebed.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        type="mor" if index.startswith("mor-") else "cow",
        index=name,
        buckets=2 if name == "bucket" else None,
        properties={"hoodie.table.cdc.enabled": True, **QUIET},
    )
    table = lakebed.open(uri)
    table.upsert(rows(*GIVEN))
    table.upsert(rows(*GIVEN[:4]))
    return lakebed.open(uri, spark=spark)


def write_and_clean(uri: str) -> None:
    """What another process does: it writes to all files of the table, and cleans what was there before."""
    other = lakebed.open(uri)
    other.upsert(rows(*THEIRS))
    if other.properties["hoodie.table.type"] == "MERGE_ON_READ":
        other.maintenance.compact()
    assert other.maintenance.clean(options=CLEAN).runs


def write_and_clean_all(uri: str) -> None:
    """The same by a cleaner that does not wait for pending writes."""
    write_and_clean(uri)
    delete_old_slices(uri)


def after(*given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    model = {row[0]: row for row in GIVEN}
    return sorted((model | {row[0]: row for row in given}).values())


FRAMES: dict[str, Callable[[Table], DataFrame]] = {
    "scan": lambda t: t.scan().to_spark(),
    "changes": lambda t: t.changes("000").to_spark(),
    "cdc": lambda t: t.cdc("000").to_spark(),
    "bucketed": lambda t: t.scan().to_spark(bucketed=True),
    "join": lambda t: t.join(t, on="id", columns=["id", "v"]).to_spark(),
}


@pytest.mark.parametrize(
    ("read", "index"), [(read, kind) for read in FRAMES for kind in ("bucket", "mor-bucket")], ids=str
)
def test_a_frame_that_was_cleaned_says_to_read_again(
    spark: SparkSession, tmp_path: Path, read: str, index: str
) -> None:
    uri = str(tmp_path / "t")
    table = new_table(uri, index, spark)
    frame = FRAMES[read](table)
    write_and_clean(uri)
    with pytest.raises(Exception, match=r"parquet|log") as error:
        frame.toArrow()
    told = str(error.value)
    if index == "bucket" and read in ("scan", "changes", "bucketed"):  # Spark's own reader
        assert "FAILED_READ_FILE.FILE_NOT_EXIST" in told
        assert "recreating the Dataset/DataFrame" in told
    elif read == "cdc":
        assert "was deleted since this read was planned" in told or "it was cleaned" in told
    else:
        assert "StorageError" in told
        assert "was deleted since this read was planned" in told
        assert "Make the DataFrame again" in told
    assert "Restore it from a copy" not in told.rpartition("StorageError")[2]
    assert {row["id"] for row in table.scan().to_spark().select("id").collect()} == set(range(40))


@pytest.mark.parametrize("read", ["scan", "join"])
def test_a_file_that_the_table_names_is_damage(spark: SparkSession, tmp_path: Path, read: str) -> None:
    uri = str(tmp_path / "t")
    table = new_table(uri, "mor-bucket", spark)
    frame = FRAMES[read](table)
    (log, *_) = (path for path in (tmp_path / "t" / "oslo").iterdir() if ".log." in path.name)
    log.unlink()
    with pytest.raises(Exception, match="CorruptFile") as error:
        frame.toArrow()
    assert f"log file oslo/{log.name} is missing, and the table lists it" in str(error.value)
    assert "StorageError" not in str(error.value)


@pytest.mark.parametrize("index", ["bucket", "mor-bucket"])
def test_rows_of_a_state_that_was_cleaned_are_not_written(spark: SparkSession, tmp_path: Path, index: str) -> None:
    table, other = (new_table(str(tmp_path / name), index, spark) for name in ("t", "other"))
    frame = table.scan(columns=["id", "city", "v", "ts"]).to_spark()
    write_and_clean(table.uri)
    for target in (table, other):
        before = content(target)
        for local_rows in (0, 20_000):  # by a job, or collected
            with pytest.raises(lakebed.StorageError, match="was deleted since this read was planned") as error:
                target.upsert(frame, options={"lakebed.local.rows": local_rows})
            assert "Make the DataFrame again" in str(error.value), (target.uri, local_rows)
            assert "repair" not in str(error.value), (target.uri, local_rows)
        assert content(target) == before


def test_the_data_source_says_to_read_again(spark: SparkSession, tmp_path: Path) -> None:
    """It plans as a query runs, so the file goes between its plan and its tasks only; those are run here."""
    from lakebed.spark_source.source import LakebedSource

    uri = str(tmp_path / "t")
    new_table(uri, "mor-bucket", spark)
    frame = spark.read.format("lakebed").load(uri)
    source = LakebedSource({"path": uri})
    reader = source.reader(frame.schema)
    parts = reader.partitions()
    write_and_clean(uri)
    with pytest.raises(lakebed.StorageError, match="was deleted since this read was planned"):
        [batch for part in parts for batch in reader.read(part)]
    assert frame.count() == 40


def test_a_frame_is_made_of_the_table_as_it_is_then(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan has its plan, and the files are gone as its DataFrame is made."""
    uri = str(tmp_path / "t")
    scan = new_table(uri, "bucket", spark).scan()
    assert isinstance(scan, Scan)
    assert scan.plan.files
    write_and_clean(uri)
    found = scan.to_spark().toArrow()
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == after(*THEIRS)


class Between:
    """`do`, right before the Spark job of this number that the driver collects."""

    def __init__(self, at: int, do: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
        self.done = False
        jobs = 0
        real = SparkEngine._collected

        def collected(engine: SparkEngine, frame: DataFrame) -> Any:
            nonlocal jobs
            jobs += 1
            if jobs == at:
                self.done = True
                do()
            return real(engine, frame)

        # every job of the driver ends here
        patch.setattr(SparkEngine, "_collected", collected)


# How many jobs an upsert collects: the last one writes.
JOBS = {"simple": 4, "mor-simple": 5, "bloom": 5, "record": 3, "mor-record": 3, "bucket": 1, "mor-bucket": 1}
CASES = [(index, at, retries) for index, jobs in JOBS.items() for at in range(1, jobs + 1) for retries in (0, 2)]


@pytest.mark.parametrize(("index", "at", "retries"), todays(CASES, 11, CRASH))
def test_a_write_runs_again_or_has_a_conflict(
    spark: SparkSession, tmp_path: Path, index: str, at: int, retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "t")
    table = new_table(uri, index, spark)
    between = Between(at, lambda: write_and_clean_all(uri), monkeypatch)
    is_done = True
    try:
        table.upsert(spark.createDataFrame(rows(*OURS)), retries=retries)
    except CommitConflict:
        is_done = False
    assert between.done
    assert is_done or not retries
    assert content(lakebed.open(uri)) == after(*THEIRS, *(OURS if is_done else ()))
