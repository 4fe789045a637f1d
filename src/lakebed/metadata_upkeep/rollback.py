"""Undoing a delta commit of the metadata table, completed or not, as the data table's instant is undone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from lakebed.format.file_names import is_data_path, log_file_name
from lakebed.format.log_file import BlockHead, block_bytes, rollback_block, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.metadata_records.group_files import new_token
from lakebed.metadata_records.layout import parse_files
from lakebed.metadata_upkeep.store import MetadataStore, Suffix
from lakebed.model import HOODIE, Action, Instant, LogFile, State
from lakebed.policies.rollback import files_of_instant, is_void
from lakebed.timeline.bodies.rollback import (
    RollbackPlan,
    encode_rollback_metadata,
    encode_rollback_plan,
    rollback_files,
    rollback_logs,
    rollback_target,
)
from lakebed.timeline.history import rollback_record
from lakebed.timeline.timeline import completed_at

_UNDONE = (Action.DELTACOMMIT, Action.REPLACECOMMIT)
_UNDONE_BY_PLANS = (*_UNDONE, Action.COMMIT, Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING)


def roll_back(store: MetadataStore, instant: str, rollback_instant: str) -> bool:
    """Undo the delta commit of an instant of the data table; returns False if there is none.

    The rollback gets `rollback_instant`, the one of the data table's (version 6: with a suffix). A rollback of it that
    was cut off is finished instead, under its own time. Raises `CommitConflict` if the lock was lost: the delta
    commit may be of a writer that lives.
    """
    if not store.is_maintained():
        return False
    undone = instant in finish_rollbacks(store)
    target = next((i for i in store.timeline.instants if i.time == instant and i.action in _UNDONE), None)
    if target is None:
        return undone
    rollback_times = {i.time for i in store.timeline.instants if i.action is Action.ROLLBACK}
    suffix = "" if store.version >= 8 else Suffix.ROLLBACK
    at = rollback_instant + suffix
    if at in rollback_times:
        at = store.new_time() + suffix
    logs = {} if store.version >= 8 else logs_with_blocks_of(store, instant)
    plan = RollbackPlan(target, tuple(_files_of(store, instant)), logs)
    store.request(Action.ROLLBACK, at, encode_rollback_plan(store.storage.url(), plan))
    store.transitions.inflight(Action.ROLLBACK, at)
    _execute(store, plan, at)
    return True


def remove_instant(store: MetadataStore, instant: str) -> None:
    """Remove the delta commit of an instant that another writer has rolled back meanwhile, and its log files that no
    delta commit names."""
    if not store.is_maintained() or roll_back(store, instant, store.new_time()):
        return
    logs = {} if store.version >= 8 else logs_with_blocks_of(store, instant)
    alone = [p for p, size in logs.items() if all(h.instant == instant for h in _blocks(store, p, size))]
    written = (*_files_of(store, instant), *alone)
    store.check_lock()
    for path in written:
        store.storage.delete(path)
    store.changed()


def is_compacted(store: MetadataStore, instant: str) -> bool:
    """Whether files of another instant may have records of the data table's instant: file groups were compacted, built,
    re-sharded or repaired after its delta commit, or instead of it."""
    if not store.is_maintained():
        return False
    delta_commit = _delta_commit(store, instant)
    return bool(store.timeline.commits) if delta_commit is None else _is_followed(store, delta_commit)


def is_merged(store: MetadataStore, instant: str) -> bool:
    """Whether file groups with records of the data table's instant were compacted, built, re-sharded or repaired after
    its delta commit, which is still on the timeline."""
    if not store.is_maintained():
        return False
    delta_commit = _delta_commit(store, instant)
    return delta_commit is not None and _is_followed(store, delta_commit)


def _delta_commit(store: MetadataStore, instant: str) -> Instant | None:
    commits = (i for i in store.timeline.commits if i.action is Action.DELTACOMMIT)
    return next((i for i in commits if i.time == instant), None)


def _is_followed(store: MetadataStore, delta_commit: Instant) -> bool:
    """Whether the metadata table has completed an action of its own since the delta commit."""
    data = {i.time for i in store.data_timeline.instants}
    return any(
        completed_at(i) > completed_at(delta_commit) and (i.action is not Action.DELTACOMMIT or i.time not in data)
        for i in store.timeline.commits
    )


def finish_rollbacks(store: MetadataStore) -> set[str]:
    """Finish rollbacks that were interrupted; returns the instants that they undo.

    Two kinds are taken off the timeline instead, since they have deleted nothing: rollbacks of a completed commit of
    the data table, which Hudi plans and then refuses, and rollbacks whose plan names no instant.
    """
    undone: set[str] = set()
    for rollback in store.pending(Action.ROLLBACK):
        record = rollback_record(store.timeline, rollback)
        time_undone = rollback_target(record)
        existing = next(
            (i for i in store.timeline.instants if i.time == time_undone and i.action in _UNDONE_BY_PLANS), None
        )
        is_completed = existing is not None and existing.is_completed
        if is_void(
            time_undone,
            lambda time, is_rolled_back=is_completed: is_rolled_back and store.data_timeline.is_committed(time),
        ):
            store.transitions.remove_pending(rollback)
            store.changed()
            continue
        target = existing or Instant(time_undone, Action.DELTACOMMIT, State.INFLIGHT)
        if rollback.state is State.REQUESTED:
            store.transitions.inflight(Action.ROLLBACK, rollback.time)
        _execute(store, _checked(store, target, record), rollback.time)
        undone.add(time_undone)
    return undone


def _checked(store: MetadataStore, target: Instant, record: Mapping[str, Any]) -> RollbackPlan:
    """The plan without files that the target did not write. On version 6 base files have the instant in their name, and
    a command block hides the target's blocks in log files."""
    files = tuple(path for path in rollback_files(record) if _instant_of(path) == target.time)
    logs = {path: size for path, size in rollback_logs(record).items() if store.version < 8 and _is_log(path)}
    return RollbackPlan(target, files, logs)


def _instant_of(path: str) -> str | None:
    partition, _, name = path.rpartition("/")
    file = parse_files(partition, name, 0) if is_data_path(path) else None
    return file.instant if file is not None else None


def _is_log(path: str) -> bool:
    partition, _, name = path.rpartition("/")
    return is_data_path(path) and isinstance(parse_files(partition, name, 0), LogFile)


def _files_of(store: MetadataStore, instant: str) -> list[str]:
    """The files with the instant in their names. On version 6 log files have their slice's instant, and are hidden
    instead."""
    return [
        file.path
        for partition in _folders(store)
        for file in files_of_instant(store.listed_files(partition), instant, logs=store.version >= 8)
    ]


def logs_with_blocks_of(store: MetadataStore, instant: str) -> dict[str, int]:
    """The log files that hold visible blocks of the instant, with their sizes (version 6)."""
    log_sizes: dict[str, int] = {}
    for partition in _folders(store):
        for file_slice in store.slices.file_slices(partition):
            for log in file_slice.log_files:
                if any(head.instant == instant for head in _blocks(store, log.path, log.size)):
                    log_sizes[log.path] = log.size
    return log_sizes


def _folders(store: MetadataStore) -> list[str]:
    """The partitions whose folders exist, whichever engine made them."""
    return [folder for folder in store.storage.list_folders() if folder != HOODIE]


def _blocks(store: MetadataStore, path: str, size: int) -> Iterable[BlockHead]:
    return scan_blocks(FileSource(store.storage, path, size))


def _execute(store: MetadataStore, plan: RollbackPlan, at: str) -> None:
    started = time.monotonic()
    target = plan.target
    store.check_lock()
    if target.is_completed:
        store.transitions.make_pending(target, target.action)
    deleted = [path for path in plan.files if store.storage.delete(path)]
    command_logs = {path: size for log in plan.logs for path, size in [_hide_blocks(store, log, target.time, at)]}
    store.transitions.remove_pending(target)
    millis = int((time.monotonic() - started) * 1000)
    body = encode_rollback_metadata(store.storage.url(), plan, at, deleted, millis, command_logs)
    store.finish(Action.ROLLBACK, at, body)


def _hide_blocks(store: MetadataStore, path: str, target: str, at: str) -> tuple[str, int]:
    """Write a log file after the others of the slice that hides the target's blocks; returns its path and size."""
    partition, _, name = path.rpartition("/")
    log = parse_files(partition, name, 0)
    assert isinstance(log, LogFile)
    files = [parse_files(partition, file_name, 0) for file_name in store.storage.list_names(partition)]
    versions = [
        file.version
        for file in files
        if isinstance(file, LogFile) and (file.file_id, file.instant) == (log.file_id, log.instant)
    ]
    hiding = f"{partition}/{log_file_name(log.file_id, log.instant, max(versions, default=0) + 1, new_token())}"
    content = block_bytes(rollback_block(target, at))
    store.storage.write(hiding, content)
    return hiding, len(content)
