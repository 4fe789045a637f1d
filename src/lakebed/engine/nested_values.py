"""Python's dicts and lists as the values that a column's type has: which dicts are maps, which name is which field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakebed.schema.arrow import is_list


def typed_values(values: Sequence[Any], kind: pa.DataType) -> tuple[Sequence[Any], pa.DataType]:
    """Values of a column as its type has them, and that type with the fields that its structs do not have yet, as Arrow
    types them. In structs a name in another case is the field's, a dict for a map is its entries, and NaN for what is
    no floating number is null. Values of simple types come back as they are.

    >>> typed_values([{"A": 1, "b": "x"}], pa.struct([("a", pa.int32())]))
    ([{'a': 1, 'b': 'x'}], StructType(struct<a: int32, b: string>))
    """
    if not pt.is_nested(kind):
        return values, kind
    fitted = [_fitted(value, kind) for value in values]
    return fitted, _extended(fitted, kind)


def is_nan(value: Any) -> bool:
    """Whether it is a floating number that is none."""
    return isinstance(value, float | np.floating) and bool(value != value)


def _fitted(value: Any, kind: pa.DataType) -> Any:
    if value is None or (not pt.is_floating(kind) and is_nan(value)):
        return None
    if pt.is_struct(kind) and isinstance(value, Mapping):
        return _fields(value, kind)
    if pt.is_map(kind):
        entries = list(value.items()) if isinstance(value, Mapping) else value
        if _are_pairs(entries):
            return [(key, _fitted(item, kind.item_type)) for key, item in entries]
        return value
    if is_list(kind) and isinstance(value, list | tuple):
        return [_fitted(item, kind.value_type) for item in value]
    return value


def _fields(value: Mapping[Any, Any], kind: pa.DataType) -> dict[Any, Any]:
    types = {field.name: field.type for field in kind}
    folded = {name.lower(): name for name in types}
    found: dict[Any, Any] = {}
    for given, item in value.items():
        name = given
        if given not in types and isinstance(given, str):
            known = folded.get(given.lower(), given)
            name = given if known in value or known in found else known
        found[name] = _fitted(item, types[name]) if name in types else item
    return found


def _are_pairs(entries: Any) -> bool:
    return isinstance(entries, list | tuple) and all(isinstance(one, tuple | list) and len(one) == 2 for one in entries)


def _extended(values: Sequence[Any], kind: pa.DataType) -> pa.DataType:
    """The type with the fields that structs among the values have besides."""
    present = [value for value in values if value is not None]
    if pt.is_struct(kind):
        rows = [value for value in present if isinstance(value, Mapping)]
        known = [field.with_type(_extended([row.get(field.name) for row in rows], field.type)) for field in kind]
        names = {field.name for field in kind}
        new = dict.fromkeys(name for row in rows for name in row if name not in names)
        return pa.struct([*known, *((name, pa.array([row.get(name) for row in rows]).type) for name in new)])
    if pt.is_map(kind):
        items = [item for value in present if _are_pairs(value) for _, item in value]
        return pa.map_(kind.key_field, kind.item_field.with_type(_extended(items, kind.item_type)))
    if is_list(kind):
        lists = (value for value in present if isinstance(value, list | tuple))
        return pa.list_(kind.value_field.with_type(_extended(list(chain.from_iterable(lists)), kind.value_type)))
    return kind
