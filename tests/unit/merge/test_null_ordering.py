"""Rows whose ordering value is null: refused, or (`lakebed.write.null.ordering=lowest`) smaller than every value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.options import resolve_options
from lakebed.table import Table
from support.write_tables import SCHEMA, content, rows

Make = Callable[..., Table]
LOWEST = {"lakebed.write.null.ordering": "lowest"}
EVERY_TYPE = pytest.mark.parametrize("kind", ["cow", "mor"])
EVERY_INDEX = pytest.mark.parametrize("index", ["simple", "global_simple", "record", "bucket"])


@EVERY_TYPE
@pytest.mark.parametrize("version", [9, 8, 6])
@EVERY_INDEX
def test_a_null_loses_against_every_value(make: Make, kind: str, version: int, index: str) -> None:
    table = make(type=kind, table_version=version, index=index)
    table.upsert(rows((1, "a", "null", None), (2, "a", "null", None), (3, "a", "value", -5)), options=LOWEST)
    table.upsert(rows((1, "a", "value", -7), (2, "a", "later null", None), (3, "a", "null", None)), options=LOWEST)
    expected: Sequence[Any] = [(1, "a", "value", -7), (2, "a", "later null", None), (3, "a", "value", -5)]
    assert content(table) == expected
    table.upsert(rows((1, "a", "null", None), (4, "a", "null", None)), options=LOWEST)
    expected = [*expected, (4, "a", "null", None)]
    assert content(table) == expected
    if kind == "mor":
        table.maintenance.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
        assert content(table) == expected
    assert sorted(lakebed.open(table.uri).get([1, 4])["v"].to_pylist()) == ["null", "value"]
    table.delete([1, 2])
    assert content(table) == expected[2:]


@EVERY_TYPE
@EVERY_INDEX
@pytest.mark.parametrize("backwards", [False, True])
def test_a_null_loses_in_a_batch(make: Make, kind: str, index: str, backwards: bool) -> None:
    given = [(1, "a", "null", None), (1, "a", "first", 1), (1, "a", "second", 2), (2, "b", "null", None)]
    table = make(type=kind, index=index)
    result = table.upsert(rows(*(reversed(given) if backwards else given)), options=LOWEST)
    assert result.combined == 2
    assert content(table) == [(1, "a", "second", 2), (2, "b", "null", None)]


@EVERY_TYPE
def test_a_row_without_a_value_does_not_move_a_key(make: Make, kind: str) -> None:
    table = make(type=kind, index="global_simple")
    table.upsert(rows((1, "a", "x", 1), (2, "a", "null", None)), options=LOWEST)
    table.upsert(rows((1, "b", "null", None), (2, "b", "later null", None)), options=LOWEST)
    assert content(table) == [(1, "a", "x", 1), (2, "b", "later null", None)]


@EVERY_TYPE
def test_without_the_option_and_in_deletes_a_null_is_refused(make: Make, kind: str) -> None:
    table = make(pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())]), type=kind)

    def marked(*flags: bool) -> pa.Table:
        batch = rows(*((n, "a", "x", None if n == 1 else 1) for n in range(len(flags))))
        return batch.append_column("_hoodie_is_deleted", pa.array(flags))

    with pytest.raises(lakebed.InvalidRecord, match="'ts' is null in 1 row"):
        table.upsert(marked(False, False))
    with pytest.raises(lakebed.InvalidRecord, match="'ts' is null in 1 row"):
        table.upsert(marked(False, True), options=LOWEST)
    table.upsert(marked(True, False, False), options=LOWEST)
    found = lakebed.open(table.uri).scan().to_arrow()
    assert sorted(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == [(1, None), (2, 1)]


@EVERY_TYPE
def test_several_ordering_fields_compare_one_after_the_other(make: Make, kind: str) -> None:
    table = make(type=kind, ordering=["ts", "v"])
    table.upsert(rows((1, "a", None, 3), (2, "a", "x", None), (3, "a", "b", 3)), options=LOWEST)
    table.upsert(rows((1, "a", "a", 3), (2, "a", "w", None), (3, "a", None, 3)), options=LOWEST)
    assert content(table) == [(1, "a", "a", 3), (2, "a", "x", None), (3, "a", "b", 3)]


def test_the_option_goes_by_a_name_like_those_of_hudi_as_well() -> None:
    assert resolve_options({"hoodie.write.null.ordering": "lowest"}).write.null_ordering == "lowest"
    assert resolve_options(LOWEST).write.null_ordering == "lowest"
    assert resolve_options({}).write.null_ordering == "refuse"
