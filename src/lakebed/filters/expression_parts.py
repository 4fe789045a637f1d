"""What an Arrow expression consists of: calls of functions, columns and constants.

pyarrow shows no parts of an expression, but it serialises one (as it pickles) to an Arrow IPC file: the schema's
metadata lists the parts in prefix order, `call` to `end` of each function, and the one row holds the constants. The
list repeats keys, which `Schema.metadata` would drop, so it is read from the file's footer. (Substrait would do as
well, were the size of what pyarrow writes not exponential in the depth of the expression.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_MAGIC = b"ARROW1"
# Places of the fields in the tables Footer, Schema and KeyValue of Arrow's flatbuffers.
_FOOTER_SCHEMA, _SCHEMA_METADATA, _KEY, _VALUE = 1, 2, 0, 1


class UnreadableExpression(Exception):
    """An expression whose parts cannot be told."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A column, or a field of a struct column (`path` has the steps)."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    value: pa.Scalar


@dataclass(slots=True)
class Call:
    """A function of `pyarrow.compute` by its name, with its options as a struct, None where it has none."""

    name: str
    arguments: list[Part] = field(default_factory=list["Part"])
    options: Any = None


Part = Reference | Constant | Call


def parts_of(expression: pc.Expression) -> tuple[Part, frozenset[str]]:
    """The expression's parts, and the top-level columns that occur in it.

    >>> parts_of(pc.field("a") > pc.field("b", "c"))[0]
    Call(name='greater', arguments=[Reference(path=('a',)), Reference(path=('b', 'c'))], options=None)
    """
    try:
        reduced: Any = expression.__reduce__()
        buffer = reduced[1][0]
        with pa.ipc.open_file(buffer) as reader:
            row = reader.get_batch(0)
        return _parse(_metadata(bytes(buffer)), row)
    except (pa.ArrowException, struct.error, IndexError, ValueError, TypeError) as error:
        raise UnreadableExpression from error


def _parse(pairs: Iterator[tuple[str, str]], row: pa.RecordBatch) -> tuple[Part, frozenset[str]]:
    top = Call("")
    calls, columns = [top], set[str]()
    for kind, text in pairs:
        part: Part
        match kind:
            case "field_ref":
                part = Reference((text,))
            case "nested_field_ref":
                part = Reference(tuple(name for _, name in (next(pairs) for _ in range(int(text)))))
            case "literal":
                part = Constant(row.column(int(text))[0])
            case "call":
                part = Call(text)
            case "options":
                calls[-1].options = row.column(int(text))[0]
                continue
            case "end":
                calls.pop()
                continue
            case _:
                raise ValueError(f"a part of the kind {kind}")
        if isinstance(part, Reference):
            columns.add(part.path[0])
        calls[-1].arguments.append(part)
        if isinstance(part, Call):
            calls.append(part)
    return top.arguments[0], frozenset(columns)


def _metadata(file: bytes) -> Iterator[tuple[str, str]]:
    """Keys and values of the schema's metadata in an Arrow IPC file, in order and with repetitions."""
    end = len(file) - len(_MAGIC) - 4
    footer = _Table.root(file, end - struct.unpack_from("<i", file, end)[0])
    for pair in footer.table(_FOOTER_SCHEMA).tables(_SCHEMA_METADATA):
        yield pair.text(_KEY), pair.text(_VALUE)


@dataclass(frozen=True, slots=True)
class _Table:
    """A flatbuffers table at a place of a buffer."""

    buffer: bytes
    at: int

    @classmethod
    def root(cls, buffer: bytes, start: int) -> _Table:
        return cls(buffer, _target(buffer, start))

    def table(self, field: int) -> _Table:
        return _Table(self.buffer, self._target(field))

    def tables(self, field: int) -> Iterator[_Table]:
        start = self._target(field)
        for number in range(struct.unpack_from("<I", self.buffer, start)[0]):
            yield _Table(self.buffer, _target(self.buffer, start + 4 + 4 * number))

    def text(self, field: int) -> str:
        start = self._target(field)
        size = struct.unpack_from("<I", self.buffer, start)[0]
        return self.buffer[start + 4 : start + 4 + size].decode()

    def _target(self, field: int) -> int:
        vtable = self.at - struct.unpack_from("<i", self.buffer, self.at)[0]
        place = 4 + 2 * field
        offset = struct.unpack_from("<H", self.buffer, vtable + place)[0]
        if place >= struct.unpack_from("<H", self.buffer, vtable)[0] or not offset:
            raise ValueError(f"no field {field}")
        return _target(self.buffer, self.at + offset)


def _target(buffer: bytes, place: int) -> int:
    """Where the offset that is stored at a place leads to."""
    return place + struct.unpack_from("<I", buffer, place)[0]
