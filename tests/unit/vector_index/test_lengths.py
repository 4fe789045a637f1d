from __future__ import annotations

import numpy as np

from lakebed.vector_index.lengths import row_lengths, unit_vectors


def test_the_length_of_rows_whose_squares_are_no_double_numbers() -> None:
    rows = np.array([[3.0, 4.0], [3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0]])
    np.testing.assert_allclose(row_lengths(rows), [5, 5e200, 5e-200, 0], rtol=1e-15)


def test_unit_vectors_have_the_length_one_and_zeros_stay_zeros() -> None:
    rows = np.array([[3.0, 4.0], [-3e300, 4e300], [3e-310, 4e-310], [0.0, 0.0]])
    expected = [[0.6, 0.8], [-0.6, 0.8], [0.6, 0.8], [0, 0]]
    np.testing.assert_allclose(unit_vectors(rows), expected, rtol=1e-12)
