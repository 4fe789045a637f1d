"""The file group of a row as a derived column: by the ring of its partition path, or by a pending resize."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import Int32s
from lakebed.index.consistent.ring import Children, Ring
from lakebed.index.consistent.ring_hash import ring_hashes
from lakebed.model import PARTITION_PATH, RECORD_KEY


@dataclass(frozen=True)
class KeyPlacement(ABC):
    """A column of file ids that follow from the record key, by the rings of the partition paths."""

    rings: Mapping[str, Ring]
    fields: tuple[str, ...]

    has_sql = False
    columns = (PARTITION_PATH, RECORD_KEY)

    def sql(self, schema: pa.Schema) -> str:
        raise NotImplementedError("XXH32 is no function of Spark SQL")

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        hashes = ring_hashes(batch.column(RECORD_KEY), self.fields)
        return _by_partition(batch, lambda path, rows: self._ids(path, hashes[rows]))

    @abstractmethod
    def _ids(self, partition: str, hashes: Int32s) -> pa.Array | None:
        """The file ids for keys of one partition path; None where they have none."""


@dataclass(frozen=True)
class RingFileId(KeyPlacement):
    """The file id of the bucket that a row's key belongs to; null without a partition path or a ring for it."""

    def _ids(self, partition: str, hashes: Int32s) -> pa.Array | None:
        ring = self.rings.get(partition)
        return None if ring is None else ring.file_ids.take(pa.array(ring.places(hashes)))


@dataclass(frozen=True)
class ChildFileId(KeyPlacement):
    """The file id of the group that a row's bucket turns into by a pending clustering, null where it is in none.
    `children` are those of the nodes of each partition path's ring, by their numbers."""

    children: Mapping[str, Mapping[int, Children]]

    def _ids(self, partition: str, hashes: Int32s) -> pa.Array | None:
        planned = self.children.get(partition)
        if not planned:
            return None
        places = self.rings[partition].places(hashes)
        found = np.full(len(hashes), None, object)
        for place, children in planned.items():
            rows = np.flatnonzero(places == place)
            ids = np.array([node.file_id for node in children.alive], object)
            found[rows] = ids[children.places(hashes[rows])]
        return pa.array(found, pa.string())


def _by_partition(batch: pa.RecordBatch, ids_of: Callable[[str, np.ndarray], pa.Array | None]) -> pa.Array:
    """File ids made for the rows of one partition path at a time."""
    paths = batch.column(PARTITION_PATH).dictionary_encode()
    codes = pc.fill_null(paths.indices, -1).to_numpy(zero_copy_only=False)
    parts: list[pa.Array] = []
    order: list[np.ndarray] = []
    for code, path in enumerate(paths.dictionary.to_pylist()):
        rows = np.flatnonzero(codes == code)
        found = ids_of(path, rows)
        parts.append(pa.nulls(len(rows), pa.string()) if found is None else found)
        order.append(rows)
    without = np.flatnonzero(codes < 0)
    parts.append(pa.nulls(len(without), pa.string()))
    back = np.argsort(np.concatenate([*order, without]), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(back))
