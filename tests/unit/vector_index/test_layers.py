from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile
from lakebed.vector_index import layers as module
from lakebed.vector_index.codes import Coder
from lakebed.vector_index.entries import Entries, coded_entries
from lakebed.vector_index.frame import Kind, pack
from lakebed.vector_index.layers import BlockWriter, Changes, Groups, LayerHead, write_layer
from support.vector_layers import small_coder, written

RANDOM = np.random.default_rng(5)
VECTORS = RANDOM.normal(size=(3000, 4)).astype(np.float32)
GROUPS = Groups(pa.array(["p=1", "p=2"]), pa.array(["one", "two"]))


def entries_in(coder: Coder, counts: dict[int, int]) -> Entries:
    """So many entries in each cluster, in a random order."""
    clusters = RANDOM.permutation(np.repeat(list(counts), list(counts.values())))
    entries = coded_entries(coder, written(VECTORS[: len(clusters)], [f"k{n}" for n in range(len(clusters))]))
    entries.coded.clusters[:] = clusters
    return entries


def blocks_of(entries: Entries, coder: Coder) -> tuple[LayerHead, list[Entries]]:
    blocks: list[bytes] = []
    head = write_layer([entries], GROUPS, None, blocks.append)
    return head, [Entries.from_bytes(block, coder.shape) for block in blocks]


@pytest.mark.parametrize(
    ("counts", "bounds", "sizes"),
    [
        ({}, [], []),
        ({2: 1}, [(2, 2)], [1]),
        ({0: 63, 3: 1}, [(0, 3)], [64]),
        ({0: 64, 3: 1}, [(0, 0), (3, 3)], [64, 1]),
        ({1: 2048, 2: 5}, [(1, 1), (2, 2)], [2048, 5]),
        ({1: 2049, 2: 5}, [(1, 1), (1, 2)], [2048, 6]),
        ({0: 10, 1: 2038, 2: 5}, [(0, 1), (2, 2)], [2048, 5]),
        ({0: 10, 1: 2039, 2: 5}, [(0, 0), (1, 1), (2, 2)], [10, 2039, 5]),
        ({0: 20, 1: 20, 2: 20, 3: 20, 4: 20}, [(0, 3), (4, 4)], [80, 20]),
    ],
)
def test_small_clusters_share_a_block_and_large_ones_have_several(
    counts: dict[int, int], bounds: list[tuple[int, int]], sizes: list[int]
) -> None:
    coder = small_coder(VECTORS[:100])
    entries = entries_in(coder, counts)
    head, blocks = blocks_of(entries, coder)
    assert list(zip(head.firsts.tolist(), head.lasts.tolist(), strict=True)) == bounds
    assert [len(block) for block in blocks] == sizes
    assert dict(zip(head.clusters.tolist(), head.counts.tolist(), strict=True)) == counts
    assert head.rows == sum(counts.values())
    expected = dict(zip(entries.keys.to_pylist(), entries.coded.clusters.tolist(), strict=True))
    pairs = [pair for b in blocks for pair in zip(b.keys.to_pylist(), b.coded.clusters.tolist(), strict=True)]
    assert dict(pairs) == expected
    assert len(pairs) == len(expected)
    for cluster in range(6):
        numbers = head.blocks_of(np.array([cluster]))
        assert numbers == [n for n, block in enumerate(blocks) if cluster in block.coded.clusters]
    assert head.blocks_of(np.arange(6)) == list(range(len(blocks)))


def test_a_layer_written_in_several_steps_has_the_blocks_of_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    coder = small_coder(VECTORS[:100])
    entries = entries_in(coder, {0: 30, 1: 70, 2: 5, 3: 100, 4: 1, 5: 200})
    ordered = entries.take(np.argsort(entries.coded.clusters, kind="stable"))
    monkeypatch.setattr(module, "MAX_BLOCK_ENTRIES", 60)
    at_once: list[bytes] = []
    expected = write_layer([entries], GROUPS, None, at_once.append)
    parts: list[bytes] = []
    writer = BlockWriter(parts.append)
    for cluster in range(6):
        begin, end = np.searchsorted(ordered.coded.clusters, [cluster, cluster + 1]).tolist()
        writer.add(ordered.slice(begin, end))
    head = writer.finish(GROUPS)
    assert parts == at_once
    assert head.to_bytes() == expected.to_bytes()


def test_several_parts_are_one_layer() -> None:
    coder = small_coder(VECTORS[:100])
    entries = entries_in(coder, {0: 100, 1: 70, 5: 300})
    whole, in_parts = [], []
    write_layer([entries], GROUPS, None, whole.append)
    write_layer(
        [entries.slice(0, 200), entries.slice(200, 200), entries.slice(200, 470)], GROUPS, None, in_parts.append
    )
    assert whole == in_parts


def test_a_head_comes_back_from_its_bytes() -> None:
    coder = small_coder(VECTORS[:100])
    hashes = np.array([5, 3, 1 << 63, 3], np.uint64)
    changes = Changes(hashes, hashes[:1], pa.array(["p=1"]))
    head = LayerHead.from_bytes(write_layer([entries_in(coder, {1: 7})], GROUPS, changes, lambda data: None).to_bytes())
    assert head.groups.partitions.to_pylist() == ["p=1", "p=2"]
    assert head.groups.ids.to_pylist() == ["one", "two"]
    assert head.changes.replaced.tolist() == [3, 5, 1 << 63]
    assert head.changes.possible.tolist() == [5]
    assert head.changes.partitions.to_pylist() == ["p=1"]
    assert (head.clusters.tolist(), head.counts.tolist()) == ([1], [7])
    empty = LayerHead.from_bytes(write_layer([], Groups(), None, lambda data: None).to_bytes())
    assert (empty.rows, len(empty.groups), len(empty.changes.replaced)) == (0, 0, 0)


def head_columns(**changed: Any) -> list[Any]:
    numbers = {
        "clusters": np.array([1], np.uint32),
        "counts": np.array([7], np.uint32),
        "firsts": np.array([1], np.uint32),
        "lasts": np.array([2], np.uint32),
        "replaced": np.array([3, 5], np.uint64),
        "possible": np.array([9], np.uint64),
        "deleted": pa.array(["p=3"]),
        "partitions": pa.array(["p=1", "p=2"]),
        "ids": pa.array(["one", "two"]),
    }
    return list({**numbers, **changed}.values())


def test_the_bytes_are_those_of_earlier_releases() -> None:
    stored = bytes.fromhex(
        "4c5649480109690000003d8132f31ab0ed740201000000020100000002010000000201000000030200000003010000008001"
        "0000008002000000800200000001000000070000000100000002000000030000000000000005000000000000000900000000"
        "00000003703d330303703d31703d3203036f6e6574776f"
    )
    assert LayerHead.from_bytes(stored).to_bytes() == stored == pack(Kind(b"LVIH", 1, ""), head_columns())


def test_heads_that_are_damaged_are_an_error_by_name() -> None:
    data = pack(Kind(b"LVIH", 1, ""), head_columns())
    for damaged in (b"", data[:-1], data[:-1] + b"?", data[1:]):
        with pytest.raises(CorruptFile, match="the head of a layer of a vector index"):
            LayerHead.from_bytes(damaged)
    short = pack(Kind(b"LVIH", 1, ""), head_columns(ids=pa.array(["one"])))
    with pytest.raises(CorruptFile, match="columns of other lengths"):
        LayerHead.from_bytes(short)
