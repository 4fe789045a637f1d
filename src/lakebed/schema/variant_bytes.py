"""The outer shape of variants in Parquet's encoding, checked without a look at what is inside: a reader that is given
other bytes may read without an end.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Numbers = npt.NDArray[np.int64]

# The bytes that a primitive value takes with its first byte, by the number of its type: null, true, false, integers of
# 8 to 64 bits, double, decimals of 4, 8 and 16 bytes, date, two timestamps, float, binary, text, time, two timestamps
# in nanoseconds, UUID. Binary and text have a length of four bytes.
_LENGTH_FOLLOWS: Final = -1
_SIZES: Final = np.array([1, 1, 1, 2, 3, 5, 9, 9, 6, 10, 18, 5, 9, 9, 5, *[_LENGTH_FOLLOWS] * 2, 9, 9, 9, 17], np.int64)
_PRIMITIVE, _SHORT_TEXT, _OBJECT = 0, 1, 2
_VERSION: Final = 1


def are_variants(metadata: pa.Array, values: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each pair of binaries has the outer shape of a variant: metadata of the version, and a value, that are as
    long as their headers say. The answer for a null is no.

    >>> are_variants(pa.array([b"\\x01\\x00\\x00", b"\\x01\\x00\\x00"]), pa.array([b"\\x0c\\x05", b"\\x0c"])).tolist()
    [True, False]
    """
    return _Binaries(metadata).are_metadata() & _Binaries(values).are_values()


class _Binaries:
    """The bytes of an array of binaries."""

    def __init__(self, array: Any) -> None:
        count = len(array)
        bounds, data = array.buffers()[1:3]
        offsets = np.frombuffer(bounds, np.int32)[array.offset : array.offset + count + 1].astype(np.int64)
        self._data = np.frombuffer(b"" if data is None else data, np.uint8)
        self._starts, self._sizes = offsets[:-1], np.diff(offsets)
        self._valid = np.asarray(array.is_valid()) & (self._sizes > 0)

    def are_metadata(self) -> npt.NDArray[np.bool_]:
        header = self._number(np.zeros(len(self._sizes), np.int64), 1)
        width = (header >> 6) + 1
        names = self._number(np.ones_like(width), width)
        last = 1 + width + names * width
        size = last + width + self._number(last, width)
        return self._valid & (header & 15 == _VERSION) & (size == self._sizes)

    def are_values(self) -> npt.NDArray[np.bool_]:
        first = self._number(np.zeros(len(self._sizes), np.int64), 1)
        kind, header = first & 3, first >> 2
        fixed = _SIZES[np.minimum(header, len(_SIZES) - 1)]
        with_length = 5 + self._number(np.ones_like(first), 4)
        primitive = np.where(header >= len(_SIZES), 0, np.where(fixed == _LENGTH_FOLLOWS, with_length, fixed))
        is_object = kind == _OBJECT
        width = (header & 3) + 1
        id_width = np.where(is_object, ((header >> 2) & 3) + 1, 0)
        is_large = np.where(is_object, header >> 4, header >> 2) & 1
        count_width = np.where(is_large, 4, 1)
        count = self._number(np.ones_like(first), count_width)
        last = 1 + count_width + count * (id_width + width)
        nested = last + width + self._number(last, width)
        size = np.select([kind == _PRIMITIVE, kind == _SHORT_TEXT], [primitive, 1 + header], nested)
        return self._valid & (size == self._sizes)

    def _number(self, at: _Numbers, width: int | _Numbers) -> _Numbers:
        """The little-endian number of `width` bytes at a position of each binary; beyond its end the bytes are 0."""
        number = np.zeros(len(at), np.int64)
        widths = np.broadcast_to(np.asarray(width), at.shape)
        for byte in range(4):
            position = at + byte
            is_there = (byte < widths) & (position < self._sizes) & self._valid
            number[is_there] |= self._data[(self._starts + position)[is_there]].astype(np.int64) << (8 * byte)
        return number
