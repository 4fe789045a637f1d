"""One table in memory a test, which every room's tests can ask for."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from support.write_tables import SCHEMA


@pytest.fixture
def uri() -> Iterator[str]:
    """The place of the test's table, which goes with the test."""
    name = f"unit-{uuid.uuid4().hex}"
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


@pytest.fixture
def make(uri: str) -> Callable[..., Table]:
    """Makes a table: `id` is the key, `city` the partition, `ts` the ordering field; the index is simple by default."""

    def create(schema: pa.Schema = SCHEMA, **given: Any) -> Table:
        words: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "simple"} | given
        if words["index"] == "bucket":
            words.setdefault("buckets", 2)
        return lakebed.create(uri, schema, **words)

    return create
