"""Rows of a base file that go into another one, decoded or as bytes."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from lakebed.format.base_file import Footer, ParquetSettings, read_footer
from lakebed.format.bloom import BloomFilter
from lakebed.format.key_order import KeyRange
from lakebed.format.parquet_encodings import DICTIONARY, encodings_of
from lakebed.format.row_groups.stored import StoredGroups, has_columns, open_groups
from lakebed.handles.file_writer import FileFormat
from lakebed.model import COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY, BaseFile, FileSlice
from lakebed.schema.evolution import project
from lakebed.slices.reader import SliceReader
from lakebed.storage.parallel import once

# Meta columns with few different values: read and written as dictionaries, as are those the old file stores so.
_DICTIONARY_META = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
# Rows that are read at a time only to see whether anything changes: the first of them mostly tell.
_PROBED_ROWS = 16_384
# Fewer rows in a single row group are encoded anew as fast as looked at more closely.
_WORTH_COPYING = 16_384


def texts_with_dictionary(schema: pa.Schema, encodings: Mapping[str, str]) -> list[str]:
    """The columns of text that a file has as dictionaries, by its encodings; none of the meta columns: record keys are
    read as plain text."""
    texts = {f.name for f in schema if pa.types.is_string(f.type) and f.name not in META_COLUMNS}
    return [name for name, how in encodings.items() if how == DICTIONARY and name in texts]


@dataclass(frozen=True)
class StoredRows:
    """The rows of a slice that has the base file `base`; `format` is that of the files that they go to. Log files are
    merged."""

    reader: SliceReader
    format: FileFormat
    file_slice: FileSlice
    base: BaseFile

    @property
    def is_merged(self) -> bool:
        """Whether log files change the rows of the base file, so that its footer does not tell of them."""
        return self.reader.is_merged(self.file_slice)

    @once
    def footer(self) -> Footer:
        return read_footer(self.reader.storage, self.base.path, self.base.size, encoded=True)

    @once
    def encodings(self) -> Mapping[str, str]:
        """How the columns are encoded, which is kept."""
        return encodings_of(self.footer.metadata)

    def keys_and(self, others: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Record keys and some other columns, by few rows."""
        columns = [RECORD_KEY, *others]
        return self.reader.read(self.file_slice, columns, batch_rows=_PROBED_ROWS, footer=self.footer)

    @once
    def parquet(self) -> ParquetSettings:
        """How the next file is written."""
        return self.format.parquet()

    @once
    def dictionaries(self) -> Sequence[str]:
        """Texts that come as dictionaries."""
        return *_DICTIONARY_META, *texts_with_dictionary(self.format.schema, self.encodings)

    def known_keys(self) -> tuple[BloomFilter | None, KeyRange]:
        """Bloom filter and key range of the rows, to which only new keys are added.

        A filter is carried on only where one is to be written; where the file has none that can be used, or log files
        bring keys of their own, all keys are added anew.
        """
        if self.footer.key_range is not None and not self.is_merged:
            keys = KeyRange(*self.footer.key_range)
            if not self.format.settings.bloom_filter:
                return None, keys
            bloom = self.footer.bloom(self.format.settings.bloom_max_entries)
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
        """The row groups, where they can be copied into a file of today's columns and settings, and are many enough for
        a merge (`any_size`: however few)."""
        footer = self.footer
        many = any_size or footer.row_groups > 1 or footer.rows >= _WORTH_COPYING
        copies = many and self.format.settings.copy_row_groups and not self.is_merged
        if not copies or not has_columns(footer, self.format.schema):
            yield None
            return
        place = self.base.path, self.base.size
        with open_groups(self.reader.storage, *place, footer, self.parquet.codec, self.dictionaries) as groups:
            yield groups

    def rows(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Whole rows in the table's columns and types of today, dictionaries kept; meta columns as they are."""
        schema = pa.schema([f for f in self.format.schema if f.name not in META_COLUMNS])
        for batch in self.reader.read(
            self.file_slice, batch_rows=batch_rows, dictionary=self.dictionaries, footer=self.footer
        ):
            kinds = {f.name: f.type for f in batch.schema if pa.types.is_dictionary(f.type)}
            data = project(batch, pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in schema]))
            meta = [batch.column(name) for name in META_COLUMNS]
            yield pa.RecordBatch.from_arrays([*meta, *data.columns], names=[*META_COLUMNS, *data.schema.names])
