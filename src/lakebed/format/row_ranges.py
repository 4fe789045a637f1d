"""Smallest and greatest value of each column of rows that no Parquet footer describes: those of log files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.format.column_ranges import COUNTS, has_range
from lakebed.format.parquet_encodings import leaves
from lakebed.schema.arrow import leaf_paths

_NULLS = pc.CountOptions(mode="only_null")


@dataclass(slots=True)
class _Column:
    """What was seen of one column."""

    kind: pa.DataType
    bounds: list[pa.Array]
    nulls: int = 0
    values: int = 0
    has_nan: bool = False

    def see(self, values: pa.Array) -> None:
        self.nulls += values.null_count
        self.values += len(values)
        occurring = values.dictionary.take(pc.unique(values.indices)) if pt.is_dictionary(values.type) else values
        if pt.is_floating(self.kind) and not self.has_nan:
            self.has_nan = bool(pc.any(pc.is_nan(occurring)).as_py())
        found = pc.min_max(occurring)
        if found["min"].is_valid:
            self.bounds += [pa.repeat(found["min"], 1), pa.repeat(found["max"], 1)]

    def range(self) -> tuple[pa.Array, pa.Array]:
        """Least and greatest value, each as an array of one; NaN is the greatest, as in Java."""
        low, high = self.bounds if len(self.bounds) == 2 else self._of_several()
        low, high = (side if side.type == self.kind else side.cast(self.kind) for side in (low, high))
        if self.has_nan:
            high = pa.array([float("nan")], self.kind)
            low = low if low.null_count == 0 and not pc.is_nan(low)[0].as_py() else high
        return low, high

    def _of_several(self) -> tuple[pa.Array, pa.Array]:
        found = pc.min_max(pa.concat_arrays(self.bounds or [pa.array([], self.kind)]))
        return pa.repeat(found["min"], 1), pa.repeat(found["max"], 1)


class RowRanges:
    """The ranges of some columns by their Parquet paths, as `column_ranges.ColumnRanges` has those of base files."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        kinds = dict(leaf_paths(schema))
        self._columns = {p: _Column(kinds[p], []) for p in columns if p in kinds and has_range(kinds[p])}
        known_names = frozenset(schema.names)
        self._tops = sorted({path if path in known_names else path.split(".")[0] for path in self._columns})

    def see(self, rows: pa.RecordBatch) -> None:
        """Take rows in."""
        for top in self._tops:
            for path, values in leaves(top, rows.column(top)):
                column = self._columns.get(path)
                if column is not None and len(values):
                    column.see(values)

    def row(self) -> pa.RecordBatch:
        """One row with a struct a column; see `ColumnRanges.row`. Rows in a log file have no sizes of their own."""
        arrays: list[pa.Array] = []
        columns = self._columns.values()
        counts = pa.array([n for column in columns for n in (column.nulls, column.values, 0, 0)], pa.int64())
        for at, column in enumerate(columns):
            own = [counts.slice(len(COUNTS) * at + i, 1) for i in range(len(COUNTS))]
            arrays.append(pa.StructArray.from_arrays([*column.range(), *own], names=["min", "max", *COUNTS]))
        return pa.RecordBatch.from_arrays(arrays, names=list(self._columns))


def ranges_by_group(
    rows: pa.RecordBatch, codes: npt.NDArray[np.int32], schema: pa.Schema, columns: Sequence[str]
) -> dict[int, pa.RecordBatch]:
    """What a `RowRanges` for each group would say of its rows, all of them at once; `codes` give each row's group, in
    ascending order.

    >>> rows = pa.record_batch({"a": [3, 1, 2]})
    >>> found = ranges_by_group(rows, np.array([0, 0, 4], np.int32), rows.schema, ["a"])
    >>> {group: found[group]["a"][0]["max"].as_py() for group in found}
    {0: 3, 4: 2}
    """
    kinds = dict(leaf_paths(schema))
    paths = [path for path in dict.fromkeys(columns) if path in kinds and has_range(kinds[path])]
    if not frozenset(paths) <= frozenset(rows.schema.names):
        return _ranges_one_by_one(rows, codes, schema, columns)
    arrays = [pa.array(codes)]
    asked: list[Any] = [([], "count_all")]
    for path in paths:
        values, at = _plain(rows.column(path), kinds[path]), f"{len(arrays)}"
        arrays.append(values)
        asked += [(at, "min_max"), (at, "count", _NULLS)]
        if pt.is_floating(values.type):
            asked.append((f"{len(arrays)}", "any"))
            arrays.append(pc.is_nan(values))
    table = pa.Table.from_arrays(arrays, names=[f"{at}" for at in range(len(arrays))])
    found = table.group_by("0", use_threads=False).aggregate(asked).combine_chunks()
    results = iter([column.chunk(0) for column in found.columns[1:]])
    total, none = next(results), pa.array(np.zeros(found.num_rows, np.int64))
    structs: list[pa.Array] = []
    for path in paths:
        (low, high), nulls = next(results).flatten(), next(results)
        if pt.is_floating(kinds[path]):
            low, high = _nan_greatest(low, high, next(results))
        structs.append(pa.StructArray.from_arrays([low, high, nulls, total, none, none], names=["min", "max", *COUNTS]))
    every = pa.RecordBatch.from_arrays(structs, names=paths)
    return {group: every.slice(at, 1) for at, group in enumerate(found.column(0).to_pylist())}


def _ranges_one_by_one(
    rows: pa.RecordBatch, codes: npt.NDArray[np.int32], schema: pa.Schema, columns: Sequence[str]
) -> dict[int, pa.RecordBatch]:
    """Values inside lists and structs stand in arrays of their own."""
    found: dict[int, pa.RecordBatch] = {}
    groups, starts = np.unique(codes, return_index=True)
    for group, (start, stop) in zip(groups.tolist(), pairwise([*starts.tolist(), len(codes)]), strict=True):
        ranges = RowRanges(schema, columns)
        ranges.see(rows.slice(start, stop - start))
        found[group] = ranges.row()
    return found


def _plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    return values if values.type == kind else values.cast(kind)


def _nan_greatest(low: pa.Array, high: pa.Array, has_nan: pa.Array) -> tuple[pa.Array, pa.Array]:
    """As `_Column.range` has it, for each group."""
    has_nan, nan = pc.fill_null(has_nan, False), pa.scalar(float("nan"), low.type)
    return pc.if_else(pc.and_(has_nan, low.is_null()), nan, low), pc.if_else(has_nan, nan, high)
