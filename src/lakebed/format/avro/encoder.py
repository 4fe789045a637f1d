"""Records to Avro binary by functions compiled once from the schema.

fastavro checks every value against every branch of each union it meets, which makes a commit body of 100,000 write
stats (a union at every level) cost ten seconds; the unions here have one branch besides null, so nothing is to check.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from lakebed.errors import UnsupportedFeature
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
    """A number in Avro's variable-length zigzag form (int and long alike)."""
    return varint(zigzag(value))


def decode_long(data: bytes, at: int) -> tuple[int, int]:
    """An Avro long of `data` at a place, and where it ends; without a call for the short ones, which most are."""
    byte = data[at]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at + 1
    value, at = read_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def encode_bytes(value: bytes) -> bytes:
    """Bytes with their length in front."""
    return encode_long(len(value)) + value


def _string(value: str) -> bytes:
    return encode_bytes(value.encode())


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
    if kind == "array":
        return _array(_compile(schema["items"], named))
    if kind == "map":
        return _map(_compile(schema["values"], named))
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    raise UnsupportedFeature(f"Avro type {kind!r} cannot be encoded here")


def _record(schema: dict[str, Any], named: dict[str, Encoder]) -> Encoder:
    fields = [(field["name"], _compile(field["type"], named)) for field in schema["fields"]]

    def encode(record: dict[str, Any]) -> bytes:
        get = record.get
        return b"".join([encoder(get(name)) for name, encoder in fields])

    named[schema["name"]] = encode
    return encode


def _union(branches: list[Any], named: dict[str, Encoder]) -> Encoder:
    if len(branches) != 2 or "null" not in branches:
        raise UnsupportedFeature(f"Avro union {branches!r} cannot be encoded here")
    null = branches.index("null")
    encoder = _compile(branches[1 - null], named)
    null_mark, value_mark = encode_long(null), encode_long(1 - null)
    return lambda value: null_mark if value is None else value_mark + encoder(value)


def _array(item: Encoder) -> Encoder:
    def encode(values: list[Any]) -> bytes:
        if not values:
            return b"\x00"
        return b"".join([encode_long(len(values)), *map(item, values), b"\x00"])

    return encode


def _map(item: Encoder) -> Encoder:
    def encode(values: dict[str, Any]) -> bytes:
        if not values:
            return b"\x00"
        entries = [_string(key) + item(value) for key, value in values.items()]
        return b"".join([encode_long(len(values)), *entries, b"\x00"])

    return encode
