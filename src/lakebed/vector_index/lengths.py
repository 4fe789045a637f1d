"""The lengths of vectors, in double precision."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
# Sums of squares outside of these bounds have lost digits, or are infinite.
_MIN_SQUARES, _MAX_SQUARES = 1e-280, 1e280


def row_lengths(rows: Doubles) -> Doubles:
    """The length of each row of a matrix, also where the squares of its elements are no double numbers."""
    squares = np.einsum("ij,ij->i", rows, rows)
    lengths = np.sqrt(squares)
    beyond = ~((squares >= _MIN_SQUARES) & (squares <= _MAX_SQUARES))
    if beyond.any():
        largest = np.abs(rows[beyond]).max(axis=1)
        scaled = rows[beyond] / np.where(largest > 0, largest, 1.0)[:, None]
        lengths[beyond] = largest * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return lengths


def unit_vectors(rows: Doubles) -> Doubles:
    """The rows of a matrix with the length 1; zeros stay zeros."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    scaled = rows / np.where(largest > 0, largest, 1.0)
    lengths = row_lengths(scaled)[:, None]
    return scaled / np.where(lengths > 0, lengths, 1.0)
