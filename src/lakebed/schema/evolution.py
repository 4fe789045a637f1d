"""How a table's schema may change with a write, and how rows of older files are read in the newer schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import SchemaConflict
from lakebed.schema.arrow import list_of, map_of
from lakebed.schema.avro import is_logical_struct
from lakebed.schema.column_names import similar_columns
from lakebed.schema.conversion import cast_column, may_lose, project
from lakebed.schema.logical_types import HUDI_TYPE, is_blob, is_bytes, is_vector, takes_vectors
from lakebed.schema.plain_arrow import is_list
from lakebed.schema.spark import spark_projection, type_name

__all__ = [
    "Evolution",
    "MissingColumns",
    "cast_column",
    "is_promotion",
    "project",
    "reconcile",
    "schema_changes",
    "spark_projection",
]

MissingColumns = Literal["error", "null", "drop"]
Evolution = Literal["add", "widen", "strict"]
Takes = Callable[[pa.DataType, pa.DataType], bool]
"""Whether a column of the second type takes values of the first one, both simple types."""

EVOLUTION_OPTION = "lakebed.write.evolution"
_WIDER = {
    pa.int32(): (pa.int64(), pa.float32(), pa.float64(), pa.string()),
    pa.int64(): (pa.float32(), pa.float64(), pa.string()),
    pa.float32(): (pa.float64(), pa.string()),
    pa.float64(): (pa.string(),),
    pa.string(): (pa.binary(),),
    pa.binary(): (pa.string(),),
}


def is_promotion(file_type: pa.DataType, table_type: pa.DataType) -> bool:
    """Whether values stored as `file_type` may be read as `table_type`: Hudi's allowed promotions, and the
    type itself.

    Nested types may widen inside; a struct may lack fields that the table allows to be null.

    >>> is_promotion(pa.int32(), pa.float64()), is_promotion(pa.float64(), pa.int32())
    (True, False)
    """
    if file_type.equals(table_type) or table_type in _WIDER.get(file_type, ()):
        return True
    if is_vector(table_type):
        return pt.is_binary(file_type) or (pt.is_fixed_size_binary(file_type) and takes_vectors(file_type, table_type))
    if is_vector(file_type):
        return False
    if pt.is_fixed_size_binary(table_type) or pt.is_fixed_size_binary(file_type):
        return pt.is_binary(file_type) or pt.is_binary(table_type)
    if pt.is_decimal(file_type):
        return pt.is_string(table_type) or (pt.is_decimal(table_type) and _holds(file_type, table_type))
    if pt.is_timestamp(table_type):
        if pt.is_timestamp(file_type):
            return file_type.unit == "us" and table_type.unit == "ms" and bool(file_type.tz and table_type.tz)
        return pt.is_int64(file_type)
    if pt.is_struct(file_type) and pt.is_struct(table_type):
        stored = {field.name: field.type for field in file_type}
        return all(is_promotion(stored[f.name], f.type) if f.name in stored else f.nullable for f in table_type)
    if pt.is_map(file_type) and pt.is_map(table_type):
        return is_promotion(file_type.item_type, table_type.item_type)
    if is_list(file_type) and is_list(table_type) and not pt.is_map(file_type) and not pt.is_map(table_type):
        return is_promotion(file_type.value_type, table_type.value_type)
    return False


def _holds(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether the decimal type `wide` has at least as many digits as `narrow` before and after the point."""
    return wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale


@dataclass(frozen=True, slots=True)
class _Rules:
    missing: MissingColumns
    evolution: Evolution
    takes: Takes | None


def reconcile(
    table: pa.Schema,
    incoming: pa.Schema,
    *,
    missing: MissingColumns = "error",
    evolution: Evolution = "widen",
    takes: Takes | None = None,
) -> pa.Schema:
    """The table's schema after a write of `incoming` (both in stored types, without meta columns).

    Table columns keep their order; new ones go to the end and are nullable, inside structs too. A wider
    incoming type widens the table's where it keeps every value that may be stored; what comes in a narrower one, or
    as times of another unit, takes the table's type (`in_column` of `lakebed.schema.assignment` checks the values); so
    does what `takes` allows in addition. A column is nullable as soon as
    one side's is. Under the `evolution` "add" no stored type changes, under "strict" no column comes in and none
    becomes nullable, either. Columns that the data lacks are an error, or filled with null (`missing="null"`), or leave
    the table (`"drop"`). Anything else raises `SchemaConflict` with the column, both types and what to do. A
    long does not turn into a timestamp, nor back, though Hudi allows it: its unit is unknown.

    >>> reconcile(pa.schema([("id", pa.int32())]), pa.schema([("id", pa.int64()), ("x", pa.string())]))
    id: int64
    x: string
    """
    return pa.schema(_reconcile_fields(list(table), list(incoming), _Rules(missing, evolution, takes), ""))


def with_new_fields(table: pa.DataType, incoming: pa.DataType) -> pa.DataType:
    """The table's type with the additional fields of incoming structs, also in lists and maps; everything else is
    unchanged.

    >>> with_new_fields(pa.struct([("x", pa.int32())]), pa.struct([("x", pa.string()), ("y", pa.string())]))
    StructType(struct<x: int32, y: string>)
    """
    if pt.is_struct(table) and pt.is_struct(incoming):
        incoming_fields = {field.name.lower(): field for field in incoming}
        fields = [f.with_type(with_new_fields(f.type, incoming_fields.get(f.name.lower(), f).type)) for f in table]
        names = {field.name.lower() for field in table}
        return pa.struct(fields + [f.with_nullable(True) for name, f in incoming_fields.items() if name not in names])
    if pt.is_map(table) and pt.is_map(incoming):
        item = table.item_field
        kind = with_new_fields(item.type, incoming.item_type)
        return map_of(kind, nullable=item.nullable, metadata=item.metadata)
    if is_list(table) and is_list(incoming):
        item = table.value_field
        kind = with_new_fields(item.type, incoming.value_type)
        return list_of(kind, nullable=item.nullable, metadata=item.metadata)
    return table


def schema_changes(table: pa.Schema, after: pa.Schema) -> tuple[str, ...]:
    """A line for every way in which a table's columns change.

    >>> schema_changes(pa.schema([("n", pa.int32())]), pa.schema([("n", pa.int64()), ("x", pa.string())]))
    ('column n is BIGINT now, it was INT', 'column x is new (STRING)')
    """
    before, now = {f.name: f for f in table}, {f.name: f for f in after}
    lines = [_change(field, now.get(name)) for name, field in before.items()]
    lines += [f"column {f.name} is new ({type_name(f.type)})" for f in after if f.name not in before]
    return tuple(line for line in lines if line)


def _change(before: pa.Field, now: pa.Field | None) -> str:
    if now is None:
        return f"column {before.name} is taken off the table"
    if not before.type.equals(now.type):
        new, old = type_name(now.type), type_name(before.type)
        if new == old:  # elements of arrays and values of maps: Spark's name of the type does not show it
            return f"column {before.name} may hold nulls inside now"
        return f"column {before.name} is {new} now, it was {old}"
    return f"column {before.name} may be null now" if now.nullable and not before.nullable else ""


def _reconcile_fields(
    table: Sequence[pa.Field], incoming: Sequence[pa.Field], rules: _Rules, parent: str
) -> list[pa.Field]:
    incoming_by_name = {field.name: field for field in incoming}
    table_names = {field.name for field in table}
    _check_case(table_names, [f.name for f in incoming if f.name not in table_names], parent)
    absent = [f"{parent}{f.name}" for f in table if f.name not in incoming_by_name]
    if absent and rules.missing == "error":
        raise _missing(absent, [f"{parent}{f.name}" for f in incoming if f.name not in table_names], rules)
    new = [field for field in incoming if field.name not in table_names]
    if new and rules.evolution == "strict":
        raise _not_taken_in([f"{parent}{f.name}" for f in new], absent, rules)
    result: list[pa.Field] = []
    for field in table:
        if field.name in incoming_by_name:
            result.append(_reconcile_field(field, incoming_by_name[field.name], rules, f"{parent}{field.name}"))
        elif rules.missing == "null":
            result.append(field.with_nullable(True))
    return result + [field.with_nullable(True) for field in new]


def _check_case(existing: set[str], new: Sequence[str], parent: str) -> None:
    folded = {name.lower(): name for name in existing}
    for name in new:
        if name.lower() in folded:
            raise SchemaConflict(
                f"the data has the column {parent}{name}, the table {parent}{folded[name.lower()]}: "
                "names that differ in case",
                hint=f"Rename it to {folded[name.lower()]}.",
                context={"column": f"{parent}{name}"},
            )


def _typos(absent: Sequence[str], new: Sequence[str]) -> str:
    """A sentence about new columns whose names are nearly those of missing columns; empty if there are none."""
    pairs = [f"{similar.existing} by {similar.new}" for similar in similar_columns(absent, new)]
    return f"Did you mean {' and '.join(pairs)}? Rename {'them' if len(pairs) > 1 else 'it'}. " if pairs else ""


def _missing(absent: Sequence[str], new: Sequence[str], rules: _Rules) -> SchemaConflict:
    plural, them = ("columns", "them") if len(absent) > 1 else ("column", "it")
    is_top_level = not any("." in name for name in absent)
    partly = f"; or call upsert(..., partial=True), which leaves {them} as stored in known keys" if is_top_level else ""
    if rules.takes is not None:
        return SchemaConflict(
            f"the value lacks the table's {plural} {', '.join(absent)}",
            hint=f"{_typos(absent, new)}Give {them} a value, or null: fields of structs are found by their names.",
            context={"columns": list(absent)},
        )
    return SchemaConflict(
        f"the data lacks the table's {plural} {', '.join(absent)}",
        hint=f"{_typos(absent, new)}Add {them}{partly}; or set"
        f" hoodie.write.set.null.for.missing.columns=true to fill {them} with null, or"
        f" hoodie.datasource.write.schema.allow.auto.evolution.column.drop=true to take {them} off the table.",
        context={"columns": list(absent)},
    )


def _not_taken_in(new: Sequence[str], absent: Sequence[str], rules: _Rules) -> SchemaConflict:
    plural, them = ("columns", "them") if len(new) > 1 else ("column", "it")
    return SchemaConflict(
        f"the data has the {plural} {', '.join(new)}, which the table has not",
        hint=f"{_typos(absent, new)}Leave {them} out, or "
        + (
            f"set {EVOLUTION_OPTION}=add to take new columns in."
            if rules.takes is None
            else f"add {them} to the table first: t.columns.add, or run a merge with schema evolution."
        ),
        context={"columns": list(new)},
    )


def _reconcile_field(table: pa.Field, incoming: pa.Field, rules: _Rules, column: str) -> pa.Field:
    if is_logical_struct(table):  # its values are cast to it, and never change it
        _check_logical(table, incoming, rules, column)
        return table.with_nullable(table.nullable or (incoming.nullable and rules.evolution != "strict"))
    kind = _reconcile_type(table.type, incoming.type, rules, column)
    nullable = table.nullable or (incoming.nullable and rules.evolution != "strict")
    return pa.field(table.name, kind, nullable, table.metadata if kind.equals(table.type) else None)


def _check_logical(table: pa.Field, incoming: pa.Field, rules: _Rules, column: str) -> None:
    """Raise `SchemaConflict` for values that cannot become those of a BLOB or VARIANT column."""
    descriptor = (table.metadata or {}).get(HUDI_TYPE, b"").decode()
    if not pt.is_struct(incoming.type) and not pt.is_null(incoming.type):
        names = ", ".join(field.name for field in table.type)
        raise SchemaConflict(
            f"column {column} is {descriptor} in the table and {type_name(incoming.type)} in the data",
            hint=f"give structs of {names}" + (", as lakebed.blob makes them" if is_blob(table) else ""),
            context={"column": column, "table": descriptor, "data": str(incoming.type)},
        )
    if pt.is_struct(incoming.type):
        strict = replace(rules, missing="error", evolution="strict")
        _reconcile_fields(list(table.type), list(incoming.type), strict, f"{column}.")


def _reconcile_type(table: pa.DataType, incoming: pa.DataType, rules: _Rules, column: str) -> pa.DataType:
    if is_vector(table):
        if table.equals(incoming) or takes_vectors(incoming, table):
            return table
        raise _refused(table, incoming, column)
    if pt.is_fixed_size_binary(table) and is_bytes(incoming):
        return table
    if pt.is_struct(table) and pt.is_struct(incoming):
        return pa.struct(_reconcile_fields(list(table), list(incoming), rules, f"{column}."))
    if pt.is_map(table) and pt.is_map(incoming):
        item = _reconcile_field(table.item_field, incoming.item_field, rules, f"{column}.value")
        return map_of(item.type, nullable=item.nullable, metadata=item.metadata)
    if is_list(table) and is_list(incoming) and not pt.is_map(table) and not pt.is_map(incoming):
        item = _reconcile_field(table.value_field, incoming.value_field, rules, f"{column}.element")
        return list_of(item.type, nullable=item.nullable, metadata=item.metadata)
    if table.equals(incoming) or _is_taken(incoming, table):
        return table
    if rules.takes is not None and not pt.is_nested(table) and rules.takes(incoming, table):
        return table
    if is_promotion(table, incoming) and not _guesses_unit(table, incoming) and not may_lose(table, incoming):
        if rules.evolution != "widen":
            raise _would_widen(table, incoming, column)
        return incoming
    raise _refused(table, incoming, column)


def _would_widen(table: pa.DataType, incoming: pa.DataType, column: str) -> SchemaConflict:
    have, want = type_name(incoming), type_name(table)
    return SchemaConflict(
        f"column {column} is {want} in the table and {have} in the data; a column's type does not change by itself",
        hint=f"Cast the data to {want} (in Spark: CAST({column} AS {want})), or set {EVOLUTION_OPTION}=widen, which"
        f" makes the table's column {have}.",
        context={"column": column, "table": want, "data": have},
    )


def _is_taken(incoming: pa.DataType, table: pa.DataType) -> bool:
    """Whether a table column of type `table` takes incoming values of type `incoming`."""
    if pt.is_timestamp(incoming) and pt.is_timestamp(table):
        return bool(incoming.tz) == bool(table.tz)
    return is_promotion(incoming, table) and not _guesses_unit(incoming, table)


def _guesses_unit(narrow: pa.DataType, wide: pa.DataType) -> bool:
    return pt.is_integer(narrow) and pt.is_timestamp(wide)


def _refused(table: pa.DataType, incoming: pa.DataType, column: str) -> SchemaConflict:
    have, want = type_name(incoming), type_name(table)
    loses = is_promotion(table, incoming) and not _guesses_unit(table, incoming)
    why = f"{have} does not keep every {want}" if loses else "neither can be read as the other"
    return SchemaConflict(
        f"column {column} is {want} in the table and {have} in the data; {why}",
        hint=f"Cast the data to {want}, or write it under another column name.",
        context={"column": column, "table": want, "data": have},
    )
