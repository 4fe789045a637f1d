"""Where a fold of a vector index finds the rows of its entries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds import layer_fold
from lakebed.metadata_kinds.layer_records import BUILD
from lakebed.metadata_kinds.vector_fold import VectorLocators
from lakebed.storage import open_storage
from lakebed.vector_index.entries import NO_ROW, WrittenRows, coded_entries, row_hashes
from lakebed.vector_index.layers import Groups
from support.vector_layers import small_coder
from support.vector_tables import check_search, indexed_table, stored_index, vector_rows, vector_table

SOON = {"hoodie.metadata.compact.max.delta.commits": 5, "hoodie.clean.automatic": False}


def fold(table: lakebed.Table) -> lakebed.Table:
    """The table after the compaction of its metadata table, which is due."""
    list(table.maintenance.run(once=True, options={"hoodie.metadata.compact.max.delta.commits": 1}))
    return lakebed.open(table.uri)


def positions(table: lakebed.Table) -> dict[str, int]:
    """The positions that the index has for the rows of its base, by key; an entry of a deleted row has none."""
    parts = [(e.keys.to_pylist(), e.rows.tolist()) for e, _ in stored_index(table).of_layers((BUILD,)).entries()]
    return {key: row for part in parts for key, row in zip(*part, strict=True) if row != NO_ROW}


def stored_positions(table: lakebed.Table) -> dict[str, int]:
    """The positions of the rows with a vector in the base files of a table without log files, by key."""
    snapshot = open_snapshot(open_storage(table.uri))
    rows: dict[str, int] = {}
    for file_slice in snapshot.file_slices():
        assert not file_slice.log_files
        (batch,) = snapshot.reader.read(file_slice, ["id", "emb"])
        ids, has_vector = batch.column("id").to_pylist(), batch.column("emb").is_valid().to_pylist()
        rows |= {key: row for row, (key, valid) in enumerate(zip(ids, has_vector, strict=True)) if valid}
    return rows


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_fold_records_where_rows_are_in_files_that_were_written_again(kind: str) -> None:
    table = indexed_table(kind, properties=SOON)
    assert positions(table) == stored_positions(table)
    table.delete(["k001", "k003", "k006"])
    table.upsert(vector_rows(range(30, 50), ts=2))
    if kind == "mor":
        table.maintenance.compact()
    else:
        table.maintenance.cluster()
    assert positions(table) != stored_positions(table)
    table = fold(table)
    assert positions(table) == stored_positions(table)
    check_search(table)


@pytest.mark.parametrize("records", [True, False])
def test_a_fold_reads_no_more_keys_than_it_may(records: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = indexed_table("mor", properties=SOON)
    built = stored_index(table).coder.shape.instant
    table.upsert(vector_rows(range(40, 46), ts=2))
    table.upsert(vector_rows(range(1, 2), ts=3))
    table.maintenance.compact()
    snapshot = open_snapshot(open_storage(table.uri))
    bases = [s for s in snapshot.file_slices() if s.base_file is not None and s.base_file.instant > built]
    written_again = sum(snapshot.reader.count(file_slice) for file_slice in bases)
    monkeypatch.setattr(layer_fold, "MAX_MOVED", written_again - (not records))
    table = fold(table)
    assert (positions(table) == stored_positions(table)) is records
    check_search(table)


def test_exact_vectors_stay_where_their_file_group_has_log_files() -> None:
    table = indexed_table("mor", properties=SOON)
    table.upsert(vector_rows(range(1, 2), ts=2))  # a log file in p1
    snapshot = open_snapshot(open_storage(table.uri))
    slices = {s.partition: s for s in snapshot.file_slices()}
    assert slices["p1"].log_files
    assert not slices["p0"].log_files
    old = Groups(pa.array(["p0", "p1", "p1"]), pa.array([slices["p0"].file_id, slices["p1"].file_id, "gone"]))
    vectors = np.arange(16, dtype=np.float32).reshape(4, 4)
    keys = pa.array(["k002", "k001", "k003", "unknown"])
    paths = pa.array(["p0", "p1", "p1", "p1"])
    rows = WrittenRows(
        vectors, keys, row_hashes(keys, paths), np.array([0, 1, 2, 2]), np.arange(4), np.ones(4, np.bool_)
    )
    entries = coded_entries(small_coder(vectors, 1), rows)
    locators = VectorLocators(snapshot, old, snapshot.instant)
    moved = locators.relocated(entries)
    assert moved.keys.to_pylist() == ["k002", "k001", "k003"]
    ids = locators.groups.ids.take(pa.array(moved.groups)).to_pylist()
    assert ids == [slices["p0"].file_id, slices["p1"].file_id, slices["p1"].file_id]
    assert moved.rows.tolist() == [0, 1, 0xFFFFFFFF]
    assert moved.vector_rows.tolist() == [-1, 0, 1]
    assert moved.vectors.tolist() == vectors[1:3].tolist()


def test_a_moved_entry_is_for_each_file_group_that_has_its_key() -> None:
    table = vector_table("cow", properties={**SOON, "hoodie.parquet.small.file.limit": 0})
    table.insert(vector_rows(range(1, 2), ts=2))  # the key is there already
    snapshot = open_snapshot(open_storage(table.uri))
    having = {s.file_id for s in snapshot.file_slices() if s.partition == "p1"}
    assert len(having) == 2
    keys = pa.array(["k001", "k003"])
    vectors = np.eye(4, dtype=np.float32)[:2]
    rows = WrittenRows(vectors, keys, row_hashes(keys, "p1"), np.array([0, 0]), np.arange(2))
    locators = VectorLocators(snapshot, Groups(pa.array(["p1"]), pa.array(["gone"])), snapshot.instant)
    moved = locators.relocated(coded_entries(small_coder(vectors, 1), rows))
    assert moved.keys.to_pylist() == ["k001", "k001", "k003"]
    ids = locators.groups.ids.take(pa.array(moved.groups)).to_pylist()
    assert set(ids[:2]) == having
    assert ids[2] in having
