"""Keys that log files deleted and that come back: real Hudi's simple and bloom indexes see them in base files all the
time, so that they have to come back there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import lakebed
from lakebed.model import FileSlice
from lakebed.table import Table
from support.write_tables import SCHEMA, content, rows

Make = Callable[..., Table]
LOOKED_UP = pytest.mark.parametrize("index", ["simple", "bloom"])
# No base file takes new rows in: what is new elsewhere goes to a file group of its own.
APART = {"hoodie.parquet.small.file.limit": 0}
KEYS = range(20)


def new_table(make: Make, index: str, merge: str, sort: str = "none") -> Table:
    properties = {"hoodie.compact.inline": False, "lakebed.sort": sort}
    table = make(type="mor", index=index, merge=merge, properties=properties)
    table.upsert(rows(*[(key, "a", "old", 10) for key in KEYS]), options=APART)
    table.delete([3, 5])
    return table


def holding(table: Table) -> list[FileSlice]:
    return [one for one in lakebed.open(table.uri).files if one.partition == "a"]


@LOOKED_UP
@pytest.mark.parametrize("merge", ["commit_time", "event_time"])
@pytest.mark.parametrize("sort", ["key", "none"])
def test_deleted_keys_return_to_the_file_group_that_has_them(make: Make, index: str, merge: str, sort: str) -> None:
    table = new_table(make, index, merge, sort)
    (before,) = holding(table)
    assert before.base_file is not None
    assert before.log_files
    # smaller than the ordering value that the base file has of the key
    result = table.upsert(rows((3, "a", "new", 1), (4, "a", "changed", 11)), options=APART)
    assert (result.inserted, result.updated, result.deleted) == (1, 1, 0)
    (after,) = holding(table)
    assert after.file_id == before.file_id
    assert after.base_file is not None
    assert after.base_file.instant == result.instant
    expected = {key: ("old", 10) for key in KEYS if key != 5} | {3: ("new", 1), 4: ("changed", 11)}
    assert content(table) == sorted((key, "a", *row) for key, row in expected.items())


@LOOKED_UP
def test_new_keys_go_to_another_file_group_than_returning_ones(make: Make, index: str) -> None:
    table = new_table(make, index, "commit_time")
    (before,) = holding(table)
    result = table.upsert(rows((3, "a", "new", 1), (99, "a", "new", 1), (3, "b", "other", 1)), options=APART)
    assert (result.inserted, result.updated) == (3, 0)
    assert {one.file_id for one in holding(table)} > {before.file_id}
    expected = [(key, "a", "old", 10) for key in KEYS if key not in (3, 5)]
    assert content(table) == sorted([*expected, (3, "a", "new", 1), (99, "a", "new", 1), (3, "b", "other", 1)])


@LOOKED_UP
def test_known_keys_alone_are_appended(make: Make, index: str) -> None:
    table = new_table(make, index, "commit_time")
    (before,) = holding(table)
    table.upsert(rows((4, "a", "changed", 11)), options=APART)
    (after,) = holding(table)
    assert after.base_file == before.base_file
    assert len(after.log_files) == len(before.log_files) + 1


@pytest.mark.parametrize("index", ["simple", "bloom", "global_simple", "global_bloom"])
def test_deleted_keys_return_on_a_table_without_partitions(make: Make, index: str) -> None:
    table = make(
        SCHEMA, type="mor", index=index, merge="commit_time", partition_by=None,
        properties={"hoodie.compact.inline": False},
    )  # fmt: skip
    table.upsert(rows(*[(key, "a", "old", 10) for key in KEYS]), options=APART)
    table.delete([3, 5])
    table.upsert(rows((3, "b", "new", 1)), options=APART)
    assert len(list(lakebed.open(table.uri).files)) == 1
    expected = [(key, "a", "old", 10) for key in KEYS if key not in (3, 5)]
    assert content(table) == sorted([*expected, (3, "b", "new", 1)])


@LOOKED_UP
def test_deleted_keys_are_new_to_an_insert_that_drops_stored_ones(make: Make, index: str) -> None:
    table = new_table(make, index, "commit_time")
    known = {"hoodie.datasource.write.insert.drop.duplicates": True}
    table.insert(rows((3, "a", "new", 1), (4, "a", "known", 1)), options=APART | known)
    assert len(holding(table)) == 1
    expected = [(key, "a", "old", 10) for key in KEYS if key not in (3, 5)]
    assert content(table) == sorted([*expected, (3, "a", "new", 1)])


@LOOKED_UP
def test_returning_keys_are_appended_while_their_file_group_is_compacted(make: Make, index: str) -> None:
    table = new_table(make, index, "commit_time")
    (before,) = holding(table)
    table.maintenance.compact(plan_only=True)
    table.upsert(rows((3, "a", "new", 1)), options=APART)
    assert {one.file_id for one in holding(table)} == {before.file_id}
    expected = sorted([*[(key, "a", "old", 10) for key in KEYS if key not in (3, 5)], (3, "a", "new", 1)])
    assert content(table) == expected
    table.maintenance.compact()
    assert content(table) == expected
    assert [one.file_id for one in holding(table)] == [before.file_id]
