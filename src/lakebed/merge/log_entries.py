"""What decides between the records of a slice's log blocks, as columns: key, ordering values, deletes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import CorruptFile
from lakebed.format.avro.wrappers import DECIMAL, INT, WRAPPED_DECIMAL, Wrapped, decimals
from lakebed.format.data_block import DataBlock
from lakebed.format.delete_block import ARRAY, Deletes
from lakebed.format.hashes import plain_strings
from lakebed.merge.log_fold import Flags, LogEntries, Positions
from lakebed.merge.rules import MergeRules
from lakebed.model import IS_DELETED_COLUMN, OPERATION_COLUMN
from lakebed.schema.evolution import cast_column, is_promotion


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns that tell a stored row's record key, and how."""

    names: tuple[str, ...]
    texts: Callable[[pa.RecordBatch], pa.Array] | None = None

    def of(self, rows: pa.RecordBatch, path: str) -> pa.Array:
        """The record keys; raises `CorruptFile` for rows without one."""
        keys = plain_strings(rows.column(self.names[0]) if self.texts is None else self.texts(rows))
        if keys.null_count:
            raise CorruptFile(f"{path}: {keys.null_count} record(s) without a record key", context={"path": path})
        return keys


def ordering_types(schemas: Sequence[pa.Schema], table: pa.Schema, rules: MergeRules) -> tuple[pa.DataType, ...]:
    """The types that the ordering fields are compared in: of those that the files have, the widest; that of the table
    where none has any, as where all that is logged are deletes."""
    found: list[pa.DataType] = []
    for name in rules.ordering:
        kinds = [kind for schema in schemas if (kind := _type_of(schema, name)) is not None]
        widest = kinds[0] if kinds else _type_of(table, name) or pa.null()
        for kind in kinds[1:]:
            if not is_promotion(kind, widest):
                widest = kind
        found.append(widest)
    return tuple(found)


def roots(fields: Sequence[str], schema: pa.Schema) -> list[str]:
    """The top-level columns of fields, which may lie inside structs."""
    known_names = frozenset(schema.names)
    return [name if name in known_names else name.partition(".")[0] for name in fields]


def ordering_values(rows: pa.RecordBatch, rules: MergeRules, kinds: Sequence[pa.DataType]) -> tuple[pa.Array, ...]:
    """The ordering fields of rows in these types; null where the rows lack one."""
    pairs = zip(rules.ordering, kinds, strict=True)
    return tuple(cast_column(_values_of(rows, name, kind), kind) for name, kind in pairs)


def data_entries(
    block: DataBlock, number: int, rules: MergeRules, kinds: Sequence[pa.DataType], keys: KeyColumns, path: str
) -> LogEntries:
    """The entries of a data block; `number` stands for it in them."""
    marks = [IS_DELETED_COLUMN, OPERATION_COLUMN, *([rules.delete_field] if rules.delete_field else [])]
    wanted = [*keys.names, *roots(rules.ordering, block.schema), *marks]
    known_names = frozenset(block.schema.names)
    rows = block.read([name for name in dict.fromkeys(wanted) if name in known_names])
    n = rows.num_rows
    ordering = ordering_values(rows, rules, kinds)
    deletes = _deletes(rows, rules)
    forced = np.zeros(n, np.bool_)
    if rules.deletes_win:
        forced = deletes
    elif deletes.any() and len(ordering) == 1:
        forced = deletes & _is_default(ordering[0])
    return LogEntries(keys.of(rows, path), ordering, deletes, forced, np.full(n, number, np.int32), np.arange(n))


def delete_entries(deletes: Deletes, number: int, rules: MergeRules, kinds: Sequence[pa.DataType]) -> LogEntries:
    """The entries of a delete block."""
    n = len(deletes)
    wrapped = deletes.ordering
    forced = np.zeros(n, np.bool_)
    if INT in wrapped.values:
        rows, values = wrapped.values[INT]
        forced[rows] = values.to_numpy(zero_copy_only=False) == 0
    forced |= (wrapped.branch == 0) | rules.delete_blocks_win | rules.deletes_win
    if deletes.fields and len(deletes.fields) == len(kinds):
        several = np.flatnonzero(wrapped.branch == ARRAY)
        ordering = [_into(n, several, _unwrapped(w, k)) for w, k in zip(deletes.fields, kinds, strict=True)]
    elif len(kinds) == 1:
        ordering = [_unwrapped(wrapped, kinds[0], skip=forced)]
    else:
        ordering = [pa.nulls(n, kind) for kind in kinds]
    every = np.ones(n, np.bool_)
    return LogEntries(deletes.keys, tuple(ordering), every, forced, np.full(n, number, np.int32), np.arange(n))


def joined(parts: Sequence[LogEntries], kinds: Sequence[pa.DataType]) -> LogEntries:
    """The entries of blocks one behind the other."""
    if len(parts) == 1:
        return parts[0]
    positions = [part.positions for part in parts if part.positions is not None]
    return LogEntries(
        pa.concat_arrays([part.keys for part in parts]) if parts else pa.array([], pa.string()),
        tuple(
            pa.concat_arrays([part.ordering[i] for part in parts]) if parts else pa.array([], kind)
            for i, kind in enumerate(kinds)
        ),
        _concatenated([part.deletes for part in parts], np.bool_),
        _concatenated([part.forced for part in parts], np.bool_),
        _concatenated([part.block for part in parts], np.int32),
        _concatenated([part.row for part in parts], np.int64),
        np.concatenate(positions) if parts and len(positions) == len(parts) else None,
    )


def _concatenated(arrays: Sequence[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, kind)


def _deletes(rows: pa.RecordBatch, rules: MergeRules) -> Flags:
    marked = rules.is_delete(rows)
    return np.zeros(rows.num_rows, np.bool_) if marked is None else marked.to_numpy(zero_copy_only=False)


def _is_default(ordering: pa.Array) -> Flags:
    """Where an ordering value is none: null, or the int 0 that Hudi takes for it (a long 0 is a value)."""
    found = ordering.is_null()
    if pt.is_int32(ordering.type):
        found = pc.or_kleene(found, pc.equal(ordering, 0))
    return found.to_numpy(zero_copy_only=False)


def _type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    if name in schema.names:
        return schema.field(name).type
    root, _, rest = name.partition(".")
    if not rest or root not in schema.names or not pt.is_struct(schema.field(root).type):
        return None
    return _type_of(pa.schema(list(schema.field(root).type)), rest)


def _values_of(rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    if name in rows.schema.names:
        return rows.column(name)
    if _type_of(rows.schema, name) is None:
        return pa.nulls(rows.num_rows, kind)
    root, _, rest = name.partition(".")
    return pc.struct_field(rows.column(root), rest.split("."))


def _unwrapped(wrapped: Wrapped, kind: pa.DataType, skip: Flags | None = None) -> pa.Array:
    """Wrapped values as a column of this type; null where `skip`."""
    n = len(wrapped.branch)
    parts: list[pa.Array] = [pa.nulls(1, kind)]
    places = np.zeros(n, np.int64)
    at = 1
    for branch, (rows, values) in wrapped.values.items():
        if skip is not None and skip[rows].all():
            continue
        if branch == DECIMAL:
            values = decimals(values, WRAPPED_DECIMAL)
        parts.append(_as(values, kind))
        places[rows] = at + np.arange(len(rows))
        at += len(rows)
    if skip is not None:
        places[skip] = 0
    return pa.concat_arrays(parts).take(pa.array(places))


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a wrapper in a column's type: days and micros may stand as plain numbers."""
    if pt.is_integer(values.type) and pt.is_date32(kind):
        return values.cast(pa.int32()).view(kind)
    if pt.is_date32(values.type) and pt.is_integer(kind):
        return values.view(pa.int32()).cast(kind)
    if pt.is_timestamp(values.type) and pt.is_integer(kind):
        return values.view(pa.int64()).cast(kind)
    if pt.is_decimal(values.type) and pt.is_decimal(kind):
        return values.cast(pa.decimal256(76, max(values.type.scale, kind.scale))).cast(kind)
    if pt.is_null(kind):
        return pa.nulls(len(values), kind)
    return cast_column(values, kind)


def _into(n: int, rows: Positions, values: pa.Array) -> pa.Array:
    """Values of some rows, put into all; the others are null."""
    places = np.zeros(n, np.int64)
    places[rows] = 1 + np.arange(len(rows))
    return pa.concat_arrays([pa.nulls(1, values.type), values]).take(pa.array(places))
