"""A Parquet file's footer, checked before Arrow's bindings look into it.

`RowGroupMetaData.column` and `.statistics` of pyarrow let no error out: where a footer contradicts itself (histograms
of other levels than the column has, statistics of another width than its type) the process ends. So what Arrow would
check there is checked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.format.bounded_cache import BoundedCache, CacheEntry
from lakebed.format.row_groups.chunks import (
    BINARY,
    I32,
    LIST,
    STRUCT,
    head,
    list_head,
    number_in,
    skip,
    structs,
)
from lakebed.format.varints import read_varint

_MAGIC: Final = b"PAR1"
TAIL: Final = 8
# What Arrow reads at first of a file's end: so much is one request.
_AT_FIRST: Final = 64 << 10
_MAX_FOOTER: Final = 512 << 20
# By a digest of its bytes: an upsert reads the footer that the one before has made.
_CHECKED_BYTES: Final = 1 << 20
_BYTES_A_DIGEST: Final = 256
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_TYPES: Final = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
# Fields by their numbers in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_TYPE, _STATISTICS, _SIZES = 1, 12, 16
_BOUNDS = (1, 2, 5, 6)
# Of a page: its inflated and its stored size; the heads of data pages of versions 1 and 2.
_PAGE_SIZES, _DATA_PAGES = (2, 3), (5, 8)
_UNENCODED, _REPETITION, _DEFINITION = 1, 2, 3


_CHECKED = BoundedCache[CacheEntry[None]](_CHECKED_BYTES)


def read_metadata(source: pa.NativeFile) -> Any:
    """Parquet's metadata of an open file, by one request, or two if the footer is large.

    Raises what Arrow does, and `ValueError`.
    """
    return parse_footer(read_encoded(source))


def read_encoded(source: pa.NativeFile) -> bytes:
    """The bytes of an open file's footer, by as many requests."""
    return read_end(source)[0]


def read_end(source: pa.NativeFile) -> tuple[bytes, bytes]:
    """The bytes of an open file's footer, and the bytes before it that were read with it, by one request or two."""
    size = source.size()
    first = min(size, _AT_FIRST)
    source.seek(size - first)
    end = source.read(first)
    if len(end) < TAIL + len(_MAGIC) or end[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("it does not end like a Parquet file")
    length = int.from_bytes(end[-TAIL : -len(_MAGIC)], "little")
    if not 0 < length <= min(size - TAIL - len(_MAGIC), _MAX_FOOTER):
        raise ValueError(f"a footer of {length} bytes in a file of {size}")
    if length > len(end) - TAIL:
        source.seek(size - TAIL - length)
        return source.read(length), b""
    return end[-TAIL - length : -TAIL], end[: -TAIL - length]


def parse_footer(footer: bytes, *, is_trusted: bool = False) -> Any:
    """Parquet's metadata from the bytes of a footer. With `is_trusted` the bytes were made here from checked parts;
    bytes that were checked before are not checked again."""
    from lakebed.format.optional_map_keys import is_about_map_keys, with_pairs

    try:
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + framed(footer)))
    except pa.ArrowInvalid as error:
        if not is_about_map_keys(error):
            raise
        footer = with_pairs(footer)
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + framed(footer)))
    digest = blake2b(footer, digest_size=16).digest()
    if _CHECKED.get(digest) is None:
        if not is_trusted:
            check_footer(footer, metadata)
        _CHECKED.put(digest, CacheEntry(None, _BYTES_A_DIGEST))
    return metadata


def trust_footer(footer: bytes) -> None:
    """Note a footer that was made here, so that this process does not check it when it reads the file."""
    _CHECKED.put(blake2b(footer, digest_size=16).digest(), CacheEntry(None, _BYTES_A_DIGEST))


def check_footer(footer: bytes, metadata: Any) -> None:
    """Raise `ValueError` if a column chunk does not fit its column. `metadata` is Arrow's view of the bytes
    `footer`."""
    schema = metadata.schema
    columns = [schema.column(number) for number in range(len(schema))]
    leaves = [_Leaf(c.physical_type, c.length, c.max_repetition_level, c.max_definition_level) for c in columns]
    try:
        at = field = 0
        while footer[at]:
            field, kind, at = head(footer, at, field)
            if field != _ROW_GROUPS or kind != LIST:
                at = skip(footer, at, kind, 0)
                continue
            count, at = structs(footer, at)
            for _ in range(count):
                at = _row_group(footer, at, leaves)
    except IndexError:
        raise ValueError("its footer is cut off") from None


def footer_in(end: bytes) -> bytes:
    """The bytes of the footer of a Parquet file; `end` is the file's content or its last bytes."""
    length = int.from_bytes(end[-TAIL : -len(_MAGIC)], "little")
    return end[-TAIL - length : -TAIL]


def framed(footer: bytes) -> bytes:
    """The footer with its length and the magic, as a Parquet file ends."""
    return b"".join([footer, len(footer).to_bytes(4, "little"), _MAGIC])


class PageSizes(NamedTuple):
    """The sums of uncompressed bytes and of values over the page headers of a column chunk."""

    inflated: int
    values: int


def page_sizes(chunk: bytes) -> PageSizes:
    """The uncompressed bytes and the number of values that the pages of a column chunk declare: Arrow allocates memory
    for both before it has read the pages. Raises `ValueError` if the bytes are not a sequence of pages."""
    at = inflated = values = 0
    try:
        while at < len(chunk):
            field, sizes, count = 0, [-1, -1], 0
            while chunk[at]:
                field, kind, at = head(chunk, at, field)
                if field in _PAGE_SIZES and kind == I32:
                    sizes[field - _PAGE_SIZES[0]] = number_in(chunk, at)
                elif field in _DATA_PAGES and kind == STRUCT:
                    count = _first_number(chunk, at)
                at = skip(chunk, at, kind, 0)
            if min(*sizes, count) < 0:
                raise ValueError("a page without its size")
            at += 1 + sizes[1]
            inflated, values = inflated + sizes[0], values + count
    except IndexError:
        raise ValueError("a page's head is cut off") from None
    if at != len(chunk):
        raise ValueError("a page reaches beyond its column chunk")
    return PageSizes(inflated, values)


def _first_number(data: bytes, at: int) -> int:
    """The number in the first field of a struct: how many values a page has."""
    field, kind, at = head(data, at, 0)
    return number_in(data, at) if field == 1 and kind == I32 else -1


class _Leaf(NamedTuple):
    type: str
    length: int
    repetition: int
    definition: int


# What follows goes over every chunk of every footer that is read: positions in, positions out, no object in between.


def _row_group(data: bytes, at: int, leaves: Sequence[_Leaf]) -> int:
    field, count = 0, 0
    while data[at]:
        field, kind, at = head(data, at, field)
        if field != _COLUMNS or kind != LIST:
            at = skip(data, at, kind, 0)
            continue
        count, at = structs(data, at)
        if count != len(leaves):
            break
        for leaf in leaves:
            at = _chunk(data, at, leaf)
    if count != len(leaves):
        raise ValueError(f"a row group of {count} columns under a schema of {len(leaves)}")
    return at + 1


def _chunk(data: bytes, at: int, leaf: _Leaf) -> int:
    field, has_metadata = 0, False
    while data[at]:
        field, kind, at = head(data, at, field)
        if field == _META_DATA and kind == STRUCT:
            at, has_metadata = _meta_data(data, at, leaf), True
        else:
            at = skip(data, at, kind, 0)
    if not has_metadata:
        raise ValueError("a column chunk without metadata")
    return at + 1


def _meta_data(data: bytes, at: int, leaf: _Leaf) -> int:
    field = 0
    while data[at]:
        field, kind, at = head(data, at, field)
        if field == _TYPE:
            number, end = read_varint(data, at)
            if kind != I32 or number & 1 or number >> 1 >= len(_TYPES) or _TYPES[number >> 1] != leaf.type:
                raise ValueError(f"a column chunk of another type in a column of {leaf.type}")
            at = end
        elif field == _STATISTICS and kind == STRUCT:
            at = _statistics(data, at, leaf)
        elif field == _SIZES and kind == STRUCT:
            at = _sizes(data, at, leaf)
        else:
            at = skip(data, at, kind, 0)
    return at + 1


def _statistics(data: bytes, at: int, leaf: _Leaf) -> int:
    width = leaf.length if leaf.type.startswith("FIXED") else _WIDTHS.get(leaf.type, 0)
    field = 0
    while data[at]:
        field, kind, at = head(data, at, field)
        if width and kind == BINARY and field in _BOUNDS and read_varint(data, at)[0] != width:
            raise ValueError(f"a column's range has not the {width} bytes of its type")
        at = skip(data, at, kind, 0)
    return at + 1


def _sizes(data: bytes, at: int, leaf: _Leaf) -> int:
    field = 0
    while data[at]:
        field, kind, at = head(data, at, field)
        if field == _UNENCODED and leaf.type != "BYTE_ARRAY":
            raise ValueError(f"a size of texts in a column of {leaf.type}")
        if field in (_REPETITION, _DEFINITION) and kind == LIST:
            max_level = leaf.repetition if field == _REPETITION else leaf.definition
            count, _, _ = list_head(data, at)
            if count not in (0, max_level + 1):
                raise ValueError(f"a histogram of {count} levels where there are {max_level + 1}")
        at = skip(data, at, kind, 0)
    return at + 1
