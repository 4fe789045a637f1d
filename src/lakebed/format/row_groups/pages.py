"""Rows of a Parquet file by its pages: where the offset index shows which pages hold them, nothing else is read.

Wide values of one length, as vectors, are read one by one from pages without a codec; the checksum of a page is not
looked at then, since it is that of all its values. Other values are picked from plain pages. Of all other pages a small
Parquet file is assembled in memory, and decoded: a page is taken as it is, with any codec, encoding and version. Its
column's dictionary page comes with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.format.bounded_cache import BoundedCache
from lakebed.format.parquet_footer import TAIL, framed
from lakebed.format.row_groups.chunks import (
    I32,
    I64,
    LIST,
    STRUCT,
    Chunk,
    Field,
    chunk_groups,
    head,
    integer,
    number_in,
    page_values,
    read_list,
    read_struct,
    skip,
    write_list,
    write_struct,
)
from lakebed.format.row_groups.offset_index import OffsetIndex
from lakebed.format.varints import read_varint, varint, zigzag
from lakebed.schema.arrow import plain_type
from lakebed.sharing import once
from lakebed.storage.base import Storage

if TYPE_CHECKING:
    from lakebed.format.row_groups.plain_pages import PlainColumn

Rows = npt.NDArray[np.int64]

_MAGIC: Final = b"PAR1"
_INDEX_BYTES: Final = 64 << 20
# Pages of several row groups are read together up to so many bytes.
_READ_BYTES: Final = 8 << 20
# Reading a value alone takes as long as so many bytes of a page that is read.
_BYTES_A_VALUE: Final = 1 << 14
# Fields by their numbers in parquet.thrift: of the footer,
_VERSION, _SCHEMA, _NUM_ROWS, _ROW_GROUPS, _CREATED_BY = 1, 2, 3, 4, 6
# of a column of the schema,
_REPETITION, _NAME, _CHILDREN = 3, 4, 5
_REPEATED: Final = 2
# of a row group; and the last one of a chunk's entry that is taken as it is.
_COLUMNS, _TOTAL_BYTES, _GROUP_ROWS = 1, 2, 3
_LAST_TAKEN: Final = 4
# How fields of an assembled chunk begin: a byte has the step from the field before, and the type.
_FILE_OFFSET_HEAD, _META_DATA_HEAD = bytes((2 << 4 | I64,)), bytes((1 << 4 | STRUCT,))
_VALUES_HEAD = _INFLATED_HEAD = _STORED_HEAD = bytes((1 << 4 | I64,))
_DATA_PAGE_HEAD = _DICTIONARY_PAGE_HEAD = bytes((2 << 4 | I64,))
_ENDS = b"\0\0"


@dataclass(frozen=True, slots=True)
class _Column:
    """A top-level column: its schema elements, the numbers of its leaves, and whether a row can have several values."""

    elements: Sequence[bytes]
    leaves: range
    is_repeated: bool


@dataclass(frozen=True)
class _ChunkEntry:
    """A column chunk: its start and end, its codec's number, its metadata, and the range of its offset index (None: it
    has no index)."""

    start: int
    end: int
    codec: int
    meta: bytes
    index_range: tuple[int, int] | None

    @once
    def kind(self) -> bytes:
        """The beginning of the chunk's metadata: type, encodings, path and codec. Raises `ValueError` if it begins with
        other fields."""
        at = number = 0
        for expected in range(1, _LAST_TAKEN + 1):
            number, kind, at = head(self.meta, at, number)
            if number != expected:
                raise ValueError(f"field {number} of a column chunk's metadata stands where {expected} is expected")
            at = skip(self.meta, at, kind, 0)
        return self.meta[:at]


@dataclass(frozen=True)
class PagedFile:
    """The pages of a Parquet file as its footer describes them. Numbers are those of row groups."""

    root: Sequence[Field]
    head: Sequence[Field]
    columns: Mapping[str, _Column]
    coded: frozenset[str]
    plain: Mapping[str, PlainColumn]
    groups: Sequence[tuple[int, Sequence[_ChunkEntry]]]
    before: memoryview
    before_from: int
    not_plain: set[str]
    """Columns of `plain` of which a page was read that is not."""
    placed_pages: set[int]
    """The positions of pages whose values can be read one by one."""
    not_placed: set[str]
    """Columns with a page whose values cannot."""

    @classmethod
    def of(cls, footer: bytes, before: bytes, size: int, metadata: Any) -> PagedFile | None:
        """The pages of a file, from the bytes of its footer, the bytes before it, the file's size, and Parquet's view
        of the footer. None if the pages cannot be read one by one. Raises `ValueError` if the footer contradicts
        itself."""
        from lakebed.format.parquet_encodings import ARROW_SCHEMA, coded_texts
        from lakebed.format.row_groups.plain_pages import PlainColumn

        if not metadata.num_row_groups or ARROW_SCHEMA in (metadata.metadata or {}):
            return None
        if not any(metadata.row_group(0).column(n).has_offset_index for n in range(metadata.num_columns)):
            return None
        end = size - len(footer) - TAIL
        groups = chunk_groups(footer, end)
        if not groups:
            return None
        fields, _ = read_struct(footer)
        _, elements = read_list(next(field.value for field in fields if field.number == _SCHEMA))
        root, _ = read_struct(elements[0])
        columns = _columns(elements)
        if columns is None:
            return None
        head = [field for field in fields if field.number in (_VERSION, _CREATED_BY)]
        group_entries = [(group.rows, [_chunk_entry(chunk) for chunk in group.chunks]) for group in groups]
        coded = frozenset(coded_texts(metadata))
        types = {field.name: field.type for field in metadata.schema.to_arrow_schema()}
        flat = ((name, PlainColumn.of(column.elements[0], types[name])) for name, column in columns.items())
        plain = {name: column for name, column in flat if column is not None}
        return cls(
            root, head, columns, coded, plain, group_entries, memoryview(before), end - len(before), set(), set(), set()
        )

    def indexed(self, columns: Sequence[str], groups: Sequence[int]) -> list[str]:
        """The columns that have an offset index in each of these row groups, without lists and maps: a page of these
        may start within a row, whatever the index states (Arrow writes such pages)."""
        return [
            name
            for name in columns
            if name in self.columns
            and not self.columns[name].is_repeated
            and all(self.groups[n][1][leaf].index_range for n in groups for leaf in self.columns[name].leaves)
        ]


def _chunk_entry(chunk: Chunk) -> _ChunkEntry:
    from lakebed.format.row_groups.offset_index import offset_index_range

    end, index_range = chunk.start + chunk.length, offset_index_range(chunk.entry)
    return _ChunkEntry(chunk.start, end, chunk.codec, chunk.meta.data, index_range)


def _columns(elements: Sequence[bytes]) -> dict[str, _Column] | None:
    """The top-level columns by name; None if two columns have one name."""
    columns: dict[str, _Column] = {}
    at, leaf = 1, 0
    while at < len(elements):
        start, first, left, repeated, name = at, leaf, 1, False, ""
        while left:
            if at >= len(elements):
                raise ValueError("its schema is cut off")
            fields = {field.number: field for field in read_struct(elements[at])[0]}
            children = number_in(fields[_CHILDREN].value) if _CHILDREN in fields else 0
            repeated |= _REPETITION in fields and number_in(fields[_REPETITION].value) == _REPEATED
            if at == start:
                length, text_at = read_varint(fields[_NAME].value, 0)
                name = fields[_NAME].value[text_at : text_at + length].decode()
            leaf += not children
            left += children - 1
            at += 1
        if name in columns:
            return None
        columns[name] = _Column(elements[start:at], range(first, leaf), repeated)
    return columns


INDEXES = BoundedCache[OffsetIndex](_INDEX_BYTES)
"""By a file's URL and size, the number of the row group and that of the leaf."""


@dataclass(frozen=True)
class PageReader:
    """A reader of rows of one file by its pages."""

    storage: Storage
    path: str
    size: int
    file: PagedFile

    def indexes(self, groups: Sequence[int], columns: Sequence[str]) -> dict[tuple[int, int], OffsetIndex]:
        """The offset indexes of columns in row groups, by the row group's and the leaf's number; one request reads all
        that are not cached. Raises `ValueError` for an index that does not fit its chunk."""
        from lakebed.format.row_groups.offset_index import read_offset_index

        file_key = self.storage.url(self.path), self.size
        leaves = [leaf for name in columns for leaf in self.file.columns[name].leaves]
        keys = [(group, leaf) for group in groups for leaf in leaves]
        indexes = {key: INDEXES.get((*file_key, *key)) for key in keys}
        missing = [key for key, index in indexes.items() if index is None]
        if missing:
            chunks = [self.file.groups[group][1][leaf] for group, leaf in missing]
            ranges = [chunk.index_range or (0, 0) for chunk in chunks]
            first = min(start for start, _ in ranges)
            last = max(start + length for start, length in ranges)
            if self.file.before_from <= first and last <= self.file.before_from + len(self.file.before):
                at = self.file.before_from
                parts = [bytes(self.file.before[start - at : start - at + length]) for start, length in ranges]
            elif last - first <= _READ_BYTES:
                index_bytes = self.storage.read_ranges(self.path, [(first, last - first)])[0]
                parts = [index_bytes[start - first : start - first + length] for start, length in ranges]
            else:
                parts = self.storage.read_ranges(self.path, ranges)
            for key, chunk, data in zip(missing, chunks, parts, strict=True):
                rows = self.file.groups[key[0]][0]
                indexes[key] = index = read_offset_index(data, chunk.start, chunk.end, rows)
                INDEXES.put((*file_key, *key), index)
        return {key: index for key, index in indexes.items() if index is not None}

    def readable(self, groups: Sequence[int], columns: Sequence[str]) -> list[str]:
        """The columns that can be read by pages in these row groups: each has an index, and the pages of all its leaves
        have the same rows."""
        columns = self.file.indexed(columns, groups)
        indexes = self.indexes(groups, columns)
        return [
            name
            for name in columns
            if all(
                np.array_equal(indexes[group, leaf].first_rows, indexes[group, leaves[0]].first_rows)
                for leaves in (self.file.columns[name].leaves,)
                for group in groups
                for leaf in leaves[1:]
            )
        ]

    def plain(self, groups: Sequence[int], columns: Sequence[str]) -> list[str]:
        """The names of the `readable` columns whose values can be picked from the pages of these row groups without
        decoding a page. A column for which this is unknown is left out."""
        from lakebed.format.row_groups.plain_pages import PLAIN_CODECS

        indexes = self.indexes(groups, columns)
        return [
            name
            for name in columns
            if name in self.file.plain
            and name not in self.file.not_plain
            and all(
                self.file.groups[group][1][leaf].codec in PLAIN_CODECS
                and self.file.groups[group][1][leaf].start == indexes[group, leaf].starts[0]
                for group in groups
                for leaf in self.file.columns[name].leaves
            )
        ]

    def placed(self, rows: Mapping[int, Rows], columns: Sequence[str]) -> list[str]:
        """The names of the `readable` columns of which these rows (of each row group) are read one by one, without
        their pages: the values are wide and of one length, and reading the pages takes longer."""
        from lakebed.format.row_groups.plain_pages import NO_CODEC, PLACED_BYTES

        names: list[str] = []
        for name in columns:
            column = self.file.plain.get(name)
            if column is None or column.width < PLACED_BYTES or name in self.file.not_placed:
                continue
            (leaf,) = self.file.columns[name].leaves
            indexes = self.indexes(list(rows), [name])
            read = sum(map(len, rows.values())) * _BYTES_A_VALUE
            pages = ((indexes[group, leaf], len(of_group)) for group, of_group in rows.items())
            of_pages = sum(min(count, len(index.sizes)) * index.largest for index, count in pages)
            if read < of_pages and all(self.file.groups[group][1][leaf].codec == NO_CODEC for group in rows):
                names.append(name)
        return names

    def share(self, rows: Mapping[int, Rows], columns: Sequence[str]) -> float:
        """The part of the pages of these columns, which are `readable`, that holds rows (of each row group): by their
        bytes where columns have different numbers of pages, as of wide values."""
        pages = selected = 0
        for group, group_rows in rows.items():
            indexes = list(self.indexes([group], columns).values())
            if len({len(index.sizes) for index in indexes}) == 1:
                pages += len(indexes[0].sizes)
                selected += len(_pages_of(indexes[0], group_rows))
                continue
            sizes = [np.array(index.sizes) for index in indexes]
            all_bytes = sum(int(of_pages.sum()) for of_pages in sizes)
            read = sum(int(s[_pages_of(i, group_rows)].sum()) for s, i in zip(sizes, indexes, strict=True))
            number = max(len(index.sizes) for index in indexes)
            pages += number
            selected += number * read / max(1, all_bytes)
        return selected / max(1, pages)

    def take(self, rows: Mapping[int, Rows], columns: Sequence[str]) -> Iterator[tuple[Sequence[int], pa.Table]]:
        """Yields the requested rows (per row group, ascending numbers in it) in these `readable` columns, as pairs of
        row groups and a table of their rows in ascending order. Raises `ValueError` and Arrow's errors for broken
        pages."""
        indexes = self.indexes(list(rows), columns)
        placed = self.placed(rows, columns)
        of_pages = [leaf for name in columns if name not in placed for leaf in self.file.columns[name].leaves]
        part: dict[int, Rows] = {}
        size = 0
        for group, group_rows in rows.items():
            part[group] = group_rows
            size += sum(len(group_rows) * self.file.plain[name].width for name in placed)
            for leaf in of_pages:
                index = indexes[group, leaf]
                size += min(len(group_rows), len(index.sizes)) * index.largest
            if size >= _READ_BYTES:
                yield list(part), self._take(part, columns, indexes, placed)
                part, size = {}, 0
        if part:
            yield list(part), self._take(part, columns, indexes, placed)

    def _take(
        self,
        rows: Mapping[int, Rows],
        columns: Sequence[str],
        indexes: Mapping[tuple[int, int], OffsetIndex],
        placed_columns: Sequence[str],
    ) -> pa.Table:
        placed = {name: _PlacedValues(self.file, name, rows, indexes) for name in placed_columns}
        of_pages = [name for name in columns if name not in placed]
        plain = self.plain(list(rows), of_pages)
        files: dict[tuple[bytes, ...], _SmallFile] = {}
        for name in of_pages:
            column = self.file.columns[name]
            layout = tuple(indexes[group, column.leaves[0]].first_rows.tobytes() for group in rows)
            if layout not in files:
                files[layout] = _SmallFile(self.file, {g: indexes[g, column.leaves[0]] for g in rows}, rows)
            files[layout].add(name, column, indexes)
        ranges = [byte_range for part in (*files.values(), *placed.values()) for byte_range in part.ranges]
        parts = iter(self.storage.read_ranges(self.path, ranges))
        arrays: dict[str, pa.ChunkedArray | pa.Array] = {}
        for file in files.values():
            table = file.rows([next(parts) for _ in file.ranges], plain)
            arrays |= dict(zip(table.column_names, table.columns, strict=True))
        for name, of_column in placed.items():
            values = of_column.values([next(parts) for _ in of_column.ranges])
            if values is None:
                self.file.not_placed.add(name)
                values = self._take(rows, [name], indexes, ())[name]
            arrays[name] = values
        return pa.table({name: arrays[name] for name in columns})


def _pages_of(index: OffsetIndex, rows: Rows) -> Rows:
    """The numbers of the pages that hold these rows, each once."""
    return np.unique(np.searchsorted(index.first_rows, rows, "right") - 1)


class _PlacedValues:
    """The values of some rows of a column, which are read one by one. The head of each page is read once, to see that
    it has a value for each row."""

    def __init__(
        self, file: PagedFile, name: str, rows: Mapping[int, Rows], indexes: Mapping[tuple[int, int], OffsetIndex]
    ) -> None:
        from lakebed.format.row_groups.plain_pages import HEAD_BYTES

        self._placed_pages, self._column = file.placed_pages, file.plain[name]
        # of pages that were not read before: position, size, rows
        self._new_pages: list[tuple[int, int, int]] = []
        values: list[tuple[int, int]] = []
        (leaf,), width = file.columns[name].leaves, self._column.width
        for group, of_group in rows.items():
            index = indexes[group, leaf]
            first_rows = np.append(index.first_rows, file.groups[group][0])
            pages = np.searchsorted(index.first_rows, of_group, "right") - 1
            for page in np.unique(pages).tolist():
                if index.starts[page] not in self._placed_pages:
                    count = int(first_rows[page + 1] - first_rows[page])
                    self._new_pages.append((index.starts[page], index.sizes[page], count))
            page_ends = np.array(index.starts)[pages] + np.array(index.sizes)[pages]
            starts = page_ends - (first_rows[pages + 1] - of_group) * width
            values += [(start, width) for start in starts.tolist()]
        self.ranges = [*((at, min(size, HEAD_BYTES)) for at, size, _ in self._new_pages), *values]
        """The parts of the stored file that are read: offsets and lengths."""

    def values(self, parts: Sequence[bytes]) -> pa.Array | None:
        """The values, from the bytes of `ranges`; None if a page has nulls, or is not plain."""
        from lakebed.format.row_groups.plain_pages import is_plain_page

        heads = len(self._new_pages)
        for (at, size, rows), head_bytes in zip(self._new_pages, parts[:heads], strict=True):
            if not is_plain_page(bytes(head_bytes), size, rows, self._column):
                return None
            self._placed_pages.add(at)
        values = pa.py_buffer(b"".join(parts[heads:]))
        return pa.Array.from_buffers(self._column.type, len(parts) - heads, [None, values])


class _Selected(NamedTuple):
    """The selected pages of a row group by number, the number of rows of each and of all together, and the positions of
    the requested rows among these."""

    pages: list[int]
    page_rows: list[int]
    rows: int
    positions: Rows


def _selected(index: OffsetIndex, rows: Rows, group_rows: int) -> _Selected:
    page_of = np.searchsorted(index.first_rows, rows, "right") - 1
    pages, inverse = np.unique(page_of, return_inverse=True)
    ends = np.append(index.first_rows[1:], group_rows)
    page_rows = ends[pages] - index.first_rows[pages]
    before = np.cumsum(page_rows) - page_rows
    positions = rows - index.first_rows[page_of] + before[inverse]
    return _Selected(pages.tolist(), page_rows.tolist(), int(page_rows.sum()), positions)


class _SmallFile:
    """A Parquet file in memory with the selected pages of some columns, which have the same rows: one row group for
    each row group of the stored file."""

    def __init__(self, file: PagedFile, layout: Mapping[int, OffsetIndex], rows: Mapping[int, Rows]) -> None:
        self._file = file
        self._selected = {g: _selected(index, rows[g], file.groups[g][0]) for g, index in layout.items()}
        self._columns: list[tuple[str, _Column]] = []
        # of each chunk: column, row group, leaf, the number of its ranges, bytes of its dictionary page
        self._chunks: dict[tuple[int, int], tuple[int, int, list[int]]] = {}
        self.ranges: list[tuple[int, int]] = []
        """The parts of the stored file that are read: offsets and lengths."""

    def add(self, name: str, column: _Column, indexes: Mapping[tuple[int, int], OffsetIndex]) -> None:
        self._columns.append((name, column))
        for group, selected in self._selected.items():
            for leaf in column.leaves:
                index, start = indexes[group, leaf], self._file.groups[group][1][leaf].start
                before = len(self.ranges)
                dictionary = index.starts[0] - start
                if dictionary:
                    self.ranges.append((start, dictionary))
                for page in selected.pages:
                    at, size = index.starts[page], index.sizes[page]
                    if len(self.ranges) > before and sum(self.ranges[-1]) == at:
                        self.ranges[-1] = (self.ranges[-1][0], self.ranges[-1][1] + size)
                    else:
                        self.ranges.append((at, size))
                sizes = [index.sizes[page] for page in selected.pages]
                self._chunks[group, leaf] = len(self.ranges) - before, dictionary, sizes

    def rows(self, parts: Sequence[bytes], plain: Collection[str]) -> pa.Table:
        """The requested rows, from the bytes of `ranges`; values of columns in `plain` are picked without decoding if
        possible."""
        from lakebed.format.row_groups.plain_pages import PlainChunk

        stored: dict[tuple[int, int], Sequence[bytes]] = {}
        used = 0
        for column in (column for _, column in self._columns):  # in the order of `ranges`
            for chunk in ((group, leaf) for group in self._selected for leaf in column.leaves):
                count = self._chunks[chunk][0]
                stored[chunk] = parts[used : used + count]
                used += count
        picked: dict[str, pa.Array] = {}
        for name, column in self._columns:
            if name not in plain:
                continue
            leaf = column.leaves[0]
            chunks = [
                PlainChunk(
                    self._file.groups[group][1][leaf].codec,
                    b"".join(stored[group, leaf]),
                    self._chunks[group, leaf][2],
                    selected.page_rows,
                    selected.positions,
                )
                for group, selected in self._selected.items()
            ]
            values = self._file.plain[name].picked(chunks)
            if values is None:
                self._file.not_plain.add(name)
            else:
                picked[name] = values
        others = [(name, column) for name, column in self._columns if name not in picked]
        table = self._decoded(others, stored) if others else pa.table({})
        return pa.table({name: picked[name] if name in picked else table[name] for name, _ in self._columns})

    def _decoded(
        self, columns: Sequence[tuple[str, _Column]], stored: Mapping[tuple[int, int], Sequence[bytes]]
    ) -> pa.Table:
        """The wanted rows of columns as Arrow decodes their pages."""
        locations: dict[tuple[int, int], tuple[int, int]] = {}
        at = len(_MAGIC)
        chunks = [(group, leaf) for _, column in columns for group in self._selected for leaf in column.leaves]
        for chunk in chunks:
            length = sum(map(len, stored[chunk]))
            locations[chunk] = at, length
            at += length
        parts = (part for chunk in chunks for part in stored[chunk])
        data = b"".join([_MAGIC, *parts, framed(self._footer(columns, locations))])
        for group, leaf in chunks:
            _, dictionary, sizes = self._chunks[group, leaf]
            start, length = locations[group, leaf]
            _check_values(
                data, start + dictionary, start + length, zip(sizes, self._selected[group].page_rows, strict=True)
            )
        options: dict[str, Any] = {
            "read_dictionary": [name for name, _ in columns if name in self._file.coded] or None,
            "pre_buffer": False,
            "coerce_int96_timestamp_unit": "us",
            "page_checksum_verification": True,
        }
        table = pq.ParquetFile(pa.BufferReader(data), **options).read(use_threads=False)
        stored_rows = [selected.rows for selected in self._selected.values()]
        if table.num_rows != sum(stored_rows):
            raise ValueError(f"pages of {sum(stored_rows)} rows give {table.num_rows}")
        starts = np.cumsum([0, *stored_rows[:-1]])
        positions = [s.positions + start for s, start in zip(self._selected.values(), starts, strict=True)]
        rows = table.take(pa.array(np.concatenate(positions)))
        return rows.cast(pa.schema([f.with_type(plain_type(f.type)) for f in rows.schema]))

    def _footer(
        self, columns: Sequence[tuple[str, _Column]], ranges: Mapping[tuple[int, int], tuple[int, int]]
    ) -> bytes:
        groups: list[bytes] = []
        for group, selected in self._selected.items():
            chunks: list[bytes] = []
            total, values = 0, varint(zigzag(selected.rows))
            for _, column in columns:
                for leaf in column.leaves:
                    at, length = ranges[group, leaf]
                    kind = self._file.groups[group][1][leaf].kind
                    chunks.append(_chunk(kind, values, at, length, self._chunks[group, leaf][1]))
                    total += length
            fields = [
                Field(_COLUMNS, LIST, write_list(STRUCT, chunks)),
                integer(_TOTAL_BYTES, I64, total),
                integer(_GROUP_ROWS, I64, selected.rows),
            ]
            groups.append(write_struct(fields))
        root = [integer(_CHILDREN, I32, len(columns)) if f.number == _CHILDREN else f for f in self._file.root]
        elements = [write_struct(root), *(element for _, column in columns for element in column.elements)]
        footer_fields = [
            *self._file.head,
            Field(_SCHEMA, LIST, write_list(STRUCT, elements)),
            integer(_NUM_ROWS, I64, sum(selected.rows for selected in self._selected.values())),
            Field(_ROW_GROUPS, LIST, write_list(STRUCT, groups)),
        ]
        return write_struct(sorted(footer_fields, key=lambda field: field.number))


def _chunk(kind: bytes, values: bytes, at: int, length: int, dictionary: int) -> bytes:
    """The entry of an assembled chunk in the footer: its kind and its number of values as they are encoded, its
    position and length, and the position of its dictionary page."""
    start, size = varint(zigzag(at)), varint(zigzag(length))
    parts = [_FILE_OFFSET_HEAD, start, _META_DATA_HEAD, kind, _VALUES_HEAD, values, _INFLATED_HEAD, size]
    parts += [_STORED_HEAD, size, _DATA_PAGE_HEAD, varint(zigzag(at + dictionary))]
    if dictionary:
        parts += [_DICTIONARY_PAGE_HEAD, start]
    return b"".join([*parts, _ENDS])


def _check_values(data: bytes, at: int, end: int, pages: Iterable[tuple[int, int]]) -> None:
    """Raise `ValueError` unless the bytes from `at` to `end` are data pages of these sizes that have as many values as
    rows."""
    for size, rows in pages:
        values = page_values(data, at, size)
        if values != rows:
            raise ValueError(f"a page of {rows} rows has {values} values")
        at += size
    if at != end:
        raise ValueError(f"pages end at {at}, and their bytes at {end}")
