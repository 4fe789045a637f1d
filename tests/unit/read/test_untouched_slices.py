"""In which slices with log files Spark reads the rows that no log record touches: known from sizes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakebed.model import BaseFile, FileSlice, LogFile
from lakebed.properties.table_config import TableConfig
from lakebed.read import spark_untouched
from lakebed.read.plan import ColumnSource, ScanPlan, SliceSet
from lakebed.read.spark_untouched import divided

MIN_BYTES = 1000
SOURCES = (ColumnSource("id", "id", pa.int64()),)
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(autouse=True)
def least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_untouched, "_MIN_BYTES", MIN_BYTES)


def slice_of(number: int, size: int, logs: int = 1, instant: str = "1") -> FileSlice:
    file_id = f"g{number}-0"
    base = BaseFile("", file_id, "0-0-0", instant, f"{file_id}_0-0-0_{instant}.parquet", size)
    log = LogFile("", file_id, instant, 1, "0-0-0", f".{file_id}_{instant}.log.1_0-0-0", logs)
    return FileSlice("", file_id, instant, base, (log,))


def chosen(
    slices: Sequence[FileSlice], properties: Any = None, sources: Any = SOURCES, **changes: Any
) -> list[list[int]]:
    """The sizes of the base files of each part; all other slices are read as before."""
    text = {"hoodie.table.name": "t", "hoodie.table.version": "9", "hoodie.table.type": "MERGE_ON_READ"}
    config = TableConfig({**text, **(properties or {})})
    merged = SliceSet(tuple(slices), SOURCES, native=False)
    by_instant = {s.base_file.instant: sources for s in slices if s.base_file}
    plan = ScanPlan("t", "snapshot", None, ("id",), SCHEMA, (merged,), base_sources=by_instant)
    parts, others = divided(replace(plan, **changes), [merged], config)
    divided_slices = [s for part in [*(part.merged for part in parts), *others] for s in part.slices]
    assert Counter(s.file_id for s in divided_slices) == Counter(s.file_id for s in slices)
    return [[file.size for file in part.base_files.files] for part in parts]


def test_small_base_files_are_read_through_python() -> None:
    enough = MIN_BYTES
    assert chosen([slice_of(0, enough)]) == [[enough]]
    assert chosen([slice_of(0, enough - 1)]) == []
    assert chosen([slice_of(0, enough // 2 - 1), slice_of(1, enough // 2 + 1)]) == [[enough // 2 + 1, enough // 2 - 1]]


def test_slices_with_large_logs_are_read_through_python() -> None:
    size = MIN_BYTES
    assert chosen([slice_of(0, size, logs=size // 2), slice_of(1, size + 2, logs=size // 2 + 2)]) == [[size]]


def test_of_two_base_files_of_a_size_one_is_read_by_spark() -> None:
    size = MIN_BYTES
    assert chosen([slice_of(0, size), slice_of(1, size), slice_of(2, size + 1)]) == [[size + 1, size]]


def test_many_base_files_are_read_in_several_scans_and_the_smallest_through_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_untouched, "_FILES_OF_SCAN", 2)
    monkeypatch.setattr(spark_untouched, "_MAX_SCANS", 2)
    size = MIN_BYTES
    assert chosen([slice_of(n, size + n) for n in range(4)]) == [[size + 3, size + 2], [size + 1, size]]
    assert chosen([slice_of(n, size + n) for n in range(5)]) == [[size + 4, size + 3], [size + 2, size + 1]]


def test_of_base_files_beyond_a_size_together_the_smallest_are_read_through_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = MIN_BYTES
    slices = [slice_of(n, size + n) for n in range(4)]
    monkeypatch.setattr(spark_untouched, "_MAX_BYTES", 3 * size + 6)
    assert chosen(slices) == [[size + 3, size + 2, size + 1]]
    monkeypatch.setattr(spark_untouched, "_MAX_BYTES", 3 * size + 5)
    assert chosen(slices) == [[size + 3, size + 2]]
    monkeypatch.setattr(spark_untouched, "_MAX_BYTES", size + 2)
    assert chosen(slices) == []


def test_base_files_with_other_columns_are_read_in_a_scan_of_their_own() -> None:
    size = MIN_BYTES
    other = (ColumnSource("id", "id", pa.int32()),)
    slices = [slice_of(0, size + 1), slice_of(1, size, instant="2")]
    assert chosen(slices, base_sources={"1": SOURCES, "2": other}) == [[size + 1], [size]]


def test_slices_whose_rows_are_all_touched_or_that_spark_cannot_number_are_read_through_python() -> None:
    size = MIN_BYTES
    some = slice_of(0, size)
    assert chosen([some]) == [[size]]
    assert chosen([some], properties={"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}) == []
    assert chosen([some], sources=(ColumnSource("id", "_Metadata", pa.int64()),)) == []
    assert chosen([replace(some, base_file=None)]) == []
    assert chosen([slice_of(0, 0)]) == []
    assert chosen([some], base_sources={}) == []
    assert chosen([some], since="1") == []
    assert chosen([some], query="read_optimized") == []
