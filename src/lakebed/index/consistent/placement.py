"""The file group of a row as a number that is derived from its key: by the ring of its partition path, and by a pending
resize, whose rows go to two file groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Task
from lakebed.format.hashes import Int32s
from lakebed.index.consistent.ring import Children, Node, Ring, default_ring
from lakebed.index.consistent.ring_hash import ring_hashes
from lakebed.model import PARTITION_PATH, RECORD_KEY


@dataclass(frozen=True)
class Rings:
    """The rings of a table's partition paths: a path without one in storage has the first ring of so many buckets.

    `children` are what a pending clustering makes of the nodes of a ring, by their numbers. Nodes are numbered as they
    are on the ring, the new nodes of each group of the clustering behind them, in the order of `groups`.
    """

    known: Mapping[str, Ring]
    buckets: int
    groups: Mapping[str, tuple[Children, ...]]
    children: Mapping[str, Mapping[int, int]]

    def of(self, partition: str) -> Ring:
        """The ring of a partition path."""
        return self.known.get(partition) or default_ring(partition, self.buckets)

    def first_child(self, partition: str, group: int) -> int:
        """The number of the first of the nodes that a group of the clustering makes."""
        before = self.groups[partition][:group]
        return len(self.of(partition).nodes) + sum(len(children.alive) for children in before)

    def file_id(self, partition: str, number: int) -> str:
        """The file group of a node, or of one that a node turns into."""
        nodes = self.of(partition).nodes
        return nodes[number].file_id if number < len(nodes) else self._made(partition)[number - len(nodes)].file_id

    def numbers(self, partition: str) -> dict[str, int]:
        """The number of each file group."""
        nodes = (*self.of(partition).nodes, *self._made(partition))
        return {node.file_id: number for number, node in enumerate(nodes)}

    def count(self, partition: str) -> int:
        """How many numbers there are."""
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
        found = _by_partition(batch, pa.int32(), lambda path, rows: pa.array(self.rings.of(path).places(hashes[rows])))
        return pc.fill_null(found, 0)


@dataclass(frozen=True)
class WithChildren:
    """Sent to the tasks: numbered rows, and those whose bucket a pending clustering changes once more, with the number
    of the file group that it turns into."""

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
        some = pa.array(rows)
        numbers = batch.column(GROUP).take(some).to_numpy(zero_copy_only=False)
        hashes = ring_hashes(batch.column(RECORD_KEY).take(some), self.fields)
        found = np.full(len(rows), -1, np.int32)
        for place, group in planned.items():
            here = np.flatnonzero(numbers == place)
            children = self.rings.groups[partition][group]
            found[here] = self.rings.first_child(partition, group) + children.places(hashes[here])
        return pa.array(found, mask=found < 0)


@dataclass(frozen=True)
class ChildFileId:
    """The file id of the group that a row's bucket turns into by a pending clustering, null where it is in none."""

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
        places = self.rings.of(partition).places(hashes)
        found = np.full(len(hashes), None, object)
        for place, group in planned.items():
            children = self.rings.groups[partition][group]
            rows = np.flatnonzero(places == place)
            ids = np.array([node.file_id for node in children.alive], object)
            found[rows] = ids[children.places(hashes[rows])]
        return pa.array(found, pa.string())


def _by_partition(
    batch: pa.RecordBatch, kind: pa.DataType, of_rows: Callable[[str, np.ndarray], pa.Array | None]
) -> pa.Array:
    """Values made for the rows of one partition path at a time; null where it has none."""
    paths = batch.column(PARTITION_PATH).dictionary_encode()
    codes = pc.fill_null(paths.indices, -1).to_numpy(zero_copy_only=False)
    parts: list[pa.Array] = []
    order: list[np.ndarray] = []
    for code, path in enumerate(paths.dictionary.to_pylist()):
        rows = np.flatnonzero(codes == code)
        found = of_rows(path, rows)
        parts.append(pa.nulls(len(rows), kind) if found is None else found)
        order.append(rows)
    without = np.flatnonzero(codes < 0)
    parts.append(pa.nulls(len(without), kind))
    back = np.argsort(np.concatenate([*order, without]), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(back))
