"""Replacing file groups: insert_overwrite (of the partitions written, or the table) and delete_partitions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Rows
from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.handles.targets import BucketTargets
from lakebed.index.bucket import BucketIndex
from lakebed.index.locations import NO_LOCATION
from lakebed.index.record import RecordIndex
from lakebed.index.simple import GlobalSimpleIndex
from lakebed.model import FILE_ID, PARTITION_PATH, RECORD_KEY, Action
from lakebed.operations.admission import admit, file_groups_in_clustering
from lakebed.operations.assign import assign
from lakebed.operations.context import TableSchema, WriteContext, group_writer, schema_for_write
from lakebed.operations.prepare import prepare
from lakebed.operations.result import WriteResult
from lakebed.operations.transaction import StageTimes, Transaction
from lakebed.operations.upsert import (
    KeyedWrite,
    admitted_rows,
    finish,
    groups_of_buckets,
    has_keys,
    run_writer,
    transaction,
)
from lakebed.operations.workload_profile import encode_profile
from lakebed.slices.row_size import SAMPLE_ROWS, from_commits, from_sample
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.actions import encode_requested_replace
from lakebed.upkeep.write_status import WriteStatus

Scope = Literal["partitions", "table"]


def insert_overwrite(context: WriteContext, data: Any, scope: Scope = "partitions") -> WriteResult:
    """Write the rows to new file groups and replace all old ones of the partitions written, or of the whole table."""
    if scope not in ("partitions", "table"):
        raise InvalidOption(f"insert_overwrite has no scope {scope!r}", hint='use "partitions" or "table"')
    times = StageTimes()
    operation = "INSERT_OVERWRITE_TABLE" if scope == "table" else "INSERT_OVERWRITE"
    kind = KeyedWrite("INSERT", "none", context.settings.combine_before_insert)
    rows = admitted_rows(context, data, kind)
    for partition in context.settings.overwrite_partitions:
        context.path_check.require(partition)
    with transaction(context, operation, Action.REPLACECOMMIT, unique=True) as tx:
        tx.begin(encode_requested_replace(None))
        times.mark("begin")
        snapshot = tx.snapshot()
        refuse_replacing_clustered(snapshot, None if scope == "table" else ())
        schema = schema_for_write(context, snapshot, rows)
        prepared = prepare(context, rows, schema)
        if isinstance(context.index, BucketIndex):
            tx.inflight()
            statuses = _overwrite_buckets(context, snapshot, schema, tx.instant, prepared, kind)
        else:
            statuses = _overwrite_planned(context, snapshot, schema, tx, prepared, kind, whole=scope == "table")
        times.mark("write")
        written = {s.partition for s in statuses if s.path is not None} | set(context.settings.overwrite_partitions)
        replaced = replaced_file_ids(snapshot, None if scope == "table" else written)
        return finish(context, tx, statuses, schema.avro, times, replaced)


def _refuse_keys_elsewhere(context: WriteContext, snapshot: Snapshot, keys: Rows) -> None:
    """Under a global index a key stands once in the table: a row whose key lives in a partition path that is not
    overwritten would be its second."""
    engine, index = context.engine, context.index
    overwritten = set(engine.aggregate(keys, [PARTITION_PATH]).column(PARTITION_PATH).to_pylist())
    overwritten |= set(context.settings.overwrite_partitions)
    if isinstance(index, GlobalSimpleIndex | RecordIndex):
        index = index.without_moves()
    tagged = engine.persist(index.tag(keys, snapshot, engine, context.rules))
    try:
        places = engine.aggregate(tagged, [PARTITION_PATH, FILE_ID])
    finally:
        engine.release(tagged)
    known = places.filter(pc.is_valid(places[FILE_ID]))
    elsewhere = known.filter(pc.invert(pc.is_in(known[PARTITION_PATH], value_set=pa.array(sorted(overwritten)))))
    if elsewhere.num_rows:
        path = elsewhere[PARTITION_PATH][0].as_py()
        raise InvalidRecord(
            f"{pc.sum(elsewhere['rows']).as_py()} row(s) have keys that live in partitions which are not overwritten,"
            f" e.g. in {path!r}: under the index {context.index.name!r} a key stands once in the table",
            hint="Upsert these rows, or delete the keys where they are first.",
            context={"partition": path},
        )


def _overwrite_buckets(
    context: WriteContext, snapshot: Snapshot, schema: TableSchema, instant: str, prepared: Rows, kind: KeyedWrite
) -> list[WriteStatus]:
    index = context.index
    assert isinstance(index, BucketIndex)
    writer = group_writer(
        context, snapshot, schema, instant, BucketTargets(instant, {}), on_match="none", combine=kind.combine
    )
    return run_writer(context, prepared, writer, groups=groups_of_buckets(context, index))


def _overwrite_planned(
    context: WriteContext,
    snapshot: Snapshot,
    schema: TableSchema,
    tx: Transaction,
    prepared: Rows,
    kind: KeyedWrite,
    *,
    whole: bool,
) -> list[WriteStatus]:
    engine = context.engine
    located = engine.persist(engine.derive(prepared, NO_LOCATION))
    try:
        if context.index.is_global and has_keys(context) and not whole:
            _refuse_keys_elsewhere(context, snapshot, engine.derive(located, {}, keep=[RECORD_KEY, PARTITION_PATH]))
        size = from_commits(snapshot, context.settings)
        if size is None:
            sample = engine.collect(engine.head(located, SAMPLE_ROWS))
            size = from_sample(sample.drop_columns(list(NO_LOCATION)), context.settings)
        profile = engine.aggregate(located, [PARTITION_PATH, FILE_ID])
        plan = assign(
            profile, (), instant=tx.instant, record_size=size, settings=context.settings, fill_small_files=False
        )
        tx.inflight(encode_profile(context, tx.operation, plan))
        routed = engine.route(located, plan.updates, plan.inserts)
        writer = group_writer(
            context, snapshot, schema, tx.instant, plan.targets, on_match="none", combine=kind.combine
        )
        return run_writer(context, routed, writer, groups=max(1, len(plan.groups)))
    finally:
        engine.release(located)


def delete_partitions(context: WriteContext, partitions: Sequence[str]) -> WriteResult:
    """Replace every file group of the partitions by nothing. `*` in a path stands for any text."""
    times = StageTimes()
    snapshot = context.opened
    admit(context, "delete_partition")
    chosen = match_partitions(partitions, snapshot.partitions())
    refuse_replacing_clustered(snapshot, chosen)
    with transaction(context, "DELETE_PARTITION", Action.REPLACECOMMIT) as tx:
        tx.begin(encode_requested_replace("DELETE_PARTITION"))
        tx.inflight()
        times.mark("begin")
        snapshot = tx.snapshot()
        replaced = replaced_file_ids(snapshot, set(chosen))
        return finish(context, tx, [], snapshot.avro_schema, times, replaced)


def match_partitions(patterns: Sequence[str], partitions: Sequence[str]) -> list[str]:
    """Partition paths that a list of paths and `*` patterns names; one that names nothing is an error."""
    chosen: list[str] = []
    for pattern in patterns:
        if "*" in pattern:
            any_text = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
            found = [p for p in partitions if any_text.fullmatch(p)]
        else:
            found = [p for p in partitions if p == pattern.strip("/")]
        if not found:
            raise InvalidOption(
                f"the table has no partition {pattern!r}",
                hint=f"it has {', '.join(map(repr, partitions[:5])) or 'none'}{', ...' if len(partitions) > 5 else ''}",
                context={"partition": pattern},
            )
        chosen += [p for p in found if p not in chosen]
    return chosen


def replaced_file_ids(snapshot: Snapshot, partitions: set[str] | None) -> dict[str, tuple[str, ...]]:
    """File ids of all current file groups by partition path (None: of the whole table, empty partitions too)."""
    wanted = snapshot.partitions() if partitions is None else sorted(partitions)
    ids: dict[str, list[str]] = {p: [] for p in wanted}
    known = [p for p in wanted if p in set(snapshot.partitions())]
    for file_slice in snapshot.file_slices(None if partitions is None else known):
        ids[file_slice.partition].append(file_slice.file_id)
    return {p: tuple(found) for p, found in ids.items()}


def refuse_replacing_clustered(snapshot: Snapshot, partitions: Sequence[str] | None) -> None:
    """Replacing file groups that a pending clustering is about to replace would lose one of the two."""
    clustered = file_groups_in_clustering(snapshot)
    met = sorted(k for k in clustered if partitions is None or k[0] in partitions)
    if met:
        from lakebed.config.features import check_write
        from lakebed.slices.facts import table_features

        name = "/".join(filter(None, met[0]))
        check_write(
            snapshot.config.properties, table_features(snapshot, updated_in_clustering=name), "insert_overwrite"
        )
