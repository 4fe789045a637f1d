"""Smallest and greatest value of each column of a base file, from the footer where Parquet's statistics tell them.

Parquet leaves a row group's range out where a value is long, and leaves NaN out of account; both are seen while rows
are written. Where nobody saw them, a row group without a range makes the column's range unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.format.parquet_encodings import leaves
from lakebed.format.row_groups.nan_chunks import holds_nan
from lakebed.schema.arrow import leaf_paths

# Longest value that Parquet's writer keeps in its statistics, with some room.
_LONG = 4000
_EXACT = Context(prec=76)
COUNTS = ("null_count", "value_count", "total_size", "total_uncompressed")


def has_range(kind: pa.DataType) -> bool:
    """Whether values of the type have an order, and so a column of them a range."""
    return not (pt.is_nested(kind) or pt.is_null(kind) or pt.is_interval(kind) or pt.is_duration(kind))


class ColumnRanges:
    """The ranges of some columns of a file being written, by their Parquet paths (`a`, `a.b`, `a.list.element`).

    `see` takes each row group as it is written; `row` gives the result from the finished file's metadata. Paths that
    the schema does not have, and columns without order, are left out.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        kinds = dict(leaf_paths(schema))
        self._types = {path: kinds[path] for path in columns if path in kinds and has_range(kinds[path])}
        watched = [path for path, kind in self._types.items() if pt.is_floating(kind) or _is_bytes(kind)]
        self._watched = frozenset(watched)
        known_names = frozenset(schema.names)
        self._tops = sorted({path.split(".")[0] if path not in known_names else path for path in watched})
        # of each row group with a long value or NaN: the range of each of its chunks, without NaN
        self._seen: dict[str, list[list[pa.StructScalar]]] = {}
        self._nan: set[str] = set()

    def unseen(self, group: Any, columns: Sequence[str], leaves: Mapping[str, int], *, exact: bool) -> list[str]:
        """Which columns of a stored row group `see` has to see, by Parquet's metadata of it: those whose statistics do
        not say all. `leaves` are all columns of the file with the number of their leaves; `exact`: chunks with NaN have
        no min and max."""
        found: list[str] = []
        at = 0
        for name, count in leaves.items():
            chunks, at = [group.column(number) for number in range(at, at + count)], at + count
            if name in columns and any(c.path_in_schema in self._watched and self._is_silent(c, exact) for c in chunks):
                found.append(name)
        return found

    def _is_silent(self, chunk: Any, exact: bool) -> bool:
        if not exact and pt.is_floating(self._types[chunk.path_in_schema]):
            return True
        statistics = chunk.statistics if chunk.is_stats_set else None
        return statistics is None or not (statistics.has_min_max or _is_all_null(statistics))

    def see(self, group: pa.Table) -> None:
        """Note what the statistics of this row group, or of some columns of it, will not say."""
        for top in self._tops:
            if top not in group.column_names:
                continue
            hidden: dict[str, list[pa.Array]] = {}
            for chunk in group[top].chunks:
                for path, values in leaves(top, chunk):
                    if path in self._watched:
                        hidden.setdefault(path, []).append(_occurring(values))
            for path, chunks in hidden.items():
                self._note(path, chunks)

    def _note(self, path: str, chunks: Sequence[pa.Array]) -> None:
        """One long value or NaN in any chunk, and Parquet's range of the whole row group is gone."""
        if pt.is_floating(self._types[path]):
            if any(map(holds_nan, chunks)):
                self._nan.add(path)
                self._seen.setdefault(path, []).append([_number_range(values) for values in chunks])
        elif any((pc.max(pc.binary_length(values)).as_py() or 0) > _LONG for values in chunks):
            self._seen.setdefault(path, []).append([pc.min_max(values) for values in chunks])

    def row(self, metadata: Any) -> pa.RecordBatch:
        """One row with a struct a column: `min` and `max` in the column's type, and the counts (values and bytes). The
        bounds are null for a column of nulls, and where they are not known: there `null_count` is less, or null."""
        at = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        columns = {n: self._column(n, [g.column(at[n]) for g in groups]) for n in self._types}
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _column(self, name: str, chunks: Sequence[Any]) -> pa.StructArray:
        stats = [c.statistics if c.is_stats_set else None for c in chunks]
        values = sum(c.num_values for c in chunks)
        # a chunk that does not tell counts as all null in Hudi
        tells_nulls = all(s is not None and s.has_null_count for s in stats)
        nulls = sum(s.null_count for s in stats if s is not None) if tells_nulls else None
        counts = {
            "null_count": nulls,
            "value_count": values,
            "total_size": sum(c.total_compressed_size for c in chunks),
            "total_uncompressed": sum(c.total_uncompressed_size for c in chunks),
        }
        low, high = self._bounds(name, stats)
        numbers = pa.array([counts[n] for n in COUNTS], pa.int64())
        return pa.StructArray.from_arrays(
            [low, high, *(numbers.slice(i, 1) for i in range(len(COUNTS)))], names=["min", "max", *COUNTS]
        )

    def _bounds(self, name: str, stats: Sequence[Any]) -> tuple[pa.Array, pa.Array]:
        """Least and greatest value, each as an array of one."""
        kind, seen = self._types[name], self._seen.get(name, [])
        with_ranges = [s for s in stats if s is not None and s.has_min_max]
        if len(with_ranges) < len(stats):
            silent = sum(s is None or not (s.has_min_max or _is_all_null(s)) for s in stats)
            if silent > len(seen):
                return pa.nulls(1, kind), pa.nulls(1, kind)
        values = _typed([b for s in with_ranges for b in (s.min_raw, s.max_raw)], kind)
        if seen:
            longer = [range_[side].as_py() for ranges in seen for range_ in ranges for side in ("min", "max")]
            values = pa.concat_arrays([values, pa.array(longer, kind)])
        # one range is taken as it stands
        low, high = (values.slice(0, 1), values.slice(1)) if len(values) == 2 else _least_and_greatest(values)
        if name in self._nan:
            high = pa.array([float("nan")], kind)
            low = low if low.null_count == 0 else high
        return low, high


def as_stream(row: pa.RecordBatch) -> bytes:
    """A file's row as bytes that say their schema; `from_stream` reads them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_batch(row)
    return sink.getvalue().to_pybytes()


def from_stream(data: bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(data).read_next_batch()


def _occurring(values: pa.Array) -> pa.Array:
    """The values, or of a dictionary those that occur."""
    return values.dictionary.take(pc.unique(values.indices)) if pt.is_dictionary(values.type) else values


def _number_range(values: pa.Array) -> pa.StructScalar:
    """Min and max of the values but for NaN. A zero has the sign that Parquet's writers give it, so that both zeros are
    within."""
    found = pc.min_max(values.filter(pc.invert(pc.is_nan(values))))
    low, high = found["min"].as_py(), found["max"].as_py()
    ends = {"min": -0.0 if low == 0 else low, "max": 0.0 if high == 0 else high}
    return pa.scalar(ends, found.type)


def _is_all_null(statistics: Any) -> bool:
    return statistics.has_null_count and statistics.num_values == 0


def _typed(bounds: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Bounds as they stand in the footer, in the column's type."""
    raw = list(bounds)
    if pt.is_decimal(kind):
        unscaled = (v if isinstance(v, int) else int.from_bytes(v, "big", signed=True) for v in raw)
        return pa.array([Decimal(v).scaleb(-kind.scale, _EXACT) for v in unscaled], kind)
    if _is_bytes(kind):
        return pa.array(raw, pa.binary()).cast(kind)
    if pt.is_date32(kind) or pt.is_time32(kind):
        return pa.array(raw, pa.int32()).view(kind)
    if pt.is_timestamp(kind) or pt.is_time64(kind):
        return pa.array(raw, pa.int64()).view(kind)
    return pa.array(raw, kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_binary(kind) or pt.is_fixed_size_binary(kind)


def _least_and_greatest(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Each as an array of one, null where there are no values."""
    found = pc.min_max(values)
    return pa.repeat(found["min"], 1), pa.repeat(found["max"], 1)
