"""Debezium's envelopes as rows: Hudi's columns, deletes, and what is no change of a row."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.ingestion.debezium import Envelopes as How
from lakebed.ingestion.debezium import decode_debezium_json, table_defaults
from lakebed.ingestion.source import IngestPoll, IngestSource

POSTGRES = {"connector": "postgresql", "name": "pg", "schema": "public", "ts_ms": 1700, "txId": 5, "xmin": None}
MYSQL = {"connector": "mysql", "name": "my", "ts_ms": 1700, "file": "binlog.000007", "pos": 44, "row": 0}


def change(op: str | None, before: Any, after: Any, source: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 1800, **more}).encode()


CHANGES = [
    change("c", None, {"id": 1, "city": "rome"}, POSTGRES | {"lsn": 10}),
    change("r", None, {"id": 2, "city": "oslo"}, POSTGRES | {"lsn": 11}),
    change("u", {"id": 1, "city": "rome"}, {"id": 1, "city": "Rome"}, POSTGRES | {"lsn": 12}),
    change("d", {"id": 2, "city": "oslo"}, None, POSTGRES | {"lsn": 13}),
]
TYPES = {"id": pa.int64(), "city": pa.string()}


def rows(*messages: bytes, types: dict[str, pa.DataType] | None = None, hudi: bool = True) -> list[dict[str, Any]]:
    return decode_debezium_json(pa.array(list(messages), pa.binary()), How(types or {}, hudi)).rows.to_pylist()


@pytest.mark.parametrize("types", [{}, TYPES])
def test_a_change_of_postgres_is_a_row_with_the_columns_of_hudi(types: dict[str, pa.DataType]) -> None:
    found = rows(*CHANGES, types=types)
    assert [(row["_change_operation_type"], row["id"], row["city"], row["_event_lsn"]) for row in found] == [
        ("c", 1, "rome", 10),
        ("r", 2, "oslo", 11),
        ("u", 1, "Rome", 12),
        ("d", 2, "oslo", 13),
    ]
    assert found[0] == {
        "_change_operation_type": "c",
        "_upstream_event_processed_ts_ms": 1800,
        "db_shard_source_partition": "pg",
        "_event_origin_ts_ms": 1700,
        "db_schema_source_partition": "public",
        "_event_tx_id": 5,
        "_event_lsn": 10,
        "_event_xmin": None,
        "id": 1,
        "city": "rome",
    }


def test_a_change_of_mysql_has_its_position_in_the_log() -> None:
    (found,) = rows(change("c", None, {"id": 1}, MYSQL))
    assert {name: found[name] for name in found if name.startswith("_event")} == {
        "_event_origin_ts_ms": 1700,
        "_event_bin_file": "binlog.000007",
        "_event_pos": 44,
        "_event_row": 0,
        "_event_seq": "000007.44",
    }


def test_as_rows_alone_a_delete_is_marked_and_the_position_in_the_log_is_kept() -> None:
    assert rows(*CHANGES[2:], hudi=False) == [
        {"id": 1, "city": "Rome", "_hoodie_is_deleted": False, "_event_lsn": 12},
        {"id": 2, "city": "oslo", "_hoodie_is_deleted": True, "_event_lsn": 13},
    ]


def test_an_envelope_with_its_schema_is_the_same_row() -> None:
    wrapped = [json.dumps({"schema": {"type": "struct"}, "payload": json.loads(one)}).encode() for one in CHANGES]
    assert rows(*wrapped) == rows(*CHANGES)
    assert rows(*wrapped, types=TYPES) == rows(*CHANGES)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b'{"id": 1}', "no envelope"),
        (change("t", None, None, POSTGRES), "'t' is no change of a row"),
        (change("c", None, None, POSTGRES), "no state after it"),
        (change("d", None, {"id": 1}, POSTGRES), "no state before it"),
        (change(None, None, {"id": 1}, POSTGRES), "no operation"),
        (b"null", "no JSON object"),
    ],
)
@pytest.mark.parametrize("types", [{}, TYPES])
def test_messages_that_are_no_change_of_a_row_are_bad(
    message: bytes, reason: str, types: dict[str, pa.DataType]
) -> None:
    decoded = decode_debezium_json(pa.array([CHANGES[0], message, CHANGES[2]], pa.binary()), How(types))
    assert [row["city"] for row in decoded.rows.to_pylist()] == ["rome", "Rome"]
    assert decoded.numbers.tolist() == [0, 2]
    assert [bad.number for bad in decoded.bad] == [1]
    assert reason in decoded.bad[0].error


BOTH_STATES: list[tuple[Any, Any, Any, Any]] = [
    (5, "x", "5", "x"),
    ("2024-01-01T00:00:00", "x", "2024-01-01T00:00:00", "x"),
    ("x", "2024-01-01T00:00:00Z", "x", "2024-01-01T00:00:00Z"),
    ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00"),
    (True, "x", "true", "x"),
    (2**53, 0.5, float(2**53), 0.5),
    (1, 2**64, Decimal(1), Decimal(2**64)),
    # no type keeps both: the row of whole numbers stays
    (2**53 + 1, 0.5, 2**53 + 1, None),
    (0.5, 2**64 - 1, None, Decimal(2**64 - 1)),
]


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_the_states_before_and_after_have_a_type_that_keeps_the_values_of_both(is_wrapped: bool) -> None:
    for before, after, expected, expected_after in BOTH_STATES:
        for types in ({}, {"id": pa.int64()}):
            messages = [
                change("d", {"id": 1, "v": before}, None, POSTGRES | {"lsn": 1}),
                change("c", None, {"id": 2, "v": after}, POSTGRES | {"lsn": 2}),
            ]
            if is_wrapped:
                messages = [b'{"schema": null, "payload": %s}' % one for one in messages]
            decoded = decode_debezium_json(pa.array(messages, pa.binary()), How(types))
            found = [(row["id"], row["v"]) for row in decoded.rows.to_pylist()]
            wanted = [(1, expected), (2, expected_after)]
            assert found == [pair for pair in wanted if pair[1] is not None], (before, after)
            assert len(found) + len(decoded.bad) == 2, (before, after)


def test_a_partition_value_of_another_type_than_before_is_a_move() -> None:
    update = change("u", {"id": 1, "p": 1}, {"id": 1, "p": "x"}, POSTGRES | {"lsn": 1})
    found = decode_debezium_json(pa.array([update], pa.binary()), How(partition=("p",))).rows
    assert found.select(["_change_operation_type", "p"]).to_pylist() == [
        {"_change_operation_type": "d", "p": "1"},
        {"_change_operation_type": "u", "p": "x"},
    ]


def test_fields_of_a_source_that_no_row_needs_have_any_type_in_any_message() -> None:
    snapshots = [True, "last", False, None, {"a": 1}, [1]]
    for types in ({}, TYPES):
        messages = [change("c", None, {"id": 1}, POSTGRES | {"lsn": 1, "snapshot": one}) for one in snapshots]
        assert [row["id"] for row in rows(*messages, types=types)] == [1] * len(snapshots)
        transactions = [7, "8", None, "6.28.807", "0a001b0063010000"]
        messages = [change("c", None, {"id": 1}, POSTGRES | {"lsn": 1, "txId": one}) for one in transactions]
        assert [row["_event_tx_id"] for row in rows(*messages, types=types)] == [7, 8, None, None, None]


class Envelopes(IngestSource):
    def __init__(self, *polls: list[bytes]) -> None:
        self._polls = polls

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        at = int(checkpoint or 0)
        if at == len(self._polls):
            return IngestPoll(None, None, checkpoint)
        found = decode_debezium_json(pa.array(self._polls[at], pa.binary()), How(self.types))
        return IngestPoll(found.rows, None, str(at + 1), more=at + 1 < len(self._polls))

    def table_defaults(self, rows: pa.Table, version: int) -> dict[str, Any]:
        return table_defaults(rows, version)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_table_has_the_newest_state_and_lacks_deleted_rows(kind: str, version: int) -> None:
    uri = f"memory://debezium/{kind}{version}"
    late = change("u", None, {"id": 1, "city": "late"}, POSTGRES | {"lsn": 9})
    create = {"key": "id", "type": kind, "index": "bucket", "buckets": 1, "table_version": version}
    job = {"source": Envelopes(CHANGES[:2], [*CHANGES[2:], late]), "target": {"uri": uri, "create": create}}
    lakebed.ingest(job, once=True)
    found = lakebed.open(uri).to_arrow().select(["id", "city", "_event_lsn"]).to_pylist()
    assert found == [{"id": 1, "city": "Rome", "_event_lsn": 12}]


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_changes_of_mysql_are_ordered_by_the_position_in_its_log(kind: str, version: int) -> None:
    uri = f"memory://debezium/mysql-{kind}{version}"
    first = change("c", None, {"id": 1, "city": "a"}, MYSQL | {"pos": 900})
    second = change("u", None, {"id": 1, "city": "b"}, MYSQL | {"pos": 1200})
    gone = change("d", {"id": 1, "city": "b"}, None, MYSQL | {"file": "binlog.000008", "pos": 4})
    create = {"key": "id", "type": kind, "index": "bucket", "buckets": 1, "table_version": version}
    job = {"source": Envelopes([first, second]), "target": {"uri": uri, "create": create}}
    lakebed.ingest(job, once=True)
    assert lakebed.open(uri).to_arrow()["city"].to_pylist() == ["b"]
    lakebed.ingest(job | {"source": Envelopes([], [], [gone])}, once=True)
    assert lakebed.open(uri).count() == 0


def test_a_value_under_a_name_in_another_case_is_of_the_columns_type_or_its_message_is_bad() -> None:
    types = {"id": pa.int64(), "v": pa.int64()}
    states = [{"id": 1, "V": "x"}, {"id": 2, "v": 5}, {"id": 3, "V": "9"}, {"ID": 4, "V": 7}, {"id": 5, "V": {"a": 1}}]
    texts = [json.dumps({"op": "c", "after": state, "source": {"lsn": 1}}).encode() for state in states]
    decoded = decode_debezium_json(pa.array(texts, pa.binary()), How(types, hudi=False))
    assert [message.number for message in decoded.bad] == [0, 4]
    rows = [
        (row["id"] or row["ID"], row["v"] if row["v"] is not None else row["V"]) for row in decoded.rows.to_pylist()
    ]
    assert rows == [(2, 5), (3, 9), (4, 7)]
    kinds = {field.name: field.type for field in decoded.rows.schema if field.name.lower() in types}
    assert set(kinds.values()) == {pa.int64()}
