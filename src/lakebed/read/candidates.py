"""The rows of candidates that an index names, as a view of the table has them, and their exact distances.

A candidate is a record key with the file group where a writer saw it. It is only a hint: the row is read from the view,
and counts if it is there and fulfils the condition of the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model import FileGroupId, FileSlice
from lakebed.read.lookup import KeySearch, LookupKeys
from lakebed.storage.parallel import parallel_map

if TYPE_CHECKING:
    from lakebed.read.batches import RowReader
    from lakebed.slices.reader import SliceReader
    from lakebed.slices.snapshot import Snapshot

PATH = "_lakebed_path"


@dataclass(frozen=True)
class CandidateRows:
    """Reads the rows of candidates from the file slices `readers` of a view, by the readers of a scan whose columns
    begin with the record key."""

    snapshot: Snapshot
    slices: SliceReader
    readers: Mapping[FileGroupId, tuple[FileSlice, RowReader]]
    schema: pa.Schema
    threads: int = 1

    def read(self, candidates: pa.Table) -> pa.Table:
        """The rows of the candidates (`key`, `partition`, `file_id`), with their partition path as the last column.

        Rows that are not in the view, or do not fulfil the condition, are missing.
        """
        distinct = candidates.group_by(["partition", "file_id", "key"]).aggregate([])
        ids = pa.array([file_slice.file_id for file_slice in self.snapshot.file_slices()], pa.string())
        here = pc.is_in(distinct["file_id"], value_set=ids)
        groups = _keys_by_group(distinct.filter(here))
        elsewhere = distinct.filter(pc.invert(here))
        if elsewhere.num_rows:
            for group, keys in self._moved(elsewhere).items():
                groups[group] = _sorted(pa.concat_arrays([*([groups[group]] if group in groups else []), keys]))
        jobs = [(*self.readers[group], keys) for group, keys in groups.items() if group in self.readers]
        parts = parallel_map(lambda job: self._rows(*job), jobs, self.threads)
        return pa.concat_tables([self._empty, *parts])

    @property
    def _empty(self) -> pa.Table:
        return self.schema.append(pa.field(PATH, pa.string())).empty_table()

    def _rows(self, file_slice: FileSlice, reader: RowReader, keys: pa.Array) -> pa.Table:
        batches = reader.rows_of_keys(self.slices, file_slice, keys, use_bloom=False)
        table = pa.Table.from_batches(batches, self.schema)
        return table.append_column(PATH, pa.repeat(pa.scalar(file_slice.partition, pa.string()), table.num_rows))

    def _moved(self, candidates: pa.Table) -> dict[FileGroupId, pa.Array]:
        """The keys of candidates whose file group is not in the view, by the file groups that may have them now: a
        clustering moves rows."""
        lookup = LookupKeys(candidates["key"].combine_chunks(), candidates["partition"].combine_chunks())
        search = KeySearch(self.snapshot, lookup, ())
        moved: dict[FileGroupId, pa.Array] = {}
        for file_slice in search.candidates.slices:
            group = (file_slice.partition, file_slice.file_id)
            keys = search.keys_in(file_slice) if group in self.readers else ()
            if len(keys):
                moved[group] = keys
        return moved


def _keys_by_group(candidates: pa.Table) -> dict[FileGroupId, pa.Array]:
    """The keys of each file group, ascending."""
    ordered = candidates.sort_by([("partition", "ascending"), ("file_id", "ascending"), ("key", "ascending")])
    runs = ordered.group_by(["partition", "file_id"], use_threads=False).aggregate([([], "count_all")])
    ends = np.cumsum(runs["count_all"].to_numpy())
    keys = ordered["key"].combine_chunks()
    groups = zip(runs["partition"].to_pylist(), runs["file_id"].to_pylist(), strict=True)
    counts = runs["count_all"].to_pylist()
    return {group: keys.slice(end - n, n) for group, end, n in zip(groups, ends.tolist(), counts, strict=True)}


def _sorted(keys: pa.Array) -> pa.Array:
    keys = keys.unique()
    return keys.take(pc.sort_indices(keys))
