"""The in-process engine: Arrow tables and threads, for small inputs and where there is no Spark. Rows that are too many
for a table are read batch by batch, as often as the pipeline asks for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.arrow_data import arrow_rows, to_arrow_table
from lakebed.engine.base import (
    GROUP,
    EngineName,
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
from lakebed.engine.shuffle import Group, Shuffle
from lakebed.engine.spill import Spill
from lakebed.expressions.base import RowExpression
from lakebed.inputs.base import BATCH_ROWS, TABLE_BYTES, RowSource, first_batches
from lakebed.model import FILE_ID, INSTANT, PARTITION_PATH, POSITION, FileSlice
from lakebed.progress import progress
from lakebed.schema.arrow import normalise_batch
from lakebed.schema.plain_arrow import as_numpy, gather, grouped_rows, matches, sorted_rows
from lakebed.sharing import once
from lakebed.storage.parallel import parallel_map

Positions = npt.NDArray[np.int64]

# Rows of no more bytes are brought into the order of their groups as a whole, others group by group.
_ORDERED_BYTES = 64 << 20
# Where a group has so many rows of each batch, about, they are taken batch by batch as they are written: memory that is
# used again costs less than fresh memory.
_STREAMED_ROWS = 1 << 12
# The results of this many file groups become one batch: a batch for each takes 20 KB.
_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class LocalRows:
    """A handle of rows in this process. `map` reads them in `order`, if that is given."""

    table: pa.Table
    order: Positions | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches, in the order in which `map` reads them."""
        if self.order is None:
            yield from self.table.to_batches()
            return
        for start in range(0, len(self.order), BATCH_ROWS):
            yield gather(self.table, self.order[start : start + BATCH_ROWS])

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema


@dataclass(frozen=True)
class StreamedRows:
    """Rows that are read from their source on demand, through functions of single batches. An operation that needs all
    of them uses `table`, which is a mapped file if they do not fit into memory. With `sort_by` the rows are sorted
    within parts of limited size, each of which is a task."""

    source: RowSource
    steps: tuple[Callable[[pa.Table], pa.Table], ...]
    schema: pa.Schema
    sort_by: tuple[str, ...] = ()

    def then(self, step: Callable[[pa.Table], pa.Table]) -> StreamedRows:
        """These rows after one more function, whose columns are those of its result for no rows."""
        schema = step(self.schema.empty_table()).schema
        return StreamedRows(self.source, (*self.steps, step), schema, self.sort_by)

    def batches(self) -> Iterator[pa.RecordBatch]:
        with progress("reading rows", self.source.rows, "rows") as advance:
            for batch in self.source.batches():
                table = pa.Table.from_batches([batch])
                for step in self.steps:
                    table = step(table)
                yield from table.combine_chunks().to_batches()
                advance(batch.num_rows)

    def parts(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """The rows of each task: all of them, or sorted parts."""
        if not self.sort_by:
            yield self.batches()
            return
        by = [(name, "ascending") for name in self.sort_by]
        remaining: Iterator[pa.RecordBatch] | None = self.batches()
        while remaining is not None:
            part, remaining = first_batches(remaining, TABLE_BYTES)
            if part:
                yield iter(pa.Table.from_batches(part).sort_by(by).to_batches(max_chunksize=BATCH_ROWS))

    @once
    def table(self) -> pa.Table:
        with Spill(TABLE_BYTES) as spill:
            spill.extend(self.batches())
            return spill.table(self.schema)


AnyRows = LocalRows | StreamedRows

_attempts = count(1)


class LocalEngine:
    """An engine that runs the pipeline's verbs on Arrow tables with a few threads."""

    name: EngineName = "local"
    is_distributed = False

    def __init__(
        self, threads: int | None = None, *, note: str = "", collected: tuple[Any, pa.Table] | None = None
    ) -> None:
        """`collected` is a caller's DataFrame with its rows, which are already in this process."""
        self._threads = threads or min(8, os.cpu_count() or 1)
        self.note = note
        # the task of each number, where all are one task of a cluster
        self.task_of: Callable[[int], Task] | None = None
        self._collected = collected

    def rows(self, data: Any) -> LocalRows | StreamedRows:
        if self._collected is not None and self._collected[0] is data:
            return LocalRows(self._collected[1])
        rows = data if isinstance(data, RowSource) else arrow_rows(data, {})
        if not isinstance(rows, pa.Table | RowSource):  # a DataFrame for a table in the memory of this process
            rows = to_arrow_table(rows)
        return StreamedRows(rows, (), rows.schema) if isinstance(rows, RowSource) else LocalRows(rows)

    def from_arrow(self, table: pa.Table) -> LocalRows:
        return LocalRows(table)

    def schema(self, rows: AnyRows) -> pa.Schema:
        return rows.schema

    def has_at_hand(self, rows: AnyRows) -> bool:
        return isinstance(rows, LocalRows)

    def estimated_rows(self, rows: AnyRows, row_bytes: float) -> int | None:
        if isinstance(rows, LocalRows):
            return rows.table.num_rows
        size = rows.source.nbytes
        return rows.source.rows if rows.source.rows is not None or size is None else round(size / row_bytes)

    def derive(self, rows: AnyRows, columns: Mapping[str, RowExpression], keep: Sequence[str] | None = None) -> AnyRows:
        if isinstance(rows, StreamedRows):
            return rows.then(lambda table: self.derive(LocalRows(table), columns, keep).table)
        table = rows.table
        retained_names = [n for n in (table.column_names if keep is None else keep) if n not in columns]
        parts: dict[str, list[pa.Array]] = {name: [] for name in columns}
        for batch in table.to_batches(max_chunksize=1 << 17) or [_empty_batch(table.schema)]:
            for name, expression in columns.items():
                parts[name].append(expression.arrow(batch))
        derived = [pa.chunked_array(chunks) for chunks in parts.values()]
        retained = table.select(retained_names)
        return LocalRows(pa.table([*derived, *retained.columns], names=[*columns, *retained_names]))

    def filter(self, rows: AnyRows, predicate: RowExpression) -> AnyRows:
        if isinstance(rows, StreamedRows):
            return rows.then(lambda table: self.filter(LocalRows(table), predicate).table)
        mask = self.derive(rows, {"mask": predicate}, keep=[]).table.column("mask")
        return LocalRows(rows.table.filter(mask))

    def map(self, rows: AnyRows, fn: MapFunction, schema: pa.Schema) -> LocalRows:
        task_of = self.task_of or partial(Task, attempt=next(_attempts))
        parts = rows.parts() if isinstance(rows, StreamedRows) else [rows.batches()]
        done = [list(fn(part, task_of(at))) for at, part in enumerate(parts)]
        return LocalRows(pa.Table.from_batches([batch for batches in done for batch in batches], schema))

    def spread(self, count: int, fn: ItemFunction, schema: pa.Schema) -> LocalRows:
        task_of = self.task_of or partial(Task, attempt=next(_attempts))

        def run(number: int) -> list[pa.RecordBatch]:
            return list(fn(number, task_of(number)))

        results = parallel_map(run, list(range(count)), self._threads)
        return LocalRows(pa.Table.from_batches([b for batches in results for b in batches], schema))

    def map_by_key(self, rows: AnyRows, key: str, fn: MapFunction) -> LocalRows:
        return self.map(LocalRows(rows.table), fn, rows.schema)

    def head(self, rows: AnyRows, count: int) -> LocalRows:
        if isinstance(rows, LocalRows):
            return LocalRows(rows.table.slice(0, count))
        part: list[pa.RecordBatch] = []
        for batch in rows.batches():
            part.append(batch.slice(0, count))
            count -= part[-1].num_rows
            if count <= 0:
                break
        return LocalRows(pa.Table.from_batches(part, rows.schema))

    def sort(self, rows: AnyRows, by: Sequence[str], scope: Literal["task", "table"]) -> AnyRows:
        if isinstance(rows, StreamedRows) and scope == "task":
            return replace(rows, sort_by=tuple(by))
        return LocalRows(rows.table.sort_by([(name, "ascending") for name in by]))

    def gathered(self, rows: AnyRows, by: str) -> LocalRows | None:
        if isinstance(rows, StreamedRows):
            return None
        codes = _codes(rows.table.column(by))
        is_ordered = len(codes) == 0 or bool((codes[1:] >= codes[:-1]).all())
        return LocalRows(rows.table, None if is_ordered else np.argsort(codes, kind="stable"))

    def group_map(
        self,
        rows: AnyRows,
        fn: GroupFunction,
        schema: pa.Schema,
        *,
        groups: int | None,
        one_group_per_task: bool,
        derivable: Mapping[str, RowExpression] | None = None,
    ) -> LocalRows:
        if isinstance(rows, StreamedRows):
            return self._group_map_streamed(rows, fn, schema)
        order, groups_of_rows = _grouped(rows.table, self.task_of or partial(Task, attempt=next(_attempts)))
        table, is_ordered = rows.table, len(groups_of_rows) < 2
        if not is_ordered and table.nbytes <= _ORDERED_BYTES:
            table, is_ordered = table.take(pa.array(order)), True
        function = fn
        if is_ordered and isinstance(fn, ManyGroupsFunction):
            function = fn.with_all(table, groups_of_rows)

        batches_of = partial(_batches_of, table, None if is_ordered else order, table.to_batches(), len(groups_of_rows))

        def run(group: GroupOfRows) -> list[pa.RecordBatch]:
            batches = batches_of(group)
            done = list(function(group.partition, group.number, batches, group.task))
            advance(1)
            return done

        with progress("writing file groups", len(groups_of_rows)) as advance:
            parts: list[pa.Table] = []
            for start in range(0, len(groups_of_rows), _TOGETHER):
                results = parallel_map(run, groups_of_rows[start : start + _TOGETHER], self._threads)
                part = pa.Table.from_batches([b for batches in results for b in batches], schema)
                parts.append(part if len(groups_of_rows) <= _TOGETHER else part.combine_chunks())
                del results, part
        return LocalRows(pa.concat_tables(parts) if parts else schema.empty_table())

    def _group_map_streamed(self, rows: StreamedRows, fn: GroupFunction, schema: pa.Schema) -> LocalRows:
        task_of = self.task_of or partial(Task, attempt=next(_attempts))
        with Shuffle(TABLE_BYTES) as shuffle:
            for batch in rows.batches():
                shuffle.add(batch)

            def run(task: tuple[int, Group]) -> list[pa.RecordBatch]:
                at, (partition, number) = task
                written = list(fn(partition, number, shuffle.read((partition, number)), task_of(at)))
                advance(1)
                return written

            tasks = list(enumerate(shuffle.finish()))
            with progress("writing file groups", len(tasks)) as advance:
                results = parallel_map(run, tasks, self._threads)
        return LocalRows(pa.Table.from_batches([b for batches in results for b in batches], schema))

    def counted(self, rows: AnyRows, unsent: Collection[str] = ()) -> tuple[AnyRows, Callable[[], int | None]]:
        if isinstance(rows, LocalRows):
            return rows, lambda: rows.table.num_rows
        counted = 0

        def see(table: pa.Table) -> pa.Table:
            nonlocal counted
            counted += table.num_rows
            return table

        return rows.then(see), lambda: counted

    def repeatable(self, data: Any, *, always: bool = False) -> Any:
        return data

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
        rows: AnyRows,
        others: AnyRows,
        on: Sequence[str],
        how: Literal["left", "inner"],
        *,
        small: bool = False,
    ) -> LocalRows:
        # Arrow's join takes no nested columns: join on the keys with row numbers, then take.
        left = rows.table.select(list(on)).append_column("_left", pa.array(np.arange(rows.table.num_rows)))
        right = others.table.select(list(on)).append_column("_right", pa.array(np.arange(others.table.num_rows)))
        kind = "left outer" if how == "left" else "inner"
        joined = sorted_rows(matches(left, right, on, kind, ("_left", "_right")), [("_left", "ascending")])
        result = rows.table.take(joined.column("_left"))
        for name in others.table.column_names:
            if name not in on:
                result = result.append_column(name, others.table.column(name).take(joined.column("_right")))
        return LocalRows(result)

    def distinct(self, rows: AnyRows) -> LocalRows:
        names = rows.table.column_names
        return LocalRows(grouped_rows(rows.table, names, []).select(names))

    def union(self, parts: Sequence[AnyRows]) -> LocalRows:
        names = parts[0].schema.names
        return LocalRows(pa.concat_tables([p.table.select(names) for p in parts]))

    def route(self, rows: AnyRows, updates: pa.Table, inserts: pa.Table) -> AnyRows:
        if isinstance(rows, StreamedRows):
            return rows.then(lambda table: self.route(LocalRows(table), updates, inserts).table)
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

    def aggregate(self, rows: AnyRows, by: Sequence[str], sums: Sequence[str] = ()) -> pa.Table:
        if isinstance(rows, StreamedRows):
            return self._aggregate_streamed(rows, by, sums)
        specs = [([], "count_all"), *[(name, "sum") for name in sums]]
        counted = grouped_rows(rows.table, by, specs).rename_columns([*by, "rows", *sums])
        for name in sums:
            summed = pc.fill_null(counted.column(name).cast(pa.int64()), 0)
            counted = counted.set_column(counted.schema.get_field_index(name), name, summed)
        return counted

    def _aggregate_streamed(self, rows: StreamedRows, by: Sequence[str], sums: Sequence[str]) -> pa.Table:
        """The groups of equal values in the columns `by`, with their numbers of rows and the sums of `sums`, computed
        batch by batch: the counts of all batches are added."""
        names = [*by, *sums]
        batches = rows.batches() if rows.steps or not names else rows.source.batches(names)
        total = self.aggregate(LocalRows(rows.schema.empty_table()), by, sums)
        for batch in batches:
            part = self.aggregate(LocalRows(pa.Table.from_batches([batch])), by, sums)
            total = summed(pa.concat_tables([total, part.select(total.column_names).cast(total.schema)]), by, sums)
        return total

    def collect(self, rows: AnyRows) -> pa.Table:
        return rows.table

    def persist(self, rows: AnyRows) -> AnyRows:
        return rows

    def release(self, rows: AnyRows) -> None:
        return None


def summed(parts: pa.Table, by: Sequence[str], sums: Sequence[str]) -> pa.Table:
    """The counts of `aggregate` over all rows, from those over parts of them."""
    counts = [(name, "sum") for name in ("rows", *sums)]
    added = parts.group_by(list(by), use_threads=False).aggregate(counts)
    return added.rename_columns([*by, "rows", *sums]).cast(parts.schema)


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Numbers of the texts of a column, in the order in which they first occur; NumPy sorts numbers of one or two bytes
    by their digits, which is ten times as fast."""
    encoded = column.dictionary_encode().combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    return as_numpy(encoded.indices).astype(np.min_scalar_type(len(encoded.dictionary)))


def _grouped(table: pa.Table, task_of: Callable[[int], Task]) -> tuple[Positions, list[GroupOfRows]]:
    """The order of the rows in which those of a group are adjacent, in their original order, and the range of each
    group in it."""
    if table.num_rows == 0:
        return np.array([], np.int64), []
    partition = table.column(PARTITION_PATH).combine_chunks().dictionary_encode()
    codes = as_numpy(partition.indices).astype(np.int64)
    numbers = as_numpy(table.column(GROUP).combine_chunks())
    stride = int(numbers.max()) + 1
    # NumPy sorts numbers of one or two bytes by their digits, which is ten times as fast
    narrow = np.min_scalar_type(len(partition.dictionary) * stride)
    combined = (codes * stride + numbers).astype(narrow)
    order = np.argsort(combined, kind="stable")
    edges = [*np.flatnonzero(np.append(True, np.diff(combined[order]) != 0)).tolist(), len(order)]
    firsts = order[edges[:-1]]
    paths = partition.dictionary.take(pa.array(codes[firsts])).to_pylist()
    groups = zip(paths, numbers[firsts].tolist(), edges[:-1], edges[1:], strict=True)
    return order, [GroupOfRows(*group, task_of(at)) for at, group in enumerate(groups)]


def _batches_of(
    table: pa.Table, order: Positions | None, chunks: Sequence[pa.RecordBatch], groups: int, group: GroupOfRows
) -> Iterator[pa.RecordBatch]:
    """The rows of one of `groups` groups, in the table's order or in `order`. `chunks` are the table's batches."""
    if order is None:
        yield from table.slice(group.start, group.rows).to_batches(max_chunksize=BATCH_ROWS)
        return
    rows = order[group.start : group.stop]
    if table.num_rows < _STREAMED_ROWS * len(chunks) * groups:
        yield from table.take(pa.array(rows)).to_batches(max_chunksize=BATCH_ROWS)
        return
    start = at = 0
    for chunk in chunks:  # the numbers of a group's rows ascend
        end = int(np.searchsorted(rows, start + chunk.num_rows))
        for first in range(at, end, BATCH_ROWS):
            yield _taken(chunk, pa.array(rows[first : min(first + BATCH_ROWS, end)] - start))
        start, at = start + chunk.num_rows, end


def _taken(batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    """The rows of a batch; text columns that share their values, as a key field and
    the record key do, are taken once."""
    texts: dict[tuple[tuple[int, int], ...], pa.Array] = {}
    columns: list[pa.Array] = []
    for column in batch.columns:
        if not pa.types.is_string(column.type):
            columns.append(column.take(rows))
            continue
        buffers = ((b.address, b.size) if b is not None else (0, 0) for b in column.buffers())
        address = (*buffers, (column.offset, len(column)))
        if address not in texts:
            texts[address] = column.take(rows)
        columns.append(texts[address])
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
