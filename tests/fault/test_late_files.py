"""Files that a process writes after it was taken for dead and the timeline went on without it, into the archive: no
timeline tells then that nobody committed them, so they must go before anybody reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed, Mutation
from support.crash_tables import OPTIONS, Model, copied, create, place, prepared, put, rows, state
from support.frozen import FrozenWriter

OURS = [(0, "c0", "ours", 5), (20, "c0", "ours", 5), (21, "c2", "ours", 5)]
LOGGED = [(3, "c1", "logged", 3), (4, "c0", "logged", 3)]
LAST = [(2, "c0", "last", 99), (20, "c0", "last", 99)]
_COMMITS = 8
_SHORT_RETENTION = {
    **OPTIONS,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
}


def cluster(table: Table) -> Any:
    return table.maintenance.cluster(["v"], options=OPTIONS)


def compact(table: Table) -> Any:
    return table.maintenance.compact(options=OPTIONS)


def upsert(table: Table) -> Any:
    return table.upsert(rows(*OURS), retries=0, options=OPTIONS)


def bulk_insert(table: Table) -> Any:
    return table.bulk_insert(rows(*OURS[1:]), retries=0, options=OPTIONS)


def is_marker(mutation: Mutation) -> bool:
    return "/.temp/" in mutation.path and ".marker." in mutation.path


def takes_lock(mutation: Mutation) -> bool:
    """As what has written its files is to be completed."""
    return "/.locks/" in mutation.path


def never(_: Mutation) -> bool:
    return False


def others_commit(uri: str, model: Model) -> Model:
    """Commits that touch what the frozen process works on, until the first ones are archived."""
    for n in range(_COMMITS):
        given = [(1, "c1", f"theirs{n}", 9 + n), (0, "c0", f"theirs{n}", 9 + n)]
        table = lakebed.open(uri)
        table.upsert(rows(*given), options=OPTIONS)
        if table.properties["hoodie.table.type"] == "MERGE_ON_READ" and n % 4 == 3:
            table.maintenance.compact(options=OPTIONS)
        table.maintenance.clean(options=_SHORT_RETENTION)
        table.maintenance.archive(options=_SHORT_RETENTION)
        model = put(model, *given)
    return model


def data_files(uri: str) -> set[str]:
    return {info.path for info in open_storage(uri).list() if not info.path.startswith(".hoodie/")}


def markers(uri: str) -> list[str]:
    return [info.path for info in open_storage(uri).list(".hoodie/.temp")]


@pytest.mark.rest
@pytest.mark.parametrize("dies", [never, takes_lock])
@pytest.mark.parametrize(
    ("call", "index", "version"),
    [
        (cluster, "simple", 9),
        (cluster, "record", 6),
        (cluster, "mor-simple", 8),
        (cluster, "mor-simple", 6),
        (upsert, "simple", 9),
        (upsert, "bloom", 6),
        (upsert, "mor-simple", 6),
        (upsert, "mor-bucket", 9),
        (upsert, "mor-bucket", 6),
        (bulk_insert, "record", 8),
        (bulk_insert, "mor-simple", 6),
    ],
)
def test_of_an_action_that_was_taken_off_before_the_archive_went_past_it(
    call: Callable[[Table], Any],
    index: str,
    version: int,
    dies: Callable[[Mutation], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it takes them away itself, or dies and the next writer does."""
    files, model = prepared(index, version)
    with copied("memory", files) as uri:
        frozen = FrozenWriter(uri, call, is_marker, monkeypatch, dies)
        assert frozen.freeze()
        frozen.time_is_over()
        model = others_commit(uri, model)
        before = data_files(uri)
        frozen.thaw()
        if dies is takes_lock:
            assert isinstance(frozen.error, Killed), frozen.error
            assert data_files(uri) > before
        elif frozen.error is None:  # it found a file that was cleaned, and began again
            model = put(model, *OURS[1:])  # the first one is older than what is there
            assert state(uri) == model
        else:
            assert isinstance(frozen.error, CommitConflict), frozen.error
            assert state(uri) == model
        lakebed.open(uri).upsert(rows(*LAST), options=OPTIONS)
        assert state(uri) == put(model, *LAST)
        assert lakebed.open(uri).indexes.verify().ok
        assert markers(uri) == []


@pytest.mark.parametrize("dies", [never, takes_lock])
@pytest.mark.parametrize("version", [9, 6])
def test_of_a_compaction_that_another_process_completed(
    version: int, dies: Callable[[Mutation], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file groups are clustered, cleaned and archived since: a file of them would be the only one."""
    files, model = prepared("mor-simple", version)
    with copied("memory", files) as uri:
        lakebed.open(uri).upsert(rows(*LOGGED), options=OPTIONS)
        model = put(model, *LOGGED)
        frozen = FrozenWriter(uri, compact, is_marker, monkeypatch, dies)
        assert frozen.freeze()
        frozen.time_is_over()
        assert lakebed.open(uri).maintenance.compact(options=OPTIONS).runs
        assert lakebed.open(uri).maintenance.cluster(["v"], options=OPTIONS).runs
        model = others_commit(uri, model)
        frozen.thaw()
        assert isinstance(frozen.error, Killed if dies is takes_lock else CommitConflict), frozen.error
        lakebed.open(uri).upsert(rows(*LAST), options=OPTIONS)
        assert state(uri) == put(model, *LAST)
        assert lakebed.open(uri).indexes.verify().ok
        assert markers(uri) == []


@pytest.mark.parametrize("dies", [never, takes_lock])
@pytest.mark.parametrize(("index", "version"), [("simple", 9), ("mor-bucket", 8), ("mor-bucket", 6)])
def test_of_what_would_have_been_the_first_commit(
    index: str, version: int, dies: Callable[[Mutation], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is archived, and the first commit that there is came later."""
    with place("memory") as uri:
        create(uri, index, version)
        frozen = FrozenWriter(uri, upsert, is_marker, monkeypatch, dies)
        assert frozen.freeze()
        frozen.time_is_over()
        lakebed.open(uri).upsert(rows(*LAST), options=OPTIONS)
        frozen.thaw()
        assert isinstance(frozen.error, Killed if dies is takes_lock else CommitConflict), frozen.error
        lakebed.open(uri).upsert(rows(LAST[0]), options=OPTIONS)
        assert state(uri) == put({}, *LAST)
        assert lakebed.open(uri).indexes.verify().ok
        assert markers(uri) == []


@pytest.mark.rest
@pytest.mark.parametrize(
    ("call", "index", "version"), [(upsert, "simple", 9), (upsert, "mor-simple", 6), (cluster, "simple", 8)]
)
def test_an_archived_publication_without_the_lock_stays(
    call: Callable[[Table], Any], index: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands still between its publication and its look whether that counts."""
    files, model = prepared(index, version)
    published: list[Mutation] = []
    with copied("memory", files) as uri:

        def at(mutation: Mutation) -> bool:
            if published:
                return takes_lock(mutation)
            name = mutation.path.rpartition("/")[2]
            if name.endswith((".commit", ".deltacommit", ".replacecommit")) and "metadata" not in mutation.path:
                published.append(mutation)
                frozen.lose_lock()
            return False

        frozen = FrozenWriter(uri, call, at, monkeypatch)
        assert frozen.freeze()
        frozen.time_is_over(is_noticed=False)
        if call is upsert:
            model = put(model, *OURS)
        assert state(uri) == model
        model = others_commit(uri, model)
        frozen.thaw()

        assert frozen.error is None, frozen.error
        assert state(uri) == model
        lakebed.open(uri).upsert(rows(*LAST), options=OPTIONS)
        assert state(uri) == put(model, *LAST)
        assert lakebed.open(uri).indexes.verify().ok
