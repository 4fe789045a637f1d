"""A write that began while another one was pending, which completed and was archived since: archival goes by requested
times and passes commits over that were requested before the first pending one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.storage.memory import MemoryStorage
from property.crossing import Change, Model, Write, Writer, held_writers
from support.crash_tables import rows, state

QUIET: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.metadata.compact.max.delta.commits": 1,
}
_KEEP: dict[str, Any] = {
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.compact.inline.max.delta.commits": 2,
}
KINDS = [(9, "cow", True), (9, "mor", False), (8, "cow", False), (8, "mor", True), (6, "cow", False), (6, "mor", False)]


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"archived-conflicts-{uuid.uuid4().hex}"
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


def archived_between(uri: str, version: int, kind: str, first: Any, last: Any, *, metadata: bool) -> Writer:
    """The second of two writes: it began while the first was pending, which committed and was archived before the
    second commits."""
    table = lakebed.create(
        uri,
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,  # pyright: ignore[reportArgumentType]
        index="simple",
        table_version=version,
        properties={**QUIET, "hoodie.metadata.enable": metadata},
    )
    table.upsert(rows((0, "c0", "old", 0), (1, "c1", "old", 0)))
    model = Model(False)
    with held_writers():
        writers = [
            Writer(uri, Write("upsert", lambda t, given=given: t.upsert(given), lambda _: Change()))
            for given in (first, last)
        ]
        for n, writer in enumerate(writers):
            writer.step(model)
            writer.step(model)
            for number in range(4):
                lakebed.open(uri).upsert(rows((10 * n + number + 2, f"d{n}{number}", "other", 0)))
        began = min(i.time for i in lakebed.open(uri).timeline if not i.is_completed)
        writers[0].step(model)
        assert writers[0].error is None
        lakebed.open(uri).upsert(rows((100, "d", "other", 0)))
        lakebed.open(uri).maintenance.archive(options=_KEEP)
        assert began not in {i.time for i in lakebed.open(uri).timeline}
        writers[1].step(model)
    return writers[1]


@pytest.mark.parametrize(("version", "kind", "metadata"), KINDS)
def test_a_commit_of_the_same_rows_that_was_archived_since_is_a_conflict(
    uri: str, version: int, kind: str, metadata: bool
) -> None:
    first, last = rows((0, "c0", "first", 1)), rows((0, "c0", "last", 2), (5, "c0", "last", 2))
    writer = archived_between(uri, version, kind, first, last, metadata=metadata)
    assert isinstance(writer.error, CommitConflict)
    assert "was changed by another writer (UPSERT)" in str(writer.error)
    assert {key: row for key, row in state(uri).items() if row[1] != "other"} == {
        0: ("c0", "first", 1),
        1: ("c1", "old", 0),
    }


@pytest.mark.parametrize(("version", "kind", "metadata"), KINDS)
def test_an_archived_commit_of_other_rows_is_no_conflict(uri: str, version: int, kind: str, metadata: bool) -> None:
    first, last = rows((0, "c0", "first", 1)), rows((1, "c1", "last", 2))
    writer = archived_between(uri, version, kind, first, last, metadata=metadata)
    assert writer.error is None
    assert {key: row for key, row in state(uri).items() if row[1] != "other"} == {
        0: ("c0", "first", 1),
        1: ("c1", "last", 2),
    }
