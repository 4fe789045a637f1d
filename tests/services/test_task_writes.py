"""Datasets of Ray and DataFrames of Dask are written by tasks of their clusters: the rows of a model, one commit each,
and nothing else is left, although workers die."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import lakebed
from conftest import unavailable
from support.crash_tables import leftovers

from . import task_writes
from .service import ServiceError, installed_environment

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return installed_environment("frames", ROOT / "locks" / "frames.txt", "Ray and Dask")
    except ServiceError as error:
        unavailable(str(error))


def run(python: Path, engine: str, case: str, folder: Path) -> dict[str, Any]:
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests' / 'services'}"
    environment = {**os.environ, "PYTHONPATH": paths, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    command = [str(python), str(ROOT / "tests" / "services" / "task_writes.py"), engine, case, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def rows_at(uri: str) -> list[str]:
    rows = lakebed.open(uri).scan(columns=["id", "city", "v", "at"]).to_arrow()
    return sorted(map(repr, rows.to_pylist()))


def commits_at(uri: str) -> int:
    return len([i for i in lakebed.open(uri).timeline if i.is_completed and i.action in ("commit", "deltacommit")])


@pytest.mark.parametrize("engine", ["ray", "dask", "distributed"])
def test_tables_of_each_index_have_the_rows_of_a_model(python: Path, tmp_path: Path, engine: str) -> None:
    run(python, engine, "histories", tmp_path)
    for name in task_writes.KINDS:
        model: dict[str, dict[str, Any]] = {}
        for verb, rows in task_writes.steps(name):
            for row in rows.to_pylist():
                if verb == "delete":
                    model.pop(row["id"])
                else:
                    model[row["id"]] = row
        uri = str(tmp_path / name)
        assert rows_at(uri) == sorted(map(repr, model.values())), name
        assert leftovers(uri) == [], name
        assert commits_at(uri) == 5, name


@pytest.mark.parametrize("engine", ["ray", "distributed"])
def test_a_write_whose_worker_is_killed_commits_once_and_leaves_nothing(
    python: Path, tmp_path: Path, engine: str
) -> None:
    answer = run(python, engine, "killed", tmp_path)
    assert int((tmp_path / "flag").read_text()) > 0, "no worker was killed"
    assert answer == {"updated": task_writes.COUNT, "inserted": 100, "engine": engine.replace("distributed", "dask")}
    uri = str(tmp_path / "t")
    expected = task_writes.rows_of(list(range(task_writes.COUNT + 100)), 2)
    assert rows_at(uri) == sorted(map(repr, expected.to_pylist()))
    assert leftovers(uri) == []
    assert commits_at(uri) == 2


def test_rows_that_changed_when_a_worker_died_are_evaluated_again(python: Path, tmp_path: Path) -> None:
    run(python, "distributed", "changing", tmp_path)
    assert len((tmp_path / "evaluations").read_text()) > 2, "no part was evaluated a second time"
    uri = str(tmp_path / "t")
    rows = lakebed.open(uri).scan(columns=["id", "v"]).to_arrow()
    assert rows.num_rows == len(set(rows["id"].to_pylist())) == task_writes.COUNT
    values = [{row["v"] for row in rows.to_pylist() if (row["id"] >= "k0300") is late} for late in (False, True)]
    assert [len(of_part) for of_part in values] == [1, 1], "rows of several evaluations of one part"
    assert leftovers(uri) == []


@pytest.mark.parametrize("engine", ["ray", "distributed"])
def test_workers_without_lakebed_are_named(python: Path, tmp_path: Path, engine: str) -> None:
    answer = run(python, engine, "unprepared", tmp_path)
    assert answer["error"] == "UnsupportedFeature", answer
    assert "have no lakebed" in answer["text"]
    assert "install lakebed in the environment of every worker" in answer["text"].lower()
    assert len(rows_at(str(tmp_path / "t"))) == task_writes.COUNT
    assert leftovers(str(tmp_path / "t")) == []
