"""Compaction on Spark: a task for each file slice, errors as they were, by itself after writes of DataFrames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.config.options import resolve_options
from lakebed.engine.spark import SparkEngine
from lakebed.errors import CorruptFile
from lakebed.format.file_names import parse_base_file
from lakebed.operations.context import WriteContext
from lakebed.services.compaction import Compaction
from lakebed.services.driver import run_service
from lakebed.services.log_compaction import LogCompaction
from lakebed.table import Table
from support.compaction_tables import bare, log_files, snapshot
from support.tables import context_of
from support.write_tables import SCHEMA, rows

CITIES = [f"c{n}" for n in range(6)]


def new_table(folder: Path, **properties: Any) -> Table:
    return lakebed.create(
        str(folder / "t"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        type="mor",
        index="bucket",
        buckets=1,
        properties=properties or {"hoodie.compact.inline": False, "hoodie.log.compaction.blocks.threshold": 2},
    )


def logged(table: Table, versions: int = 3) -> None:
    for at in range(versions):
        table.upsert(rows(*((n, CITIES[n % 6], f"v{at}", at) for n in range(at * 6, 60))))
    table.delete([0, 7])


def on_spark(table: Table, spark: Any) -> WriteContext:
    return replace(context_of(table), engine=SparkEngine(spark))


def test_every_file_slice_is_a_task(tmp_path: Path, spark: Any) -> None:
    table = new_table(tmp_path)
    logged(table)
    before = bare(table.scan(meta=True).to_arrow())
    (run,) = run_service(on_spark(table, spark), Compaction()).runs
    assert {s.partition for s in run.slices} == set(CITIES)
    files = [parse_base_file(s.partition, s.file.rpartition("/")[2], 0) for s in run.slices]
    assert len({file.write_token for file in files if file is not None}) == 6
    assert log_files(table) == 0
    fresh = lakebed.open(table.uri)
    assert bare(fresh.scan(meta=True).to_arrow()) == before
    assert fresh.indexes.verify().ok


def test_logs_are_merged_by_tasks_too(tmp_path: Path, spark: Any) -> None:
    table = new_table(tmp_path)
    logged(table)
    before = bare(table.scan(meta=True).to_arrow())
    (run,) = run_service(on_spark(table, spark), LogCompaction()).runs
    assert len(run.slices) > 1
    assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == before


def test_the_error_of_a_task_is_raised_and_the_plan_stays(tmp_path: Path, spark: Any) -> None:
    table = new_table(tmp_path)
    logged(table)
    planned = table.maintenance.compact(plan_only=True).planned
    log = next(log for s in snapshot(table).file_slices() for log in s.log_files)
    path = Path(table.uri, log.path)
    kept = path.read_bytes()
    path.unlink()
    with pytest.raises(CorruptFile, match=r"\.log\."):
        run_service(on_spark(table, spark), Compaction())
    path.write_bytes(kept)
    before = bare(lakebed.open(table.uri).scan(meta=True).to_arrow())
    assert run_service(on_spark(table, spark), Compaction()).instants[0] == planned
    assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == before


def test_writes_of_dataframes_compact_by_themselves(tmp_path: Path, spark: Any) -> None:
    table = new_table(tmp_path, **{"hoodie.compact.inline.max.delta.commits": 2})
    assert resolve_options({}).compaction.inline is None
    lines = 0
    for at in range(4):
        frame = spark.createDataFrame(
            [(n, CITIES[n % 6], f"v{at}", at) for n in range(30)], "id long, city string, v string, ts long"
        )
        lines += len(table.upsert(frame).services)
    assert lines >= 1
    assert table.count() == 30
    assert set(table.scan(["v"]).to_arrow().column("v").to_pylist()) == {"v3"}
    assert table.indexes.verify().ok
