"""The in-process engine: Arrow tables and threads, for small inputs and where there is no Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.arrow_data import to_arrow_table
from lakebed.engine.base import (
    GROUP,
    GroupFunction,
    GroupOfRows,
    ItemFunction,
    ManyGroupsFunction,
    MapFunction,
    SliceSource,
    Task,
    choose_group,
    insert_share,
)
from lakebed.expressions.base import RowExpression
from lakebed.model import FILE_ID, INSTANT, PARTITION_PATH, POSITION, FileSlice
from lakebed.schema.arrow import normalise_batch
from lakebed.storage.parallel import parallel_map

Positions = npt.NDArray[np.int64]

# Rows of no more bytes are brought into the order of their groups as a whole, others group by group.
_ORDERED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows in this process."""

    table: pa.Table


_attempts = count(1)


class LocalEngine:
    """Runs the pipeline's verbs on Arrow tables with a few threads."""

    name: Literal["local", "spark"] = "local"
    is_distributed = False

    def __init__(
        self, threads: int | None = None, *, note: str = "", collected: tuple[Any, pa.Table] | None = None
    ) -> None:
        """`collected` are rows of a caller's DataFrame that are here already, after it."""
        self._threads = threads or min(8, os.cpu_count() or 1)
        self.note = note
        self._collected = collected

    def rows(self, data: Any) -> LocalRows:
        if self._collected is not None and self._collected[0] is data:
            return LocalRows(self._collected[1])
        return LocalRows(to_arrow_table(data))

    def from_arrow(self, table: pa.Table) -> LocalRows:
        return LocalRows(table)

    def schema(self, rows: LocalRows) -> pa.Schema:
        return rows.table.schema

    def estimated_rows(self, rows: LocalRows, row_bytes: float) -> int | None:
        return rows.table.num_rows

    def derive(
        self, rows: LocalRows, columns: Mapping[str, RowExpression], keep: Sequence[str] | None = None
    ) -> LocalRows:
        table = rows.table
        kept = [n for n in (table.column_names if keep is None else keep) if n not in columns]
        parts: dict[str, list[pa.Array]] = {name: [] for name in columns}
        for batch in table.to_batches(max_chunksize=1 << 17) or [_empty_batch(table.schema)]:
            for name, expression in columns.items():
                parts[name].append(expression.arrow(batch))
        derived = [pa.chunked_array(chunks) for chunks in parts.values()]
        chosen = table.select(kept)
        return LocalRows(pa.table([*derived, *chosen.columns], names=[*columns, *kept]))

    def filter(self, rows: LocalRows, predicate: RowExpression) -> LocalRows:
        mask = self.derive(rows, {"mask": predicate}, keep=[]).table.column("mask")
        return LocalRows(rows.table.filter(mask))

    def map(self, rows: LocalRows, fn: MapFunction, schema: pa.Schema) -> LocalRows:
        task = Task(attempt=next(_attempts))
        return LocalRows(pa.Table.from_batches(fn(iter(rows.table.to_batches()), task), schema))

    def spread(self, count: int, fn: ItemFunction, schema: pa.Schema) -> LocalRows:
        attempt = next(_attempts)

        def run(number: int) -> list[pa.RecordBatch]:
            return list(fn(number, Task(number, 0, attempt)))

        results = parallel_map(run, list(range(count)), self._threads)
        return LocalRows(pa.Table.from_batches([b for batches in results for b in batches], schema))

    def map_by_key(self, rows: LocalRows, key: str, fn: MapFunction) -> LocalRows:
        return self.map(rows, fn, rows.table.schema)

    def head(self, rows: LocalRows, count: int) -> LocalRows:
        return LocalRows(rows.table.slice(0, count))

    def sort(self, rows: LocalRows, by: Sequence[str], scope: Literal["task", "table"]) -> LocalRows:
        return LocalRows(rows.table.sort_by([(name, "ascending") for name in by]))

    def group_map(
        self,
        rows: LocalRows,
        fn: GroupFunction,
        schema: pa.Schema,
        *,
        groups: int | None,
        one_group_per_task: bool,
        derivable: Mapping[str, RowExpression] | None = None,
    ) -> LocalRows:
        order, found = _grouped(rows.table, next(_attempts))
        table, is_ordered = rows.table, len(found) < 2
        if not is_ordered and table.nbytes <= _ORDERED_BYTES:
            table, is_ordered = table.take(pa.array(order)), True
        function = fn
        if is_ordered and isinstance(fn, ManyGroupsFunction):
            function = fn.with_all(table, found)

        def run(group: GroupOfRows) -> list[pa.RecordBatch]:
            if is_ordered:
                part = table.slice(group.start, group.rows)
            else:
                part = table.take(pa.array(order[group.start : group.stop]))
            batches = iter(part.to_batches(max_chunksize=1 << 16))
            return list(function(group.partition, group.number, batches, group.task))

        results = parallel_map(run, found, self._threads)
        return LocalRows(pa.Table.from_batches([b for batches in results for b in batches], schema))

    def read_columns(self, snapshot: SliceSource, slices: Sequence[FileSlice], columns: Sequence[str]) -> LocalRows:
        def run(file_slice: FileSlice) -> list[pa.RecordBatch]:
            return list(snapshot.reader.read_placed(file_slice, columns, snapshot.schema_of(file_slice)))

        batches = [b for part in parallel_map(run, list(slices), self._threads) for b in part]
        if not batches:
            newest = snapshot.schema_of(max(slices, key=lambda s: s.instant)) if slices else pa.schema([])
            types = {f.name: f.type for f in newest} | {POSITION: pa.int64()}
            return LocalRows(pa.table({c: pa.array([], types.get(c, pa.string())) for c in columns}))
        plain = [normalise_batch(b, batches[0].schema) for b in batches]
        return LocalRows(pa.Table.from_batches(plain).unify_dictionaries())

    def join(
        self,
        rows: LocalRows,
        others: LocalRows,
        on: Sequence[str],
        how: Literal["left", "inner"],
        *,
        small: bool = False,
    ) -> LocalRows:
        # Arrow's join takes no nested columns: join on the keys with row numbers, then take.
        left = rows.table.select(list(on)).append_column("_left", pa.array(np.arange(rows.table.num_rows)))
        right = others.table.select(list(on)).append_column("_right", pa.array(np.arange(others.table.num_rows)))
        kind = "left outer" if how == "left" else "inner"
        joined = left.join(right, keys=list(on), join_type=kind, use_threads=False).sort_by("_left")
        result = rows.table.take(joined.column("_left"))
        for name in others.table.column_names:
            if name not in on:
                result = result.append_column(name, others.table.column(name).take(joined.column("_right")))
        return LocalRows(result)

    def distinct(self, rows: LocalRows) -> LocalRows:
        names = rows.table.column_names
        return LocalRows(rows.table.group_by(names, use_threads=False).aggregate([]).select(names))

    def union(self, parts: Sequence[LocalRows]) -> LocalRows:
        names = parts[0].table.column_names
        return LocalRows(pa.concat_tables([p.table.select(names) for p in parts]))

    def route(self, rows: LocalRows, updates: pa.Table, inserts: pa.Table) -> LocalRows:
        table = rows.table
        tagged = self.join(
            LocalRows(table.select([PARTITION_PATH, FILE_ID])),
            LocalRows(updates),
            [PARTITION_PATH, FILE_ID],
            "left",
        ).table
        group = tagged.column(GROUP).combine_chunks()
        fresh = choose_group(table.column(PARTITION_PATH).combine_chunks(), insert_share(table), inserts)
        group = pc.coalesce(group, fresh)
        return LocalRows(table.drop_columns([FILE_ID, INSTANT]).append_column(GROUP, group))

    def aggregate(self, rows: LocalRows, by: Sequence[str], sums: Sequence[str] = ()) -> pa.Table:
        asked = [([], "count_all"), *((name, "sum") for name in sums)]
        counted = rows.table.group_by(list(by), use_threads=False).aggregate(asked).rename_columns([*by, "rows", *sums])
        for name in sums:
            summed = pc.fill_null(counted.column(name).cast(pa.int64()), 0)
            counted = counted.set_column(counted.schema.get_field_index(name), name, summed)
        return counted

    def collect(self, rows: LocalRows) -> pa.Table:
        return rows.table

    def persist(self, rows: LocalRows) -> LocalRows:
        return rows

    def release(self, rows: LocalRows) -> None:
        return None


def _grouped(table: pa.Table, attempt: int) -> tuple[Positions, list[GroupOfRows]]:
    """The order of the rows that brings those of a group together, as they came, and where each group is in it."""
    if table.num_rows == 0:
        return np.array([], np.int64), []
    partition = table.column(PARTITION_PATH).combine_chunks().dictionary_encode()
    codes = partition.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = table.column(GROUP).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64)
    combined = codes * (int(numbers.max()) + 1) + numbers
    order = np.argsort(combined, kind="stable")
    edges = [*np.flatnonzero(np.append(True, np.diff(combined[order]) != 0)).tolist(), len(order)]
    firsts = order[edges[:-1]]
    paths = partition.dictionary.take(pa.array(codes[firsts])).to_pylist()
    found = zip(paths, numbers[firsts].tolist(), edges[:-1], edges[1:], strict=True)
    return order, [GroupOfRows(*group, Task(at, 0, attempt)) for at, group in enumerate(found)]


def _empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
