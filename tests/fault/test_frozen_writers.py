"""A writer that stood still while another one rolled it back and went on: it commits or it is gone, never both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict, InvalidOption, InvalidRecord
from lakebed.metadata.lookups import open_snapshot
from lakebed.properties.file import PROPERTIES_PATH, load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed, Mutation, crash_at
from support.crash_tables import OPTIONS, copied, leftovers, prepared, put, rows, state
from support.frozen import FrozenWriter
from support.sampling import CRASH, todays_points

OURS = [(0, "c0", "ours", 9), (20, "c0", "ours", 9)]
THEIRS = [(1, "c1", "theirs", 9), (21, "c1", "theirs", 9)]
LATER = [(1, "c1", "later", 10), (0, "c0", "later", 10), (20, "c0", "later", 10)]
LAST = [(2, "c0", "last", 11)]
KINDS = [("simple", 9), ("record", 8), ("record", 6), ("bucket", 6), ("mor-bucket", 6), ("mor-record", 9)]
# the metadata table is compacted as the frozen writer begins
COMPACTS = OPTIONS | {"hoodie.metadata.compact.max.delta.commits": 1}
_INDEXING_PARTS = 12


def write(table: Table) -> Any:
    return table.upsert(rows(*OURS), options=COMPACTS)


@pytest.mark.parametrize(("index", "version"), KINDS)
def test_frozen_before_any_change_of_storage(index: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    files, old = prepared(index, version)
    ends = set[str]()
    with copied("memory", files) as uri, crash_at(0) as counted:
        write(lakebed.open(uri))
    last = len(counted.mutations)
    assert last > 19
    # before the first one it has published nothing, before the last three it has: a heartbeat may be one more or less
    for at in sorted({1, *todays_points(last - 1, 3, CRASH, index, version), last - 1}):
        with copied("memory", files) as uri, monkeypatch.context() as patch:
            frozen = FrozenWriter(uri, write, at, patch)
            assert frozen.freeze()
            try:
                frozen.time_is_over()
                expected = old
                try:
                    lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
                    theirs_stands = True
                except CommitConflict:
                    theirs_stands = False
                frozen.thaw()
                assert frozen.error is None or isinstance(frozen.error, CommitConflict), frozen.error
                if frozen.error is None:
                    expected = put(expected, *OURS)
                if theirs_stands:
                    expected = put(expected, *THEIRS)
                ends.add("raised" if frozen.error else "committed")
                assert state(uri) == expected
                lakebed.open(uri).upsert(rows(*LATER), options=OPTIONS)
                assert state(uri) == put(expected, *LATER)
                found = lakebed.open(uri).indexes.verify()
                assert found.ok, found
            except BaseException as error:
                error.add_note(
                    f"frozen before mutation {at}: {frozen.mutation}; it ended with {frozen.error!r}\n{frozen.crash}"
                )
                raise
    assert ends == {"raised", "committed"}


def is_publication(mutation: Mutation) -> bool:
    name = mutation.path.rpartition("/")[2]
    return name.endswith(".commit") and "metadata" not in mutation.path


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("meanwhile", ["nothing", "a commit that did not see it"])
def test_published_after_the_lock_was_lost(version: int, meanwhile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heartbeat goes on, so that nobody rolls it back: it stands where nobody committed in between."""
    files, old = prepared("simple", version)
    with copied("memory", files) as uri:
        frozen = FrozenWriter(uri, write, is_publication, monkeypatch)
        assert frozen.freeze()
        frozen.time_is_over(of_heartbeat=False)
        if meanwhile != "nothing":
            assert lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS).rolled_back == ()
            old = put(old, *THEIRS)
        frozen.thaw()
        if meanwhile == "nothing":
            assert frozen.error is None
            old = put(old, *OURS)
        else:
            assert isinstance(frozen.error, CommitConflict)
            assert "taken back" in str(frozen.error)
        assert state(uri) == old
        assert lakebed.open(uri).indexes.verify().ok
        assert leftovers(uri) == []


def test_a_frozen_commit_that_others_built_on_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instant is published, and read and followed by another writer, before this one finds its lock gone."""
    files, old = prepared("simple", 9)
    published: list[Mutation] = []
    with copied("memory", files) as uri:

        def at(mutation: Mutation) -> bool:
            if published and mutation.verb == "put_if_match":
                return True  # as it takes the lock again, to look
            published.extend([mutation] if is_publication(mutation) else [])
            if len(published) == 1 and mutation is published[0]:
                frozen.lose_lock()
            return False

        frozen = FrozenWriter(uri, write, at, monkeypatch)
        assert frozen.freeze()
        frozen.time_is_over(of_heartbeat=False)
        assert state(uri) == put(old, *OURS)
        lakebed.open(uri).upsert(rows(*LATER[1:]), options=OPTIONS)
        frozen.thaw()
        assert frozen.error is None
        assert state(uri) == put(old, *OURS, *LATER[1:])
        assert lakebed.open(uri).indexes.verify().ok


@pytest.mark.parametrize(("index", "version"), [("simple", 9), ("record", 8), ("record", 6)])
def test_a_delta_commit_of_a_rolled_back_writer_is_ignored(
    index: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not notice before the delta commit is complete, and dies; the next writer takes that off."""
    files, old = prepared(index, version)
    with copied("memory", files) as uri:
        requested = "deltacommit.requested"
        frozen = FrozenWriter(
            uri,
            write,
            lambda mutation: mutation.path.endswith(requested),
            monkeypatch,
            dies=lambda mutation: mutation.verb == "put_if_match",
        )
        assert frozen.freeze()
        frozen.time_is_over(is_noticed=False)
        (rolled_back,) = lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS).rolled_back
        frozen.thaw()
        assert isinstance(frozen.error, Killed)
        assert rolled_back in completed_in_metadata(uri)
        assert state(uri) == put(old, *THEIRS)
        found = lakebed.open(uri).indexes.verify()
        assert found.ok, found
        lakebed.open(uri).upsert(rows(*LATER), options=OPTIONS)
        assert rolled_back not in completed_in_metadata(uri)
        assert state(uri) == put(old, *THEIRS, *LATER)
        assert lakebed.open(uri).indexes.verify().ok


def completed_in_metadata(uri: str) -> set[str]:
    metadata = open_snapshot(open_storage(uri)).metadata
    assert metadata is not None
    return {instant.time for instant in metadata.slices.timeline.commits}


@pytest.mark.parametrize("version", [9, 6])
def test_a_writer_frozen_while_it_gives_up_leaves_the_rest_to_the_next_one(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, old = prepared("simple", version)

    def begins_to_undo(mutation: Mutation) -> bool:
        return mutation.path.endswith(".rollback.requested")

    with copied("memory", files) as uri:
        refused = OPTIONS | {"hoodie.datasource.insert.dup.policy": "fail"}
        frozen = FrozenWriter(
            uri, lambda table: table.insert(rows(*OURS), options=refused), begins_to_undo, monkeypatch
        )
        assert frozen.freeze()
        frozen.time_is_over()
        lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
        done = [(i.time, str(i.action)) for i in lakebed.open(uri).timeline if i.is_completed]
        frozen.thaw()
        assert isinstance(frozen.error, InvalidRecord)
        assert [(i.time, str(i.action)) for i in lakebed.open(uri).timeline if i.is_completed] == done
        assert state(uri) == put(old, *THEIRS)
        lakebed.open(uri).upsert(rows(*LATER), options=OPTIONS)
        assert state(uri) == put(put(old, *THEIRS), *LATER)
        assert leftovers(uri) == []


def _create_blooms(table: Table) -> None:
    table.indexes.create("bloom_filters")


def _create_values(table: Table) -> None:
    table.indexes.create("v")


def _build_blooms(table: Table) -> None:
    table.indexes.create("bloom_filters", wait=False)
    table.indexes.build()


def _drop_stats(table: Table) -> None:
    table.indexes.drop("column_stats")


def _create_again(table: Table) -> None:
    table.indexes.drop("column_stats")
    table.indexes.create("column_stats")


def _reshard(table: Table) -> None:
    table.indexes.reshard("record_index", 3)


def _repair(table: Table) -> None:
    table.indexes.repair()


INDEXING: list[tuple[Callable[[Table], None], str, int]] = [
    (_create_blooms, "record", 9),
    (_create_blooms, "mor-bucket", 6),
    (_create_values, "record", 9),
    (_create_values, "mor-record", 8),
    (_build_blooms, "record", 9),
    (_drop_stats, "simple", 8),
    (_create_again, "simple", 9),
    (_create_again, "simple", 6),
    (_reshard, "record", 9),
    (_reshard, "record", 6),
    (_repair, "record", 9),
]


def _prepared_for(action: Callable[[Table], None], uri: str) -> None:
    """Take off what the action makes; for a repair take a file away."""
    table = lakebed.open(uri)
    if action is _create_values:
        table.indexes.drop("v")
    if action in (_drop_stats, _create_again):
        with suppress(InvalidOption):  # it is there
            table.indexes.create("column_stats")
    if action is _repair:
        storage = open_storage(uri)
        gone = [info.path for info in storage.list(".hoodie/metadata/column_stats") if "col-stats-0000" in info.path]
        assert gone
        for path in gone:
            storage.delete(path)


@pytest.mark.parametrize("meanwhile", ["a write", "the same and a write"])
@pytest.mark.parametrize(("action", "index", "version"), INDEXING)
def test_frozen_while_it_changes_an_index(
    action: Callable[[Table], None], index: str, version: int, meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds its lock gone, changes nothing that others have made since, and leaves a table that is whole."""
    files, old = prepared(index, version)
    with copied("memory", files) as uri:
        _prepared_for(action, uri)
        with crash_at(0) as counted:
            action(lakebed.open(uri))
    last = len(counted.mutations)
    for at in todays_points(last, _INDEXING_PARTS, CRASH, action.__name__, index, version, meanwhile):
        with copied("memory", files) as uri, monkeypatch.context() as patch:
            _prepared_for(action, uri)
            frozen = FrozenWriter(uri, action, at, patch)
            assert frozen.freeze()
            try:
                frozen.time_is_over()
                if meanwhile != "a write":
                    with suppress(CommitConflict, InvalidOption):
                        action(lakebed.open(uri))
                if action is _repair:
                    lakebed.open(uri).indexes.repair()
                lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
                frozen.thaw()
                assert frozen.error is None or isinstance(frozen.error, CommitConflict | InvalidOption), frozen.error
                assert state(uri) == put(old, *THEIRS)
                lakebed.open(uri).upsert(rows(*LATER), options=COMPACTS)
                lakebed.open(uri).upsert(rows(*LAST), options=COMPACTS)
                assert state(uri) == put(old, *THEIRS, *LATER, *LAST)
                found = lakebed.open(uri).indexes.verify()
                assert found.ok, found
                for name in ("bloom_filters", "v") if action in (_create_blooms, _create_values, _build_blooms) else ():
                    with suppress(InvalidOption):
                        lakebed.open(uri).indexes.drop(name)
                assert lakebed.open(uri).indexes.verify().ok
            except BaseException as error:
                error.add_note(f"frozen before mutation {at}: {frozen.mutation}; {frozen.error!r}\n{frozen.crash}")
                raise


def _after_the_delta_commit(name: str) -> Callable[[Mutation], bool]:
    """Whether a mutation is one of the file of this name, once a delta commit of the metadata table is published."""
    published: list[str] = []

    def is_next(mutation: Mutation) -> bool:
        if mutation.path.startswith(".hoodie/metadata/.hoodie/") and mutation.path.endswith(".deltacommit"):
            published.append(mutation.path)
        return bool(published) and mutation.path.endswith(name)

    return is_next


@pytest.mark.parametrize("version", [9, 8])
def test_a_builder_that_stops_after_its_delta_commit_keeps_the_files_of_it(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers expect the files that a completed instant wrote: the metadata table would be damaged without them."""
    files, old = prepared("record", version)
    with copied("memory", files) as uri:
        _prepared_for(_build_blooms, uri)
        frozen = FrozenWriter(uri, _build_blooms, _after_the_delta_commit("hoodie.properties.backup"), monkeypatch)
        assert frozen.freeze()
        frozen.time_is_over()
        lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
        frozen.thaw()
        assert state(uri) == put(old, *THEIRS)
        lakebed.open(uri).upsert(rows(*LATER), options=COMPACTS)
        assert state(uri) == put(old, *THEIRS, *LATER)
        assert lakebed.open(uri).indexes.verify().ok


@pytest.mark.parametrize("version", [9, 8, 6])
def test_an_index_that_was_shown_as_complete_without_the_lock_is_taken_back(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its builder stops between its look at the lock and the request that names the index."""
    files, old = prepared("simple", version)
    is_next = _after_the_delta_commit("hoodie.properties")
    with copied("memory", files) as uri:
        with suppress(InvalidOption):  # the table has none
            lakebed.open(uri).indexes.drop("column_stats")
        frozen = FrozenWriter(uri, lambda table: table.indexes.create("column_stats"), is_next, monkeypatch)
        assert frozen.freeze()
        frozen.time_is_over()
        lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
        frozen.thaw()
        assert isinstance(frozen.error, CommitConflict), frozen.error
        assert "column_stats" not in load_table_config(open_storage(uri)).metadata_partitions
        assert state(uri) == put(old, *THEIRS)
        lakebed.open(uri).indexes.create("column_stats")
        lakebed.open(uri).upsert(rows(*LATER), options=COMPACTS)
        assert state(uri) == put(old, *THEIRS, *LATER)
        assert lakebed.open(uri).indexes.verify().ok


def _configure(table: Table) -> Any:
    return table.configure({"hoodie.clean.commits.retained": 7})


@pytest.mark.parametrize("change", [_create_blooms, _configure])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_settings_that_stood_still_replace_none_that_others_made_since(
    change: Callable[[Table], Any], version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also right before they would replace the file, when the writer has looked for its lock."""
    files, old = prepared("simple", version)
    with copied("memory", files) as uri:
        frozen = FrozenWriter(uri, change, lambda m: m.path == PROPERTIES_PATH, monkeypatch)
        assert frozen.freeze()
        frozen.time_is_over()
        lakebed.open(uri).configure({"hoodie.clean.fileversions.retained": 4})
        index = "record_index" if version == 9 else "column_stats"
        lakebed.open(uri).indexes.create(index)
        frozen.thaw()
        assert isinstance(frozen.error, CommitConflict)
        properties = lakebed.open(uri).properties
        assert properties["lakebed.clean.fileversions.retained"] == "4"
        assert "lakebed.clean.commits.retained" not in properties
        assert {index, "files"} <= {*properties["hoodie.table.metadata.partitions"].split(",")}
        lakebed.open(uri).upsert(rows(*LATER), options=OPTIONS)
        assert state(uri) == put(old, *LATER)
        assert lakebed.open(uri).indexes.verify().ok
