"""A process that dies while it moves a consumer: the next one reads the batch again, or goes on after it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import StorageError
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.testing import Killed, Mode, Mutation, crash_at
from lakebed.timeline.consumers import FOLDER
from support.sampling import CRASH, is_todays, some
from support.table_states import States, jumping
from support.write_tables import SCHEMA, content, rows


@pytest.fixture
def table() -> Iterator[Table]:
    name = f"consumer-crashes-{uuid.uuid4().hex}"
    table = lakebed.create(f"memory://{name}/t", SCHEMA, key="id", index="simple")
    table.upsert(rows((1, "a", "1", 1)))
    yield table
    MemoryStorage.drop(name)


def is_position(mutation: Mutation) -> bool:
    return mutation.path.startswith(FOLDER)


def consume(uri: str) -> list[int]:
    with lakebed.open(uri).consume("daily") as batch:
        return batch.to_arrow().column("id").to_pylist()


@pytest.mark.parametrize(
    ("mode", "again"), [("kill", [2]), ("unacknowledged", []), ("lost", [2]), ("doubtful", []), ("fail", [2])]
)
def test_a_batch_is_read_again_where_its_position_was_not_recorded(table: Table, mode: Mode, again: list[int]) -> None:
    assert consume(table.uri) == [1]
    table.upsert(rows((2, "a", "2", 1)))
    with crash_at(is_position, mode):
        try:
            assert consume(table.uri) == [2]
        except (Killed, StorageError):
            assert mode != "doubtful", "an answer in doubt is resolved by reading the file"
    assert consume(table.uri) == again
    assert consume(table.uri) == []


def test_a_consumer_that_dies_while_it_is_made_is_made_by_the_next_process(table: Table) -> None:
    with crash_at(0) as counted:
        consume(table.uri)
    table.consumers.delete("daily")
    for at in range(1, len(counted.mutations) + 1):
        other = lakebed.create(f"{table.uri}-{at}", SCHEMA, key="id", index="simple")
        other.upsert(rows((1, "a", "1", 1)))
        with crash_at(at), pytest.raises(Killed):
            consume(other.uri)
        assert consume(other.uri) == [1], at
        assert other.properties["lakebed.consumers"] == "true"


@pytest.mark.parametrize("mode", ["kill", "unacknowledged"])
def test_a_batch_that_is_written_once_is_in_one_commit_wherever_the_process_died(mode: Mode) -> None:
    name = f"consumer-once-{uuid.uuid4().hex}"

    def made(at: int) -> tuple[Table, Table]:
        words: dict[str, Any] = {"key": "id", "index": "simple", "properties": {"hoodie.table.cdc.enabled": True}}
        source = lakebed.create(f"memory://{name}-{at}/source", SCHEMA, **words)
        source.upsert(rows((1, "a", "1", 1), (2, "a", "2", 1)))
        return source, lakebed.create(f"memory://{name}-{at}/target", SCHEMA, key="id", index="simple")

    def copy(uri: str, target: str) -> None:
        with lakebed.open(uri).consume("daily", cdc=True) as batch:
            changes = batch.to_arrow()
            lakebed.open(target).insert(
                pa.Table.from_pylist([change["after"] for change in changes.to_pylist()], SCHEMA), once=batch.once()
            )

    source, target = made(0)
    with crash_at(0) as counted:
        copy(source.uri, target.uri)
    points = [at for at in range(1, len(counted.mutations) + 1) if is_todays(at, 12, CRASH, mode)]
    for at in points:
        source, target = made(at)
        with crash_at(at, mode) as crash, suppress(Killed):
            copy(source.uri, target.uri)
        assert crash.dead, at
        source.upsert(rows((2, "a", "22", 2), (3, "a", "3", 2)))  # what is committed meanwhile is in the next batch
        copy(source.uri, target.uri)
        copy(source.uri, target.uri)
        values = sorted(target.to_arrow()["v"].to_pylist())
        assert values == ["1", "2", "22", "3"], (at, crash)
        MemoryStorage.drop(f"{name}-{at}")
    MemoryStorage.drop(f"{name}-0")


WRITES: tuple[Callable[[Table], object], ...] = (
    lambda t: t.upsert(rows((1, "a", "1", 1), (2, "a", "2", 1))),
    lambda t: t.upsert(rows((2, "a", "22", 2), (3, "b", "3", 2))),
    lambda t: t.delete([1]),
    lambda t: t.upsert(rows((1, "a", "again", 3), (4, "b", "4", 3))),
)
TIGHT: dict[str, object] = {
    "hoodie.table.cdc.enabled": True,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
}


def copy_changes(source: str, copy: str) -> None:
    """Read a batch of changes and write it to a copy; what was written twice is the same."""
    table = lakebed.open(copy)
    with lakebed.open(source).consume("copy", cdc=True, max_commits=1) as batch:
        changes = batch.to_arrow().to_pylist()
        if written := [change["after"] for change in changes if change["after"] is not None]:
            table.upsert(pa.Table.from_pylist(written, SCHEMA))
        if deleted := [change["before"]["id"] for change in changes if change["op"] == "d"]:
            table.delete(deleted)


@pytest.mark.parametrize("number", some(range(1, 21), 1, 8))
def test_a_copy_whose_job_is_killed_is_equal_in_the_end(number: int) -> None:
    name = f"killed-copies-{uuid.uuid4().hex}"
    source, copy = f"memory://{name}/source", f"memory://{name}/copy"
    kind = "mor" if number % 2 else "cow"
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "index": "simple", "type": kind}
    lakebed.create(source, SCHEMA, properties=TIGHT, **words)
    lakebed.create(copy, SCHEMA, **words)
    chance = random.Random(number)
    lakebed.open(source).consumers.start("copy")
    for write in WRITES:
        write(lakebed.open(source))
        with crash_at(chance.randrange(1, 25)), suppress(Killed):
            copy_changes(source, copy)
    for _ in range(len(WRITES) + 1):
        copy_changes(source, copy)
    assert lakebed.open(source).consumers.get("copy").lag_commits == 0
    assert content(lakebed.open(copy)) == content(lakebed.open(source))
    MemoryStorage.drop(name)


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
def test_a_consumer_of_a_table_that_is_dropped_meanwhile_gets_an_error_of_lakebed(is_known: bool) -> None:
    states = States.new()
    table = lakebed.create(states.uri, SCHEMA, key="id", index="simple")
    table.upsert(rows((1, "a", "1", 1)))
    if is_known:
        table.consumers.start("daily")
    states.note("there")
    states.names.append("dropped")
    states.files.append({})
    states.enter(0)
    with jumping(0, lambda: None) as counted:
        assert consume(states.uri) == [1]
    errors: list[str] = []
    for at in range(2, counted.calls):
        states.enter(0)
        with jumping(at, lambda: states.enter(1)), suppress(lakebed.LakebedError):
            try:
                errors.append(f"{at}: rows {consume(states.uri)}")
            except OSError as error:
                errors.append(f"{at}: {error!r}")
    assert [text for text in errors if not text.endswith("[1]")] == []
