"""Field names of messages that no table can have: the rows that use them, and the columns without them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import SchemaConflict
from lakebed.ingestion.columns import with_elements
from lakebed.operations.context import incoming_schema
from lakebed.schema.plain_arrow import one_array

Flags = npt.NDArray[np.bool_]
_TWICE = "the message has the field {} in two cases of its letters"
_OTHER_TYPE = "the field {} has another type than in other messages"


class NamedColumns(NamedTuple):
    """Columns with names that a table can have, and the numbers of the rows with a value under another name, each with
    the reason."""

    rows: pa.Table
    refused: dict[int, str]


def possible_columns(rows: pa.Table) -> NamedColumns:
    """The rows without fields whose names no table can have, also inside structs and lists; names that differ only in
    case are one column. A row is refused if it has a value in such a field, or two values for one column.

    >>> possible_columns(pa.table({"id": [1, 2], "a-b": [None, 5], "ID": [None, None]})).refused[1][:22]
    "the column name 'a-b' "
    """
    refused: dict[int, str] = {}
    names = rows.schema.names
    if not any(map(_why_not, rows.schema)) and len({name.lower() for name in names}) == len(names):
        return NamedColumns(rows, refused)
    columns = [(field.name, one_array(rows.column(at))) for at, field in enumerate(rows.schema)]
    storable = _storable(columns, "", np.arange(rows.num_rows), refused)
    return NamedColumns(pa.table(dict(storable)) if storable else rows.select([]), refused)


def _storable(
    fields: list[tuple[str, pa.Array]], parent: str, row_numbers: npt.NDArray[np.int64], refused: dict[int, str]
) -> list[tuple[str, pa.Array]]:
    """The fields that can be stored. `row_numbers` are the rows that the values belong to."""
    columns_by_name: dict[str, tuple[str, pa.Array]] = {}
    for name, values in fields:
        path = f"{parent}{name}"
        why = _why_not(pa.field(name, pa.int64()))
        possible = None if why else _possible(values, f"{path}.", row_numbers, refused)
        if possible is None:
            _refuse(why or "", values.is_valid(), row_numbers, refused)
        elif name.lower() in columns_by_name:
            first, other = columns_by_name[name.lower()]
            if possible.type.equals(other.type):
                are_twice = pc.and_(other.is_valid(), possible.is_valid())
                _refuse(_TWICE.format(path), are_twice, row_numbers, refused)
                columns_by_name[name.lower()] = first, pc.coalesce(other, possible)
            else:  # the one with more values stays
                more, fewer = (name, possible), (first, other)
                if len(possible) - possible.null_count <= len(other) - other.null_count:
                    more, fewer = fewer, more
                columns_by_name[name.lower()] = more
                _refuse(_OTHER_TYPE.format(parent + fewer[0]), fewer[1].is_valid(), row_numbers, refused)
        else:
            columns_by_name[name.lower()] = name, possible
    return list(columns_by_name.values())


def _why_not(field: pa.Field) -> str:
    """The reason why no table can have the column; empty if one can."""
    try:
        incoming_schema(pa.schema([field]))
    except SchemaConflict as error:
        return error.message
    return ""


def _possible(
    values: pa.Array, parent: str, row_numbers: npt.NDArray[np.int64], refused: dict[int, str]
) -> pa.Array | None:
    """The values without the fields whose names a table cannot have; None if no field is left."""
    if pt.is_struct(values.type):
        children = [(field.name, pc.struct_field(values, field.name)) for field in values.type]
        storable: Any = _storable(children, parent, row_numbers, refused)
        if not storable:
            return None
        names, arrays = zip(*storable, strict=True)
        return pa.StructArray.from_arrays(list(arrays), list(names), mask=values.is_null())
    if pt.is_list(values.type):
        of_elements = row_numbers[np.asarray(pc.list_parent_indices(values), np.int64)]
        elements = _possible(values.flatten(), f"{parent}element.", of_elements, refused)
        if elements is None:
            return None
        return with_elements(values, elements)
    return values


def _refuse(why: str, flags: pa.Array, row_numbers: npt.NDArray[np.int64], refused: dict[int, str]) -> None:
    for number in row_numbers[np.asarray(flags, bool)].tolist():
        refused.setdefault(number, why)
