"""The tables of a statement: by the names of `tables`, or by their URIs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from lakebed.catalog.names import SCHEMAS_OF_ENGINE, is_name
from lakebed.engine.base import session_of
from lakebed.errors import InvalidOption
from lakebed.read.scan import Results, Scan
from lakebed.schema.column_names import did_you_mean
from lakebed.statements.statement import Reference, Statement
from lakebed.table import Table
from lakebed.table_views import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.catalog.warehouses import Names

_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class TableCalls:
    """The functions that open, create, fill and drop a table at a URI or name, and check whether there is one.

    `names` are those of the warehouse, if there is one. `variables` gives the rows in the variable of the caller with a
    name; None if there is no such variable.
    """

    open: Callable[..., Table]
    create: Callable[..., Table]
    load: Callable[..., Table]
    drop: Callable[..., list[str]]
    exists: Callable[[str], bool]
    names: Names | None = None
    variables: Callable[[str], Any] = lambda _: None


# Names before the dot that are not databases of a warehouse.

registered: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()
"""The URIs of the names that `lakebed.spark.create_views` made in each session."""


@dataclass(frozen=True, slots=True)
class Source:
    """A reference of a statement and its rows: `rows` are a scan of a table, the rows of a table function, or data."""

    reference: Reference
    rows: Any


class Sources:
    """The tables that statements may name, each opened once.

    `tables` maps names to a `Table`, the URI of one, a scan, or data with the Arrow stream protocol. Names are found in
    any case. Without a session a name that it lacks may be that of a variable. Raises `InvalidOption` for a name that
    is not a plain word.
    """

    def __init__(self, tables: Mapping[str, Any] | None, calls: TableCalls, spark: SparkSession | None) -> None:
        if tables is not None and not isinstance(tables, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(
                f"sql() takes a dict of names and tables as tables, not {type(tables).__name__}",
                hint="for example tables={'trips': 's3://lake/trips'}",
            )
        self._named_tables = {checked_name(name): table for name, table in (tables or {}).items()}
        self.calls = calls
        self.names = calls.names
        sessions = (
            source.opened.spark if isinstance(source, Table) else session_of(source)
            for source in self._named_tables.values()
        )
        self.session = (
            spark if spark is not None else next((session for session in sessions if session is not None), None)
        )
        """The session of the statement, else that of the first table that was opened with one, or of a DataFrame."""
        self._tables: dict[str, Table] = {}
        # the rows of a table at one instant are of one view in the complete statement
        self._scans: dict[tuple[int, str | None], Scan] = {}

    def opened(self, uri: str) -> Table:
        """The table at a URI, with the session of the statement."""
        return self.calls.open(uri, spark=self.session)

    def uri_of(self, reference: Reference) -> str | None:
        """The URI of lakebed's table that a reference means, or its name in the warehouse; the table need not exist
        yet. None for data, and for a name that is neither in `tables`, nor in the warehouse, nor in
        `lakebed.spark.create_views`."""
        source = self._source(reference)
        if source is None:
            if reference.in_database:
                return self._name_in_warehouse(reference)
            names = {} if self.session is None else registered.get(self.session, {})
            return reference.name if reference.is_uri else names.get(reference.name.lower())
        if isinstance(source, Table):
            return source.uri
        return str(source) if isinstance(source, str | PurePath) else None

    def table(self, reference: Reference) -> Table | None:
        """The table that a reference means, with the session of the statement; None if `uri_of` is None.

        Raises `TableNotFound` if there is none at its URI.
        """
        source = self._source(reference)
        if isinstance(source, Table) and (self.session is None or source.opened.spark is not None):
            return source
        uri = self.uri_of(reference)
        return None if uri is None else self.opened(uri)

    def _source(self, reference: Reference) -> Any:
        """The object in `tables` with the name of a reference, else the variable of that name; None if there is
        none."""
        source = self._named_tables.get(reference.name.lower())
        if source is None and self.session is None and not (reference.is_uri or reference.in_database):
            return self.calls.variables(reference.name)
        return source

    def new_name(self, reference: Reference) -> str | None:
        """The name in the warehouse for a table that a statement creates; None without a warehouse, and for a name
        without a database."""
        if self.names is None or not reference.in_database or self._source(reference) is not None:
            return None
        return str(self.names.parse(reference.name.lower()))

    def _name_in_warehouse(self, reference: Reference) -> str | None:
        """The name of a reference in the warehouse; None without one, for the schemas of DuckDB, and with a session for
        a name that the warehouse does not have, which is left to Spark."""
        name = reference.name.lower()
        if self.names is None or name.partition(".")[0] in SCHEMAS_OF_ENGINE:
            return None
        if self.session is not None:
            with suppress(InvalidOption):
                if self.names.has(self.names.parse(name)):
                    return name
            return None
        return str(self.names.parse(name))

    def of(self, statement: Statement) -> list[Source]:
        """The sources of all references of a statement. Names that are not in `tables` are left to the engine.

        Raises `TableNotFound` for a URI without a table, `InvalidOption` for a time outside a table's history.
        """
        pairs = [(reference, self._rows(statement, reference)) for reference in statement.references]
        return [Source(reference, rows) for reference, rows in pairs if rows is not None]

    def _rows(self, statement: Statement, reference: Reference) -> Any:
        table = self.named(reference)
        if table is None and reference.in_database and self.session is not None:
            return None  # a table of one of Spark's catalogs
        if table is None and (reference.function or reference.as_of is not None):
            raise InvalidOption(
                f"the SQL text near {statement.text[reference.start :][:30]!r} names the table {reference.name!r},"
                " which tables= lacks",
                hint=did_you_mean(reference.name, list(self._named_tables), "it has")
                if self._named_tables
                else "give it: tables={'name': uri}",
            )
        if isinstance(table, Table):
            if reference.function:
                return function_rows(table, reference.function, reference.arguments, self._data)
            key = (id(table), reference.as_of)
            if key not in self._scans:
                self._scans[key] = table.scan(as_of=reference.as_of)
            return self._scans[key]
        if reference.function or (reference.as_of is not None and table is not None):
            raise InvalidOption(
                f"{reference.name!r} in the SQL text is no table of lakebed, and has no earlier state",
                hint="give a Table or a URI in tables=",
            )
        return table

    def _data(self, name: str) -> Any:
        """The table, or the data, with this name or URI."""
        rows = self.named(Reference(0, 0, name, "/" in name, in_database=is_name(name)))
        if rows is None:
            raise InvalidOption(
                f"there is no table {name!r} of queries", hint="give it in tables={'name': ...}, or name its URI"
            )
        return rows

    def named(self, reference: Reference) -> Any:
        """The object that a reference names: a `Table`, a scan or data; None if the name is left to the engine."""
        source = self._source(reference)
        if source is None or isinstance(source, str | PurePath):
            is_table = reference.is_uri or reference.in_database or source is not None
            uri = self.uri_of(reference) if is_table else None
            if uri is None:
                return None
            if uri not in self._tables:
                self._tables[uri] = self.opened(uri)
            return self._tables[uri]
        return source


def foreign_table_error(kind: str, reference: Reference) -> InvalidOption:
    """The error for a statement about a table that is not one of lakebed."""
    return InvalidOption(
        f"the {kind} names the table {reference.name!r}, which is no table of lakebed",
        hint="give a Table or a URI in tables={'name': ...}, or write the URI in quotes",
        context={"table": reference.name},
    )


def checked_name(name: object) -> str:
    """A name of `tables` in lower case. Raises `InvalidOption` if it is not a plain word."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidOption(
            f"{name!r} is no name of a table in SQL",
            hint="take letters, digits and underscores, e.g. tables={'trips': ...}",
            context={"argument": "tables"},
        )
    return name.lower()


def function_rows(
    table: Table, function: str, arguments: Sequence[str], data_of: Callable[[str], Any]
) -> Results | View | pa.Table:
    """The rows of a table function on a table; `data_of` gives another table that the arguments name."""
    if function.startswith("hudi_vector_search"):
        from lakebed.statements.searches import SEARCH, batch_rows, search_rows

        if function == SEARCH:
            return search_rows(table, arguments)
        return batch_rows(table, arguments, data_of(arguments[1]) if len(arguments) > 1 else None)
    if function == "hudi_text_search":
        from lakebed.statements.searches import text_rows

        return text_rows(table, arguments)
    start = arguments[0] if arguments else "000"
    end = arguments[1] if len(arguments) > 1 else None
    match function:
        case "lakebed_changes":
            return table.changes(start, end)
        case "lakebed_cdc":
            return table.cdc(start, end, images="json")
        case "lakebed_timeline":
            return table.timeline
        case _:
            return table.files


def alias_of(source: Source) -> str:
    """The SQL text ` AS name` to put after the placeholder that replaces a table's name, so that columns can still be
    called by that name; empty if the statement gives the table an alias, or the name cannot be one."""
    reference = source.reference
    name = reference.function or re.split(r"[/\\.]", reference.name.rstrip("/"))[-1]
    return f" AS {name}" if not reference.alias and re.fullmatch(r"[^\W\d]\w*", name) else ""
