"""A Parquet file's footer, checked before Arrow's bindings look into it.

`RowGroupMetaData.column` and `.statistics` of pyarrow let no error out: where a footer contradicts itself (histograms
of other levels than the column has, statistics of another width than its type) the process ends. So what Arrow would
check there is checked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

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
# Physical type, length, and the deepest repetition and definition level of a column.
_Leaf = tuple[str, int, int, int]
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
    leaves = [schema.column(number) for number in range(len(schema))]
    try:
        _Footer(footer, [(c.physical_type, c.length, c.max_repetition_level, c.max_definition_level) for c in leaves])
    except IndexError:
        raise ValueError("its footer is cut off") from None


class _Footer:
    """Walks over a footer once; all but the column chunks is skipped."""

    def __init__(self, data: bytes, leaves: Sequence[_Leaf]) -> None:
        self._data = data
        self._at = 0
        self._leaves = leaves
        for field, kind in self._fields():
            if field == _ROW_GROUPS and kind == _LIST:
                for _ in range(self._list_of(_STRUCT)):
                    self._row_group()
            else:
                self._skip(kind)

    def _row_group(self) -> None:
        seen = 0
        for field, kind in self._fields():
            if field == _COLUMNS and kind == _LIST:
                seen = self._list_of(_STRUCT)
                if seen != len(self._leaves):
                    raise ValueError(f"a row group of {seen} columns under a schema of {len(self._leaves)}")
                for leaf in self._leaves:
                    self._chunk(leaf)
            else:
                self._skip(kind)
        if seen != len(self._leaves):
            raise ValueError("a row group without columns")

    def _chunk(self, leaf: _Leaf) -> None:
        found = False
        for field, kind in self._fields():
            if field != _META_DATA or kind != _STRUCT:
                self._skip(kind)
                continue
            found = True
            for inner, inner_kind in self._fields():
                if inner == _TYPE and inner_kind == _I32:
                    number = self._zigzag()
                    if not 0 <= number < len(_TYPES) or _TYPES[number] != leaf[0]:
                        raise ValueError(f"a column chunk of type {number} in a column of {leaf[0]}")
                elif inner == _STATISTICS and inner_kind == _STRUCT:
                    self._statistics(_WIDTHS.get(leaf[0], leaf[1] if leaf[0].startswith("FIXED") else 0))
                elif inner == _SIZES and inner_kind == _STRUCT:
                    self._sizes(leaf)
                else:
                    self._skip(inner_kind)
        if not found:
            raise ValueError("a column chunk without metadata")

    def _statistics(self, width: int) -> None:
        for field, kind in self._fields():
            start = self._at
            self._skip(kind)
            if width and field in _BOUNDS and kind == _BINARY and self._at - start - 1 != width:
                raise ValueError(f"a column's range has {self._at - start - 1} bytes where its type has {width}")

    def _sizes(self, leaf: _Leaf) -> None:
        for field, kind in self._fields():
            if field == _UNENCODED and leaf[0] != "BYTE_ARRAY":
                raise ValueError(f"a size of texts in a column of {leaf[0]}")
            if field in (_REPETITION, _DEFINITION) and kind == _LIST:
                count, most = self._list_of(_I64), leaf[2] if field == _REPETITION else leaf[3]
                if count not in (0, most + 1):
                    raise ValueError(f"a histogram of {count} levels where there are {most + 1}")
                for _ in range(count):
                    self._varint()
            else:
                self._skip(kind)

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct; whoever asks moves past its value before the next."""
        field = 0
        while True:
            head = self._data[self._at]
            self._at += 1
            if not head:
                return
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            yield field, head & 15

    def _list_of(self, wanted: int) -> int:
        head = self._data[self._at]
        self._at += 1
        count = head >> 4 if head >> 4 != 15 else self._varint()
        if count and head & 15 != wanted:
            raise ValueError(f"a list of type {head & 15} where {wanted} is expected")
        if count > len(self._data) - self._at:
            raise ValueError("a list with more entries than bytes")
        return count

    def _skip(self, kind: int, depth: int = 0) -> None:
        if kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _BINARY:
            length = self._varint()
            if length > len(self._data) - self._at:
                raise IndexError
            self._at += length
        elif kind in (_BYTE, _DOUBLE):
            self._at += 1 if kind == _BYTE else 8
        elif kind not in (_TRUE, _FALSE):
            self._skip_nested(kind, depth + 1)

    def _skip_nested(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise ValueError("its footer nests too deep")
        if kind == _STRUCT:
            for _, inner in self._fields():
                self._skip(inner, depth)
        elif kind in (_LIST, _SET):
            inner = self._data[self._at] & 15
            for _ in range(self._list_of(inner)):
                # a boolean in a list takes a byte, as a field it is in the head
                self._skip(_BYTE if inner in (_TRUE, _FALSE) else inner, depth)
        elif kind == _MAP:
            count = self._varint()
            if count > len(self._data) - self._at:
                raise IndexError
            kinds = self._data[self._at] if count else 0
            self._at += 1 if count else 0
            for _ in range(count):
                self._skip(kinds >> 4, depth)
                self._skip(kinds & 15, depth)
        else:
            raise ValueError(f"its footer has a field of type {kind}")

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _varint(self) -> int:
        data, at = self._data, self._at
        byte = data[at]
        at += 1
        value, shift = byte & 0x7F, 7
        while byte >= 0x80:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 70:
                raise IndexError
        self._at = at
        return value
