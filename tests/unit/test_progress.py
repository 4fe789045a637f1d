"""What a terminal shows of a long call, and when nothing is shown."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import progress
from lakebed.storage import open_storage


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def make_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called in the test: before it pytest replaces what a fixture has set."""
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    return shown


def table() -> lakebed.Table:
    return lakebed.create("memory://progress/t" + str(time.monotonic_ns()), pa.schema([("id", pa.int64())]), key="id")


def slow(monkeypatch: pytest.MonkeyPatch) -> pa.RecordBatchReader:
    """Rows that come while the lines are visible."""
    monkeypatch.setattr("lakebed.inputs.base.TABLE_BYTES", 0)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            yield pa.record_batch({"id": [number]})

    return pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())


def test_a_terminal_shows_how_many_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    with progress.display(), progress.progress("reading rows", 3, "rows") as advance:
        deadline = time.monotonic() + 5
        advance(2)
        while "2 of 3 rows" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "reading rows" in terminal.getvalue()
    assert "2 of 3 rows" in terminal.getvalue()
    assert table().bulk_insert(slow(monkeypatch)).inserted == 3


def test_nothing_is_shown_in_the_first_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    monkeypatch.setattr(progress, "DELAY_SECONDS", 60.0)
    table().bulk_insert(slow(monkeypatch))
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_the_caller_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    t = table()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1]}), sink)
    open_storage("memory://progress/files").write("rows.parquet", sink.getvalue().to_pybytes())
    t.upsert([{"id": 1}], progress=False)
    t.maintenance.clean(progress=False)
    lakebed.load("memory://progress/loaded", [{"id": 1}], key="id", progress=False)
    lakebed.convert("memory://progress/files", "memory://progress/converted", key="id", progress=False)
    with progress.display(enabled=False), progress.display(), progress.progress("working") as advance:
        advance(1)
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
    with progress.display(), progress.progress("working", 1) as advance:
        advance(1)
    assert shown.getvalue() == ""
