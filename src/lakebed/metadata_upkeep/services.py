"""The metadata table's own services, in the order in which Hudi runs them: compaction, log compaction, cleaning,
archival, and the growth of indexes.

An index whose file groups are too large on average gets twice as many (or four times, and so on) when a compaction
is due, instead of it: once for each doubling of the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CommitConflict, ConflictKind, CorruptFile, InvalidOption
from lakebed.format.delete_block import encode_deletes
from lakebed.format.file_names import is_data_path, log_file_name
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey, LogBlock, block_bytes
from lakebed.metadata.lookups import MetadataTable, snapshot_of
from lakebed.metadata.slice_merge import Unordered, open_slice
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_records.group_files import WrittenBase, WrittenLog, new_token, write_base
from lakebed.metadata_records.layout import parse_files
from lakebed.metadata_upkeep.creation import drop_unfinished
from lakebed.metadata_upkeep.resharding import is_being_written, reshard, undo_dead_replaces
from lakebed.metadata_upkeep.rollback import logs_with_blocks_of
from lakebed.metadata_upkeep.store import MetadataStore, Suffix
from lakebed.model import Action, BaseFile, FileSlice, Instant, LogFile, State
from lakebed.policies.archival import ArchivalBounds, ArchivalLimit, before_pending, is_archival_due, plan_archival
from lakebed.policies.cleaning import (
    Protected,
    Retention,
    has_expired_since,
    plan_cleaning,
    retain_commits,
    retain_versions,
)
from lakebed.policies.compaction import (
    CompactionPlan,
    delta_commits_since_compaction,
    last_compaction,
    plan_compaction,
    plan_log_compaction,
)
from lakebed.policies.rollback import files_of_instant
from lakebed.storage.atomic_file import remove_asides
from lakebed.storage.parallel import delete_files, is_remote, parallel_map
from lakebed.timeline.archive_writer import archive
from lakebed.timeline.bodies.commit import NEW_FILE
from lakebed.timeline.bodies.plans import (
    CleanPlan,
    CompactionOperation,
    clean_body,
    clean_files,
    compaction_body,
    compaction_operations,
    encode_clean_metadata,
)
from lakebed.timeline.file_slices import GroupSlices, all_slices
from lakebed.timeline.timeline import COMMITS
from lakebed.wording import count_text

R = TypeVar("R")
Batches: TypeAlias = "Iterable[tuple[pa.Array, pa.Array]]"
"""Keys and values of records, in batches."""
_OPERATION = "COMPACT"
# File slices of fewer bytes are merged by the calling thread, unless storage is slow.
_BYTES_FOR_THREADS = 16 << 20


@dataclass(frozen=True, slots=True)
class _Compacted:
    file_slice: FileSlice
    base: WrittenBase
    blocks: int
    log_records: int
    read_millis: int

    def stat(self) -> dict[str, Any]:
        old, logs = self.file_slice.base_file, self.file_slice.log_files
        totals: dict[str, Any] = {
            "prevCommit": self.file_slice.instant if old else NEW_FILE,
            "prevBaseFile": old.name if old else None,
            "numInserts": 0 if old else self.base.entries,
            "totalLogRecords": self.log_records,
            "totalUpdatedRecordsCompacted": self.log_records,
            "totalLogBlocks": self.blocks,
            "totalLogFilesCompacted": len(logs),
            "totalLogSizeCompacted": sum(log.size for log in logs),
            "totalLogReadTimeMs": self.read_millis,
        }
        return self.base.stat(**totals)


def finish_compactions(store: MetadataStore) -> list[str]:
    """Finish compactions that were interrupted; returns a line of text about each."""
    return [_finish(store, instant) for instant in store.pending(Action.COMPACTION)]


def run_compaction(store: MetadataStore) -> list[str]:
    """Compact if it is due; returns a line of text about each step."""
    if not is_compaction_due(store) or is_blocked(store):
        return []
    instant = store.service_time(Suffix.COMPACTION)
    plan = _plan_of_all(store)
    if instant is None or not plan.slices:
        return []
    store.request(Action.COMPACTION, instant, compaction_body(plan).encode())
    return [_run(store, instant, plan.slices, State.REQUESTED)]


def _plan_of_all(store: MetadataStore) -> CompactionPlan:
    """A plan of every file group that has log files. Partitions that are being built have only these; their base files
    come later."""
    partitions = store.data_config.metadata_partitions
    return plan_compaction([file_slice for name in partitions for file_slice in store.slices.file_slices(name)])


def is_compaction_due(store: MetadataStore) -> bool:
    """Whether there are enough delta commits since the last compaction."""
    return delta_commits_since_compaction(store.timeline.commits) >= store.settings.compact_after


def is_blocked(store: MetadataStore) -> bool:
    """Whether file slices must not change: a commit of the data table whose writer died after its delta commit is still
    to be rolled back; on version 6 also if a pending writer will log to the present slices."""
    if store.version < 8:
        return bool(store.data_timeline.pending or store.pending(Action.DELTACOMMIT))
    commit_times = {instant.time for instant in store.timeline.commits}
    return any(instant.time in commit_times for instant in store.data_timeline.pending)


def plan_slice(store: MetadataStore, operation: CompactionOperation) -> FileSlice | None:
    """The file slice that an operation of a plan names; None if a file of it is missing: the partition was dropped, and
    perhaps built again, after the plan was made."""
    sizes = {
        info.path.rpartition("/")[2]: info.size for info in store.storage.list(operation.partition, recursive=False)
    }
    names = [*([operation.base_file] if operation.base_file else []), *operation.log_files]
    if operation.partition not in store.partitions or not sizes.keys() >= set(names):
        return None
    files = [parse_files(operation.partition, name, sizes[name]) for name in names]
    base = next((file for file in files if isinstance(file, BaseFile)), None)
    logs = tuple(file for file in files if isinstance(file, LogFile))
    return FileSlice(operation.partition, operation.file_id, operation.instant, base, logs)


def remove_leftovers(store: MetadataStore, instant: str, partitions: Sequence[str]) -> None:
    """Delete the files that a service wrote at this instant before it died, and unfinished files."""
    for partition in partitions:
        leftovers = files_of_instant(store.listed_files(partition), instant, logs=store.version >= 8)
        # with the lock lost, another process may have completed the instant, and these may be its files
        store.check_lock()
        for file in leftovers:
            store.storage.delete(file.path)
        remove_asides(store.storage, partition)


def _finish(store: MetadataStore, pending: Instant) -> str:
    operations = compaction_operations(store.timeline.plan(pending))
    remove_leftovers(store, pending.time, sorted({operation.partition for operation in operations}))
    slices = [file_slice for operation in operations if (file_slice := plan_slice(store, operation)) is not None]
    return _run(store, pending.time, slices, pending.state)


def compact_with(store: MetadataStore, partition: str, entries: Batches) -> str:
    """Compact the metadata table, and give a partition with one file group these entries in place of its own; they are
    in ascending byte order of their keys. Returns a line of text. A compaction that dies is finished with the entries
    that the partition had.

    Raises `CommitConflict` where file slices must not change, and `CorruptFile` for a partition that lost its files.
    """
    finish_unfinished(store)
    if is_blocked(store):
        raise CommitConflict(
            f"{partition} cannot be written anew while a commit of a writer that died is not rolled back",
            hint="The next write rolls it back, and so does `lakebed maintenance run`; try again then.",
            context={"index": partition},
            kind=ConflictKind.BUSY,
        )
    replaced = store.slices.file_slices(partition)
    instant = store.service_time(Suffix.COMPACTION)
    if not replaced or instant is None:
        raise CorruptFile(
            f"partition {partition!r} of the metadata table has no file groups",
            hint=f"Build it again: t.indexes.repair({partition!r}).",
            context={"index": partition},
        )
    plan = _plan_of_all(store)
    plan = replace(plan, slices=tuple(dict.fromkeys([*plan.slices, *replaced])))
    store.request(Action.COMPACTION, instant, compaction_body(plan).encode())
    return _run(store, instant, plan.slices, State.REQUESTED, {partition: entries})


def _run(
    store: MetadataStore,
    instant: str,
    slices: Sequence[FileSlice],
    state: State,
    contents: Mapping[str, Batches] | None = None,
) -> str:
    remove_asides(store.storage, store.timeline.config.timeline_path)
    if state is State.REQUESTED:
        store.transitions.inflight(Action.COMPACTION, instant)

    def compact(file_slice: FileSlice) -> _Compacted:
        return _compact(store, file_slice, instant, (contents or {}).get(file_slice.partition))

    compacted = _map_slices(store, compact, slices)
    store.complete(Action.COMPACTION, instant, _OPERATION, [compaction.stat() for compaction in compacted])
    return f"compaction {instant} of {count_text(len(slices), 'file group')}"


def _map_slices(store: MetadataStore, compact: Callable[[FileSlice], R], slices: Sequence[FileSlice]) -> list[R]:
    """The results of `compact` for the file slices: on threads if files are large or storage is slow."""
    # Arrow keeps the freed memory of each thread for that thread: a process that commits for long would hold it in all
    is_small = not is_remote(store.storage) and sum(file_slice.size for file_slice in slices) < _BYTES_FOR_THREADS
    return (
        [compact(file_slice) for file_slice in slices]
        if is_small
        else parallel_map(compact, slices, store.settings.threads)
    )


def _compact(store: MetadataStore, file_slice: FileSlice, instant: str, content: Batches | None) -> _Compacted:
    started = time.monotonic()
    merge = open_slice(store.slices, file_slice)
    group = store.new_group(file_slice.partition, file_slice.file_id, instant)
    read_millis = int((time.monotonic() - started) * 1000)
    if content is None:
        view, kind = MetadataTable(store.slices).of_slice(file_slice), kind_of(file_slice.partition)
        table = partial(snapshot_of, store.data_storage, store.data_config, store.data_timeline)
        content = kind.compacted(file_slice.partition, view, table, merge.form)
    entries = merge.entries() if content is None else content
    try:
        base = write_base(store.data_storage, group, instant, entries, schema_json=merge.schema_json)
    except Unordered:
        entries = merge.entries(in_order=False)
        base = write_base(store.data_storage, group, instant, entries, schema_json=merge.schema_json)
    log_records = sum(file.entry_count for file, _ in merge.layers if file is not None)
    return _Compacted(file_slice, base, len(merge.layers), log_records, read_millis)


_LOG_COMPACTION_OPERATION = "LOG_COMPACT"
_FIRST_NATIVE_VERSION = 9


def undo_log_compactions(store: MetadataStore) -> None:
    """Undo log compactions that were interrupted: the log files that they were to merge still exist."""
    for pending in store.pending(Action.LOGCOMPACTION):
        if store.version >= 8:
            remove_leftovers(store, pending.time, store.partitions)
        else:
            logs = logs_with_blocks_of(store, pending.time)
            store.check_lock()
            for path in logs:
                store.storage.delete(path)
        store.transitions.remove_pending(pending)
        store.changed()


def run_log_compaction(store: MetadataStore) -> list[str]:
    """Merge the logs of file slices that have many blocks, if the settings request it; returns a line of text about
    each step."""
    if not store.settings.log_compaction or is_blocked(store):
        return []
    plan = plan_log_compaction(
        [
            file_slice
            for partition in store.data_config.metadata_partitions
            for file_slice in store.slices.file_slices(partition)
        ],
        min_blocks=store.settings.log_compact_after,
        count_blocks=lambda file_slice: len(store.slices.log_blocks(file_slice)),
        before=min((i.time for i in store.data_timeline.pending), default=None),
    )
    instant = store.service_time(Suffix.LOG_COMPACTION)
    if not plan.slices or instant is None:
        return []
    store.request(Action.LOGCOMPACTION, instant, compaction_body(plan).encode())
    store.transitions.inflight(Action.LOGCOMPACTION, instant)
    written = _map_slices(store, lambda file_slice: _compact_logs(store, file_slice, instant), plan.slices)
    store.complete(Action.LOGCOMPACTION, instant, _LOG_COMPACTION_OPERATION, [log.stat() for log in written])
    return [f"log compaction {instant} of {count_text(len(plan.slices), 'file group')}"]


def _compact_logs(store: MetadataStore, file_slice: FileSlice, instant: str) -> WrittenLog:
    started = time.monotonic()
    merge = open_slice(store.slices, file_slice)
    changes = merge.changes(with_base=False)
    present = changes.values.is_valid()
    keys, values = changes.keys.filter(present), changes.values.filter(present)
    # all keys with any delete are deleted first: their later records must not merge with the base file's
    deleted = [layer for _, layer in merge.layers if layer is not None]
    removed = pc.unique(pa.concat_arrays([*deleted, changes.keys.filter(pc.invert(present))]))
    headers = _headers(instant, store.slices.log_blocks(file_slice), merge.schema_json)
    blocks, group = list[LogBlock](), store.group(file_slice)
    if len(removed):
        content = encode_deletes(removed.cast(pa.string()), file_slice.partition)
        blocks.append(LogBlock(BlockType.DELETE, headers, content))
    if len(keys):
        content = write_hfile(
            keys,
            values,
            schema_json=merge.schema_json,
            codec=group.hfile.codec,
            hbase_keys=store.version < _FIRST_NATIVE_VERSION,
        )
        blocks.append(LogBlock(BlockType.HFILE_DATA, headers, content))
    log_instant = instant if store.version >= 8 else group.slice_instant
    name = log_file_name(group.file_id, log_instant, group.log_version, new_token())
    body = b"".join(map(block_bytes, blocks))
    store.storage.write(f"{group.partition}/{name}", body)
    millis = int((time.monotonic() - started) * 1000)
    return WrittenLog(group, instant, name, len(body), len(keys), len(removed), millis)


def _headers(instant: str, blocks: Sequence[BlockHead], schema_json: str) -> dict[int, str]:
    """The headers of a log-compacted block, which name the instants of the blocks that it replaces."""
    times = list(dict.fromkeys(block.instant for block in blocks))
    return {
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.SCHEMA: schema_json,
        HeaderKey.COMPACTED_BLOCK_TIMES: ",".join(times),
    }


# Readers that began before a compaction get this many instants to finish.
_GRACE_INSTANTS = 3


def finish_cleans(store: MetadataStore) -> list[str]:
    """Finish cleans that were interrupted; returns a line of text about each."""
    return [_run_clean(store, instant.time, instant.state) for instant in store.pending(Action.CLEAN)]


def run_cleaning(store: MetadataStore) -> list[str]:
    """Clean if there are files to delete; returns a line of text about each step."""
    compaction = last_compaction(store.timeline.commits)
    grace = min(_GRACE_INSTANTS, store.settings.compact_after)  # a table that is compacted sooner is cleaned as well
    if compaction and len(store.timeline.completed_after(compaction.time)) < grace:
        return []
    commits, count = store.timeline.commits, store.settings.clean_commits
    pending = (instant for instant in store.timeline.pending if instant.action is not Action.CLEAN)
    retention = retain_commits(commits, pending, count)
    if retention is None or not has_expired_since(_last_clean(store), commits, retention, count):
        return []
    return _clean(store, _plan(store, retention))


def _clean(store: MetadataStore, plan: CleanPlan) -> list[str]:
    instant = store.service_time(Suffix.CLEAN)
    if not plan.files or not instant:
        return []
    store.transitions.request(Action.CLEAN, instant, clean_body(store.storage.url(), plan).encode())
    store.changed()
    return [_run_clean(store, instant, State.REQUESTED)]


def _run_clean(store: MetadataStore, instant: str, state: State) -> str:
    started = time.monotonic()
    pending = next(i for i in store.pending(Action.CLEAN) if i.time == instant)
    plan = store.timeline.plan(pending)
    if state is State.REQUESTED:
        store.transitions.inflight(Action.CLEAN, instant)
    files = [
        f"{partition}/{name}"
        for partition, names in clean_files(plan).items()
        for name in names
        if is_data_path(f"{partition}/{name}") and parse_files(partition, name, 0) is not None
    ]
    for folder, names in groupby(sorted(files), lambda path: path.rpartition("/")[0]):
        delete_files(store.storage, folder, [path.rpartition("/")[2] for path in names])
    millis = int((time.monotonic() - started) * 1000)
    store.finish(Action.CLEAN, instant, encode_clean_metadata(instant, plan, millis))
    return f"clean {instant} of {count_text(len(files), 'file')}"


def _last_clean(store: MetadataStore) -> str:
    return next((i.time for i in reversed(store.timeline.completed) if i.action is Action.CLEAN), "")


def _plan(store: MetadataStore, retention: Retention) -> CleanPlan:
    replaced = store.timeline.replaced_files
    # whole file groups: they are few, and a compaction of the metadata table is not pending for long
    planned = {**store.timeline.pending_compaction, **store.timeline.pending_log_compaction}
    protected = Protected(planned=dict.fromkeys(planned, ""))
    return plan_cleaning(_groups(store), store.timeline.commits, retention, replaced, protected)


def _groups(store: MetadataStore) -> Iterator[GroupSlices]:
    """The file groups with all slices in the folders, including files that failed writes left."""
    for partition in store.data_config.metadata_partitions:
        files = store.listed_files(partition)
        yield from all_slices(
            [file for file in files if isinstance(file, BaseFile)],
            [file for file in files if isinstance(file, LogFile)],
            version=store.version,
            completion_time=store.timeline.completion_time,
        )


# File ids have four digits, and a re-sharding takes new ones.
_MAX_ITEMS = 4096
# The most that a file takes without entries (schemas, headers, trailer). Spreading entries does not reduce it.
_FIXED_BYTES = 16 << 10


def run_resharding(store: MetadataStore) -> list[str]:
    """Re-shard indexes that have outgrown their file groups, if compaction is due and no other writers are active;
    returns a line of text about each."""
    bound = store.settings.shard_max_bytes
    if not bound or not is_compaction_due(store) or is_blocked(store):
        return []
    done: list[str] = []
    for partition in store.data_config.metadata_partitions:
        if not kind_of(partition).grows:
            continue
        counts = grown(store.slices.file_slices(partition), bound)
        if not counts or is_being_written(store):
            continue
        requested = counts[None] if None in counts else {path: n for path, n in counts.items() if path is not None}
        try:
            instant = reshard(store, partition, requested)
        except (CommitConflict, InvalidOption):
            continue  # no number is left, or version 6 has no instant for it before the next write
        done.append(f"re-sharding {instant} of {partition}")
    return done


def grown(slices: Sequence[FileSlice], bound: int) -> Mapping[str | None, int]:
    """The new number of file groups by partition path (None: a global index), for those whose mean size is above the
    bound. The number is doubled until the mean is within it."""
    sizes: dict[str | None, list[int]] = {}
    for file_slice in slices:
        path = kind_of(file_slice.partition).data_partition_of(file_slice.file_id)
        sizes.setdefault(path, []).append(_entry_bytes(file_slice))
    counts: dict[str | None, int] = {}
    for path, group_sizes in sizes.items():
        count = len(group_sizes)
        while sum(group_sizes) > bound * count and count * 2 <= _MAX_ITEMS:
            count *= 2
        if count > len(group_sizes):
            counts[path] = count
    return counts


def _entry_bytes(file_slice: FileSlice) -> int:
    base = file_slice.base_file.size if file_slice.base_file else 0
    return sum(max(0, size - _FIXED_BYTES) for size in (base, *(log.size for log in file_slice.log_files)))


def run_archival(store: MetadataStore) -> list[str]:
    """Archive the oldest instants if there are many; returns a line of text about each step."""
    commits = store.timeline.commits
    bounds = ArchivalBounds(store.settings.archive_above, store.settings.archive_down_to)
    if not is_archival_due(commits, bounds):
        return []
    plan = plan_archival(commits, store.timeline.completed, bounds, _limits(store))
    if not plan.commits:
        return []
    archive(store.timeline, plan.instants, store.lock_is_held)
    store.changed()
    return [f"archival of {count_text(len(plan.commits), 'commit')} up to {plan.commits[-1].time}"]


def _limits(store: MetadataStore) -> Iterator[ArchivalLimit | None]:
    compaction = last_compaction(store.timeline.commits)
    yield ArchivalLimit(compaction.time if compaction else "", "delta commits since the last compaction are counted")
    yield before_pending(store.timeline.commits, store.timeline.pending)
    for instant in store.timeline.commits:
        if instant.action is Action.REPLACECOMMIT and _hides_files(store, instant):
            yield ArchivalLimit(instant.time, "files that it replaced are not cleaned yet")
    for instant in store.data_timeline.instants:
        if instant.action in COMMITS or not instant.is_completed:
            yield ArchivalLimit(instant.time, "the data table may still roll it back")
            break


def _hides_files(store: MetadataStore, replace: Instant) -> bool:
    """Whether files of the groups that it replaced still exist."""
    for partition, ids in store.timeline.commit_metadata(replace).replaced.items():
        replaced = set(ids)
        if any(name.removeprefix(".").partition("_")[0] in replaced for name in store.storage.list_names(partition)):
            return True
    return False


def run_services(store: MetadataStore) -> list[str]:
    """Finish the work of dead writers. If a compaction is due, also clean, re-shard, compact and archive: between two
    compactions there is nothing new to clean, and archival can wait. Returns a line of text about each step."""
    done = finish_unfinished(store)
    if not is_compaction_due(store):
        return [*done, *run_log_compaction(store)] if store.settings.log_compaction else done
    done += run_cleaning(store)
    # re-sharding comes first: a re-sharded index needs no compaction, and on version 6 its instant sorts first
    done += run_resharding(store)
    done += run_compaction(store) or run_log_compaction(store)
    return [*done, *run_archival(store)]


def finish_unfinished(store: MetadataStore) -> list[str]:
    """Finish or undo all services of dead writers; returns a line of text about each."""
    return [*finish_services(store), *finish_cleans(store)] if store.timeline.pending else []


def finish_services(store: MetadataStore) -> list[str]:
    """Finish or undo the unfinished services of dead writers; returns a line of text about each."""
    if not store.timeline.pending:
        return []
    undo_dead_replaces(store)
    drop_unfinished(store)
    undo_log_compactions(store)
    return finish_compactions(store)


def purge(store: MetadataStore) -> list[str]:
    """Compact every file group that has log files, due or not, and delete all file slices except the last of each, so
    that files only have the records of the last slices. Returns a line of text about each step.

    Where file slices must stay unchanged, because a commit is pending, nothing is done. Partitions that are being built
    stay as they are.
    """
    done = finish_unfinished(store)
    if is_blocked(store):
        return done
    plan = _plan_of_all(store)
    instant = store.service_time(Suffix.COMPACTION)
    if plan.slices and instant is not None:
        store.request(Action.COMPACTION, instant, compaction_body(plan).encode())
        done.append(_run(store, instant, plan.slices, State.REQUESTED))
    last_slices = retain_versions(1)
    assert last_slices is not None
    return [*done, *_clean(store, _plan(store, last_slices))]
