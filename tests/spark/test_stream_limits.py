"""Limits of `readStream.format("lakebed")` under each trigger: which commits each micro-batch has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed import Table
from support.write_tables import SCHEMA, rows

from .test_stream_source import ADMITS

# Commits of so many new rows, one file each.
COMMITS = (1, 2, 3, 1, 2)
# Of each limit: the ids of a batch's commits. Ids of commit n are those from 10 n on.
LIMITS: dict[str, tuple[dict[str, int], list[list[int]]]] = {
    "none": ({}, [[0, 1, 2, 3, 4]]),
    "commits": ({"maxCommitsPerTrigger": 2}, [[0, 1], [2, 3], [4]]),
    "rows": ({"maxRowsPerTrigger": 4}, [[0, 1], [2, 3], [4]]),
    "rows of one commit": ({"maxRowsPerTrigger": 1}, [[0], [1], [2], [3], [4]]),
    "bytes": ({"maxBytesPerTrigger": 1}, [[0], [1], [2], [3], [4]]),
    "files": ({"maxFilesPerTrigger": 3}, [[0, 1, 2], [3, 4]]),
    "two": ({"maxFilesPerTrigger": 3, "maxRowsPerTrigger": 3}, [[0, 1], [2], [3, 4]]),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder = tmp_path_factory.mktemp("limits")
    properties = {
        "hoodie.table.cdc.enabled": True,
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.clean.automatic": False,
    }
    table = lakebed.create(str(folder / "t"), SCHEMA, key="id", ordering="ts", index="simple", properties=properties)
    for commit, count in enumerate(COMMITS):
        table.upsert(rows(*((10 * commit + n, "a", str(n), 0) for n in range(count))))
    table.maintenance.cluster()  # a commit of a service is in no batch and counts for no limit
    return table


@pytest.mark.rest
@pytest.mark.parametrize("query", ["incremental", "cdc"])
@pytest.mark.parametrize("trigger", ["availableNow", "processingTime", "once"])
@pytest.mark.parametrize("limit", LIMITS)
def test_each_batch_has_the_commits_that_its_limit_allows(
    limit: str, trigger: str, query: str, source: Table, tmp_path: Path, spark: Any
) -> None:
    options, expected = LIMITS[limit]
    batches: list[list[int]] = []

    def collect(frame: Any, number: int) -> None:
        ids = [row["id"] if query == "incremental" else row["after"]["id"] for row in frame.toArrow().to_pylist()]
        commits = sorted({n // 10 for n in ids})
        assert sorted(ids) == [10 * commit + n for commit in commits for n in range(COMMITS[commit])]
        batches.append(commits)

    stream = spark.readStream.format("lakebed").option("query", query).options(**options).load(source.uri)
    writer = stream.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path))

    def run() -> None:
        if trigger == "processingTime":
            going = writer.trigger(processingTime="0 seconds").start()
            going.processAllAvailable()
            going.stop()
        elif trigger == "availableNow":
            writer.trigger(availableNow=True).start().awaitTermination(120)
        else:
            writer.trigger(once=True).start().awaitTermination(120)

    if trigger == "once" and ADMITS:  # Spark ignores the limits of a source
        expected = [[commit for batch in expected for commit in batch]]
    # A run of `once` is one batch, and so is one of `availableNow` before Spark 4.2.
    runs = 1 if trigger == "processingTime" or (trigger == "availableNow" and ADMITS) else len(expected)
    for _ in range(runs + 1):
        run()
    assert batches == expected
