"""Whether two tables hold the same rows, whatever their order and the width of their types."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from lakebed.schema.evolution import project

ORDER = ("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_commit_seqno")


def assert_same_rows(found: pa.Table, expected: pa.Table, *, without: tuple[str, ...] = ()) -> None:
    """Equal as multisets of rows; `found` is read in the types of `expected` first, columns matched by name."""
    columns = [c for c in expected.column_names if c not in without]
    assert set(columns) <= set(found.column_names), "columns missing"
    wanted = expected.select(columns)
    mine = [project(b.select(columns), wanted.schema) for b in found.to_batches()]
    rows = Counter(_rows(pa.Table.from_batches(mine, mine[0].schema if mine else wanted.schema)))
    expected_rows = Counter(_rows(wanted))
    missing, more = expected_rows - rows, rows - expected_rows
    assert (missing.total(), more.total()) == (0, 0), (
        f"{missing.total()} of {wanted.num_rows} rows missing, {more.total()} of {found.num_rows} not expected; columns"
        f" {columns}; missing: {list(missing)[:3]}; not expected: {list(more)[:3]}"
    )


def _rows(table: pa.Table) -> list[str]:
    # text makes NaN equal to itself; maps come in any order
    return sorted(repr([_plain(v) for v in row.values()]) for row in table.to_pylist(maps_as_pydicts="strict"))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return sorted((k, repr(_plain(v))) for k, v in value.items())
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value
