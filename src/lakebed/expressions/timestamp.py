"""Partition paths by time: Hudi's timestamp-based key generator, for numbers, dates, timestamps and date texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption, SchemaConflict
from lakebed.expressions.base import Column, bind_sql, sql_literal, unescape
from lakebed.expressions.joda import PrintPattern, print_pattern
from lakebed.expressions.joda_read import ReadPattern, read_pattern
from lakebed.expressions.key_text import ntz_micros_sql, timestamp_micros
from lakebed.expressions.zones import UTC_ZONE, Zone, java_zone
from lakebed.schema.arrow import is_text
from lakebed.schema.plain_arrow import text_scalar

# Milliseconds a unit, as numerator and denominator.
_UNITS = {
    "NANOSECONDS": (1, 1_000_000),
    "MICROSECONDS": (1, 1000),
    "MILLISECONDS": (1, 1),
    "SECONDS": (1000, 1),
    "MINUTES": (60_000, 1),
    "HOURS": (3_600_000, 1),
    "DAYS": (86_400_000, 1),
}
_TYPE_UNITS = {
    "UNIX_TIMESTAMP": "SECONDS",
    "EPOCHMILLISECONDS": "MILLISECONDS",
    "EPOCHMICROSECONDS": "MICROSECONDS",
}
_TEXT_TYPES = ("DATE_STRING", "MIXED")
# Some five million years, near what 32 bits of days hold: a time further off is a wrong unit, and has no path.
_MAX_MILLIS = 185 * 10**15
_MAX_LONG = 9.2e18


@dataclass(frozen=True, slots=True)
class TimestampSettings:
    """The `hoodie.keygen.timebased.*` settings, checked. `unit` is None if the column has date texts. Zones that are
    not set are None."""

    type: str
    unit: tuple[int, int] | None
    output: PrintPattern
    inputs: tuple[ReadPattern, ...]
    first_input: str
    input_zone: Zone | None
    output_zone: Zone | None
    default_zone: Zone

    @staticmethod
    def of(settings: Mapping[str, str], timezone: str = "UTC") -> TimestampSettings:
        """The settings from option texts without their prefix (`timestamp.type`, `output.dateformat`, ...); `timezone`
        replaces the JVM's default zone."""
        return _settings(tuple(sorted(settings.items())), timezone)


@lru_cache
def _settings(items: tuple[tuple[str, str], ...], timezone: str) -> TimestampSettings:
    settings = dict(items)
    kind = _required(settings, "timestamp.type").upper()
    unit = _TYPE_UNITS.get(kind)
    if kind == "SCALAR":
        unit = (settings.get("timestamp.scalar.time.unit") or "SECONDS").upper()
    if (unit is None and kind not in _TEXT_TYPES) or (unit is not None and unit not in _UNITS):
        accepted = [*_TYPE_UNITS, "SCALAR", *_TEXT_TYPES] if unit is None else list(_UNITS)
        wrong, key = (kind, "type") if unit is None else (unit, "scalar.time.unit")
        raise InvalidOption(
            f"hoodie.keygen.timebased.timestamp.{key} is {wrong!r}", hint=f"One of {', '.join(accepted)}"
        )
    formats: list[str] = []
    if kind in _TEXT_TYPES:
        delimiter = settings.get("input.dateformat.list.delimiter.regex") or ","
        formats = [f.strip() for f in re.split(delimiter, _required(settings, "input.dateformat"))]
    common_zone = _zone(settings.get("timezone"))
    return TimestampSettings(
        type=kind,
        unit=None if unit is None else _UNITS[unit],
        output=print_pattern(_required(settings, "output.dateformat")),
        inputs=tuple(read_pattern(f) for f in formats),
        first_input=formats[0] if formats else "",
        input_zone=common_zone or _zone(settings.get("input.timezone")),
        output_zone=common_zone or _zone(settings.get("output.timezone")),
        default_zone=java_zone(timezone),
    )


def _required(settings: Mapping[str, str], key: str) -> str:
    if not settings.get(key):
        raise InvalidOption(
            f"hoodie.keygen.timebased.{key} is not set", hint="The timestamp-based key generator needs it"
        )
    return settings[key]


def _zone(text: str | None) -> Zone | None:
    return java_zone(text) if text and text.strip() else None


@dataclass(frozen=True, slots=True)
class TimestampPart:
    """A field as printed time inside a partition path. Null if a text is not a date, or a number is too large.

    A null field counts as one unit after 1970 began (texts: one millisecond), as in Hudi.
    """

    field: str
    settings: TimestampSettings
    hive_style: bool = False
    url_encode: bool = False
    consistent_timestamp: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.field,)

    @property
    def slashes(self) -> int | None:
        return self._output.slashes

    @property
    def _output(self) -> PrintPattern:
        return print_pattern(self.settings.output.pattern, self.url_encode)

    @property
    def has_sql(self) -> bool:
        return self._output.has_sql and all(pattern.has_sql for pattern in self.settings.inputs)

    def value_of(self, text: str) -> str | None:
        return unescape(text) if self.url_encode else text

    def sql(self, schema: pa.Schema) -> str:
        column = Column(self.field)
        kind, name = column.type_in(schema), column.sql(schema)
        if self._holds_text(kind):
            printed = bind_sql("lb_text", name, self._read_sql())
            text = f"CASE WHEN {name} IS NULL THEN {sql_literal(self._null_path())} ELSE {printed} END"
        else:
            text = self._print_sql(self._millis_sql(kind, name))
        return f"concat({sql_literal(self.field + '=')}, {text})" if self.hive_style else text

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        values = Column(self.field).arrow(batch)
        # times repeat less than what is printed of them, texts mostly repeat
        coded = values.dictionary_encode() if self._holds_text(values.type) else None
        if coded is not None and len(coded.dictionary) * 2 < len(values):
            text = self._path_arrow(coded.dictionary).take(coded.indices)
        else:
            text = self._path_arrow(values)
        text = pc.if_else(pc.is_null(values), self._null_path(), text)
        return (
            pc.binary_join_element_wise(text_scalar(f"{self.field}="), text, text_scalar(""))
            if self.hive_style
            else text
        )

    def _null_path(self) -> str:
        """The path of a null field, without the field's name before it."""
        if self.settings.unit is not None:
            return self._path_arrow(pa.array([1], pa.int64()))[0].as_py()
        zone = self.settings.input_zone or self.settings.output_zone or UTC_ZONE
        text = print_pattern(self.settings.first_input).arrow(
            zone.local_millis(pa.array([1], pa.int64())), zone.offsets(pa.array([1])), zone.id
        )
        path = self._path_arrow(text)[0].as_py()
        if path is None:
            raise InvalidOption(f"the input date format {self.settings.first_input!r} cannot read what it prints")
        return path

    def _path_arrow(self, values: pa.Array) -> pa.Array:
        if self._holds_text(values.type):
            local, offsets = self._read_arrow(values.cast(pa.string()))
        else:
            millis = self._millis_arrow(values)
            zone = self._print_zone
            offsets = zone.offsets(millis)
            local = pc.add(millis, offsets)
        zone_id = self._print_zone.id if self._fixed_zone else None
        return self._output.arrow(local, offsets, zone_id)

    @property
    def _print_zone(self) -> Zone:
        return (
            self.settings.output_zone
            or (self.settings.input_zone if self.settings.unit is None else None)
            or self.settings.default_zone
        )

    @property
    def _fixed_zone(self) -> bool:
        """Whether all rows are printed in one zone; otherwise each text's own offset counts."""
        return self.settings.unit is not None or bool(self.settings.output_zone or self.settings.input_zone)

    def _holds_text(self, kind: pa.DataType) -> bool:
        holds_text = is_text(kind)
        if holds_text != (self.settings.unit is None):
            raise SchemaConflict(
                f"partition column `{self.field}` of type {kind} does not fit the timestamp type {self.settings.type}",
                hint="DATE_STRING and MIXED take strings, the other types numbers, dates and timestamps",
                context={"column": self.field, "type": str(kind)},
            )
        return holds_text

    # ---- numbers

    def _millis_sql(self, kind: pa.DataType, name: str) -> str:
        times, over = self.settings.unit or (1, 1)
        null = 1
        if self.consistent_timestamp and pa.types.is_timestamp(kind) and kind.tz:
            # micros whatever the settings are, but a null is still one unit of theirs
            null = times * 1000 // over
            times, over = _UNITS["MICROSECONDS"]
        number = self._number_sql(kind, name, null)
        scaled = f"({number} * {times}L)" if times > 1 else f"({number} DIV {over}L)" if over > 1 else number
        max_number = _MAX_MILLIS * over // times
        if max_number >= _max_of(kind):
            return scaled
        return f"CASE WHEN {number} BETWEEN -{max_number}L AND {max_number}L THEN {scaled} END"

    def _number_sql(self, kind: pa.DataType, name: str, null: int) -> str:
        """The SQL of the column as bigint, `null` for null; itself null for a value that does not fit."""
        if pa.types.is_timestamp(kind):
            micros = f"unix_micros({name})" if kind.tz else ntz_micros_sql(name)
            return f"coalesce({micros}, {null}L)"
        if pa.types.is_date(kind):
            return f"coalesce(CAST(unix_date({name}) AS BIGINT), {null}L)"
        if pa.types.is_integer(kind):
            return f"coalesce(CAST({name} AS BIGINT), {null}L)"
        if pa.types.is_floating(kind):
            number = f"WHEN isnan({name}) THEN 0L WHEN abs({name}) < {_MAX_LONG!r}D THEN CAST({name} AS BIGINT)"
        elif pa.types.is_decimal(kind):
            number = f"WHEN abs(CAST({name} AS DOUBLE)) < {float(_MAX_MILLIS)!r}D THEN CAST({name} AS BIGINT)"
        else:
            raise self._refuse(kind)
        return f"(CASE WHEN {name} IS NULL THEN {null}L {number} END)"

    def _millis_arrow(self, values: pa.Array) -> pa.Array:
        kind = values.type
        times, over = self.settings.unit or (1, 1)
        if pa.types.is_timestamp(kind):
            number = timestamp_micros(values)
            if self.consistent_timestamp and kind.tz:
                times, over = _UNITS["MICROSECONDS"]
        elif pa.types.is_date(kind):
            number = values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        elif pa.types.is_integer(kind):
            number = values.cast(pa.int64())
        elif pa.types.is_floating(kind):
            number = _truncated(values.cast(pa.float64()))
        elif pa.types.is_decimal(kind):
            number = _truncated_decimal(values)
        else:
            raise self._refuse(kind)
        max_number = min(_MAX_MILLIS * over // times, 2**63 - 1)
        if max_number < _max_of(kind):
            near = pc.and_(pc.greater_equal(number, -max_number), pc.less_equal(number, max_number))
            number = pc.if_else(near, number, pa.scalar(None, pa.int64()))
        return pc.multiply(number, times) if times > 1 else pc.divide(number, over)

    def _print_sql(self, millis: str) -> str:
        zone = self._print_zone
        return self._output.sql(zone.local_sql(millis), zone.offsets_sql(millis), zone.id)

    # ---- texts

    def _read_sql(self) -> str:
        branches = [when for p in self.settings.inputs for when in p.branches_sql("lb_text", self._pair_sql)]
        zone_id = self._print_zone.id if self._fixed_zone else None
        printed = self._output.sql("lb_time.l", "lb_time.o", zone_id)
        return bind_sql("lb_time", f"CASE {' '.join(branches)} END", printed)

    def _pair_sql(self, local: str, offset: str) -> str:
        """The SQL of the printed wall-clock milliseconds and offset of a text that was read as `local` at `offset`
        (null: none in the text)."""
        zone = self.settings.input_zone or self.settings.default_zone
        instant = f"CASE WHEN lb_read.o IS NOT NULL THEN lb_read.l - lb_read.o ELSE {zone.utc_sql('lb_read.l')} END"
        offset_out = self._print_zone.offsets_sql("lb_millis")
        if not self._fixed_zone:
            offset_out = f"coalesce(lb_read.o, {offset_out})"
        pair = f"named_struct('l', lb_millis + {offset_out}, 'o', {offset_out})"
        read = f"named_struct('l', {local}, 'o', {offset})"
        return bind_sql("lb_read", read, bind_sql("lb_millis", instant, pair))

    def _read_arrow(self, texts: pa.Array) -> tuple[pa.Array, pa.Array]:
        zone = self.settings.input_zone or self.settings.default_zone
        local = offset = pa.nulls(len(texts), pa.int64())
        already_matched = np.zeros(len(texts), np.bool_)
        for pattern in self.settings.inputs:
            matched, read, read_offset = pattern.arrow(texts)
            newly_matched = pa.array(matched & ~already_matched)
            local, offset = pc.if_else(newly_matched, read, local), pc.if_else(newly_matched, read_offset, offset)
            already_matched |= matched
        millis = pc.if_else(pc.is_valid(offset), pc.subtract(local, offset), zone.utc_millis(local))
        printed = self._print_zone.offsets(millis)
        if not self._fixed_zone:
            printed = pc.coalesce(offset, printed)
        return pc.add(millis, printed), printed

    def _refuse(self, kind: pa.DataType) -> SchemaConflict:
        return SchemaConflict(
            f"partition column `{self.field}` of type {kind} holds no time",
            hint="Use a number, date, timestamp or string column",
            context={"column": self.field, "type": str(kind)},
        )


def _max_of(kind: pa.DataType) -> int:
    """The greatest number a column of this type can hold."""
    return 2**31 if pa.types.is_date(kind) or (pa.types.is_integer(kind) and kind.bit_width <= 32) else 2**63 - 1


def _truncated(values: pa.Array) -> pa.Array:
    """The doubles truncated to integers as in Java (NaN is 0), null beyond the range of a long."""
    truncated = pc.trunc(pc.if_else(pc.is_nan(values), 0.0, values))
    fits = pc.less(pc.abs(truncated), _MAX_LONG)
    return pc.if_else(fits, truncated, pa.scalar(None, pa.float64())).cast(pa.int64())


def _truncated_decimal(values: pa.Array) -> pa.Array:
    truncated = pc.trunc(values)
    fits = pc.less(pc.abs(truncated).cast(pa.float64()), float(_MAX_MILLIS))
    return pc.if_else(fits, truncated, pa.scalar(None, truncated.type)).cast(pa.int64())
