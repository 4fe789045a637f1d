"""A row that moves to another partition path is one updated row of its write, whatever index found its key."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import lakebed
from lakebed.table import Table

GLOBAL = ["global_simple", "global_bloom", "record"]
MERGES: dict[str, dict[str, Any]] = {
    "commit_time": {"merge": "commit_time"},
    "event_time": {"merge": "event_time", "ordering": "ts"},
    # which makes a third row of two
    "partial": {"merge": "PartialUpdateAvroPayload", "ordering": "ts"},
}


def two_regions(index: str, kind: Any, merge: str) -> Table:
    """A table of the keys a and b in "eu" and c in "us"."""
    t = lakebed.create(
        f"memory://{uuid.uuid4().hex}",
        {"id": ["a"], "region": ["eu"], "ts": [1], "v": [1]},
        key="id",
        partition_by="region",
        type=kind,
        index=index,
        **MERGES[merge],
    )
    if index == "record":
        t.indexes.use("record", update_partition_path=True)
    t.upsert({"id": ["a", "b", "c"], "region": ["eu", "eu", "us"], "ts": [1, 1, 1], "v": [1, 1, 1]})
    return t


def rows_of(t: Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(t.scan().to_arrow().column(n).to_pylist() for n in ("id", "region", "v")), strict=True))


@pytest.mark.parametrize("merge", ["commit_time", "event_time", "partial"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", GLOBAL)
def test_a_row_that_moves_is_one_updated_row(index: str, kind: Any, merge: str) -> None:
    t = two_regions(index, kind, merge)
    incoming = {"id": ["a", "b", "c", "new"], "region": ["us", "eu", "us", "us"], "ts": [5] * 4, "v": [9] * 4}
    plan = t.explain(upsert=incoming)
    done = t.upsert(incoming)
    assert (done.rows, done.inserted, done.updated, done.deleted, done.unchanged) == (4, 1, 3, 0, 0)
    assert plan.rows == plan.to_dict()["rows"] == 4
    assert rows_of(t) == [("a", "us", 9), ("b", "eu", 9), ("c", "us", 9), ("new", "us", 9)]


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", GLOBAL)
def test_a_row_that_loses_does_not_move_and_is_unchanged(index: str, kind: Any) -> None:
    t = two_regions(index, kind, "event_time")
    done = t.upsert({"id": ["a", "b"], "region": ["us", "us"], "ts": [0, 5], "v": [9, 9]})
    assert (done.rows, done.inserted, done.deleted) == (2, 0, 0)
    # a merge-on-read table appends the row that loses
    assert (done.updated, done.unchanged) == ((1, 1) if kind == "cow" else (2, 0))
    assert rows_of(t) == [("a", "eu", 1), ("b", "us", 9), ("c", "us", 1)]


@pytest.mark.parametrize("index", GLOBAL)
def test_deletes_that_name_another_partition_path_are_deletes(index: str) -> None:
    t = two_regions(index, "cow", "commit_time")
    rows = {"id": ["a", "b"], "region": ["us", "us"], "ts": [5, 5], "v": [9, 9], "_hoodie_is_deleted": [True, False]}
    done = t.upsert(rows)
    assert (done.rows, done.inserted, done.updated, done.deleted) == (2, 0, 1, 1)
    assert rows_of(t) == [("b", "us", 9), ("c", "us", 1)]


def test_a_key_that_leaves_two_places_is_one_updated_row_and_one_deleted() -> None:
    t = two_regions("global_simple", "cow", "commit_time")
    t.insert({"id": ["a"], "region": ["asia"], "ts": [1], "v": [2]})
    assert [region for key, region, _ in rows_of(t) if key == "a"] == ["asia", "eu"]
    done = t.upsert({"id": ["a"], "region": ["us"], "ts": [5], "v": [9]})
    assert rows_of(t) == [("a", "us", 9), ("b", "eu", 1), ("c", "us", 1)]
    assert (done.inserted, done.updated, done.deleted) == (0, 1, 1)
