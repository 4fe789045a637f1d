"""What Debezium's values mean by the names of their schemas, in new columns and in those that a table has."""

from __future__ import annotations

import base64
import json
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.ingestion.connect_types import from_base64
from lakebed.ingestion.debezium import Envelopes, decode_debezium_avro, decode_debezium_json, table_defaults
from lakebed.ingestion.messages import NoRow
from support.given_topic import Topic, values

SOURCE = {"connector": "postgresql", "name": "pg", "ts_ms": 1, "lsn": 1}
TIME, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
MOMENT = datetime(2024, 5, 6, 7, 8, 9, 123456)
MICROS = 1714979289123456
UTC_TIMES, LOCAL_TIMES = pa.timestamp("us", "UTC"), pa.timestamp("us")
# name of the schema, value as written, a table's type (None: a new column), the value that is stored
MEANINGS: list[tuple[str, Any, pa.DataType | None, Any]] = [
    (f"{TIME}Date", 19849, None, date(2024, 5, 6)),
    (f"{CONNECT}Date", -1, pa.date32(), date(1969, 12, 31)),
    (f"{TIME}Date", 19849, pa.int32(), 19849),
    (f"{TIME}Timestamp", MICROS // 1000, None, MOMENT.replace(microsecond=123000)),
    (f"{CONNECT}Timestamp", -1, UTC_TIMES, datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
    (f"{TIME}MicroTimestamp", MICROS, None, MOMENT),
    (f"{TIME}MicroTimestamp", MICROS, LOCAL_TIMES, MOMENT),
    (f"{TIME}MicroTimestamp", MICROS, UTC_TIMES, MOMENT.replace(tzinfo=UTC)),
    (f"{TIME}MicroTimestamp", MICROS, pa.timestamp("ms"), MOMENT.replace(microsecond=123000)),
    (f"{TIME}MicroTimestamp", MICROS, pa.int64(), MICROS),
    (f"{TIME}MicroTimestamp", MICROS, pa.string(), str(MICROS)),
    (f"{TIME}NanoTimestamp", MICROS * 1000 + 999, None, MOMENT),
    (f"{TIME}NanoTimestamp", -1, LOCAL_TIMES, datetime(1969, 12, 31, 23, 59, 59, 999999)),
    (f"{TIME}Time", 1500, None, time(0, 0, 1, 500000)),
    (f"{TIME}MicroTime", 1500001, pa.time64("us"), time(0, 0, 1, 500001)),
    (f"{TIME}NanoTime", 1500001999, None, time(0, 0, 1, 500001)),
    (f"{TIME}ZonedTimestamp", "2024-05-06T09:08:09.123456+02:00", None, MOMENT.replace(tzinfo=UTC)),
    (f"{TIME}ZonedTimestamp", "2024-05-06T07:08:09Z", UTC_TIMES, datetime(2024, 5, 6, 7, 8, 9, 0, UTC)),
    (f"{TIME}ZonedTimestamp", "2024-05-06T07:08:09Z", pa.string(), "2024-05-06T07:08:09Z"),
]


def message(schema: dict[str, Any] | None, value: Any, **source: Any) -> bytes:
    envelope = {"before": None, "after": {"id": 1, "v": value}, "source": SOURCE | source, "op": "c", "ts_ms": 2}
    if schema is None:
        return json.dumps(envelope).encode()
    state = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, {"field": "v", **schema}]}
    fields = [{"field": "before", **state}, {"field": "after", **state}]
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": envelope}).encode()


def stored(
    schema: dict[str, Any] | None, *written: Any, kind: pa.DataType | None = None
) -> tuple[list[Any], list[str]]:
    """The values of the column, and the errors of bad messages."""
    messages = pa.array([message(schema, value) for value in written], pa.binary())
    found = decode_debezium_json(messages, Envelopes({} if kind is None else {"v": kind}))
    column = found.rows["v"].to_pylist() if "v" in found.rows.column_names else []
    return column, [bad.error for bad in found.bad]


def test_times_are_what_the_name_of_their_schema_says_where_the_column_can_hold_that() -> None:
    for name, written, kind, expected in MEANINGS:
        schema = {"type": "string" if isinstance(written, str) else "int64", "name": name}
        assert stored(schema, written, None, kind=kind) == ([expected, None], []), (name, written, kind)
        items = {"type": "array", "items": schema}
        listed = None if kind is None else pa.list_(kind)
        assert stored(items, [written, None], [], None, kind=listed) == ([[expected, None], [], None], []), (name, kind)
        inside = {"type": "struct", "fields": [{"field": "x", **schema}, {"field": "y", "type": "int64"}]}
        struct_type = None if kind is None else pa.struct([("x", kind), ("y", pa.int64())])
        assert stored(inside, {"x": written, "y": 3}, kind=struct_type) == ([{"x": expected, "y": 3}], []), (name, kind)


def decimal_schema(scale: int, digits: int | None = None) -> dict[str, Any]:
    parameters = {"scale": str(scale)} | ({} if digits is None else {"connect.decimal.precision": str(digits)})
    return {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": parameters}


def encoded(number: int) -> str:
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


DIGITS_ALONE = int.from_bytes(base64.b64decode("1234"), "big", signed=True)


def test_decimals_are_bytes_also_where_their_base64_is_digits_alone() -> None:
    numbers = [0, 1, -1, 127, 128, -128, -129, 10**9, -(10**9), DIGITS_ALONE]
    expected = [Decimal(number).scaleb(-2) for number in numbers]
    texts = [encoded(number) for number in numbers]
    assert texts[-1] == "1234"
    assert stored(decimal_schema(2, 12), *texts) == (expected, [])
    assert stored(decimal_schema(2), *texts, kind=pa.decimal128(20, 4)) == (expected, [])
    assert stored(decimal_schema(2, 12), *texts, kind=pa.string()) == (texts, [])
    largest = 10**38 - 1
    assert stored(decimal_schema(0, 38), encoded(largest), encoded(-largest)) == (
        [Decimal(largest), Decimal(-largest)],
        [],
    )


def test_a_value_that_is_no_decimal_of_its_column_is_bad_and_the_others_are_rows() -> None:
    for wrong in ("12.34", "1", "!!!!", encoded(10**38), encoded(2**200), encoded(10**12)):
        column, errors = stored(decimal_schema(2, 12), encoded(5), wrong, encoded(7))
        assert (column, len(errors)) == ([Decimal("0.05"), Decimal("0.07")], 1), wrong
    assert stored(decimal_schema(2, 12), 1.5, 2, None, kind=pa.decimal128(12, 2)) == (
        [Decimal("1.50"), Decimal("2.00"), None],
        [],
    )


def test_without_a_schema_digits_alone_are_refused_in_decimals_with_places_where_they_may_be_base64() -> None:
    for text, is_clear in (("12.34", True), ("123", True), ("1234", False), ("12345678", False), ("-1234", True)):
        column, errors = stored(None, text, kind=pa.decimal128(12, 2))
        assert (bool(column), bool(errors)) == (is_clear, not is_clear), text
    assert stored(None, "1234", kind=pa.decimal128(12, 0)) == ([Decimal(1234)], [])
    assert stored(None, "1234", kind=pa.string()) == (["1234"], [])


def test_base64_of_any_length_and_what_is_none() -> None:
    written = [bytes(range(n)) for n in range(9)]
    texts = pa.array([None, *(base64.b64encode(one).decode() for one in written)])
    assert from_base64(texts).to_pylist() == [None, *written]
    assert from_base64(texts.slice(3, 4)).to_pylist() == written[2:6]
    for wrong in ("AQ=", "A=I=", "=AAA", "A===", "====", "QQ==QQ==", "AQ-_"):
        with pytest.raises(NoRow, match="no base64"):
            from_base64(pa.array(["AQI=", wrong]))


def test_avro_says_the_meaning_by_connect_name() -> None:
    column = {"type": "long", "connect.version": 1, "connect.name": f"{TIME}MicroTimestamp"}
    fields = [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", column]},
        {"name": "all", "type": {"type": "array", "items": column}},
    ]
    state = {"type": "record", "name": "Value", "namespace": "a.b", "fields": fields}
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", state]},
            {"name": "after", "type": ["null", "a.b.Value"]},
            {"name": "op", "type": "string"},
        ],
    }

    def number(n: int) -> bytes:
        encoded_number, rest = b"", (n << 1) ^ (n >> 63)
        while rest > 127:
            encoded_number, rest = encoded_number + bytes([rest & 127 | 128]), rest >> 7
        return encoded_number + bytes([rest])

    body = b"\x00" + b"\x02" + number(1) + b"\x02" + number(MICROS) + number(1) + number(MICROS) + b"\x00" + b"\x02c"
    messages = pa.array([struct.pack(">bI", 0, 3) + body], pa.binary())
    for types, expected in (({}, MOMENT), ({"at": pa.int64(), "all": pa.list_(pa.int64())}, MICROS)):
        found = decode_debezium_avro(messages, {3: json.dumps(envelope)}.__getitem__, Envelopes(types, hudi=False))
        assert found.bad == []
        assert found.rows.select(["id", "at", "all"]).to_pylist() == [{"id": 1, "at": expected, "all": [expected]}]


POSITIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"commit_lsn": "0000002A:00000758:0005", "change_lsn": "0000002A:00000758:0003", "event_serial_no": 2},
        {"_event_position": "0000002a:00000758:0005.0000002a:00000758:0003.00000000000000000002"},
    ),
    (
        {"commit_lsn": "0000002a:00000758:0005", "change_lsn": None},
        {"_event_position": "0000002a:00000758:0005.00000000:00000000:0000.00000000000000000000"},
    ),
    (
        {"scn": "1513734", "commit_scn": "1513740"},
        {"_event_position": "00000000000001513740.00000000000001513734"},
    ),
    (
        {"scn": "8", "commit_scn": "9", "txId": "6.28.807"},
        {"_event_position": "00000000000000000009.00000000000000000008"},
    ),
    ({"scn": "7", "commit_scn": None}, {"_event_position": "00000000000000000007.00000000000000000007"}),
]


@pytest.mark.parametrize("hudi", [True, False])
def test_changes_of_sql_server_and_oracle_have_a_position_that_sorts(hudi: bool) -> None:
    for source, expected in POSITIONS:
        one = message(None, 5, **{"lsn": None, "connector": "other", **source})
        found = decode_debezium_json(pa.array([one], pa.binary()), Envelopes(hudi=hudi)).rows
        (row,) = found.to_pylist()
        assert {name: row[name] for name in row if name in ("_event_position", "_event_lsn", "_event_seq")} == expected
        assert table_defaults(found, 9)["ordering"] == "_event_position"


def test_changes_without_a_position_need_an_ordering_that_the_job_names() -> None:
    uri = "memory://debezium/vitess"
    source = Topic(values(message(None, 5, lsn=None, connector="vitess")), format="debezium-json")
    job: dict[str, Any] = {"source": source, "target": {"uri": uri, "create": {"key": "id"}}}
    with pytest.raises(InvalidOption, match="the changes name no position in a log"):
        lakebed.ingest(job, once=True)
    assert not lakebed.list_tables(uri, depth=0)
    job["target"]["create"]["ordering"] = "_event_origin_ts_ms"
    assert lakebed.ingest(job, once=True).rows == 1
    lakebed.drop(uri)


def moved(before: Any, after: Any, operation: str, lsn: int) -> bytes:
    envelope = {"before": before, "after": after, "source": SOURCE | {"lsn": lsn}, "op": operation, "ts_ms": 2}
    return json.dumps(envelope).encode()


def row(number: int, city: str | None, v: int | None = 0) -> dict[str, Any]:
    return {"id": number, "city": city, "v": v}


STAYS = [moved(None, row(1, "rome"), "c", 1), moved(None, row(2, "oslo"), "c", 2), moved(None, row(3, "bern"), "c", 3)]
# what the default identity of PostgreSQL logs: the key alone
KEY_ALONE = [moved(row(1, None, None), None, "d", 4), moved(None, row(2, "bern", 7), "u", 5)]
WHOLE = [moved(row(1, "rome"), None, "d", 4), moved(row(2, "oslo"), row(2, "bern", 7), "u", 5)]


def partitioned(changes: list[bytes], uri: str, **create: Any) -> tuple[list[tuple[Any, ...]], list[str]]:
    job = {
        "source": Topic(values(*STAYS), values(*changes), format="debezium-json"),
        "target": {"uri": uri, "create": {"key": "id", "partition_by": "city", **create}},
        "errors": {"table": f"{uri}-errors"},
    }
    lakebed.ingest(job, once=True)
    rows = lakebed.open(uri).scan(["id", "city", "v"]).to_arrow().sort_by("id")
    bad = (
        []
        if not lakebed.list_tables(f"{uri}-errors", depth=0)
        else lakebed.open(f"{uri}-errors").to_arrow()["error"].to_pylist()
    )
    for name in (uri, f"{uri}-errors"):
        lakebed.drop(name, missing_ok=True)
    return [tuple(one.values()) for one in rows.to_pylist()], bad


def test_rows_leave_their_partition_path_by_an_index_that_finds_keys_everywhere() -> None:
    expected = [(2, "bern", 7), (3, "bern", 0)]
    for version in (9, 8, 6):
        for create in ({}, {"index": "global_simple"}, {"properties": {"hoodie.metadata.enable": "false"}}):
            for changes in (KEY_ALONE, WHOLE):
                uri = "memory://debezium/moves"
                assert partitioned(changes, uri, table_version=version, **create) == (expected, []), (version, create)


def test_under_an_index_by_path_a_change_says_the_path_before_it_or_is_bad() -> None:
    for kind in ("cow", "mor"):
        uri = "memory://debezium/by-path"
        assert partitioned(WHOLE, uri, index="simple", type=kind) == ([(2, "bern", 7), (3, "bern", 0)], [])
        rows, bad = partitioned(KEY_ALONE, uri, index="simple", type=kind)
        assert rows == [(1, "rome", 0), (2, "oslo", 0), (3, "bern", 0)]
        assert [("'d'" in error, "'u'" in error, "global index" in error) for error in sorted(bad)] == [
            (True, False, True),
            (False, True, True),
        ]


def test_a_row_that_moves_by_path_has_the_values_before_it_or_is_bad() -> None:
    left_out = "__debezium_unavailable_value"
    for before, expected, count in ((7, [(1, "oslo", "7")], 0), (None, [(1, "rome", "0")], 1)):
        old = {"id": 1, "city": "rome", "v": None if before is None else str(before)}
        first = moved(None, {"id": 1, "city": "rome", "v": "0"}, "c", 1)
        update = moved(old, {"id": 1, "city": "oslo", "v": left_out}, "u", 9)
        uri = "memory://debezium/moved"
        source = Topic(values(first), values(update), format="debezium-json")
        create = {"key": "id", "partition_by": "city", "index": "simple"}
        job = {"source": source, "target": {"uri": uri, "create": create}, "errors": {"table": f"{uri}-errors"}}
        assert lakebed.ingest(job, once=True).bad_rows == count
        found = lakebed.open(uri).scan(["id", "city", "v"]).to_arrow().to_pylist()
        assert [tuple(one.values()) for one in found] == expected, before
        for name in (uri, f"{uri}-errors"):
            lakebed.drop(name, missing_ok=True)
