"""The rows of a view that candidates of an index name by their keys and file groups."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model import FileGroupId, FileSlice
from lakebed.read.keys import IndexedKeys
from lakebed.read.lookup import KeySearch, LookupKeys
from lakebed.storage.parallel import parallel_map

if TYPE_CHECKING:
    from lakebed.read.batches import RowReader
    from lakebed.slices.reader import SliceReader
    from lakebed.slices.snapshot import Snapshot

PATH, FILE_ID = "_lakebed_path", "_lakebed_file"
"""The columns of the partition path and the file id of a row that was read for a candidate."""


@dataclass(frozen=True)
class KeyedRows:
    """Reads the rows of candidates from the file slices `readers` of a view, by the readers of a scan whose columns
    begin with the record key."""

    snapshot: Snapshot
    slices: SliceReader
    readers: Mapping[FileGroupId, tuple[FileSlice, RowReader]]
    schema: pa.Schema
    threads: int = 1

    def read(self, candidates: pa.Table) -> pa.Table:
        """The rows of the candidates (`key`, `partition`, `file_id`), with the partition path and the file id that they
        are in as the last columns.

        Rows that are not in the view, or do not fulfil the condition, are missing.
        """
        distinct = candidates.group_by(["partition", "file_id", "key"]).aggregate([])
        ids = pa.array([file_slice.file_id for file_slice in self.snapshot.file_slices()], pa.string())
        is_in_view = pc.is_in(distinct["file_id"], value_set=ids)
        groups = dict(IndexedKeys(distinct.filter(is_in_view).combine_chunks()).groups)
        elsewhere = distinct.filter(pc.invert(is_in_view))
        if elsewhere.num_rows:
            for group, keys in moved_keys(
                self.snapshot, elsewhere["key"].combine_chunks(), elsewhere["partition"].combine_chunks(), self.readers
            ).items():
                keys = pa.concat_arrays([*([groups[group]] if group in groups else []), keys]).unique()
                groups[group] = keys.take(pc.sort_indices(keys))
        jobs = [(*self.readers[group], keys) for group, keys in groups.items() if group in self.readers]
        parts = parallel_map(lambda job: self._rows(*job), jobs, self.threads)
        return pa.concat_tables([self._empty, *parts])

    @property
    def _empty(self) -> pa.Table:
        return self.schema.append(pa.field(PATH, pa.string())).append(pa.field(FILE_ID, pa.string())).empty_table()

    def _rows(self, file_slice: FileSlice, reader: RowReader, keys: pa.Array) -> pa.Table:
        batches = reader.rows_of_keys(self.slices, file_slice, keys, use_bloom=False)
        table = pa.Table.from_batches(batches, self.schema)
        for name, value in ((PATH, file_slice.partition), (FILE_ID, file_slice.file_id)):
            table = table.append_column(name, pa.repeat(pa.scalar(value, pa.string()), table.num_rows))
        return table


def moved_keys(
    snapshot: Snapshot, keys: pa.Array, paths: pa.Array, groups: Container[FileGroupId]
) -> dict[FileGroupId, pa.Array]:
    """The keys of candidates whose file group is not in the view, by those of the `groups` that may have them now: a
    clustering moves rows. `paths` has the partition path of each key."""
    search = KeySearch(snapshot, LookupKeys(keys, paths), ())
    moved: dict[FileGroupId, pa.Array] = {}
    for file_slice in search.candidates.slices:
        group = (file_slice.partition, file_slice.file_id)
        in_slice = search.keys_in(file_slice) if group in groups else ()
        if len(in_slice):
            moved[group] = in_slice
    return moved
