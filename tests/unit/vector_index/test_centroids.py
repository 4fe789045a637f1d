from __future__ import annotations

import numpy as np
import pytest

from lakebed.errors import CorruptFile
from lakebed.vector_index import centroids as module
from lakebed.vector_index.centroids import Centroids, found_centroids, products, random_words

RANDOM = np.random.default_rng(1)


def normal(rows: int, size: int) -> np.ndarray:
    return RANDOM.normal(size=(rows, size)).astype(np.float32)


@pytest.mark.parametrize(
    "shape", [(0, 3, 5), (1, 1, 1), (7, 200, 1000), (4097, 33, 129), (10, 65_537, 9), (300, 768, 70)]
)
def test_products_of_small_matrices_are_those_of_the_large_ones(shape: tuple[int, int, int]) -> None:
    left, right = normal(shape[0], shape[1]), normal(shape[2], shape[1])
    expected = left.astype(np.float64) @ right.astype(np.float64).T
    assert products(left, right).shape == (shape[0], shape[2])
    np.testing.assert_allclose(products(left, right), expected, atol=1e-4 * np.sqrt(shape[1]))


def test_products_of_whole_numbers_are_exact() -> None:
    left, right = RANDOM.integers(-127, 128, (2, 600, 1040)).astype(np.float32)
    assert (products(left, right) == left.astype(np.int64) @ right.astype(np.int64).T).all()


def test_each_vector_is_in_the_cluster_with_the_nearest_centroid(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, matrix = normal(1000, 16), normal(37, 16)
    expected = ((vectors[:, None] - matrix) ** 2).sum(axis=2).argmin(axis=1)
    assert (Centroids(matrix).nearest(vectors) == expected).all()
    monkeypatch.setattr(module, "_BLOCK_ROWS", 7)
    assert (Centroids(matrix).nearest(vectors) == expected).all()


def test_clusters_that_are_far_from_each_other_are_found() -> None:
    centres = 100 * normal(10, 8)
    sample = np.concatenate([centre + normal(50, 8) for centre in centres])
    centroids = found_centroids(sample, 40, 3)
    apart = np.sqrt(((sample - centroids.matrix[centroids.nearest(sample)]) ** 2).sum(axis=1))
    assert len(centroids) == 40
    assert apart.max() < 8


def test_equal_samples_and_seeds_have_equal_centroids() -> None:
    sample = normal(1000, 8)
    assert (found_centroids(sample, 20, 3).matrix == found_centroids(sample.copy(), 20, 3).matrix).all()
    assert (found_centroids(sample, 20, 3).matrix != found_centroids(sample, 20, 4).matrix).any()


def test_a_sample_of_more_than_64_rows_a_cluster_is_thinned_out() -> None:
    sample = np.zeros((2 * 64 + 1, 2), np.float32)
    sample[:, 0] = np.arange(len(sample))
    for rows in (2 * 64, 2 * 64 + 1):
        assert found_centroids(sample[:rows], 2, 1).matrix.shape == (2, 2)


def test_few_equal_and_no_rows_have_centroids() -> None:
    assert found_centroids(np.empty((0, 3), np.float32), 5, 1).matrix.tolist() == [[0, 0, 0]]
    three = normal(3, 2)
    assert sorted(found_centroids(three, 5, 1).matrix.tolist()) == sorted(three.tolist())
    equal = found_centroids(np.ones((100, 2), np.float32), 5, 1)
    assert equal.matrix.tolist() == [[1, 1]] * 5


def test_centroids_come_back_from_records_of_a_megabyte() -> None:
    centroids = Centroids(normal(5000, 128))
    records = centroids.to_records()
    assert [len(record) for record in records] == [40 + 512 * rows for rows in (2048, 2048, 904)]
    assert (Centroids.from_records(records).matrix == centroids.matrix).all()


def test_the_bytes_are_those_of_earlier_releases() -> None:
    (record,) = Centroids(np.array([[1, -2]], np.float32)).to_records()
    assert record.hex() == (
        "4c56494301021e00000041aa50e67936ad97020300000007020000000000000001000000020000000000803f000000c0"
    )


def test_records_that_are_missing_or_damaged_are_an_error_by_name() -> None:
    records = Centroids(normal(5000, 128)).to_records()
    for damaged in (
        [],
        records[1:],
        records[:-1],
        records[::-1],
        [*records, records[0]],
        [records[0][:-1], *records[1:]],
    ):
        with pytest.raises(CorruptFile, match=r"centroids"):
            Centroids.from_records(damaged)


def test_random_numbers_are_those_of_earlier_releases() -> None:
    assert random_words(2, 42).tolist() == [14276969152011380360, 8095878257575067585]
