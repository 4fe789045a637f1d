"""The engine of clusters that run Python functions (Ray, Dask): rows are Arrow tables that the cluster's workers hold.

An operation that needs no shuffle is a step, which a task runs on one part of the rows with the operations of
`LocalEngine`. Before a shuffle a task cuts its part into pieces, one for each task that follows. This process gets
counts, and of rows those that `collect` and `head` ask for.

A cluster makes a lost part again by running its functions again. Functions of lakebed then return equal rows. Those of
the caller may not, so each part of the caller's rows has a checksum: a task that reads another one than was evaluated
first raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from lakebed.engine.arrow_data import to_arrow_table
from lakebed.engine.base import (
    GROUP,
    EngineName,
    GroupFunction,
    ItemFunction,
    MapFunction,
    SliceSource,
    cluster_of,
    stored_fields,
)
from lakebed.engine.local import AnyRows, LocalEngine, LocalRows, summed
from lakebed.engine.task_steps import (
    Begin,
    BlockFacts,
    Cut,
    Fitted,
    FromNumber,
    Joined,
    Numbers,
    SlicesOfTask,
    Step,
    concatenated,
    evaluated_block,
    hashes,
    is_hashed,
    ranges,
    run_task,
    spaced_rows,
    unpickled,
)
from lakebed.errors import LakebedError, SchemaConflict, UnsupportedFeature
from lakebed.expressions.base import RowExpression
from lakebed.model import PARTITION_PATH, FileSlice
from lakebed.schema.plain_arrow import as_numpy, one_array

Ref = Any
"""A table in the memory of the cluster."""

# Parts of fewer bytes are read by one task: one alone costs more than its rows.
_PART_BYTES = 64 << 20
# A task is expensive even with little to do: so there are few, each with several groups; few groups have one each.
_TASKS_PER_CORE = 2
_GROUPS_PER_CORE = 8
_LACKS = re.compile(r"No module named '(lakebed|pyarrow|numpy|fastavro|xxhash|isal|obstore|sqlglot)\b")
# What Ray and Dask raise where workers die again and again, or have no memory.
_LOST = re.compile(
    r"WorkerCrashed|OutOfMemory|NodeDied|RayletDied|ObjectLost|ObjectReconstruction|OwnerDied|KilledWorker"
)


class Cluster(Protocol):
    """A cluster that runs functions in its workers."""

    name: Literal["ray", "dask"]

    def cores(self) -> int: ...

    def blocks(self, data: Any) -> list[Ref]:
        """The parts of a Dataset or DataFrame; each is what the library takes for a part, of Arrow or pandas."""
        ...

    def pickled(self, value: Any) -> bytes:
        """The pickled value, functions without a name included."""
        ...

    def share(self, value: bytes) -> Ref:
        """The value in the memory of the cluster, for all tasks."""
        ...

    def run(self, fn: Callable[..., Any], calls: Sequence[Sequence[Any]], outputs: int = 1) -> list[list[Ref]]:
        """Start a task for each call. Arguments that are references are given as their values. A function with several
        outputs returns a list of them."""
        ...

    def get(self, refs: Sequence[Ref]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that one task makes: `begin` of some tables and the number of the part, then the steps. `rows` is their
    number, if it is known."""

    refs: tuple[Ref, ...]
    rows: int | None = None
    checksums: tuple[str, ...] = ()
    number: int = 0
    begin: Begin = concatenated
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class TaskRows:
    """A handle of rows in the memory of a cluster. It counts as data: a write takes it as it takes a Dataset."""

    engine: TaskEngine
    schema: pa.Schema
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int | None:
        """The number of rows, if it is known."""
        counts = [part.rows for part in self.parts]
        return None if None in counts else sum(count or 0 for count in counts)


class TaskEngine:
    """An engine that runs the pipeline's operations in the tasks of a cluster."""

    note = ""
    is_distributed = True

    def __init__(self, cluster: Cluster) -> None:
        self.name: EngineName = cluster.name
        self._cluster = cluster
        self._evaluated: tuple[Any, TaskRows] | None = None

    def rows(self, data: Any) -> TaskRows:
        if isinstance(data, TaskRows):
            return data
        if cluster_of(data) != self.name:
            return self.from_arrow(to_arrow_table(data))
        if self._evaluated is None or self._evaluated[0] is not data:
            self._evaluated = data, self._evaluate(data)
        return self._evaluated[1]

    def repeatable(self, data: Any, *, always: bool = False) -> Any:
        if always:
            self._evaluated = None
        return self.rows(data)

    def _evaluate(self, data: Any) -> TaskRows:
        """The caller's rows, evaluated once, in the types that a table has for them."""
        with _errors_of(self._cluster.name):
            blocks = self._cluster.blocks(data)
        outputs = self._cluster.run(evaluated_block, [(block,) for block in blocks], 2)
        facts: list[BlockFacts] = self._get([about for _, about in outputs])
        filled = [number for number, fact in enumerate(facts) if fact.rows] or [*range(len(facts))][:1]
        if not any(len(facts[number].schema) for number in filled):
            raise SchemaConflict(
                f"there are no rows, and {self.name.capitalize()} does not know their columns: a filter leaves none",
                hint="leave the write out where dataset.count() is 0",
            )
        schema = _common_schema([facts[number].schema for number in filled])
        fit = Fitted(schema)
        parts: list[Part] = []
        size = 0
        for number in filled:
            fact, (table, _) = facts[number], outputs[number]
            part = Part((table,), fact.rows, (fact.checksum,), begin=fit)
            if parts and size + fact.size <= _PART_BYTES:
                last = parts.pop()
                rows = (last.rows or 0) + fact.rows
                part = replace(last, refs=(*last.refs, table), rows=rows, checksums=(*last.checksums, fact.checksum))
                size += fact.size
            else:
                size = fact.size
            parts.append(part)
        return TaskRows(self, schema, tuple(parts))

    def from_arrow(self, table: pa.Table) -> TaskRows:
        ref = self._cluster.share(self._cluster.pickled(table))
        return TaskRows(self, table.schema, (Part((ref,), table.num_rows, begin=unpickled),))

    def schema(self, rows: TaskRows) -> pa.Schema:
        return rows.schema

    def has_at_hand(self, rows: TaskRows) -> bool:
        return False

    def estimated_rows(self, rows: TaskRows, row_bytes: float) -> int | None:
        return rows.rows

    def derive(
        self, rows: TaskRows, columns: Mapping[str, RowExpression], keep: Sequence[str] | None = None
    ) -> TaskRows:
        columns = dict(columns)
        return self._then(rows, lambda engine, part: engine.derive(part, columns, keep), is_counted=True)

    def filter(self, rows: TaskRows, predicate: RowExpression) -> TaskRows:
        return self._then(rows, lambda engine, part: engine.filter(part, predicate), rows.schema)

    def map(self, rows: TaskRows, fn: MapFunction, schema: pa.Schema) -> TaskRows:
        return self._then(rows, lambda engine, part: engine.map(part, fn, schema), schema)

    def spread(self, count: int, fn: ItemFunction, schema: pa.Schema) -> TaskRows:
        begin = FromNumber(fn, schema)
        parts = [Part((), number=number, begin=begin) for number in range(count)]
        return TaskRows(self, schema, tuple(parts)) if parts else self.from_arrow(schema.empty_table())

    def map_by_key(self, rows: TaskRows, key: str, fn: MapFunction) -> TaskRows:
        return self.map(self._shuffled(rows, [key]), fn, rows.schema)

    def head(self, rows: TaskRows, count: int) -> TaskRows:
        first = self._then(rows, lambda engine, part: engine.head(part, count), rows.schema)
        sample, parts = rows.schema.empty_table(), 0
        while sample.num_rows < count and parts < len(rows.parts):
            more = first.parts[parts : 2 * parts + 1]  # twice as many each time
            sample = pa.concat_tables([sample, self.collect(replace(first, parts=more))])
            parts += len(more)
        return self.from_arrow(sample.slice(0, count))

    def sort(self, rows: TaskRows, by: Sequence[str], scope: Literal["task", "table"]) -> TaskRows:
        names, tasks = list(by), len(rows.parts)
        if scope == "table" and tasks > 1:
            sample = self.collect(self._then(rows, lambda _, part: LocalRows(spaced_rows(part.table.select(names)))))
            sample = sample.sort_by([(name, "ascending") for name in names])
            bounds = sample.take(np.linspace(0, max(0, sample.num_rows - 1), tasks + 1).astype(np.int64)[1:-1])
            rows = self._exchanged(rows, tasks, lambda table: ranges(table.select(names), bounds))
        return self._then(rows, lambda engine, part: engine.sort(part, names, "task"), rows.schema, is_counted=True)

    def gathered(self, rows: TaskRows, by: str) -> None:
        return None

    def group_map(
        self,
        rows: TaskRows,
        fn: GroupFunction,
        schema: pa.Schema,
        *,
        groups: int | None,
        one_group_per_task: bool,
        derivable: Mapping[str, RowExpression] | None = None,
    ) -> TaskRows:
        derived, cores = dict(derivable or {}), self._cluster.cores()
        alone = one_group_per_task and groups is not None and groups <= cores * _GROUPS_PER_CORE
        tasks = groups if alone and groups else max(1, min(cores * _TASKS_PER_CORE, groups or 1 << 30))
        names = rows.schema.names

        def numbers(table: pa.Table) -> Numbers:
            number = as_numpy(one_array(table.column(GROUP))).astype(np.int64)
            return number if alone else number + hashes(table, [PARTITION_PATH]) % 65536

        def grouped(engine: LocalEngine, part: LocalRows) -> AnyRows:
            complete = engine.derive(part, derived) if derived else part
            complete = LocalRows(complete.table.select(names))
            return engine.group_map(complete, fn, schema, groups=None, one_group_per_task=False)

        return self._then(self._exchanged(rows, tasks, numbers, unsent=derived), grouped, schema)

    def counted(self, rows: TaskRows, unsent: Collection[str] = ()) -> tuple[TaskRows, Callable[[], int | None]]:
        return rows, lambda: rows.rows

    def read_columns(self, snapshot: SliceSource, slices: Sequence[FileSlice], columns: Sequence[str]) -> TaskRows:
        fields = stored_fields(snapshot, slices, columns)
        tasks = min(len(slices), self._cluster.cores() * _TASKS_PER_CORE)
        read = SlicesOfTask(snapshot.reader, tuple(slices), tuple(columns), fields, tasks)
        return self.spread(tasks, read, fields)

    def route(self, rows: TaskRows, updates: pa.Table, inserts: pa.Table) -> TaskRows:
        return self._then(rows, lambda engine, part: engine.route(part, updates, inserts), is_counted=True)

    def join(
        self,
        rows: TaskRows,
        others: TaskRows,
        on: Sequence[str],
        how: Literal["left", "inner"],
        *,
        small: bool = False,
    ) -> TaskRows:
        names = list(on)
        empty = LocalEngine(1).join(
            LocalRows(rows.schema.empty_table()), LocalRows(others.schema.empty_table()), names, how
        )
        if small:
            few = self.collect(others)
            return self._then(
                rows, lambda engine, part: engine.join(part, LocalRows(few), names, how), empty.table.schema
            )
        tasks = self._tasks(max(len(rows.parts), len(others.parts)))
        left, right = self._shuffled(rows, names, tasks), self._shuffled(others, names, tasks)
        parts: list[Part] = []
        for of_left, of_right in zip(left.parts, right.parts, strict=True):
            joined = Joined(len(of_left.refs), tuple(names), how)
            parts.append(Part((*of_left.refs, *of_right.refs), begin=joined))
        return TaskRows(self, empty.table.schema, tuple(parts))

    def distinct(self, rows: TaskRows) -> TaskRows:
        def distinct(engine: LocalEngine, part: LocalRows) -> LocalRows:
            return engine.distinct(part)

        shuffled = self._shuffled(self._then(rows, distinct, rows.schema), rows.schema.names)
        return self._then(shuffled, distinct, rows.schema)

    def union(self, parts: Sequence[TaskRows]) -> TaskRows:
        names = parts[0].schema.names
        picked = [
            self._then(rows, lambda _, part: LocalRows(part.table.select(names)), is_counted=True) for rows in parts
        ]
        return TaskRows(self, picked[0].schema, tuple([part for rows in picked for part in rows.parts]))

    def aggregate(self, rows: TaskRows, by: Sequence[str], sums: Sequence[str] = ()) -> pa.Table:
        by, sums = list(by), list(sums)
        of_parts = self._then(rows, lambda engine, part: LocalRows(engine.aggregate(part, by, sums)))
        return summed(self.collect(of_parts), by, sums)

    def collect(self, rows: TaskRows) -> pa.Table:
        tables: list[pa.Table] = self._get([part.refs[0] for part in self.persist(rows).parts])
        return pa.concat_tables([rows.schema.empty_table(), *tables], promote_options="permissive")

    def persist(self, rows: TaskRows) -> TaskRows:
        started = self._started(rows.parts)
        return replace(rows, parts=tuple([Part((ref,), p.rows) for p, (ref,) in zip(rows.parts, started, strict=True)]))

    def release(self, rows: TaskRows) -> None:
        return  # the cluster lets a table go when no handle refers to it

    def _tasks(self, parts: int) -> int:
        return max(1, min(parts, self._cluster.cores() * _TASKS_PER_CORE))

    def _then(
        self, rows: TaskRows, step: Step, schema: pa.Schema | None = None, *, is_counted: bool = False
    ) -> TaskRows:
        """The rows after a further step, which leaves their number as it is if they are counted."""
        schema = schema or step(LocalEngine(1), LocalRows(rows.schema.empty_table())).schema
        parts = [replace(p, steps=(*p.steps, step), rows=p.rows if is_counted else None) for p in rows.parts]
        return TaskRows(self, schema, tuple(parts))

    def _shuffled(self, rows: TaskRows, names: Sequence[str], tasks: int | None = None) -> TaskRows:
        """The rows in parts that each have all rows of equal values in these columns."""
        hashed = [name for name in names if is_hashed(rows.schema.field(name).type)]
        return self._exchanged(rows, tasks or self._tasks(len(rows.parts)), lambda table: hashes(table, hashed))

    def _exchanged(
        self, rows: TaskRows, tasks: int, numbers: Callable[[pa.Table], Numbers], unsent: Collection[str] = ()
    ) -> TaskRows:
        """The rows in so many parts, without the columns `unsent`. A row goes to the part of its number, modulo their
        count."""

        def cut(table: pa.Table) -> list[pa.Table]:
            number = numbers(table) % tasks
            sent = table.drop_columns([name for name in unsent if name in table.column_names])
            order = np.argsort(number, kind="stable")
            edges = np.searchsorted(number[order], np.arange(tasks + 1))
            return [sent.take(pa.array(order[edges[at] : edges[at + 1]])) for at in range(tasks)]

        pieces = self._started(rows.parts, cut, tasks)
        parts = [Part(tuple([of_part[number] for of_part in pieces])) for number in range(tasks)]
        return TaskRows(self, pa.schema([f for f in rows.schema if f.name not in unsent]), tuple(parts))

    def _started(self, parts: Sequence[Part], cut: Cut | None = None, outputs: int = 1) -> list[list[Ref]]:
        """Start the task of each part. Returns the references to its rows, or to the pieces of them."""
        shared: dict[tuple[int, ...], Ref] = {}
        calls: list[Sequence[Any]] = []
        for number, part in enumerate(parts):
            key = (id(part.begin), *map(id, part.steps))
            if key not in shared:
                shared[key] = self._cluster.share(self._cluster.pickled((part.begin, part.steps, cut)))
            calls.append((shared[key], number, part.number, part.checksums, *part.refs))
        return self._cluster.run(run_task, calls, outputs)

    def _get(self, refs: Sequence[Ref]) -> list[Any]:
        with _errors_of(self._cluster.name):
            return self._cluster.get(refs)


def task_engine(data: Any) -> TaskEngine | None:
    """The engine for a Dataset of Ray, a DataFrame of Dask, or evaluated rows of one; None for other data."""
    if isinstance(data, TaskRows):
        return data.engine
    match cluster_of(data):
        case "ray":
            from lakebed.engine.ray_cluster import RayCluster

            return TaskEngine(RayCluster())
        case "dask":
            from lakebed.engine.dask_cluster import DaskCluster

            return TaskEngine(DaskCluster())
        case _:
            return None


def _common_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of all parts, in types that hold the values of each."""
    names = schemas[0].names
    if other := next((schema.names for schema in schemas if set(schema.names) != set(names)), None):
        differing = sorted(set(names) ^ set(other))
        raise SchemaConflict(
            f"the parts of these rows have different columns: {', '.join(differing)} are not in each of them",
            hint="give every part all columns",
            context={"columns": differing},
        )
    try:
        return reduce(_unified, schemas)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaConflict(
            f"the parts of these rows have different types: {error}",
            hint="cast the column to one type, in pandas one of Arrow's: astype('string[pyarrow]')",
        ) from error


def _unified(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    return schema if schema.equals(other) else pa.unify_schemas([schema, other], promote_options="permissive")


@contextmanager
def _errors_of(cluster: str) -> Generator[None]:
    """Turn the cluster's own errors into lakebed's. Those of functions are unchanged."""
    try:
        yield
    except LakebedError:
        raise
    except Exception as error:
        if lacking := _LACKS.search(str(error)):
            raise UnsupportedFeature(
                f"the workers of {cluster.capitalize()} have no {lacking[1]}",
                hint="install lakebed in the environment of every worker, in the version of this process",
                context={"feature": "workers"},
            ) from error
        if _LOST.match(type(error).__name__):
            raise LakebedError(
                f"{cluster.capitalize()} lost rows of this write, or the workers of one of its tasks:"
                f" {str(error).strip().partition(chr(10))[0]}",
                hint="Nothing of it is visible. Run it again; if workers lack memory, give each task more of it, or the"
                " rows in more and smaller parts (repartition)",
                context={"feature": "workers", "retryable": True},
            ) from error
        raise
