"""The option `lakebed.spark.worker.tuning`: what it changes in Spark's Python workers, and that off changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed

OPTION = "lakebed.spark.worker.tuning"
# Part of what Spark's pool of workers goes by: with another value a session gets workers that no other test has used.
OTHER_WORKERS = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
TASKS = 8


@pytest.fixture
def fresh_workers(spark: Any) -> Iterator[Any]:
    before = spark.conf.get(OTHER_WORKERS)
    spark.conf.set(OTHER_WORKERS, "false" if before == "true" else "true")
    yield spark
    spark.conf.set(OTHER_WORKERS, before)


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
