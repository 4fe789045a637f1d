"""Columns of numbers and texts as bytes: what every record of a vector index or a text index is written as.

A frame is four letters that name what it is, a version, the number of columns, and a checksum of what follows: the type
and the length of each column, then their values. Numbers are little endian, and are read without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.hashes import value_buffer

Column = npt.NDArray[Any] | pa.StringArray
_HEAD: Final = struct.Struct("<4sBBIQ")
_COLUMN: Final = struct.Struct("<BI")
_TYPES: Final = ("u1", "<u2", "<u4", "<u8", "i1", "<i4", "<i8", "<f4", "<f8")
# The type of a column of texts: their lengths are columns of the first, second or third type of numbers.
_TEXTS: Final = 128
_MAX_LENGTHS: Final = (0xFF, 0xFFFF, 0xFFFFFFFF)
_REBUILD: Final = "again: drop it, and create it with the same name."


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of frame: its four letters, the newest version that this release reads and writes, its name in messages,
    and the kind of index that it is of."""

    letters: bytes
    version: int
    name: str
    index: str = "vector index"


def pack(kind: Kind, columns: Sequence[Column]) -> bytes:
    """The columns as the bytes of a frame.

    >>> import numpy as np, pyarrow as pa
    >>> kind = Kind(b"LVIx", 1, "an example")
    >>> numbers, texts = unpack(kind, pack(kind, [np.array([1, 2], np.uint16), pa.array(["a", "bc"])]))
    >>> numbers.tolist(), texts.to_pylist()
    ([1, 2], ['a', 'bc'])
    """
    directory: list[bytes] = []
    parts: list[bytes | memoryview] = []
    for column in columns:
        if isinstance(column, np.ndarray):
            number = _TYPES.index(column.dtype.newbyteorder("<").str.lstrip("|"))
            directory.append(_COLUMN.pack(number, column.size))
            values = np.ascontiguousarray(column, _TYPES[number])
            parts.append(values.tobytes())
        else:
            data, offsets = value_buffer(column)
            lengths = np.diff(offsets)
            longest = int(lengths.max(initial=0))
            width = next(n for n, limit in enumerate(_MAX_LENGTHS) if longest <= limit)
            directory.append(_COLUMN.pack(_TEXTS + width, len(column)))
            parts += [lengths.astype(_TYPES[width]).tobytes(), data[offsets[0] : offsets[-1]].tobytes()]
    body = b"".join([*directory, *parts])
    head = _HEAD.pack(kind.letters, kind.version, len(columns), len(body), xxhash.xxh3_64_intdigest(body))
    return head + body


def unpack(kind: Kind, data: bytes | memoryview) -> list[Any]:
    """The columns of a frame, as arrays of numpy and of texts of Arrow that use the bytes of `data`.

    Raises `CorruptFile` for bytes that are no such frame, or that are cut off or changed, and `UnsupportedFeature` for
    a newer version.
    """
    view = memoryview(data).cast("B")
    if len(view) < _HEAD.size or bytes(view[:4]) != kind.letters:
        raise _broken(kind, "it begins with other bytes")
    _, version, count, size, checksum = _HEAD.unpack_from(view)
    if version > kind.version:
        raise UnsupportedFeature(
            f"{kind.name} of a {kind.index} has version {version}, and this release reads up to {kind.version}",
            hint=f"Upgrade lakebed. Build the {kind.index} {_REBUILD}",
            context={"version": version},
        )
    body = view[_HEAD.size :]
    if len(body) != size:
        raise _broken(kind, f"it has {len(body)} bytes of {size}")
    if version != kind.version or xxhash.xxh3_64_intdigest(body) != checksum:
        raise _broken(kind, "its checksum is another")
    try:
        return _columns(body, count)
    except (ValueError, struct.error, IndexError) as cause:
        raise _broken(kind, str(cause)) from cause


def _columns(body: memoryview, count: int) -> list[Any]:
    columns: list[Any] = []
    at = _COLUMN.size * count
    for number in range(count):
        kind, size = _COLUMN.unpack_from(body, _COLUMN.size * number)
        column = np.frombuffer(body, _TYPES[kind - _TEXTS if kind >= _TEXTS else kind], size, at)
        at += column.nbytes
        if kind >= _TEXTS:
            offsets = np.zeros(size + 1, np.int32)
            np.cumsum(column, out=offsets[1:])
            end = at + int(offsets[-1])
            texts = pa.py_buffer(body[at:end])
            columns.append(pa.StringArray.from_buffers(size, pa.py_buffer(offsets), texts))
            at = end
        else:
            columns.append(column)
    if at != len(body):
        raise ValueError(f"its columns have {at} bytes of {len(body)}")
    return columns


def _broken(kind: Kind, why: str) -> CorruptFile:
    hint = f"Build the {kind.index} {_REBUILD}"
    return CorruptFile(f"{kind.name} of a {kind.index} is damaged: {why}", hint=hint, context={})
