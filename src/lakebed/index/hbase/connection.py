"""HBase's messages: protocol buffers made column by column, and cells read out of the blocks that the server sends.

A request of many rows is one binary column: each field of a message wraps a column of values in its tag and length, so
that no row is touched alone. In an answer only the chain of lengths is walked; the bytes between are taken as arrays.

One connection to a region server: calls out, answers in, several under way at a time.
"""

from __future__ import annotations

import getpass
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.varints import read_varint, varint
from lakebed.schema.plain_arrow import as_numpy

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Value = int | memoryview

_NONE = pa.scalar(b"", pa.binary())
_LENGTH = struct.Struct(">i")


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    return field_head(number, len(value)) + value


def field_head(number: int, size: int) -> bytes:
    """The tag and length before the bytes of a field."""
    return varint(number << 3 | 2) + varint(size)


def column_field(number: int, values: pa.BinaryArray) -> pa.BinaryArray:
    """The encoded field `number` of every row, with these values."""
    lengths = pc.binary_length(values).dictionary_encode()
    heads = pa.array([field_head(number, length) for length in lengths.dictionary.to_pylist()], pa.binary())
    return pc.binary_join_element_wise(heads.take(lengths.indices), values, _NONE)


def joined(*parts: pa.BinaryArray | bytes) -> pa.BinaryArray:
    """The parts of every row, concatenated; a part given as bytes is the same in all rows."""
    columns = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*columns, _NONE)


def data_of(values: pa.BinaryArray) -> memoryview:
    """The bytes of all rows, concatenated."""
    _, offsets, data = values.buffers()
    if data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int32)
    return memoryview(data)[ends[values.offset] : ends[values.offset + len(values)]]


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """The number and the value (a number or bytes) of each field of a message. Raises ValueError if the bytes are not a
    message."""
    at, end = 0, len(message)
    while at < end:
        tag, at = read_varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = read_varint(message, at)
            yield tag >> 3, value
            continue
        size, at = read_varint(message, at) if kind == 2 else ({1: 8, 5: 4}.get(kind, end + 1), at)
        if at + size > end:
            raise ValueError(f"a field of {size} bytes at {at} of {end}")
        yield tag >> 3, message[at : at + size]
        at += size


def first_fields(message: memoryview) -> dict[int, Value]:
    """The fields of a message by number, for a message that has each field once."""
    return dict(fields(message))


def text_of(value: Value | None) -> str:
    return bytes(value).decode(errors="replace") if isinstance(value, memoryview) else ""


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells as a server sent them: the row, qualifier, time and value of each; the cells of a row are consecutive."""

    rows: pa.BinaryArray
    qualifiers: pa.BinaryArray
    times: Int64s
    values: pa.BinaryArray

    def table(self, columns: Mapping[str, bytes]) -> pa.Table:
        """A table with one row per HBase row: `row`, the value of each column by the qualifier given for it (null if
        the row has no such cell), and `<column>.time`."""
        encoded = self.rows.dictionary_encode()
        codes = as_numpy(encoded.indices)
        table_columns: dict[str, pa.Array] = {"row": encoded.dictionary}
        for name, qualifier in columns.items():
            at = np.flatnonzero(pc.equal(self.qualifiers, pa.scalar(qualifier, pa.binary())))
            of_row = np.full(len(encoded.dictionary), -1, np.int64)
            of_row[codes[at]] = at
            indices = pa.array(of_row, mask=of_row < 0)
            table_columns[name] = self.values.take(indices)
            table_columns[f"{name}.time"] = pa.array(self.times).take(indices)
        return pa.table(table_columns)


def read_cells(block: memoryview) -> Cells:
    """The cells of a block in the form of HBase's KeyValueCodec. Raises ValueError for a block that is cut off."""
    starts: list[int] = []
    at, end, length_at = 0, len(block), _LENGTH.unpack_from
    while at < end:
        starts.append(at)
        at += 4 + length_at(block, at)[0]
    if at != end:
        raise ValueError(f"a block of {end} bytes ends within a cell")
    data = np.frombuffer(block, np.uint8)
    # the cell's length, that of its key and that of its value; the key begins after them, with the row's length
    cell = np.array(starts, np.int64) + 4
    key_length, value_length = _int32(data, cell), _int32(data, cell + 4)
    key = cell + 8
    row_length = data[key].astype(np.int64) << 8 | data[key + 1]
    family_at = key + 2 + row_length
    qualifier = family_at + 1 + data[family_at]
    time_at = key + key_length - 9
    return Cells(
        slices(data, key + 2, row_length),
        slices(data, qualifier, time_at - qualifier),
        _int32(data, time_at) << 32 | _int32(data, time_at + 4),
        slices(data, key + key_length, value_length),
    )


def slices(data: Bytes, starts: Int64s, lengths: Int64s) -> pa.BinaryArray:
    """The pieces of `data` that begin at `starts` and have these `lengths`."""
    ends = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    pieces = data[np.repeat(starts - ends[:-1], lengths) + np.arange(ends[-1])]
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, offsets, pa.py_buffer(pieces)])


def _int32(data: Bytes, at: Int64s) -> Int64s:
    number = np.zeros(len(at), np.int64)
    for byte in range(4):
        number = number << 8 | data[at + byte]
    return number


# Magic, version of the protocol, and authentication by name (SIMPLE).
_PREAMBLE = b"HBas\x00\x50"
_CODEC = b"org.apache.hadoop.hbase.codec.KeyValueCodec"
_MAX_BYTES = 1 << 30
# Signs that another server, or the same one a little later, will answer.
_PASSING = frozenset(
    {
        "NotServingRegionException",
        "RegionMovedException",
        "RegionOpeningException",
        "RegionTooBusyException",
        "WrongRegionException",
        "ServerNotRunningYetException",
        "RegionServerStoppedException",
        "RegionServerAbortedException",
        "CallQueueTooBigException",
        "CallDroppedException",
        "MultiActionResultTooLarge",
        "RetryImmediatelyException",
        "PleaseHoldException",
        "UnknownScannerException",
        "ScannerResetException",
        "OutOfOrderScannerNextException",
        "LeaseException",
        "IOException",
    }
)


class Unserved(Exception):
    """Raised if a server refuses a call, or cannot be reached; `passing` is whether it makes sense to call again."""

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing

    @classmethod
    def of_java(cls, name: str, message: str, *, final: bool = False) -> Unserved:
        """The error for an exception of the server's."""
        kind = name.rpartition(".")[2].rpartition("$")[2]
        first = message.strip().partition("\n")[0].removeprefix(f"{name}: ")
        passing = kind in _PASSING or not (final or "DoNotRetry" in kind)
        return cls(f"{kind}: {first}" if first else kind, passing=passing and kind not in _FINAL)


_FINAL = frozenset({"NoSuchColumnFamilyException", "AccessDeniedException", "TableNotFoundException"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A message of a server, and the block of cells that came with it."""

    message: memoryview
    block: memoryview

    def cells(self) -> Cells:
        try:
            return read_cells(self.block)
        except (ValueError, IndexError, struct.error) as error:
            raise Unserved(f"cells that cannot be read: {error}", passing=True) from error


class Connection:
    """A connection that sends calls to a server and receives the answers, for one thread. It raises `Unserved` for
    every failure; a connection that failed is not used again."""

    def __init__(self, host: str, port: int, seconds: float, service: bytes = b"ClientService") -> None:
        self.where = f"{host}:{port}"
        self._calls = 0
        user = bytes_field(1, bytes_field(1, _user().encode()))
        about = user + bytes_field(2, service) + bytes_field(3, _CODEC)
        try:
            self._socket = socket.create_connection((host, port), seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._file = self._socket.makefile("rb", buffering=1 << 18)
            self._socket.sendall(_PREAMBLE + struct.pack(">I", len(about)) + about)
        except OSError as error:
            raise self._lost(error) from error

    def send(self, method: str, *parts: bytes | memoryview) -> int:
        """Call a method; returns the number that the answer will have."""
        self._calls += 1
        header = number_field(1, self._calls) + bytes_field(3, method.encode()) + number_field(4, 1)
        size = sum(map(len, parts))
        front = varint(len(header)) + header + varint(size)
        try:
            self._socket.sendall(b"".join([struct.pack(">I", len(front) + size), front, *parts]))
        except OSError as error:
            raise self._lost(error) from error
        return self._calls

    def receive(self) -> tuple[int, Answer | Unserved]:
        """The number of a call and its answer, for the next answer that arrives. An exception that the server threw is
        returned as `Unserved`, not raised."""
        try:
            (size,) = struct.unpack(">I", self._exactly(4))
            if size > _MAX_BYTES:
                raise OSError(f"an answer of {size} bytes")
            data = memoryview(self._exactly(size))
            length, at = read_varint(data, 0)
            header = first_fields(data[at : at + length])
            call = header.get(1)
            if not isinstance(call, int):
                raise OSError("an answer without a number")
            thrown = header.get(2)
            if isinstance(thrown, memoryview):
                about = first_fields(thrown)
                return call, Unserved.of_java(text_of(about.get(1)), text_of(about.get(2)), final=about.get(5) == 1)
            at += length
            length, at = read_varint(data, at)
            return call, Answer(data[at : at + length], data[at + length :])
        except (OSError, ValueError, IndexError, struct.error) as error:
            raise self._lost(error) from error

    def call(self, method: str, request: bytes) -> Answer:
        self.send(method, request)
        _, answer = self.receive()
        if isinstance(answer, Unserved):
            raise answer
        return answer

    def close(self) -> None:
        for stream in (self._file, self._socket):
            try:
                stream.close()
            except OSError:
                continue

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise OSError("the server closed the connection")
        return data

    def _lost(self, error: Exception) -> Unserved:
        return Unserved(f"region server {self.where}: {type(error).__name__}: {error}", passing=True)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return "lakebed"
