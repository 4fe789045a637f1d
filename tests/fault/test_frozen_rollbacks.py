"""A process that stands still while it rolls back a writer that is not dead: the writer commits or it is rolled back,
and what it committed nobody deletes."""

from __future__ import annotations

from typing import Any

import pytest

import lakebed
from lakebed.concurrency.markers import write_marker
from lakebed.errors import CommitConflict
from lakebed.format.file_names import log_file_name, parse_log_file
from lakebed.handles.log_writer import token_of
from lakebed.model import Action
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed, Mutation, crash_at
from support.crash_tables import OPTIONS, copied, prepared, put, rows, state
from support.frozen import FrozenWriter
from support.sampling import CRASH, todays_points

OURS = [(0, "c0", "ours", 9), (20, "c0", "ours", 9)]
THEIRS = [(1, "c1", "theirs", 9), (21, "c1", "theirs", 9)]
LAST = [(2, "c0", "last", 11)]
KINDS = [("bucket", 9), ("record", 8), ("mor-bucket", 6)]
# The changes of storage of the other process; before two of them files of the writer were deleted once.
_CHANGES, _ALWAYS = 30, {5, 13}
_OF_CHANGES = 15


def roll_back_as_lakebed(table: Table) -> Any:
    return table.upsert(rows(*OURS), options=OPTIONS)


def roll_back_as_other(table: Table) -> Any:
    return table.upsert(rows(*THEIRS), options=OPTIONS)


def is_data(mutation: Mutation) -> bool:
    return not mutation.path.startswith(".hoodie") and "ition_metadata" not in mutation.path


@pytest.mark.parametrize(("index", "version"), KINDS)
def test_a_writer_that_is_being_rolled_back_does_not_commit(
    index: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, old = prepared(index, version)
    for at in sorted(_ALWAYS | {*todays_points(_CHANGES, _OF_CHANGES, CRASH, index, version)}):
        with copied("memory", files) as uri, monkeypatch.context() as patch:
            writer = FrozenWriter(uri, roll_back_as_lakebed, is_data, patch)
            assert writer.freeze()
            writer.time_is_over()
            other = FrozenWriter(uri, roll_back_as_other, at, patch)
            assert other.freeze() or at > max(_ALWAYS)
            try:
                other.time_is_over()
                writer.thaw()
                other.thaw()
                for one in (writer, other):
                    assert one.error is None or isinstance(one.error, CommitConflict), one.error
                expected = old
                for one, given in ((writer, OURS), (other, THEIRS)):
                    expected = expected if one.error else put(expected, *given)
                assert state(uri) == expected
                lakebed.open(uri).upsert(rows(*LAST), options=OPTIONS)
                assert state(uri) == put(expected, *LAST)
                found = lakebed.open(uri).indexes.verify()
                assert found.ok, found
            except BaseException as error:
                error.add_note(f"frozen before mutation {at}: {other.mutation}; {writer.error!r}, {other.error!r}")
                raise


def is_of_metadata(mutation: Mutation) -> bool:
    return mutation.path.startswith(".hoodie/metadata/")


def deletes_data(mutation: Mutation) -> bool:
    return mutation.verb == "delete" and is_data(mutation)


def test_a_rollback_that_another_process_finished_leaves_no_file_that_is_not_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On version 6 a rollback appends to slices: the one that stood still appends once more."""
    files, old = prepared("mor-simple", 6)
    with copied("memory", files) as uri, monkeypatch.context() as patch:
        with crash_at(is_of_metadata), pytest.raises(Killed):
            lakebed.open(uri).upsert(rows(*OURS), options=OPTIONS)
        other = FrozenWriter(uri, roll_back_as_other, deletes_data, patch)
        assert other.freeze()
        other.time_is_over()
        lakebed.open(uri).upsert(rows(*LAST), options=OPTIONS)
        other.thaw()
        assert isinstance(other.error, CommitConflict), other.error
        lakebed.open(uri).upsert(rows(*LAST), options=OPTIONS)
        assert state(uri) == put(old, *LAST)
        verification = lakebed.open(uri).indexes.verify()
        assert verification.ok, verification


def test_what_a_finished_rollback_wrote_without_the_lock_is_removed_by_its_marker() -> None:
    """It stood still right before it looked for the next version of a log file."""
    files, old = prepared("mor-simple", 6)
    with copied("memory", files) as uri:
        with crash_at(is_of_metadata), pytest.raises(Killed):
            lakebed.open(uri).upsert(rows(*OURS), options=OPTIONS)
        lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
        storage = open_storage(uri)
        rollback = next(i.time for i in lakebed.open(uri).timeline if i.action is Action.ROLLBACK)
        token = token_of(rollback, 1, 1)
        hiding = next(info.path for info in storage.list() if info.path.endswith(f"_{token}"))
        partition, _, name = hiding.rpartition("/")
        log = parse_log_file(partition, name, 0)
        assert log is not None
        late = log_file_name(log.file_id, log.instant, log.version + 9, token)
        storage.write(f"{partition}/{late}", storage.read(hiding))
        for written in (name, late):
            write_marker(storage, rollback, partition, written, "APPEND")
        assert not lakebed.open(uri).indexes.verify().ok
        lakebed.open(uri).upsert(rows(*LAST), options=OPTIONS)
        assert storage.head(f"{partition}/{late}") is None
        assert storage.head(hiding) is not None
        assert state(uri) == put(put(old, *THEIRS), *LAST)
        verification = lakebed.open(uri).indexes.verify()
        assert verification.ok, verification
