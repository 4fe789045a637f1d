"""The content of a delete block: which records are deleted, as columns. Format versions 1 and 2 hold Java objects in
Kryo's form, later ones Avro.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.columns import AvroCursors, encode_binaries, encode_nullable, join_pieces
from lakebed.format.avro.encoder import decode_long, encode_long
from lakebed.format.avro.wrappers import (
    ARRAY,
    BOOLEAN,
    BYTES,
    COMMIT_TIME,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    NULL,
    STRING,
    WRAPPED_TYPES,
    Wrapped,
    encode_ordering,
    read_wrapped,
)
from lakebed.format.hashes import plain_strings
from lakebed.format.varints import read_varint, unzigzag

_MODEL: Final = "org.apache.hudi.common.model."
_KEY, _RECORD = f"{_MODEL}HoodieKey", f"{_MODEL}DeleteRecord"
_ARRAYS: Final = {1: f"[L{_KEY};", 2: f"[L{_RECORD};"}
# Kryo's numbers: of nothing, of a class by its name, and of the boxed types.
_NOTHING, _NAMED = 0, 1
_INT, _STRING, _FLOAT, _BOOLEAN, _BYTE, _CHAR, _SHORT, _LONG, _DOUBLE = range(2, 11)
_NEW: Final = 1
_LAST: Final = 0x80


@dataclass(slots=True)
class JavaDeletes:
    """The keys and partition paths of deletes, and each record's ordering value with the branch of the wrapper that
    today's format has for it."""

    keys: list[str] = field(default_factory=list[str])
    partitions: list[str | None] = field(default_factory=list["str | None"])
    branches: list[int] = field(default_factory=list[int])
    values: list[Any] = field(default_factory=list[Any])


def read_java_deletes(data: bytes, version: int) -> JavaDeletes:
    """The deletes in a block's body. Raises `CorruptFile`, and `UnsupportedFeature` for ordering values of unknown
    classes."""
    try:
        return _Reader(data).read(version)
    except (IndexError, struct.error, ValueError, TypeError) as cause:
        raise CorruptFile("its Java objects are cut off, or none") from cause


class _Reader:
    """A reader that reads serialized Java objects once from front to back. It remembers the classes and objects that
    later references name."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._classes: list[str] = []
        self._objects: list[Any] = []

    def read(self, version: int) -> JavaDeletes:
        if self._class() != _ARRAYS[version] or self._varint() != _NEW:
            raise CorruptFile("its Java objects are no array of deletes")
        self._objects.append(None)
        count = self._varint() - 1
        # an element has its class and a mark at least
        if not 0 <= count <= (len(self._data) - self._at) // 2:
            raise CorruptFile(f"an array of {count} deletes in {len(self._data)} bytes")
        deletes = JavaDeletes()
        for _ in range(count):
            (key, partition), branch, value = self._element(version)
            deletes.keys.append(key)
            deletes.partitions.append(partition)
            deletes.branches.append(branch)
            deletes.values.append(value)
        if self._at != len(self._data):
            raise CorruptFile("bytes are left over after its Java objects")
        return deletes

    def _element(self, version: int) -> tuple[tuple[str, str | None], int, Any]:
        if version == 1:
            return self._object(_KEY, self._key), INT, 0
        return self._object(_RECORD, self._record)

    def _record(self) -> tuple[tuple[str, str | None], int, Any]:
        key = self._object(_KEY, self._key)
        return key, *self._ordering()

    def _key(self) -> tuple[str, str | None]:
        partition, key = self._text(), self._text()
        if key is None:
            raise CorruptFile("a delete without a record key")
        return key, partition

    def _object(self, name: str, read: Callable[[], Any]) -> Any:
        """An object of the class `name`, read by `read`, or an earlier object that a reference names."""
        if self._class() != name:
            raise CorruptFile(f"its Java objects have something else where a {name} belongs")
        return self._referred(read)

    def _referred(self, read: Callable[[], Any]) -> Any:
        mark = self._varint()
        if mark == _NOTHING:
            return None
        if mark != _NEW:
            return self._objects[mark - 2]
        number = len(self._objects)
        self._objects.append(None)
        self._objects[number] = read()
        return self._objects[number]

    def _text(self) -> str | None:
        text = self._referred(self._characters)
        if not isinstance(text, str | None):
            raise TypeError
        return text

    def _ordering(self) -> tuple[int, Any]:
        number = self._varint()
        if number == _NOTHING:
            return NULL, None
        if number == _NAMED:
            name = self._class_name()
            raise UnsupportedFeature(
                f"its deletes have ordering values of the Java class {name}",
                hint="Compact the table with the release of Hudi that wrote it.",
                context={"feature": "delete block"},
            )
        if number == _STRING:
            return STRING, self._text()
        if number in (_INT, _LONG):
            value = self._varint()
            if value >> (32 if number == _INT else 64):
                raise CorruptFile("its Java objects have a number that is too large for its type")
            return (INT if number == _INT else LONG), unzigzag(value)
        kinds = {_FLOAT: (FLOAT, ">f"), _DOUBLE: (DOUBLE, ">d"), _BOOLEAN: (BOOLEAN, ">?"), _BYTE: (INT, ">b"),
                 _SHORT: (INT, ">h")}  # fmt: skip
        if number not in kinds:
            raise CorruptFile(f"its Java objects have an ordering value of the class {number}")
        branch, form = kinds[number]
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return branch, value

    def _class(self) -> str:
        number = self._varint()
        if number != _NAMED:
            raise CorruptFile(f"its Java objects have one of the class {number}")
        return self._class_name()

    def _class_name(self) -> str:
        number = self._varint()
        if number == len(self._classes):
            self._classes.append(self._characters() or "")
        return self._classes[number]

    def _varint(self) -> int:
        value, self._at = read_varint(self._data, self._at)
        return value

    def _characters(self) -> str | None:
        """A text; None for a null. It is ASCII with a marked last byte, or a count of UTF-16 units with at most three
        bytes for each."""
        first = self._data[self._at]
        if first < _LAST:
            end = self._at
            while self._data[end] < _LAST:
                end += 1
            text = self._data[self._at : end] + bytes([self._data[end] & 0x7F])
            self._at = end + 1
            return text.decode("ascii")
        count = self._units()
        if count == 0:
            return None
        start = self._at
        for _ in range(count - 1):
            byte = self._data[self._at]
            self._at += 1 if byte < 0x80 else 2 if byte < 0xE0 else 3
        if self._at > len(self._data):
            raise IndexError
        # surrogates are encoded there one by one
        units = self._data[start : self._at].decode("utf-8", "surrogatepass")
        return units.encode("utf-16", "surrogatepass").decode("utf-16")

    def _units(self) -> int:
        """The number of UTF-16 units that follow, plus one: six bits in the first byte, seven in each following
        byte."""
        byte = self._data[self._at]
        self._at += 1
        count, shift, more = byte & 0x3F, 6, byte & 0x40
        while more:
            byte = self._data[self._at]
            self._at += 1
            count |= (byte & 0x7F) << shift
            shift += 7
            more = byte & 0x80
            if shift > 34:
                raise IndexError
        if count > len(self._data):
            raise IndexError
        return count


_VERSION = 3
_HEAD = struct.Struct(">ii")
_BRANCHES = 13
_ARRAY_BRANCHES = 13
_FIXED_WIDTHS = {BOOLEAN: 1, FLOAT: 4, DOUBLE: 8}
_WHAT = "delete records"
# Shorter runs are not worth a search; after one, this many records are read one by one before the next search.
_SHORT_RUN = 16
_WAIT = 256
_RUN_BYTES = 1 << 20
_MORE_FOLLOWS = 0x80
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Deletes:
    """Deleted records, in the block's order.

    `ordering` has each one's wrapped ordering value: INT 0 is a delete that wins by commit time. Where a record has
    several ordering fields its branch is `ARRAY`, and `fields` holds, for those records alone, one column a field.
    """

    keys: pa.StringArray
    partitions: pa.StringArray
    ordering: Wrapped
    fields: tuple[Wrapped, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)


def decode_deletes(content: bytes | memoryview, path: str = "", offset: int = 0) -> Deletes:
    """The deletes in the content of the block at `offset`. Raises `CorruptFile` with path and offset, and
    `UnsupportedFeature` for Java objects of unknown classes, which releases before 0.14 wrote (format versions 1 and
    2)."""
    where = f"{path or 'log file'}: the delete block at offset {offset}"
    context = {"path": path, "offset": offset}
    data = bytes(content)
    try:
        if len(data) < _HEAD.size:
            raise CorruptFile(f"a content of {len(data)} bytes")
        version, length = _HEAD.unpack_from(data)
        if not 0 < version <= _VERSION or not 0 < length == len(data) - _HEAD.size:
            raise CorruptFile(f"none of version {version} has {length} bytes")
        body = data[_HEAD.size : _HEAD.size + length]
        return _decode(body) if version == _VERSION else _decode_java(body, version)
    except (CorruptFile, UnsupportedFeature) as error:
        message = f"{where} cannot be decoded: {error.message}"
        raise type(error)(message, hint=error.hint, context={**error.context, **context}) from error


NO_DELETES: Final = _HEAD.pack(_VERSION, 1) + b"\x00"
"""The content of a block without deletes, such as the one that creates a file group of the metadata table."""


def encode_deletes(keys: Any, partitions: Any = "") -> bytes:
    """A block's content that deletes these record keys whatever their ordering value, as the metadata table and the
    operation `delete` do. `partitions` is one path for all or a column of them; without keys the list is empty.

    >>> encode_deletes(pa.array(["k0007"]), "record_index").hex()
    '000000030000001902020a6b3030303702187265636f72645f696e646578040000'
    """
    if keys is None or not len(keys):
        return NO_DELETES
    return framed_deletes(plain_strings(keys), _partition_paths(partitions), COMMIT_TIME)


def encode_ordered_deletes(keys: Any, partitions: Any, ordering: Sequence[pa.Array], forced: Any = False) -> bytes:
    """A block's content that deletes these record keys where no stored row has a greater ordering value.

    `ordering` is one column for each of the table's ordering fields; without any, and in the rows that `forced` marks
    (all of them, or a mask), deletes win whatever the stored value is. A null in a single field counts as that, too; in
    one of several it raises `InvalidRecord`. `partitions` is one path for all or a column of them.
    """
    names = plain_strings(keys)
    if not len(names):
        return NO_DELETES
    return framed_deletes(names, _partition_paths(partitions), encode_ordering(ordering, forced, len(names)))


def _partition_paths(partitions: Any) -> pa.BinaryArray | bytes:
    if not isinstance(partitions, str):
        return encode_nullable(encode_binaries(plain_strings(partitions)))
    path = partitions.encode()
    return b"\x02" + encode_long(len(path)) + path


def framed_deletes(keys: pa.StringArray, partitions: pa.BinaryArray | bytes, ordering: pa.BinaryArray | bytes) -> bytes:
    """A block's content from partition paths and ordering values that are Avro binary already."""
    records = join_pieces([b"\x02", encode_binaries(keys), partitions, ordering])
    body = b"".join([encode_long(len(keys)), records.buffers()[2].to_pybytes()[: _used(records)], b"\x00"])
    return _HEAD.pack(_VERSION, len(body)) + body


def _used(records: pa.BinaryArray) -> int:
    return int(pc.sum(pc.binary_length(records)).as_py())


def _decode_java(data: bytes, version: int) -> Deletes:
    java_deletes = read_java_deletes(data, version)
    branch = np.array(java_deletes.branches, np.int64)
    values: dict[int, tuple[Int64s, pa.Array]] = {}
    for kind in sorted(set(java_deletes.branches) - {NULL}):
        rows = np.flatnonzero(branch == kind)
        values[kind] = rows, pa.array([java_deletes.values[row] for row in rows.tolist()], WRAPPED_TYPES[kind])
    return Deletes(
        pa.array(java_deletes.keys, pa.string()),
        pa.array(java_deletes.partitions, pa.string()),
        Wrapped(branch, values),
    )


def _decode(data: bytes) -> Deletes:
    try:
        starts, ends = _record_bounds(data)
    except IndexError:
        raise CorruptFile("a list of deletes is cut off") from None
    cursors = AvroCursors(pa.py_buffer(data), np.frombuffer(data, np.uint8), starts, ends, _WHAT)
    keys = cursors.nullable_texts()
    partitions = cursors.nullable_texts()
    if keys.null_count:
        raise CorruptFile("a delete without a record key")
    ordering = read_wrapped(cursors, _BRANCHES, _WHAT, leave=ARRAY)
    rows = np.flatnonzero(ordering.branch == ARRAY)
    fields = _fields(cursors.part(rows)) if len(rows) else ()
    return Deletes(keys, partitions, ordering, fields)


def _fields(cursors: AvroCursors) -> tuple[Wrapped, ...]:
    """The ordering fields of records that have several."""
    counts = cursors.longs() if cursors.present().all() else np.zeros(len(cursors), np.int64)
    if (counts != counts[0]).any() or not 0 < counts[0] <= len(cursors.rest(0)):
        raise CorruptFile("delete records with different numbers of ordering fields")
    ordering_fields = tuple(read_wrapped(cursors, _ARRAY_BRANCHES, _WHAT) for _ in range(int(counts[0])))
    if cursors.longs().any():
        raise CorruptFile("delete records with different numbers of ordering fields")
    return ordering_fields


def _record_bounds(data: bytes) -> tuple[Int64s, Int64s]:
    """The starts and ends of the records in the list. A record starts where the record before it ends, so records are
    read one after the other; only runs of records of one shape are found by comparing bytes."""
    starts: list[int] = []
    ends: list[int] = []
    wait = 0
    count, at = decode_long(data, 0)
    while count:
        if count < 0:
            _, at = decode_long(data, at)
            count = -count
        while count:
            run, end = 1, _skip_record(data, at)
            if end > len(data):
                raise IndexError
            if wait:
                wait -= 1
            elif count > _SHORT_RUN:
                run = _run_length(data, at, end, count)
                # records of ever new lengths: do not look each time
                wait = 0 if run > _SHORT_RUN else _WAIT
            size = end - at
            starts += range(at, at + run * size, size)
            ends += range(end, end + run * size, size)
            at, count = at + run * size, count - run
        count, at = decode_long(data, at)
    if at != len(data):
        raise CorruptFile("bytes are left over after its list of deletes")
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _run_length(data: bytes, start: int, end: int, limit: int) -> int:
    """The number of consecutive records from this one on that have its shape: texts of the same lengths, and an
    ordering value of the same type and length."""
    lengths, numbers = _shape(data, start, end)
    size = end - start
    rows = min(limit, (len(data) - start) // size, _RUN_BYTES // size + 1)
    table = np.frombuffer(data, np.uint8, rows * size, start).reshape(rows, size)
    same = (table[:, lengths] == table[0, lengths]).all(axis=1)
    same &= ((table[:, numbers] ^ table[0, numbers]) < _MORE_FOLLOWS).all(axis=1)
    return rows if same.all() else int(np.argmin(same))


def _shape(data: bytes, start: int, end: int) -> tuple[list[int], list[int]]:
    """The common structure of records of one shape, as two lists of byte positions counted from a record's start: bytes
    that are lengths and must be equal, and bytes of a number, whose highest bits must be equal. In an array all bytes
    must be equal."""
    lengths: list[int] = []
    at = start
    for _ in range(2):
        text_end = _skip_text(data, at)
        content = 0 if data[at] == 0 else decode_long(data, at + 1)[0]
        lengths += range(at - start, text_end - content - start)
        at = text_end
    branch, value = decode_long(data, at)
    if branch == ARRAY:
        return [*lengths, *range(at - start, end - start)], []
    lengths += range(at - start, value - start)
    if branch in _FIXED_WIDTHS or branch == 0:
        return lengths, []
    if branch in (BYTES, STRING, DECIMAL):
        return [*lengths, *range(value - start, decode_long(data, value)[1] - start)], []
    return lengths, list(range(value - start, end - start))


def _skip_record(data: bytes, at: int) -> int:
    at = _skip_text(data, _skip_text(data, at))
    branch, at = decode_long(data, at)
    return _skip_array(data, at) if branch == ARRAY else _skip_value(data, at, branch)


def _skip_text(data: bytes, at: int) -> int:
    """The position after a nullable text."""
    if data[at] == 0:
        return at + 1
    length, at = decode_long(data, at + 1)
    if length < 0:
        raise IndexError
    return at + length


def _skip_value(data: bytes, at: int, branch: int) -> int:
    if branch == 0:
        return at
    if branch in _FIXED_WIDTHS:
        return at + _FIXED_WIDTHS[branch]
    number, number_end = decode_long(data, at)
    if branch not in (BYTES, STRING, DECIMAL):
        return number_end
    if number < 0:
        raise IndexError
    return number_end + number


def _skip_array(data: bytes, at: int) -> int:
    if data[at] == 0:
        return at + 1
    count, at = decode_long(data, at + 1)
    if not 0 < count < len(data):
        raise IndexError
    for _ in range(count):
        branch, at = decode_long(data, at)
        at = _skip_value(data, at, branch)
    return at + 1
