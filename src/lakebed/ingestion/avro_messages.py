"""Avro messages with the frame of a schema registry, and Avro container files, as rows by lakebed's own reader."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptFile, LakebedError
from lakebed.format.avro.cursors import Damage, record_ends
from lakebed.format.avro.encoder import avro_header, decode_long
from lakebed.format.avro.reader import read_records
from lakebed.format.avro.types import RecordSchema, record_schema
from lakebed.ingestion.messages import FRAME_BYTES, Decoded, DecodedGroups, NoRow, by_schema, spans
from lakebed.ingestion.source import AVRO_FAILURE

# The greatest byte that ends a number of several bytes.
_LAST_BYTE = 127
SchemaOf = Callable[[int], str]
"""The schema of an id, as JSON text. Raises `KeyError` for an id that the registry does not have."""


def decode_avro(messages: pa.Array, schema_of: SchemaOf) -> Decoded:
    """The rows of messages that begin with a zero byte and the 4-byte id of their schema, in the order of the messages.

    A message without this frame, with an id that the registry does not have, or with other bytes than its schema says
    is bad."""
    groups = DecodedGroups(AVRO_FAILURE)
    for decoded, _ in decode_avro_groups(messages, schema_of):
        groups.take(decoded)
    return groups.decoded()


def decode_avro_groups(messages: pa.Array, schema_of: SchemaOf) -> Iterator[tuple[Decoded, str]]:
    """The rows of messages that begin with a zero byte and the 4-byte id of their schema, schema by schema: pairs of
    the rows of one schema and its JSON text. Messages that are bad because they have no schema come with an empty
    text."""
    without = DecodedGroups(AVRO_FAILURE)
    for identifier, numbers in by_schema(messages, without.bad, AVRO_FAILURE):
        groups = DecodedGroups(AVRO_FAILURE)
        try:
            text = schema_of(identifier)
            schema = _schema(text, identifier)
        except KeyError:
            without.refuse(numbers, f"the registry has no schema with the id {identifier}")
            continue
        except CorruptFile as error:
            without.refuse(numbers, error.message)
            continue
        groups.add(messages.take(pa.array(numbers)), numbers, partial(_records, schema=schema))
        yield groups.decoded(), text
    yield without.decoded(), ""


def _schema(text: str, identifier: int) -> RecordSchema:
    try:
        return record_schema(text)
    except (ValueError, LakebedError) as error:
        raise CorruptFile(
            f"the schema with the id {identifier} cannot be used: {error}",
            hint="messages are Avro records",
            context={"schema_id": identifier},
        ) from error


def _records(messages: pa.Array, schema: RecordSchema, frame: int = FRAME_BYTES) -> pa.Table:
    data, starts, ends = spans(messages)
    return _rows(data, starts + frame, ends, schema)


def _rows(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, schema: RecordSchema) -> pa.Table:
    names = schema.arrow.names
    try:
        columns = read_records(data, starts, ends, schema, names)
    except (Damage, IndexError, OverflowError) as error:
        raise NoRow(f"the bytes are no record of the schema: {error}") from error
    return pa.table(dict(zip(names, columns, strict=True)), schema=schema.arrow.remove_metadata())


def avro_file_rows(data: bytes, label: str) -> pa.Table:
    """The rows of an Avro container file. Raises `CorruptFile` if the bytes are not one."""
    try:
        header = avro_header(data)
        schema, at = record_schema(header.schema), header.blocks
        expand = _CODECS[header.codec]
        tables: list[pa.Table] = []
        while at < len(data):
            count, at = decode_long(data, at)
            size, at = decode_long(data, at)
            if count < 0 or size < 0 or data[at + size : at + size + len(header.sync)] != header.sync:
                raise ValueError(f"the block at byte {at} is not complete")
            tables.append(_block(expand(data[at : at + size]), count, schema))
            at += size + len(header.sync)
    except (KeyError, ValueError, IndexError, Damage, NoRow, OSError, zlib.error, lzma.LZMAError) as error:
        raise CorruptFile(
            f"{label} is no Avro file that can be read: {error}", hint="correct the file, or leave it out"
        ) from error
    return pa.concat_tables(tables) if tables else schema.arrow.remove_metadata().empty_table()


def _block(data: bytes, count: int, schema: RecordSchema) -> pa.Table:
    ends = record_ends(data, tuple(schema.types.values()), count)
    if (int(ends[-1]) if count else 0) != len(data):
        raise ValueError("a block is longer than its records")
    return _rows(np.frombuffer(data, np.uint8), np.concatenate([[0], ends[:-1]]).astype(np.int64)[:count], ends, schema)


def _snappy(data: bytes) -> bytes:
    size, at, shift = 0, 0, 0
    while True:  # the length in front, seven bits a byte
        size |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] <= _LAST_BYTE:
            break
    return pa.decompress(data[:-4], decompressed_size=size, codec="snappy", asbytes=True)


def _zstd(data: bytes) -> bytes:
    return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.decompress(data, -15),
    "snappy": _snappy,
    "zstandard": _zstd,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
}
