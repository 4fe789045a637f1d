"""Spark's Python daemon with a storage that strikes once: the test names a deed in a file, the first task that finishes
a data file takes it. `spark.python.daemon.module` names this module, in executors only."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from pyspark import daemon

from lakebed.concurrency.markers import list_markers
from lakebed.storage import opening
from lakebed.testing import FaultyStorage

DEEDS = Path(os.environ.get("LAKEBED_TEST_DEEDS", "deeds"))
DEED_NAMES = ("kill before", "kill", "kill executor", "kill worker", "lose shuffle", "hang", "outlive")


class StruckStorage(FaultyStorage):
    def finish_create(self, path: str, upload: Any) -> None:
        deed = taken(path)
        if deed == "kill before":
            os.kill(os.getpid(), signal.SIGKILL)
        if deed == "outlive":  # a lost attempt that goes on after the commit
            instant = path.rpartition("_")[2].removesuffix(".parquet")
            wait_until(lambda: not list_markers(self._inner, instant))
        super().finish_create(path, upload)
        if deed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if deed == "kill executor":
            os.kill(parent(parent(os.getpid())), signal.SIGKILL)
            wait_until(lambda: False)
        if deed == "kill worker":
            os.kill(parent(parent(parent(os.getpid()))), signal.SIGKILL)
            wait_until(lambda: False)
        if deed == "lose shuffle":
            lose_shuffle_files()
        if deed == "hang":
            wait_until(lambda: False)
        if deed == "outlive":
            (DEEDS / "outlived").write_text(path)


def taken(path: str) -> str | None:
    """The deed that waits, if this process is the first to see it; `<deed>.taken` then names the file."""
    for deed in DEED_NAMES:
        try:
            (DEEDS / deed).rename(DEEDS / f"{deed}.taken")
        except OSError:
            continue
        (DEEDS / f"{deed}.taken").write_text(path)
        return deed
    return None


def lose_shuffle_files() -> None:
    """Delete all that the executor of this process has written for shuffles."""
    lost = [f for root in os.environ["SPARK_EXECUTOR_DIRS"].split(":") for f in Path(root).rglob("shuffle_*")]
    assert lost, "the executor has written no shuffle file"
    for file in lost:
        file.unlink()


def parent(process: int) -> int:
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(process)], capture_output=True, check=True).stdout)


def wait_until(done: Any, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not done():
        time.sleep(0.05)


if __name__ == "__main__":
    opening._wrappers.append(StruckStorage)
    daemon.manager()
