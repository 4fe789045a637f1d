"""Avro object container files that hold a single record: the form of the timeline's binary bodies and plans."""

from __future__ import annotations

import hashlib
import io
import json
from functools import lru_cache
from typing import Any, cast

import fastavro

from lakebed.errors import CorruptFile
from lakebed.format.avro_encoder import encode_bytes, encode_long, encoder_of

_avro: Any = fastavro  # its stubs leave streams and schemas half typed

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
        records = list(_avro.reader(io.BytesIO(data)))
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
    return cast("str", _avro.reader(io.BytesIO(data)).metadata["avro.schema"])


def write_avro_file(schema: str | dict[str, Any], record: dict[str, Any]) -> bytes:
    """A container file with this one record: no codec entry, the schema text kept as given.

    The sync marker is derived from the content, so equal content gives equal bytes.

    >>> schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
    >>> read_avro_file(write_avro_file(schema, {"a": 7}))
    {'a': 7}
    """
    text = schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
    body = encoder_of(text)(record)
    encoded_schema = text.encode()
    sync = hashlib.md5(encoded_schema + body, usedforsecurity=False).digest()[:_SYNC_BYTES]
    metadata = [encode_long(1), encode_bytes(b"avro.schema"), encode_bytes(encoded_schema), encode_long(0)]
    return b"".join([MAGIC, *metadata, sync, encode_long(1), encode_bytes(body), sync])


def decode_record(schema: str, data: bytes) -> dict[str, Any]:
    """A record from bare Avro binary written with this schema."""
    return cast("dict[str, Any]", _avro.schemaless_reader(io.BytesIO(data), _parsed(schema), None))


@lru_cache(maxsize=64)
def _parsed(schema: str) -> Any:
    return _avro.parse_schema(json.loads(schema))
