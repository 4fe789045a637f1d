"""CREATE, DROP, TRUNCATE and ALTER TABLE: what their texts mean, as calls of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa

from lakebed.config.creation import ARGUMENTS, SPELLINGS, argument_name, argument_value
from lakebed.config.option_table import canonical
from lakebed.engine.spark_session import zone_of
from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from lakebed.filters.sql import outside_parentheses
from lakebed.schema.column_changes import ColumnChange, changed, field_at
from lakebed.schema.column_names import did_you_mean, near_or_nothing
from lakebed.schema.type_names import column_type
from lakebed.services.rename import rename_in_warehouse
from lakebed.statements.commands import (
    Command,
    CommandCursor,
    Query,
    exactly,
    paths_with_values,
    table_of,
    text_of,
)
from lakebed.statements.parts import Parts, QueryText
from lakebed.statements.sources import Sources
from lakebed.statements.statement import Reference, Statement
from lakebed.table import Table

PROVIDERS = ("LAKEBED", "HUDI")
# Words that end a column's type.
_AFTER_TYPE = ("NOT", "NULL", "COMMENT", "DEFAULT", "GENERATED", "FIRST", "AFTER", "PRIMARY", "UNIQUE")
# Words that end the value after DEFAULT.
_AFTER_DEFAULT = ("NOT", "NULL", "COMMENT", "GENERATED", "FIRST", "AFTER")
_CREATE = (
    "write CREATE TABLE [IF NOT EXISTS] t (column type, ...) USING lakebed PARTITIONED BY (column) LOCATION 'uri'"
    " TBLPROPERTIES (primaryKey = 'column'), or AS SELECT in place of the columns"
)
_CLONE = "write CREATE TABLE [IF NOT EXISTS] t SHALLOW CLONE other, or DEEP CLONE other, with LOCATION 'uri'"
# The words of such a CREATE are among the first: CREATE OR REPLACE TABLE IF NOT EXISTS catalog.db.table SHALLOW CLONE.
_CLONE_WITHIN = 16
_DROP = "write DROP TABLE [IF EXISTS] t"
_TRUNCATE = "write TRUNCATE TABLE t, or TRUNCATE TABLE t PARTITION (column = value)"
_ALTER = (
    "write ALTER TABLE t ADD COLUMNS (column type), DROP COLUMN c, RENAME COLUMN a TO b, ALTER COLUMN c TYPE type,"
    " ALTER COLUMN c COMMENT 'text', ALTER COLUMN c FIRST, SET TBLPROPERTIES (key = value),"
    " UNSET TBLPROPERTIES (key), ADD CONSTRAINT name CHECK (condition), DROP CONSTRAINT name,"
    " ALTER COLUMN c SET NOT NULL, DROP PARTITION (column = value) or RENAME TO db.table"
)


def parse_definition(statement: Statement, sources: Sources) -> Command | None:
    """The command of a statement that defines a table; None for a statement that is not one of lakebed.

    Raises `InvalidOption` for a text that is not such a statement; it names the place.
    """
    kind = statement.word(0)
    forms = {"CREATE": _CREATE, "DROP": _DROP, "TRUNCATE": _TRUNCATE, "ALTER": _ALTER}
    cursor = CommandCursor(statement, forms[kind], zone=zone_of(sources.session), sources=sources)
    if kind == "CREATE":
        return _create(cursor)
    if not cursor.takes(kind, "TABLE"):
        return None
    if_exists = cursor.takes("IF", "EXISTS")
    if if_exists and kind != "DROP":
        raise cursor.wrong(2, f"{kind} TABLE has no IF EXISTS")
    table = cursor.target()
    if kind == "DROP":
        cursor.takes("PURGE")
        cursor.end()
        return DropTable(table, if_exists)
    cursor.check_parentheses()
    if kind == "ALTER":
        return _alter(cursor, table)
    values = cursor.partition()
    cursor.end()
    return TruncateTable(table, values)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE: creates a table of these columns, or of the rows of a query."""

    table: Reference
    uri: str | None
    columns: tuple[ColumnText, ...]
    partition_by: tuple[str, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    properties: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    query: QueryText | None = None
    if_not_exists: bool = False

    def run(self, sources: Sources, query: Query) -> Table:
        calls, uri = sources.calls, _new_uri(self.table, self.uri)
        if self.if_not_exists and calls.exists(uri):
            return sources.opened(uri)
        arguments = {
            **self.arguments,
            "partition_by": list(self.partition_by),
            "properties": self.properties,
            "spark": sources.session,
        }
        if self.query is not None:
            return calls.load(uri, query(self.query), **arguments)
        values = {
            "defaults": {column.name: column.default for column in self.columns if column.default},
            "generated": {column.name: column.generated for column in self.columns if column.generated},
        }
        return calls.create(uri, pa.schema([column.field for column in self.columns]), **arguments, **values)


@dataclass(frozen=True, slots=True)
class CloneTable:
    """CREATE TABLE CLONE: creates a table with the rows of another one, without or with a copy of them."""

    table: Reference
    uri: str | None
    source: Reference
    deep: bool
    if_not_exists: bool = False

    def run(self, sources: Sources, query: Query) -> Table:
        uri = _new_uri(self.table, self.uri)
        if self.if_not_exists and sources.calls.exists(uri):
            return sources.opened(uri)
        return table_of(sources, self.source).clone(uri, deep=self.deep)


def _new_uri(table: Reference, uri: str | None) -> str:
    """The URI of a table that is created. Raises `InvalidOption` where nothing says it."""
    if uri is None:
        raise InvalidOption(
            f"the CREATE names the table {table.name!r}, and nothing says where it is to be",
            hint=f"give LOCATION 'uri', tables={{{table.name!r}: 'uri'}}, or name it lakebed.`uri`",
            context={"table": table.name},
        )
    return uri


@dataclass(frozen=True, slots=True)
class ColumnText:
    """A column in the form of a statement."""

    name: str
    type: str
    comment: str = ""
    nullable: bool = True
    default: str = ""
    generated: str = ""

    @property
    def field(self) -> pa.Field:
        """The column. Raises `SchemaConflict` for an invalid type."""
        metadata = {"comment": self.comment} if self.comment else None
        return pa.field(self.name, column_type(self.type, self.name), self.nullable, metadata)


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE: deletes a table, and returns the files in its folder that do not belong to it."""

    table: Reference
    if_exists: bool = False

    def run(self, sources: Sources, query: Query) -> list[str]:
        return sources.calls.drop(sources.uri_of(self.table), missing_ok=self.if_exists)


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """TRUNCATE TABLE, and DROP PARTITION: deletes all rows, or those of the partition paths with these values."""

    table: Reference
    values: dict[str, Any]
    missing_ok: bool = False

    def run(self, sources: Sources, query: Query) -> Any:
        table = table_of(sources, self.table)
        paths = paths_with_values(table, self.values) if self.values else list(table.partitions)
        if paths:
            return table.delete_partitions(exactly(paths, table))
        if self.values and not self.missing_ok:
            conditions = ", ".join(f"{name} = {value!r}" for name, value in self.values.items())
            near = near_or_nothing("/".join(map(str, self.values.values())), table.partitions)
            raise InvalidOption(
                f"table {table.name!r} has no partition with {conditions}",
                hint=f"{near}It has {', '.join(map(repr, table.partitions[:5])) or 'none'}",
            )
        return table.delete([])


@dataclass(frozen=True, slots=True)
class AlterColumns:
    """ALTER TABLE for columns: each change is a separate commit; all are checked before the first."""

    table: Reference
    changes: tuple[ColumnChange, ...]

    def run(self, sources: Sources, query: Query) -> Any:
        table = table_of(sources, self.table)
        schema, needed = table.schema, list[ColumnChange]()
        for change in self.changes:
            if change.verb == "widen":
                column = field_at(schema, change.column)
                if column.type == column_type(change.type, change.column):
                    continue
            schema = changed(schema, change).schema
            needed.append(change)
        results: list[Any] = []
        for change in needed:
            try:
                results.append(_apply(table, change))
            except LakebedError as error:
                if results:
                    error.add_note(f"done before it: {'; '.join(result.change for result in results)}")
                raise
        return results[-1] if results else table.columns


@dataclass(frozen=True, slots=True)
class RenameTable:
    """ALTER TABLE RENAME TO: gives a table of the warehouse another name."""

    table: Reference
    to: str

    def run(self, sources: Sources, query: Query) -> Table:
        names = sources.names
        assert names is not None, "the reference was checked when the statement was read"
        to = str(names.parse(self.to.lower()))
        rename_in_warehouse(names, names.parse(self.table.name.lower()), names.parse(to))
        return sources.opened(to)


@dataclass(frozen=True, slots=True)
class AlterChecks:
    """ADD CONSTRAINT, DROP CONSTRAINT, SET NOT NULL and DROP NOT NULL: `name` is that of the constraint or the
    column."""

    table: Reference
    verb: Literal["add", "drop", "require", "drop_required"]
    name: str
    condition: str = ""
    missing_ok: bool = False

    def run(self, sources: Sources, query: Query) -> Any:
        checks = table_of(sources, self.table).checks
        match self.verb:
            case "add":
                return checks.add(self.name, self.condition)
            case "drop":
                named = {check.name.lower() for check in checks}
                return checks if self.missing_ok and self.name.lower() not in named else checks.drop(self.name)
            case "require":
                return checks.require(self.name)
            case "drop_required":
                return checks.drop_required(self.name)


@dataclass(frozen=True, slots=True)
class AlterDefault:
    """ALTER COLUMN SET DEFAULT and DROP DEFAULT; `value` is None for the latter."""

    table: Reference
    column: str
    value: str | None

    def run(self, sources: Sources, query: Query) -> Any:
        columns = table_of(sources, self.table).columns
        return columns.drop_default(self.column) if self.value is None else columns.set_default(self.column, self.value)


@dataclass(frozen=True, slots=True)
class SetProperties:
    """ALTER TABLE SET and UNSET TBLPROPERTIES: None removes a setting."""

    table: Reference
    settings: dict[str, str | None]

    def run(self, sources: Sources, query: Query) -> Any:
        return table_of(sources, self.table).configure(self.settings)


def provider_of(statement: Statement) -> str:
    """The word after USING in a CREATE, in upper case; empty without one.

    >>> from lakebed.statements.statement import parse_statement
    >>> provider_of(parse_statement("create table sales.orders (id bigint) using lakebed", is_spark=True))
    'LAKEBED'
    """
    parts = Parts(statement, _CREATE)
    using = parts.find("USING", 0)
    return "" if using is None else statement.word(using + 1)


def is_hudi_table_of_spark(statement: Statement) -> bool:
    """Whether a CREATE TABLE USING hudi names its table by a single word.

    >>> from lakebed.statements.statement import parse_statement
    >>> texts = ("create table orders using hudi as select 1", "create table sales.orders using hudi as select 1")
    >>> [is_hudi_table_of_spark(parse_statement(text, is_spark=True)) for text in texts]
    [True, False]
    """
    if statement.word(0) != "CREATE" or provider_of(statement) != "HUDI":
        return False
    at = statement.words.index("TABLE") + 1
    at += 3 * (statement.words[at : at + 3] == ("IF", "NOT", "EXISTS"))
    table = statement.reference_at(at, takes_columns=True)
    return table is not None and not (table.in_database or table.is_uri)


def _create(cursor: CommandCursor) -> CreateTable | CloneTable | None:
    statement = cursor.statement
    if "TABLE" not in (statement.word(1), statement.word(2), statement.word(3)):
        return None
    if any(words in (("SHALLOW", "CLONE"), ("DEEP", "CLONE")) for words in pairwise(statement.words[:_CLONE_WITHIN])):
        return _clone(cursor)
    if cursor.sources.session is None:
        cursor.check_parentheses()
    if provider_of(statement) not in PROVIDERS:
        if cursor.sources.session is None:  # else it may be a table of another provider
            raise cursor.wrong(0, "USING lakebed is missing")
        return None
    cursor.check_parentheses()
    cursor.needs("CREATE")
    if cursor.takes("OR", "REPLACE"):
        raise cursor.wrong(1, "OR REPLACE is not possible, and a DROP TABLE has to come first,")
    cursor.takes("EXTERNAL")
    cursor.needs("TABLE")
    if_not_exists = cursor.takes("IF", "NOT", "EXISTS")
    table = cursor.reference()
    columns = _columns(cursor, *cursor.enclosed("the columns")) if cursor.word == "(" else ()
    clauses = _Clauses(cursor)
    clauses.read()
    query = None
    if cursor.at < cursor.stop:
        cursor.takes("AS")
        query = cursor.query(cursor.at, cursor.stop)
        if columns or clauses.columns:
            raise cursor.wrong(cursor.at, "CREATE TABLE takes its columns from the query: leave theirs out")
    columns = (*columns, *clauses.columns)
    if not columns and query is None:
        raise cursor.wrong(cursor.stop, "the columns, or AS and a query, are missing")
    name = cursor.sources.new_name(table)
    if name is not None and clauses.location is not None:
        raise cursor.wrong(0, f"the table {name} of the warehouse has its place by its name: leave LOCATION out")
    uri = clauses.location or name or cursor.sources.uri_of(table)
    return CreateTable(
        table, uri, columns, clauses.partition_by, clauses.arguments, clauses.properties, query, if_not_exists
    )


def _clone(cursor: CommandCursor) -> CloneTable:
    """CREATE TABLE [IF NOT EXISTS] new {SHALLOW | DEEP} CLONE table [LOCATION 'uri']."""
    cursor.form = _CLONE
    cursor.needs("CREATE")
    if cursor.takes("OR", "REPLACE"):
        raise cursor.wrong(1, "OR REPLACE is not possible, and a DROP TABLE has to come first,")
    cursor.needs("TABLE")
    if_not_exists = cursor.takes("IF", "NOT", "EXISTS")
    table = cursor.reference()
    kind = cursor.takes_one("SHALLOW", "DEEP")
    if not kind:
        raise cursor.wrong(cursor.at, "SHALLOW CLONE or DEEP CLONE is missing")
    cursor.needs("CLONE")
    named = cursor.statement.reference_at(cursor.at, takes_columns=True)
    if named is not None and named.as_of is not None:
        raise cursor.wrong(cursor.at, "a clone has the rows that the table has now, and AS OF is not possible,")
    source = cursor.target()
    location = cursor.literal("LOCATION") if cursor.takes("LOCATION") else None
    cursor.end()
    name = cursor.sources.new_name(table)
    if name is not None and location is not None:
        raise cursor.wrong(0, f"the table {name} of the warehouse has its place by its name: leave LOCATION out")
    uri = location or name or cursor.sources.uri_of(table)
    return CloneTable(table, uri, source, kind == "DEEP", if_not_exists)


@dataclass
class _Clauses:
    """The clauses after the columns of CREATE TABLE, in any order."""

    cursor: CommandCursor
    location: str | None = None
    partition_by: tuple[str, ...] = ()
    columns: tuple[ColumnText, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    properties: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    def read(self) -> None:
        cursor, clauses = self.cursor, set[str]()
        while True:
            start = cursor.at
            if cursor.word in clauses:
                raise cursor.wrong(start, f"{cursor.word} is given twice")
            clauses |= {cursor.word} & {"USING", "PARTITIONED"}
            if cursor.takes("USING"):
                cursor.at += 1
            elif cursor.takes("PARTITIONED", "BY"):
                self._partitioned(*cursor.enclosed("the partition columns"))
            elif cursor.takes("LOCATION"):
                self._locate(start, cursor.literal("LOCATION"))
            elif cursor.takes("TBLPROPERTIES") or cursor.takes("OPTIONS"):
                self._properties(start)
            elif cursor.word == "COMMENT":
                raise cursor.wrong(start, "a table has no COMMENT; columns have")
            elif cursor.word in ("CLUSTERED", "CLUSTER", "SKEWED", "STORED", "ROW"):
                raise cursor.wrong(start, f"{cursor.word} is no clause of such a table (buckets are properties)")
            else:
                return

    def _partitioned(self, start: int, stop: int) -> None:
        cursor, after = self.cursor, self.cursor.at
        names: list[str] = []
        for first, last in cursor.listed(start, stop):
            if last == first + 1:
                names.append(cursor.path(first, last)[0])
            elif cursor.statement.word(first + 1) == "(":
                raise cursor.wrong(first, "a partition column is a column, and no function of one")
            else:
                (column,) = _columns(cursor, first, last)
                self.columns = (*self.columns, column)
                names.append(column.name)
        self.partition_by, cursor.at = tuple(names), after

    def _locate(self, start: int, location: Any) -> None:
        if not isinstance(location, str) or not location:
            raise self.cursor.wrong(start, "LOCATION takes a URI in quotes")
        if self.location not in (None, location):
            raise self.cursor.wrong(start, "there are two locations")
        self.location = location

    def _properties(self, start: int) -> None:
        for key, value in self.cursor.pairs("the properties").items():
            name = argument_name(key)
            text = text_of(value)
            if name == "path":
                self._locate(start, value)
            elif name in ARGUMENTS:
                if name in self.arguments:
                    raise self.cursor.wrong(start, f"{name} is given twice")
                self.arguments[name] = argument_value(name, text or "")
            elif key.lower().startswith(("hoodie.", "lakebed.")) or canonical(key) is not None:
                self.properties[key] = text
            else:
                raise InvalidOption(
                    f"{key!r} is no property of a table in the CREATE near {self.cursor.statement.near(start)}",
                    hint=did_you_mean(key, list(SPELLINGS), "keys begin with hoodie., or are"),
                    context={"property": key},
                )


def _columns(cursor: CommandCursor, start: int, stop: int) -> tuple[ColumnText, ...]:
    """The columns `name type [NOT NULL] [COMMENT 'text'] [DEFAULT value | GENERATED ALWAYS AS (expression)]` from token
    `start` up to token `stop`."""
    return tuple(_column(cursor, first, last)[0] for first, last in cursor.listed_with_types(start, stop))


def _column(cursor: CommandCursor, first: int, last: int) -> tuple[ColumnText, ColumnChange]:
    """A column of a list, and the change that adds it, with its position."""
    after, cursor.at = cursor.at, first
    name = cursor.name()
    cursor.takes(":")
    begin = cursor.at
    while cursor.at < last and cursor.word not in _AFTER_TYPE:
        cursor.at += 1
    kind = cursor.text(begin, cursor.at, f"the type of column {name!r}")
    nullable, comment, position, default, generated = True, "", _Position(), "", ""
    while cursor.at < last:
        if cursor.takes("NOT", "NULL"):
            nullable = False
        elif cursor.takes("NULL"):
            nullable = True
        elif not comment and cursor.takes("COMMENT"):
            comment = str(cursor.literal("the comment"))
        elif not default and cursor.takes("DEFAULT"):
            begin, words = cursor.at, cursor.statement.words
            ends = (at for at in outside_parentheses(words, begin) if at > begin and words[at] in _AFTER_DEFAULT)
            cursor.at = min(next(ends, last), last)
            default = cursor.text(begin, cursor.at, "the default")
        elif not generated and cursor.takes("GENERATED", "ALWAYS", "AS"):
            if cursor.word != "(":
                raise cursor.wrong(cursor.at, f"GENERATED ALWAYS AS takes (expression), column {name!r}")
            generated = cursor.text(*cursor.enclosed("the expression"), "the expression")
        elif not position.read(cursor):
            raise cursor.wrong(cursor.at, f"column {name!r} cannot have {cursor.word or 'this'}")
    cursor.at = after
    added = replace(position.change(name), type=kind, comment=comment or None, default=default or None)
    return ColumnText(name, kind, comment, nullable, default, generated), added


@dataclass
class _Position:
    """The position of a column: FIRST, or AFTER and a column."""

    first: bool = False
    after: str | None = None

    def change(self, name: str) -> ColumnChange:
        """The change that adds a column here."""
        return ColumnChange("add", name, after=self.after, first=self.first)

    def read(self, cursor: CommandCursor) -> bool:
        """Read a position if one comes next; returns whether one does."""
        if cursor.takes("FIRST"):
            self.first = True
        elif cursor.takes("AFTER"):
            self.after = cursor.name()
        else:
            return False
        return True


def _alter(cursor: CommandCursor, table: Reference) -> Command:
    start = cursor.at
    if cursor.takes("SET", "TBLPROPERTIES"):
        settings = {key: text_of(value) for key, value in cursor.pairs("the properties").items()}
        cursor.end()
        return SetProperties(table, settings)
    if cursor.takes("UNSET", "TBLPROPERTIES"):
        cursor.takes("IF", "EXISTS")
        first, last = cursor.enclosed("the properties")
        after, keys = cursor.at, list[str]()
        for start, stop in list(cursor.listed(first, last)):
            cursor.at = start
            keys.append(cursor.key())
            if cursor.at != stop:
                raise cursor.wrong(cursor.at, "UNSET takes keys alone")
        cursor.at = after
        cursor.end()
        return SetProperties(table, dict.fromkeys(keys))
    if cursor.takes("DROP", "PARTITION") or cursor.takes("DROP", "IF", "EXISTS", "PARTITION"):
        missing_ok = cursor.statement.word(cursor.at - 2) == "EXISTS"
        values = cursor.pairs("the columns of a partition")
        cursor.takes("PURGE")
        cursor.end()
        return TruncateTable(table, values, missing_ok)
    if cursor.takes("RENAME", "TO"):
        if not table.in_database:
            raise UnsupportedFeature(
                f"a table is named by its URI, and is not renamed ({cursor.statement.near(start)})",
                hint="give another name in tables={'name': uri}; in a warehouse: ALTER TABLE db.old RENAME TO db.new",
            )
        to = cursor.name("table")
        cursor.end()
        return RenameTable(table, to if "." in to else f"{table.name.rpartition('.')[0]}.{to}")
    constraint = _constraint(cursor, table)
    if constraint is not None:
        return constraint
    changes = tuple(_column_changes(cursor))
    if not changes:
        raise cursor.wrong(start, f"{cursor.word or 'nothing'} is no change of a table")
    cursor.end()
    return AlterColumns(table, changes)


def _constraint(cursor: CommandCursor, table: Reference) -> AlterChecks | AlterDefault | None:
    """The change of checks or of a default that comes next in an ALTER TABLE; None, with the cursor where it was, if
    another change does."""
    start = cursor.at
    if cursor.takes("ADD", "CONSTRAINT"):
        name = cursor.name("constraint")
        cursor.needs("CHECK")
        condition = cursor.text(*cursor.enclosed("the condition"), "the condition")
        cursor.takes("ENFORCED")
        cursor.end()
        return AlterChecks(table, "add", name, condition)
    if cursor.takes("DROP", "CONSTRAINT"):
        missing_ok = cursor.takes("IF", "EXISTS")
        name = cursor.name("constraint")
        cursor.end()
        return AlterChecks(table, "drop", name, missing_ok=missing_ok)
    if cursor.takes_one("ALTER", "CHANGE"):
        cursor.takes("COLUMN")
        column = cursor.name()
        verb = cursor.takes_one("SET", "DROP")
        if verb and cursor.takes("NOT", "NULL"):
            cursor.end()
            return AlterChecks(table, "require" if verb == "SET" else "drop_required", column)
        if verb and cursor.takes("DEFAULT"):
            value = cursor.text(cursor.at, cursor.stop, "the default") if verb == "SET" else None
            cursor.at = cursor.stop if verb == "SET" else cursor.at
            cursor.end()
            return AlterDefault(table, column, value)
    cursor.at = start
    return None


def _column_changes(cursor: CommandCursor) -> Iterator[ColumnChange]:
    if cursor.takes("ADD"):
        if not (cursor.takes("COLUMNS") or cursor.takes("COLUMN")):
            raise cursor.wrong(cursor.at, "COLUMNS is missing")
        first, last = cursor.enclosed("the columns") if cursor.word == "(" else (cursor.at, cursor.stop)
        for start, stop in cursor.listed_with_types(first, last):
            text, change = _column(cursor, start, stop)
            if not text.nullable:
                raise cursor.wrong(start, "a column that is added is null in the rows that there are")
            if text.generated:
                raise cursor.wrong(start, "a column that is added is not generated: the rows that there are lack it,")
            yield change
        cursor.at = max(cursor.at, last)
    elif cursor.takes("DROP"):
        if not (cursor.takes("COLUMNS") or cursor.takes("COLUMN")):
            raise cursor.wrong(cursor.at, "COLUMN is missing")
        for name in cursor.columns() if cursor.word == "(" else [cursor.name()]:
            yield ColumnChange("drop", name)
    elif cursor.takes("RENAME"):
        cursor.needs("COLUMN")
        name = cursor.name()
        cursor.needs("TO")
        yield ColumnChange("rename", name, name=cursor.name())
    elif cursor.takes("ALTER") or cursor.takes("CHANGE"):
        is_change = cursor.statement.word(cursor.at - 1) == "CHANGE"
        cursor.takes("COLUMN")
        name = cursor.name()
        is_hive = is_change and cursor.word not in ("TYPE", "COMMENT", "FIRST", "AFTER")
        yield from _redefined(cursor, name) if is_hive else _altered(cursor, name)


def _redefined(cursor: CommandCursor, name: str) -> Iterator[ColumnChange]:
    """The changes of `CHANGE COLUMN old new type [COMMENT 'text'] [FIRST | AFTER column]`."""
    text, add = _column(cursor, cursor.at, cursor.stop)
    cursor.at = cursor.stop
    if text.name.lower() != name.lower():
        yield ColumnChange("rename", name, name=text.name)
    yield ColumnChange("widen", text.name, text.type)
    if text.comment:
        yield ColumnChange("comment", text.name, comment=text.comment)
    if add.first or add.after is not None:
        yield ColumnChange("move", text.name, after=add.after, first=add.first)


def _altered(cursor: CommandCursor, name: str) -> Iterator[ColumnChange]:
    """The changes of `ALTER COLUMN c TYPE type | COMMENT 'text' | FIRST | AFTER column`."""
    clauses: set[str] = set()
    while cursor.at < cursor.stop:
        position = _Position()
        clause = "FIRST or AFTER" if cursor.word in ("FIRST", "AFTER") else cursor.word
        if clause in clauses:
            raise cursor.wrong(cursor.at, f"{clause} is given twice")
        clauses.add(clause)
        if cursor.takes("TYPE"):
            start = cursor.at
            while cursor.at < cursor.stop and cursor.word not in _AFTER_TYPE:
                cursor.at += 1
            yield ColumnChange("widen", name, cursor.text(start, cursor.at, "the type"))
        elif cursor.takes("COMMENT"):
            yield ColumnChange("comment", name, comment=str(cursor.literal("the comment")))
        elif position.read(cursor):
            yield ColumnChange("move", name, after=position.after, first=position.first)
        else:
            raise cursor.wrong(cursor.at, f"{cursor.word or 'this'} is no change of a column")


def _apply(table: Table, change: ColumnChange) -> Any:
    columns = table.columns
    match change.verb:
        case "add":
            name, comment, default = change.column, change.comment, change.default
            return columns.add(name, change.type, change.after, comment, first=change.first, default=default)
        case "drop":
            return columns.drop(change.column)
        case "rename":
            return columns.rename(change.column, change.name)
        case "widen":
            return columns.widen(change.column, change.type)
        case "comment":
            return columns.comment(change.column, change.comment or "")
        case "move":
            return columns.move(change.column, change.after, first=change.first)
