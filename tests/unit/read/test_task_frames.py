"""The tasks in which Ray and Dask read a scan. `tests/services/test_task_frames.py` runs both."""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest

import lakebed
from lakebed.read.scan import Scan
from lakebed.read.task_frames import SliceRows, slice_rows
from support.same_rows import assert_same_rows

ROWS = {"id": list(range(90)), "city": [("Oslo", "Rome", "a/b")[n % 3] for n in range(90)], "n": [0, None, 2] * 30}


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    table = lakebed.load(str(tmp_path / "t"), ROWS, key="id", partition_by="city", type="mor", progress=False)
    table.upsert({"id": [0, 1, 500], "city": ["Oslo", "Rome", "Rome"], "n": [7, 8, 9]})
    table.delete([3])
    return table


def tasks_of(scan: Scan) -> list[SliceRows]:
    """The tasks of a scan, as they arrive at workers."""
    return pickle.loads(pickle.dumps(slice_rows(scan.plan, scan.reader)))


@pytest.mark.parametrize(
    ("where", "cities"),
    [(None, {"Oslo", "Rome", "a/b"}), ("city = 'Rome' and n = 8", {"Rome"}), ("id < 0", set()), ("city = 'x'", set())],
)
def test_the_tasks_read_the_rows_of_the_scan_each_from_one_slice_that_is_not_pruned(
    table: lakebed.Table, where: str | None, cities: set[str]
) -> None:
    scan = table.scan(["id", "n"], where=where)
    tasks = tasks_of(scan)
    assert len(tasks) == len(scan.plan.slices)
    assert {unquote(task.file_slice.partition) for task in tasks} == cities
    rows = [task.to_arrow() for task in tasks]
    assert_same_rows(pa.concat_tables([scan.schema.empty_table(), *rows]), scan.to_arrow())


def test_a_column_has_one_type_in_all_tasks_whether_or_not_it_has_nulls(table: lakebed.Table) -> None:
    pytest.importorskip("pandas")
    types = {str(task.to_pandas().dtypes["n"]) for task in tasks_of(table.scan(where="n is null or city = 'Oslo'"))}
    assert types == {"int64[pyarrow]"}


def test_a_file_that_was_cleaned_before_its_task_ran_is_an_error_with_a_hint(table: lakebed.Table) -> None:
    tasks = tasks_of(table.scan(where="city = 'Rome'"))
    table.maintenance.compact()
    for version in range(3):
        table.upsert({"id": [1], "city": ["Rome"], "n": [version]})
        table.maintenance.compact()
    table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
    with pytest.raises(lakebed.StorageError, match="was deleted since this read was planned") as raised:
        [task.to_arrow() for task in tasks]  # one of the two file slices was replaced
    assert "from a new scan, or the dataset" in raised.value.hint


@pytest.mark.parametrize("engine", ["Ray", "Dask"])
def test_a_table_in_memory_is_refused(engine: str) -> None:
    table = lakebed.load(f"memory://task-frames/{engine}", {"id": [1]}, key="id", progress=False)
    with pytest.raises(lakebed.UnsupportedFeature, match=f"in the memory of this process, which {engine}'s workers"):
        getattr(table.scan(), f"to_{engine.lower()}")()


@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_a_missing_package_is_an_error_that_names_the_extra(table: lakebed.Table, engine: str) -> None:
    if importlib.util.find_spec(engine):
        pytest.skip(f"{engine} is installed")
    with pytest.raises(lakebed.UnsupportedFeature, match=f"{engine} is not installed") as raised:
        getattr(table.scan(), f"to_{engine}")()
    assert f"lakebed[{engine}]" in raised.value.hint
