from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.concurrency import process_queue
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption
from lakebed.services.undo_newest import undo
from lakebed.testing import Mutation, crash_at

KINDS = ["cow", "mor"]


def rows_of(table: lakebed.Table) -> dict[int, int]:
    return {row["id"]: row["n"] for row in table.scan().to_arrow().to_pylist()}


def written_table(place: Path, kind: Any, version: int = 9) -> lakebed.Table:
    table = lakebed.create(str(place / "t"), {"id": [1], "n": [1]}, key="id", type=kind, table_version=version)
    table.upsert({"id": [1, 2], "n": [1, 1]})
    return table


WRITES: dict[str, Callable[[lakebed.Table], object]] = {
    "upsert": lambda t: t.upsert({"id": [2, 3], "n": [2, 2]}, message="oops"),
    "merge": lambda t: t.merge({"id": [1], "n": [9]}).when_matched_update().execute(message="oops"),
    "update": lambda t: t.update({"n": "7"}, message="oops"),
    "delete": lambda t: t.delete([1], message="oops"),
    "insert_overwrite_table": lambda t: t.insert_overwrite({"id": [5], "n": [5]}, "table", message="oops"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", WRITES)
def test_undo_takes_the_newest_write_back_and_says_which(tmp_path: Path, kind: Any, verb: str) -> None:
    table = written_table(tmp_path, kind)
    before = rows_of(table)
    WRITES[verb](table)
    after = rows_of(table)
    assert after != before
    planned = table.undo(dry_run=True)
    assert rows_of(table) == after
    assert planned.instant is None
    assert f"{verb} {planned.undone} (" in str(planned)
    assert "'oops') would be undone" in str(planned)
    done = table.undo()
    assert done.instant
    assert (done.undone, done.operation, done.message) == (planned.undone, verb, "oops")
    assert rows_of(table) == before
    assert [version.operation for version in table.versions] == ["upsert"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [6, 8, 9])
def test_services_after_the_write_are_taken_back_with_it(tmp_path: Path, kind: Any, version: int) -> None:
    table = written_table(tmp_path, kind, version)
    before = rows_of(table)
    written = table.upsert({"id": [2, 3], "n": [2, 2]})
    table.maintenance.compact() if kind == "mor" else table.maintenance.cluster()
    done = table.undo()
    assert done.undone == written.instant
    assert rows_of(table) == before
    table.upsert({"id": [3], "n": [4]})
    assert rows_of(table) == before | {3: 4}


def test_each_undo_goes_one_write_back_to_the_empty_table(tmp_path: Path) -> None:
    table = written_table(tmp_path, "cow")
    table.upsert({"id": [3], "n": [3]})
    table.undo()
    table.undo()
    assert rows_of(table) == {}
    with pytest.raises(InvalidOption, match="there is no write to undo"):
        table.undo()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_write_with_services_after_it_cannot_be_undone(tmp_path: Path, kind: Any) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1], "n": [1]}, key="id", type=kind)
    table.upsert({"id": [1], "n": [1]})
    table.maintenance.cluster(sort_columns=["n"])
    with pytest.raises(InvalidOption, match="it is the table's first, and services have run since"):
        table.undo()
    assert rows_of(table) == {1: 1}


def test_a_write_with_a_savepoint_is_not_undone(tmp_path: Path) -> None:
    table = written_table(tmp_path, "cow")
    table.savepoints.create(name="kept")
    for dry_run in (True, False):
        with pytest.raises(InvalidOption, match="savepoint"):
            table.undo(dry_run=dry_run)
    assert rows_of(table) == {1: 1, 2: 1}


def test_the_result_is_for_programs_too(tmp_path: Path) -> None:
    table = written_table(tmp_path, "cow")
    table.upsert({"id": [2, 3], "n": [2, 2]})
    done = table.undo().to_dict()
    assert (done["operation"], done["inserted"], done["updated"], done["deleted"]) == ("upsert", 1, 1, 0)
    assert done["by"]["rolled_back"] == done["undone"]


def raced_undo(table: lakebed.Table, other: Callable[[lakebed.Table], object]) -> object:
    """An undo between whose look at the newest write and whose lock another process acts."""
    acted: list[bool] = []

    def act(_: Mutation) -> bool:
        if not acted:
            acted.append(True)
            queues = dict(process_queue._queues)
            process_queue._queues.clear()  # this thread waits for the lock, and acts as another process
            other(lakebed.open(table.uri))
            process_queue._queues.update(queues)
        return False

    with crash_at(act):
        opened = lakebed.open(table.uri)
    return opened.undo()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("serves", [False, True])
def test_the_undo_that_comes_second_says_that_another_took_the_write_back(
    tmp_path: Path, kind: Any, serves: bool
) -> None:
    table = written_table(tmp_path, kind)
    before = rows_of(table)
    written = table.upsert({"id": [2, 3], "n": [2, 2]})
    if serves:
        table.maintenance.compact() if kind == "mor" else table.maintenance.cluster()
    with pytest.raises(CommitConflict, match=f"the write {written.instant} was taken back by another undo") as caught:
        raced_undo(table, lakebed.Table.undo)
    assert caught.value.kind is ConflictKind.TAKEN_BACK
    assert rows_of(lakebed.open(table.uri)) == before


def test_an_undo_that_has_not_read_the_write_yet_says_so_too(tmp_path: Path) -> None:
    table = written_table(tmp_path, "cow")
    before = rows_of(table)
    table.upsert({"id": [2, 3], "n": [2, 2]})
    context = table.opened.context(None, None, "rollback")  # with the timeline as it is now
    lakebed.open(table.uri).undo()
    with pytest.raises(CommitConflict, match=r"a commit \(.*\) was taken back by another undo"):
        undo(lambda: context)
    assert rows_of(lakebed.open(table.uri)) == before


@pytest.mark.parametrize("serves", [False, True])
def test_a_write_that_comes_between_is_not_taken_back(tmp_path: Path, serves: bool) -> None:
    table = written_table(tmp_path, "cow")
    table.upsert({"id": [2, 3], "n": [2, 2]})
    if serves:
        table.maintenance.cluster()
    with pytest.raises(CommitConflict, match="another writer committed"):
        raced_undo(table, lambda other: other.upsert({"id": [4], "n": [4]}))
    assert rows_of(lakebed.open(table.uri)) == {1: 1, 2: 2, 3: 2, 4: 4}
