"""Removes what dead writers left beside the timeline: markers, heartbeats and files of writes that are over."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakebed.concurrency.heartbeat import HEARTBEAT_FOLDER, is_dead, remove_heartbeat
from lakebed.concurrency.markers import TEMP_FOLDER, Marker, delete_markers, list_markers
from lakebed.format.file_names import is_written_by
from lakebed.metadata.layout import METADATA_FOLDER
from lakebed.storage.atomic_file import remove_asides
from lakebed.storage.base import Storage
from lakebed.timeline.timeline import Timeline

# A small file that was not finished, on a file system where it has a name before it is: `.<name>.tmp`.
_UNFINISHED = re.compile(r"^\.(?P<instant>\d{14,})[._].*tmp$")


def sweep(storage: Storage, timeline: Timeline, *, after_rollback: bool) -> str:
    """Remove what is left of writes that are not pending any more; gives the greatest instant whose heartbeat stays
    (empty for none). Lock held, `timeline` loaded under it.

    A write that committed and died before it cleaned up leaves its markers and heartbeat. One that died in its first
    step leaves a heartbeat without an instant. A task attempt that outlived its rollback may have written files since.
    """
    pending = {i.time for i in timeline.pending}
    found = after_rollback
    for instant in storage.list_folders(TEMP_FOLDER):
        # a later one began since the timeline was loaded: the lock ran out while this process stood still
        if instant not in pending and instant <= timeline.greatest_time:
            found = True
            for marker in lost_files(storage, timeline, instant):
                storage.delete(marker.path)
            delete_markers(storage, instant)
    finished = {i.time for i in timeline.completed}
    standing = ""
    for instant in storage.list_names(HEARTBEAT_FOLDER):
        if instant in finished or (instant.isdigit() and instant not in pending and is_dead(storage, instant)):
            found = True
            remove_heartbeat(storage, instant)
        elif instant.isdigit():
            standing = max(standing, instant)
    if found or _unfinished_files(storage, HEARTBEAT_FOLDER, pending):
        _remove_unfinished(storage, timeline, pending)
    return standing


def remove_unfinished(storage: Storage, timeline: Timeline, instant: str) -> None:
    """Remove what a pending service, that is run again, left unfinished when its runner died. Lock held."""
    _remove_unfinished(storage, timeline, {i.time for i in timeline.pending} - {instant})


def _remove_unfinished(storage: Storage, timeline: Timeline, pending: set[str]) -> None:
    folders = [HEARTBEAT_FOLDER, timeline.config.timeline_path]
    if timeline.config.metadata_partitions:
        folders.append(f"{METADATA_FOLDER}/{timeline.config.timeline_path}")
        # it is written under the lock, so nobody else is at its files
        for partition in timeline.config.metadata_partitions:
            remove_asides(storage, f"{METADATA_FOLDER}/{partition}")
    for folder in folders:
        for path in _unfinished_files(storage, folder, pending):
            storage.delete(path)


def lost_files(storage: Storage, timeline: Timeline, instant: str) -> Iterator[Marker]:
    """Markers of files that no completed instant names. Nothing for instants that may be archived."""
    commit = next((i for i in timeline.commits if i.time == instant), None)
    if commit is None and timeline.start is not None and instant < timeline.start:
        return
    named: set[str] = set()
    if commit is not None:
        stats = timeline.commit_metadata(commit).stats.values()
        named = {path for group in stats for s in group for path in s.paths}
    for marker in list_markers(storage, instant):
        if marker.path not in named and is_written_by(marker.path, [instant]):
            yield marker


def _unfinished_files(storage: Storage, folder: str, pending: set[str]) -> list[str]:
    found: list[str] = []
    for name in storage.list_names(folder):
        match = _UNFINISHED.match(name)
        if match is not None and match["instant"] not in pending:
            found.append(f"{folder}/{name}")
    return found
