"""Values of Avro records to Arrow arrays, one column at a time over all records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.avro.columns import spread
from lakebed.format.avro.cursors import Bools, Cursors, Damage, Int64s
from lakebed.format.avro.items import branches, find_items
from lakebed.format.avro.types import AvroType
from lakebed.format.avro.wrappers import decimals
from lakebed.format.hashes import value_buffer

_DECIMAL_BYTES: Final = 16
_INT = np.iinfo(np.int32)
# A day in the units of times.
_DAY: Final = {pa.time32("ms"): 86_400_000, pa.time64("us"): 86_400_000_000}


def read_column(cursors: Cursors, kind: AvroType) -> pa.Array:
    """The next value of every record, in the type's Arrow form. Moves behind it."""
    if kind.kind == "union":
        return _union(cursors, kind)
    return _READERS[kind.kind](cursors, kind, None)


def read_texts(cursors: Cursors, kind: AvroType) -> pa.Array | bytes:
    """A text column, nullable or not: its one value where all records have the same, else a dictionary."""
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
    """The content of a text or byte value of each record; empty where there is none."""
    length = cursors.short_length() if present is None else 0
    if not length:
        return cursors.texts(*cursors.spans(present))
    values = cursors.cells(length)
    offsets = np.arange(0, length * len(values) + 1, length, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _as_texts(raw: pa.BinaryArray, kind: pa.DataType, present: Bools | None) -> pa.Array:
    _, offsets, data = raw.buffers()
    if pa.types.is_string(kind) and not _is_ascii(data):
        try:
            raw.cast(pa.string())
        except pa.ArrowInvalid:
            raise Damage("a text is not UTF-8") from None
    return pa.Array.from_buffers(kind, len(raw), [_validity(present), offsets, data])


def _is_ascii(data: pa.Buffer | None) -> bool:
    """Whether all bytes of the values are: much faster seen than that they are UTF-8."""
    return data is None or not data.size or int(np.frombuffer(data, np.uint8).max()) < 0x80


def _present(cursors: Cursors, kind: AvroType) -> Bools | Literal[False] | None:
    """Which records have a value in a union of null and one type: a mask, None for all, False for none."""
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
        some = cursors.part(rows)
        values = _READERS[part.kind](some, part, None)
        cursors.rejoin(rows, some)
        cursors.room.take(kind.slot * len(cursors))
        return spread(values, present)
    return _READERS[part.kind](cursors, part, present)


def _wide_union(cursors: Cursors, kind: AvroType) -> pa.Array:
    """A union of one type, or of several: a struct with a member for each."""
    branch = branches(cursors, kind)
    if len(kind.parts) == 1:
        return read_column(cursors, kind.parts[0])
    cursors.room.take(kind.slot * len(cursors))
    chosen = np.full(len(cursors), branch) if isinstance(branch, int) else branch
    members: list[pa.Array] = []
    for number, part in enumerate(kind.parts):
        if part.kind == "null":
            continue
        here = chosen == number
        rows = np.flatnonzero(here)
        some = cursors.part(rows)
        values = read_column(some, part)
        cursors.rejoin(rows, some)
        members.append(spread(values, here))
    nulls = [number for number, part in enumerate(kind.parts) if part.kind == "null"]
    return _nested(kind.arrow, len(cursors), [_validity(~np.isin(chosen, nulls)) if nulls else None], members)


def _longs(cursors: Cursors, kind: AvroType, present: Bools | None) -> pa.Array:
    return _of_buffer(kind, _in_day(cursors.longs(present), kind), present)


def _ints(cursors: Cursors, kind: AvroType, present: Bools | None) -> pa.Array:
    values = cursors.longs(present)
    if len(values) and (int(values.min()) < _INT.min or int(values.max()) > _INT.max):
        raise Damage("an int has more than 32 bits")
    return _of_buffer(kind, _in_day(values, kind).astype(np.int32), present)


def _in_day(values: Int64s, kind: AvroType) -> Int64s:
    """The same: times are from midnight on and before the next one."""
    most = _DAY.get(kind.arrow)
    if most and len(values) and not (int(values.min()) >= 0 and int(values.max()) < most):
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
    return pa.Array.from_buffers(pa.binary(), count, [_validity(present), *raw.buffers()[1:]])


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
    items.check(whole=False)
    return _nested(kind.arrow, len(cursors), [None, _offsets(counts)], [values])


def _maps(cursors: Cursors, kind: AvroType, _: Bools | None) -> pa.Array:
    counts, items = _items(cursors, kind)
    keys = _as_texts(items.texts(*items.spans()), pa.string(), None)
    values = read_column(items, kind.parts[0])
    items.check(whole=False)
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
