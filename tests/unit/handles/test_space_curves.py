"""Curves through several columns: every cell once, neighbours beside each other, near rows in few files."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from lakebed.handles.cluster import hilbert_codes, order_of, z_codes


def grid(dimensions: int, bits: int) -> list[np.ndarray]:
    points = np.array(list(product(range(1 << bits), repeat=dimensions)), np.uint64)
    return [points[:, at].copy() for at in range(dimensions)]


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 1), (2, 5), (3, 3), (4, 2)])
def test_the_hilbert_curve_steps_from_cell_to_neighbour(dimensions: int, bits: int) -> None:
    axes = grid(dimensions, bits)
    codes = hilbert_codes(axes, bits)
    assert sorted(codes.tolist()) == list(range(1 << (dimensions * bits)))
    path = np.stack(axes)[:, np.argsort(codes)].astype(np.int64)
    assert (np.abs(np.diff(path, axis=1)).sum(axis=0) == 1).all()


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 4), (3, 3)])
def test_the_z_curve_interleaves_bits(dimensions: int, bits: int) -> None:
    axes = grid(dimensions, bits)
    codes = z_codes(axes, bits)
    for at in range(0, len(codes), 7):
        digits = [f"{int(axis[at]):0{bits}b}" for axis in axes]
        assert int("".join(digit for column in zip(*digits, strict=True) for digit in column), 2) == codes[at]


@pytest.mark.parametrize(("layout", "most"), [("LINEAR", 1.0), ("ZORDER", 0.3), ("HILBERT", 0.25)])
def test_a_part_of_the_rows_spans_little_of_each_column_along_a_curve(layout: str, most: float) -> None:
    dice = np.random.default_rng(3)
    rows = pa.table({"a": dice.random(20_000) ** 4, "b": dice.integers(0, 10**12, 20_000)})
    order = order_of(rows, ["a", "b"], layout)  # type: ignore[arg-type]
    assert sorted(order.tolist()) == list(range(20_000))
    ranks = [np.argsort(np.argsort(rows[name].to_numpy())) / 20_000 for name in ("a", "b")]
    spans = [np.ptp(rank[order].reshape(50, 400), axis=1).mean() for rank in ranks]
    assert max(spans) < most
    assert max(spans) > 0.9 or layout != "LINEAR"


@pytest.mark.parametrize("layout", ["LINEAR", "ZORDER", "HILBERT"])
def test_nulls_come_first_and_equal_rows_stay_as_they_are(layout: str) -> None:
    rows = pa.table({"a": [2, None, 1, 2, None], "s": ["x", "x", "x", "x", "x"]})
    assert order_of(rows, ["a", "s"], layout).tolist() == [1, 4, 2, 0, 3]  # type: ignore[arg-type]


def test_columns_of_every_kind_and_inside_structs_order_rows() -> None:
    rows = pa.table(
        {
            "n": [{"x": 3.5}, {"x": float("nan")}, {"x": -0.5}],
            "flag": [True, False, None],
            "amount": pa.array(["3", "1", "2"]).cast(pa.decimal128(9, 2)),
            "at": pa.array([3, 1, 2], pa.timestamp("us", "UTC")),
        }
    )
    assert order_of(rows, ["n.x"], "LINEAR").tolist() == [2, 0, 1]
    assert order_of(rows, ["flag", "n.x"], "LINEAR").tolist() == [2, 1, 0]
    for layout in ("ZORDER", "HILBERT"):
        assert sorted(order_of(rows, ["n.x", "flag", "amount", "at"], layout).tolist()) == [0, 1, 2]
    assert order_of(rows.slice(0, 0), ["amount", "at"], "ZORDER").tolist() == []
