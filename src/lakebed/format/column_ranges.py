"""The smallest and greatest value of each column: of a base file by its footer, of other rows by looking at them.

Parquet leaves the range of a row group out where a value is long, and ignores NaN; the writer notes both. Where it
did not, a row group without a range makes the column's range unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.format.bounded_cache import cached_by_schema
from lakebed.format.parquet_encodings import leaves
from lakebed.format.row_groups.nan_chunks import holds_nan
from lakebed.schema.arrow import leaf_paths
from lakebed.schema.plain_arrow import grouped_rows

# Longest value that Parquet's writer keeps in its statistics, with some room.
_LONG = 4000
_EXACT = Context(prec=76)
_CODEC = "zstd"
COUNTS = ("null_count", "value_count", "total_size", "total_uncompressed")
_PARTS = ["min", "max", *COUNTS]


def are_ordinary(rows: pa.RecordBatch) -> bool:
    """Whether rows have neither NaN nor a value that is too long for Parquet's statistics: so have all parts of them.

    >>> [are_ordinary(pa.record_batch({"a": [1.0, value]})) for value in (None, float("nan"))]
    [True, False]
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for _, values in leaves(name, column):
            kind = values.type.value_type if pt.is_dictionary(values.type) else values.type
            if pt.is_floating(kind):
                is_ordinary = not holds_nan(values)
            elif _is_bytes(kind):
                is_ordinary = _is_short(values) or _longest(_occurring(values)) <= _LONG
            else:
                is_ordinary = pt.is_primitive(kind) or pt.is_decimal(kind) or pt.is_null(kind)
            if not is_ordinary:
                return False
    return True


def has_range(kind: pa.DataType) -> bool:
    """Whether values of the type have an order, so that a column of the type has a smallest and a largest value."""
    return not (pt.is_nested(kind) or pt.is_null(kind) or pt.is_interval(kind) or pt.is_duration(kind))


@cached_by_schema
def ranged_columns(schema: pa.Schema, columns: tuple[str, ...]) -> dict[str, pa.DataType]:
    """The columns (Parquet paths) that have ranges in rows of this schema, each once, with their types."""
    kinds = dict(leaf_paths(schema))
    return {path: kinds[path] for path in columns if path in kinds and has_range(kinds[path])}


@dataclass(frozen=True, slots=True)
class _Watched:
    """The columns whose ranges are collected: their types by path, the paths of those whose statistics may be
    incomplete, and the top-level columns that have these."""

    types: Mapping[str, pa.DataType]
    paths: frozenset[str]
    tops: tuple[str, ...]


@cached_by_schema
def _watched(schema: pa.Schema, columns: tuple[str, ...]) -> _Watched:
    types = ranged_columns(schema, columns)
    paths = frozenset(path for path, kind in types.items() if pt.is_floating(kind) or _is_bytes(kind))
    known_names = frozenset(schema.names)
    tops = sorted({path.split(".")[0] if path not in known_names else path for path in paths})
    return _Watched(types, paths, tuple(tops))


class ColumnRanges:
    """The ranges of some columns of a file being written, by their Parquet paths (`a`, `a.b`, `a.list.element`).

    `see` takes each row group as it is written; `row` gives the result from the finished file's metadata. Paths that
    the schema does not have, and columns without order, are left out.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        watched = _watched(schema, tuple(columns))
        self._types, self._watched, self._tops = watched.types, watched.paths, watched.tops
        # of each row group with a long value or NaN: the range of each of its chunks, without NaN
        self._observed: dict[str, list[list[pa.StructScalar]]] = {}
        self._nan: set[str] = set()

    def unseen(self, group: Any, columns: Sequence[str], leaves: Mapping[str, int], *, exact: bool) -> list[str]:
        """The columns of a stored row group that `see` must be given, because the statistics in Parquet's metadata are
        incomplete. `leaves` are all columns of the file with the number of their leaves; with `exact`, chunks with NaN
        have no min and max."""
        names: list[str] = []
        at = 0
        for name, count in leaves.items():
            chunks, at = [group.column(number) for number in range(at, at + count)], at + count
            if name in columns and any(c.path_in_schema in self._watched and self._is_silent(c, exact) for c in chunks):
                names.append(name)
        return names

    def _is_silent(self, chunk: Any, exact: bool) -> bool:
        if not exact and pt.is_floating(self._types[chunk.path_in_schema]):
            return True
        statistics = chunk.statistics if chunk.is_stats_set else None
        return statistics is None or not (statistics.has_min_max or _is_all_null(statistics))

    def see(self, group: pa.Table) -> None:
        """Record the ranges of a row group (or of some of its columns) for which Parquet's statistics will be
        incomplete."""
        for top in self._tops:
            if top not in group.column_names:
                continue
            hidden: dict[str, list[pa.Array]] = {}
            for chunk in group[top].chunks:
                for path, values in leaves(top, chunk):
                    if path in self._watched:
                        hidden.setdefault(path, []).append(values)
            for path, chunks in hidden.items():
                if not all(map(_is_short, chunks)):
                    self._note(path, [_occurring(values) for values in chunks])

    def _note(self, path: str, chunks: Sequence[pa.Array]) -> None:
        """Record the range of a column if Parquet will not have one: one long value or NaN in a chunk suffices for
        that."""
        if pt.is_floating(self._types[path]):
            if any(map(holds_nan, chunks)):
                self._nan.add(path)
                self._observed.setdefault(path, []).append([_number_range(values) for values in chunks])
        elif any(_longest(values) > _LONG for values in chunks):
            self._observed.setdefault(path, []).append([pc.min_max(values) for values in chunks])

    def stored(self, metadata: Any) -> StoredRanges | None:
        """The ranges as the footer of the finished file has them; None if it does not have them as they are: those of
        several row groups, and of rows with a long text or NaN."""
        if metadata.num_row_groups != 1 or self._observed:
            return None
        group, at = metadata.row_group(0), _numbers_by_path(metadata)
        bounds: list[Any] = []
        counts: list[int | None] = []
        for name in self._types:
            chunk = group.column(at[name])
            statistics = chunk.statistics
            if statistics is not None and statistics.has_min_max:
                bounds += (statistics.min_raw, statistics.max_raw)
            else:
                bounds += (None, None)
            nulls = statistics.null_count if statistics is not None and statistics.has_null_count else None
            counts += (nulls, chunk.num_values, chunk.total_compressed_size, chunk.total_uncompressed_size)
        return StoredRanges(self._types, bounds, counts)

    def row(self, metadata: Any) -> pa.RecordBatch:
        """One row with a struct for each column: `min` and `max` in the column's type, and the counts (values and
        bytes). The bounds are null for a column of nulls, and if they are unknown: in that case `null_count` is less
        than the number of values, or null."""
        stored = self.stored(metadata)
        if stored is not None:
            return rows_of([stored])
        at = _numbers_by_path(metadata)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        numbers: list[int | None] = []
        bounds = [self._column(n, [g.column(at[n]) for g in groups], numbers) for n in self._types]
        # one array for all columns: to make one takes longer than to cut it
        counts, width = pa.array(numbers, pa.int64()), len(COUNTS)
        columns = [
            pa.StructArray.from_arrays([*ends, *[counts.slice(i, 1) for i in range(n, n + width)]], names=_PARTS)
            for n, ends in zip(range(0, len(numbers), width), bounds, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(self._types))

    def _column(self, name: str, chunks: Sequence[Any], counts: list[int | None]) -> tuple[pa.Array, pa.Array]:
        """The least and the greatest value of a column; its counts are added to `counts`."""
        stats: list[Any] = []
        nulls: int | None = 0
        values = size = uncompressed = 0
        for chunk in chunks:
            statistics = chunk.statistics if chunk.is_stats_set else None
            stats.append(statistics)
            if statistics is None or not statistics.has_null_count:
                nulls = None  # a chunk without statistics counts as all null in Hudi
            elif nulls is not None:
                nulls += statistics.null_count
            values += chunk.num_values
            size += chunk.total_compressed_size
            uncompressed += chunk.total_uncompressed_size
        counts += (nulls, values, size, uncompressed)
        return self._bounds(name, stats)

    def _bounds(self, name: str, stats: Sequence[Any]) -> tuple[pa.Array, pa.Array]:
        """The least and the greatest value of a column, each as an array with one element."""
        kind, observed = self._types[name], self._observed.get(name, [])
        with_ranges = [s for s in stats if s is not None and s.has_min_max]
        if len(with_ranges) < len(stats):
            silent = sum(s is None or not (s.has_min_max or _is_all_null(s)) for s in stats)
            if silent > len(observed):
                return pa.nulls(1, kind), pa.nulls(1, kind)
        values = _typed([b for s in with_ranges for b in (s.min_raw, s.max_raw)], kind)
        if observed:
            longer = [range_[side].as_py() for ranges in observed for range_ in ranges for side in ("min", "max")]
            values = pa.concat_arrays([values, pa.array(longer, kind)])
        # a single range is taken unchanged
        low, high = (values.slice(0, 1), values.slice(1)) if len(values) == 2 else _least_and_greatest(values)
        if pt.is_floating(kind) and len(values) > 2:
            # which of two zeros Arrow takes depends on their order: the sign is that of Parquet's writers
            ends = ((low, -0.0), (high, 0.0))
            low, high = (pa.array([zero], kind) if end[0].as_py() == 0 else end for end, zero in ends)
        if name in self._nan:
            high = pa.array([float("nan")], kind)
            low = low if low.null_count == 0 else high
        return low, high


@dataclass(frozen=True, slots=True)
class StoredRanges:
    """The ranges of the columns of one file as its footer has them: `bounds` has the least and the greatest value of
    each column in Parquet's form (None: no value, or an unknown one), `counts` its `COUNTS`."""

    types: Mapping[str, pa.DataType]
    bounds: Sequence[Any]
    counts: Sequence[int | None]


def rows_of(files: Sequence[StoredRanges]) -> pa.RecordBatch:
    """A row in the form of `ColumnRanges.row` for each of these files, whose ranges are those of one list of columns.
    An array is made for all files at once: to make one takes longer than to cut it."""
    types, width, rows = files[0].types, len(COUNTS), len(files)
    columns: list[pa.Array] = []
    for at, kind in enumerate(types.values()):
        bounds = _typed([file.bounds[2 * at + side] for side in (0, 1) for file in files], kind)
        counts = pa.array([file.counts[n] for n in range(width * at, width * at + width) for file in files], pa.int64())
        parts = [bounds.slice(0, rows), bounds.slice(rows), *[counts.slice(n * rows, rows) for n in range(width)]]
        columns.append(pa.StructArray.from_arrays(parts, names=_PARTS))
    return pa.RecordBatch.from_arrays(columns, names=list(types))


def _numbers_by_path(metadata: Any) -> dict[str, int]:
    schema = metadata.schema
    return {schema.column(number).path: number for number in range(metadata.num_columns)}


def as_stream(rows: pa.RecordBatch) -> bytes:
    """The rows of files as compressed bytes with their schema; `from_stream` reads them. Of a single row most bytes are
    the schema: compressed they take a sixth of the driver's memory."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, _CODEC) as packed, pa.ipc.new_stream(packed, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue().to_pybytes()


def from_stream(data: bytes) -> pa.RecordBatch:
    with pa.CompressedInputStream(pa.BufferReader(data), _CODEC) as packed, pa.ipc.open_stream(packed) as stream:
        return stream.read_next_batch()


def _is_short(values: pa.Array) -> bool:
    """Whether the bytes of texts are so few that none of them is too long for Parquet's statistics."""
    stored = values.dictionary if pt.is_dictionary(values.type) else values
    return not pt.is_floating(stored.type) and stored.nbytes <= _LONG


def _longest(values: pa.Array) -> int:
    return pc.max(pc.binary_length(values)).as_py() or 0


def _occurring(values: pa.Array) -> pa.Array:
    """The values; for a dictionary array only the values that a row has."""
    return values.dictionary.take(pc.unique(values.indices)) if pt.is_dictionary(values.type) else values


def _number_range(values: pa.Array) -> pa.StructScalar:
    """The least and greatest of all values except NaN, as a struct. A zero has the sign that Parquet's writers choose,
    so that both zeros are in the range."""
    extremes = pc.min_max(values.filter(pc.invert(pc.is_nan(values))))
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    ends = {"min": -0.0 if low == 0 else low, "max": 0.0 if high == 0 else high}
    return pa.scalar(ends, extremes.type)


def _is_all_null(statistics: Any) -> bool:
    return statistics.has_null_count and statistics.num_values == 0


def _typed(bounds: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """The bounds, given as the footer stores them, in the column's type."""
    raw = list(bounds)
    if pt.is_decimal(kind):
        unscaled = (int.from_bytes(v, "big", signed=True) if isinstance(v, bytes) else v for v in raw)
        return pa.array([None if v is None else Decimal(v).scaleb(-kind.scale, _EXACT) for v in unscaled], kind)
    if _is_bytes(kind):
        return pa.array(raw, kind)
    if pt.is_date32(kind) or pt.is_time32(kind):
        return pa.array(raw, pa.int32()).view(kind)
    if pt.is_timestamp(kind) or pt.is_time64(kind):
        return pa.array(raw, pa.int64()).view(kind)
    return pa.array(raw, kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_binary(kind) or pt.is_fixed_size_binary(kind)


def _least_and_greatest(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The least and the greatest value, each as an array with one element; null if there are no values."""
    extremes = pc.min_max(values)
    return pa.repeat(extremes["min"], 1), pa.repeat(extremes["max"], 1)


_NULLS = pc.CountOptions(mode="only_null")


@dataclass(slots=True)
class _Column:
    """The values of one column that `ColumnRanges.see` looked at: least, greatest, NaN and null counts."""

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
        extremes = pc.min_max(occurring)
        if extremes["min"].is_valid:
            self.bounds += [pa.repeat(extremes["min"], 1), pa.repeat(extremes["max"], 1)]

    def see_range(self, ranges: pa.StructArray) -> None:
        """Take in the range of other values of the column, as `RowRanges` has it."""
        low, high, nulls, values, *_ = ranges.flatten()
        self.nulls += nulls[0].as_py()
        self.values += values[0].as_py()
        self.has_nan |= pt.is_floating(self.kind) and pc.is_nan(high)[0].as_py() is True
        self.bounds += [] if low.null_count else [low, high]

    def range(self) -> tuple[pa.Array, pa.Array]:
        """Least and greatest value, each as an array of one; NaN is the greatest, as in Java."""
        low, high = self.bounds if len(self.bounds) == 2 else self._of_several()
        low, high = (side if side.type == self.kind else side.cast(self.kind) for side in (low, high))
        if self.has_nan:
            high = pa.array([float("nan")], self.kind)
            low = low if low.null_count == 0 and not pc.is_nan(low)[0].as_py() else high
        return low, high

    def _of_several(self) -> tuple[pa.Array, pa.Array]:
        extremes = pc.min_max(pa.concat_arrays(self.bounds or [pa.array([], self.kind)]))
        return pa.repeat(extremes["min"], 1), pa.repeat(extremes["max"], 1)


class RowRanges:
    """The ranges of some columns of rows, by the columns' Parquet paths, in the form in which
    `column_ranges.ColumnRanges` has the ranges of base files."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        self._schema, self._columns = schema, columns
        self._parts: list[pa.RecordBatch] = []

    def see(self, rows: pa.RecordBatch) -> None:
        """Widen the ranges by the values of these rows."""
        codes = np.zeros(rows.num_rows, np.int32)
        self._parts += ranges_by_group(rows, codes, self._schema, self._columns).values()

    def row(self) -> pa.RecordBatch:
        """One row with a struct per column (see `ColumnRanges.row`). The sizes are 0, since rows in a log file do not
        have sizes."""
        if len(self._parts) == 1:
            return self._parts[0]
        columns = {path: _Column(kind, []) for path, kind in ranged_columns(self._schema, tuple(self._columns)).items()}
        for part in self._parts:
            for path, column in columns.items():
                column.see_range(part.column(path))
        return _row_of(columns)


def _row_of(columns: Mapping[str, _Column]) -> pa.RecordBatch:
    arrays: list[pa.Array] = []
    counts = pa.array([n for column in columns.values() for n in (column.nulls, column.values, 0, 0)], pa.int64())
    for at, column in enumerate(columns.values()):
        count_arrays = [counts.slice(len(COUNTS) * at + i, 1) for i in range(len(COUNTS))]
        arrays.append(pa.StructArray.from_arrays([*column.range(), *count_arrays], names=_PARTS))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def ranges_by_group(
    rows: pa.RecordBatch, codes: npt.NDArray[np.int32], schema: pa.Schema, columns: Sequence[str]
) -> dict[int, pa.RecordBatch]:
    """The row of ranges (`RowRanges.row`) of each group, by group number, computed for all groups at once; `codes` are
    the group numbers of the rows, in ascending order.

    >>> rows = pa.record_batch({"a": [3, 1, 2]})
    >>> ranges = ranges_by_group(rows, np.array([0, 0, 4], np.int32), rows.schema, ["a"])
    >>> {group: ranges[group]["a"][0]["max"].as_py() for group in ranges}
    {0: 3, 4: 2}
    """
    kinds = ranged_columns(schema, tuple(columns))
    paths = [*kinds]
    if not frozenset(paths) <= frozenset(rows.schema.names):
        return _ranges_one_by_one(rows, codes, schema, columns)
    arrays = [pa.array(codes)]
    aggregations: list[Any] = [([], "count_all")]
    for path in paths:
        values, at = _plain(rows.column(path), kinds[path]), f"{len(arrays)}"
        arrays.append(values)
        aggregations += [(at, "min_max"), (at, "count", _NULLS)]
        if pt.is_floating(values.type):
            aggregations.append((f"{len(arrays)}", "any"))
            arrays.append(pc.is_nan(values))
    table = pa.Table.from_arrays(arrays, names=[f"{at}" for at in range(len(arrays))])
    grouped = grouped_rows(table, ["0"], aggregations).combine_chunks()
    results = iter([column.chunk(0) for column in grouped.columns[1:]])
    total, none = next(results), pa.array(np.zeros(grouped.num_rows, np.int64))
    structs: list[pa.Array] = []
    for path in paths:
        (low, high), nulls = next(results).flatten(), next(results)
        if pt.is_floating(kinds[path]):
            has_nan = next(results)
            low, high = _nan_greatest(low, high, has_nan) if has_nan.true_count else (low, high)
        structs.append(pa.StructArray.from_arrays([low, high, nulls, total, none, none], names=["min", "max", *COUNTS]))
    every = pa.RecordBatch.from_arrays(structs, names=paths)
    return {group: every.slice(at, 1) for at, group in enumerate(grouped.column(0).to_pylist())}


def _ranges_one_by_one(
    rows: pa.RecordBatch, codes: npt.NDArray[np.int32], schema: pa.Schema, columns: Sequence[str]
) -> dict[int, pa.RecordBatch]:
    """The ranges of each group, as `ranges_by_group` returns them, but computed group by group, for columns inside
    lists and structs."""
    row_by_group: dict[int, pa.RecordBatch] = {}
    groups, starts = np.unique(codes, return_index=True)
    for group, (start, stop) in zip(groups.tolist(), pairwise([*starts.tolist(), len(codes)]), strict=True):
        of_paths = {path: _Column(kind, []) for path, kind in ranged_columns(schema, tuple(columns)).items()}
        for top in dict.fromkeys(path if path in schema.names else path.partition(".")[0] for path in of_paths):
            for path, values in leaves(top, rows.column(top).slice(start, stop - start)):
                if path in of_paths and len(values):
                    of_paths[path].see(values)
        row_by_group[group] = _row_of(of_paths)
    return row_by_group


def _plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    return values if values.type == kind else values.cast(kind)


def _nan_greatest(low: pa.Array, high: pa.Array, has_nan: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The bounds of each group with NaN as the greatest value where the group has one."""
    has_nan, nan = pc.fill_null(has_nan, False), pa.scalar(float("nan"), low.type)
    return pc.if_else(pc.and_(has_nan, low.is_null()), nan, low), pc.if_else(has_nan, nan, high)
