"""Thrift's compact protocol, as far as structs can be taken apart and put together again without knowing their fields.

A struct is a list of fields whose values stay the bytes that they are, so what nobody knows here is kept as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lakebed.format.varints import read_varint, unzigzag, varint, zigzag

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_DEEPEST: Final = 32
_STOP: Final = b"\0"


class Field(NamedTuple):
    """A field of a struct: its number, its type, and its value's bytes (none of a boolean, whose type tells)."""

    number: int
    kind: int
    value: bytes


def read_struct(data: bytes, at: int = 0) -> tuple[list[Field], int]:
    """The fields of a struct and where it ends. Raises `ValueError` and `IndexError` for what is none."""
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
    """The type of a list's entries, and each as its bytes."""
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
    """A field that is a whole number of more than one byte."""
    return Field(number, kind, varint(zigzag(value)))


def number_in(value: bytes, at: int = 0) -> int:
    """A whole number of more than one byte."""
    found, _ = read_varint(value, at)
    return unzigzag(found)


# What goes over every chunk of every footer that is read: positions in, positions out, no object in between.


def head(data: bytes, at: int, field: int) -> tuple[int, int, int]:
    """Number and type of a struct's next field, and where its value starts."""
    first = data[at]
    if first > 15:
        return field + (first >> 4), first & 15, at + 1
    number, at = read_varint(data, at + 1)
    return number >> 1 ^ -(number & 1), first, at


def list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Number and type of a list's entries, and where they start."""
    first = data[at]
    count, at = (first >> 4, at + 1) if first < 0xF0 else read_varint(data, at + 1)
    if count > len(data) - at:
        raise ValueError("a list with more entries than bytes")
    return count, first & 15, at


def structs(data: bytes, at: int) -> tuple[int, int]:
    """Number of the structs of a list, and where they start."""
    count, kind, at = list_head(data, at)
    if count and kind != STRUCT:
        raise ValueError(f"a list of type {kind} where structs are expected")
    return count, at


def skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where a value ends."""
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
    if depth > _DEEPEST:
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
    """Where a struct ends; the usual fields without a call, since each page of each copied chunk has some ten."""
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
