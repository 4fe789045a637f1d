"""A process that dies while it moves a consumer: the next one reads the batch again, or goes on after it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import lakebed
from lakebed.errors import StorageError
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.testing import Killed, Mode, Mutation, crash_at
from lakebed.timeline.consumers import FOLDER
from support.write_tables import SCHEMA, rows


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
