"""The interface of a catalog, and the description of a table for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from lakebed.config.settings import CatalogSettings
from lakebed.errors import CatalogError, InvalidOption, TableNotFound, UnsupportedFeature
from lakebed.storage.base import Location, parse_uri
from lakebed.wording import Printed, count_text


@dataclass(frozen=True, slots=True)
class EntryName:
    """A name in a catalog: the database (a namespace, or catalog and schema, as `a.b`) and the table."""

    database: str
    table: str

    @classmethod
    def parse(cls, text: str) -> EntryName:
        """The name `database.table`, or `catalog.schema.table`.

        >>> EntryName.parse("shop.orders"), EntryName.parse("main.shop.orders").database
        (EntryName(database='shop', table='orders'), 'main.shop')
        """
        database, dot, table = text.rpartition(".")
        if not dot or not database or not table or "/" in text:
            raise InvalidOption(
                f"{text!r} is no name of a table in a catalog",
                hint="give database.table",
                context={"name": text},
            )
        return cls(database, table)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class SyncedCommit:
    """The newest commit that an entry shows: the greatest requested time, and the greatest completion time; both are
    empty before the first commit."""

    instant: str = ""
    completed: str = ""


@dataclass(frozen=True, slots=True)
class RegisteredTable:
    """The data of a table for its registration. `schema` has all columns with the meta columns, `comments` are by
    column.

    `partitions` are the partition paths with rows. `touched_since` gives the paths that commits after an entry's have
    written or replaced, and None if the timeline does not show them. `text_fields` are the partition columns whose
    paths have another text than the column's value. `published` gives the partition columns of the list that the table
    has in a format ("delta"), and None where there is no list.
    """

    name: str
    location: str
    is_merge_on_read: bool
    schema: pa.Schema
    comments: Mapping[str, str]
    partition_fields: tuple[str, ...]
    commit: SyncedCommit
    partitions: Callable[[], Collection[str]]
    touched_since: Callable[[SyncedCommit], Collection[str] | None]
    published: Callable[[str], Sequence[str] | None] = field(default=lambda _: None)
    text_fields: frozenset[str] = frozenset()
    slash_dates: bool = False


Action = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, repr=False)
class EntryChange(Printed):
    """The change of one entry. `columns` is whether its columns changed; `added`, `moved` and `dropped` count
    partitions. `compared` is "all" if every partition was compared, otherwise "touched"."""

    name: str
    action: Action
    columns: bool = False
    added: int = 0
    moved: int = 0
    dropped: int = 0
    compared: str = "all"

    def __str__(self) -> str:
        parts = ["new columns"] if self.columns and self.action == "updated" else []
        counts = {"added": self.added, "with a new location": self.moved, "dropped": self.dropped}
        parts += [f"{count_text(count, 'partition')} {change}" for change, count in counts.items() if count]
        return f"{self.action} {self.name}" + (f": {', '.join(parts)}" if parts else "")


@dataclass(frozen=True, repr=False)
class SyncResult(Printed):
    """A registration: the catalog's URI, the newest commit that its entries show, and the change of each."""

    catalog: str
    instant: str
    entries: tuple[EntryChange, ...] = ()
    seconds: float = field(default=0.0, kw_only=True)

    @property
    def has_changed(self) -> bool:
        """Whether an entry was written."""
        return any(entry.action != "unchanged" for entry in self.entries)

    def __str__(self) -> str:
        summary = f"shows {self.instant}" if self.instant else "shows a table without commits"
        return "\n".join([f"{self.catalog} {summary}", *(f"  {entry}" for entry in self.entries)])


class Catalog(Protocol):
    """A catalog. Every request has a time limit, and raises `CatalogError` if it is not answered."""

    @property
    def uri(self) -> str:
        """The catalog's URI without a table, for messages; never with credentials."""
        ...

    def register(
        self, table: RegisteredTable, name: EntryName, settings: CatalogSettings, *, full: bool = False
    ) -> Sequence[EntryChange]:
        """Create or update the entries of a table; returns the changes of each. An entry shows the table's commit only
        after everything else is written, so that an interrupted registration is repeated by the next one. With `full`
        every partition is compared.

        Raises `CatalogError` for an entry of that name that is another table's, and `UnsupportedFeature` for what the
        catalog cannot have."""
        ...

    def location(self, name: EntryName) -> str:
        """The location of the table of an entry. Raises `TableNotFound`, and `CatalogError` for an entry that is not a
        Hudi table."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


@runtime_checkable
class ListedCatalog(Catalog, Protocol):
    """A catalog that also lists its databases and entries, creates databases, and removes entries."""

    def databases(self) -> Sequence[str]:
        """The names of the databases."""
        ...

    def tables(self, database: str) -> Sequence[str]:
        """The names of the entries of a database. Raises `TableNotFound` if there is no such database."""
        ...

    def create_database(self, database: str) -> bool:
        """Create a database; returns False if there is one."""
        ...

    def forget(self, name: EntryName) -> None:
        """Remove the entries of a table; its files stay."""
        ...


class StoredEntry(Protocol):
    """The fields that every store has for an entry."""

    @property
    def name(self) -> EntryName: ...

    @property
    def location(self) -> str: ...


E = TypeVar("E", bound=StoredEntry)
S = TypeVar("S", bound="EntryStore[Any]")


class EntryStore(Protocol[E]):
    """The requests for entries that the store of a catalog answers. Each raises `CatalogError`."""

    @property
    def uri(self) -> str: ...

    def has_database(self, database: str) -> bool: ...

    def create_database(self, database: str) -> None:
        """Create a database, unless it exists."""
        ...

    def databases(self) -> Sequence[str]:
        """The names of the databases. Raises `UnsupportedFeature` where the catalog does not list them."""
        ...

    def tables(self, database: str) -> Sequence[str]:
        """The names of the entries of an existing database."""
        ...

    def find(self, name: EntryName) -> E | None: ...

    def create(self, entry: E) -> None:
        """Create an entry, unless another process has created it meanwhile."""
        ...

    def delete(self, entry: E) -> None:
        """Delete the entry, if it exists. The table's files stay."""
        ...

    def close(self) -> None: ...


class StoreCatalog(ABC, Generic[S, E]):
    """The common part of catalogs that keep their entries in a store."""

    # What a database is called there.
    _database = "database"

    def __init__(self, store: S) -> None:
        self._store = store

    @property
    def uri(self) -> str:
        """The catalog's URI without a table, for messages; never with credentials."""
        return self._store.uri

    def close(self) -> None:
        """Close the connections to the store."""
        self._store.close()

    def location(self, name: EntryName) -> str:
        """The location of the table of an entry. Raises `TableNotFound` if the entry is missing, and `CatalogError` for
        an entry that is not a Hudi table."""
        entry: E | None = self._store.find(name)
        if entry is None:
            raise no_entry(self.uri, name)
        self.check_kind(entry)
        return as_uri(entry.location)

    def databases(self) -> Sequence[str]:
        """The names of the databases. Raises `UnsupportedFeature` where the catalog does not list them."""
        return self._store.databases()

    def tables(self, database: str) -> Sequence[str]:
        """The names of the entries of a database. Raises `TableNotFound` if there is no such database."""
        if not self._store.has_database(database):
            raise TableNotFound(
                f"{self.uri} has no {self._database} {database}",
                hint="CREATE DATABASE makes one.",
                context={"catalog": self.uri, "database": database},
            )
        return self._store.tables(database)

    def create_database(self, database: str) -> bool:
        """Create a database; returns False if there is one."""
        if self._store.has_database(database):
            return False
        self._store.create_database(database)
        return True

    def forget(self, name: EntryName) -> None:
        """Remove the entries of a table; its files stay. Raises `TableNotFound` if there is none, and `CatalogError`
        for an entry that is not a Hudi table."""
        location = self.location(name)
        for entry_name in self.entry_names(name):
            entry: E | None = self._store.find(entry_name)
            if entry is not None and same_location(entry.location, location):
                self._store.delete(entry)

    def entry_names(self, name: EntryName) -> Sequence[EntryName]:
        """The names of all entries that a table of this name may have."""
        return (name,)

    @abstractmethod
    def check_kind(self, entry: E) -> None:
        """Raise `CatalogError` for an entry that is not a Hudi table."""

    def _require_database(self, database: str, settings: CatalogSettings) -> None:
        """Create the database if it does not exist. Raises `CatalogError` if the settings do not allow it."""
        if self._store.has_database(database):
            return
        if not settings.create_database:
            raise CatalogError(
                f"{self.uri} has no {self._database} {database}",
                hint="Create it, or set hoodie.datasource.hive_sync.auto_create_database=true.",
                context={"catalog": self.uri, "database": database},
            )
        self._store.create_database(database)

    def _created(self, entry: E) -> E:
        """Create the entry. The one that the store then has is returned: another process may have been faster."""
        self._store.create(entry)
        stored: E | None = self._store.find(entry.name)
        if stored is None:
            raise CatalogError(f"{self.uri} created {entry.name} and does not have it", context={})
        return stored


def same_location(location: str, other: str) -> bool:
    """Whether two locations are equal, although engines may write them with different schemes of one store.

    >>> same_location("s3a://lake/t", "s3://lake/t/"), same_location("file:/lake/t", "/lake/t")
    (True, True)
    >>> same_location("gs://lake/t", "s3://lake/t")
    False
    """
    return location.rstrip("/") == other.rstrip("/") or (
        _parsed(location) is not None and _parsed(location) == _parsed(other)
    )


def is_below(location: str, root: str) -> bool:
    """Whether a location is inside the folder `root`.

    >>> is_below("s3a://lake/t/day=1", "s3://lake/t"), is_below("gs://lake/t/day=1", "s3://lake/t")
    (True, False)
    """
    inner, outer = _parsed(location), _parsed(root)
    if inner is None or outer is None:
        return False
    same = (inner.scheme, inner.authority) == (outer.scheme, outer.authority)
    return same and (inner.path.startswith(f"{outer.path.rstrip('/')}/") or not outer.path)


def _parsed(location: str) -> Location | None:
    """The parts of a location; None for one that no storage of lakebed supports. `abfs` and `abfss` are one store."""
    try:
        parts = parse_uri(location)
    except InvalidOption:
        return None
    return Location("abfss", parts.authority, parts.path) if parts.scheme == "abfs" else parts


def as_uri(location: str) -> str:
    """A location of an entry as a URI that `lakebed.open` takes.

    >>> as_uri("file:/lake/a b"), as_uri("s3a://lake/t")
    ('/lake/a b', 's3a://lake/t')
    """
    return parse_uri(location).path if location.startswith("file:") else location


def elsewhere(catalog: str, name: object, location: str, table: RegisteredTable) -> CatalogError:
    """The error for an entry that is another table's."""
    return CatalogError(
        f"{name} in {catalog} is the table at {location or 'no location'}, not the one at {table.location}",
        hint="Register the table under another name, or drop the entry there first: no entry of another table is"
        " changed.",
        context={"catalog": catalog, "name": str(name), "location": location},
    )


def no_entry(catalog: str, name: object) -> TableNotFound:
    """The error for a name that a catalog does not have."""
    return TableNotFound(
        f"{catalog} has no table {name}",
        hint="t.catalogs.register(catalog, name) registers one.",
        context={"catalog": catalog, "name": str(name)},
    )


def no_hudi_table(catalog: str, name: object, reason: str) -> CatalogError:
    """The error for an entry that is not a Hudi table."""
    return CatalogError(
        f"{name} in {catalog} is no Hudi table: {reason}",
        hint="Register the table under another name, or drop the entry there first.",
        context={"catalog": catalog, "name": str(name)},
    )


def unanswered(
    catalog: str, doing: str, error: BaseException, *, retryable: bool = True, hint: str = ""
) -> CatalogError:
    """The error for a request that a catalog did not answer, or refused; `hint` is what to do about it, if that is
    known."""
    reason = str(getattr(error, "message", None) or error) or type(error).__name__
    if not hint and doing.startswith("list "):
        hint = "See that the catalog runs, and may be reached from here with the credentials of this process."
    return CatalogError(
        f"{catalog} failed to {doing}: {type(error).__name__}: {reason}",
        hint=hint
        or "The table is as it was. See that the catalog runs and may be reached and written from here, then register"
        " the table again.",
        context={"catalog": catalog, "retryable": retryable},
    )


def missing_package(feature: str, package: str, extra: str) -> UnsupportedFeature:
    """The error for a catalog whose optional package is not installed."""
    return UnsupportedFeature(f"{feature} needs the package {package}", hint=f"pip install 'lakebed[{extra}]'")


def refuse_memory(catalog: str, table: RegisteredTable) -> None:
    """Raise `UnsupportedFeature` for a table in memory, which no other process can read."""
    if table.location.startswith("memory://"):
        raise UnsupportedFeature(
            f"the table at {table.location} is in the memory of this process, where no reader of {catalog} finds it",
            hint="Create it on a disk, HDFS or an object store.",
            context={"uri": table.location},
        )
