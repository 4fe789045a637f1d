"""Where the rows of an HBase index are, how they are asked for, and what a table's settings call all this.

Rows of the HBase table and the locations that they mean.

A row's key is the record key, after the number of its bucket if rows are spread. Its cells are real Hudi's:
`commit_ts`, `file_name` (the file id) and `partition_path`. They count only if that commit is in the table, so cells of
a failed write are ignored. The location that the write replaced would be lost, so lakebed notes it in a cell of its
own, which real Hudi does not read:

- `<instant> 0 <commit> 0 <file id> 0 <partition path>`, with a location of that instant: where the key was before;
- `<instant>` alone: that instant deleted the key. Its row is deleted once the instant is complete.

`Client` is what the index needs of HBase, by whichever protocol; there is one client for each process and table.

How fast rows are asked for: so many a second to each server, and a pause between two batches.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.option_table import options
from lakebed.errors import InvalidOption
from lakebed.format.hashes import java_hash
from lakebed.index.hbase.connection import joined
from lakebed.model import DERIVED, FILE_ID, INSTANT, OLD_PARTITION, RECORD_KEY
from lakebed.sharing import shared_lock
from lakebed.storage.base import refused

PREFIX = "hbase."
_PROPERTIES = "lakebed.index."
# These say where rows are; the other settings may differ from one job to the next.
_WHERE = frozenset(("quorum", "port", "znode", "table", "buckets", "rollback_sync"))
_REBALANCED = "RebalancedSparkHoodieHBaseIndex"
# Hudi's, where a job names its rebalanced index and no number.
_BUCKETS = 8


@dataclass(frozen=True, slots=True)
class HBaseTable:
    """An HBase table and how it is read and written. `buckets` is the number of prefixes that rows are spread over;
    None for rows that are named by keys alone. The least pause between two batches is in milliseconds, like all fields
    that end in `_ms`."""

    quorum: str
    table: str
    port: int = 2181
    znode: str = "/hbase"
    buckets: int | None = None
    rollback_sync: bool = False
    transport: str = "native"
    thrift_host: str = ""
    thrift_port: int = 9090
    get_batch: int = 1000
    put_batch: int = 1000
    max_qps: int | None = None
    qps_fraction: float = 0.5
    get_pause_ms: int = 0
    put_pause_ms: int = 0
    session_ms: int = 60_000
    connection_ms: int = 15_000
    retry_ms: int = 60_000

    def __post_init__(self) -> None:
        missing = [] if self.table else ["table"]
        if self.transport == "thrift":
            missing += [] if self.thrift_host else ["thrift.host"]
        else:
            missing += [] if self.quorum else ["zkquorum"]
        if missing:
            names = ", ".join(f"hoodie.index.hbase.{name}" for name in missing)
            raise InvalidOption(
                f"the HBase index needs {names}",
                hint="give it in the options (or properties of create), or an HBaseIndex object",
                context={"options": missing},
            )
        if self.transport not in ("native", "thrift"):
            raise InvalidOption(f"HBase transport {self.transport!r}", hint="take native or thrift")

    @property
    def where(self) -> str:
        """The HBase table and its servers as text, for messages."""
        if self.transport == "thrift":
            return f"hbase table {self.table} (Thrift gateway {self.thrift_host}:{self.thrift_port})"
        return f"hbase table {self.table} (ZooKeeper {self.hosts}{self.znode})"

    @property
    def hosts(self) -> str:
        """The servers of the ensemble, each with its port."""
        names = (name.strip() for name in self.quorum.split(","))
        return ",".join(name if ":" in name else f"{name}:{self.port}" for name in names if name)

    def texts(self) -> dict[str, str]:
        """The settings that differ from the defaults, as properties of the table."""
        texts: dict[str, str] = {}
        keys = _keys()
        for setting in fields(self):
            value = getattr(self, setting.name)
            if value != setting.default:
                texts[keys[setting.name]] = _text(value)
        return texts

    @classmethod
    def of_texts(cls, texts: Mapping[str, str]) -> HBaseTable:
        """The settings in properties that `texts` made. Raises InvalidOption for a value that is not valid."""
        settings: dict[str, Any] = {"quorum": "", "table": ""}
        for setting in fields(cls):
            text = texts.get(_keys()[setting.name])
            if text is not None:
                settings[setting.name] = _parsed(setting.name, text)
        return cls(**settings)


@cache
def _keys() -> dict[str, str]:
    """The property of each field of `HBaseTable`, without `lakebed.index.`: the table of options has them."""
    return {
        option.setting.removeprefix(PREFIX): name.removeprefix(_PROPERTIES)
        for option in options().values()
        if option.setting.startswith(PREFIX)
        for name in (option.key, *option.aliases)
        if name.startswith(_PROPERTIES)
    }


def is_of_a_job(key: str) -> bool:
    """Whether a setting is about how rows are requested, not where they are."""
    return key in {property_ for name, property_ in _keys().items() if name not in _WHERE}


def job_texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """A job's settings (`IndexSettings.hbase`), in the form of `HBaseTable.texts`."""
    values = {name: value for name, value in settings.items() if name not in ("java_class", "buckets")}
    if settings.get("java_class") == _REBALANCED:
        values["buckets"] = settings.get("buckets") or _BUCKETS
    return {_keys()[name]: _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(name: str, text: str) -> Any:
    kind = {field.name: field.type for field in fields(HBaseTable)}[name]
    try:
        if kind == "bool":
            return text.strip().lower() == "true"
        if kind == "float":
            return float(text)
        return text if kind == "str" else int(text)
    except ValueError as error:
        raise InvalidOption(
            f"{_PROPERTIES}{_keys()[name]}={text} is no number", hint="correct it with t.configure"
        ) from error


DELETED = f"{DERIVED}deleted"
LOCATIONS = pa.schema(
    [
        (RECORD_KEY, pa.string()),
        (OLD_PARTITION, pa.string()),
        (FILE_ID, pa.string()),
        (INSTANT, pa.string()),
        (DELETED, pa.bool_()),
    ]
)
"""Places of keys; `DELETED` if a commit deleted the key, which a later one may have put back."""

IsVisible = Callable[[str], bool]
_SEPARATOR = "\0"
_MIN_INT = -(2**31)


def row_keys(keys: pa.Array, buckets: int | None) -> pa.BinaryArray:
    """The row of each record key.

    >>> row_keys(pa.array(["a", "b"]), 8).to_pylist()
    [b'1a', b'2b']
    """
    texts = keys.cast(pa.string()).cast(pa.binary())
    if buckets is None:
        return texts
    hashes = java_hash(keys).astype(np.int64)
    # as in Java, whose least number has no positive one: the rest of its division is negative
    numbers = np.where(hashes == _MIN_INT, np.fmod(hashes, buckets), np.abs(hashes) % buckets)
    unique_numbers, codes = np.unique(numbers, return_inverse=True)
    width = len(str(buckets - 1))
    prefixes = pa.array([f"{number:0{width}d}".encode() for number in unique_numbers.tolist()], pa.binary())
    return joined(prefixes.take(pa.array(codes.reshape(-1))), texts)


def visible_locations(keys: pa.Array, stored_rows: pa.Table, buckets: int | None, is_visible: IsVisible) -> pa.Table:
    """The location of each key (`LOCATIONS`), null for a key without one; `stored_rows` are rows as the client returns
    them."""
    rows = row_keys(keys, buckets)
    at = pc.index_in(rows, value_set=_array(stored_rows, "row"))
    instant, file_id, partition, note = (
        _array(stored_rows, name).take(at).cast(pa.string()) for name in ("instant", "file_id", "partition", "note")
    )
    noted, before, before_id, before_partition = split_notes(note)
    visible = _are_visible(instant, is_visible)
    stands_for = pc.fill_null(pc.equal(noted, instant), False)
    falls_back = pc.and_(pc.and_(stands_for, pc.invert(visible)), _are_visible(before, is_visible))
    later = pc.fill_null(pc.greater(noted, instant), False)
    deleted = pc.and_(pc.and_(visible, pc.and_(later, before.is_null())), _are_visible(noted, is_visible))
    is_located = pc.or_(visible, falls_back)

    def place(current: pa.Array, earlier: pa.Array) -> pa.Array:
        return pc.if_else(is_located, pc.if_else(falls_back, earlier, current), pa.scalar(None, pa.string()))

    columns = [place(partition, before_partition), place(file_id, before_id), place(instant, before), deleted]
    return pa.Table.from_arrays([keys.cast(pa.string()), *columns], schema=LOCATIONS)


def notes_of(instant: str, locations: pa.Table) -> pa.BinaryArray:
    """The notes of an instant for the new locations of keys that were at `locations`; empty for a key that had no
    location."""
    before = pc.binary_join_element_wise(
        pa.scalar(instant), locations[INSTANT], locations[FILE_ID], locations[OLD_PARTITION], _SEPARATOR
    )
    return pc.fill_null(before, "").combine_chunks().cast(pa.binary())


def split_notes(notes: pa.StringArray) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """The notes as four columns: the instant that made each, and the commit, file id and partition path that it
    names."""
    note_texts = pc.if_else(pc.equal(notes, ""), pa.scalar(None, pa.string()), notes)
    noted_rows = np.flatnonzero(note_texts.is_valid())
    lists = pc.split_pattern(note_texts.take(pa.array(noted_rows)), _SEPARATOR, max_splits=3)
    sizes, starts = (np.asarray(array) for array in (pc.list_value_length(lists), lists.offsets[:-1]))
    columns: list[pa.Array] = []
    for part in range(4):
        has = sizes > part if part == 0 else sizes == 4
        of_row = np.full(len(notes), -1, np.int64)
        of_row[noted_rows[has]] = starts[has] + part
        columns.append(lists.values.take(pa.array(of_row, mask=of_row < 0)))
    return columns[0], columns[1], columns[2], columns[3]


def _array(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()


def _are_visible(instants: pa.Array, is_visible: IsVisible) -> pa.BooleanArray:
    """Flags of the instants that are completed commits of the table; False for a null."""
    encoded = instants.dictionary_encode()
    visible = pa.array([is_visible(text) for text in encoded.dictionary.to_pylist()], pa.bool_())
    return pc.fill_null(visible.take(encoded.indices), False)


FAMILY = b"_s"
COLUMNS: Mapping[str, bytes] = {
    "instant": b"commit_ts",
    "file_id": b"file_name",
    "partition": b"partition_path",
    "note": b"lakebed_note",
}
"""The cells of a row: real Hudi's three, and lakebed's note on the location before (see the module)."""
ROWS = pa.schema(
    [("row", pa.binary()), *((n, t) for c in COLUMNS for n, t in ((c, pa.binary()), (f"{c}.time", pa.int64())))]
)


class Client(Protocol):
    """A client that reads and writes rows of one HBase table. Every method raises `StorageError` if HBase does not
    answer in time."""

    def get(self, rows: pa.BinaryArray) -> pa.Table:
        """The rows that exist among these, once each, in any order; columns as in `ROWS`."""
        ...

    def put(self, rows: pa.BinaryArray, cells: Mapping[str, pa.BinaryArray | bytes]) -> None:
        """Write cells, by the names of `COLUMNS`; bytes are the same in all rows."""
        ...

    def delete(self, rows: pa.BinaryArray, times: pa.Array) -> None:
        """Delete each row's cells up to that time."""
        ...

    def scan(self, since: int) -> Iterator[pa.Table]:
        """All rows with cells written since a time (milliseconds since 1970), as tables with the schema `ROWS`."""
        ...

    def close(self) -> None: ...


_clients: dict[tuple[int, HBaseTable], Client] = {}


def client_of(table: HBaseTable) -> Client:
    """The process's client for a table. Raises `UnsupportedFeature` if a required package is not installed."""
    key = (os.getpid(), table)
    client = _clients.get(key)
    if client is None:
        if table.transport == "thrift":
            from lakebed.index.hbase.thrift import ThriftClient as Kind
        else:
            from lakebed.index.hbase.native import NativeClient as Kind
        for client_key in [client_key for client_key in _clients if client_key[0] != key[0]]:
            del _clients[client_key]  # a forked process has connections that are its parent's
        client = _clients[key] = Kind(table)
    return client


def unanswered(table: HBaseTable, job_texts: str, *, passing: bool) -> Exception:
    """The error that is raised when HBase does not answer."""
    hint = (
        "see that HBase runs there and can be reached, then run it again"
        if passing
        else f"see that the table is there with a column family {FAMILY.decode()!r}, and may be used from here"
    )
    return refused(
        f"the HBase index does not answer: {table.where}: {job_texts}",
        f"{hint}; nothing of a write that this ended is visible",
        url=table.where,
        retryable=passing,
    )


@dataclass
class Pace:
    """Limits the rows that all threads of a process request from a server; `rows_a_second` None means no limit."""

    rows_a_second: float | None = None
    pause: float = 0.0
    _next: dict[str, float] = field(default_factory=dict[str, float])
    _lock: threading.Lock = field(default_factory=shared_lock)

    def take(self, server: str, rows: int) -> None:
        """Wait until `rows` further rows may be requested from the server."""
        if self.rows_a_second is None and not self.pause:
            return
        with self._lock:
            now = time.monotonic()
            begins = max(now, self._next.get(server, 0.0))
            takes = rows / self.rows_a_second if self.rows_a_second else 0.0
            self._next[server] = begins + max(takes, self.pause)
        if begins > now:
            time.sleep(begins - now)
