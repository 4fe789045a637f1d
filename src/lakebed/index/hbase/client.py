"""What the index asks of HBase, whichever way it gets there; one client a process and table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from lakebed.index.hbase.settings import HBaseTable
from lakebed.storage.base import refused

FAMILY = b"_s"
COLUMNS: Mapping[str, bytes] = {
    "instant": b"commit_ts",
    "file_id": b"file_name",
    "partition": b"partition_path",
    "note": b"lakebed_note",
}
"""The cells of a row: real Hudi's three, and lakebed's note on what was there before (see `places`)."""
ROWS = pa.schema(
    [("row", pa.binary()), *((n, t) for c in COLUMNS for n, t in ((c, pa.binary()), (f"{c}.time", pa.int64())))]
)


class Client(Protocol):
    """Rows of one HBase table. Everything raises `StorageError` where HBase does not answer in time."""

    def get(self, rows: pa.BinaryArray) -> pa.Table:
        """Those of the rows that there are, once each, in any order: `ROWS`."""
        ...

    def put(self, rows: pa.BinaryArray, cells: Mapping[str, pa.BinaryArray | bytes]) -> None:
        """Write cells, by the names of `COLUMNS`; bytes are the same in all rows."""
        ...

    def delete(self, rows: pa.BinaryArray, times: pa.Array) -> None:
        """Delete each row's cells up to that time."""
        ...

    def scan(self, since: int) -> Iterator[pa.Table]:
        """All rows with cells written since a time (milliseconds since 1970), some at a time: `ROWS`."""
        ...

    def close(self) -> None: ...


_clients: dict[tuple[int, HBaseTable], Client] = {}


def client_of(table: HBaseTable) -> Client:
    """The process's client for a table. Raises `UnsupportedFeature` where a package is not installed."""
    key = (os.getpid(), table)
    found = _clients.get(key)
    if found is None:
        if table.transport == "thrift":
            from lakebed.index.hbase.thrift import ThriftClient as Kind
        else:
            from lakebed.index.hbase.native import NativeClient as Kind
        for other in [other for other in _clients if other[0] != key[0]]:
            del _clients[other]  # a forked process has connections that are its parent's
        found = _clients[key] = Kind(table)
    return found


def unanswered(table: HBaseTable, said: str, *, passing: bool) -> Exception:
    """The error that a user sees."""
    hint = (
        "see that HBase runs there and can be reached, then run it again"
        if passing
        else f"see that the table is there with a column family {FAMILY.decode()!r}, and may be used from here"
    )
    return refused(
        f"the HBase index does not answer: {table.where}: {said}",
        f"{hint}; nothing of a write that this ended is visible",
        url=table.where,
        retryable=passing,
    )
