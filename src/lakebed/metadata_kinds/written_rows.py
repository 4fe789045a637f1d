"""The rows of a column for an index that has layers: those that an action wrote, those that commits without a layer
wrote, and all of a table.

A row of a base file was written by an action if its `_hoodie_commit_time` is that of the action. No row is read that
was there before, and none of another file group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.file_names import parse_log_file
from lakebed.format.hashes import plain_strings
from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds.base import TableAction
from lakebed.metadata_kinds.key_changes import AFTER, BEFORE, KEY, ActionKeys, group_changes
from lakebed.metadata_kinds.stored import base_slice
from lakebed.metadata_kinds.vector_coverage import SERVICES
from lakebed.model import COMMIT_TIME, RECORD_KEY, FileSlice
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.reader import SliceReader
from lakebed.write_status import WriteStatus

Positions = npt.NDArray[np.int64]
Placed = tuple[pa.RecordBatch, Positions | None]
_NEW_ROWS = ("INSERT", "INSERT_PREPPED", "BULK_INSERT", "BULK_INSERT_PREPPED", "BOOTSTRAP")


@dataclass(frozen=True, eq=False)
class ColumnRows:
    """Rows of one file group with a value in a column: their record keys, the values, and the keys of rows that this
    replaces for certain, whose earlier values do not count any more. `values` is None where there are no rows.
    `uncertain` are the keys of rows of a log file, with or without a value, that may replace others or lose.
    `positions` are those of the rows in the base file (None: they are in no base file, or may be in another one)."""

    partition: str
    file_id: str
    keys: pa.Array
    values: pa.Array | None
    replaced: pa.Array
    uncertain: pa.Array
    positions: Positions | None = None


class WrittenRows:
    """The rows that one action wrote, with the values of a column, file group by file group.

    A row in a log file may lose against an earlier one, and a column of it may come from an earlier row: it replaces
    none for certain, unless the later row always wins as a whole. `batch_rows` are read at a time.
    """

    def __init__(self, action: TableAction, column: str, batch_rows: int) -> None:
        self._action, self._column, self._batch_rows = action, column, batch_rows
        blocks = action.snapshot.reader.blocks.with_writer_of(action.instant).of_instants({action.instant})
        self._reader = replace(action.snapshot.reader, blocks=blocks)
        rules = MergeRules.of_table(action.snapshot.config)
        self._later_wins = rules.picks_winners and not rules.ordering and not rules.partial
        self._merges = not rules.picks_winners
        self._is_insert = action.commit.operation.upper() in _NEW_ROWS

    def __iter__(self) -> Iterator[ColumnRows]:
        if self._action.commit.operation.upper() in SERVICES:
            return
        for status in self._action.statuses:
            if status.path is None:
                continue
            batches = self._logged(status) if status.log_files is not None else self._stored(status)
            yield from (self._rows(status, *placed) for placed in batches)

    def deleted(self) -> Iterator[tuple[str, pa.Array, bool]]:
        """The partition paths and keys of rows that the action deletes, those of replaced file groups first, and
        whether they are deleted for certain: a delete in a log file may lose against a row."""
        if self._action.commit.operation.upper() in SERVICES:
            return
        for file_slice in self._action.shared(ActionKeys).replaced:
            for batch in self._action.snapshot.reader.read(file_slice, [RECORD_KEY]):
                yield file_slice.partition, plain_strings(batch.column(RECORD_KEY)), True
        stored = [s for s in self._action.statuses if s.path is not None and s.log_files is None]
        if sum(status.num_deletes for status in stored):
            yield from ((path, keys, True) for path, keys in self._missing(stored))
        for status in self._action.statuses:
            file_slice = self._log_of(status) if status.path is not None and status.log_files is not None else None
            if file_slice is not None:
                keys = self._reader.open_merge(file_slice, pa.schema([]), None).deleted_keys()
                if len(keys):
                    yield status.partition, keys, self._later_wins

    def _missing(self, statuses: Sequence[WriteStatus]) -> Iterator[tuple[str, pa.Array]]:
        """The keys that base files do not have any more, without those that another file got."""
        parts: dict[str, list[pa.Table]] = {}
        for part in group_changes(self._action.snapshot.reader, statuses):
            parts.setdefault(part.partition, []).append(part.changes)
        for path, tables in parts.items():
            changes = pa.concat_tables([table.select([KEY, BEFORE, AFTER]) for table in tables]).combine_chunks()
            deleted = changes[KEY].filter(pc.invert(changes[AFTER])).combine_chunks()
            added = changes[KEY].filter(changes[AFTER]).combine_chunks()
            yield path, deleted.filter(pc.invert(pc.is_in(deleted, value_set=added)))

    def _stored(self, status: WriteStatus) -> Iterator[Placed]:
        """The rows of a base file that the action wrote. Where rows are merged, a row with an earlier time may have got
        the value of a later one, and where file groups are replaced, rows may come from these: all rows of the file are
        taken."""
        assert status.path is not None
        file_slice = base_slice(status.partition, status.file_id, status.path, status.file_size)
        reader = self._action.snapshot.reader
        instants = None if self._merges or self._action.commit.replaced else {self._action.instant}
        yield from rows_of_instants(reader, file_slice, instants, self._column, self._batch_rows)

    def _logged(self, status: WriteStatus) -> Iterator[Placed]:
        """The rows of a log file that the action wrote, one for each key."""
        file_slice = self._log_of(status)
        if file_slice is not None:
            for batch in self._reader.read(file_slice, [RECORD_KEY, self._column]):
                yield batch, None

    def _log_of(self, status: WriteStatus) -> FileSlice | None:
        """A slice with only the log file of a status."""
        assert status.path is not None
        log = parse_log_file(status.partition, status.path.rpartition("/")[2], status.file_size)
        return None if log is None else FileSlice(status.partition, status.file_id, "", None, (log,))

    def _rows(self, status: WriteStatus, batch: pa.RecordBatch, positions: Positions | None) -> ColumnRows:
        keys = plain_strings(batch.column(RECORD_KEY))
        none = keys.slice(0, 0)
        is_log = status.log_files is not None
        if self._column not in batch.schema.names:  # a partial update of other columns
            return ColumnRows(status.partition, status.file_id, none, None, none, none)
        uncertain = keys if is_log else none
        replaced = none if self._is_insert or (is_log and not self._later_wins) else keys
        values = batch.column(self._column)
        if values.null_count:
            if is_log:  # of a column that the log file lacks all values are null
                replaced = replaced.filter(values.is_valid()) if len(replaced) else replaced
                uncertain = uncertain.filter(values.is_null()) if len(replaced) else uncertain
            keys, values, positions = _with_values(keys, values, positions)
        elif len(replaced):
            uncertain = none
        return ColumnRows(status.partition, status.file_id, keys, values, replaced, uncertain, positions)


def _with_values(
    keys: pa.Array, values: pa.Array, positions: Positions | None
) -> tuple[pa.Array, pa.Array, Positions | None]:
    """The rows that have a value."""
    if not values.null_count:
        return keys, values, positions
    is_valid = values.is_valid()
    positions = None if positions is None else positions[as_numpy(is_valid)]
    return keys.filter(is_valid), values.drop_null(), positions


def rows_of_instants(
    reader: SliceReader, file_slice: FileSlice, instants: Collection[str] | None, column: str, batch_rows: int
) -> Iterator[Placed]:
    """The record key and the column of the rows of a slice that these instants wrote, or (None) of all rows, with the
    positions of the rows in the base file; without the column where the slice has none."""
    columns = [RECORD_KEY, column] if instants is None else [COMMIT_TIME, RECORD_KEY, column]
    requested = None if instants is None else pa.array(sorted(instants), pa.string())
    base, start = file_slice.base_file, 0
    has_positions = base is not None and not base.is_skeleton and not reader.is_merged(file_slice)
    for batch in reader.read(file_slice, columns, batch_rows=batch_rows):
        positions = np.arange(start, start + batch.num_rows)
        start += batch.num_rows
        if requested is not None:
            is_requested = pc.is_in(plain_strings(batch.column(COMMIT_TIME)), value_set=requested)
            batch, positions = batch.filter(is_requested), positions[as_numpy(is_requested)]
        if batch.num_rows:
            yield batch, positions if has_positions else None


def rows_of_slices(
    reader: SliceReader, slices: Sequence[FileSlice], instants: Collection[str] | None, column: str, batch_rows: int
) -> Iterator[ColumnRows]:
    """The rows with a value in these slices that some instants wrote, or (None) all of them."""
    for file_slice in slices:
        for batch, placed in rows_of_instants(reader, file_slice, instants, column, batch_rows):
            if column not in batch.schema.names:
                continue
            keys = plain_strings(batch.column(RECORD_KEY))
            none = keys.slice(0, 0)
            keys, values, positions = _with_values(keys, batch.column(column), placed)
            yield ColumnRows(file_slice.partition, file_slice.file_id, keys, values, none, none, positions)
