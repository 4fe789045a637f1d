"""Every byte of a table, decompressed: to prove that a value is nowhere.

It knows containers by their magic bytes, not by lakebed's readers: Parquet (whole files and log blocks) as decoded
columns and footers, Avro files as decoded records, gzip and zstd streams (pages, blocks of HFiles) wherever one begins.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.storage.base import Storage

GZIP, ZSTD, PARQUET, AVRO = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"PAR1", b"Obj\x01"


def decoded_bytes(storage: Storage) -> Iterator[tuple[str, bytes]]:
    """The path of each file under the table, with each piece of its bytes: raw, decompressed, decoded."""
    for info in storage.list(""):
        yield info.path, info.path.encode()
        for piece in pieces(storage.read(info.path)):
            yield info.path, piece


def pieces(data: bytes) -> Iterator[bytes]:
    """A file's bytes, and what is compressed or encoded in them."""
    yield data
    for stream in streams(data):
        yield stream
        yield from pieces(stream) if PARQUET in stream or AVRO in stream else ()
    for start, end in parquet_files(data):
        table = pq.read_table(pa.BufferReader(data[start:end]), partitioning=None)
        for column in table.columns:
            for value in values(column.to_pylist()):
                yield value
                yield from pieces(value) if value[:4] == AVRO else ()
    at = data.find(AVRO)
    while at >= 0:
        with suppress(Exception):  # these four bytes may be no file
            for record in fastavro.reader(io.BytesIO(data[at:])):
                yield from values(record)
        at = data.find(AVRO, at + 1)


def values(value: object) -> Iterator[bytes]:
    """Each scalar in a nested value as text, and as the bytes that files have it as."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield str(key).encode()
            yield from values(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from values(part)
    elif isinstance(value, bytes):
        yield value
    elif value is not None:
        yield str(value).encode()


def streams(data: bytes) -> Iterator[bytes]:
    """Each gzip and zstd stream in the bytes, decompressed."""
    at = data.find(GZIP)
    while at >= 0:
        with suppress(zlib.error):
            yield zlib.decompressobj(31).decompress(data[at:])
        at = data.find(GZIP, at + 1)
    at = data.find(ZSTD)
    while at >= 0:
        with suppress(OSError):
            yield pa.input_stream(pa.py_buffer(data[at:]), compression="zstd").read()
        at = data.find(ZSTD, at + 1)


def parquet_files(data: bytes) -> Iterator[tuple[int, int]]:
    """Where Parquet files begin and end in the bytes: the file itself, and blocks of a log file."""
    starts = [at for at in range(len(data)) if data.startswith(PARQUET, at)] if PARQUET in data else []
    for begin, last in zip(starts[::2], starts[1::2], strict=False):
        yield begin, last + len(PARQUET)


def encodings(value: str | int) -> list[bytes]:
    """A value as files may have it: text, or for a number also little and big endian and Avro's variable length."""
    if isinstance(value, str):
        return [value.encode()]
    number, varint = (value << 1) ^ (value >> 63), bytearray()
    while number > 0x7F:
        varint.append(number & 0x7F | 0x80)
        number >>= 7
    varint.append(number)
    return [str(value).encode(), struct.pack("<q", value), struct.pack(">q", value), bytes(varint)]


def files_with(storage: Storage, *wanted: str | int) -> dict[str, list[str | int]]:
    """The files that hold any of these values, with the values that each holds."""
    needles = [(value, code) for value in wanted for code in encodings(value)]
    found: dict[str, list[str | int]] = {}
    for path, piece in decoded_bytes(storage):
        for value, code in needles:
            if code in piece and value not in found.setdefault(path, []):
                found[path].append(value)
    return {path: held for path, held in found.items() if held}
