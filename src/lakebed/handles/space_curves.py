"""The order of rows by several columns: one after another, or along a curve that keeps near rows near in all of them.

For the curves each column's values become their ranks among the rows at hand, spread evenly over the bits that a
dimension has: skewed values use all of the curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.merge.rules import comparable, field_values
from lakebed.timeline.bodies.plans import Layout

Positions = npt.NDArray[np.int64]
_Codes = npt.NDArray[np.uint64]
# Of a code: more bits of a rank tell no more about where a row lies.
_BITS = 63
_MOST_BITS = 21


def order_of(rows: pa.Table, columns: Sequence[str], layout: Layout) -> Positions:
    """Positions of the rows in the order of some columns (dotted: fields inside structs); nulls come first, equal rows
    stay as they are."""
    values = [comparable(field_values(rows, name)) for name in columns]
    if layout == "LINEAR" or len(values) == 1:
        return _sorted(values)
    bits = min(_MOST_BITS, _BITS // len(values))
    ranks = [_ranks(column, bits) for column in values]
    codes = z_codes(ranks, bits) if layout == "ZORDER" else hilbert_codes(ranks, bits)
    return np.argsort(codes, kind="stable").astype(np.int64)


def z_codes(ranks: Sequence[_Codes], bits: int) -> _Codes:
    """The bits of the ranks in turn, the first column's on top.

    >>> z_codes([np.array([0, 1, 0, 1], np.uint64), np.array([0, 0, 1, 1], np.uint64)], 1).tolist()
    [0, 2, 1, 3]
    """
    codes = np.zeros(len(ranks[0]), np.uint64)
    one = np.uint64(1)
    for bit in range(bits - 1, -1, -1):
        for rank in ranks:
            codes = (codes << one) | ((rank >> np.uint64(bit)) & one)
    return codes


def hilbert_codes(ranks: Sequence[_Codes], bits: int) -> _Codes:
    """How far along the Hilbert curve points lie: neighbours on it differ by one in one column.

    >>> hilbert_codes([np.array([0, 0, 1, 1], np.uint64), np.array([0, 1, 1, 0], np.uint64)], 1).tolist()
    [0, 1, 2, 3]
    """
    axes = [rank.copy() for rank in ranks]
    top = 1 << (bits - 1)
    bit = top
    while bit > 1:  # undo the turns of each level
        below = np.uint64(bit - 1)
        for axis in axes:
            turned = (axis & np.uint64(bit)) != 0
            swapped = np.where(turned, np.uint64(0), (axes[0] ^ axis) & below)
            axes[0] ^= np.where(turned, below, swapped)
            if axis is not axes[0]:
                axis ^= swapped
        bit >>= 1
    for before, axis in pairwise(axes):  # Gray code
        axis ^= before
    flips = np.zeros(len(axes[0]), np.uint64)
    bit = top
    while bit > 1:
        flips ^= np.where((axes[-1] & np.uint64(bit)) != 0, np.uint64(bit - 1), np.uint64(0))
        bit >>= 1
    for axis in axes:
        axis ^= flips
    return z_codes(axes, bits)


def _ranks(values: pa.Array, bits: int) -> _Codes:
    """Dense ranks from 0, spread over so many bits."""
    ranked = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False)
    nulls = pc.is_null(values).to_numpy(zero_copy_only=False)
    ranks = np.where(nulls, 0, ranked).astype(np.uint64)
    greatest = int(ranks.max()) if len(ranks) else 0
    return ranks * np.uint64((1 << bits) - 1) // np.uint64(max(1, greatest))


def _sorted(values: Sequence[pa.Array]) -> Positions:
    columns: dict[str, pa.Array] = {}
    for at, column in enumerate(values):
        if column.null_count:
            columns[f"valid {at}"] = pc.is_valid(column).cast(pa.int8())
        columns[str(at)] = column
    table = pa.table({**columns, "at": np.arange(len(values[0]))})
    keys = [(name, "ascending") for name in table.column_names]
    return pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.int64)
