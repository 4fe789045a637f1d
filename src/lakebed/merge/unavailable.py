"""Values that a database left out of a change, as Debezium marks them: which they are, also inside structs.

Debezium gives the marker in the type of the column: a text, its bytes, a list of the text or of the bytes as numbers, a
map from the text to itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.schema.plain_arrow import as_numpy

Flags = npt.NDArray[np.bool_]


def unavailable_values(values: pa.Array, marker: str) -> Flags | None:
    """Flags of the values that are the marker; None if the type cannot have the marker.

    >>> unavailable_values(pa.array([["?"], ["?", "a"], None, []]), "?").tolist()
    [True, False, False, False]
    """
    kind = values.type.value_type if pt.is_dictionary(values.type) else values.type
    if _is_text(kind):
        return _is_marker(values, kind, marker)
    if pt.is_list(kind):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0), np.int64)
        if _is_text(kind.value_type):
            flags = np.zeros(len(values), bool)
            parents = np.asarray(pc.list_parent_indices(values), np.int64)
            flags[parents[_is_marker(values.flatten(), kind.value_type, marker)]] = True
            return flags & (lengths == 1)
        if not pt.is_integer(kind.value_type):
            return None
        letters, flags = np.frombuffer(marker.encode(), np.uint8), lengths == len(marker.encode())
        at = np.flatnonzero(flags)
        if len(at):  # the marker's bytes as numbers
            numbers = as_numpy(pc.fill_null(values.take(pa.array(at)).flatten(), -1))
            flags[at] = (numbers.reshape(-1, len(letters)) == letters).all(axis=1)
        return flags
    if pt.is_map(kind) and pt.is_string(kind.key_type) and pt.is_string(kind.item_type):
        return _is_marker(pc.map_lookup(values, marker, "first"), kind.item_type, marker)
    return None


def filled_inside(values: pa.Array, others: pa.Array, marker: str, fills: Flags) -> tuple[pa.Array, Flags]:
    """The structs, in which fields that are the marker have the value of the struct in `others`, in the rows `fills`;
    and flags of the changed rows."""
    changed = np.zeros(len(values), bool)
    children: list[pa.Array] = []
    for field in values.type:
        child, other = (pc.struct_field(structs, field.name) for structs in (values, others))
        if pt.is_struct(field.type):
            child, flags = filled_inside(child, other, marker, fills)
        else:
            flags = unavailable_values(child, marker)
            flags = np.zeros(len(values), bool) if flags is None else flags & fills
            if flags.any():
                at = np.arange(len(values)) + np.where(flags, len(values), 0)
                child = pa.concat_arrays([child, other]).take(pa.array(at))
        changed |= flags
        children.append(child)
    if not changed.any():
        return values, changed
    return pa.StructArray.from_arrays(children, fields=list(values.type), mask=values.is_null()), changed


def may_mark_inside(kind: pa.DataType) -> bool:
    """Whether the type is a struct with a field that can be the marker."""
    return pt.is_struct(kind) and any(
        may_mark_inside(field.type) or unavailable_values(pa.array([], field.type), "") is not None for field in kind
    )


def _is_text(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_binary(kind)


def _is_marker(values: pa.Array, kind: pa.DataType, marker: str) -> Flags:
    is_marker = pc.equal(values, pa.scalar(marker if pt.is_string(kind) else marker.encode(), kind))
    return as_numpy(pc.fill_null(is_marker, False))
