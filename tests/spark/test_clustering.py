"""Clustering on Spark: a task for each group of file slices, errors as they were, the same rows as in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.engine.spark import SparkEngine
from lakebed.errors import CorruptFile
from lakebed.services.clustering import cluster
from lakebed.table import Table
from support.compaction_tables import bare, snapshot
from support.tables import context_of
from support.write_tables import SCHEMA, rows

SMALL = {"hoodie.parquet.small.file.limit": 0, "hoodie.compact.inline": False}


def new_table(folder: Path, name: str, **given: Any) -> Table:
    words: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "record", **given}
    table = lakebed.create(str(folder / name), SCHEMA, **words)
    for turn in range(3):
        table.upsert(rows(*((turn * 20 + n, f"c{n % 4}", f"v{n}", 20 - n) for n in range(20))), options=SMALL)
    table.upsert(rows((1, "c1", "newer", 50)), options=SMALL)
    return table


@pytest.mark.parametrize("sort", ["", "ts,v"], ids=["copied", "sorted"])
def test_both_engines_write_the_same_files(tmp_path: Path, spark: Any, sort: str) -> None:
    found: list[Any] = []
    for name in ("local", "spark"):
        table = new_table(tmp_path, name, type="mor")
        options = {"hoodie.clustering.plan.strategy.sort.columns": sort, "hoodie.layout.optimize.strategy": "HILBERT"}
        given = context_of(table, **options)
        given = replace(given, engine=SparkEngine(spark)) if name == "spark" else given
        before = bare(table.scan(meta=True).to_arrow())
        (run,) = cluster(given).runs
        assert (run.slices, len(run.files), run.rows) == (12, 4, 60)
        fresh = lakebed.open(table.uri)
        assert bare(fresh.scan(meta=True).to_arrow()) == before
        assert fresh.indexes.verify().ok
        # which of equal slices comes first is up to their random names
        rows_of = [fresh.scan(where=f"city = 'c{n}'").to_arrow() for n in range(4)]
        found.append([one.select(["ts", "v"]) if sort else one.sort_by("id") for one in rows_of])
    assert found[0] == found[1]


def test_the_error_of_a_task_reaches_the_caller_unchanged(tmp_path: Path, spark: Any) -> None:
    table = new_table(tmp_path, "broken")
    first = next(iter(snapshot(table).file_slices())).base_file
    assert first is not None
    (tmp_path / "broken" / first.path).write_bytes(b"PAR1 no more PAR1")
    with pytest.raises(CorruptFile, match=first.name):
        cluster(replace(context_of(table), engine=SparkEngine(spark)))
