"""A write from top to bottom, for every verb; each `Verb` has what differs. Read `run` first.

A write is refused if lakebed cannot maintain a feature of the table, or if a pending clustering of its file groups does
not give way. It warns about buckets that have grown beyond what is advised.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from lakebed import telemetry
from lakebed.concurrency.conflicts import GIVES_WAY, clusterings_that_give_way
from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Rows
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption, LakebedError
from lakebed.index.base import pending_resizes
from lakebed.index.bucket_counts import ADVISED_BYTES
from lakebed.index.key_repetitions import KeyRepetitions
from lakebed.index.registry import check_partition_counts
from lakebed.merge.row_checks import RowChecks
from lakebed.merge.shares import without_counts
from lakebed.metadata.lookups import snapshot_of
from lakebed.metadata_kinds.key_changes import KeyIndexes
from lakebed.model import IS_DELETED_COLUMN, RECORD_INDEX, Action, FileGroupId, Instant, path_in
from lakebed.operations.callbacks import call_back
from lakebed.operations.checks import Judged, warn_of_broken
from lakebed.operations.context import CONCURRENCY, TableSchema, WriteContext, schema_for_write
from lakebed.operations.growth import Growth, planned_growth
from lakebed.operations.once import check_once
from lakebed.operations.placement import Layout, Placed, placed
from lakebed.operations.plan import WritePlan, waiting_services
from lakebed.operations.result import StageTimes, WriteResult
from lakebed.operations.uniqueness import uniqueness_of
from lakebed.operations.write import RowMatch, Write, prepare
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.properties.features import check_write
from lakebed.properties.table_config import TableConfig
from lakebed.schema.evolution import schema_changes
from lakebed.sharing import is_first_time
from lakebed.slices.snapshot import Snapshot, table_features
from lakebed.storage.parallel import is_remote, parallel_map
from lakebed.timeline.index_changes import COMMITTED_CHANGE
from lakebed.wording import size_text
from lakebed.write_status import WriteStatus

if TYPE_CHECKING:
    from lakebed.operations.precommit import Validation
    from lakebed.slices.pending_commit import PendingCommit

_log = logging.getLogger("lakebed")


def admit(context: WriteContext, operation: str) -> None:
    """Raise `UnsupportedFeature` for a table with features that this operation would damage."""
    features = table_features(context.opened)
    check_write(context.config, features, operation.lower())
    if features.partition_buckets:
        check_partition_counts(context.opened, context.index)
    _ = context.rules  # a merger that is not installed
    if context.is_non_blocking:
        _check_non_blocking(context)


def _check_non_blocking(context: WriteContext) -> None:
    """Raise an error for non-blocking writes that cannot work. Non-blocking writers only append, to file groups that
    the key determines. Only readers then know which rows exist, so no writer could maintain an index of keys."""
    config = context.config
    if not context.has_appended_groups:
        raise InvalidOption(
            f"non-blocking writers need a merge-on-read table of version 8 or later with a bucket index, and table"
            f" {config.name!r} is none",
            hint=f"write with {CONCURRENCY}=OPTIMISTIC_CONCURRENCY_CONTROL",
            context={"option": CONCURRENCY},
        )
    partitions = KeyIndexes.of(context.storage, config).partitions
    if partitions:
        raise InvalidOption(
            f"non-blocking writers cannot keep {', '.join(partitions)} of table {config.name!r} right",
            hint=f"write with {CONCURRENCY}=OPTIMISTIC_CONCURRENCY_CONTROL, or drop the index",
            context={"option": CONCURRENCY, "partitions": list(partitions)},
        )


def refuse_clustered(
    snapshot: Snapshot,
    settings: WriteSettings,
    groups: Collection[FileGroupId],
    resized_groups: Collection[FileGroupId] = (),
) -> None:
    """Raise `CommitConflict` if one of these file groups, which a write would change, is in a pending clustering that
    does not give way. `resized_groups` are groups whose rows the write also adds to the new groups."""
    planned = snapshot.timeline.pending_clustering
    met = sorted(set(groups) & planned.keys() - set(resized_groups))
    if not met:
        return
    giving_way = clusterings_that_give_way(snapshot.storage, snapshot.timeline, settings)
    for partition, file_id in met:
        instant = planned[partition, file_id].time
        if instant not in giving_way:
            raise CommitConflict(
                f"file group {file_id} in partition {partition!r} is in the pending clustering {instant}",
                hint="Nothing of this write is visible. Run it again when the clustering is done: retries= waits for"
                " it, t.maintenance.cluster() runs a plan that waits. Or let the clustering give way: write with"
                f" hoodie.clustering.updates.strategy={GIVES_WAY}.",
                context={"partition": partition, "file_id": file_id, "instant": instant},
                kind=ConflictKind.PLANNED,
            )


def warn_about_large_buckets(
    context: WriteContext, snapshot: Snapshot, sizes: Mapping[FileGroupId, int], statuses: Sequence[WriteStatus]
) -> None:
    """Warn, once per process, of each bucket that this write made larger than the advised size. `snapshot` is the table
    before it, `sizes` are those of its file groups."""
    hashing = context.index.hashing
    if hashing is None or hashing.key_hash is None or not hashing.has_fixed_groups:
        return
    limit = context.settings.bucket_bytes or ADVISED_BYTES
    for status in statuses:
        if status.path is None:
            continue
        group = status.partition, status.file_id
        size = status.file_size + (sizes.get(group, 0) if status.log_files is not None else 0)
        if size <= limit or not is_first_time("large bucket", snapshot.storage.spec.uri, *group):
            continue
        _log.warning(
            "bucket %s of table %r has grown to %s; %s is advised, since each write that meets a bucket reads and"
            " writes all of it. t.maintenance.rescale(buckets=...) gives the table more of them,"
            " t.maintenance.rescale(split_over=%d) splits"
            " this one; t.files.skew() shows them all",
            path_in(*group),
            snapshot.config.name,
            size_text(size),
            size_text(limit),
            limit,
        )


# A write of no more bytes, to no more file groups, keeps the table lock from its beginning to its commit.
MAX_LOCKED_BYTES = 4 << 20
MAX_LOCKED_GROUPS = 8
# The instant of a write that is planned and not run.
_NO_INSTANT = "0" * 17


@dataclass(frozen=True, kw_only=True)
class Verb(ABC):
    """The properties that distinguish one kind of write from another.

    `operation` is its name in the commit, `request` the body of its requested instant. `unique`: keys that it inserts
    must not come from another writer as well. `new_groups_only`: its rows go to new file groups only. `repeatable`:
    done twice, it leaves the rows that it leaves when done once. `judged` is what the table's checks found in its rows.
    """

    operation: str
    match: RowMatch
    action: Action = Action.COMMIT
    request: bytes = b""
    unique: bool = True
    new_groups_only: bool = False
    repeatable: bool = True
    judged: Judged | None = None

    def begun(self, context: WriteContext, snapshot: Snapshot, instant: str) -> None:
        """Prepare the verb. A write calls it once, when the action has begun and the lock is released, before any other
        method."""
        return

    @abstractmethod
    def schema(self, context: WriteContext, snapshot: Snapshot) -> TableSchema:
        """The table's schema after the write."""

    def incoming(self, context: WriteContext) -> Rows:
        """The rows before they are prepared; None for a write whose rows are stored ones."""
        return None

    @abstractmethod
    def prepare(self, write: Write) -> Rows:
        """The rows with their record key and partition path."""

    def absent(self, context: WriteContext, schema: TableSchema) -> tuple[str, ...]:
        """The columns that the incoming rows do not have; rows of existing keys retain their stored values."""
        return ()

    def checks(self, context: WriteContext, schema: TableSchema) -> RowChecks | None:
        """The checks of the table that the tasks make of the rows; None if there are none."""
        return None

    def place(self, write: Write, prepared: Rows) -> AbstractContextManager[Placed]:
        """The rows with their locations."""
        return placed(write, prepared)

    def noted(self, statuses: Sequence[WriteStatus]) -> None:
        """Record the counts of the tasks for this kind of write."""
        return

    def replaced(self, write: Write, statuses: list[WriteStatus]) -> Mapping[str, tuple[str, ...]]:
        """The ids of the replaced file groups, by partition path."""
        return {}

    def growth(self, context: WriteContext) -> Growth | None:
        """The buckets that the write splits, if the table allows it; otherwise None."""
        return None

    def report(self, result: WriteResult, statuses: Sequence[WriteStatus], moved: Mapping[int, int]) -> WriteResult:
        """The result, with the additional counts of this kind of write. If several upserts are one write, `moved` has
        the number of moved rows of each upsert."""
        return result


@dataclass(frozen=True, kw_only=True)
class RowsVerb(Verb):
    """A write of the caller's rows: with all the table's columns, or `partial` rows, which leave the other columns
    unchanged."""

    rows: Rows
    partial: bool = False

    def incoming(self, context: WriteContext) -> Rows:
        return self.rows

    def schema(self, context: WriteContext, snapshot: Snapshot) -> TableSchema:
        return schema_for_write(context, snapshot, self.rows, partial=self.partial)

    def absent(self, context: WriteContext, schema: TableSchema) -> tuple[str, ...]:
        present = set(context.engine.schema(self.rows).names) if self.partial else set(schema.data.names)
        return tuple([name for name in schema.data.names if name not in present])

    def checks(self, context: WriteContext, schema: TableSchema) -> RowChecks | None:
        return None if self.judged is None else self.judged.in_tasks

    def prepare(self, write: Write) -> Rows:
        return prepare(write.context, self.rows, write.schema)

    def report(self, result: WriteResult, statuses: Sequence[WriteStatus], moved: Mapping[int, int]) -> WriteResult:
        if self.judged is None or not self.judged.broken:
            return result
        return replace(result, quarantined=self.judged.rejected, broken_checks=self.judged.broken)

    def growth(self, context: WriteContext) -> Growth | None:
        allowed = context.settings.grow_buckets and not self.new_groups_only
        return planned_growth(context, self.rows) if allowed else None


@dataclass
class WrittenFiles:
    """A write whose files are written and which is not committed: its transaction is open, and no reader sees it.

    `replaced` are the ids of the file groups that it replaces, by partition path, `split` those of the buckets that it
    splits. `repetitions` is the number of rows whose key is stored another time, None if unknown. `validations`
    are queries that must hold before the commit.
    """

    write: Write
    verb: Verb
    tx: WriteTransaction
    layout: Layout
    statuses: list[WriteStatus]
    replaced: Mapping[str, tuple[str, ...]]
    split: Mapping[str, tuple[str, ...]]
    repetitions: int | None
    times: StageTimes
    validations: Sequence[Validation]

    def pending(self) -> PendingCommit:
        """The commit as it would complete now, for a view of the table with it."""
        from lakebed.slices.pending_commit import PendingCommit

        tx = self.tx
        metadata = tx.commit_metadata(self.statuses, self.write.schema.avro, {**self.replaced, **self.split})
        if tx.new_index is not None:
            metadata.extra[COMMITTED_CHANGE] = tx.index_change(tx.timeline, tx.new_index).committed()
        return PendingCommit(tx.instant, tx.action, metadata)

    def commit(self) -> Instant:
        """Commit the write: validators, checks of the table as a whole, conflicts, metadata table, index. Raises
        `CommitConflict`, `ValidationFailed` or `CheckFailed`, and nothing is visible then."""
        if self.validations:
            from lakebed.operations.precommit import validate

            table = snapshot_of(self.tx.storage, self.tx.config, self.tx.load())
            validate(self.write.context, self.validations, table, table.with_pending(self.pending()))
        if self.write.context.judges and self.tx.config.checks and self.tx.config.table_checks:
            from lakebed.operations.table_checks import refuse_broken_table

            self.tx.judged_timeline = timeline = self.tx.load()
            table = snapshot_of(self.tx.storage, self.tx.config, timeline)
            refuse_broken_table(self.write.context, table.with_pending(self.pending()))
        done = self.tx.commit(self.statuses, self.write.schema.avro, {**self.replaced, **self.split})
        self.times.mark("commit")
        return done

    def result(self, done: Instant | None) -> WriteResult:
        """The result of the write, which `done` has completed; for None that of its files, without a checkpoint."""
        context, tx, verb, write = self.write.context, self.tx, self.verb, self.write
        copies = pending_resizes(context.index, tx.snapshot).children
        once_each = [_counted_once(status, copies) for status in self.statuses] if copies else self.statuses
        counted = [*once_each, *self.layout.skipped]
        result = WriteResult.of(
            tx.instant,
            "" if done is None else done.completion_time or tx.instant,
            verb.operation.lower(),
            counted,
            replaced_file_groups=sum([len(ids) for ids in self.replaced.values()]),
            replaced_rows=rows_of_groups(tx.snapshot, self.replaced) if self.replaced else 0,
            seconds=self.times.seconds,
            lookup=self.layout.lookup(counted),
            moved=self.layout.moved,
            rolled_back=tuple(tx.rolled_back),
            schema_changes=changes_of(write),
            bucket_changes=() if write.growth is None else write.growth.lines,
            duplicates=self.repetitions if tx.duplicates is None else tx.duplicates,
        )
        if done is not None:
            warn_about_large_buckets(context, tx.snapshot, self.layout.sizes, self.statuses)
            telemetry.write_completed(context.storage.spec.uri, result)
            if context.options.callback.on:
                assert tx.published is not None
                settings, uri = context.options.callback, context.storage.spec.uri
                call_back(settings, uri, context.config, tx.instant, tx.action, tx.published)
        return verb.report(result, counted, self.layout.moved_of)


def run(context: WriteContext, verb: Verb) -> WriteResult:
    """Run a write whose rows were admitted. An error leaves nothing visible. In a stage the write is not committed."""
    times = StageTimes()
    if verb.judged is not None and verb.judged.broken:
        from lakebed.operations.rejects import keep_rejects

        match = RowMatch("keys")  # rows that a check quarantines are written before the others
        keep_rejects(
            context, verb.judged, lambda to, rows: run(to, RowsVerb(operation="UPSERT", match=match, rows=rows))
        )
        warn_of_broken(context, verb.judged.broken)
    if context.stream_batch is not None:
        check_once(context.opened.timeline, context.stream_batch, repeatable=verb.repeatable)
    validations: Sequence[Validation] = ()
    if context.judges and context.settings.validation.validators:
        from lakebed.operations.precommit import checked_validations

        validations = checked_validations(context)
    judges_table = bool(context.judges and context.config.checks and context.config.table_checks)
    if judges_table:
        from lakebed.operations.precommit import check_engine

        check_engine(context)
    refuse_clustered_groups(context, verb)
    growth = verb.growth(context)
    keeps_lock = growth is None and context.stage is None and is_remote(context.storage) and context.has_appended_groups
    keeps_lock = keeps_lock and not (context.engine.is_distributed or judges_table)
    keeps_lock = keeps_lock and _is_small(context, verb.incoming(context))
    checks_keys = verb.unique and context.stores_keys and context.index.hashing is None
    with WriteTransaction(
        context,
        action_of(context.config, verb),
        verb.operation,
        planned_index=context.opened.index_settings,
        planned_checks=context.config.checks,
        unique=uniqueness_of(context.index) if checks_keys else "nowhere",
        non_blocking=context.is_non_blocking and not verb.new_groups_only,
        looks_up=verb.match.looks_up,
        repeatable=verb.repeatable,
        keeps_lock=keeps_lock,
    ) as tx:
        with tx.begin():  # 1. begin: dead writers are rolled back, the instant is shown
            times.mark("begin")
            tx.prepare_metadata()
            times.mark("metadata")
            growth = None if growth is None else growth.begun(tx)
            tx.request(verb.request if growth is None else growth.request)
        times.mark("begin")
        verb.begun(context, tx.snapshot, tx.instant)
        write = replace(_write(context, verb, tx.snapshot, tx.instant), early=tx.early_conflicts(), growth=growth)
        prepared = verb.prepare(write)  # 2. prepare: record key, partition path
        with verb.place(write, prepared) as rows:  # 3. place: the index decides where rows go
            layout = rows.assign()  # 4. assign: a file group for every row, the plan is complete
            if tx.keeps_lock and not (_is_small(context, prepared) and layout.appends_within(MAX_LOCKED_GROUPS)):
                tx.let_lock_go()
            repetitions = 0 if tx.looks_up else _repetitions(write, prepared, layout)
            times.mark("tag")
            if context.settings.early_commit_check and write.early is not None and not write.new_groups_only:
                tx.check_early(frozenset(layout.plan().touched()))
            with tx.showing(layout.profile()):
                statuses = layout.run()  # 5. write: one shuffle, a handle for each file group
        verb.noted(statuses)
        times.mark("write")
        replaced = verb.replaced(write, statuses)
        tx.plain_keys = context.watched_keys(write.schema.data)
        split = {} if growth is None else growth.replaced(tx.snapshot)
        files = WrittenFiles(write, verb, tx, layout, statuses, replaced, split, repetitions, times, validations)
        if context.stage is not None:
            return context.stage.hold(files)
        done = files.commit()  # 6. commit: conflicts, metadata table, index
    return files.result(done)


def _is_small(context: WriteContext, rows: Rows) -> bool:
    """Whether these rows are in the memory of this process, and so few bytes that other writers can wait for the whole
    write."""
    engine = context.engine
    return rows is not None and engine.has_at_hand(rows) and engine.collect(rows).nbytes <= MAX_LOCKED_BYTES


def _repetitions(write: Write, prepared: Rows, layout: Layout) -> int | None:
    """The number of rows of an insert whose key the table already has, or another row of the insert has. None if that
    is not counted, or if the commit counts it by the record index."""
    if prepared is None:
        return 0
    context, snapshot, settings = write.context, write.snapshot, write.context.settings
    if context.makes_keys:
        return 0
    is_shown_later = RECORD_INDEX in snapshot.config.metadata_partitions and not snapshot.repeats_keys
    if settings.count_duplicates == "false" or not context.stores_keys or is_shown_later:
        return None
    if {IS_DELETED_COLUMN, snapshot.config.delete_field} & set(context.engine.schema(prepared).names):
        return None  # a row with a delete flag may delete instead of insert
    always, combines = settings.count_duplicates == "true", write.match.combine
    count = KeyRepetitions(snapshot, context.engine, context.index, always, combines, write.new_groups_only)
    try:
        return layout.repetitions(count)
    except (LakebedError, OSError):  # a failed count does not stop the insert
        return None


def _counted_once(status: WriteStatus, copies: Collection[FileGroupId]) -> WriteStatus:
    """The status without the `copies` in its counts: a row that is written to two file groups counts once."""
    if (status.partition, status.file_id) not in copies:
        return status
    counts = (field.name for field in fields(status) if field.name == "rows_in" or field.name.startswith("num_"))
    shares = None if status.shares is None else without_counts(status.shares)
    return replace(status, **dict.fromkeys(counts, 0), shares=shares)


def explain(context: WriteContext, verb: Verb) -> WritePlan:
    """The plan of the write, counted by a separate job; nothing is written."""
    write = replace(_write(context, verb, context.opened, _NO_INSTANT), growth=verb.growth(context))
    with verb.place(write, verb.prepare(write)) as rows:
        changes = changes_of(write)
        return replace(rows.assign().plan(), waiting=waiting_services(context.opened.timeline), schema_changes=changes)


def refuse_clustered_groups(context: WriteContext, verb: Verb) -> None:
    """Raise `CommitConflict`, before the write begins, if it would change a file group of a pending clustering that
    does not give way."""
    opened = context.opened
    pending = {i.time for i in opened.timeline.pending_clustering.values()}
    rewrites = verb.match.looks_up or context.index.hashing is not None
    if not pending or not rewrites or verb.new_groups_only:
        return
    if pending - clusterings_that_give_way(context.storage, opened.timeline, context.settings):
        resizing_parents = pending_resizes(context.index, opened).parents
        refuse_clustered(opened, context.settings, explain(context, verb).touched(), resizing_parents)


def rows_of_groups(snapshot: Snapshot, groups: Mapping[str, Sequence[str]]) -> int | None:
    """The number of rows in these file groups, given by partition path; None if one of their files cannot be read: the
    rows are already deleted, and a damaged file must not prevent that."""
    ids = {(path, file_id) for path, file_ids in groups.items() for file_id in file_ids}
    slices = [s for s in snapshot.file_slices(list(groups)) if (s.partition, s.file_id) in ids] if ids else []
    try:
        return sum(parallel_map(snapshot.reader.count, slices, 16))
    except (LakebedError, OSError):
        return None


def changes_of(write: Write) -> tuple[str, ...]:
    """The changes that the write makes to the table's columns; the first rows of a table change nothing."""
    before, after = write.snapshot.schema, write.schema.data
    return schema_changes(before, after) if len(before) and not after.equals(before) else ()


def action_of(config: TableConfig, verb: Verb) -> Action:
    """The action of the verb on the table's timeline: writes of a merge-on-read table are delta commits."""
    return Action.DELTACOMMIT if verb.action is Action.COMMIT and config.table_type == "mor" else verb.action


def _write(context: WriteContext, verb: Verb, snapshot: Snapshot, instant: str) -> Write:
    schema = verb.schema(context, snapshot)
    absent = verb.absent(context, schema)
    checks = verb.checks(context, schema) if context.config.checks else None
    return Write(
        context, snapshot, schema, verb.operation, instant, verb.match, verb.new_groups_only, absent, checks=checks
    )
