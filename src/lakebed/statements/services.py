"""Indexes, services and history of a table: CREATE INDEX, SHOW, DESCRIBE HISTORY, OPTIMIZE, VACUUM and RESTORE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed.engine.spark_session import zone_of
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.metadata_kinds.expression_results import KINDS
from lakebed.metadata_kinds.text_store import text_partition
from lakebed.metadata_kinds.vector_definitions import vector_partition
from lakebed.metadata_records.definitions import TEXT_KIND, VECTOR_KIND
from lakebed.model import COMMIT_ACTIONS, RECORD_INDEX
from lakebed.properties.table_config import TableConfig
from lakebed.read.moments import to_instant_time
from lakebed.services.create_index import SECONDARY_KIND
from lakebed.statements.commands import (
    Command,
    CommandCursor,
    Query,
    newest_first,
    nothing_to_cluster,
    paths_that_fulfil,
    paths_with_values,
    rows_of,
    table_of,
    text_of,
)
from lakebed.statements.sources import Sources
from lakebed.statements.statement import Reference, Statement

# The retention of VACUUM: the cleaning policy, the option of its number, and what the number is multiplied by.
_RETAINED = {
    "HOURS": ("KEEP_LATEST_BY_HOURS", "hoodie.clean.hours.retained", 1),
    "DAYS": ("KEEP_LATEST_BY_HOURS", "hoodie.clean.hours.retained", 24),
    "COMMITS": ("KEEP_LATEST_COMMITS", "hoodie.clean.commits.retained", 1),
    "VERSIONS": ("KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained", 1),
}
_OF_COLUMN = {VECTOR_KIND: "vector", TEXT_KIND: "text"}
_FORMS = {
    "CREATE INDEX": "write CREATE INDEX name ON t (column), or with USING bloom_filters, column_stats,"
    " secondary_index, vector or text before the column and OPTIONS (expr = 'lower') after it;"
    " CREATE INDEX record_index ON t (key)",
    "DROP INDEX": "write DROP INDEX name ON t",
    "SHOW INDEXES": "write SHOW INDEXES FROM t",
    "SHOW PARTITIONS": "write SHOW PARTITIONS t",
    "DESCRIBE HISTORY": "write DESCRIBE HISTORY t, with LIMIT 10",
    "OPTIMIZE": "write OPTIMIZE t WHERE condition ZORDER BY (a, b), or ORDER BY (a, b)",
    "VACUUM": "write VACUUM t RETAIN 24 HOURS, or DAYS, COMMITS or VERSIONS, and DRY RUN",
    "RESTORE": "write RESTORE TABLE t TO VERSION AS OF 'instant', or TO TIMESTAMP AS OF 'time'",
}


def parse_service(statement: Statement, sources: Sources) -> Command | None:
    """The command of a statement about a table's indexes, services or history; None for any other.

    Raises `InvalidOption` for a text that is not such a statement; it names the place.
    """
    first = "DESCRIBE" if statement.word(0) == "DESC" else statement.word(0)
    kind = first if first in _FORMS else f"{first} {statement.word(1)}"
    if kind not in _FORMS:
        return None
    if kind == "DESCRIBE HISTORY" and statement.reference_at(2) is None:  # the columns of a table named history
        return None
    cursor = CommandCursor(
        statement, _FORMS[kind], at=len(kind.split()), zone=zone_of(sources.session), sources=sources
    )
    match kind:
        case "CREATE INDEX":
            command = _create_index(cursor)
        case "DROP INDEX":
            if_exists = cursor.takes("IF", "EXISTS")
            name = cursor.name("index")
            cursor.needs("ON")
            cursor.takes("TABLE")
            command = DropIndex(cursor.target(), name, if_exists)
        case "SHOW INDEXES":
            if not cursor.takes("FROM"):
                cursor.needs("IN")
            cursor.takes("TABLE")
            command = ShowIndexes(cursor.target())
        case "SHOW PARTITIONS":
            command = ShowPartitions(cursor.target(), cursor.partition())
        case "DESCRIBE HISTORY":
            command = DescribeHistory(cursor.target(), _number(cursor, "LIMIT") if cursor.takes("LIMIT") else None)
        case "OPTIMIZE":
            command = _optimize(cursor)
        case "VACUUM":
            command = _vacuum(cursor)
        case _:
            command = _restore(cursor)
    cursor.end()
    return command


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """CREATE INDEX: builds an index. `kind` is a partition of Hudi's metadata table; an expression index has `options`
    with its `expr`."""

    table: Reference
    name: str
    kind: str
    columns: tuple[str, ...]
    options: dict[str, str | None]
    if_not_exists: bool = False

    def run(self, sources: Sources, query: Query) -> Any:
        table = table_of(sources, self.table)
        indexes = table.indexes
        partition = {
            SECONDARY_KIND: f"secondary_index_{self.name}",
            VECTOR_KIND: vector_partition(self.name),
            TEXT_KIND: text_partition(self.name),
            RECORD_INDEX: RECORD_INDEX,
        }.get(self.kind, f"expr_index_{self.name}" if self.columns else self.name)
        if self.if_not_exists and partition in {index.name for index in indexes.list()}:
            return indexes
        if self.kind == RECORD_INDEX:
            keys = TableConfig(dict(table.properties)).key_fields
            if self.columns and {name.lower() for name in self.columns} != {name.lower() for name in keys}:
                raise InvalidOption(
                    f"a record index on {', '.join(self.columns)}, which is not the record key",
                    hint=f"it is an index of the record key: ({', '.join(keys)})",
                )
            indexes.create(RECORD_INDEX)
        elif not self.columns:
            indexes.create(self.name)
        else:
            options = dict(self.options)
            function = options.pop("expr", None)
            is_of_column = self.kind in (SECONDARY_KIND, *_OF_COLUMN)
            name = function if is_of_column else function or "identity"
            column = self.columns[0]
            indexes.create(self.name, column=column, kind=self.kind, function_options=options, function=name)
        return indexes


@dataclass(frozen=True, slots=True)
class DropIndex:
    """DROP INDEX: removes an index."""

    table: Reference
    name: str
    if_exists: bool = False

    def run(self, sources: Sources, query: Query) -> Any:
        indexes = table_of(sources, self.table).indexes
        names = {index.name for index in indexes.list()}
        prefixed = (f"secondary_index_{self.name}", f"expr_index_{self.name}", vector_partition(self.name))
        prefixed = (*prefixed, text_partition(self.name))
        possible_names = {self.name, *prefixed}
        if not (self.if_exists and names.isdisjoint(possible_names)):
            indexes.drop(self.name)
        return indexes


@dataclass(frozen=True, slots=True)
class ShowIndexes:
    """SHOW INDEXES: the rows of `t.indexes`."""

    table: Reference

    def run(self, sources: Sources, query: Query) -> Any:
        return rows_of(table_of(sources, self.table).indexes.to_arrow(), sources)


@dataclass(frozen=True, slots=True)
class ShowPartitions:
    """SHOW PARTITIONS: the partition paths, or those whose columns have these values."""

    table: Reference
    values: dict[str, Any]

    def run(self, sources: Sources, query: Query) -> Any:
        table = table_of(sources, self.table)
        paths = paths_with_values(table, self.values) if self.values else list(table.partitions)
        return rows_of(pa.table({"partition": pa.array(paths, pa.string())}), sources)


@dataclass(frozen=True, slots=True)
class DescribeHistory:
    """DESCRIBE HISTORY: the rows of `t.timeline`, newest first."""

    table: Reference
    limit: int | None = None

    def run(self, sources: Sources, query: Query) -> Any:
        rows = newest_first(table_of(sources, self.table).timeline.to_arrow())
        return rows_of(rows if self.limit is None else rows.slice(0, self.limit), sources)


@dataclass(frozen=True, slots=True)
class Optimize:
    """OPTIMIZE: a clustering of the partition paths that a condition selects."""

    table: Reference
    condition: str = ""
    columns: tuple[str, ...] = ()
    layout: str | None = None

    def run(self, sources: Sources, query: Query) -> Any:
        table = table_of(sources, self.table)
        paths = paths_that_fulfil(table, self.condition) if self.condition else None
        if paths == []:
            return nothing_to_cluster(self.condition)
        layout: Any = self.layout
        return table.maintenance.cluster(list(self.columns) or None, layout=layout, partitions=paths)


@dataclass(frozen=True, slots=True)
class Vacuum:
    """VACUUM: a clean, whose retention `options` have."""

    table: Reference
    options: dict[str, Any]
    dry_run: bool = False

    def run(self, sources: Sources, query: Query) -> Any:
        return table_of(sources, self.table).maintenance.clean(dry_run=self.dry_run, options=self.options)


@dataclass(frozen=True, slots=True)
class Restore:
    """RESTORE TABLE to an instant, or to the last commit up to a time."""

    table: Reference
    to: str
    is_time: bool = False

    def run(self, sources: Sources, query: Query) -> Any:
        table = table_of(sources, self.table)
        if not self.is_time:
            return table.restore(self.to)
        cut = to_instant_time(self.to, TableConfig(dict(table.properties)).timezone, option="as_of")
        times = [i.time for i in table.timeline if i.action in COMMIT_ACTIONS and i.is_completed and i.time <= cut]
        if not times:
            raise InvalidOption(
                f"table {table.name!r} has no commit up to {self.to!r}",
                hint="DESCRIBE HISTORY t lists its instants",
                context={"as_of": self.to},
            )
        return table.restore(max(times))


def _create_index(cursor: CommandCursor) -> CreateIndex:
    if_not_exists = cursor.takes("IF", "NOT", "EXISTS")
    name = cursor.name("index")
    cursor.needs("ON")
    cursor.takes("TABLE")
    table = cursor.target()
    cursor.check_parentheses()
    start, kind = cursor.at, ""
    if cursor.takes("USING"):
        kind = cursor.name("kind of index").lower()
        kind = {"vector": VECTOR_KIND, "text": TEXT_KIND}.get(kind, kind)
    columns = tuple(cursor.columns()) if cursor.word == "(" else ()
    options = cursor.pairs("the options") if cursor.takes("OPTIONS") else {}
    if RECORD_INDEX in (name.lower(), kind):
        name = kind = RECORD_INDEX
    elif not kind:
        kind = SECONDARY_KIND if columns else name
    if kind in _OF_COLUMN and not columns:
        noun = _OF_COLUMN[kind]
        raise cursor.wrong(cursor.at, f"a {noun} index names its column: USING {noun.upper()} (column)")
    if columns and kind not in (RECORD_INDEX, SECONDARY_KIND, *_OF_COLUMN, *KINDS):
        kinds = f"{RECORD_INDEX}, {SECONDARY_KIND}, vector, text, {', '.join(KINDS)}"
        raise cursor.wrong(start, f"there is no index of kind {kind!r}: there are {kinds}")
    if len(columns) > 1 and kind != RECORD_INDEX:
        raise UnsupportedFeature(
            f"an index {name!r} on several columns ({', '.join(columns)})",
            hint="it is on one column, as in Hudi: make one for each",
        )
    texts = {key: text_of(value) for key, value in options.items()}
    return CreateIndex(table, name, kind, columns, texts, if_not_exists)


def _optimize(cursor: CommandCursor) -> Optimize:
    table = cursor.target()
    cursor.check_parentheses()
    condition, columns, layout = "", (), None
    if cursor.takes("WHERE"):
        start = cursor.at
        ends = [cursor.find(word, start) for word in ("ZORDER", "ORDER")]
        cursor.at = min((at for at in ends if at is not None), default=cursor.stop)
        condition = cursor.text(start, cursor.at, "the condition")
    order = cursor.takes_one("ZORDER", "ORDER")
    if order:
        cursor.needs("BY")
        is_list = cursor.word == "("
        listed = (
            cursor.columns()
            if is_list
            else [".".join(cursor.path(*part)) for part in cursor.listed(cursor.at, cursor.stop)]
        )
        cursor.at = cursor.at if is_list else cursor.stop
        columns, layout = tuple(listed), "zorder" if order == "ZORDER" else None
    return Optimize(table, condition, columns, layout)


def _vacuum(cursor: CommandCursor) -> Vacuum:
    table = cursor.target()
    options: dict[str, Any] = {}
    if cursor.takes("RETAIN"):
        number = _number(cursor, "RETAIN")
        start = cursor.at
        unit = cursor.takes_one(*_RETAINED)
        if not unit:
            raise cursor.wrong(start, "HOURS, DAYS, COMMITS or VERSIONS is missing")
        policy, key, factor = _RETAINED[unit]
        options = {"hoodie.clean.policy": policy, key: number * factor}
    dry_run = cursor.takes("DRY", "RUN")
    return Vacuum(table, options, dry_run)


def _restore(cursor: CommandCursor) -> Restore:
    cursor.takes("TABLE")
    table = cursor.target()
    cursor.needs("TO")
    is_time = bool(cursor.takes("TIMESTAMP"))
    if not is_time:
        cursor.needs("VERSION")
    cursor.needs("AS", "OF")
    cursor.takes("TIMESTAMP")
    return Restore(table, str(cursor.literal("the instant or time")), is_time)


def _number(cursor: CommandCursor, label: str) -> int:
    start, number = cursor.at, cursor.literal(f"the number after {label}")
    if type(number) is not int or number < 0:
        raise cursor.wrong(start, f"{label} takes a whole number")
    return number
