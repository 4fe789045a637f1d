"""Avro records of one schema to Arrow columns, one column at a time over all records: only the columns and records
that are asked for.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from math import isqrt
from typing import Any, Final, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.avro.columns import spread
from lakebed.format.avro.cursors import PADDING, Bools, Cursors, Damage, Int64s, Room, branches, find_items, skip
from lakebed.format.avro.types import AvroType, RecordSchema
from lakebed.format.avro.wrappers import decimals
from lakebed.format.hashes import value_buffer
from lakebed.schema.logical_types import fixed_length, is_vector, vectors_of_bytes

_DECIMAL_BYTES: Final = 16
_INT = np.iinfo(np.int32)
# A day in the units of times.
_DAY: Final = {pa.time32("ms"): 86_400_000, pa.time64("us"): 86_400_000_000}


def read_column(cursors: Cursors, kind: AvroType) -> pa.Array:
    """The next value of every record as an Arrow array of the type `kind`. Moves past the values."""
    if kind.kind == "union":
        return _union(cursors, kind)
    return _READERS[kind.kind](cursors, kind, None)


def read_texts(cursors: Cursors, kind: AvroType) -> pa.Array | bytes:
    """A text column, nullable or not: bytes if all records have one value, otherwise a dictionary array."""
    present = _present(cursors, kind) if kind.kind == "union" else None
    if present is False:
        return pa.nulls(len(cursors), pa.string()).dictionary_encode()
    raw = _binaries(cursors, present)
    if present is None:
        data, offsets = value_buffer(raw)
        length, values = int(offsets[1] - offsets[0]), data[int(offsets[0]) : int(offsets[-1])]
        if len(values) == length * len(raw) and (values[length:] == values[: len(values) - length]).all():
            return values[:length].tobytes()
    return _as_texts(raw, pa.string(), present).dictionary_encode()


def _binaries(cursors: Cursors, present: Bools | None) -> pa.BinaryArray:
    """The content of a text or byte value of each record; empty for a record where `present` is false."""
    length = cursors.short_length() if present is None else 0
    if not length:
        return cursors.texts(*cursors.spans(present))
    values = cursors.cells(length)
    offsets = np.arange(0, length * len(values) + 1, length, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _as_texts(raw: pa.BinaryArray, kind: pa.DataType, present: Bools | None) -> pa.Array:
    _, offsets, data = raw.buffers()
    # a look for bytes beyond ASCII takes much less time than a check for UTF-8
    if pa.types.is_string(kind) and data is not None and data.size and np.frombuffer(data, np.uint8).max() >= 0x80:
        try:
            raw.cast(pa.string())
        except pa.ArrowInvalid:
            raise Damage("a text is not UTF-8") from None
    return pa.Array.from_buffers(kind, len(raw), [_validity(present), offsets, data])


def _present(cursors: Cursors, kind: AvroType) -> Bools | Literal[False] | None:
    """The records that have a value in a union of null and one type: a mask, None if all have one, False if none has
    one."""
    branch = branches(cursors, kind)
    if isinstance(branch, int):
        return None if branch == kind.value else False
    return branch == kind.value


def _union(cursors: Cursors, kind: AvroType) -> pa.Array:
    if kind.value < 0:
        return _wide_union(cursors, kind)
    part = kind.parts[kind.value]
    present = _present(cursors, kind)
    if present is None:
        return _READERS[part.kind](cursors, part, None)
    if present is False:
        cursors.room.take(kind.slot * len(cursors))
        return pa.nulls(len(cursors), kind.arrow)
    if part.kind in _NESTED:
        rows = np.flatnonzero(present)
        present_cursors = cursors.part(rows)
        values = _READERS[part.kind](present_cursors, part, None)
        cursors.rejoin(rows, present_cursors)
        cursors.room.take(kind.slot * len(cursors))
        return spread(values, present)
    return _READERS[part.kind](cursors, part, present)


def _wide_union(cursors: Cursors, kind: AvroType) -> pa.Array:
    """A union of one type or of several as a struct with one member per type."""
    branch = branches(cursors, kind)
    if len(kind.parts) == 1:
        return read_column(cursors, kind.parts[0])
    cursors.room.take(kind.slot * len(cursors))
    branch_numbers = np.full(len(cursors), branch) if isinstance(branch, int) else branch
    members: list[pa.Array] = []
    for number, part in enumerate(kind.parts):
        if part.kind == "null":
            continue
        is_branch = branch_numbers == number
        rows = np.flatnonzero(is_branch)
        branch_cursors = cursors.part(rows)
        values = read_column(branch_cursors, part)
        cursors.rejoin(rows, branch_cursors)
        members.append(spread(values, is_branch))
    nulls = [number for number, part in enumerate(kind.parts) if part.kind == "null"]
    return _nested(kind.arrow, len(cursors), [_validity(~np.isin(branch_numbers, nulls)) if nulls else None], members)


def _longs(cursors: Cursors, kind: AvroType, present: Bools | None) -> pa.Array:
    return _of_buffer(kind, _in_day(cursors.longs(present), kind), present)


def _ints(cursors: Cursors, kind: AvroType, present: Bools | None) -> pa.Array:
    values = cursors.longs(present)
    if len(values) and (int(values.min()) < _INT.min or int(values.max()) > _INT.max):
        raise Damage("an int has more than 32 bits")
    return _of_buffer(kind, _in_day(values, kind).astype(np.int32), present)


def _in_day(values: Int64s, kind: AvroType) -> Int64s:
    """The values of a time column, unchanged. Raises `Damage` for one outside of 0:00 to 24:00."""
    day_length = _DAY.get(kind.arrow)
    if day_length and len(values) and not (int(values.min()) >= 0 and int(values.max()) < day_length):
        raise Damage("a time is not within a day")
    return values


def _booleans(cursors: Cursors, kind: AvroType, present: Bools | None) -> pa.Array:
    values = cursors.bytes()
    if present is not None:
        values = values * present
    if len(values) and int(values.max()) > 1:
        raise Damage("a boolean is neither 0 nor 1")
    cursors.move(1 if present is None else present)
    return _of_buffer(kind, np.packbits(values, bitorder="little"), present, len(values))


def _floats(cursors: Cursors, kind: AvroType, present: Bools | None) -> pa.Array:
    cells = cursors.cells(4 if kind.kind == "float" else 8, present)
    return _of_buffer(kind, cells, present)


def _texts(cursors: Cursors, kind: AvroType, present: Bools | None) -> pa.Array:
    raw = _binaries(cursors, present)
    if kind.is_decimal:
        return _decimals_of(raw, kind, present)
    assert kind.arrow is not None
    return _as_texts(raw, kind.arrow, present)


def _fixed(cursors: Cursors, kind: AvroType, present: Bools | None) -> pa.Array:
    count = len(cursors)
    if kind.is_decimal and kind.size:
        return _fixed_decimals(cursors, kind, present)
    starts = cursors.at
    lengths = np.full(count, kind.size) if present is None else present * np.int64(kind.size)
    cursors.move(lengths)
    if (cursors.at > cursors.ends).any():
        raise Damage("a fixed value is longer than its record")
    raw = cursors.texts(starts, cursors.at)
    values = pa.Array.from_buffers(pa.binary(), count, [_validity(present), *raw.buffers()[1:]])
    if kind.arrow is not None and is_vector(kind.arrow):
        return vectors_of_bytes(values, kind.arrow)
    return fixed_length(values, kind.size) if kind.size else values


def _fixed_decimals(cursors: Cursors, kind: AvroType, present: Bools | None) -> pa.Array:
    raw = cursors.cells(kind.size, present).view(np.uint8).reshape(-1, kind.size)
    sign = np.where(raw[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    used = min(kind.size, _DECIMAL_BYTES)
    little = np.empty((len(raw), _DECIMAL_BYTES), np.uint8)
    little[:, :used] = raw[:, : -used - 1 : -1]
    little[:, used:] = sign
    beyond = (raw[:, :-used] != sign).any(axis=1) | (little[:, -1] >= 0x80) != (sign[:, 0] == 0xFF)
    if (beyond if present is None else beyond & present).any():
        raise Damage("a decimal has more digits than its type")
    if present is not None:
        little[~present] = 0
    return _checked_decimals(_of_buffer(kind, little, present, len(raw)))


def _decimals_of(raw: pa.BinaryArray, kind: AvroType, present: Bools | None) -> pa.Array:
    values = decimals(raw, kind.arrow)
    return _checked_decimals(_of_buffer(kind, values.buffers()[1], present, len(raw)))


def _checked_decimals(values: pa.Array) -> pa.Array:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raise Damage("a decimal has more digits than its type") from None
    return values


def _enums(cursors: Cursors, kind: AvroType, present: Bools | None) -> pa.Array:
    codes = cursors.longs(present)
    if len(codes) and (int(codes.min()) < 0 or int(codes.max()) >= len(kind.names)):
        raise Damage(f"an enum has no symbol {int(codes.max())}")
    return pa.array(kind.names, pa.string()).take(pa.array(codes, mask=None if present is None else ~present))


def _records(cursors: Cursors, kind: AvroType, _: Bools | None) -> pa.Array:
    cursors.room.take(kind.slot * len(cursors))
    children: list[pa.Array] = []
    for part in kind.parts:
        values = read_column(cursors, part)
        if part.arrow is not None:
            children.append(values)
    return _nested(kind.arrow, len(cursors), [None], children)


def _arrays(cursors: Cursors, kind: AvroType, _: Bools | None) -> pa.Array:
    counts, items = _items(cursors, kind)
    values = read_column(items, kind.parts[0])
    items.check(at_end=False)
    return _nested(kind.arrow, len(cursors), [None, _offsets(counts)], [values])


def _maps(cursors: Cursors, kind: AvroType, _: Bools | None) -> pa.Array:
    counts, items = _items(cursors, kind)
    keys = _as_texts(items.texts(*items.spans()), pa.string(), None)
    values = read_column(items, kind.parts[0])
    items.check(at_end=False)
    arrow = cast("Any", kind.arrow)
    pairs = _nested(pa.struct([arrow.key_field, arrow.item_field]), len(items), [None], [keys, values])
    return _nested(kind.arrow, len(cursors), [None, _offsets(counts)], [pairs])


def _items(cursors: Cursors, kind: AvroType) -> tuple[Int64s, Cursors]:
    ends = cursors.ends
    counts, starts = find_items(cursors, kind)
    return counts, Cursors(cursors.data, starts, np.repeat(ends, counts), cursors.room)


def _nulls(cursors: Cursors, _: AvroType, __: Bools | None) -> pa.Array:
    return pa.nulls(len(cursors))


def _offsets(counts: Int64s) -> pa.Buffer:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.py_buffer(offsets)


def _nested(kind: Any, count: int, buffers: list[Any], children: list[pa.Array]) -> pa.Array:
    return pa.Array.from_buffers(kind, count, buffers, children=children)


def _of_buffer(
    kind: AvroType, values: npt.NDArray[Any] | pa.Buffer, present: Bools | None, count: int | None = None
) -> pa.Array:
    data = values if isinstance(values, pa.Buffer) else pa.py_buffer(np.ascontiguousarray(values))
    size = len(cast("Any", values)) if count is None else count
    return pa.Array.from_buffers(cast("Any", kind.arrow), size, [_validity(present), data])


def _validity(present: Bools | None) -> pa.Buffer | None:
    return None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))


_READERS: Final[dict[str, Callable[[Cursors, AvroType, Bools | None], pa.Array]]] = {
    "null": _nulls,
    "boolean": _booleans,
    "int": _ints,
    "long": _longs,
    "float": _floats,
    "double": _floats,
    "bytes": _texts,
    "string": _texts,
    "fixed": _fixed,
    "enum": _enums,
    "record": _records,
    "array": _arrays,
    "map": _maps,
}
_NESTED: Final = frozenset({"record", "array", "map"})


Bytes = npt.NDArray[np.uint8]
# Records whose bytes stay in the processor's cache while their fields are read.
_CHUNK_ROWS: Final = 16_384
_CHUNK_BYTES: Final = 2 << 20
_LENGTH = struct.Struct(">i")
# Fewer records are read one by one; of more, from up to so many positions at a time.
_MIN_ROWS: Final = 512
_LANES: Final = 512
_MIN_LANES: Final = 16
# Of lanes of different lengths this many times the records are read, at most.
_SPARE: Final = 3
_MAX_MARK: Final = 12
_MIN_MARK: Final = 6


class Stretch(NamedTuple):
    """A range of bytes with `records` records, one after the other, each with its length (4 bytes) in front."""

    start: int
    end: int
    records: int


def read_records(
    data: Bytes,
    starts: Int64s,
    ends: Int64s,
    schema: RecordSchema,
    columns: Sequence[str],
    dictionary: Collection[str] = (),
) -> list[pa.Array]:
    """The `columns` of the records in `data` between `starts` and `ends`, in the types of `avro_to_arrow`; text columns
    named in `dictionary` are dictionary arrays. Raises `Damage` or `IndexError` if the bytes are not such records."""
    names = list(schema.types)
    read_fields = max([at + 1 for at, name in enumerate(names) if name in columns], default=0)
    fields = list(schema.types.items())[:read_fields]
    parts: dict[str, list[pa.Array | bytes]] = {name: [] for name in columns}
    room = Room(len(data))
    room.take(sum([schema.types[name].slot for name in columns]) * len(starts))
    for first, last in _chunks(starts, ends):
        cursors = _cursors(data, starts[first:last], ends[first:last], room)
        for name, kind in fields:
            if name not in parts:
                skip(cursors, kind)
            elif name in dictionary:
                parts[name].append(read_texts(cursors, kind))
            else:
                parts[name].append(read_column(cursors, kind))
        cursors.check(at_end=len(fields) == len(schema.types))
    counts = [last - first for first, last in _chunks(starts, ends)]
    return [_column(parts[name], counts, schema.arrow.field(name), name in dictionary) for name in columns]


def _chunks(starts: Int64s, ends: Int64s) -> list[tuple[int, int]]:
    if not len(starts):
        return []
    size = int((ends - starts).sum()) // len(starts) + 1
    step = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // size))
    return list(pairwise([*range(0, len(starts), step), len(starts)]))


def _cursors(data: Bytes, starts: Int64s, ends: Int64s, room: Room) -> Cursors:
    first, last = int(starts[0]), int(ends[-1])
    if last + PADDING <= len(data):
        part = data[first : last + PADDING]
    else:
        part = np.zeros(last - first + PADDING, np.uint8)
        part[: last - first] = data[first:last]
    return Cursors(part, starts - first, ends - first, room)


def _column(parts: Sequence[pa.Array | bytes], counts: Sequence[int], field: pa.Field, is_dictionary: bool) -> pa.Array:
    if not is_dictionary:
        arrays: list[Any] = list(parts)
        return pa.concat_arrays(arrays) if arrays else pa.array([], field.type)
    kind = pa.dictionary(pa.int32(), pa.string())
    if not parts:
        return pa.array([], kind)
    equal = [part for part in parts if isinstance(part, bytes) and part == parts[0]]
    if len(equal) == len(parts):
        return _repeated(equal[0], sum(counts))
    chunks = [_repeated(p, n) if isinstance(p, bytes) else p for p, n in zip(parts, counts, strict=True)]
    column = pa.chunked_array(chunks, kind).unify_dictionaries().combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _repeated(value: bytes, count: int) -> pa.DictionaryArray:
    try:
        values = pa.array([value.decode()], pa.string())
    except UnicodeDecodeError:
        raise Damage("a text is not UTF-8") from None
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), values)


def record_bounds(data: bytes | memoryview, count: int, start: int) -> tuple[Int64s, Int64s]:
    """The starts and ends of `count` records, which follow one another with their length (4 bytes) in front and reach
    to the end of `data`. Raises `Damage`."""
    if not 0 <= count <= (len(data) - start) // _LENGTH.size:
        raise Damage(f"{count} records in {len(data)} bytes")
    bounds = joint_bounds(data, [Stretch(start, len(data), count)]) if count >= _MIN_ROWS else None
    if bounds is not None:
        return bounds
    lengths = np.array(_one_by_one(data, start, len(data), count), np.int64)
    if len(lengths) != count or (count == 0 and start != len(data)):
        raise Damage(f"it does not hold the {count} records that it should")
    return lengths + _LENGTH.size, np.append(lengths[1:], len(data))


def _one_by_one(data: bytes | memoryview, at: int, end: int, count: int) -> list[int]:
    """The positions of the lengths of `count` records, from `at` to exactly `end`."""
    positions: list[int] = []
    read = _LENGTH.unpack_from
    add = positions.append
    while at < end:
        if len(positions) == count or at + _LENGTH.size > end:
            raise Damage("bytes are left over after its records")
        add(at)
        (length,) = read(data, at)
        if length < 0:
            raise Damage(f"a record of {length} bytes")
        at += _LENGTH.size + length
    if at != end:
        raise Damage("a record reaches beyond its end")
    return positions


def joint_bounds(data: bytes | memoryview, stretches: Sequence[Stretch]) -> tuple[Int64s, Int64s] | None:
    """The starts and ends of the records of several stretches, read together: from many positions at a time that look
    like the start of a record, each up to the next one. None if these positions do not lead from record to record."""
    stretches = [stretch for stretch in stretches if stretch.records or stretch.start != stretch.end]
    total = sum(stretch.records for stretch in stretches)
    if not all(0 < stretch.records <= (stretch.end - stretch.start) // _LENGTH.size for stretch in stretches):
        return None
    number = min(_LANES, isqrt(total * 8))
    lanes = [lane for stretch in stretches for lane in _lanes(data, stretch, number * stretch.records // total)]
    if len(lanes) < _MIN_LANES:
        return None
    positions = _visited(np.frombuffer(data, np.uint8), np.array(lanes), stretches, total)
    firsts = np.searchsorted(positions, [stretch.start for stretch in stretches])
    counts = [stretch.records for stretch in stretches]
    if np.diff(firsts, append=len(positions)).tolist() != counts:
        return None
    ends = np.append(positions[1:], len(data))
    ends[firsts + counts - 1] = [stretch.end for stretch in stretches]
    return (positions + _LENGTH.size, ends) if np.array_equal(_ends(data, positions), ends) else None


def _visited(cells: Bytes, lanes: Int64s, stretches: Sequence[Stretch], total: int) -> Int64s:
    """The positions that steps from record to record lead to, in order."""
    at, goals = lanes, np.append(lanes[1:], 0)
    goals[np.searchsorted(lanes, [stretch.start for stretch in stretches[1:]]) - 1] = [s.end for s in stretches[:-1]]
    goals[-1] = stretches[-1].end
    visited: list[Int64s] = []
    high, low = cells[2:], cells[3:]
    while len(visited) * len(lanes) < _SPARE * total and (at < goals).any():
        visited.append(at)
        # a record that is longer than two bytes can express is seen by what follows
        length = (high.take(at, mode="clip").astype(np.int64) << 8) | low.take(at, mode="clip")
        at = np.minimum(at + (length + _LENGTH.size), goals)
    positions = np.stack(visited, axis=1)
    return positions[positions < goals[:, None]]


def _lanes(data: bytes | memoryview, stretch: Stretch, number: int) -> list[int]:
    """About `number` positions of a stretch that look like the start of a record; the first record's start is the first
    of them."""
    lanes = [stretch.start]
    mark = _mark(data, stretch.start, stretch.end) if number > 1 else None
    if mark is None:
        return lanes
    size = stretch.end - stretch.start
    reach = 4 * size // stretch.records + 2 * len(mark)
    for near in range(stretch.start + size // number, stretch.end, max(1, size // number)):
        offset = bytes(data[near : min(near + reach, stretch.end)]).find(mark, _LENGTH.size)
        if offset >= 0 and near + offset - _LENGTH.size > lanes[-1]:
            lanes.append(near + offset - _LENGTH.size)
    return lanes


def _ends(data: bytes | memoryview, positions: Int64s) -> Int64s:
    """The end of each record whose length is stored at one of these positions."""
    cells = np.frombuffer(data, np.uint8)
    if int(positions[-1]) + _LENGTH.size > len(cells):
        return positions
    words: Any = np.ndarray((len(cells) - _LENGTH.size + 1,), np.uint32, cells, 0, (1,))
    lengths = words[positions]
    return positions + (lengths.byteswap() if sys.byteorder == "little" else lengths) + _LENGTH.size


def _mark(data: bytes | memoryview, start: int, end: int) -> bytes | None:
    """The bytes with which both of the first two records begin; None if they are too few to search for."""
    (length,) = _LENGTH.unpack_from(data, start)
    second = start + _LENGTH.size + length
    if not 0 <= length <= end - second - _LENGTH.size:
        return None
    first_head, second_head = (bytes(data[at + _LENGTH.size : at + _LENGTH.size + _MAX_MARK]) for at in (start, second))
    common = next(
        (n for n, (a, b) in enumerate(zip(first_head, second_head, strict=False)) if a != b),
        min(len(first_head), len(second_head)),
    )
    return first_head[:common] if common >= _MIN_MARK else None
