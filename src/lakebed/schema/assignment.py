"""The one rule for values that come into a column, whichever way they come: which types a column takes (`check_fits`),
the values in its type (`in_column`), and that digits are no infinity (`check_finite`). docs/types.md has the rule as a
table.

An upsert takes what a column stores exactly. A value of SQL (an INSERT, an UPDATE, a MERGE) is taken as well where
Spark's store assignment rounds it or reads it: `SQL` is that extension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import InvalidRecord, SchemaConflict
from lakebed.schema.arrow import MAX_WIDE_PRECISION, check_nulls, is_text, normal_type
from lakebed.schema.blobs import check_blobs
from lakebed.schema.conversion import cast_column, converted_inside, may_lose
from lakebed.schema.evolution import MissingColumns, reconcile
from lakebed.schema.logical_types import (
    check_lengths,
    check_variants,
    is_blob,
    is_bytes,
    is_variant_column,
    is_vector,
    vectors_of_rows,
)
from lakebed.schema.spark import spark_type, type_name

_BEYOND_LONG = float(1 << 63)  # the first number that is too great for a long, as a double
_DOUBLE_DIGITS = 18
_MAX_VALUE = 60
# What Arrow raises for a value.
_REFUSALS = (pa.ArrowInvalid, OverflowError, UnicodeError)


@dataclass(frozen=True, slots=True)
class Rule:
    """The origin of values: data, or SQL with its wider conversions. `zone` is the time zone in which a local time is a
    moment; without one a local time and a moment are not converted to each other."""

    sql: bool = False
    zone: str | None = None


DATA, SQL = Rule(), Rule(sql=True)


def check_fits(
    kind: pa.DataType,
    field: pa.Field,
    rule: Rule = SQL,
    *,
    missing: MissingColumns = "error",
    text: str | None = None,
) -> None:
    """Raise `SchemaConflict` where a column as it is does not take values of a type. Fields of structs are found by
    name: the column must have each, and one that the values lack is an error, or null with `missing="null"`. `text` is
    the expression that gives the values, where it is known.

    >>> check_fits(pa.int64(), pa.field("price", pa.decimal128(10, 2)))
    """
    to, column = field.type, field.name
    if kind.equals(to) or pt.is_null(kind):
        return
    # the length that a type has is compared with the vector's
    has_length = is_vector(to) and (pt.is_fixed_size_list(kind) or pt.is_fixed_size_binary(kind))
    have = kind if has_length else normal_type(kind, column)
    lacking: MissingColumns = "null" if missing == "null" else "error"
    try:
        reconcile(
            pa.schema([field]),
            pa.schema([(column, have)]),
            missing=lacking,
            evolution="strict",
            takes=lambda incoming, stored: _is_assigned(incoming, stored, rule),
        )
    except SchemaConflict as error:
        if (pt.is_nested(have) or pt.is_nested(to)) and not is_vector(to):
            raise
        giver = "the data gives" if text is None else f"{_cut(repr(text))} gives"
        raise SchemaConflict(
            f"column {column!r} is {type_name(to)}, and {giver} {type_name(have)}",
            hint=f"cast it: CAST({'...' if text is None or _cut(text) != text else text} AS {spark_type(to)})",
            context={"column": column, "table": str(to), "data": str(kind)},
        ) from error


def _is_assigned(kind: pa.DataType, to: pa.DataType, rule: Rule) -> bool:
    """Whether SQL's wider conversions accept values of a simple type, in addition to the conversions of an upsert."""
    if pt.is_timestamp(kind) and pt.is_timestamp(to):
        return rule.zone is not None
    if not rule.sql:
        return False
    if _is_number(kind) and _is_number(to):
        return True
    if pt.is_string(to):
        return pt.is_boolean(kind) or pt.is_date(kind)
    return is_text(kind) and (pt.is_date(to) or pt.is_decimal(to))


def _is_number(kind: pa.DataType) -> bool:
    return pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)


def in_column(values: pa.Array, field: pa.Field, rule: Rule = DATA) -> pa.Array:
    """The values in the type of a column that takes their type. Raises `InvalidRecord` for a value that the column does
    not keep, naming column and value.

    >>> in_column(pa.array([1.239, None]), pa.field("price", pa.decimal128(10, 2)), SQL)[0].as_py()
    Decimal('1.24')
    """
    converted = _converted(values, field.type, field.name, rule)
    _check_required(converted, field.type, field.name)
    if is_blob(field):
        check_blobs(converted, field.name)
    elif is_variant_column(field):
        check_variants(converted, field.name)
    return converted


def _has_checked_values(field: pa.Field) -> bool:
    """Whether values of a column are looked at although they have its type."""
    return is_vector(field.type) or is_blob(field) or is_variant_column(field)


def _check_required(values: Any, kind: pa.DataType, column: str) -> None:
    """Raise `InvalidRecord` for a null in a field of a struct that takes none, under a struct that is not null."""
    if not pt.is_struct(kind) or isinstance(values, pa.ChunkedArray):
        return
    for field, part in zip(kind, values.flatten(), strict=True):
        if not field.nullable and part.null_count > values.null_count:
            raise InvalidRecord(
                f"column {column} has a null in its field {field.name}, which is declared not null",
                hint="fill it, or make the complete struct null",
                context={"column": f"{column}.{field.name}"},
            )
        _check_required(part, field.type, f"{column}.{field.name}")


def check_finite(numbers: pa.Array | pa.ChunkedArray, source: pa.Array | pa.ChunkedArray) -> None:
    """Raise `ArrowInvalid` for the first of these floating-point numbers that is infinite although `source`, the texts
    or the numbers from which it was read, has digits there: it is too large for the type.

    >>> check_finite(pa.array([1.5, float("inf")]), pa.array(["1.5", "Infinity"]))
    """
    is_infinite = pc.fill_null(pc.is_inf(numbers), False)
    if pc.any(is_infinite).as_py():
        texts = source.filter(is_infinite).cast(pa.string())
        beyond = texts.filter(pc.match_substring_regex(texts, "[0-9]"))
        if len(beyond):
            raise pa.ArrowInvalid(f"'{beyond[0].as_py()}' is too great for a {numbers.type}")


def project_incoming(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The incoming rows in the columns of `schema`, matched by name; missing columns are null, additional ones are left
    out. Raises `InvalidRecord` for a value that its column cannot store, and for a null in a required column.

    >>> project_incoming(pa.record_batch({"a": pa.array([7])}), pa.schema([("a", pa.float32())])).to_pylist()
    [{'a': 7.0}]
    """
    if batch.schema.equals(schema) and not any(map(_has_checked_values, schema)):
        return batch
    columns: list[pa.Array] = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if at < 0 else in_column(batch.column(at), field)
        check_nulls(column, field)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _converted(values: Any, to: pa.DataType, column: str, rule: Rule) -> Any:
    kind = values.type
    if kind.equals(to) and not is_vector(to):
        return values
    if pt.is_dictionary(kind):
        return _converted(values.dictionary_decode(), to, column, rule)
    if isinstance(values, pa.ExtensionArray) and not pt.is_string(to):
        return _converted(values.storage, to, column, rule)
    if pt.is_null(kind):
        return pa.nulls(len(values), to)
    if is_vector(to):
        return vectors_of_rows(values, to, column)
    if pt.is_fixed_size_binary(to) and is_bytes(kind):
        check_lengths(values, to.byte_width, column, f"a value of {to.byte_width} bytes")
    if pt.is_nested(kind) or pt.is_nested(to):

        def inside(part: Any, inner: pa.DataType, step: str) -> Any:
            return _converted(part, inner, column + step, rule)

        return converted_inside(values, to, inside)
    converted = _each(values, to, column, _way(kind, to, rule))
    _check_exact(values, _is_lost(values, converted), to, column)
    return converted


def _way(kind: pa.DataType, to: pa.DataType, rule: Rule) -> Callable[[pa.Array, pa.DataType], pa.Array]:
    """The function that converts simple values from `kind` to `to`."""
    if pt.is_timestamp(kind) and pt.is_timestamp(to) and bool(kind.tz) != bool(to.tz):
        return lambda values, to: _in_zone(values, to, rule.zone or "UTC")
    if not rule.sql:
        return cast_column
    if pt.is_decimal(to):
        return _to_decimal
    if pt.is_integer(to) and not pt.is_integer(kind):
        return _to_integers
    if pt.is_floating(to) and pt.is_decimal(kind):
        return lambda values, to: values.cast(pa.string()).cast(to)  # the nearest number, which Arrow's own cast misses
    if pt.is_integer(to) and pt.is_integer(kind):
        return lambda values, to: values.cast(to)
    return cast_column


def _each(
    values: pa.Array, to: pa.DataType, column: str, convert: Callable[[pa.Array, pa.DataType], pa.Array]
) -> pa.Array:
    """The values converted by `convert`. Raises an error with the first value for which it fails."""
    try:
        return convert(values, to)
    except _REFUSALS:
        if not len(values):
            raise
    low, high = 0, len(values)  # the first bad value is in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(values.slice(low, middle - low), to)
            low = middle
        except _REFUSALS:
            high = middle
    raise _refusal(values.slice(low, 1), 1, to, column)


def _check_exact(values: pa.Array, lost: pa.Array | None, to: pa.DataType, column: str) -> None:
    if lost is None:
        return
    bad = values.filter(pc.fill_null(lost, False))
    if len(bad):
        raise _refusal(bad, len(bad), to, column)


def _refusal(bad: pa.Array, count: int, to: pa.DataType, column: str) -> InvalidRecord:
    value = _value_text(bad)
    return InvalidRecord(
        f"column {column} is {spark_type(to)} in the table, which does not keep {value}"
        + (f" and {count - 1} more" if count > 1 else ""),
        hint="Correct, round or cut the values yourself before writing, or write them under another column name.",
        context={"column": column, "value": value, "table": str(to), "data": str(bad.type)},
    )


def _value_text(values: pa.Array) -> str:
    try:
        text = repr(values[0].as_py())
    except (ValueError, OverflowError):  # a time that Python does not have
        text = str(values.slice(0, 1).view(pa.int32() if pt.is_date32(values.type) else pa.int64())[0])
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_VALUE else text[:_MAX_VALUE] + "..."


def _is_lost(source: pa.Array, converted: pa.Array) -> pa.Array | None:
    """Flags of the values that the conversion changed; None if it cannot change any."""
    kind, to = source.type, converted.type
    if pt.is_integer(kind) and may_lose(kind, to):
        wide = converted.cast(pa.float64())
        back = pc.if_else(pc.less(wide, _BEYOND_LONG), wide, 0.0).cast(pa.int64(), safe=False)
        return pc.or_(pc.greater_equal(wide, _BEYOND_LONG), pc.not_equal(back, source.cast(pa.int64())))
    if pt.is_floating(to) and (pt.is_floating(kind) or pt.is_decimal(kind)):
        infinite = pc.is_inf(converted)
        return pc.and_not(infinite, pc.is_inf(source)) if pt.is_floating(kind) else infinite
    if pt.is_timestamp(kind) and may_lose(kind, to):
        micros = pa.timestamp("us", kind.tz)
        return pc.not_equal(source.cast(micros, safe=False), converted.cast(micros))
    if may_lose(kind, to):  # bytes that become text
        return pc.not_equal(source.cast(pa.binary()), converted.cast(pa.binary()))
    return None


def _to_decimal(values: pa.Array, to: pa.DataType) -> pa.Array:
    """The values as decimals, rounded half up; raises an error if one has more digits before the point than the
    type."""
    kind = values.type
    if pt.is_integer(kind):
        return (
            values.cast(pa.decimal256(MAX_WIDE_PRECISION - to.scale, 0))
            .cast(pa.decimal256(MAX_WIDE_PRECISION, to.scale))
            .cast(to)
        )
    if pt.is_decimal(kind):
        wide = values.cast(pa.decimal256(MAX_WIDE_PRECISION, kind.scale))
    else:
        scale = to.scale + _DOUBLE_DIGITS
        if pt.is_floating(kind):
            least = 10.0 ** -(to.scale + 1)  # what is less rounds to nothing
            values = pc.if_else(pc.less(pc.abs(values), least), pa.scalar(0.0, kind), values)
        else:
            scale = MAX_WIDE_PRECISION // 2
        wide = values.cast(pa.string()).cast(pa.decimal256(MAX_WIDE_PRECISION, scale))
    if wide.type.scale > to.scale:
        wide = pc.round(wide, ndigits=to.scale, round_mode="half_towards_infinity")
    return wide.cast(pa.decimal256(MAX_WIDE_PRECISION, to.scale)).cast(to)


def _to_integers(values: pa.Array, to: pa.DataType) -> pa.Array:
    """The values as whole numbers; fractions are cut off."""
    if pt.is_decimal(values.type):
        values = values.cast(pa.decimal256(MAX_WIDE_PRECISION, values.type.scale))
    return pc.trunc(values).cast(to)


def _in_zone(values: pa.Array, to: pa.DataType, zone: str) -> pa.Array:
    unit: Literal["ms", "us"] = "ms" if to.unit == "ms" else "us"
    if to.tz:
        return cast_column(pc.assume_timezone(values, zone), pa.timestamp(unit, zone)).cast(to)
    return cast_column(pc.local_timestamp(values.cast(pa.timestamp(values.type.unit, zone))), to)
