"""Reads of the rows that commits of a range wrote: which file slices they open, and how."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed.read import batches

_ROWS = pa.table({"id": [1, 2, 3, 4], "city": ["oslo", "oslo", "rome", "rome"], "ts": [1, 1, 1, 1]})


def _table(uri: str) -> lakebed.Table:
    table = lakebed.create(
        uri, _ROWS, key="id", partition_by="city", ordering="ts", type="mor", index="bucket", buckets=1
    )
    table.upsert(_ROWS)
    table.upsert(_ROWS)  # both slices have log files
    return table


def test_changes_open_the_slices_that_the_commits_wrote_and_ask_no_statistics() -> None:
    table = _table("memory://incremental/slices")
    start = table.timeline.last.completion_time
    table.upsert([{"id": 1, "city": "oslo", "ts": 2}])
    changes = table.changes(start)
    assert [file_slice.partition for file_slice in changes.plan.slices] == ["oslo"]
    assert changes.plan.pruned == {}
    assert changes.to_arrow()["id"].to_pylist() == [1]


def test_a_condition_besides_the_range_still_rules_out_slices() -> None:
    table = _table("memory://incremental/where")
    changes = table.changes("000", where="city = 'rome'")
    assert changes.plan.pruned_by == {"partition": 1}
    assert sorted(changes.to_arrow()["id"].to_pylist()) == [3, 4]


def test_rows_that_a_compaction_moved_are_among_the_changes() -> None:
    table = _table("memory://incremental/compacted")
    start = table.timeline.last.completion_time
    table.upsert([{"id": 3, "city": "rome", "ts": 2}])
    table.maintenance.compact()
    assert table.changes(start).to_arrow()["id"].to_pylist() == [3]


def test_small_logs_are_decoded_by_the_thread_that_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table("memory://incremental/threads")
    table.maintenance.compact()
    start = table.timeline.last.completion_time
    table.upsert(_ROWS.set_column(2, "ts", pa.array([2, 2, 2, 2])))
    monkeypatch.setattr(batches, "ThreadPoolExecutor", None)
    assert sorted(table.changes(start).to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
