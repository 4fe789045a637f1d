"""Avro messages with the frame of a registry and Avro files as rows, and the registry itself, which may be down."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile, InvalidOption, SourceError
from lakebed.ingestion.avro_messages import avro_file_rows, decode_avro
from lakebed.ingestion.schema_registry import SchemaRegistry
from support.registry_server import Registry, registry_server

FIRST = {"type": "record", "name": "T", "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}]}
SECOND = {
    "type": "record",
    "name": "T",
    "fields": [*FIRST["fields"], {"name": "fare", "type": ["null", "double"], "default": None}],  # type: ignore[misc]
}


def message(identifier: int, schema: Any, row: dict[str, Any]) -> bytes:
    out = io.BytesIO(struct.pack(">bI", 0, identifier))
    out.seek(5)
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


SCHEMAS = {7: json.dumps(FIRST), 9: json.dumps(SECOND)}


def test_messages_of_several_schemas_are_rows_in_their_order() -> None:
    messages = [
        message(7, FIRST, {"id": 1, "city": "rome"}),
        message(9, SECOND, {"id": 2, "city": "oslo", "fare": 1.5}),
        message(7, FIRST, {"id": 3, "city": ""}),
    ]
    decoded = decode_avro(pa.array(messages, pa.binary()), SCHEMAS.__getitem__)
    assert decoded.rows.to_pylist() == [
        {"id": 1, "city": "rome", "fare": None},
        {"id": 2, "city": "oslo", "fare": 1.5},
        {"id": 3, "city": "", "fare": None},
    ]
    assert (decoded.numbers.tolist(), decoded.bad) == ([0, 1, 2], [])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "frame of a schema registry"),
        (b"\x00\x00\x00", "frame of a schema registry"),
        (b'{"id": 1}', "frame of a schema registry"),
        (struct.pack(">bI", 0, 8) + b"\x02", "no schema with the id 8"),
        (struct.pack(">bI", 0, 7), "no record of the schema"),
        (struct.pack(">bI", 0, 7) + b"\x02\x09abc", "no record of the schema"),
        (message(7, FIRST, {"id": 1, "city": "x"}) + b"!", "no record of the schema"),
        (struct.pack(">bI", 0, 7) + b"\x02\x04\xff\xfe", "no record of the schema"),
    ],
)
def test_a_message_that_is_no_record_is_bad_and_its_neighbours_are_rows(bad: bytes, reason: str) -> None:
    good = message(7, FIRST, {"id": 1, "city": "rome"})
    decoded = decode_avro(pa.array([good, bad, good], pa.binary()), SCHEMAS.__getitem__)
    assert (decoded.rows["id"].to_pylist(), decoded.numbers.tolist()) == ([1, 1], [0, 2])
    assert [(one.number, one.reason) for one in decoded.bad] == [(1, "AVRO_DESERIALIZATION_FAILURE")]
    assert reason in decoded.bad[0].error


def test_messages_of_a_schema_that_is_no_record_are_bad_and_the_others_are_rows() -> None:
    record = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})
    messages = [struct.pack(">bI", 0, identifier) + b"\x02" for identifier in (7, 8, 7)]
    found = decode_avro(pa.array(messages, pa.binary()), {7: '"long"', 8: record}.__getitem__)
    assert (found.rows.to_pylist(), found.numbers.tolist()) == ([{"id": 1}], [1])
    assert [(bad.number, "the id 7" in bad.error) for bad in found.bad] == [(0, True), (2, True)]


def test_messages_whose_types_do_not_go_together_with_those_before_are_bad() -> None:
    kinds = {7: "long", 8: {"type": "array", "items": "long"}, 9: "int"}
    schemas = {
        number: json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": kind}]})
        for number, kind in kinds.items()
    }
    messages = [struct.pack(">bI", 0, 8) + b"\x00", *(struct.pack(">bI", 0, n) + b"\x02" for n in (7, 9))]
    found = decode_avro(pa.array(messages, pa.binary()), schemas.__getitem__)
    assert (found.rows.to_pylist(), found.numbers.tolist()) == ([{"id": 1}, {"id": 1}], [1, 2])
    assert [(bad.number, "does not go together" in bad.error) for bad in found.bad] == [(0, True)]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_an_avro_file_is_its_rows(codec: str, count: int) -> None:
    out = io.BytesIO()
    rows = [{"id": n, "city": "c" * (n % 7), "fare": None if n % 3 else n / 2} for n in range(count)]
    fastavro.writer(out, fastavro.parse_schema(SECOND), rows, codec=codec, sync_interval=500)
    assert avro_file_rows(out.getvalue(), "f.avro").to_pylist() == rows


def test_an_avro_file_that_is_cut_or_changed_is_named() -> None:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(FIRST), [{"id": 1, "city": "rome"}])
    for data in (b"", out.getvalue()[:-3], out.getvalue()[:20], b"Obj\x02" + out.getvalue()[4:], out.getvalue() + b"x"):
        with pytest.raises(CorruptFile, match=r"f\.avro is no Avro file"):
            avro_file_rows(data, "f.avro")


@pytest.fixture
def server() -> Iterator[Registry]:
    with registry_server() as server:
        server.answers = {
            "/schemas/ids/7": {"schema": SCHEMAS[7]},
            "/schemas/ids/8": {"schema": "{}", "schemaType": "JSON"},
        }
        yield server


def test_a_schema_is_asked_for_once_and_a_missing_one_is_no_failure(server: Registry) -> None:
    registry = SchemaRegistry(server.address + "/")
    assert registry.schema(7) == registry.schema(7) == SCHEMAS[7]
    with pytest.raises(KeyError):
        registry.schema(99)
    assert [path for path, _ in server.asked] == ["/schemas/ids/7", "/schemas/ids/99"]
    with pytest.raises(SourceError, match="is JSON"):
        registry.schema(8)


def test_a_user_and_a_token_are_sent_and_shown_nowhere(server: Registry) -> None:
    with_user = SchemaRegistry(server.address.replace("//", "//me:s%40crt@"))
    with_user.schema(7)
    SchemaRegistry(server.address, {"token": "abc"}).schema(7)
    assert [sent for _, sent in server.asked] == ["Basic bWU6c0BjcnQ=", "Bearer abc"]
    server.status = 503
    with pytest.raises(SourceError) as error:
        with_user.schema(6)
    assert "crt" not in str(error.value)


@pytest.mark.parametrize(("status", "passes"), [(503, True), (429, True), (401, False)])
def test_a_registry_that_refuses_is_an_error_that_says_whether_it_may_pass(
    server: Registry, status: int, passes: bool
) -> None:
    server.status = status
    with pytest.raises(SourceError, match=f"answers {status}") as error:
        SchemaRegistry(server.address).schema(7)
    assert error.value.retryable is passes


def test_a_registry_that_is_down_is_an_error_that_may_pass() -> None:
    with pytest.raises(SourceError, match="does not answer") as error:
        SchemaRegistry("http://127.0.0.1:1").schema(7)
    assert error.value.retryable
    with pytest.raises(InvalidOption, match="ftp"):
        SchemaRegistry("ftp://x")
