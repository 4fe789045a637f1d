"""The seam between the pipeline and what runs it: five verbs over a handle of rows.

Two engines: `local` (Arrow in one process) and `spark`. Pipelines are written once against this protocol; the functions
they hand over take Arrow and give Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import pyarrow as pa

from lakebed.expressions.base import RowExpression
from lakebed.model import FileSlice
from lakebed.storage.base import Storage


@dataclass(slots=True)
class Task:
    """Where a function runs: the three numbers of a write token, and a counter for commit sequence numbers."""

    partition: int = 0
    stage: int = 0
    attempt: int = 0
    rows: int = 0

    def take(self, rows: int) -> int:
        """Reserve running numbers for this many rows; gives the first."""
        first = self.rows
        self.rows += rows
        return first

    @property
    def write_token(self) -> str:
        return f"{self.partition}-{self.stage}-{self.attempt}"


class SliceReader(Protocol):
    """Reads file slices. It pickles: tasks of other processes read with it."""

    def read_placed(
        self, file_slice: FileSlice, columns: Sequence[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]: ...


class SliceSource(Protocol):
    """What reading file slices needs: the storage, a reader, and each slice's own columns (a `Snapshot` is one)."""

    @property
    def storage(self) -> Storage: ...

    @property
    def reader(self) -> SliceReader: ...

    def schema_of(self, file_slice: FileSlice) -> pa.Schema: ...


Rows = Any
"""A handle of rows: a Spark DataFrame, or `lakebed.engine.local.LocalRows`."""

MapFunction = Callable[[Iterator[pa.RecordBatch], Task], Iterator[pa.RecordBatch]]
ItemFunction = Callable[[int, Task], Iterator[pa.RecordBatch]]
GroupFunction = Callable[[str, int, Iterator[pa.RecordBatch], Task], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class GroupOfRows:
    """Where the rows of a (partition path, group) stand among those of others, and the task that gets them."""

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
    """A `GroupFunction` that gains by seeing the rows of all groups before it is called with each."""

    def with_all(self, rows: pa.Table, groups: Sequence[GroupOfRows]) -> GroupFunction:
        """What is called with each of the groups, whose rows are those in `rows`, one group behind the other."""
        ...


class Engine(Protocol):
    """See the module. `rows` handles of one engine are never given to another."""

    name: Literal["local", "spark"]
    """For people: plans and results show it."""

    note: str
    """Why it is this engine, where people may wonder; else empty."""

    is_distributed: bool
    """Whether functions run in tasks of other processes, and asking for rows is a job."""

    def rows(self, data: Any) -> Rows:
        """A handle over the caller's data (a DataFrame, or anything with the Arrow stream protocol)."""
        ...

    def schema(self, rows: Rows) -> pa.Schema: ...

    def derive(self, rows: Rows, columns: Mapping[str, RowExpression], keep: Sequence[str] | None = None) -> Rows:
        """Put derived columns in front of the rows' own (or of `keep`, a selection of them), no shuffle."""
        ...

    def estimated_rows(self, rows: Rows, row_bytes: float) -> int | None:
        """About how many rows there are where each takes so many bytes, without running a job; None: not known."""
        ...

    def filter(self, rows: Rows, predicate: RowExpression) -> Rows: ...

    def map(self, rows: Rows, fn: MapFunction, schema: pa.Schema) -> Rows: ...

    def spread(self, count: int, fn: ItemFunction, schema: pa.Schema) -> Rows:
        """What `fn` gives for each number below `count`, in a task for each; nothing is shuffled."""
        ...

    def map_by_key(self, rows: Rows, key: str, fn: MapFunction) -> Rows:
        """One shuffle by a column: `fn` sees all rows of a value together, and gives rows of the same schema."""
        ...

    def head(self, rows: Rows, count: int) -> Rows:
        """Some rows, for a sample."""
        ...

    def sort(self, rows: Rows, by: Sequence[str], scope: Literal["task", "table"]) -> Rows:
        """Sorted within each task (no shuffle) or over all."""
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
        """One shuffle by (partition path, group); each call of `fn` sees one group whole.

        `groups` is how many groups there are at most (None: unknown); the group is a non-negative int column.
        `derivable` are columns of the rows that a task can make anew from the others at next to no cost, so that an
        engine that sends rows to other processes need not send them.
        """
        ...

    def read_columns(self, snapshot: SliceSource, slices: Sequence[FileSlice], columns: Sequence[str]) -> Rows:
        """Some columns of many file slices, as rows: for indexes that look at stored keys. No shuffle. `POSITION` among
        them gives each row's number in its base file."""
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
        """Joined rows; `small` says that the others are few enough to be sent to every task, instead of a shuffle."""
        ...

    def distinct(self, rows: Rows) -> Rows:
        """Each row once."""
        ...

    def union(self, parts: Sequence[Rows]) -> Rows: ...

    def from_arrow(self, table: pa.Table) -> Rows: ...

    def aggregate(self, rows: Rows, by: Sequence[str], sums: Sequence[str] = ()) -> pa.Table:
        """Counts of rows by the given columns, as an Arrow table with an extra column `rows` (int64). The columns in
        `sums` (int64, or boolean: true is one) are summed likewise; a null counts for nothing."""
        ...

    def collect(self, rows: Rows) -> pa.Table: ...

    def persist(self, rows: Rows) -> Rows: ...

    def release(self, rows: Rows) -> None: ...


@contextmanager
def persisted(engine: Engine, rows: Rows) -> Generator[Rows]:
    """The rows, evaluated once and held until the end of the block."""
    held = engine.persist(rows)
    try:
        yield held
    finally:
        engine.release(held)
