"""MERGE and UPDATE: which path a statement takes, and the two kinds of writes that carry it out.

- By key: each key field is equated with a value of the source. There is no join: source rows go to the file groups of
  their keys, as those of an upsert do, and the clauses run in the write tasks (`lakebed.handles.matched`).
- By join: any other condition, and clauses for rows that no source row matched. The columns that are needed are read
  and joined (`lakebed.operations.merge_join`), and what the clauses make is written as an upsert.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.arrow_data import arrow_rows
from lakebed.engine.base import Rows, Task, cluster_of
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption, UnsupportedFeature
from lakebed.expressions.base import Column, RowExpression, quote_name
from lakebed.filters.pairs import Equality, PairExpression, Side
from lakebed.handles.matched import KeyedClauses
from lakebed.inputs.base import RowSource
from lakebed.merge.clauses import check_unambiguous, evaluate
from lakebed.merge.locations import IsNull
from lakebed.merge.row_checks import RowChecks
from lakebed.model import ALL_META_COLUMNS, FILE_ID, RECORD_KEY
from lakebed.operations.checks import row_checks
from lakebed.operations.context import TableSchema, WriteContext, keyed_by_meta, table_schema
from lakebed.operations.merge_join import MergeJoin
from lakebed.operations.merge_statement import (
    BoundMerge,
    MergeStatement,
    arrow_of,
    bind,
    key_equalities,
)
from lakebed.operations.pipeline import Verb, admit, explain, run
from lakebed.operations.placement import Placed, TaggedRows, placed
from lakebed.operations.result import WriteResult
from lakebed.operations.write import RowMatch, Write, derive_keys
from lakebed.schema.arrow import normalise, normalise_batch
from lakebed.schema.conversion import cast_column
from lakebed.schema.evolution import reconcile, with_new_fields
from lakebed.schema.plain_arrow import one_array
from lakebed.schema.spark import spark_type
from lakebed.slices.snapshot import Snapshot
from lakebed.wording import Lines
from lakebed.write_status import WriteStatus

_MATCH = RowMatch("keys", combine=False)


@dataclass(frozen=True, repr=False)
class MergeResult(WriteResult):
    """The outcome of a merge or an update: a `WriteResult` with the number of rows that each clause acted on.

    `clauses` has the clauses in their order, each with its rows; `path` is how rows were matched, "key" or "join".
    `rows`, `inserted`, `updated` and `deleted` count the rows that clauses acted on. A merge that is an upsert looks no
    key up where rows are appended to log files of buckets: the counts are None there.

    >>> import lakebed
    >>> t = lakebed.create("memory://docs/merged", {"id": [1, 2], "n": [1, 1]}, key="id")
    >>> _ = t.upsert({"id": [1, 2], "n": [1, 1]})
    >>> done = t.merge({"id": [2, 3], "n": [5, 5]}).when_matched_update().when_not_matched_insert().execute()
    >>> done.clauses, done.path
    ((('when_matched_update', 1), ('when_not_matched_insert', 1)), 'key')
    """

    clauses: tuple[tuple[str, int | None], ...] = ()
    path: str = "key"

    def to_dict(self) -> dict[str, Any]:
        counted = [{"clause": name, "rows": rows} for name, rows in self.clauses]
        return {**super().to_dict(), "clauses": counted, "path": self.path}


def merge(context: WriteContext, source: Any, statement: MergeStatement) -> MergeResult:
    """Run a merge; `source` is the caller's data."""
    context, verb = _fitting(context, source, statement)
    result = run(context, verb)
    return verb.result(result)


def explain_merge(context: WriteContext, source: Any, statement: MergeStatement) -> Lines:
    """The plan of the merge as text: whether it runs by key or by join and why, its columns and files. Nothing is
    written."""
    context, verb = _fitting(context, source, statement)
    bound = verb.bound
    reads = bound.read_columns if isinstance(verb, MergeByKey) else verb.join.read_columns
    lines = [
        f"merge into table {context.config.name!r} by {verb.path}: {verb.reason}",
        f"  engine      {context.engine.name}" + (f" ({context.engine.note})" if context.engine.note else ""),
        f"  reads       {_listed(reads)} of the table, {_listed(bound.source_columns)} of the source",
        f"  writes      {_listed(verb.written_columns)}",
    ]
    if isinstance(verb, MergeByKey):
        lines += [f"  {line}" for line in str(explain(context, verb)).splitlines()]
    else:
        scan = verb.join.stored_rows(context, context.opened)
        lines += [f"  {line}" for line in str(scan.explain()).splitlines()]
    return Lines("\n".join(lines))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "no column"


def _fitting(
    context: WriteContext, source: Any, statement: MergeStatement
) -> tuple[WriteContext, MergeByKey | MergeByJoin]:
    """The merge, and the context with an engine that evaluates its expressions: if there is a session Spark's for those
    that only Spark knows, although the source is small."""
    from lakebed.operations.hudi_job import session_engine

    verb = _verb(context, source, statement)
    if verb.bound.spark_only is None or context.engine.is_distributed or context.spark is None:
        return context, verb
    context = replace(context, engine=session_engine(context.spark, context.options.read))
    return context, _verb(context, source, statement)


def _verb(context: WriteContext, source: Any, statement: MergeStatement) -> MergeByKey | MergeByJoin:
    admit(context, "upsert")
    keyed_by_meta(context, "merge")
    _check_rules(context, statement)
    rows, columns = _source_rows(context, source)
    schema = _schema_after(context, statement, columns)
    bound = bind(context, statement, columns, schema.data)
    equal, reason = _by_key(context, bound)
    if equal is not None:
        assert bound.on is not None
        bound = replace(bound, on=bound.on.of_equalities(tuple(equal.values())))
        return MergeByKey(
            operation="UPSERT", match=_MATCH, bound=bound, after=schema, rows=rows, equal=equal, reason=reason
        )
    join = MergeJoin(bound, rows)
    return MergeByJoin(operation="UPSERT", match=_MATCH, bound=bound, after=schema, join=join, reason=reason)


def _check_rules(context: WriteContext, statement: MergeStatement) -> None:
    """Raise `UnsupportedFeature` for a table whose files lack the partition columns, and for an update of a table whose
    merge mode combines two rows of a key into a third: an update writes complete rows, so one of the two must win."""
    rules = context.rules
    if context.config.drop_partition_columns:
        raise UnsupportedFeature(
            f"table {context.config.name!r} leaves partition columns out of its files, so a merge or an update does not"
            " have them",
            hint="upsert rows with all columns; `delete` takes a condition on them",
            context={"feature": "merge into a table whose files lack partition columns"},
        )
    if any(clause.action == "update" for clause in statement.clauses) and not rules.picks_winners:
        how = "by a merger of the user's" if rules.merger is not None else f"field by field ({rules.partial})"
        raise UnsupportedFeature(
            f"table {context.config.name!r} merges rows {how}: what an update sets would be merged once more",
            hint="upsert the rows, or merge into a table that orders rows by event time or commit time",
            context={"feature": "merge into a table with partial updates"},
        )


def _source_rows(context: WriteContext, source: Any) -> tuple[Rows | None, pa.Schema]:
    """The source's rows, with its columns under the names that pairs have for them (None without a source), and the
    columns under the source's own names."""
    if source is None:
        return None, pa.schema([])
    engine = context.engine
    cluster = cluster_of(source)
    if cluster is not None and cluster != "spark":
        raise UnsupportedFeature(
            f"a merge takes no rows of {cluster.capitalize()}",
            hint="upsert them, or delete by them; a merge takes a Spark DataFrame, and rows of this process: collect"
            " them into pandas first",
            context={"feature": "merge"},
        )
    types = {f.name: f.type for f in context.opened.schema}
    data = arrow_rows(source, {name.lower(): kind for name, kind in types.items()} | types)
    rows = engine.rows(data.table() if isinstance(data, RowSource) else data)  # the rows are read several times
    schema = engine.schema(rows)
    schema = pa.schema([f for f in schema if f.name not in ALL_META_COLUMNS])
    doubled = {n for n in schema.names if [m.lower() for m in schema.names].count(n.lower()) > 1}
    if doubled:
        raise InvalidOption(f"the source has columns that differ in case alone: {', '.join(sorted(doubled))}")
    untyped = {f.name: types.get(f.name, pa.string()) for f in schema if pa.types.is_null(f.type)}
    columns = normalise(pa.schema([f.with_type(untyped.get(f.name, f.type)) for f in schema]))
    side = Side.source(columns)
    named: dict[str, RowExpression] = {side.field(f.name): _Normal(f.name, f.type) for f in columns}
    return engine.derive(rows, named, keep=[]), columns


@dataclass(frozen=True, slots=True)
class _Normal:
    """A column of the source in the type that a table would have for it."""

    name: str
    kind: pa.DataType

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def sql(self, schema: pa.Schema) -> str:
        column = Column(self.name).sql(schema)
        is_null = pa.types.is_null(schema.field(self.name).type)
        return f"CAST({column} AS {spark_type(self.kind)})" if is_null else column

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(batch.schema.get_field_index(self.name))
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), self.kind)
        column_batch = pa.RecordBatch.from_arrays([column], names=[self.name])
        return normalise_batch(column_batch, pa.schema([(self.name, self.kind)])).column(0)


def _schema_after(context: WriteContext, statement: MergeStatement, source: pa.Schema) -> TableSchema:
    """The table's columns after the merge; with evolution also the new columns of the source, including those inside
    structs."""
    current = context.opened.schema
    if not statement.evolves:
        return table_schema(context, context.opened, current)
    source_fields = {f.name.lower(): f for f in source}
    current_fields = [f.with_type(with_new_fields(f.type, source_fields.get(f.name.lower(), f).type)) for f in current]
    names = {name.lower() for name in current.names}
    new = [f.with_nullable(True) for f in source if f.name.lower() not in names]
    reconciled = reconcile(
        current, pa.schema([*current_fields, *new]), missing="null", evolution=context.settings.evolution
    )
    return table_schema(context, context.opened, reconciled)


def _by_key(context: WriteContext, bound: BoundMerge) -> tuple[dict[str, Equality] | None, str]:
    """The equality of each field that determines a row's location if the merge can run by key, otherwise None; and the
    reason."""
    statement, keys = bound.statement, context.keys
    if statement.by_source:
        return None, "a clause is for rows that no source row matched"
    stored = bound.stored
    if not set(keys.key_fields) <= set(stored.names):
        return None, "a key field is inside a struct"
    if (only := bound.spark_only) is not None:
        return None, f"{only.text!r} runs on Spark only ({only.reason})"
    fields_ = [*keys.key_fields, *(name for name in keys.partition_fields if name not in keys.key_fields)]
    equal = key_equalities(bound.on, fields_, stored)
    if equal is None and context.index.is_global:
        fields_ = list(keys.key_fields)
        equal = key_equalities(bound.on, fields_, stored)
    if equal is None:
        field_kind = "key field" if fields_ == list(keys.key_fields) else "key and partition field"
        return (
            None,
            f"the join condition does not equate each {field_kind} ({', '.join(fields_)}) with a value of the source",
        )
    if (odd := next((e.condition for e in equal.values() if e.condition.arrow is None), None)) is not None:
        return None, f"{odd.text!r} runs on Spark only ({odd.reason})"
    for clause in bound.inserts:
        for name in fields_:
            if clause.values[name].spark != equal[name].value.spark:
                return None, f"{clause.text.name} gives {name} another value than the join condition compares"
    for clause in bound.updates:
        if clause.keys_of_all:
            name = clause.keys_of_all[0]
            return None, f"{clause.text.name} sets {name} to another value than the join condition compares"
        for name in keys.partition_fields:
            stays = name in equal and clause.values.get(name, equal[name].value).spark == equal[name].value.spark
            if name in clause.values and not stays:
                return None, "an update sets a partition column"
    if any(name not in equal for name in keys.partition_fields):
        return None, "rows of new keys may belong into other partition paths"
    return equal, "each key field is equated with a value of the source, so rows go where their keys are"


@dataclass(frozen=True, slots=True)
class _SourceValue:
    """The value of an expression over the source, in the type of the column that it is compared with."""

    value: PairExpression
    kind: pa.DataType

    @property
    def columns(self) -> tuple[str, ...]:
        side = Side.source(pa.schema([]))
        return tuple(side.field(name) for name in self.value.source)

    def sql(self, schema: pa.Schema) -> str:
        return f"CAST({self.value.spark_enclosed} AS {spark_type(self.kind)})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        (values,) = evaluate(pa.Table.from_batches([batch]), [arrow_of(self.value)])
        return cast_column(values, self.kind)


@dataclass(frozen=True, slots=True)
class _MayMatter:
    """Whether a source row has one of the key fields (always true if none are named) and all `required` ones, or would
    be inserted without them; the write then refuses such a row."""

    fields: tuple[str, ...]
    required: tuple[str, ...]
    inserts: tuple[PairExpression | None, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        side = Side.source(pa.schema([]))
        named = [side.field(name) for e in self.inserts if e is not None for name in e.source]
        return (*self.fields, *named)

    def sql(self, schema: pa.Schema) -> str:
        has_key = "false"
        if self.fields:
            has_one = " OR ".join(f"{quote_name(name)} IS NOT NULL" for name in self.fields)
            has_key = " AND ".join([f"({has_one})", *(f"{quote_name(name)} IS NOT NULL" for name in self.required)])
        inserts = [f"coalesce({e.spark_enclosed}, false)" if e is not None else "true" for e in self.inserts]
        return " OR ".join([f"({has_key})", *inserts])

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        matters = pa.repeat(pa.scalar(False), batch.num_rows)
        for name in self.fields:
            matters = pc.or_(matters, pc.is_valid(batch.column(name)))
        for name in self.required:
            matters = pc.and_(matters, pc.is_valid(batch.column(name)))
        for condition in self.inserts:
            if condition is None:
                return pa.repeat(pa.scalar(True), batch.num_rows)
            (holds,) = evaluate(pa.Table.from_batches([batch]), [arrow_of(condition)])
            matters = pc.or_(matters, pc.fill_null(holds, False))
        return matters


@dataclass(frozen=True, kw_only=True)
class _Merge(Verb):
    """The common part of merges by key and merges by join."""

    bound: BoundMerge
    after: TableSchema
    reason: str
    repeatable: bool = False

    path = ""

    def schema(self, context: WriteContext, snapshot: Snapshot) -> TableSchema:
        if not snapshot.schema.equals(self.bound.stored):
            raise CommitConflict(
                f"another writer has changed the columns of table {context.config.name!r} since this merge was planned",
                hint="Nothing of this merge is visible. Run it again: it will start from the new columns.",
                context={"table": context.config.name},
                kind=ConflictKind.SCHEMA,
            )
        return self.after

    def checks(self, context: WriteContext, schema: TableSchema) -> RowChecks | None:
        """The checks that stop the merge; those that only warn are left to writes of rows."""
        changed = frozenset(self.bound.set_columns)
        checks = row_checks(context, schema.data, self.absent(context, schema), changed)
        if checks is None:
            return None
        return replace(checks, checks=tuple(check for check in checks.checks if check.check.on_failure != "warn"))

    @property
    def written_columns(self) -> tuple[str, ...]:
        """The columns that are given values."""
        if self.bound.inserts:
            return tuple(self.bound.schema.names)
        return self.bound.set_columns

    def counted(self, result: WriteResult, counts: Sequence[int]) -> MergeResult:
        """The result with the rows of each clause."""
        clauses = self.bound.statement.clauses
        by_action = {"insert": 0, "update": 0, "delete": 0}
        for clause, rows in zip(clauses, counts, strict=True):
            by_action[clause.action] += rows
        return self.named(
            result,
            counts,
            rows=sum(counts),
            inserted=by_action["insert"],
            updated=by_action["update"],
            deleted=by_action["delete"],
        )

    def named(self, result: WriteResult, counts: Sequence[int | None], **changed: int) -> MergeResult:
        """The result of a merge: the result of its write with the operation, the counts of clauses and the values in
        `changed`."""
        values: dict[str, Any] = {f.name: getattr(result, f.name) for f in fields(result)} | changed
        values["operation"] = "merge" if self.bound.on is not None else "update"
        clauses = zip((clause.name for clause in self.bound.statement.clauses), counts, strict=True)
        return MergeResult(**values, clauses=tuple(clauses), path=self.path)


@dataclass(frozen=True, kw_only=True)
class MergeByKey(_Merge):
    """A merge whose source rows are sent to the file groups of their keys. `equal` has the value of each field that
    determines a row's location."""

    rows: Rows
    equal: Mapping[str, Equality]
    counts: list[int] = field(default_factory=list[int])

    path = "key"

    def prepare(self, write: Write) -> Rows:
        context, engine = write.context, write.context.engine
        bound, schema = self.bound, write.schema.data
        side = bound.reader.source
        needed = [side.field(name) for name in bound.source_columns]
        values: dict[str, RowExpression] = {
            name: _SourceValue(equality.value, schema.field(name).type) for name, equality in self.equal.items()
        }
        rows = engine.derive(self.rows, values, keep=needed)
        inserts = tuple(clause.condition for clause in bound.inserts)
        keys = tuple(context.keys.key_fields)
        required = tuple(name for name in keys if not self.equal[name].null_safe)
        rows = engine.filter(rows, _MayMatter(keys, required, inserts))
        return derive_keys(context, rows, engine.schema(rows), keep=[*values, *needed])

    @contextmanager
    def place(self, write: Write, prepared: Rows) -> Generator[Placed]:
        self.counts[:] = [0] * len(self.bound.clauses)
        names = [*self.equal, *(self.bound.reader.source.field(n) for n in self.bound.source_columns)]
        present, on = write.context.engine.schema(prepared), self.bound.on
        stays = {*write.context.rules.ordering_columns, *self.equal, *self.bound.updated_columns}
        clauses = KeyedClauses(
            clauses=self.bound.compiled([name for name in write.schema.data.names if name in stays]),
            source=pa.schema([present.field(name).with_nullable(True) for name in names]),
            key_fields=tuple(self.equal),
            on=reduce(and_, map(arrow_of, on.others)) if on and on.others else None,
            read=self.bound.read_columns,
            equal={name: arrow_of(equality.condition) for name, equality in self.equal.items()},
            determines_values=self._tells_values,
            is_upsert=self.bound.is_upsert,
        )
        with placed(replace(write, clauses=clauses, reveals=True), prepared) as rows:
            if write.context.index.is_global and isinstance(rows, TaggedRows):
                self._refuse_repeated_inserts(write, rows)
            yield rows

    @property
    def _tells_values(self) -> bool:
        """Whether equal texts of keys and partition paths mean equal values, except for a few texts."""
        context, stored = self.bound.context, self.bound.stored
        keys = context.keys
        by_path = context.keys.partition_path.determines_values(stored) and not context.index.is_global
        return keys.determines_keys(stored) and (by_path or not set(self.equal) - set(keys.key_fields))

    def _refuse_repeated_inserts(self, write: Write, rows: TaggedRows) -> None:
        """Raise `AmbiguousMerge` if source rows with one new key are in several partition paths, and would insert the
        key more than once."""
        inserts = tuple(clause.condition for clause in self.bound.inserts)
        if not inserts or not write.context.keys.partition_fields:
            return
        engine = write.context.engine
        new = engine.filter(engine.filter(rows.tagged, IsNull(FILE_ID)), _MayMatter((), (), inserts))
        named = engine.derive(new, {}, keep=[RECORD_KEY])
        twice = engine.collect(engine.head(engine.map_by_key(named, RECORD_KEY, _repeated), _EXAMPLES))
        keys = one_array(twice.column(RECORD_KEY)).drop_null()
        check_unambiguous(keys, np.full(len(keys), "insert"))

    def noted(self, statuses: Sequence[WriteStatus]) -> None:
        """Record the counts that the tasks returned."""
        for status in statuses:
            for number, rows in enumerate(status.clauses or ()):
                self.counts[number] += rows

    def result(self, result: WriteResult) -> MergeResult:
        if not self.bound.is_upsert or not self._tells_values:
            return self.counted(result, self.counts)
        by_action = {"update": result.updated, "insert": result.inserted}
        return self.named(result, [by_action[clause.action] for clause in self.bound.statement.clauses])


# At most this many keys that would be inserted several times are named.
_EXAMPLES = 100


def _repeated(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    """The rows whose key occurs more than once in the batches."""
    parts = list(batches)
    if not parts:
        return
    rows = pa.Table.from_batches(parts)
    counts = rows.group_by(RECORD_KEY).aggregate([([], "count_all")])
    several = counts.filter(pc.greater(counts["count_all"], 1))
    yield from rows.filter(pc.is_in(rows[RECORD_KEY], value_set=one_array(several[RECORD_KEY]))).to_batches()


@dataclass(frozen=True, kw_only=True)
class MergeByJoin(_Merge):
    """A merge whose rows a join matched: it writes the rows that the clauses made of the pairs."""

    join: MergeJoin

    path = "join"

    def absent(self, context: WriteContext, schema: TableSchema) -> tuple[str, ...]:
        return self.join.absent

    def prepare(self, write: Write) -> Rows:
        try:
            return self.join.prepare(write)
        except BaseException:
            self._release(write)
            raise

    @contextmanager
    def place(self, write: Write, prepared: Rows) -> Generator[Placed]:
        try:
            with placed(replace(write, reveals=True), prepared) as rows:
                yield rows
        finally:
            self._release(write)

    def _release(self, write: Write) -> None:
        while self.join.cached:
            write.context.engine.release(self.join.cached.pop())

    def result(self, result: WriteResult) -> MergeResult:
        return self.counted(result, self.join.counts)
