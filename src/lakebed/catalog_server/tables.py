"""The tables that the catalog shows: each with the newest metadata of its Iceberg list, which is brought up to date
when a client asks for the table.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lakebed.catalog.base import EntryName
from lakebed.catalog.warehouses import Names
from lakebed.config.options import resolve_options
from lakebed.errors import CatalogError, CommitConflict, InvalidOption, StorageError, TableNotFound
from lakebed.metadata.lookups import open_snapshot
from lakebed.properties.file import load_table_config
from lakebed.services.publishing import newest_metadata, publish_table
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.storage.base import Storage

_log = logging.getLogger("lakebed")
MAX_TABLES = 1_000
"""So many tables are kept ready; the one that was asked for least recently is forgotten."""
MAX_BYTES = 64 << 20
"""So many bytes of answers are kept ready, of all tables together."""
MAX_WAITING = 16
"""So many requests wait for a table that another one publishes."""
_WAIT_SECONDS = 20
# What clients call the settings of an object store that lakebed takes as storage options.
_VENDED = {
    "s3.endpoint": ("endpoint_url", "endpoint", "aws_endpoint", "aws_endpoint_url"),
    "s3.access-key-id": ("aws_access_key_id", "access_key_id"),
    "s3.secret-access-key": ("aws_secret_access_key", "secret_access_key"),
    "s3.session-token": ("aws_session_token", "session_token", "token"),
    "s3.region": ("region", "aws_region"),
    "client.region": ("region", "aws_region"),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON of a table for clients, and its version, which changes with the content."""

    body: bytes
    version: str


@dataclass
class _ServedTable:
    """A table: its storage, the view for which the answers were made, the path of the metadata that they have, and the
    answers by the value of `snapshots`. Requests that wait for its lock hold `waiting`."""

    storage: Storage
    view: Snapshot | None = None
    path: str = ""
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MAX_WAITING))

    @property
    def size(self) -> int:
        return sum(len(answer.body) for answer in self.answers.values())


class ServedTables:
    """The databases and tables of a warehouse. With `publishes` a table whose Iceberg list is missing or older than its
    last commit is published when a client asks for it; otherwise the list is shown as it is. With `vends` answers have
    the settings of the storage, with its keys."""

    def __init__(
        self, names: Names, storage_options: Mapping[str, str] | None = None, *, publishes: bool, vends: bool
    ) -> None:
        self._names, self._storage_options = names, dict(storage_options or {})
        self._publishes = publishes
        self._config = vended_settings(self._storage_options) if vends else {}
        self._tables: OrderedDict[EntryName, _ServedTable] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        """The URI of the warehouse."""
        return self._names.uri

    def databases(self) -> list[str]:
        """The names of the databases, sorted."""
        return self._names.databases()

    def has_database(self, database: str) -> bool:
        """Whether there is a database of this name."""
        return database in self._names.databases()

    def tables(self, database: str) -> list[str]:
        """The names of the tables of a database, sorted. Raises `TableNotFound` if there is no such database."""
        if not self.has_database(database):
            raise no_namespace(database)
        return self._names.tables(database)

    def has(self, database: str, table: str) -> bool:
        """Whether there is a table of this name."""
        try:
            name = self._names.parse(f"{database}.{table}")
        except InvalidOption:
            return False
        is_there = self._names.has(name)
        return is_there and (self._publishes or newest_metadata(self._served(name).storage) is not None)

    def load(self, database: str, table: str, snapshots: str) -> Answer:
        """The answer about a table in its present state. `snapshots` is "all", or "refs" for the current one alone.

        Raises `TableNotFound` if there is no such table, or none that is published where this is not done here, and
        what a publication raises.
        """
        try:
            name = self._names.parse(f"{database}.{table}")
        except InvalidOption:
            raise _no_table(database, table) from None
        served = self._served(name)
        with self._only(served, name):
            try:
                view = open_snapshot(served.storage, load_table_config(served.storage))
            except TableNotFound:
                with self._lock:
                    self._tables.pop(name, None)
                raise _no_table(database, table) from None
            # without publication another program changes the list, whatever the table's timeline shows
            is_new = self._publishes and served.view is not None and served.view.shows_same(view)
            if not is_new or (served.answers and served.storage.head(served.path) is None):  # or deleted beside it
                served.answers.clear()
                served.view = view if self._publishes and self._is_published(served) else None
            if snapshots not in served.answers:
                served.path, text = self._newest(served, name)
                served.answers[snapshots] = self._answer(served.path, text, snapshots)
            answer = served.answers[snapshots]
        with self._lock:
            size = sum(ready.size for ready in self._tables.values())
            while len(self._tables) > MAX_TABLES or (size > MAX_BYTES and self._tables):
                size -= self._tables.popitem(last=False)[1].size
        return answer

    @contextmanager
    def _only(self, served: _ServedTable, name: EntryName) -> Generator[None]:
        """Let one request at a time look at a table. Raises `CatalogError` where many wait already, or one takes long
        to publish it: threads are few, and other tables need them."""
        is_first = False
        if served.waiting.acquire(blocking=False):
            is_first = served.lock.acquire(timeout=_WAIT_SECONDS)
            served.waiting.release()
        if not is_first:
            raise CatalogError(
                f"the table {name} is being published",
                hint="Ask again in some seconds.",
                context={"name": str(name)},
            )
        try:
            yield
        finally:
            served.lock.release()

    def _is_published(self, served: _ServedTable) -> bool:
        """Bring the table's list up to its last commit; returns whether it is. Where that fails for a while the former
        list stays. Raises the error if there is none."""
        try:
            publish_table(served.storage, "iceberg", resolve_options(None).write)
        except (StorageError, CommitConflict) as error:
            if newest_metadata(served.storage) is None:
                raise
            _log.warning("%s: its list is older than the table: %s", served.storage.url(), error.message)
            return False
        return True

    def _served(self, name: EntryName) -> _ServedTable:
        with self._lock:
            served = self._tables.get(name)
            if served is not None:
                self._tables.move_to_end(name)
                return served
        if not self._names.has(name):
            raise _no_table(name.database, name.table)
        storage = open_storage(self._names.table_uri(name), self._storage_options)
        with self._lock:
            return self._tables.setdefault(name, _ServedTable(storage))

    def _newest(self, served: _ServedTable, name: EntryName) -> tuple[str, bytes]:
        newest = newest_metadata(served.storage)
        if newest is None:
            raise TableNotFound(
                f"the table {name} is not published as Iceberg, and this server publishes no table",
                hint=f"Publish it: lakebed catalogs publish {name} iceberg.",
                context={"name": str(name)},
            )
        return newest

    def _answer(self, path: str, text: bytes, snapshots: str) -> Answer:
        metadata: dict[str, Any] = json.loads(text)
        if snapshots == "refs":
            referred = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
            referred.add(metadata.get("current-snapshot-id"))
            metadata["snapshots"] = [s for s in metadata.get("snapshots", ()) if s["snapshot-id"] in referred]
        # readers such as ClickHouse take local files with a scheme alone
        location = metadata["location"]
        metadata["location"] = f"file://{location}" if location.startswith("/") else location
        answer = {
            "metadata-location": f"{metadata['location']}/{path}",
            "metadata": metadata,
            "config": self._config,
        }
        body = json.dumps(answer, separators=(",", ":")).encode()
        return Answer(body, hashlib.sha256(body).hexdigest()[:32])


def vended_settings(storage_options: Mapping[str, str]) -> dict[str, str]:
    """The settings of an object store for clients, from storage options.

    >>> vended_settings({"endpoint_url": "http://localhost:9000", "region": "eu-west-1"})["s3.endpoint"]
    'http://localhost:9000'
    """
    lower = {name.lower(): value for name, value in storage_options.items()}
    settings = {
        name: next(lower[option] for option in options if option in lower)
        for name, options in _VENDED.items()
        if any(option in lower for option in options)
    }
    if "s3.endpoint" in settings:
        settings["s3.path-style-access"] = "true"
    return settings


def no_namespace(database: str) -> TableNotFound:
    """The error for a database that does not exist, for clients that cannot create one."""
    return TableNotFound(f"there is no namespace {database}", context={"database": database})


def _no_table(database: str, table: str) -> TableNotFound:
    return TableNotFound(f"there is no table {database}.{table}", context={"name": f"{database}.{table}"})
