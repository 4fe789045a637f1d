"""Processes of `lakebed ingest` that are killed twenty times: each row of the source is in one commit, in order."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from support.killed_ingest import ROWS, KilledJob, ids_of, kill_often
from support.sampling import today

pytestmark = pytest.mark.full
MOR = {"type": "mor", "index": "bucket", "buckets": 2}
SIMPLE = {"index": "simple"}


@pytest.mark.parametrize(("create", "operation"), [(SIMPLE, "insert"), (MOR, "upsert")], ids=["cow", "mor"])
def test_files_are_read_once_by_processes_that_are_killed(
    create: dict[str, object], operation: str, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()

    def add(n: int) -> None:
        pq.write_table(pa.table({"id": ids_of(n)}), tmp_path / "next")
        os.utime(tmp_path / "next", (n + 1, n + 1))
        (tmp_path / "next").rename(folder / f"{n:04}.parquet")

    def position(checkpoint: str) -> int:
        time, names = checkpoint.split("\n")
        n = int(time) // 1000 - 1
        assert json.loads(names) == [f"{n:04}.parquet"]
        return ROWS * (n + 1)

    source = {"kind": "files", "path": str(folder)}
    kill_often(KilledJob(tmp_path, source, create, operation, add, position), random.Random(today()))


@pytest.mark.parametrize(("query", "operation"), [("incremental", "insert"), ("cdc", "upsert")])
def test_commits_of_a_table_are_read_once_by_processes_that_are_killed(
    query: str, operation: str, tmp_path: Path
) -> None:
    properties = {"hoodie.table.cdc.enabled": True, "hoodie.archive.automatic": False, "hoodie.clean.automatic": False}
    source = lakebed.create(str(tmp_path / "in"), {"id": [0]}, key="id", index="simple", properties=properties)
    times: list[str | None] = []

    def add(n: int) -> None:
        source.insert({"id": ids_of(n)})
        last = source.timeline.last
        assert last is not None
        times.append(last.completion_time)

    def position(checkpoint: str) -> int:
        return ROWS * (times.index(checkpoint) + 1)

    settings = {"kind": "table", "uri": source.uri, "query": query, "max_commits": 1}
    create = MOR if query == "cdc" else SIMPLE
    kill_often(KilledJob(tmp_path, settings, create, operation, add, position), random.Random(today()))


def test_rows_of_a_database_are_read_once_by_processes_that_are_killed(tmp_path: Path) -> None:
    pytest.importorskip("adbc_driver_sqlite", reason="adbc-driver-sqlite is not installed")
    database = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    database.execute("CREATE TABLE rides(id INTEGER PRIMARY KEY, at INTEGER)")

    def add(n: int) -> None:
        database.execute("BEGIN")
        database.executemany("INSERT INTO rides VALUES (?, ?)", [(i, n) for i in ids_of(n)])
        database.execute("COMMIT")

    def position(checkpoint: str) -> int:
        return ROWS * (int(checkpoint.partition("\n")[0]) + 1)

    query = {"kind": "sql", "uri": f"sqlite:///{tmp_path}/shop.db", "query": "SELECT id, at FROM rides", "column": "at"}
    job = KilledJob(tmp_path, query, SIMPLE, "upsert", add, position, repeats_rows=True)
    kill_often(job, random.Random(today()))
    database.close()
