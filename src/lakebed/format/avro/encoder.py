"""Avro binary of single records, and object container files that hold one: the bodies and plans of the timeline.

Encoders are functions compiled once from the schema. fastavro checks every value against every branch of each union,
which takes ten seconds for a commit of 100,000 write stats; the unions here have one branch besides null.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import fastavro

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.types import bounded_schema
from lakebed.format.varints import read_varint, varint, zigzag

Encoder = Callable[[Any], bytes]


@lru_cache(maxsize=64)
def encoder_of(schema: str) -> Encoder:
    """A function from a record (a dict; a missing nullable field counts as null) to its Avro binary.

    >>> encoder_of('{"type":"record","name":"r","fields":[{"name":"a","type":["null","long"]}]}')({"a": -2})
    b'\\x02\\x03'

    Raises `UnsupportedFeature` for unions other than null and one type, and for enum and fixed.
    """
    return _compile(json.loads(schema), {})


@lru_cache(maxsize=8192)
def encode_long(value: int) -> bytes:
    """A number in Avro's variable-length zigzag form (int or long)."""
    return varint(zigzag(value))


def decode_long(data: bytes, at: int) -> tuple[int, int]:
    """The Avro long at position `at` of `data`, and the position after it. Short numbers take no further call."""
    byte = data[at]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at + 1
    value, at = read_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def encode_bytes(value: bytes) -> bytes:
    """The bytes of `value` with their length in front, as Avro encodes bytes and strings."""
    return encode_long(len(value)) + value


def _string(value: str) -> bytes:
    data = value.encode()
    return encode_long(len(data)) + data


_PRIMITIVES: dict[str, Encoder] = {
    "null": lambda _: b"",
    "boolean": lambda value: b"\x01" if value else b"\x00",
    "int": encode_long,
    "long": encode_long,
    "float": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
    "bytes": encode_bytes,
    "string": _string,
}


def _compile(schema: Any, named: dict[str, Encoder]) -> Encoder:
    if isinstance(schema, list):
        return _union(cast("list[Any]", schema), named)
    if isinstance(schema, str):
        return _PRIMITIVES[schema] if schema in _PRIMITIVES else named[schema]
    kind = schema["type"]
    if kind == "record":
        return _record(schema, named)
    if kind in ("array", "map"):
        return _items(_compile(schema["items" if kind == "array" else "values"], named), is_map=kind == "map")
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    raise UnsupportedFeature(f"Avro type {kind!r} cannot be encoded here")


def _record(schema: dict[str, Any], named: dict[str, Encoder]) -> Encoder:
    names = [field["name"] for field in schema["fields"]]
    encoders = [_compile(field["type"], named) for field in schema["fields"]]
    # most fields of a body are null: what a null becomes, where the type says so
    types = [field["type"] for field in schema["fields"]]
    takes_null = [isinstance(kind, list) and "null" in kind for kind in types]
    nulls = [encoder(None) if takes else None for takes, encoder in zip(takes_null, encoders, strict=True)]
    fields = list(zip(nulls, encoders, strict=True))

    def encode(record: dict[str, Any]) -> bytes:
        values = zip(map(record.get, names), fields, strict=True)
        return b"".join(
            [null if value is None and null is not None else encoder(value) for value, (null, encoder) in values]
        )

    named[schema["name"]] = encode
    return encode


def _union(branches: list[Any], named: dict[str, Encoder]) -> Encoder:
    if len(branches) != 2 or "null" not in branches:
        raise UnsupportedFeature(f"Avro union {branches!r} cannot be encoded here")
    null = branches.index("null")
    encoder = _compile(branches[1 - null], named)
    null_mark, value_mark = encode_long(null), encode_long(1 - null)
    return lambda value: null_mark if value is None else value_mark + encoder(value)


def _items(item: Encoder, *, is_map: bool) -> Encoder:
    def encode(values: Any) -> bytes:
        if not values:
            return b"\x00"
        items = [_string(key) + item(value) for key, value in values.items()] if is_map else map(item, values)
        return b"".join([encode_long(len(values)), *items, b"\x00"])

    return encode


_avro: Any = fastavro  # its stubs leave streams and schemas half typed

MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_SCHEMA, _CODEC = "avro.schema", "avro.codec"
# A sync marker of lakebed begins so and ends with a digest: it shows whether schema and record are unchanged.
_LAKEBED_SYNC: Final = b"lkb1"
# What a deflated record may become: Hudi deflates none, so this is generous.
_MAX_INFLATION: Final = 16
_MIN_INFLATED: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class AvroHeader:
    """The header of an Avro container file."""

    schema: str
    codec: str
    sync: bytes
    blocks: int
    """Where the first block starts."""


def is_avro_file(data: bytes) -> bool:
    """Whether the bytes start like an Avro object container file."""
    return data.startswith(MAGIC)


def read_avro_file(data: bytes, path: str = "") -> dict[str, Any]:
    """The only record of a container file, decoded with the schema embedded in the file. Blocks are uncompressed or
    deflated.

    Raises `CorruptFile` naming `path` where the bytes are no such file or hold more or less than one record, where the
    schema could make a large thing of few bytes (see `bounded_schema`), and where a file of lakebed's was changed.
    """
    try:
        return _only_record(data)
    except Exception as cause:  # fastavro raises whatever the broken bytes lead it to
        raise CorruptFile(
            f"{path or 'this Avro file'} cannot be decoded: {cause or repr(cause)}",
            hint="The file was cut off or overwritten; restore it from a copy.",
            context={"path": path},
        ) from cause


def write_avro_file(schema: str | dict[str, Any], record: dict[str, Any]) -> bytes:
    """The bytes of a container file with this one record: no codec entry, and the schema text as given.

    The sync marker is derived from the content, so equal content gives equal bytes, and a changed file shows.

    >>> schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
    >>> read_avro_file(write_avro_file(schema, {"a": 7}))
    {'a': 7}
    """
    text = schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
    body = encoder_of(text)(record)
    sync = _lakebed_sync(text, body)
    encoded_schema = text.encode()
    metadata = [encode_long(1), encode_bytes(_SCHEMA.encode()), encode_bytes(encoded_schema), encode_long(0)]
    return b"".join([MAGIC, *metadata, sync, encode_long(1), encode_bytes(body), sync])


def decode_record(schema: str, data: bytes) -> dict[str, Any]:
    """A record from bare Avro binary written with this schema, which must be a bounded one.

    Raises whatever fastavro does, and `ValueError`.
    """
    source = io.BytesIO(data)
    record = _avro.schemaless_reader(source, bounded_schema(schema), None)
    if source.tell() != len(data):
        raise ValueError(f"{len(data) - source.tell()} bytes are left over after the record")
    if not isinstance(record, dict):
        raise ValueError("what it holds is no record")
    return cast("dict[str, Any]", record)


def _lakebed_sync(schema: str, body: bytes) -> bytes:
    digest = hashlib.md5(schema.encode() + body, usedforsecurity=False).digest()
    return (_LAKEBED_SYNC + digest)[:_SYNC_BYTES]


def _only_record(data: bytes) -> dict[str, Any]:
    container = avro_header(data)
    count, at = decode_long(data, container.blocks)
    body, at = _sized(data, at)
    if data[at : at + _SYNC_BYTES] != container.sync:
        raise ValueError("a block does not end in the file's sync marker")
    if count != 1 or at + _SYNC_BYTES != len(data):
        raise ValueError(f"it holds {count if count != 1 else 'more'} records where one is expected")
    if container.codec == "deflate":
        body = _inflated(body)
    elif container.codec != "null":
        raise ValueError(f"its codec {container.codec!r} is neither null nor deflate")
    record = decode_record(container.schema, body)
    if container.sync.startswith(_LAKEBED_SYNC) and container.sync != _lakebed_sync(container.schema, body):
        raise ValueError("its content is not what was written")
    return record


def avro_header(data: bytes) -> AvroHeader:
    """The header of a container file. Raises `ValueError` or `IndexError` if the bytes are not a container file."""
    if not data.startswith(MAGIC):
        raise ValueError("it does not start like an Avro file")
    entries: dict[str, bytes] = {}
    count, at = decode_long(data, len(MAGIC))
    while count:
        if count < 0:
            count = -count
            _, at = decode_long(data, at)
        if count > len(data) - at:
            raise ValueError("its header has more entries than bytes")
        for _ in range(count):
            name, at = _sized(data, at)
            entries[name.decode()], at = _sized(data, at)
        count, at = decode_long(data, at)
    sync = data[at : at + _SYNC_BYTES]
    if _SCHEMA not in entries or len(sync) != _SYNC_BYTES:
        raise ValueError("its header is cut off or has no schema")
    codec = entries.get(_CODEC, b"null").decode()
    return AvroHeader(entries[_SCHEMA].decode(), codec, sync, at + _SYNC_BYTES)


def _inflated(body: bytes) -> bytes:
    max_bytes = max(_MIN_INFLATED, _MAX_INFLATION * len(body))
    inflate = zlib.decompressobj(-15)
    inflated = inflate.decompress(body, max_bytes + 1)
    if len(inflated) > max_bytes:
        raise ValueError(f"{len(body)} deflated bytes become more than {max_bytes}")
    if not inflate.eof:  # some writers leave a part of the checksum after it
        raise ValueError("its deflated bytes are cut off")
    return inflated


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    """The length-prefixed bytes at position `at`, and the position after them."""
    length, at = decode_long(data, at)
    if not 0 <= length <= len(data) - at:
        raise ValueError(f"{length} bytes at {at} reach beyond its end")
    return data[at : at + length], at + length
