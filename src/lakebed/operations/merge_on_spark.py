"""A merge by join on Spark: the source and the stored rows as one DataFrame of pairs, the clauses as Spark's SQL.

Texts of conditions and values reach Spark as they were written, with their columns bound to one side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.engine.base import Rows, Task
from lakebed.engine.spark import join_on
from lakebed.expressions.base import Column
from lakebed.filters.generated import GeneratedColumn
from lakebed.filters.text import quote_name
from lakebed.handles.matched import older_row, refuse_repeated_keys, refuse_stored_keys
from lakebed.merge.clauses import check_unambiguous
from lakebed.model import DELETE, DERIVED, PARTITION_PATH, RECORD_KEY
from lakebed.operations.merge_join import (
    STORED_PATH,
    changed_key,
    moves_of,
    refuse_moves,
    stored_among,
    stored_ordering,
)
from lakebed.operations.write import Write, derive_keys, renumbered
from lakebed.schema.assignment import SQL, check_fits, in_column
from lakebed.schema.plain_arrow import as_numpy
from lakebed.schema.spark import read_by_spark, spark_cast, spark_null, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.operations.merge_join import MergeJoin

CLAUSE, IS_STORED, IS_GIVEN, VALUE = (f"{DERIVED}{name}" for name in ("clause", "is_stored", "is_given", "value_"))
STORED_KEY = f"{DERIVED}held_key"
# At most this many keys on which several source rows act are examined.
_EXAMPLES = 100


class SparkMerge:
    """One merge by join on Spark."""

    def __init__(self, join: MergeJoin, write: Write) -> None:
        self._join = join
        self._write = write
        self._bound = join.bound
        self._engine = write.context.engine

    def prepare(self) -> Rows:
        """The rows to write, with record key and partition path. Runs the join once, and counts its rows."""
        pairs = self._acting()
        kinds = self._types(pairs)
        pairs = self._engine.persist(pairs)
        self._join.cached.append(pairs)
        counts = [0] * len(self._bound.clauses)
        for row in self._engine.aggregate(self._acts(pairs), [CLAUSE]).to_pylist():
            counts[row[CLAUSE]] = row["rows"]
        self._join.counts[:] = counts
        self._check_unambiguous(pairs)
        self._check_keys(pairs)
        # a clause may set values that differ each time
        rows = self._engine.repeatable(self._rows(pairs, kinds))
        self._join.cached.append(rows)
        return self._keyed(rows)

    def _pairs(self) -> DataFrame:
        """All pairs of rows that a clause may change."""
        join, bound = self._join, self._bound
        side = bound.reader.target
        stored = join.stored_rows(self._write.context, self._write.snapshot).to_spark()
        named = [
            f"{quote_name(n)} AS {quote_name(n if n in (RECORD_KEY, PARTITION_PATH) else side.field(n))}"
            for n in stored.columns
        ]
        stored = stored.selectExpr(*named, f"true AS {IS_STORED}")
        if join.rows is None or bound.on is None:
            return stored.selectExpr("*", f"CAST(NULL AS BOOLEAN) AS {IS_GIVEN}")
        source_rows = join.rows.selectExpr("*", f"true AS {IS_GIVEN}")
        conditions = (*(equality.condition for equality in bound.on.equalities), *bound.on.others)
        on = " AND ".join(condition.spark_enclosed for condition in conditions)
        hows = {(False, False): "inner", (True, False): "left_outer", (False, True): "right_outer"}
        how = hows.get((bool(bound.inserts), bool(bound.statement.by_source)), "full_outer")
        return join_on(source_rows, stored, on, how)

    def _acting(self) -> DataFrame:
        """The pairs that a clause acts on, with its number."""
        whens = {
            "matched": f"{IS_STORED} AND {IS_GIVEN}",
            "not_matched": f"{IS_STORED} IS NULL",
            "not_matched_by_source": f"{IS_GIVEN} IS NULL",
        }
        cases = [
            f"WHEN {whens[clause.text.when]}"
            + (f" AND coalesce({clause.condition.spark_enclosed}, false)" if clause.condition is not None else "")
            + f" THEN {number}"
            for number, clause in enumerate(self._bound.clauses)
        ]
        number = f"CASE {' '.join(cases)} END AS {CLAUSE}"
        return self._pairs().selectExpr("*", number).filter(f"{CLAUSE} IS NOT NULL")

    def _acts(self, pairs: DataFrame) -> DataFrame:
        """The clause of each pair; if several source rows delete a row, only one of the pairs."""
        deletes = [str(n) for n, clause in enumerate(self._bound.clauses) if clause.text.action == "delete"]
        if not deletes:
            return pairs
        is_delete = f"{CLAUSE} IN ({', '.join(deletes)})"
        keys = [RECORD_KEY, PARTITION_PATH]
        deleted = pairs.filter(is_delete).select(CLAUSE, *keys).dropDuplicates(keys)
        return pairs.filter(f"NOT {is_delete}").select(CLAUSE).unionByName(deleted.select(CLAUSE))

    def _check_unambiguous(self, pairs: DataFrame) -> None:
        """Raise `AmbiguousMerge` if several source rows act on one stored row, unless all of them delete it."""
        stored = pairs.filter(IS_STORED)
        twice = stored.groupBy(RECORD_KEY, PARTITION_PATH).count().filter("count > 1").limit(_EXAMPLES)
        examples = twice.select(RECORD_KEY, PARTITION_PATH).join(stored, [RECORD_KEY, PARTITION_PATH])
        rows = self._engine.collect(examples.select(RECORD_KEY, CLAUSE))
        if rows.num_rows:
            numbers = as_numpy(rows.column(CLAUSE))
            actions = self._bound.actions[numbers]
            check_unambiguous(rows.column(RECORD_KEY).combine_chunks(), actions)

    def _types(self, pairs: DataFrame) -> dict[tuple[int, str], pa.DataType]:
        """The type of each clause's value of each column, by clause number and column. A value that only Spark
        evaluates has Spark's type; raises `SchemaConflict` if its column cannot have it."""
        kinds: dict[tuple[int, str], pa.DataType] = {}
        missing = self._write.context.settings.missing_columns
        for number, clause in enumerate(self._bound.clauses):
            texts = [f"{value.spark_enclosed} AS {quote_name(name)}" for name, value in clause.values.items()]
            for field in self._engine.schema(pairs.selectExpr(*texts)) if texts else ():
                text = clause.values[field.name].text
                check_fits(field.type, self._bound.schema.field(field.name), missing=missing, text=text)
                kinds[number, field.name] = field.type
        return kinds

    def _rows(self, pairs: DataFrame, kinds: Mapping[tuple[int, str], pa.DataType]) -> DataFrame:
        """The rows that the clauses make, in the table's columns and types, one row per key."""
        schema = pa.schema([self._bound.schema.field(name).with_nullable(True) for name in self._join.updated])
        converted = {
            (number, name): f"{VALUE}{number}_{name}"
            for (number, name), kind in kinds.items()
            if name in schema.names and not pt.is_null(kind) and not _is_same(kind, schema.field(name).type)
        }
        columns = [f"{self._column(name, converted)} AS {quote_name(name)}" for name in schema.names]
        columns += [
            f"CASE WHEN {CLAUSE} = {number} THEN {self._bound.clauses[number].values[name].spark_enclosed} END"
            f" AS {quote_name(value)}"
            for (number, name), value in converted.items()
        ]
        deletes = [str(n) for n, clause in enumerate(self._bound.clauses) if clause.text.action == "delete"]
        is_delete = f"{CLAUSE} IN ({', '.join(deletes)})" if deletes else "false"
        columns += self._stored_ordering()
        rows = pairs.selectExpr(RECORD_KEY, PARTITION_PATH, CLAUSE, f"{is_delete} AS {DELETE}", *columns)
        if converted:
            others = {*schema.names, *converted.values()}
            front = [field.with_nullable(True) for field in self._engine.schema(rows) if field.name not in others]
            to = pa.schema([*front, *schema])
            rows = self._engine.map(rows, _Converted(to, {value: at for at, value in converted.items()}), to)
        rows = self._with_generated(rows)
        if not deletes:
            return rows
        deleted_rows = rows.filter(DELETE).dropDuplicates([RECORD_KEY, PARTITION_PATH])
        return rows.filter(f"NOT {DELETE}").unionByName(deleted_rows)

    def _with_generated(self, rows: DataFrame) -> DataFrame:
        """The rows with the generated columns of their clauses, which follow from their other columns."""
        columns = {column.field.name: column for clause in self._bound.clauses for column in clause.generated}
        if not columns:
            return rows
        clauses = {
            name: [n for n, c in enumerate(self._bound.clauses) if column in c.generated]
            for name, column in columns.items()
        }
        schema = self._engine.schema(rows)
        to = pa.schema([f.with_nullable(True) if f.name in columns else f for f in schema])
        return self._engine.map(rows, _Generated(tuple(columns.values()), clauses), to)

    def _stored_ordering(self) -> list[str]:
        """The stored ordering values, if rows may move, or be replaced."""
        if self._join.moving(self._write) is None and not self._bound.may_replace:
            return []
        rules, schema, side = self._write.context.rules, self._write.schema.data, self._bound.reader.target
        texts: list[str] = []
        for path, name in zip(rules.ordering, stored_ordering(rules), strict=True):
            top, to = Column(path).top_level_in(schema), spark_type(Column(path).type_in(schema))
            stored = pa.schema([schema.field(top).with_name(side.field(top))])
            texts.append(f"CAST({Column(side.field(top) + path[len(top) :]).sql(stored)} AS {to}) AS {name}")
        return texts

    def _column(self, name: str, converted: Mapping[tuple[int, str], str]) -> str:
        """The SQL of a column of the rows: the value that each clause sets, otherwise the stored value; null if tasks
        convert the value."""
        bound = self._bound
        to = bound.schema.field(name).type
        null = spark_null(bound.schema.field(name))
        stored = null
        if name in self._join.read_columns:
            stored = spark_cast(quote_name(bound.reader.target.field(name)), bound.stored.field(name).type, to)
        cases: list[str] = []
        for number, clause in enumerate(bound.clauses):
            value = clause.values.get(name)
            if value is None and clause.text.action != "insert":
                continue
            text = null if value is None or (number, name) in converted else value.spark_enclosed
            cases.append(f"WHEN {CLAUSE} = {number} THEN {text}")
        return f"CASE {' '.join(cases)} ELSE {stored} END" if cases else stored

    def _keyed(self, rows: DataFrame) -> Rows:
        """The rows with key and partition path: those of stored rows are unchanged, new rows get them by the table's
        rules."""
        context = self._write.context
        names, rules = list(self._join.updated), context.rules
        moved = self._join.moving(self._write)
        compares = moved is not None or self._bound.may_replace
        held_keys = [STORED_KEY, STORED_PATH, *(stored_ordering(rules) if compares else [])]
        rows = rows.withColumnRenamed(RECORD_KEY, STORED_KEY).withColumnRenamed(PARTITION_PATH, STORED_PATH)
        keyed = derive_keys(context, rows, self._engine.schema(rows), [*names, DELETE, CLAUSE, *held_keys])
        inserts = ", ".join(str(n) for n, c in enumerate(self._bound.clauses) if c.text.action == "insert")
        is_new = f"{CLAUSE} IN ({inserts})" if inserts else "false"
        if inserts:
            self._check_inserts(keyed.filter(is_new), keyed.filter(DELETE))
        if self._bound.may_replace:
            keyed = self._replacing(keyed, is_new)
        columns = [n for n in keyed.columns if n not in (*held_keys, CLAUSE)]
        quoted = [quote_name(n) for n in columns]
        stored = {RECORD_KEY: STORED_KEY, PARTITION_PATH: STORED_PATH}
        in_place = [f"coalesce({stored[n]}, {n}) AS {n}" if n in stored else quote_name(n) for n in columns]
        if moved is None:
            return keyed.selectExpr(*in_place)
        leaves = f"({moves_of(rules, columns).sql(self._engine.schema(keyed))})"
        stays = self._renumbered(keyed.filter(f"NOT {leaves}").selectExpr(*in_place))
        going = keyed.filter(leaves)
        moved_rows = going.selectExpr(*quoted)
        if moved == "never":
            refuse_moves(self._write, self._engine.collect(moved_rows.select(RECORD_KEY, PARTITION_PATH).limit(1)))
            return stays
        if moved == "index":
            return stays.unionByName(moved_rows)
        moved_keys = self._engine.collect(moved_rows.select(RECORD_KEY, PARTITION_PATH))
        refuse_repeated_keys(self._write.snapshot, moved_keys)
        deleted_rows = self._renumbered(going.selectExpr(*in_place)).selectExpr(
            *[f"true AS {DELETE}" if name == DELETE else quote_name(name) for name in columns]
        )
        return stays.unionByName(deleted_rows).unionByName(moved_rows)

    def _renumbered(self, rows: DataFrame) -> DataFrame:
        return renumbered(self._write.context, rows)

    def _replacing(self, keyed: DataFrame, is_new: str) -> DataFrame:
        """The rows without those deletes whose key a new row has; that new row gets the location of the deleted one.
        New are the rows that fulfil the SQL condition `is_new`. Raises `InvalidRecord` if a new row has a lower
        ordering value than the deleted row."""
        rules, is_global = self._write.context.rules, self._write.context.index.is_global
        aliases = {STORED_KEY: f"{DERIVED}gone_key", STORED_PATH: f"{DERIVED}gone_path"}
        aliases |= {name: f"{DERIVED}gone_{name}" for name in stored_ordering(rules)}
        deleted = keyed.filter(DELETE).selectExpr(*[f"{name} AS {other}" for name, other in aliases.items()])
        deleted = deleted.dropDuplicates([aliases[STORED_KEY], aliases[STORED_PATH]])
        on = f"{RECORD_KEY} = {aliases[STORED_KEY]}" + (
            "" if is_global else f" AND {PARTITION_PATH} = {aliases[STORED_PATH]}"
        )
        names = [name for name in keyed.columns if name not in aliases]
        new = join_on(keyed.filter(is_new).selectExpr(*map(quote_name, names)), deleted, on, "left_outer")
        new = new.selectExpr(*map(quote_name, names), *[f"{other} AS {name}" for name, other in aliases.items()])
        wins = moves_of(rules, names).wins_sql(self._engine.schema(new))
        older = self._engine.collect(new.filter(f"{STORED_KEY} IS NOT NULL AND NOT {wins}").select(RECORD_KEY).limit(1))
        if older.num_rows:
            raise older_row(rules, older.column(RECORD_KEY)[0].as_py())
        replacing = new.filter(f"{STORED_KEY} IS NOT NULL").select(STORED_KEY, STORED_PATH)
        others = keyed.filter(f"NOT ({is_new})")
        left = others.filter(DELETE).join(replacing, [STORED_KEY, STORED_PATH], "left_anti")
        return others.filter(f"NOT {DELETE}").unionByName(left).unionByName(new)

    def _check_inserts(self, new: DataFrame, deleted: DataFrame) -> None:
        """Raise an error if keys of new rows are repeated, or are stored in rows that are not deleted."""
        by_path = self._join.determines_paths
        names = [RECORD_KEY, PARTITION_PATH] if by_path else [RECORD_KEY]
        twice = new.groupBy(*names).count().filter(f"count > 1 AND {RECORD_KEY} IS NOT NULL").limit(_EXAMPLES)
        keys = self._engine.collect(twice.select(RECORD_KEY)).column(RECORD_KEY).combine_chunks()
        if len(keys):
            keys = pa.concat_arrays([keys] * 2)
            check_unambiguous(keys, np.array(["insert"] * len(keys)))
        if self._bound.on is not None and not self._join.inserts_cannot_be_stored:
            new_rows = new.select(RECORD_KEY, PARTITION_PATH)
            deleted_rows = deleted.selectExpr(
                f"{STORED_KEY} AS {RECORD_KEY}", f"{STORED_PATH} AS {PARTITION_PATH}"
            ).distinct()
            deleted_keys = self._engine.collect(
                deleted_rows.join(new_rows.select(RECORD_KEY).distinct(), [RECORD_KEY], "left_semi")
            )
            new_keys = self._engine.collect(new_rows)
            refuse_stored_keys(stored_among(self._write, new_keys, deleted_keys, by_path=by_path))

    def _check_keys(self, pairs: DataFrame) -> None:
        """Raise `UnsupportedFeature` if a clause with "all" would change a key."""
        reader = self._bound.reader
        for number, clause in enumerate(self._bound.clauses):
            for name in clause.keys_of_all:
                column = reader.source.column(name)
                assert column is not None
                incoming, stored = quote_name(reader.source.field(column)), quote_name(reader.target.field(name))
                changes = f"{CLAUSE} = {number} AND NOT ({incoming} <=> {stored})"
                rows = self._engine.collect(pairs.filter(changes).select(RECORD_KEY).limit(1))
                if rows.num_rows:
                    raise changed_key(clause.text.name, name, rows.column(RECORD_KEY)[0].as_py())


def _is_same(kind: pa.DataType, to: pa.DataType) -> bool:
    """Whether Spark has one type for both, with equal fields of structs in the same order."""
    return read_by_spark(pa.schema([("value", kind)])).equals(read_by_spark(pa.schema([("value", to)])))


@dataclass(frozen=True, slots=True)
class _Converted:
    """A task function that converts values into the types of their columns. `values` has the clause
    and the column of each by its name."""

    schema: pa.Schema
    values: Mapping[str, tuple[int, str]]

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = {field.name: in_column(batch.column(field.name), field) for field in self.schema}
            for value, (number, name) in self.values.items():
                acts = pc.equal(batch.column(CLAUSE), number)
                values = in_column(batch.column(value), self.schema.field(name), SQL)
                columns[name] = pc.if_else(acts, values, columns[name])
            yield pa.RecordBatch.from_arrays(list(columns.values()), schema=self.schema)


@dataclass(frozen=True, slots=True)
class _Generated:
    """A task function that computes generated columns in the rows of the clauses that `clauses` has for each."""

    columns: tuple[GeneratedColumn, ...]
    clauses: Mapping[str, list[int]]

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for column in self.columns:
                name = column.field.name
                acts = pc.is_in(batch.column(CLAUSE), value_set=pa.array(self.clauses[name], batch.column(CLAUSE).type))
                columns[name] = pc.if_else(acts, column.values(batch), columns[name])
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=batch.schema.names)


def prepare_on_spark(join: MergeJoin, write: Write) -> Any:
    """The rows that a merge by join writes, on Spark."""
    return SparkMerge(join, write).prepare()
