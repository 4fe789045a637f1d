"""Incremental reads behind a commit that began early, completed late and was archived soon: archival goes by requested
times, and ranges by completion times."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.storage.base import Storage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import CountingStorage
from property.crossing import Change, Model, Write, Writer, held_writers
from support.crash_tables import rows

QUIET: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.table.cdc.enabled": True,
}
_KEEP: dict[str, Any] = {
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.compact.inline.max.delta.commits": 2,
}
LATE = 100
SHAPES = [(9, "cow", True), (9, "mor", False), (8, "cow", False), (8, "mor", True)]


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"late-commits-{uuid.uuid4().hex}"
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


@contextmanager
def late_commit(uri: str, version: int, kind: str, *, has_metadata: bool) -> Iterator[Callable[[], None]]:
    """A table of ten commits of one file group each, while a write that began after the first has not committed; the
    block gets what lets it commit."""
    table = lakebed.create(
        uri,
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,  # pyright: ignore[reportArgumentType]
        index="bucket",
        buckets=1,
        table_version=version,
        properties={**QUIET, "hoodie.metadata.enable": has_metadata, "hoodie.metadata.compact.max.delta.commits": 1},
    )
    table.upsert(rows((0, "c0", "v0", 0)))
    with held_writers():
        write = Write("late", lambda t: t.upsert(rows((LATE, "late", "late", 1))), lambda _: Change())
        writer, model = Writer(uri, write), Model(False)
        writer.step(model)
        writer.step(model)
        for n in range(1, 10):
            lakebed.open(uri).upsert(rows((n, f"c{n}", f"v{n}", n)))

        def commit() -> None:
            writer.step(model)
            assert writer.error is None

        yield commit


def tidy(uri: str) -> Table:
    """Clean and archive; gives the table, on whose timeline the late commit is not any more."""
    if lakebed.open(uri).properties.get("hoodie.table.metadata.partitions"):
        lakebed.open(uri).upsert(rows((0, "c0", "again", 20)))  # which compacts the metadata table before
    table = lakebed.open(uri)
    table.maintenance.clean(options=_KEEP)
    assert table.maintenance.archive(options=_KEEP).instants
    return lakebed.open(uri)


def ids(found: Any) -> list[int]:
    return sorted(found.to_arrow().column("id").to_pylist())


def changed(table: Table, start: str) -> list[int]:
    return sorted((row["after"] or row["before"])["id"] for row in table.cdc(start).to_arrow().to_pylist())


@pytest.mark.parametrize(("version", "kind", "has_metadata"), SHAPES)
def test_changes_of_a_late_commit_that_is_archived_are_read(
    uri: str, version: int, kind: str, has_metadata: bool
) -> None:
    with late_commit(uri, version, kind, has_metadata=has_metadata) as commit:
        checkpoint = lakebed.open(uri).changes("000").end
        commit()
    table = tidy(uri)
    again = [0] if has_metadata else []
    active = [i for i in table.timeline if i.is_completed and i.completion_time and "commit" in str(i.action)]
    assert min(str(i.completion_time) for i in active) <= checkpoint
    found = table.changes(checkpoint)
    assert ids(found) == [*again, LATE]
    assert ids(table.changes(found.end)) == []


@pytest.mark.parametrize(("version", "kind", "has_metadata"), SHAPES)
def test_change_data_of_an_archived_late_commit_names_a_checkpoint_after_it(
    uri: str, version: int, kind: str, has_metadata: bool
) -> None:
    with late_commit(uri, version, kind, has_metadata=has_metadata) as commit:
        checkpoint = lakebed.open(uri).cdc("000").end
        commit()
        late = lakebed.open(uri).cdc(checkpoint).end
    table = tidy(uri)
    with pytest.raises(InvalidOption, match="some of these commits are archived") as raised:
        changed(table, checkpoint)
    named = str(raised.value.context["checkpoint"])
    assert re.search(rf"go on from {named}", str(raised.value))
    assert named >= late
    table.upsert(rows((1, "c1", "new", 30)))
    assert changed(lakebed.open(uri), named) == ([0, 1] if has_metadata and named == late else [1])


@pytest.mark.parametrize("version", [9, 8])
def test_commits_archived_during_a_read_are_left_to_the_next_read(uri: str, version: int) -> None:
    """The archive is read after the timeline: it may have a commit that completed after others that are in neither."""
    with late_commit(uri, version, "cow", has_metadata=False) as commit:
        early = lakebed.open(uri).changes("000")  # goes by the timeline of now
        lakebed.open(uri).upsert(rows((10, "c10", "v10", 10)))
        commit()
    table = tidy(uri)
    first = ids(early)
    assert [*first, *ids(table.changes(early.end))] == [*range(10), 10, LATE]


def test_the_archive_is_looked_at_where_a_late_commit_can_be_in_it(uri: str) -> None:
    """With a metadata table only behind a compaction of it, since all that is archived completed before one."""
    with late_commit(uri, 9, "cow", has_metadata=True) as commit:
        checkpoint = lakebed.open(uri).changes("000").end
        commit()
    tidy(uri).upsert(rows((1, "c1", "new", 30)))
    assert looks(uri, checkpoint) > 0
    assert looks(uri, lakebed.open(uri).changes("000").end) == 0


def looks(uri: str, start: str) -> int:
    """How many files of the archive an incremental read opens."""
    counted: list[CountingStorage] = []

    def counting(inner: Storage) -> Storage:
        counted.append(CountingStorage(inner))
        return counted[-1]

    with wrapping(counting):
        lakebed.open(uri).changes(start).to_arrow()
    return sum("/history/" in path for one in counted for path in one.opened)
