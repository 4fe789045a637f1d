"""Statuses of write tasks: how they come back, and what they take in the driver's memory."""

from __future__ import annotations

import tracemalloc

import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile, LakebedError
from lakebed.format.column_ranges import as_stream, from_stream
from lakebed.write_status import WriteStatus, checked_statuses, from_table, to_batch

STATUSES = 2500


def status(number: int) -> WriteStatus:
    name = f"{number:08}-5a71-41b0-8b4d-28546f1776e0-0"
    return WriteStatus("p", name, path=f"p/{name}.parquet", num_writes=number, ranges=b"%06d" % number)


def collected() -> pa.Table:
    batches = [to_batch([status(n) for n in range(at, at + 500)]) for at in range(0, STATUSES, 500)]
    return pa.Table.from_batches(batches).combine_chunks()


def test_all_statuses_of_a_job_come_back_in_their_order() -> None:
    assert checked_statuses(collected()) == [status(n) for n in range(STATUSES)]


def test_statuses_take_no_more_memory_while_they_are_decoded() -> None:
    rows = collected()
    tracemalloc.start()
    try:
        statuses = list(from_table(rows))
        stored, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(statuses) == STATUSES
    # all rows as dictionaries first take twice as much
    assert peak < 1.6 * stored


def test_the_first_error_names_how_many_file_groups_failed() -> None:
    failed = [WriteStatus("p", error=CorruptFile(f"file {n} is damaged").to_json()) for n in range(2)]
    with pytest.raises(LakebedError, match="file 0 is damaged") as raised:
        checked_statuses(pa.Table.from_batches([to_batch([status(0), *failed])]))
    assert raised.value.context["failed_groups"] == 2


def test_ranges_of_many_columns_come_back_in_few_bytes() -> None:
    values = {"min": 1, "max": 2, "null_count": 0, "value_count": 3, "total_size": 4, "total_uncompressed": 5}
    row = pa.RecordBatch.from_pylist([{f"column_{n}": values for n in range(14)}])
    assert from_stream(as_stream(row)).equals(row)
    assert len(as_stream(row)) < 2500
