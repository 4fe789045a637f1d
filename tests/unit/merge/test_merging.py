"""Which row wins: ordering values, ties, duplicates in one batch, deletes in the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.merge.combine import combine
from lakebed.merge.rules import MergeRules
from lakebed.table import Table
from support.write_tables import SCHEMA, content, files, last_commit, rows

Make = Callable[..., Table]
BOTH = pytest.mark.parametrize("index", ["bucket", "simple"])
ONE = [(1, "c", "a", 10)]


@BOTH
@pytest.mark.parametrize(("ts", "wins"), [(11, True), (10, True), (9, False)], ids=["newer", "tie", "older"])
def test_event_time_keeps_the_greatest_ordering_value(make: Make, index: str, ts: int, wins: bool) -> None:
    table = make(index=index)
    table.upsert(rows(*ONE))
    result = table.upsert(rows((1, "c", "b", ts)))
    assert (result.updated, result.unchanged) == ((1, 0) if wins else (0, 1))
    assert content(table) == ([(1, "c", "b", ts)] if wins else ONE)


@BOTH
def test_commit_time_keeps_the_last_write(make: Make, index: str) -> None:
    table = make(index=index, merge="commit_time")
    table.upsert(rows(*ONE))
    table.upsert(rows((1, "c", "b", 1)))
    assert content(table) == [(1, "c", "b", 1)]
    table.upsert(rows((1, "c", "first", 9), (1, "c", "last", 2)))
    assert content(table) == [(1, "c", "last", 2)]


def test_without_an_ordering_field_the_last_write_wins(make: Make) -> None:
    table = make(ordering=None)
    table.upsert(rows(*ONE))
    table.upsert(rows((1, "c", "b", 1)))
    assert content(table) == [(1, "c", "b", 1)]


@BOTH
def test_several_ordering_fields_compare_one_after_another(make: Make, index: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("a", pa.int32()), ("b", pa.string())])
    table = make(schema, index=index, ordering=["a", "b"])

    def put(a: int, b: str) -> None:
        table.upsert(pa.table({"id": [1], "city": ["c"], "a": pa.array([a], pa.int32()), "b": [b]}))

    for given, stands in [
        ((1, "m"), (1, "m")),
        ((1, "l"), (1, "m")),
        ((0, "z"), (1, "m")),
        ((1, "n"), (1, "n")),
        ((2, "a"), (2, "a")),
    ]:
        put(*given)
        assert content(table) == [(1, "c", *stands)]


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan]),
        (pa.float32(), [-2.0, 0.5, math.nan]),
        (pa.bool_(), [False, True]),
        (pa.decimal128(20, 4), [Decimal("-1.5"), Decimal("0.0001"), Decimal("12345678901234.5")]),
        (pa.string(), ["", "B", "a", "é"]),
        (pa.date32(), [-700000, 0, 20000]),
        (pa.timestamp("us", "UTC"), [-(10**15), 0, 10**15]),
    ],
    ids=str,
)
def test_values_of_every_type_are_ordered_as_java_orders_them(kind: pa.DataType, ascending: list[Any]) -> None:
    values = pa.array(ascending, kind)
    for n in range(len(values)):
        wins = MergeRules(("a",)).newer_wins([values], [pa.array([ascending[n]] * len(values), kind)]).to_pylist()
        assert wins == [n >= m for m in range(len(values))]


def test_a_null_ordering_value_is_smaller_than_any() -> None:
    new, old = pa.array([None, None, 1]), pa.array([None, 1, None])
    assert MergeRules(("a",)).newer_wins([old], [new]).to_pylist() == [True, False, True]


@BOTH
def test_nan_is_the_greatest(make: Make, index: str) -> None:
    schema = SCHEMA.set(3, pa.field("ts", pa.float64()))
    table = make(schema, index=index)

    def one(v: str, ts: float) -> pa.Table:
        return pa.table({"id": [1], "city": ["c"], "v": [v], "ts": [ts]}, schema=schema)

    table.upsert(one("a", math.inf))
    table.upsert(one("nan", math.nan))
    table.upsert(one("b", math.inf))
    assert content(table)[0][2] == "nan"


@BOTH
def test_a_null_ordering_value_is_refused(make: Make, index: str) -> None:
    table = make(index=index)
    table.upsert(rows(*ONE))
    with pytest.raises(InvalidRecord, match=r"'ts' is null in 1 row\(s\), first at record key '3'"):
        table.upsert(rows((2, "c", "b", 5), (3, "c", "b", None)))
    assert content(table) == ONE
    free = lakebed.create(table.uri + "/free", SCHEMA, key="id", ordering="ts", merge="commit_time", index=index)
    free.upsert(rows((3, "c", "b", None)))
    assert content(free) == [(3, "c", "b", None)]


@BOTH
@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_duplicates_in_one_batch(make: Make, index: str, operation: str) -> None:
    table = make(index=index)
    given = [(1, "c", "old", 1), (1, "c", "new", 3), (1, "c", "mid", 2), (2, "c", "first", 5), (2, "c", "last", 5)]
    getattr(table, operation)(rows(*given))
    combined = [(1, "c", "new", 3), (2, "c", "last", 5)]
    assert content(table) == (combined if operation == "upsert" else sorted(given))
    again = lakebed.create(table.uri + "/2", SCHEMA, key="id", partition_by="city", ordering="ts", index=index)
    getattr(again, operation)(rows(*given), options={"hoodie.combine.before.insert": True})
    assert content(again) == combined


@BOTH
def test_rows_that_say_they_are_deleted(make: Make, index: str) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = make(schema, index=index)

    def given(*rows_: tuple[Any, ...]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows_], schema)

    table.upsert(
        given((1, "c", "a", 5, False), (2, "c", "a", 5, None), (3, "c", "a", 5, False), (9, "c", "a", 5, True))
    )
    result = table.upsert(given((1, "c", "b", 6, True), (2, "c", "b", 4, True), (7, "c", "b", 1, True)))
    assert result.deleted == 1
    assert [r[:4] for r in content(table)] == [(2, "c", "a", 5), (3, "c", "a", 5)]


@BOTH
def test_the_flag_may_come_with_the_data_alone(make: Make, index: str) -> None:
    table = make(index=index)
    table.upsert(rows(*ONE, (2, "c", "a", 10)))
    flagged = rows((1, "c", "b", 11), (2, "c", "b", 11)).append_column("_hoodie_is_deleted", pa.array([True, False]))
    assert table.upsert(flagged).deleted == 1
    assert table.get([2]).select(["v", "ts"]).to_pylist() == [{"v": "b", "ts": 11}]
    assert table.exists([1]).to_pylist() == [False]


@BOTH
def test_a_delete_field_and_marker(make: Make, index: str) -> None:
    table = make(
        index=index,
        properties={"hoodie.payload.delete.field": "v", "hoodie.payload.delete.marker": "D"},
    )
    table.upsert(rows(*ONE, (2, "c", "a", 10), (3, "c", "D", 10)))
    assert content(table) == [*ONE, (2, "c", "a", 10)]
    table.upsert(rows((1, "c", "D", 9), (2, "c", "D", 10)))
    assert content(table) == ONE


@BOTH
def test_a_delete_and_an_insert_of_one_key_in_one_batch(make: Make, index: str) -> None:
    table = make(index=index)
    flag = pa.array([True, False])
    table.upsert(rows((1, "c", "x", 5), (1, "c", "y", 6)).append_column("_hoodie_is_deleted", flag))
    assert [r[2] for r in content(table)] == ["y"]
    table.upsert(rows((1, "c", "x", 8), (1, "c", "y", 7)).append_column("_hoodie_is_deleted", flag))
    assert content(table) == []


@BOTH
def test_when_all_rows_lose_no_file_is_written(make: Make, index: str) -> None:
    table = make(index=index)
    table.upsert(rows(*[(n, "c", "a", 10) for n in range(50)]))
    before = {p for p in files(table.uri) if p.endswith(".parquet")}
    result = table.upsert(rows(*[(n, "c", "old", 1) for n in range(50)]))
    assert (result.files, result.unchanged) == ((), 50)
    assert {p for p in files(table.uri) if p.endswith(".parquet")} == before
    assert last_commit(table).stats == {}
    assert table.delete([1000]).files == ()


def test_combine_keeps_order_and_takes_several_keys() -> None:
    data = pa.table({"k": ["a", "b", "a", None, "c"], "p": [1, 1, 1, 1, 1], "o": [2, 1, 1, 1, 1], "n": range(5)})
    assert combine(data, ["k", "p"], MergeRules(("o",)))["n"].to_pylist() == [0, 1, 3, 4]
    assert combine(data, ["k", "p"], MergeRules())["n"].to_pylist() == [1, 2, 3, 4]


def test_meta_columns_name_the_commit_and_file_of_a_row(make: Make) -> None:
    table = make()
    first = table.upsert(rows(*[(n, "c", "a", 1) for n in range(4)]))
    second = table.upsert(rows((1, "c", "b", 2), (9, "c", "b", 2)))
    found = {r["id"]: r for r in table.scan(meta=True).to_arrow().to_pylist()}
    assert {n: r["_hoodie_commit_time"] for n, r in found.items()} == {
        n: (second if n in (1, 9) else first).instant for n in (0, 1, 2, 3, 9)
    }
    assert {r["_hoodie_file_name"] for r in found.values()} == {second.files[0].rpartition("/")[2]}
    numbers = [r["_hoodie_commit_seqno"] for r in found.values()]
    assert len(set(numbers)) == 5
    assert all(r["_hoodie_commit_seqno"].startswith(r["_hoodie_commit_time"] + "_") for r in found.values())
    assert {(r["_hoodie_record_key"], r["_hoodie_partition_path"]) for r in found.values()} == {
        (str(n), "c") for n in found
    }


def test_event_time_without_an_ordering_field_is_refused(uri: str) -> None:
    with pytest.raises(InvalidOption, match="ordering"):
        lakebed.create(uri, SCHEMA, key="id", merge="event_time")
    assert files(uri) == {}


ANY_INDEX = pytest.mark.parametrize("index", ["bucket", "simple", "global_simple", "record"])


@ANY_INDEX
def test_an_upsert_never_stores_a_key_twice(make: Make, index: str) -> None:
    table = make(index=index)
    table.upsert(rows((1, "c", "a", 1), (2, "c", "a", 1)))
    repeated = rows(*[(key, "c", f"at {ts}", ts) for key in (1, 5) for ts in (3, 5, 4)])
    result = table.upsert(repeated, options={"hoodie.combine.before.upsert": False})
    assert (result.updated, result.inserted) == (1, 1)
    assert content(table) == [(1, "c", "at 5", 5), (2, "c", "a", 1), (5, "c", "at 5", 5)]


@ANY_INDEX
def test_an_insert_that_may_not_store_a_key_twice(make: Make, index: str) -> None:
    table = make(index=index)
    table.upsert(rows((1, "c", "a", 1)))
    repeated = rows(*[(key, "c", f"at {ts}", ts) for key in (1, 5) for ts in (3, 5, 4)])
    table.insert(repeated, options={"hoodie.merge.allow.duplicate.on.inserts": False})
    assert content(table) == [(1, "c", "at 5", 5), (5, "c", "at 5", 5)]


@ANY_INDEX
@pytest.mark.parametrize("columns", [["id", "city"], ["id", "city", "ts"], ["id"]])
def test_rows_to_delete_that_come_twice(make: Make, index: str, columns: list[str]) -> None:
    table = make(index=index)
    table.upsert(rows((1, "c", "a", 7), (2, "d", "a", 7), (3, "c", "a", 7)))
    gone = rows((1, "c", "x", 9), (2, "d", "x", 1), (1, "c", "x", 2), (2, "d", "x", 9)).select(columns)
    assert table.delete(gone).deleted == 2
    assert content(table) == [(3, "c", "a", 7)]
