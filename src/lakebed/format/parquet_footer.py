"""A Parquet file's footer, checked before Arrow's bindings look into it.

`RowGroupMetaData.column` and `.statistics` of pyarrow let no error out: where a footer contradicts itself (histograms
of other levels than the column has, statistics of another width than its type) the process ends. So what Arrow would
check there is checked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC: Final = b"PAR1"
_TAIL: Final = 8
# What Arrow reads at first of a file's end: so much is one request.
_AT_FIRST: Final = 64 << 10
_LARGEST_FOOTER: Final = 512 << 20
_DEEPEST: Final = 32
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_TYPES: Final = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
# Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
# Fields by their numbers in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_TYPE, _STATISTICS, _SIZES = 1, 12, 16
_BOUNDS = (1, 2, 5, 6)
_UNENCODED, _REPETITION, _DEFINITION = 1, 2, 3


def read_metadata(source: pa.NativeFile) -> Any:
    """Parquet's metadata of an open file, by one request (two where the footer is large).

    Raises what Arrow does, and `ValueError`.
    """
    size = source.size()
    first = min(size, _AT_FIRST)
    source.seek(size - first)
    end = source.read(first)
    if len(end) < _TAIL + len(_MAGIC) or end[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("it does not end like a Parquet file")
    length = int.from_bytes(end[-_TAIL : -len(_MAGIC)], "little")
    if not 0 < length <= min(size - _TAIL - len(_MAGIC), _LARGEST_FOOTER):
        raise ValueError(f"a footer of {length} bytes in a file of {size}")
    if length > len(end) - _TAIL:
        source.seek(size - _TAIL - length)
        footer = source.read(length)
    else:
        footer = end[-_TAIL - length : -_TAIL]
    framed = b"".join([_MAGIC, footer, length.to_bytes(4, "little"), _MAGIC])
    metadata = pq.read_metadata(pa.BufferReader(framed))
    check_footer(footer, metadata)
    return metadata


def check_footer(footer: bytes, metadata: Any) -> None:
    """Raise `ValueError` where a column chunk does not fit its column. `metadata` is what Arrow made of these bytes."""
    schema = metadata.schema
    columns = [schema.column(number) for number in range(len(schema))]
    leaves = [_Leaf(c.physical_type, c.length, c.max_repetition_level, c.max_definition_level) for c in columns]
    try:
        _check(footer, leaves)
    except IndexError:
        raise ValueError("its footer is cut off") from None


class _Leaf(NamedTuple):
    type: str
    length: int
    repetition: int
    definition: int


# What follows goes over every chunk of every footer that is read: positions in, positions out, no object in between.


def _check(data: bytes, leaves: Sequence[_Leaf]) -> None:
    at = field = 0
    while data[at]:
        field, kind, at = _head(data, at, field)
        if field != _ROW_GROUPS or kind != _LIST:
            at = _skip(data, at, kind, 0)
            continue
        count, at = _structs(data, at)
        for _ in range(count):
            at = _row_group(data, at, leaves)


def _row_group(data: bytes, at: int, leaves: Sequence[_Leaf]) -> int:
    field, seen = 0, 0
    while data[at]:
        field, kind, at = _head(data, at, field)
        if field != _COLUMNS or kind != _LIST:
            at = _skip(data, at, kind, 0)
            continue
        seen, at = _structs(data, at)
        if seen != len(leaves):
            break
        for leaf in leaves:
            at = _chunk(data, at, leaf)
    if seen != len(leaves):
        raise ValueError(f"a row group of {seen} columns under a schema of {len(leaves)}")
    return at + 1


def _chunk(data: bytes, at: int, leaf: _Leaf) -> int:
    field, found = 0, False
    while data[at]:
        field, kind, at = _head(data, at, field)
        if field == _META_DATA and kind == _STRUCT:
            at, found = _meta_data(data, at, leaf), True
        else:
            at = _skip(data, at, kind, 0)
    if not found:
        raise ValueError("a column chunk without metadata")
    return at + 1


def _meta_data(data: bytes, at: int, leaf: _Leaf) -> int:
    field = 0
    while data[at]:
        field, kind, at = _head(data, at, field)
        if field == _TYPE:
            number, end = _varint(data, at)
            if kind != _I32 or number & 1 or number >> 1 >= len(_TYPES) or _TYPES[number >> 1] != leaf.type:
                raise ValueError(f"a column chunk of another type in a column of {leaf.type}")
            at = end
        elif field == _STATISTICS and kind == _STRUCT:
            at = _statistics(data, at, leaf)
        elif field == _SIZES and kind == _STRUCT:
            at = _sizes(data, at, leaf)
        else:
            at = _skip(data, at, kind, 0)
    return at + 1


def _statistics(data: bytes, at: int, leaf: _Leaf) -> int:
    width = leaf.length if leaf.type.startswith("FIXED") else _WIDTHS.get(leaf.type, 0)
    field = 0
    while data[at]:
        field, kind, at = _head(data, at, field)
        if width and kind == _BINARY and field in _BOUNDS and data[at] != width:
            raise ValueError(f"a column's range has not the {width} bytes of its type")
        at = _skip(data, at, kind, 0)
    return at + 1


def _sizes(data: bytes, at: int, leaf: _Leaf) -> int:
    field = 0
    while data[at]:
        field, kind, at = _head(data, at, field)
        if field == _UNENCODED and leaf.type != "BYTE_ARRAY":
            raise ValueError(f"a size of texts in a column of {leaf.type}")
        if field in (_REPETITION, _DEFINITION) and kind == _LIST:
            most = leaf.repetition if field == _REPETITION else leaf.definition
            count, _, _ = _list_head(data, at)
            if count not in (0, most + 1):
                raise ValueError(f"a histogram of {count} levels where there are {most + 1}")
        at = _skip(data, at, kind, 0)
    return at + 1


def _head(data: bytes, at: int, field: int) -> tuple[int, int, int]:
    """Number and type of a struct's next field, and where its value starts."""
    head = data[at]
    if head > 15:
        return field + (head >> 4), head & 15, at + 1
    number, at = _varint(data, at + 1)
    return number >> 1 ^ -(number & 1), head, at


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Number and type of a list's entries, and where they start."""
    head = data[at]
    count, at = (head >> 4, at + 1) if head < 0xF0 else _varint(data, at + 1)
    if count > len(data) - at:
        raise ValueError("a list with more entries than bytes")
    return count, head & 15, at


def _structs(data: bytes, at: int) -> tuple[int, int]:
    count, kind, at = _list_head(data, at)
    if count and kind != _STRUCT:
        raise ValueError(f"a list of type {kind} where structs are expected")
    return count, at


def _skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where a value ends."""
    if _I16 <= kind <= _I64:
        while data[at] > 0x7F:
            at += 1
        return at + 1
    if kind == _BINARY:
        length, at = _varint(data, at)
        if length > len(data) - at:
            raise IndexError
        return at + length
    if kind in (_TRUE, _FALSE):
        return at
    if kind in (_BYTE, _DOUBLE):
        return at + (1 if kind == _BYTE else 8)
    if depth > _DEEPEST:
        raise ValueError("its footer nests too deep")
    return _skip_nested(data, at, kind, depth + 1)


def _skip_nested(data: bytes, at: int, kind: int, depth: int) -> int:
    if kind == _STRUCT:
        while data[at]:
            _, inner, at = _head(data, at, 0)
            at = _skip(data, at, inner, depth)
        return at + 1
    if kind in (_LIST, _SET):
        count, inner, at = _list_head(data, at)
        # a boolean in a list takes a byte, as a field it is in the head
        inner = _BYTE if inner in (_TRUE, _FALSE) else inner
        for _ in range(count):
            at = _skip(data, at, inner, depth)
        return at
    if kind == _MAP:
        count, at = _varint(data, at)
        if count > len(data) - at:
            raise IndexError
        kinds, at = (data[at], at + 1) if count else (0, at)
        for _ in range(count):
            at = _skip(data, _skip(data, at, kinds >> 4, depth), kinds & 15, depth)
        return at
    raise ValueError(f"its footer has a field of type {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise IndexError
    return value, at + 1
