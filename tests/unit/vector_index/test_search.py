from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile
from lakebed.format.bounded_cache import BoundedCache
from lakebed.vector_index import search as module
from lakebed.vector_index.codes import Coder
from lakebed.vector_index.entries import Entries, row_hashes
from lakebed.vector_index.layers import Changes, Groups, Layer
from lakebed.vector_index.search import Allowed, Candidates, LayeredIndex
from lakebed.vector_index.shape import METRICS
from support.vector_layers import exact_distances, folded_layer, memory_layer, small_coder, written

RANDOM = np.random.default_rng(6)
VECTORS = RANDOM.normal(size=(500, 8)).astype(np.float32)
KEYS = [f"k{n}" for n in range(500)]
QUERIES = RANDOM.normal(size=(9, 8)).astype(np.float32)


def hashes_of(keys: Sequence[str], partition: str = "") -> Any:
    return row_hashes(pa.array(keys, pa.string()), partition)


def base_index(**fields: Any) -> tuple[Coder, Layer]:
    coder = small_coder(VECTORS, clusters=12, **fields)
    return coder, memory_layer(coder, "0", written(VECTORS, KEYS, rows=np.arange(500)))


def keys_of(candidates: Candidates, query: int = 0) -> list[str]:
    return candidates.keys.filter(pa.array(candidates.queries == query)).to_pylist()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bits", [8, 4])
def test_all_clusters_and_all_rows_are_what_brute_force_finds(metric: Any, bits: int) -> None:
    coder, base = base_index(metric=metric, bits=bits)
    found = LayeredIndex(coder, [base]).search(QUERIES, 500, 12)
    assert found.queries.tolist() == np.repeat(np.arange(9), 500).tolist()
    for number, query in enumerate(QUERIES):
        of_query = found.queries == number
        rows = found.rows[of_query]
        assert sorted(rows.tolist()) == list(range(500))
        exact = exact_distances(VECTORS[rows], query, metric)
        assert (np.diff(found.distances[of_query]) >= 0).all()
        assert np.abs(found.distances[of_query] - exact).max() <= {8: 0.05, 4: 0.5}[bits] * np.abs(exact).max()
    assert found.keys.to_pylist() == [f"k{row}" for row in found.rows]
    assert (found.hashes == hashes_of(found.keys.to_pylist())).all()
    assert not found.is_uncertain.any()


@pytest.mark.parametrize("metric", METRICS)
def test_the_nearest_candidates_of_few_clusters_come_first(metric: Any) -> None:
    coder, base = base_index(metric=metric)
    index = LayeredIndex(coder, [base])
    whole, part = index.search(QUERIES, 500, 12), index.search(QUERIES, 20, 6)
    hits = 0
    for number in range(9):
        assert len(keys_of(part, number)) == 20
        hits += len(set(keys_of(part, number)[:10]) & set(keys_of(whole, number)[:10]))
    assert hits >= 70
    assert set(np.round(part.distances, 5)) <= set(np.round(whole.distances, 5))


@pytest.mark.parametrize("metric", METRICS)
def test_a_batch_finds_what_its_queries_find_one_by_one(metric: Any) -> None:
    coder, base = base_index(metric=metric)
    reads: list[int] = []

    def blocks(numbers: Sequence[int]) -> Sequence[bytes | memoryview]:
        reads.extend(numbers)
        return base.blocks(numbers)

    batch = LayeredIndex(coder, [replace(base, blocks=blocks)]).search(QUERIES, 15, 5)
    assert len(set(reads)) == len(reads)
    for number, query in enumerate(QUERIES):
        one = LayeredIndex(coder, [base]).search(query[None], 15, 5)
        of_query = batch.queries == number
        assert keys_of(batch, number) == one.keys.to_pylist()
        np.testing.assert_allclose(batch.distances[of_query], one.distances, atol=1e-6)


def test_no_query_and_an_index_without_rows_have_no_candidates() -> None:
    coder, base = base_index()
    assert len(LayeredIndex(coder, [base]).search(QUERIES[:0], 5, 3)) == 0
    empty = memory_layer(coder, "0", [])
    found = LayeredIndex(coder, [empty]).search(QUERIES, 5, 3)
    assert (len(found), found.keys.to_pylist(), found.vectors.shape) == (0, [], (0, 8))
    statistics = LayeredIndex(coder, [empty]).statistics()
    assert (statistics.rows, statistics.needs_rebuild) == (0, False)


def test_an_entry_counts_until_a_later_layer_replaces_its_row() -> None:
    coder, base = base_index()
    moved = written(QUERIES[:1], ["k7"], rows=np.array([700]))
    layers = [base, memory_layer(coder, "1", moved, changes=Changes(replaced=hashes_of(["k7", "k8"])))]
    layers.append(memory_layer(coder, "2", [], changes=Changes(replaced=hashes_of(["k9"]))))
    found = LayeredIndex(coder, layers).search(QUERIES[:1], 600, 12)
    rows = dict(zip(found.keys.to_pylist(), found.rows.tolist(), strict=True))
    assert rows == {**{f"k{n}": n for n in range(500) if n not in (8, 9)}, "k7": 700}
    assert found.keys[0].as_py() == "k7"
    assert found.distances[0] < 1e-3
    deleted = memory_layer(coder, "3", [], changes=Changes(replaced=hashes_of(["k7"])))
    again = memory_layer(coder, "4", written(VECTORS[7:9], ["k7", "k8"]), changes=Changes(hashes_of(["k7", "k8"])))
    assert "k7" not in keys_of(LayeredIndex(coder, [*layers, deleted]).search(QUERIES[:1], 600, 12))
    index = LayeredIndex(coder, [*layers, deleted, again])
    assert sorted(keys_of(index.search(QUERIES[:1], 600, 12))) == sorted(set(KEYS) - {"k9"})
    for instants, expected in (((), set(KEYS)), (("1",), set(KEYS) - {"k8"}), (("2", "3"), set(KEYS) - {"k7", "k9"})):
        assert set(keys_of(index.of_instants(instants).search(QUERIES[:1], 600, 12))) == expected


def test_a_row_that_may_have_changed_comes_once_and_is_uncertain() -> None:
    coder, base = base_index()
    late = written(QUERIES[:1], ["k7"], is_exact=np.array([True]))
    layers = [base, memory_layer(coder, "1", late, changes=Changes(possible=hashes_of(["k7", "k8"])))]
    found = LayeredIndex(coder, layers).search(QUERIES[:1], 600, 12)
    assert sorted(found.keys.to_pylist()) == sorted(KEYS)
    assert found.keys.filter(pa.array(found.is_uncertain)).to_pylist() == ["k7", "k8"]
    assert found.keys[0].as_py() == "k7"
    sure = memory_layer(coder, "2", written(VECTORS[7:8], ["k7"]), changes=Changes(replaced=hashes_of(["k7"])))
    found = LayeredIndex(coder, [*layers, sure]).search(QUERIES[:1], 600, 12)
    assert found.keys.filter(pa.array(found.is_uncertain)).to_pylist() == ["k8"]
    assert sorted(found.keys.to_pylist()) == sorted(KEYS)


def test_a_deleted_partition_takes_all_earlier_entries_of_its_file_groups() -> None:
    coder = small_coder(VECTORS)
    groups = Groups(pa.array(["p", "q", "p"]), pa.array(["a", "b", "c"]))
    rows = [
        replace(written(VECTORS[n::3], KEYS[n::3], path), groups=np.full(len(KEYS[n::3]), n))
        for n, path in enumerate("pqp")
    ]
    again = replace(written(VECTORS[:2], ["k0", "new"], "p"), groups=np.array([1, 0]))
    overwritten = memory_layer(
        coder,
        "1",
        again,
        Groups(pa.array(["p", "p"]), pa.array(["d", "a"])),
        Changes(replaced=hashes_of(["k0", "new"], "p"), partitions=pa.array(["p", "other"])),
    )
    index = LayeredIndex(coder, [memory_layer(coder, "0", rows, groups), overwritten])
    found = index.search(QUERIES[:1], 600, 12)
    paths = index.groups.partitions.take(pa.array(found.groups)).to_pylist()
    ids = index.groups.ids.take(pa.array(found.groups)).to_pylist()
    expected = {(key, "q", "b") for key in KEYS[1::3]} | {("k0", "p", "a"), ("new", "p", "d")}
    assert set(zip(found.keys.to_pylist(), paths, ids, strict=True)) == expected
    assert len(found) == len(expected)
    assert len(index.groups) == 4


def test_a_key_in_two_partitions_is_two_rows() -> None:
    coder = small_coder(VECTORS)
    groups = Groups(pa.array(["p", "q"]), pa.array(["a", "b"]))
    rows = [replace(written(VECTORS[:9], KEYS[:9], path), groups=np.full(9, n)) for n, path in enumerate("pq")]
    delete = memory_layer(coder, "1", [], groups, Changes(replaced=hashes_of(["k3"], "p")))
    index = LayeredIndex(coder, [memory_layer(coder, "0", rows, groups), delete])
    found = index.search(QUERIES[:1], 100, 12)
    pairs = sorted(zip(found.keys.to_pylist(), found.groups.tolist(), strict=True))
    assert pairs == sorted({(key, n) for key in KEYS[:9] for n in (0, 1)} - {("k3", 0)})


def test_only_allowed_rows_are_found_and_clusters_are_searched_until_there_are_enough() -> None:
    coder, base = base_index()
    index = LayeredIndex(coder, [base])
    some = KEYS[::25]
    found = index.search(QUERIES, 10, 1, Allowed(hashes_of(some)))
    whole = index.search(QUERIES, 500, 12)
    for number in range(9):
        assert len(keys_of(found, number)) == 10
        assert set(keys_of(found, number)) <= set(some)
    everything = index.search(QUERIES, 30, 1, Allowed(hashes_of([*some, "unknown"])))
    for number in range(9):
        assert keys_of(everything, number) == [key for key in keys_of(whole, number) if key in some]
    assert len(index.search(QUERIES, 10, 3, Allowed(hashes_of([])))) == 0


def test_under_a_condition_clusters_are_searched_until_16_rows_a_candidate_are_compared() -> None:
    coder, base = base_index()
    reads: list[int] = []

    def blocks(numbers: Sequence[int]) -> Sequence[bytes | memoryview]:
        reads.append(len(numbers))
        return base.blocks(numbers)

    for count, is_wide in ((1, False), (30, True)):
        reads.clear()
        index = LayeredIndex(coder, [replace(base, blocks=blocks)])
        found = index.search(VECTORS[:1], count, 1, Allowed(groups=np.array([True])))
        assert len(found) == count
        assert (len(reads) > 1) == is_wide


def test_rows_of_allowed_file_groups_are_found() -> None:
    coder = small_coder(VECTORS)
    groups = Groups(pa.array(["p", "q", "p"]), pa.array(["a", "b", "c"]))
    rows = replace(written(VECTORS, KEYS), groups=np.arange(500) % 3)
    index = LayeredIndex(coder, [memory_layer(coder, "0", rows, groups)])
    flags = np.array([False, True, True])
    found = index.search(QUERIES[:1], 600, 12, Allowed(groups=flags))
    assert sorted(found.keys.to_pylist()) == sorted(key for n, key in enumerate(KEYS) if n % 3)
    both = index.search(QUERIES[:1], 600, 12, Allowed(hashes_of(KEYS[:10]), flags))
    assert sorted(both.keys.to_pylist()) == [f"k{n}" for n in range(10) if n % 3]


def test_exact_vectors_come_with_the_candidates_that_have_one() -> None:
    coder, base = base_index()
    logged = written(QUERIES[:3], ["k1", "k2", "k3"], is_exact=np.array([True, False, True]))
    index = LayeredIndex(
        coder, [base, memory_layer(coder, "1", logged, changes=Changes(hashes_of(["k1", "k2", "k3"])))]
    )
    found = index.search(QUERIES, 20, 12)
    exact = {"k1": QUERIES[0].tolist(), "k3": QUERIES[2].tolist()}
    seen = set()
    for key, row in zip(found.keys.to_pylist(), found.vector_rows.tolist(), strict=True):
        assert (row >= 0) == (key in exact)
        if row >= 0:
            seen.add(key)
            assert found.vectors[row].tolist() == exact[key]
    assert seen == {"k1", "k3"}


def test_a_cluster_in_memory_is_not_read_again_and_a_small_cache_reads_again() -> None:
    coder, base = base_index()
    reads: list[int] = []

    def blocks(numbers: Sequence[int]) -> Sequence[bytes | memoryview]:
        reads.extend(numbers)
        return base.blocks(numbers)

    counted = replace(base, blocks=blocks)
    index = LayeredIndex(coder, [counted])
    expected = index.search(QUERIES, 10, 4)
    before = len(reads)
    assert index.search(QUERIES, 10, 4).keys.equals(expected.keys)
    assert len(reads) == before
    small = LayeredIndex(coder, [counted], BoundedCache(1))
    for _ in range(2):
        assert small.search(QUERIES, 10, 4).keys.equals(expected.keys)
    assert len(reads) == 3 * before


def test_a_fold_has_the_rows_that_count_and_the_candidates_of_its_layers() -> None:
    coder, base = base_index()
    moved = written(QUERIES[:2], ["k7", "k20"], is_exact=np.ones(2, np.bool_))
    changes = Changes(replaced=hashes_of(["k7", "k8"]), possible=hashes_of(["k20", "k21", "gone"]))
    added = memory_layer(coder, "1", moved, Groups(pa.array([""]), pa.array(["log"])), changes)
    later = memory_layer(coder, "2", [], changes=Changes(replaced=hashes_of(["k30", "k21"])))
    index = LayeredIndex(coder, [base, added, later])
    layer = folded_layer(index, "2")
    head, folded = layer.head, LayeredIndex(coder, [layer])
    one, other = index.search(QUERIES, 600, 12), folded.search(QUERIES, 600, 12)
    assert one.keys.equals(other.keys)
    for name in ("queries", "hashes", "groups", "rows", "is_uncertain", "vector_rows"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert np.array_equal(one.vectors, other.vectors)
    assert head.changes.possible.tolist() == hashes_of(["k20"]).tolist()
    assert head.rows == 500 - 4 + 2  # two rows of k20, one of which counts


def test_a_fold_has_one_entry_of_a_row_whose_vector_was_written_again() -> None:
    coder, base = base_index()
    again, groups = written(VECTORS[:20], KEYS[:20]), base.head.groups
    possible = Changes(possible=hashes_of(KEYS[:20]))
    layers = [base, *(memory_layer(coder, name, again, groups, possible) for name in ("1", "2"))]
    moved = written(VECTORS[:1], KEYS[:1])
    elsewhere = Groups(pa.array([""]), pa.array(["other"]))
    layers.append(memory_layer(coder, "3", moved, elsewhere, Changes(possible=hashes_of(KEYS[:1]))))
    changed = written(VECTORS[1:2] + np.float32(0.01), KEYS[1:2])
    layers.append(memory_layer(coder, "4", changed, groups, Changes(possible=hashes_of(KEYS[1:2]))))
    index = LayeredIndex(coder, layers)
    assert index.statistics().rows == 500 + 20 + 20 + 1 + 1
    layer = folded_layer(index, "4")
    assert layer.head.rows == 500 + 1 + 1
    folded = LayeredIndex(coder, [layer])
    one, other = index.search(QUERIES, 600, 12), folded.search(QUERIES, 600, 12)
    assert one.keys.equals(other.keys)
    for name in ("queries", "hashes", "groups", "is_uncertain"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


class Elsewhere:
    """All rows in another file group, a thousand positions on, without those of the keys that end in 7."""

    groups = Groups(pa.array(["p"]), pa.array(["other"]))

    def relocated(self, entries: Entries) -> Entries:
        entries = replace(entries, rows=entries.rows + np.uint32(1000))
        return entries.take(np.flatnonzero([not key.endswith("7") for key in entries.keys.to_pylist()]))


def test_a_fold_writes_the_locations_that_its_caller_gives() -> None:
    coder, base = base_index()
    layer = folded_layer(LayeredIndex(coder, [base]), "0", Elsewhere())
    folded = LayeredIndex(coder, [layer])
    found = folded.search(QUERIES[:1], 600, 12)
    assert found.rows.tolist() == [int(key[1:]) + 1000 for key in found.keys.to_pylist()]
    assert sorted(found.keys.to_pylist()) == sorted(key for key in KEYS if not key.endswith("7"))
    assert (folded.groups.partitions.to_pylist(), folded.groups.ids.to_pylist()) == (["p"], ["other"])


@pytest.mark.parametrize(("new", "needs"), [(150, False), (151, True)])
def test_an_index_with_many_new_rows_needs_a_rebuild(new: int, needs: bool) -> None:
    coder = small_coder(VECTORS, clusters=1)
    base = memory_layer(coder, "0", written(VECTORS[: 500 - new], KEYS[: 500 - new]))
    keys = KEYS[500 - new :]
    layer = memory_layer(coder, "1", written(VECTORS[500 - new :], keys), changes=Changes(hashes_of(keys)))
    statistics = LayeredIndex(coder, [base, layer]).statistics()
    assert (statistics.rows, statistics.new_rows, statistics.changed_rows) == (500, new, new)
    assert statistics.needs_rebuild is needs


def test_an_index_with_a_cluster_of_more_than_eight_times_the_mean_needs_a_rebuild() -> None:
    centres = np.eye(20, dtype=np.float32) * 10
    coder = small_coder(centres, clusters=20, metric="l2")
    for largest, needs in ((12, False), (13, True)):
        vectors = np.concatenate([centres, np.repeat(centres[:1], largest - 1, axis=0)])
        layer = memory_layer(coder, "0", written(vectors, KEYS[: len(vectors)]))
        statistics = LayeredIndex(coder, [layer]).statistics()
        assert statistics.largest_cluster == largest
        assert statistics.mean_cluster == len(vectors) / 20
        assert statistics.needs_rebuild is (largest > 8 * len(vectors) / 20)
        assert statistics.needs_rebuild is needs


def test_a_damaged_block_is_an_error_by_name() -> None:
    coder, base = base_index()
    broken = replace(base, blocks=lambda numbers: [data[:-1] for data in base.blocks(numbers)])
    with pytest.raises(CorruptFile, match="a block of entries of a vector index is damaged"):
        LayeredIndex(coder, [broken]).search(QUERIES, 10, 4)


def test_clusters_are_read_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    coder, base = base_index()
    expected = LayeredIndex(coder, [base]).search(QUERIES, 20, 6)
    monkeypatch.setattr(module, "_CLUSTERS_TOGETHER", 1)
    assert LayeredIndex(coder, [base]).search(QUERIES, 20, 6).keys.equals(expected.keys)
