"""The clauses of a MERGE in a write task: the source rows of a file group against the rows it stores.

Only the stored rows of the source's keys are read, and of those the columns that the clauses name. The rows that the
clauses make become the incoming rows of an upsert: updated rows without the columns that they keep, deletes, new rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRecord, SchemaConflict
from lakebed.expressions.partition_paths import DEFAULT_PARTITION
from lakebed.handles.base import GroupWrite
from lakebed.merge.clauses import Acts, Clauses, When, check_unambiguous, evaluate, replaced_rows
from lakebed.merge.incoming import Incoming, Intake
from lakebed.merge.row_checks import RowChecks
from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds.stored import stored_rows
from lakebed.model import PARTITION_PATH, RECORD_KEY
from lakebed.properties.checks import BrokenRows
from lakebed.read.lookup import KeyText, locate
from lakebed.schema.conversion import cast_column, project
from lakebed.schema.plain_arrow import as_numpy, one_array
from lakebed.slices.snapshot import Snapshot

# Texts of partition columns whose path is that of a null.
_OF_DEFAULT_PATH = pa.array(["", DEFAULT_PARTITION], pa.string())


@dataclass(frozen=True, slots=True)
class KeyedClauses:
    """The clauses of a MERGE whose source rows are sent to the file groups of their keys.

    `source` has the columns of the source rows as they are sent to tasks, among them the `key_fields` by their own
    names: those of the key, and of the partition path where it is equated. `on` are the conditions in addition to equal
    keys, `read` the stored columns that conditions and values need. `equal` has the equality of each stored column that
    the join condition equates: it is evaluated where equal texts of keys and paths do not say that the values are equal
    (never with `determines_values`, but for a few values). With `is_upsert` a row becomes the same whether its key is
    stored or not, and nothing is read.
    """

    clauses: Clauses
    source: pa.Schema
    key_fields: tuple[str, ...]
    on: pc.Expression | None
    read: tuple[str, ...]
    equal: Mapping[str, pc.Expression] = field(default_factory=dict[str, pc.Expression])
    determines_values: bool = True
    is_upsert: bool = False

    def intake(self, intake: Intake) -> Intake:
        """The intake of the source rows of a file group: unchanged, in the columns of the source."""
        return replace(intake, schema=self.source, rules=MergeRules(), combine=False, absent=(), checks=None)

    def apply(self, group: GroupWrite, incoming: Incoming, *, appends: bool) -> tuple[Incoming, list[int] | None]:
        """The rows to write, and the number of rows that each clause made. With `appends` the rows are for a log file,
        in which the rows of a block have the same columns. The counts are None if no key was looked up."""
        compares = not self.determines_values or self._is_doubtful(group, incoming)
        if self.is_upsert and not compares:
            return self._upserted(group, incoming), None
        read = tuple(dict.fromkeys([*self.read, *(self.equal if compares else ())]))
        stored = _stored(group, incoming, read, group.job.format.schema, self.clauses.prefix)
        pairs = pa.Table.from_batches([incoming.take(np.arange(incoming.rows))])
        for name in stored.rows.schema.names[1:]:
            pairs = pairs.append_column(name, stored.values(name))
        conditions = [*([self.on] if self.on is not None else []), *(self.equal.values() if compares else ())]
        matched = self._matched(pairs, stored.row_numbers, conditions)
        kinds: dict[When, npt.NDArray[np.bool_]] = {"matched": matched, "not_matched": ~matched}
        acts = self.clauses.act(pairs, kinds)
        actions = self.clauses.actions(acts.clause)
        keys = incoming.keys.take(pa.array(acts.at))
        inserts, updates = actions == "insert", actions == "update"
        refuse_stored_keys(
            keys.filter(pa.array(inserts & (stored.row_numbers[acts.at] >= 0))),
            keys.filter(pa.array(actions == "delete")),
        )
        carried_out = check_unambiguous(keys, actions)
        new, deleted_at = replaced_rows(keys, actions)
        if len(new):
            deleted, at = pairs.take(pa.array(acts.at[deleted_at])), pa.array(new)
            refuse_older_rows(group.job.rules, keys.take(at), acts.rows.take(at), deleted, self.clauses.prefix)
        counted = acts.clause[np.union1d(np.flatnonzero(carried_out), deleted_at)]
        counts = np.bincount(counted, minlength=len(self.clauses.clauses)).tolist()
        complete = appends and bool(inserts.any())
        rows = acts.rows
        if complete and updates.any():
            rows = self._completed(group, incoming, acts)
        deletes = actions == "delete"
        written = incoming.at(acts.at).with_rows(rows, deletes)
        marked = group.job.rules.is_delete(rows)
        if marked is not None:
            deletes = deletes | as_numpy(marked)
        absent = () if complete or not updates.any() else self.clauses.untouched
        written = replace(written, deletes=deletes, forced=actions == "delete", absent=absent)
        check_new_rows(
            rows, keys, deletes, updates if absent else np.zeros(len(keys), np.bool_), self.clauses, group.job.intake
        )
        written = written.where(carried_out)
        return replace(written, received=written.rows), counts

    def _is_doubtful(self, group: GroupWrite, incoming: Incoming) -> bool:
        """Whether the text of a key or a partition path may be that of other values, too: nulls, values with the
        default partition path, and fields that contain the separators."""
        fields = group.job.rules.key_fields
        if fields is not None and len(fields.may_share(incoming.keys)):
            return True
        rows = incoming.take(np.arange(incoming.rows), self.key_fields)
        for values in rows.columns:
            if values.null_count:
                return True
            if pa.types.is_string(values.type) and pc.any(pc.is_in(values, value_set=_OF_DEFAULT_PATH)).as_py():
                return True
        return False

    def _upserted(self, group: GroupWrite, incoming: Incoming) -> Incoming:
        """The rows of a merge that is an upsert."""
        source = pa.Table.from_batches([incoming.take(np.arange(incoming.rows))])
        nothing = np.zeros(incoming.rows, np.bool_)
        acts = self.clauses.act(source, {"matched": ~nothing, "not_matched": nothing})
        check_unambiguous(incoming.keys, np.full(incoming.rows, "update"))
        marked = group.job.rules.is_delete(acts.rows)
        deletes = incoming.deletes if marked is None else as_numpy(marked)
        check_new_rows(acts.rows, incoming.keys, deletes, nothing, self.clauses, group.job.intake)
        return incoming.with_rows(acts.rows, deletes)

    def _matched(
        self, pairs: pa.Table, row_numbers: npt.NDArray[np.int64], conditions: Sequence[pc.Expression]
    ) -> npt.NDArray[np.bool_]:
        matched = row_numbers >= 0
        for condition in conditions if matched.any() else ():
            at = np.flatnonzero(matched)
            (holds,) = evaluate(pairs.take(pa.array(at)), [condition])
            matched[at] = as_numpy(pc.fill_null(holds, False))
        return matched

    def _completed(self, group: GroupWrite, incoming: Incoming, acts: Acts) -> pa.Table:
        """Complete rows: an updated row has the stored values of the columns that the update does not set."""
        names = self.clauses.untouched
        part = incoming.at(acts.at)
        stored = _stored(group, part, names, group.job.format.schema, "")
        is_update = pa.array(self.clauses.actions(acts.clause) == "update")
        rows = acts.rows
        for name in names:
            stored_values = cast_column(stored.values(name), rows.schema.field(name).type)
            new_values = rows.column(name).combine_chunks()
            rows = rows.set_column(
                rows.schema.get_field_index(name), name, pc.if_else(is_update, stored_values, new_values)
            )
        return rows


def refuse_repeated_keys(snapshot: Snapshot, moved: pa.Table) -> None:
    """Raise `InvalidRecord` if an update moves a row to a partition path that has, or gets, another row with its key.
    `moved` has the record keys and the new partition paths."""
    names = [RECORD_KEY, PARTITION_PATH]
    counts = moved.group_by(names).aggregate([([], "count_all")])
    repeated = counts.filter(pc.greater(counts["count_all"], 1))
    reason = "several rows of that key move there"
    if not repeated.num_rows and moved.num_rows:
        stored = locate(snapshot, KeyText(pc.unique(moved[RECORD_KEY])))
        repeated = counts.join(stored.select(["key", "partition_path"]), names, ["key", "partition_path"], "left semi")
        reason = "that path holds a row of that key"
    if repeated.num_rows:
        key, path = (repeated[name][0].as_py() for name in names)
        raise InvalidRecord(
            f"an update would move record key {key!r} to partition path {path!r}, and {reason}",
            hint="a key has one row in a partition path: delete the other row first, or leave such rows out by a"
            " condition",
            context={"record_key": key, "partition": path, "keys": repeated.num_rows},
        )


def refuse_stored_keys(keys: pa.Array, deleted: pa.Array | None = None) -> None:
    """Raise `InvalidRecord` if there is a key that is not in `deleted`: the merge would insert it, and it is stored."""
    if deleted is not None:
        keys = keys.filter(pc.invert(pc.is_in(keys, value_set=deleted)))
    if not len(keys):
        return
    key = keys[0].as_py()
    raise InvalidRecord(
        f"the merge would insert record key {key!r}, which the table holds in a row that the join condition leaves out",
        hint="give the insert clause a condition that leaves such source rows out, or move the condition from ON to the"
        " clause of matched rows",
        context={"record_key": key, "keys": len(keys)},
    )


def refuse_older_rows(rules: MergeRules, keys: pa.Array, rows: pa.Table, deleted: pa.Table, prefix: str) -> None:
    """Raise `InvalidRecord` if a merge inserts a row in place of a row that it deletes, with a lower ordering value.
    The `deleted` rows have their columns under `prefix` and their names."""
    names = rules.ordering_columns
    if not names or not rows.num_rows:
        return
    stored = {
        name: cast_column(one_array(deleted.column(prefix + name)), rows.schema.field(name).type) for name in names
    }
    wins = rules.newer_wins(rules.ordering_of(pa.table(stored)), rules.ordering_of(rows))
    older = pc.indices_nonzero(pc.invert(wins))
    if len(older):
        raise older_row(rules, keys[older[0].as_py()].as_py())


def older_row(rules: MergeRules, key: str) -> InvalidRecord:
    """The error for a merge that deletes a row and inserts its key again with a lower ordering value."""
    return InvalidRecord(
        f"the merge would delete record key {key!r} and insert it again with a lower ordering value"
        f" ({', '.join(rules.ordering)})",
        hint="give the new row an ordering value that is not lower, or delete the row first",
        context={"record_key": key, "replaced": True},
    )


def check_new_rows(
    rows: pa.Table,
    keys: pa.Array,
    deletes: npt.NDArray[np.bool_],
    partial: npt.NDArray[np.bool_],
    clauses: Clauses,
    intake: Intake,
) -> None:
    """Raise `SchemaConflict` for a null in a required column, `InvalidRecord` for a null ordering value, and
    `CheckFailed` for a row that breaks a check. In rows that are `partial` the columns that retain their stored values
    are not checked."""
    alive = ~deletes
    for column in clauses.schema:
        if column.nullable or not rows.column(column.name).null_count:
            continue
        required = alive & ~partial if column.name in clauses.untouched else alive
        nulls = as_numpy(rows.column(column.name).is_null()) & required
        if nulls.any():
            key = keys[int(np.argmax(nulls))].as_py()
            raise SchemaConflict(
                f"record key {key!r} would have a null in column {column.name!r}, which may not be null",
                hint=f"give {column.name!r} a value in the clause",
                context={"record_key": key, "column": column.name},
            )
    if intake.null_ordering == "refuse" and intake.rules.ordering and alive.any():
        mask = pa.array(alive)
        intake.rules.check_ordering(rows.filter(mask).append_column(RECORD_KEY, keys.filter(mask)))
    if intake.checks is not None:
        refuse_broken(rows, deletes, partial, clauses, intake.checks)


def refuse_broken(
    rows: pa.Table,
    deletes: npt.NDArray[np.bool_],
    partial: npt.NDArray[np.bool_],
    clauses: Clauses,
    checks: RowChecks,
) -> None:
    """Raise `CheckFailed` for a row that breaks a check. Rows that are `partial` retain the stored values of some
    columns: checks of these columns alone do not concern them, and no check is about such a column and others."""
    untouched = set(clauses.untouched)
    of_all = tuple(check for check in checks.checks if untouched.isdisjoint(check.columns))
    of_complete = tuple(check for check in checks.checks if check not in of_all)
    broken = BrokenRows(checks.table)
    displayed = rows.drop_columns(list(untouched & set(rows.column_names))) if partial.any() else rows
    for part, excluded in ((of_all, deletes), (of_complete, deletes | partial)):
        for check, flags in replace(checks, checks=part).flags(rows, excluded):
            broken.note(check.check, displayed, flags, None)
    if broken.counts:
        raise broken.error()


@dataclass(frozen=True, slots=True)
class _Stored:
    """Stored rows of keys; `row_numbers` has the number of each key's row in `rows`, -1 for a key without a row."""

    rows: pa.RecordBatch
    row_numbers: npt.NDArray[np.int64]

    def values(self, name: str) -> pa.Array:
        """A column, for each key."""
        at = pa.array(self.row_numbers, mask=self.row_numbers < 0)
        return self.rows.column(name).take(at)


def _stored(group: GroupWrite, incoming: Incoming, names: tuple[str, ...], schema: pa.Schema, prefix: str) -> _Stored:
    requested_schema = pa.schema([schema.field(name).with_nullable(True) for name in names])
    keys, parts, key_parts = pc.unique(incoming.keys), list[pa.RecordBatch](), list[pa.Array]()
    for file_slice in group.target.stored_in if len(keys) else ():
        slice_rows = stored_rows(group.job.reader, file_slice, [RECORD_KEY, *names], keys=keys)
        parts.append(project(slice_rows, requested_schema))
        key_parts.append(slice_rows.column(RECORD_KEY).cast(pa.string()))
    texts = pa.concat_arrays(key_parts) if key_parts else pa.array([], pa.string())
    at = as_numpy(pc.fill_null(pc.index_in(incoming.keys, value_set=texts), -1))
    columns = [
        pa.concat_arrays([part.column(name) for part in parts])
        if parts
        else pa.array([], requested_schema.field(name).type)
        for name in names
    ]
    rows = pa.RecordBatch.from_arrays([texts, *columns], names=[RECORD_KEY, *(prefix + name for name in names)])
    return _Stored(rows, at.astype(np.int64))
