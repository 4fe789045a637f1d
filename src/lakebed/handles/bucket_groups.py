"""The handle of a bucket with several file groups: its rows are looked up among those, and each is written once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.read_tally import Counted, ReadTally
from lakebed.handles.append import AppendHandle
from lakebed.handles.base import GroupWrite, Handle, Target
from lakebed.handles.create import CreateHandle
from lakebed.handles.merge import MergeHandle
from lakebed.merge.incoming import Incoming
from lakebed.model import RECORD_KEY, FileSlice
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.key_rows import rows_of_keys
from lakebed.write_status import WriteStatus

Rows = npt.NDArray[np.int64]


class BucketHandle:
    """A handle that writes the rows of existing keys to their file groups, and the rows of new keys to the bucket's
    smallest file that is not full, then to further file groups of the bucket, each up to the maximum file size."""

    def __init__(self, group: GroupWrite) -> None:
        self._group = group
        self._slices = group.target.among or ()
        self._tally = ReadTally()

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        parts, new = self._looked_up(incoming)
        lookup = self._counts(incoming, sum(map(len, parts.values())))
        small = self._small_file(parts, new)
        if small is not None:
            parts[small] = np.sort(np.concatenate([parts.get(small, new[:0]), new]))
            new = new[:0]
        written = [self._of_slice(number, incoming, rows, takes_new=number == small) for number, rows in parts.items()]
        if len(new) or not written:
            target = replace(self._group.target, among=None)
            written.append(CreateHandle(replace(self._group, target=target)).write(_part(incoming, new)))
        first, *other_statuses = [status for statuses in written for status in statuses]
        # rows that were combined into one row of their key count as received
        more = incoming.combined
        counted = replace(first, rows_in=first.rows_in + more, num_combined=first.num_combined + more, lookup=lookup)
        return [counted, *other_statuses]

    def _counts(self, incoming: Incoming, matched_rows: int) -> list[int]:
        """The counts of the search, in the order of `LOOKUP_COUNTS`."""
        slice_count = len(self._slices) if incoming.rows and self._group.job.on_match != "none" else 0
        names: tuple[Counted, ...] = ("out_of_range", "filtered", "searched", "opened", "bytes")
        return [incoming.rows, matched_rows, slice_count, *map(self._tally.total, names)]

    def _looked_up(self, incoming: Incoming) -> tuple[dict[int, Rows], Rows]:
        """The rows for each slice that has their keys, by the slice's number, and the rows of new keys."""
        everything = np.arange(incoming.rows, dtype=np.int64)
        if self._group.job.on_match == "none" or not self._slices or not incoming.rows:
            return {}, everything
        keys = incoming.keys.take(pc.sort_indices(incoming.keys))
        is_stored = np.zeros(incoming.rows, np.bool_)
        parts: dict[int, Rows] = {}
        for number, file_slice in enumerate(self._slices):
            stored = self._keys_in(file_slice, keys)
            if len(stored):
                in_slice = as_numpy(pc.is_in(incoming.keys, value_set=stored))
                parts[number] = np.flatnonzero(in_slice)
                is_stored |= in_slice
        return parts, np.flatnonzero(~is_stored)

    def _keys_in(self, file_slice: FileSlice, keys: pa.Array) -> pa.Array:
        """The keys (among `keys`, in ascending order) that a slice shows: log files delete keys, and log files of a
        table that had the bucket index before have keys that no base file has."""
        reader = replace(self._group.job.reader, tally=self._tally)
        batches = rows_of_keys(reader, file_slice, keys, [RECORD_KEY])
        columns = [batch.column(RECORD_KEY).cast(pa.string()) for batch in batches]
        return pa.concat_arrays(columns) if columns else pa.array([], pa.string())

    def _small_file(self, parts: dict[int, Rows], new: Rows) -> int | None:
        """The number of the slice that takes the new rows; None if there are no new rows, or every file is large
        enough."""
        limit = self._group.job.format.settings.max_small_file_size
        appends = self._group.job.reader.config.table_type == "mor"
        sizes = [
            (file_slice.base_file.size, number)
            for number, file_slice in enumerate(self._slices)
            if file_slice.base_file is not None
            and file_slice.base_file.size < limit
            and not (appends and file_slice.log_files)
        ]
        return min(sizes)[1] if sizes and len(new) else None

    def _of_slice(self, number: int, incoming: Incoming, rows: Rows, *, takes_new: bool) -> list[WriteStatus]:
        file_slice, group = self._slices[number], self._group
        target = Target(
            file_slice.file_id, file_slice, size_limited=True, rewrites=takes_new, bucket=group.target.bucket
        )
        appends = group.job.reader.config.table_type == "mor" and not takes_new
        part = _part(incoming, rows)
        of_slice = replace(group, target=target, job=replace(group.job, located=not takes_new))
        handle: Handle = AppendHandle(of_slice) if appends else MergeHandle(of_slice)
        return handle.write(part.by_key() if group.job.format.sort else part)


def _part(incoming: Incoming, rows: Rows) -> Incoming:
    return replace(incoming.at(rows), received=len(rows))
