"""Upsert, insert and delete by key, from top to bottom."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from lakebed.engine.base import Rows
from lakebed.engine.groups import GROUP
from lakebed.handles.group_writer import GroupWriter
from lakebed.handles.targets import BucketTargets
from lakebed.index.bucket import BucketIndex
from lakebed.index.locations import NO_LOCATION, IsNull
from lakebed.index.record import RecordIndex
from lakebed.index.simple import GlobalSimpleIndex
from lakebed.merge.combine_stage import combine_by_key
from lakebed.merge.rules import MergeRules
from lakebed.model import FILE_ID, PARTITION_PATH, Action, FileSlice
from lakebed.operations.admission import admit, file_groups_in_clustering, refuse_clustered
from lakebed.operations.assign import Assignment, assign, distinct_values
from lakebed.operations.context import (
    TableSchema,
    WriteContext,
    group_writer,
    keyed_by_meta,
    require_columns,
    schema_for_write,
)
from lakebed.operations.plan import WritePlan, plan_of_assignment, plan_of_buckets
from lakebed.operations.prepare import check_partitions, derivable, prepare
from lakebed.operations.result import WriteResult
from lakebed.operations.transaction import StageTimes, Transaction
from lakebed.operations.uniqueness import uniqueness_of
from lakebed.operations.workload_profile import encode_profile
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.row_size import SAMPLE_ROWS, from_commits, from_sample
from lakebed.slices.snapshot import Snapshot
from lakebed.upkeep.write_status import STATUS_SCHEMA, WriteStatus, first_error, from_table

Operation = Literal["UPSERT", "INSERT", "DELETE"]


@dataclass(frozen=True)
class KeyedWrite:
    """What tells one operation from another on this path.

    `matching` is what happens to a stored row of the same key: replaced, left ("skip"), an error ("fail"), or nothing,
    since nobody looks ("none", a plain insert).
    """

    operation: Operation
    on_match: Literal["keys", "none", "skip", "fail"]
    combine: bool

    @property
    def looks_up(self) -> bool:
        return self.on_match != "none"

    @property
    def deletes(self) -> bool:
        return self.operation == "DELETE"


# Rows of one key are always combined, since a key that comes twice would be stored twice; the shuffle by file group
# brings them together anyhow, so that leaving it out would save nothing.
_UPSERT = KeyedWrite("UPSERT", "keys", True)


def upsert(context: WriteContext, data: Any) -> WriteResult:
    """Insert new keys and replace rows of known ones, by the table's merge mode."""
    settings = context.settings
    if settings.drop_duplicates or settings.dup_policy != "none":
        return insert(context, data)
    return keyed_write(context, data, _UPSERT)


def insert(context: WriteContext, data: Any) -> WriteResult:
    """Add rows without looking for their keys; with drop_duplicates or a duplicate policy, look and drop or refuse."""
    settings = context.settings
    if settings.dup_policy == "fail":
        kind = KeyedWrite("INSERT", "fail", True)
    elif settings.drop_duplicates or settings.dup_policy == "drop":
        kind = KeyedWrite("INSERT", "skip", True)
    elif settings.allow_duplicate_on_inserts:
        kind = KeyedWrite("INSERT", "none", settings.combine_before_insert)
    else:
        kind = KeyedWrite("INSERT", "keys", True)
    return keyed_write(context, data, kind)


def keyed_write(context: WriteContext, data: Any, kind: KeyedWrite) -> WriteResult:
    times = StageTimes()
    rows = admitted_rows(context, data, kind)
    with transaction(context, kind.operation, unique=kind.looks_up) as tx:
        tx.begin()
        times.mark("begin")
        snapshot = tx.snapshot()
        schema = schema_for_write(context, snapshot, rows)
        prepared = prepare(context, rows, schema)
        if isinstance(context.index, BucketIndex):
            tx.inflight()
            statuses = write_buckets(context, snapshot, schema, tx.instant, prepared, kind)
        else:
            statuses = write_located(context, snapshot, schema, tx, prepared, kind, times)
        times.mark("write")
        return finish(context, tx, statuses, schema.avro, times)


def admitted_rows(context: WriteContext, data: Any, kind: KeyedWrite) -> Rows:
    """The caller's rows; everything that can be refused is refused here, before the write begins."""
    snapshot = context.opened
    admit(context, kind.operation)
    if kind.looks_up:
        keyed_by_meta(context, kind.operation.lower())
    rows = context.engine.rows(data)
    require_columns(context, context.engine.schema(rows))
    schema = schema_for_write(context, snapshot, rows)
    check_partitions(context, rows)
    rewrites = kind.looks_up or isinstance(context.index, BucketIndex)
    if file_groups_in_clustering(snapshot) and rewrites:
        refuse_clustered(snapshot, plan_keyed_write(context, snapshot, prepare(context, rows, schema), schema, kind))
    return rows


def write_buckets(
    context: WriteContext, snapshot: Snapshot, schema: TableSchema, instant: str, prepared: Rows, kind: KeyedWrite
) -> list[WriteStatus]:
    """One shuffle by (partition path, bucket); which file groups are hit is known only while it runs."""
    index = context.index
    assert isinstance(index, BucketIndex)
    writer = group_writer(
        context,
        snapshot,
        schema,
        instant,
        BucketTargets(instant, buckets_met(context, snapshot, prepared)),
        on_match=kind.on_match,
        combine=kind.combine,
        all_deletes=kind.deletes,
    )
    return run_writer(context, prepared, writer, groups=groups_of_buckets(context, index))


def write_located(
    context: WriteContext,
    snapshot: Snapshot,
    schema: TableSchema,
    tx: Transaction,
    prepared: Rows,
    kind: KeyedWrite,
    times: StageTimes,
) -> list[WriteStatus]:
    """Tag by the index, lay the rows out over file groups, then one shuffle by group."""
    with tagged_rows(context, snapshot, prepared, kind) as tagged:
        plan = lay_out(context, snapshot, schema, tx.instant, tagged)
        times.mark("tag")
        tx.inflight(encode_profile(context, kind.operation, plan))
        return write_assigned(context, snapshot, schema, tx.instant, tagged, plan, kind)


@contextmanager
def tagged_rows(context: WriteContext, snapshot: Snapshot, prepared: Rows, kind: KeyedWrite) -> Generator[Rows]:
    """Rows with file id and instant of their keys; null for new keys, and for all when nobody looks.

    They are evaluated once and held until the end of the block.
    """
    engine, index = context.engine, context.index
    if kind.looks_up and index.is_global and kind.combine:
        # rows of a delete hold keys, no ordering values: whichever stays says the same
        prepared = combine_by_key(engine, prepared, MergeRules() if kind.deletes else context.rules)
    prepared = engine.persist(prepared)
    if kind.on_match in ("skip", "fail") and isinstance(index, GlobalSimpleIndex | RecordIndex):
        index = index.without_moves()  # a key that lives in another partition is known all the same
    if kind.looks_up:
        tagged = index.tag(prepared, snapshot, engine, context.rules)
    else:
        tagged = engine.derive(prepared, NO_LOCATION)
    if kind.on_match == "skip":
        tagged = engine.filter(tagged, IsNull(FILE_ID))
    tagged = engine.persist(tagged)
    try:
        yield tagged
    finally:
        engine.release(tagged)
        engine.release(prepared)


def lay_out(context: WriteContext, snapshot: Snapshot, schema: TableSchema, instant: str, tagged: Rows) -> Assignment:
    """Count rows by place and plan the file groups."""
    engine = context.engine
    profile = engine.aggregate(tagged, [PARTITION_PATH, FILE_ID])
    size = from_commits(snapshot, context.settings)
    if size is None:
        names = set(schema.data.names)
        sample = engine.collect(engine.head(tagged, SAMPLE_ROWS))
        size = from_sample(
            sample.select([n for n in sample.column_names if n in names or n.startswith("_hoodie")]), context.settings
        )
    partitions, ids = distinct_values(profile, PARTITION_PATH, FILE_ID)
    small = context.settings.small_file_limit if profile.column(FILE_ID).null_count else 0
    return assign(
        profile,
        snapshot.file_slices(partitions, groups_of_ids(ids, or_smaller_than=small)),
        instant=instant,
        record_size=size,
        settings=context.settings,
        avoid=file_groups_in_clustering(snapshot),
    )


def write_assigned(
    context: WriteContext,
    snapshot: Snapshot,
    schema: TableSchema,
    instant: str,
    tagged: Rows,
    plan: Assignment,
    kind: KeyedWrite,
) -> list[WriteStatus]:
    """Route the rows to their groups and write them."""
    engine = context.engine
    routed = engine.route(tagged, plan.updates, plan.inserts)
    writer = group_writer(
        context,
        snapshot,
        schema,
        instant,
        plan.targets,
        on_match=kind.on_match,
        combine=kind.combine,
        all_deletes=kind.deletes,
        known_partitions=frozenset(g.partition for g in plan.groups if g.target.slice is not None),
    )
    return run_writer(context, routed, writer, groups=max(1, len(plan.groups)))


def plan_keyed_write(
    context: WriteContext, snapshot: Snapshot, prepared: Rows, schema: TableSchema, kind: KeyedWrite
) -> WritePlan:
    """What the write would do, counted by a job of its own; nothing is written."""
    if isinstance(context.index, BucketIndex):
        return plan_of_buckets(context, snapshot, prepared, kind.operation)
    with tagged_rows(context, snapshot, prepared, kind) as tagged:
        assignment = lay_out(context, snapshot, schema, "0" * 17, tagged)
    return plan_of_assignment(context, snapshot, assignment, kind.operation)


def explain_upsert(context: WriteContext, data: Any) -> WritePlan:
    """The plan of `upsert(data)`."""
    rows = admitted_rows(context, data, _UPSERT)
    snapshot = context.opened
    schema = schema_for_write(context, snapshot, rows)
    return plan_keyed_write(context, snapshot, prepare(context, rows, schema), schema, _UPSERT)


def transaction(
    context: WriteContext, operation: str, action: Action = Action.COMMIT, *, unique: bool = False
) -> Transaction:
    """A write that has not begun. `unique`: keys that it inserts must not come from another one as well."""
    return Transaction(
        context.storage,
        context.config,
        action,
        operation,
        context.settings,
        by_bucket=isinstance(context.index, BucketIndex),
        engine=context.engine,
        unique=uniqueness_of(context.index) if unique and has_keys(context) else "nowhere",
    )


def has_keys(context: WriteContext) -> bool:
    """Whether the table stores keys by which rows can be told."""
    return context.config.populate_meta_fields and not context.keys.auto_keys


def buckets_met(context: WriteContext, snapshot: Snapshot, prepared: Rows) -> dict[tuple[str, int], FileSlice]:
    """The file slices that rows may go to: in this process those of the rows' buckets, on Spark, where counting would
    be a job, all."""
    index, engine = context.index, context.engine
    assert isinstance(index, BucketIndex)
    if engine.is_distributed:
        return index.bucket_map(snapshot)
    met = engine.aggregate(prepared, [PARTITION_PATH, GROUP])
    return index.bucket_map(snapshot, *distinct_values(met, PARTITION_PATH, GROUP))


def groups_of_buckets(context: WriteContext, index: BucketIndex) -> int | None:
    """How many groups a write by buckets has; None where each of an unknown number of partition paths has them."""
    return None if context.keys.partition_fields else index.buckets


def run_writer(context: WriteContext, rows: Rows, writer: GroupWriter, *, groups: int | None) -> list[WriteStatus]:
    """One shuffle by group, and the writer on each; a group is a task of its own where their number is known."""
    engine = context.engine
    written = engine.group_map(
        rows,
        writer,
        STATUS_SCHEMA,
        groups=groups,
        one_group_per_task=groups is not None,
        derivable=derivable(context, engine.schema(rows)),
    )
    return checked_statuses(engine.collect(written))


def checked_statuses(collected: pa.Table) -> list[WriteStatus]:
    """The tasks' statuses; raises the first error a task met in its rows."""
    statuses = list(from_table(collected))
    error = first_error(statuses)
    if error is not None:
        raise error
    return statuses


def finish(
    context: WriteContext,
    tx: Transaction,
    statuses: list[WriteStatus],
    schema: str,
    times: StageTimes,
    replaced: dict[str, tuple[str, ...]] | None = None,
) -> WriteResult:
    """Commit, and sum up."""
    done = tx.commit(statuses, schema, replaced, before_complete=lambda: context.index.update(statuses, tx.instant))
    times.mark("commit")
    return WriteResult.of(
        tx.instant,
        done.completion_time or tx.instant,
        tx.operation.lower(),
        statuses,
        replaced_file_groups=sum(len(ids) for ids in (replaced or {}).values()),
        seconds=times.seconds,
        rolled_back=tuple(tx.rolled_back),
    )
