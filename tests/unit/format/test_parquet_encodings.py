"""The encoding of a column is chosen from the values that it has."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.parquet_encodings import choose_encodings

# Four slices are looked at, of which this is one.
SLICE = 4_096
ROWS = 4 * SLICE


def test_a_dictionary_is_chosen_by_all_values_and_not_by_those_of_the_first_slice() -> None:
    columns = {
        "unique": list(range(ROWS)),
        "few": [n % 10 for n in range(ROWS)],
        # few in the first slice, many in all
        "few_at_first": [0 if n < SLICE else n for n in range(ROWS)],
        # many in the first slice, and yet few for the number of all
        "many_at_first": [n % SLICE if n < 2_400 else 0 for n in range(ROWS)],
        # as many as a slice may have, and one more
        "bound": [min(n, 2_456) for n in range(ROWS)],
        "beyond": [min(n, 2_457) for n in range(ROWS)],
    }
    rows = pa.table(columns)
    chosen = choose_encodings(rows)
    most = 0.15 * ROWS
    assert [pc.count_distinct(rows["bound"]).as_py(), pc.count_distinct(rows["beyond"]).as_py()] == [2_457, 2_458]
    assert set(chosen.dictionary) == {n for n in columns if pc.count_distinct(rows[n]).as_py() <= most}
    assert set(chosen.dictionary) == {"few", "many_at_first", "bound"}
