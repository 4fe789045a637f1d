"""Every storage mutation of a write as the place where it fails, dies, is torn, or gets no answer.

By default each operation meets every fault on one of the ten kinds of table, in turn, at some of its mutations, within
a week at each; with `LAKEBED_CRASH=all` at each of them on all kinds. A failure prints how to run that very crash
again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, product

import pytest

import lakebed
from lakebed.errors import TableExists, TableNotFound
from lakebed.storage.base import Storage
from lakebed.storage.local import LocalStorage
from lakebed.storage.opening import wrapping
from lakebed.testing import Crash, FaultPlan, FaultyStorage, Killed, Mode, Mutation, crash_at
from support.crash_tables import (
    LAST,
    NEXT,
    OPERATIONS,
    Model,
    Operation,
    copied,
    create,
    leftovers,
    place,
    prepared,
    rows,
    state,
    strike_each,
)
from support.sampling import CRASH, is_todays

KINDS = (
    *product(("bucket", "simple"), (9, 6), ("memory", "local")),
    ("record", 9, "local"),
    ("record", 6, "memory"),
    ("bloom", 9, "memory"),
    ("global_bloom", 6, "local"),
)
MOR_KINDS = (
    ("mor-bucket", 9),
    ("mor-bucket", 8),
    ("mor-bucket", 6),
    ("mor-record", 9),
    ("mor-simple", 6),
    ("mor-bloom", 9),
)
# Dead before mutation k is what dead after k-1 leaves, so `unacknowledged` stands for `kill` from the second one on.
FAULTS: tuple[Mode, ...] = ("unacknowledged", "torn", "fail", "doubtful", "lost")
_ASKED = os.environ.get("LAKEBED_CRASH", "")


def _cases() -> Iterator[tuple[str, str, int, str, Mode]]:
    for at, (operation, mode) in enumerate(product(OPERATIONS, FAULTS)):
        # a put on memory or an object store is whole or not there
        kinds = [kind for kind in KINDS if mode != "torn" or kind[2] == "local"]
        for index, version, storage in kinds if _ASKED == "all" else [kinds[at % len(kinds)]]:
            yield operation, index, version, storage, mode


def _cases_of_appends() -> Iterator[tuple[str, str, int, str, Mode]]:
    """Log files are written by these on a table of each version."""
    for at, (operation, mode) in enumerate(product(("upsert", "delete", "insert_overwrite"), FAULTS)):
        storage = "local" if mode == "torn" else ("memory", "local")[at % 2]
        kinds = MOR_KINDS if _ASKED == "all" else [MOR_KINDS[at % len(MOR_KINDS)], MOR_KINDS[(at + 2) % len(MOR_KINDS)]]
        for index, version in kinds:
            yield operation, index, version, storage, mode


@contextmanager
def faulty(storage: str, uri: str, at: int, mode: Mode) -> Iterator[Crash]:
    """Like `crash_at`; a torn write goes to a file system that has no nameless files, and so leaves something."""
    if mode != "torn" or storage != "local":
        with crash_at(at, mode) as crash:
            yield crash
        return
    crash = Crash(FaultPlan(at, mode))

    def wrap(inner: Storage) -> Storage:
        return FaultyStorage(LocalStorage(uri, unlinked=False), crash=crash)

    with wrapping(wrap):
        yield crash


def run(operation: Operation, uri: str, old: Model) -> tuple[Model, ...]:
    """Run a write that may be struck; gives the states that may follow."""
    new = operation.model(old)
    try:
        operation.run(lakebed.open(uri))
    except Killed:
        return old, new
    except lakebed.LakebedError:
        return (old,)
    return (new,)


def crash(operation: str, index: str, version: int, storage: str, mode: Mode, at: int) -> int | None:
    """Strike one mutation and look at all that follows; where the write has none, the number that it has."""
    files, old = prepared(index, version)
    with copied(storage, files) as uri:
        with faulty(storage, uri, at, mode) as struck:
            allowed = run(OPERATIONS[operation], uri, old)
        if not struck.fired:
            return len(struck.mutations)
        try:
            found = state(uri)
            assert found in allowed
            NEXT.run(lakebed.open(uri))
            assert state(uri) == NEXT.model(found)
            assert leftovers(uri) == []
            indexes = lakebed.open(uri).indexes.verify()
            assert indexes.ok, indexes
        except Exception as error:
            where = f"{operation}/{index}/{version}/{storage}/{mode}/{at}"
            error.add_note(f"replay: LAKEBED_CRASH={where} pytest tests/fault/test_crash_points.py -k replay\n{struck}")
            raise
    return None


@pytest.mark.parametrize(("operation", "index", "version", "storage", "mode"), [*_cases(), *_cases_of_appends()])
def test_a_write_is_old_or_new_and_leaves_nothing(
    operation: str, index: str, version: int, storage: str, mode: Mode
) -> None:
    case = operation, index, version
    assert strike_each(lambda at: crash(*case, storage, mode, at), 9, *case, mode) >= 8


@pytest.mark.skipif(_ASKED.count("/") != 5, reason="LAKEBED_CRASH names no crash to replay")
def test_the_named_crash_leaves_the_table_right() -> None:
    operation, index, version, storage, mode, at = _ASKED.split("/")
    assert crash(operation, index, int(version), storage, mode, int(at)) is None  # pyright: ignore[reportArgumentType]


def _commits(mutation: Mutation) -> bool:
    """Whether this puts the completed instant of the table itself. Which one it is differs from run to run: indexes of
    a few files write to as many file groups as the files' random names spread over."""
    place, _, name = mutation.path.rpartition("/")
    completes = name.endswith((".commit", ".deltacommit", ".replacecommit")) and mutation.verb == "put_if_absent"
    return completes and place in (".hoodie", ".hoodie/timeline")


def _commit_point(operation: str, index: str, version: int) -> int:
    """About which mutation that is."""
    files, _ = prepared(index, version)
    with copied("memory", files) as uri, crash_at(0) as counted:
        OPERATIONS[operation].run(lakebed.open(uri))
        return next(n for n, m in enumerate(counted.mutations, 1) if _commits(m))


@pytest.mark.parametrize(
    ("index", "version", "storage", "mode"),
    [
        ("bucket", 9, "memory", "unacknowledged"),
        ("simple", 6, "local", "unacknowledged"),
        ("simple", 9, "memory", "fail"),
        ("mor-bucket", 9, "memory", "unacknowledged"),
        ("mor-bucket", 6, "local", "unacknowledged"),
        ("mor-simple", 6, "memory", "fail"),
    ],
)
def test_the_writer_that_rolls_back_is_struck_as_well(index: str, version: int, storage: str, mode: Mode) -> None:
    files, old = prepared(index, version)
    for at in (n for n in count(1) if is_todays(n, 9, CRASH, index, version, mode)):
        with copied(storage, files) as uri:
            with crash_at(_commits, "kill"):
                assert run(OPERATIONS["upsert"], uri, old)[0] == old
            with crash_at(at, mode) as struck:
                allowed = run(NEXT, uri, old)
            if not struck.fired:
                break
            try:
                found = state(uri)
                assert found in allowed
                LAST.run(lakebed.open(uri))
                assert state(uri) == LAST.model(found)
                assert leftovers(uri) == []
                verified = lakebed.open(uri).indexes.verify()
                assert verified.ok, verified
            except Exception as error:
                error.add_note(f"the second writer, {struck}")
                raise
    assert at > 20


@pytest.mark.parametrize("mode", ["unacknowledged", "fail"])
@pytest.mark.parametrize(
    ("operation", "index", "version"), [("upsert", "simple", 9), ("insert_overwrite", "bucket", 6)]
)
def test_a_writer_dies_while_it_undoes_its_own_write(operation: str, index: str, version: int, mode: Mode) -> None:
    files, old = prepared(index, version)
    first = _commit_point(operation, index, version)
    for at in (n for n in count(first + 1) if is_todays(n, 3, CRASH, operation, index, mode)):
        with copied("memory", files) as uri:
            with crash_at(_commits, "fail"), crash_at(at, mode) as struck:
                assert run(OPERATIONS[operation], uri, old)[0] == old
            if not struck.fired:
                break
            try:
                assert state(uri) == old
                NEXT.run(lakebed.open(uri))
                assert state(uri) == NEXT.model(old)
                assert leftovers(uri) == []
            except Exception as error:
                error.add_note(str(struck))
                raise
    assert at > first + 8


@pytest.mark.parametrize("mode", ["kill", *FAULTS])
@pytest.mark.parametrize("storage", ["memory", "local"])
def test_creating_a_table_happens_or_not(storage: str, mode: Mode) -> None:
    for at in count(1):
        with place(storage) as uri:
            with faulty(storage, uri, at, mode) as struck:
                try:
                    create(uri, "bucket", 9)
                    allowed = {True}
                except Killed:
                    allowed = {True, False}
                except lakebed.LakebedError:
                    allowed = {False}
            if not struck.fired:
                break
            assert _exists(uri) in allowed
            if _exists(uri):
                with pytest.raises(TableExists):
                    create(uri, "bucket", 9)
            else:
                create(uri, "bucket", 9)
            lakebed.open(uri).upsert(rows((1, "c0", "a", 1)))
            assert state(uri) == {1: ("c0", "a", 1)}
            assert leftovers(uri) == []
    assert at > 1


def _exists(uri: str) -> bool:
    try:
        lakebed.open(uri)
    except TableNotFound:
        return False
    return True
