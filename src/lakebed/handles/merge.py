"""The merge handle: a file slice and the incoming rows are merged into the group's next base file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa

from lakebed.engine.spill import Spill
from lakebed.handles.base import GroupWrite
from lakebed.handles.base_files import BaseFiles
from lakebed.handles.change_log import ChangeLogWriter
from lakebed.handles.create import CreateHandle
from lakebed.handles.file_writer import FileWriter
from lakebed.handles.group_merge import GroupMerge
from lakebed.handles.key_ordered import Step, in_key_order, sorted_as_a_whole
from lakebed.handles.stored_rows import StoredRows
from lakebed.merge.incoming import Incoming
from lakebed.merge.row_merge import RowMerge, SortedRowMerge
from lakebed.slices.row_size import SAMPLE_ROWS, from_sample
from lakebed.write_status import WriteStatus


class MergeHandle:
    """Streams the stored rows by, with winners in their places and new rows behind them, or where their keys belong.

    A slice that no incoming row changes is not written.
    """

    def __init__(self, group: GroupWrite) -> None:
        self._group = group

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        group, file_slice = self._group, self._group.target.slice
        assert file_slice is not None
        base = file_slice.base_file
        if base is None:
            return CreateHandle(group).write(incoming)
        stored = StoredRows(group.reader, group.format, file_slice, base)
        files = BaseFiles(group)
        log = group.format.changes_log(group.storage, group.instant, group.partition, base.file_id, group.task)
        rows = _row_merge(group, stored, incoming, files.limit, log)

        writer = self._merged(rows, stored, incoming, files, log)
        if writer is None:
            return [
                WriteStatus(
                    group.partition,
                    base.file_id,
                    rows_in=incoming.received,
                    num_unchanged=incoming.rows,
                    num_combined=incoming.combined,
                )
            ]
        try:
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
            num_combined=incoming.combined,
        )
        return [merged, *others]

    def _merged(
        self, rows: RowMerge, stored: StoredRows, incoming: Incoming, files: BaseFiles, log: ChangeLogWriter | None
    ) -> FileWriter | None:
        """An open file with the stored rows, merged; None where nothing changes."""

        def opened(*, copies: bool = False) -> FileWriter:
            bloom, keys = stored.known_keys()
            return files.open(stored.base.file_id, "MERGE", bloom, keys, stored.encodings, log, copies=copies)

        with stored.groups() as source:
            if source is not None:
                merge = GroupMerge(rows, source, partial(opened, copies=True), stored.parquet.row_group_rows)
                if merge.fits:
                    merge.run()
                    return _if_changed(rows, merge.writer)
        if not rows.changes_anything(stored.keys_and(self._group.rules.ordering_columns)):
            return None
        writer = opened()
        try:
            _merge(rows, stored, incoming.batch_rows, writer, self._group.memory)
        except BaseException:
            writer.abort()
            raise
        return _if_changed(rows, writer)


def _if_changed(rows: RowMerge, writer: FileWriter | None) -> FileWriter | None:
    """None where no row changed: of pairs of rows that is known when they are merged."""
    if writer is None or rows.changed:
        return writer
    writer.abort()
    return None


def _row_merge(
    group: GroupWrite, stored: StoredRows, incoming: Incoming, limit: int, log: ChangeLogWriter | None
) -> RowMerge:
    noted = [one.columns for one in (group.format.key_changes(), log) if one is not None]
    tracked = tuple(dict.fromkeys(chain.from_iterable(noted))) if noted else None
    if not group.format.sort:
        return RowMerge(incoming, group.rules, group.fresh_meta, group.on_match, tracked)
    room = _room_among(group, stored, incoming, limit) if group.target.size_limited else None
    return SortedRowMerge(incoming, group.rules, group.fresh_meta, group.on_match, tracked, room=room)


def _room_among(group: GroupWrite, stored: StoredRows, incoming: Incoming, limit: int) -> int:
    """How many new rows a sorted file takes in among its own, which are of the size of the larger of the two."""
    left, size = max(0, limit - stored.base.size), max(1, stored.base.size) / max(1, stored.footer.rows)
    if incoming.alive and incoming.data_bytes > left:
        some = np.unique(np.linspace(0, incoming.rows - 1, min(SAMPLE_ROWS, incoming.rows), dtype=np.int64))
        sampled = from_sample(pa.Table.from_batches([incoming.take(some)]), group.format.settings)
        size = max(size, 0.9 * sampled)  # a sample takes somewhat more than the same rows among others
    return int(left / size)


def _merge(rows: RowMerge, stored: StoredRows, batch_rows: int, writer: FileWriter, memory: int) -> None:
    """Write the stored rows, merged."""
    batches = stored.rows(batch_rows)
    with Spill(memory) as spill:
        steps: Iterator[Step] = ((batch, None) for batch in batches)
        if isinstance(rows, SortedRowMerge):
            if stored.is_merged:  # rows of log files alone come last
                steps = sorted_as_a_whole(batches, spill)
            else:
                steps = in_key_order(batches, stored.footer.metadata, spill)
        for batch, following in steps:
            merged = rows.merge(batch, following)
            writer.note(merged)
            writer.write(merged.rows, new_keys=merged.new_keys)
