"""Debezium's envelopes in Avro, with the frame of a schema registry: the states, deletes, and what is no change."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import lakebed
from lakebed.ingestion.debezium import Envelopes as How
from lakebed.ingestion.debezium import decode_debezium_avro, table_defaults
from lakebed.ingestion.messages import Decoded
from lakebed.ingestion.source import IngestPoll, IngestSource

STATE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
    ],
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [
        {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "schema", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "txId", "type": ["null", "long"]},
        {"name": "lsn", "type": ["null", "long"]},
        {"name": "xmin", "type": ["null", "long"]},
    ],
}


def envelope(state: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", state]},
            {"name": "after", "type": ["null", state["name"]]},
            {"name": "source", "type": SOURCE},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }


NOTED = {**STATE, "fields": [*STATE["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
SCHEMAS = {3: envelope(STATE), 4: envelope(NOTED)}


def change(op: str, before: Any, after: Any, lsn: int, identifier: int = 3) -> bytes:
    source = {"connector": "postgresql", "name": "pg", "schema": "public", "ts_ms": 1700, "txId": 5, "xmin": None}
    out = io.BytesIO()
    body = {"before": before, "after": after, "source": source | {"lsn": lsn}, "op": op, "ts_ms": 1800}
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMAS[identifier]), body)
    return struct.pack(">bI", 0, identifier) + out.getvalue()


def row(number: int, city: str | None, **more: Any) -> dict[str, Any]:
    return {"id": number, "city": city, "price": price_of("1.50"), **more}


def price_of(text: str) -> Any:
    return pa.scalar(text).cast(pa.decimal128(8, 2)).as_py()


CHANGES = [
    change("c", None, row(1, "rome"), 10),
    change("r", None, row(2, None), 11),
    change("u", row(1, "rome"), row(1, "Rome", note="new"), 12, 4),
    change("d", row(2, None), None, 13),
]


def decoded(*messages: bytes, hudi: bool = True) -> Decoded:
    schema = {number: json.dumps(schema) for number, schema in SCHEMAS.items()}
    return decode_debezium_avro(pa.array(messages, pa.binary()), schema.__getitem__, How(hudi=hudi))


def test_a_change_in_avro_is_a_row_with_the_columns_of_hudi_and_the_types_of_its_schema() -> None:
    rows = decoded(*CHANGES).rows
    assert (rows.schema.field("id").type, rows.schema.field("price").type) == (pa.int64(), pa.decimal128(8, 2))
    names = ["_change_operation_type", "id", "city", "note", "_event_lsn"]
    assert [tuple(found.values()) for found in rows.select(names).to_pylist()] == [
        ("c", 1, "rome", None, 10),
        ("r", 2, None, None, 11),
        ("u", 1, "Rome", "new", 12),
        ("d", 2, None, None, 13),
    ]
    first = rows.slice(0, 1).to_pylist()[0]
    meta = {"_event_tx_id": 5, "_event_xmin": None, "db_schema_source_partition": "public", "_event_origin_ts_ms": 1700}
    assert {name: first[name] for name in meta} == meta


def test_as_rows_alone_a_delete_in_avro_has_the_state_before_it() -> None:
    assert decoded(*CHANGES[2:], hudi=False).rows.to_pylist() == [
        row(1, "Rome", note="new") | {"_hoodie_is_deleted": False, "_event_lsn": 12},
        row(2, None, note=None) | {"_hoodie_is_deleted": True, "_event_lsn": 13},
    ]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (change("d", None, row(1, "x"), 14), "no state before it"),
        (change("u", row(1, "x"), None, 14), "no state after it"),
        (change("t", None, None, 14), "'t' is no change of a row"),
        (CHANGES[0][:-3], "Avro|schema|message|bytes"),
        (b"\x00\x00\x00\x00\x09" + CHANGES[0][5:], "no schema with the id 9"),
        (b'{"op": "c"}', "frame of a schema registry"),
    ],
)
def test_avro_messages_that_are_no_change_are_bad_and_the_others_are_rows(message: bytes, reason: str) -> None:
    found = decoded(CHANGES[0], message, CHANGES[2])
    assert ([one["city"] for one in found.rows.to_pylist()], found.numbers.tolist()) == (["rome", "Rome"], [0, 2])
    assert [bad.number for bad in found.bad] == [1]
    assert any(part in found.bad[0].error for part in reason.split("|")), found.bad[0].error


def test_a_transaction_of_oracle_in_avro_is_a_text_and_the_change_a_row() -> None:
    names = {"connector": "string", "txId": ["null", "string"], "scn": ["null", "string"]}
    source = {"type": "record", "name": "S", "fields": [{"name": name, "type": kind} for name, kind in names.items()]}
    schema: Any = envelope(STATE)
    schema["fields"][2] = {"name": "source", "type": source}
    value = {
        "before": None,
        "after": row(1, "rome"),
        "source": {"connector": "oracle", "txId": "6.28.807", "scn": "7"},
        "op": "c",
        "ts_ms": 2,
    }
    out = io.BytesIO(struct.pack(">bI", 0, 9))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    found = decode_debezium_avro(pa.array([out.getvalue()]), {9: json.dumps(schema)}.__getitem__, How())
    assert found.bad == []
    assert found.rows.select(["id", "_event_position"]).to_pylist() == [
        {"id": 1, "_event_position": "00000000000000000007.00000000000000000007"}
    ]


class Envelopes(IngestSource):
    def __init__(self, *polls: list[bytes]) -> None:
        self._polls = polls

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        at = int(checkpoint or 0)
        if at == len(self._polls):
            return IngestPoll(None, None, checkpoint)
        return IngestPoll(decoded(*self._polls[at]).rows, None, str(at + 1), more=at + 1 < len(self._polls))

    def table_defaults(self, rows: pa.Table, version: int) -> dict[str, Any]:
        return table_defaults(rows, version)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_of_changes_in_avro_has_the_newest_state_and_lacks_deleted_rows(kind: str) -> None:
    uri = f"memory://debezium-avro/{kind}"
    create = {"key": "id", "type": kind, "index": "bucket", "buckets": 1}
    late = change("u", None, row(1, "late"), 9)
    job = {"source": Envelopes(CHANGES[:2], [*CHANGES[2:], late]), "target": {"uri": uri, "create": create}}
    lakebed.ingest(job, once=True)
    assert lakebed.open(uri).to_arrow().select(["id", "city", "note", "_event_lsn"]).to_pylist() == [
        {"id": 1, "city": "Rome", "note": "new", "_event_lsn": 12}
    ]
    lakebed.drop(uri)
