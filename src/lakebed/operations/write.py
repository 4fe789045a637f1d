"""One write under way: record key, partition path and hashed file group of every row, and the row function for the
tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.concurrency.conflicts import EarlyConflicts
from lakebed.engine.base import GROUP, Rows, changed_input, count_rows
from lakebed.expressions.base import RowExpression
from lakebed.expressions.key_text import SingleKey
from lakebed.handles.append import AppendHandle
from lakebed.handles.base import GroupJob, HandleType, Targets
from lakebed.handles.create import CreateHandle
from lakebed.handles.group_writer import GroupWriter
from lakebed.handles.matched import KeyedClauses
from lakebed.index.base import key_hash_of
from lakebed.merge.incoming import Intake
from lakebed.merge.row_checks import RowChecks
from lakebed.merge.row_merge import OnMatch
from lakebed.model import IS_DELETED_COLUMN, MEMBER, PARTITION_PATH, RECORD_KEY
from lakebed.operations.context import TableSchema, WriteContext, file_format
from lakebed.operations.growth import Growth
from lakebed.slices.snapshot import Snapshot
from lakebed.write_status import STATUS_SCHEMA, WriteStatus, checked_statuses


def prepare(context: WriteContext, rows: Rows, schema: TableSchema) -> Rows:
    """The rows with the key, the partition path (and the number of the file group) in front of the columns that files
    store."""
    present = context.engine.schema(rows)
    names = set(schema.data.names)
    extra = {IS_DELETED_COLUMN, context.config.delete_field, MEMBER}
    keep = [n for n in present.names if n in names or n in extra]
    return derive_keys(context, rows, present, keep)


def check_partitions(context: WriteContext, rows: Rows) -> None:
    """Raise `InvalidRecord` for values without a valid partition path, if the rows are in memory. Only tasks see the
    rows of a DataFrame or a stream, and they refuse such a path as well."""
    if context.engine.has_at_hand(rows) and context.keys.partition_fields:
        context.path_check.require_values(context.engine.collect(rows))


def derivable(context: WriteContext, prepared: pa.Schema) -> dict[str, RowExpression]:
    """The columns of `prepare` that a task can compute again at almost no cost: a key that is the text of one column,
    and the only partition path of a table without partitions."""
    expressions: dict[str, RowExpression] = {}
    key, fields = context.keys.record_key, context.keys.key_fields
    texts = {f.name for f in prepared if pa.types.is_string(f.type)}
    if isinstance(key, SingleKey) and fields[0] in texts:
        expressions[RECORD_KEY] = key
    if not context.keys.partition_fields:
        expressions[PARTITION_PATH] = context.keys.partition_path
    return expressions


def derive_keys(context: WriteContext, rows: Rows, present: pa.Schema, keep: Sequence[str]) -> Rows:
    columns: dict[str, RowExpression] = {
        RECORD_KEY: context.keys.record_key,
        PARTITION_PATH: context.keys.partition_path,
    }
    key_hash = key_hash_of(context.index)
    if key_hash is None:
        return context.engine.derive(rows, columns, keep=keep)
    group = key_hash.group_column(context.keys, present)
    if columns.keys() & set(group.columns):  # of the two that are derived here
        derived = context.engine.derive(rows, columns, keep=keep)
        return context.engine.derive(derived, {GROUP: group})
    return context.engine.derive(rows, {**columns, GROUP: group}, keep=keep)


def renumbered(context: WriteContext, rows: Rows) -> Rows:
    """The rows of `derive_keys`, with new numbers of file groups: their partition paths were changed afterwards, and
    the number may depend on the path."""
    key_hash, present = key_hash_of(context.index), context.engine.schema(rows)
    group = None if key_hash is None else key_hash.group_column(context.keys, present)
    if group is None or PARTITION_PATH not in group.columns:
        return rows
    return context.engine.derive(rows, {GROUP: group}, keep=[name for name in present.names if name != GROUP])


@dataclass(frozen=True, slots=True)
class RowMatch:
    """The treatment of an incoming row if a stored row, or another incoming row, has the same key.

    The stored row is replaced by the merge rules ("keys"), or by the incoming one, which is then the only one of its
    key ("one"), left ("skip"), an error ("fail"), or not looked up ("none", a plain insert). `combine`: several
    incoming rows of a key become one. `deletes`: the incoming rows hold only keys, whose stored rows are deleted.
    """

    on_match: OnMatch
    combine: bool = True
    deletes: bool = False

    @property
    def looks_up(self) -> bool:
        return self.on_match != "none"


@dataclass(frozen=True)
class Write:
    """One write in progress, with the data that its steps share. `snapshot` is the table as it was when the write
    began. With `new_groups_only` its rows are written to new file groups only. `absent` are columns that they do not
    have, for which existing keys retain their values; `early` finds other writers of a file group. With `clauses` the
    rows are the source rows of a MERGE, with `stored` they are stored rows. With `growth` buckets are split. With
    `reveals` rows of new keys are visible whatever was deleted. `checks` are those that the tasks make of the rows."""

    context: WriteContext
    snapshot: Snapshot
    schema: TableSchema
    operation: str
    instant: str
    match: RowMatch
    new_groups_only: bool = False
    absent: tuple[str, ...] = ()
    early: EarlyConflicts | None = None
    clauses: KeyedClauses | None = None
    stored: bool = False
    growth: Growth | None = None
    reveals: bool = False
    checks: RowChecks | None = None

    def group_job(self) -> GroupJob:
        """The common data of the file groups of this write, ready to be sent to tasks."""
        context, settings = self.context, self.context.settings
        format_ = file_format(context, self.snapshot, self.schema, key_changes=True)
        generated = context.makes_keys and not self.match.deletes
        new_values: Mapping[str, pa.Scalar] = {}
        if settings.partial and (context.config.defaults or context.config.generated):
            from lakebed.operations.column_values import values_of_new_rows

            new_values = values_of_new_rows(context, self.schema.data, self.absent)
        intake = Intake(
            schema=self.schema.data,
            rules=context.rules,
            combine=self.match.combine,
            all_deletes=self.match.deletes,
            memory=settings.memory,
            auto_keys=self.instant if generated else None,
            absent=self.absent,
            new_values=new_values,
            null_ordering=settings.null_ordering,
            once_a_file=self.match.on_match == "keys" and self.clauses is None,
            checks=self.checks,
        )
        return GroupJob(
            reader=self.snapshot.reader,
            instant=self.instant,
            format=format_,
            intake=intake,
            on_match=self.match.on_match,
            max_file_size=settings.max_file_size,
            path_check=context.path_check,
            located=context.index.hashing is None and self.match.looks_up,
            # of writers that do not wait for one another a delete takes also what it did not see
            delete_lookup=settings.delete_lookup and not context.is_non_blocking,
            clauses=self.clauses,
            stored=self.stored,
            durable=context.engine.is_distributed or "later",
            skip_unchanged=settings.skip_unchanged and self._compares_rows,
            reveals=self.reveals,
            may_rewrite=not context.is_non_blocking,
        )

    def group_writer(self, targets: Targets, existing_partitions: frozenset[str] = frozenset()) -> GroupWriter:
        """The row function of this write, ready to be sent to tasks."""
        return GroupWriter(
            self.group_job(), targets, existing_partitions, insert_handle=self._insert_handle, early=self.early
        )

    @property
    def _compares_rows(self) -> bool:
        """Whether the rows are those of an upsert and are not counted by the clauses of a merge."""
        return self.match.on_match == "keys" and not self.match.deletes and self.clauses is None

    @property
    def begins_with_logs(self) -> bool:
        """Whether all rows are written to log files, in which rows of a key are combined. Non-blocking writers begin
        the file group of a bucket with log files, so that several of them may begin it; so do writers of tables whose
        base files are not written."""
        hashing = self.context.index.hashing
        logs = hashing is not None and hashing.begins_with_logs
        logs = logs or not self.snapshot.config.writes_base_files
        return logs or (self.context.is_non_blocking and not self.new_groups_only)

    @property
    def _insert_handle(self) -> HandleType:
        """The handle type that writes the rows of new file groups."""
        return AppendHandle if self.begins_with_logs else self.context.index.insert_handle or CreateHandle

    def run_grouped(
        self, rows: Rows, writer: GroupWriter, *, groups: int | None, expected: int | None = None
    ) -> list[WriteStatus]:
        """Shuffle the rows once by group, and run the writer on each group, one task per group if their number is
        known. `expected` is the number of rows, if they were counted before. Returns the statuses."""
        engine = self.context.engine
        derived = derivable(self.context, engine.schema(rows))

        def run(sent: Rows) -> Rows:
            return engine.group_map(
                sent, writer, STATUS_SCHEMA, groups=groups, one_group_per_task=groups is not None, derivable=derived
            )

        return self.run_counted(rows, run, unsent=derived, expected=expected)

    def run_counted(
        self,
        rows: Rows,
        run: Callable[[Rows], Rows],
        *,
        unsent: Collection[str] = (),
        expected: int | None = None,
    ) -> list[WriteStatus]:
        """The statuses of the tasks to which `run` sends the rows. Raises `SourceError` unless each row was sent to
        exactly one task: rows may differ if a lost part of them is computed again."""
        engine = self.context.engine
        sent, count = (rows, lambda: expected) if expected is not None else engine.counted(rows, unsent)
        statuses = checked_statuses(engine.collect(run(sent)))
        received = sum([status.received for status in statuses])
        if count() == received:
            return statuses
        # tasks that ran again counted their rows again
        number = count_rows(engine, rows) if expected is None else expected
        if number != received:
            raise changed_input(f"the write has {number} rows, and {received} came to the tasks that wrote them")
        return statuses
