"""Merging the records of a file slice: the base file's and those of each log block, newer over older, per key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings
from lakebed.schema.plain_arrow import as_numpy

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
R = TypeVar("R")
Decode = Callable[[pa.Array, Any, str], R]


@dataclass(frozen=True, slots=True)
class Layer:
    """The content of one file or block: records, or deleted keys."""

    records: pa.Table | None = None
    deleted: pa.Array | None = None


def newest(layers: Sequence[Layer]) -> pa.Table | None:
    """The newest record of every key (column `key`), from layers in the order oldest first, without keys that were
    deleted last. None if no layer has records.

    >>> old = pa.table({"key": ["a", "b"], "x": [1, 2]})
    >>> new = pa.table({"key": ["a"], "x": [3]})
    >>> newest([Layer(old), Layer(new), Layer(deleted=pa.array(["b"]))]).to_pylist()
    [{'key': 'a', 'x': 3}]
    """
    filled = _filled(layers)
    if len(filled) < 2:
        return filled[0].records if filled else None
    base, above = filled[0].records, _newest_of_all(filled[1:]) if filled[0].records is not None else None
    if base is None:
        return _newest_of_all(filled)
    # a base file has each key once and is large: only the layers above it are sorted by key
    named = pa.concat_arrays([names for layer in filled[1:] for names, _ in _keys(layer)])
    base_rows = base.filter(pc.invert(pc.is_in(base["key"], value_set=named)))
    return base_rows if above is None else pa.concat_tables([base_rows, above]).unify_dictionaries()


def alive(layers: Sequence[Layer]) -> pa.Table | None:
    """The records after the last delete of their key, oldest first, for kinds in which all records of a key count. None
    if no layer has records."""
    filled = _filled(layers)
    with_records = [layer.records for layer in filled if layer.records is not None]
    if len(filled) == 1 or not with_records:
        return with_records[0] if with_records else None
    history = _History.of(filled)
    last_delete = np.full(history.count, -1, np.int64)
    last_delete[history.keys[history.is_delete]] = np.flatnonzero(history.is_delete)
    is_alive = ~history.is_delete & (np.arange(len(history.keys)) > last_delete[history.keys])
    return history.records.take(pa.array(history.row[is_alive]))


def decoded(rows: pa.Table | None, decode: Decode[R]) -> list[R]:
    """The merged records, decoded. Records with different writer schemas are returned as separate tables, in their
    order: later tables take precedence."""
    if rows is None or not len(rows):
        return []
    codes = as_numpy(rows.unify_dictionaries()["schema"].combine_chunks().indices)
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    decoded_parts: list[R] = []
    for start, end in pairwise(edges):
        part = rows.slice(start, end - start)
        keys, values = part["key"].combine_chunks(), part["value"].combine_chunks()
        decoded_parts.append(decode(keys, values, part["schema"][0].as_py()))
    return decoded_parts


def _filled(layers: Sequence[Layer]) -> list[Layer]:
    return [
        layer for layer in layers if layer.records is not None or (layer.deleted is not None and len(layer.deleted))
    ]


def _keys(layer: Layer) -> list[tuple[pa.Array, bool]]:
    """The keys of the records, then those of the deletes, each with a flag for deletes."""
    keys = [] if layer.records is None else [(plain_strings(layer.records["key"]), False)]
    return keys if layer.deleted is None else [*keys, (layer.deleted, True)]


def _newest_of_all(layers: Sequence[Layer]) -> pa.Table | None:
    if all(layer.records is None for layer in layers):
        return None
    history = _History.of(layers)
    last = np.zeros(history.count, np.int64)
    last[history.keys] = np.arange(len(history.keys))
    last = np.sort(last[~history.is_delete[last]])
    return history.records.take(pa.array(history.row[last]))


@dataclass(frozen=True, slots=True)
class _History:
    """All records and deletes, oldest first: the number of the key (below `count`), whether it is a delete, and the row
    of a record in `records`."""

    keys: Int64s
    count: int
    is_delete: Bools
    row: Int64s
    records: pa.Table

    @classmethod
    def of(cls, layers: Sequence[Layer]) -> _History:
        names: list[pa.Array] = []
        deletes: list[Bools] = []
        for layer in layers:
            for array, is_delete in _keys(layer):
                names.append(array)
                deletes.append(np.full(len(array), is_delete))
        encoded = pa.concat_arrays(names).dictionary_encode()
        flags = np.concatenate(deletes)
        rows = np.where(flags, -1, np.cumsum(~flags) - 1)
        records = pa.concat_tables([layer.records for layer in layers if layer.records is not None])
        codes = as_numpy(encoded.indices).astype(np.int64)
        return cls(codes, len(encoded.dictionary), flags, rows, records.unify_dictionaries())


def runs(values: Int64s) -> tuple[Int64s, Int64s]:
    """The first and the last position of each run of equal values."""
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])) if len(values) else np.empty(0, np.int64)
    return starts, np.append(starts[1:], len(values)) - 1 if len(values) else starts


def codes(keys: pa.Array) -> Int64s:
    """A number for each key, the same for the same text."""
    return as_numpy(keys.dictionary_encode().indices).astype(np.int64)
