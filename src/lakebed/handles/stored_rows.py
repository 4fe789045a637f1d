"""Rows of a base file that go into another one, decoded or as bytes; in the order of their keys where files are
sorted.

The file alone shows its order, not the table's settings: any writer may have written it. A file whose row groups
follow one another by their statistics is read a few row groups at a time; every other file is sorted as one, once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.engine.spill import Spill
from lakebed.format.base_file import Footer, read_footer
from lakebed.format.bloom import BloomFilter
from lakebed.format.footer_cache import key_ranges
from lakebed.format.key_order import KeyRange, key_order
from lakebed.format.parquet_encodings import DICTIONARY, ColumnForm, encodings_of
from lakebed.format.parquet_writer import ParquetSettings
from lakebed.format.row_groups.stored import StoredGroups, has_columns, open_groups
from lakebed.handles.file_writer import FileFormat, FileWriter
from lakebed.merge.meta_columns import FreshMeta
from lakebed.model import COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY, BaseFile, FileSlice
from lakebed.schema.evolution import project
from lakebed.schema.plain_arrow import gather
from lakebed.sharing import once
from lakebed.slices.reader import BATCH_ROWS, SliceReader

# Meta columns with few different values: read and written as dictionaries, like the columns that the old file stores as
# dictionaries.
_DICTIONARY_META = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
# Rows that are read at a time only to see whether anything changes: the first of them mostly show it.
_PROBED_ROWS = 16_384
# A single row group of fewer rows is encoded again as fast as it is examined.
_WORTH_COPYING = 16_384


def texts_with_dictionary(schema: pa.Schema, encodings: Mapping[str, ColumnForm]) -> list[str]:
    """The text columns that a file stores as dictionaries, by its encodings; without the meta columns, since record
    keys are read as plain text."""
    texts = {f.name for f in schema if pa.types.is_string(f.type) and f.name not in META_COLUMNS}
    return [name for name, form in encodings.items() if form.encoding == DICTIONARY and name in texts]


@dataclass(frozen=True)
class StoredRows:
    """The rows of a slice with the base file `base`, merged with its log files; `format` is the format of the files
    that the rows are written to."""

    reader: SliceReader
    format: FileFormat
    file_slice: FileSlice
    base: BaseFile

    @property
    def is_merged(self) -> bool:
        """Whether log files change the rows of the base file, so that its footer does not describe them."""
        return self.reader.is_merged(self.file_slice)

    @once
    def footer(self) -> Footer:
        return read_footer(self.reader.storage, self.base.path, self.base.size, encoded=True)

    @once
    def encodings(self) -> Mapping[str, ColumnForm]:
        """The column encodings of the base file, which new files take over."""
        return encodings_of(self.footer.metadata)

    def keys_and(self, others: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The record keys and some other columns, in small batches."""
        columns = [RECORD_KEY, *others]
        return self.reader.read(self.file_slice, columns, batch_rows=_PROBED_ROWS, footer=self.footer)

    @once
    def parquet(self) -> ParquetSettings:
        """The Parquet settings of the next file."""
        return self.format.parquet()

    @once
    def dictionaries(self) -> Sequence[str]:
        """The names of text columns that are read as dictionaries."""
        return *_DICTIONARY_META, *texts_with_dictionary(self.format.schema, self.encodings)

    def stored_keys(self) -> tuple[BloomFilter | None, KeyRange]:
        """The bloom filter and the key range of the rows, to which only new keys have to be added.

        A filter is carried on only where one is to be written; where the file has none that can be used, or log files
        have keys of their own, all keys are added again.
        """
        if self.footer.key_range is not None and not self.is_merged:
            keys = KeyRange(*self.footer.key_range)
            if not self.format.settings.bloom_filter:
                return None, keys
            bloom = self.footer.bloom(self.format.settings.max_bloom_entries)
            if bloom is not None and not bloom.holds_everything:
                return bloom, keys
        bloom, keys = self.format.bloom(), KeyRange()
        for batch in self.reader.read(self.file_slice, [RECORD_KEY]):
            keys.add(batch.column(0))
            if bloom is not None:
                bloom.add(batch.column(0))
        return bloom, keys

    @contextmanager
    def groups(self, *, any_size: bool = False) -> Generator[StoredGroups | None]:
        """The row groups of the base file; None if they cannot be copied into a file of today's columns and settings,
        or are too few for a merge by row groups (`any_size`: any number suffices)."""
        footer = self.footer
        many = any_size or footer.row_groups > 1 or footer.rows >= _WORTH_COPYING
        if not many:
            yield None
            return
        renamed = self.reader.renaming(self.base) is not None
        is_file = not self.is_merged and not self.base.is_skeleton and self.base.is_parquet and self.format.is_parquet
        copies = self.format.settings.copy_row_groups and is_file and not renamed
        if not copies or not has_columns(footer, self.format.schema):
            yield None
            return
        location = self.base.path, self.base.size
        with open_groups(self.reader.storage, *location, footer, self.parquet.codecs, self.dictionaries) as groups:
            yield groups

    def rows(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Complete rows in the table's present columns and types, dictionaries included; meta columns as stored."""
        schema = pa.schema([f for f in self.format.schema if f.name not in META_COLUMNS])
        for batch in self.reader.read(
            self.file_slice, batch_rows=batch_rows, dictionary=self.dictionaries, footer=self.footer
        ):
            kinds = {f.name: f.type for f in batch.schema if pa.types.is_dictionary(f.type)}
            data = project(batch, pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in schema]))
            meta = [batch.column(name) for name in META_COLUMNS]
            yield pa.RecordBatch.from_arrays([*meta, *data.columns], names=[*META_COLUMNS, *data.schema.names])


# Rows that come at a time: whole row groups up to about the first, no more than the others.
_STEP_ROWS = 1 << 16
_MAX_ROWS = 1 << 18
_MAX_BYTES = 128 << 20

Step = tuple[pa.RecordBatch, str | None]
"""A batch, and a key that no later row is below (None: no row follows)."""


def in_key_order(batches: Iterator[pa.RecordBatch], metadata: Any, spill: Spill) -> Iterator[Step]:
    """The rows of a file in the order of their keys; `metadata` is the file's Parquet metadata. `spill` buffers rows
    that have to be sorted together."""
    steps = row_group_steps(metadata)
    if steps is None:
        yield from sorted_in_full(batches, spill)
        return
    for rows, following in steps:
        parts: list[pa.RecordBatch] = []
        while sum(part.num_rows for part in parts) < rows:
            parts.append(next(batches))
        batch = parts[0] if len(parts) == 1 else _one_batch(parts)
        order = key_order(batch.column(RECORD_KEY))
        yield batch if order is None else batch.take(pa.array(order)), following


def row_group_steps(metadata: Any) -> list[tuple[int, str | None]] | None:
    """Runs of consecutive row groups in key order: the number of rows of each run, and a key that is not greater than
    any later row's. None if a run would be too large for memory, or the file does not have the ranges."""
    ranges = [r for r in key_ranges(metadata) if r is not None]
    count = metadata.num_row_groups
    if len(ranges) < count:
        return None
    # Python orders texts by code points, which is the order of their UTF-8 bytes
    greatest = list(accumulate((high for _, high in ranges), max))
    least = list(accumulate((low for low, _ in reversed(ranges)), min))[::-1]
    steps: list[tuple[int, str | None]] = []
    rows = size = 0
    for number in range(count):
        group = metadata.row_group(number)
        rows, size = rows + group.num_rows, size + group.total_byte_size
        if rows > _MAX_ROWS or size > _MAX_BYTES:
            return None
        following = least[number + 1] if number + 1 < count else None
        fits = following is None or greatest[number] <= following
        if fits and (following is None or rows + metadata.row_group(number + 1).num_rows > _STEP_ROWS):
            steps.append((rows, following))
            rows = size = 0
    return [step for step in steps if step[0]]


def sorted_in_full(batches: Iterator[pa.RecordBatch], spill: Spill) -> Iterator[Step]:
    """All rows in the order of their keys, as steps of a batch and the next step's first key (None for the last). They
    are buffered until the last row has arrived."""
    spill.extend(map(decoded, batches))
    table = spill.table(pa.schema([(RECORD_KEY, pa.string())]))
    if not table.num_rows:
        return
    keys = table.column(RECORD_KEY).combine_chunks()
    order = key_order(keys)
    order = np.arange(len(keys)) if order is None else order
    size = max(1, min(_STEP_ROWS, _MAX_BYTES * len(keys) // max(1, table.nbytes)))
    for start in range(0, len(order), size):
        following = keys[int(order[start + size])].as_py() if start + size < len(order) else None
        yield gather(table, order[start : start + size]), following


def _one_batch(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(parts).unify_dictionaries().combine_chunks().to_batches()[0]


def decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with dictionaries decoded: a spill file can have only one dictionary per column."""
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


# Row groups of fewer rows, and of a smaller share of a full one, are encoded again together with adjacent ones.
_SMALL_ROWS = 8_192
_SMALL_SHARE = 4


def put_file(
    writer: FileWriter,
    reader: SliceReader,
    format_: FileFormat,
    file_slice: FileSlice,
    fresh: FreshMeta | None = None,
) -> int:
    """Append the rows of a slice without log files to an open file (with `copies`), in their order and with their meta
    columns, except the file name. With `fresh` they are rows of its commit. Returns the number of rows.

    The new file's key range, bloom filter and key changes take them in. Of a copied row group only the columns that
    these need are decoded: none where only the key range is needed.
    """
    base = reader.base_file(file_slice)
    if base is None:
        return 0
    stored = StoredRows(reader, format_, file_slice, base)
    before = writer.rows
    with stored.groups(any_size=True) as source:
        if source is None:
            for batch in stored.rows(BATCH_ROWS):
                writer.write(of_commit(batch, fresh), new_keys=None)
            return writer.rows - before
        columns = _noted_columns(writer, stored)
        small = min(_SMALL_ROWS, stored.parquet.row_group_rows // _SMALL_SHARE)
        for number, group in enumerate(source.groups):
            if group.rows < small:
                rows = source.columns(number, source.footer.schema.names)
                writer.write(of_commit(rows, fresh), new_keys=None)
                continue
            if columns:
                _take_in(writer, source.columns(number, columns))
            commit = None if fresh is None else pa.RecordBatch.from_pydict(fresh.commit_columns(group.rows))
            writer.copy(source, number, commit)
    return writer.rows - before


def of_commit(rows: pa.RecordBatch, fresh: FreshMeta | None) -> pa.RecordBatch:
    """Stored rows as rows of the commit of `fresh`; unchanged if that is None."""
    if fresh is None:
        return rows
    columns = fresh.commit_columns(rows.num_rows)
    arrays = [columns.get(name, rows.column(name)) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def _noted_columns(writer: FileWriter, stored: StoredRows) -> list[str]:
    """The columns of copied rows that the new file's footer and key changes need."""
    if not writer.format.populate_meta:
        return []
    span = stored.footer.key_range
    if span is not None:
        writer.keys.add(pa.array(span))
    needed = [RECORD_KEY] if writer.bloom is not None or span is None else []
    if writer.changes is not None:
        known_names = frozenset(stored.footer.schema.names)
        needed += [name for name in writer.changes.columns if name in known_names]
    return list(dict.fromkeys(needed))


def _take_in(writer: FileWriter, rows: pa.RecordBatch) -> None:
    keys = rows.column(RECORD_KEY)
    writer.keys.add(keys)
    if writer.bloom is not None:
        writer.bloom.add(keys)
    if writer.changes is not None:
        writer.changes.added(rows)


# A row group of less than such a share of a full one is small: it does not stay by itself next to fresh rows.
_SMALL = 4
# The last row group takes new rows in while it has less than this share.
_ROOM_LEFT = 0.75


@dataclass(frozen=True)
class RowGroupCopies:
    """Copies row groups of a file to the end of an open file; `full_rows` is the number of rows of a full row group."""

    writer: FileWriter
    source: StoredGroups
    full_rows: int

    def take(self, number: int, following_rows: int) -> bool:
        """Copy a row group, unless its rows must be joined with others; returns whether it was copied. `following_rows`
        new rows come after it."""
        if to_be_joined(self.source.groups[number].rows, self.writer.loose_rows, following_rows, self.full_rows):
            return False
        self.writer.copy(self.source, number)
        return True


def to_be_joined(rows: int, loose: int, following_rows: int, full: int) -> bool:
    """Whether a row group of `rows` rows is written together with the `loose` rows before it, or with the
    `following_rows` after it."""
    small = full // _SMALL
    if loose and (loose < small or rows < small):
        return True
    return following_rows > 0 and rows < _ROOM_LEFT * full
