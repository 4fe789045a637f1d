"""Row expressions for locations: the location in a stored file name, and which rows move to another partition path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expressions.base import Column, Constant, RowExpression, columns_of, sql_literal
from lakebed.expressions.bucket import java_hash_sql
from lakebed.expressions.key_text import KeyText
from lakebed.format.hashes import record_index_shard
from lakebed.merge.rules import MergeRules
from lakebed.model import DELETE, FILE_ID, FILE_NAME, INSTANT, IS_DELETED_COLUMN
from lakebed.schema.evolution import cast_column, spark_projection


@dataclass(frozen=True, slots=True)
class FileIdOf:
    """The file id in a stored base file name: the text before the first `_`."""

    column: str = FILE_NAME

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def sql(self, schema: pa.Schema) -> str:
        return f"substring_index({Column(self.column).sql(schema)}, '_', 1)"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return _by_value(batch.column(self.column), lambda names: _part(pc.split_pattern(names, "_", max_splits=1), 0))


@dataclass(frozen=True, slots=True)
class InstantOf:
    """The instant in a stored base file name: the text between its last `_` and the dot after it."""

    column: str = FILE_NAME

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def sql(self, schema: pa.Schema) -> str:
        return f"substring_index(substring_index({Column(self.column).sql(schema)}, '_', -1), '.', 1)"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return _by_value(batch.column(self.column), _instants)


STORED_LOCATION: Mapping[str, RowExpression] = {FILE_ID: FileIdOf(), INSTANT: InstantOf()}
"""Where a stored row is, by the file name in its meta columns."""
NO_LOCATION: Mapping[str, RowExpression] = {FILE_ID: Constant(None), INSTANT: Constant(None)}
"""The location of a row whose key is new, or was not looked up."""


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is null."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def sql(self, schema: pa.Schema) -> str:
        return f"{Column(self.column).sql(schema)} IS NULL"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.is_null(batch.column(self.column))


@dataclass(frozen=True, slots=True)
class Either:
    """Whether one of two conditions, which are never null, is true."""

    first: RowExpression
    other: RowExpression

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of([self.first, self.other])

    def sql(self, schema: pa.Schema) -> str:
        return f"({self.first.sql(schema)} OR {self.other.sql(schema)})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.or_(self.first.arrow(batch), self.other.arrow(batch))


@dataclass(frozen=True, slots=True)
class Not:
    """Whether a condition, which is never null, does not hold."""

    condition: RowExpression

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of([self.condition])

    def sql(self, schema: pa.Schema) -> str:
        return f"(NOT {self.condition.sql(schema)})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.invert(self.condition.arrow(batch))


@dataclass(frozen=True, slots=True)
class IsNotNull:
    """Whether a column has a value."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def sql(self, schema: pa.Schema) -> str:
        return f"{Column(self.column).sql(schema)} IS NOT NULL"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.is_valid(batch.column(self.column))


@dataclass(frozen=True, slots=True)
class BooleanLiteral:
    """An expression that is True, or False, for every row."""

    value: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def sql(self, schema: pa.Schema) -> str:
        return "true" if self.value else "false"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pa.repeat(pa.scalar(self.value, pa.bool_()), batch.num_rows)


@dataclass(frozen=True, slots=True)
class Zero:
    """An expression that is 0 for every row."""

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def sql(self, schema: pa.Schema) -> str:
        return "0L"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first of several columns that is not null."""

    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    def sql(self, schema: pa.Schema) -> str:
        return f"coalesce({', '.join(Column(n).sql(schema) for n in self.names)})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.coalesce(*[batch.column(n) for n in self.names])


@dataclass(frozen=True, slots=True)
class Case:
    """`then` (or null) where the boolean column `condition` is true, `other` where it is false or null."""

    condition: str
    other: RowExpression
    then: RowExpression | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of([Column(self.condition), self.other, *([self.then] if self.then else [])])

    def sql(self, schema: pa.Schema) -> str:
        then = self.then.sql(schema) if self.then else "NULL"
        return f"CASE WHEN {Column(self.condition).sql(schema)} THEN {then} ELSE {self.other.sql(schema)} END"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        other_values = self.other.arrow(batch)
        then = self.then.arrow(batch) if self.then else pa.nulls(batch.num_rows, other_values.type)
        return pc.if_else(pc.fill_null(batch.column(self.condition), False), then, other_values)


@dataclass(frozen=True, slots=True)
class Differ:
    """Whether two text columns have different values; false where one is null."""

    column: str
    other: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.other)

    def sql(self, schema: pa.Schema) -> str:
        return f"coalesce({Column(self.column).sql(schema)} != {Column(self.other).sql(schema)}, false)"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.fill_null(pc.not_equal(batch.column(self.column), batch.column(self.other)), False)


@dataclass(frozen=True, slots=True)
class ShardOf:
    """The number (int32) of the file group of each record key in a record index of `shards` file groups."""

    column: str
    shards: int

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def sql(self, schema: pa.Schema) -> str:
        return f"CAST(abs({java_hash_sql(Column(self.column).sql(schema))}) % {self.shards} AS INT)"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return self.of_texts(batch.column(self.column))

    @property
    def hashed(self) -> RowExpression:
        return Column(self.column)

    def of_texts(self, texts: pa.Array) -> pa.Array:
        return pa.array(record_index_shard(texts, self.shards))


@dataclass(frozen=True, slots=True)
class Promoted:
    """A stored column in the table's present type; null if the file does not have the column."""

    column: str
    stored: pa.DataType | None
    type: pa.DataType

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.stored is None else (self.column,)

    def sql(self, schema: pa.Schema) -> str:
        stored = pa.schema([] if self.stored is None else [(self.column, self.stored)])
        return spark_projection(stored, pa.schema([(self.column, self.type)]))[0]

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        if self.stored is None:
            return pa.nulls(batch.num_rows, self.type)
        return cast_column(batch.column(self.column), self.type)


@dataclass(frozen=True, slots=True)
class Moves:
    """Whether a row leaves the partition path `old` in which its key is stored.

    It does if it names another one (a null names none), is no delete, and wins over the stored row by the ordering
    values in the columns `stored`, one for each ordering field (none: the later row always wins).
    """

    partition: str
    old: str
    rules: MergeRules
    stored: tuple[str, ...]
    deletes: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.partition, self.old, *self.ordering, *self.stored, *self.deletes)

    @property
    def ordering(self) -> tuple[str, ...]:
        return self.rules.ordering if self.stored else ()

    def sql(self, schema: pa.Schema) -> str:
        old, new = Column(self.old).sql(schema), Column(self.partition).sql(schema)
        terms = [f"coalesce({old} != {new}, false)"]
        terms += [f"NOT coalesce({text}, false)" for text in self._delete_sql(schema)]
        if self.stored:
            terms.append(self.wins_sql(schema))
        return " AND ".join(terms)

    def wins_sql(self, schema: pa.Schema) -> str:
        """Whether the row's ordering values are not lower than the stored ones."""
        pairs = [
            (Column(n).sql(schema), Column(s).sql(schema)) for n, s in zip(self.ordering, self.stored, strict=True)
        ]
        if self.rules.file_positions:
            pairs = [(_part_sql(new, at), _part_sql(old, at)) for new, old in pairs for at in (1, -1)]
        return f"({_wins_sql(pairs)})" if pairs else "true"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        old, new = batch.column(self.old), batch.column(self.partition)
        result = pc.fill_null(pc.not_equal(old, new), False)
        if DELETE in self.deletes:
            result = pc.and_not(result, pc.fill_null(batch.column(DELETE), False))
        marked = self.rules.is_delete(batch.select(list(self.deletes)))
        if marked is not None:
            result = pc.and_not(result, marked)
        if self.stored:
            stored, incoming = ([Column(n).arrow(batch) for n in names] for names in (self.stored, self.ordering))
            result = pc.and_(result, self.rules.newer_wins(stored, incoming))
        return result

    def _delete_sql(self, schema: pa.Schema) -> list[str]:
        texts: list[str] = []
        for name in self.deletes:
            if name in (DELETE, IS_DELETED_COLUMN):
                texts.append(f"CAST({Column(name).sql(schema)} AS BOOLEAN)")
            else:
                texts.append(f"{KeyText(name).sql(schema)} = {sql_literal(self.rules.delete_marker or '')}")
        return texts


def delete_columns(names: Sequence[str], rules: MergeRules) -> tuple[str, ...]:
    """The rows' columns that can mark a row as a delete."""
    markers = (DELETE, IS_DELETED_COLUMN, rules.delete_field)
    return tuple(n for n in names if n in markers)


def _wins_sql(pairs: Sequence[tuple[str, str]]) -> str:
    """Spark SQL of the lexicographic comparison `new >= old`; a null is smaller than any value."""
    (new, old), *later_pairs = pairs
    greater = f"coalesce({new} > {old}, {new} IS NOT NULL AND {old} IS NULL)"
    tail = f" AND ({_wins_sql(later_pairs)})" if later_pairs else ""
    return f"{greater} OR ({new} <=> {old}{tail})"


def _part_sql(text: str, at: int) -> str:
    """The file number (1) or the position (-1) of an ordering value `<file number>.<position>`."""
    return f"CAST(substring_index({text}, '.', {at}) AS BIGINT)"


def _by_value(names: pa.Array, fn: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """A function of few distinct texts, computed once for each."""
    encoded = names if pa.types.is_dictionary(names.type) else names.dictionary_encode()
    return fn(encoded.dictionary.cast(pa.string())).take(encoded.indices)


def _instants(names: pa.Array) -> pa.Array:
    tail = _part(pc.split_pattern(names, "_", max_splits=1, reverse=True), -1)
    return _part(pc.split_pattern(tail, ".", max_splits=1), 0)


def _part(lists: pa.Array, at: int) -> pa.Array:
    """The first (0) or last (-1) element of each list."""
    offsets = lists.offsets
    indices = offsets[:-1] if at == 0 else pc.subtract(offsets[1:], pa.scalar(1, offsets.type))
    return lists.values.take(indices)
