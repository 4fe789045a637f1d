"""Parquet's offset indexes: which pages a column chunk has, where they are, and which row each starts with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lakebed.format.row_groups.chunks import (
    I32,
    I64,
    INDEX_LENGTH,
    INDEX_OFFSET,
    LIST,
    STRUCT,
    Field,
    Page,
    PlacedChunk,
    chunk_groups,
    footer_of,
    head,
    number_in,
    skip,
    structs,
    write_list,
)
from lakebed.format.varints import read_varint, varint

# Fields by their numbers in parquet.thrift: of an offset index and its entries.
_LOCATIONS: Final = 1
_OFFSET, _SIZE, _FIRST_ROW = 1, 2, 3
# How most writers put an entry: its three numbers as fields that follow one another.
_HEADS = (1 << 4 | I64, 1 << 4 | I32, 1 << 4 | I64)
_NUMBERS: Final = 7
_MAX_WIDTH: Final = 8
# What an index takes in memory, about.
_FIXED_BYTES: Final = 200
_BYTES_A_PAGE: Final = 80


Numbers = npt.NDArray[np.int64]


class OffsetIndex(NamedTuple):
    """The data pages of a column chunk in their order: the number of each page's first row in its row group, its
    position in the file, and its bytes including the header."""

    first_rows: npt.NDArray[np.int64]
    starts: Sequence[int]
    sizes: Sequence[int]
    largest: int

    @property
    def nbytes(self) -> int:
        """About how many bytes the index takes in memory."""
        return _FIXED_BYTES + _BYTES_A_PAGE * len(self.sizes)

    def pages(self) -> list[Page]:
        """The pages of the chunk, one `Page` each, in order."""
        return [Page(*page) for page in zip(self.starts, self.sizes, self.first_rows.tolist(), strict=True)]


def offset_index_range(entry: Sequence[Field]) -> tuple[int, int] | None:
    """The position and the length of the offset index of a column chunk, from the chunk's entry in the footer; None if
    it has no index."""
    numbers = {f.number: number_in(f.value) for f in entry if f.number in (INDEX_OFFSET, INDEX_LENGTH)}
    start, length = numbers.get(INDEX_OFFSET, 0), numbers.get(INDEX_LENGTH, 0)
    return (start, length) if start > 0 and length > 0 else None


def read_offset_index(data: bytes, start: int, end: int, rows: int) -> OffsetIndex:
    """The offset index of a chunk that reaches from `start` to `end` in its file and whose row group has `rows` rows.
    Raises `ValueError` for an index that does not fit the chunk.

    >>> data = write_offset_index([Page(4, 10, 0), Page(14, 6, 100)])
    >>> read_offset_index(data, 4, 20, 150)[:3]
    (array([  0, 100]), [4, 14], [10, 6])
    """
    try:
        pages = _pages(data)
    except IndexError:
        raise ValueError("its offset index is cut off") from None
    except OverflowError:
        raise ValueError("its offset index has a number of more than eight bytes") from None
    starts, sizes, first_rows = pages.T
    ends = starts + sizes
    fits = len(pages) and first_rows[0] == 0 and first_rows[-1] < rows and starts[0] >= start and ends[-1] <= end
    follow = (first_rows[1:] > first_rows[:-1]).all() and (starts[1:] >= ends[:-1]).all()
    if not fits or not follow or sizes.min() <= 0:
        raise ValueError(f"its offset index does not fit a column chunk of {rows} rows from {start} to {end}")
    return OffsetIndex(np.ascontiguousarray(first_rows), starts.tolist(), sizes.tolist(), int(sizes.max()))


def _pages(data: bytes) -> Numbers:
    """An array with a row for each page: its position in the file, its number of bytes, and its first row."""
    pages: Numbers = np.empty((0, 3), np.int64)
    at = field = 0
    while data[at]:
        field, kind, at = head(data, at, field)
        if field != _LOCATIONS or kind != LIST:
            at = skip(data, at, kind, 0)
            continue
        count, at = structs(data, at)
        uniform = _uniform_pages(data, at, count)
        if uniform is not None:
            pages, at = uniform
            continue
        entries: list[Page] = []
        for _ in range(count):
            page, at = _page(data, at)
            entries.append(page)
        pages = np.array(entries, np.int64).reshape(-1, 3)
    return pages


def _uniform_pages(data: bytes, at: int, count: int) -> tuple[Numbers, int] | None:
    """An array with a row for each page, read at once, and the position after the entries. None if the entries do not
    have the form of `_HEADS`: then each has to be read field by field. An entry is seven numbers of seven bits a byte:
    three pairs and the end of the struct."""
    index_bytes = np.frombuffer(data, np.uint8, offset=at)
    ends = np.flatnonzero(index_bytes < 0x80)[: _NUMBERS * count]
    if len(ends) < _NUMBERS * count or not count:
        return None
    starts = np.append(0, ends[:-1] + 1)
    widths = ends - starts + 1
    if widths.max() > _MAX_WIDTH:
        return None
    values = np.zeros(len(ends), np.int64)
    for number in range(int(widths.max())):
        more = number < widths
        values[more] |= (index_bytes[starts[more] + number] & 0x7F).astype(np.int64) << 7 * number
    entries = values.reshape(count, _NUMBERS)
    pages = entries[:, [1, 3, 5]]  # twice the number, since none is below zero
    if (entries[:, [0, 2, 4]] != _HEADS).any() or entries[:, 6].any() or (pages & 1).any():
        return None
    return pages >> 1, at + int(ends[-1]) + 1


def _page(data: bytes, at: int) -> tuple[Page, int]:
    numbers = [0, 0, 0]
    field = 0
    while data[at]:
        field, kind, at = head(data, at, field)
        if field in (_OFFSET, _SIZE, _FIRST_ROW) and kind in (I32, I64):
            value, at = read_varint(data, at)
            numbers[field - 1] = value >> 1 ^ -(value & 1)
        else:
            at = skip(data, at, kind, 0)
    return Page(*numbers), at + 1


def write_offset_index(pages: Sequence[Page], by: int = 0) -> bytes:
    """The bytes of an index of pages, each shifted by `by` bytes in the file. The first value of a page is its first
    row.

    >>> write_offset_index([Page(4, 10, 0)]).hex()
    '191c1608151416000000'
    """
    first, second, third = (bytes((head_byte,)) for head_byte in _HEADS)
    entries = [
        b"".join([first, varint((at + by) << 1), second, varint(size << 1), third, varint(row << 1), b"\0"])
        for at, size, row in pages
    ]
    return b"".join([bytes((1 << 4 | LIST,)), write_list(STRUCT, entries), b"\0"])


def without_column_indexes(end: bytes, footer: bytes, start: int, flat: Sequence[bool]) -> tuple[bytes, bytes]:
    """The bytes between the row groups and the footer, and the new footer, with only the offset indexes of `flat`
    leaves (whose rows have one value each).

    `end` is what was between both, from `start` on in the file: Arrow puts both kinds of indexes there. Column indexes
    have the smallest and the largest value of each page, where NaN does not count, and nothing reads them here. Offset
    indexes of lists are not always right: Arrow starts pages within a row.
    """
    groups = chunk_groups(footer, start) or []
    indexes: list[bytes] = []
    at = start
    placed: list[tuple[int, list[PlacedChunk]]] = []
    for group in groups:
        chunks: list[PlacedChunk] = []
        for chunk, is_flat in zip(group.chunks, flat, strict=True):
            index_range = offset_index_range(chunk.entry) if is_flat else None
            if index_range is not None:
                indexes.append(end[index_range[0] - start : index_range[0] - start + index_range[1]])
                index_range = at, index_range[1]
                at += index_range[1]
            chunks.append(PlacedChunk(chunk, chunk.start, index_range))
        placed.append((group.rows, chunks))
    return (b"".join(indexes), footer_of(footer, placed)) if placed else (end, footer)
