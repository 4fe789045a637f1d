"""Records of `column_stats`, `partition_stats` and expression indexes of that kind: ranges and counts of a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
from lakebed.format.avro.wrappers import NULL, Wrapped, read_wrapped
from lakebed.format.hashes import plain_strings
from lakebed.metadata.kinds.stats_types import as_type, common_type, type_of_value_type, typed, value_type_of, wrap
from lakebed.metadata.record_values import RecordType, SubRecord, enter, leave, value_head, value_tail
from lakebed.metadata.schemas import RecordForm
from lakebed.schema.conversion import can_cast

_BESIDE_BOUNDS = (
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

_WHAT = "column stats"
_FIELD = SubRecord.COLUMN_STATS
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@lru_cache(maxsize=256)
def stats_schema(kind: pa.DataType) -> pa.Schema:
    """Columns of a stats table whose bounds have this type. `file_name` is the partition path in partition stats;
    counts are values and bytes, null where the record has none."""
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
    """Keys and values of the stats of some columns, from a table of `stats_schema` each; not in the order of the keys.

    The type of `min` and `max` is the column's and decides on wrapper and value type; version 2 of the index (table
    version 9) notes the value type, version 1 does not. Raises `UnsupportedFeature` for a type without stats.
    """
    ordered = sorted((item for item in stats.items() if len(item[1])), key=lambda item: str(_kind(item[1])))
    if not ordered:
        return pa.array([], pa.string()), pa.array([], pa.binary())
    rest = pa.concat_tables([table.select(_BESIDE_BOUNDS) for _, table in ordered]).combine_chunks()
    rows = np.repeat(np.arange(len(ordered)), [len(table) for _, table in ordered])
    pieces: list[pa.BinaryArray | bytes] = [
        value_head(record_type, _FIELD),
        encode_nullable(encode_binaries(plain_strings(rest["file_name"]))),
        _each([_text(column) for column, _ in ordered], rows),
        *(_bounds([table for _, table in ordered], name, index_version) for name in ("min", "max")),
        *(_count(plain(rest[name])) for name in COUNTS),
        encode_fixed(rest["is_deleted"].to_numpy()),
    ]
    if form.has_tight_bound:
        pieces.append(encode_fixed(rest["is_tight"].to_numpy()))
    if form.has_value_type:
        noted = [_value_type(_kind(table)) for _, table in ordered] if index_version > 1 else []
        pieces.append(_each(noted, rows) if noted else b"\x00")
    return plain_strings(rest["key"]), join_pieces([*pieces, value_tail(form, _FIELD)])


def decode(
    keys: pa.Array, values: pa.BinaryArray, schema_json: str, types: Mapping[str, pa.DataType] | None = None
) -> dict[str, pa.Table]:
    """A table of `stats_schema` for each column that occurs, rows in the given order.

    Bounds have the type that `types` names for the column, else the one that the records tell: version 1 record tell a
    timestamp only as a number, and an old release's compaction a date and a decimal only as a number and as bytes. A
    bound that does not fit the column's type, or is ordered differently (a number where the column is text by now), is
    null: a null bound says nothing where `null_count` is less than `value_count`.
    """
    cursors, form = enter(values, schema_json, _FIELD)
    file_names = cursors.nullable_texts()
    columns = pc.fill_null(cursors.nullable_texts(), "").dictionary_encode()
    minimum, maximum = (read_wrapped(cursors, form.branches, _WHAT) for _ in range(2))
    counts = {name: _read_count(cursors) for name in COUNTS}
    deleted = cursors.booleans()
    tight = cursors.booleans() if form.has_tight_bound else np.zeros(len(values), np.bool_)
    kinds = _read_value_types(cursors) if form.has_value_type else _ValueTypes.none(len(values))
    leave(cursors, form, _FIELD)
    rest = {**counts, "is_deleted": pa.array(deleted), "is_tight": pa.array(tight)}
    texts = keys.cast(pa.string())
    result: dict[str, pa.Table] = {}
    codes = columns.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(columns.dictionary) + 1))
    for code, name in enumerate(columns.dictionary.to_pylist()):
        rows = order[edges[code] : edges[code + 1]]
        target = (types or {}).get(name)
        low, high = _typed_bounds([minimum, maximum], kinds, rows, target)
        taken = pa.array(rows)
        found = {"key": texts.take(taken), "file_name": file_names.take(taken), "min": low, "max": high}
        found |= {field: column.take(taken) for field, column in rest.items()}
        schema = stats_schema(low.type)
        result[name] = pa.Table.from_arrays([found[field] for field in schema.names], schema=schema)
    return result


def plain(column: pa.ChunkedArray) -> pa.Array:
    """The one array behind a column."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [column.combine_chunks()])


@dataclass(frozen=True, slots=True)
class _ValueTypes:
    """The value type of each record as a number (-1: none) of the distinct ones in `kinds`."""

    codes: Int64s
    kinds: list[pa.DataType]

    @classmethod
    def none(cls, count: int) -> _ValueTypes:
        return cls(np.full(count, -1, np.int64), [])


def _kind(table: pa.Table) -> pa.DataType:
    return table.schema.field("min").type


def _each(pieces: list[bytes], rows: Int64s) -> pa.BinaryArray:
    return pa.array(pieces, pa.binary()).take(pa.array(rows))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return b"\x02" + encode_long(len(encoded)) + encoded


def _bounds(tables: list[pa.Table], name: str, index_version: int) -> pa.BinaryArray:
    """One bound of all columns; those of a type follow each other and are wrapped together."""
    wrapped: list[pa.BinaryArray] = []
    for _, group in groupby(tables, key=_kind):
        chunks = [chunk for table in group for chunk in table[name].chunks]
        wrapped.append(_wrapped(pa.concat_arrays(chunks), index_version))
    return pa.concat_arrays(wrapped)


def _wrapped(bounds: pa.Array, index_version: int) -> pa.BinaryArray:
    if pa.types.is_null(bounds.type):
        return pa.array([b"\x00"] * len(bounds), pa.binary())
    branch, values = wrap(bounds, index_version)
    wrapped = join_pieces([encode_long(branch), values])
    return pc.if_else(bounds.is_valid(), wrapped, pa.scalar(b"\x00", pa.binary()))


def _count(counts: pa.Array) -> pa.BinaryArray:
    numbers = encode_longs(pc.fill_null(counts, 0).to_numpy())
    return pc.if_else(counts.is_valid(), join_pieces([b"\x02", numbers]), pa.scalar(b"\x00", pa.binary()))


def _value_type(kind: pa.DataType) -> bytes:
    ordinal, info = value_type_of(kind)
    return b"\x02" + encode_long(ordinal) + (b"\x00" if info is None else _text(info))


def _read_count(cursors: AvroCursors) -> pa.Array:
    values, present = cursors.nullable_longs()
    return pa.array(values, mask=~present)


def _read_value_types(cursors: AvroCursors) -> _ValueTypes:
    present = cursors.present()
    rows = np.flatnonzero(present)
    part = cursors.part(rows)
    ordinals = part.longs()
    infos = part.nullable_texts()
    cursors.rejoin(rows, part)
    texts = pc.binary_join_element_wise(pa.array(ordinals).cast(pa.string()), pc.fill_null(infos, ""), ":")
    encoded = texts.dictionary_encode()
    codes = np.full(len(cursors), -1, np.int64)
    codes[rows] = encoded.indices.to_numpy()
    kinds: list[pa.DataType] = []
    for text in encoded.dictionary.to_pylist():
        ordinal, _, info = text.partition(":")
        kinds.append(type_of_value_type(int(ordinal), info or None))
    return _ValueTypes(codes, kinds)


def _typed_bounds(
    bounds: list[Wrapped], kinds: _ValueTypes, rows: Int64s, target: pa.DataType | None
) -> tuple[pa.Array, pa.Array]:
    """Minimum and maximum of one column's records, of one type."""
    parts = [list(_pieces(bound, kinds, rows, target)) for bound in bounds]
    noted = [kinds.kinds[code] for code in np.unique(kinds.codes[rows]).tolist() if code >= 0]
    found = [values.type for pieces in parts for _, values in pieces]
    kind = target or common_type(noted + found)
    low, high = (_assembled(pieces, len(rows), kind) for pieces in parts)
    return low, high


def _pieces(
    bounds: Wrapped, kinds: _ValueTypes, rows: Int64s, target: pa.DataType | None
) -> list[tuple[Int64s, pa.Array]]:
    """Positions in `rows` and typed values, for each wrapper and value type among them; of a column that had the name
    before, in a type that is not read as the `target` one, nothing is known."""
    out: list[tuple[Int64s, pa.Array]] = []
    branch, codes = bounds.branch[rows], kinds.codes[rows]
    for kind in np.unique(branch).tolist():
        if kind == NULL:
            continue
        own_rows, values = bounds.values[kind]
        for code in np.unique(codes[branch == kind]).tolist():
            at = np.flatnonzero((branch == kind) & (codes == code))
            taken = values.take(pa.array(np.searchsorted(own_rows, rows[at])))
            noted = kinds.kinds[code] if code >= 0 else None
            if noted is not None and target is not None and not can_cast(noted, target):
                out.append((at, pa.nulls(len(at), target)))
            else:
                out.append((at, typed(taken, kind, noted)))
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
