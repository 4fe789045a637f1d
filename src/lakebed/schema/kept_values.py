"""Whether incoming values survive in the table's types: those that would not are refused, never rounded or cut."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import InvalidRecord
from lakebed.schema.arrow import is_list
from lakebed.schema.conversion import project
from lakebed.schema.spark import spark_type

# The first number that is too great for a long, as a double.
_BEYOND_LONG = float(1 << 63)


def may_lose(kind: pa.DataType, to_type: pa.DataType) -> bool:
    """Whether a simple type has values that another one, which Hudi promotes it to, does not keep.

    >>> may_lose(pa.int32(), pa.float32()), may_lose(pa.int32(), pa.float64())
    (True, False)
    """
    if pt.is_integer(kind):
        return pt.is_float32(to_type) or (pt.is_float64(to_type) and kind.bit_width > 32)
    if pt.is_timestamp(kind):
        return pt.is_timestamp(to_type) and kind.unit in ("us", "ns") and to_type.unit == "ms"
    return (pt.is_binary(kind) or pt.is_fixed_size_binary(kind)) and pt.is_string(to_type)


def project_kept(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`project` for incoming rows: raises `InvalidRecord` for a value that the column's type does not keep.

    >>> project_kept(pa.record_batch({"a": pa.array([7])}), pa.schema([("a", pa.float32())])).to_pylist()
    [{'a': 7.0}]
    """
    try:
        found = project(batch, schema)
    except pa.ArrowInvalid as error:
        raise InvalidRecord(
            f"a value does not fit the table's column: {error}", hint="Correct the value or cast the column."
        ) from error
    for field in found.schema:
        at = batch.schema.get_field_index(field.name)
        if at >= 0 and not batch.schema.field(at).type.equals(field.type):
            _check(batch.column(at), found.column(field.name), field.name)
    return found


def _check(given: Any, kept: Any, column: str) -> None:
    kind, to_type = given.type, kept.type
    if isinstance(given, pa.ExtensionArray):
        return _check(given.storage, kept, column)
    if pt.is_struct(kind):
        own = dict(zip([f.name for f in kind], given.flatten(), strict=True))
        for field, values in zip(to_type, kept.flatten(), strict=True):
            if field.name in own:
                _check(own[field.name], values, f"{column}.{field.name}")
    elif pt.is_map(kind):
        first, last = given.offsets[0].as_py(), given.offsets[-1].as_py()
        _check(given.items.slice(first, last - first), kept.items, f"{column}.value")
    elif is_list(kind):
        _check(given.flatten(), kept.flatten(), f"{column}.element")
    elif pt.is_dictionary(kind) and may_lose(kind.value_type, to_type):
        _check(given.dictionary_decode(), kept, column)
    elif may_lose(kind, to_type):
        lost = given.filter(pc.fill_null(_is_lost(given, kept), False))
        if len(lost):
            raise InvalidRecord(
                f"column {column} is {spark_type(to_type)} in the table, which does not keep {lost[0].as_py()!r}"
                + (f" and {len(lost) - 1} more" if len(lost) > 1 else ""),
                hint="Round or cut the values yourself before writing, or write them under another column name.",
                context={"column": column, "table": str(to_type), "data": str(kind)},
            )
    return None


def _is_lost(given: pa.Array, kept: pa.Array) -> pa.Array:
    if pt.is_integer(given.type):
        wide = kept.cast(pa.float64())
        back = pc.if_else(pc.less(wide, _BEYOND_LONG), wide, 0.0).cast(pa.int64(), safe=False)
        return pc.or_(pc.greater_equal(wide, _BEYOND_LONG), pc.not_equal(back, given.cast(pa.int64())))
    if pt.is_timestamp(given.type):
        micros = pa.timestamp("us", given.type.tz)
        return pc.not_equal(given.cast(micros, safe=False), kept.cast(micros))
    return pc.not_equal(given.cast(pa.binary()), kept.cast(pa.binary()))
