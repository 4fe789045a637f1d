"""The rows of a slice that commits from some instant on wrote, without reading all of its base file.

If the base file of a slice with log files is older than that instant, none of its rows is in the result. They are read
only as far as they decide which log records win: not at all where the later record always wins, else keys and ordering
values, and these only where the file's statistics do not decide. If records are merged with stored rows, the rows of
the records' keys are read. In a base file without log files, row groups whose rows are all older are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.format.base_file import Footer, column_chunks
from lakebed.format.bounded_cache import BoundedCache, CacheEntry
from lakebed.format.footer_cache import FOOTERS, column_ranges
from lakebed.merge.key_table import KeyTable
from lakebed.merge.log_entries import Flags, KeyColumns, LogEntries, Positions
from lakebed.merge.rules import MergeRules
from lakebed.model import COMMIT_TIME, BaseFile, FileSlice
from lakebed.schema.plain_arrow import as_numpy
from lakebed.sharing import once
from lakebed.slices.base_rows import BaseFileRows, BaseRows, BufferedRows, ColumnNames, plain_rows
from lakebed.slices.key_rows import rows_of_keys
from lakebed.slices.log_rows import LOG_ROWS
from lakebed.slices.merged import MergedSlice
from lakebed.slices.placed_records import PlacedRecords, placed_records
from lakebed.slices.reader import BATCH_ROWS, SliceReader

# Rows are searched by key if there is at most one key for this many rows of the base file. For more keys, reading the
# file costs less.
_SEARCHED = 1_000
_TABLE_BYTES = 128 << 20
KEY_BYTES = 40
"""A table of keys takes about so many bytes a key."""
MAX_KEYS = _TABLE_BYTES // (4 * KEY_BYTES)
"""The keys of a base file with more rows are not cached: a table takes a fourth of the cache at most."""
KEY_TABLES = BoundedCache[CacheEntry[KeyTable]](_TABLE_BYTES)
"""The keys of base files, by the URL and size of the file, for slices that are read again after each commit."""


def holds_older_rows(reader: SliceReader, file_slice: FileSlice, since: str) -> bool:
    """Whether log files of the slice are merged, and its base file (if it has one) is older than the instant `since`: a
    row is in a file no older than the commit that wrote the row."""
    base = file_slice.base_file
    return reader.is_merged(file_slice) and (base is None or base.instant < since)


def changed_rows(
    reader: SliceReader,
    file_slice: FileSlice,
    since: str,
    columns: Sequence[str],
    *,
    schema: pa.Schema,
    names: ColumnNames | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a slice whose base file `holds_older_rows`, in the form of `SliceReader.read` but in another order:
    all rows that commits from `since` on wrote, and some others."""
    base = file_slice.base_file if reader.blocks.within is None else None  # else nothing older is merged
    older = None if base is None else OlderBaseRows(reader, file_slice, base)
    merge = reader.open_merge(file_slice, schema, older, columns=columns, names=names)
    if merge.picks_winners and not merge.may_share_keys(since):
        yield from map(plain_rows, merge.changed(since, older))
        return
    keys = merge.keys_since(since)
    if older is not None and len(keys) * _SEARCHED <= older.rows:
        yield from rows_of_keys(reader, file_slice, keys, columns, schema=schema, names=names) if len(keys) else ()
        return
    yield from map(plain_rows, merge.batches())


@dataclass(frozen=True)
class TouchedSlice:
    """A slice with log files in two parts: the rows of its base file that no log record changes, and all others. Both
    have the columns of `SliceReader.read`. All rows count as changed if records are merged with stored rows."""

    reader: SliceReader
    file_slice: FileSlice
    base: BaseFile
    columns: Sequence[str]
    schema: pa.Schema
    names: ColumnNames | None = None
    caches_keys: bool = False
    """Whether the keys of the base file stay in memory, for a slice that is read again with more log records."""

    def flags(self) -> Flags:
        """Flags of the rows of the base file that log records replace or delete."""
        if not self.has_untouched_rows:
            return np.ones(self._older.rows, np.bool_)
        placed = self._placed
        if placed is None:
            return self._merge.touched()
        flags = np.zeros(self._older.rows, np.bool_)
        flags[placed.replacements.replaced] = flags[placed.replacements.deleted] = True
        return flags

    def log_rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of the slice except the unchanged ones, in any order."""
        if not self.has_untouched_rows:
            yield from map(plain_rows, self._merge.batches())
            return
        if self._placed is not None:
            yield self._placed.rows
            return
        key = self._merge.log_rows_key
        cached = None if key is None else LOG_ROWS.get(key)
        if cached is not None:
            yield from cached.content
            return
        read: list[pa.RecordBatch] = []
        for batch in map(plain_rows, self._merge.changed("", self._older)):
            if key is not None:
                read.append(batch)
            yield batch
        if key is not None:
            LOG_ROWS.put(key, CacheEntry(read, sum(batch.nbytes for batch in read)))

    @once
    def _older(self) -> OlderBaseRows:
        return OlderBaseRows(self.reader, self.file_slice, self.base)

    @once
    def _merge(self) -> MergedSlice:
        merge = self.reader.open_merge(
            self.file_slice, self.schema, self._older, columns=self.columns, names=self.names
        )
        return replace(merge, cached_as=self.reader.cached_as(self.file_slice))

    @once
    def _placed(self) -> PlacedRecords | None:
        older = self._older
        if not self.caches_keys or older.rows > MAX_KEYS:
            return None
        return placed_records(self._merge, older, older.row_numbers)

    @once
    def has_untouched_rows(self) -> bool:
        """Whether some rows of the base file are unchanged, so that the slice has two parts."""
        return self._merge.picks_winners and not self._merge.may_share_keys("")


def row_groups_since(reader: SliceReader, base: BaseFile, since: str) -> tuple[Footer, list[int]]:
    """A base file's footer, and the numbers of the row groups that may have rows of commits from `since` on, by their
    greatest commit time."""
    footer = FOOTERS.read(reader.storage, base.path, base.size).footer
    ranges = column_ranges(footer.metadata, COMMIT_TIME)
    return footer, [number for number, span in enumerate(ranges) if span is None or span[1] >= since]


@dataclass(frozen=True)
class OlderBaseRows:
    """All rows of a slice's base file, with the data about them that is known without reading them. The file is opened
    on demand."""

    reader: SliceReader
    file_slice: FileSlice
    base: BaseFile
    is_complete: ClassVar[bool] = True

    @once
    def footer(self) -> Footer:
        return FOOTERS.read(self.reader.storage, self.base.path, self.base.size).footer

    @property
    def schema(self) -> pa.Schema:
        return self.footer.schema

    @property
    def rows(self) -> int:
        return self.footer.rows

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        reader = self.reader
        rows = BaseFileRows(reader.storage, self.base, BATCH_ROWS, cached_footer=self.footer, tally=reader.tally)
        return rows.read(columns)

    def of(self, keys: pa.Array, columns: Sequence[str]) -> BaseRows:
        """The rows of these keys if they are few, otherwise all rows."""
        if len(keys) * _SEARCHED > self.rows:
            return self
        ordered = keys.take(pc.sort_indices(keys))
        rows = rows_of_keys(replace(self.reader, history=None), self.file_slice.without_logs(), ordered, columns)
        return BufferedRows(rows, self.schema)

    def row_numbers(self, keys: pa.Array, columns: KeyColumns) -> Positions:
        """The number of the first row with each key, -1 for a key without a row. `columns` give the keys of rows, which
        stay in memory."""
        file = self.reader.storage.url(self.base.path), self.base.size
        cached = KEY_TABLES.get(file)
        if cached is None:
            stored = [columns.of(batch, self.base.path) for batch in self.read(columns.names)]
            table = KeyTable(pa.concat_arrays(stored) if stored else pa.array([], pa.string()))
            cached = CacheEntry(table, self.rows * KEY_BYTES)
            KEY_TABLES.put(file, cached)
        return cached.content.find(keys).astype(np.int64)

    def are_below(self, entries: LogEntries, rules: MergeRules) -> Flags:
        """Flags of the log records that win against every row, by the greatest value in the file's statistics."""
        wins = entries.forced.copy()
        greatest = self._greatest(rules.ordering[0], entries.ordering[0].type)
        if greatest is not None and not rules.file_positions:
            compare = pc.greater_equal if len(rules.ordering) == 1 else pc.greater
            wins |= as_numpy(pc.fill_null(compare(entries.ordering[0], greatest), False))
        return wins

    def _greatest(self, name: str, kind: pa.DataType) -> pa.Scalar | None:
        """The greatest value of a column of this type; None if statistics do not have it, or it may be rounded."""
        is_exact = pt.is_signed_integer(kind) or pt.is_date32(kind) or (pt.is_timestamp(kind) and kind.unit != "ns")
        metadata, schema = self.footer.metadata, self.schema
        if not is_exact or self.base.is_skeleton or name not in schema.names or schema.field(name).type != kind:
            return None
        statistics = [chunk.statistics for chunk in column_chunks(metadata, name)]
        if not statistics or not all(chunk is not None and chunk.has_min_max for chunk in statistics):
            return None
        return pa.scalar(max(chunk.max for chunk in statistics), kind)
