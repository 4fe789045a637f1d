"""Rows of new files, with what their writers have to know of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakebed.handles.new_rows import NewRows


def test_a_slice_has_the_fingerprints_of_its_rows_and_the_keys_that_are_named() -> None:
    rows = NewRows(pa.record_batch({"a": [1, 2, 3]}), np.array([7, 8, 9], np.uint32), ("k1", "k3"), is_ordinary=True)
    part = rows.slice(1, 1, ("k2", "k2"))
    assert part.batch.to_pydict() == {"a": [2]}
    assert part.fingerprints is not None
    assert part.fingerprints.tolist() == [8]
    assert part.keys == ("k2", "k2")
    assert part.is_ordinary
    assert rows.slice(2).keys is None, "the keys of all rows say nothing of some"
    assert rows.slice(3).batch.num_rows == 0
