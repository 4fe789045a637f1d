"""Compaction of the metadata table: each file group with log files becomes one new base file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.metadata.layout import parse_files
from lakebed.metadata.store.group_files import FileGroup, WrittenBase, write_base
from lakebed.metadata.store.slice_merge import Unordered, open_slice
from lakebed.metadata.store.store import MetadataStore
from lakebed.metadata.store.suffixes import Suffix
from lakebed.model import Action, BaseFile, FileSlice, Instant, LogFile, State
from lakebed.policies.compaction import delta_commits_since_compaction, plan_compaction
from lakebed.policies.rollback import files_of_instant
from lakebed.storage.atomic_file import remove_asides
from lakebed.timeline.bodies.commit import NEW_FILE
from lakebed.timeline.bodies.plans import CompactionOperation, compaction_operations, encode_compaction_plan
from lakebed.wording import count_text

_OPERATION = "COMPACT"


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
    """Finish compactions that were cut off; gives a line about each."""
    return [_finish(store, instant) for instant in store.pending(Action.COMPACTION)]


def run_compaction(store: MetadataStore) -> list[str]:
    """Compact if it is due; gives a line about what was done."""
    if not is_compaction_due(store) or is_held_up(store):
        return []
    instant = store.service_time(Suffix.COMPACTION)
    # what is being built has only logs yet, behind which its base files come
    kept = store.data_config.metadata_partitions
    slices = [found for partition in kept for found in store.slices.file_slices(partition)]
    plan = plan_compaction(slices)
    if instant is None or not plan.slices:
        return []
    store.request(Action.COMPACTION, instant, encode_compaction_plan(plan))
    return [_run(store, instant, plan.slices, State.REQUESTED)]


def is_compaction_due(store: MetadataStore) -> bool:
    """Whether there are delta commits enough since the last one."""
    return delta_commits_since_compaction(store.timeline.commits) >= store.settings.compact_after


def is_held_up(store: MetadataStore) -> bool:
    """Whether file slices must stay as they are: a commit of the data table that died behind its delta commit is still
    to be rolled back; on version 6 whoever writes at the moment will log to the slices that there are."""
    if store.version < 8:
        return bool(store.data_timeline.pending or store.pending(Action.DELTACOMMIT))
    here = {instant.time for instant in store.timeline.commits}
    return any(instant.time in here for instant in store.data_timeline.pending)


def plan_slice(store: MetadataStore, operation: CompactionOperation) -> FileSlice | None:
    """The file slice that an operation of a plan names; None where a file of it is gone: the partition was dropped, and
    maybe built again, since the plan was made."""
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
    """Delete what a service wrote at this instant before it died, and what was not finished."""
    for partition in partitions:
        for file in files_of_instant(store.listed_files(partition), instant, logs=store.version >= 8):
            store.storage.delete(file.path)
        remove_asides(store.storage, partition)


def _finish(store: MetadataStore, pending: Instant) -> str:
    operations = compaction_operations(store.timeline.plan(pending))
    remove_leftovers(store, pending.time, sorted({operation.partition for operation in operations}))
    slices = [found for operation in operations if (found := plan_slice(store, operation)) is not None]
    return _run(store, pending.time, slices, pending.state)


def _run(store: MetadataStore, instant: str, slices: Sequence[FileSlice], state: State) -> str:
    remove_asides(store.storage, store.timeline.config.timeline_path)
    if state is State.REQUESTED:
        store.transitions.inflight(Action.COMPACTION, instant)
    compacted = store.parallel_map(lambda file_slice: _compact(store, file_slice, instant), slices)
    store.complete(Action.COMPACTION, instant, _OPERATION, [one.stat() for one in compacted])
    return f"compaction {instant} of {count_text(len(slices), 'file group')}"


def _compact(store: MetadataStore, file_slice: FileSlice, instant: str) -> _Compacted:
    started = time.monotonic()
    merge = open_slice(store.slices, file_slice)
    group = FileGroup(store.version, file_slice.partition, file_slice.file_id, instant)
    read_millis = int((time.monotonic() - started) * 1000)
    try:
        base = write_base(store.data_storage, group, instant, merge.entries(), schema_json=merge.schema_json)
    except Unordered:
        whole = merge.entries(in_order=False)
        base = write_base(store.data_storage, group, instant, whole, schema_json=merge.schema_json)
    log_records = sum(file.entry_count for file, _ in merge.layers if file is not None)
    return _Compacted(file_slice, base, len(merge.layers), log_records, read_millis)
