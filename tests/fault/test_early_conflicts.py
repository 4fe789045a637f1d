"""A write that is told to look for others early gives up before it writes a file group that another one is at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.storage import open_storage
from support.crash_tables import OPTIONS, copied, leftovers, prepared, put, rows, state
from support.pauses import in_place_of_pauses

EARLY = {**OPTIONS, "hoodie.write.concurrency.early.conflict.detection.enable": True}
COMMITS = {**EARLY, "hoodie.write.concurrency.early.conflict.check.commit.conflict": True}
THEIRS, OURS, APART = (2, "c0", "theirs", 9), (0, "c0", "ours", 9), (1, "c1", "ours", 9)


@contextmanager
def before(step: str, other: Callable[[WriteTransaction], object]) -> Iterator[None]:
    """Have the next write wait before a step of its transaction until the other has run."""
    original, done = getattr(WriteTransaction, step), list[bool]()

    def held(self: WriteTransaction, *given: Any, **more: Any) -> Any:
        if not done:
            done.append(True)
            other(self)
        return original(self, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriteTransaction, step, held)
        yield
    assert done


@pytest.mark.parametrize(("index", "version"), [("simple", 9), ("bucket", 8), ("mor-bucket", 9), ("record", 6)])
def test_a_file_group_that_another_writer_is_at_is_not_written(index: str, version: int) -> None:
    files, old = prepared(index, version)
    told: list[CommitConflict] = []
    with copied("memory", files) as uri:

        def ours(theirs: WriteTransaction) -> None:
            lakebed.open(uri).upsert(rows(APART), options=EARLY)  # elsewhere: nobody is in the way
            with pytest.raises(CommitConflict) as raised:
                lakebed.open(uri).upsert(rows(OURS), options=EARLY)
            told.append(raised.value)
            assert raised.value.context["instant"] == theirs.instant

        with before("commit", ours):  # their files are written, with markers
            lakebed.open(uri).upsert(rows(THEIRS), options=OPTIONS)
        assert "is being changed by another writer" in told[0].message
        assert told[0].retryable
        assert state(uri) == put(old, THEIRS, APART)
        assert leftovers(uri) == []


def test_two_inserts_into_one_new_bucket_meet_early() -> None:
    files, old = prepared("bucket", 9)
    with copied("memory", files) as uri:

        def ours(_: WriteTransaction) -> None:
            with pytest.raises(CommitConflict, match="is being changed"):
                lakebed.open(uri).upsert(rows((61, "c5", "ours", 1)), options=EARLY)

        with before("commit", ours):
            lakebed.open(uri).upsert(rows((60, "c5", "theirs", 1)), options=OPTIONS)
        assert state(uri) == put(old, (60, "c5", "theirs", 1))


def test_a_dead_writer_makes_no_early_conflict() -> None:
    files, old = prepared("simple", 9)
    with copied("memory", files) as uri:

        def ours(theirs: WriteTransaction) -> None:
            heartbeat = theirs._heartbeat  # pyright: ignore[reportPrivateUsage]
            assert heartbeat is not None

            def dies(_: WriteTransaction) -> None:
                heartbeat.stop()

            with before("inflight", dies):
                lakebed.open(uri).upsert(rows(OURS), options=EARLY)

        with before("commit", ours), pytest.raises(CommitConflict):
            lakebed.open(uri).upsert(rows(THEIRS), options=OPTIONS)
        assert state(uri) == put(old, OURS)


def test_a_retried_write_commits_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    files, old = prepared("simple", 9)
    with copied("memory", files) as uri:
        commit, held = WriteTransaction.commit, list[Any]()

        def first_holds(self: WriteTransaction, *given: Any, **more: Any) -> Any:
            if not held:
                held.append(lambda: commit(self, *given, **more))
                done = list[Any]()
                in_place_of_pauses(monkeypatch, lambda _: done.append(held[0]()))
                assert lakebed.open(uri).upsert(rows(OURS), retries=1, options=EARLY).retries == 1
                return done[0]
            return commit(self, *given, **more)

        monkeypatch.setattr(WriteTransaction, "commit", first_holds)
        lakebed.open(uri).upsert(rows(THEIRS), options=OPTIONS)
        assert state(uri) == put(old, THEIRS, OURS)
        assert leftovers(uri) == []


@pytest.mark.parametrize("index", ["simple", "record"])
def test_commits_to_its_file_groups_end_a_write_before_it_writes(index: str) -> None:
    files, old = prepared(index, 9)
    with copied("memory", files) as uri:
        written: list[str] = []

        def theirs(self: WriteTransaction) -> None:
            lakebed.open(uri).upsert(rows(THEIRS), options=OPTIONS)
            written.append(self.instant)

        with before("early_conflicts", theirs), pytest.raises(CommitConflict) as raised:
            lakebed.open(uri).upsert(rows(OURS), options=COMMITS)
        assert raised.value.context["partition"] == "c0"
        markers = [i.path for i in open_storage(uri).list(".hoodie/.temp") if written[0] in i.path]
        assert markers == []
        assert state(uri) == put(old, THEIRS)
        with before("early_conflicts", lambda _: lakebed.open(uri).upsert(rows(APART), options=OPTIONS)):
            lakebed.open(uri).upsert(rows((4, "c0", "ours", 9)), options=COMMITS)
        assert state(uri) == put(old, THEIRS, APART, (4, "c0", "ours", 9))
