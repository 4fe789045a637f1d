"""Removes the leftovers of writes that are not pending any more: data files that no completed instant names, markers,
heartbeats and unfinished files. The lock is held.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from lakebed.concurrency.heartbeat import HEARTBEAT_FOLDER, is_dead, remove_heartbeat
from lakebed.concurrency.markers import delete_markers, list_markers
from lakebed.errors import CorruptFile
from lakebed.format.file_names import is_written_by
from lakebed.metadata_records.layout import METADATA_FOLDER
from lakebed.model import Action, Instant, State, has_completion_times
from lakebed.operations.rollback_plan import plan_by_paths
from lakebed.policies.rollback import is_log_path
from lakebed.storage.atomic_file import remove_asides
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.rollback import command_log_names
from lakebed.timeline.timeline import Timeline


def delete_data_files(
    storage: Storage, paths: Iterable[str], instant: str, copied_as: Collection[str] = ()
) -> list[str]:
    """Delete the files in `paths` with the instant in their name, and log files with one of `copied_as`; returns those
    that existed."""
    return [
        path
        for path in paths
        if is_written_by(path, [instant, *(copied_as if is_log_path(path) else ())]) and storage.delete(path)
    ]


# An unfinished small file, on a file system where a file has a name while it is written: `.<name>.tmp`.
_UNFINISHED = re.compile(r"^\.(?P<instant>\d{14,})[._].*tmp$")


def remove_leftovers(
    storage: Storage,
    timeline: Timeline,
    marked: Sequence[str],
    heartbeats: Sequence[str],
    *,
    after_rollback: bool,
    roll_back_again: Callable[[str], None],
) -> str:
    """Remove the leftovers of writes that are not pending any more. Returns the greatest instant whose heartbeat stays
    (empty for none). `marked` are the instants that have a folder of markers, `heartbeats` the names of the files in
    the folder of heartbeats. The caller holds the lock, and loaded `timeline` under it.

    A write that committed and died before it cleaned up leaves its markers and heartbeat. One that died in its first
    step leaves a heartbeat without an instant. A writer or a task attempt that outlived its rollback may have written
    files since: where those are log files of others' slices, before version 8, `roll_back_again` hides their blocks.
    """
    pending = {i.time for i in timeline.pending}
    has_leftovers = after_rollback
    for instant in marked:
        # a later instant is skipped: it began after the timeline was loaded, when the lock of this suspended process
        # had run out
        if instant not in pending and instant <= timeline.greatest_time:
            has_leftovers = True
            if _logged_late(storage, timeline, instant):
                roll_back_again(instant)
                continue
            remove_lost(storage, timeline, instant)
    finished = {i.time for i in timeline.completed} - pending  # a savepoint has the time of its commit
    standing = ""
    for instant in heartbeats:
        if instant in finished or (instant.isdigit() and instant not in pending and is_dead(storage, instant)):
            has_leftovers = True
            remove_heartbeat(storage, instant)
        elif instant.isdigit():
            standing = max(standing, instant)
    if has_leftovers or any(_is_unfinished(name, pending) for name in heartbeats):
        _remove_unfinished(storage, timeline, pending)
    return standing


def remove_unfinished(storage: Storage, timeline: Timeline, instant: str) -> None:
    """Remove the unfinished files that a pending service, which is run again, left when its process died. The caller
    holds the lock."""
    _remove_unfinished(storage, timeline, {i.time for i in timeline.pending} - {instant})


def _remove_unfinished(storage: Storage, timeline: Timeline, pending: set[str]) -> None:
    folders = [HEARTBEAT_FOLDER, timeline.config.timeline_path]
    if timeline.config.metadata_partitions:
        folders.append(f"{METADATA_FOLDER}/{timeline.config.timeline_path}")
        # it is written under the lock, so no other process uses its files
        for partition in timeline.config.metadata_partitions:
            remove_asides(storage, f"{METADATA_FOLDER}/{partition}")
    for folder in folders:
        for path in _unfinished_files(storage, folder, pending):
            storage.delete(path)


def remove_lost(storage: Storage, timeline: Timeline, instant: str) -> None:
    """Delete the files that an instant which is not pending has left, by its markers, and then the markers. The caller
    holds the lock."""
    for path in lost_files(storage, timeline, instant):
        storage.delete(path)
    delete_markers(storage, instant)


def lost_files(storage: Storage, timeline: Timeline, instant: str) -> Sequence[str]:
    """The files from the markers of an instant that no completed instant names, neither on the timeline nor in the
    archive. Empty if neither shows whether the instant completed."""
    marked = [marker.path for marker in list_markers(storage, instant)]
    if not marked:
        return ()
    rollback = timeline.find(instant, Action.ROLLBACK)
    if rollback is not None and rollback.is_completed:  # a process that had lost the lock went on with it
        listed = command_log_names(timeline.metadata(rollback))
        return [path for path in marked if path.rpartition("/")[2] not in listed]
    named = _named_by(timeline, instant)
    if named is None:
        return ()
    lost = [path for path in marked if path not in named]
    return plan_by_paths(timeline, Instant(instant, Action.DELTACOMMIT, State.INFLIGHT), lost, []).files


def _named_by(timeline: Timeline, instant: str) -> Collection[str] | None:
    """The files that a completed instant names; empty for an instant that was removed from the timeline. None if the
    instant may be archived and the archive does not go back far enough."""
    commit = timeline.commit(instant)
    if commit is not None:
        return set(timeline.commit_metadata(commit).paths)
    if timeline.start is None or instant >= timeline.start:
        return ()
    with suppress(CorruptFile):  # a damaged archive does not stop a write
        archived = timeline.archived()
        with suppress(FileNotFoundError):
            metadata = archived.commit_metadata(instant)
            return set(metadata.paths) if metadata.stats else None
        if timeline.is_taken_off(instant) or not archived.instants:
            return ()
    return None


def _logged_late(storage: Storage, timeline: Timeline, instant: str) -> bool:
    """Whether the markers of an instant that was taken off the timeline name existing log files (only before version
    8)."""
    if has_completion_times(timeline.config.version) or timeline.config.table_type == "cow":
        return False
    if any(i.time == instant for i in timeline.instants):
        return False
    logs = [marker.path for marker in list_markers(storage, instant) if is_log_path(marker.path)]
    return any(storage.head(path) is not None for path in logs) and timeline.is_taken_off(instant)


def _unfinished_files(storage: Storage, folder: str, pending: set[str]) -> list[str]:
    return [f"{folder}/{name}" for name in storage.list_names(folder) if _is_unfinished(name, pending)]


def _is_unfinished(name: str, pending: set[str]) -> bool:
    match = _UNFINISHED.match(name)
    return match is not None and match["instant"] not in pending
