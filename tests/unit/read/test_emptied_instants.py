"""A completed instant whose file was emptied or cut is an error that names it, never another table."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

import lakebed
from lakebed.errors import CorruptFile
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.timeline import timeline
from lakebed.timeline.timeline import load_timeline
from support.write_tables import SCHEMA, content, rows


@pytest.fixture
def uri() -> Iterator[str]:
    name = uuid.uuid4().hex
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


def overwritten(uri: str, version: int, *, metadata: bool) -> Table:
    table = lakebed.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index="simple",
        table_version=version,
        properties={"hoodie.metadata.enable": str(metadata).lower()},
    )
    table.upsert(rows((1, "oslo", "old", 1), (2, "rome", "old", 1)))
    table.insert_overwrite(rows((3, "oslo", "new", 2)))
    return table


def emptied(data: bytes) -> bytes:
    return b""


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize("damage", [emptied, cut])
@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize("action", ["commit", "replacecommit"])
def test_an_emptied_completed_instant_is_an_error(
    uri: str, version: int, metadata: bool, action: str, damage: Callable[[bytes], bytes]
) -> None:
    table = overwritten(uri, version, metadata=metadata)
    right = content(table)
    assert right == [(2, "rome", "old", 1), (3, "oslo", "new", 2)]
    storage = open_storage(uri)
    config = load_table_config(storage)
    done = next(i for i in load_timeline(storage, config).completed if i.action.value == action)
    path = f"{config.timeline_path}/{done.file_name}"
    storage.write(path, damage(storage.read(path)))
    with pytest.raises(CorruptFile, match=done.file_name):
        content(fresh(uri))
    with pytest.raises(CorruptFile, match=done.file_name):
        fresh(uri).upsert(rows((3, "oslo", "newer", 3)))


def fresh(uri: str) -> Table:
    """The table as another process opens it, which has read none of these bodies."""
    timeline._BODIES.clear()
    return lakebed.open(uri)
