"""What log records make of a base file is cached: the rows of a slice that is read again, whatever was read before."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.slices import log_rows
from lakebed.slices.base_rows import BaseFileRows
from lakebed.slices.log_rows import REPLACEMENTS
from lakebed.table import Table

ROWS = 300
COLUMNS = [["id", "v"], ["v"], ["_hoodie_commit_time", "text"], ["n", "text"], ["id"]]


def rows_of(numbers: range, version: int) -> pa.Table:
    count = len(numbers)
    texts = [None if n % 7 == version else f"{version} {n}" for n in numbers]
    columns = {
        "id": [f"key {n}" for n in numbers],
        "n": list(numbers),
        "v": [version] * count,
        "text": texts,
        "ts": [5 if n % 11 else version for n in numbers],
    }
    return pa.table(columns)


def table_with_logs(uri: str, **options: Any) -> Table:
    """Rows that are updated, lose, are deleted and inserted."""
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "index": "bucket", "buckets": 2, "type": "mor"}
    words["properties"] = {"hoodie.compact.inline": False}
    table = lakebed.create(uri, rows_of(range(1), 1).schema, **words | options)
    table.bulk_insert(rows_of(range(ROWS), 3))
    table.upsert(rows_of(range(0, ROWS, 3), 4))
    table.upsert(rows_of(range(1, ROWS, 10), 1))
    table.delete([f"key {n}" for n in range(2, ROWS, 20)])
    table.upsert(rows_of(range(ROWS, ROWS + 40), 6))
    assert all(file_slice.base_file and file_slice.log_files for file_slice in table.scan().plan.slices)
    return table


def sorted_rows(table: Table, columns: list[str] | None, **view: Any) -> list[Any]:
    rows = table.scan(columns=columns, **view).to_arrow().to_pylist()
    return sorted(rows, key=repr)


def first_read(table: Table, columns: list[str] | None, **view: Any) -> list[Any]:
    REPLACEMENTS.clear()
    return sorted_rows(table, columns, **view)


@pytest.mark.parametrize("merge", ["event_time", "commit_time"])
def test_a_slice_gives_the_same_rows_whatever_was_read_of_it_before(merge: str) -> None:
    table = table_with_logs(f"memory://replacements/{merge}", merge=merge)
    expected = [first_read(table, columns) for columns in COLUMNS]
    count = len(expected[0])
    for order in list(permutations(range(len(COLUMNS))))[::7]:
        REPLACEMENTS.clear()
        for number in (*order, *order):
            assert sorted_rows(table, COLUMNS[number]) == expected[number]
            assert table.scan().count() == count


def test_the_base_file_is_read_without_its_keys_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_with_logs("memory://replacements/columns")
    REPLACEMENTS.clear()
    names: list[set[str]] = []
    original = BaseFileRows.read

    def counted(self: BaseFileRows, columns: Any) -> Any:
        names.append(set(columns))
        return original(self, columns)

    monkeypatch.setattr(BaseFileRows, "read", counted)
    first = sorted_rows(table, ["v"])
    assert names == [{"v", "_hoodie_record_key", "ts"}] * 2
    names.clear()
    assert sorted_rows(table, ["v"]) == first
    assert names == [{"v"}] * 2
    names.clear()
    assert table.scan().count() == len(first)
    assert names == []


def test_a_newer_log_record_and_a_view_of_the_past_have_rows_of_their_own() -> None:
    table = table_with_logs("memory://replacements/versions")
    before, instant = first_read(table, None), table.timeline[-1].time
    assert sorted_rows(table, None) == before
    table.upsert(rows_of(range(5, 9), 9))
    table.delete(["key 9"])
    after = sorted_rows(table, None)
    assert after == first_read(table, None)
    assert after != before
    assert sorted_rows(table, None, as_of=instant) == before
    table.maintenance.compact()
    assert sorted_rows(table, None) == after


def test_records_beyond_the_bound_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_with_logs("memory://replacements/bound")
    plan = table.scan().plan
    reader = table.scan().reader
    sizes = [reader.logs(file_slice).data_bytes for file_slice in plan.slices]
    expected = first_read(table, None)
    for bound, is_cached in ((2 * max(sizes), True), (2 * min(sizes) - 1, False)):
        REPLACEMENTS.clear()
        monkeypatch.setattr(log_rows, "_CACHED_BYTES", bound)
        assert sorted_rows(table, None) == expected
        assert (REPLACEMENTS.nbytes > 0) == is_cached
        assert sorted_rows(table, None) == expected
