"""Search: the rows whose vectors are nearest to a query, as a lazy read, by a vector index or exactly.

In an exact search, first the vector column alone is read, file slice by file slice, and the positions of the nearest
rows are remembered. Then the other columns of these rows are read. A task of Spark does the same for its file slices.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.config.arguments import refused, whole_number
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.filters.text import resolve_column
from lakebed.metadata_kinds.vector_definitions import vector_index_of
from lakebed.model import ALL_META_COLUMNS, FileSlice
from lakebed.read.batches import RowReader, row_readers
from lakebed.read.index_search import DISTANCE, QUERY_INDEX, SearchPlan, search_plan
from lakebed.read.placed_rows import Rows, gathered_rows, rows_at
from lakebed.read.reopening import in_task, read_again
from lakebed.read.scan import Results, Scan, first_rows_html
from lakebed.schema.column_names import did_you_mean
from lakebed.schema.logical_types import is_vector, vector_matrix, vector_name, vector_size
from lakebed.schema.plain_arrow import as_numpy
from lakebed.schema.spark import type_name
from lakebed.sharing import once
from lakebed.slices.reader import BATCH_ROWS, SliceReader
from lakebed.storage.parallel import parallel_map
from lakebed.vector_index.lengths import Doubles, row_lengths, unit_vectors
from lakebed.vector_index.shape import METRICS, Metric
from lakebed.wording import Lines, count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.filters.predicates import Predicate
    from lakebed.slices.snapshot import Snapshot
    from lakebed.storage.base import Storage

# Vectors whose distances are computed at a time: as doubles they stay in the processor's cache.
_BLOCK_BYTES: Final = 1 << 20
# Vectors that are read at a time.
_BATCH_BYTES: Final = 4 << 20
_THREADS: Final = 4


@dataclass(frozen=True)
class Nearest:
    """A search for the `count` vectors of `column` that are nearest to each of the queries (the rows of a matrix).

    Distances are computed in double precision. Cosine is one minus the cosine, between 0 and 2, and 1 for a vector of
    zeros; l2 is the root of the sum of squares; dot_product is the negated product. Rows without a vector have none.
    """

    column: str
    queries: Doubles
    count: int
    metric: Metric
    max_distance: float | None = None

    def of_batches(self, batches: Iterator[pa.RecordBatch]) -> list[_Best]:
        """The nearest rows of these batches for each query, by their positions."""
        best = [_Best(self.count, self.max_distance) for _ in self.queries]
        start = 0
        for batch in batches:
            vectors: Any = batch.column(self.column)
            numbers = np.arange(start, start + batch.num_rows)
            start += batch.num_rows
            if vectors.null_count:
                numbers = numbers[as_numpy(vectors.is_valid())]
                vectors = vectors.drop_null()
            self._add(best, vector_matrix(vectors), numbers)
        return best

    def _add(self, best: Sequence[_Best], matrix: npt.NDArray[Any], numbers: Rows) -> None:
        step = max(1, _BLOCK_BYTES // (8 * matrix.shape[1]))
        for start in range(0, len(matrix), step):
            of_queries = self.distances(matrix[start : start + step], range(len(best)))
            for distances, best_of_query in zip(of_queries, best, strict=True):
                best_of_query.add(distances, numbers[start : start + step])

    def distances(self, matrix: npt.NDArray[Any], queries: Iterable[int]) -> Iterator[Doubles]:
        """The distances of some vectors, the rows of a matrix, to each of the queries with these numbers."""
        with np.errstate(over="ignore", invalid="ignore"):
            block = matrix.astype(np.float64)
            lengths = row_lengths(block) if self.metric == "cosine" else None
        for number in queries:
            with np.errstate(over="ignore", invalid="ignore"):
                distances = self._distances(block, self._compared[number], lengths)
            yield distances

    @once
    def _compared(self) -> Doubles:
        """The queries as they are compared with vectors."""
        return unit_vectors(self.queries) if self.metric == "cosine" else self.queries

    def _distances(self, block: Doubles, query: Doubles, lengths: Doubles | None) -> Doubles:
        # einsum, since BLAS would take several threads, which spin while they wait for each other
        if self.metric == "l2":
            return row_lengths(block - query)
        products = np.einsum("ij,j->i", block, query)
        if lengths is None:
            return np.nan_to_num(-products, nan=np.inf, posinf=np.inf, neginf=-np.inf)
        with np.errstate(divide="ignore"):
            distances = np.clip(1.0 - products / lengths, 0.0, 2.0)
        return np.where((lengths > 0) & query.any(), distances, 1.0)


class _Best:
    """The least distances so far, in ascending order, with the positions of their rows."""

    def __init__(self, count: int, max_distance: float | None) -> None:
        self._count = count
        self._limit = np.inf if max_distance is None else max_distance
        self.distances: Doubles = np.empty(0, np.float64)
        self.rows: Rows = np.empty(0, np.int64)

    def add(self, distances: Doubles, rows: Rows) -> None:
        is_full = len(self.distances) == self._count
        is_near = distances < self.distances[-1] if is_full else distances <= self._limit
        if not is_near.any():
            return
        near, near_rows = distances[is_near], rows[is_near]
        if len(near) > self._count:  # of equal distances the first rows stay
            bound = np.partition(near, self._count - 1)[self._count - 1]
            near, near_rows = near[near <= bound], near_rows[near <= bound]
        together = np.concatenate([self.distances, near])
        order = np.argsort(together, kind="stable")[: self._count]
        self.distances, self.rows = together[order], np.concatenate([self.rows, near_rows])[order]


Winners = tuple[Doubles, Rows, Rows]
"""The nearest rows of one query, as three columns: the distance, the number of the part of the table that has the row,
and its position there."""


@dataclass(frozen=True)
class SearchJob:
    """One file slice: `vectors` reads its vector column, `others` the columns of the result. With `rows` only the rows
    at these positions of its base file are searched."""

    file_slice: FileSlice
    vectors: RowReader
    others: RowReader
    rows: Rows | None = None

    def at(self, rows: Rows) -> SearchJob:
        """The job for the rows at these positions of its base file, all of which fulfil the condition."""
        vectors, others = (reader.unfiltered(reader.columns) for reader in (self.vectors, self.others))
        return SearchJob(self.file_slice, vectors, others, rows)


@dataclass(frozen=True)
class SearchTask:
    """A search in some file slices; it can be pickled. `schema` are the columns of its result."""

    slices: SliceReader
    jobs: tuple[SearchJob, ...]
    nearest: Nearest
    schema: pa.Schema
    threads: int = 1
    parts: tuple[tuple[int, ...], ...] = field(default=())
    """For tasks of Spark: the numbers of the jobs of each task."""

    def rows(self) -> pa.Table:
        """The nearest rows of all slices, for each query in ascending order of the distance."""
        best = parallel_map(self._search, self.jobs, self.threads)
        winners = [self._winners([of_job[query] for of_job in best]) for query in range(len(self.nearest.queries))]
        return self.result(winners, self._others)

    def result(self, winners: Sequence[Winners], read: Callable[[int, Rows], pa.Table]) -> pa.Table:
        """The rows of the winners of each query, with their distances; `read` is that of `gathered_rows`."""
        none: Rows = np.empty(0, np.int64)
        parts = np.concatenate([none, *(of_query for _, of_query, _ in winners)])
        rows = np.concatenate([none, *(of_query for _, _, of_query in winners)])
        return self._with_distances(gathered_rows(parts, rows, read, self.threads), winners)

    def _others(self, number: int, rows: Rows) -> pa.Table:
        """Rows of a job with the columns of the result."""
        job = self.jobs[number]
        return rows_at(self.slices, job.file_slice, job.others, rows if job.rows is None else job.rows[rows])

    def _search(self, job: SearchJob) -> list[_Best]:
        if job.rows is None:
            return self.nearest.of_batches(job.vectors.read(self.slices, job.file_slice))
        rows = rows_at(self.slices, job.file_slice, job.vectors, job.rows)
        return self.nearest.of_batches(iter(rows.to_batches()))

    def _winners(self, best: Sequence[_Best]) -> Winners:
        """The nearest rows of all, from the nearest ones `best` of each slice."""
        if not best:
            return np.empty(0, np.float64), np.empty(0, np.int64), np.empty(0, np.int64)
        distances = np.concatenate([part.distances for part in best])
        jobs = np.repeat(np.arange(len(best)), [len(part.rows) for part in best])
        rows = np.concatenate([part.rows for part in best])
        order = np.argsort(distances, kind="stable")[: self.nearest.count]
        return distances[order], jobs[order], rows[order]

    def _with_distances(self, picked: pa.Table | None, winners: Sequence[Winners]) -> pa.Table:
        distances = [part for part, _, _ in winners]
        counts = np.array([len(part) for part in distances], np.int64)
        columns: dict[str, pa.Array] = {DISTANCE: pa.array(np.concatenate([*distances, np.empty(0)]))}
        if QUERY_INDEX in self.schema.names:
            columns[QUERY_INDEX] = pa.array(np.repeat(np.arange(len(distances)), counts))
        arrays = [
            columns[f.name]
            if f.name in columns
            else pa.nulls(0, f.type)
            if picked is None
            else picked.column(f.name).combine_chunks()
            for f in self.schema
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def __call__(self, part: int) -> Iterator[pa.RecordBatch]:
        """The nearest rows of the slices of one task of Spark."""
        task = replace(self, jobs=tuple(self.jobs[number] for number in self.parts[part]), parts=())
        rows = (batch for batch in task.rows().combine_chunks().to_batches())
        yield from in_task(self.slices.storage, rows)


class Search(Results):
    """The rows of a table whose vectors are nearest to a query, lazily: `to_arrow`, `to_pandas`, `to_polars`,
    `to_spark`...

    `t.search` makes one. The rows come in ascending order of the distance, in a batch query after query.
    """

    _plans = ("task", "plan")

    def __init__(self, scan: Scan, queries: Any, options: SearchOptions) -> None:
        super().__init__(scan._spark)  # pyright: ignore[reportPrivateUsage]
        self._scan = scan
        self._options = options
        self._column, kind = vector_type(scan, options.column)
        self._queries, self._is_batch = checked_queries(queries, self._column, kind)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of the table in the result: those that were asked for, else all but the vector."""
        if self._options.columns is None:
            return tuple(n for n in self._scan.column_names if n != self._column)
        names = [resolve_column(name, self._scan.available).name for name in self._options.columns]
        return tuple(dict.fromkeys(names))

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result: the columns of the table, `_hudi_distance`, and for a batch
        `_hudi_query_index`."""
        available = self._scan.available
        extra = [pa.field(DISTANCE, pa.float64()), *([pa.field(QUERY_INDEX, pa.int64())] if self._is_batch else [])]
        return pa.schema([*(available.field(name) for name in self.column_names), *extra])

    @once
    def task(self) -> SearchTask:
        """The search, ready to run in this process."""
        plan = self._scan.of_columns([self._column]).plan
        others = self._scan.of_columns(self.column_names).plan
        check_condition(plan.predicate)
        readers = dict(row_readers(others, others.predicate))
        kind = self._scan.available.field(self._column).type
        rows = max(1, min(BATCH_ROWS, _BATCH_BYTES // vector_size(kind)))
        vectors = row_readers(plan, plan.predicate)
        jobs = tuple(SearchJob(s, replace(reader, batch_rows=rows), readers[s]) for s, reader in vectors)
        options = self._options
        nearest = Nearest(self._column, self._queries, options.k, options.metric, options.max_distance)
        threads = min(_THREADS, os.cpu_count() or 1)
        return SearchTask(self._scan.reader, jobs, nearest, self.schema, threads)

    @property
    def column(self) -> str:
        """The vector column that is searched."""
        return self._column

    @property
    def is_batch(self) -> bool:
        """Whether several queries were given, as the rows of a matrix."""
        return self._is_batch

    @property
    def metric(self) -> Metric:
        """The metric of the distances."""
        return self._options.metric

    @property
    def has_index(self) -> bool:
        """Whether the table has a vector index for the column and the metric, whether or not this search uses it."""
        return vector_index_of(self.snapshot, self._column, self._options.metric) is not None

    @once
    def plan(self) -> SearchPlan:
        """How the table is searched: by its vector index for the column and the metric, or exactly, and why."""
        return search_plan(self._scan, self.task, self._options)

    def _read(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        plan = self.plan
        rows = plan.task.rows() if plan.by_index is None else plan.by_index.rows()
        return iter(rows.to_batches())

    def _storage(self) -> Storage:
        return self._scan.snapshot.storage

    @property
    def snapshot(self) -> Snapshot:
        """The view of the table that is searched."""
        return self._scan.snapshot

    def _renew(self) -> bool:
        for plan in self._plans:
            self.__dict__.pop(plan, None)
        return self._scan._renew()  # pyright: ignore[reportPrivateUsage]

    def to_spark(self) -> DataFrame:
        """A DataFrame. A search by an index runs in this process at once. In an exact one, which is lazy, each task
        finds the nearest rows of its file slices, and one step takes the nearest of these."""
        spark = self._session(self._storage())
        from lakebed.read.spark_search import answer_frame, search_frame

        tuning = self._scan.reads.worker_tuning

        def frame() -> DataFrame:
            plan = self.plan
            if plan.by_index is not None:
                return answer_frame(plan.by_index.rows(), spark, tuning=tuning)
            return search_frame(plan.task, spark, tuning=tuning)

        return read_again(self._storage(), frame, self._renew)

    def explain(self) -> Lines:
        """The plan as text: the files whose vectors are read, what is searched for, and whether that goes by an index
        or exactly, and why."""
        options, kind = self._options, self._scan.available.field(self._column).type
        limit = "" if options.max_distance is None else f", at most {options.max_distance} away"
        queries = f" to each of {count_text(len(self._queries), 'query')}" if self._is_batch else ""
        plan = self._scan.of_columns([self._column]).plan
        return Lines(
            f"{plan.text()}\n  search      the {options.k} nearest{queries} by {options.metric} of {self._column}"
            f" {vector_name(kind)}{limit}\n  then        {', '.join(self.column_names)} of these rows"
            f"\n{self.plan.text()}"
        )

    def _repr_html_(self) -> str:
        return first_rows_html(self)


def check_condition(predicate: Predicate | None) -> None:
    """Raise `UnsupportedFeature` for the condition of a search that only Spark evaluates."""
    if predicate is not None and not predicate.runs_in_process:
        raise UnsupportedFeature(
            f"a search with the condition {predicate}, which only Spark evaluates",
            hint="filter the rows of the result, or write the condition with other functions",
        )


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The number of rows, the column, the metric and the condition of a search. Raises `InvalidOption` for a metric or
    a number that there is not, and for numbers of an index in an exact search.

    An `exact` search uses no index. `probes` is the number of clusters that a search by an index looks at, `rerank` how
    many rows it reads for each query.
    """

    k: int = 10
    column: str | None = None
    metric: Metric = "cosine"
    max_distance: float | None = None
    columns: Sequence[str] | None = None
    exact: bool = False
    probes: int | None = None
    rerank: int | None = None

    def __post_init__(self) -> None:
        for name in ("k", "probes", "rerank"):
            value = getattr(self, name)
            if value is not None:
                whole_number("search", name, value, minimum=1)
            if value is not None and name != "k" and self.exact:
                raise InvalidOption(
                    f"an exact search compares all rows: {name} is a number of searches by an index",
                    hint=f"leave out {name}, or exact",
                    context={"argument": name},
                )
        if self.metric not in METRICS:
            raise refused("search", "metric", self.metric, f"one of {', '.join(METRICS)}")


@dataclass(frozen=True, slots=True)
class SearchedColumns:
    """The columns that a kind of search goes over, and how messages name them.

    `noun` is what a value is called, `search` the kind of search, `lacking` what a table without such a column has,
    `argument` the one that names a column, `example` a call that adds one.
    """

    noun: str
    fits: Callable[[pa.DataType], bool]
    search: str
    lacking: str
    argument: str
    example: str

    def resolved(self, scan: Scan, column: str | None, preferred: Sequence[str] = ()) -> pa.Field:
        """The column to search: the named one, else the only one of `preferred`, or of all columns that fit.

        Raises `InvalidOption` for a column that does not fit, and where there is none or there are several.
        """
        available = scan.available
        fitting = [f.name for f in available if self.fits(f.type) and f.name not in ALL_META_COLUMNS]
        only = next((names[0] for names in (preferred, fitting) if len(names) == 1), None)
        name = only if column is None else column
        if name is None:
            several = preferred or fitting
            raise InvalidOption(
                f"table {scan.snapshot.config.name!r} has "
                + (f"the {self.noun}s {', '.join(several)}" if several else self.lacking),
                hint=f"name one: {self.argument}=" if several else f"add one: {self.example}",
            )
        named = resolve_column(name, available)
        if not self.fits(named.type):
            raise InvalidOption(
                f"column {named.name} is {type_name(named.type)}, and {self.search} takes a {self.noun}",
                hint=did_you_mean(name, fitting, f"the {self.noun}s are"),
                context={"column": named.name},
            )
        return named


_VECTORS = SearchedColumns(
    "vector", is_vector, "a search", "no vector", "column", "t.columns.add('embedding', 'VECTOR(768)')"
)


def vector_type(scan: Scan, column: str | None) -> tuple[str, pa.DataType]:
    """The name and the type of the column to search: the named one, or the only vector of the table. Raises
    `InvalidOption` for a column that is no vector, and where the table has none or several."""
    resolved = _VECTORS.resolved(scan, column)
    return resolved.name, resolved.type


def checked_queries(queries: Any, column: str, kind: pa.DataType) -> tuple[Doubles, bool]:
    """The queries as a matrix, and whether several were given. Raises `InvalidOption` for one of another dimension, and
    for elements that are no finite numbers."""
    try:
        if isinstance(queries, pa.Array | pa.ChunkedArray):
            queries = queries.to_pylist()
        array = np.asarray(queries.as_py() if isinstance(queries, pa.Scalar) else queries)
        if np.iscomplexobj(array):
            raise TypeError("its elements are complex numbers")
        matrix = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidOption(f"the query of a search is no vector: {error}", hint="give a list of numbers") from error
    if matrix.ndim not in (1, 2) or matrix.shape[-1] != kind.list_size:
        shape = f"{matrix.shape[-1]} elements" if matrix.ndim else "no elements"
        raise InvalidOption(
            f"column {column} is {vector_name(kind)}: expected queries of {kind.list_size} elements, got {shape}",
            hint="give a list of numbers, or a matrix with a row for each query",
            context={"column": column, "expected": kind.list_size},
        )
    if not np.isfinite(matrix).all():
        raise InvalidOption(f"the query of a search of column {column} has an element that is no finite number")
    if kind.value_type == pa.float32():  # as it would be stored, so that an equal vector has the distance 0
        with np.errstate(over="ignore"):
            stored = matrix.astype(np.float32).astype(np.float64)
        matrix = np.where(np.isfinite(stored), stored, matrix)
    return np.atleast_2d(matrix), matrix.ndim == 2
