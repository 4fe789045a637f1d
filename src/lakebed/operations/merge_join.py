"""Merges whose rows are matched by a join: the stored columns that are needed are read at the write's own view, joined
with the source, and the rows that the clauses make are given keys and partition paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Literal as OneOf

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Rows
from lakebed.errors import UnsupportedFeature
from lakebed.filters.pairs import Equality, PairReader, Side
from lakebed.filters.predicates import Column, Compare, In, Literal, Node
from lakebed.handles.matched import check_new_rows, refuse_older_rows, refuse_repeated_keys, refuse_stored_keys
from lakebed.merge.clauses import check_unambiguous, evaluate, replaced_rows
from lakebed.merge.incoming import Intake, null_key
from lakebed.merge.locations import Moves, delete_columns
from lakebed.merge.rules import MergeRules
from lakebed.model import DELETE, DERIVED, PARTITION_PATH, RECORD_KEY
from lakebed.operations.context import WriteContext
from lakebed.operations.merge_statement import BoundMerge, arrow_of, is_same_key, key_equalities
from lakebed.operations.write import Write, derive_keys, renumbered
from lakebed.read.lookup import KeyText, exists, locate
from lakebed.read.scan import Scan
from lakebed.schema.conversion import cast_column
from lakebed.schema.plain_arrow import as_numpy, one_array
from lakebed.sharing import once
from lakebed.slices.snapshot import Snapshot

Positions = npt.NDArray[np.int64]
# Up to this many values of a column are compared one by one; for more, only their range is used.
_MAX_VALUES = 1_000
# Pairs that are evaluated together when the condition equates no columns.
_MAX_PAIRS = 1 << 20


@dataclass
class MergeJoin:
    """One merge by join. `counts` are the numbers of rows that each clause acted on, set when it has run; `cached` are
    rows that stay cached until the write ends."""

    bound: BoundMerge
    rows: Rows | None
    counts: list[int] = field(default_factory=list[int])
    cached: list[Rows] = field(default_factory=list[Rows])

    @once
    def is_complete(self) -> bool:
        """Whether rows are written with all their columns, because there are new rows or rows that may move to another
        partition path."""
        return bool(self.bound.inserts) or self._sets_partition

    @property
    def _sets_partition(self) -> bool:
        """Whether an update sets a column from which partition paths are made."""
        columns = {name.partition(".")[0] for name in self.bound.context.keys.partition_fields}
        return not columns.isdisjoint(self.bound.set_columns)

    @once
    def read_columns(self) -> tuple[str, ...]:
        """The stored columns that are read."""
        stored = self.bound.stored
        if self.is_complete and self.bound.updates:
            return tuple(stored.names)
        context = self.bound.context
        needed = {*self.bound.read_columns, *context.keys.key_fields, *context.keys.partition_fields}
        needed |= {*context.rules.ordering_columns, *(equality.column for equality in self._equalities)}
        needed |= {name for clause in self.bound.clauses for name in clause.keys_of_all}
        if any(clause.text.action == "delete" for clause in self.bound.clauses):
            # a deleted row is written beside the others, and has no null where the column takes none
            written = self.bound.schema.names if self.is_complete else self.bound.updated_columns
            needed |= {name for name in written if not self.bound.schema.field(name).nullable}
        needed = {name.partition(".")[0] for name in needed}
        return tuple(name for name in stored.names if name in needed)

    @once
    def updated(self) -> tuple[str, ...]:
        """The columns that an updated row is written with."""
        names = self.bound.schema.names
        if self.is_complete:
            return tuple(names)
        needed = {*self.bound.updated_columns, *self.read_columns}
        return tuple(name for name in names if name in needed)

    @property
    def absent(self) -> tuple[str, ...]:
        """The columns that the written rows do not have."""
        return tuple(name for name in self.bound.schema.names if name not in self.updated)

    @property
    def inserts_cannot_be_stored(self) -> bool:
        """Whether a source row without a match always has a new key, because the condition compares only the keys."""
        on, fields = self.bound.on, self.bound.context.keys.key_fields
        if on is None or on.others:
            return False
        equal = key_equalities(on, fields, self.bound.stored)
        if equal is None or len(on.equalities) != len(fields):
            return False
        return all(
            clause.values[name].spark == equal[name].value.spark for clause in self.bound.inserts for name in fields
        )

    @property
    def determines_paths(self) -> bool:
        """Whether equal keys in different partition paths are different keys: the index looks only in the row's path,
        and the condition equates key and partition columns."""
        context = self.bound.context
        fields = [*context.keys.key_fields, *context.keys.partition_fields]
        return not context.index.is_global and key_equalities(self.bound.on, fields, self.bound.stored) is not None

    @property
    def _equalities(self) -> tuple[Equality, ...]:
        return self.bound.on.equalities if self.bound.on else ()

    def prepare(self, write: Write) -> Rows:
        """The rows to be written, with record key and partition path."""
        engine = write.context.engine
        if engine.is_distributed:
            from lakebed.operations.merge_on_spark import prepare_on_spark

            return prepare_on_spark(self, write)
        source = None if self.rows is None else engine.collect(self.rows)
        stored = self.stored_rows(write.context, write.snapshot, self._of_source(source)).to_arrow()
        side = self.bound.reader.target
        names = [n if n in (RECORD_KEY, PARTITION_PATH) else side.field(n) for n in stored.column_names]
        return engine.from_arrow(self._made(write, stored.rename_columns(names).combine_chunks(), source))

    def stored_rows(self, context: WriteContext, snapshot: Snapshot, narrow: Sequence[Node] = ()) -> Scan:
        """The scan of the stored rows that may be matched, or changed by a clause for unmatched rows."""
        spark, reads = getattr(context.engine, "spark", None), context.options.read
        columns = [RECORD_KEY, PARTITION_PATH, *self.read_columns]
        by_source = self.bound.statement.by_source
        if not by_source:
            return Scan(snapshot, columns=columns, spark=spark, reads=reads).narrowed(narrow)
        texts = [clause.condition for clause in by_source if clause.condition is not None]
        if self.rows is not None or len(texts) < len(by_source):
            return Scan(snapshot, columns=columns, spark=spark, reads=reads)
        target = Side(self.bound.reader.target.alias, "", self.bound.stored)  # columns by the table's own names
        reader = PairReader(target, self.bound.reader.source)
        condition = " OR ".join(reader.condition(text, (target,), "condition").spark_enclosed for text in texts)
        return Scan(snapshot, columns=columns, where=condition, spark=spark, reads=reads)

    def _of_source(self, source: pa.Table | None) -> list[Node]:
        """Conditions on stored columns, made from the source's values: only rows that fulfil them can match."""
        conditions: list[Node] = []
        stored = self.bound.stored
        for equality in self._equalities if source is not None else ():
            kind = stored.field(equality.column).type
            if not is_same_key(equality.value.type, kind):
                continue
            (values,) = evaluate(source, [arrow_of(equality.value)])
            if equality.null_safe and values.null_count:
                continue
            values = pc.unique(cast_column(values, kind)).drop_null()
            column = Column((equality.column,), kind)
            if len(values) <= _MAX_VALUES:
                conditions.append(In(column, tuple(Literal(value, kind) for value in values.to_pylist())))
            else:
                span = pc.min_max(values).as_py()
                conditions += [
                    Compare(column, ">=", Literal(span["min"], kind)),
                    Compare(column, "<=", Literal(span["max"], kind)),
                ]
        return conditions

    def _made(self, write: Write, target: pa.Table, source: pa.Table | None) -> pa.Table:
        """The rows that the clauses make of all pairs, with key and partition path."""
        context, bound = write.context, self.bound
        clauses = bound.compiled(self.updated)
        of_target, of_source = self._matched(target, source)
        alone = np.array([], np.int64)
        new = unmatched = alone
        if source is not None and bound.inserts:
            new = np.setdiff1d(np.arange(source.num_rows), of_source)
        if bound.statement.by_source:
            unmatched = np.setdiff1d(np.arange(target.num_rows), of_target)
        at_target = np.concatenate([of_target, np.full(len(new), -1), unmatched])
        at_source = np.concatenate([of_source, new, np.full(len(unmatched), -1)])
        pairs = _paired(target, at_target, source, at_source)
        kind = np.repeat([0, 1, 2], [len(of_target), len(new), len(unmatched)])
        acts = clauses.act(pairs, {"matched": kind == 0, "not_matched": kind == 1, "not_matched_by_source": kind == 2})
        actions = clauses.actions(acts.clause)
        self._check_keys(pairs, acts.at, acts.clause)
        stored_keys = pairs.select([RECORD_KEY, PARTITION_PATH]).take(pa.array(acts.at))
        rows = acts.rows.select([name for name in acts.rows.column_names if name in self.updated])
        is_delete = actions == "delete"
        marked = rows.append_column(DELETE, pa.array(is_delete))
        keyed = write.context.engine.collect(
            derive_keys(context, context.engine.from_arrow(marked), marked.schema, [*rows.column_names, DELETE])
        )
        is_new = pa.array(actions == "insert")
        keys = one_array(pc.if_else(is_new, keyed.column(RECORD_KEY), stored_keys.column(RECORD_KEY)))
        paths = one_array(pc.if_else(is_new, keyed.column(PARTITION_PATH), stored_keys.column(PARTITION_PATH)))
        if (is_null := pc.and_(is_new, pc.is_null(keys))).true_count:
            raise null_key(_batch(_with(keyed, RECORD_KEY, keys).filter(is_null)))
        stored_in = None if context.index.is_global else paths
        if not self.determines_paths:  # several stored rows may share a key, new rows may not
            check_unambiguous(
                keys, actions, one_array(pc.if_else(pc.is_in(keys, value_set=keys.filter(is_new)), "", paths))
            )
        carried_out = check_unambiguous(keys, actions, stored_in)
        stored_rows = pairs.take(pa.array(acts.at))
        new, deleted_at = replaced_rows(keys, actions, stored_in)
        if len(new):
            older = stored_rows.take(pa.array(deleted_at))
            prefix = bound.reader.target.prefix
            refuse_older_rows(context.rules, keys.take(pa.array(new)), rows.take(pa.array(new)), older, prefix)
            deleted_paths = paths.take(pa.array(deleted_at))
            paths = pc.replace_with_mask(paths, pa.array(np.isin(np.arange(len(paths)), new)), deleted_paths)
        if not self.inserts_cannot_be_stored:
            placed = _with(keyed, RECORD_KEY, keys).select([RECORD_KEY, PARTITION_PATH])
            deleted = stored_keys.filter(pa.array(is_delete))
            refuse_stored_keys(stored_among(write, placed.filter(is_new), deleted, by_path=self.determines_paths))
        nulls = write.context.settings.null_ordering
        # a row that several source rows delete is one; one that is replaced is deleted, too
        counted = acts.clause[np.union1d(np.flatnonzero(carried_out), deleted_at)]
        self.counts[:] = np.bincount(counted, minlength=len(clauses.clauses)).tolist()
        intake = Intake(write.schema.data, write.context.rules, False, False, 0, null_ordering=nulls)
        partial = actions == "update" if self.absent else np.zeros(len(actions), np.bool_)
        check_new_rows(acts.rows, keys, is_delete, partial, clauses, intake)
        return self._placed(write, _with(keyed, RECORD_KEY, keys), paths, stored_rows, carried_out)

    def _placed(
        self, write: Write, named: pa.Table, paths: pa.Array, stored_rows: pa.Table, carried_out: npt.NDArray[np.bool_]
    ) -> pa.Table:
        """The rows at their locations. `named` are all rows in the partition paths that their values name, `paths` the
        paths in which their keys are stored; a row that wins over its stored row moves."""
        how = self.moving(write)
        placed = _with(named, PARTITION_PATH, paths)
        if how is None:
            return placed.filter(pa.array(carried_out))
        rules = write.context.rules
        ordering = {name: write.schema.data.field(name).type for name in rules.ordering_columns}
        side = self.bound.reader.target
        stored = pa.table(
            {name: cast_column(one_array(stored_rows.column(side.field(name))), to) for name, to in ordering.items()}
        )
        compared = named.append_column(STORED_PATH, paths)
        for name, values in zip(stored_ordering(rules), rules.ordering_of(stored), strict=True):
            compared = compared.append_column(name, values)
        leaves = as_numpy(moves_of(rules, named.column_names).arrow(_batch(compared))) & carried_out
        engine = write.context.engine
        placed = engine.collect(renumbered(write.context, engine.from_arrow(placed))).select(named.column_names)
        moved_rows = named.filter(pa.array(leaves))
        stays = placed.filter(pa.array(carried_out & ~leaves))
        if how == "never":
            refuse_moves(write, moved_rows.select([RECORD_KEY, PARTITION_PATH]))
        if how == "index":
            return pa.concat_tables([stays, moved_rows])
        refuse_repeated_keys(write.snapshot, moved_rows.select([RECORD_KEY, PARTITION_PATH]))
        left = placed.filter(pa.array(leaves))
        deletes = _with(left, DELETE, pa.repeat(pa.scalar(True), left.num_rows))
        return pa.concat_tables([stays, deletes, moved_rows])

    def _matched(self, target: pa.Table, source: pa.Table | None) -> tuple[Positions, Positions]:
        """The positions of target and source rows that the join condition holds for."""
        if source is None or self.bound.on is None:
            return np.array([], np.int64), np.array([], np.int64)
        stored = self.bound.stored
        equal: list[Equality] = []
        conditions = [arrow_of(e) for e in self.bound.on.others]
        for equality in self._equalities:
            if not equality.null_safe and is_same_key(equality.value.type, stored.field(equality.column).type):
                equal.append(equality)
            else:
                conditions.append(arrow_of(equality.condition))
        matches: list[tuple[Positions, Positions]] = []
        for of_target, of_source in self._candidates(target, source, equal):
            for condition in conditions:
                (holds,) = evaluate(_paired(target, of_target, source, of_source), [condition])
                mask = as_numpy(pc.fill_null(holds, False))
                of_target, of_source = of_target[mask], of_source[mask]
            matches.append((of_target, of_source))
        return tuple(np.concatenate(side) for side in zip(*matches, strict=True))  # type: ignore[return-value]

    def _candidates(
        self, target: pa.Table, source: pa.Table, equal: Sequence[Equality]
    ) -> Iterator[tuple[Positions, Positions]]:
        """The pairs of positions whose equated values are equal, in parts; all pairs if no columns are equated."""
        if equal:
            names = [str(number) for number in range(len(equal))]
            target_columns = [target.column(self.bound.reader.target.field(equality.column)) for equality in equal]
            source_columns = evaluate(source, [arrow_of(equality.value) for equality in equal])
            source_columns = [cast_column(v, c.type) for v, c in zip(source_columns, target_columns, strict=True)]
            left = pa.table([*target_columns, pa.array(np.arange(target.num_rows))], names=[*names, "target"])
            right = pa.table([*source_columns, pa.array(np.arange(source.num_rows))], names=[*names, "source"])
            joined = right.join(left, names, join_type="inner").select(["target", "source"]).sort_by("source")
            yield as_numpy(joined.column("target")), as_numpy(joined.column("source"))
            return
        size = max(1, _MAX_PAIRS // max(1, target.num_rows))
        every = np.arange(target.num_rows)
        for start in range(0, max(1, source.num_rows), size):
            source_rows = np.arange(start, min(source.num_rows, start + size))
            yield np.tile(every, len(source_rows)), np.repeat(source_rows, target.num_rows)

    def _check_keys(self, pairs: pa.Table, at: Positions, numbers: npt.NDArray[np.int8]) -> None:
        """Raise `UnsupportedFeature` if a clause with "all" would change a key."""
        reader = self.bound.reader
        for number, clause in enumerate(self.bound.clauses):
            for name in clause.keys_of_all:
                rows = pairs.take(pa.array(at[numbers == number]))
                stored = one_array(rows.column(reader.target.field(name)))
                column = reader.source.column(name)
                assert column is not None
                incoming = one_array(rows.column(reader.source.field(column)))
                incoming = cast_column(incoming, stored.type)
                same = pc.fill_null(pc.equal(incoming, stored), pc.and_(pc.is_null(incoming), pc.is_null(stored)))
                if not pc.all(same, min_count=0).as_py():
                    key = rows.column(RECORD_KEY).filter(pc.invert(same))[0].as_py()
                    raise changed_key(clause.text.name, name, key)

    def moving(self, write: Write) -> OneOf["index", "rows", "never"] | None:
        """The way in which rows move to another partition path: the index moves them ("index"), the old row is deleted
        and a new one written ("rows"), or they never move ("never"). None if no update sets a partition column."""
        index = write.context.index
        may_replace = self.bound.may_replace and index.is_global and bool(write.context.keys.partition_fields)
        if not self._sets_partition and not may_replace:
            return None
        if not index.is_global:
            return "rows"
        return "never" if index.for_existence_checks().settings() == index.settings() else "index"


STORED_PATH = f"{DERIVED}held_path"


def changed_key(clause: str, name: str, key: str) -> UnsupportedFeature:
    """The error of an update of all columns that would change a key field."""
    return UnsupportedFeature(
        f"{clause} would change the key field {name!r} of record key {key!r}, and a row keeps its key",
        hint=f"leave it out: except_columns=[{name!r}]",
        context={"column": name, "record_key": key},
    )


def stored_ordering(rules: MergeRules) -> list[str]:
    """The names of columns with the stored value of each ordering field."""
    return [f"{DERIVED}target_ordering_{at}" for at in range(len(rules.ordering))]


def moves_of(rules: MergeRules, columns: Sequence[str]) -> Moves:
    """The expression for rows that leave the partition path of their stored row: rows with these columns, `STORED_PATH`
    and `stored_ordering`."""
    return Moves(PARTITION_PATH, STORED_PATH, rules, tuple(stored_ordering(rules)), delete_columns(columns, rules))


def refuse_moves(write: Write, moved: pa.Table) -> None:
    """Raise `UnsupportedFeature` if there are rows that an update would move, under an index that never moves rows.
    `moved` has the record keys and the new partition paths."""
    if not moved.num_rows:
        return
    fields, config = sorted(write.context.keys.partition_fields), write.context.config
    key, path = (moved[name][0].as_py() for name in (RECORD_KEY, PARTITION_PATH))
    raise UnsupportedFeature(
        f"an update would move record key {key!r} to partition path {path!r} by setting {', '.join(fields)}, and the"
        f" index of table {config.name!r} leaves rows where they are",
        hint="delete the rows, and insert them by another commit, or take an index with update_partition_path=True",
        context={"columns": fields, "record_key": key, "partition": path},
    )


def stored_among(write: Write, new: pa.Table, deleted: pa.Table, *, by_path: bool) -> pa.Array:
    """The keys of new rows, which have record keys and partition paths, that the table holds in rows that are
    not `deleted`; with `by_path` in the same partition path."""
    names = [RECORD_KEY, PARTITION_PATH]
    keys = one_array(new.column(RECORD_KEY)).drop_null()
    if not len(keys) or not (by_path or deleted.num_rows):
        return keys.filter(exists(write.snapshot, KeyText(keys))) if len(keys) else keys
    stored = locate(write.snapshot, KeyText(pc.unique(keys))).select(["key", "partition_path"]).rename_columns(names)
    stored = stored.join(deleted.select(names), names, join_type="left anti")
    on = names if by_path else [RECORD_KEY]
    return one_array(new.join(stored, on, join_type="left semi").column(RECORD_KEY))


def _batch(rows: pa.Table) -> pa.RecordBatch:
    return next(iter(rows.combine_chunks().to_batches()), None) or pa.RecordBatch.from_pylist([], rows.schema)


def _with(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


def _paired(target: pa.Table, at_target: Positions, source: pa.Table | None, at_source: Positions) -> pa.Table:
    """The rows of both sides next to each other, by position; the position -1 means nulls."""
    parts: list[pa.Table] = []
    for table, at in ((target, at_target), (source, at_source)):
        if table is not None and table.num_rows:
            parts.append(table.take(pa.array(at, pa.int64(), mask=at < 0)))
        elif table is not None:
            nulls = [pa.nulls(len(at), column.type) for column in table.schema]
            parts.append(pa.table(nulls, schema=table.schema))
    columns = [column for part in parts for column in part.columns]
    return pa.table(columns, names=[name for part in parts for name in part.column_names])
