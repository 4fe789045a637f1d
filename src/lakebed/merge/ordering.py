"""Ordering values: taken out of rows, made comparable, compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRecord


def field_values(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """A column, or a field inside structs by its dotted path; null where a struct on the way is."""
    if name in rows.schema.names:
        return one_array(rows.column(name))
    first, *path = name.split(".")
    return pc.struct_field(one_array(rows.column(first)), path)


def compare_ordering(incoming: Sequence[pa.Array], stored: Sequence[pa.Array]) -> pa.Array:
    """Lexicographic `incoming >= stored` over several columns; a null is smaller than anything."""
    result: pa.Array | None = None
    for new, old in zip(reversed(incoming), reversed(stored), strict=True):
        new, old = comparable(new), comparable(old)
        greater = pc.fill_null(pc.greater(new, old), pc.and_(pc.is_valid(new), pc.is_null(old)))
        equal = pc.fill_null(pc.equal(new, old), pc.and_(pc.is_null(new), pc.is_null(old)))
        result = pc.or_(greater, equal if result is None else pc.and_(equal, result))
    assert result is not None
    return result


def comparable(values: pa.Array) -> pa.Array:
    """Booleans as numbers; floating point as integers of the same order, so that NaN is greatest as in Java."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if not pa.types.is_floating(values.type):
        return values
    as_double = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(as_double), np.nan, as_double).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    return pa.array(ordered, mask=pc.is_null(values).to_numpy(zero_copy_only=False))


def nulls_first(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Columns that sort as these do, nulls before all values."""
    parts = [[c.is_valid().cast(pa.int8()), c] if c.null_count else [c] for c in columns]
    return [part for both in parts for part in both]


def file_and_position(values: pa.Array) -> list[pa.Array]:
    """Texts `<file number>.<position>`, of a MySQL binary log, as two columns of numbers.

    >>> [part.to_pylist() for part in file_and_position(pa.array(["000009.120", None]))]
    [[9, None], [120, None]]
    """
    texts = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    parts = pc.extract_regex(texts.cast(pa.string()), r"^(?P<file>[0-9]+)\.(?P<position>[0-9]+)$")
    bad = pc.and_(pc.is_valid(texts), pc.is_null(parts))
    if pc.any(bad).as_py():
        found = texts.filter(bad)[0].as_py()
        raise InvalidRecord(
            f"the ordering value {found!r} is not the number of a binary log file, a dot and a position",
            hint="MySqlDebeziumAvroPayload orders by such texts, as in 000003.1547",
            context={"value": found},
        )
    return [pc.struct_field(parts, name).cast(pa.int64()) for name in ("file", "position")]


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
