"""The merge handle: a file slice and the incoming rows are merged into the group's next base file.

Row groups that no incoming row changes are copied as bytes. If no incoming key is in a row group, only its key column
is read, or nothing where its key range rules the keys out. If all rows of a row group stay, its unchanged columns are
copied. If rows are added or removed, the row group is encoded again, together with its neighbours where it would be
small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa

from lakebed.engine.spill import Spill
from lakebed.format.footer_cache import key_ranges
from lakebed.format.key_order import key_order
from lakebed.format.row_groups.stored import StoredGroups
from lakebed.handles.base import GroupWrite
from lakebed.handles.change_log import ChangeLogWriter
from lakebed.handles.create import BaseFiles, CreateHandle
from lakebed.handles.file_writer import FileWriter
from lakebed.handles.stored_rows import Step, StoredRows, in_key_order, sorted_in_full, to_be_joined
from lakebed.merge.incoming import Incoming
from lakebed.merge.pairs import Positions
from lakebed.merge.row_merge import Merged, RowMerge, SortedRowMerge, Touch
from lakebed.model import RECORD_KEY, BaseFile, FileSlice
from lakebed.schema.arrow import leaf_paths
from lakebed.schema.conversion import with_vectors
from lakebed.schema.logical_types import file_values
from lakebed.slices.row_size import SAMPLE_ROWS, from_sample
from lakebed.write_status import WriteStatus

# Incoming rows that are put among stored ones at a time take about so much, if they are many.
_MAX_BYTES = 64 << 20
# Row groups that follow one another are merged together up to so many rows and inflated bytes: where they are small, a
# few calls for each column of each cost more than the rows.
_STEP_ROWS = 1 << 16
_STEP_BYTES = 32 << 20
# Values that are compared first to see whether a column changes.
_PROBED = 64

_NO_KEYS = pa.array([], pa.string())
Range = tuple[str, str] | None


class GroupMerge:
    """A merge of incoming rows into the row groups of a file. `open_writer` opens the new file when the first row
    changes, so that nothing is written if no row does; `stored` are the rows of the file, with its settings."""

    def __init__(
        self, rows: RowMerge, source: StoredGroups, open_writer: Callable[[], FileWriter], stored: StoredRows
    ) -> None:
        self._rows = rows
        self._source = source
        self._open_writer = open_writer
        self._full_rows = stored.parquet.row_group_rows
        self._schema = stored.format.schema
        self._names = source.footer.schema.names
        self._untouched: list[int] = []
        self._row_bytes = rows.incoming.row_bytes
        self._ranges: Sequence[Range] = key_ranges(source.footer.metadata)
        self._following = following_keys(self._ranges)
        self.writer: FileWriter | None = None

    @property
    def fits(self) -> bool:
        """Whether the file can be merged by row groups: a file in key order must have row groups in that order."""
        return not isinstance(self._rows, SortedRowMerge) or self._following is not None

    def run(self) -> None:
        """Merge into all row groups. Afterwards `writer` has the file, or is None if no row changed; incoming rows that
        were not merged are left to `RowMerge.rest`."""
        try:
            if self._rows.changes_for_sure:
                self._begin()
            number = 0
            while number < len(self._source.groups):
                number = self._merge(number)
            self._rows.refuse_stored()
            if self._rows.new_rows:
                self._begin()
        except BaseException:
            if self.writer is not None:
                self.writer.abort()
            raise

    def _merge(self, first: int) -> int:
        """Merge into a row group, and into the following ones that incoming rows touch as well; returns the number of
        the next row group."""
        stop = self._end_of_touched(first)
        if stop == first:
            self._rows.pass_by(self._after(first))
            self._copy(first)
            return first + 1
        keys = self._read(first, [RECORD_KEY], stop)
        self._merge_into(first, stop, keys, self._rows.touch(keys, self._after(stop - 1)))
        return stop

    def _end_of_touched(self, first: int) -> int:
        """The number after the last of the touched row groups from `first` on that are merged together."""
        groups, stop, rows, size = self._source.groups, first, 0, 0
        max_stop = first + 1
        while stop < max_stop:
            span, group = self._ranges[stop], groups[stop]
            if span is not None and not self._rows.may_touch(
                *span, self._after(stop), has_unmerged_before=stop > first
            ):
                break
            rows, size = rows + group.rows, size + group.inflated
            if stop > first and (rows > _STEP_ROWS or size > _STEP_BYTES):
                break
            stop += 1
            if max_stop == stop == first + 1 < len(groups) and rows < _STEP_ROWS:
                max_stop = self._source.buffered_until(first, ahead=self.writer is not None)
        return stop

    def _after(self, number: int) -> str | None:
        return self._following[number] if self._following else None

    def _merge_into(self, first: int, stop: int, keys: pa.RecordBatch, touch: Touch) -> None:
        """Merge into consecutive row groups whose keys were read."""
        rows, following = self._rows, self._after(stop - 1)
        if not touch.matches and not touch.adds:
            rows.pass_by(following)
            self._copy(first, stop)
        elif rows.on_match not in ("keys", "one") and not touch.adds:
            rows.merge(keys, following, touch)
            rows.refuse_stored()
            self._copy(first, stop)
        elif stop - first > 1:
            new = touch.removes or touch.adds or self._is_wide(touch)
            if new or any(self._is_to_be_joined(number, None) for number in range(first, stop)):
                self._merge_halves(first, stop, keys, touch)
            else:
                self._update(first, stop, keys, touch)
        elif touch.removes or touch.adds or self._is_to_be_joined(first, touch) or self._is_wide(touch):
            self._rewrite(first, following, touch)
        else:
            self._update(first, stop, keys, touch)

    def _merge_halves(self, first: int, stop: int, keys: pa.RecordBatch, touch: Touch) -> None:
        """Merge into one half of the row groups, then into the other half, so that a row group that must be encoded
        again does not affect the others."""
        middle = (first + stop) // 2
        at = sum(group.rows for group in self._source.groups[first:middle])
        for start, end, part, positions in (
            (first, middle, keys.slice(0, at), touch.positions[:at]),
            (middle, stop, keys.slice(at), touch.positions[at:]),
        ):
            self._merge_into(start, end, part, self._rows.touch(part, self._after(end - 1), positions))

    def _copy(self, first: int, stop: int | None = None) -> None:
        """Copy the row groups from `first` up to `stop` (None: one row group) unchanged."""
        for number in range(first, first + 1 if stop is None else stop):
            if self.writer is None:
                self._untouched.append(number)
            elif self._is_to_be_joined(number, None):
                self._write(Merged(self._read(number, self._names), _NO_KEYS))
            else:
                self.writer.copy(self._source, number)

    def _rewrite(self, number: int, following: str | None, touch: Touch | None) -> None:
        """Encode a row group again, with added rows and without deleted rows."""
        batch = self._read(number, self._names)
        if isinstance(self._rows, SortedRowMerge):
            order = key_order(batch.column(RECORD_KEY))
            if order is not None:
                batch, touch = batch.take(pa.array(order)), None
        if touch is not None and self._is_wide(touch):
            self._rewrite_in_parts(batch, following)
            return
        merged = self._rows.merge(batch, following, touch)
        if merged.updated is not None and not len(merged.updated) and not len(merged.new_keys):
            self._copy(number)
        else:
            self._begin()
            self._write(merged)

    def _rewrite_in_parts(self, batch: pa.RecordBatch, following: str | None) -> None:
        """Encode the rows of a row group again, merged with the incoming rows some rows at a time, for incoming rows
        that need much memory."""
        size = self._rows.incoming.batch_rows
        for start in range(0, batch.num_rows, size):
            last = start + size >= batch.num_rows
            next_key = following if last else batch.column(RECORD_KEY)[start + size].as_py()
            self._write(self._rows.merge(batch.slice(start, size), next_key))

    def _is_wide(self, touch: Touch) -> bool:
        """Whether the incoming rows that meet stored rows need more memory than the limit."""
        met = int((touch.positions >= 0).sum())
        return met > self._rows.incoming.batch_rows and met * self._row_bytes > _MAX_BYTES

    def _update(self, first: int, stop: int, keys: pa.RecordBatch, touch: Touch) -> None:
        """Encode the columns that change, and copy the other columns and the row groups in which no row changes."""
        names = self._rows.touched_columns(self._names)
        other_columns = self._read(first, [name for name in names if name != RECORD_KEY], stop)
        columns = [keys.column(0) if name == RECORD_KEY else other_columns.column(name) for name in names]
        batch = pa.RecordBatch.from_arrays(columns, names=names)
        merged = self._rows.merge(batch, self._after(stop - 1), touch)
        updated = merged.updated
        assert updated is not None
        if not len(updated):
            self._copy(first, stop)
            return
        writer = self._begin()
        writer.note(merged)
        changed = [name for name in names if _differs(batch.column(name), merged.rows.column(name), updated)]
        fresh, start = merged.rows.select(changed), 0
        for number in range(first, stop):
            rows = self._source.groups[number].rows
            updates_start, updates_end = np.searchsorted(updated, (start, start + rows))
            writer.copy(self._source, number, fresh.slice(start, rows) if updates_start < updates_end else None)
            start += rows

    def _is_to_be_joined(self, number: int, touch: Touch | None) -> bool:
        """Whether the rows of a row group are written together with the rows before it, or with new rows after it."""
        following_rows = 0
        if not isinstance(self._rows, SortedRowMerge) and number + 1 == len(self._source.groups):
            following_rows = self._rows.new_rows - (int((touch.positions >= 0).sum()) if touch is not None else 0)
        loose = self.writer.loose_rows if self.writer else 0
        return to_be_joined(self._source.groups[number].rows, loose, following_rows, self._full_rows)

    def _begin(self) -> FileWriter:
        if self.writer is None:
            self.writer = self._open_writer()
            for number in self._untouched:
                self._copy(number)
            self._untouched = []
        return self.writer

    def _write(self, merged: Merged) -> None:
        writer = self._begin()
        writer.note(merged)
        writer.write(merged.rows, new_keys=merged.new_keys)

    def _read(self, first: int, names: Sequence[str], stop: int | None = None) -> pa.RecordBatch:
        batch = self._source.columns(first, names, ahead=self.writer is not None, stop=stop)
        return with_vectors(batch, self._schema)


def following_keys(ranges: Sequence[Range]) -> list[str | None] | None:
    """For each row group a key that is not greater than any later row's (None: there is no later row). None if the row
    groups are not in key order, or have no ranges."""
    spans = [span for span in ranges if span is not None]
    if len(spans) < len(ranges) or any(before[1] > after[0] for before, after in pairwise(spans)):
        return None
    return [*(low for low, _ in spans[1:]), None]


def _differs(old: pa.Array, new: pa.Array, at: Positions) -> bool:
    """Whether a column has other values in the rows `at`. The first rows are compared first, since they mostly show it.
    Zeros of different signs differ, which Arrow does not compare: nested columns with floating-point numbers count as
    changed."""
    old, new = file_values(old), file_values(new)
    if pa.types.is_floating(old.type):
        bits = pa.int64() if pa.types.is_float64(old.type) else pa.int32()
        old, new = old.view(bits), new.view(bits)
    elif pa.types.is_nested(old.type) and any(
        pa.types.is_floating(kind) for _, kind in leaf_paths(pa.schema([pa.field("", old.type)]))
    ):
        return True
    return not all(_plain(old, positions).equals(_plain(new, positions)) for positions in (at[:_PROBED], at))


def _plain(column: pa.Array, at: Positions) -> pa.Array:
    values = column.take(pa.array(at))
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


class MergeHandle:
    """A handle that writes the stored rows with the winners in their positions, and new rows after them or at the
    positions of their keys.

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
        files = BaseFiles(group)
        with files.marking(base.file_id):
            return self._rewrite(incoming, file_slice, base, files)

    def _rewrite(
        self, incoming: Incoming, file_slice: FileSlice, base: BaseFile, files: BaseFiles
    ) -> list[WriteStatus]:
        group = self._group
        stored = StoredRows(group.job.reader.buffering(base), group.job.format, file_slice, base)
        log = group.job.format.changes_log(group.job.storage, group.instant, group.partition, base.file_id, group.task)
        rows = _row_merge(group, stored, incoming, files.limit, log)

        writer = self._merged(rows, stored, incoming, files, log)
        if writer is None:
            incoming.count("num_unchanged")
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
                # rows that have no space in this sorted file go to another one
                files.finish(writer, rows.counts.inserts)
                files.add(rows.rest())
            else:
                files.add(rows.rest(), writer)
        except BaseException:
            writer.abort()
            raise
        rows.share_counts()
        first, *other_statuses = files.done
        status = replace(
            first,
            prev_commit=base.instant,
            prev_base_file=base.name,
            rows_in=incoming.received,
            num_updates=rows.counts.updates,
            num_deletes=rows.counts.deletes,
            num_unchanged=rows.counts.unchanged + rows.absent_deletes,
            num_combined=incoming.combined,
        )
        return [status, *other_statuses]

    def _merged(
        self, rows: RowMerge, stored: StoredRows, incoming: Incoming, files: BaseFiles, log: ChangeLogWriter | None
    ) -> FileWriter | None:
        """An open file with the stored rows, merged; None if no row changes."""

        def opened(*, copies: bool = False) -> FileWriter:
            bloom, keys = stored.stored_keys()
            return files.open(stored.base.file_id, "MERGE", bloom, keys, stored.encodings, log, copies=copies)

        with stored.groups() as source:
            if source is not None:
                merge = GroupMerge(rows, source, partial(opened, copies=True), stored)
                if merge.fits:
                    merge.run()
                    return _if_changed(rows, merge.writer)
        if not rows.changes_anything(stored.keys_and(self._group.job.rules.ordering_columns)):
            return None
        writer = opened()
        try:
            _merge(rows, stored, incoming.batch_rows, writer, self._group.job.memory)
        except BaseException:
            writer.abort()
            raise
        return _if_changed(rows, writer)


def _if_changed(rows: RowMerge, writer: FileWriter | None) -> FileWriter | None:
    """The writer, or None (and no file) if no row changed. In merges of row pairs this is known only afterwards."""
    if writer is None or rows.changed:
        return writer
    writer.abort()
    return None


def _row_merge(
    group: GroupWrite, stored: StoredRows, incoming: Incoming, limit: int, log: ChangeLogWriter | None
) -> RowMerge:
    noted = [tracker.columns for tracker in (group.job.format.key_changes(), log) if tracker is not None]
    tracked = tuple(dict.fromkeys(chain.from_iterable(noted))) if noted else None
    if not group.job.format.sort:
        return RowMerge(incoming, group.job.rules, group.fresh_meta, group.job.on_match, tracked)
    room = _room_among(group, stored, incoming, limit) if group.target.size_limited else None
    return SortedRowMerge(incoming, group.job.rules, group.fresh_meta, group.job.on_match, tracked, room=room)


def _room_among(group: GroupWrite, stored: StoredRows, incoming: Incoming, limit: int) -> int:
    """The number of new rows that fit into a sorted file among its own rows. A row is assumed to have the larger of the
    mean sizes of both."""
    left, size = max(0, limit - stored.base.size), max(1, stored.base.size) / max(1, stored.footer.rows)
    if incoming.alive and incoming.data_bytes > left:
        sample_rows = np.unique(np.linspace(0, incoming.rows - 1, min(SAMPLE_ROWS, incoming.rows), dtype=np.int64))
        sampled = from_sample(pa.Table.from_batches([incoming.take(sample_rows)]), group.job.format.settings)
        size = max(size, 0.9 * sampled)  # a sample takes somewhat more than the same rows among others
    return int(left / size)


def _merge(rows: RowMerge, stored: StoredRows, batch_rows: int, writer: FileWriter, memory: int) -> None:
    """Merge the incoming rows into the stored ones, batch by batch, and write the result."""
    batches = stored.rows(batch_rows)
    with Spill(memory) as spill:
        steps: Iterator[Step] = ((batch, None) for batch in batches)
        if isinstance(rows, SortedRowMerge):
            if stored.is_merged:  # rows of log files alone come last
                steps = sorted_in_full(batches, spill)
            else:
                steps = in_key_order(batches, stored.footer.metadata, spill)
        for batch, following in steps:
            merged = rows.merge(batch, following)
            writer.note(merged)
            writer.write(merged.rows, new_keys=merged.new_keys)
