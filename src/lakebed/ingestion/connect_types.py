"""What the values of Debezium's changes mean, by the names of their schemas: times, dates and decimals as such columns.

Debezium writes a time as a whole number and a decimal as bytes; the schema's name says which (`MicroTimestamp`, ...).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import CorruptFile
from lakebed.format.avro.wrappers import decimals
from lakebed.ingestion.columns import with_elements
from lakebed.ingestion.messages import NoRow, slices, spans
from lakebed.schema.arrow import MAX_PRECISION
from lakebed.schema.conversion import floored_times

Kind = Literal["date", "timestamp", "time", "zoned", "decimal", "list", "struct"]
_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_UNITS: dict[str, tuple[Kind, str]] = {
    f"{_DEBEZIUM}Date": ("date", ""),
    f"{_CONNECT}Date": ("date", ""),
    f"{_DEBEZIUM}Timestamp": ("timestamp", "ms"),
    f"{_CONNECT}Timestamp": ("timestamp", "ms"),
    f"{_DEBEZIUM}MicroTimestamp": ("timestamp", "us"),
    f"{_DEBEZIUM}NanoTimestamp": ("timestamp", "ns"),
    f"{_DEBEZIUM}Time": ("time", "ms"),
    f"{_CONNECT}Time": ("time", "ms"),
    f"{_DEBEZIUM}MicroTime": ("time", "us"),
    f"{_DEBEZIUM}NanoTime": ("time", "ns"),
    f"{_DEBEZIUM}ZonedTimestamp": ("zoned", ""),
    f"{_CONNECT}Decimal": ("decimal", ""),
}
_WITH_SCHEMA = r'^\s*\{\s*"schema"\s*:\s*\{'
_BEFORE_PAYLOAD = re.compile(r'\s*,\s*"payload"\s*:')
_WITHOUT_SCHEMA = b'{"schema":null'
# Base64's letters by their bytes, 64 for the padding, 255 for what is none.
_NO_LETTER = 255
_LETTERS = np.full(256, _NO_LETTER, np.uint8)
_LETTERS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = range(64)
_LETTERS[ord("=")] = 64


@dataclass(frozen=True)
class Meaning:
    """The meaning of a column's values: the `unit` of a time, the `scale` and `digits` of a decimal, and the meanings
    of fields or elements."""

    kind: Kind
    unit: str = ""
    scale: int = 0
    digits: int = MAX_PRECISION
    fields: Mapping[str, Meaning] = field(default_factory=dict[str, "Meaning"])

    def stored(self, column_type: pa.DataType | None) -> pa.DataType | None:
        """The type of a column: `column_type` if it can hold the meaning, or without `column_type` the type of the
        meaning. None if the column stores the values as they are written."""
        match self.kind:
            case "date":
                return _if(column_type, pt.is_date, pa.date32())
            case "timestamp":
                return _if(column_type, pt.is_timestamp, pa.timestamp("us"))
            case "time":
                return _if(column_type, pt.is_time, pa.time64("us"))
            case "zoned":
                return _if(column_type, pt.is_timestamp, pa.timestamp("us", "UTC"))
            case "decimal":
                digits = min(max(self.digits, self.scale, 1), MAX_PRECISION)
                return _if(column_type, pt.is_decimal, pa.decimal128(digits, min(self.scale, digits)))
            case _:
                return column_type

    def read(self, column_type: pa.DataType | None) -> pa.DataType | None:
        """The type with which JSON is read: numbers and texts; None if the meaning makes no difference."""
        if self.kind == "list":
            inner = self.fields["element"].read(
                column_type.value_type if column_type is not None and pt.is_list(column_type) else None
            )
            return None if inner is None else pa.list_(inner)
        if self.kind == "struct":
            of = (
                {part.name: part.type for part in column_type}
                if column_type is not None and pt.is_struct(column_type)
                else {}
            )
            kinds = {name: meaning.read(of.get(name)) for name, meaning in self.fields.items()}
            meanings = {**of, **{name: kind for name, kind in kinds.items() if kind is not None}}
            return pa.struct(list(meanings.items())) if meanings else None
        if self.stored(column_type) is None:
            return None
        return pa.string() if self.kind in ("decimal", "zoned") else pa.int64()

    def typed(self, values: pa.Array, column_type: pa.DataType | None) -> pa.Array:
        """The values converted to the column that they mean. Raises an error if a value cannot be converted."""
        if pt.is_null(values.type):
            return values
        if self.kind == "list":
            if not pt.is_list(values.type):
                return values
            inner = column_type.value_type if column_type is not None and pt.is_list(column_type) else None
            return with_elements(values, self.fields["element"].typed(values.flatten(), inner))
        if self.kind == "struct":
            return self._typed_struct(values, column_type) if pt.is_struct(values.type) else values
        kind = self.stored(column_type)
        if kind is None:
            return values
        if self.kind == "decimal":
            return self._decimals(values).cast(kind) if pt.is_string(values.type) else values
        if self.kind == "zoned":
            return values.cast(kind) if pt.is_string(values.type) else values
        return self._times(values.cast(pa.int64()), kind) if pt.is_integer(values.type) else values

    def _times(self, numbers: pa.Array, kind: pa.DataType) -> pa.Array:
        if self.kind == "date":
            return numbers.cast(pa.int32()).cast(pa.date32()).cast(kind)
        if self.kind == "time":
            times = numbers.cast(pa.int32()).cast(pa.time32("ms")) if self.unit == "ms" else None
            times = numbers.cast(pa.time64(self.unit)) if times is None else times
            return pc.cast(times, kind, safe=False)
        times = numbers.cast(pa.timestamp(self.unit, kind.tz))
        if (self.unit, kind.unit) in (("ns", "us"), ("ns", "ms"), ("us", "ms")):
            times = floored_times(times, kind.unit)
        return times.cast(kind)

    def _decimals(self, texts: pa.Array) -> pa.Array:
        """The decimals in base64 texts, each of which encodes the unscaled value as big-endian bytes."""
        if self.scale > MAX_PRECISION or self.scale < 0:
            raise NoRow(f"a decimal has {self.scale} places, and columns have at most {MAX_PRECISION}")
        raw = from_base64(texts)
        try:
            return decimals(raw, pa.decimal128(MAX_PRECISION, self.scale))
        except CorruptFile as error:
            raise NoRow(error.message) from error

    def _typed_struct(self, values: pa.Array, column_type: pa.DataType | None) -> pa.Array:
        of = (
            {part.name: part.type for part in column_type}
            if column_type is not None and pt.is_struct(column_type)
            else {}
        )
        names = [part.name for part in values.type]
        children = [pc.struct_field(values, name) for name in names]
        children = [
            self.fields[name].typed(child, of.get(name)) if name in self.fields else child
            for name, child in zip(names, children, strict=True)
        ]
        return pa.StructArray.from_arrays(children, names, mask=values.is_null())


def _if(column_type: pa.DataType | None, fits: Any, kind: pa.DataType) -> pa.DataType | None:
    return kind if column_type is None else column_type if fits(column_type) else None


def meanings_of_connect(envelope: Any) -> dict[str, Meaning]:
    """The meanings of a table's columns by name, from the schema of an envelope in Kafka Connect's JSON."""
    states = {part.get("field"): part for part in _dicts(_get(envelope, "fields"))}
    meaning = _of_connect(states.get("after") or states.get("before"))
    return dict(meaning.fields) if meaning is not None else {}


def _of_connect(schema: Any) -> Meaning | None:
    name, kind = _get(schema, "name"), _get(schema, "type")
    if isinstance(name, str) and name in _UNITS:
        parameters = _get(schema, "parameters")
        scale, digits = _get(parameters, "scale"), _get(parameters, "connect.decimal.precision")
        return Meaning(*_UNITS[name], _number(scale, 0), _number(digits, MAX_PRECISION))
    if kind == "array":
        inner = _of_connect(_get(schema, "items"))
        return None if inner is None else Meaning("list", fields={"element": inner})
    if kind == "struct":
        meanings = {part.get("field"): _of_connect(part) for part in _dicts(_get(schema, "fields"))}
        fields = {name: inner for name, inner in meanings.items() if isinstance(name, str) and inner is not None}
        return Meaning("struct", fields=fields) if fields else None
    return None


def meanings_of_avro(envelope: str) -> dict[str, Meaning]:
    """The meanings of a table's columns by name, from the attributes `connect.name` in the Avro schema of an
    envelope."""
    try:
        schema: Any = json.loads(envelope)
    except (ValueError, RecursionError):
        return {}
    records = {name: record for record in _records(schema) for name in (record.get("name"),) if isinstance(name, str)}
    states = {part.get("name"): part.get("type") for part in _dicts(_get(schema, "fields"))}
    meaning = _of_avro(states.get("before"), records) or _of_avro(states.get("after"), records)
    return dict(meaning.fields) if meaning is not None else {}


def _of_avro(schema: Any, records: Mapping[str, Any], depth: int = 0) -> Meaning | None:
    if isinstance(schema, list):
        branches = [branch for branch in cast("list[Any]", schema) if branch != "null"]
        return _of_avro(branches[0], records, depth) if len(branches) == 1 else None
    if isinstance(schema, str):
        schema = records.get(schema.rpartition(".")[2])
    if not isinstance(schema, dict) or depth > _MAX_LEVELS:
        return None
    name, kind = _get(schema, "connect.name"), _get(schema, "type")
    if isinstance(name, str) and name in _UNITS:
        return Meaning(*_UNITS[name])
    if kind == "array":
        inner = _of_avro(_get(schema, "items"), records, depth + 1)
        return None if inner is None else Meaning("list", fields={"element": inner})
    if kind == "record":
        meanings = {
            part.get("name"): _of_avro(part.get("type"), records, depth + 1) for part in _dicts(schema["fields"])
        }
        fields = {name: inner for name, inner in meanings.items() if isinstance(name, str) and inner is not None}
        return Meaning("struct", fields=fields) if fields else None
    return _of_avro(kind, records, depth + 1) if isinstance(kind, dict | list) else None


# Schemas that nest deeper are recursive.
_MAX_LEVELS = 32


def _records(schema: Any) -> Iterator[dict[str, Any]]:
    """All records inside an Avro schema."""
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += cast("list[Any]", part)
        elif isinstance(part, dict):
            record = cast("dict[str, Any]", part)
            if record.get("type") == "record":
                yield record
            pending += [record[key] for key in ("type", "items", "values", "fields") if key in record]


def _get(schema: Any, key: str) -> Any:
    return cast("dict[str, Any]", schema).get(key) if isinstance(schema, dict) else None


def _dicts(parts: Any) -> list[dict[str, Any]]:
    return [part for part in cast("list[Any]", parts) if isinstance(part, dict)] if isinstance(parts, list) else []


def _number(text: Any, default: int) -> int:
    return int(text) if isinstance(text, int | str) and str(text).lstrip("-").isdecimal() else default


def by_connect_schema(messages: pa.Array) -> Iterator[tuple[pa.Array, np.ndarray, Any]]:
    """The messages of Kafka Connect's JSON, grouped by schema: the messages without the schema, their numbers, and the
    schema (None for messages that do not begin with one)."""
    has = np.asarray(pc.fill_null(pc.match_substring_regex(messages, _WITH_SCHEMA), False))
    if not has.all():
        numbers = np.flatnonzero(~has)
        yield messages.take(pa.array(numbers)), numbers, None
    left = np.flatnonzero(has)
    while len(left):
        first = messages[int(left[0])].as_py()
        schema, end = _first_schema(first)
        if not end:
            yield messages.slice(int(left[0]), 1), left[:1], None
            left = left[1:]
            continue
        values = messages.take(pa.array(left))
        same = pc.starts_with(values, pattern=first[:end])
        bodies = pc.binary_replace_slice(values.filter(same), start=0, stop=end, replacement=_WITHOUT_SCHEMA)
        flags = np.asarray(same)
        yield bodies, left[flags], schema
        left = left[~flags]


def _first_schema(message: bytes) -> tuple[Any, int]:
    """The schema with which a message begins, and the number of bytes up to its end; 0 if it does not begin with
    one."""
    try:
        text = message.decode()
        start = re.match(_WITH_SCHEMA, text)
        assert start is not None
        schema, end = json.JSONDecoder().raw_decode(text, start.end() - 1)
    except (ValueError, RecursionError):
        return None, 0
    return (schema, len(text[:end].encode())) if _BEFORE_PAYLOAD.match(text, end) else (None, 0)


def from_base64(texts: pa.Array) -> pa.Array:
    """The bytes of base64 texts. Raises an error if a text is not base64.

    >>> from_base64(pa.array(["AQI=", "1234", None])).to_pylist()
    [b'\\x01\\x02', b'\\xd7m\\xf8', None]
    """
    data, starts, ends = spans(pc.fill_null(texts, "").cast(pa.binary()))
    first, last = (int(starts[0]), int(ends[-1])) if len(starts) else (0, 0)
    letters, starts, ends = _LETTERS[data[first:last]], starts - first, ends - first
    lengths = ends - starts
    padding = np.zeros(len(starts), np.int64)
    for back in (1, 2):
        at = np.flatnonzero((lengths > 0) & (padding == back - 1))
        padding[at] += letters[ends[at] - back] == _LETTERS[ord("=")]
    is_padding = letters == _LETTERS[ord("=")]
    if (lengths % 4).any() or (letters == _NO_LETTER).any() or is_padding.sum() != padding.sum():
        raise NoRow("a text is no base64, in which Debezium writes decimals")
    groups = np.where(is_padding, 0, letters).reshape(-1, 4).astype(np.uint32)
    numbers = (groups[:, 0] << 18) | (groups[:, 1] << 12) | (groups[:, 2] << 6) | groups[:, 3]
    decoded = np.stack([numbers >> 16, numbers >> 8, numbers], axis=1).astype(np.uint8).reshape(-1)
    values = slices(decoded, starts // 4 * 3, ends // 4 * 3 - padding)
    return pc.if_else(texts.is_valid(), values, pa.scalar(None, pa.binary()))
