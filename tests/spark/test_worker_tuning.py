"""The option `lakebed.spark.worker.tuning`: what it changes in Spark's Python workers, and that off changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.table import Table

pytestmark = pytest.mark.rest

OPTION = "lakebed.spark.worker.tuning"
TASKS = 8
_numbers = count()


@pytest.fixture
def fresh_workers(spark: Any) -> Iterator[Any]:
    """A session whose workers no other test has used: each environment has workers of its own."""
    environment = spark.sparkContext.environment
    environment["LAKEBED_TEST_WORKERS"] = str(next(_numbers))
    yield spark
    del environment["LAKEBED_TEST_WORKERS"]


def changed_workers(spark: Any) -> tuple[int, int]:
    """In how many tasks the worker had a changed finder of a zip file, and in how many frozen objects."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import sys
        import zipimport

        for _ in batches:
            finders = [f for f in sys.path_importer_cache.values() if isinstance(f, zipimport.zipimporter)]
            assert finders
            patched = any("invalidate_caches" in vars(finder) for finder in finders)
            yield pa.RecordBatch.from_pydict({"patched": [int(patched)], "frozen": [int(gc.get_freeze_count() > 0)]})

    found = spark.range(0, TASKS, 1, TASKS).mapInArrow(look, "patched long, frozen long").toArrow()
    return sum(found["patched"].to_pylist()), sum(found["frozen"].to_pylist())


def test_workers_are_tuned_unless_the_option_is_off(fresh_workers: Any, tmp_path: Path) -> None:
    spark, uri = fresh_workers, str(tmp_path / "t")
    rows = spark.range(0, 100, 1, TASKS).selectExpr("id", "id AS ts")
    lakebed.create(uri, rows, key="id", ordering="ts", index="bucket", buckets=4, spark=spark)
    assert changed_workers(spark) == (0, 0)

    lakebed.open(uri, spark=spark).upsert(rows, options={OPTION: False})
    lakebed.open(uri, spark=spark, options={OPTION: "false"}).upsert(rows)
    lakebed.write(rows, uri, {OPTION: False, "hoodie.datasource.write.operation": "upsert"})
    assert changed_workers(spark) == (0, 0)

    lakebed.open(uri, spark=spark).upsert(rows)
    patched, frozen = changed_workers(spark)
    assert patched > 0
    assert frozen > 0
    assert lakebed.open(uri).count() == 100


# Reads whose rows Python makes in Spark's workers.
READS: dict[str, Callable[[Table], Any]] = {
    "scan": lambda t: t.scan().to_spark(),
    "changes": lambda t: t.changes("000").to_spark(),
    "cdc": lambda t: t.cdc("000").to_spark(),
    "bucketed": lambda t: t.scan().to_spark(bucketed=True),
    "join": lambda t: t.join(t, suffix="_too").to_spark(),
}


@pytest.mark.parametrize("read", READS)
def test_reads_tune_their_workers_unless_the_option_is_off(read: str, fresh_workers: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    properties = {"hoodie.table.cdc.enabled": True}
    rows = {"id": [1, 2], "ts": [1, 1]}
    table = lakebed.create(uri, rows, key="id", type="mor", index="bucket", buckets=2, properties=properties)
    table.upsert(rows)
    table.upsert({"id": [1], "ts": [2]})

    for options, tuned in (({OPTION: False}, False), (None, True)):
        opened = lakebed.open(uri, spark=fresh_workers, options=options)
        assert READS[read](opened).count() == (3 if read == "cdc" else 2)
        assert all(found > 0 for found in changed_workers(fresh_workers)) is tuned


# Writes that read stored rows in Spark's workers before they change some.
CHANGES: dict[str, Callable[[Table, Any], Any]] = {
    "delete": lambda t, spark: t.delete(where="ts = 2"),
    "merge": lambda t, spark: (
        t.merge(spark.range(1, 9, 1, TASKS).selectExpr("id", "id AS ts"))
        .when_not_matched_by_source_delete()
        .when_matched_update({"ts": "s.ts + 5"})
        .execute()
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_by_stored_rows_tune_no_worker_where_the_option_is_off(
    change: str, fresh_workers: Any, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    rows = {"id": [1, 2], "ts": [1, 1]}
    lakebed.create(uri, rows, key="id", ordering="ts", type="mor", index="bucket", buckets=2).upsert(rows)
    table = lakebed.open(uri, spark=fresh_workers, options={OPTION: False})
    table.upsert({"id": [1], "ts": [2]})

    CHANGES[change](table, fresh_workers)
    assert changed_workers(fresh_workers) == (0, 0)
    expected = {"delete": [(2, 1)], "merge": [(1, 6), (2, 7)]}
    stored = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["ts"]) for row in stored] == expected[change]
