"""Statements about the names of a warehouse: SHOW TABLES, SHOW DATABASES, CREATE DATABASE; and DESCRIBE EXTENDED.

With a session the first two answer in Spark's columns, and Spark's own tables and databases are among the rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.engine.spark_session import zone_of
from lakebed.errors import UnsupportedFeature
from lakebed.expressions.base import quote_name, sql_literal
from lakebed.schema.spark import spark_type
from lakebed.statements.commands import Command, CommandCursor, ForSpark, Query, rows_of, table_of
from lakebed.statements.sources import Sources
from lakebed.statements.statement import Reference, Statement

if TYPE_CHECKING:
    from lakebed.catalog.warehouses import Names
    from lakebed.table import Table

_FORMS = {
    "SHOW TABLES": "write SHOW TABLES, or SHOW TABLES IN database LIKE 'ord*'",
    "SHOW TABLE": "write SHOW TABLE EXTENDED IN database LIKE 'ord*'",
    "SHOW DATABASES": "write SHOW DATABASES, or SHOW DATABASES LIKE 's*'",
    "CREATE DATABASE": "write CREATE DATABASE name, or CREATE DATABASE IF NOT EXISTS name",
    "DESCRIBE EXTENDED": "write DESCRIBE EXTENDED t",
    "DESCRIBE TABLE": "write DESCRIBE TABLE t, or DESCRIBE TABLE EXTENDED t",
    "SHOW TBLPROPERTIES": "write SHOW TBLPROPERTIES t",
    "SHOW COLUMNS": "write SHOW COLUMNS IN t",
}
# Statements of Spark that lakebed does not have, and what stands in their place.
_OTHERS = {
    "SHOW CREATE": "DESCRIBE EXTENDED t and SHOW TBLPROPERTIES t show what a table was created with",
    "DROP DATABASE": "DROP TABLE deletes its tables; what is left of an empty database is a folder of the warehouse",
}
_SAME_WORDS = {"SCHEMA": "DATABASE", "SCHEMAS": "DATABASES", "DESC": "DESCRIBE", "FORMATTED": "EXTENDED"}


def parse_database(statement: Statement, sources: Sources) -> Command | None:
    """The command of a statement about the names of the warehouse, or DESCRIBE EXTENDED of a table of lakebed; None for
    any other. With a session CREATE DATABASE is Spark's, and so is SHOW TABLES of a database that only Spark has."""
    kind = " ".join(_SAME_WORDS.get(statement.word(at), statement.word(at)) for at in range(2))
    names = sources.names
    if kind in _OTHERS and sources.session is None:
        raise UnsupportedFeature(
            f"lakebed has no {' '.join(statement.words[:2])}, in the SQL text near {statement.near(0)}",
            hint=f"{_OTHERS[kind]}.",
            context={"feature": kind},
        )
    if kind not in _FORMS:
        return None
    cursor = CommandCursor(statement, _FORMS[kind], at=2, zone=zone_of(sources.session), sources=sources)
    if kind.startswith("DESCRIBE") or kind in ("SHOW TBLPROPERTIES", "SHOW COLUMNS"):
        return _about_table(kind, cursor, sources)
    if names is None:
        return None  # those of the engine
    if sources.session is not None:
        return _show_names(kind, cursor, names)
    if kind == "CREATE DATABASE":
        if_not_exists = cursor.takes("IF", "NOT", "EXISTS")
        command: Command = CreateDatabase(names, cursor.name("database").lower(), if_not_exists)
    elif kind == "SHOW DATABASES":
        command = ShowDatabases(names, _pattern(cursor))
    else:
        is_extended = kind == "SHOW TABLE"
        if is_extended:
            cursor.needs("EXTENDED")
        databases = [cursor.name("database").lower()] if cursor.takes_one("IN", "FROM") else names.databases()
        command = ShowTables(names, databases, _pattern(cursor), is_extended)
    cursor.end()
    return command


def _show_names(kind: str, cursor: CommandCursor, names: Names) -> Command | None:
    """SHOW DATABASES, or SHOW TABLES of a database of the warehouse; None for what Spark answers alone."""
    if kind == "SHOW DATABASES":
        command = ShowDatabases(names, "*" if cursor.word in ("IN", "FROM") else _pattern(cursor))
        return None if cursor.at < cursor.stop else command
    is_extended = kind == "SHOW TABLE" and cursor.takes("EXTENDED")
    if not (is_extended or kind == "SHOW TABLES") or not cursor.takes_one("IN", "FROM"):
        return None
    database = cursor.name("database").lower()
    tables = ShowTables(names, [database], _pattern(cursor), is_extended)
    cursor.end()
    return tables if database in names.databases() else None


def _about_table(kind: str, cursor: CommandCursor, sources: Sources) -> Command | None:
    """The command of a statement that shows facts about a table; None for one that is not of lakebed."""
    is_extended = kind == "DESCRIBE EXTENDED"
    if kind == "DESCRIBE TABLE":
        is_extended = bool(cursor.takes_one("EXTENDED", "FORMATTED"))
        if not is_extended and sources.session is not None:
            return None  # Spark describes a table of lakebed as any other
    elif is_extended:
        cursor.takes("TABLE")
    elif kind == "SHOW COLUMNS":
        cursor.takes_one("IN", "FROM")
    if sources.session is None and cursor.statement.reference_at(cursor.at) is None:
        return None
    try:
        target = cursor.target()
    except ForSpark:
        return None
    command: Command
    if kind == "SHOW COLUMNS":
        command = ShowColumns(target)
    elif kind == "SHOW TBLPROPERTIES":
        command = ShowProperties(target)
    else:
        command = DescribeTable(target, is_extended=is_extended)
    cursor.end()
    return command


def _pattern(cursor: CommandCursor) -> str:
    """The pattern of LIKE, in which `*` is any text and `|` separates patterns; `%` is any text, too, since no name has
    it."""
    is_quoted = cursor.at < cursor.stop and not cursor.word
    return str(cursor.literal("the pattern")) if cursor.takes("LIKE") or is_quoted else "*"


def _matching(names: list[str], pattern: str) -> list[str]:
    parts = ("".join(".*" if letter in "*%" else re.escape(letter) for letter in part) for part in pattern.split("|"))
    compiled = re.compile("|".join(parts), re.IGNORECASE)
    return [name for name in names if compiled.fullmatch(name)]


@dataclass(frozen=True, slots=True)
class ShowTables:
    """SHOW TABLES: the tables of databases, of one with a session; with `is_extended` each with a text about it."""

    names: Names
    databases: Sequence[str]
    pattern: str
    is_extended: bool = False

    def run(self, sources: Sources, query: Query) -> Any:
        session, text = sources.session, pa.string()
        listed = [
            (name, table) for name in self.databases for table in _matching(self.names.tables(name), self.pattern)
        ]
        labels = ("database", "table") if session is None else ("namespace", "tableName")
        columns: dict[str, pa.Array] = {
            label: pa.array([row[n] for row in listed], text) for n, label in enumerate(labels)
        }
        if session is not None:
            columns["isTemporary"] = pa.repeat(pa.scalar(False), len(listed))
        if self.is_extended:
            texts: list[str] = []
            for name in map(".".join, listed):
                table = sources.opened(name)
                lines = [f"{key}: {value}" for key, value in _facts(table, name).items()]
                lines.append("Schema: root")
                for f in table.schema:  # as Spark prints a schema
                    kind, nullable = spark_type(f.type).lower(), str(f.nullable).lower()
                    lines.append(f" |-- {f.name}: {kind} (nullable = {nullable})")
                texts.append("\n".join([*lines, ""]))
            columns["information"] = pa.array(texts, text)
        rows = rows_of(pa.table(columns), sources)
        if session is None or not session.catalog.databaseExists(self.databases[0]):
            return rows
        kind = "TABLE EXTENDED" if self.is_extended else "TABLES"
        of_spark = f"SHOW {kind} IN {quote_name(self.databases[0])} LIKE {sql_literal(self.pattern)}"
        return session.sql(of_spark).unionByName(rows)


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    """SHOW DATABASES: the databases of the warehouse."""

    names: Names
    pattern: str

    def run(self, sources: Sources, query: Query) -> Any:
        listed = pa.array(_matching(self.names.databases(), self.pattern), pa.string())
        if sources.session is None:
            return rows_of(pa.table({"database": listed}), sources)
        rows = rows_of(pa.table({"namespace": listed}), sources)
        return sources.session.sql(f"SHOW DATABASES LIKE {sql_literal(self.pattern)}").unionByName(rows).distinct()


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """CREATE DATABASE: returns the databases that there are then."""

    names: Names
    database: str
    if_not_exists: bool = False

    def run(self, sources: Sources, query: Query) -> Any:
        self.names.create_database(self.database, allow_existing=self.if_not_exists)
        return ShowDatabases(self.names, "*").run(sources, query)


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """DESCRIBE TABLE and DESCRIBE EXTENDED: the columns with their types, then with `is_extended` facts about the
    table, in the columns of Spark."""

    table: Reference
    is_extended: bool = True

    def run(self, sources: Sources, query: Query) -> Any:
        table = table_of(sources, self.table)
        rows = [(f.name, spark_type(f.type), (f.metadata or {}).get(b"comment", b"").decode()) for f in table.schema]
        facts = _facts(table, self.table.name if self.table.in_database else table.name)
        values = [(c.name, c.default, c.generated) for c in table.columns if c.default or c.generated]
        if self.is_extended:
            rows += [("", "", ""), ("# Detailed Table Information", "", "")]
            rows += [(name, value, "") for name, value in facts.items()]
            for name, default, expression in values:
                is_default = f"DEFAULT {default}" if default else f"GENERATED ALWAYS AS ({expression})"
                rows.append((f"Column {name}", is_default, ""))
        columns = dict(zip(("col_name", "data_type", "comment"), zip(*rows, strict=True), strict=True))
        return rows_of(pa.table(columns, pa.schema([(name, pa.string()) for name in columns])), sources)


def _facts(table: Table, name: str) -> dict[str, str]:
    """The facts of DESCRIBE EXTENDED about a table, without its columns, by their names."""
    properties, last = table.properties, table.timeline.last
    partitions = [name for name in properties.get("hoodie.table.partition.fields", "").split(",") if name]
    return {
        "Name": name,
        "Location": table.uri,
        "Provider": "lakebed",
        "Type": properties.get("hoodie.table.type", ""),
        "Version": properties.get("hoodie.table.version", ""),
        "Record key": properties.get("hoodie.table.recordkey.fields", ""),
        "Partitioned by": ", ".join(partitions),
        "Ordering": properties.get("hoodie.table.ordering.fields", ""),
        "Index": table.indexes.index.name,
        "Last instant": "" if last is None else last.time,
    }


@dataclass(frozen=True, slots=True)
class ShowColumns:
    """SHOW COLUMNS: the names of the columns."""

    table: Reference

    def run(self, sources: Sources, query: Query) -> Any:
        names = table_of(sources, self.table).schema.names
        return rows_of(pa.table({"col_name": pa.array(names, pa.string())}), sources)


@dataclass(frozen=True, slots=True)
class ShowProperties:
    """SHOW TBLPROPERTIES: the table's properties by key."""

    table: Reference

    def run(self, sources: Sources, query: Query) -> Any:
        properties = sorted(table_of(sources, self.table).properties.items())
        columns = {"key": [key for key, _ in properties], "value": [value for _, value in properties]}
        return rows_of(pa.table(columns, pa.schema([(name, pa.string()) for name in columns])), sources)
