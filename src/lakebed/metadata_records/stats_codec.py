"""Records of column statistics: their Avro wrappers, the Arrow types of bounds, and which types compare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.columns import (
    AvroCursors,
    encode_binaries,
    encode_fixed,
    encode_longs,
    encode_nullable,
    join_pieces,
    spread,
)
from lakebed.format.avro.encoder import encode_long
from lakebed.format.avro.wrappers import (
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    NULL,
    STRING,
    WRAPPED_DECIMAL,
    WRAPPED_TYPES,
    Wrapped,
    decimals,
    read_wrapped,
    unscaled,
)
from lakebed.format.hashes import plain_strings
from lakebed.metadata_records.records import RecordForm, RecordType, SubRecord, enter, leave, value_head, value_tail
from lakebed.schema.arrow import MAX_PRECISION, MAX_WIDE_PRECISION
from lakebed.schema.conversion import can_cast
from lakebed.schema.plain_arrow import as_numpy, one_array

_UTC = "UTC"
_MAX_CHARACTER, _MAX_TEXT_LENGTH = "\U0010ffff", 8
_DECIMAL_ORDINAL = 10
_ORDINALS: dict[int, pa.DataType] = {
    1: pa.null(),
    2: pa.bool_(),
    3: pa.int32(),
    4: pa.int64(),
    5: pa.float32(),
    6: pa.float64(),
    7: pa.string(),
    8: pa.binary(),
    9: pa.binary(),
    11: pa.string(),
    12: pa.date32(),
    13: pa.time32("ms"),
    14: pa.time64("us"),
    15: pa.timestamp("ms", _UTC),
    16: pa.timestamp("us", _UTC),
    17: pa.timestamp("ns", _UTC),
    18: pa.timestamp("ms"),
    19: pa.timestamp("us"),
    20: pa.timestamp("ns"),
}
_BY_TYPE = {kind: ordinal for ordinal, kind in reversed(_ORDINALS.items())}
_V2_WRAPPERS = {3: INT, 4: LONG, 5: FLOAT, 6: DOUBLE, 7: STRING, 8: BYTES, 9: BYTES, 10: BYTES, 12: INT, 13: INT}
_V1_WRAPPERS = {**_V2_WRAPPERS, 10: DECIMAL, 12: DATE}


def value_type_of(kind: pa.DataType) -> tuple[int, str | None]:
    """The ordinal and the additional info of an Arrow type, as version 2 statistics store them.

    >>> value_type_of(pa.decimal128(12, 2)), value_type_of(pa.timestamp("us", "UTC"))
    ((10, '12,2'), (16, None))

    Raises `UnsupportedFeature` for a type that has no stats (nested ones).
    """
    if kind in _BY_TYPE:
        return _BY_TYPE[kind], None
    if pa.types.is_decimal(kind):
        return _DECIMAL_ORDINAL, f"{kind.precision},{kind.scale}"
    if pa.types.is_fixed_size_binary(kind):
        return 9, None
    ordinal = _BY_TYPE.get(_plain(kind))
    if ordinal is None:
        raise UnsupportedFeature(f"column stats are not kept for {kind}", context={"feature": "column stats"})
    return ordinal, None


def type_of_value_type(ordinal: int, info: str | None) -> pa.DataType:
    """The Arrow type of a value type. Raises `CorruptFile` for a value type that does not exist."""
    if ordinal == _DECIMAL_ORDINAL:
        precision, _, scale = (info or "").partition(",")
        short = len(precision) <= 2 >= len(scale) and precision.isdecimal() and scale.isdecimal()
        if short and 1 <= int(precision) <= MAX_PRECISION >= int(scale):
            return pa.decimal128(int(precision), int(scale))
    elif ordinal in _ORDINALS:
        return _ORDINALS[ordinal]
    raise CorruptFile(f"column stats have the unknown value type {ordinal} {info or ''}".rstrip())


def wrap(bounds: pa.Array, index_version: int) -> tuple[int, pa.BinaryArray]:
    """The branch of the wrapper for bounds of this type, and the wrapped values (undefined for a null bound)."""
    ordinal, _ = value_type_of(bounds.type)
    branch = (_V1_WRAPPERS if index_version < 2 else _V2_WRAPPERS).get(ordinal, BOOLEAN if ordinal == 2 else LONG)
    if branch in (BYTES, DECIMAL) and pa.types.is_decimal(bounds.type):
        return branch, encode_binaries(unscaled(bounds if branch == BYTES else _wrapped_decimals(bounds)))
    if branch == STRING:
        return branch, encode_binaries(pc.fill_null(bounds.cast(pa.string()), ""))
    if branch == BYTES:
        return branch, encode_binaries(pc.fill_null(bounds.cast(pa.binary()), b""))
    if branch in (FLOAT, DOUBLE):
        kind = WRAPPED_TYPES[branch]
        return branch, encode_fixed(as_numpy(pc.fill_null(bounds.cast(kind), pa.scalar(0, kind))))
    if branch == BOOLEAN:
        return branch, encode_fixed(as_numpy(pc.fill_null(bounds, False)))
    return branch, encode_longs(_numbers(bounds))


def widest_bounds(kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Bounds that include every value of a type, except NaN and times outside SQL's calendar. None for a type without
    such bounds, or whose bounds some reader cannot store."""
    if pa.types.is_boolean(kind):
        low, high = False, True
    elif pa.types.is_signed_integer(kind):
        low, high = -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1
    elif pa.types.is_floating(kind):
        low, high = -math.inf, math.inf
    elif pa.types.is_string(kind):
        low, high = "", _MAX_CHARACTER * _MAX_TEXT_LENGTH
    elif pa.types.is_date32(kind):
        low, high = date.min, date.max
    elif pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        first, last = (_micros(moment) for moment in (datetime.min, datetime.max))
        per = 1000 if kind.unit == "ms" else 1
        low, high = first // per, last // per
    elif pa.types.is_decimal128(kind):
        low, high = (Decimal((sign, (9,) * kind.precision, -kind.scale)) for sign in (1, 0))
    else:
        return None
    return pa.scalar(low, kind), pa.scalar(high, kind)


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def have_room(bounds: pa.Array, index_version: int) -> pa.Array:
    """Flags of the bounds that `wrap` accepts: version 1 stores decimals with 15 digits before and after the point."""
    if index_version < 2 and pa.types.is_decimal(bounds.type):
        wrapped_bounds = as_type(bounds, WRAPPED_DECIMAL)
        if wrapped_bounds.null_count > bounds.null_count:
            return pc.or_(bounds.is_null(), wrapped_bounds.is_valid())
    return pa.repeat(pa.scalar(True), len(bounds))


def has_room_for_all(kind: pa.DataType, index_version: int) -> bool:
    """Whether `wrap` takes every value of the type."""
    if index_version >= 2 or not pa.types.is_decimal(kind):
        return True
    return kind.scale <= WRAPPED_DECIMAL.scale and kind.precision - kind.scale <= (
        WRAPPED_DECIMAL.precision - WRAPPED_DECIMAL.scale
    )


def typed(values: pa.Array, branch: int, kind: pa.DataType | None) -> pa.Array:
    """The wrapped values as an array of the type `kind`, if a value type names it, otherwise of the wrapper's type.
    Combinations that do not fit give nulls."""
    if kind is None:
        return decimals(values, WRAPPED_DECIMAL) if branch == DECIMAL else values
    if pa.types.is_decimal(kind):
        return decimals(values, kind) if branch in (BYTES, DECIMAL) else pa.nulls(len(values), kind)
    return as_type(values, kind)


def as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The bounds as bounds of another type of the same order; null for a value that does not fit into the type, and if
    the two types are ordered in different ways (a number is not a bound for texts)."""
    source = values.type
    if source == kind:
        return values
    try:
        if pa.types.is_decimal(source) and pa.types.is_decimal(kind):
            return _rescaled(values, kind)
        if _is_number(source) and _is_number(kind):
            # a reader converts floats to doubles through their text
            text = pa.types.is_float32(source) and pa.types.is_float64(kind)
            return (values.cast(pa.string()) if text else values).cast(kind)
        if pa.types.is_integer(source) and _is_date_or_time(kind):
            return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
        if _is_bytes(source) and _is_bytes(kind):
            return values.cast(kind)
        if pa.types.is_binary(source) and pa.types.is_decimal(kind):
            # releases before 1.0 turn decimals into bytes of that scale when they compact
            return _rescaled(decimals(values.cast(pa.binary()), WRAPPED_DECIMAL), kind)
        if pa.types.is_timestamp(source) and pa.types.is_timestamp(kind):
            return values.cast(pa.timestamp(source.unit)).cast(pa.timestamp(kind.unit)).cast(kind)
    except pa.ArrowInvalid:
        return _where_castable(values, kind)
    return pa.nulls(len(values), kind)


def common_type(kinds: list[pa.DataType]) -> pa.DataType:
    """A type for the bounds of several types; the last of the types if they cannot be compared.

    >>> common_type([pa.int32(), pa.int64()]), common_type([pa.int32(), pa.string()])
    (DataType(int64), DataType(string))
    """
    distinct_kinds = [kind for kind in dict.fromkeys(kinds) if not pa.types.is_null(kind)]
    if not distinct_kinds:
        return pa.null()
    result = distinct_kinds[0]
    for kind in distinct_kinds[1:]:
        if _is_number(result) and _is_number(kind):
            result = _wider(result, kind)
        else:
            result = kind
    return result


def _rescaled(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The decimals in another scale. Raises `pa.ArrowInvalid` for a value that does not fit, where Arrow's own cast
    would wrap."""
    wide = values.cast(pa.decimal256(MAX_WIDE_PRECISION, values.type.scale))
    return wide.cast(pa.decimal256(MAX_WIDE_PRECISION, kind.scale)).cast(kind)


def _wrapped_decimals(values: pa.Array) -> pa.Array:
    try:
        return _rescaled(values, WRAPPED_DECIMAL)
    except pa.ArrowInvalid as cause:
        raise UnsupportedFeature(
            f"column stats of this table version have no room for a value of {values.type}",
            hint="Leave the column out of hoodie.metadata.index.column.stats.column.list.",
        ) from cause


def _numbers(values: pa.Array) -> npt.NDArray[np.int64]:
    if values.type.bit_width == 32 and not pa.types.is_integer(values.type):
        values = values.cast(pa.int32())
    return as_numpy(pc.fill_null(values.cast(pa.int64()), 0))


def _where_castable(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values cast one by one, null for a value that the type cannot hold: slow, for columns that changed their
    type."""
    out: list[Any] = []
    decimal = pa.types.is_decimal(values.type) and pa.types.is_decimal(kind)
    for at, value in enumerate(values):
        try:
            out.append(_rescaled(values.slice(at, 1), kind)[0] if decimal else value.cast(kind))
        except pa.ArrowInvalid:
            out.append(pa.scalar(None, kind))
    return pa.array([scalar.as_py() for scalar in out], kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type that represents all types of the same value type."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, _UTC if kind.tz else None)
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _wider(first: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(first) or pa.types.is_decimal(other):
        kinds = [k for k in (first, other) if pa.types.is_decimal(k)]
        scale = max(k.scale for k in kinds)
        integer_digits = max([k.precision - k.scale for k in kinds] + ([19] if len(kinds) == 1 else []))
        return pa.decimal128(min(MAX_PRECISION, integer_digits + scale), scale)
    if pa.types.is_floating(first) or pa.types.is_floating(other):
        return first if first == other else pa.float64()
    return first if first.bit_width >= other.bit_width else other


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(check(kind) for check in kinds)


def _is_date_or_time(kind: pa.DataType) -> bool:
    return pa.types.is_date32(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)


_OTHER_FIELDS = (
    "key",
    "file_name",
    "null_count",
    "value_count",
    "total_size",
    "total_uncompressed",
    "is_deleted",
    "is_tight",
)
COUNTS = ("value_count", "null_count", "total_size", "total_uncompressed")

_FIRST = itemgetter(0)
_WHAT = "column stats"
_FIELD = SubRecord.COLUMN_STATS
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@lru_cache(maxsize=256)
def stats_schema(kind: pa.DataType) -> pa.Schema:
    """The schema of a stats table whose bounds have this type. `file_name` is the partition path in partition stats;
    counts are numbers of values and of bytes, null if the record has none."""
    bounds = [pa.field("min", kind), pa.field("max", kind)]
    counts = [pa.field(name, pa.int64()) for name in ("null_count", "value_count", "total_size", "total_uncompressed")]
    flags = [pa.field("is_deleted", pa.bool_()), pa.field("is_tight", pa.bool_())]
    return pa.schema([pa.field("key", pa.string()), pa.field("file_name", pa.string()), *bounds, *counts, *flags])


def encode(
    stats: Mapping[str, pa.Table],
    form: RecordForm,
    *,
    index_version: int,
    record_type: RecordType = RecordType.COLUMN_STATS,
) -> tuple[pa.StringArray, pa.BinaryArray]:
    """The keys and values of the statistics of some columns, from a table of `stats_schema` for each; not in the order
    of the keys.

    The type of `min` and `max` is the column's and decides on wrapper and value type; version 2 of the index (table
    version 9) notes the value type, version 1 does not. Raises `UnsupportedFeature` for a type without stats.
    """
    ordered = sorted([(str(_kind(table)), column, table) for column, table in stats.items() if len(table)], key=_FIRST)
    if not ordered:
        return pa.array([], pa.string()), pa.array([], pa.binary())
    tables = [table for _, _, table in ordered]
    other_fields = pa.concat_tables([table.select(_OTHER_FIELDS) for table in tables]).combine_chunks()
    rows = pa.array(np.repeat(np.arange(len(tables)), list(map(len, tables))))
    pieces: list[pa.BinaryArray | bytes] = [
        value_head(record_type, _FIELD),
        encode_nullable(encode_binaries(plain_strings(other_fields["file_name"]))),
        pa.array([_text(column) for _, column, _ in ordered], pa.binary()).take(rows),
        _bounds(tables, "min", index_version),
        _bounds(tables, "max", index_version),
    ]
    for name in COUNTS:
        counts = one_array(other_fields[name])
        numbers = join_pieces([b"\x02", encode_longs(as_numpy(pc.fill_null(counts, 0)))])
        pieces.append(pc.if_else(counts.is_valid(), numbers, pa.scalar(b"\x00", pa.binary())))
    pieces.append(encode_fixed(as_numpy(other_fields["is_deleted"])))
    if form.has_tight_bound:
        pieces.append(encode_fixed(as_numpy(other_fields["is_tight"])))
    if form.has_value_type:
        noted = [_value_type(_kind(table)) for table in tables] if index_version > 1 else []
        pieces.append(pa.array(noted, pa.binary()).take(rows) if noted else b"\x00")
    return plain_strings(other_fields["key"]), join_pieces([*pieces, value_tail(form, _FIELD)])


def decode(
    keys: pa.Array, values: pa.BinaryArray, schema_json: str, types: Mapping[str, pa.DataType] | None = None
) -> dict[str, pa.Table]:
    """A table of `stats_schema` for each column that occurs, rows in the given order.

    Bounds have the type that `types` names for the column, else the one that the records have: version 1 records have a
    timestamp only as a number, and an old release's compaction a date and a decimal only as a number and as bytes. A
    bound that does not fit the column's type, or is ordered differently (a number where the column is text by now), is
    null: a null bound means "unknown" if `null_count` is less than `value_count`.
    """
    cursors, form = enter(values, schema_json, _FIELD)
    file_names, columns, minimum, maximum, counts = _read(cursors, form)
    columns = pc.fill_null(columns, "").dictionary_encode()
    deleted = cursors.booleans()
    tight = cursors.booleans() if form.has_tight_bound else np.zeros(len(values), np.bool_)
    kinds = _read_value_types(cursors) if form.has_value_type else _ValueTypes.none(len(values))
    leave(cursors, form, _FIELD)
    other_fields = {**counts, "is_deleted": pa.array(deleted), "is_tight": pa.array(tight)}
    texts = keys.cast(pa.string())
    result: dict[str, pa.Table] = {}
    codes = as_numpy(columns.indices)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(columns.dictionary) + 1))
    for code, name in enumerate(columns.dictionary.to_pylist()):
        rows = order[edges[code] : edges[code + 1]]
        target = (types or {}).get(name)
        low, high = _typed_bounds([minimum, maximum], kinds, rows, target)
        indices = pa.array(rows)
        arrays = {"key": texts.take(indices), "file_name": file_names.take(indices), "min": low, "max": high}
        arrays |= {field: column.take(indices) for field, column in other_fields.items()}
        schema = stats_schema(low.type)
        result[name] = pa.Table.from_arrays([arrays[field] for field in schema.names], schema=schema)
    return result


def deleted_flags(keys: pa.Array, values: pa.BinaryArray, schema_json: str) -> pa.Table:
    """A table of the `key` and the `is_deleted` flag of each record, in the given order, without its ranges."""
    cursors, form = enter(values, schema_json, _FIELD)
    _read(cursors, form)
    return pa.table({"key": keys.cast(pa.string()), "is_deleted": pa.array(cursors.booleans())})


def _read(
    cursors: AvroCursors, form: RecordForm
) -> tuple[pa.StringArray, pa.StringArray, Wrapped, Wrapped, dict[str, pa.Array]]:
    """File names, columns, both bounds and the counts: the fields of each record in front of its flags."""
    names, columns = cursors.nullable_texts(), cursors.nullable_texts()
    minimum, maximum = [read_wrapped(cursors, form.branches, _WHAT) for _ in range(2)]
    counts: dict[str, pa.Array] = {}
    for name in COUNTS:
        values, present = cursors.nullable_longs()
        counts[name] = pa.array(values, mask=~present)
    return names, columns, minimum, maximum, counts


@dataclass(frozen=True, slots=True)
class _ValueTypes:
    """The value type of each record, as the number of the type in the distinct `kinds` (-1: none)."""

    codes: Int64s
    kinds: list[pa.DataType]

    @classmethod
    def none(cls, count: int) -> _ValueTypes:
        return cls(np.full(count, -1, np.int64), [])


def _kind(table: pa.Table) -> pa.DataType:
    return table.schema.field("min").type


def _text(text: str) -> bytes:
    encoded = text.encode()
    return b"\x02" + encode_long(len(encoded)) + encoded


def _bounds(tables: list[pa.Table], name: str, index_version: int) -> pa.BinaryArray:
    """One bound of all columns; bounds of one type are consecutive and are wrapped together."""
    wrapped: list[pa.BinaryArray] = []
    for _, group in groupby(tables, key=_kind):
        chunks = [chunk for table in group for chunk in table[name].chunks]
        bounds = pa.concat_arrays(chunks)
        if pa.types.is_null(bounds.type):
            wrapped.append(pa.array([b"\x00"] * len(bounds), pa.binary()))
            continue
        branch, values = wrap(bounds, index_version)
        pieces = join_pieces([encode_long(branch), values])
        wrapped.append(pc.if_else(bounds.is_valid(), pieces, pa.scalar(b"\x00", pa.binary())))
    return pa.concat_arrays(wrapped)


def _value_type(kind: pa.DataType) -> bytes:
    ordinal, info = value_type_of(kind)
    return b"\x02" + encode_long(ordinal) + (b"\x00" if info is None else _text(info))


def _read_value_types(cursors: AvroCursors) -> _ValueTypes:
    present = cursors.present()
    rows = np.flatnonzero(present)
    part = cursors.part(rows)
    ordinals = part.longs()
    infos = part.nullable_texts()
    cursors.rejoin(rows, part)
    texts = pc.binary_join_element_wise(
        pa.array(ordinals).cast(pa.string()), pc.fill_null(infos, ""), pa.scalar(":", pa.string())
    )
    encoded = texts.dictionary_encode()
    codes = np.full(len(cursors), -1, np.int64)
    codes[rows] = as_numpy(encoded.indices)
    kinds: list[pa.DataType] = []
    for text in encoded.dictionary.to_pylist():
        ordinal, _, info = text.partition(":")
        kinds.append(type_of_value_type(int(ordinal), info or None))
    return _ValueTypes(codes, kinds)


def _typed_bounds(
    bounds: list[Wrapped], kinds: _ValueTypes, rows: Int64s, target: pa.DataType | None
) -> tuple[pa.Array, pa.Array]:
    """The minimum and maximum of one column's records, in one type."""
    parts = [list(_pieces(bound, kinds, rows, target)) for bound in bounds]
    noted = [kinds.kinds[code] for code in np.unique(kinds.codes[rows]).tolist() if code >= 0]
    types = [values.type for pieces in parts for _, values in pieces]
    kind = target or common_type(noted + types)
    low, high = [_assembled(pieces, len(rows), kind) for pieces in parts]
    return low, high


def _pieces(
    bounds: Wrapped, kinds: _ValueTypes, rows: Int64s, target: pa.DataType | None
) -> list[tuple[Int64s, pa.Array]]:
    """The positions in `rows` and the typed values, for each wrapper and value type that occurs; bounds of an earlier
    column of the same name are unknown if their type is not read as the `target` type."""
    out: list[tuple[Int64s, pa.Array]] = []
    branch, codes = bounds.branch[rows], kinds.codes[rows]
    for kind in np.unique(branch).tolist():
        if kind == NULL:
            continue
        own_rows, values = bounds.values[kind]
        for code in np.unique(codes[branch == kind]).tolist():
            at = np.flatnonzero((branch == kind) & (codes == code))
            piece = values.take(pa.array(np.searchsorted(own_rows, rows[at])))
            noted = kinds.kinds[code] if code >= 0 else None
            if noted is not None and target is not None and not can_cast(noted, target):
                out.append((at, pa.nulls(len(at), target)))
            else:
                out.append((at, typed(piece, kind, noted)))
    return out


def _assembled(pieces: list[tuple[Int64s, pa.Array]], count: int, kind: pa.DataType) -> pa.Array:
    if not pieces:
        return pa.nulls(count, kind)
    at = np.concatenate([rows for rows, _ in pieces])
    values = pa.concat_arrays([as_type(values, kind) for _, values in pieces])
    present = np.zeros(count, np.bool_)
    present[at] = True
    return spread(values.take(pa.array(np.argsort(at))), present)


Types = Mapping[str, pa.DataType]


Stats = dict[str, pa.Table]
