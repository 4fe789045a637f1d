"""Consistent hashing numbers rows alike whether the partition paths are looked at or all rings are read."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.engine.base import GROUP, Rows
from lakebed.engine.local import LocalEngine
from lakebed.index.base import Numbered
from lakebed.index.consistent import index as index_module
from lakebed.index.consistent.index import ConsistentIndex
from lakebed.index.consistent.ring import default_ring
from lakebed.index.consistent.ring_files import FOLDER
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import PARTITION_PATH, RECORD_KEY
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import CountingStorage

SPLITS = {"hoodie.bucket.index.max.num.buckets": 4, "hoodie.parquet.max.file.size": 300}
KEYS = [f"k{n}" for n in range(60)]
INDEX = ConsistentIndex(2, ("id",))


class TaskEngine(LocalEngine):
    """The engine of this process as if its functions ran in tasks elsewhere. It notes which counts it is asked for."""

    is_distributed = True

    def __init__(self) -> None:
        super().__init__()
        self.counts = 0

    def aggregate(self, rows: Any, by: Any, sums: Any = ()) -> pa.Table:
        self.counts += 1
        return super().aggregate(rows, by, sums)


@pytest.fixture
def table() -> Table:
    made = lakebed.create(
        f"memory://{uuid.uuid4().hex}/t",
        pa.schema([("id", pa.string()), ("region", pa.string()), ("v", pa.int64())]),
        key="id",
        partition_by="region",
        type="mor",
        index="consistent",
        buckets=2,
        merge="commit_time",
        properties={"hoodie.compact.inline": False},
    )
    made.upsert({"id": KEYS, "region": [f"p{n % 2}" for n in range(60)], "v": [1] * 60})
    return made


def incoming(*paths: str) -> pa.Table:
    return pa.table({RECORD_KEY: KEYS, PARTITION_PATH: [paths[n % len(paths)] for n in range(60)]})


def view(table: Table) -> Snapshot:
    return open_snapshot(open_storage(table.uri))


def placed(index: ConsistentIndex, rows: pa.Table, snapshot: Snapshot, engine: LocalEngine) -> list[tuple[Any, ...]]:
    """Partition path, key and file group of each row, whether that is there, and what holds its rows until then."""
    answer = index.place(engine.rows(rows), snapshot, engine)
    assert isinstance(answer, Numbered)
    found: Rows = engine.collect(answer.rows)
    result: list[tuple[Any, ...]] = []
    for path, key, number in zip(
        *(found.column(n).to_pylist() for n in (PARTITION_PATH, RECORD_KEY, GROUP)), strict=True
    ):
        place = (path, number)
        parents = tuple(one.file_id for one in answer.parents.get(place, ()))
        existing = answer.existing.get(place)
        file_id = answer.names.file_id(*place)
        assert existing is None or existing.file_id == file_id
        result.append((path, key, file_id, existing is not None, parents))
    return sorted(result)


def all_ways(
    index: ConsistentIndex, rows: pa.Table, table: Table, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Any, ...]]:
    """What is placed in this process; it is the same in tasks, with all rings and with those of the rows alone."""
    here = placed(index, rows, view(table), LocalEngine())
    all_rings, counted = TaskEngine(), TaskEngine()
    assert placed(index, rows, view(table), all_rings) == here
    monkeypatch.setattr(index_module, "MAX_RINGS", 0)
    assert placed(index, rows, view(table), counted) == here
    monkeypatch.undo()
    assert (all_rings.counts, counted.counts) == (0, 1)
    return here


def test_known_and_new_partition_paths(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    here = all_ways(INDEX, incoming("p0", "p1", "p9"), table, monkeypatch)
    assert len(here) == 60
    assert {(path, there) for path, _, _, there, _ in here} == {("p0", True), ("p1", True), ("p9", False)}
    fresh = {node.file_id for node in default_ring("p9", 2).nodes}
    assert {file_id for path, _, file_id, _, _ in here if path == "p9"} == fresh


def test_rows_of_a_pending_split_come_for_the_new_buckets_too(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.maintenance.cluster(plan_only=True, options=SPLITS)
    before = {one.file_id for one in table.files}
    here = all_ways(INDEX, incoming("p0", "p1", "p9"), table, monkeypatch)
    copies = [row for row in here if row[2] not in before and row[0] != "p9"]
    assert sorted(row[1] for row in copies) == sorted(row[1] for row in here if row[2] in before)
    places = {(path, key): file_id for path, key, file_id, _, _ in here if file_id in before}
    assert all(parents == (places[path, key],) for path, key, _, _, parents in copies)


def test_a_ring_that_has_split_is_read(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.maintenance.cluster(options=SPLITS)
    table.upsert({"id": KEYS, "region": [f"p{n % 2}" for n in range(60)], "v": [2] * 60})
    here = all_ways(INDEX, incoming("p0", "p1"), table, monkeypatch)
    assert {file_id for _, _, file_id, _, _ in here} == {one.file_id for one in table.files}
    assert len({file_id for _, _, file_id, _, _ in here}) == 8
    assert all(there for _, _, _, there, _ in here)


def test_a_write_that_replaces_names_new_groups_where_a_ring_is(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.maintenance.cluster(plan_only=True, options=SPLITS)
    here = all_ways(INDEX.for_new_groups("20300101000000000"), incoming("p0", "p9"), table, monkeypatch)
    assert len(here) == 60
    before = {one.file_id for one in table.files}
    assert not before & {file_id for _, _, file_id, _, _ in here}
    assert not any(there or parents for *_, there, parents in here)
    fresh = {node.file_id for node in default_ring("p9", 2).nodes}
    assert {file_id for path, _, file_id, _, _ in here if path == "p9"} == fresh


def test_every_ring_is_read_once_and_a_completed_change_noted_once(table: Table) -> None:
    table.maintenance.cluster(options=SPLITS)
    storage = CountingStorage(open_storage(table.uri))
    # as where the runner died before it noted the change
    notes = [info.path for info in storage.list(FOLDER) if info.path.endswith(".commit")]
    assert len(notes) == 2
    for path in notes:
        storage.delete(path)
    for noted in (2, 0):
        snapshot = open_snapshot(storage)
        storage.reset()
        placed(INDEX, incoming("p0"), snapshot, TaskEngine())
        assert len([path for path in storage.opened if path.startswith(FOLDER)]) == 2
        assert len([path for path in storage.written if path.startswith(FOLDER)]) == noted
