"""Tables in memory, what is in them, and whether a call wrote anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.model import CommitMetadata
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.bodies.commit import decode_commit
from lakebed.timeline.timeline import load_timeline

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())])


def rows(*given: tuple[Any, ...]) -> pa.Table:
    """Data of (id, city, v, ts)."""
    columns = list(zip(*given, strict=True)) if given else [()] * 4
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def content(table: Table) -> list[tuple[Any, ...]]:
    """All rows of a table of that schema, sorted."""
    found = lakebed.open(table.uri).scan().to_arrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def files(uri: str) -> dict[str, bytes]:
    """Every file below a URI with its bytes."""
    storage = open_storage(uri)
    return {info.path: storage.read(info.path) for info in storage.list()}


def last_commit(table: Table) -> CommitMetadata:
    storage = open_storage(table.uri)
    timeline = load_timeline(storage, load_table_config(storage))
    path = f"{timeline.config.timeline_path}/{timeline.commits[-1].file_name}"
    return decode_commit(storage.read(path), path)  # what the file says, not what this process remembers of it


@contextmanager
def refused(uri: str, error: type[lakebed.LakebedError], *words: str) -> Iterator[None]:
    """The block raises `error` with the words in message or hint, and not one byte changes."""
    before = files(uri)
    with pytest.raises(error) as raised:
        yield
    for word in words:
        assert word in str(raised.value)
    assert files(uri) == before
