"""Reads of the past beside a clean that has deleted files and is not completed: its process stands still or was killed.
The metadata table still lists the files; without it, what is left of a file slice is listed."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.model import State
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed, Mutation, crash_at
from support.crash_tables import rows

QUIET: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.table.cdc.enabled": True,
}
RETAINED = {"hoodie.clean.commits.retained": 1, "lakebed.write.tasks": 1}
AT_ONCE = {"hoodie.compact.inline.max.delta.commits": 1}
KINDS = list(itertools.product((9, 8, 6), ("cow", "mor"), (True, False)))
_numbers = itertools.count()


def new_table(version: int, kind: str, *, metadata: bool) -> tuple[Table, str, str]:
    """A table of one file group a city that was written often; the checkpoints of its first and its third commit."""
    table = lakebed.create(
        f"memory://half-cleaned/t{next(_numbers)}",
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,  # pyright: ignore[reportArgumentType]
        index="bucket",
        buckets=1,
        table_version=version,
        properties={**QUIET, "hoodie.metadata.enable": metadata},
    )
    checkpoints: list[str] = []
    for n in range(3):
        table.upsert(rows((0, "c0", f"v{n}", n), (n + 1, "c0", f"w{n}", n), (n + 1, "c1", f"x{n}", n)))
        checkpoints.append(lakebed.open(table.uri).changes("000").end)
    for n in range(3, 5):
        if kind == "mor":
            table.maintenance.compact(options=AT_ONCE)
        table.upsert(rows((0, "c0", f"v{n}", n)))
    return table, checkpoints[0], checkpoints[2]


def cut_off(table: Table, *, after: int) -> None:
    """Clean, and be killed behind so many deletions of data files."""
    deleted: list[str] = []

    def is_next(mutation: Mutation) -> bool:
        if not deleted and mutation.verb != "delete":
            return False
        if mutation.verb == "delete" and not mutation.path.startswith(".hoodie"):
            deleted.append(mutation.path)
            return len(deleted) > after
        return True

    with suppress(Killed), crash_at(is_next):
        lakebed.open(table.uri).maintenance.clean(options=RETAINED)
    assert deleted
    assert any(not i.is_completed for i in table.timeline)


def visible_rows(found: Any) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in found.to_arrow().to_pylist())


WHOLE = [(0, "v2"), (2, "w1"), (2, "x1"), (3, "w2"), (3, "x2")]
LATEST = [(2, "w1"), (2, "x1"), (3, "w2"), (3, "x2")]


@pytest.mark.parametrize("after", [1, 100])
@pytest.mark.parametrize(("version", "kind", "metadata"), KINDS)
def test_changes_of_a_range_that_is_being_cleaned_are_those_that_the_table_still_shows(
    version: int, kind: str, metadata: bool, after: int
) -> None:
    table, first, third = new_table(version, kind, metadata=metadata)
    assert visible_rows(table.changes(first, third)) == WHOLE
    early = table.changes(first, third)
    cut_off(table, after=after)
    assert visible_rows(lakebed.open(table.uri).changes(first, third)) == LATEST
    # by a timeline from before the clean the range is whole as long as its own files are there
    assert visible_rows(early) in ([LATEST] if after > 1 else [LATEST, WHOLE])
    lakebed.open(table.uri).maintenance.clean(options=RETAINED)
    assert visible_rows(lakebed.open(table.uri).changes(first, third)) == LATEST


@pytest.mark.parametrize("after", [1, 2, 100])
@pytest.mark.parametrize(("version", "kind", "metadata"), KINDS)
def test_change_data_of_rows_that_are_being_cleaned_is_refused(
    version: int, kind: str, metadata: bool, after: int
) -> None:
    """The rows that an overwrite deleted are in a base file and in log files: none of them are left out."""
    table, _, _ = new_table(version, kind, metadata=metadata)
    start = lakebed.open(table.uri).cdc("000").end
    table.insert_overwrite(rows((0, "c0", "new", 9)))
    end = lakebed.open(table.uri).cdc(start).end
    deleted = [row["before"]["id"] for row in table.cdc(start, end).to_arrow().to_pylist() if row["op"] == "d"]
    assert sorted(deleted) == [0, 1, 2, 3]
    table.upsert(rows((5, "c0", "later", 9)))
    cut_off(table, after=after)
    with pytest.raises(InvalidOption, match="are not known any more") as raised:
        lakebed.open(table.uri).cdc(start).to_arrow()
    last = raised.value.context["checkpoint"]
    assert [row["after"]["id"] for row in lakebed.open(table.uri).cdc(last).to_arrow().to_pylist()] == [5]


def deleted_partition(version: int, kind: str, *, metadata: bool) -> tuple[Table, str]:
    """A table with a savepoint whose partition c0 was written once more and then deleted; a start before that."""
    table, _, _ = new_table(version, kind, metadata=metadata)
    table.savepoints.create()
    if kind == "mor":
        table.maintenance.compact(options=AT_ONCE)
    table.upsert(rows((0, "c0", "newest", 8)))
    start = lakebed.open(table.uri).cdc("000").end
    table.delete_partitions(["c0"])
    for n in (10, 11):
        table.upsert(rows((2, "c1", "later", n)))
    return table, start


def changed_texts(table: Table, start: str) -> list[tuple[int, str | None, str | None]]:
    """The key of each change and its texts before and after."""
    changes = [(row["before"], row["after"]) for row in table.cdc(start).to_arrow().to_pylist()]
    texts = [((before or after)["id"], before and before["v"], after and after["v"]) for before, after in changes]
    return sorted(texts, key=str)


DELETED = [(0, "newest", None), (1, "w0", None), (2, "w1", None), (3, "w2", None)]
WRITTEN = [(2, "later", "later"), (2, "x1", "later")]


@pytest.mark.parametrize(("version", "kind", "metadata"), KINDS)
def test_change_data_has_no_older_rows_that_a_savepoint_retained(version: int, kind: str, metadata: bool) -> None:
    """Of the file group that was deleted the files of the savepoint are left, and not the newest ones."""
    table, start = deleted_partition(version, kind, metadata=metadata)
    assert changed_texts(lakebed.open(table.uri), start) == sorted([*DELETED, *WRITTEN], key=str)
    table.maintenance.clean(options=RETAINED)
    with pytest.raises(InvalidOption, match="are not known any more") as raised:
        lakebed.open(table.uri).cdc(start).to_arrow()
    later = changed_texts(lakebed.open(table.uri), raised.value.context["checkpoint"])
    assert later == WRITTEN


@pytest.mark.parametrize(("version", "kind", "metadata"), KINDS)
def test_change_data_by_a_timeline_from_before_a_clean_began_has_no_older_rows(
    version: int, kind: str, metadata: bool
) -> None:
    """Cleans delete the files of a group in any order: here the newest one first."""
    table, start = deleted_partition(version, kind, metadata=metadata)
    with suppress(Killed), crash_at(lambda mutation: mutation.path.endswith(".clean.inflight")):
        lakebed.open(table.uri).maintenance.clean(options=RETAINED)
    assert [i.state for i in lakebed.open(table.uri).timeline if not i.is_completed] == [State.REQUESTED]
    assert changed_texts(lakebed.open(table.uri), start) == sorted([*DELETED, *WRITTEN], key=str)
    timed = lakebed.open(table.uri).cdc(start)
    assert len(timed.range.commits) == 3
    storage = open_storage(table.uri)
    names = [info.path for info in storage.list("c0") if info.path.endswith(".parquet")]
    storage.delete(max(names, key=lambda name: name.rpartition("_")[2]))
    with pytest.raises(InvalidOption, match="are not known any more"):
        timed.to_arrow()
