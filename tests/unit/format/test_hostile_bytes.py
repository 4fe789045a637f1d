"""Bytes made to do harm: small files that would become large or deep things, and lengths that lie."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import CorruptFile
from lakebed.format.avro.encoder import decode_record, encode_bytes, encode_long, read_avro_file, write_avro_file
from lakebed.format.avro.types import bounded_schema
from lakebed.format.base_file import read_base_file, read_footer
from lakebed.format.bloom import BloomFilter
from lakebed.format.log_file import BlockType, HeaderKey, LogBlock, avro_records, block_bytes, read_blocks
from lakebed.format.text import parse_json
from lakebed.storage import open_storage
from support.outcomes import Outcomes

Schema = Any


def container(schema: Schema, body: bytes, codec: str = "null", count: int = 1) -> bytes:
    sync = bytes(range(16))
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    entries = {b"avro.schema": text, b"avro.codec": codec.encode()}
    pairs = b"".join(encode_bytes(name) + encode_bytes(value) for name, value in entries.items())
    head = b"Obj\x01" + encode_long(len(entries)) + pairs + encode_long(0) + sync
    return head + encode_long(count) + encode_bytes(body) + sync


def record(*fields: Schema, name: str = "r") -> Schema:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": t} for n, t in enumerate(fields)]}


@contextmanager
def little_memory(limit: int = 64 << 20) -> Generator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit


def chain(links: int) -> Schema:
    """Each record holds two of the one before; the first holds a null."""
    found = record("null", name="r0")
    for n in range(1, links):
        found = record(found, f"r{n - 1}", name=f"r{n}")
    return found


ITSELF = record(["null", "r"])
MANY = encode_long(1 << 40)
HARMFUL: dict[str, tuple[Schema, bytes]] = {
    "refers to itself": (ITSELF, b"\x02" * 500_000 + b"\0"),
    "items refer to their record": (record({"type": "array", "items": "r"}), b"\x02" * 500_000),
    "array of nulls": (record({"type": "array", "items": "null"}), MANY + b"\0"),
    "map to empty records": (record({"type": "map", "values": record(name="e")}), MANY + b"\0"),
    "array of nothing": (record({"type": "array", "items": {"type": "fixed", "name": "x", "size": 0}}), MANY + b"\0"),
    "array of records of nulls": (record({"type": "array", "items": record(*["null"] * 50, name="n")}), MANY + b"\0"),
    "a negative size": (record({"type": "fixed", "name": "x", "size": -5}), b"\0" * 9),
    "records that double": (chain(25), b""),
    "arrays within arrays": (record(json.loads('{"type":"array","items":' * 200 + '"long"' + "}" * 200)), b"\0"),
    "deep text": (b'{"type":' * 200_000, b"\0"),
    "no schema": (b"[1, {}]", b"\0"),
    "a count beyond the bytes": (record({"type": "array", "items": "long"}), MANY + b"\0"),
    "a block with a negative count": (record({"type": "array", "items": "long"}), encode_long(-(1 << 40)) + b"\0\0"),
    "a text of negative length": (record("string"), encode_long(-3) + b"abc"),
    "bytes left over": (record("long"), b"\0\0"),
}


@pytest.mark.parametrize("what", HARMFUL)
def test_harmful_avro_files_are_refused_at_once(what: str) -> None:
    schema, body = HARMFUL[what]
    with little_memory(), pytest.raises(CorruptFile, match=r"a\.commit") as caught:
        read_avro_file(container(schema, body), "a.commit")
    assert caught.value.context["path"] == "a.commit"


def test_deflated_bytes_become_no_more_than_a_few_times_as_many() -> None:
    schema = record({"type": "array", "items": ["null", "long"]})
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = deflate.compress(encode_long(1 << 30)) + deflate.flush(zlib.Z_FULL_FLUSH)
    nulls = deflate.compress(bytes(1 << 24)) + deflate.flush(zlib.Z_FULL_FLUSH)  # the same wherever it stands
    packed = head + nulls * 64 + deflate.flush()
    assert len(zlib.decompressobj(-15).decompress(packed, 1 << 25)) == 1 << 25
    assert len(packed) > 1_000_000
    with little_memory(), pytest.raises(CorruptFile, match="deflated"):
        read_avro_file(container(schema, packed, "deflate"))
    with pytest.raises(CorruptFile, match="neither null nor deflate"):
        read_avro_file(container(record("long"), b"\0", "zstandard"))


@pytest.mark.parametrize(
    "schema", [record("null", ["null", record("long", name="i")]), record({"type": "map", "values": record("int")})]
)
def test_schemas_without_harm_pass(schema: Schema) -> None:
    if "map" not in str(schema):
        assert bounded_schema(json.dumps(schema))
        return
    # two records of one name, the inner one in the outer one, are no reference
    with pytest.raises(ValueError, match="refers to itself"):
        bounded_schema(json.dumps(schema))


def test_every_changed_bit_of_an_avro_file_that_lakebed_wrote_is_noticed() -> None:
    schema = record("string", ["null", "long"], {"type": "array", "items": "string"})
    data = write_avro_file(schema, {"f0": "city", "f1": 7, "f2": ["a", ""]})
    assert read_avro_file(data) == {"f0": "city", "f1": 7, "f2": ["a", ""]}
    for at in range(8 * len(data)):
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(CorruptFile):
            read_avro_file(bytes(changed))


NO_JSON = [b"[" * 200_000, b'{"a":' * 200_000, b'{"a": NaN}', b"[-Infinity]", b"\xff\xfe{", b"{"]


@pytest.mark.parametrize("text", NO_JSON, ids=["deep list", "deep object", "NaN", "-Infinity", "no text", "cut off"])
def test_json_that_cannot_be_read(text: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"x\.json") as caught:
        parse_json(text, "x.json")
    assert caught.value.context["path"] == "x.json"


def test_lengths_of_log_blocks() -> None:
    whole = block_bytes(LogBlock(BlockType.DELETE, {HeaderKey.INSTANT_TIME: "1"}, b"content"))
    at = whole.index(struct.pack(">ii", HeaderKey.INSTANT_TIME, 1))
    for length in (-8, -1, 1 << 30, -(1 << 31)):
        lie = whole[: at + 4] + struct.pack(">i", length) + whole[at + 8 :]
        with pytest.raises(CorruptFile, match=r"x\.log"):
            read_blocks(lie[: at - 4] + struct.pack(">i", 0x7FFFFFFF) + lie[at:], "x.log")
    schema = json.dumps(record("long"))
    for content in (struct.pack(">iii", 3, 0x7FFFFFFF, -4), struct.pack(">ii", 3, -1), struct.pack(">iii", 3, 1, 99)):
        with pytest.raises(CorruptFile, match="offset 5"):
            avro_records(LogBlock(BlockType.AVRO_DATA, {HeaderKey.SCHEMA: schema}, content, 5), "x.log")
    with pytest.raises(ValueError, match="left over"):
        decode_record(schema, b"\0\0")


def test_bloom_filters_that_would_deny_a_key_they_hold() -> None:
    import base64

    found = BloomFilter.dynamic(2, 0.1, max_entries=4)
    found.add(pa.array(["a", "b", "c"]))
    data = base64.b64decode(found.to_text())
    row = len(data[25:]) // 2
    no_rows = data[:21] + struct.pack(">i", 0) + data[25:]
    other_size = data[: 25 + row] + struct.pack(">iibi", -1, 4, 1, 3) + b"\x07"
    for wrong in (no_rows, other_size, data + b"\0"):
        with pytest.raises(CorruptFile, match=r"f\.parquet"):
            BloomFilter.from_text(base64.b64encode(wrong), "DYNAMIC_V0", path="f.parquet")
    for text, kind in ((found.to_text(), "DYNAMIC_V1"), ("é", "SIMPLE"), ("/////wAAAAQBAAAACr0CAA==", "SIMPLE")):
        with pytest.raises(CorruptFile):
            BloomFilter.from_text(text, kind)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_base_file_with_a_changed_byte_has_all_rows_or_none(tmp_path: Path, compression: str) -> None:
    rows = 50
    texts = [None if n % 7 == 0 else f"é{n}" for n in range(rows)]
    table = pa.table({"id": pa.array(range(rows)), "t": pa.array(texts)})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=compression, row_group_size=20)
    data = sink.getvalue()
    storage = open_storage(f"file://{tmp_path}")
    outcomes = Outcomes()
    for at in range(0, len(data), 7):
        for value in (data[at] ^ 1, 0xFF):
            (tmp_path / "f.parquet").write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
            with outcomes.counted():
                found = sum(b.num_rows for b in read_base_file(storage, "f.parquet", len(data)))
                assert found == rows
    outcomes.assert_both(10)
    (tmp_path / "f.parquet").write_bytes(data)
    for read in (lambda: read_footer(storage, "f.parquet", 1), lambda: list(read_base_file(storage, "f.parquet", 1))):
        with pytest.raises(CorruptFile, match="should have 1"):
            read()
