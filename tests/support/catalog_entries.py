"""Entries of metastores as plain values, a metastore that counts and ends requests, and a forwarder to one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import lakebed
from lakebed.catalog.base import EntryChange, EntryName
from lakebed.catalog.metastore import Metastore, MetastoreCatalog
from lakebed.config.settings import CatalogSettings
from lakebed.services import catalog_sync

# What differs from one registration to the next, or from one writer to another.
_PASSING = {"transient_lastDdlTime", "hudi_writer_version", "spark.sql.create.version", "numFiles", "totalSize"}
_REQUESTS = (
    *("has_database", "create_database", "find", "create", "update", "partitions"),
    *("add_partitions", "move_partitions", "drop_partitions"),
)
CHANGES = frozenset({"create_database", "create", "update", "add_partitions", "move_partitions", "drop_partitions"})


class Cut(Exception):
    """The process ended."""


def registered(store: Any, table: lakebed.Table, name: str, **settings: Any) -> Sequence[EntryChange]:
    """A registration over a given store."""
    described = catalog_sync._described(table.opened.snapshot())
    return MetastoreCatalog(store).register(described, EntryName.parse(name), CatalogSettings(**settings))


class RecordedStore:
    """A metastore whose requests are recorded; from the request number `last` on the process is dead: that one is
    made, with `lost` not even that."""

    def __init__(self, store: Metastore, last: int | None = None, *, lost: bool = False) -> None:
        self.requests: list[str] = []
        self.uri, self._store, self._last, self._lost = store.uri, store, last, lost

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._store, name)
        if name not in _REQUESTS:
            return method

        def request(*given: Any, **named: Any) -> Any:
            self.requests.append(name)
            ends = self._last is not None and len(self.requests) > self._last
            if ends and self._lost:
                raise Cut(name)
            answer = method(*given, **named)
            if ends:
                raise Cut(name)
            return answer

        return request


def cut_at_each_request(
    store: Metastore,
    prepared: Callable[[], tuple[lakebed.Table, str]],
    check: Callable[[lakebed.Table, str, bool], None],
    *,
    lost: bool,
) -> int:
    """Registers tables as names, each registration cut off at one request more, and then again without a cut, until one
    comes to its end. `check` gets the table, its name, and whether it has been registered again. Returns how many of
    the cut requests change something."""
    changes = last = 0
    while True:
        table, name = prepared()
        recorded = RecordedStore(store, last, lost=lost)
        try:
            registered(recorded, table, name)
        except Cut:
            changes += recorded.requests[-1] in CHANGES
        else:
            return changes
        check(table, name, False)
        registered(store, table, name)
        check(table, name, True)
        last += 1


def entry_values(store: Metastore, name: str) -> dict[str, Any]:
    """An entry with its partitions, as plain values."""
    entry = store.find(EntryName.parse(name))
    assert entry is not None, name
    partitions = store.partitions(entry) if entry.partition_columns else {}
    return {
        "columns": [(c.name, c.type, c.comment) for c in entry.columns],
        "partition_columns": [(c.name, c.type) for c in entry.partition_columns],
        "formats": (entry.input_format, entry.output_format, entry.serde),
        "serde": {key: _path(value) for key, value in entry.serde_properties.items()},
        "properties": {key: value for key, value in entry.properties.items() if key not in _PASSING},
        "kind": entry.kind,
        "location": _path(entry.location),
        "partitions": {values: _path(location) for values, location in sorted(partitions.items())},
    }


def _path(location: str) -> str:
    return location.replace("file:///", "/").removeprefix("file:")


@contextmanager
def silent(port: int = 0) -> Generator[int]:
    """A port of this machine that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", port)) as server:
        yield server.getsockname()[1]


@contextmanager
def forwarder(port: int, to: int) -> Generator[None]:
    """A port that leads to another one."""
    ends: list[socket.socket] = []

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        finally:
            target.close()

    def accept(server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            other = socket.create_connection(("127.0.0.1", to))
            ends.extend((client, other))
            for pair in ((client, other), (other, client)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    server = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=accept, args=(server,), daemon=True).start()
    try:
        yield
    finally:
        for one in (server, *ends):
            one.close()
