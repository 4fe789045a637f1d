"""Slices that are read again after each commit: the blocks that came since give the same rows as all blocks at once."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import META_COLUMNS, FileSlice
from lakebed.slices import changed_rows
from lakebed.slices.changed_rows import KEY_TABLES, TouchedSlice
from lakebed.slices.log_rows import LOG_ROWS, REPLACEMENTS
from lakebed.slices.placed_records import PLACED
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from support.same_rows import assert_same_rows

COUNT = 60
STEPS = 12
DELETED = "_hoodie_is_deleted"


@pytest.fixture
def place() -> Iterator[str]:
    name = f"placed-{uuid.uuid4().hex}"
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


def touched_rows(snapshot: Snapshot, file_slice: FileSlice, *, caches_keys: bool) -> tuple[np.ndarray, pa.Table]:
    """The flags of the slice's base rows, and its log rows, in the columns of the table."""
    reader = SliceReader(snapshot.storage, snapshot.config, history=snapshot.history)
    base = file_slice.base_file
    assert base is not None
    names = [name for name in snapshot.schema.names if name not in META_COLUMNS]
    schema = pa.schema([snapshot.schema.field(name) for name in names])
    touched = TouchedSlice(reader, file_slice, base, names, schema, caches_keys=caches_keys)
    flags = touched.flags()
    return flags, pa.Table.from_batches([batch.cast(schema) for batch in touched.log_rows()], schema)


def check(uri: str) -> int:
    """Compare each slice, read on from what was read of it before, with the slice read as a whole; gives the number of
    slices that were read on."""
    snapshot = open_snapshot(open_storage(uri))
    read_on = 0
    for file_slice in snapshot.file_slices():
        if file_slice.base_file is None or not file_slice.log_files:
            continue
        before = PLACED.hits
        flags, rows = touched_rows(snapshot, file_slice, caches_keys=True)
        read_on += PLACED.hits - before
        REPLACEMENTS.clear()
        LOG_ROWS.clear()
        expected_flags, expected = touched_rows(snapshot, file_slice, caches_keys=False)
        assert (flags == expected_flags).all()
        assert_same_rows(rows, expected)
    return read_on


def create(uri: str, ordering: str | None, **more: Any) -> lakebed.Table:
    rows = pa.table({"id": range(COUNT), "v": pa.array(range(COUNT), pa.int32()), "o": pa.array([5] * COUNT)})
    rows = rows.append_column(DELETED, pa.array([False] * COUNT))
    table = lakebed.create(
        uri, rows, key="id", ordering=ordering, type="mor", index="bucket", buckets=2,
        properties={"hoodie.compact.inline": False, **more},
    )  # fmt: skip
    table.bulk_insert(rows)
    table.bulk_insert(rows.slice(0, 3))  # keys that a base file may have twice
    return table


def some_rows(chance: random.Random) -> pa.Table:
    """Rows of different keys, of which the table has most, with ordering values around those of its rows."""
    ids = chance.sample(range(COUNT + 20), chance.randrange(1, 15))
    values = pa.array([chance.randrange(1000) for _ in ids], pa.int32())
    ordering = pa.array([chance.randrange(3, 9) for _ in ids])
    return pa.table({"id": ids, "v": values, "o": ordering, DELETED: [False] * len(ids)})


@pytest.mark.parametrize("ordering", [None, "o"])
@pytest.mark.parametrize("seed", range(4))
def test_a_slice_that_is_read_on_after_each_commit_has_the_rows_of_one_that_is_read_as_a_whole(
    seed: int, ordering: str | None, place: str
) -> None:
    PLACED.clear()
    chance, table, read_on = random.Random(seed), create(place, ordering), 0
    for _ in range(STEPS):
        step = chance.choices(["upsert", "delete", "ordered delete", "compact", "undo"], [8, 2, 2, 1, 1])[0]
        if step == "upsert":
            table.upsert(some_rows(chance))
        elif step == "delete":
            table.delete(some_rows(chance)["id"].to_pylist())
        elif step == "ordered delete":
            deletes = some_rows(chance).drop_columns([DELETED])
            table.upsert(deletes.append_column(DELETED, pa.array([True] * len(deletes))))
        elif step == "compact":
            table.maintenance.compact()
        else:
            table.upsert(some_rows(chance))
            check(place)
            with contextlib.suppress(lakebed.UnsupportedFeature):  # the metadata table was compacted since
                last = table.timeline.last
                assert last is not None
                table.rollback(last.time)
        read_on += check(place)
    assert read_on


def test_rows_of_a_column_that_became_wider_are_read_with_its_type(place: str) -> None:
    table = create(place, "o")
    table.upsert(pa.table({"id": [1, 2], "v": pa.array([7, 8], pa.int32()), "o": [6, 6], DELETED: [False] * 2}))
    check(place)
    table.columns.widen("v", "bigint")
    table.upsert(pa.table({"id": [2, 3], "v": pa.array([1 << 40, 9], pa.int64()), "o": [7, 7], DELETED: [False] * 2}))
    check(place)
    rows = table.scan(["id", "v"], where="id in (1, 2, 3)").to_arrow()
    assert {(1, 7), (2, 1 << 40), (3, 9)} == set(zip(*rows.to_pydict().values(), strict=True))


@pytest.mark.parametrize("is_cached", [True, False])
def test_the_keys_of_a_file_that_would_fill_the_cache_are_not_cached(
    is_cached: bool, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(place, None)
    table.upsert(pa.table({"id": [1, 2, 99], "v": pa.array([7, 8, 9], pa.int32()), "o": [1] * 3, DELETED: [False] * 3}))
    snapshot = open_snapshot(open_storage(place))
    sizes = [base_rows(snapshot, one) for one in merged_slices(snapshot)]
    monkeypatch.setattr(changed_rows, "MAX_KEYS", max(sizes) - (not is_cached))
    KEY_TABLES.clear()
    PLACED.clear()
    check(place)
    cached = [size for size in sizes if is_cached or size < max(sizes)]
    assert KEY_TABLES.nbytes == sum(cached) * changed_rows.KEY_BYTES


def base_rows(snapshot: Snapshot, file_slice: FileSlice) -> int:
    return len(touched_rows(snapshot, file_slice, caches_keys=False)[0])


def merged_slices(snapshot: Snapshot) -> list[FileSlice]:
    return [s for s in snapshot.file_slices() if s.log_files and s.base_file is not None]


def test_only_new_blocks_are_decoded_and_only_their_keys_looked_up(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(place, None)
    PLACED.clear()
    searched: list[int] = []
    found = changed_rows.KeyTable.find
    monkeypatch.setattr(
        changed_rows.KeyTable, "find", lambda self, keys: (searched.append(len(keys)), found(self, keys))[1]
    )
    table.upsert(
        pa.table({"id": range(40), "v": pa.array(range(40), pa.int32()), "o": [1] * 40, DELETED: [False] * 40})
    )
    snapshot = open_snapshot(open_storage(place))
    for file_slice in merged_slices(snapshot):
        touched_rows(snapshot, file_slice, caches_keys=True)
    assert sum(searched) == 40
    table.upsert(pa.table({"id": [0, 1], "v": pa.array([7, 8], pa.int32()), "o": [1, 1], DELETED: [False] * 2}))
    searched.clear()
    snapshot = open_snapshot(open_storage(place))
    for file_slice in merged_slices(snapshot):
        touched_rows(snapshot, file_slice, caches_keys=True)
    assert sum(searched) == 2
