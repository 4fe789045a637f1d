"""Read positions of many Avro records that advance together: each field is read by a few steps over all records.

Wrong lengths in the bytes never lead outside of them. The items of arrays and maps are found, and fields that are
not asked for are skipped, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.avro.encoder import decode_long
from lakebed.format.avro.types import AvroType

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
# So many bytes must follow the last record: values are read by words.
PADDING: Final = 16

_STOPS = np.uint64(0x8080808080808080)
_SEVENS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
_WORD: Final = 8
# Groups of seven bits are moved together pairwise: those that stay, those that move and by how much.
PACK: Final = tuple(
    (np.uint64(stay), np.uint64(move), np.uint64(by))
    for stay, move, by in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)

_EVEN: Final = pa.array(np.arange(0, 1 << 16, 2, dtype=np.int32))


class Damage(Exception):
    """The error for bytes that are not an Avro record of the expected schema."""


class Cursors:
    """The read position of each record, in a buffer that continues for `PADDING` bytes after the last record.

    Positions are only checked where a value has its length, and by `check`: before, a read may go up to ten bytes a
    field (64 of a short text) beyond a record's end, and gives values that `check` then refuses. Leaving the bytes
    raises `IndexError`.
    """

    __slots__ = ("_at", "_moved", "data", "ends", "room")

    def __init__(self, data: Bytes, at: Int64s, ends: Int64s, room: Room) -> None:
        self.data = data
        self._at = at
        # what all positions have moved since, which costs no step over all
        self._moved = 0
        self.ends = ends
        self.room = room

    def __len__(self) -> int:
        return len(self._at)

    @property
    def at(self) -> Int64s:
        if self._moved:
            self._at = self._at + self._moved
            self._moved = 0
        return self._at

    @at.setter
    def at(self, positions: Int64s) -> None:
        self._at, self._moved = positions, 0

    def part(self, rows: Int64s) -> Cursors:
        """Cursors over the records at `rows`; `rejoin` writes their positions back into this object."""
        return Cursors(self.data, self.at[rows], self.ends[rows], self.room)

    def rejoin(self, rows: Int64s, part: Cursors) -> None:
        self.at[rows] = part.at

    def move(self, by: Int64s | Bools | int) -> None:
        if isinstance(by, int):
            self._moved += by
        else:
            self._at = self._at + by

    def check(self, *, at_end: bool) -> None:
        """Raise `Damage` if a position is outside its record, or, with `at_end`, not at the end of its record."""
        if (self.at != self.ends).any() if at_end else (self.at > self.ends).any():
            raise Damage("a record has another length than its fields")

    def bytes(self) -> Bytes:
        return self.data[self._moved :].take(self._at)

    def varints(self, present: Bools | None = None) -> tuple[Int64s, Int64s | int]:
        """The variable-length numbers at the positions, and the number of bytes of each. Both are 0 where `present` is
        false."""
        first = self.bytes()
        if not len(first) or int(first.max()) < 0x80:
            small = first.view(np.int8)
            numbers = ((small >> 1) ^ -(small & 1)).astype(np.int64)
            return (numbers, 1) if present is None else (numbers * present, present.astype(np.int64))
        words: UInt64s = self._cells(_WORD, "<u8")
        if present is None:
            width = _common_width(words)
            if width:
                return _numbers_of_width(words, width), width
        stops = ~words & _STOPS
        stop = stops & (~stops + _ONE)
        value = words & (stop - _ONE) & _SEVENS
        for stay, move, by in PACK:
            value = (value & stay) | ((value & move) >> by)
        # the exponent of a power of two as a double is the number of its bit
        widths = ((stop.astype(np.float64).view(np.int64) >> 52) - 1022) >> 3
        if not stops.all():
            self._finish_long(value, widths, stops == 0 if present is None else (stops == 0) & present)
        numbers = _signed(value)
        return (numbers, widths) if present is None else (numbers * present, widths * present)

    def _finish_long(self, value: UInt64s, widths: Int64s, long: Bools) -> None:
        """Complete the numbers of nine and ten bytes, of which `value` has the first eight bytes; changes `value` and
        `widths`."""
        rows = np.flatnonzero(long)
        byte = self.data[self.at[rows] + 8]
        value[rows] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(56)
        widths[rows] = 9
        rows = rows[byte >= 0x80]
        byte = self.data[self.at[rows] + 9]
        if (byte > 1).any():
            raise Damage("a number has more than 64 bits")
        value[rows] |= byte.astype(np.uint64) << np.uint64(63)
        widths[rows] = 10

    def longs(self, present: Bools | None = None) -> Int64s:
        values, widths = self.varints(present)
        self.move(widths)
        return values

    def short_length(self) -> int:
        """The length of the text or byte value at the positions if it is short and equal in all records: the positions
        move to the content. Otherwise 0, and the positions stay."""
        length = only_value(self.bytes())
        if not length or length & 0x81:
            return 0
        self._moved += 1
        return length >> 1

    def spans(self, present: Bools | None = None) -> tuple[Int64s, Int64s]:
        """The start and the end of each record's text or byte value; the positions move past the value."""
        lengths, widths = self.varints(present)
        starts = self.at + widths
        # no length may lead beyond the numbers either
        if len(lengths) and (int(lengths.min()) < 0 or int(lengths.max()) > len(self.data)):
            raise Damage("a text or byte value is longer than its record")
        ends = starts + lengths
        if (ends > self.ends).any():
            raise Damage("a text or byte value is longer than its record")
        self.at = ends
        return starts, ends

    def cells(self, width: int, present: Bools | None = None) -> npt.NDArray[Any]:
        """The next `width` bytes of each record, as an array with one item per record."""
        if present is None:
            cells = self._cells(width, f"V{width}")
            self._moved += width
            return cells
        at = self.at
        self.at = at + present * np.int64(width)
        # where there is no value the bytes may end before a whole one
        return Cursors(self.data, np.where(present, at, 0), self.ends, self.room).cells(width)

    def _cells(self, width: int, kind: str) -> npt.NDArray[Any]:
        count = len(self.data) - self._moved - width + 1
        if count <= 0:
            raise IndexError
        view: Any = np.ndarray((count,), kind, self.data, self._moved, (1,))
        return view[self._at]

    def texts(self, starts: Int64s, ends: Int64s) -> pa.BinaryArray:
        """The bytes from `starts` to `ends`, copied at once: one binary per span."""
        count = len(starts)
        edges = np.empty(2 * count + 1, np.int32)
        edges[:-1:2], edges[1::2] = starts, ends
        edges[-1] = edges[-2] if count else 0
        spans_and_gaps = pa.Array.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(self.data)]
        )
        return spans_and_gaps.take(
            _EVEN.slice(0, count) if count <= len(_EVEN) else pa.array(np.arange(0, 2 * count, 2))
        )


def only_value(values: Bytes) -> int | None:
    """The value that all these bytes have; None if they differ or if there are no bytes."""
    raw = values.tobytes()
    return raw[0] if raw and raw == raw[:1] * len(raw) else None


def _common_width(words: UInt64s) -> int:
    """The number of bytes that each variable-length number at the start of these words has, if it is equal for all;
    otherwise 0."""
    stops = ~int(words[0]) & int(_STOPS)
    width = (stops & -stops).bit_length() >> 3
    if not width:
        return 0
    marks = int(_STOPS) & ((1 << 8 * width) - 1)
    more = np.uint64(marks >> 8)
    if (int(words[-1]) & marks) != int(more) or ((words & np.uint64(marks)) != more).any():
        return 0
    return width


def _numbers_of_width(words: UInt64s, width: int) -> Int64s:
    value = words & np.uint64(int(_SEVENS) & ((1 << 8 * width) - 1))
    for stay, move, by in PACK[: (width - 1).bit_length()]:
        value = (value & stay) | ((value & move) >> by)
    return _signed(value)


def _signed(value: UInt64s) -> Int64s:
    return (value >> _ONE).view(np.int64) ^ -(value & _ONE).view(np.int64)


class Room:
    """The memory that Arrow may use for the decoded records: a null record takes as many slots as the record has
    fields."""

    def __init__(self, size: int) -> None:
        self._left = (256 << 20) + 256 * size

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Damage("its rows take more than 256 times as much as its bytes")


WIDTHS: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
# Items of fewer records are read one by one: a step over many costs as much as twenty.
_MAX_ITEMS: Final = 20


def fixed_width(kind: AvroType) -> int | None:
    """The number of bytes of a value of this type, None if values differ in size."""
    if kind.kind == "fixed":
        return kind.size
    if kind.kind == "record":
        widths = [fixed_width(part) for part in kind.parts]
        return None if None in widths else sum(width for width in widths if width is not None)
    return WIDTHS.get(kind.kind)


def skip(cursors: Cursors, kind: AvroType) -> None:
    """Move past the next value, which has the type `kind`, in each record."""
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
    """The branch of the union in each record; a single number if it is the same in all records."""
    first = cursors.bytes()
    cursors.move(1)
    if not len(first):
        return 0
    branch = only_value(first)
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
            branch_cursors = cursors.part(rows)
            skip(branch_cursors, part)
            cursors.rejoin(rows, branch_cursors)


_MASKED: Final = frozenset({"string", "bytes", "int", "long", "enum", "boolean", "float", "double", "fixed"})


def find_items(cursors: Cursors, kind: AvroType) -> tuple[Int64s, Int64s]:
    """The number of items that each record's array or map has, and the positions where the items start, record by
    record. Moves past the array or map."""
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
            open_cursors = self._cursors.part(open_rows)
            left = self._block_counts(open_cursors)
            self._cursors.rejoin(open_rows, open_cursors)
            open_rows, left = open_rows[left > 0], left[left > 0]
            self._walk(open_rows, left)
        counts = np.zeros(len(self._cursors), np.int64)
        if not self._rows:
            return counts, np.empty(0, np.int64)
        rows, starts = np.concatenate(self._rows), np.concatenate(self._starts)
        np.add.at(counts, rows, 1)
        return counts, starts[np.argsort(rows, kind="stable")]

    def _block_counts(self, cursors: Cursors) -> Int64s:
        counts = cursors.longs()
        sized = np.flatnonzero(counts < 0)
        if len(sized):
            part = cursors.part(sized)
            part.longs()
            cursors.rejoin(sized, part)
            # the negative of the least number is itself
            counts = np.abs(counts)
        min_bytes = max(1, self._width or 0)
        if (counts < 0).any() or (counts > (cursors.ends - cursors.at) // min_bytes).any():
            raise Damage("an array or map has more items than its record has bytes")
        return counts

    def _walk(self, rows: Int64s, left: Int64s) -> None:
        """Move past the items of one block in each of these records."""
        if self._width is not None:
            total = np.cumsum(left)
            firsts = np.repeat(self._cursors.at[rows], left)
            self._rows.append(np.repeat(rows, left))
            self._starts.append(firsts + self._width * (np.arange(len(firsts)) - np.repeat(total - left, left)))
            self._cursors.at[rows] += self._width * left
            return
        while len(rows) > _MAX_ITEMS:
            row_cursors = self._cursors.part(rows)
            self._rows.append(rows)
            self._starts.append(row_cursors.at.copy())
            if self._is_map:
                row_cursors.spans()
            skip(row_cursors, self._item)
            row_cursors.check(at_end=False)
            self._cursors.rejoin(rows, row_cursors)
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
            at = step(data, _skip_text(data, at) if self._is_map else at)
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
        return _skip_text
    steps = [_stepper(part) for part in kind.parts]
    if kind.kind == "record":
        return lambda data, at: _skip_all(data, at, steps)
    if kind.kind == "union":
        return lambda data, at: _skip_branch(data, at, steps)
    is_map = kind.kind == "map"
    return lambda data, at: _skip_items(data, at, steps[0], is_map)


def _skip_text(data: bytes, at: int) -> int:
    length, at = decode_long(data, at)
    if not 0 <= length <= len(data) - at:
        raise Damage("a text or byte value is longer than its record")
    return at + length


def _skip_all(data: bytes, at: int, steps: list[_Step]) -> int:
    for step in steps:
        at = step(data, at)
    return at


def _skip_branch(data: bytes, at: int, steps: list[_Step]) -> int:
    branch, at = decode_long(data, at)
    if not 0 <= branch < len(steps):
        raise Damage(f"a union of {len(steps)} has no such branch")
    return steps[branch](data, at)


def _skip_items(data: bytes, at: int, step: _Step, is_map: bool) -> int:
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
            at = step(data, _skip_text(data, at) if is_map else at)


def record_ends(data: bytes, kinds: Sequence[AvroType], count: int, at: int = 0) -> Int64s:
    """The ends of `count` records that follow one another without lengths, from position `at` on; `kinds` are the types
    of a record's fields. Raises `Damage` if the bytes are not such records."""
    steps = [_stepper(kind) for kind in kinds]
    ends = np.empty(count, np.int64)
    try:
        for number in range(count):
            at = _skip_all(data, at, steps)
            ends[number] = at
    except IndexError:
        raise Damage("the records are longer than their bytes") from None
    if at > len(data):
        raise Damage("the records are longer than their bytes")
    return ends
