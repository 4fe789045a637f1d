"""The seam between a pipeline and what runs it: verbs over a handle of rows.

Two engines: `local` (Arrow in one process) and `spark`. Pipelines are written once against this protocol; the
functions they hand over take Arrow and give Arrow. Inside a task a stream of batches sorted by group becomes one
call for each group. `Each` runs work on single things (files, partitions) in tasks. An inserted row gets its file
group by a share in [0, 1) made from its key, equal in both engines.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import LakebedError, SourceError, from_json
from lakebed.expressions.base import RowExpression
from lakebed.format.hashes import java_hash
from lakebed.model import DERIVED, PARTITION_PATH, POSITION, RECORD_KEY, FileSlice
from lakebed.schema.plain_arrow import as_numpy
from lakebed.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Task:
    """The place where a function runs: the three numbers of a write token, and a counter for commit sequence numbers. A
    task that `may_be_late` is one of several attempts, and may run after the write of another attempt has ended."""

    partition: int = 0
    stage: int = 0
    attempt: int = 0
    rows: int = 0
    may_be_late: bool = False

    def take(self, rows: int) -> int:
        """Reserve sequence numbers for this many rows; returns the first."""
        first = self.rows
        self.rows += rows
        return first

    @property
    def write_token(self) -> str:
        return f"{self.partition}-{self.stage}-{self.attempt}"


def session_of(data: Any) -> SparkSession | None:
    """The session of a DataFrame; None for anything else."""
    return getattr(data, "sparkSession", None) if hasattr(data, "mapInArrow") else None


def cluster_of(data: Any) -> str | None:
    """The cluster whose tasks have the rows of the data: "spark", "ray" or "dask"; None for any other data."""
    if session_of(data) is not None:
        return "spark"
    kind = type(data)
    if hasattr(kind, "to_arrow_refs"):
        return "ray"
    if hasattr(kind, "__dask_graph__") and hasattr(kind, "to_delayed") and hasattr(kind, "columns"):
        return "dask"
    engine: Any = getattr(data, "engine", None) if hasattr(kind, "parts") else None  # rows that were evaluated
    return getattr(engine, "name", None)


class SliceReader(Protocol):
    """A reader of file slices. It can be pickled: tasks of other processes read with it."""

    def read_placed(
        self, file_slice: FileSlice, columns: Sequence[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]: ...


class SliceSource(Protocol):
    """The data needed to read file slices: the storage, a reader, and each slice's own columns (a `Snapshot` is
    one)."""

    @property
    def storage(self) -> Storage: ...

    @property
    def reader(self) -> SliceReader: ...

    def schema_of(self, file_slice: FileSlice) -> pa.Schema: ...


Rows = Any
"""A handle of rows: a Spark DataFrame, or `LocalRows` or `StreamedRows` of `lakebed.engine.local`."""

MapFunction = Callable[[Iterator[pa.RecordBatch], Task], Iterator[pa.RecordBatch]]
ItemFunction = Callable[[int, Task], Iterator[pa.RecordBatch]]
GroupFunction = Callable[[str, int, Iterator[pa.RecordBatch], Task], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class GroupOfRows:
    """The range of the rows of a (partition path, group) among those of other groups, and the task that gets them."""

    partition: str
    number: int
    start: int
    stop: int
    task: Task

    @property
    def rows(self) -> int:
        return self.stop - self.start


@runtime_checkable
class ManyGroupsFunction(Protocol):
    """A `GroupFunction` that is faster if it sees the rows of all groups before it is called for each."""

    def with_all(self, rows: pa.Table, groups: Sequence[GroupOfRows]) -> GroupFunction:
        """A function to call for each group; `rows` has the rows of all groups, one group after the other."""
        ...


EngineName = Literal["local", "spark", "ray", "dask"]


class Engine(Protocol):
    """The operations on rows that a pipeline uses. Rows of one engine are never given to another."""

    name: EngineName
    """For people: plans and results show it."""

    note: str
    """Why it is this engine, where people may wonder; else empty."""

    is_distributed: bool
    """Whether functions run in tasks of other processes, and asking for rows is a job."""

    def rows(self, data: Any) -> Rows:
        """A handle over the caller's data (a DataFrame, or anything with the Arrow stream protocol)."""
        ...

    def schema(self, rows: Rows) -> pa.Schema: ...

    def has_at_hand(self, rows: Rows) -> bool:
        """Whether all rows are in the memory of this process."""
        ...

    def derive(self, rows: Rows, columns: Mapping[str, RowExpression], keep: Sequence[str] | None = None) -> Rows:
        """The rows with the derived columns, followed by the columns of `rows` (or only those in `keep`), without a
        shuffle."""
        ...

    def estimated_rows(self, rows: Rows, row_bytes: float) -> int | None:
        """The approximate number of rows if each has `row_bytes` bytes, without running a job; None: unknown."""
        ...

    def filter(self, rows: Rows, predicate: RowExpression) -> Rows: ...

    def map(self, rows: Rows, fn: MapFunction, schema: pa.Schema) -> Rows: ...

    def spread(self, count: int, fn: ItemFunction, schema: pa.Schema) -> Rows:
        """The rows that `fn` returns for each number below `count`, one task per number, without a shuffle."""
        ...

    def map_by_key(self, rows: Rows, key: str, fn: MapFunction) -> Rows:
        """The results of `fn`, which gets all rows with one value of the column `key` together and returns rows of the
        same schema; takes one shuffle."""
        ...

    def head(self, rows: Rows, count: int) -> Rows:
        """At most `count` rows, as a sample."""
        ...

    def sort(self, rows: Rows, by: Sequence[str], scope: Literal["task", "table"]) -> Rows:
        """The rows sorted within each task (no shuffle) or over all."""
        ...

    def gathered(self, rows: Rows, by: str) -> Rows | None:
        """The rows in an order in which those with one value of the text column `by` follow each other in their own
        order, for `map` alone; None unless all rows are in the memory of this process, which needs no copy of them."""
        ...

    def group_map(
        self,
        rows: Rows,
        fn: GroupFunction,
        schema: pa.Schema,
        *,
        groups: int | None,
        one_group_per_task: bool,
        derivable: Mapping[str, RowExpression] | None = None,
    ) -> Rows:
        """The results of `fn`, each call of which gets one complete (partition path, group); takes one shuffle.

        `groups` is how many groups there are at most (None: unknown); the group is a non-negative int column.
        `derivable` are columns of the rows that a task can compute again from the others at next to no cost, so that an
        engine that sends rows to other processes need not send them.
        """
        ...

    def counted(self, rows: Rows, unsent: Collection[str] = ()) -> tuple[Rows, Callable[[], int | None]]:
        """The rows, counted while they are evaluated, and a function that returns their number after results of them
        were collected: the greatest, if tasks ran several times. None if it is unknown. `unsent` are columns that the
        rows need not have, since `group_map` derives them."""
        ...

    def repeatable(self, data: Any, *, always: bool = False) -> Any:
        """The caller's data in a form that has the same rows each time it is evaluated. Data whose rows may differ, and
        all data with `always`, is evaluated once for that."""
        ...

    def read_columns(self, snapshot: SliceSource, slices: Sequence[FileSlice], columns: Sequence[str]) -> Rows:
        """The columns of many file slices, as rows, without a shuffle, for indexes that read stored keys. The column
        `POSITION` has each row's number in its base file."""
        ...

    def route(self, rows: Rows, updates: pa.Table, inserts: pa.Table) -> Rows:
        """Replace file id and instant by the number of the file group that takes the row.

        `updates` has (partition path, file id, group); `inserts` has (partition path,
        `bounds` list<double>, `groups` list<int32>): a row without file id goes to the first group whose bound is
        greater than its share, a number in [0, 1) made from a hash of its key.
        """
        ...

    def join(
        self, rows: Rows, others: Rows, on: Sequence[str], how: Literal["left", "inner"], *, small: bool = False
    ) -> Rows:
        """Joined rows; with `small` the others are few enough to be sent to every task, instead of a shuffle."""
        ...

    def distinct(self, rows: Rows) -> Rows:
        """The rows without repetitions."""
        ...

    def union(self, parts: Sequence[Rows]) -> Rows: ...

    def from_arrow(self, table: pa.Table) -> Rows: ...

    def aggregate(self, rows: Rows, by: Sequence[str], sums: Sequence[str] = ()) -> pa.Table:
        """The counts of rows by the given columns, as an Arrow table with an additional column `rows` (int64). The
        columns in `sums` (int64, or boolean: true is one) are summed; a null counts as 0."""
        ...

    def collect(self, rows: Rows) -> pa.Table: ...

    def persist(self, rows: Rows) -> Rows: ...

    def release(self, rows: Rows) -> None: ...


@contextmanager
def persisted(engine: Engine, rows: Rows) -> Generator[Rows]:
    """The rows, evaluated once and cached until the end of the block."""
    cached = engine.persist(rows)
    try:
        yield cached
    finally:
        engine.release(cached)


GROUP = f"{DERIVED}group"


def count_rows(engine: Engine, rows: Rows) -> int:
    """The number of rows."""
    return int(pc.sum(engine.aggregate(rows, []).column("rows")).as_py() or 0)


def changed_input(problem: str) -> SourceError:
    """The error for rows that differed between two evaluations."""
    return SourceError(
        f"the rows of this write changed while they were written: {problem}",
        hint="Nothing of it is visible. Run it again with rows that are the same each time: those of"
        " DataFrame.checkpoint(), or of files.",
        context={"retryable": True, "input": "changed"},
    )


def distinct_values(profile: pa.Table, *columns: str) -> list[list[Any]]:
    """The values of each of these columns, once and without null.

    >>> distinct_values(pa.table({"a": [1, 1, None]}), "a")
    [[1]]
    """
    return [pc.unique(profile.column(name)).drop_null().to_pylist() for name in columns]


class _Cursor:
    """A stream of batches that can be split in the middle of a batch."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._current: pa.RecordBatch | None = None

    def head(self) -> pa.RecordBatch | None:
        while self._current is None or self._current.num_rows == 0:
            self._current = next(self._batches, None)
            if self._current is None:
                return None
        return self._current

    def group(self, partition: str, number: int) -> Iterator[pa.RecordBatch]:
        while (batch := self.head()) is not None:
            end = _run_length(batch, partition, number)
            if end == 0:
                return
            self._current = batch.slice(end) if end < batch.num_rows else None
            yield batch.slice(0, end) if end < batch.num_rows else batch
            if self._current is not None:
                return


def _run_length(batch: pa.RecordBatch, partition: str, number: int) -> int:
    same = as_numpy(pc.and_(pc.equal(batch.column(PARTITION_PATH), partition), pc.equal(batch.column(GROUP), number)))
    return batch.num_rows if same.all() else int(np.argmin(same))


def map_groups(batches: Iterator[pa.RecordBatch], fn: GroupFunction, task: Task) -> Iterator[pa.RecordBatch]:
    """The results of `fn`, called once per group in the order of the stream; rows of a group that it does not read are
    skipped."""
    cursor = _Cursor(iter(batches))
    while (head := cursor.head()) is not None:
        partition, number = head.column(PARTITION_PATH)[0].as_py(), head.column(GROUP)[0].as_py()
        rows = cursor.group(partition, number)
        yield from fn(partition, number, rows, task)
        for _ in rows:
            pass


def stored_fields(source: SliceSource, slices: Sequence[FileSlice], columns: Sequence[str]) -> pa.Schema:
    """The types of stored columns: strings for meta columns, for others those of the newest slice."""
    newest = source.schema_of(max(slices, key=lambda s: (bool(s.log_files), s.instant))) if slices else pa.schema([])
    fields = {f.name: f.with_nullable(True) for f in newest} | {POSITION: pa.field(POSITION, pa.int64())}
    return pa.schema([fields.get(c, pa.field(c, pa.string())) for c in columns])


T = TypeVar("T")
R = TypeVar("R")
_ITEMS = pa.schema([(PARTITION_PATH, pa.string()), (GROUP, pa.int32()), ("item", pa.binary())])
_RESULTS = pa.schema([("at", pa.int32()), ("result", pa.binary()), ("error", pa.string())])


def each(engine: Engine, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The results of `work` for the items, in the order of `items`. Items and results are sent pickled, the work as the
    engine sends its functions. If items raise errors of lakebed, the first item's error is raised unchanged.

    >>> from lakebed.engine.local import LocalEngine
    >>> each(LocalEngine(), len, ["a", "bc"])
    [1, 2]
    """
    if not items:
        return []
    sent = pa.Table.from_arrays(
        [
            pa.repeat(pa.scalar(""), len(items)),
            pa.array(range(len(items)), pa.int32()),
            pa.array([pickle.dumps(item) for item in items], pa.binary()),
        ],
        schema=_ITEMS,
    )
    rows = engine.group_map(engine.from_arrow(sent), _Each(work), _RESULTS, groups=len(items), one_group_per_task=False)
    done = engine.collect(rows).sort_by("at")
    errors = done["error"].drop_null()
    if len(errors):
        raise from_json(errors[0].as_py())
    return [pickle.loads(result) for result in done["result"].to_pylist()]


@dataclass(frozen=True, slots=True)
class _Each:
    """The function that tasks run for `each`."""

    work: Callable[[Any], Any]

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        (item,) = (value for batch in batches for value in batch.column("item").to_pylist())
        result, error = None, None
        try:
            result = pickle.dumps(self.work(pickle.loads(item)))
        except LakebedError as failure:
            error = failure.to_json()
        yield pa.RecordBatch.from_pylist([{"at": number, "result": result, "error": error}], _RESULTS)


# Java's hash of similar keys is close together: multiply (Knuth) and keep the low 32 bits to spread it.
_SPREAD = 2654435761
_RANGE = 1 << 32

KEY_HASH = f"{DERIVED}key_hash"
SHARE_SQL = f"pmod(cast(`{KEY_HASH}` as bigint) * {_SPREAD}L, {_RANGE}L) / {_RANGE}D"
"""A row's share from the Java hash of its record key."""


def insert_share(rows: pa.Table) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The share of each row (0 to 1), from its record key, by which inserts are distributed."""
    hashes = java_hash(rows.column(RECORD_KEY).combine_chunks()).astype(np.int64)
    return np.mod(hashes * _SPREAD, _RANGE) / _RANGE


def choose_group(partitions: pa.Array, share: np.ndarray[Any, Any], inserts: pa.Table) -> pa.Array:
    """The group number for each row as if it were an insert; null if its partition takes no inserts."""
    result = np.full(len(share), -1, dtype=np.int32)
    encoded = partitions.dictionary_encode()
    codes = as_numpy(encoded.indices)
    names = {name: code for code, name in enumerate(encoded.dictionary.to_pylist())}
    for row in inserts.to_pylist():  # one a partition
        code = names.get(row[PARTITION_PATH])
        if code is None:
            continue
        positions = np.flatnonzero(codes == code)
        indices = np.searchsorted(np.asarray(row["bounds"]), share[positions], side="right")
        groups = np.asarray(row["groups"], dtype=np.int32)
        result[positions] = groups[np.minimum(indices, len(groups) - 1)]
    return pa.array(result, mask=result < 0)
