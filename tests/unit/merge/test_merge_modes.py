"""Tables of every merge mode and payload, written by random histories and held against a model of dicts."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.table import Table
from support.merge_model import PAYLOADS, UNAVAILABLE, Mode, Row, StoredTable
from support.sampling import HISTORIES, rounds, todays_of

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("Op", pa.string()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("list", pa.list_(pa.int64())),
        ("_event_bin_file", pa.int64()),
        ("_event_pos", pa.int64()),
        ("_event_seq", pa.string()),
        ("_event_lsn", pa.int64()),
        ("_change_operation_type", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)


def rows(chance: random.Random, *, keys: int = 12, count: int = 15) -> list[Row]:
    def one() -> Row:
        ts, file, position = chance.randrange(12), chance.randrange(8, 12), chance.randrange(3)
        return {
            "id": chance.randrange(keys),
            "city": chance.choice(["oslo", "rome"]),
            "ts": ts,
            "Op": chance.choice(["I", "U", "U", "D", "d"]),
            "s": chance.choice([None, "a", "b", UNAVAILABLE]),
            "n": chance.choice([1, 2, 3]),
            "list": chance.choice([None, [1], [2, 3]]),
            "_event_bin_file": file,
            "_event_pos": position,
            "_event_seq": f"{file}.{position}",
            "_event_lsn": ts,
            "_change_operation_type": chance.choice(["c", "u", "u", "d", "D"]),
            "_hoodie_is_deleted": chance.random() < 0.1,
        }

    return [one() for _ in range(count)]


def visible_rows(found: list[Row]) -> list[Row]:
    return sorted(found, key=lambda row: (row["id"], row["city"], row["ts"]))


def new_table(uri: str, payload: str, version: int, ordering: tuple[str, ...], **words: Any) -> Table:
    named: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": ordering, "index": "simple", **words}
    return lakebed.create(uri, SCHEMA, merge=payload, table_version=version, **named)


SORTED = [(*entry, sort) for entry, sort in todays_of(PAYLOADS, ["none", "key"], parts=2, variable=HISTORIES)]
MOVED = [
    (*entry, index)
    for entry, index in todays_of(
        [entry for entry in PAYLOADS if entry[1] != 6], ["global_simple", "record"], parts=2, variable=HISTORIES
    )
]


@pytest.mark.parametrize(
    ("payload", "version", "ordering", "mode", "sort"), SORTED, ids=[f"{p}-{v}-{s}" for p, v, _, _, s in SORTED]
)
def test_random_histories_give_the_rows_of_the_model(
    payload: str, version: int, ordering: tuple[str, ...], mode: Mode, sort: str
) -> None:
    chance = random.Random(f"{payload} {version}")
    table = new_table(f"memory://modes/{payload}{version}{sort}", payload, version, ordering, index="bucket", sort=sort)
    model = StoredTable(mode, partition="city")
    for turn in range(rounds(8, 6)):
        batch = rows(chance)
        result = table.upsert(pa.Table.from_pylist(batch, SCHEMA))
        model.upsert(batch)
        assert visible_rows(table.scan().to_arrow().to_pylist()) == visible_rows(list(model.rows.values())), turn
        assert result.inserted + result.updated + result.unchanged + result.deleted <= len(batch)
        if turn == 4:
            gone = chance.sample(range(12), 3)
            table.delete(gone)
            model.delete(gone)


@pytest.mark.parametrize(
    ("payload", "version", "ordering", "mode", "index"), MOVED, ids=[f"{p}-{v}-{i}" for p, v, _, _, i in MOVED]
)
def test_rows_that_move_take_along_what_the_merge_makes_of_them(
    payload: str, version: int, ordering: tuple[str, ...], mode: Mode, index: str
) -> None:
    chance = random.Random(f"{payload} {version}")
    moves = {"hoodie.record.index.update.partition.path": "true"} if index == "record" else {}
    table = new_table(
        f"memory://moves/{payload}{version}{index}", payload, version, ordering, index=index, properties=moves
    )
    model = StoredTable(mode, partition="city", moves=True)
    for turn in range(rounds(6, 4)):
        batch = rows(chance)
        table.upsert(pa.Table.from_pylist(batch, SCHEMA))
        model.upsert(batch)
        assert visible_rows(table.scan().to_arrow().to_pylist()) == visible_rows(list(model.rows.values())), turn


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(
    ("given", "values"),
    [
        (pa.int8(), [7, -7]),
        (pa.uint32(), [7, 2**32 - 1]),
        (pa.large_string(), ["seven", "eight"]),
        (pa.dictionary(pa.int8(), pa.string()), ["seven", "eight"]),
        (pa.binary(2), [b"ab", b"cd"]),
        (pa.list_(pa.int8(), 2), [[1, 2], [3, 4]]),
        (pa.timestamp("ns", "Asia/Kolkata"), [datetime(2024, 5, 6, tzinfo=UTC), datetime(1960, 5, 6, tzinfo=UTC)]),
        (pa.null(), [None, None]),
        (pa.struct([("a", pa.int16()), ("b", pa.large_list(pa.large_string()))]), [{"a": 1, "b": ["x"]}, None]),
    ],
    ids=["int8", "uint32", "large string", "dictionary", "fixed binary", "fixed list", "nanoseconds", "null", "struct"],
)
def test_rows_that_move_may_come_in_types_that_are_stored_as_another(
    kind: str, given: pa.DataType, values: Any
) -> None:
    def batch(at: int, city: str, x: Any, n: int | None) -> pa.Table:
        rows = [[1], [at], [city], pa.array([x], given), pa.array([n], pa.int32())]
        return pa.table([pa.array(column) for column in rows], names=["id", "at", "city", "x", "n"])

    stored = pa.string() if pa.types.is_null(given) else given
    columns = [("id", pa.int64()), ("at", pa.int64()), ("city", pa.string()), ("x", stored), ("n", pa.int32())]
    words: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "at", "type": kind}
    uri = f"memory://moves/types{kind}{given}"
    table = lakebed.create(uri, pa.schema(columns), index="global_simple", merge="PartialUpdateAvroPayload", **words)
    table.upsert(batch(1, "oslo", values[0], 5))
    table.upsert(batch(2, "rome", values[1], None))
    filled = values[0] if values[1] is None else values[1]
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "at": 2, "city": "rome", "x": filled, "n": 5}]
    assert table.locate([1])["partition_path"].to_pylist() == ["rome"]


def test_a_row_whose_partition_is_filled_stays_where_it_is() -> None:
    table = new_table("memory://moves/filled", "PartialUpdateAvroPayload", 9, ("ts",), index="global_simple")
    first = rows(random.Random(1), count=1)[0] | {"city": "oslo", "ts": 1, "_hoodie_is_deleted": False, "s": "first"}
    table.upsert(pa.Table.from_pylist([first], SCHEMA))
    table.upsert(pa.Table.from_pylist([first | {"city": None, "ts": 2, "s": None, "n": 9}], SCHEMA))
    assert table.scan().to_arrow().to_pylist() == [first | {"ts": 2, "n": 9}]
    assert [row["_hoodie_partition_path"] for row in table.scan(meta=True).to_arrow().to_pylist()] == ["oslo"]


def test_a_late_row_that_fills_a_gap_is_a_change_of_its_commit() -> None:
    table = new_table("memory://modes/late", "PartialUpdateAvroPayload", 9, ("ts",), index="bucket")
    first = rows(random.Random(1), count=1)[0] | {"ts": 5, "_hoodie_is_deleted": False, "s": None, "list": [1]}
    table.upsert(pa.Table.from_pylist([first], SCHEMA))
    late = table.upsert(pa.Table.from_pylist([first | {"ts": 2, "s": "late", "list": [9]}], SCHEMA))
    assert (late.updated, late.unchanged) == (1, 0)
    found = table.scan(meta=True).to_arrow().to_pylist()[0]
    assert (found["s"], found["list"], found["ts"], found["_hoodie_commit_time"]) == ("late", [1], 5, late.instant)
    again = table.upsert(pa.Table.from_pylist([first | {"ts": 2, "s": "later"}], SCHEMA))
    assert (again.updated, again.unchanged) == (0, 1)
    kept = table.scan(meta=True).to_arrow().to_pylist()[0]
    assert kept | {"_hoodie_file_name": ""} == found | {"_hoodie_file_name": ""}


@pytest.mark.parametrize(("kind", "version"), [("cow", 8), ("cow", 6), ("mor", 8), ("mor", 6)])
def test_below_version_9_a_late_row_is_a_change_of_its_commit_whatever_it_says(kind: str, version: int) -> None:
    words: dict[str, Any] = {"type": kind, "index": "simple"}
    table = new_table(f"memory://modes/late{kind}{version}", "PartialUpdateAvroPayload", version, ("ts",), **words)
    first = rows(random.Random(1), count=1)[0] | {"ts": 5, "_hoodie_is_deleted": False, "s": "first"}
    table.upsert(pa.Table.from_pylist([first], SCHEMA))
    late = table.upsert(pa.Table.from_pylist([first | {"ts": 2, "s": "late"}], SCHEMA))
    assert (late.updated, late.unchanged) == (1, 0)
    found = table.scan(meta=True).to_arrow().to_pylist()[0]
    assert (found["s"], found["ts"], found["_hoodie_commit_time"]) == ("first", 5, late.instant)
    assert found["_hoodie_commit_seqno"].startswith(late.instant)
