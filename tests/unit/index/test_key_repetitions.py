"""Rows of an insert whose key is stored another time: counted under every index, where that costs little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakebed.index import key_repetitions
from lakebed.storage import open_storage
from lakebed.table import Table
from support.write_tables import content, rows

Make = Callable[..., Table]
COUNTED = "lakebed.insert.count.duplicates"
GLOBAL = ("global_simple", "global_bloom", "record")
KINDS = [
    *((index, kind) for index in ("simple", "bloom", *GLOBAL, "bucket", "bucket_groups") for kind in ("cow", "mor")),
    ("consistent", "mor"),
]
INSERTS = [
    [(1, "a", "x", 1), (2, "b", "x", 1)],
    [(1, "a", "y", 2), (3, "a", "y", 2), (3, "b", "y", 2), (2, "a", "y", 2)],
    [(9, "a", "z", 1), (9, "a", "z", 2), (7, "b", "z", 1)],
    [(50, "c", "z", 1), (50, "c", "w", 2), (51, "c", "z", 1)],
]


def stored_twice(table: Table, index: str) -> int:
    """Rows beyond the first of their key, in its partition path or in the table."""
    keys = [row[:1] if index in GLOBAL else row[:2] for row in content(table)]
    return len(keys) - len(set(keys))


@pytest.mark.parametrize(("index", "kind"), KINDS)
@pytest.mark.parametrize(
    "version", [9, pytest.param(8, marks=pytest.mark.rest), pytest.param(6, marks=pytest.mark.rest)]
)
@pytest.mark.parametrize("option", [None, pytest.param(True, marks=pytest.mark.rest)])
def test_rows_of_stored_keys_are_counted(make: Make, index: str, kind: str, version: int, option: Any) -> None:
    table = make(index=index, type=kind, table_version=version)
    before = 0
    for given in INSERTS:
        done = table.insert(rows(*given), options=None if option is None else {COUNTED: option})
        after = stored_twice(table, index)
        assert done.duplicates == after - before, given
        before = after
    merged = kind == "mor" and index in ("bucket", "consistent")
    expected = {"consistent": 0, "bucket": 1}[index] if merged else 5 if index in GLOBAL else 3
    assert before == expected


@pytest.mark.parametrize(("index", "kind"), [pair for pair in KINDS if pair[0] not in ("record", "consistent")])
def test_keys_of_log_files_count_and_deleted_ones_do_not(make: Make, index: str, kind: str) -> None:
    table = make(index=index, type=kind)
    table.upsert(rows(*((n, "a", "x", 1) for n in range(6))))
    table.upsert(rows((1, "a", "y", 2), (10, "a", "y", 2)))
    table.delete([2, 3])
    done = table.insert(
        rows((1, "a", "z", 3), (2, "a", "z", 3), (3, "b", "z", 3), (10, "a", "z", 3), (20, "a", "z", 3))
    )
    assert done.duplicates == stored_twice(table, index)
    assert done.duplicates == (0 if (index, kind) == ("bucket", "mor") else 2)
    assert ("2 with a key that is stored another time" in str(done)) == bool(done.duplicates)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", ["simple", "global_bloom", "bucket"])
def test_an_insert_reads_few_stored_keys_unless_it_is_asked_to(
    make: Make, monkeypatch: pytest.MonkeyPatch, kind: str, index: str
) -> None:
    table = make(index=index, type=kind, partition_by=None, **({"buckets": 1} if index == "bucket" else {}))
    table.upsert(rows(*((n, "a", "x", 1) for n in range(100, 200))))
    merged = (index, kind) == ("bucket", "mor")
    monkeypatch.setattr(key_repetitions, "_MAX_KEYS", 99)
    assert table.insert(rows((500, "a", "x", 1))).duplicates == 0  # behind all stored keys
    blind = table.insert(rows((150, "a", "y", 1)))
    assert blind.duplicates == (0 if merged else None)
    note = 'duplicates: not looked up; options={"lakebed.insert.count.duplicates": True} counts rows of stored keys'
    assert (note in str(blind)) != merged
    again = table.insert(rows((151, "a", "y", 1), (150, "a", "y", 1)), options={COUNTED: True})
    assert again.duplicates == (0 if merged else 2)
    assert note not in str(again)
    assert table.insert(rows((501, "a", "x", 1)), options={COUNTED: False}).duplicates is None
    monkeypatch.setattr(key_repetitions, "_MAX_KEYS", 1_000)
    assert table.insert(rows((152, "a", "y", 1))).duplicates == (0 if merged else 1)


@pytest.mark.parametrize("index", ["simple", "global_simple", "bloom", "global_bloom"])
@pytest.mark.parametrize("bound", ["_MAX_SLICES", "_MAX_READ"])
def test_many_files_are_asked_by_the_index(make: Make, monkeypatch: pytest.MonkeyPatch, index: str, bound: str) -> None:
    table = make(index=index)
    for at in range(3):
        table.insert(rows((at, "a", "x", 1), (at + 5, "b", "x", 1)), options={"hoodie.parquet.small.file.limit": 0})
    given = rows((0, "a", "y", 1), (1, "b", "y", 1), (7, "b", "y", 1), (8, "a", "y", 1), (8, "a", "y", 1))
    monkeypatch.setattr(key_repetitions, bound, 1)
    assert table.insert(given).duplicates is None
    before = stored_twice(table, index)
    done = table.insert(given, options={COUNTED: True})
    assert done.duplicates == stored_twice(table, index) - before > 0


@pytest.mark.parametrize("index", ["simple", "global_simple", "bucket"])
def test_rows_that_are_combined_are_counted_once(make: Make, index: str) -> None:
    table = make(index=index, type="cow")
    table.upsert(rows((1, "a", "x", 1)))
    done = table.insert(
        rows((1, "a", "y", 2), (1, "a", "z", 3), (2, "a", "y", 1), (2, "a", "z", 2), (2, "b", "z", 2)),
        options={"hoodie.combine.before.insert": True},
    )
    assert done.duplicates == stored_twice(table, index)
    assert content(table) == [(1, "a", "x", 1), (1, "a", "z", 3), (2, "a", "z", 2), (2, "b", "z", 2)]


def test_rows_that_replace_stored_ones_are_no_duplicates(make: Make) -> None:
    table = make(index="simple")
    table.upsert(rows((1, "a", "x", 1), (2, "b", "x", 1)))
    assert table.insert_overwrite(rows((1, "a", "y", 1), (3, "a", "y", 1), (3, "a", "z", 1))).duplicates == 1
    assert table.delete_partitions("b").duplicates == 0
    assert content(table) == [(1, "a", "y", 1), (3, "a", "y", 1), (3, "a", "z", 1)]


def test_a_damaged_file_does_not_keep_an_insert_from_adding_rows(make: Make) -> None:
    table = make(index="simple")
    table.upsert(rows((1, "a", "x", 1)))
    (file_slice,) = table.files
    assert file_slice.base_file is not None
    open_storage(table.uri).write(file_slice.base_file.path, b"no parquet")
    done = table.insert(rows((1, "a", "y", 1)), options={"hoodie.parquet.small.file.limit": 0})
    assert (done.inserted, done.duplicates) == (1, None)


def test_generated_keys_are_never_stored_another_time(make: Make) -> None:
    table = make(key=None, ordering=None, index="simple")
    for _ in range(2):
        assert table.insert(rows((1, "a", "x", 1))).duplicates == 0
    assert table.count() == 2
