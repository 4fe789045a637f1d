"""One connection to a region server: calls out, answers in, several under way at a time."""

from __future__ import annotations

import getpass
import socket
import struct
from dataclasses import dataclass

from lakebed.format.varints import read_varint, varint
from lakebed.index.hbase.wire import (
    Cells,
    bytes_field,
    first_fields,
    number_field,
    read_cells,
    text_of,
)

# Magic, version of the protocol, and authentication by name (SIMPLE).
_PREAMBLE = b"HBas\x00\x50"
_CODEC = b"org.apache.hadoop.hbase.codec.KeyValueCodec"
_MOST_BYTES = 1 << 30
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
    """A server refused, or cannot be reached; `passing` where it makes sense to ask again."""

    def __init__(self, said: str, *, passing: bool) -> None:
        super().__init__(said)
        self.passing = passing

    @classmethod
    def of_java(cls, name: str, said: str, *, final: bool = False) -> Unserved:
        """What stands for an exception of the server's."""
        kind = name.rpartition(".")[2].rpartition("$")[2]
        first = said.strip().partition("\n")[0].removeprefix(f"{name}: ")
        passing = kind in _PASSING or not (final or "DoNotRetry" in kind)
        return cls(f"{kind}: {first}" if first else kind, passing=passing and kind not in _FINAL)


_FINAL = frozenset({"NoSuchColumnFamilyException", "AccessDeniedException", "TableNotFoundException"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A message, and the cells that came with it."""

    message: memoryview
    block: memoryview

    def cells(self) -> Cells:
        try:
            return read_cells(self.block)
        except (ValueError, IndexError, struct.error) as error:
            raise Unserved(f"cells that cannot be read: {error}", passing=True) from error


class Connection:
    """Calls of one thread. Raises `Unserved` for all that goes wrong; a connection that failed is not used again."""

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
        """Call a method; gives the number that the answer will have."""
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
        """The next answer, of whichever call: what the server threw is given, not raised."""
        try:
            (size,) = struct.unpack(">I", self._exactly(4))
            if size > _MOST_BYTES:
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
        for each in (self._file, self._socket):
            try:
                each.close()
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
