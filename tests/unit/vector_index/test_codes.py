from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lakebed.vector_index import codes as module
from lakebed.vector_index.codes import Coder, dots, prepared_vectors, rotation, trained
from lakebed.vector_index.shape import METRICS, IndexShape
from support.vector_layers import exact_distances, small_coder

RANDOM = np.random.default_rng(2)


def estimated(coder: Coder, vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The estimated distances of all vectors: a row for each query."""
    coded, prepared = coder.encode(vectors), coder.prepared(queries)
    result = np.empty((len(queries), len(vectors)))
    for several in (np.unique(coded.clusters)[:2], np.unique(coded.clusters)[2:]):
        rows = [np.flatnonzero(coded.clusters == cluster) for cluster in several]
        if rows:
            counts, in_order = np.array(list(map(len, rows))), np.concatenate(rows)
            near = coder.distances(several, counts, prepared, coder.rounded(prepared), coded.take(in_order))
            result[:, in_order] = coder.in_units(near)
    return result


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("element", ["float", "double", "int8"])
@pytest.mark.parametrize(("bits", "share"), [(8, 0.01), (4, 0.12)])
@pytest.mark.parametrize("dimension", [1, 7, 64])
def test_estimated_distances_are_near_the_exact_ones(
    metric: Any, element: str, bits: int, share: float, dimension: int
) -> None:
    numbers = RANDOM.integers(-128, 128, (400, dimension))
    vectors = numbers.astype({"float": np.float32, "double": np.float64, "int8": np.int8}[element])
    queries = vectors[:5]
    found = estimated(small_coder(vectors, metric=metric, element=element, bits=bits), vectors, queries)
    for query, of_query in zip(queries, found, strict=True):
        exact = exact_distances(vectors, query, metric)
        power = 2 if metric == "l2" else 1  # the estimate is one of the square
        assert np.abs(of_query**power - exact**power).max() <= share * (np.abs(exact).max() + 1) ** power


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30, 1e300])
def test_vectors_of_any_size_have_distances(metric: Any, size: float) -> None:
    vectors = RANDOM.normal(size=(300, 16)) * size
    found = estimated(small_coder(vectors, metric=metric, element="double"), vectors, vectors[:3])
    for query, of_query in zip(vectors[:3] / size, found, strict=True):
        exact = exact_distances(vectors / size, query, metric)
        scale = {"cosine": 1.0, "l2": size, "dot_product": size}[metric]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            of_query = of_query / scale / (size if metric == "dot_product" else 1)
        if metric == "dot_product" and size in (1e-300, 1e300):
            continue  # products of such numbers are zero or infinite
        power = 2 if metric == "l2" else 1
        assert np.abs(of_query**power - exact**power).max() <= 0.01 * np.abs(exact).max() ** power


def test_a_vector_far_beyond_the_sample_has_a_code() -> None:
    sample = RANDOM.normal(size=(100, 8))
    for metric in METRICS:
        coder = small_coder(sample, metric=metric, element="double")
        vectors = np.concatenate([sample, np.full((1, 8), 1e307), np.full((1, 8), -1e307)])
        found = estimated(coder, vectors, vectors[:2])
        assert np.isfinite(found).all()
        if metric == "l2":
            assert (found[:, -2:].min(axis=1) > found[:, :-2].max(axis=1)).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bits", [8, 4])
def test_zeros_and_equal_vectors_have_exact_distances(metric: Any, bits: int) -> None:
    for vectors in (np.zeros((50, 4), np.float32), np.full((50, 4), 0.5, np.float32)):
        coder = small_coder(vectors, metric=metric, bits=bits)
        queries = np.array([[0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0], [1, 0, 0, 0]], np.float32)
        expected = [exact_distances(vectors, query, metric) for query in queries]
        np.testing.assert_allclose(estimated(coder, vectors, queries), expected, atol=2e-6)


def test_fewer_rows_than_clusters_make_a_cluster_of_each_row() -> None:
    coder = small_coder(RANDOM.normal(size=(3, 4)).astype(np.float32), clusters=10)
    assert coder.shape.clusters == len(coder.centroids) == 3
    empty = trained(IndexShape("emb", 4, clusters=10), np.empty((0, 4), np.float32))
    assert empty.shape.clusters == 1
    assert len(empty.encode(np.empty((0, 4), np.float32))) == 0
    assert empty.encode(np.ones((2, 4), np.float32)).clusters.tolist() == [0, 0]


def test_blocks_of_rows_have_the_codes_of_all_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = RANDOM.normal(size=(100, 8)).astype(np.float32)
    coder = small_coder(vectors, metric="l2")
    at_once = coder.encode(vectors)
    monkeypatch.setattr(module, "_BLOCK_ROWS", 7)
    in_blocks = coder.encode(vectors)
    assert (at_once.clusters == in_blocks.clusters).all()
    assert np.abs(at_once.codes.view(np.int8).astype(int) - in_blocks.codes.view(np.int8)).max() <= 1
    np.testing.assert_allclose(at_once.norms, in_blocks.norms, rtol=1e-5)


def test_a_code_of_4_bits_takes_half_a_byte_of_each_element() -> None:
    for dimension in (7, 8):
        vectors = RANDOM.normal(size=(20, dimension)).astype(np.float32)
        assert small_coder(vectors, bits=4).encode(vectors).codes.shape == (20, 4)
        assert small_coder(vectors, bits=8).encode(vectors).codes.shape == (20, dimension)


def test_a_rotation_keeps_lengths_and_is_that_of_earlier_releases() -> None:
    turned = rotation(50, 42).astype(np.float64)
    np.testing.assert_allclose(turned @ turned.T, np.eye(50), atol=1e-6)
    np.testing.assert_allclose(rotation(2, 42), [[0.60707825, -0.79464203], [0.79464203, 0.60707825]], atol=1e-6)
    shape = IndexShape("emb", 50)
    vectors = RANDOM.normal(size=(10, 50))
    cosines = prepared_vectors(shape, vectors) @ prepared_vectors(shape, vectors).T
    unit = vectors / np.linalg.norm(vectors, axis=1)[:, None]
    np.testing.assert_allclose(cosines, unit @ unit.T, atol=1e-6)


def exact_dots(codes: np.ndarray, queries: np.ndarray) -> np.ndarray:
    return queries.astype(np.int64) @ codes.astype(np.int64).T


@pytest.mark.parametrize("dimension", [1, 1040, 1041, 4096])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
def test_products_of_codes_are_exact(dimension: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # as where the library is not installed
    monkeypatch.setattr(module, "_native_dots", lambda: None)
    for codes in (RANDOM.integers(-128, 128, (50, dimension)), np.full((5, dimension), -127), np.empty((0, dimension))):
        queries = np.full((count, dimension), 127, np.int8)
        found = dots(codes.astype(np.int8), queries)
        assert found.shape == (count, len(codes))
        assert (found == exact_dots(codes, queries)).all()


def test_products_by_the_native_library_are_those_of_numpy() -> None:
    pytest.importorskip("numkong")
    native = module._native_dots()  # pyright: ignore[reportPrivateUsage]
    assert native is not None
    for dimension in (1, 31, 128, 768, 4096):
        codes = RANDOM.integers(-128, 128, (300, dimension)).astype(np.int8)
        for queries in (codes[:1], codes[:7], np.full((1, dimension), -127, np.int8)):
            assert (native(codes, queries) == exact_dots(codes, queries)).all()
