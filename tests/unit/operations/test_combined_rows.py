"""Several rows of one key in a batch: the result says how many were combined away, the same under every index."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakebed.table import Table
from support.write_tables import content, rows

Make = Callable[..., Table]
INDEXES = [
    "simple",
    "global_simple",
    "bloom",
    "global_bloom",
    "record",
    "record_level_index",
    "bucket",
    "bucket_groups",
]
EVERY_INDEX = pytest.mark.parametrize("index", INDEXES)
EVERY_TYPE = pytest.mark.parametrize("kind", ["cow", "mor"])


def counts(result: object) -> list[int]:
    return [getattr(result, name) for name in ("rows", "inserted", "updated", "deleted", "unchanged", "combined")]


@EVERY_TYPE
@EVERY_INDEX
@pytest.mark.parametrize("ordering", ["ts", None])
def test_an_upsert_counts_combined_rows(make: Make, kind: str, index: str, ordering: str | None) -> None:
    table = make(type=kind, index=index, ordering=ordering)
    first = table.upsert(rows((1, "a", "x", 1), (1, "a", "y", 2), (1, "a", "z", 3), (2, "b", "x", 1)))
    assert counts(first) == [4, 2, 0, 0, 0, 2]
    assert "2 combined with others of their key" in str(first)
    second = table.upsert(rows((1, "a", "v", 4), (1, "a", "w", 5), (3, "b", "x", 1)))
    looks_up = (index, kind) != ("bucket", "mor")  # else an upsert appends to the logs of a bucket
    assert counts(second) == ([3, 1, 1, 0, 0, 1] if looks_up else [3, None, None, 0, 0, 1])
    assert content(table) == [(1, "a", "w", 5), (2, "b", "x", 1), (3, "b", "x", 1)]
    assert "combined" not in str(table.upsert(rows((4, "a", "x", 1))))


@pytest.mark.parametrize("index", ["global_simple", "global_bloom", "record"])
@EVERY_TYPE
def test_rows_that_move_are_counted_once(make: Make, kind: str, index: str) -> None:
    moves = {f"hoodie.{name}.index.update.partition.path": True for name in ("record", "simple", "bloom")}
    table = make(type=kind, index=index, properties=moves)
    table.upsert(rows((1, "a", "x", 1), (2, "a", "x", 1)))
    result = table.upsert(rows((1, "b", "y", 2), (1, "b", "z", 3), (2, "a", "y", 2)), options=moves)
    assert result.combined == 1
    assert content(table) == [(1, "b", "z", 3), (2, "a", "y", 2)]


@EVERY_TYPE
@pytest.mark.parametrize("index", ["simple", "record", "bucket"])
@pytest.mark.parametrize("verb", ["insert", "bulk_insert", "insert_overwrite"])
def test_inserts_that_combine_count_them(make: Make, kind: str, index: str, verb: str) -> None:
    table = make(type=kind, index=index)
    options = {"hoodie.combine.before.insert": True}
    result = getattr(table, verb)(rows((1, "a", "x", 1), (1, "a", "y", 2), (2, "b", "x", 1)), options=options)
    assert [result.rows, result.inserted, result.combined] == [3, 2, 1]
    assert content(table) == [(1, "a", "y", 2), (2, "b", "x", 1)]


@EVERY_TYPE
@EVERY_INDEX
def test_keys_that_are_deleted_twice_count_once(make: Make, kind: str, index: str) -> None:
    table = make(type=kind, index=index)
    table.upsert(rows((1, "a", "x", 1), (2, "b", "x", 1)))
    result = table.delete(rows((1, "a", "x", 1), (1, "a", "y", 1)))
    assert [result.deleted, result.unchanged, result.combined] == [1, 0, 1]
    assert content(table) == [(2, "b", "x", 1)]
