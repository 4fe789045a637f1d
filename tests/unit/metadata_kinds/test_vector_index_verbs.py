"""Searches by a vector index after verbs and services that are about the table as a whole."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine

import lakebed
from lakebed.errors import SchemaConflict
from support.vector_tables import (
    EVERY_CLUSTER,
    INDEX,
    QUERY,
    by_id,
    check_search,
    index_plan,
    indexed_table,
    nearest,
    stored_index,
    vector_rows,
)


def vectors_of(table: lakebed.Table, **options: Any) -> dict[str, int]:
    """The ordering value of each row that a search by the index finds, by its key."""
    return {row["id"]: row["ts"] for row in nearest(table, **EVERY_CLUSTER, **options)}


def with_vectors(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {row["id"]: row["ts"] for row in rows if row["emb"] is not None}


START = with_vectors(vector_rows(range(40)))


@pytest.mark.every_case
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_expired_partitions_are_not_found(kind: str) -> None:
    with time_machine.travel(datetime(2026, 11, 1, 12, tzinfo=UTC), tick=True):
        table = indexed_table(kind)
    with time_machine.travel(datetime(2026, 11, 5, 12, tzinfo=UTC), tick=True):
        table.upsert(vector_rows(range(42, 52, 2), ts=2))
    with time_machine.travel(datetime(2026, 11, 7, 12, tzinfo=UTC), tick=True):
        assert table.maintenance.expire_partitions(5).paths.keys() == {"p1"}
        check_search(table)
        assert {key[-1] in "02468" for key in vectors_of(table)} == {True}
        table.upsert(vector_rows(range(1, 3), ts=3))
        check_search(table)
        assert vectors_of(table)["k001"] == 3
        assert table.indexes.verify(INDEX).ok


@pytest.mark.every_case
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_deleted_and_overwritten_partitions_are_not_found(kind: str) -> None:
    table = indexed_table(kind)
    before = table.delete(["k002", "k003", "unknown"]).instant
    even = {key: ts for key, ts in START.items() if key[-1] in "02468" and key != "k002"}
    table.delete_partitions(["p1"])
    check_search(table)
    assert vectors_of(table) == even
    table.insert_overwrite(vector_rows(range(100, 110, 2), ts=2))
    check_search(table)
    assert vectors_of(table) == with_vectors(vector_rows(range(100, 110, 2), ts=2))
    check_search(table, as_of=before)
    assert vectors_of(table, as_of=before) == {k: ts for k, ts in START.items() if k not in ("k002", "k003")}
    assert table.indexes.verify(INDEX).ok


@pytest.mark.every_case
@pytest.mark.parametrize("index", ["simple", "bucket", "record"])
def test_deleted_keys_are_dirty_where_the_index_of_writes_tells_them(index: str) -> None:
    given: dict[str, Any] = {"buckets": 1} if index == "bucket" else {}
    table = indexed_table("mor", index=index, **given)
    table.delete(["k001", "k002"])
    check_search(table)
    table.upsert(vector_rows(range(1, 2), ts=3))
    check_search(table)
    table.delete(["k001"])
    assert vectors_of(table) == {key: ts for key, ts in START.items() if key not in ("k001", "k002")}
    assert table.indexes.verify(INDEX).ok
    # a search that reads few rows looks on where the nearest entries are of deleted rows
    assert [row["id"] for row in nearest(table, 1, probes=1, rerank=1)] == [nearest(table, 1, exact=True)[0]["id"]]


def test_upserts_that_are_joined_in_one_commit_are_all_found() -> None:
    table = indexed_table("mor", index="bucket", buckets=1)
    barrier, results = threading.Barrier(8), list[lakebed.WriteResult]()

    def write(number: int) -> None:
        writer, rows = lakebed.open(table.uri), vector_rows(range(100 + number * 5, 105 + number * 5), ts=2)
        barrier.wait()
        results.append(writer.upsert(rows))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(result.joined for result in results) > 1
    check_search(table)
    assert vectors_of(table) == START | with_vectors(vector_rows(range(100, 140), ts=2))
    assert table.indexes.verify(INDEX).ok


def test_rows_of_a_stage_are_found_once_it_is_committed() -> None:
    table = indexed_table("mor")
    with table.stage() as staged:
        staged.upsert([{"id": "k001", "emb": QUERY, "name": "near", "ts": 3, "part": "p1"}])
        check_search(table)
        assert nearest(table, 1)[0]["ts"] == 1
        staged.commit()
    table = lakebed.open(table.uri)
    check_search(table)
    assert nearest(table, 1)[0]["id"] == "k001"
    with table.stage() as staged:  # it is never committed
        staged.upsert([{"id": "k003", "emb": QUERY, "name": "taken back", "ts": 4, "part": "p1"}])
    check_search(table)
    table.upsert(vector_rows(range(60, 62), ts=5))
    check_search(table)
    assert vectors_of(table)["k003"] == 1
    assert table.indexes.verify(INDEX).ok


@pytest.mark.every_case
@pytest.mark.parametrize("folds", [False, True])
def test_a_restore_to_a_savepoint_leaves_the_index_right(folds: bool) -> None:
    table = indexed_table("mor")
    saved = table.upsert(vector_rows(range(5), ts=2)).instant
    assert saved is not None
    table.savepoints.create(saved)
    table.upsert(vector_rows(range(50, 60), ts=3))
    table.delete(["k003"])
    if folds:
        list(table.maintenance.run(once=True, options={"hoodie.metadata.compact.max.delta.commits": 1}))
        assert stored_index(table).coder.shape.generation == 1
    table.restore(saved)
    table = lakebed.open(table.uri)
    check_search(table)
    assert vectors_of(table) == START | with_vectors(vector_rows(range(5), ts=2))
    table.upsert(vector_rows(range(70, 75), ts=4))
    check_search(table)
    assert table.indexes.verify(INDEX).ok


@pytest.mark.every_case
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_keeps_its_index_in_version_8_and_loses_it_in_version_6(kind: str) -> None:
    table = indexed_table(kind)
    table.upsert(vector_rows(range(5), ts=2))
    table.maintenance.downgrade(8)
    table = lakebed.open(table.uri)
    check_search(table)
    table.upsert(vector_rows(range(50, 60), ts=3))
    check_search(table)
    assert table.indexes.verify(INDEX).ok
    table.maintenance.upgrade(9)
    table = lakebed.open(table.uri)
    check_search(table)
    assert table.indexes.verify(INDEX).ok
    table.maintenance.downgrade(6)
    table = lakebed.open(table.uri)
    assert INDEX not in {index.name for index in table.indexes.list()}
    assert INDEX not in index_plan(table)
    assert by_id(nearest(table)) == by_id(nearest(table, exact=True))
    table.upsert(vector_rows(range(60, 63), ts=4))
    table.maintenance.upgrade(9)
    table = lakebed.open(table.uri)
    table.upsert(vector_rows(range(63, 65), ts=5))
    assert vectors_of(table)["k063"] == 5
    table.indexes.create("vector", column="emb", metric="l2")
    check_search(table)


def test_settings_and_other_columns_change_without_the_index() -> None:
    table = indexed_table("mor")
    table.configure({"hoodie.metadata.compact.max.delta.commits": 3, "hoodie.compact.inline": True})
    for turn in range(4):
        table.upsert(vector_rows(range(turn, turn + 10), ts=turn + 2))
        check_search(table)
    table.columns.add("lang", "string")
    check_search(table)
    table.columns.rename("name", "title")
    check_search(table)
    table.upsert([{"id": "k001", "emb": QUERY, "title": "t", "lang": "de", "ts": 9, "part": "p1"}])
    check_search(table)
    found = table.search(QUERY, 1, metric="l2", columns=["id", "title", "lang"]).to_arrow().to_pylist()
    assert [(row["id"], row["title"], row["lang"]) for row in found] == [("k001", "t", "de")]
    table.columns.drop("lang")
    check_search(table)
    for change in (lambda: table.columns.rename("emb", "other"), lambda: table.columns.drop("emb")):
        with pytest.raises(SchemaConflict, match=INDEX):
            change()
    table.indexes.drop("emb")
    table.columns.rename("emb", "other")
    table.indexes.create("vector", column="other", metric="l2")
    found = table.search(QUERY, 1, metric="l2", columns=["id"])
    assert "vector_index_other: " in str(found.explain())
    assert found.to_arrow()["id"].to_pylist() == ["k001"]
    assert table.indexes.verify("vector_index_other").ok
