"""`lakebed.Warehouse`: tables by their names."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakebed.api import create, drop, exists
from lakebed.api import open as open_table
from lakebed.catalog.names import using, warehouse_names
from lakebed.catalog.warehouses import names_of
from lakebed.config.arguments import checks_arguments, refused
from lakebed.errors import InvalidOption
from lakebed.loading import load
from lakebed.opened_table import noting
from lakebed.queries import run_sql
from lakebed.secrets import without_users
from lakebed.statements.variables import variables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.catalog.base import EntryName
    from lakebed.catalog.warehouses import Names
    from lakebed.table import Table


class Warehouse:
    """A warehouse, in which tables have names: `sales.orders` is the table `orders` of the database `sales`.

    `uri` is a folder (a path or a URI), in which that table is the folder `sales/orders`; or a catalog,
    `hive://host:9083`, `glue://region`, `unity://host` or `polaris://host`, in which it is an entry. New tables of a
    catalog are created in the folder `location`. Without a URI it is the warehouse of the environment's
    `LAKEBED_WAREHOUSE`. `storage_options` are those of all its tables.

    Names are letters from a to z, digits and underscores, and begin with a letter; any other raises `InvalidOption`.

    >>> import lakebed
    >>> w = lakebed.Warehouse("memory://docs/lake")
    >>> t = w.create("sales.orders", {"id": [1], "city": ["Oslo"]}, key="id")
    >>> w.list()
    ['sales.orders']
    """

    def __init__(
        self,
        uri: str | None = None,
        *,
        location: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        if uri is None:
            names = warehouse_names()
            if names is None:
                raise InvalidOption(
                    "no warehouse is named: LAKEBED_WAREHOUSE is not set",
                    hint="set it, give --warehouse on the command line, or give lakebed.Warehouse a path or URI",
                )
            uri = names.uri
        elif not isinstance(uri, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise refused("Warehouse", "uri", uri, "a path or a URI")
        self._storage_options = dict(storage_options or {})
        self._names: Names = names_of(os.fspath(uri), self._storage_options, location)

    @property
    def uri(self) -> str:
        """The URI of the warehouse.

        >>> lakebed.Warehouse("memory://docs/lake/").uri
        'memory://docs/lake'
        """
        return self._names.uri

    def __repr__(self) -> str:
        return f"Warehouse({without_users(self.uri)!r})"

    def create(self, name: str, schema_or_data: Any, **create_options: Any) -> Table:
        """Create an empty table, and return it; `create_options` are those of `lakebed.create`.

        Of several processes that create one name at once, one does; `TableExists` is raised in the others.

        >>> w.create("sales.items", {"id": [1]}, key="id").uri
        'memory://docs/lake/sales/items'
        """
        with using(self._names):
            return create(str(self._parsed("create", name)), schema_or_data, **self._options(create_options))

    def open(self, name: str, **open_options: Any) -> Table:
        """Open a table, and return it; `open_options` are those of `lakebed.open`.

        Raises `TableNotFound`, with similar names, if there is none.

        >>> w.open("sales.items").schema.names
        ['id']
        """
        with using(self._names):
            return open_table(str(self._parsed("open", name)), **self._options(open_options))

    def load(self, name: str, data: Any, **load_options: Any) -> Table:
        """Create a table, bulk insert the data, and return it; `load_options` are those of `lakebed.load`.

        >>> w.load("crm.people", {"id": [1, 2]}, key="id", progress=False).count()
        2
        """
        with using(self._names):
            return load(str(self._parsed("load", name)), data, **self._options(load_options))

    def exists(self, name: str) -> bool:
        """Whether there is a table of this name, also one that lakebed cannot open.

        >>> w.exists("crm.people"), w.exists("crm.cars")
        (True, False)
        """
        with using(self._names):
            return exists(str(self._parsed("exists", name)), storage_options=self._storage_options)

    def sql(
        self,
        text: str,
        tables: Mapping[str, Any] | None = None,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        spark: SparkSession | None = None,
        *,
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a SQL statement in which `database.table` are the tables of this warehouse; all else is that of
        `lakebed.sql`.

        >>> w.sql("select count(*) as n from crm.people").to_pylist()
        [{'n': 2}]
        >>> w.sql("show tables in crm").to_pylist()
        [{'database': 'crm', 'table': 'people'}]
        """
        with using(self._names), noting(message, metadata):
            return run_sql(text, tables, args, spark, self._storage_options, variables_of(inspect.currentframe()))

    @checks_arguments
    def list(self, database: str | None = None) -> list[str]:
        """The names of the tables, sorted: of one database, or of all. Raises `TableNotFound` for a database that does
        not exist.

        >>> w.list("crm")
        ['crm.people']
        """
        databases = self._names.databases() if database is None else [database]
        return [f"{name}.{table}" for name in databases for table in self._names.tables(name)]

    def databases(self) -> list[str]:
        """The names of the databases, sorted.

        >>> w.databases()
        ['crm', 'sales']
        """
        return self._names.databases()

    @checks_arguments
    def create_database(self, name: str, *, allow_existing: bool = False) -> None:
        """Create a database. A table's database need not be created before the table.

        Raises `TableExists` if there is one, except with `allow_existing`.

        >>> w.create_database("hr")
        >>> w.databases()
        ['crm', 'hr', 'sales']
        """
        self._names.create_database(name, allow_existing=allow_existing)

    def drop(self, name: str, **drop_options: Any) -> list[str]:
        """Delete a table with all its rows and its history, and its entry in a catalog. It cannot be undone.
        `drop_options` are those of `lakebed.drop`. Returns the paths of files in its folder that stay.

        >>> w.drop("crm.people"), w.list("crm")
        ([], [])
        """
        with using(self._names):
            return drop(str(self._parsed("drop", name)), **self._options(drop_options))

    def rename(self, name: str, to: str) -> Table:
        """Give a table another name, and return it. Its files move to the folder of the new name: on a disk each is
        renamed, an object store copies each. A writer that is at work meanwhile fails, and its rows are not committed.
        A call that was interrupted is finished by the same call again. The list for readers of Iceberg is left out;
        the next publication writes it again.

        Raises `TableExists` where the new name is in use, and `UnsupportedFeature` in a catalog.

        >>> w.rename("sales.items", "sales.parts").name, w.list("sales")
        ('parts', ['sales.orders', 'sales.parts'])
        """
        from lakebed.services.rename import rename_in_warehouse

        rename_in_warehouse(self._names, self._parsed("rename", name), self._parsed("rename", to))
        return self.open(to)

    def table_uri(self, name: str) -> str:
        """The URI of the table of a name, for functions that take URIs. Raises `TableNotFound` for a name that a
        catalog does not have.

        >>> w.table_uri("sales.orders")
        'memory://docs/lake/sales/orders'
        """
        return self._names.table_uri(self._parsed("table_uri", name))

    def _parsed(self, method: str, name: Any) -> EntryName:
        """The parts of a name. Raises `InvalidOption` for a text that is no name."""
        if not isinstance(name, str):
            raise refused(method, "name", name, "the name of a table, as 'sales.orders'")
        return self._names.parse(name)

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "storage_options": {**self._storage_options, **(options.get("storage_options") or {})}}


def names_and_options(warehouse: Warehouse) -> tuple[Names, dict[str, str]]:
    """The names of a warehouse, and the storage options of its tables."""
    return warehouse._names, warehouse._storage_options  # pyright: ignore[reportPrivateUsage]
