"""A query of a SQL database as a source, by a column that grows: PostgreSQL, SQLite, and any other by its driver.

The checkpoint is the greatest value of the column as text, as in Hudi. Rows with just this value are read again: after
a line break the checkpoint has their fingerprint, so that another row with the same value is still new.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import xxhash

from lakebed.errors import InvalidOption, InvalidRecord, SourceError, UnsupportedFeature
from lakebed.ingestion.description import build
from lakebed.ingestion.source import IngestPoll, IngestSource
from lakebed.inputs.inference import has_large
from lakebed.inputs.python_rows import refuse_values
from lakebed.schema.arrow import MAX_PRECISION
from lakebed.schema.assignment import check_finite
from lakebed.schema.type_names import typed_columns
from lakebed.secrets import masked_repr
from lakebed.wording import count_text

_DRIVERS = {
    "postgresql": "adbc_driver_postgresql.dbapi",
    "postgres": "adbc_driver_postgresql.dbapi",
    "sqlite": "adbc_driver_sqlite.dbapi",
}
_IS_LAST = "lakebed_is_last"
_VIEW = "lakebed_columns"
_ROWS_OF_A_BATCH = "adbc.sqlite.query.batch_rows"
_ALL_ROWS = (1 << 31) - 100
_DECIMAL = re.compile(r"(?:DEC|NUM)[A-Z]*\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_AFFINITIES: tuple[tuple[tuple[str, ...], pa.DataType], ...] = (
    (("INT",), pa.int64()),
    (("CHAR", "CLOB", "TEXT"), pa.string()),
    (("BLOB",), pa.binary()),
    (("REAL", "FLOA", "DOUB", "NUMERIC", "DECIMAL"), pa.float64()),
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


@dataclass(frozen=True, repr=False)
class SqlSettings:
    """The settings of `kind = "sql"`. `uri` is `postgresql://...` or `sqlite:///path`. The rows are those of `table` or
    `query`, read by `column`, whose value grows with each insert and update. With `on_null` "skip" rows in which it is
    null are left out, since no checkpoint finds them. `columns` are types by column. `driver` is a module of Python's
    DB-API for other databases; `driver_options` are keyword arguments of its `connect`."""

    uri: str
    column: str
    table: str | None = None
    query: str | None = None
    on_null: str = "fail"
    columns: dict[str, Any] = field(default_factory=dict[str, Any])
    driver: str | None = None
    driver_options: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    __repr__ = masked_repr


class SqlSource(IngestSource):
    """A source that reads the rows of a SQL query, ordered by a column that grows."""

    repeats_rows = True

    def __init__(self, settings: SqlSettings) -> None:
        if (settings.table is None) == (settings.query is None):
            raise InvalidOption("[source] names table and query, or neither", hint="give one of them")
        if settings.on_null not in ("fail", "skip"):
            raise InvalidOption(f"[source] on_null is {settings.on_null!r}", hint="it is one of fail, skip")
        for name in ("table", "column"):
            value = getattr(settings, name)
            if value is not None and not _NAME.fullmatch(value):
                raise InvalidOption(f"[source] {name} is {value!r}", hint="give a plain name, or write a query")
        self._settings = settings
        self._columns = typed_columns(settings.columns)
        self._rows = f"(SELECT * FROM {settings.table})" if settings.query is None else f"({settings.query})"
        self._driver = _driver_of(settings)
        self._connection: Any = None
        self._nulls_checked = settings.on_null == "skip"
        self._is_number: bool | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SqlSource:
        """The source of a description."""
        return cls(build(SqlSettings, values, "[source]"))

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        column = self._settings.column
        if not self._nulls_checked:
            self._check_nulls()
        if self._is_number is None:
            example = self._read(f"SELECT {column} AS c FROM {self._rows} AS source WHERE {column} IS NOT NULL LIMIT 1")
            if not example.num_rows:
                return IngestPoll(None, None, checkpoint)
            self._is_number = pt.is_integer(example.column(0).type) or pt.is_floating(example.column(0).type)
        last, _, fingerprint = (checkpoint or "").partition("\n")
        after = "" if checkpoint is None else f" WHERE {column} > {self._literal(last)}"
        bounded = f"SELECT {column} AS c FROM {self._rows} AS source{after} ORDER BY {column} LIMIT {int(limit)}"
        table = self._read(f"SELECT MAX(c) AS c, COUNT(c) AS n FROM ({bounded}) AS bounded")
        greatest, count = (name[0].as_py() for name in table.columns)
        value = last if greatest is None else _text(greatest)
        if checkpoint is None and greatest is None:
            return IngestPoll(None, None, None)
        lower = "" if checkpoint is None else f"{column} >= {self._literal(last)} AND "
        upper = self._literal(value)
        # the database decides which rows have the greatest value: it may order and compare texts in its own way
        is_last = f"CASE WHEN {column} = {upper} THEN 1 ELSE 0 END AS {_IS_LAST}"
        selected = f"FROM {self._rows} AS source WHERE {lower}{column} <= {upper}"
        table = self._read(f"SELECT source.*, {is_last} {selected}")
        declared = self._declared_types() if self._is_sqlite else {}
        if self._is_sqlite and (listed := self._texts_of_reals(table.drop_columns([_IS_LAST]), declared, selected)):
            table = self._read(f"SELECT {listed}, {is_last} {selected}")
        rows = self._typed(table.drop_columns([_IS_LAST]), declared)
        fresh = f"{value}\n{_fingerprint(rows.filter(pc.equal(table.column(_IS_LAST), 1)))}"
        if fresh == checkpoint or (greatest is None and not fingerprint):
            return IngestPoll(None, None, checkpoint)
        return IngestPoll(rows, None, fresh, more=count >= limit)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _literal(self, text: str) -> str:
        """A value of the column as SQL. A number is not quoted, since SQLite compares an expression with a text as
        texts."""
        if not self._is_number:
            return "'" + text.replace("'", "''") + "'"
        try:
            return repr(float(text)) if "." in text or "e" in text.lower() else str(int(text))
        except ValueError as error:
            raise InvalidOption(
                f"the checkpoint {text!r} is no number, and the column {self._settings.column} has numbers",
                hint="--ignore-checkpoint starts again",
                context={"checkpoint": text},
            ) from error

    def _check_nulls(self) -> None:
        column = self._settings.column
        table = self._read(f"SELECT COUNT(*) AS n FROM {self._rows} AS source WHERE {column} IS NULL")
        count = table.column(0)[0].as_py()
        if count:
            raise InvalidRecord(
                f"{count_text(count, 'row')} of the source have null in {column}, by which rows are found",
                hint='give them a value, or leave them out: on_null = "skip"',
                context={"column": column, "count": count},
            )
        self._nulls_checked = True

    def _texts_of_reals(self, rows: pa.Table, declared: Mapping[str, pa.DataType], selected: str) -> str:
        """The columns as SQL, in which fractions in columns of texts and other values are texts of the same numbers:
        the driver writes seven digits. Empty if there are none."""
        mixed = [
            name
            for name, column in zip(rows.column_names, rows.columns, strict=True)
            if (pt.is_string(column.type) or pt.is_binary(column.type)) and declared.get(name) != pa.string()
        ]
        if not mixed:
            return ""
        has = ", ".join(f"MAX(typeof({_quoted(name)}) = 'real') AS {_quoted(name)}" for name in mixed)
        flags = self._read(f"SELECT {has} {selected}")
        columns = {name: _quoted(name) for name in rows.column_names}
        for name in [name for name in mixed if flags.column(name)[0].as_py()]:
            value = _quoted(name)
            short = f"CAST({value} AS TEXT)"
            exact = f"CASE WHEN CAST({short} AS REAL) = {value} THEN {short} ELSE printf('%!.17g', {value}) END"
            columns[name] = f"CASE WHEN typeof({value}) = 'real' THEN {exact} ELSE {value} END AS {value}"
        return ", ".join(columns.values()) if any(flags.column(name)[0].as_py() for name in mixed) else ""

    def _typed(self, rows: pa.Table, declared: Mapping[str, pa.DataType]) -> pa.Table:
        kinds = self._types_of(rows, declared)
        for at, name in enumerate(rows.column_names):
            column = rows.column(name)
            if isinstance(column.type, pa.BaseExtensionType):  # a type of the database that Arrow does not have
                column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
            kind = kinds.get(name)
            if self._is_sqlite and pt.is_floating(column.type) and has_large(column):
                self._check_exact(name)
            try:
                if kind is not None and column.null_count == len(column):
                    column = pa.chunked_array([pa.nulls(len(column))])
                elif kind is not None and pt.is_decimal(kind):
                    column = column.cast(pa.string())  # the digits that a number shows
                typed = column if kind is None else column.cast(kind)
                if kind is not None and pt.is_floating(kind):
                    check_finite(typed, column)
                rows = rows.set_column(at, name, typed)
            except pa.ArrowException as error:
                raise InvalidRecord(
                    f"column {name} of the source has a value that is no {kind}: {error}",
                    hint="name another type in [source] columns",
                    context={"column": name},
                ) from error
        return rows

    def _check_exact(self, name: str) -> None:
        """Raise `InvalidRecord` if a column has fractions and whole numbers that are not exact as floating-point
        numbers, as which the driver reads all numbers of such a column."""
        quoted = _quoted(name)
        changes = f"typeof({quoted}) = 'integer' AND (CAST(CAST({quoted} AS REAL) AS INTEGER) <> {quoted}"
        # SQLite makes the greatest number again of the double that is greater by one
        changes += f" OR {quoted} = 9223372036854775807) LIMIT 1"
        rows = self._read(f"SELECT {quoted} AS c FROM {self._rows} AS source WHERE {changes}")
        if rows.num_rows:
            raise InvalidRecord(
                f"column {name} of the source has fractions and {rows.column(0)[0]}, which no DOUBLE is",
                hint=f"read it as text: query = 'SELECT ..., CAST({name} AS TEXT) AS {name} FROM ...'",
                context={"column": name},
            )

    def _types_of(self, rows: pa.Table, declared: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """The types of columns: those that the job names, and in SQLite, whose values are typed individually, the
        table's types for columns of numbers or only nulls, and the declared types for new columns. A new column without
        a declared type is text if it has only nulls."""
        kinds: dict[str, pa.DataType] = {}
        for name in rows.column_names if self._is_sqlite else ():
            stored, column = self.types.get(name), rows.column(name)
            numbers = (pt.is_integer, pt.is_floating, pt.is_decimal)
            if stored is None:
                if name in declared or column.null_count == len(column):
                    kinds[name] = declared.get(name, pa.string())
            elif column.null_count == len(column) or all(any(t(k) for t in numbers) for k in (column.type, stored)):
                kinds[name] = stored
        return kinds | self._columns

    # -- the database

    def _declared_types(self) -> dict[str, pa.DataType]:
        """The declared types of the columns in SQLite, which has no other types before it has read the rows."""
        with suppress(SourceError):  # a query that no view is made of
            columns = self._read(
                f"SELECT name, type FROM pragma_table_info('{_VIEW}')",
                f"CREATE TEMP VIEW {_VIEW} AS SELECT * FROM {self._rows}",
            )
            pairs = zip(columns.column("name").to_pylist(), columns.column("type").to_pylist(), strict=True)
            kinds = {name: _declared_type(text or "") for name, text in pairs}
            if pa.binary() in kinds.values():  # which a view says of columns without a type, too
                untyped = self._read(
                    "SELECT c.name AS name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c"
                    " WHERE t.type = 'table' GROUP BY c.name HAVING MAX(c.type) = ''"
                )
                names = set(untyped.column("name").to_pylist())
                kinds = {n: None if n in names and kind == pa.binary() else kind for n, kind in kinds.items()}
            return {name: kind for name, kind in kinds.items() if kind is not None}
        return {}

    @property
    def _is_sqlite(self) -> bool:
        return self._driver.__name__ == _DRIVERS["sqlite"]

    def _read(self, query: str, before: str | None = None) -> pa.Table:
        """The rows of a query; the statement `before`, which runs first, is rolled back."""
        with self._failures():
            if self._connection is None:
                self._connection = self._connected()
            cursor = self._connection.cursor()
            try:
                if before is not None:
                    cursor.execute(before)
                if self._is_sqlite:  # the types of columns follow from all rows
                    cursor.adbc_statement.set_options(**{_ROWS_OF_A_BATCH: str(_ALL_ROWS)})
                cursor.execute(query)
                if hasattr(cursor, "fetch_arrow_table"):
                    return cursor.fetch_arrow_table()
                names = [column[0] for column in cursor.description]
                values = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
                return _table(dict(zip(names, map(list, values), strict=True)))
            finally:
                cursor.close()
                self._connection.rollback()  # the next query sees what was committed since

    def _connected(self) -> Any:
        uri = self._settings.uri
        if urlsplit(uri).scheme == "sqlite" and self._settings.driver is None:
            uri = uri.removeprefix("sqlite:///")  # sqlite:///relative.db, sqlite:////absolute.db
        return self._driver.connect(uri, **self._settings.driver_options)

    @contextmanager
    def _failures(self) -> Generator[None]:
        try:
            yield
        except (self._driver.Error, OSError, pa.ArrowException) as error:
            if self._connection is not None:
                with suppress(self._driver.Error):  # it is broken
                    self._connection.close()
                self._connection = None
            password = urlsplit(self._settings.uri).password
            text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            text = text.replace(password, "***") if password else text
            passes = isinstance(error, (self._driver.OperationalError, self._driver.InterfaceError))
            raise SourceError(
                f"the database does not answer the query: {text}",
                hint="nothing was committed; see the query, and whether the database runs",
                context={"retryable": passes},
            ) from error


def _driver_of(settings: SqlSettings) -> Any:
    scheme = urlsplit(settings.uri).scheme
    name = settings.driver or _DRIVERS.get(scheme)
    if name is None:
        raise InvalidOption(
            f"[source] uri begins with {scheme or 'nothing'}://, for which no driver is known",
            hint="it is postgresql:// or sqlite://; name a module of the DB-API for others: driver = ...",
        )
    try:
        return import_module(name)
    except ImportError as error:
        hint = "pip install 'lakebed[sql]'" if settings.driver is None else f"pip install what has the module {name}"
        raise UnsupportedFeature(f"the driver {name} is not installed", hint=hint) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _declared_type(text: str) -> pa.DataType | None:
    """The type that a declaration of SQLite means, by its rules of affinity; None if values may be of several types."""
    upper = text.upper()
    decimal = _DECIMAL.search(upper)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2] or 0)
        return pa.decimal128(precision, scale) if scale <= precision <= MAX_PRECISION else pa.float64()
    for words, kind in _AFFINITIES:
        if any(word in upper for word in words):
            return kind
    return None


def _table(columns: Mapping[str, list[Any]]) -> pa.Table:
    """The values of a driver as a table. Raises `SchemaConflict` or `InvalidRecord` if a column has no common type."""
    arrays: dict[str, pa.Array] = {}
    for name, values in columns.items():
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            refuse_values(name, values)
            raise InvalidRecord(f"column {name} of the source: {error}", hint="cast it in the query") from error
    return pa.table(arrays)


def _fingerprint(rows: pa.Table) -> str:
    """A hash of the rows, independent of their order."""
    texts = [_texts(column) for column in rows.columns]
    lines = pc.binary_join_element_wise(*texts, "\x1f", null_handling="replace", null_replacement="\x00")
    ordered = pa.concat_arrays(lines.take(pc.sort_indices(lines)).chunks)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(ordered)], pa.int32()), ordered), "\x1e")
    return xxhash.xxh3_128_hexdigest(joined[0].as_buffer())


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return repr(value) if isinstance(value, float) else str(value)


def _texts(column: Any) -> Any:
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
