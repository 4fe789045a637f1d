"""Tagging by stored keys, every case of a partition move against a dict model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.engine.local import LocalEngine
from lakebed.errors import UnsupportedFeature
from lakebed.index.simple import GlobalSimpleIndex, SimpleIndex
from lakebed.merge.rules import MergeRules
from lakebed.model import DELETE, FILE_ID, INSTANT
from support.tagged_rows import tagged_rows

COMMIT_TIME = MergeRules()
EVENT_TIME = MergeRules(("ts",))
TWO_FIELDS = MergeRules(("ts", "seq"))
ENGINE = LocalEngine()
WRITTEN_AT = "20240102030405006"

NewTable = Callable[..., Any]

Stored = dict[str, tuple[str, int, int]]
"""Key to (partition path, ts, seq)."""


def _table(new_table: NewTable, stored: Stored, **config: Any) -> Any:
    table = new_table(**config)
    by_place: dict[tuple[str, int], list[tuple[str, int, int]]] = {}
    for number, (key, (partition, ts, seq)) in enumerate(sorted(stored.items())):
        by_place.setdefault((partition, number % 2), []).append((key, ts, seq))
    for (partition, _), rows in sorted(by_place.items()):
        table.add(partition, pa.table(dict(zip(("key", "ts", "seq"), map(list, zip(*rows, strict=True)), strict=True))))
    return table


def _incoming(rows: list[tuple[str, str, int, int, bool]]) -> pa.Table:
    keys, partitions, ts, seq, deleted = (list(c) for c in zip(*rows, strict=True))
    return pa.table(
        {
            "_hoodie_record_key": pa.array(keys, pa.string()),
            "_hoodie_partition_path": pa.array(partitions, pa.string()),
            "key": pa.array(keys, pa.string()),
            "ts": pa.array(ts, pa.int64()),
            "seq": pa.array(seq, pa.int64()),
            "_hoodie_is_deleted": pa.array(deleted, pa.bool_()),
        }
    )


def _tag(index: Any, table: Any, rows: pa.Table, rules: MergeRules = COMMIT_TIME) -> list[dict[str, Any]]:
    tagged = ENGINE.collect(tagged_rows(index, rows, table, ENGINE, rules))
    assert tagged.schema.field(FILE_ID).type == pa.string()
    assert tagged.schema.field(INSTANT).type == pa.string()
    for name in rows.column_names:
        assert tagged.schema.field(name).type == rows.schema.field(name).type
    return tagged.to_pylist()


def _place(table: Any, key: str) -> tuple[str, str]:
    """Partition path and file id of the base file that holds a key."""
    return _homes(table)[key]


def _homes(table: Any) -> dict[str, tuple[str, str]]:
    homes: dict[str, tuple[str, str]] = {}
    for file in table.files:
        with table.storage.open_input(file.path, file.size) as source:
            for key in pq.read_table(source).column("key").to_pylist():
                homes[key] = (file.partition, file.file_id)
    return homes


STORED: Stored = {"a": ("eu", 10, 0), "b": ("eu", 10, 0), "c": ("us", 10, 0), "d": ("us", 10, 5)}


def test_simple_finds_keys_of_the_rows_own_partition(new_table: NewTable) -> None:
    table = _table(new_table, STORED)
    rows = _incoming(
        [("a", "eu", 1, 0, False), ("c", "eu", 1, 0, False), ("d", "us", 1, 0, True), ("x", "asia", 1, 0, False)]
    )
    tagged = {r["key"]: (r["_hoodie_partition_path"], r[FILE_ID], r[INSTANT]) for r in _tag(SimpleIndex(), table, rows)}
    assert tagged == {
        "a": (*_place(table, "a"), WRITTEN_AT),
        "c": ("eu", None, None),
        "d": (*_place(table, "d"), WRITTEN_AT),
        "x": ("asia", None, None),
    }


@pytest.mark.parametrize("index", [SimpleIndex(), GlobalSimpleIndex(), GlobalSimpleIndex(False)])
def test_an_empty_table_knows_no_key(new_table: NewTable, index: Any) -> None:
    rows = _incoming([("a", "eu", 1, 0, False)])
    (row,) = _tag(index, new_table(), rows)
    assert (row[FILE_ID], row[INSTANT], row["_hoodie_partition_path"]) == (None, None, "eu")
    assert row.get(DELETE) is (False if getattr(index, "update_partition_path", False) else None)


def test_simple_reads_only_touched_partitions(new_table: NewTable) -> None:
    table = _table(new_table, STORED)
    home = _place(table, "b")
    for file in table.base_files(["us"]):
        table.storage.delete(file.path)
    (row,) = _tag(SimpleIndex(), table, _incoming([("b", "eu", 1, 0, False)]))
    assert (row["_hoodie_partition_path"], row[FILE_ID]) == home


def test_a_key_in_several_file_groups_comes_back_once_for_each(new_table: NewTable) -> None:
    table = new_table()
    files = [table.add("eu", pa.table({"key": ["a"], "ts": [1], "seq": [0]})) for _ in range(2)]
    for index in (SimpleIndex(), GlobalSimpleIndex()):
        tagged = _tag(index, table, _incoming([("a", "eu", 1, 0, False)]))
        assert sorted(r[FILE_ID] for r in tagged) == sorted(f.file_id for f in files)


@pytest.mark.parametrize("index", [SimpleIndex(), GlobalSimpleIndex()])
def test_a_table_without_stored_keys_is_refused(new_table: NewTable, index: Any) -> None:
    table = _table(new_table, STORED, meta_fields=False)
    with pytest.raises(UnsupportedFeature, match="stores no record keys"):
        _tag(index, table, _incoming([("a", "eu", 1, 0, False)]))


# name, rules, update option, incoming (key, partition, ts, seq, deleted), then (partition, tagged to a's file, _delete)
MOVES = [
    ("wins by commit time", COMMIT_TIME, True, ("a", "us", 1, 0, False), [("eu", True, True), ("us", False, False)]),
    ("wins by event time", EVENT_TIME, True, ("a", "us", 11, 0, False), [("eu", True, True), ("us", False, False)]),
    ("tie wins", EVENT_TIME, True, ("a", "us", 10, 0, False), [("eu", True, True), ("us", False, False)]),
    ("loses", EVENT_TIME, True, ("a", "us", 9, 0, False), [("eu", True, False)]),
    ("wins by second field", TWO_FIELDS, True, ("a", "us", 10, 1, False), [("eu", True, True), ("us", False, False)]),
    ("loses by second field", TWO_FIELDS, True, ("a", "us", 10, -1, False), [("eu", True, False)]),
    ("first field decides", TWO_FIELDS, True, ("a", "us", 9, 99, False), [("eu", True, False)]),
    ("same partition", EVENT_TIME, True, ("a", "eu", 11, 0, False), [("eu", True, False)]),
    ("delete elsewhere", COMMIT_TIME, True, ("a", "us", 1, 0, True), [("eu", True, False)]),
    ("late delete elsewhere", EVENT_TIME, True, ("a", "us", 9, 0, True), [("eu", True, False)]),
    ("option off", COMMIT_TIME, False, ("a", "us", 1, 0, False), [("eu", True, None)]),
    ("option off, loses", EVENT_TIME, False, ("a", "us", 9, 0, False), [("eu", True, None)]),
    ("unknown key", EVENT_TIME, True, ("x", "us", 1, 0, False), [("us", False, False)]),
    ("delete of an unknown key", EVENT_TIME, True, ("x", "us", 1, 0, True), [("us", False, False)]),
]


@pytest.mark.parametrize(("rules", "update", "row", "expected"), [m[1:] for m in MOVES], ids=[m[0] for m in MOVES])
def test_a_row_moves_to_its_new_partition_if_it_wins(
    new_table: NewTable,
    rules: MergeRules,
    update: bool,
    row: tuple[str, str, int, int, bool],
    expected: list[tuple[str, bool, bool | None]],
) -> None:
    table = _table(new_table, STORED)
    tagged = _tag(GlobalSimpleIndex(update), table, _incoming([row]), rules)
    home = _place(table, "a")[1]
    assert {r[FILE_ID] for r in tagged} <= {home, None}
    assert sorted((r["_hoodie_partition_path"], r[FILE_ID] == home, r.get(DELETE)) for r in tagged) == sorted(expected)
    assert all((r[INSTANT] == WRITTEN_AT) == (r[FILE_ID] is not None) for r in tagged)
    assert all((r["key"], r["ts"]) == (row[0], row[2]) for r in tagged)


def test_rows_do_not_move_in_a_table_without_partitions(new_table: NewTable) -> None:
    table = _table(new_table, {"a": ("", 10, 0)}, partition_fields=())
    (row,) = _tag(GlobalSimpleIndex(), table, _incoming([("a", "", 1, 0, False)]), EVENT_TIME)
    assert row[FILE_ID] == _place(table, "a")[1]
    assert DELETE not in row


def test_rows_already_marked_as_deletes_go_to_the_old_place(new_table: NewTable) -> None:
    table = _table(new_table, STORED)
    rows = _incoming([("a", "us", 1, 0, False), ("c", "us", 1, 0, False)])
    rows = rows.append_column(DELETE, pa.array([True, False]))
    tagged = _tag(GlobalSimpleIndex(), table, rows)
    assert sorted((r["key"], r["_hoodie_partition_path"], r[DELETE]) for r in tagged) == [
        ("a", "eu", True),
        ("c", "us", False),
    ]


@pytest.mark.parametrize("flags", [{}, {DELETE: [True, True, True]}], ids=["plain", "marked"])
def test_deletes_by_key_need_no_partition_and_no_ordering_value(new_table: NewTable, flags: dict[str, Any]) -> None:
    table = _table(new_table, STORED)
    rows = pa.table(
        {
            "_hoodie_record_key": ["a", "c", "x"],
            "_hoodie_partition_path": pa.nulls(3, pa.string()),
            **flags,
        }
    )
    tagged = _tag(GlobalSimpleIndex(), table, rows, EVENT_TIME)
    found = {r["_hoodie_record_key"]: (r["_hoodie_partition_path"], r[FILE_ID]) for r in tagged}
    assert found == {"a": _place(table, "a"), "c": _place(table, "c"), "x": (None, None)}


def test_for_existence_checks_a_key_of_another_partition_is_found(new_table: NewTable) -> None:
    table = _table(new_table, STORED)
    (row,) = _tag(GlobalSimpleIndex().for_existence_checks(), table, _incoming([("a", "us", 1, 0, False)]))
    assert (row["_hoodie_partition_path"], row[FILE_ID]) == _place(table, "a")


def test_a_delete_marker_keeps_a_row_from_moving(new_table: NewTable) -> None:
    table = _table(new_table, STORED)
    rows = _incoming([("a", "us", 1, 0, False), ("c", "eu", 1, 0, False)])
    rows = rows.append_column("op", pa.array(["D", "U"]))
    tagged = _tag(GlobalSimpleIndex(), table, rows, MergeRules((), "op", "D"))
    assert sorted((r["key"], r["_hoodie_partition_path"], r[DELETE]) for r in tagged) == [
        ("a", "eu", False),
        ("c", "eu", False),
        ("c", "us", True),
    ]


def test_ordering_values_of_older_schemas_are_compared_in_the_tables_type(new_table: NewTable) -> None:
    table = new_table()
    table.add("eu", pa.table({"key": ["a", "b"], "ts": pa.array([9, 11], pa.int32())}))
    table.add("eu", pa.table({"key": ["c", "d"], "ts": pa.array([9, 11], pa.int64())}))
    table.add("eu", pa.table({"key": ["e"]}))
    rows = _incoming([(k, "us", 10, 0, False) for k in "abcde"])
    tagged = _tag(GlobalSimpleIndex(), table, rows, EVENT_TIME)
    moved = {r["key"] for r in tagged if r[DELETE]}
    assert moved == {"a", "c", "e"}
    assert Counter(r["key"] for r in tagged) == {"a": 2, "b": 1, "c": 2, "d": 1, "e": 2}


@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("rules", [COMMIT_TIME, EVENT_TIME, TWO_FIELDS], ids=["commit", "event", "two fields"])
def test_random_batches_against_a_dict(new_table: NewTable, rules: MergeRules, update: bool) -> None:
    chance = random.Random(f"{rules.ordering}{update}")
    partitions = ["eu", "us", "asia"]
    stored: Stored = {
        f"k{i}": (chance.choice(partitions), chance.randrange(4), chance.randrange(3)) for i in range(300)
    }
    table = _table(new_table, stored)
    rows = [
        (f"k{i}", chance.choice(partitions), chance.randrange(4), chance.randrange(3), chance.random() < 0.2)
        for i in range(100, 400)
    ]
    expected = {key: _expected(stored.get(key), row, rules, update) for key, *row in rows}
    actual = {key: stored.get(key) for key, *_ in rows}
    homes = _homes(table)
    moved_in: Stored = {}
    for row in _tag(GlobalSimpleIndex(update), table, _incoming(rows), rules):
        key, partition = row["key"], row["_hoodie_partition_path"]
        values = (partition, row["ts"], row["seq"])
        if row[FILE_ID] is None:
            assert key not in moved_in
            if not row["_hoodie_is_deleted"]:
                moved_in[key] = values
            continue
        assert homes[key] == (partition, row[FILE_ID])
        old = stored[key]
        wins = not rules.ordering or values[1:][: len(rules.ordering)] >= old[1:][: len(rules.ordering)]
        if row.get(DELETE):
            assert wins
            actual[key] = None
        elif wins:
            actual[key] = None if row["_hoodie_is_deleted"] else values
    for key, values in moved_in.items():
        assert actual[key] is None
        actual[key] = values
    assert actual == expected


def _expected(
    old: tuple[str, int, int] | None, row: list[Any], rules: MergeRules, update: bool
) -> tuple[str, int, int] | None:
    partition, ts, seq, deleted = row
    fields = len(rules.ordering)
    if old is not None and fields and (ts, seq)[:fields] < old[1:][:fields]:
        return old
    if deleted:
        return None
    return (partition if old is None or update else old[0], ts, seq)
