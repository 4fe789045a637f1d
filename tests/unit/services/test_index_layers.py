"""What vector indexes and text indexes are made of, as `t.indexes.layers` tells it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.metadata_kinds import vector_store
from lakebed.services import index_layers
from lakebed.services.index_layers import IndexLayers
from support.vector_tables import INDEX, another_writer, indexed_table, stored_index, vector_rows, vector_table


def instants(table: lakebed.Table) -> list[str]:
    return [instant.time for instant in table.timeline]


def test_a_layer_has_the_entries_of_its_commit() -> None:
    table = indexed_table("cow")
    table.upsert(vector_rows(range(10, 20), ts=2))
    made_of = table.indexes.layers("emb")
    assert made_of.layers.to_pylist() == [
        {"layer": "build", "entries": 36, "changed_rows": 0},
        {"layer": instants(table)[-1], "entries": 9, "changed_rows": 10},  # k010 has no vector
    ]
    assert (made_of.index, made_of.column, made_of.metric, made_of.bits) == (INDEX, "emb", "l2", 8)
    assert made_of.bytes == next(facts.bytes for facts in table.indexes.list() if facts.name == INDEX)
    assert (made_of.entries, made_of.gaps.num_rows, made_of.unusable, made_of.rebuild) == (45, 0, None, None)


def test_the_share_of_stale_entries_is_that_of_rows_which_were_written_again() -> None:
    table = indexed_table("cow")
    assert (table.indexes.layers(INDEX).counting, table.indexes.layers(INDEX).stale_share) == (36, 0.0)
    table.upsert(vector_rows(range(10, 20), ts=2))
    made_of = table.indexes.layers(INDEX)
    assert (made_of.counting, made_of.examined) == (36, 45)
    assert made_of.counting == table.scan(where="emb is not null").count()
    assert made_of.stale_share == 1 - 36 / 45
    table.delete(["k001", "k003"])
    assert table.indexes.layers(INDEX).counting == 34
    table.delete_partitions(["p0"])
    assert (table.indexes.layers(INDEX).counting, table.scan().count()) == (18, 18)
    table.indexes.rebuild("emb")
    assert (table.indexes.layers(INDEX).stale_share, table.indexes.layers(INDEX).layers.num_rows) == (0.0, 1)


def test_commits_of_other_writers_are_gaps_and_their_file_groups_do_not_count() -> None:
    table = indexed_table("cow")
    with another_writer():
        table.upsert([row for row in vector_rows(range(40), ts=2) if row["part"] == "p0"][:3])
    made_of = table.indexes.layers("emb")
    assert made_of.gaps.to_pylist() == [{"instant": instants(table)[-1], "operation": "upsert", "file_groups": 1}]
    assert made_of.exact_groups == 1
    assert (made_of.counting, made_of.examined) == (20, 36)  # all rows of p1 have vectors
    assert "it lacks 1 commit: searches read 1 file group exactly" in str(made_of)
    table.upsert(vector_rows(range(40, 42), ts=3))
    assert table.indexes.layers("emb").gaps.num_rows == 0


@pytest.mark.parametrize(("bound", "clusters"), [(36, 4), (35, 3)])
def test_the_entries_of_some_clusters_tell_how_many_count(
    monkeypatch: pytest.MonkeyPatch, bound: int, clusters: int
) -> None:
    table = indexed_table("cow")
    table.upsert(vector_rows(range(40), ts=2))
    table.indexes.rebuild("emb")
    monkeypatch.setattr(vector_store, "_COUNTED", bound)
    made_of = table.indexes.layers("emb")
    sizes = made_of.cluster_sizes.to_pylist()
    order = np.random.default_rng(0).permutation(4)[:clusters]
    assert made_of.examined == made_of.counting == sum(sizes[number] for number in order)
    assert (made_of.examined == made_of.entries) is (clusters == 4)


def test_the_reason_for_a_rebuild_is_that_of_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    table = vector_table("cow")
    table.indexes.create("vector", column="emb", metric="l2", clusters=1)
    table.upsert(vector_rows(range(40, 80)))
    assert table.indexes.layers("emb").rebuild is None  # few rows are compared in no time
    monkeypatch.setattr(index_layers, "MIN_ROWS", 10)
    made_of = table.indexes.layers("emb")
    assert made_of.rebuild == "36 rows of 72 came after it was built, and its largest cluster has 72"
    assert str(made_of).endswith(f"it is due to be built again: {made_of.rebuild}")


def test_an_index_that_lacks_archived_commits_is_not_used() -> None:
    options = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 1}
    table = indexed_table("cow", properties={**options, "hoodie.clean.automatic": False})
    with another_writer():
        for turn in range(7):
            table.upsert(vector_rows(range(turn, turn + 3), ts=3 + turn))
        table.maintenance.clean()
        table.maintenance.archive()
    made_of = lakebed.open(table.uri).indexes.layers("emb")
    assert made_of.unusable == made_of.rebuild == "commits that it may not cover are archived"


def test_a_text_index_has_layers_and_no_clusters() -> None:
    table = vector_table("cow")
    table.indexes.create("text", column="name")
    table.upsert(vector_rows(range(5), ts=2))
    made_of = table.indexes.layers("name")
    assert [row["entries"] for row in made_of.layers.to_pylist()] == [40, 5]
    assert (made_of.counting, made_of.examined) == (40, 45)
    assert (made_of.metric, made_of.bits, len(made_of.cluster_sizes)) == (None, None, 0)
    assert (made_of.largest_cluster, made_of.mean_cluster) == (0, 0.0)
    assert str(made_of).startswith("text_index_name on name: 45 entries in 2 layers, ")


def test_the_layers_are_plain_values_for_json() -> None:
    table = indexed_table("cow")
    values = table.indexes.layers("emb").to_dict()
    assert values["layers"] == [{"layer": "build", "entries": 36, "changed_rows": 0}]
    assert sum(values["cluster_sizes"]) == values["entries"] == 36
    assert (values["stale_share"], values["gaps"]) == (0.0, [])


def test_the_sizes_of_clusters_are_those_of_the_index() -> None:
    table = indexed_table("mor")
    sizes = [0] * 4
    coder = stored_index(table).coder
    vectors = [row["emb"] for row in vector_rows(range(40)) if row["emb"] is not None]
    for number in coder.centroids.nearest(coder.prepared(np.array(vectors, np.float32))).tolist():
        sizes[number] += 1
    made_of = table.indexes.layers("emb")
    assert made_of.cluster_sizes.to_pylist() == sizes
    assert (made_of.largest_cluster, made_of.mean_cluster) == (max(sizes), 9.0)


def with_clusters(sizes: list[int]) -> IndexLayers:
    none = pa.table({"entries": pa.array([sum(sizes)], pa.int64())})
    return IndexLayers("i", "c", "l2", 8, 1, none, pa.array(sizes, pa.int64()), 0, 0, none, 0, None, None)


@pytest.mark.parametrize(("count", "note"), [(240, ""), (241, ", 240 of them drawn")])
def test_a_picture_has_at_most_240_clusters_with_the_largest_first(count: int, note: str) -> None:
    picture = with_clusters([*range(1, count + 1)]).plot()
    assert picture.count("<rect") == 240
    assert picture.index(f"number 1 by size: {count} entries") < picture.index("number 2 by size")
    assert f"number {count} by size: 1 entries" in picture
    assert f"{count} clusters, mean {(count + 1) / 2:,.1f} entries, largest {count}{note}<" in picture


@pytest.mark.parametrize(("largest", "marked"), [(152, 0), (153, 1)])
def test_a_cluster_of_more_than_eight_times_the_mean_is_red(largest: int, marked: int) -> None:
    others = [12] * 19  # 152 is 8 times the mean of 19
    assert with_clusters([largest, *others]).plot().count("bar marked") == marked


def test_an_index_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no vector index or text index 'emb'"):
        vector_table("cow").indexes.layers("emb")
