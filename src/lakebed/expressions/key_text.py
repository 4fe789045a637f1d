"""Hudi's string form of a column, as it is inside a record key or a partition path; and record keys: one field's
text, or `f1:v1,f2:v2`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRecord, SchemaConflict
from lakebed.expressions.base import Column, bind_sql, columns_of, repeat_text, sql_literal
from lakebed.expressions.zones import UTC_ZONE, Zone
from lakebed.schema.arrow import is_text
from lakebed.schema.conversion import floored_times
from lakebed.schema.java_text import to_java_text
from lakebed.schema.logical_types import is_bytes, type_text
from lakebed.schema.plain_arrow import text_scalar

# BigDecimal leaves plain notation below 1E-6 only: a column of this scale never needs help.
_PLAIN_SCALE = 6
_MICROS_A_MILLI = 1000
# What java.sql.Timestamp prints, but for its fraction's trailing zeros.
_TIMESTAMP_PATTERN = "yyyy-MM-dd HH:mm:ss.SSS"
_TRAILING_ZEROS = "0{1,2}$"
_DIGITS = re.compile("^-?[0-9]+$")


@dataclass(frozen=True, slots=True)
class KeyText:
    """The text of a column in keys and paths; null stays null.

    Numbers and booleans as Java prints them (on Spark the last digit of a rare double depends on the JVM: before 19
    it was not always the shortest), decimals with all digits of their scale (`1.50`; below 1E-6 as `1E-7`), dates
    `2024-02-03`, binary as lower-case hex, timestamps as epoch micros (without a zone: of the local time). With
    `consistent_timestamp` (Hudi's consistent logical timestamp) a timestamp is `yyyy-MM-dd HH:mm:ss.f` in `zone`, at
    most three fraction digits and at least one.

    >>> from decimal import Decimal
    >>> batch = pa.record_batch({"d": pa.array([Decimal("0.5"), Decimal("0.0000001")], pa.decimal128(10, 7))})
    >>> KeyText("d").arrow(batch).to_pylist()
    ['0.5000000', '1E-7']
    """

    column: str
    consistent_timestamp: bool = False
    zone: Zone = UTC_ZONE

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def can_be_empty(self, schema: pa.Schema) -> bool:
        """Whether a value's text can be an empty string."""
        kind = Column(self.column).type_in(schema)
        return is_text(kind) or is_bytes(kind)

    def is_free_text(self, schema: pa.Schema) -> bool:
        """Whether a value's text can hold any character (a string column)."""
        return is_text(Column(self.column).type_in(schema))

    def determines_values(self, schema: pa.Schema) -> bool:
        """Whether values with equal texts are equal; of timestamps, floating numbers and bytes that is not said."""
        kind = Column(self.column).type_in(schema)
        integers = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
        return is_text(kind) or integers or pa.types.is_date(kind) or pa.types.is_decimal(kind)

    def sql(self, schema: pa.Schema) -> str:
        column = Column(self.column)
        kind, name = column.type_in(schema), column.sql(schema)
        if is_text(kind):
            return name
        if is_bytes(kind):
            return f"lower(hex({name}))"
        if pa.types.is_timestamp(kind):
            return self._timestamp_sql(kind, name)
        if pa.types.is_decimal(kind) and kind.scale > _PLAIN_SCALE:
            return _decimal_sql(name, kind.scale)
        if _is_castable(kind):
            return f"CAST({name} AS STRING)"
        raise self._refuse(kind)

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        values = Column(self.column).arrow(batch)
        kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        if pa.types.is_timestamp(kind):
            return self._timestamp_arrow(values.cast(kind))
        if pa.types.is_decimal(kind):
            # Arrow prints decimals as BigDecimal.toString does
            return values.cast(pa.string())
        if is_text(kind) or is_bytes(kind) or _is_castable(kind):
            return to_java_text(values)
        raise self._refuse(kind)

    def values_of(self, texts: pa.Array, schema: pa.Schema) -> pa.Array:
        """The values of the column with these key texts. Raises `InvalidRecord` for a text without a value."""
        kind = Column(self.column).type_in(schema)
        return values_of_key_texts(texts, kind, self.zone if self.consistent_timestamp else UTC_ZONE)

    def _timestamp_sql(self, kind: pa.DataType, name: str) -> str:
        micros = f"unix_micros({name})" if kind.tz else ntz_micros_sql(name)
        if not self.consistent_timestamp or not kind.tz:
            return f"CAST({micros} AS STRING)"
        from lakebed.expressions.joda import print_pattern

        # rounds towards 1970, as Hudi does
        millis = f"({micros} DIV {_MICROS_A_MILLI}L)"
        text = print_pattern(_TIMESTAMP_PATTERN).sql(self.zone.local_sql(millis))
        return f"regexp_replace({text}, '{_TRAILING_ZEROS}', '')"

    def _timestamp_arrow(self, values: pa.Array) -> pa.Array:
        micros = timestamp_micros(values)
        if not self.consistent_timestamp or not values.type.tz:
            return micros.cast(pa.string())
        from lakebed.expressions.joda import print_pattern

        local = self.zone.local_millis(pc.divide(micros, _MICROS_A_MILLI))
        text = print_pattern(_TIMESTAMP_PATTERN).arrow(local)
        return pc.replace_substring_regex(text, _TRAILING_ZEROS, "")

    def _refuse(self, kind: pa.DataType) -> SchemaConflict:
        return SchemaConflict(
            f"column `{self.column}` of type {type_text(kind)} cannot be part of a record key or partition path",
            hint="Use a string, number, boolean, date, timestamp, decimal or binary column",
            context={"column": self.column, "type": str(kind)},
        )


def value_of_key_text(text: str | None, type_: pa.DataType) -> Any:
    """The value of a column with this key text, or with this text in a partition path. Raises `InvalidRecord` for a
    text that is not a value of the type.

    >>> value_of_key_text("1000000", pa.timestamp("us")), value_of_key_text("61ff", pa.binary())
    (datetime.datetime(1970, 1, 1, 0, 0, 1), b'a\\xff')
    """
    return values_of_key_texts(pa.array([text], pa.string()), type_)[0].as_py()


def values_of_key_texts(texts: pa.Array, type_: pa.DataType, zone: Zone = UTC_ZONE) -> pa.Array:
    """The values of a column with these key texts; the value of null is null. A time may also be written as a date and
    a time of day, in `zone` unless the text names a zone. Raises `InvalidRecord` for the first text that is not a value
    of the type.

    >>> values_of_key_texts(pa.array(["1.5", None]), pa.decimal128(10, 2)).to_pylist()
    [Decimal('1.50'), None]
    """
    from lakebed.schema.assignment import check_finite

    try:
        if is_bytes(type_):
            return pa.array([None if text is None else bytes.fromhex(text) for text in texts.to_pylist()], type_)
        if pa.types.is_timestamp(type_):
            return _times_of(texts, type_, zone)
        values = texts.cast(type_)
        if pa.types.is_integer(type_) and pc.any(pc.match_substring_regex(texts, "[xX]")).as_py():
            raise ValueError  # Arrow also reads hexadecimal digits
        if pa.types.is_floating(type_):
            check_finite(values, texts)
        return values
    except (pa.ArrowInvalid, ValueError):
        if len(texts) > 1:
            half = len(texts) // 2
            for part in (texts[:half], texts[half:]):
                values_of_key_texts(part, type_, zone)
        raise InvalidRecord(
            f"the text {texts[0].as_py()!r} of a key or a partition path is no value of type {type_}",
            hint="a table that keeps its partition columns in its files reads them from there",
            context={"text": texts[0].as_py(), "type": str(type_)},
        ) from None


def _times_of(texts: pa.Array, type_: pa.TimestampType, zone: Zone) -> pa.Array:
    is_number, missing = pc.match_substring_regex(texts, _DIGITS.pattern), pa.scalar(None, pa.string())
    numbers = pc.if_else(is_number, texts, missing).cast(pa.int64()).cast(pa.timestamp("us", type_.tz))
    written = pc.if_else(is_number, missing, texts)
    if type_.tz is None:
        return pc.coalesce(numbers.cast(type_), written.cast(type_))
    try:
        times = written.cast(type_)
    except pa.ArrowInvalid:  # they name no zone
        local = written.cast(pa.timestamp("us")).cast(pa.int64())
        millis = pc.divide(local, _MICROS_A_MILLI)
        ahead = pc.multiply(pc.subtract(millis, zone.utc_millis(millis)), _MICROS_A_MILLI)
        times = pc.subtract(local, ahead).cast(pa.timestamp("us", type_.tz)).cast(type_)
    return pc.coalesce(numbers.cast(type_), times)


def _is_castable(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
    )


def timestamp_micros(values: pa.Array) -> pa.Array:
    """Timestamps of any unit as epoch micros (int64), rounded down."""
    micros = pa.timestamp("us", values.type.tz)
    if values.type.unit == "ns":
        values = floored_times(values, "us")
    return values.cast(micros).cast(pa.int64())


def _decimal_sql(name: str, scale: int) -> str:
    """The Spark SQL for `BigDecimal.toString`: plain from 1E-6 on, otherwise scientific. CAST gives this or the plain
    text, depending on ANSI mode."""
    plain = f"format_number({name}, '0.{'0' * scale}')"
    digits = f"coalesce(nullif(regexp_replace({plain}, '^-?[0.]*', ''), ''), '0')"
    point = "CASE WHEN length(lb_digits) > 1 THEN '.' ELSE '' END"
    exponent = f"CAST({scale + 1} - length(lb_digits) AS STRING)"
    text = f"concat(substr(lb_digits, 1, 1), {point}, substr(lb_digits, 2), 'E-', {exponent})"
    # with an integer zero a decimal(38, 38) would lose digits to be compared
    short = f"concat(CASE WHEN {name} < 0.0 THEN '-' ELSE '' END, {bind_sql('lb_digits', digits, text)})"
    return f"CASE WHEN abs({name}) < 0.000001 THEN {short} ELSE {plain} END"


def ntz_micros_sql(name: str) -> str:
    """The Spark SQL for the micros of a TIMESTAMP_NTZ column since 1970-01-01 00:00 of its own local time, without a
    session zone."""
    days = f"CAST(unix_date(CAST({name} AS DATE)) AS BIGINT) * 86400000000L"
    hours = f"hour({name}) * 3600000000L + minute({name}) * 60000000L"
    return f"({days} + {hours} + CAST(extract(SECOND FROM {name}) * 1000000 AS BIGINT))"


NULL_VALUE, EMPTY_VALUE = "__null__", "__empty__"
_NULL, _EMPTY, _NO_TEXT = text_scalar(NULL_VALUE), text_scalar(EMPTY_VALUE), text_scalar("")
_ONE = pa.scalar(1, pa.int32())


@dataclass(frozen=True, slots=True)
class SingleKey:
    """An expression for the text of one field as the record key; null if it is null or empty (no key at all).

    >>> SingleKey(KeyText("id")).arrow(pa.record_batch({"id": ["a", "", None]})).to_pylist()
    ['a', None, None]
    """

    text: KeyText

    @property
    def columns(self) -> tuple[str, ...]:
        return self.text.columns

    def sql(self, schema: pa.Schema) -> str:
        text = self.text.sql(schema)
        return f"CASE WHEN {text} != '' THEN {text} END" if self.text.can_be_empty(schema) else text

    def values_in(self, keys: pa.Array, schema: pa.Schema) -> pa.Table:
        """The values of the key field for these keys. Raises `InvalidRecord` for a key without a value."""
        return pa.table({self.text.column: self.text.values_of(keys, schema)})

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        text = self.text.arrow(batch)
        if not self.text.can_be_empty(batch.schema):
            return text
        empty = pc.equal(text, _NO_TEXT)
        return pc.if_else(empty, pa.scalar(None, pa.string()), text) if pc.any(empty).as_py() else text


@dataclass(frozen=True, slots=True)
class CompositeKey:
    """An expression for the record key `f1:v1,f2:v2` in the order of the fields; null is written `__null__`, an empty
    text `__empty__`; null if all are null or empty.

    >>> key = CompositeKey((KeyText("a"), KeyText("b")))
    >>> key.arrow(pa.record_batch({"a": [1, 2, None], "b": ["x", "", None]})).to_pylist()
    ['a:1,b:x', 'a:2,b:__empty__', None]
    """

    texts: tuple[KeyText, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of(self.texts)

    def sql(self, schema: pa.Schema) -> str:
        parts: list[str] = []
        present: list[str] = []
        for number, text in enumerate(self.texts):
            value = text.sql(schema)
            parts += [sql_literal(_prefix(number, text)), f"coalesce({value}, '{NULL_VALUE}')"]
            present.append(f"{value} IS NOT NULL")
            if text.can_be_empty(schema):
                parts[-1] = f"CASE WHEN {value} = '' THEN '{EMPTY_VALUE}' ELSE {parts[-1]} END"
                present[-1] = f"coalesce({value}, '') != ''"
        return f"CASE WHEN {' OR '.join(present)} THEN concat({', '.join(parts)}) END"

    def values_in(self, keys: pa.Array, schema: pa.Schema) -> pa.Table:
        """The values of the key fields for these keys. Raises `InvalidRecord` for a key without values."""
        if len(self.texts) == 1:  # releases store it with and without its name
            name = f"^{re.escape(_prefix(0, self.texts[0]))}"
            keys = pc.replace_substring_regex(keys, name, "", max_replacements=1)
            return SingleKey(self.texts[0]).values_in(keys, schema)
        groups = [
            f"{re.escape(_prefix(n, text))}(?P<f{n}>.*{'?' * (n + 1 < len(self.texts))})"
            for n, text in enumerate(self.texts)
        ]
        parts = pc.extract_regex(keys, f"(?s)^{''.join(groups)}$")
        if parts.null_count:
            raise InvalidRecord(
                f"the text {keys.filter(parts.is_null())[0].as_py()!r} is no key of {', '.join(self.columns)}",
                hint=f"write it as {''.join(f'{_prefix(n, text)}VALUE' for n, text in enumerate(self.texts))}",
            )
        columns: dict[str, pa.Array] = {}
        for number, text in enumerate(self.texts):
            values = parts.field(number)
            values = pc.if_else(pc.equal(values, _NULL), pa.scalar(None, pa.string()), values)
            values = pc.if_else(pc.equal(values, _EMPTY), _NO_TEXT, values)
            columns[text.column] = text.values_of(values, schema)
        return pa.table(columns)

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        parts: list[pa.Array | str] = []
        absent: pa.Array | None = None
        for number, text in enumerate(self.texts):
            value = text.arrow(batch)
            empty = pc.fill_null(pc.equal(value, _NO_TEXT), True)
            absent = empty if absent is None else pc.and_(absent, empty)
            encoded = pc.fill_null(
                pc.replace_with_mask(value, pc.fill_null(pc.equal(value, _NO_TEXT), False), _EMPTY),
                NULL_VALUE,
            )
            parts += [text_scalar(_prefix(number, text)), encoded]
        if absent is None:
            return repeat_text(None, batch.num_rows)
        key = pc.binary_join_element_wise(*parts, _NO_TEXT)
        return pc.if_else(absent, pa.scalar(None, pa.string()), key)


@dataclass(frozen=True, slots=True)
class SharedText:
    """Whether other field values may give the composite key text that a column holds: a field holds the name of a later
    field in the form of the text, or a field is null, empty, or the text that means null or empty.

    >>> shared = SharedText("k", ("a", "b"))
    >>> shared.of_texts(pa.array(["a:x,b:y", "a:x,b:y,b:z", "a:__null__,b:y"])).to_pylist()
    [False, True, True]
    """

    column: str
    fields: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def sql(self, schema: pa.Schema) -> str:
        text = Column(self.column).sql(schema)
        terms = [f"instr({text}, {sql_literal(value)}) > 0" for value in (NULL_VALUE, EMPTY_VALUE)]
        for mark in self._marks:
            left = f"replace({text}, {sql_literal(mark)}, '')"
            terms.append(f"length({text}) - length({left}) > {len(mark)}")
        return f"({' OR '.join(terms)})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return self.of_texts(batch.column(self.column))

    def of_texts(self, keys: pa.Array) -> pa.Array:
        """Flags of the key texts that belong to other field values as well."""
        shared = pc.match_substring(keys, NULL_VALUE)
        shared = pc.or_(shared, pc.match_substring(keys, EMPTY_VALUE))
        for mark in self._marks:
            shared = pc.or_(shared, pc.greater(pc.count_substring(keys, mark), _ONE))
        return shared

    @property
    def _marks(self) -> list[str]:
        return [f",{name}:" for name in self.fields[1:]]


def _prefix(number: int, text: KeyText) -> str:
    return f"{',' if number else ''}{text.column}:"
