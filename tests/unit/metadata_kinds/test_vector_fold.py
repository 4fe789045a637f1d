"""Where a fold of a vector index finds the rows of its entries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds.vector_fold import VectorLocators
from lakebed.storage import open_storage
from lakebed.vector_index.entries import WrittenRows, coded_entries, row_hashes
from lakebed.vector_index.layers import Groups
from support.vector_layers import small_coder
from support.vector_tables import indexed_table, vector_rows, vector_table

SOON = {"hoodie.metadata.compact.max.delta.commits": 5, "hoodie.clean.automatic": False}


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
    locators = VectorLocators(snapshot, old)
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
    locators = VectorLocators(snapshot, Groups(pa.array(["p1"]), pa.array(["gone"])))
    moved = locators.relocated(coded_entries(small_coder(vectors, 1), rows))
    assert moved.keys.to_pylist() == ["k001", "k001", "k003"]
    ids = locators.groups.ids.take(pa.array(moved.groups)).to_pylist()
    assert set(ids[:2]) == having
    assert ids[2] in having
