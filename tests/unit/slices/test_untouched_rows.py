"""The rows of a slice are those of its base file that no log record touches, and its log rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.base_file import read_base_file
from lakebed.metadata.lookups import open_snapshot
from lakebed.slices.changed_rows import TouchedSlice
from lakebed.slices.log_rows import LOG_ROWS, REPLACEMENTS
from lakebed.slices.reader import SliceReader
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from support.golden_tables import GoldenTable, golden_mor_tables, spread
from support.same_rows import assert_same_rows

COUNT = 200
KEY = "_hoodie_record_key"


@pytest.fixture
def place() -> Iterator[str]:
    name = f"untouched-{uuid.uuid4().hex}"
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


def table_of(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([batch.select(schema.names).cast(schema) for batch in batches], schema)


def check(uri: str) -> tuple[int, int]:
    """Compare the rows of all slices with log files, read twice; gives how many are untouched, and how many log rows
    there are."""
    snapshot = open_snapshot(open_storage(uri))
    reader = SliceReader(snapshot.storage, snapshot.config, history=snapshot.history)
    untouched = given = 0
    for file_slice in snapshot.file_slices():
        base = file_slice.base_file
        if base is None or base.is_skeleton or not reader.is_merged(file_slice):
            continue
        schema = pa.schema(
            [f for f in snapshot.schema if f.name in snapshot.schema_of(file_slice.without_logs()).names]
        )
        names = schema.names
        expected = table_of(reader.read(file_slice, names, schema=schema), schema)
        REPLACEMENTS.clear()
        LOG_ROWS.clear()
        stays = rows = expected.slice(0, 0)
        for caches_keys in (False, False, True, True):
            touched = TouchedSlice(reader, file_slice, base, names, schema, caches_keys=caches_keys)
            stored = table_of(read_base_file(snapshot.storage, base.path, base.size, names), schema)
            stays = stored.filter(pa.array(~touched.flags()))
            rows = table_of(touched.log_rows(), schema)
            assert_same_rows(pa.concat_tables([stays, rows]), expected)
        untouched, given = untouched + stays.num_rows, given + rows.num_rows
    return untouched, given


RENAMED = ("v9_mor_evolve_read",)


@pytest.mark.parametrize("table", spread([t for t in golden_mor_tables() if t.name not in RENAMED]))
def test_slices_that_hudi_wrote_are_their_untouched_rows_and_their_log_rows(table: GoldenTable, tmp_path: Path) -> None:
    check(str(table.unpack(tmp_path)))


@pytest.mark.parametrize("merge", ["event_time", "commit_time"])
@pytest.mark.parametrize("settings", [{}, {"hoodie.logfile.data.block.format": "parquet"}], ids=["avro", "parquet"])
def test_rows_that_logs_update_delete_insert_or_are_too_late_for(
    merge: Any, settings: dict[str, str], place: str
) -> None:
    rows = pa.table({"id": range(COUNT), "v": ["old"] * COUNT, "o": [5] * COUNT})
    ordering = "o" if merge == "event_time" else None
    table = lakebed.create(
        place, rows, key="id", ordering=ordering, merge=merge, type="mor", index="bucket", buckets=2,
        properties={"hoodie.compact.inline": False},
    )  # fmt: skip
    table.bulk_insert(rows)
    newer = pa.table({"id": [1, 2, 3, 4, 500], "v": ["new"] * 5, "o": [9, 9, 1, 5, 1]})
    table.upsert(newer, options=settings)
    table.delete([2, 7])
    table.upsert(newer.slice(0, 1).set_column(1, "v", pa.array(["newest"])), options=settings)
    # 3 is too late where ordering values count
    touched = {1, 2, 4, 7} | ({3} if ordering is None else set())
    assert check(place) == (COUNT - len(touched), len(touched - {2, 7} | {500}))
    found = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert found[1] == "newest"
    assert found[500] == found[4] == "new"
    assert found[3] == ("old" if ordering else "new")


def test_all_rows_are_touched_where_records_are_merged_with_stored_rows(place: str) -> None:
    rows = pa.table({"id": range(COUNT), "v": ["old"] * COUNT, "w": ["old"] * COUNT, "o": [5] * COUNT})
    table = lakebed.create(
        place, rows, key="id", ordering="o", type="mor", index="bucket", buckets=1,
        properties={"hoodie.compact.inline": False, "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
    )  # fmt: skip
    table.bulk_insert(rows)
    table.upsert(pa.table({"id": [1], "v": ["new"], "w": pa.array([None], pa.string()), "o": [9]}))
    assert check(place) == (0, COUNT)


def test_a_key_that_the_base_file_has_twice_is_touched_in_its_first_row(place: str) -> None:
    rows = pa.table({"id": [1, 2, 2, 3], "v": ["a", "b", "c", "d"], "o": [1] * 4})
    table = lakebed.create(
        place, rows, key="id", ordering="o", type="mor", index="bucket", buckets=1,
        properties={"hoodie.compact.inline": False},
    )  # fmt: skip
    table.bulk_insert(rows)
    table.upsert(pa.table({"id": [2], "v": ["new"], "o": [2]}))
    assert check(place) == (3, 1)
    assert sorted(table.scan(["v"]).to_arrow()["v"].to_pylist()) == ["a", "c", "d", "new"]
