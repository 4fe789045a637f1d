"""Exact search: results are those of real Hudi and of a plain computation, and only what is needed is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.read.search import METRICS
from support.vector_tables import described, unpacked, vector_rows, vector_table

QUERY = [3.0, 1.0, 2.0, 0.5]


def plain_distances(vectors: np.ndarray, query: np.ndarray, metric: str) -> np.ndarray:
    if metric == "l2":
        return np.sqrt(((vectors - query) ** 2).sum(axis=1))
    if metric == "dot_product":
        return -(vectors @ query)
    return 1 - (vectors @ query) / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(query))


@pytest.mark.parametrize("metric", METRICS)
def test_the_result_is_that_of_real_hudi(metric: str, tmp_path: Path) -> None:
    table = lakebed.open(unpacked("vec_search", tmp_path))
    hudi = described("vec_search")
    rows = table.search(QUERY, 5, "emb", metric).to_arrow()
    distances = [row["_hudi_distance"] for row in hudi["search"][metric]]
    assert rows["_hudi_distance"].to_pylist() == pytest.approx(distances, abs=1e-6)
    ties = {round(distance, 9) for distance in distances if distances.count(distance) > 1}
    by_hudi = {row["id"] for row in hudi["search"][metric] if round(row["_hudi_distance"], 9) not in ties}
    assert by_hudi <= set(rows["id"].to_pylist())
    assert [n for n in hudi["search_columns"] if not n.startswith("_hoodie")] == rows.column_names


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("metric", METRICS)
def test_the_result_is_that_of_a_plain_computation(kind: str, metric: str) -> None:
    table = vector_table(kind)
    table.upsert(vector_rows(range(30, 60), ts=2))
    rows = table.scan(where="emb is not null").to_arrow()
    vectors = np.array(rows["emb"].to_pylist())
    distances = plain_distances(vectors, np.array(QUERY), metric)
    nearest = table.search(QUERY, 7, metric=metric).to_arrow()
    assert nearest["_hudi_distance"].to_pylist() == pytest.approx(np.sort(distances)[:7].tolist(), abs=1e-9)
    by_id = dict(zip(rows["id"].to_pylist(), distances.tolist(), strict=True))
    assert [by_id[i] for i in nearest["id"].to_pylist()] == pytest.approx(nearest["_hudi_distance"].to_pylist())
    names = dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
    assert nearest["name"].to_pylist() == [names[i] for i in nearest["id"].to_pylist()]


def test_conditions_distances_columns_and_time_travel_narrow_a_search() -> None:
    table = vector_table("mor")
    first = table.changes("000").end
    table.upsert([{"id": "near", "emb": QUERY, "name": "x", "ts": 2, "part": "p0"}])
    assert table.search(QUERY, 1, metric="l2").to_arrow()["id"].to_pylist() == ["near"]
    assert table.search(QUERY, 1, metric="l2", as_of=first).to_arrow()["id"].to_pylist() != ["near"]
    odd = table.search(QUERY, 100, where="part = 'p1'").to_arrow()
    assert set(odd["part"].to_pylist()) == {"p1"}
    assert odd.num_rows == 20
    close = table.search(QUERY, 100, metric="l2", max_distance=6.0, columns=["EMB", "id"]).to_arrow()
    assert close.column_names == ["emb", "id", "_hudi_distance"]
    assert 0 < close.num_rows < 10
    assert max(close["_hudi_distance"].to_pylist()) <= 6.0
    assert table.search(QUERY, columns=[]).to_arrow().column_names == ["_hudi_distance"]
    assert table.search(QUERY, where="id = 'k000'").to_arrow().num_rows == 0
    assert table.search(QUERY, where="id = 'nobody'").to_pandas().empty


def test_a_matrix_is_a_batch_of_searches() -> None:
    table = vector_table("cow")
    queries = np.array([QUERY, [-1.0, 0, 0, 0], [0, 0, 0, 0]])
    batch = table.search(queries, 3, metric="cosine").to_arrow()
    assert batch.column_names[-2:] == ["_hudi_distance", "_hudi_query_index"]
    assert batch["_hudi_query_index"].to_pylist() == [0] * 3 + [1] * 3 + [2] * 3
    for number, query in enumerate(queries):
        alone = table.search(query, 3).to_arrow()
        of_batch = batch.slice(3 * number, 3)
        assert of_batch["_hudi_distance"].to_pylist() == alone["_hudi_distance"].to_pylist()
    assert batch.slice(6)["_hudi_distance"].to_pylist() == [1.0] * 3


@pytest.mark.parametrize("number", ["_BATCH_BYTES", "_BLOCK_BYTES"])
def test_vectors_are_compared_some_at_a_time_or_all_at_once(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = np.array([QUERY, [-1.0, 0, 0, 0]])
    table, found = vector_table("mor"), list[pa.Table]()
    for size in (1, 1 << 40):
        monkeypatch.setattr(f"lakebed.read.search.{number}", size)
        found.append(table.search(queries, 7).to_arrow())
    assert found[0].equals(found[1])
    assert found[0].num_rows == 14


def test_a_batch_without_queries_has_no_rows() -> None:
    found = vector_table("cow").search(np.empty((0, 4)), np.int64(3)).to_arrow()  # pyright: ignore[reportArgumentType]
    assert found.num_rows == 0
    assert found.column_names[-2:] == ["_hudi_distance", "_hudi_query_index"]


@pytest.mark.parametrize("factor", [1e200, 1.0, 1e-200, 1e-310])
def test_vectors_of_very_large_and_very_small_doubles_have_right_distances(factor: float) -> None:
    """Their squares are infinite or zero in double precision, their distances are not."""
    columns = pa.schema([("id", pa.int64()), ("at", lakebed.vector(2, "double"))])
    table = lakebed.create(f"memory://vectors/doubles/{factor}", columns, key="id")
    vectors = np.array([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0], [0.0, 0.0]]) * factor
    table.upsert({"id": [1, 2, 3, 4], "at": vectors.tolist()})
    for size in (1e250, 1.0, 1e-250):
        found = table.search([3 * size, 4 * size]).to_arrow()
        assert found["id"].to_pylist() == [1, 2, 4, 3]
        assert found["_hudi_distance"].to_pylist() == pytest.approx([0.0, 0.04, 1.0, 2.0], abs=1e-9)
    found = table.search((np.array([3.0, 4.0]) * factor).tolist(), metric="l2").to_arrow()
    assert found["id"].to_pylist() == [1, 2, 4, 3]
    assert found["_hudi_distance"].to_pylist() == pytest.approx(np.array([0, 2**0.5, 5, 10]) * factor, rel=1e-9)
    assert table.search([3e300, 4e300], metric="dot_product").to_arrow().num_rows == 4


def test_a_search_is_a_lazy_read_and_tells_its_plan() -> None:
    table = vector_table("mor")
    search = table.search(QUERY, 2)
    text = str(search.explain())
    assert "the 2 nearest by cosine of emb VECTOR(4)" in text
    assert "columns     emb" in text
    assert search.count() == 2
    assert search.limit(1).to_arrow().num_rows == 1
    assert search.to_polars().columns == ["id", "name", "ts", "part", "_hudi_distance"]
    assert search.schema.equals(search.to_arrow().schema)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"vector": [1.0]}, r"column emb is VECTOR.4.: expected queries of 4 elements, got 1"),
        ({"vector": [1.0, 2, 3, float("nan")]}, "no finite number"),
        ({"vector": "text"}, "no vector"),
        ({"vector": QUERY, "column": "name"}, "column name is STRING"),
        ({"vector": QUERY, "column": "emd"}, "emd"),
        ({"vector": QUERY, "metric": "manhattan"}, "metric"),
        ({"vector": QUERY, "k": 0}, "k"),
        ({"vector": QUERY, "k": True}, "a whole number as k, not True"),
        ({"vector": QUERY, "max_distance": "1"}, "a number as max_distance, not '1'"),
        ({"vector": QUERY, "max_distance": float("nan")}, "a number as max_distance, not nan"),
        ({"vector": [10**400, 1, 2, 3]}, "too large"),
        ({"vector": np.array([1j, 0, 0, 0])}, "its elements are complex numbers"),
    ],
)
def test_a_search_that_cannot_be_is_refused(arguments: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        vector_table("cow").search(**arguments).to_arrow()  # type: ignore[arg-type]


def test_the_column_is_named_where_there_are_several() -> None:
    columns = pa.schema([("id", pa.int64()), ("a", lakebed.vector(2)), ("b", lakebed.vector(2, "int8"))])
    table = lakebed.create("memory://vectors/several", columns, key="id")
    table.upsert({"id": [1, 2], "a": [[1, 0], [0, 1]], "b": [[0, 1], [1, 0]]})
    with pytest.raises(InvalidOption, match="the vectors a, b"):
        table.search([1, 0])
    assert table.search([1, 0], 1, "a").to_arrow().to_pylist() == [{"id": 1, "b": [0, 1], "_hudi_distance": 0.0}]
    assert table.search([1, 0], 1, "B", "l2").to_arrow()["id"].to_pylist() == [2]


def test_the_functions_of_sql_are_those_of_hudi(tmp_path: Path) -> None:
    tables = {"t": unpacked("vec_search", tmp_path)}
    query = "array(cast(3.0 as float), 1, 2.0, 0.5)"
    rows = lakebed.sql(
        f"select id, _hudi_distance from hudi_vector_search('t', 'emb', {query}, 5, 'l2')", tables=tables
    )
    distances = [row["_hudi_distance"] for row in described("vec_search")["search"]["l2"]]
    assert rows.to_arrow()["_hudi_distance"].to_pylist() == pytest.approx(distances, abs=1e-6)
    some = lakebed.sql(
        "select * from hudi_vector_search("
        "'t', 'emb', [3.0, -1, 2, 0.5], 100, 'l2', 'brute_force', 'part = ''p1''', 9.5) n",
        tables=tables,
    ).to_arrow()
    assert set(some["part"].to_pylist()) == {"p1"}
    assert max(some["_hudi_distance"].to_pylist()) <= 9.5
    queries = pa.table({"id": ["q"], "text": ["t"], "v": pa.array([[3.0, 1, 2, 0.5]])})
    batch = lakebed.sql(
        "select * from hudi_vector_search_batch('t', 'emb', 'q', 'v', 2, 'l2')", tables={**tables, "q": queries}
    ).to_arrow()
    assert batch.column_names[-4:] == ["_hudi_query_id", "text", "_hudi_distance", "_hudi_query_index"]
    assert batch["_hudi_distance"].to_pylist() == pytest.approx(distances[:2], abs=1e-6)
    with pytest.raises(InvalidOption, match="brute_force"):
        lakebed.sql(f"select * from hudi_vector_search('t', 'emb', {query}, 5, 'l2', 'ivf')", tables=tables).to_arrow()


def test_an_equal_vector_has_the_distance_0_though_its_elements_are_no_floats() -> None:
    rows = pa.table({"id": [1, 2], "emb": pa.array([[0.1, 0.2, 0.3], [1.0, 0.0, 0.0]], lakebed.vector(3))})
    table = lakebed.load("memory://search/equal", rows, key="id")
    found = table.search([0.1, 0.2, 0.3], metric="l2", max_distance=0).to_arrow()
    assert found.select(["id", "_hudi_distance"]).to_pylist() == [{"id": 1, "_hudi_distance": 0.0}]
    far = table.search([1e300, 0, 0], 1, metric="l2").to_arrow()  # beyond the floats: the query stays as it is
    assert far["_hudi_distance"].to_pylist() == [1e300]
    lakebed.drop("memory://search/equal")
