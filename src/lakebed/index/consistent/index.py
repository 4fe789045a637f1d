"""Hudi's bucket index of the engine CONSISTENT_HASHING: buckets on a ring, of which single ones split and merge.
Where the table's properties do not name it, its rings are there, and stored keys show the hash fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.conflicts import CLUSTER_OPERATION
from lakebed.config.settings import ClusteringSettings
from lakebed.engine.base import GROUP, Engine, Rows, distinct_values
from lakebed.errors import CommitConflict, ConflictKind, IndexInconsistent, InvalidOption
from lakebed.format.file_names import new_file_id
from lakebed.index.base import GroupResizing, Hashing, Index, IndexOptions, KeyLocations, Numbered, Resizes, Resizing
from lakebed.index.bucket import BucketIndex, field_choices, first_keys, split_fields
from lakebed.index.consistent.resize import (
    BucketSizes,
    ChildFileId,
    Outputs,
    RingNumber,
    Rings,
    WithChildren,
    resize_groups,
    resizes_of,
)
from lakebed.index.consistent.ring import Children, Node, Ring, renewed, ring_hashes
from lakebed.index.consistent.ring_files import RingFiles
from lakebed.merge.locations import IsNotNull
from lakebed.metadata_kinds.key_changes import KeyIndexes
from lakebed.model import FILE_ID, PARTITION_PATH, Action, CommitMetadata, FileSlice
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.plans import ClusteringGroup, ClusteringOperation, planned_clustering
from lakebed.write_status import WriteStatus

# Of so many file slices keys are looked at to find out whether a table has the index.
_SAMPLE_SLICES = 32
# On an engine with tasks the rings of all partition paths are read where there are no more of them: a request each,
# side by side. Where there are more the rows are counted first.
MAX_RINGS = 1_000


@dataclass
class ConsistentIndex(Index, Hashing, GroupResizing):
    """Hudi's consistent hashing: a key's bucket follows from its position on the ring of its partition path, which has
    `buckets` nodes at first. A clustering splits a bucket that has grown too large and merges small neighbours; the
    other buckets are not changed.

    For merge-on-read tables: all rows go to log files, those of new keys too. `fields` are the key fields that are
    hashed; empty means all of them.

    >>> ConsistentIndex(4, ("id",)).settings()
    {'type': 'consistent', 'bucket.count': '4', 'bucket.fields': 'id'}
    """

    buckets: int
    fields: tuple[str, ...] = ()
    renewed_by: str = ""
    """The instant of a write whose rows go to new file groups only."""
    _wrote: dict[str, list[str]] = field(
        default_factory=dict[str, list[str]], init=False, repr=False, compare=False
    )  # partition paths with a new ring, by the instant that is not completed yet

    name: ClassVar[str] = "consistent"
    is_global = False
    table_types = ("mor",)
    rows_can_move = False
    begins_with_logs = True
    # what real Hudi takes where a job names the bucket index without a count
    HUDI_SETTINGS: ClassVar[Mapping[str, str]] = BucketIndex.HUDI_SETTINGS

    def __post_init__(self) -> None:
        BucketIndex(self.buckets)  # refuses a number that cannot be
        self.fields = tuple(self.fields)

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> ConsistentIndex:
        """The index that `settings()` describes."""
        like = BucketIndex.from_settings(settings)
        return cls(like.buckets, split_fields(settings.get("bucket.fields", "")))

    @classmethod
    def from_options(cls, options: IndexOptions) -> ConsistentIndex:
        """The index that a caller names."""
        options.refuse_all_but("buckets", "fields")
        like = BucketIndex.from_options(options)
        return cls(like.buckets, like.fields)

    def settings(self) -> Mapping[str, str]:
        return {**BucketIndex(self.buckets, self.fields).settings(), "type": self.name}

    def resolved(self, key_fields: Sequence[str]) -> ConsistentIndex:
        return replace(self, fields=BucketIndex(self.buckets, self.fields).resolved(key_fields).fields)

    def hashed_fields(self, key_fields: Sequence[str]) -> tuple[str, ...]:
        return self.resolved(key_fields).fields

    @property
    def hashing(self) -> ConsistentIndex:
        return self

    @property
    def resizing(self) -> ConsistentIndex:
        return self

    @property
    def stores_locations(self) -> bool:
        return False  # a ring has no single keys

    def resized(self, resizing: Resizing, snapshot: Snapshot) -> ConsistentIndex:
        raise InvalidOption(
            f"the index {self.name!r} is not rescaled: clusterings split and merge its buckets",
            hint="Run t.maintenance.cluster(), with hoodie.bucket.index.max.num.buckets and"
            " hoodie.bucket.index.min.num.buckets for"
            " how many there may be.",
            context={"index": self.name},
        )

    def for_new_groups(self, instant: str) -> ConsistentIndex:
        return replace(self, renewed_by=instant)

    def check(self, snapshot: Snapshot) -> None:
        """Check the file ids, and the first keys of each slice if the table stores keys. Raises `IndexInconsistent`."""
        rings = RingFiles(snapshot, self.buckets).rings(snapshot.partitions())
        slices = snapshot.file_slices()
        node_numbers = [rings[file_slice.partition].node_number(file_slice.file_id) for file_slice in slices]
        step = max(1, len(slices) // _SAMPLE_SLICES)
        for number, (file_slice, node_number) in enumerate(zip(slices, node_numbers, strict=True)):
            if node_number is None:
                raise _off_ring(file_slice)
            if snapshot.config.populate_meta_fields and number % step == 0:
                self._check_keys(rings[file_slice.partition], node_number, first_keys(snapshot, file_slice), file_slice)

    def _check_keys(self, ring: Ring, node_number: int, keys: pa.Array, file_slice: FileSlice) -> None:
        node_numbers = pa.array(ring.node_numbers(ring_hashes(keys, self.fields)))
        wrong = keys.filter(pc.not_equal(node_numbers, node_number))
        if len(wrong):
            raise IndexInconsistent(
                f"record key {wrong[0].as_py()!r} in {file_slice.label} is in another bucket of the ring under the hash"
                f" fields {', '.join(self.fields) or 'of the whole key'}",
                hint="the hash fields are not those that the table was written with, or a writer without its index has"
                " written to it",
                context={"record_key": wrong[0].as_py(), "path": file_slice.label},
            )

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Numbered:
        """Place rows by the rings of their partition paths. During a pending resize a row of the resized buckets is
        repeated, with the number of the file group that the bucket turns into.

        In this process the partition paths of the rows are looked at, on Spark, where counting them would be a job, all
        that have a ring, if they are not too many."""
        files, touched = RingFiles(snapshot, self.buckets), None
        if engine.is_distributed:
            files = RingFiles.of_all(snapshot, self.buckets)
        if files.listed is None or len(files.listed) > MAX_RINGS:
            (touched,) = distinct_values(engine.aggregate(rows, [PARTITION_PATH]), PARTITION_PATH)
        rings = self._rings(files, files.listed or () if touched is None else touched)
        numbered = engine.derive(rows, {GROUP: RingNumber(rings, self.fields)})
        if self.renewed_by:
            return Numbered(numbered, rings, {})
        if rings.children:
            numbered = engine.map(numbered, WithChildren(rings, self.fields), engine.schema(numbered))
        slices = snapshot.file_slices(touched, self._met(numbered, rings, engine))
        numbers = {path: rings.numbers(path) for path in {file_slice.partition for file_slice in slices}}
        existing = {
            (file_slice.partition, numbers[file_slice.partition][file_slice.file_id]): file_slice
            for file_slice in slices
            if file_slice.file_id in numbers[file_slice.partition]
        }
        return Numbered(numbered, rings, existing, self._parents(rings, slices, snapshot))

    def _parents(
        self, rings: Rings, slices: Sequence[FileSlice], snapshot: Snapshot
    ) -> dict[tuple[str, int], tuple[FileSlice, ...]]:
        """The file slices that hold the rows of the file groups which pending clusterings make."""
        if not rings.children:
            return {}
        by_id = {(file_slice.partition, file_slice.file_id): file_slice for file_slice in slices}
        return {
            (path, rings.numbers(path)[file_id]): tuple(by_id[parent] for parent in before if parent in by_id)
            for (path, file_id), before in self.resizes(snapshot).origins.items()
        }

    def _met(self, numbered: Rows, rings: Rings, engine: Engine) -> Callable[[pa.Array, pa.Array], pa.Array] | None:
        """A function that selects the file groups that the rows go to; None if the rows are not in this process."""
        if engine.is_distributed:
            return None
        counted = engine.aggregate(numbered, [PARTITION_PATH, GROUP])
        pairs = zip(counted.column(PARTITION_PATH).to_pylist(), counted.column(GROUP).to_pylist(), strict=True)
        return groups_of_ids([rings.file_id(path, number) for path, number in pairs if path is not None])

    def _rings(self, files: RingFiles, partitions: Collection[str]) -> Rings:
        """The rings of these partition paths, in the state that the write uses."""
        groups: dict[str, tuple[Children, ...]] = {}
        children: dict[str, dict[int, int]] = {}
        resizes = not self.renewed_by and bool(self.resizes(files.snapshot).parents)
        planned = [(operation, nodes) for _, operation, nodes in self._pending(files.snapshot)] if resizes else []
        stored = files.stored_rings({*partitions, *(nodes.partition for _, nodes in planned)})
        files.note_completed(stored.values())
        if self.renewed_by:
            stored = {path: _renewed(ring, self.renewed_by) for path, ring in stored.items()}
        rings = Rings(stored, self.buckets, groups, children)
        for operation, nodes in planned:
            path = nodes.partition
            node_numbers = (rings.of(path).node_number(file_slice.file_id) for file_slice in operation.slices)
            path_groups = groups.get(path, ())
            children.setdefault(path, {}).update((at, len(path_groups)) for at in node_numbers if at is not None)
            groups[path] = (*path_groups, nodes)
        return rings

    def with_child_locations(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Rows:
        rings = self._rings(RingFiles(snapshot, self.buckets), ())
        if not rings.children:
            return rows
        copies = engine.derive(rows, {FILE_ID: ChildFileId(rings, self.fields)})
        names = engine.schema(rows).names
        ordered = engine.derive(engine.filter(copies, IsNotNull(FILE_ID)), {}, keep=names)
        return engine.union([rows, ordered])

    def _pending(self, snapshot: Snapshot) -> Iterator[tuple[str, ClusteringOperation, Children]]:
        """The groups of pending clusterings that name the nodes their buckets turn into: instant, operation and
        nodes."""
        timeline = snapshot.timeline
        for instant in timeline.pending:
            if timeline.is_pending_clustering(instant):
                for operation in planned_clustering(timeline.plan(instant)).operations:
                    children = Children.of_metadata(operation.extra)
                    if children is not None:
                        yield instant.time, operation, children

    def key_locations(self, snapshot: Snapshot) -> KeyLocations:
        return RingLocations(self.fields, self.buckets, snapshot)

    # -- clustering: buckets split and merge

    def resizes(self, snapshot: Snapshot) -> Resizes:
        # a copy adds no key to an index of keys, and would have to when the clustering completes
        if KeyIndexes.of(snapshot.storage, snapshot.config).partitions:
            return Resizes()
        return resizes_of(self._pending(snapshot))

    def clustering_groups(
        self,
        snapshot: Snapshot,
        slices: Sequence[FileSlice],
        instant: str,
        settings: ClusteringSettings,
        max_file_size: int,
    ) -> list[ClusteringGroup]:
        """The groups of buckets that split or merge; with sort columns also every other bucket as a group. Empty while
        a delta commit is pending, since its writer would not know of the plan."""
        if any(pending.action is Action.DELTACOMMIT for pending in snapshot.timeline.pending):
            return []
        sizes = BucketSizes(
            settings.split_threshold * max_file_size,
            settings.join_threshold * max_file_size,
            settings.max_buckets or self.buckets,
            settings.min_buckets or self.buckets,
        )
        timeline = snapshot.timeline
        busy = {*timeline.pending_clustering, *timeline.pending_compaction, *timeline.pending_log_compaction}
        rings = RingFiles(snapshot, self.buckets).rings({file_slice.partition for file_slice in slices})
        return list(resize_groups(slices, rings, sizes, instant, busy, rewrites_all=bool(settings.sort_columns)))

    def outputs(self, operation: ClusteringOperation) -> Outputs | None:
        children = Children.of_metadata(operation.extra)
        return None if children is None else Outputs(children, self.fields)

    # -- what the table remembers

    def check_commits(self, commit: CommitMetadata, others: Sequence[CommitMetadata]) -> None:
        """Raise `CommitConflict` if one commit replaces a complete partition path, which gives it a new ring, and
        another began a bucket there, which would be on no ring."""
        for other_commit in others:
            for overwrite, concurrent in ((commit, other_commit), (other_commit, commit)):
                if overwrite.operation == CLUSTER_OPERATION:
                    continue  # it changes the nodes of its own file groups
                for partition, ids in sorted(overwrite.replaced.items()):
                    began = {stat.file_id for stat in concurrent.stats.get(partition, ())}.difference(ids)
                    if began:
                        raise _off_new_ring(partition, min(began), overwrite.operation)

    def update(
        self,
        statuses: Sequence[WriteStatus],
        instant: str,
        snapshot: Snapshot,
        replaced: Mapping[str, Sequence[str]],
    ) -> None:
        """Write the rings that the instant leaves: with the children of a resize, or with new file groups for replaced
        ones."""
        files = RingFiles(snapshot, self.buckets)
        resized = self._resized(snapshot, instant)
        for partition, children in resized.items():
            ring = files.rings([partition])[partition]
            if any(group.sequence != ring.sequence for group in children):
                raise _other_ring(ring, instant)
            files.write(ring.changed(instant, (node for group in children for node in group.nodes)))
            self._wrote.setdefault(instant, []).append(partition)
        written = {s.partition for s in statuses if s.path is not None}
        files.begin((written | replaced.keys()) - resized.keys())
        for partition in replaced.keys() - resized.keys():
            ring = files.rings([partition])[partition]
            written_ids = {s.file_id for s in statuses if s.partition == partition and s.path is not None}
            on_ring = set(ring.file_ids.to_pylist())
            if on_ring.intersection(replaced[partition]) or written_ids - on_ring:
                files.write(_renewed(ring, instant))
                self._wrote.setdefault(instant, []).append(partition)

    def committed(self, instant: str, snapshot: Snapshot) -> None:
        """Record that the rings of the instant count: real Hudi relies on this when the instant is archived."""
        RingFiles(snapshot, self.buckets).note_written(self._wrote.pop(instant, ()), instant)

    def _resized(self, snapshot: Snapshot, instant: str) -> dict[str, list[Children]]:
        children_by_partition: dict[str, list[Children]] = {}
        for time, _, children in self._pending(snapshot):
            if time == instant:
                children_by_partition.setdefault(children.partition, []).append(children)
        return children_by_partition

    def rollback(self, instant: str, snapshot: Snapshot) -> None:
        self._wrote.pop(instant, None)
        RingFiles(snapshot, self.buckets).forget(instant)

    def explain(self) -> str:
        hashed = ", ".join(self.fields) or "the whole key"
        return (
            f"consistent: the ring of the partition path, {self.buckets} buckets at first, names the file group of the"
            f" hash of {hashed}; no data file is read to tag"
        )


@dataclass(frozen=True, eq=False)
class RingLocations(KeyLocations):
    """The file slices that can hold keys, by the rings of a snapshot."""

    fields: tuple[str, ...]
    buckets: int
    snapshot: Snapshot

    def groups_of(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The place (int32) of each stored key text on the ring."""
        return pa.array(ring_hashes(keys, self.fields))

    def slices_of(self, slices: Iterable[FileSlice], numbers: Collection[int]) -> list[FileSlice]:
        file_slices = list(slices)
        rings = RingFiles(self.snapshot, self.buckets).rings({file_slice.partition for file_slice in file_slices})
        hashes = as_numpy(pa.array(sorted(numbers), pa.int32()))
        met = {
            path: set(ring.file_ids.take(pa.array(ring.node_numbers(hashes))).to_pylist())
            for path, ring in rings.items()
        }
        ring_ids = {path: set(ring.file_ids.to_pylist()) for path, ring in rings.items()}
        # a file group on no node was written under another index
        return [s for s in file_slices if s.file_id in met[s.partition] or s.file_id not in ring_ids[s.partition]]


def _renewed(ring: Ring, instant: str) -> Ring:
    """The ring after a write whose rows go to new file groups only; every attempt of the write makes an equal ring."""
    numbers = count()
    nodes: list[Node] = []
    for node_number in range(len(ring.nodes)):
        file_id = new_file_id(instant, ring.partition, next(numbers))
        nodes += renewed(ring, node_number, file_id.removesuffix("-0"))
    return ring.changed(instant, nodes)


def _off_ring(file_slice: FileSlice) -> IndexInconsistent:
    where = repr(file_slice.partition) if file_slice.partition else "the table folder"
    return IndexInconsistent(
        f"file group {file_slice.file_id} in {where} is no bucket of the partition path's ring",
        hint="a writer without the table's index wrote it: write the rows of that partition again with"
        " insert_overwrite",
        context={"partition": file_slice.partition, "file_id": file_slice.file_id},
    )


def _off_new_ring(partition: str, file_id: str, operation: str) -> CommitConflict:
    where = f"partition {partition!r}" if partition else "the table folder"
    return CommitConflict(
        f"a write began file group {file_id} in {where} while another one ({operation}) gave it new buckets",
        hint="Nothing of this write is visible; run it again.",
        context={"partition": partition, "file_id": file_id},
        kind=ConflictKind.COMMITTED,
    )


def _other_ring(ring: Ring, instant: str) -> InvalidOption:
    return InvalidOption(
        f"clustering {instant} was planned on another ring of partition {ring.partition!r} than it has now",
        hint="Nothing was changed; take the plan off the timeline, the next clustering makes a new one.",
        context={"partition": ring.partition, "instant": instant},
    )


_DEFAULT = int(ConsistentIndex.HUDI_SETTINGS["bucket.count"])


def consistent_of_rings(snapshot: Snapshot, fields: Sequence[str] = ()) -> ConsistentIndex:
    """The index of a table that has rings. The hash `fields` are those under which some keys of each file slice are in
    its bucket: the complete key if that fits, as it does by default. Raises `IndexInconsistent` if no choice of fields
    fits."""
    partitions = snapshot.partitions()
    stored = [ring for path in partitions if (ring := RingFiles(snapshot, _DEFAULT).stored(path)) is not None]
    buckets = {ring.buckets for ring in stored}
    if len(buckets) > 1:
        bucket_counts = ", ".join(map(str, sorted(buckets)))
        raise InvalidOption(
            f"the rings of table {snapshot.config.name!r} had different numbers of buckets at first: {bucket_counts}",
            hint="jobs with different bucket counts wrote it; its partition paths are read, and written by real Hudi",
            context={"buckets": sorted(buckets)},
        )
    count = buckets.pop() if buckets else _DEFAULT
    key_fields = snapshot.config.key_fields
    if fields:
        index = ConsistentIndex(count, tuple(fields)).resolved(key_fields)
        index.check(snapshot)
        return index
    reasons: list[IndexInconsistent] = []
    for choice in field_choices(key_fields):
        index = ConsistentIndex(count, choice).resolved(key_fields)
        try:
            index.check(snapshot)
        except IndexInconsistent as reason:
            reasons.append(reason)
            continue
        return index
    raise reasons[0]
