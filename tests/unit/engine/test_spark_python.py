"""Which Python Spark looks for data sources with."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from lakebed.engine.spark_python import DRIVER_PYTHON, PYTHON, _source_class, use_this_python_later
from lakebed.spark_source.source import LakebedSource

LOAD = "import pickle, sys; pickle.load(sys.stdin.buffer)(options={})"


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv(DRIVER_PYTHON, "")
    monkeypatch.setenv(PYTHON, "")
    return monkeypatch


def test_a_jvm_that_starts_later_looks_with_this_python(unset: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unset.setenv("PATH", str(tmp_path))  # the environment is not activated
    use_this_python_later()
    assert os.environ[DRIVER_PYTHON] == sys.executable
    assert not os.environ[PYTHON]  # the workers of other machines are not concerned


def test_an_activated_environment_needs_no_variable(unset: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    unset.setenv("PATH", str(tmp_path))
    unset.setattr(sys, "executable", str(tmp_path / "python"))
    use_this_python_later()
    assert not os.environ[DRIVER_PYTHON]


@pytest.mark.parametrize("variable", [DRIVER_PYTHON, PYTHON])
def test_a_chosen_python_stays(unset: pytest.MonkeyPatch, tmp_path: Path, variable: str) -> None:
    unset.setenv("PATH", str(tmp_path))
    unset.setenv(variable, "/opt/python")
    before = dict(os.environ)
    use_this_python_later()
    assert dict(os.environ) == before


def test_the_registered_class_makes_the_source() -> None:
    source = pickle.loads(cloudpickle.dumps(_source_class()))
    assert source.name() == "lakebed"
    assert isinstance(source(options={}), LakebedSource)


@pytest.mark.parametrize("package", ["pyspark_lakebed", "pyarrow"])
def test_a_python_that_lacks_a_package_says_which_and_what_to_set(package: str) -> None:
    sent = cloudpickle.dumps(_source_class())
    without = f"import sys; sys.modules[{package!r}] = None; "
    run = subprocess.run([sys.executable, "-c", without + LOAD], input=sent, capture_output=True, check=False)
    last = run.stderr.decode().splitlines()[-1]
    assert last.startswith(f"ImportError: Spark's workers have no {package}: {sys.executable} (")
    assert f"set {DRIVER_PYTHON} to a Python that has lakebed" in last


def test_the_package_is_imported_without_arrow_numpy_and_spark() -> None:
    code = "import sys, lakebed; print([m for m in ('pyarrow', 'numpy', 'pyspark', 'fastavro') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
