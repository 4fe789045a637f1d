"""One table in memory a test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lakebed
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from support.write_tables import SCHEMA


@pytest.fixture
def make() -> Iterator[Callable[..., Table]]:
    """Makes the test's table: key `id`, partitions by `city`, a record index that keys move in."""
    name = f"services-{uuid.uuid4().hex}"

    def create(**given: Any) -> Table:
        words: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "record"} | given
        return lakebed.create(f"memory://{name}/t", SCHEMA, **words)

    yield create
    MemoryStorage.drop(name)
