"""Writing base files whose row groups are in part those of other files, moved as bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakebed.format.parquet_encodings import ColumnForm
from lakebed.format.parquet_footer import footer_in, framed, parse_footer
from lakebed.format.parquet_writer import (
    INDEXED_PAGES,
    BaseFileWriter,
    ParquetSettings,
    in_types,
    small_dictionaries,
    with_dictionaries,
)
from lakebed.format.row_groups.chunks import Chunk, ChunkGroup, Page, PlacedChunk, chunk_groups, footer_of
from lakebed.format.row_groups.offset_index import offset_index_range, read_offset_index, write_offset_index
from lakebed.model import RECORD_KEY

if TYPE_CHECKING:
    from lakebed.format.column_ranges import ColumnRanges
    from lakebed.format.row_groups.stored import StoredGroups
    from lakebed.storage.base import Upload

_MAGIC = b"PAR1"
_STREAM_BYTES = 256 * 1024
# Row groups of fewer rows are encoded by one encoder, which takes less time for them.
_ASSEMBLED_ROWS = 16_384


@dataclass(slots=True)
class Traffic:
    """The parts that a file was made of: the number of row groups of which only constant columns were encoded, the
    bytes that were copied, and the bytes that were encoded."""

    copied_groups: int = 0
    copied_bytes: int = 0
    encoded_bytes: int = 0


class AssembledFile(BaseFileWriter):
    """A writer that writes one base file from stored row groups and new rows, in the order of the calls.

    `constants` are columns that hold one text in every row, whatever stored row groups hold there (None: null). Fresh
    rows make row groups of up to one and a half the rows of the settings, so that few small ones are left between
    stored ones.

    A column of new rows that has one value in all rows of a row group is encoded once for each number of rows. Record
    keys that equal the texts of the settings' `key_column` are encoded with it: its chunk is written twice.
    """

    def __init__(
        self,
        upload: Upload,
        schema: pa.Schema,
        settings: ParquetSettings | None = None,
        encodings: Mapping[str, ColumnForm] | None = None,
        ranges: ColumnRanges | None = None,
        constants: Mapping[str, pa.Scalar] | None = None,
    ) -> None:
        super().__init__(upload, schema, settings, encodings, ranges)
        self._constants = constants or {}
        self._leaves, self._flat = self._columns.leaf_counts, self._columns.flat
        self._encoders: dict[tuple[str, ...], _Encoder] = {}
        self._constant_columns: dict[tuple[str, str | None, int], _Encoded] = {}
        self._groups: list[tuple[int, list[_ChunkPlacement]]] = []
        self.traffic = Traffic()
        self._full_rows += self._settings.row_group_rows // 2
        self._begin()
        key = self._settings.key_column
        names = self._schema.names
        is_copied = key is not None and key in names and RECORD_KEY in names
        if is_copied and self._schema.field(key).with_name(RECORD_KEY).equals(self._schema.field(RECORD_KEY)):
            self._key_column = key
        else:
            self._key_column = None

    def _begin(self) -> None:
        self._sink.write(_MAGIC)

    @property
    def position(self) -> int:
        """The number of bytes written to the file so far."""
        return self._sink.position

    def copy(self, source: StoredGroups, number: int, fresh: pa.RecordBatch | None = None) -> None:
        """Write a stored row group, which has the columns of this file. The columns in `fresh` replace the stored
        columns of the same names."""
        if self._pending_rows:
            self._flush(self._pending_rows)
        group = source.groups[number]
        encoded, table = None, None if fresh is None else pa.Table.from_batches([fresh])
        if table is not None and self._ranges is not None:
            self._ranges.see(table)
        fresh_names = frozenset[str](() if table is None else table.schema.names)
        run = _Run(self, source, number)
        placements: list[_ChunkPlacement] = []
        at = 0
        for name, leaves in self._leaves.items():
            chunks, at = group.chunks[at : at + leaves], at + leaves
            if table is not None and name in fresh_names:
                run.end()
                encoded = encoded or self._encoded(table)
                placements += self._place(encoded, name)
            elif name in self._constants:
                run.end()
                placements += self._place(self._repeated(name, self._constants[name].as_py(), group.rows), name)
            else:
                placements += [run.add(chunk, is_flat=name in self._flat) for chunk in chunks]
        run.end()
        moved = [n for n in self._leaves if n not in self._constants and (encoded is None or n not in encoded.leaves)]
        self._see_moved(source, number, moved, fresh)
        self._groups.append((group.rows, placements))
        self._flushed_rows += group.rows
        self.traffic.copied_groups += fresh is None

    def _see_moved(self, source: StoredGroups, number: int, moved: Sequence[str], fresh: pa.RecordBatch | None) -> None:
        """Record the ranges of those moved columns of a stored row group whose statistics are incomplete, and the NaN
        in columns of `fresh`."""
        stored = source.footer.metadata.row_group(number)
        unseen: list[str] = []
        if self._ranges is not None:
            unseen = self._ranges.unseen(stored, moved, self._leaves, exact=source.has_exact_ranges)
        doubtful = [] if source.has_exact_ranges else self._nan.doubtful(stored, moved)
        columns = list(dict.fromkeys([*unseen, *doubtful]))
        parts = [pa.Table.from_batches([source.columns(number, columns)])] if columns else []
        if unseen and self._ranges is not None:
            self._ranges.see(parts[0].select(unseen))
        self._nan.add(*parts, *([] if fresh is None else [pa.Table.from_batches([fresh])]))

    def moved(self, data: memoryview) -> int:
        """Write bytes of other files, and return their position in this file."""
        self.traffic.copied_bytes += len(data)
        start = self._sink.position
        self._sink.write(data)
        return start

    def append(self, data: bytes | memoryview) -> None:
        self._sink.write(data)

    @property
    def _put_out(self) -> int:
        return self._sink.position

    def _put(self, group: pa.Table) -> None:
        if group.num_rows:
            self._nan.add(*([] if self._is_ordinary else [group]))
            self._groups.append((group.num_rows, self._placements(group)))

    def _placements(self, group: pa.Table) -> list[_ChunkPlacement]:
        """Write a row group of new rows; returns the locations of its chunks."""
        values: dict[str, str] = {}
        keys = None
        if group.num_rows >= _ASSEMBLED_ROWS:
            constants = ((f.name, _only_value(group[f.name])) for f in self._schema if pt.is_string(f.type))
            values = {name: value for name, value in constants if value is not None}
            if self._key_column is not None and group[RECORD_KEY].equals(group[self._key_column]):
                keys = self._encoded(group.select([self._key_column]), is_repeated=True)
        alone = {*values, *([] if keys is None else [RECORD_KEY, self._key_column])}
        others = dict.fromkeys(name for name in self._leaves if name not in alone)
        encoded = None
        placements: list[_ChunkPlacement] = []
        for name in self._leaves:
            if name in others:
                encoded = encoded or self._encoded(group.select(list(others)))
                placements += self._place(encoded, name)
            elif name in values:
                placements += self._place(self._repeated(name, values[name], group.num_rows), name)
            elif keys is not None:
                (column,) = (self._place(keys, key) for key in keys.leaves)
                placements += [placement._replace(name=name) for placement in column]
        if keys is not None:
            keys.parts = ()
        return placements

    def _encoded(self, table: pa.Table, *, is_repeated: bool = False) -> _Encoded:
        """Encode a row group of some columns. It is written to the file at once, as large as it may be, unless it
        `is_repeated`: then its bytes are kept, for each place of the file that has them.

        The first column of a row group is written first: Hadoop's readers, which read a file in parts, take a row group
        to begin there."""
        names = tuple(table.column_names)
        encoder = self._encoders.get(names)
        if encoder is None:
            encoder = self._encoders[names] = _Encoder(pa.schema([self._schema.field(n) for n in names]), self._leaves)
        start = self._sink.position
        encoded = encoder.encode(table, self._writer_options, None if is_repeated else self._put_encoded)
        encoded.put_at = None if is_repeated else start
        return encoded

    def _put_encoded(self, part: bytes) -> None:
        self._sink.write(part)
        self.traffic.encoded_bytes += len(part)

    def _repeated(self, name: str, value: str | None, rows: int) -> _Encoded:
        """A column that has one text in every row; encoded once for each number of rows and cached."""
        encoded = self._constant_columns.get((name, value, rows))
        if encoded is None:
            codes = pa.repeat(pa.scalar(0, pa.int32()), rows)
            column = pa.DictionaryArray.from_arrays(codes, pa.array([value], pa.string()))
            encoded = self._encoded(pa.table({name: column}), is_repeated=True)
            self._constant_columns[name, value, rows] = encoded
        return encoded

    def _place(self, encoded: _Encoded, name: str) -> list[_ChunkPlacement]:
        """The locations of an encoded column's leaves in the file. A repeated row group is written first."""
        start, is_flat = encoded.put_at, name in self._flat
        if start is None:
            start = self._sink.position
            for part in encoded.parts:
                self._put_encoded(part)
        return [_ChunkPlacement(None, start, encoded, leaf, is_flat=is_flat) for leaf in encoded.leaves[name]]

    def _resolved(self, placement: _ChunkPlacement) -> PlacedChunk:
        """The chunk with its location; if it has several pages whose rows are known, its offset index is written,
        too."""
        chunk, pages = placement.chunk, placement.pages
        start, by = placement.start, placement.start
        if placement.encoded is not None:
            encoder = placement.encoded.encoder
            chunk = encoder.groups[placement.encoded.number].chunks[placement.leaf]
            pages = encoder.pages(placement.encoded.number, placement.leaf) if placement.is_flat else ()
            by = start - placement.encoded.start
            start = chunk.start + by
        assert chunk is not None
        if placement.name is not None:
            chunk = chunk.renamed(placement.name)
        if len(pages) < INDEXED_PAGES:
            return PlacedChunk(chunk, start)
        index = write_offset_index(pages, by)
        at = self._sink.position
        self._sink.write(index)
        return PlacedChunk(chunk, start, (at, len(index)))

    def abort(self) -> None:
        """Stop writing and remove the file."""
        for encoder in self._encoders.values():
            encoder.drop()
        super().abort()

    def _finish(self, footer: Mapping[str, str]) -> None:
        for encoder in self._encoders.values():
            encoder.close()
        shell = pa.BufferOutputStream()
        empty = self._schema.empty_table()
        with pq.ParquetWriter(shell, self._written_names(self._schema), **self._writer_options(empty)) as to:
            to.add_key_value_metadata(footer)
        groups = [(rows, [self._resolved(placement) for placement in placements]) for rows, placements in self._groups]
        encoded_footer = self._nan.without_bounds(footer_of(footer_in(shell.getvalue().to_pybytes()), groups))
        if self._ranges is not None:
            self._metadata.append(parse_footer(encoded_footer, is_trusted=True))
        self._sink.write(framed(encoded_footer))


class NewFile(AssembledFile):
    """A writer of new rows alone. A file whose first row group is small is written by a single encoder, which takes
    less time for few rows."""

    def __init__(
        self,
        upload: Upload,
        schema: pa.Schema,
        settings: ParquetSettings | None = None,
        encodings: Mapping[str, ColumnForm] | None = None,
        ranges: ColumnRanges | None = None,
    ) -> None:
        self._is_assembled: bool | None = None
        super().__init__(upload, schema, settings, encodings, ranges)
        self._full_rows = self._settings.row_group_rows

    def append(self, data: bytes | memoryview) -> None:
        (AssembledFile if self._is_assembled else BaseFileWriter).append(self, data)

    def _begin(self) -> None:
        """Begin the file if its first row group is known to be large."""
        if self._is_assembled:
            super()._begin()

    @property
    def _put_out(self) -> int:
        return self._sink.position if self._is_assembled else self._buffered.tell()

    def _put(self, group: pa.Table) -> None:
        if self._is_assembled is None:
            self._is_assembled = group.num_rows >= _ASSEMBLED_ROWS
            self._begin()
        (AssembledFile if self._is_assembled else BaseFileWriter)._put(self, group)

    def _finish(self, footer: Mapping[str, str]) -> None:
        (AssembledFile if self._is_assembled else BaseFileWriter)._finish(self, footer)


@dataclass(slots=True)
class _Encoded:
    """An encoded row group of some columns: its position in the encoder's file, and its bytes, or the position of the
    assembled file at which they were written."""

    encoder: _Encoder
    number: int
    start: int
    parts: Sequence[bytes]
    leaves: Mapping[str, range]
    put_at: int | None = None


class _ChunkPlacement(NamedTuple):
    """A column chunk of the new file: either a moved chunk with its location and its data pages (empty if their rows
    are unknown), or a leaf of an encoded row group with its location; `is_flat` is true if each row has one value.
    `name` is the chunk's column if it is not the one that was encoded."""

    chunk: Chunk | None
    start: int
    encoded: _Encoded | None = None
    leaf: int = 0
    pages: Sequence[Page] = ()
    is_flat: bool = True
    name: str | None = None


def _only_value(column: pa.ChunkedArray) -> str | None:
    """The text that a dictionary column has in all rows; None if it has several texts, nulls or no dictionary."""
    if not pt.is_dictionary(column.type) or column.null_count:
        return None
    dictionaries = [chunk.dictionary for chunk in column.chunks]
    if any(len(dictionary) != 1 for dictionary in dictionaries):
        return None
    values = {dictionary[0].as_py() for dictionary in dictionaries}
    return values.pop() if len(values) == 1 else None


class _Run:
    """Consecutive column chunks of a stored row group, copied by one write."""

    def __init__(self, to: AssembledFile, source: StoredGroups, number: int) -> None:
        self._to, self._source, self._number = to, source, number
        self._chunks: list[Chunk] = []
        self._pages: list[list[Page] | None] = []
        self._next = to.position

    def add(self, chunk: Chunk, *, is_flat: bool) -> _ChunkPlacement:
        """The location that the chunk will have in the new file. Its pages are known at the end of the run, if each of
        its rows has one value."""
        last = self._chunks[-1] if self._chunks else None
        if last is not None and chunk.start != last.start + last.length:
            self.end()
        if not self._chunks:
            self._next = self._to.position
        self._chunks.append(chunk)
        pages: list[Page] = []
        self._pages.append(pages if is_flat else None)
        placement = _ChunkPlacement(chunk, self._next, pages=pages)
        self._next += chunk.length
        return placement

    def end(self) -> None:
        if self._chunks:
            data, pages_by_chunk = self._source.stored(self._number, self._chunks)
            for pages, chunk_pages in zip(self._pages, pages_by_chunk, strict=True):
                if pages is not None:
                    pages += chunk_pages
            self._to.moved(data)
            self._chunks, self._pages = [], []


class _Encoder:
    """Encodes row groups of the same columns one by one; their footer entries are available after `close`."""

    def __init__(self, schema: pa.Schema, leaves: Mapping[str, int]) -> None:
        self._schema = schema
        self._written_schema: pa.Schema | None = None
        self._sink = _Parts()
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._sink, "w"), _STREAM_BYTES)
        self._writer: pq.ParquetWriter | None = None
        self._count = 0
        self.leaves: dict[str, range] = {}
        at = 0
        for name in schema.names:
            self.leaves[name] = range(at, at + leaves[name])
            at += leaves[name]
        self.groups: Sequence[ChunkGroup] = ()
        self._end, self._end_bytes = 0, b""

    def encode(
        self,
        table: pa.Table,
        options: Callable[[pa.Table], dict[str, Any]],
        put: Callable[[bytes], object] | None,
    ) -> _Encoded:
        """Encode a row group. Each part of its bytes is given to `put` as soon as it is encoded; without `put` the
        parts are kept."""
        if self._written_schema is None:
            self._written_schema = with_dictionaries(self._schema, table.schema)
        table = in_types(table, self._written_schema)
        if self._writer is None:
            settings: dict[str, Any] = {**options(table), "metadata_collector": None}
            self._writer = pq.ParquetWriter(self._stream, table.schema, **settings)
            self._taken()
        start = self._stream.tell()
        self._sink.put = put
        self._writer.write_table(small_dictionaries(table), row_group_size=table.num_rows)
        encoded = _Encoded(self, self._count, start, self._taken(), self.leaves)
        self._sink.put = None
        self._count += 1
        return encoded

    def close(self) -> None:
        assert self._writer is not None
        self._end = self._stream.tell()
        self._writer.close()
        self._end_bytes = b"".join(self._taken())
        groups = chunk_groups(footer_in(self._end_bytes), self._end)
        assert groups is not None
        self.groups = groups
        self.drop()

    def pages(self, number: int, leaf: int) -> Sequence[Page]:
        """The data pages of a chunk, by their positions in the encoded bytes; empty if they have no index."""
        group = self.groups[number]
        chunk = group.chunks[leaf]
        index_range = offset_index_range(chunk.entry)
        if index_range is None:
            return ()
        data = self._end_bytes[index_range[0] - self._end :][: index_range[1]]
        return read_offset_index(data, chunk.start, chunk.start + chunk.length, group.rows).pages()

    def drop(self) -> None:
        """Release the encoder's memory in Arrow."""
        self._writer = None
        self._stream.close()

    def _taken(self) -> list[bytes]:
        """The bytes that the encoder wrote since the last call."""
        self._stream.flush()
        parts, self._sink.parts = self._sink.parts, []
        return parts


class _Parts:
    """A file object that buffers the written bytes in memory, or passes them on to `put`."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.put: Callable[[bytes], object] | None = None
        self._position = 0

    def write(self, data: Any) -> int:
        part = bytes(data)
        if self.put is None:
            self.parts.append(part)
        else:
            self.put(part)
        self._position += len(part)
        return len(part)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Do nothing: this object buffers nothing."""

    def close(self) -> None:
        """Do nothing: there is no resource to close."""

    def writable(self) -> bool:
        return True
