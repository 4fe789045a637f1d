"""Functions on their way to Spark's workers."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import lakebed
from lakebed.engine.spark_worker import for_workers
from lakebed.spark_source.options import source_options
from lakebed.spark_source.source import ChangesReader, LakebedSource, TableReader

WITHOUT = "import sys; sys.modules['lakebed'] = None; "
RUN = "import pickle, sys; print(list(pickle.load(sys.stdin.buffer)(iter([1, 2]))))"


def _times(factor: int, numbers: Iterator[int]) -> Iterator[int]:
    yield from (factor * number for number in numbers)


def test_a_function_arrives_complete() -> None:
    sent = for_workers(partial(_times, 3))
    assert list(pickle.loads(cloudpickle.dumps(sent))(iter([1, 2]))) == [3, 6]


def test_a_worker_without_pyarrow_says_so_in_one_sentence() -> None:
    sent = cloudpickle.dumps(for_workers(partial(_times, 3)))
    without = WITHOUT.replace("lakebed", "pyarrow")
    run = subprocess.run([sys.executable, "-c", without + RUN], input=sent, capture_output=True, check=False)
    last = run.stderr.decode().splitlines()[-1]
    assert last.startswith(f"ImportError: Spark's workers have no pyarrow: {sys.executable} (")


def test_a_worker_without_lakebed_says_so_in_one_sentence() -> None:
    sent = cloudpickle.dumps(for_workers(partial(_times, 3)))
    run = subprocess.run([sys.executable, "-c", WITHOUT + RUN], input=sent, capture_output=True, check=False)
    last = run.stderr.decode().splitlines()[-1]
    assert last.startswith(f"ImportError: Spark's workers have no lakebed: {sys.executable} (")
    assert "install lakebed for that Python on every worker" in last


def test_a_worker_without_lakebed_says_so_of_what_the_data_source_sends_it(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1]}, key="id", index="simple")
    table.upsert({"id": [1]})
    options = source_options({"path": table.uri})
    for sent in (LakebedSource({"path": table.uri}), TableReader(options, ["id"]), ChangesReader(options)):
        code = cloudpickle.dumps(sent)
        load = WITHOUT + "import pickle; pickle.load(sys.stdin.buffer)"
        run = subprocess.run([sys.executable, "-c", load], input=code, capture_output=True, check=False)
        assert run.stderr.decode().splitlines()[-1].startswith("ImportError: Spark's workers have no lakebed: ")
        assert type(pickle.loads(code)) is type(sent)
    reader: TableReader = pickle.loads(cloudpickle.dumps(TableReader(options, ["id"])))
    (task,) = reader.partitions()
    assert pa.Table.from_batches(reader.read(task)).to_pylist() == [{"id": 1}]


@pytest.mark.rest
def test_a_function_that_is_to_tunes_its_worker_first() -> None:
    told = "import gc; " + RUN + "; print(gc.get_freeze_count() > 0)"
    for tuning in (True, False):
        sent = cloudpickle.dumps(for_workers(partial(_times, 3), tuning=tuning))
        run = subprocess.run([sys.executable, "-c", told], input=sent, capture_output=True, check=True)
        assert run.stdout.decode() == f"[3, 6]\n{tuning}\n"
