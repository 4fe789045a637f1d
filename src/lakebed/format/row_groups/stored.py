"""The row groups of a base file, open to be decoded in part and copied as bytes.

A file is read once, from its first row group to its last: each byte is read once, in large ranges, whether its
column is decoded, copied or both.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.format.base_file import Footer, check_rows, naming_damage
from lakebed.format.parquet_encodings import as_dictionaries
from lakebed.format.parquet_writer import written_schema
from lakebed.format.row_addresses import Fingerprints, RowAddresses, fingerprints
from lakebed.format.row_groups.chunks import CODECS, Chunk, ChunkGroup, Page, check_pages, chunk_groups
from lakebed.format.row_groups.nan_chunks import leaves_out_bounds
from lakebed.model import RECORD_KEY
from lakebed.schema.logical_types import file_type
from lakebed.sharing import once

if TYPE_CHECKING:
    from lakebed.storage.base import Storage

# Row groups are read together up to so many bytes.
_READ_BYTES = 8 << 20
# A row group that takes more than these is decoded by batches, as a stream.
_MAX_ROWS = 1 << 18
_MAX_INFLATED = 192 << 20
_MAX_STORED = 128 << 20
_TAIL = 8
# All that a leaf's entry in a footer says of its values: ids of columns may differ.
_LEAF_PARTS = (
    "path",
    "max_definition_level",
    "max_repetition_level",
    "physical_type",
    "logical_type",
    "converted_type",
    "length",
    "precision",
    "scale",
)
# Writers whose statistics are right: readers disregard those of older ones by the file's writer, which changes here.
_TRUSTED = ("parquet-cpp-arrow version ", "parquet-mr version 1.1")


class StoredGroups:
    """The row groups of an open base file (made by `open_groups`). Numbers are those of row groups."""

    def __init__(
        self, path: str, source: pa.NativeFile, footer: Footer, groups: Sequence[ChunkGroup], dictionary: Sequence[str]
    ) -> None:
        self.path = path
        self.footer = footer
        self.groups = groups
        self.has_exact_ranges = leaves_out_bounds(path, footer.metadata.created_by)
        """Whether a chunk that holds NaN has no min and max."""
        self._source = source
        self._buffer = pa.py_buffer(b"")
        self._held_from = 0
        coded = [f.name for f in footer.schema if f.name in dictionary and pa.types.is_string(f.type)]
        self._coded = frozenset(coded)
        options: dict[str, Any] = {
            "metadata": footer.metadata,
            "read_dictionary": as_dictionaries(footer.metadata, coded) or None,
            "pre_buffer": False,
            "coerce_int96_timestamp_unit": "us",
            "page_checksum_verification": True,
        }
        self._parquet = pq.ParquetFile(pa.PythonFile(_View(self), mode="r"), **options)

    def columns(
        self, number: int, names: Sequence[str], *, ahead: bool = True, stop: int | None = None
    ) -> pa.RecordBatch:
        """The columns `names` of a row group, or of all row groups from `number` up to `stop`. With `ahead` the bytes
        of the other columns are read as well, because they will be needed."""
        numbers = range(number, number + 1 if stop is None else stop)
        with naming_damage(self.path):
            if ahead or self.groups[-1].end <= _READ_BYTES:
                self._hold(number)
            table = self._parquet.read_row_groups(numbers, columns=list(names), use_threads=False)
            check_rows(self.path, table.num_rows, sum(self.groups[n].rows for n in numbers))
            columns = [_one_chunk(_coded(table[name]) if name in self._coded else table[name]) for name in names]
            return pa.RecordBatch.from_arrays(columns, names=list(names))

    def buffered_until(self, number: int, *, ahead: bool = True) -> int:
        """The number of the row group after those that are read together with this one. `ahead` is as in `columns`."""
        if not ahead and self.groups[-1].end > _READ_BYTES:
            return number + 1
        with naming_damage(self.path):
            self._hold(number)
        end = self._held_from + self._buffer.size
        return next((n for n in range(number + 1, len(self.groups)) if self.groups[n].end > end), len(self.groups))

    def fingerprints(self, number: int) -> tuple[Fingerprints, int | None]:
        """The fingerprints of the record keys of a row group, from the file's row addresses if it has them, and how
        many of their bits are known (None: all)."""
        stored = self._fingerprints
        if stored is None:
            with naming_damage(self.path):
                return fingerprints(self.columns(number, [RECORD_KEY]).column(0)), None
        values, bits = stored
        start = sum(group.rows for group in self.groups[:number])
        return values[start : start + self.groups[number].rows], bits

    @once
    def _fingerprints(self) -> tuple[Fingerprints, int] | None:
        footer, size = self.footer, self._source.size()
        addresses = RowAddresses.of(footer.key_values, self.path, footer.rows, size)
        if addresses is None:
            return None
        with naming_damage(self.path):
            stored = addresses.read(lambda ranges: [memoryview(self._fetch(*byte_range)) for byte_range in ranges])
            return None if stored is None else (stored.all(), stored.bits)

    def stored(self, number: int, chunks: Sequence[Chunk]) -> tuple[memoryview, list[list[Page]]]:
        """The unchanged bytes of consecutive chunks of a row group, and the data pages of each chunk with their
        positions in it. Raises `CorruptFile` if a page does not match its checksum, if it has one."""
        with naming_damage(self.path):
            self._hold(number)
            start = chunks[0].start
            data = self.read(start, chunks[-1].start + chunks[-1].length - start)
            pages = [check_pages(data[chunk.start - start :][: chunk.length], chunk.values) for chunk in chunks]
            return data, pages

    def read(self, start: int, length: int) -> memoryview:
        """The bytes at `start` of the file, from the buffer if it has them."""
        at = start - self._held_from
        if at >= 0 and at + length <= self._buffer.size:
            return memoryview(self._buffer)[at : at + length]
        return memoryview(self._fetch(start, length))

    def _hold(self, number: int) -> None:
        group = self.groups[number]
        start, end = group.start, group.end
        if start >= self._held_from and end <= self._held_from + self._buffer.size:
            return
        for next_group in self.groups[number + 1 :]:
            if next_group.start < end or next_group.end - start > _READ_BYTES:
                break
            end = next_group.end
        self._buffer = pa.py_buffer(b"")
        self._buffer, self._held_from = self._fetch(start, end - start), start

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        self._source.seek(start)
        data = self._source.read_buffer(length)
        if data.size != length:
            raise ValueError(f"{length} bytes at {start} are not there, it ends after {data.size} of them")
        return data


@contextmanager
def open_groups(
    storage: Storage, path: str, size: int, footer: Footer, codecs: Collection[str], dictionary: Sequence[str] = ()
) -> Generator[StoredGroups | None]:
    """The row groups of a base file. None if they cannot be copied into a file of these codecs
    (`ParquetSettings.codecs`), or are too large for memory. `dictionary` are text columns that are read as
    dictionaries; `footer` has its bytes."""
    groups = None
    if footer.encoded and footer.metadata.created_by.startswith(_TRUSTED):
        with naming_damage(path):
            groups = chunk_groups(footer.encoded, size - len(footer.encoded) - _TAIL)
    allowed = frozenset(codecs)
    if not groups or not codecs_of(groups, _fixed_leaves(footer)) <= allowed or any(_too_large(g) for g in groups):
        yield None
        return
    with naming_damage(path):
        source = storage.open_input(path, size)
    with source:
        with naming_damage(path):
            stored_groups = StoredGroups(path, source, footer, groups, dictionary)
        yield stored_groups


def has_columns(footer: Footer, schema: pa.Schema) -> bool:
    """Whether a file has exactly the columns of a schema, in the form in which files are written today."""
    expected = pa.schema([pa.field(f.name, file_type(f.type), f.nullable) for f in schema])
    if not footer.schema.equals(expected):
        return False
    stored, written = footer.metadata.schema, written_schema(expected)
    columns = [(stored.column(at), written.column(at)) for at in range(len(written))]
    return len(stored) == len(written) and all(
        all(str(getattr(stored_leaf, part)) == str(getattr(written_leaf, part)) for part in _LEAF_PARTS)
        for stored_leaf, written_leaf in columns
    )


def _fixed_leaves(footer: Footer) -> frozenset[int]:
    """The numbers of the leaves whose values have a fixed length and no further meaning: vectors, which are not
    compressed."""
    schema = footer.metadata.schema
    columns = ((at, schema.column(at)) for at in range(len(schema)))
    return frozenset(
        at for at, c in columns if c.physical_type == "FIXED_LEN_BYTE_ARRAY" and c.logical_type.type == "NONE"
    )


def codecs_of(groups: Sequence[ChunkGroup], other_leaves: Collection[int] = ()) -> frozenset[str]:
    """The codecs of all chunks except those of `other_leaves`, in the spelling of `ParquetSettings.codec`; an empty
    text for one that is not in `CODECS`."""
    names = {number: name for name, number in CODECS.items()}
    chunks = (chunk for group in groups for at, chunk in enumerate(group.chunks) if at not in other_leaves)
    return frozenset(names.get(chunk.codec, "") for chunk in chunks)


def _too_large(group: ChunkGroup) -> bool:
    stored = group.end - group.start
    return group.rows > _MAX_ROWS or group.inflated > _MAX_INFLATED or stored > _MAX_STORED


def _coded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A text column as a dictionary array, also if Arrow's reader cannot return it as one."""
    return column if pa.types.is_dictionary(column.type) else column.cast(pa.dictionary(pa.int32(), column.type))


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks()


class _View(io.RawIOBase):
    """A file object for Arrow's reader that serves the buffered bytes."""

    def __init__(self, groups: StoredGroups) -> None:
        super().__init__()
        self._groups = groups
        self._size = groups.groups[-1].end if groups.groups else 0
        self._at = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> Any:
        left = max(0, self._size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = self._groups.read(self._at, length)
        self._at += length
        return data
