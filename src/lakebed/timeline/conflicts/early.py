"""Finding out before its rows are written that a write will lose: by the markers of the writers that began before it.

Two writers that come to a file group at the same moment may miss each other: that is found when they commit, as ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.errors import CommitConflict
from lakebed.format.file_names import bucket_of_file_id, parse_base_file, parse_log_file
from lakebed.storage.base import Storage
from lakebed.timeline.locks.heartbeat import is_dead
from lakebed.timeline.markers import Marker, list_markers_in


@dataclass(frozen=True, slots=True)
class EarlyConflicts:
    """Sent to the tasks. `rivals` are the instants of the writes that were pending when this one began; `by_bucket`
    where two file ids of one bucket mean the same file group."""

    rivals: tuple[str, ...]
    by_bucket: bool = False

    def check(self, storage: Storage, partition: str, file_id: str) -> None:
        """Raise `CommitConflict` where a live rival is at this file group; asks storage once for each rival."""
        for rival in self.rivals:
            markers = list_markers_in(storage, rival, partition)
            if any(self._is_at(marker, file_id) for marker in markers) and not is_dead(storage, rival):
                raise CommitConflict(
                    f"file group {file_id} in partition {partition!r} is being changed by another writer (instant"
                    f" {rival})",
                    hint="Nothing of this write is visible; run it again when that one is done.",
                    context={"partition": partition, "file_id": file_id, "instant": rival},
                )

    def _is_at(self, marker: Marker, file_id: str) -> bool:
        name = marker.file_name
        file = parse_base_file(marker.partition, name, 0) or parse_log_file(marker.partition, name, 0)
        if file is None:
            return False
        return file.file_id == file_id or (self.by_bucket and _bucket(file.file_id) == _bucket(file_id))


def _bucket(file_id: str) -> int | str:
    number = bucket_of_file_id(file_id)
    return file_id if number is None else number
