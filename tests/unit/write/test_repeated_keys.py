"""Keys that inserts store several times: all of their rows are found, though a record index has one place for a key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import lakebed
from lakebed.table import Table
from write_tables import content, files, rows

Make = Callable[..., Table]
EVERY_TYPE = pytest.mark.parametrize("kind", ["cow", "mor"])
APART = {"hoodie.parquet.small.file.limit": 0}
NOTE = "lakebed.index.repeated"


def found(table: Table, key: int = 1) -> list[int]:
    """How many rows of a key each way to look for it gives."""
    table = lakebed.open(table.uri)
    filters = (f"id = {key}", f"id <= {key} AND id >= {key}", f"_hoodie_record_key = '{key}'")
    rows_of = [table.scan(filter=text).to_arrow().num_rows for text in filters]
    return [*rows_of, table.scan(filter=filters[0]).count(), table.get([key]).num_rows, table.locate([key]).num_rows]


@EVERY_TYPE
@pytest.mark.parametrize("index", ["record", "global_simple", "global_bloom", "simple", "bloom"])
@pytest.mark.parametrize("verb", ["insert", "bulk_insert"])
def test_all_rows_of_a_key_are_found_and_changed(make: Make, kind: str, index: str, verb: str) -> None:
    table = make(type=kind, index=index)
    for value in ("x", "y"):
        getattr(table, verb)(rows((1, "a", value, 1), (2 if value == "x" else 3, "a", value, 1)), options=APART)
    assert found(table) == [2] * 6
    assert found(table, 2) == [1] * 6
    table.upsert(rows((1, "a", "z", 2)))
    assert content(table) == [(1, "a", "z", 2), (1, "a", "z", 2), (2, "a", "x", 1), (3, "a", "y", 1)]
    table.delete([1])
    assert found(table) == [0] * 6
    assert table.exists([1, 2]).to_pylist() == [False, True]


@EVERY_TYPE
def test_a_key_in_two_partitions_is_found_in_both(make: Make, kind: str) -> None:
    table = make(type=kind, index="record")
    table.insert(rows((1, "a", "x", 1)))
    table.insert(rows((1, "b", "y", 1)))
    assert found(table) == [2] * 6


@EVERY_TYPE
def test_a_first_insert_that_repeats_a_key_is_noted(make: Make, kind: str) -> None:
    table = make(type=kind, index="record")
    table.insert(rows((1, "a", "x", 1), (1, "b", "y", 1)))
    assert table.properties[NOTE] == "true"
    assert found(table) == [2] * 6


@EVERY_TYPE
def test_inserts_of_new_keys_are_found_by_the_index(make: Make, kind: str) -> None:
    table = make(type=kind, index="record")
    table.insert(rows((1, "a", "x", 1), (2, "b", "x", 1)))
    table.insert(rows((3, "a", "x", 1)))
    table.upsert(rows((3, "a", "y", 2)))
    assert NOTE not in lakebed.open(table.uri).properties
    assert found(table, 3) == [1] * 6


def test_repaired_duplicates_are_found_by_the_index_again(make: Make) -> None:
    table = make(index="record")
    for value in ("x", "y"):
        table.insert(rows((1, "a", value, 1)), options=APART)
    assert lakebed.open(table.uri).properties[NOTE] == "true"
    table.repair(["duplicates"])
    assert NOTE not in lakebed.open(table.uri).properties
    assert found(table) == [1] * 6
    assert content(table) == [(1, "a", "y", 1)]


def test_a_refused_insert_notes_nothing(make: Make) -> None:
    table = make(index="record")
    table.insert(rows((1, "a", "x", 1)))
    before = files(table.uri)
    with pytest.raises(lakebed.LakebedError):
        table.insert(rows((1, "a", "x", 1)), options={"hoodie.datasource.insert.dup.policy": "fail"})
    assert NOTE not in lakebed.open(table.uri).properties
    assert content(table) == [(1, "a", "x", 1)]
    assert before.keys() <= files(table.uri).keys()
