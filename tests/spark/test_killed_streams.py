"""Drivers of a stream that are killed, and started again with their checkpoint: each batch is in one commit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from support.sampling import today

from .test_streams import commits

pytestmark = pytest.mark.full
BATCHES, KILLS = 24, 20
PROGRAM = Path(__file__).parents[1] / "support" / "stream_process.py"
_TOO_LONG = 120.0


def completed(folder: Path) -> int:
    return len(list((folder / "t" / ".hoodie" / "timeline").glob("*_*.commit")))


def recorded(folder: Path) -> int:
    commits_of_spark = folder / "checkpoint" / "commits"
    return len(list(commits_of_spark.glob("[0-9]*"))) if commits_of_spark.is_dir() else 0


# When a driver is killed, by what its files show after so many batches.
POINTS: dict[str, Callable[[Path, int], bool]] = {
    "staged": lambda folder, n: completed(folder) >= n and any((folder / "t/.hoodie/.temp").glob("stream-*/*.arrow")),
    "before the commit": lambda folder, n: (
        completed(folder) >= n and len(list((folder / "t/.hoodie/timeline").glob("*.inflight"))) > completed(folder)
    ),
    "after the commit": lambda folder, n: completed(folder) > n,
    "before Spark's record": lambda folder, n: completed(folder) > n and recorded(folder) <= n,
}


def driver(face: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), face, str(folder)], start_new_session=True, stdout=log, stderr=log
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def make_table(folder: Path) -> None:
    """A source whose commits are the batches."""
    properties = {"hoodie.table.cdc.enabled": True, "hoodie.clean.automatic": False}
    source = lakebed.create(str(folder), {"id": [1], "n": [1]}, key="id", index="simple", properties=properties)
    for n in range(BATCHES):
        source.insert({"id": [10 * n, 10 * n + 1], "n": [n, n]})


def make_files(folder: Path) -> None:
    """A source whose files are the batches."""
    folder.mkdir()
    for n in range(BATCHES):
        rows = pa.table({"id": [10 * n, 10 * n + 1], "n": [n, n]})
        pq.write_table(rows, folder / f"{n:03}.parquet")
        os.utime(folder / f"{n:03}.parquet", (n, n))


@pytest.mark.parametrize("face", ["stream_into", "format", "source"])
def test_a_driver_that_is_killed_writes_each_batch_once(face: str, tmp_path: Path) -> None:
    lakebed.create(str(tmp_path / "t"), {"id": [1], "n": [1]}, key="id", index="simple")
    make_table(tmp_path / "in") if face == "source" else make_files(tmp_path / "in")
    chance = random.Random(today())
    points = [name for name in POINTS if face == "format" or name != "staged"]
    for number in range(KILLS):
        process = driver(face, tmp_path)
        done = completed(tmp_path)
        point = POINTS[points[number % len(points)]] if number % 2 else None
        seconds, began = chance.uniform(4, 14), time.monotonic()
        while process.poll() is None:
            if point(tmp_path, done) if point is not None else time.monotonic() - began > seconds:
                break
            assert time.monotonic() - began < _TOO_LONG
            time.sleep(0.001)
        if process.poll() is None:
            kill(process)
        else:
            assert process.returncode == 0, (tmp_path / "log").read_text()
        if completed(tmp_path) == BATCHES and recorded(tmp_path) == BATCHES:
            break
    last = driver(face, tmp_path)
    assert last.wait(_TOO_LONG) == 0
    t = lakebed.open(str(tmp_path / "t"))
    assert [batch for batch, _ in commits(t)] == list(range(BATCHES))
    assert sorted(t.scan(["id"]).to_arrow()["id"].to_pylist()) == sorted(
        i for n in range(BATCHES) for i in (10 * n, 10 * n + 1)
    )
    assert not [p for p in (tmp_path / "t/.hoodie/.temp").glob("*") if p.name.startswith("stream-")]
