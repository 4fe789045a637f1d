"""Where the items of arrays and maps start, of many records at once; and moving past values that nobody asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np

from lakebed.format.avro.cursors import Cursors, Damage, Int64s, alike
from lakebed.format.avro.encoder import decode_long
from lakebed.format.avro.types import AvroType

WIDTHS: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
# Where items of fewer records are left they are gone through one by one: a step over many costs as much as twenty.
_FEW: Final = 20


def fixed_width(kind: AvroType) -> int | None:
    """Bytes of every value of this type, None where they differ."""
    if kind.kind == "fixed":
        return kind.size
    if kind.kind == "record":
        widths = [fixed_width(part) for part in kind.parts]
        return None if None in widths else sum(width for width in widths if width is not None)
    return WIDTHS.get(kind.kind)


def skip(cursors: Cursors, kind: AvroType) -> None:
    """Move past one value of each record."""
    width = fixed_width(kind)
    if width is not None:
        cursors.move(width)
    elif kind.kind in ("int", "long", "enum"):
        cursors.longs()
    elif kind.kind in ("string", "bytes"):
        length = cursors.short_length()
        if length:
            cursors.move(length)
        else:
            cursors.spans()
    elif kind.kind == "record":
        for part in kind.parts:
            skip(cursors, part)
    elif kind.kind == "union":
        _skip_union(cursors, kind)
    else:
        find_items(cursors, kind)


def branches(cursors: Cursors, kind: AvroType) -> Int64s | int:
    """The branch of a union of each record; one number where it is the same of all."""
    first = cursors.bytes()
    cursors.move(1)
    if not len(first):
        return 0
    branch = alike(first)
    # one byte is enough for 64 branches; Avro allows longer forms of small numbers, and no writer has them
    high, odd = (int(first.max()), (first & 1).any()) if branch is None else (branch, branch & 1)
    if high > 2 * len(kind.parts) - 2 or odd:
        raise Damage(f"a union of {len(kind.parts)} has no such branch")
    return (first >> 1).astype(np.int64) if branch is None else branch >> 1


def _skip_union(cursors: Cursors, kind: AvroType) -> None:
    branch = branches(cursors, kind)
    if isinstance(branch, int):
        skip(cursors, kind.parts[branch])
        return
    if kind.value >= 0 and kind.parts[kind.value].kind in _MASKED:
        present = branch == kind.value
        part = kind.parts[kind.value]
        if part.kind in ("string", "bytes"):
            cursors.spans(present)
        elif part.kind in ("int", "long", "enum"):
            cursors.longs(present)
        else:
            cursors.move(present * np.int64(fixed_width(part) or 0))
        return
    for number, part in enumerate(kind.parts):
        rows = np.flatnonzero(branch == number)
        if len(rows) and part.kind != "null":
            some = cursors.part(rows)
            skip(some, part)
            cursors.rejoin(rows, some)


_MASKED: Final = frozenset({"string", "bytes", "int", "long", "enum", "boolean", "float", "double", "fixed"})


def find_items(cursors: Cursors, kind: AvroType) -> tuple[Int64s, Int64s]:
    """How many items each record's array or map has, and where they start, record by record. Moves behind it."""
    finder = _ItemFinder(cursors, kind)
    return finder.find()


class _ItemFinder:
    def __init__(self, cursors: Cursors, kind: AvroType) -> None:
        self._cursors = cursors
        self._item = kind.parts[0]
        self._is_map = kind.kind == "map"
        self._width = None if self._is_map else fixed_width(self._item)
        self._rows: list[Int64s] = []
        self._starts: list[Int64s] = []

    def find(self) -> tuple[Int64s, Int64s]:
        open_rows = np.arange(len(self._cursors))
        while len(open_rows):
            some = self._cursors.part(open_rows)
            left = self._block_counts(some)
            self._cursors.rejoin(open_rows, some)
            open_rows, left = open_rows[left > 0], left[left > 0]
            self._walk(open_rows, left)
        counts = np.zeros(len(self._cursors), np.int64)
        if not self._rows:
            return counts, np.empty(0, np.int64)
        rows, starts = np.concatenate(self._rows), np.concatenate(self._starts)
        np.add.at(counts, rows, 1)
        return counts, starts[np.argsort(rows, kind="stable")]

    def _block_counts(self, some: Cursors) -> Int64s:
        counts = some.longs()
        sized = np.flatnonzero(counts < 0)
        if len(sized):
            part = some.part(sized)
            part.longs()
            some.rejoin(sized, part)
            # the negative of the least number is itself
            counts = np.abs(counts)
        least = max(1, self._width or 0)
        if (counts < 0).any() or (counts > (some.ends - some.at) // least).any():
            raise Damage("an array or map has more items than its record has bytes")
        return counts

    def _walk(self, rows: Int64s, left: Int64s) -> None:
        """Past the items of one block of each of these records."""
        if self._width is not None:
            total = np.cumsum(left)
            firsts = np.repeat(self._cursors.at[rows], left)
            self._rows.append(np.repeat(rows, left))
            self._starts.append(firsts + self._width * (np.arange(len(firsts)) - np.repeat(total - left, left)))
            self._cursors.at[rows] += self._width * left
            return
        while len(rows) > _FEW:
            some = self._cursors.part(rows)
            self._rows.append(rows)
            self._starts.append(some.at.copy())
            if self._is_map:
                some.spans()
            skip(some, self._item)
            some.check(whole=False)
            self._cursors.rejoin(rows, some)
            left = left - 1
            rows, left = rows[left > 0], left[left > 0]
        for row, count in zip(rows.tolist(), left.tolist(), strict=True):
            self._walk_one(row, count)

    def _walk_one(self, row: int, count: int) -> None:
        step = _stepper(self._item)
        cursors = self._cursors
        begin, end = int(cursors.at[row]), int(cursors.ends[row])
        data = cursors.data[begin:end].tobytes()
        at, starts = 0, list[int]()
        for _ in range(count):
            starts.append(at)
            at = step(data, _behind_text(data, at) if self._is_map else at)
        if at > len(data):
            raise IndexError
        self._rows.append(np.full(count, row))
        self._starts.append(np.array(starts, np.int64) + begin)
        cursors.at[row] = begin + at


_Step = Callable[[bytes, int], int]


@lru_cache(maxsize=256)
def _stepper(kind: AvroType) -> _Step:
    """A function that moves past one value of one record; it raises `IndexError` where that leaves the bytes."""
    width = fixed_width(kind)
    if width is not None:
        return lambda data, at: at + width
    if kind.kind in ("int", "long", "enum"):
        return lambda data, at: decode_long(data, at)[1]
    if kind.kind in ("string", "bytes"):
        return _behind_text
    steps = [_stepper(part) for part in kind.parts]
    if kind.kind == "record":
        return lambda data, at: _behind_all(data, at, steps)
    if kind.kind == "union":
        return lambda data, at: _behind_branch(data, at, steps)
    is_map = kind.kind == "map"
    return lambda data, at: _behind_items(data, at, steps[0], is_map)


def _behind_text(data: bytes, at: int) -> int:
    length, at = decode_long(data, at)
    if not 0 <= length <= len(data) - at:
        raise Damage("a text or byte value is longer than its record")
    return at + length


def _behind_all(data: bytes, at: int, steps: list[_Step]) -> int:
    for step in steps:
        at = step(data, at)
    return at


def _behind_branch(data: bytes, at: int, steps: list[_Step]) -> int:
    branch, at = decode_long(data, at)
    if not 0 <= branch < len(steps):
        raise Damage(f"a union of {len(steps)} has no such branch")
    return steps[branch](data, at)


def _behind_items(data: bytes, at: int, step: _Step, is_map: bool) -> int:
    while True:
        count, at = decode_long(data, at)
        if not count:
            return at
        if count < 0:
            count = -count
            _, at = decode_long(data, at)
        if count > len(data) - at:
            raise Damage("an array or map has more items than its record has bytes")
        for _ in range(count):
            at = step(data, _behind_text(data, at) if is_map else at)
