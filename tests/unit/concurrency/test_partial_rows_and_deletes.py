"""Partial upserts and deletes of non-blocking writers that cross: nothing of a deleted row comes back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.table import Table
from property.crossing import Change, Model, Write, Writer, held_writers

NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("s", pa.string()), ("n", pa.int32())])


def table_of(rows: list[tuple[Any, ...]], names: list[str] = SCHEMA.names) -> pa.Table:
    schema = pa.schema([SCHEMA.field(name) for name in names])
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema)


def new_table(uri: str, merge: str = "event_time", version: int = 9) -> Table:
    table = lakebed.create(
        uri, SCHEMA, key="id", ordering="ts", type="mor", index="bucket", buckets=1, merge=merge, table_version=version
    )
    table.bulk_insert(table_of([(1, 1, "secret", 1), (2, 1, "b", 2)]))
    return table


def visible_rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in lakebed.open(table.uri).scan().to_arrow().to_pylist())


def partial(*rows: tuple[Any, ...]) -> Write:
    data = table_of(list(rows), ["id", "ts", "n"])
    return Write("partial", lambda t: t.upsert(data, partial=True, options=NON_BLOCKING), lambda _: Change())


def delete(*keys: int) -> Write:
    return Write("delete", lambda t: t.delete(list(keys), options=NON_BLOCKING), lambda _: Change())


def crossed(uri: str, begun: list[Write], committed: list[int]) -> list[BaseException | None]:
    """Begins writes in their order, commits them in another, and gives what they raised."""
    with held_writers():
        writers = [Writer(uri, write) for write in begun]
        for writer in writers:
            writer.step(Model(False))
            writer.step(Model(False))
        for number in committed:
            writers[number].step(Model(False))
    return [writer.error for writer in writers]


AFTER = [(1, 5, None, 7), (2, 5, "b", 8)]


@pytest.mark.parametrize("version", [9, 8])
@pytest.mark.parametrize("merge", ["event_time", "commit_time"])
@pytest.mark.parametrize("begun", [("partial", "delete"), ("delete", "partial")], ids="-".join)
def test_a_partial_upsert_that_completes_after_a_delete_is_run_again(
    begun: tuple[str, str], merge: str, version: int
) -> None:
    table = new_table(f"memory://crossing/late{begun[0]}{merge}{version}", merge, version)
    writes = {"partial": partial((1, 5, 7), (2, 5, 8)), "delete": delete(1)}
    found = crossed(table.uri, [writes[n] for n in begun], [begun.index("delete"), begun.index("partial")])
    errors = dict(zip(begun, found, strict=True))
    assert errors["delete"] is None
    assert isinstance(errors["partial"], CommitConflict)
    assert "lack columns" in str(errors["partial"])
    assert visible_rows(table) == [(2, 1, "b", 2)]
    writes["partial"].run(lakebed.open(table.uri))
    assert visible_rows(table) == AFTER
    table.maintenance.compact()
    assert visible_rows(table) == AFTER


def test_a_delete_that_readers_would_merge_before_a_stored_partial_row_is_run_again() -> None:
    table = new_table("memory://crossing/early")
    errors = crossed(table.uri, [delete(1), partial((1, 5, 7), (2, 5, 8))], [1, 0])
    assert errors[1] is None
    assert isinstance(errors[0], CommitConflict)
    assert visible_rows(table) == [(1, 5, "secret", 7), (2, 5, "b", 8)]
    delete(1).run(lakebed.open(table.uri))
    assert visible_rows(table) == AFTER[1:]


def test_a_delete_of_a_later_instant_commits_after_a_partial_upsert() -> None:
    table = new_table("memory://crossing/behind")
    assert crossed(table.uri, [partial((1, 5, 7), (2, 5, 8)), delete(1)], [0, 1]) == [None, None]
    assert visible_rows(table) == AFTER[1:]


def test_without_deletes_partial_upserts_of_one_file_group_all_commit() -> None:
    table = new_table("memory://crossing/beside")
    assert crossed(table.uri, [partial((1, 5, 7)), partial((1, 6, 8)), partial((2, 6, 9))], [2, 0, 1]) == [None] * 3
    assert visible_rows(table) == [(1, 6, "secret", 8), (2, 6, "b", 9)]


def test_a_deletion_in_another_file_group_is_no_conflict() -> None:
    table = lakebed.create(
        "memory://crossing/elsewhere", SCHEMA, key="id", ordering="ts", type="mor", index="bucket", buckets=8
    )
    table.bulk_insert(table_of([(n, 1, "a", n) for n in range(16)]))
    groups = dict(table.scan(columns=["id", "_hoodie_file_name"]).to_arrow().to_pydict().items())
    names = dict(zip(groups["id"], groups["_hoodie_file_name"], strict=True))
    other = next(key for key, name in names.items() if name != names[0])
    assert crossed(table.uri, [delete(other), partial((0, 5, 7))], [0, 1]) == [None, None]
    assert visible_rows(table) == [(0, 5, "a", 7), *((n, 1, "a", n) for n in range(1, 16) if n != other)]
