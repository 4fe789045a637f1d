"""Search by a vector index: batches, conditions, bounds and widths give rows of the view with their exact distances."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds import vector_store
from lakebed.read import batches, filtered_rows, index_search
from lakebed.read.index_search import SearchEffort
from lakebed.schema.plain_arrow import matching_rows
from lakebed.storage import open_storage
from lakebed.vector_index.entries import row_hashes
from support.vector_tables import EVERY_CLUSTER, QUERY, check_search, indexed_table, nearest, vector_of, vector_rows

DIMENSION = 8
WITHOUT_COMPACTION = {"hoodie.compact.inline": "false"}
_numbers = itertools.count()


def clustered(rows: int = 600, **given: object) -> tuple[lakebed.Table, np.ndarray]:
    """A table of rows around twelve points, and the vectors by key."""
    random = np.random.default_rng(3)
    points = random.standard_normal((12, DIMENSION))
    vectors = (points[np.arange(rows) % 12] + 0.2 * random.standard_normal((rows, DIMENSION))).astype(np.float32)
    schema = pa.schema(
        [("id", pa.int64()), ("emb", lakebed.vector(DIMENSION)), ("city", pa.string()), ("n", pa.int64())]
    )
    table = lakebed.create(f"memory://index-search/{next(_numbers)}", schema, key="id", partition_by="city", **given)
    columns = {
        "id": np.arange(rows),
        "emb": pa.array(list(vectors)),
        "city": [f"c{n % 3}" for n in range(rows)],
        "n": np.arange(rows) % 5,
    }
    table.upsert(pa.table(columns))
    table.indexes.create("vector", column="emb", clusters=12)
    return table, vectors


def found(table: lakebed.Table, query: np.ndarray, k: int = 10, **options: object) -> list[tuple[int, float]]:
    rows = table.search(query, k, columns=["id"], **options).to_arrow()
    return list(zip(rows["id"].to_pylist(), rows["_hudi_distance"].to_pylist(), strict=True))


def test_a_search_by_the_index_finds_the_nearest_rows_with_their_distances() -> None:
    table, vectors = clustered()
    for query in vectors[:20] + 0.01:
        assert found(table, query) == found(table, query, exact=True)


def test_a_batch_is_the_searches_of_its_queries() -> None:
    table, vectors = clustered()
    queries = vectors[:5] + 0.01
    rows = table.search(queries, 4, columns=["id"]).to_arrow().to_pylist()
    for number, query in enumerate(queries):
        of_query = [(row["id"], row["_hudi_distance"]) for row in rows if row["_hudi_query_index"] == number]
        assert of_query == found(table, query, 4)
    assert [row["_hudi_query_index"] for row in rows] == sorted(row["_hudi_query_index"] for row in rows)
    assert table.search(np.empty((0, DIMENSION)), 4).to_arrow().num_rows == 0


@pytest.mark.parametrize("least", [10, 20_000], ids=["by the index", "exactly"])
@pytest.mark.parametrize("where", ["city = 'c1'", "n = 2", "city = 'c1' and n > 1"])
def test_a_condition_leaves_out_rows_whichever_way_they_are_searched(
    where: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, vectors = clustered()
    monkeypatch.setattr(index_search, "MIN_ROWS", least)
    query = vectors[7]
    assert ("vector_index_emb: " in str(table.search(query, 5, where=where).explain())) is (least == 10)
    assert found(table, query, 30, where=where, probes=100, rerank=1000) == found(
        table, query, 30, where=where, exact=True
    )
    assert len(found(table, query, 30, where=where, probes=1, rerank=1)) == 30
    assert found(table, query, 5, where="n = 7") == []


def test_a_search_that_finds_too_few_rows_looks_farther() -> None:
    table, vectors = clustered()
    assert len(found(table, vectors[0], 600, probes=1, rerank=1)) == 600
    table.delete(where="n < 4")
    assert len(found(table, vectors[0], 100, probes=1, rerank=1)) == 100


def test_a_greatest_distance_leaves_out_rows() -> None:
    table, vectors = clustered()
    near = found(table, vectors[3], 50, max_distance=0.05)
    assert near == [row for row in found(table, vectors[3], 50, exact=True) if row[1] <= 0.05]
    assert near


def test_the_columns_may_be_any() -> None:
    table, vectors = clustered()
    names = ["emb", "_hoodie_record_key", "city"]
    rows = table.search(vectors[3], 2, columns=names)
    assert rows.to_arrow().column_names == [*names, "_hudi_distance"]
    assert rows.to_arrow().equals(table.search(vectors[3], 2, columns=names, exact=True).to_arrow())
    assert rows.to_arrow().schema == rows.schema
    assert table.search(vectors[3], 2, columns=[]).to_arrow().column_names == ["_hudi_distance"]


def test_an_explanation_names_what_is_looked_at() -> None:
    table, vectors = clustered()
    text = str(table.search(vectors[0], 3, probes=2, rerank=20).explain())
    (line,) = (line for line in text.splitlines() if "by index" in line)
    looked_at = re.fullmatch(
        r"  by index    vector_index_emb: 2 of 12 clusters, (\d+) codes compared, 20 rows read, ([\d,]+) bytes", line
    )
    assert looked_at is not None
    assert 20 <= int(looked_at[1]) < 600
    # the blocks of the index are read by the first search alone, the vectors by each
    assert int(looked_at[2].replace(",", "")) > 20 * 4 * DIMENSION
    search = table.search(vectors[0], 3, probes=2, rerank=20)
    assert search.plan.by_index is not None
    assert search.plan.by_index.rows().num_rows == 3
    assert search.plan.by_index.effort == SearchEffort(2, int(looked_at[1]), 20, 20 * 4 * DIMENSION)
    assert "by index" not in str(table.search(vectors[0], 3, exact=True).explain())


def reason(search: Any) -> str:
    """What an explanation says of the way of a search, without the numbers of one by an index."""
    line = " ".join(str(search.explain()).splitlines()[-1].split())
    return line if line.startswith("exactly") else line.partition(":")[0]


def test_an_explanation_says_why_a_search_is_exact() -> None:
    table, vectors = clustered()
    before = table.timeline.to_arrow()["time"].to_pylist()[-1]
    query = vectors[0]
    by_index = "by index vector_index_emb"
    assert reason(table.search(query, 3)) == by_index
    assert reason(table.search(query, 3, exact=True)) == "exactly as it was asked for"
    assert reason(table.search(query, 3, metric="l2")) == "exactly the vector index on emb is of the metric cosine"
    few = "exactly the condition leaves 120 rows, below 20,000"
    assert reason(table.search(query, 3, where="n = 2")) == few
    table.upsert(pa.table({"id": [0], "emb": pa.array([list(query)]), "city": ["c0"], "n": [9]}))
    table.indexes.rebuild("emb")  # a fold, and a build: the base has commits that the earlier view has not
    assert "built or folded later than this view" in reason(table.search(query, 3, as_of=before))
    assert reason(table.search(query, 3)) == by_index
    table.indexes.drop("vector_index_emb")
    assert reason(table.search(query, 3)) == "exactly the table has no vector index on emb"


@pytest.mark.parametrize("least", [10, 20_000], ids=["by the index", "exactly"])
@pytest.mark.parametrize("most", [0, 1 << 40], ids=["the condition first", "all columns at once"])
def test_rows_of_a_condition_are_chosen_once(least: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_search, "MIN_ROWS", least)
    # both sides of bounds that no option sets
    monkeypatch.setattr(filtered_rows, "_MIN_ROWS", most)
    monkeypatch.setattr(batches, "SMALL_BYTES", most)
    table, vectors = clustered()
    exact = found(table, vectors[7], 20, where="n = 2", exact=True)
    chosen: list[int] = []

    def counted(batch: pa.RecordBatch, condition: Any) -> pa.RecordBatch:
        chosen.append(batch.num_rows)
        return matching_rows(batch, condition)

    for module in (filtered_rows, batches):
        monkeypatch.setattr(module, "matching_rows", counted)
    assert found(table, vectors[7], 20, where="n = 2", probes=100, rerank=1000) == exact
    slices = len(open_snapshot(open_storage(table.uri)).file_slices())
    assert (len(chosen) == slices) is (most == 0 or least == 10)


@pytest.mark.parametrize("least", [10, 20_000], ids=["by the index", "exactly"])
@pytest.mark.parametrize("cached", [0, 1 << 40], ids=["read again", "in memory"])
@pytest.mark.parametrize("small", [0, 1 << 40], ids=["block by block", "whole layers"])
def test_rows_in_log_files_are_searched_as_the_others(
    least: int, cached: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_search, "MIN_ROWS", least)
    # both sides of a bound that no option sets
    monkeypatch.setattr(index_search._LOGGED, "_max_bytes", cached)  # pyright: ignore[reportPrivateUsage]
    # both sides of a bound that no option sets
    monkeypatch.setattr(vector_store, "_SMALL_LAYER", small)
    table, vectors = clustered(type="mor", index="bucket", buckets=1)

    def changed(ids: np.ndarray, numbers: np.ndarray, n: int | None) -> None:
        vectors[ids] = vectors[numbers]
        rows = {"id": ids, "emb": pa.array(list(vectors[ids])), "city": [f"c{i % 3}" for i in ids]}
        table.upsert(pa.table({**rows, "n": pa.array([n] * len(ids), pa.int64())}), options=WITHOUT_COMPACTION)

    changed(np.arange(40, 80), np.arange(200, 240), 7)
    table.delete([{"id": n, "city": f"c{n % 3}"} for n in range(100, 120)], options=WITHOUT_COMPACTION)
    changed(np.arange(70, 110, 2), np.arange(300, 320), 8)
    assert all(file_slice.log_files for file_slice in open_snapshot(open_storage(table.uri)).file_slices())
    for where in (None, "n = 7", "n <> 7", "city = 'c1'"):
        for query in (vectors[45], vectors[72] + 0.01, vectors[105]):
            exact = found(table, query, 30, where=where, exact=True)
            for _ in range(2):
                assert by_distance(found(table, query, 30, where=where, probes=100, rerank=1000)) == by_distance(exact)
            assert set(found(table, query, 3, where=where, probes=1, rerank=3)) <= set(
                found(table, query, 600, where=where, exact=True)
            )


def by_distance(rows: list[tuple[int, float]]) -> list[tuple[float, int]]:
    return sorted((distance, number) for number, distance in rows)


def test_a_candidate_that_does_not_fulfil_the_condition_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where two rows have one hash: the index is told that every row fulfils the condition."""
    for kind in ("cow", "mor"):
        table, vectors = clustered(type=kind)
        every = row_hashes(pa.array([str(n) for n in range(600)]), pa.array([f"c{n % 3}" for n in range(600)]))
        monkeypatch.setattr(index_search, "MIN_ROWS", 0)
        # two rows with one hash of 64 bits cannot be made
        monkeypatch.setattr(index_search.ConditionalRows, "hashes", lambda rows, every=every: every)
        for where in ("n = 2", "city = 'c1' and n > 1"):
            exact = found(table, vectors[7], 20, where=where, exact=True)
            assert found(table, vectors[7], 20, where=where, probes=100, rerank=1000) == exact


@pytest.mark.parametrize("name", ["probes", "rerank"])
def test_numbers_of_the_index_are_refused_in_an_exact_search(name: str) -> None:
    table, vectors = clustered(60)
    with pytest.raises(InvalidOption, match=f"Leave out {name}, or exact"):
        table.search(vectors[0], 3, exact=True, **{name: 5})


@pytest.mark.parametrize("name", ["probes", "rerank"])
def test_numbers_that_there_are_not_are_refused(name: str) -> None:
    table, vectors = clustered(60)
    with pytest.raises(InvalidOption, match=name):
        table.search(vectors[0], 3, **{name: 0})


def test_sql_searches_by_an_index_that_it_makes() -> None:
    table, vectors = clustered(60)
    query = f"array({', '.join(map(str, vectors[4].tolist()))})"
    search = f"SELECT id FROM hudi_vector_search('t', 'emb', {query}, 3, '{{}}', 'index')"
    sql = {"tables": {"t": table}}
    assert lakebed.sql(search.format("cosine"), **sql).to_arrow()["id"].to_pylist()[0] == 4
    with pytest.raises(InvalidOption, match="no vector index on emb for the metric l2"):
        lakebed.sql(search.format("l2"), **sql).to_arrow()
    options = (
        "'vector.metric' = 'l2', 'vector.num_clusters' = '4', 'vector.rabitq.bits' = '4', 'vector.query.nprobes' = '2'"
    )
    lakebed.sql(f"CREATE INDEX far ON t USING VECTOR (emb) OPTIONS ({options})", **sql)
    assert lakebed.sql(search.format("l2"), **sql).to_arrow()["id"].to_pylist()[0] == 4
    assert "vector_index_far: 2 of 4 clusters" in str(table.search(vectors[4], 1, metric="l2", rerank=9).explain())
    with pytest.raises(InvalidOption, match=r"vector\.pq"):
        lakebed.sql("CREATE INDEX bad ON t USING VECTOR (emb) OPTIONS ('vector.pq' = '4')", **sql)
    lakebed.sql("DROP INDEX far ON t", **sql)
    assert "vector_index_far" not in {index.name for index in table.indexes.list()}


def test_all_rows_of_a_key_that_a_log_file_changes_are_in_the_answer_of_each_query() -> None:
    table = indexed_table("mor", properties={"hoodie.parquet.small.file.limit": 0})
    table.insert(vector_rows(range(1, 2), ts=2))  # the key is there already
    table.maintenance.cluster()
    table.upsert(vector_rows(range(1, 2), ts=3))
    assert [row["id"] for row in nearest(table, exact=True)].count("k001") == 2
    check_search(table)
    queries = np.array([QUERY, vector_of(4)])
    several = table.search(queries, 1000, metric="l2", **EVERY_CLUSTER).to_arrow()
    assert several["id"].to_pylist().count("k001") == 4


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot_product"])
@pytest.mark.parametrize("moved", [40, 300])
def test_rows_that_were_near_and_have_another_vector_hide_no_other_rows(metric: Any, moved: int) -> None:
    """In log files with an ordering column the index does not know which vector counts."""
    random, query = np.random.default_rng(1), np.full(DIMENSION, 2.0)
    vectors = random.standard_normal((3000, DIMENSION)).astype(np.float32)
    similarity = vectors @ query
    by_metric = {
        "l2": np.linalg.norm(vectors - query, axis=1),
        "cosine": -similarity / np.linalg.norm(vectors, axis=1),
        "dot_product": -similarity,
    }
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("emb", lakebed.vector(DIMENSION))])
    options = {"key": "id", "ordering": "at", "type": "mor", "properties": WITHOUT_COMPACTION}
    table = lakebed.create(f"memory://index-search/{next(_numbers)}", schema, **options)
    table.upsert(pa.table({"id": np.arange(3000), "at": np.full(3000, 1), "emb": pa.array(list(vectors))}))
    table.indexes.create("vector", column="emb", metric=metric, clusters=20)
    near = np.argsort(by_metric[metric])[:moved]
    table.upsert(pa.table({"id": near, "at": np.full(moved, 2), "emb": pa.array(list(-vectors[near]))}))
    for _ in range(2):
        exact = table.search(query, 10, metric=metric, exact=True, columns=["id"]).to_arrow()["id"].to_pylist()
        for probes in (None, 20):
            found = table.search(query, 10, metric=metric, probes=probes, columns=["id"]).to_arrow()["id"].to_pylist()
            assert len({*exact} & {*found}) >= 9, probes
        table.maintenance.compact()
