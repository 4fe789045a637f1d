"""The entries of a build in runs: one layer comes of them, however many runs there were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata_kinds import vector_index
from lakebed.metadata_kinds.layer_records import BUILD
from lakebed.vector_index.entries import Entries, WrittenRows, coded_entries, row_hashes
from lakebed.vector_index.layers import Groups, Layer
from lakebed.vector_index.runs import EntryRuns, StoredBlocks
from support.vector_layers import small_coder
from support.vector_tables import INDEX, check_search, indexed_table, nearest, stored_index, vector_rows


def entries_of(numbers: range, vectors: np.ndarray, group: int) -> Entries:
    keys = pa.array([f"k{n:03d}" for n in numbers])
    of = np.array(numbers)
    coder = small_coder(vectors, 5)
    rows = WrittenRows(vectors[of], keys, row_hashes(keys, "p"), np.full(len(of), group), of)
    return coded_entries(coder, rows)


def content(layer: Layer, vectors: np.ndarray) -> list[tuple[str, int, int, bytes]]:
    """The key, the cluster, the position and the code of each entry, in the order of the layer."""
    shape = small_coder(vectors, 5).shape
    rows: list[tuple[str, int, int, bytes]] = []
    for block in layer.blocks(range(len(layer.head.firsts))):
        e = Entries.from_bytes(block, shape)
        codes = [code.tobytes() for code in e.coded.codes]
        rows += zip(e.keys.to_pylist(), e.coded.clusters.tolist(), e.rows.tolist(), codes, strict=True)
    return rows


def test_a_layer_of_runs_is_that_of_all_entries_at_once() -> None:
    vectors = np.random.default_rng(1).standard_normal((300, 4)).astype(np.float32)
    parts = [entries_of(range(start, start + 50), vectors, start // 150) for start in range(0, 300, 50)]
    groups = Groups(pa.array(["p", "p"]), pa.array(["first", "second"]))
    coder = small_coder(vectors, 5)
    at_once = EntryRuns(coder).joined(parts, groups)
    runs = EntryRuns(coder)
    runs.add(parts[:2], Groups(pa.array(["p"]), pa.array(["first"])))
    runs.add(parts[2:5], groups)
    assert len(runs) == 2
    layer = runs.joined(parts[5:], groups)
    assert sorted(content(layer, vectors)) == sorted(content(at_once, vectors))
    clusters = [cluster for _, cluster, _, _ in content(layer, vectors)]
    assert clusters == sorted(clusters)
    assert layer.head.groups.ids.to_pylist() == ["first", "second"]
    assert layer.head.counts.tolist() == at_once.head.counts.tolist()
    assert len(EntryRuns(coder).joined([], Groups()).head.firsts) == 0


def test_blocks_in_a_file_are_read_by_their_numbers() -> None:
    blocks = StoredBlocks()
    for data in (b"one", b"", b"three"):
        blocks.add(data)
    assert (len(blocks), blocks.read([2, 0, 1])) == (3, [b"three", b"one", b""])


@pytest.mark.parametrize("bound", [1, 1 << 40], ids=["in files", "in memory"])
@pytest.mark.parametrize("coded", [1, 1 << 20], ids=["each batch", "all batches"])
def test_an_index_is_built_whether_or_not_its_entries_are_in_memory(
    bound: int, coded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index, "_RUN_BYTES", bound)
    monkeypatch.setattr(vector_index, "_CODED_ROWS", coded)
    runs: list[int] = []
    joined = EntryRuns.joined

    def counted(self: EntryRuns, parts: list[Entries], groups: Groups) -> Layer:
        runs.append(len(self))
        return joined(self, parts, groups)

    monkeypatch.setattr(EntryRuns, "joined", counted)
    table = indexed_table("cow", str(tmp_path / "table"))
    assert runs == [2 if bound == 1 else 0]  # one run for each partition
    check_search(table)
    assert stored_index(table).layer_heads[BUILD].rows == 36
    table.upsert(vector_rows(range(30, 60), ts=2))
    before = nearest(table)
    table.indexes.rebuild("emb")
    assert nearest(table) == before
    assert (len(runs), runs[1] > 0) == (2, bound == 1)
    assert table.indexes.verify(INDEX).ok
    table.indexes.drop(INDEX)
    table.indexes.create("vector", column="emb", metric="l2")
    assert nearest(lakebed.open(table.uri)) == before
