"""A write that was published after its lock was lost is taken back: what others made of it meanwhile stays whole."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.model import Action
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Mutation
from support.crash_tables import OPTIONS, Model, copied, leftovers, prepared, put, rows, state
from support.frozen import FrozenWriter

OURS = [(0, "c0", "ours", 9), (20, "c0", "ours", 9)]
THEIRS = [(1, "c1", "theirs", 9)]
LATER = [(2, "c0", "later", 10), (20, "c0", "later", 10)]


def write(table: Table) -> Any:
    return table.upsert(rows(*OURS), options=OPTIONS)


def is_publication(mutation: Mutation) -> bool:
    return mutation.path.endswith((".commit", ".deltacommit")) and "metadata" not in mutation.path


def published(uri: str, patch: pytest.MonkeyPatch) -> FrozenWriter:
    """A writer of `OURS` that stands still behind its publication, before it takes the lock again to look."""
    seen: list[Mutation] = []

    def at(mutation: Mutation) -> bool:
        if seen:
            return mutation.verb == "put_if_match"
        if is_publication(mutation):
            seen.append(mutation)
            frozen.lose_lock()
        return False

    frozen = FrozenWriter(uri, write, at, patch)
    assert frozen.freeze()
    frozen.time_is_over(of_heartbeat=False)
    return frozen


def thawed(uri: str, frozen: FrozenWriter, old: Model, *theirs: tuple[int, str, str, int], stands: bool) -> None:
    frozen.thaw()
    assert isinstance(frozen.error, CommitConflict) is not stands, frozen.error
    expected = put(put(old, *OURS) if stands else old, *theirs)
    assert state(uri) == expected
    assert lakebed.open(uri).indexes.verify().ok
    lakebed.open(uri).upsert(rows(*LATER), options=OPTIONS)
    assert state(uri) == put(expected, *LATER)
    assert leftovers(uri) == []


@pytest.mark.parametrize(
    ("index", "version"),
    [("simple", 9), ("record", 8), ("simple", 6), ("mor-bucket", 9), ("mor-bucket", 6), ("mor-simple", 6)],
)
def test_a_write_that_began_on_it_is_a_conflict(index: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    files, old = prepared(index, version)
    with copied("memory", files) as uri:
        first = published(uri, monkeypatch)
        second = FrozenWriter(
            uri,
            lambda table: table.upsert(rows(*LATER), options=OPTIONS),
            lambda mutation: mutation.path.startswith(".hoodie/.temp/") and mutation.verb != "delete",
            monkeypatch,
        )
        assert second.freeze()
        lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
        first.thaw()
        assert isinstance(first.error, CommitConflict)
        second.thaw()
        assert isinstance(second.error, CommitConflict)
        assert "which was there when this began, was taken back" in str(second.error)
        assert state(uri) == put(old, *THEIRS)
        assert lakebed.open(uri).indexes.verify().ok
        lakebed.open(uri).upsert(rows(*LATER), options=OPTIONS)
        assert state(uri) == put(old, *THEIRS, *LATER)


@pytest.mark.parametrize("version", [9, 8, 6])
def test_rows_logged_by_a_commit_taken_back_are_never_read(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before version 8 its blocks are in files of others. Its markers do not tell: the next writer swept them."""
    files, old = prepared("mor-bucket", version)
    with copied("memory", files) as uri:
        frozen = published(uri, monkeypatch)
        lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
        thawed(uri, frozen, old, *THEIRS, stands=False)
        lakebed.open(uri).maintenance.compact(options=OPTIONS)
        assert state(uri) == put(old, *THEIRS, *LATER)


@pytest.mark.parametrize(
    ("index", "version"), [*product(("simple", "record"), (9, 8, 6)), ("mor-bucket", 9), ("mor-bucket", 8)]
)
def test_records_of_a_commit_taken_back_leave_a_compacted_metadata_table(
    index: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its files, which are deleted, count as those of an archived commit once the timeline begins after it."""
    files, old = prepared(index, version)
    options = {**OPTIONS, "hoodie.metadata.compact.max.delta.commits": 1, "hoodie.compact.inline": False}
    with copied("memory", files) as uri:
        frozen = published(uri, monkeypatch)
        theirs = [(1, "c1", f"theirs {n}", 9 + n) for n in range(3)]
        for row in theirs:
            lakebed.open(uri).upsert(rows(row), options=options)
        assert any(i.action is Action.COMMIT for i in lakebed.open(uri).timeline.metadata_table)
        thawed(uri, frozen, old, *theirs, stands=False)
        for n in range(6):
            lakebed.open(uri).upsert(rows((1, "c1", "last", 20 + n)), options=options)
        lakebed.open(uri).maintenance.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
        expected = put(old, *LATER, (1, "c1", "last", 25))
        assert state(uri) == expected
        assert sorted(lakebed.open(uri).get(sorted(expected))["id"].to_pylist()) == sorted(expected)
        assert lakebed.open(uri).indexes.verify().ok


def compacts(table: Table) -> None:
    assert table.maintenance.compact(plan_only=True, options=OPTIONS).plan is not None


def clusters(table: Table) -> None:
    assert table.maintenance.cluster(["v"], options=OPTIONS).runs


def cleans(table: Table) -> None:
    table.upsert(rows(*THEIRS), options=OPTIONS)
    assert table.maintenance.clean(options=OPTIONS | {"hoodie.clean.commits.retained": 1}).files


@pytest.mark.parametrize(
    ("index", "version", "does"),
    [
        ("mor-bucket", 9, compacts),
        ("mor-bucket", 8, compacts),
        ("mor-bucket", 6, compacts),
        ("simple", 9, clusters),
        ("record", 6, clusters),
        ("mor-record", 8, clusters),
        ("simple", 9, cleans),
        ("record", 8, cleans),
        ("simple", 6, cleans),
    ],
)
def test_a_commit_stays_where_a_service_was_built_on_it(
    index: str, version: int, does: Callable[[Table], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction merges its log files, a clustering has its rows elsewhere, a clean took what it superseded: without
    it rows would be lost."""
    files, old = prepared(index, version)
    with copied("memory", files) as uri:
        frozen = published(uri, monkeypatch)
        does(lakebed.open(uri))
        lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
        thawed(uri, frozen, old, *THEIRS, stands=True)
        if index.startswith("mor-"):
            lakebed.open(uri).maintenance.compact(options=OPTIONS)
        assert state(uri) == put(old, *OURS, *THEIRS, *LATER)


@pytest.mark.parametrize("version", [9, 8])
def test_changes_are_read_on_from_a_compaction(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction completed while the writer stood still with its completion time taken: it would come before it."""
    files, old = prepared("mor-bucket", version)
    with copied("memory", files) as uri:
        planned = lakebed.open(uri).maintenance.compact(plan_only=True, options=OPTIONS)
        frozen = FrozenWriter(uri, write, is_publication, monkeypatch)
        assert frozen.freeze()
        frozen.time_is_over(of_heartbeat=False)
        assert lakebed.open(uri).maintenance.compact(options=OPTIONS).instants == (planned.planned,)
        checkpoint = lakebed.open(uri).changes("000").end
        frozen.thaw()
        assert isinstance(frozen.error, CommitConflict)
        assert state(uri) == old
        lakebed.open(uri).upsert(rows(*OURS), options=OPTIONS)
        assert lakebed.open(uri).changes(checkpoint).to_arrow()["id"].to_pylist() == [0, 20]
        assert state(uri) == put(old, *OURS)
        assert lakebed.open(uri).indexes.verify().ok


@pytest.mark.parametrize(("index", "version"), [("simple", 9), ("simple", 6), ("mor-bucket", 9), ("mor-bucket", 8)])
def test_a_writer_that_dies_as_it_takes_back_what_was_rolled_back_leaves_that_to_the_next_one(
    index: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are gone since the first rollback. Its own one must not be taken for one that deleted nothing."""
    files, old = prepared(index, version)
    with copied("memory", files) as uri:
        frozen = FrozenWriter(
            uri,
            write,
            is_publication,
            monkeypatch,
            dies=lambda mutation: mutation.verb == "delete" and is_publication(mutation),
        )
        assert frozen.freeze()
        frozen.time_is_over()
        lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
        frozen.thaw()
        assert frozen.error is not None
        frozen.time_is_over()
        lakebed.open(uri).upsert(rows(*LATER), options=OPTIONS)
        assert state(uri) == put(old, *THEIRS, *LATER)
        assert lakebed.open(uri).indexes.verify().ok
        assert leftovers(uri) == []


@pytest.mark.parametrize(
    ("index", "version"),
    [("simple", 9), ("record", 8), ("simple", 6), ("mor-bucket", 9), ("mor-bucket", 6), ("mor-record", 8)],
)
def test_what_was_published_after_its_rollback_is_never_read(
    index: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollback has deleted its files. Its writer dies before it can look, so that the commit stays."""
    files, old = prepared(index, version)
    with copied("memory", files) as uri:
        frozen = FrozenWriter(uri, write, is_publication, monkeypatch, dies=lambda mutation: True)
        assert frozen.freeze()
        frozen.time_is_over()
        lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
        start = lakebed.open(uri).changes("000").end
        expected = put(old, *THEIRS)
        frozen.thaw()
        assert frozen.error is not None
        assert frozen.mutation is not None
        storage = open_storage(uri)
        assert storage.head(frozen.mutation.path) is not None
        table = lakebed.open(uri)
        assert state(uri) == expected
        assert table.count() == len(expected)
        assert sorted(table.get(sorted(expected))["id"].to_pylist()) == sorted(expected)
        assert table.changes(start).to_arrow().num_rows == 0
        assert sum(batch.num_rows for batch in table.scan(as_of=start)) == len(expected)
        frozen.time_is_over()
        lakebed.open(uri).upsert(rows(*LATER), options=OPTIONS)
        assert storage.head(frozen.mutation.path) is None
        assert state(uri) == put(expected, *LATER)
        assert lakebed.open(uri).indexes.verify().ok
        assert leftovers(uri) == []
