"""The Python of Spark's workers: chosen where nobody chose one, and missed in one sentence where it lacks lakebed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BODY = Path(__file__).with_name("workers_session.py")


@pytest.mark.rest
def test_a_local_session_without_a_chosen_python_and_workers_without_lakebed(spark: Any, tmp_path: Path) -> None:
    """`spark` only so that the machine is known to have Java."""
    path = tmp_path / "path"
    path.mkdir()
    (path / "python3").write_text("#!/bin/sh\necho no python here >&2\nexit 1\n")
    (path / "python3").chmod(0o755)
    env = {k: v for k, v in os.environ.items() if k not in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    env["PATH"] = f"{path}:{env['PATH']}"
    run = subprocess.run(
        [sys.executable, BODY, tmp_path], env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    assert "replaced a previously registered data source" not in run.stderr
    write, *reads = run.stdout.splitlines()[-6:]
    assert write.startswith("write: Spark's workers have no lakebed: ")
    assert sys.executable in write
    assert "Install lakebed for that Python on every worker, or send an environment" in write
    assert write.endswith("set it before the session begins.") == (sys.prefix != sys.base_prefix)
    assert [read.partition(":")[0] for read in reads] == ["read", "hash", "merged", "changes", "cdc"]
    for lacking, read in zip(["lakebed"] * 2 + ["pyarrow"] * 3, reads, strict=True):
        assert f"Spark's workers have no {lacking}: " in read
        assert "install lakebed for that Python on every worker" in read
        assert lacking == "lakebed" or str(tmp_path / "python/bin/python") in read
