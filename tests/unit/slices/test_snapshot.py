"""Views of a table do not change: another instant or another metadata table is another view."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lakebed
from lakebed.metadata.lookups import open_snapshot, snapshot_of
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage
from support.write_tables import SCHEMA, rows

NAME = "views-do-not-change"


@pytest.fixture
def snapshot() -> Iterator[Snapshot]:
    MemoryStorage.drop(NAME)
    table = lakebed.create(f"memory://{NAME}/t", SCHEMA, key="id", ordering="ts")
    for n in range(3):
        table.upsert(rows((n, "c", "a", 1)))
    yield open_snapshot(CountingStorage(MemoryStorage(NAME, "t")))
    MemoryStorage.drop(NAME)


def test_a_view_of_another_metadata_table_is_another_view(snapshot: Snapshot) -> None:
    shown = snapshot.metadata
    assert shown is not None
    assert snapshot.metadata is shown
    older = snapshot_of(snapshot.storage, snapshot.config, snapshot.timeline)
    seeing = older.seeing(shown)
    assert seeing is not older
    assert seeing.metadata is shown
    assert older.metadata is not shown


def test_views_of_other_instants_read_no_file_again(snapshot: Snapshot) -> None:
    storage = snapshot.storage
    assert isinstance(storage, CountingStorage)
    old = snapshot.at(snapshot.commits[0].time)
    assert (snapshot.as_of, old.as_of) == (None, snapshot.commits[0].time)
    files = snapshot.file_slices()
    before = sum(storage.counts.values())
    assert old.metadata is snapshot.metadata
    assert {s.instant for s in old.file_slices()} == {old.instant}
    assert snapshot.file_slices() == files
    assert sum(storage.counts.values()) == before


def test_a_slice_is_read_in_the_columns_of_its_commit(snapshot: Snapshot) -> None:
    (file_slice,) = snapshot.file_slices()
    assert snapshot.schema_of(file_slice).names == SCHEMA.names
    read = [b.num_rows for b in snapshot.reader.read(file_slice)]
    assert sum(read) == snapshot.reader.count(file_slice) == 3
