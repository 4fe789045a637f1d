"""Processes that are killed, or frozen and thawed, while they write: what they were told is done is there for good,
what raised is nowhere, and the next write finds a table that is whole.

In `make test` the processes stop themselves at given calls of storage. In the other runs they are stopped at any time:
a few of each, with `LAKEBED_CRASH=all` 200 killed ones and 60 frozen ones.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import combinations, product

import pytest

import lakebed
from support.crash_tables import OPTIONS, Model, copied, leftovers, prepared, put, rows, state
from support.sampling import CRASH, whole
from support.writer_process import FROZEN_SECONDS, Task, Writer

KINDS = list(product(("bucket", "simple", "record"), (9, 8, 6)))
_ALL = whole(CRASH)
# As many writes as a writer that is to be killed never gets to.
_MANY = 1_000
# Calls of storage in some writes of such a writer.
_CALLS = 400


def cases(few: int, many: int) -> list[tuple[str, int, int]]:
    """(index, version, number of processes): in a short run of some kinds, in a full one of every kind."""
    wanted = many if _ALL else few
    return [(*kind, number) for n, kind in enumerate(KINDS) if (number := (wanted + len(KINDS) - 1 - n) // len(KINDS))]


@contextmanager
def ended(*writers: Writer) -> Generator[None]:
    """No process outlives the block; a failure tells what they did."""
    try:
        yield
    except BaseException as error:
        for writer in writers:
            error.add_note(str(writer))
        raise
    finally:
        for writer in writers:
            writer.end()


def outcomes(before: Model, writers: Sequence[Writer]) -> list[Model]:
    """The tables that there may be: acknowledged writes are in, each of those in doubt is wholly in or out. No key is
    written by two of the writers."""
    sure = before
    for writer in writers:
        for n in writer.acknowledged:
            sure = put(sure, *writer.task.rows(n))
    open_ends = [writer.task.rows(n) for writer in writers for n in writer.in_doubt]
    found: list[Model] = []
    for count in range(len(open_ends) + 1):
        for chosen in combinations(open_ends, count):
            model = sure
            for given in chosen:
                model = put(model, *given)
            found.append(model)
    return found


def check_table(uri: str, expected: Model, number: int) -> None:
    """The next write succeeds on a table with these rows, and leaves nothing behind."""
    given = (7, "c1", f"next-{number}", 1_000 * number + 999)
    lakebed.open(uri).upsert(rows(given), options=OPTIONS)
    assert state(uri) == put(expected, given)
    assert leftovers(uri) == []
    indexes = lakebed.open(uri).indexes.verify()
    assert indexes.ok, indexes


# Calls of storage of one write: as it looks for keys, as it writes files, as it commits, after it.
STOPS = [("bucket", 9, 30), ("simple", 8, 60), ("record", 6, 120)]


@pytest.mark.parametrize(("index", "version", "stop_at"), STOPS)
def test_a_process_killed_at_a_call_of_storage_loses_nothing_that_it_acknowledged(
    index: str, version: int, stop_at: int
) -> None:
    files, before = prepared(index, version)
    with copied("local", files) as uri:
        victim, other = Writer(Task(uri, 2, "c0", 2, _MANY, stop_at)), Writer(Task(uri, 3, "c1", 3, 2))
        with ended(victim, other):
            assert victim.is_frozen()
            victim.kill()
            other.finish()
            assert other.acknowledged == [0, 1]
            found = state(uri)
            assert found in outcomes(before, [victim, other])
            check_table(uri, found, 4)


@pytest.mark.rest
@pytest.mark.parametrize(("index", "version", "stop_at"), STOPS[1:2])
def test_a_process_frozen_at_a_call_of_storage_acknowledges_nothing_that_was_lost(
    index: str, version: int, stop_at: int
) -> None:
    files, before = prepared(index, version)
    with copied("local", files) as uri:
        writer = Writer(Task(uri, 2, "c0", 2, 2, stop_at, elsewhere=True))
        with ended(writer):
            assert writer.is_frozen()
            assert_frozen_writer_is_right(uri, writer, before, 400)


@pytest.mark.full
@pytest.mark.parametrize(("index", "version", "number"), cases(12, 200))
def test_a_killed_process_loses_nothing_that_it_acknowledged(index: str, version: int, number: int) -> None:
    chance = random.Random(f"killed {index} {version}")
    files, before = prepared(index, version)
    for one in range(1, number + 1):
        with copied("local", files) as uri:
            victim = Writer(Task(uri, 2 * one, "c0", 2, _MANY))
            writers = [victim]
            if one % 3 == 2:  # with another one beside it, which goes on
                writers.append(Writer(Task(uri, 2 * one + 1, "c1", 3, 4)))
            with ended(*writers):
                victim.started()
                time.sleep(chance.uniform(0.0, 0.8))
                victim.kill()
                for other in writers[1:]:
                    other.finish()
                    assert other.acknowledged == [0, 1, 2, 3]
                found = state(uri)
                assert found in outcomes(before, writers)
                check_table(uri, found, 2 * one)


def take_over(uri: str, writer: Writer, model: Model) -> Model:
    """Write to the table until the frozen writer has been rolled back or is known to have nothing pending, and longer
    than it may be taken for alive; gives the rows that were written by that."""
    since, n = time.monotonic(), 0
    while time.monotonic() < since + 30:
        given = (4, "c0", f"meanwhile-{writer.task.number}-{n}", 1_000 * writer.task.number + 500 + n)
        try:
            lakebed.open(uri).upsert(rows(given), options=OPTIONS)
            model = put(model, given)
        except lakebed.LakebedError as error:
            if not error.retryable:
                raise
        left = [i for i in lakebed.open(uri).timeline if not i.is_completed]
        if not left and time.monotonic() > since + FROZEN_SECONDS:
            return model
        n += 1
        time.sleep(0.2)
    raise TimeoutError(f"{writer} is still pending")


def assert_frozen_writer_is_right(uri: str, writer: Writer, model: Model, number: int) -> None:
    """Others write on; the writer goes on then; the table is that of one of the outcomes."""
    model = take_over(uri, writer, model)
    writer.thaw()
    writer.finish()
    found = state(uri)
    assert found in outcomes(model, [writer])
    check_table(uri, found, number)


def frozen(uri: str, number: int, chance: random.Random) -> list[Writer]:
    """A writer that stands still somewhere in its writes, by its own doing at some call of storage or by ours; before
    it in the list those that came to their end."""
    writers: list[Writer] = []
    for attempt in range(100):
        by_itself = attempt % 2 == number % 2
        stop_at = chance.randrange(20, _CALLS) if by_itself else 0
        task = Task(uri, number + attempt, "c0", 2, 4, stop_at, chance.random() < 0.5, elsewhere=True)
        writers.append(writer := Writer(task))
        writer.started()
        if not by_itself:
            time.sleep(chance.uniform(0.0, 0.4))
        if writer.is_frozen() if by_itself else writer.freeze():
            return writers
        writer.finish()
    raise AssertionError("no writer was met at its work")


@pytest.mark.full
@pytest.mark.parametrize(("index", "version", "number"), cases(6, 60))
def test_a_frozen_process_that_goes_on_acknowledges_nothing_that_was_lost(
    index: str, version: int, number: int
) -> None:
    chance = random.Random(f"frozen {index} {version}")
    files, before = prepared(index, version)
    for one in range(1, number + 1):
        with copied("local", files) as uri:
            *others, writer = frozen(uri, 200 * one, chance)
            [model] = outcomes(before, others)
            with ended(writer):
                assert_frozen_writer_is_right(uri, writer, model, 200 * one + 100)
