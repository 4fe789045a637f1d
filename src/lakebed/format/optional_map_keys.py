"""Maps whose keys a Parquet file declares OPTIONAL, as Flink's writer did before Hudi 0.14: Arrow refuses such a file.

In memory the footer gets another annotation for them: a list of pairs, which Arrow reads. The pairs become a map again.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.format.row_groups.chunks import (
    I32,
    Field,
    integer,
    number_in,
    read_list,
    read_struct,
    write_list,
    write_struct,
)

# Fields by their numbers in parquet.thrift.
_SCHEMA: Final = 2
_REPETITION, _CHILDREN, _CONVERTED, _LOGICAL = 3, 5, 6, 10
_OPTIONAL: Final = 1
_MAP, _LIST = 1, 3
_LOGICAL_MAP: Final = 2
_MESSAGE: Final = "Map keys must be annotated as required"
# Names of the group of a map's pairs, and of their parts: those of parquet-mr, by which the lists are known again.
_PAIRS, _PARTS = ("key_value", "map"), ["key", "value"]


def is_about_map_keys(error: Exception) -> bool:
    """Whether this is Arrow's error about a map with OPTIONAL keys."""
    return _MESSAGE in str(error)


def with_pairs(footer: bytes) -> bytes:
    """The footer with maps of optional keys declared as lists of pairs."""
    fields, _ = read_struct(footer)
    return write_struct([_with_pairs(field) if field.number == _SCHEMA else field for field in fields])


def _with_pairs(schema: Field) -> Field:
    kind, entries = read_list(schema.value)
    elements = [{field.number: field for field in read_struct(entry)[0]} for entry in entries]
    for at in range(len(elements) - 2):
        group, pairs, key = elements[at : at + 3]
        logical = read_struct(group[_LOGICAL].value)[0] if _LOGICAL in group else []
        is_map = _number(group, _CONVERTED) == _MAP or any(field.number == _LOGICAL_MAP for field in logical)
        if not is_map or _number(pairs, _CHILDREN) != len(_PARTS) or _number(key, _REPETITION) != _OPTIONAL:
            continue
        group[_CONVERTED] = integer(_CONVERTED, I32, _LIST)
        for element, number in ((group, _LOGICAL), (pairs, _CONVERTED), (pairs, _LOGICAL)):
            element.pop(number, None)
    written = [write_struct([element[number] for number in sorted(element)]) for element in elements]
    return Field(_SCHEMA, schema.kind, write_list(kind, written))


def _number(element: dict[int, Field], number: int) -> int | None:
    return number_in(element[number].value) if number in element else None


def with_maps(schema: pa.Schema) -> pa.Schema:
    """The columns of a file with lists of pairs as maps."""
    return pa.schema([field.with_type(_map_type(field.type)) for field in schema])


def batch_with_maps(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with lists of pairs converted to maps."""
    schema = with_maps(rows.schema)
    if schema.equals(rows.schema):
        return rows
    arrays = [as_maps(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _map_type(kind: pa.DataType) -> pa.DataType:
    if pt.is_list(kind):
        item = kind.value_field
        if item.name in _PAIRS and pt.is_struct(item.type) and [f.name for f in item.type] == _PARTS:
            return pa.map_(pa.string(), item.type.field("value").with_type(_map_type(item.type.field("value").type)))
        return pa.list_(item.with_type(_map_type(item.type)))
    if pt.is_struct(kind):
        return pa.struct([kind.field(n).with_type(_map_type(kind.field(n).type)) for n in range(kind.num_fields)])
    if pt.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_map_type(kind.item_type)))
    return kind


def as_maps(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values with lists of pairs converted to maps, in the type that `with_maps` returns. Raises `ValueError` for a
    null key."""
    if values.type.equals(kind):
        return values
    if pt.is_list(values.type) and pt.is_map(kind):
        pairs = values.flatten()
        keys = pairs.field(0).cast(pa.string())
        if keys.null_count:
            raise ValueError("a map has a null key")
        return pa.MapArray.from_arrays(
            _offsets(values), keys, as_maps(pairs.field(1), kind.item_type), type=kind, mask=_nulls(values)
        )
    if pt.is_list(kind):
        items = as_maps(values.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(values), items, type=kind, mask=_nulls(values))
    if pt.is_map(kind):
        pairs = values.flatten() if hasattr(values, "flatten") else values
        return pa.MapArray.from_arrays(
            _offsets(values), pairs.field(0), as_maps(pairs.field(1), kind.item_type), type=kind, mask=_nulls(values)
        )
    if pt.is_struct(kind):
        parts = [as_maps(values.field(n), kind.field(n).type) for n in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=_nulls(values))
    return values.cast(kind)


def _offsets(values: pa.Array) -> pa.Array:
    """The offsets of each list into the entries of all lists."""
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    return pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])


def _nulls(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None
