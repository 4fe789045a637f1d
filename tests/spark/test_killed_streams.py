"""Drivers of a stream that are killed, and started again with their checkpoint: each batch is in one commit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from support.sampling import today

from .test_streams import commits

pytestmark = pytest.mark.full
# So many kills, of drivers that have so many batches before them.
KILLS, AHEAD = 20, 3
PROGRAM = Path(__file__).parents[1] / "support" / "stream_process.py"
# A driver whose files have not changed for so long stands still. Its batches take longer on a busy machine.
_STANDSTILL = 300.0


def completed(folder: Path) -> int:
    return len(list((folder / "t" / ".hoodie" / "timeline").glob("*_*.commit")))


def recorded(folder: Path) -> int:
    commits_of_spark = folder / "checkpoint" / "commits"
    return len(list(commits_of_spark.glob("[0-9]*"))) if commits_of_spark.is_dir() else 0


def written_since(moment: Path, files: Iterable[Path]) -> int:
    """How many of the files are younger than a file; none where that is missing."""
    count = 0
    for file in files if moment.exists() else ():
        with suppress(FileNotFoundError):  # the driver deletes files meanwhile
            count += file.stat().st_mtime > moment.stat().st_mtime
    return count


def started_writes(folder: Path) -> int:
    """How many writes this driver has begun."""
    inflight = (folder / "t/.hoodie/timeline").glob("*.inflight")
    return written_since(folder / "ready", [file for file in inflight if file.stem.isdigit()])


# When a driver is killed, by what its files show. `n` is the number of commits when it started. Such a moment passes
# quickly: a watcher that misses it sees that of the next batch.
POINTS: dict[str, Callable[[Path, int], bool]] = {
    "staged": lambda folder, n: (
        written_since(folder / "ready", (folder / "t/.hoodie/.temp").glob("stream-*/*.arrow")) > 0
    ),
    "before the commit": lambda folder, n: started_writes(folder) > completed(folder) - n,
    "after the commit": lambda folder, n: completed(folder) > n,
    "before Spark's record": lambda folder, n: n < completed(folder) > recorded(folder),
}


@contextmanager
def driver(face: str, folder: Path) -> Generator[subprocess.Popen[bytes]]:
    """A driver that runs; it is killed where it has not ended afterwards."""
    (folder / "ready").unlink(missing_ok=True)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), face, str(folder)], start_new_session=True, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def watch(process: subprocess.Popen[bytes], folder: Path, is_over: Callable[[], bool]) -> bool:
    """Whether `is_over` came true before the driver ended. Fails if the driver fails, or stands still."""
    seen, changed = None, time.monotonic()
    while process.poll() is None:
        if is_over():
            return True
        state = (completed(folder), recorded(folder), (folder / "log").stat().st_size)
        if state != seen:
            seen, changed = state, time.monotonic()
        assert time.monotonic() - changed < _STANDSTILL, f"the driver stands still at {state}"
        time.sleep(0.001)
    assert process.returncode == 0, (folder / "log").read_text()
    return False


def after(file: Path, seconds: float) -> Callable[[], bool]:
    """Whether so many seconds have passed since the file was first seen."""
    seen: list[float] = []

    def has_passed() -> bool:
        if not seen and file.exists():
            seen.append(time.monotonic())
        return bool(seen) and time.monotonic() - seen[0] > seconds

    return has_passed


def add_batches(face: str, folder: Path, numbers: range) -> None:
    """A commit of the source table, or a file of the source folder, for each batch."""
    for n in numbers:
        batch = {"id": [10 * n, 10 * n + 1], "n": [n, n]}
        if face == "source":
            lakebed.open(str(folder)).insert(batch)
        else:
            pq.write_table(pa.table(batch), folder / f"{n:03}.parquet")
            os.utime(folder / f"{n:03}.parquet", (n, n))  # Spark takes them in this order


@pytest.mark.parametrize("face", ["stream_into", "format", "source"])
def test_a_driver_that_is_killed_writes_each_batch_once(face: str, tmp_path: Path) -> None:
    row = {"id": [1], "n": [1]}
    every_commit = {"hoodie.archive.automatic": False, "hoodie.clean.automatic": False}
    lakebed.create(str(tmp_path / "t"), row, key="id", index="simple", properties=every_commit)
    if face == "source":
        properties = {**every_commit, "hoodie.table.cdc.enabled": True}
        lakebed.create(str(tmp_path / "in"), row, key="id", index="simple", properties=properties)
    else:
        (tmp_path / "in").mkdir()
    chance = random.Random(today())
    points = [name for name in POINTS if face == "format" or name != "staged"]
    batches = kills = 0
    while kills < KILLS:
        done = completed(tmp_path)
        add_batches(face, tmp_path / "in", range(batches, done + AHEAD))
        batches = max(batches, done + AHEAD)
        assert batches < 10 * KILLS, "drivers end before they are killed"
        if kills % 2:
            is_over = partial(POINTS[points[kills // 2 % len(points)]], tmp_path, done)
        else:
            is_over = after(tmp_path / "ready", chance.uniform(0, 4))
        with driver(face, tmp_path) as process:
            kills += watch(process, tmp_path, is_over)
    with driver(face, tmp_path) as last:
        assert not watch(last, tmp_path, lambda: False)
    t = lakebed.open(str(tmp_path / "t"))
    assert [batch for batch, _ in commits(t)] == list(range(batches))
    assert sorted(t.scan(["id"]).to_arrow()["id"].to_pylist()) == sorted(
        i for n in range(batches) for i in (10 * n, 10 * n + 1)
    )
    assert not [p for p in (tmp_path / "t/.hoodie/.temp").glob("*") if p.name.startswith("stream-")]
