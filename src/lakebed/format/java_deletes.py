"""Delete blocks of format versions 1 and 2: an array of Java objects, `HoodieKey` or `DeleteRecord`, in Kryo's form."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.wrappers import BOOLEAN, DOUBLE, FLOAT, INT, LONG, NULL, STRING
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
    """Keys and partition paths, and each record's ordering value with the wrapper that it has today."""

    keys: list[str] = field(default_factory=list[str])
    partitions: list[str | None] = field(default_factory=list["str | None"])
    branches: list[int] = field(default_factory=list[int])
    values: list[Any] = field(default_factory=list[Any])


def read_java_deletes(data: bytes, version: int) -> JavaDeletes:
    """The deletes of a block's body. Raises `CorruptFile`, and `UnsupportedFeature` for ordering values of classes that
    are not known."""
    try:
        return _Reader(data).read(version)
    except (IndexError, struct.error, ValueError, TypeError) as cause:
        raise CorruptFile("its Java objects are cut off, or none") from cause


class _Reader:
    """Goes through the bytes once; remembers the classes and objects that later ones refer to."""

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
        found = JavaDeletes()
        for _ in range(count):
            (key, partition), branch, value = self._element(version)
            found.keys.append(key)
            found.partitions.append(partition)
            found.branches.append(branch)
            found.values.append(value)
        if self._at != len(self._data):
            raise CorruptFile("bytes are left over behind its Java objects")
        return found

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
        """An object of this class, or what stands for one that was read before."""
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
        """A text: ASCII whose last byte is marked, or a count of UTF-16 units and three bytes at most for each."""
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
        # surrogates stand there one by one
        units = self._data[start : self._at].decode("utf-8", "surrogatepass")
        return units.encode("utf-16", "surrogatepass").decode("utf-16")

    def _units(self) -> int:
        """How many UTF-16 units follow, and one: six bits in the first byte, seven in each of the others."""
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
