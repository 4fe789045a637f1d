"""The file group of a row as a number derived from its key: by the ring of its partition path, and by a pending
resize, whose rows go to two file groups. Which buckets split and which merge, as the plan of a clustering.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Task
from lakebed.format.file_names import new_file_id
from lakebed.format.hashes import Int32s
from lakebed.index.base import Resizes
from lakebed.index.consistent.ring import (
    Children,
    Node,
    Ring,
    default_ring,
    merge,
    neighbours,
    renewed,
    ring_hashes,
    split,
)
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileGroupId, FileSlice
from lakebed.schema.plain_arrow import as_numpy
from lakebed.timeline.bodies.plans import ClusteringGroup, ClusteringOperation


@dataclass(frozen=True)
class Rings:
    """The rings of a table's partition paths; a path without a stored ring has the first ring of `buckets` nodes.

    `children` are what a pending clustering makes of the nodes of a ring, by their numbers. Nodes are numbered as they
    are on the ring, the new nodes of each group of the clustering after them, in the order of `groups`.
    """

    recorded: Mapping[str, Ring]
    buckets: int
    groups: Mapping[str, tuple[Children, ...]]
    children: Mapping[str, Mapping[int, int]]

    def of(self, partition: str) -> Ring:
        """The ring of a partition path."""
        return self.recorded.get(partition) or default_ring(partition, self.buckets)

    def first_child(self, partition: str, group: int) -> int:
        """The number of the first of the nodes that a group of the clustering makes."""
        before = self.groups[partition][:group]
        return len(self.of(partition).nodes) + sum(len(children.alive) for children in before)

    def file_id(self, partition: str, number: int) -> str:
        """The id of the file group of a node, or of a node that a pending clustering makes."""
        nodes = self.of(partition).nodes
        return nodes[number].file_id if number < len(nodes) else self._made(partition)[number - len(nodes)].file_id

    def numbers(self, partition: str) -> dict[str, int]:
        """A dict from the id of each file group of a partition path to its number."""
        nodes = (*self.of(partition).nodes, *self._made(partition))
        return {node.file_id: number for number, node in enumerate(nodes)}

    def count(self, partition: str) -> int:
        """The number of file groups of a partition path, children of a pending clustering included."""
        return len(self.of(partition).nodes) + len(self._made(partition))

    def _made(self, partition: str) -> tuple[Node, ...]:
        """The nodes that the groups of the clustering make."""
        return tuple(node for children in self.groups.get(partition, ()) for node in children.alive)


@dataclass(frozen=True)
class RingNumber:
    """The number (int32) of the node that a row's key belongs to; 0 for a row without a partition path, which is
    refused where it is written."""

    rings: Rings
    fields: tuple[str, ...]

    has_sql = False
    sql_type = "int"
    columns = (PARTITION_PATH, RECORD_KEY)

    def sql(self, schema: pa.Schema) -> str:
        raise NotImplementedError("XXH32 is no function of Spark SQL")

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        hashes = ring_hashes(batch.column(RECORD_KEY), self.fields)
        node_numbers = _by_partition(
            batch, pa.int32(), lambda path, rows: pa.array(self.rings.of(path).node_numbers(hashes[rows]))
        )
        return pc.fill_null(node_numbers, 0)


@dataclass(frozen=True)
class WithChildren:
    """A task function that returns the numbered rows, and again the rows whose bucket a pending clustering changes,
    with the number of the file group that the bucket turns into."""

    rings: Rings
    fields: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            copies = self._copies(batch)
            if copies.num_rows:
                yield copies

    def _copies(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = _by_partition(batch, pa.int32(), lambda path, rows: self._numbers(path, rows, batch))
        at = batch.schema.get_field_index(GROUP)
        return batch.filter(numbers.is_valid()).set_column(at, batch.schema.field(at), numbers.drop_null())

    def _numbers(self, partition: str, rows: np.ndarray, batch: pa.RecordBatch) -> pa.Array | None:
        planned = self.rings.children.get(partition)
        if not planned:
            return None
        row_indices = pa.array(rows)
        numbers = as_numpy(batch.column(GROUP).take(row_indices))
        hashes = ring_hashes(batch.column(RECORD_KEY).take(row_indices), self.fields)
        child_numbers = np.full(len(rows), -1, np.int32)
        for node_number, group in planned.items():
            node_rows = np.flatnonzero(numbers == node_number)
            children = self.rings.groups[partition][group]
            child_numbers[node_rows] = self.rings.first_child(partition, group) + children.node_numbers(
                hashes[node_rows]
            )
        return pa.array(child_numbers, mask=child_numbers < 0)


@dataclass(frozen=True)
class ChildFileId:
    """An expression for the file id of the file group that a row's bucket turns into by a pending clustering; null if
    no clustering changes the bucket."""

    rings: Rings
    fields: tuple[str, ...]

    has_sql = False
    columns = (PARTITION_PATH, RECORD_KEY)

    def sql(self, schema: pa.Schema) -> str:
        raise NotImplementedError("XXH32 is no function of Spark SQL")

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        hashes = ring_hashes(batch.column(RECORD_KEY), self.fields)
        return _by_partition(batch, pa.string(), lambda path, rows: self._ids(path, hashes[rows]))

    def _ids(self, partition: str, hashes: Int32s) -> pa.Array | None:
        planned = self.rings.children.get(partition)
        if not planned:
            return None
        node_numbers = self.rings.of(partition).node_numbers(hashes)
        file_ids = np.full(len(hashes), None, object)
        for node_number, group in planned.items():
            children = self.rings.groups[partition][group]
            rows = np.flatnonzero(node_numbers == node_number)
            ids = np.array([node.file_id for node in children.alive], object)
            file_ids[rows] = ids[children.node_numbers(hashes[rows])]
        return pa.array(file_ids, pa.string())


def _by_partition(
    batch: pa.RecordBatch, kind: pa.DataType, of_rows: Callable[[str, np.ndarray], pa.Array | None]
) -> pa.Array:
    """The values that `of_rows` returns for the rows of each partition path, in the order of the rows; null for a path
    for which it returns None."""
    paths = batch.column(PARTITION_PATH).dictionary_encode()
    codes = as_numpy(pc.fill_null(paths.indices, -1))
    parts: list[pa.Array] = []
    order: list[np.ndarray] = []
    for code, path in enumerate(paths.dictionary.to_pylist()):
        rows = np.flatnonzero(codes == code)
        values = of_rows(path, rows)
        parts.append(pa.nulls(len(rows), kind) if values is None else values)
        order.append(rows)
    without = np.flatnonzero(codes < 0)
    parts.append(pa.nulls(len(without), kind))
    back = np.argsort(np.concatenate([*order, without]), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(back))


@dataclass(frozen=True, slots=True)
class BucketSizes:
    """The bytes (of all files of a bucket) above which it is split and below which it is merged, and the largest and
    smallest number of buckets of a ring."""

    split_above: float
    merge_below: float
    maximum: int
    minimum: int


@dataclass(frozen=True)
class Outputs:
    """The file groups that the rows of a clustering group go to."""

    children: Children
    fields: tuple[str, ...]

    @property
    def file_ids(self) -> tuple[str, ...]:
        return tuple(node.file_id for node in self.children.alive)

    def of_keys(self, keys: pa.Array) -> pa.Array:
        """The position in `file_ids` of the file group for each record key."""
        return pa.array(self.children.node_numbers(ring_hashes(keys, self.fields)))


@dataclass
class PartitionResize:
    """Chooses the clustering groups of one partition path. Buckets without files are not changed, since there is
    nothing to write."""

    ring: Ring
    slices: Mapping[int, FileSlice]
    sizes: BucketSizes
    instant: str
    rewrites_all: bool = False
    _planned: set[int] = field(default_factory=set[int])
    _added: int = 0
    _named: int = 0

    def groups(self) -> Iterator[ClusteringGroup]:
        """The groups: first the buckets to split, then the buckets to merge; with `rewrites_all` then every remaining
        bucket as a group."""
        for node_number in sorted(self.slices):
            yield from self._split(node_number)
        for node_number in sorted(self.slices, key=lambda at: (self.slices[at].size, at)):
            yield from self._merge(node_number)
        if self.rewrites_all:
            for node_number in sorted(self.slices.keys() - self._planned):
                yield self._group([node_number], renewed(self.ring, node_number, self._prefix()))

    @property
    def _count(self) -> int:
        return len(self.ring.nodes) + self._added

    def _split(self, node_number: int) -> Iterator[ClusteringGroup]:
        if self.slices[node_number].size <= self.sizes.split_above or self._count >= self.sizes.maximum:
            return
        children = split(self.ring, node_number, [self._prefix(), self._prefix()])
        if children is not None:
            self._added += 1
            yield self._group([node_number], children)

    def _merge(self, node_number: int) -> Iterator[ClusteringGroup]:
        """The group of a small bucket with the small buckets before it, then those after it, as long as they fit
        together."""
        if not self._is_small(node_number):
            return
        node_numbers, total = [node_number], self.slices[node_number].size
        for at in (0, -1):
            while self._count - len(node_numbers) + 1 > self.sizes.minimum and len(node_numbers) < len(self.ring.nodes):
                following = neighbours(self.ring, node_numbers[at])[0 if at == 0 else 1]
                if following in node_numbers or not self._is_small(following):
                    break
                if total + self.slices[following].size > self.sizes.merge_below:
                    break
                total += self.slices[following].size
                node_numbers.insert(0 if at == 0 else len(node_numbers), following)
        if len(node_numbers) > 1:
            self._added -= len(node_numbers) - 1
            yield self._group(node_numbers, merge(self.ring, node_numbers, self._prefix()))

    def _is_small(self, node_number: int) -> bool:
        file_slice = self.slices.get(node_number)
        return file_slice is not None and node_number not in self._planned and file_slice.size <= self.sizes.merge_below

    def _group(self, node_numbers: Sequence[int], nodes: tuple[Node, ...]) -> ClusteringGroup:
        self._planned.update(node_numbers)
        children = Children(self.ring.partition, self.ring.sequence, nodes)
        slices = tuple(self.slices[node_number] for node_number in node_numbers)
        return ClusteringGroup(slices, len(children.alive), children.to_metadata())

    def _prefix(self) -> str:
        self._named += 1
        return new_file_id(self.instant, self.ring.partition, self._named).removesuffix("-0")


def resize_groups(
    slices: Iterable[FileSlice],
    rings: Mapping[str, Ring],
    sizes: BucketSizes,
    instant: str,
    busy: Collection[FileGroupId],
    *,
    rewrites_all: bool,
) -> Iterator[ClusteringGroup]:
    """The groups of a clustering of these slices; partition paths with `busy` file groups are left alone."""
    by_node: dict[str, dict[int, FileSlice]] = {}
    waiting = {partition for partition, _ in busy}
    for file_slice in slices:
        node_number = rings[file_slice.partition].node_number(file_slice.file_id)
        if node_number is not None and file_slice.partition not in waiting:
            by_node.setdefault(file_slice.partition, {})[node_number] = file_slice
    for partition, slices_by_node in by_node.items():
        yield from PartitionResize(rings[partition], slices_by_node, sizes, instant, rewrites_all).groups()


def resizes_of(pending: Iterable[tuple[str, ClusteringOperation, Children]]) -> Resizes:
    """The file groups of pending resizes, with the instants of the clusterings."""
    parents: dict[FileGroupId, str] = {}
    children: dict[FileGroupId, str] = {}
    origins: dict[FileGroupId, tuple[FileGroupId, ...]] = {}
    for instant, operation, planned in pending:
        before = tuple((file_slice.partition, file_slice.file_id) for file_slice in operation.slices)
        after = [(planned.partition, node.file_id) for node in planned.alive]
        parents.update((group, instant) for group in before)
        children.update((group, instant) for group in after)
        origins.update((group, before) for group in after)
    return Resizes(parents, children, origins)
