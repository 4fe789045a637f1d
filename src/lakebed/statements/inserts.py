"""INSERT beyond its rows: the constants of PARTITION, the partition paths that they name, and REPLACE WHERE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed.engine.base import Task, persisted, session_of
from lakebed.engine.spark import SparkEngine
from lakebed.errors import AmbiguousMerge, InvalidOption, InvalidRecord, UnsupportedFeature
from lakebed.filters.sql import parse_filter
from lakebed.filters.text import quote_name
from lakebed.operations.result import WriteResult
from lakebed.properties.table_config import TableConfig
from lakebed.schema.assignment import SQL, check_fits, in_column
from lakebed.schema.column_names import did_you_mean, in_any_case
from lakebed.schema.spark import spark_type
from lakebed.statements.commands import column_constant, paths_with_values, text_of
from lakebed.statements.parts import Cursor
from lakebed.table import Table

STATIC_PATHS = "hoodie.static.overwrite.partition.paths"
_STORED, _NEW = "stored_row__", "new_row__"


def partition_values(cursor: Cursor, table: Table) -> tuple[dict[str, pa.Scalar], list[str]]:
    """The columns of `PARTITION (column = value, other)`, which comes next, in their types: those with a value, and the
    names of those whose values the rows have. Raises `InvalidOption` for other columns and for values that are not of
    their types, and `SchemaConflict` for types that a column does not accept."""
    schema, fields = table.schema, TableConfig(dict(table.properties)).partition_fields
    start, stop = cursor.enclosed("the columns of a partition")
    after = cursor.at
    constants: dict[str, pa.Scalar] = {}
    unset_columns: list[str] = []
    for first, last in cursor.listed(start, stop):
        cursor.at = first
        name = in_any_case(cursor.name(), schema.names)
        if name not in fields:
            near = did_you_mean(name, fields, "it has")
            raise cursor.wrong(first, f"the table has no partition column {name!r} ({near})")
        if name in constants or name in unset_columns:
            raise cursor.wrong(first, f"{name!r} is given twice")
        if cursor.takes("="):
            value, field = cursor.literal(f"the value of {name!r}"), schema.field(name)
            try:
                constants[name] = column_constant(value, field, cursor.zone)
            except InvalidOption as error:
                raise cursor.wrong(first, error.message) from None
        else:
            unset_columns.append(name)
        if cursor.at != last:
            raise cursor.wrong(cursor.at, f"something follows {name!r}")
    cursor.at = after
    return constants, unset_columns


def assigned_rows(rows: Any, schema: pa.Schema, names: Sequence[str]) -> Any:
    """A DataFrame with these columns in their types. If a time and the column's type differ in having a zone, the
    session's zone is used, as in Spark; the tasks convert all other types."""
    engine = SparkEngine(rows.sparkSession)
    kinds = {f.name: f.type for f in engine.schema(rows)}
    texts = {name: quote_name(name) for name in schema.names}
    for field in schema:
        kind, to = kinds[field.name], field.type
        if pa.types.is_timestamp(kind) and pa.types.is_timestamp(to) and bool(kind.tz) != bool(to.tz):
            texts[field.name] = f"CAST({texts[field.name]} AS {spark_type(to)})"
        elif field.name in names:
            check_fits(kind, field)
    rows = rows.selectExpr(*[f"{text} AS {quote_name(name)}" for name, text in texts.items()])
    kinds = {f.name: f.type for f in engine.schema(rows)}
    if all(spark_type(kinds[f.name]) == spark_type(f.type) for f in schema):
        return rows
    return engine.map(rows, _Assigned(schema), schema)


@dataclass(frozen=True, slots=True)
class _Assigned:
    """A task function that converts the columns of an INSERT to those of the table."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [in_column(batch.column(field.name), field, SQL) for field in self.schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def overwritten_paths(table: Table, constants: Mapping[str, pa.Scalar]) -> list[str]:
    """The partition paths that hold the rows with these values."""
    config = TableConfig(dict(table.properties))
    if set(constants) == set(config.partition_fields):
        row = pa.RecordBatch.from_arrays(
            [pa.array([value.as_py()], value.type) for value in constants.values()], names=list(constants)
        )
        path = config.keys.partition_path.arrow(row)[0].as_py()
        paths = [path] if path in table.partitions else []
    else:
        for name, value in constants.items():
            if not (
                pa.types.is_string(value.type) or pa.types.is_integer(value.type) or pa.types.is_boolean(value.type)
            ):
                raise UnsupportedFeature(
                    f"partition paths of table {config.name!r} are not found by a value of {name!r} alone, which is"
                    f" {spark_type(value.type)}",
                    hint="give a value for each partition column",
                    context={"column": name},
                )
        paths = paths_with_values(table, {name: text_of(value.as_py()) for name, value in constants.items()})
    if any("," in path for path in paths):
        raise UnsupportedFeature(
            f"the partition path {next(path for path in paths if ',' in path)!r} has a comma, which separates the paths"
            " that are overwritten",
            hint="delete its rows and insert the new ones: t.delete_partitions([path]), t.insert(rows)",
        )
    return paths


def replace_where(table: Table, rows: Any, condition: str) -> WriteResult:
    """Delete the rows that fulfil a condition and insert others, which must fulfil it, in one commit.

    It is a merge by the record key: a stored row that fulfils the condition and whose key comes again is updated, all
    others that fulfil it are deleted. Raises `InvalidRecord` for a row that does not fulfil the condition, and for one
    whose key is in a stored row that is not deleted; `AmbiguousMerge` for a key that several rows have, and for a row
    whose ordering value is less than that of the stored row; `UnsupportedFeature` for a table without record keys.
    """
    config = TableConfig(dict(table.properties))
    if not config.key_fields:
        raise UnsupportedFeature(
            f"INSERT ... REPLACE WHERE takes a record key, and table {config.name!r} generates its keys",
            hint="replace partition paths: INSERT OVERWRITE t PARTITION (column = value); or do it in two commits,"
            " DELETE FROM t WHERE condition and then INSERT INTO t",
            context={"feature": "REPLACE WHERE without a record key"},
        )
    if session_of(rows) is None:
        return _replaced(table, config, rows, condition)
    with persisted(SparkEngine(rows.sparkSession), rows) as cached:  # its rows are looked at twice
        return _replaced(table, config, cached, condition)


def _replaced(table: Table, config: TableConfig, rows: Any, condition: str) -> WriteResult:
    _check_fulfilled(rows, condition)
    names = rows.column_names if session_of(rows) is None else rows.columns
    prefix = "new_"
    while any(name.lower().startswith(prefix) for name in names):
        prefix += "_"
    is_arrow = session_of(rows) is None
    named = [prefix + name for name in names]
    source = rows.rename_columns(named) if is_arrow else rows.toDF(*named)
    new = {name: quote_name(prefix + name) for name in names}
    lacking = [name for name in (*config.partition_fields, *config.ordering_fields) if name not in new]
    if lacking:
        raise UnsupportedFeature(
            f"INSERT ... REPLACE WHERE compares {lacking[0]!r} with stored rows, and the query leaves it to the table",
            hint="select the column as well, with the value of its expression",
            context={"column": lacking[0]},
        )
    compared = [*config.key_fields]
    index = table.indexes.index
    if index.is_global and index.for_existence_checks().settings() == index.settings():
        compared += [name for name in config.partition_fields if name not in compared]  # it moves no row
    parts = [f"{quote_name(name)} = {quote_name(prefix + name)}" for name in compared]
    parts.append(f"(\n{condition}\n)")
    if config.ordering_fields and config.merge_mode != "commit_time":
        parts.append("true")  # and the ordering values are not less than those of the stored row, which would win
        for name in reversed(config.ordering_fields):
            old, came = quote_name(name), new[name]
            greater = f"{came} > {old} OR ({old} IS NULL AND {came} IS NOT NULL)"
            parts[-1] = f"({greater} OR ({came} <=> {old} AND {parts[-1]}))"
    merge = table.merge(source, " AND ".join(parts), target=_STORED, source_alias=_NEW)
    changed = {name: text for name, text in new.items() if name not in compared}
    if changed:
        merge = merge.when_matched_update(changed)
    merge = merge.when_not_matched_insert(new).when_not_matched_by_source_delete(condition=condition)
    try:
        return merge.execute()
    except InvalidRecord as error:
        key = error.context.get("record_key")
        if isinstance(error, AmbiguousMerge) or error.context.get("replaced"):
            raise AmbiguousMerge(
                f"record key {key!r} cannot be replaced: several rows of the query or several stored rows have it, or"
                " the ordering value of the stored row is greater",
                hint="let the query give one row for each key, whose ordering value is not less than the stored one",
                context=error.context,
            ) from error
        if key is None:
            raise
        raise InvalidRecord(
            f"record key {key!r} cannot be inserted: the table holds it in a row that REPLACE WHERE does not replace",
            hint="the stored row does not fulfil the condition: delete it first, or use MERGE INTO",
            context=error.context,
        ) from error


def _check_fulfilled(rows: Any, condition: str) -> None:
    """Raise `InvalidRecord` if a row does not fulfil the condition, so that a repeated statement would not replace
    it."""
    if session_of(rows) is None:
        predicate = parse_filter(condition, rows.schema)
        if not predicate.runs_in_process:
            raise InvalidOption(
                f"the condition {condition!r} runs on Spark only", hint="give spark=", context={"condition": condition}
            )
        count = rows.num_rows - rows.filter(predicate.to_arrow()).num_rows
    else:
        count = rows.where(f"NOT coalesce((\n{condition}\n), false)").count()
    if count:
        raise InvalidRecord(
            f"{count:,} row(s) of the query do not fulfil the condition of REPLACE WHERE: {condition}",
            hint="let the query select only rows that fulfil it; nothing was written",
            context={"condition": condition, "rows": count},
        )
