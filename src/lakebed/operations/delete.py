"""Deletes: by keys, by rows that hold the key columns, or by a predicate."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakebed.engine.base import Rows
from lakebed.errors import InvalidOption
from lakebed.index.bucket import BucketIndex
from lakebed.index.locations import STORED_LOCATION, BooleanLiteral
from lakebed.index.record import RecordIndex
from lakebed.model import DELETE, FILE_ID, FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakebed.operations.admission import admit, file_groups_in_clustering, refuse_clustered
from lakebed.operations.assign import Assignment, assign, distinct_values
from lakebed.operations.context import (
    TableSchema,
    WriteContext,
    check_key_types,
    incoming_schema,
    keyed_by_meta,
    require_columns,
    table_schema,
)
from lakebed.operations.plan import plan_of_assignment
from lakebed.operations.prepare import derive_keys
from lakebed.operations.result import WriteResult
from lakebed.operations.transaction import StageTimes
from lakebed.operations.upsert import (
    KeyedWrite,
    finish,
    plan_keyed_write,
    transaction,
    write_assigned,
    write_buckets,
    write_located,
)
from lakebed.operations.workload_profile import encode_profile
from lakebed.read.lookup_keys import is_keys, wanted_keys
from lakebed.read.scan import Scan
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.snapshot import Snapshot
from lakebed.upkeep.write_status import WriteStatus

_DELETE = KeyedWrite("DELETE", "keys", True)


def delete(context: WriteContext, what: Any) -> WriteResult:
    """Delete by a SQL predicate or Arrow expression, by a list of keys, or by rows holding key (and partition) columns.

    Keys without their partition columns are looked for in every partition, and every hit goes.
    """
    snapshot = context.opened
    admit(context, "delete")
    if isinstance(what, str) or type(what).__module__.startswith("pyarrow._compute"):
        return _delete_located(context, snapshot, _by_predicate(context, snapshot, what))
    keyed_by_meta(context, "delete")
    if is_keys(what):
        return _delete_located(context, snapshot, _by_key_text(context, snapshot, wanted_keys(snapshot, what).texts))
    rows = context.engine.rows(what)
    present = context.engine.schema(rows)
    check_key_types(context, snapshot.schema, incoming_schema(present))
    missing = [f for f in context.keys.partition_fields if f not in present.names]
    if missing:
        keys = context.engine.derive(rows, {RECORD_KEY: context.keys.record_key}, keep=[])
        return _delete_located(context, snapshot, _by_keys(context, snapshot, keys))
    require_columns(context, present, ordering=False)
    return _delete_keyed(context, snapshot, rows, present)


def _delete_keyed(context: WriteContext, snapshot: Snapshot, rows: Rows, present: pa.Schema) -> WriteResult:
    """Rows that name key and partition: found by the index, like an upsert."""
    times = StageTimes()
    prepared = derive_keys(context, rows, present, keep=[])
    by_bucket = isinstance(context.index, BucketIndex)
    if not by_bucket:
        # marked already: a global index then deletes a key where it lives instead of moving it
        prepared = context.engine.derive(prepared, {DELETE: BooleanLiteral(True)})
    if file_groups_in_clustering(snapshot):
        schema = unchanged_schema(context, snapshot)
        refuse_clustered(snapshot, plan_keyed_write(context, snapshot, prepared, schema, _DELETE))
    with transaction(context, "DELETE") as tx:
        tx.begin()
        times.mark("begin")
        snapshot = tx.snapshot()
        schema = unchanged_schema(context, snapshot)
        if by_bucket:
            tx.inflight()
            statuses = write_buckets(context, snapshot, schema, tx.instant, prepared, _DELETE)
        else:
            statuses = write_located(context, snapshot, schema, tx, prepared, _DELETE, times)
        times.mark("write")
        return finish(context, tx, statuses, schema.avro, times)


def _delete_located(context: WriteContext, snapshot: Snapshot, located: Rows) -> WriteResult:
    """Rows whose file is known already: no index, one shuffle by file group."""
    times = StageTimes()
    engine = context.engine
    held = engine.persist(located)
    try:
        if file_groups_in_clustering(snapshot):
            refuse_clustered(
                snapshot, plan_of_assignment(context, snapshot, _groups(context, snapshot, held, ""), "DELETE")
            )
        with transaction(context, "DELETE") as tx:
            tx.begin()
            times.mark("begin")
            current = tx.snapshot()
            schema = unchanged_schema(context, current)
            plan = _groups(context, snapshot, held, tx.instant)
            tx.inflight(encode_profile(context, "DELETE", plan))
            times.mark("tag")
            statuses: list[WriteStatus] = []
            if plan.groups:
                statuses = write_assigned(context, snapshot, schema, tx.instant, held, plan, _DELETE)
            times.mark("write")
            tx.read_at(snapshot)
            return finish(context, tx, statuses, schema.avro, times)
    finally:
        engine.release(held)


def _groups(context: WriteContext, snapshot: Snapshot, located: Rows, instant: str) -> Assignment:
    profile = context.engine.aggregate(located, [PARTITION_PATH, FILE_ID])
    partitions, ids = distinct_values(profile, PARTITION_PATH, FILE_ID)
    slices = snapshot.file_slices(partitions, groups_of_ids(ids))
    return assign(profile, slices, instant=instant, record_size=1.0, settings=context.settings)


def unchanged_schema(context: WriteContext, snapshot: Snapshot) -> TableSchema:
    return table_schema(context, snapshot, snapshot.schema)


def _by_predicate(context: WriteContext, snapshot: Snapshot, predicate: Any) -> Rows:
    """Key and place of every stored row that the predicate holds for."""
    if not context.config.populate_meta_fields:
        keyed_by_meta(context, "delete")
    scan = Scan(snapshot, columns=[RECORD_KEY, PARTITION_PATH, FILE_NAME], filter=predicate, spark=_spark(context))
    found = context.engine.rows(scan.to_spark() if context.engine.is_distributed else scan.to_arrow())
    return context.engine.derive(found, STORED_LOCATION, keep=[RECORD_KEY, PARTITION_PATH])


def _by_keys(context: WriteContext, snapshot: Snapshot, keys: Rows) -> Rows:
    """Every place of these keys, over all partitions: from the record index of writes, or the key column of all base
    files, joined."""
    engine, index = context.engine, context.index
    indexed = index.located(keys, snapshot, engine) if isinstance(index, RecordIndex) else None
    if indexed is not None:
        return indexed
    stored = engine.read_columns(snapshot, snapshot.file_slices(), [RECORD_KEY, PARTITION_PATH, FILE_NAME])
    placed = engine.derive(stored, STORED_LOCATION, keep=[RECORD_KEY, PARTITION_PATH])
    return engine.join(placed, engine.distinct(keys), [RECORD_KEY], "inner")


def _by_key_text(context: WriteContext, snapshot: Snapshot, keys: pa.Array) -> Rows:
    if keys.null_count:
        raise InvalidOption("a key to delete is null", hint="leave null keys out")
    return _by_keys(context, snapshot, context.engine.from_arrow(pa.table({RECORD_KEY: keys})))


def _spark(context: WriteContext) -> Any:
    return getattr(context.engine, "spark", None)
