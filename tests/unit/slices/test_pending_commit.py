"""A view with a pending commit shows what the table shows when that commit is completed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata.lookups import open_snapshot, snapshot_of
from lakebed.read.lookup import get
from lakebed.read.scan import Scan
from lakebed.slices.pending_commit import PendingCommit
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.memory import MemoryStorage

NAME = "pending-commits"
URI = f"memory://{NAME}/t"
FIRST = {"id": [1, 2, 3, 4], "city": ["Oslo", "Rome", "Oslo", "Rome"], "fare": [1.0, 2.0, 3.0, 4.0], "ts": [1, 1, 1, 1]}
SECOND = {"id": [2, 4, 5], "city": ["Rome", "Rome", "Bonn"], "fare": [20.0, 40.0, 5.0], "ts": [2, 2, 2]}

Write = Callable[[lakebed.Table], object]
WRITES: dict[str, Write] = {
    "upsert": lambda t: t.upsert(SECOND),
    "insert": lambda t: t.insert({"id": [9], "city": ["Oslo"], "fare": [9.0], "ts": [3]}),
    "delete": lambda t: t.delete(where="city = 'Rome'"),
    "delete of all": lambda t: t.delete(where="id > 0"),
    "overwrite of partitions": lambda t: t.insert_overwrite(SECOND),
    "overwrite of the table": lambda t: t.insert_overwrite(SECOND, "table"),
    "delete of partitions": lambda t: t.delete_partitions(["Oslo"]),
    "new column": lambda t: t.upsert({**SECOND, "note": ["a", "b", "c"]}, options={"lakebed.write.evolution": "widen"}),
}
TABLES: dict[str, dict[str, Any]] = {
    "cow, simple": {"type": "cow", "index": "simple"},
    "mor, bucket": {"type": "mor", "index": "bucket", "buckets": 2},
    "mor, simple, version 6": {"type": "mor", "index": "simple", "table_version": 6},
    "cow, record": {"type": "cow", "index": "record"},
    "cow, bloom, version 6": {"type": "cow", "index": "bloom", "table_version": 6},
    "mor, consistent": {"type": "mor", "index": "consistent", "buckets": 2},
}


@pytest.fixture(autouse=True)
def _dropped() -> Iterator[None]:
    MemoryStorage.drop(NAME)
    yield
    MemoryStorage.drop(NAME)


def before_last(completed: Snapshot) -> tuple[Snapshot, PendingCommit]:
    """The table before its last commit, which is pending there, and this commit."""
    last = completed.timeline.last_completed
    assert last is not None
    body = completed.timeline.commit_metadata(last)
    before = snapshot_of(completed.storage, completed.config, completed.timeline.before_completion(last.time))
    return before, PendingCommit(last.time, last.action, body)


def rows_of(view: Snapshot, **options: Any) -> list[dict[str, Any]]:
    return sorted(Scan(view, **options).to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("table", TABLES)
def test_the_view_shows_the_rows_of_the_completed_commit(table: str, write: str) -> None:
    t = lakebed.create(URI, FIRST, key="id", partition_by="city", ordering="ts", **TABLES[table])
    t.upsert(FIRST)
    t.upsert({"id": [3], "city": ["Oslo"], "fare": [30.0], "ts": [1]})
    earlier = t.scan().to_arrow().to_pylist()
    WRITES[write](t)
    completed = open_snapshot(t.opened.storage)
    before, commit = before_last(completed)
    view = before.with_pending(commit)
    expected = rows_of(completed, meta=True)
    assert rows_of(before) == sorted(earlier, key=lambda row: row["id"])
    assert rows_of(view, meta=True) == expected
    assert view.schema.equals(completed.schema)
    assert view.file_slices() == completed.file_slices()
    for path in ("Oslo", "Rome", "Bonn"):
        assert view.file_slices([path]) == completed.file_slices([path])
    assert rows_of(view, where="fare >= 20") == [row for row in rows_of(completed) if row["fare"] >= 20]
    assert Scan(view).count() == len(expected)
    for key in (1, 2, 5, 9):
        assert get(view, [key]).to_pylist() == get(completed, [key]).to_pylist()


def test_the_view_follows_a_table_that_others_change() -> None:
    t = lakebed.create(URI, FIRST, key="id", type="mor", index="bucket", buckets=2)
    t.upsert(FIRST)
    t.upsert({"id": [8], "city": ["Rome"], "fare": [8.0], "ts": [1]})
    before, commit = before_last(open_snapshot(t.opened.storage))
    view = before.with_pending(commit)
    assert view.opened_again(before) is None
    t.upsert({"id": [1], "city": ["Oslo"], "fare": [10.0], "ts": [1]})
    later = view.opened_again(open_snapshot(t.opened.storage))
    assert later is not None
    assert {row["id"]: row["fare"] for row in rows_of(view)} == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0, 8: 8.0}
    assert {row["id"]: row["fare"] for row in rows_of(later)} == {1: 10.0, 2: 2.0, 3: 3.0, 4: 4.0, 8: 8.0}


def test_the_view_has_renamed_columns_and_the_new_one() -> None:
    t = lakebed.create(URI, FIRST, key="id", type="cow", index="simple")
    t.upsert(FIRST)
    t.columns.rename("fare", "price")
    row = pa.table({"id": [7], "city": ["Oslo"], "price": [7.0], "ts": [1], "note": ["new"]})
    t.upsert(row, options={"lakebed.write.evolution": "widen"})
    completed = open_snapshot(t.opened.storage)
    before, commit = before_last(completed)
    written = {key: text for key, text in commit.metadata.extra.items() if key != "latest_schema"}
    commit.metadata.extra.clear()
    commit.metadata.extra.update(written)
    view = before.with_pending(commit)
    assert rows_of(view) == rows_of(completed)
    assert rows_of(view)[0] == {"id": 1, "city": "Oslo", "price": 1.0, "ts": 1, "note": None}
