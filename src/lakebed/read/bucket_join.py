"""A join of two tables bucket by bucket: rows that match are in the same bucket of both, so it holds one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption, SchemaConflict
from lakebed.filters.predicates import Node, Opaque, Predicate, columns_of, conjuncts, walk
from lakebed.filters.sql import Condition, parse_conditions
from lakebed.filters.text import resolve_column
from lakebed.model import FileSlice
from lakebed.read.batches import RowReader, in_order, row_readers
from lakebed.read.buckets import Buckets, buckets_of, common_count, equal_columns
from lakebed.read.reopening import in_task, read_again
from lakebed.read.scan import Results, Scan, column_names_of
from lakebed.schema.plain_arrow import matching_rows
from lakebed.sharing import once
from lakebed.slices.reader import SliceReader
from lakebed.wording import Lines, count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.storage.base import Storage

How = Literal["inner", "left", "right", "full", "semi", "anti"]
On = str | Sequence[str] | Mapping[str, str] | None
# Arrow's words for a join, and which sides' rows are left as they are when a condition on the result is put before it.
_ARROW: dict[str, tuple[str, bool, bool]] = {
    "inner": ("inner", True, True),
    "left": ("left outer", True, False),
    "right": ("right outer", False, True),
    "full": ("full outer", False, False),
    "semi": ("left semi", True, False),
    "anti": ("left anti", True, False),
}
_OUT_ROWS = 1 << 16
_THREADS = 4
_LEFT, _RIGHT = "\0left", "\0right"


@dataclass(frozen=True, slots=True)
class SideRows:
    """One side's file slices by bucket, each with its reader. It can be pickled."""

    reader: SliceReader
    slices: tuple[tuple[tuple[FileSlice, RowReader], ...], ...]
    schema: pa.Schema

    @classmethod
    def of(cls, scan: Scan, buckets: Buckets, count: int) -> SideRows:
        plan = scan.plan
        placed: list[list[tuple[FileSlice, RowReader]]] = [[] for _ in range(count)]
        for file_slice, reader in row_readers(plan, plan.predicate):
            placed[buckets.number(file_slice) % count].append((file_slice, reader))
        return cls(scan.reader, tuple(tuple(bucket_slices) for bucket_slices in placed), plan.schema)

    def table(self, bucket: int, *, on_spark: bool) -> pa.Table:
        """The rows of a bucket; `on_spark` is true in a task, which cannot plan again."""
        jobs = [partial(self._rows, file_slice, reader, on_spark) for file_slice, reader in self.slices[bucket]]
        return pa.Table.from_batches(in_order(jobs, _THREADS), self.schema).combine_chunks()

    def _rows(self, file_slice: FileSlice, reader: RowReader, on_spark: bool) -> Iterator[pa.RecordBatch]:
        rows = reader.read(self.reader, file_slice)
        return in_task(self.reader.storage, rows) if on_spark else rows


@dataclass(frozen=True, slots=True)
class JoinTask:
    """A task function that joins one bucket. `columns` has the source of each column of the result: the left side, the
    right, or (both names) the side that has the row."""

    left: SideRows
    right: SideRows
    on: tuple[tuple[str, str], ...]
    how: How
    schema: pa.Schema
    columns: tuple[tuple[str | None, str | None], ...]
    condition: pc.Expression | None
    column_names: tuple[str, ...]
    on_spark: bool = False

    def __call__(self, bucket: int) -> Iterator[pa.RecordBatch]:
        """The rows of the result from one bucket."""
        if not self._may_match(bucket):
            return
        left, right = (side.table(bucket, on_spark=self.on_spark) for side in (self.left, self.right))
        at_left, at_right = self._matches(left, right)
        for start in range(0, max(len(at_left), len(at_right)), _OUT_ROWS):
            rows = self._rows(left, right, at_left[start : start + _OUT_ROWS], at_right[start : start + _OUT_ROWS])
            if self.condition is not None:
                rows = matching_rows(rows, self.condition)
            yield from rows.select(list(self.column_names)).to_batches()

    def _may_match(self, bucket: int) -> bool:
        left, right = bool(self.left.slices[bucket]), bool(self.right.slices[bucket])
        needed = {"inner": left and right, "semi": left and right, "right": right, "full": left or right}
        return needed.get(self.how, left)

    def _matches(self, left: pa.Table, right: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """The row numbers of both sides that make the rows of the result, null if a side has no row."""
        names = [f"{n}" for n in range(len(self.on))]
        left_keys = left.select([a for a, _ in self.on]).rename_columns(names)
        right_keys = right.select([b for _, b in self.on]).rename_columns(names)
        left_keys = left_keys.append_column(_LEFT, pa.array(np.arange(left.num_rows)))
        right_keys = right_keys.append_column(_RIGHT, pa.array(np.arange(right.num_rows)))
        matches = left_keys.join(right_keys, names, join_type=_ARROW[self.how][0])
        numbers = [name for name in (_LEFT, _RIGHT) if name in matches.column_names]
        matches = matches.select(numbers).sort_by([(name, "ascending") for name in numbers])
        nulls = pa.chunked_array([pa.nulls(0, pa.int64())])
        return tuple(matches.column(n) if n in numbers else nulls for n in (_LEFT, _RIGHT))  # pyright: ignore[reportReturnType]

    def _rows(self, left: pa.Table, right: pa.Table, at_left: Any, at_right: Any) -> pa.Table:
        arrays: list[Any] = []
        for left_name, right_name in self.columns:
            values = left.column(left_name).take(at_left) if left_name is not None else None
            if right_name is not None:
                right_values = right.column(right_name).take(at_right)
                values = right_values if values is None else pc.coalesce(values, right_values)
            arrays.append(values)
        return pa.Table.from_arrays(arrays, schema=self.schema)


class BucketJoin(Results):
    """The join of two scans on the key of their buckets, lazily: `to_arrow`, `to_batches`, `to_pandas`, `to_spark`...

    Each bucket is read, joined and given on its own; a scan's conditions and those of `where` that speak of one side
    rule out its files first.
    """

    _plans = ("_task",)

    def __init__(
        self,
        left: Scan,
        right: Scan,
        *,
        on: On = None,
        how: How = "inner",
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        suffix: str = "_right",
        spark: SparkSession | None = None,
    ) -> None:
        super().__init__(spark)
        if how not in _ARROW:
            raise InvalidOption(f"there is no join {how!r}", hint=f"take one of {', '.join(_ARROW)}")
        self._how: How = how
        self._left, self._right = left, right
        self._side_buckets = buckets_of(left.snapshot), buckets_of(right.snapshot)
        self.buckets = common_count(*self._side_buckets)
        """How many buckets are joined, one after another."""
        self._on = _pairs(on, left.available, right.available, *self._side_buckets)
        self._columns = _result_columns(left, right, self._on, self._how, suffix)
        self._joined = pa.schema([f for f, _, _ in self._columns])
        self._filters: tuple[Condition, ...] = () if where is None else (where,)
        self._predicate = parse_conditions(self._filters, self._joined, zone=left.zone())
        self._requested = self._resolved(self._joined.names if columns is None else columns)

    def where(self, condition: Condition) -> Self:
        """This join restricted to rows that also fulfil a condition over the columns of the result. Raises
        `InvalidOption` for a condition that cannot be parsed."""
        filters = (*self._filters, condition)
        return self._with(_filters=filters, _predicate=parse_conditions(filters, self._joined, zone=self._left.zone()))

    def select(self, *columns: str | Sequence[str]) -> Self:
        """This join with these columns of the result, in this order. Raises `InvalidOption` for a column that the
        result does not have."""
        return self._with(_requested=self._resolved(column_names_of(columns)))

    def _resolved(self, columns: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(resolve_column(name, self._joined).name for name in columns))

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return pa.schema([self._joined.field(name) for name in self._requested])

    @once
    def _task(self) -> JoinTask:
        before_left, before_right, after = self._split()
        needed = {*self._requested, *(after.columns if after else ())}
        result_columns = [c for c in self._columns if c[0].name in needed]
        left_names = [a for _, a, _ in result_columns if a is not None] + [a for a, _ in self._on]
        right_names = [b for _, _, b in result_columns if b is not None] + [b for _, b in self._on]
        left = self._left.narrowed(before_left).of_columns(left_names)
        right = self._right.narrowed(before_right).of_columns(right_names)
        return JoinTask(
            SideRows.of(left, self._side_buckets[0], self.buckets),
            SideRows.of(right, self._side_buckets[1], self.buckets),
            self._on,
            self._how,
            pa.schema([f for f, _, _ in result_columns]),
            tuple((a, b) for _, a, b in result_columns),
            after.to_arrow() if after else None,
            self._requested,
        )

    def _split(self) -> tuple[list[Node], list[Node], Predicate | None]:
        """The conditions on the left rows, the conditions on the right rows, and the predicate on the joined rows, None
        if no condition needs both."""
        if self._predicate is None:
            return [], [], None
        _, left_first, right_first = _ARROW[self._how]
        of_left = {f.name for f, a, _ in self._columns if a == f.name and left_first}
        of_right = {f.name for f, _, b in self._columns if b == f.name and right_first}
        if self._how == "inner":
            of_right |= {a for a, b in self._on if a == b}
        before: tuple[list[Node], list[Node]] = [], []
        joined_conditions: list[Node] = []
        for part in conjuncts(self._predicate.root):
            used = set(columns_of(part))
            sides = [used <= of_left, used <= of_right]
            if not used or not any(sides) or any(isinstance(n, Opaque) for n in walk(part)):
                joined_conditions.append(part)
                continue
            for conditions, fits in zip(before, sides, strict=True):
                if fits:
                    conditions.append(part)
        if not joined_conditions:
            return *before, None
        return *before, self._predicate

    def _storage(self) -> Storage:
        return self._left.snapshot.storage

    def _renew(self) -> bool:
        self.__dict__.pop("_task", None)
        sides = [side._renew() for side in (self._left, self._right)]  # pyright: ignore[reportPrivateUsage]
        return any(sides)

    def _read(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of the join, bucket after bucket."""
        task = self._task
        return chain.from_iterable(task(bucket) for bucket in range(self.buckets))

    def to_spark(self) -> DataFrame:
        """A lazy DataFrame whose tasks join one bucket each, in Python, without a shuffle; on Spark Connect as well."""
        from lakebed.read.spark import frame_of_parts

        storages = (side.snapshot.storage for side in (self._left, self._right))
        # one that is not to tune workers has its way for both
        tuning = self._left.reads.worker_tuning and self._right.reads.worker_tuning
        spark = self._session(*storages)

        def frame() -> DataFrame:
            task = replace(self._task, on_spark=True)
            return frame_of_parts(spark, task, self.buckets, self.schema, tuning=tuning)

        return read_again(self._storage(), frame, self._renew)

    def explain(self) -> Lines:
        """The plan as text: the number of buckets, and the files read from both sides."""
        on = ", ".join(a if a == b else f"{a} = {b}" for a, b in self._on)
        task = self._task
        lines = [f"{self._how} join on {on}, {self.buckets} buckets one after another, no shuffle"]
        for name, side in (("left", task.left), ("right", task.right)):
            counts = [len(bucket_slices) for bucket_slices in side.slices]
            lines.append(
                f"  {name:6} {count_text(sum(counts), 'file slice')}, at most {max(counts, default=0)} a bucket"
            )
        return Lines("\n".join(lines))


def _pairs(
    on: On, left: pa.Schema, right: pa.Schema, left_buckets: Buckets, right_buckets: Buckets
) -> tuple[tuple[str, str], ...]:
    """The pairs of columns that must be equal, among them those of the buckets. Without `on` a join compares the
    columns that decide the bucket whatever texts they hold."""
    choices = [list(zip(a.columns, b.columns, strict=True)) for a, b in equal_columns(left_buckets, right_buckets)]
    if on is None:
        pairs = choices[-1]
    elif isinstance(on, Mapping):
        pairs = [(resolve_column(a, left).name, resolve_column(b, right).name) for a, b in on.items()]
    else:
        names = [on] if isinstance(on, str) else list(on)
        pairs = [(resolve_column(n, left).name, resolve_column(n, right).name) for n in names]
    missing = [[pair for pair in decided if pair not in pairs] for decided in choices]
    if all(missing):
        raise _not_compared(missing[0][0], pairs, left_buckets, right_buckets)
    for a, b in pairs:
        if left.field(a).type != right.field(b).type:
            raise SchemaConflict(
                f"column {a!r} is {left.field(a).type}, {b!r} is {right.field(b).type}",
                hint="columns that a join compares need one type",
                context={"left": a, "right": b},
            )
    return tuple(pairs)


def _not_compared(
    pair: tuple[str, str], pairs: Sequence[tuple[str, str]], left_buckets: Buckets, right_buckets: Buckets
) -> InvalidOption:
    fault = f"the join does not compare {pair[0]!r} with {pair[1]!r}"
    context = {"on": [list(pair) for pair in pairs]}
    alternative = "or join t.scan().to_spark() or to_arrow() of both"
    unsure = next((side for side in (left_buckets, right_buckets) if side.unsure), None)
    is_unhashed = pair[0] not in left_buckets.hash_fields and pair[1] not in right_buckets.hash_fields
    if unsure is not None and is_unhashed:
        count, hashed = count_text(unsure.unsure, "file slice"), ", ".join(unsure.hash_fields)
        return InvalidOption(
            f"{fault}: {count} of table {unsure.table!r} may hold texts with a comma and a colon there, in which Hudi's"
            f" hash of {hashed} finds other values, so that equal rows are in any bucket",
            hint=f"join on the whole key, {alternative}; files that lakebed writes record whether they hold such texts",
            context={**context, "table": unsure.table, "file_slices": unsure.unsure},
        )
    return InvalidOption(
        f"{fault}, by which both tables are bucketed",
        hint=f"rows of other keys are in any bucket; join on the bucket key (and more, if you like), {alternative}",
        context=context,
    )


def _result_columns(
    left: Scan, right: Scan, on: Sequence[tuple[str, str]], how: How, suffix: str
) -> list[tuple[pa.Field, str | None, str | None]]:
    """The columns of the result, each as its field, its column of the left side and its column of the right side (None
    if it has none): first the left columns, then the right columns that are not compared under the same name. A right
    name that the left side also has gets the suffix."""
    partner = dict(on)
    left_fields = [f for f in left.available if f.name in left.column_names]
    outer = how in ("right", "full")
    columns: list[tuple[pa.Field, str | None, str | None]] = []
    for field in left_fields:
        shared = partner.get(field.name) if partner.get(field.name) == field.name and outer else None
        columns.append((pa.field(field.name, field.type), field.name, shared))
    if how in ("semi", "anti"):
        return columns
    used_names = {f.name for f in left_fields}
    for field in right.available:
        if field.name not in right.column_names or (field.name, field.name) in on:
            continue
        name = field.name
        while name in used_names:
            name += suffix or "_right"
        used_names.add(name)
        columns.append((pa.field(name, field.type), None, field.name))
    return columns
