"""Avro container files: ours are read by fastavro, others' by us, broken ones are named."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.encoder import avro_header, encoder_of, read_avro_file, write_avro_file

INNER: dict[str, Any] = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": ["null", "long"]}]}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Outer",
    "namespace": "x.y",
    "fields": [
        {"name": "s", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "i", "type": ["int", "null"], "default": 1},
        {"name": "l", "type": "long"},
        {"name": "d", "type": ["null", "double"], "default": None},
        {"name": "f", "type": "float"},
        {"name": "b", "type": "boolean"},
        {"name": "y", "type": "bytes"},
        {"name": "a", "type": {"type": "array", "items": INNER}},
        {"name": "m", "type": ["null", {"type": "map", "values": {"type": "array", "items": "Inner"}}]},
    ],
}
RECORDS: list[dict[str, Any]] = [
    {"s": "", "i": None, "l": 0, "d": None, "f": 0.0, "b": False, "y": b"", "a": [], "m": None},
    {
        "s": "ärger 😀",
        "i": -1,
        "l": 2**63 - 1,
        "d": 1.5,
        "f": -2.25,
        "b": True,
        "y": b"\x00\xff",
        "a": [{"n": None}, {"n": -(2**63)}],
        "m": {"k": [{"n": 64}], "": []},
    },
]


@pytest.mark.parametrize("record", RECORDS)
def test_fastavro_reads_what_we_write(record: dict[str, Any]) -> None:
    data = write_avro_file(SCHEMA, record)
    reader: Any = fastavro.reader(io.BytesIO(data))
    assert list(reader) == [record]
    # Hudi's writer names no codec either.
    assert set(reader.metadata) == {"avro.schema"}
    assert avro_header(data).schema == json.dumps(SCHEMA, separators=(",", ":"))
    assert read_avro_file(data) == record
    assert write_avro_file(SCHEMA, record) == data


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_we_read_what_fastavro_writes(codec: str) -> None:
    out = io.BytesIO()
    fastavro.writer(out, SCHEMA, RECORDS[1:], codec=codec)
    assert read_avro_file(out.getvalue()) == RECORDS[1]


@pytest.mark.parametrize("data", [b"", b"{}", b"Obj\x01", b"Obj\x01\x02junk"])
def test_broken_files_are_named(data: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"x\.commit") as caught:
        read_avro_file(data, "x.commit")
    assert caught.value.context["path"] == "x.commit"


def test_cut_off_files_are_refused() -> None:
    data = write_avro_file(SCHEMA, RECORDS[1])
    for length in range(len(data)):
        with pytest.raises(CorruptFile):
            read_avro_file(data[:length])


def test_two_records_are_refused() -> None:
    out = io.BytesIO()
    fastavro.writer(out, SCHEMA, RECORDS, codec="null")
    with pytest.raises(CorruptFile, match="2 records"):
        read_avro_file(out.getvalue())


def test_other_unions_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="union"):
        encoder_of('["int","string"]')
