"""Warehouses: the databases and tables that have names, and the URI of each. A warehouse is a folder, in which
`sales.orders` is the folder `sales/orders`, or a catalog, in which it is the location of an entry.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

from lakebed.catalog.base import Catalog, EntryName, ListedCatalog
from lakebed.catalog.names import SCHEMAS_OF_ENGINE
from lakebed.catalog.registry import CatalogUri, find_table, is_catalog_uri
from lakebed.config.settings import CatalogSettings
from lakebed.errors import InvalidOption, StorageError, TableExists, TableNotFound, UnsupportedFeature
from lakebed.model import WAREHOUSE_LOCATION
from lakebed.properties.file import has_properties
from lakebed.schema.column_names import near_or_nothing, nearest_name
from lakebed.storage import open_storage
from lakebed.storage.base import Storage, parse_uri
from lakebed.storage.local import check_not_linked
from lakebed.storage.parallel import is_remote, parallel_map

T = TypeVar("T")
MAX_NAME = 128
"""The most letters of the name of a database, and of a table."""
# Of a database without tables, on stores that have no empty folders.
_DATABASE_FILE = ".lakebed_database"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LOOKED_AT_ONCE = 16


def checked_name(text: str, kind: str = "table") -> str:
    """The name of a database or table, as it was given. Raises `InvalidOption` for a text that is no name, with the
    reason.

    >>> checked_name("orders")
    'orders'
    >>> checked_name("Orders")
    Traceback (most recent call last):
    lakebed.errors.InvalidOption: 'Orders' is no name of a table: it has capital letters. ...
    """
    if _is_plain(text) and not (kind == "database" and text in SCHEMAS_OF_ENGINE):
        return text
    rule = "names are letters from a to z, digits and underscores, and begin with a letter"
    if not text:
        reason = "it is empty"
    elif len(text) > MAX_NAME:
        reason = f"it has {len(text)} letters, and {MAX_NAME} are the most"
    elif text[0] in "._":
        reason = "names that begin with a dot or an underscore are hidden"
    elif not text.isascii():
        reason = "it has letters beyond a to z"
    elif any(character in text for character in "./\\"):
        reason = "it has a dot or a slash"
    elif text != text.lower():
        reason, rule = "it has capital letters", f"names are lower case: {text.lower()}"
    elif text[0].isdigit():
        reason = "it begins with a digit"
    elif text in SCHEMAS_OF_ENGINE:
        reason, rule = "SQL has a schema of this name", "its tables could not be reached by SQL: choose another name"
    else:
        character = next((letter for letter in text if not (letter.isalnum() or letter == "_")), text[0])
        reason = f"it has {character!r}"
    raise InvalidOption(
        f"{text[:MAX_NAME]!r} is no name of a {kind}: {reason}", hint=rule, context={"name": text[:MAX_NAME]}
    )


class Names(ABC):
    """The databases and tables of a warehouse, by their names."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @abstractmethod
    def parse(self, text: str) -> EntryName:
        """The name in a text. Raises `InvalidOption` for a text that is no name."""

    @abstractmethod
    def table_uri(self, name: EntryName) -> str:
        """The URI of the table of this name. A catalog raises `TableNotFound` where it has none."""

    @abstractmethod
    def new_table_uri(self, name: EntryName) -> str:
        """The URI at which a table of this name is created."""

    @abstractmethod
    def has(self, name: EntryName) -> bool:
        """Whether there is a table of this name."""

    @abstractmethod
    def databases(self) -> list[str]:
        """The names of the databases, sorted."""

    @property
    def is_missing(self) -> bool:
        """Whether nothing is at the URI of the warehouse yet."""
        return False

    @abstractmethod
    def tables(self, database: str) -> list[str]:
        """The names of the tables of a database, sorted. Raises `TableNotFound` if there is no such database."""

    @abstractmethod
    def create_database(self, database: str, *, allow_existing: bool = False) -> None:
        """Create a database. Raises `TableExists` if there is one, unless `allow_existing`."""

    @abstractmethod
    def forget(self, name: EntryName) -> None:
        """Remove the name of a table whose files are deleted."""

    @abstractmethod
    def folders(self, name: EntryName, to: EntryName) -> tuple[Storage, str, str]:
        """The storage of a warehouse whose names are folders, and the folders of two names, for a move. A catalog
        raises `UnsupportedFeature`."""

    @property
    def catalog(self) -> str | None:
        """The URI of the catalog in which new tables are registered; None for a folder."""
        return None

    def no_database(self, database: str) -> TableNotFound:
        """The error for a database that does not exist."""
        near = near_or_nothing(database, self.databases())
        return TableNotFound(
            f"the warehouse {self.uri} has no database {database}",
            hint=f"{near}CREATE DATABASE {database} makes one, and so does a table in it.",
            context={"warehouse": self.uri, "database": database},
        )

    def near(self, name: EntryName) -> str:
        """The existing names that are similar, as the beginning of a hint; empty if there are none."""
        databases = self.databases()
        if name.database not in databases:
            near = nearest_name(name.database, databases)
            if near is not None and self.has(EntryName(near, name.table)):
                return f"Did you mean {f'{near}.{name.table}'!r}? "
            return near_or_nothing(name.database, databases)
        listed = [f"{name.database}.{table}" for table in self.tables(name.database)]
        return near_or_nothing(str(name), listed)


class FolderNames(Names):
    """The warehouse in a folder: the table `sales.orders` is the folder `sales/orders` in it."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        super().__init__(parse_uri(os.fspath(uri)).uri)
        if os.path.isfile(self.uri):
            raise InvalidOption(f"the warehouse {self.uri} is a file", hint="name a folder", context={"uri": self.uri})
        self._storage = open_storage(self.uri, storage_options)

    def parse(self, text: str) -> EntryName:
        """The name in a text `database.table`. Raises `InvalidOption` for a text that is no such name."""
        database, dot, table = text.partition(".")
        if text[:1] in (".", "_"):
            checked_name(text)
        if not dot:
            raise InvalidOption(
                f"{text!r} is no name of a table: it names no database",
                hint="write database.table",
                context={"name": text},
            )
        return EntryName(checked_name(database, "database"), checked_name(table))

    def table_uri(self, name: EntryName) -> str:
        """The URI of the folder of this name, whether or not there is a table. Raises `TableNotFound` where a link to
        another folder is in its place, since no list shows what is there."""
        try:
            return self.new_table_uri(name)
        except StorageError as error:
            raise TableNotFound(f"there is no table {name}: {error.message}", error.hint, error.context) from None

    def new_table_uri(self, name: EntryName) -> str:
        """The URI of the folder of a new table. Raises `StorageError` where a link to another folder is in its
        place."""
        self._refuse_link(f"{name.database}/{name.table}")
        return f"{self.uri.rstrip('/')}/{name.database}/{name.table}"

    def _refuse_link(self, folder: str) -> None:
        if parse_uri(self.uri).scheme == "file":
            check_not_linked(self.uri, folder)

    def has(self, name: EntryName) -> bool:
        """Whether there is a table of this name, readable or not; what is behind a link is none."""
        folder = f"{name.database}/{name.table}"
        try:
            self._refuse_link(folder)
        except StorageError:
            return False
        return has_properties(self._storage, folder)

    @property
    def is_missing(self) -> bool:
        """Whether the folder does not exist, or, in an object store, no object is in it."""
        return not os.path.isdir(self.uri) and next(iter(self._storage.list("")), None) is None

    def databases(self) -> list[str]:
        """The names of the folders in the warehouse that can be databases, sorted."""
        folders = self._storage.list_folders("")
        return sorted(name for name in folders if _is_plain(name) and name not in SCHEMAS_OF_ENGINE)

    def tables(self, database: str) -> list[str]:
        """The names of the tables in the folder of a database, sorted."""
        checked_name(database, "database")
        try:
            self._refuse_link(database)
        except StorageError:
            raise self.no_database(database) from None
        folders = [name for name in self._storage.list_folders(database) if _is_plain(name)]
        if not folders and database not in self.databases():
            raise self.no_database(database)
        at_once = _LOOKED_AT_ONCE if is_remote(self._storage) else 1
        are_tables = parallel_map(lambda name: has_properties(self._storage, f"{database}/{name}"), folders, at_once)
        return sorted(name for name, is_table in zip(folders, are_tables, strict=True) if is_table)

    def create_database(self, database: str, *, allow_existing: bool = False) -> None:
        """Create the folder of a database, with a hidden file. One of several callers creates it."""
        checked_name(database, "database")
        if self._storage.head(database) is not None:
            raise TableExists(
                f"the warehouse {self.uri} has a file {database} where the database would be",
                hint="Move the file away, or choose another name.",
                context={"warehouse": self.uri, "database": database},
            )
        is_there = bool(self._storage.list_folders(database)) or not self._storage.put_if_absent(
            f"{database}/{_DATABASE_FILE}", b"lakebed\n"
        )
        if is_there and not allow_existing:
            raise TableExists(
                f"the warehouse {self.uri} has a database {database} already",
                hint="Write CREATE DATABASE IF NOT EXISTS, or choose another name.",
                context={"warehouse": self.uri, "database": database},
            )

    def forget(self, name: EntryName) -> None:
        """Make the database stay where its last table was deleted."""
        self._storage.put_if_absent(f"{name.database}/{_DATABASE_FILE}", b"lakebed\n")

    def folders(self, name: EntryName, to: EntryName) -> tuple[Storage, str, str]:
        """The storage of the warehouse, and the folders of two names in it."""
        return self._storage, f"{name.database}/{name.table}", f"{to.database}/{to.table}"


class CatalogNames(Names):
    """The warehouse of a catalog: a Hive metastore, AWS Glue, Unity Catalog or Polaris. New tables are created in the
    folder `location` and registered there."""

    def __init__(self, uri: str, location: str | None = None) -> None:
        super().__init__(uri.rstrip("/"))
        self._parsed = CatalogUri.parse(self.uri)
        if self._parsed.entry is not None:
            raise InvalidOption(
                f"{uri} is a table in a catalog, not a warehouse", hint=f"{self._parsed.kind}://host is one"
            )
        self._location = location

    @property
    def catalog(self) -> str | None:
        """The URI of the catalog."""
        return self.uri

    def parse(self, text: str) -> EntryName:
        """The name in a text; each of its parts is a name. Raises `InvalidOption` for a text that is no name."""
        for part in text.split("."):
            checked_name(part)
        return EntryName.parse(text)

    def table_uri(self, name: EntryName) -> str:
        """The location of an entry. Raises `TableNotFound` if the catalog does not have it."""
        return find_table(self.uri, str(name))

    def new_table_uri(self, name: EntryName) -> str:
        """The URI of a new table: the folder of its name in `location`. Raises `TableExists` if the catalog has an
        entry of that name."""
        if self.has(name):
            raise TableExists(
                f"{self.uri} has a table {name} already",
                hint="Open it, or choose another name.",
                context={"catalog": self.uri, "name": str(name)},
            )
        location = self._location or os.environ.get(WAREHOUSE_LOCATION, "")
        if not location:
            raise InvalidOption(
                f"nothing names the folder of new tables of the warehouse {self.uri}",
                hint=f"set {WAREHOUSE_LOCATION}, or give lakebed.Warehouse a location",
                context={"warehouse": self.uri},
            )
        return f"{location.rstrip('/')}/{name.database.replace('.', '/')}/{name.table}"

    def has(self, name: EntryName) -> bool:
        """Whether the catalog has an entry of this name."""
        try:
            self.table_uri(name)
        except TableNotFound:
            return False
        return True

    def databases(self) -> list[str]:
        """The names of the databases, sorted."""
        return sorted(self._asked(lambda catalog: catalog.databases()))

    def tables(self, database: str) -> list[str]:
        """The names of all entries of a database, sorted."""
        return sorted(self._asked(lambda catalog: catalog.tables(database)))

    def create_database(self, database: str, *, allow_existing: bool = False) -> None:
        """Create a database in the catalog."""
        checked_name(database, "database")
        if not self._asked(lambda catalog: catalog.create_database(database)) and not allow_existing:
            raise TableExists(
                f"{self.uri} has a database {database} already",
                hint="Write CREATE DATABASE IF NOT EXISTS, or choose another name.",
                context={"warehouse": self.uri, "database": database},
            )

    def forget(self, name: EntryName) -> None:
        """Remove the entries of a table from the catalog."""
        self._asked(lambda catalog: catalog.forget(name))

    def folders(self, name: EntryName, to: EntryName) -> tuple[Storage, str, str]:
        """Refuse: an entry of a catalog is renamed there."""
        raise UnsupportedFeature(
            f"tables of the warehouse {self.uri} are renamed by the catalog, not by lakebed",
            hint=f"register it under the new name: w.open('{name}').catalogs.register('{self.uri}', '{to}')",
            context={"warehouse": self.uri, "name": str(name)},
        )

    def _asked(self, ask: Callable[[ListedCatalog], T]) -> T:
        catalog: Catalog = self._parsed.open(CatalogSettings())
        try:
            if not isinstance(catalog, ListedCatalog):
                raise UnsupportedFeature(
                    f"the catalog {self.uri} does not list its tables", hint="open tables by their names"
                )
            return ask(catalog)
        finally:
            catalog.close()


def names_of(
    uri: str, storage_options: Mapping[str, str] | None = None, location: str | None = None
) -> FolderNames | CatalogNames:
    """The names of the warehouse at a URI: a folder, or a catalog such as `hive://host:9083` or `glue`."""
    if "://" in uri and is_catalog_uri(uri):
        return CatalogNames(uri, location)
    if location is not None:
        raise InvalidOption(f"the warehouse {uri} is a folder, and has no other location", hint="leave location= out")
    return FolderNames(uri, storage_options)


def _is_plain(name: str) -> bool:
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None
