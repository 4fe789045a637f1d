"""The merge handle: a file slice and the incoming rows are merged into the group's next base file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from lakebed.engine.spill import Spill
from lakebed.format.base_file import Footer, read_footer
from lakebed.format.bloom import BloomFilter
from lakebed.format.key_range import KeyRange
from lakebed.format.parquet_encodings import DICTIONARY, encodings_of
from lakebed.handles.base import GroupWrite
from lakebed.handles.base_files import BaseFiles
from lakebed.handles.create import CreateHandle
from lakebed.handles.file_writer import FileWriter
from lakebed.handles.key_ordered import Step, in_key_order
from lakebed.merge.incoming import Incoming
from lakebed.merge.row_merge import Merged, RowMerge
from lakebed.merge.sorted_merge import SortedRowMerge
from lakebed.metadata.kinds.key_changes import KeyChanges
from lakebed.model import COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY, BaseFile, FileSlice
from lakebed.schema.evolution import project
from lakebed.slices.row_size import SAMPLE_ROWS, from_sample
from lakebed.upkeep.write_status import WriteStatus

# Meta columns with few different values: read and written as dictionaries, as are those the old file stores so.
_DICTIONARY_META = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
# Rows that are read at a time only to see whether anything changes: the first of them mostly tell.
_PROBED_ROWS = 16_384


class MergeHandle:
    """Streams the stored rows by, with winners in their places and new rows behind them, or where their keys belong.

    A slice that no incoming row changes is not written.
    """

    def __init__(self, group: GroupWrite) -> None:
        self._group = group

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        group, file_slice = self._group, self._group.target.slice
        assert file_slice is not None
        base = group.reader.base_file(file_slice)
        if base is None:
            return CreateHandle(group).write(incoming)
        stored = _Stored(group, file_slice, base)
        files = BaseFiles(group)
        rows = _row_merge(group, stored, incoming, files.limit)
        if not rows.changes_anything(stored.keys_and_ordering()):
            return [WriteStatus(group.partition, base.file_id, rows_in=incoming.received, num_unchanged=incoming.rows)]
        bloom, keys = _known_keys(group, stored)
        writer = files.open(base.file_id, "MERGE", bloom, keys, stored.encodings)
        try:
            _merge(rows, stored, incoming.batch_rows, writer)
            if isinstance(rows, SortedRowMerge) and writer.rows:
                # what found no place in the order of this file goes to another
                files.finish(writer, rows.counts.inserts)
                files.add(rows.rest())
            else:
                files.add(rows.rest(), writer)
        except BaseException:
            writer.abort()
            raise
        first, *others = files.done
        merged = replace(
            first,
            prev_commit=base.instant,
            prev_base_file=base.name,
            rows_in=incoming.received,
            num_updates=rows.counts.updates,
            num_deletes=rows.counts.deletes,
            num_unchanged=rows.counts.unchanged,
        )
        return [merged, *others]


@dataclass(frozen=True)
class _Stored:
    """The rows of the slice as it is."""

    group: GroupWrite
    file_slice: FileSlice
    base: BaseFile

    @cached_property
    def footer(self) -> Footer:
        return read_footer(self.group.storage, self.base.path, self.base.size)

    @cached_property
    def encodings(self) -> Mapping[str, str]:
        """How the columns are encoded, which is kept."""
        return encodings_of(self.footer.metadata)

    def keys_and_ordering(self) -> Iterator[pa.RecordBatch]:
        """Record keys and ordering columns, by few rows."""
        columns = [RECORD_KEY, *self.group.rules.ordering]
        return self.group.reader.read(self.file_slice, columns, batch_rows=_PROBED_ROWS, footer=self.footer)

    def rows(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Whole rows in the table's columns and types of today, dictionaries kept; meta columns as they are."""
        schema = pa.schema([f for f in self.group.format.schema if f.name not in META_COLUMNS])
        texts = {f.name for f in schema if pa.types.is_string(f.type)}
        encoded = (name for name, how in self.encodings.items() if how == DICTIONARY and name in texts)
        dictionaries = (*_DICTIONARY_META, *encoded)
        for batch in self.group.reader.read(
            self.file_slice, batch_rows=batch_rows, dictionary=dictionaries, footer=self.footer
        ):
            kinds = {f.name: f.type for f in batch.schema if pa.types.is_dictionary(f.type)}
            data = project(batch, pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in schema]))
            meta = [batch.column(name) for name in META_COLUMNS]
            yield pa.RecordBatch.from_arrays([*meta, *data.columns], names=[*META_COLUMNS, *data.schema.names])


def _row_merge(group: GroupWrite, stored: _Stored, incoming: Incoming, limit: int) -> RowMerge:
    changes = group.format.key_changes()
    tracked = None if changes is None else tuple(changes.columns)
    if not group.format.sort:
        return RowMerge(incoming, group.rules, group.fresh_meta, group.on_match, tracked)
    room = _room_among(group, stored, incoming, limit) if group.target.size_limited else None
    return SortedRowMerge(incoming, group.rules, group.fresh_meta, group.on_match, tracked, room=room)


def _room_among(group: GroupWrite, stored: _Stored, incoming: Incoming, limit: int) -> int:
    """How many new rows a sorted file takes in among its own, which are of the size of the larger of the two."""
    left, size = max(0, limit - stored.base.size), max(1, stored.base.size) / max(1, stored.footer.rows)
    if incoming.alive and incoming.data_bytes > left:
        some = np.unique(np.linspace(0, incoming.rows - 1, min(SAMPLE_ROWS, incoming.rows), dtype=np.int64))
        sampled = from_sample(pa.Table.from_batches([incoming.take(some)]), group.format.settings)
        size = max(size, 0.9 * sampled)  # a sample takes somewhat more than the same rows among others
    return int(left / size)


def _known_keys(group: GroupWrite, stored: _Stored) -> tuple[BloomFilter | None, KeyRange]:
    """Bloom filter and key range of the old file, to which only new keys are added.

    A filter is carried on only where one is to be written; where the old file has none that can be used, all
    its keys are added anew.
    """
    if stored.footer.key_range is not None:
        keys = KeyRange(*stored.footer.key_range)
        if not group.format.settings.bloom_filter:
            return None, keys
        bloom = stored.footer.bloom()
        if bloom is not None:
            return bloom, keys
    bloom, keys = group.format.bloom(), KeyRange()
    for batch in group.reader.read(stored.file_slice, [RECORD_KEY]):
        keys.add(batch.column(0))
        if bloom is not None:
            bloom.add(batch.column(0))
    return bloom, keys


def _merge(rows: RowMerge, stored: _Stored, batch_rows: int, writer: FileWriter) -> None:
    """Write the stored rows, merged."""
    batches = stored.rows(batch_rows)
    with Spill(stored.group.memory) as spill:
        steps: Iterator[Step] = ((batch, None) for batch in batches)
        if isinstance(rows, SortedRowMerge):
            steps = in_key_order(batches, stored.footer.metadata, spill)
        for batch, following in steps:
            merged = rows.merge(batch, following)
            if writer.changes is not None:
                _note(writer.changes, merged)
            writer.write(merged.rows, new_keys=merged.new_keys)


def _note(changes: KeyChanges, merged: Merged) -> None:
    if merged.removed is not None:
        changes.removed(merged.removed)
    if merged.added is not None:
        changes.added(merged.added)
    if merged.before is not None and merged.after is not None:
        changes.updated(merged.before, merged.after)
