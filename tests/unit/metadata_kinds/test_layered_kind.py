"""Searches by an index of vectors or of texts after verbs and services that are about the table as a whole."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine

import lakebed
from lakebed.errors import InvalidOption, SchemaConflict
from support.layered_tables import EACH, LayeredTables

pytestmark = pytest.mark.parametrize("tables", EACH, ids=str)


def test_a_second_index_for_the_same_searches_is_refused(tables: LayeredTables) -> None:
    table = tables.indexed("cow")
    options: dict[str, Any] = {"metric": "l2"} if tables.noun == "vector" else {}
    given: dict[str, Any] = {"column": tables.column, "kind": f"{tables.noun}_index", **options}
    for wait in (True, False):
        with pytest.raises(InvalidOption, match=f"{tables.index} is for searches of {tables.column}") as error:
            table.indexes.create("other", wait=wait, **given)
        assert f"t.indexes.drop('{tables.index}')" in str(error.value.hint)
    if options:  # searches for another metric do not use it
        table.indexes.create("other", column=tables.column, kind="vector_index", metric="cosine")
    table.indexes.drop(tables.index)
    plan = table.indexes.create("waiting", wait=False, **given)
    assert plan is not None
    with pytest.raises(InvalidOption, match="_waiting is for searches of"):
        table.indexes.create("third", **given)
    table.indexes.build()
    assert f"{tables.noun}_index_waiting: " in tables.plan(table)


@pytest.mark.every_case
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_expired_partitions_are_not_found(tables: LayeredTables, kind: str) -> None:
    with time_machine.travel(datetime(2026, 11, 1, 12, tzinfo=UTC), tick=True):
        table = tables.indexed(kind)
    with time_machine.travel(datetime(2026, 11, 5, 12, tzinfo=UTC), tick=True):
        table.upsert(tables.rows(range(42, 52, 2), ts=2))
    with time_machine.travel(datetime(2026, 11, 7, 12, tzinfo=UTC), tick=True):
        assert table.maintenance.expire_partitions(5).paths.keys() == {"p1"}
        tables.check(table)
        assert {key[-1] in "02468" for key in tables.found(table)} == {True}
        table.upsert(tables.rows(range(1, 3), ts=3))
        tables.check(table)
        assert tables.found(table)["k001"] == 3
        assert table.indexes.verify(tables.index).ok


@pytest.mark.every_case
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_deleted_and_overwritten_partitions_are_not_found(tables: LayeredTables, kind: str) -> None:
    table = tables.indexed(kind)
    before = table.delete(["k002", "k003", "unknown"]).instant
    even = {
        key: ts for key, ts in tables.with_value(tables.rows(range(40))).items() if key[-1] in "02468" and key != "k002"
    }
    table.delete_partitions(["p1"])
    tables.check(table)
    assert tables.found(table) == even
    table.insert_overwrite(tables.rows(range(100, 110, 2), ts=2))
    tables.check(table)
    assert tables.found(table) == tables.with_value(tables.rows(range(100, 110, 2), ts=2))
    tables.check(table, as_of=before)
    assert tables.found(table, as_of=before) == {
        k: ts for k, ts in tables.with_value(tables.rows(range(40))).items() if k not in ("k002", "k003")
    }
    assert table.indexes.verify(tables.index).ok


@pytest.mark.every_case
@pytest.mark.parametrize("index", ["simple", "bucket", "record"])
def test_deleted_keys_are_dirty_where_the_index_of_writes_tells_them(tables: LayeredTables, index: str) -> None:
    given: dict[str, Any] = {"buckets": 1} if index == "bucket" else {}
    table = tables.indexed("mor", index=index, **given)
    table.delete(["k001", "k002"])
    tables.check(table)
    table.upsert(tables.rows(range(1, 2), ts=3))
    tables.check(table)
    table.delete(["k001"])
    assert tables.found(table) == {
        key: ts for key, ts in tables.with_value(tables.rows(range(40))).items() if key not in ("k001", "k002")
    }
    assert table.indexes.verify(tables.index).ok
    # a search that reads few rows looks on where the nearest entries are of deleted rows
    assert [row["id"] for row in tables.answers(table, 1)] == [tables.answers(table, 1, exact=True)[0]["id"]]


def test_upserts_that_are_joined_in_one_commit_are_all_found(tables: LayeredTables) -> None:
    table = tables.indexed("mor", index="bucket", buckets=1)
    barrier, results = threading.Barrier(8), list[lakebed.WriteResult]()

    def write(number: int) -> None:
        writer, rows = lakebed.open(table.uri), tables.rows(range(100 + number * 5, 105 + number * 5), ts=2)
        barrier.wait()
        results.append(writer.upsert(rows))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(result.joined for result in results) > 1
    tables.check(table)
    assert tables.found(table) == tables.with_value(tables.rows(range(40))) | tables.with_value(
        tables.rows(range(100, 140), ts=2)
    )
    assert table.indexes.verify(tables.index).ok


def test_rows_of_a_stage_are_found_once_it_is_committed(tables: LayeredTables) -> None:
    table = tables.indexed("mor")
    with table.stage() as staged:
        staged.upsert([tables.best(1, 3)])
        tables.check(table)
        assert tables.answers(table, 1)[0]["ts"] == 1
        staged.commit()
    table = lakebed.open(table.uri)
    tables.check(table)
    assert tables.answers(table, 1)[0]["id"] == "k001"
    with table.stage() as staged:  # it is never committed
        staged.upsert([tables.best(3, 4)])
    tables.check(table)
    table.upsert(tables.rows(range(60, 62), ts=5))
    tables.check(table)
    assert tables.found(table)["k003"] == 1
    assert table.indexes.verify(tables.index).ok


@pytest.mark.every_case
@pytest.mark.parametrize("folds", [False, True])
def test_a_restore_to_a_savepoint_leaves_the_index_right(tables: LayeredTables, folds: bool) -> None:
    table = tables.indexed("mor")
    saved = table.upsert(tables.rows(range(5), ts=2)).instant
    assert saved is not None
    table.savepoints.create(saved)
    table.upsert(tables.rows(range(50, 60), ts=3))
    table.delete(["k003"])
    if folds:
        list(table.maintenance.run(once=True, options={"hoodie.metadata.compact.max.delta.commits": 1}))
        assert tables.layers(table) == []
    table.restore(saved)
    table = lakebed.open(table.uri)
    tables.check(table)
    assert tables.found(table) == tables.with_value(tables.rows(range(40))) | tables.with_value(
        tables.rows(range(5), ts=2)
    )
    table.upsert(tables.rows(range(70, 75), ts=4))
    tables.check(table)
    assert table.indexes.verify(tables.index).ok


@pytest.mark.every_case
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_keeps_its_index_in_version_8_and_loses_it_in_version_6(tables: LayeredTables, kind: str) -> None:
    table = tables.indexed(kind)
    table.upsert(tables.rows(range(5), ts=2))
    table.maintenance.downgrade(8)
    table = lakebed.open(table.uri)
    tables.check(table)
    table.upsert(tables.rows(range(50, 60), ts=3))
    tables.check(table)
    assert table.indexes.verify(tables.index).ok
    table.maintenance.upgrade(9)
    table = lakebed.open(table.uri)
    tables.check(table)
    assert table.indexes.verify(tables.index).ok
    table.maintenance.downgrade(6)
    table = lakebed.open(table.uri)
    assert tables.index not in {index.name for index in table.indexes.list()}
    assert tables.index not in tables.plan(table)
    assert tables.same(table)
    table.upsert(tables.rows(range(60, 63), ts=4))
    table.maintenance.upgrade(9)
    table = lakebed.open(table.uri)
    table.upsert(tables.rows(range(63, 65), ts=5))
    assert tables.found(table)["k063"] == 5
    tables.create(table)
    tables.check(table)


def test_settings_and_other_columns_change_without_the_index(tables: LayeredTables) -> None:
    table = tables.indexed("mor")
    table.configure({"hoodie.metadata.compact.max.delta.commits": 3, "hoodie.compact.inline": True})
    for turn in range(4):
        table.upsert(tables.rows(range(turn, turn + 10), ts=turn + 2))
        tables.check(table)
    table.columns.add("lang", "string")
    tables.check(table)
    table.columns.rename("name", "title")
    tables.check(table)
    changed = tables.best(1, 9)
    changed["title"] = changed.pop("name")
    table.upsert([{**changed, "lang": "de"}])
    tables.check(table)
    (row,) = tables.answers(table, 1, columns=["id", "title", "lang"])
    assert (row["id"], row["title"], row["lang"]) == ("k001", "n1", "de")
    table.columns.drop("lang")
    tables.check(table)
    column = tables.column
    for change in (lambda: table.columns.rename(column, "other"), lambda: table.columns.drop(column)):
        with pytest.raises(SchemaConflict, match=tables.index):
            change()
    table.indexes.drop(column)
    table.columns.rename(column, "other")
    tables.create(table, "other")
    renamed = tables.of_column("other")
    assert f"{renamed.index}: " in renamed.plan(table)
    assert renamed.answers(table, 1)[0]["id"] == "k001"
    assert table.indexes.verify(renamed.index).ok
