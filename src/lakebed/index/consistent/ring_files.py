"""The rings of a table in storage: a folder for each partition path, a file for each instant that changed the ring.

A file counts once its instant has completed. An empty file `<instant>.commit` next to it records that when the instant
is archived: the writer leaves it, or the next one that reads the ring. If both died first, the archive decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.index.consistent.ring import INITIAL, Ring, default_ring
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map

FOLDER = ".hoodie/.bucket_index/consistent_hashing_metadata"
_RING, _COMMITTED = ".hashing_meta", ".commit"


@dataclass(frozen=True)
class RingFiles:
    """The rings of a snapshot; a partition path without a stored ring has the first ring of `buckets` nodes."""

    snapshot: Snapshot
    buckets: int
    listed: Mapping[str, Sequence[str]] | None = None
    """The names of the files of each partition path, where all of them were listed at once."""

    @classmethod
    def of_all(cls, snapshot: Snapshot, buckets: int) -> RingFiles:
        """The rings of all partition paths that have one, from one listing."""
        names: dict[str, list[str]] = {}
        for file in snapshot.storage.list(FOLDER):
            folder, _, name = file.path.rpartition("/")
            names.setdefault(folder.removeprefix(FOLDER).removeprefix("/"), []).append(name)
        return cls(snapshot, buckets, names)

    def _names(self, partition: str) -> Sequence[str]:
        if self.listed is not None:
            return self.listed.get(partition, ())
        return self.storage.list_names(_folder(partition))

    @property
    def storage(self) -> Storage:
        return self.snapshot.storage

    def rings(self, partitions: Collection[str]) -> dict[str, Ring]:
        """The ring of each partition path."""
        rings = self.stored_rings(partitions)
        return {p: rings.get(p) or default_ring(p, self.buckets) for p in partitions}

    def stored_rings(self, partitions: Collection[str]) -> dict[str, Ring]:
        """The stored rings by partition path; a path without a stored ring is missing."""
        paths = sorted(partitions)
        rings = parallel_map(self.stored, paths)
        return {path: ring for path, ring in zip(paths, rings, strict=True) if ring is not None}

    def stored(self, partition: str) -> Ring | None:
        """The stored ring of a partition path; None if it does not have one yet."""
        names = self._names(partition)
        instants = (name.removesuffix(_RING) for name in names if name.endswith(_RING))
        for instant in sorted(filter(self._is_in_view, instants), reverse=True):
            committed = f"{instant}{_COMMITTED}" in names
            if (ring := self._counting(partition, instant, committed=committed)) is not None:
                return ring
        return None

    def _is_in_view(self, instant: str) -> bool:
        return self.snapshot.as_of is None or instant <= self.snapshot.as_of or instant == INITIAL

    def _counting(self, partition: str, instant: str, *, committed: bool) -> Ring | None:
        """The ring of an instant; None for an instant that has not completed, or was rolled back."""
        timeline = self.snapshot.timeline
        path = ring_path(partition, instant)
        if instant == INITIAL or timeline.is_completed(instant):
            return Ring.decode(self.storage.read(path), path)
        if any(pending.time == instant for pending in timeline.pending):
            return None
        if timeline.start is None or instant >= timeline.start:
            return None
        ring = Ring.decode(self.storage.read(path), path)
        return ring if committed or self._is_archived(instant) or self._has_files(ring) else None

    def _is_archived(self, instant: str) -> bool:
        """Whether the archive has the completed instant. The archive is read if the timeline has no file of the
        instant."""
        return any(i.time == instant and i.is_completed for i in self.snapshot.timeline.archived().instants)

    def _has_files(self, ring: Ring) -> bool:
        """Whether a base file of the ring's buckets exists, which shows that the ring's instant had completed."""
        ids = set(ring.file_ids.to_pylist())
        return any(file.file_id in ids for file in self.snapshot.base_files([ring.partition]))

    def begin(self, partitions: Iterable[str]) -> None:
        """Write the first ring of each of the partition paths that does not have a ring; all writers make an equal
        one."""
        for partition in sorted(set(partitions)):
            if self.stored(partition) is None:
                ring = default_ring(partition, self.buckets)
                self.storage.put_if_absent(ring_path(partition, INITIAL), ring.encode())

    def write(self, ring: Ring) -> None:
        """Write the ring that an instant leaves; readers use it once the instant has completed."""
        self.storage.write(ring_path(ring.partition, ring.instant), ring.encode())

    def note_completed(self, rings: Iterable[Ring]) -> None:
        """Record that the instants of rings have completed, since they may be archived later."""
        for ring in rings:
            name = f"{ring.instant}{_COMMITTED}"
            noted = self.listed is not None and name in self.listed.get(ring.partition, ())
            if ring.instant != INITIAL and not noted:
                self.storage.put_if_absent(f"{_folder(ring.partition)}/{name}", b"")

    def note_written(self, partitions: Iterable[str], instant: str) -> None:
        """Record that the rings which an instant wrote in these partition paths have completed."""
        for partition in partitions:
            self.storage.put_if_absent(f"{_folder(partition)}/{instant}{_COMMITTED}", b"")

    def forget(self, instant: str) -> None:
        """Delete the ring files of an instant that is rolled back."""
        names = (f"{instant}{_RING}", f"{instant}{_COMMITTED}")
        for file in list(self.storage.list(FOLDER)):
            if file.path.rpartition("/")[2] in names:
                self.storage.delete(file.path)


def has_rings(storage: Storage) -> bool:
    """Whether a table has rings, so that its index is consistent hashing, whichever engine wrote it."""
    return any(file.path.endswith(_RING) for file in storage.list(FOLDER))


def ring_path(partition: str, instant: str) -> str:
    """The file with the ring that an instant left."""
    return f"{_folder(partition)}/{instant}{_RING}"


def _folder(partition: str) -> str:
    return f"{FOLDER}/{partition}" if partition else FOLDER
