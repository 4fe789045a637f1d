"""Writing and reading through Spark Connect, where a session has no gateway."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from conftest import unavailable

from .service import ServiceError
from .spark_cluster import SparkConnect

BODY = Path(__file__).parent / "connect_session.py"


@pytest.fixture(scope="module")
def remote() -> Generator[str]:
    missing = [m for m in ("grpc", "grpc_status", "google.rpc", "zstandard") if not _installed(m)]
    if missing:
        unavailable(f"Spark Connect's client needs {', '.join(missing)}")
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        unavailable("no Java on this machine")
    try:
        server = SparkConnect(conf={"spark.driver.memory": "800m"}).start()
    except ServiceError as error:
        unavailable(str(error))
    yield server.info["remote"]
    server.stop()


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_tables_are_written_and_read_through_spark_connect(remote: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", BODY, remote, tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-6000:]
