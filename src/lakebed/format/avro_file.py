"""Avro object container files that hold a single record: the form of the timeline's binary bodies and plans."""

from __future__ import annotations

import hashlib
import io
import json
from functools import lru_cache
from typing import Any, cast

import fastavro
from fastavro.types import Schema

from lakebed.errors import CorruptFile

MAGIC = b"Obj\x01"
_SYNC_BYTES = 16


def is_avro_file(data: bytes) -> bool:
    """Whether the bytes start like an Avro object container file."""
    return data.startswith(MAGIC)


def read_avro_file(data: bytes, path: str = "") -> dict[str, Any]:
    """The one record of a container file, decoded with the schema embedded in it (no codec and deflate are read).

    Raises `CorruptFile` naming `path` where the bytes are no such file or hold more or less than one record.
    """
    try:
        records = list(fastavro.reader(io.BytesIO(data)))
    except Exception as cause:  # fastavro raises whatever the broken bytes lead it to
        raise CorruptFile(
            f"{path or 'this Avro file'} cannot be decoded: {cause}",
            hint="The file was cut off or overwritten; restore it from a copy.",
            context={"path": path},
        ) from cause
    if len(records) != 1:
        raise CorruptFile(
            f"{path or 'this Avro file'} holds {len(records)} records where one is expected", context={"path": path}
        )
    return cast("dict[str, Any]", records[0])


def embedded_schema(data: bytes) -> str:
    """The text of the schema inside a container file, exactly as stored."""
    metadata = cast("dict[str, str]", fastavro.reader(io.BytesIO(data)).metadata)
    return metadata["avro.schema"]


def write_avro_file(schema: str | dict[str, Any], record: dict[str, Any]) -> bytes:
    """A container file with this one record: no codec entry, the schema text kept as given.

    The sync marker is derived from the content, so equal content gives equal bytes.

    >>> schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
    >>> read_avro_file(write_avro_file(schema, {"a": 7}))
    {'a': 7}
    """
    text = schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
    body = encode_record(text, record)
    encoded_schema = text.encode()
    sync = hashlib.md5(encoded_schema + body, usedforsecurity=False).digest()[:_SYNC_BYTES]
    header = [MAGIC, _long(1), _bytes(b"avro.schema"), _bytes(encoded_schema), _long(0), sync]
    return b"".join([*header, _long(1), _bytes(body), sync])


def encode_record(schema: str, record: dict[str, Any]) -> bytes:
    """The bare Avro binary of a record, without a container."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed_schema(schema), record)
    return out.getvalue()


@lru_cache(maxsize=64)
def parsed_schema(schema: str) -> Schema:
    """The schema in fastavro's form, parsed once for each text."""
    return fastavro.parse_schema(json.loads(schema))


def _long(value: int) -> bytes:
    """A length or count in Avro's variable-length zigzag form."""
    rest = value << 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value
