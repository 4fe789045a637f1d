"""The clauses of a MERGE as a row function: pairs of stored and incoming rows in, what becomes of them out.

Pure Arrow, the same in a task and in the process of the caller. A pair is a row of a table that has the columns of both
sides, each under a name of its own. Clauses run in order, and the first whose condition is true acts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import AmbiguousMerge, InvalidRecord
from lakebed.schema.assignment import SQL, in_column
from lakebed.schema.conversion import cast_column
from lakebed.schema.plain_arrow import as_numpy, computed_columns, one_array

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
When = Literal["matched", "not_matched", "not_matched_by_source"]
Action = Literal["update", "delete", "insert"]


class RowColumn(Protocol):
    """A column whose values follow from the other columns of a row."""

    @property
    def field(self) -> pa.Field: ...

    def values(self, rows: pa.RecordBatch) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class Clause:
    """An action for some pairs: those of the kind `when` for which `condition` (None: always) is true. `values` are the
    columns that an update or an insert sets, `generated` those that follow from the other columns of the row."""

    when: When
    action: Action
    condition: pc.Expression | None = None
    values: Mapping[str, pc.Expression] = field(default_factory=dict[str, pc.Expression])
    generated: tuple[RowColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class Acts:
    """The results of clauses. `at` are the pairs that a clause applies to, `clause` its number, and `rows` the
    resulting rows in the table's columns."""

    at: Positions
    clause: npt.NDArray[np.int8]
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Clauses:
    """All clauses of a merge, in their order.

    `schema` has the table's columns after the merge. Pairs have a stored column under `prefix` and its name, those of
    the source under other names; a column that has its own name in the pairs has that value in every row made of
    them. `updated` are the columns that an updated row has: it keeps all others as they are stored.
    """

    schema: pa.Schema
    clauses: tuple[Clause, ...]
    prefix: str
    updated: tuple[str, ...]

    @property
    def untouched(self) -> tuple[str, ...]:
        """The columns that no update sets: an updated row retains their stored values."""
        return tuple(name for name in self.schema.names if name not in self.updated)

    def act(self, pairs: pa.Table, kinds: Mapping[When, Flags]) -> Acts:
        """The results of the clauses for pairs; `kinds` has flags of the pairs of each kind."""
        clause_numbers = np.full(pairs.num_rows, -1, np.int8)
        for number, clause in enumerate(self.clauses):
            candidates = np.flatnonzero(kinds[clause.when] & (clause_numbers < 0))
            if clause.condition is not None and len(candidates):
                (holds,) = evaluate(pairs.take(pa.array(candidates)), [clause.condition])
                candidates = candidates[as_numpy(pc.fill_null(holds, False))]
            clause_numbers[candidates] = number
        at = np.flatnonzero(clause_numbers >= 0)
        return Acts(at, clause_numbers[at], self._rows(pairs, clause_numbers))

    def actions(self, numbers: npt.NDArray[np.int8]) -> npt.NDArray[np.str_]:
        """The action of each clause number."""
        return np.array([clause.action for clause in self.clauses])[numbers]

    def _rows(self, pairs: pa.Table, clause_numbers: npt.NDArray[np.int8]) -> pa.Table:
        """The rows that the chosen clauses make, in the order of the pairs."""
        parts: list[pa.Table] = []
        order: list[Positions] = []
        for number, clause in enumerate(self.clauses):
            at = np.flatnonzero(clause_numbers == number)
            if len(at):
                parts.append(self._made(clause, pairs.take(pa.array(at))))
                order.append(at)
        if not parts:
            return self._loose.empty_table()
        back = np.argsort(np.concatenate(order), kind="stable")
        rows = pa.concat_tables(parts)
        return rows if len(parts) == 1 else rows.combine_chunks().take(pa.array(back))

    @property
    def _loose(self) -> pa.Schema:
        return pa.schema([f.with_nullable(True) for f in self.schema])

    def _made(self, clause: Clause, pairs: pa.Table) -> pa.Table:
        names = [name for name in clause.values if name in self.schema.names]
        computed = evaluate(pairs, [clause.values[name] for name in names])
        values_by_name = {
            name: in_column(values, self.schema.field(name), SQL) for name, values in zip(names, computed, strict=True)
        }
        columns: list[pa.Array] = []
        for column in self.schema:
            name = column.name
            stored = self.prefix + name
            if name in values_by_name:
                values = values_by_name[name]
            elif name in pairs.column_names:
                values = in_column(one_array(pairs.column(name)), column, SQL)
            elif clause.action != "insert" and name in self.updated and stored in pairs.column_names:
                values = cast_column(one_array(pairs.column(stored)), column.type)
            else:
                values = pa.nulls(pairs.num_rows, column.type)
            columns.append(values)
        rows = pa.Table.from_arrays(columns, schema=self._loose)
        return with_row_columns(rows, clause.generated) if clause.generated else rows


def with_row_columns(rows: pa.Table, columns: Sequence[RowColumn]) -> pa.Table:
    """The rows with the values of columns that follow from their other columns."""
    batch = pa.RecordBatch.from_arrays([one_array(column) for column in rows.columns], schema=rows.schema)
    for column in columns:
        at = rows.schema.get_field_index(column.field.name)
        rows = rows.set_column(at, rows.schema.field(at), column.values(batch))
    return rows


def evaluate(rows: pa.Table, expressions: Sequence[pc.Expression]) -> list[pa.Array]:
    """The value of each expression in each row. Raises `InvalidRecord` if an expression has no value, for example for
    numbers that are too large.

    >>> evaluate(pa.table({"a": [1, 2]}), [pc.field("a") + 1])[0].to_pylist()
    [2, 3]
    """
    if not expressions:
        return []
    try:
        results = computed_columns(rows, expressions)
    except pa.ArrowInvalid as error:
        raise InvalidRecord(
            f"an expression has no value in a row: {error}",
            hint="cast the values, or leave the rows out by a condition",
        ) from error
    return [one_array(column) for column in results.columns]


def check_unambiguous(keys: pa.Array, actions: npt.NDArray[np.str_], partitions: pa.Array | None = None) -> Flags:
    """Flags of the acts to carry out: only one of several deletes of a key, and none if a new row replaces the deleted
    one. Raises `AmbiguousMerge` if several source rows would change one stored row, or insert one key. With
    `partitions` equal keys in different partition paths are different keys."""
    every = np.ones(len(keys), np.bool_)
    if len(keys) == pc.count_distinct(keys, mode="all").as_py():
        return every
    codes = _codes(keys, partitions)
    counts = np.bincount(codes)
    inserts, deletes = (np.bincount(codes[actions == name], minlength=len(counts)) for name in ("insert", "delete"))
    replaces = (inserts == 1) & (inserts + deletes == counts)
    twice = np.flatnonzero((counts > 1) & (deletes < counts) & ~replaces)
    if len(twice):
        key = keys[int(np.flatnonzero(codes == twice[0])[0])].as_py()
        is_new = inserts[twice[0]] == counts[twice[0]]
        effect = "would insert" if is_new else "would change the row of"
        raise AmbiguousMerge(
            f"{counts[twice[0]]} source rows {effect} record key {key!r}"
            + (f", and likewise {len(twice) - 1} more keys" if len(twice) > 1 else ""),
            hint="make the source unique in what the join condition compares, or give the clauses conditions of which"
            " one source row at most fulfils one",
            context={"record_key": key, "keys": len(twice)},
        )
    order = np.argsort(actions != "insert", kind="stable")
    _, first = np.unique(codes[order], return_index=True)
    every[:] = False
    every[order[first]] = True
    return every


def replaced_rows(
    keys: pa.Array, actions: npt.NDArray[np.str_], partitions: pa.Array | None = None
) -> tuple[Positions, Positions]:
    """The positions of acts that insert a row with the key of a row that another act deletes, and of the deleting
    acts."""
    new, deleted_at = np.flatnonzero(actions == "insert"), np.flatnonzero(actions == "delete")
    if not len(new) or not len(deleted_at):
        return new[:0], deleted_at[:0]
    codes = _codes(keys, partitions)
    deleted, first = np.unique(codes[deleted_at], return_index=True)
    at = np.minimum(np.searchsorted(deleted, codes[new]), len(deleted) - 1)
    is_replacing = deleted[at] == codes[new]
    return new[is_replacing], deleted_at[first[at[is_replacing]]]


def _codes(keys: pa.Array, partitions: pa.Array | None) -> Positions:
    """A number from 0 for each key. With partition paths, equal keys of two paths have different numbers."""
    codes = as_numpy(keys.dictionary_encode().indices).astype(np.int64)
    if partitions is None:
        return codes
    coded = partitions.dictionary_encode()
    return np.unique(codes * len(coded.dictionary) + as_numpy(coded.indices), return_inverse=True)[1]
