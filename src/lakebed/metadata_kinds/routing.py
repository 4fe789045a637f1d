"""To which file groups of a metadata partition records go: those of a commit, and those that a new partition begins
with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.hashes import plain_strings
from lakebed.metadata_kinds.base import PartitionKind
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_records.records import GroupRecords, Records
from lakebed.schema.plain_arrow import as_numpy

Int64s = npt.NDArray[np.int64]


def split_by_group(
    partition: str, records: Records, file_ids: Sequence[str], index_version: int
) -> dict[int, tuple[pa.StringArray, pa.BinaryArray, pa.StringArray]]:
    """The keys, values and deleted keys of each file group that gets some, by the group's position in `file_ids`
    (sorted: all groups of the partition). `index_version` is the version of the index, if its kind shards by it."""
    keys, deleted = plain_strings(records.keys), plain_strings(records.deleted)
    router = _Router(partition, kind_of(partition), file_ids, index_version, partitioned=records.is_partitioned)
    upserts = _parts(router.groups(keys, records.data_partitions), len(file_ids))
    deletes = _parts(router.groups(deleted, records.deleted_partitions), len(file_ids))
    parts: dict[int, tuple[pa.StringArray, pa.BinaryArray, pa.StringArray]] = {}
    for group in sorted({*upserts, *deletes}):
        rows = upserts.get(group)
        entries = (keys, records.values) if rows is None else (keys.take(rows), records.values.take(rows))
        entries = entries if rows is not None else (entries[0].slice(0, 0), entries[1].slice(0, 0))
        deleted_keys = deleted.take(deletes[group]) if group in deletes else deleted.slice(0, 0)
        if len(deleted_keys) and len(entries[0]):
            deleted_keys = deleted_keys.filter(pc.invert(pc.is_in(deleted_keys, value_set=entries[0])))
        parts[group] = (*entries, deleted_keys)
    return parts


@dataclass(frozen=True, slots=True)
class _Router:
    partition: str
    kind: PartitionKind
    file_ids: Sequence[str]
    index_version: int
    partitioned: bool

    def groups(self, keys: pa.Array, paths: Any) -> Int64s:
        """The position of each key's file group."""
        if not len(keys):
            return np.empty(0, np.int64)
        if not self.partitioned:
            return self._hashed(keys, len(self.file_ids))
        encoded = plain_strings(paths).dictionary_encode()
        codes = as_numpy(encoded.indices)
        groups = np.empty(len(keys), np.int64)
        for code, path in enumerate(encoded.dictionary.to_pylist()):
            rows = np.flatnonzero(codes == code)
            paths_of_groups = map(self.kind.data_partition_of, self.file_ids)
            positions = np.array([at for at, its_path in enumerate(paths_of_groups) if its_path == path], np.int64)
            groups[rows] = positions[self._hashed(keys.take(pa.array(rows)), len(positions))]
        return groups

    def _hashed(self, keys: pa.Array, count: int) -> Int64s:
        if not count:
            raise CorruptFile(
                f"the metadata table's partition {self.partition} has no file group for some of its records",
                hint="Drop the partition and build it again.",
                context={"partition": self.partition},
            )
        return self.kind.shard(keys, count, self.index_version).astype(np.int64)


def _parts(groups: Int64s, count: int) -> dict[int, pa.Array]:
    """The row numbers of each group that has rows, by group number."""
    order = np.argsort(groups, kind="stable")
    edges = np.searchsorted(groups[order], np.arange(count + 1))
    return {
        group: pa.array(order[edges[group] : edges[group + 1]])
        for group in range(count)
        if edges[group + 1] > edges[group]
    }


def grouped(
    partition: str,
    records: Records,
    groups: Sequence[tuple[str | None, int]] | None = None,
    index_version: int = 1,
) -> list[GroupRecords]:
    """The records by file group; `groups` are pairs (partition path of the data, number), None for as many as the
    partition's kind has."""
    kind = kind_of(partition)
    groups = [(None, number) for number in range(kind.file_groups)] if groups is None else groups
    ids = {kind.file_id(partition, number, path): (path, number) for path, number in groups}
    ordered = sorted(ids)
    parts: Mapping[int, tuple[pa.StringArray, pa.BinaryArray, pa.StringArray]] = {}
    if len(records.keys):
        parts = split_by_group(partition, records, ordered, index_version)
    none = (pa.array([], pa.string()), pa.array([], pa.binary()), None)
    filled = {id_: GroupRecords(*parts.get(at, none)[:2], ids[id_][0]) for at, id_ in enumerate(ordered)}
    return [filled[kind.file_id(partition, number, path)] for path, number in groups]
