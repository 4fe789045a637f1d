"""A delta commit of the metadata table: requested, inflight, one log file for each touched file group, completed.

Records merge in the order in which their instants were requested. If records of later requested instants were written
before a delta commit, checks decide whether its records are still valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CommitConflict, ConflictKind, InvalidOption
from lakebed.metadata.lookups import slice_by_keys
from lakebed.metadata.slices import MetadataSlices
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_kinds.routing import split_by_group
from lakebed.metadata_records.definitions import IndexDefinition, index_version
from lakebed.metadata_records.group_files import FileGroup, WrittenLog, encode_log, put_log, write_creation_log
from lakebed.metadata_records.layout import PARTITION_STATS, parse_files
from lakebed.metadata_records.merge_records import Layer
from lakebed.metadata_records.records import RecordForm, Records
from lakebed.metadata_upkeep.rollback import finish_rollbacks, roll_back
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.model import Action, Instant, State
from lakebed.storage.base import Durable
from lakebed.storage.parallel import at_once, in_background, is_remote, parallel_map
from lakebed.timeline.bodies.commit import PartitionProfile, encode_inflight

OPERATION = "UPSERT_PREPPED"


@dataclass(frozen=True, slots=True)
class _Log:
    """The records and deletes of one log file that will be written."""

    group: FileGroup
    keys: pa.StringArray
    values: pa.BinaryArray
    deleted: pa.StringArray


def file_groups(store: MetadataStore, partition: str) -> tuple[FileGroup, ...]:
    """The file groups of a partition, in the order of their ids, from one listing."""
    return tuple(map(store.group, store.slices.file_slices(partition)))


def begin_delta(store: MetadataStore, instant: str, partitions: Sequence[str]) -> dict[str, tuple[FileGroup, ...]]:
    """Create a delta commit as inflight, for log files that tasks will write. Returns the file groups of its
    partitions."""
    if store.pending(Action.ROLLBACK):
        finish_rollbacks(store)
    _take_back(store, instant)
    groups = {partition: file_groups(store, partition) for partition in partitions}
    _start(store, instant, [(group, 0) for part in groups.values() for group in part])
    store.changed()
    return groups


def begin_ahead(store: MetadataStore, instant: str) -> None:
    """Create a delta commit as inflight, while the data table's files are written. The caller keeps the table lock
    until `apply_delta` has completed it (from version 8 on)."""
    _start(store, instant, (), durable="later")


def apply_delta(
    store: MetadataStore,
    instant: str,
    records: dict[str, Records],
    written: Sequence[WrittenLog] = (),
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Write a delta commit of the data table's instant: a log file for each file group that gets records, then the
    completed instant. It becomes visible when the data table's instant is completed. The records are removed from
    `records`, so that those of many files are not in memory together with their log files.

    If the metadata table has the instant already, that is rolled back first, unless the store has it as
    `shown_inflight`. `written` are log files that tasks wrote since `begin_delta`; they are taken into the same delta
    commit. `meanwhile` is called while the instant completes (or after it, where answers of storage are quick). Raises
    `InvalidOption` for a partition that the table does not have, `CommitConflict` where `written` do not fit any more.
    """
    if store.pending(Action.ROLLBACK):
        finish_rollbacks(store)
    unknown = sorted({*records, *[log.group.partition for log in written]} - {*store.partitions})
    if unknown:
        raise InvalidOption(
            f"the metadata table has no partition {unknown[0]!r}",
            hint="Create the index first; its records are made while it is written.",
            context={"partition": unknown[0]},
        )
    is_begun = bool(written) or instant in store.shown_inflight
    if written:
        _check_current(store, instant, written)
    elif not is_begun:
        _take_back(store, instant)
    slices = store.slices  # read before threads ask for it
    start = partial(_start, store, instant, durable="later")
    # before version 8 the inflight file names the file groups
    wait_for_start = in_background(partial(start, ())) if not is_begun and store.version >= 8 else None
    states: Sequence[Instant] = ()
    ranges = records.get(PARTITION_STATS)
    try:
        if is_remote(store.storage):  # listed side by side, and kept
            parallel_map(slices.file_slices, list(records), store.settings.threads)
        new_groups = [
            group for part, its in records.items() if its.is_partitioned for group in _missing_groups(store, part, its)
        ]
        logs = [log for part in list(records) for log in _logs(store, part, records.pop(part), new_groups)]
        if not is_begun and wait_for_start is None:
            counts = [(log.group, len(log.keys) + len(log.deleted)) for log in logs]
            wait_for_start = in_background(partial(start, counts))
        encoded = [encode_log(log.group, instant, log.keys, log.values, log.deleted) for log in logs]
        del logs
    finally:
        if wait_for_start is not None:
            states = wait_for_start()  # no file before it
    threads = store.settings.threads
    parallel_map(lambda group: write_creation_log(store.data_storage, group, instant), new_groups, threads)
    put = parallel_map(partial(put_log, store.data_storage, durable="later"), encoded, threads)
    stats = [log.stat() for log in (*written, *put)]
    if not written:  # shown by this process; a rollback of the data table's instant rolls this one back, too
        store.shown_inflight.add(instant)
    complete = partial(store.complete, Action.DELTACOMMIT, instant, OPERATION, stats)
    done, _ = at_once(store.storage, complete, meanwhile)
    if not written and not new_groups:
        files = [parse_files(log.group.partition, log.name, log.size) for log in put]
        slices.after_commit([*states, done], [file for file in files if file is not None], ranges)


def _take_back(store: MetadataStore, instant: str) -> None:
    """Roll back a delta commit of this instant, if the metadata table has one: the data table's writer tries again."""
    delta_commit = store.timeline.find(instant, Action.DELTACOMMIT)
    if delta_commit is not None and delta_commit.action is Action.DELTACOMMIT:
        roll_back(store, instant, store.new_time() if store.version >= 8 else instant)


def _start(
    store: MetadataStore, instant: str, groups: Sequence[tuple[FileGroup, int]], *, durable: Durable = True
) -> tuple[Instant, Instant]:
    requested = store.transitions.request(Action.DELTACOMMIT, instant)
    body = b""
    if store.version < 8:
        # what a release before 1.0 looks up the log files to roll back by
        updates: dict[str, list[tuple[str, str, int]]] = {}
        for group, count in groups:
            updates.setdefault(group.partition, []).append((group.file_id, group.slice_instant, count))
        profile = [PartitionProfile(partition, 0, part) for partition, part in updates.items()]
        body = encode_inflight(OPERATION, profile, store.version)
    return requested, store.transitions.inflight(Action.DELTACOMMIT, instant, body, durable=durable)


def _missing_groups(store: MetadataStore, partition: str, records: Records) -> list[FileGroup]:
    """The file groups that a partitioned record index still needs, for partition paths that it does not have yet."""
    kind = kind_of(partition)
    existing_paths = {kind.data_partition_of(file_slice.file_id) for file_slice in store.slices.file_slices(partition)}
    count = max(store.settings.partitioned_sizing.minimum, 1)
    return [
        store.new_group(partition, kind.file_id(partition, number, path))
        for path in records.paths()
        if path not in existing_paths
        for number in range(count)
    ]


def _logs(store: MetadataStore, partition: str, records: Records, new_groups: Sequence[FileGroup]) -> list[_Log]:
    groups_by_id = {group.file_id: group for group in file_groups(store, partition)}
    groups_by_id |= {group.file_id: group for group in new_groups if group.partition == partition}
    if not groups_by_id and partition in store.data_config.metadata_partitions_inflight:
        return []  # its builder has made no file groups yet, and reads the table after it has
    groups = [groups_by_id[file_id] for file_id in sorted(groups_by_id)]
    definition = store.slices.definitions.get(partition) if kind_of(partition).shard_by_version else None
    version = index_version(definition, store.version)
    parts = split_by_group(partition, records, [group.file_id for group in groups], version)
    logs = [_Log(groups[at], *part) for at, part in parts.items()]
    return [log for log in logs if len(log.keys) or len(log.deleted)]


def _check_current(store: MetadataStore, instant: str, written: Sequence[WrittenLog]) -> None:
    """Check that the file groups of log files that tasks wrote have not changed since the delta commit began."""
    is_inflight = any(
        i.time == instant and i.action is Action.DELTACOMMIT and i.state is State.INFLIGHT
        for i in store.timeline.instants
    )
    current = {
        (group.partition, group.file_id): group for log in written for group in file_groups(store, log.group.partition)
    }
    for log in written:
        group = current.get((log.group.partition, log.group.file_id))
        same_slice = group is not None and (store.version >= 8 or group.slice_instant == log.group.slice_instant)
        if not is_inflight or not same_slice or log.instant != instant:
            raise CommitConflict(
                f"file group {log.group.file_id} of the metadata table is not what it was when instant {instant} began",
                hint="Another writer has rolled the instant back, compacted or re-sharded it; run the write again.",
                context={"instant": instant, "file_id": log.group.file_id},
                kind=ConflictKind.CHANGED,
            )


def superseded(view: MetadataSlices, instant: str, records: Mapping[str, Records], form: RecordForm) -> str | None:
    """The partition of the metadata table in which records of later requested instants make these records wrong; None
    if all are valid.

    Records of files and of keys do not cross: two writers that change the same file group are in conflict.
    """
    newest = view.timeline.last_completed
    if view.config.version < 8 or newest is None or newest.time <= instant:
        return None  # before version 8 a log file comes after those that are there, whatever its instant
    for partition, its_records in records.items():
        is_overruled = kind_of(partition).is_overruled
        if is_overruled is None:
            continue
        later = partial(_later_changes, view, partition, instant)
        if is_overruled(its_records, form, later, partial(_definition, view, partition)):
            return partition
    return None


def _definition(view: MetadataSlices, partition: str) -> IndexDefinition | None:
    return view.definitions.get(partition)


def _later_changes(view: MetadataSlices, partition: str, instant: str, keys: pa.Array) -> list[Layer]:
    """The records with these keys by instants that were requested later, oldest first, without deletes of other
    keys."""
    layers: list[Layer] = []
    for file_slice in view.file_slices(partition):
        for layer in slice_by_keys(view, file_slice, keys, after_instant=instant):
            layer_keys = layer.deleted if layer.records is None else layer.records["key"]
            matches = pc.is_in(layer_keys, value_set=keys)
            if pc.any(matches).as_py():
                layers.append(
                    Layer(*(None if part is None else part.filter(matches) for part in (layer.records, layer.deleted)))
                )
    return layers
