"""Updates and merges that move rows between partition paths: ordering values decide, and a row that comes back is
seen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
INDEXES = ("simple", "bloom", "bucket", "consistent", "bucket_groups", "global_simple", "global_bloom")
NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
Rows = list[tuple[Any, ...]]
Make = Callable[..., Table]


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Make:
    numbers = iter(range(1000))

    def made(schema: Any = SCHEMA, **words: Any) -> Table:
        uri = f"memory://moves/{request.node.name}/{next(numbers)}"
        if words.get("index") in ("bucket", "consistent", "bucket_groups"):
            words.setdefault("buckets", 2)
        words = {"key": "id", "partition_by": "p", "ordering": "ts", **words}
        return lakebed.create(uri, schema, **words)

    return made


def given(*rows: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def stored(table: Table) -> Rows:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def by_update(table: Table, path: str, ts: int, v: int) -> Any:
    return table.update({"p": f"'{path}'", "ts": str(ts), "v": str(v)}, where="id = 1")


def by_merge(table: Table, path: str, ts: int, v: int) -> Any:
    return table.merge(given((1, path, ts, v)), "id").when_matched_update().execute()


@pytest.mark.parametrize("move", [by_update, by_merge])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_move_with_a_lower_ordering_value_changes_nothing(make: Make, version: int, move: Any) -> None:
    for kind in ("cow", "mor"):
        for index in INDEXES if kind == "mor" else [i for i in INDEXES if i != "consistent"]:
            table = make(type=kind, index=index, table_version=version)
            table.upsert(given((1, "a", 10, 1), (2, "a", 10, 2)))
            said = f"{kind}, {index}"
            move(table, "b", 9, 5)
            assert stored(table) == [(1, "a", 10, 1), (2, "a", 10, 2)], said
            move(table, "b", 10, 6)  # an equal one wins
            assert stored(table) == [(1, "b", 10, 6), (2, "a", 10, 2)], said
            table.update({"p": "'a'"}, where="id = 1")
            assert stored(table) == [(1, "a", 10, 6), (2, "a", 10, 2)], said
            move(table, "a", 9, 7)
            assert stored(table) == [(1, "a", 10, 6), (2, "a", 10, 2)], said
            assert table.indexes.verify().ok, said


def test_a_lower_ordering_value_moves_a_row_by_commit_time(make: Make) -> None:
    for index in INDEXES:
        table = make(type="mor", index=index, merge="commit_time", ordering=None)
        table.upsert(given((1, "a", 10, 1)))
        by_update(table, "b", 5, 2)
        assert stored(table) == [(1, "b", 5, 2)], index


def test_moves_compare_ordering_fields_inside_structs_and_several_of_them(make: Make) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("at", pa.struct([("n", pa.int64())]))])
    table = make(schema, type="mor", index="bucket", ordering="at.n")
    table.upsert(given((1, "a", {"n": 10}), schema=schema))
    for n, expected in ((9, (1, "a", {"n": 10})), (10, (1, "b", {"n": 10}))):
        table.merge(given((1, "b", {"n": n}), schema=schema), "id").when_matched_update().execute()
        assert stored(table) == [expected]
    table = make(type="cow", index="bucket", ordering=["ts", "v"])
    table.upsert(given((1, "a", 10, 5)))
    by_update(table, "b", 10, 4)
    assert stored(table) == [(1, "a", 10, 5)]
    by_update(table, "b", 10, 5)
    assert stored(table) == [(1, "b", 10, 5)]


def test_a_row_that_an_update_marks_as_deleted_does_not_move(make: Make) -> None:
    schema = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])
    for kind, index in (("cow", "bucket"), ("mor", "bucket"), ("cow", "simple")):
        table = make(schema, type=kind, index=index)
        table.upsert(given((1, "a", 10, 1, False), (1, "c", 10, 2, False), schema=schema))
        values = {"p": "'b'", "_hoodie_is_deleted": "true"}
        table.update(values | {"ts": "9"}, where="p = 'a'")
        assert stored(table) == [(1, "a", 10, 1, False), (1, "c", 10, 2, False)]
        table.update(values, where="p = 'a'")
        assert stored(table) == [(1, "c", 10, 2, False)]


@pytest.mark.one_case
@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_row_that_comes_back_to_where_its_key_was_deleted_is_seen(make: Make, version: int) -> None:
    def moves(table: Table) -> None:
        table.upsert(given((1, "b", 5, 2)))
        assert table.update({"p": "'a'"}, where="id = 1").updated == 1

    def inserts(table: Table) -> None:
        table.merge(given((1, "a", 5, 2)), "id").when_not_matched_insert().execute()

    def inserts_by_key(table: Table) -> None:
        table.merge(given((1, "a", 5, 2)), ["id", "p"]).when_not_matched_insert().execute()

    def upserts(table: Table) -> None:
        merge = table.merge(given((1, "a", 5, 2)), ["id", "p"]).when_matched_update().when_not_matched_insert()
        assert merge.execute().path == "key"

    cases = [
        *product((moves, inserts, inserts_by_key, upserts), ("bucket", "consistent"), ("true", "false")),
        *product((moves,), ("simple", "bucket_groups", "global_simple"), ("true",)),
    ]
    for comes_back, index, lookup in cases:
        table = make(type="mor", index=index, table_version=version)
        table.upsert(given((1, "a", 10, 1), (2, "a", 10, 3)))
        table.delete([1], options={"lakebed.delete.lookup": lookup})
        comes_back(table)
        said = f"{comes_back.__name__}, {index}, delete.lookup={lookup}"
        assert stored(table) == [(1, "a", 5, 2), (2, "a", 10, 3)], said
        assert table.get([1])["v"].to_pylist() == [2], said
        table.update({"v": "v + 1"}, where="id = 1")
        assert stored(table) == [(1, "a", 5, 3), (2, "a", 10, 3)], said
        if comes_back is moves:
            assert table.indexes.verify().ok, said
            table.maintenance.compact()
            assert stored(table) == [(1, "a", 5, 3), (2, "a", 10, 3)], said


def test_a_late_row_of_an_upsert_stays_deleted(make: Make) -> None:
    for index in ("bucket", "consistent"):
        table = make(type="mor", index=index)
        table.upsert(given((1, "a", 10, 1)))
        table.delete([1])
        table.upsert(given((1, "a", 9, 2)))
        assert stored(table) == []
        table.upsert(given((1, "a", 10, 3)))
        assert stored(table) == [(1, "a", 10, 3)]


def test_a_deleted_key_comes_back_to_a_file_group_that_begins_with_log_files_and_was_compacted(make: Make) -> None:
    table = make(type="mor", index="consistent")
    table.upsert(given((1, "a", 10, 1)))
    table.maintenance.compact()
    table.delete([1])
    table.upsert(given((1, "b", 5, 2)))
    table.update({"p": "'a'"}, where="id = 1")
    assert stored(table) == [(1, "a", 5, 2)]
    assert table.indexes.verify().ok


def test_a_file_group_that_cannot_be_rewritten_now_takes_no_row_of_a_deleted_key(make: Make) -> None:
    table = make(type="mor", index="bucket")
    table.upsert(given((1, "a", 10, 1)))
    table.delete([1])
    table.upsert(given((1, "b", 5, 2), (3, "b", 5, 2)))
    words = "key '1' comes back to file group .* whose log files delete it with a greater ordering value"
    with pytest.raises(CommitConflict, match=words):
        table.update({"p": "'a'"}, where="id = 1", options=NON_BLOCKING)
    assert stored(table) == [(1, "b", 5, 2), (3, "b", 5, 2)]
    table.update({"p": "'a'"}, where="id = 3", options=NON_BLOCKING)  # no delete of it is stored
    table.maintenance.compact()
    table.update({"p": "'a'"}, where="id = 1", options=NON_BLOCKING)
    assert stored(table) == [(1, "a", 5, 2), (3, "a", 5, 2)]


def test_a_row_leaves_a_partition_path_with_another_number_of_buckets(make: Make) -> None:
    for kind in ("cow", "mor"):
        table = make(type=kind, index="bucket", buckets=3, partition_buckets="a,7;b,2")
        table.upsert(given(*((n, "a", 10, n) for n in range(20))))
        table.update({"p": "'b'", "ts": "case when id < 10 then 9 else 10 end"})
        expected = [(n, "a" if n < 10 else "b", 10, n) for n in range(20)]
        assert stored(table) == expected
        assert table.get(list(range(20))).num_rows == 20
        table.update({"p": "'c'"}, where="id in (1, 12)")
        assert stored(table) == [(n, "c" if n in (1, 12) else p, ts, v) for n, p, ts, v in expected]
