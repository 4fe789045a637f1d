"""Column chunks of Parquet files as bytes: where they are, and their footer entries when they are copied.

A chunk knows its place only by offsets in the footer. Its entry is copied with statistics and unknown fields; places
of column indexes and bloom filters are left out, since those are not copied. Thrift structs are taken apart without
knowing their fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from isal import isal_zlib

from lakebed.format.varints import read_varint, unzigzag, varint, zigzag

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_MAX_DEPTH: Final = 32
_STOP: Final = b"\0"


class Field(NamedTuple):
    """A field of a struct: its number, its type, and the bytes of its value (empty for a boolean, whose type is its
    value)."""

    number: int
    kind: int
    value: bytes


def read_struct(data: bytes, at: int = 0) -> tuple[list[Field], int]:
    """The fields of a struct, and the position after it. Raises `ValueError` and `IndexError` for bytes that are not a
    struct."""
    fields: list[Field] = []
    number = 0
    while data[at]:
        number, kind, at = head(data, at, number)
        end = skip(data, at, kind, 0)
        fields.append(Field(number, kind, data[at:end]))
        at = end
    return fields, at + 1


def write_struct(fields: Sequence[Field]) -> bytes:
    """A struct of these fields, in this order.

    >>> read_struct(write_struct([integer(3, I64, -7), Field(40, BINARY, b"\\x01x")]))[0]
    [Field(number=3, kind=6, value=b'\\r'), Field(number=40, kind=8, value=b'\\x01x')]
    """
    parts: list[bytes] = []
    before = 0
    for number, kind, value in fields:
        step = number - before
        if 0 < step <= 15:
            parts.append(bytes((step << 4 | kind,)))
        else:
            parts += [bytes((kind,)), varint(zigzag(number))]
        parts.append(value)
        before = number
    parts.append(_STOP)
    return b"".join(parts)


def read_list(value: bytes) -> tuple[int, list[bytes]]:
    """The type of a list's entries, and the bytes of each entry."""
    count, kind, at = list_head(value, 0)
    entry = BYTE if kind in (TRUE, FALSE) else kind
    entries: list[bytes] = []
    for _ in range(count):
        end = skip(value, at, entry, 0)
        entries.append(value[at:end])
        at = end
    return kind, entries


def write_list(kind: int, entries: Sequence[bytes]) -> bytes:
    """The value of a field that is a list."""
    count = len(entries)
    first = bytes((count << 4 | kind,)) if count < 15 else bytes((0xF0 | kind,)) + varint(count)
    return first + b"".join(entries)


def integer(number: int, kind: int, value: int) -> Field:
    """A field with a whole number of more than one byte."""
    return Field(number, kind, varint(zigzag(value)))


def number_in(value: bytes, at: int = 0) -> int:
    """The whole number of more than one byte at position `at`."""
    number, _ = read_varint(value, at)
    return unzigzag(number)


# What goes over every chunk of every footer that is read: positions in, positions out, no object in between.


def head(data: bytes, at: int, field: int) -> tuple[int, int, int]:
    """The number and the type of a struct's next field, and the position of its value."""
    first = data[at]
    if first > 15:
        return field + (first >> 4), first & 15, at + 1
    number, at = read_varint(data, at + 1)
    return number >> 1 ^ -(number & 1), first, at


def list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """The number and the type of a list's entries, and the position of the first."""
    first = data[at]
    count, at = (first >> 4, at + 1) if first < 0xF0 else read_varint(data, at + 1)
    if count > len(data) - at:
        raise ValueError("a list with more entries than bytes")
    return count, first & 15, at


def structs(data: bytes, at: int) -> tuple[int, int]:
    """The number of structs in a list, and the position of the first."""
    count, kind, at = list_head(data, at)
    if count and kind != STRUCT:
        raise ValueError(f"a list of type {kind} where structs are expected")
    return count, at


def skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """The position after the value of type `kind` that starts at `at`."""
    if I16 <= kind <= I64:
        while data[at] > 0x7F:
            at += 1
        return at + 1
    if kind == BINARY:
        length, at = read_varint(data, at)
        if length > len(data) - at:
            raise IndexError
        return at + length
    if kind in (TRUE, FALSE):
        return at
    if kind in (BYTE, DOUBLE):
        end = at + (1 if kind == BYTE else 8)
        if end > len(data):
            raise IndexError
        return end
    if depth > _MAX_DEPTH:
        raise ValueError("its footer nests too deep")
    return _skip_nested(data, at, kind, depth + 1)


def _skip_nested(data: bytes, at: int, kind: int, depth: int) -> int:
    if kind == STRUCT:
        return _skip_fields(data, at, depth)
    if kind in (LIST, SET):
        count, inner, at = list_head(data, at)
        # a boolean in a list takes a byte, as a field it is in the head
        inner = BYTE if inner in (TRUE, FALSE) else inner
        for _ in range(count):
            at = skip(data, at, inner, depth)
        return at
    if kind == MAP:
        count, at = read_varint(data, at)
        if count > len(data) - at:
            raise IndexError
        kinds, at = (data[at], at + 1) if count else (0, at)
        for _ in range(count):
            at = skip(data, skip(data, at, kinds >> 4, depth), kinds & 15, depth)
        return at
    raise ValueError(f"its footer has a field of type {kind}")


def _skip_fields(data: bytes, at: int, depth: int) -> int:
    """The position after the struct at `at`. The usual fields need no further function call, since each page header has
    about ten of them."""
    while first := data[at]:
        inner = first & 15
        if first > 15:
            at += 1
        else:
            _, at = read_varint(data, at + 1)
        if I16 <= inner <= I64:
            while data[at] > 0x7F:
                at += 1
            at += 1
        elif inner == BINARY and data[at] < 0x80:
            at += 1 + data[at]
            if at > len(data):
                raise IndexError
        elif inner > FALSE:
            at = skip(data, at, inner, depth)
    return at + 1


# Fields by their numbers in parquet.thrift: of the footer,
_NUM_ROWS, _ROW_GROUPS, _ENCRYPTION, _SIGNING = 3, 4, 8, 9
# of a row group,
_COLUMNS, _TOTAL_BYTES, _GROUP_ROWS, _GROUP_OFFSET, _COMPRESSED_BYTES, _ORDINAL = 1, 2, 3, 5, 6, 7
# of a column chunk: the path of another file, its place, its entry, places of page indexes, encryption,
_FILE_PATH, _FILE_OFFSET, _META_DATA = 1, 2, 3
INDEX_OFFSET, INDEX_LENGTH = 4, 5
_PAGE_INDEXES = frozenset({INDEX_OFFSET, INDEX_LENGTH, 6, 7})
_ENCRYPTED = frozenset({8, 9})
# and of its entry.
_PATH = 3
_CODEC, _VALUES, _INFLATED, _STORED, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE = 4, 5, 6, 7, 9, 10, 11
_PAGE_OFFSETS = frozenset({_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE})
_BLOOM = frozenset({14, 15})
# Of a page: its stored size, its checksum, the heads of data pages of versions 1 and 2.
_PAGE_SIZE, _CRC, _DATA_PAGES = 3, 4, (5, 8)
_MAX_ORDINALS = 1 << 15
_FIRST_BYTE = 4
CODECS: Final = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}


class _Meta(NamedTuple):
    """The metadata of a column chunk: its bytes, its whole numbers by field, the positions in the bytes where the
    offsets of pages begin and end, and whether it has the offset of a bloom filter."""

    data: bytes
    numbers: Mapping[int, int]
    pages: Sequence[tuple[int, int, int]]
    has_bloom: bool

    def moved(self, by: int) -> bytes:
        """This metadata for the chunk moved by `by` bytes: all offsets in it are shifted."""
        if self.has_bloom:
            fields = [field for field in read_struct(self.data)[0] if field.number not in _BLOOM]
            return _meta(write_struct(fields), 0)[0].moved(by)
        parts: list[bytes] = []
        done = 0
        for field, at, end in self.pages:
            if self.numbers[field] > 0:
                parts += [self.data[done:at], varint(zigzag(self.numbers[field] + by))]
                done = end
        return b"".join([*parts, self.data[done:]])

    def renamed(self, column: str) -> _Meta:
        """This metadata as that of the top-level column `column`."""
        name = column.encode()
        path = Field(_PATH, LIST, write_list(BINARY, [varint(len(name)) + name]))
        fields = [path if field.number == _PATH else field for field in read_struct(self.data)[0]]
        return _meta(write_struct(fields), 0)[0]


class Chunk(NamedTuple):
    """One column chunk: the position of its bytes in its file, its codec's number, its number of values, and its entry
    in the footer."""

    start: int
    length: int
    codec: int
    values: int
    inflated: int
    entry: list[Field]
    meta: _Meta

    def moved(self, start: int, index: tuple[int, int] | None = None) -> bytes:
        """The footer entry of this chunk when it starts at `start` and its offset index is at `index` (None: no
        index)."""
        by = start - self.start
        entry: list[Field] = []
        for field in self.entry:
            if field.number == _META_DATA:
                entry.append(Field(_META_DATA, STRUCT, self.meta.moved(by)))
            elif field.number == _FILE_OFFSET:  # not every writer has it
                at = number_in(field.value)
                entry.append(integer(_FILE_OFFSET, I64, at + by) if at > 0 else field)
            elif field.number not in _PAGE_INDEXES:
                entry.append(field)
        if index is not None:
            entry += [integer(INDEX_OFFSET, I64, index[0]), integer(INDEX_LENGTH, I32, index[1])]
        return write_struct(sorted(entry, key=lambda field: field.number))

    def renamed(self, column: str) -> Chunk:
        """This chunk as one of the top-level column `column`, which has the same values."""
        return self._replace(meta=self.meta.renamed(column))


@dataclass(frozen=True, slots=True)
class ChunkGroup:
    """A row group by its column chunks, in the order of the schema's columns."""

    rows: int
    chunks: Sequence[Chunk]

    @property
    def start(self) -> int:
        return min(chunk.start for chunk in self.chunks)

    @property
    def end(self) -> int:
        return max(chunk.start + chunk.length for chunk in self.chunks)

    @property
    def inflated(self) -> int:
        """The uncompressed bytes of the row group's pages."""
        return sum(chunk.inflated for chunk in self.chunks)


class PlacedChunk(NamedTuple):
    """A column chunk, its position in a new file, and the position and length of its offset index there (None: it has
    no index)."""

    chunk: Chunk
    start: int
    index_range: tuple[int, int] | None = None


class Page(NamedTuple):
    """A data page: its position, its bytes including the header, and the number of values before it (the number of its
    first row, if each row has one value)."""

    start: int
    size: int
    first: int


def chunk_groups(footer: bytes, end: int) -> list[ChunkGroup] | None:
    """The row groups of a file whose footer begins at `end`. None if its chunks cannot be moved: encrypted chunks,
    chunks in other files, and row groups without rows. Raises `ValueError` if the footer contradicts itself."""
    groups: list[ChunkGroup] = []
    at = field = 0
    try:
        while footer[at]:
            field, kind, at = head(footer, at, field)
            if field in (_ENCRYPTION, _SIGNING):
                return None
            if field != _ROW_GROUPS or kind != LIST:
                at = skip(footer, at, kind, 0)
                continue
            count, at = structs(footer, at)
            for _ in range(count):
                group, at = _group(footer, at, end)
                if group is None:
                    return None
                groups.append(group)
    except IndexError:
        raise ValueError("its footer is cut off") from None
    return groups


def footer_of(shell: bytes, groups: Sequence[tuple[int, Sequence[PlacedChunk]]]) -> bytes:
    """The footer of a file with these row groups (number of rows and chunks of each). The other fields come from
    `shell`, the footer of a file without rows."""
    fields, _ = read_struct(shell)
    entries = [_group_entry(number, rows, chunks) for number, (rows, chunks) in enumerate(groups)]
    replacements = {
        _NUM_ROWS: integer(_NUM_ROWS, I64, sum(rows for rows, _ in groups)),
        _ROW_GROUPS: Field(_ROW_GROUPS, LIST, write_list(STRUCT, entries)),
    }
    return write_struct([replacements.get(field.number, field) for field in fields])


def check_pages(chunk: bytes | memoryview, values: int) -> list[Page]:
    """The data pages of a column chunk, with their positions in it. Raises `ValueError` if the chunk is not a sequence
    of pages with `values` values, or if the bytes of a page do not match its checksum."""
    data = memoryview(chunk)
    pages: list[Page] = []
    at = total = 0
    try:
        while at < len(data):
            start = at
            size, crc, count, at = _page_head(data, at)
            page = data[at : at + size]
            if len(page) < size:
                raise ValueError("a page reaches beyond its column chunk")
            if crc is not None and isal_zlib.crc32(page) != crc & 0xFFFFFFFF:
                raise ValueError("a page has not the bytes of its checksum")
            at += size
            if count:
                pages.append(Page(start, at - start, total))
            total += count
    except IndexError:
        raise ValueError("a page's head is cut off") from None
    if total != values:
        raise ValueError(f"a column chunk with {total} values that should have {values}")
    return pages


# Heads of pages are short, but for statistics in them; what follows is read from a copy of the first bytes.
_HEAD_BYTES = 128


def _page_head(data: memoryview, at: int) -> tuple[int, int | None, int, int]:
    """The stored size, the checksum and the number of values of a page, and the position of its bytes."""
    head_bytes = bytes(data[at : at + _HEAD_BYTES])
    try:
        return _parsed_head(head_bytes, at)
    except IndexError:
        if len(head_bytes) < _HEAD_BYTES:
            raise
        return _parsed_head(bytes(data[at:]), at)


def _parsed_head(head_bytes: bytes, at: int) -> tuple[int, int | None, int, int]:
    size, crc, count = -1, None, 0
    position = field = 0
    while head_bytes[position]:
        field, kind, position = head(head_bytes, position, field)
        if kind == I32 and field in (_PAGE_SIZE, _CRC):
            value, position = read_varint(head_bytes, position)
            value = unzigzag(value)
            size, crc = (value, crc) if field == _PAGE_SIZE else (size, value)
            continue
        if kind == STRUCT and field in _DATA_PAGES:
            first, first_kind, first_at = head(head_bytes, position, 0)
            count = number_in(head_bytes, first_at) if first == 1 and first_kind == I32 else -1
        position = skip(head_bytes, position, kind, 0)
    if size < 0 or count < 0:
        raise ValueError("a page without its size")
    return size, crc, count, at + position + 1


def page_values(chunk: bytes, at: int, size: int) -> int:
    """The number of values of a data page of `size` bytes including its header. Raises `ValueError` if the bytes are
    not a data page."""
    try:
        stored, _, count, body = _page_head(memoryview(chunk), at)
    except IndexError:
        raise ValueError("a page's head is cut off") from None
    if count <= 0 or body + stored != at + size:
        raise ValueError(f"{size} bytes at {at} are no data page")
    return count


# Positions in, positions out: footers are large, and each byte is looked at once.


def _group(data: bytes, at: int, end: int) -> tuple[ChunkGroup | None, int]:
    chunks: list[Chunk] = []
    field, rows = 0, -1
    while data[at]:
        field, kind, at = head(data, at, field)
        if field == _COLUMNS and kind == LIST:
            count, at = structs(data, at)
            for _ in range(count):
                chunk, at = _chunk(data, at, end)
                if chunk is None:
                    return None, at
                chunks.append(chunk)
            continue
        if field == _GROUP_ROWS and I16 <= kind <= I64:
            rows = number_in(data, at)
        at = skip(data, at, kind, 0)
    if rows < 0 or not chunks:
        raise ValueError(f"a row group of {rows} rows and {len(chunks)} columns")
    return (ChunkGroup(rows, chunks) if rows else None), at + 1


def _chunk(data: bytes, at: int, end: int) -> tuple[Chunk | None, int]:
    entry: list[Field] = []
    meta = _Meta(b"", {}, (), False)
    field = 0
    while data[at]:
        field, kind, at = head(data, at, field)
        if field == _FILE_PATH or field in _ENCRYPTED:
            return None, at
        if field == _META_DATA and kind == STRUCT:
            meta, at = _meta(data, at)
            entry.append(Field(field, kind, b""))  # made of `meta` when the chunk is moved
            continue
        stop = skip(data, at, kind, 0)
        entry.append(Field(field, kind, data[at:stop]))
        at = stop
    return _placed(entry, meta, end), at + 1


def _meta(data: bytes, start: int) -> tuple[_Meta, int]:
    """The metadata of a column chunk, and the position after it; the usual fields are read without a function call."""
    numbers: dict[int, int] = {}
    pages: list[tuple[int, int, int]] = []
    has_bloom = False
    at, field = start, 0
    while first := data[at]:
        kind = first & 15
        if first > 15:
            field += first >> 4
            at += 1
        else:
            field, kind, at = head(data, at, field)
        has_bloom = has_bloom or field in _BLOOM
        if I16 <= kind <= I64:
            value_at = at
            number, at = read_varint(data, at)
            numbers[field] = unzigzag(number)
            if field in _PAGE_OFFSETS:
                pages.append((field, value_at - start, at - start))
        elif kind == STRUCT:
            at = _skip_fields(data, at, 1)
        else:
            at = skip(data, at, kind, 0)
    return _Meta(data[start : at + 1], numbers, pages, has_bloom), at + 1


def _placed(entry: list[Field], meta: _Meta, end: int) -> Chunk | None:
    numbers = meta.numbers
    if not numbers.get(_VALUES, 1):  # for no values some writers give no offset
        return None
    try:
        data, stored, codec = numbers[_DATA_PAGE], numbers[_STORED], numbers[_CODEC]
        values, inflated = numbers[_VALUES], numbers[_INFLATED]
    except KeyError as lacking:
        raise ValueError(f"a column chunk without the field {lacking}") from None
    dictionary = numbers.get(_DICTIONARY_PAGE, 0)
    start = dictionary if 0 < dictionary < data else data
    if start < _FIRST_BYTE or stored < 0 or start + stored > end or min(values, inflated) < 0:
        raise ValueError(f"a column chunk of {stored} bytes at {start} in a file whose footer begins at {end}")
    return Chunk(start, stored, codec, values, inflated, entry, meta)


def _group_entry(number: int, rows: int, placed: Sequence[PlacedChunk]) -> bytes:
    chunks = [placed_chunk.chunk for placed_chunk in placed]
    fields = [
        Field(_COLUMNS, LIST, write_list(STRUCT, [chunk.moved(start, index) for chunk, start, index in placed])),
        integer(_TOTAL_BYTES, I64, sum(chunk.inflated for chunk in chunks)),
        integer(_GROUP_ROWS, I64, rows),
        integer(_GROUP_OFFSET, I64, min(placed_chunk.start for placed_chunk in placed)),
        integer(_COMPRESSED_BYTES, I64, sum(chunk.length for chunk in chunks)),
    ]
    if number < _MAX_ORDINALS:
        fields.append(integer(_ORDINAL, I16, number))
    return write_struct(fields)
