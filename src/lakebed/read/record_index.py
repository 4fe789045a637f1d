"""Where keys are by the record index: file groups for a lookup or a scan, without a look at data files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.metadata.kinds import record_index_records
from lakebed.metadata.kinds.record_index import data_partition_of
from lakebed.metadata.layout import METADATA_FOLDER, RECORD_INDEX
from lakebed.metadata.read.lookup import keys_by_group
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.model import FileSlice
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.metadata_view import naming_metadata
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import once

Group = tuple[str, str]


@dataclass(frozen=True)
class FoundKeys:
    """The record index's answer: one row of `places` for each key and place (`key`, `partition`, `file_id`)."""

    places: pa.Table

    @once
    def groups(self) -> Mapping[Group, pa.Array]:
        """The file groups that hold a key, by partition path and file id, each with its keys in ascending order."""
        keys, partitions, files = (self.places[name].combine_chunks() for name in ("key", "partition", "file_id"))
        paths, ids = partitions.dictionary_encode(), files.dictionary_encode()
        order = pc.sort_indices(keys)
        pairs = paths.indices.to_numpy().astype(np.int64) * len(ids.dictionary) + ids.indices.to_numpy()
        distinct, codes = np.unique(pairs[order.to_numpy()], return_inverse=True)
        path, file_id = np.divmod(distinct, max(1, len(ids.dictionary)))
        groups = zip(paths.dictionary.take(path).to_pylist(), ids.dictionary.take(file_id).to_pylist(), strict=True)
        return dict(zip(groups, keys_by_group(keys.take(order), codes, len(distinct)), strict=True))

    def slices(self, snapshot: Snapshot) -> list[FileSlice] | None:
        """The file slices of these groups; None where the view lacks one, and the index cannot be relied on."""
        groups = self.groups.keys()
        if not groups:
            return []
        found = snapshot.file_slices({p for p, _ in groups}, groups_of_ids({file_id for _, file_id in groups}))
        held = [s for s in found if (s.partition, s.file_id) in groups]
        return held if len(held) == len(groups) else None

    def of_pairs(self, pairs: pa.Table) -> FoundKeys:
        """The places whose `key` and `partition` stand together in `pairs`."""
        return FoundKeys(self.places.join(pairs, ["key", "partition"], join_type="left semi"))


def usable_record_index(snapshot: Snapshot) -> MetadataTable | None:
    """The metadata table, where its record index answers for this view: the newest one, of an index that is there, and
    of a table that holds no key twice."""
    metadata = snapshot.metadata
    if metadata is None or not metadata.has(RECORD_INDEX) or not snapshot.is_latest:
        return None
    try:
        return metadata if metadata.slices.file_slices(RECORD_INDEX) and not snapshot.repeats_keys else None
    except CorruptFile:
        # a writer of another engine may be taking the index away just now, and the folder goes first
        if any(snapshot.storage.list_names(f"{METADATA_FOLDER}/{RECORD_INDEX}")):
            raise
        return None


def find_keys(snapshot: Snapshot, keys: Any, partitions: Collection[str] | None = None) -> FoundKeys | None:
    """Where the keys are, in some partition paths or in all; None where no record index can tell, also because it is
    being dropped or built just now."""
    with naming_metadata(snapshot.storage):
        try:
            metadata = usable_record_index(snapshot)
            if metadata is None:
                return None
            if partitions is None or not _is_partitioned(metadata):
                found = metadata.record_locations(keys)
            else:
                found = _joined(metadata.record_locations(keys, partition) for partition in partitions)
        except (CorruptFile, FileNotFoundError):
            if snapshot.metadata is not None and snapshot.metadata.slices.has_other_partitions():
                return None
            raise
    if partitions is not None:
        found = found.filter(pc.is_in(found["partition"], value_set=pa.array(list(partitions), pa.string())))
    return FoundKeys(_plain(found.select(["key", "partition", "file_id"])))


def _is_partitioned(metadata: MetadataTable) -> bool:
    return data_partition_of(metadata.slices.file_slices(RECORD_INDEX)[0].file_id) is not None


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    found = list(tables)
    return pa.concat_tables(found).unify_dictionaries() if found else record_index_records.SCHEMA.empty_table()


def _plain(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([pa.field(name, pa.string()) for name in table.column_names]))
