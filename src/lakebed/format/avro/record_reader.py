"""Avro records of one schema to Arrow columns: only those that are asked for, of the records that are asked for."""

from __future__ import annotations

import struct
import sys
from collections.abc import Collection, Sequence
from itertools import pairwise
from math import isqrt
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.avro.cursors import PADDING, Cursors, Damage, Room
from lakebed.format.avro.decode import read_column, read_texts
from lakebed.format.avro.items import skip
from lakebed.format.avro.types import AvroType, RecordSchema

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
# Records whose bytes stay in the processor's cache while their fields are gone through.
_CHUNK_ROWS: Final = 16_384
_CHUNK_BYTES: Final = 2 << 20
_LENGTH = struct.Struct(">i")
# Fewer records are gone through one by one; of more, from up to so many places at a time.
_MANY: Final = 512
_LANES: Final = 512
_FEWEST_LANES: Final = 16
# Of lanes of different lengths this many times the records are gone through, at most.
_SPARE: Final = 3
_LONGEST_MARK: Final = 12
_SHORTEST_MARK: Final = 6


class Stretch(NamedTuple):
    """Bytes that hold so many records, one behind the other with their length (4 bytes) in front."""

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
    """These columns of the records that lie in `data` between these places, in the types of `avro_to_arrow`; texts that
    `dictionary` names as dictionaries. Raises `Damage` or `IndexError` where the bytes are no such records."""
    wanted = _fields_up_to(schema, columns)
    parts: dict[str, list[pa.Array | bytes]] = {name: [] for name in columns}
    room = Room(len(data))
    room.take(sum(schema.types[name].slot for name in columns) * len(starts))
    for first, last in _chunks(starts, ends):
        cursors = _cursors(data, starts[first:last], ends[first:last], room)
        for name, kind in wanted:
            if name not in parts:
                skip(cursors, kind)
            elif name in dictionary:
                parts[name].append(read_texts(cursors, kind))
            else:
                parts[name].append(read_column(cursors, kind))
        cursors.check(whole=len(wanted) == len(schema.types))
    counts = [last - first for first, last in _chunks(starts, ends)]
    return [_column(parts[name], counts, schema.arrow.field(name), name in dictionary) for name in columns]


def _fields_up_to(schema: RecordSchema, columns: Sequence[str]) -> list[tuple[str, AvroType]]:
    """The fields in order of the bytes up to the last one that is wanted."""
    fields = list(schema.types.items())
    last = max((at for at, (name, _) in enumerate(fields) if name in columns), default=-1)
    return fields[: last + 1]


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
    first = parts[0]
    if isinstance(first, bytes) and all(isinstance(part, bytes) and part == first for part in parts):
        return _repeated(first, sum(counts))
    chunks = [_repeated(p, n) if isinstance(p, bytes) else p for p, n in zip(parts, counts, strict=True)]
    whole = pa.chunked_array(chunks, kind).unify_dictionaries().combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _repeated(value: bytes, count: int) -> pa.DictionaryArray:
    try:
        values = pa.array([value.decode()], pa.string())
    except UnicodeDecodeError:
        raise Damage("a text is not UTF-8") from None
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), values)


def record_places(data: bytes | memoryview, count: int, start: int) -> tuple[Int64s, Int64s]:
    """Where each of so many records starts and ends, which stand one behind the other with their length (4 bytes) in
    front and reach to the end. Raises `Damage`."""
    if not 0 <= count <= (len(data) - start) // _LENGTH.size:
        raise Damage(f"{count} records in {len(data)} bytes")
    places = joint_places(data, [Stretch(start, len(data), count)]) if count >= _MANY else None
    if places is not None:
        return places
    lengths = np.array(_one_by_one(data, start, len(data), count), np.int64)
    if len(lengths) != count or (count == 0 and start != len(data)):
        raise Damage(f"it does not hold the {count} records that it tells of")
    return lengths + _LENGTH.size, np.append(lengths[1:], len(data))


def _one_by_one(data: bytes | memoryview, at: int, end: int, most: int) -> list[int]:
    """Where the lengths of so many records stand, from `at` to exactly `end`."""
    found: list[int] = []
    read = _LENGTH.unpack_from
    add = found.append
    while at < end:
        if len(found) == most or at + _LENGTH.size > end:
            raise Damage("bytes are left over behind its records")
        add(at)
        (length,) = read(data, at)
        if length < 0:
            raise Damage(f"a record of {length} bytes")
        at += _LENGTH.size + length
    if at != end:
        raise Damage("a record reaches beyond its end")
    return found


def joint_places(data: bytes | memoryview, stretches: Sequence[Stretch]) -> tuple[Int64s, Int64s] | None:
    """Where the records of several stretches of bytes start and end, gone through together, from many places at a time
    that look like a record's start, each up to the next one's. None where they do not lead from record to record."""
    stretches = [stretch for stretch in stretches if stretch.records or stretch.start != stretch.end]
    total = sum(stretch.records for stretch in stretches)
    if not all(0 < stretch.records <= (stretch.end - stretch.start) // _LENGTH.size for stretch in stretches):
        return None
    number = min(_LANES, isqrt(total * 8))
    lanes = [lane for stretch in stretches for lane in _lanes(data, stretch, number * stretch.records // total)]
    if len(lanes) < _FEWEST_LANES:
        return None
    places = _visited(np.frombuffer(data, np.uint8), np.array(lanes), stretches, total)
    firsts = np.searchsorted(places, [stretch.start for stretch in stretches])
    counts = [stretch.records for stretch in stretches]
    if np.diff(firsts, append=len(places)).tolist() != counts:
        return None
    ends = np.append(places[1:], len(data))
    ends[firsts + counts - 1] = [stretch.end for stretch in stretches]
    return (places + _LENGTH.size, ends) if np.array_equal(_ends(data, places), ends) else None


def _visited(cells: Bytes, lanes: Int64s, stretches: Sequence[Stretch], total: int) -> Int64s:
    """The places that steps from record to record lead to, in order."""
    at, goals = lanes, np.append(lanes[1:], 0)
    goals[np.searchsorted(lanes, [stretch.start for stretch in stretches[1:]]) - 1] = [s.end for s in stretches[:-1]]
    goals[-1] = stretches[-1].end
    visited: list[Int64s] = []
    high, low = cells[2:], cells[3:]
    while len(visited) * len(lanes) < _SPARE * total and (at < goals).any():
        visited.append(at)
        # a record longer than two bytes tell is seen by what follows
        length = (high.take(at, mode="clip").astype(np.int64) << 8) | low.take(at, mode="clip")
        at = np.minimum(at + (length + _LENGTH.size), goals)
    places = np.stack(visited, axis=1)
    return places[places < goals[:, None]]


def _lanes(data: bytes | memoryview, stretch: Stretch, number: int) -> list[int]:
    """Where about so many records of a stretch seem to start, the first one among them."""
    lanes = [stretch.start]
    mark = _mark(data, stretch.start, stretch.end) if number > 1 else None
    if mark is None:
        return lanes
    size = stretch.end - stretch.start
    reach = 4 * size // stretch.records + 2 * len(mark)
    for near in range(stretch.start + size // number, stretch.end, max(1, size // number)):
        found = bytes(data[near : min(near + reach, stretch.end)]).find(mark, _LENGTH.size)
        if found >= 0 and near + found - _LENGTH.size > lanes[-1]:
            lanes.append(near + found - _LENGTH.size)
    return lanes


def _ends(data: bytes | memoryview, places: Int64s) -> Int64s:
    """Where the records end whose lengths stand at these places."""
    cells = np.frombuffer(data, np.uint8)
    if int(places[-1]) + _LENGTH.size > len(cells):
        return places
    words: Any = np.ndarray((len(cells) - _LENGTH.size + 1,), np.uint32, cells, 0, (1,))
    found = words[places]
    return places + (found.byteswap() if sys.byteorder == "little" else found) + _LENGTH.size


def _mark(data: bytes | memoryview, start: int, end: int) -> bytes | None:
    """What the first two records begin with."""
    (length,) = _LENGTH.unpack_from(data, start)
    second = start + _LENGTH.size + length
    if not 0 <= length <= end - second - _LENGTH.size:
        return None
    one, two = (bytes(data[at + _LENGTH.size : at + _LENGTH.size + _LONGEST_MARK]) for at in (start, second))
    common = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    return one[:common] if common >= _SHORTEST_MARK else None
