"""Arrow columns to Avro records of one schema: every field of all records at a time, then one after the other.

Each field becomes pieces, a constant of all records or one piece a record; one join lays them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import SchemaConflict
from lakebed.format.avro.columns import encode_fixed, encode_longs, join_pieces
from lakebed.format.avro.encoder import encode_long
from lakebed.format.avro.types import AvroType, record_schema
from lakebed.format.avro.wrappers import unscaled
from lakebed.format.hashes import value_buffer
from lakebed.schema.logical_types import file_values
from lakebed.schema.plain_arrow import as_numpy

Pieces = list[bytes | pa.BinaryArray]
Int64s = npt.NDArray[np.int64]
# Records that are laid out at a time.
_CHUNK_ROWS: Final = 32_768
_CHUNK_BYTES: Final = 32 << 20
_DECIMAL_BYTES: Final = 16
_END: Final = b"\x00"


def write_records(rows: Sequence[pa.RecordBatch], avro_schema: str) -> tuple[list[bytes], int]:
    """The encoded records, each with its length (4 bytes, big-endian) in front, as a list of pieces, and the number of
    records.

    The batches have the schema's columns by name, in stored types; any may be a dictionary. Raises `SchemaConflict` for
    a null in a field that takes none.
    """
    pieces: list[bytes] = []
    count = 0
    for batch in _chunks(rows):
        data, offsets = value_buffer(encode_records(batch, avro_schema))
        pieces.append(data[int(offsets[0]) : int(offsets[-1])].tobytes())
        count += batch.num_rows
    return pieces, count


def encode_records(rows: pa.RecordBatch, avro_schema: str) -> pa.BinaryArray:
    """The encoded records, each with its length in front, as one binary per row."""
    pieces: Pieces = []
    for name, kind in record_schema(avro_schema).types.items():
        if kind.arrow is None:
            pieces += _of_nulls(kind)
            continue
        values = rows.column(name)
        if kind.kind != "union" and values.null_count:
            raise SchemaConflict(
                f"column {name!r} has {values.null_count} null(s) and the schema of the block allows none",
                hint="fill them, or make the column nullable",
                context={"column": name},
            )
        pieces += _pieces(kind, values)
    joined = _with_joined_constants(pieces)
    length = np.zeros(rows.num_rows, np.int64)
    for piece in joined:
        length += len(piece) if isinstance(piece, bytes) else _lengths(piece)
    offsets = pa.py_buffer(np.arange(0, 4 * rows.num_rows + 1, 4, dtype=np.int32))
    prefix = pa.Array.from_buffers(pa.binary(), rows.num_rows, [None, offsets, pa.py_buffer(length.astype(">i4"))])
    return join_pieces([prefix, *joined])


def _chunks(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        size = batch.nbytes // max(1, batch.num_rows) + 1
        step = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // size))
        yield from (batch.slice(at, step) for at in range(0, batch.num_rows, step))


def _of_nulls(kind: AvroType) -> Pieces:
    """The encoded pieces of a field that is null in every record and has no Arrow column."""
    return [] if kind.kind == "null" else [encode_long(max(kind.null, 0))]


def _with_joined_constants(pieces: Pieces) -> Pieces:
    """The pieces with neighbouring constants joined into one."""
    joined: Pieces = []
    constant = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            constant += piece
            continue
        joined += [constant, piece] if constant else [piece]
        constant = b""
    return [*joined, constant] if constant else joined


def _joined(pieces: Pieces, rows: int) -> pa.BinaryArray:
    """The pieces of each record joined, as one binary value a record."""
    joined = _with_joined_constants(pieces)
    if len(joined) == 1 and not isinstance(joined[0], bytes):
        return joined[0]
    if any(not isinstance(piece, bytes) for piece in joined):
        return join_pieces(joined)
    return pa.repeat(pa.scalar(joined[0] if joined else b"", pa.binary()), rows)


def _lengths(values: pa.BinaryArray) -> Int64s:
    offsets = value_buffer(values)[1]
    return offsets[1:] - offsets[:-1]


def _pieces(kind: AvroType, values: pa.Array) -> Pieces:
    """The encoded pieces of a column's values, which may be null only if the type is a union."""
    if not len(values):
        return []
    if pt.is_dictionary(values.type):
        return _of_dictionary(kind, values)
    if kind.kind == "union":
        return _of_union(kind, values)
    if kind.arrow is not None and not values.type.equals(kind.arrow) and not pt.is_nested(kind.arrow):
        values = values.cast(kind.arrow)
    return _WRITERS[kind.kind](kind, values)


def _of_dictionary(kind: AvroType, values: pa.DictionaryArray) -> Pieces:
    if values.null_count == len(values) or (values.null_count and kind.kind != "union"):
        return _pieces(kind, pa.nulls(len(values), values.type.value_type))
    codes = as_numpy(values.indices) if not values.null_count else None
    if codes is not None and (codes == codes[0]).all():
        of_one = _pieces(kind, values.dictionary.slice(int(codes[0]), 1))
        return [piece if isinstance(piece, bytes) else piece[0].as_py() for piece in of_one]
    entries = values.dictionary
    encoded_entries = _joined(_pieces(kind, entries), len(entries))
    encoded = encoded_entries.take(values.indices)
    return [pc.fill_null(encoded, encode_long(kind.null)) if values.null_count else encoded]


def _of_union(kind: AvroType, values: pa.Array) -> Pieces:
    if kind.value < 0:
        return _of_wide_union(kind, values)
    mark, part = encode_long(kind.value), kind.parts[kind.value]
    if not values.null_count:
        return [mark, *_pieces(part, values)]
    if values.null_count == len(values):
        return [encode_long(kind.null)]
    present = values.drop_null()
    encoded = _joined([mark, *_pieces(part, present)], len(present))
    valid = as_numpy(values.is_valid())
    indices = pa.array(np.cumsum(valid) - 1, mask=~valid)
    return [pc.fill_null(encoded.take(indices), encode_long(kind.null))]


def _of_wide_union(kind: AvroType, values: pa.Array) -> Pieces:
    """The encoded pieces of a union of several types: `values` is a struct with a field per type, of which one is not
    null."""
    encoded: list[pa.BinaryArray] = []
    rows: list[Int64s] = []
    left = np.ones(len(values), np.bool_)
    members = iter(cast("Any", values).flatten())
    for branch, part in enumerate(kind.parts):
        if part.kind == "null":
            continue
        member = next(members)
        is_member = as_numpy(member.is_valid()) & left
        left &= ~is_member
        rows.append(np.flatnonzero(is_member))
        member_values = member.filter(pa.array(is_member))
        encoded.append(_joined([encode_long(branch), *_pieces(part, member_values)], len(member_values)))
    if left.any():
        if kind.null < 0:
            raise SchemaConflict("a union without null has a row without a value", hint="fill the null values")
        rows.append(np.flatnonzero(left))
        encoded.append(pa.repeat(pa.scalar(encode_long(kind.null), pa.binary()), len(rows[-1])))
    order = np.argsort(np.concatenate(rows), kind="stable")
    return [pa.concat_arrays([part.cast(pa.binary()) for part in encoded]).take(pa.array(order))]


def _numbers(kind: AvroType, values: pa.Array) -> Pieces:
    if pt.is_integer(values.type):
        numbers = as_numpy(values)
    else:  # dates and times are the numbers that they are stored as
        numbers = as_numpy(values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()))
    if len(numbers) > 1 and (numbers == numbers[0]).all():
        return [encode_long(int(numbers[0]))]
    return [encode_longs(numbers)]


def _booleans(kind: AvroType, values: pa.Array) -> Pieces:
    return [encode_fixed(as_numpy(values.cast(pa.uint8())))]


def _floats(kind: AvroType, values: pa.Array) -> Pieces:
    return [encode_fixed(as_numpy(values))]


def _bytes(kind: AvroType, values: pa.Array) -> Pieces:
    if kind.is_decimal:
        values = unscaled(_decimal128(values))
    raw = values.view(pa.binary()) if pt.is_string(values.type) else values.cast(pa.binary())
    lengths = _lengths(raw)
    if (lengths == lengths[0]).all():
        return [encode_long(int(lengths[0])), raw]
    return [encode_longs(lengths), raw]


def _fixed(kind: AvroType, values: pa.Array) -> Pieces:
    if not kind.is_decimal:
        raw = file_values(values).cast(pa.binary())
        if (_lengths(raw) != kind.size).any():
            raise SchemaConflict(f"a value is not of the {kind.size} bytes that its type has")
        return [raw]
    values = _decimal128(values)
    start = values.offset * _DECIMAL_BYTES
    little = np.frombuffer(values.buffers()[1], np.uint8)[start : start + _DECIMAL_BYTES * len(values)]
    big = little.reshape(-1, _DECIMAL_BYTES)[:, ::-1]
    sign = np.where(big[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)
    if kind.size <= _DECIMAL_BYTES:
        big = big[:, _DECIMAL_BYTES - kind.size :]
    else:
        big = np.hstack([np.repeat(sign, kind.size - _DECIMAL_BYTES, axis=1), big])
    offsets = pa.py_buffer(np.arange(0, len(values) * kind.size + 1, kind.size, dtype=np.int32))
    data = pa.py_buffer(np.ascontiguousarray(big))
    return [pa.Array.from_buffers(pa.binary(), len(values), [None, offsets, data])]


def _decimal128(values: pa.Array) -> pa.Array:
    kind = cast("Any", values.type)
    return values if pt.is_decimal128(kind) else values.cast(pa.decimal128(kind.precision, kind.scale))


def _enums(kind: AvroType, values: pa.Array) -> Pieces:
    indices = pc.index_in(values, value_set=pa.array(kind.names, values.type))
    if indices.null_count:
        raise SchemaConflict(f"a value is none of {', '.join(kind.names)}")
    return [encode_longs(as_numpy(indices))]


def _records(kind: AvroType, values: pa.Array) -> Pieces:
    struct = cast("Any", values)
    columns = dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))
    parts = zip(kind.names, kind.parts, strict=True)
    return [p for name, part in parts for p in (_pieces(part, columns[name]) if part.arrow else _of_nulls(part))]


def _arrays(kind: AvroType, values: pa.Array) -> Pieces:
    items = cast("Any", values).flatten()
    return _items(_joined(_pieces(kind.parts[0], items), len(items)), _item_counts(values))


def _maps(kind: AvroType, values: pa.Array) -> Pieces:
    entries = values.cast(pa.map_(pa.string(), cast("Any", values.type).item_type))
    first, last = entries.offsets[0].as_py(), entries.offsets[len(values)].as_py()
    keys, items = entries.keys, entries.items
    if len(keys) != last - first:
        keys, items = keys.slice(first, last - first), items.slice(first, last - first)
    pieces = [*_bytes(_TEXT, keys), *_pieces(kind.parts[0], items)] if len(keys) else []
    return _items(_joined(pieces, len(keys)), _item_counts(values))


def _item_counts(values: pa.Array) -> Int64s:
    if pt.is_map(values.type):
        return np.diff(as_numpy(cast("Any", values).offsets)).astype(np.int64)
    return as_numpy(pc.list_value_length(values)).astype(np.int64)


def _items(encoded: pa.BinaryArray, counts: Int64s) -> Pieces:
    """The encoded items of each record, with their number in front and the end mark behind; only the end mark for a
    record without items."""
    encoded = encoded.cast(pa.binary())
    data, offsets = value_buffer(encoded)
    edges = np.append(0, np.cumsum(counts))
    offset_buffer = pa.py_buffer(np.asarray(offsets)[edges].astype(np.int32))
    together = pa.Array.from_buffers(pa.binary(), len(counts), [None, offset_buffer, pa.py_buffer(data)])
    ends = pa.array([b"", _END], pa.binary()).take(pa.array((counts > 0).astype(np.int32)))
    return [encode_longs(counts), together, ends]


_TEXT: Final = AvroType("string", pa.string())
_WRITERS: Final[dict[str, Callable[[AvroType, pa.Array], Pieces]]] = {
    "null": lambda kind, values: [],
    "boolean": _booleans,
    "int": _numbers,
    "long": _numbers,
    "float": _floats,
    "double": _floats,
    "bytes": _bytes,
    "string": _bytes,
    "fixed": _fixed,
    "enum": _enums,
    "record": _records,
    "error": _records,
    "array": _arrays,
    "map": _maps,
}
