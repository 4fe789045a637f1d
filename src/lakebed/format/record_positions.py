"""The header of a log block that says at which rows of the base file its records stand: a 64-bit roaring bitmap in its
portable form, optimised for runs, as base64."""

from __future__ import annotations

import base64
from array import array

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from lakebed.errors import CorruptFile

Int64s = npt.NDArray[np.int64]
_TOO_LARGE = 1 << 63


def encode_positions(positions: npt.ArrayLike) -> str:
    """The header of positions that are ascending, each once.

    >>> encode_positions([0])
    'AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAAAEAAAAAAA'
    """
    values = np.ascontiguousarray(positions, np.int64)
    if (values[:1] < 0).any() or (np.diff(values) <= 0).any():
        raise ValueError("record positions must be ascending, each once")
    bitmap = BitMap64(array("Q", values.tobytes()))
    bitmap.run_optimize()
    return base64.b64encode(bitmap.serialize()).decode()


def decode_positions(header: str, most: int, path: str = "", offset: int = 0) -> Int64s:
    """The positions in a block's header, ascending. Raises `CorruptFile` where they are none, or more than `most`: the
    block has no more records.

    >>> decode_positions(encode_positions([3, 4, 5, 70000]), 4).tolist()
    [3, 4, 5, 70000]
    """
    try:
        return _positions(base64.b64decode(header, validate=True), most)
    except (ValueError, IndexError) as cause:  # an empty header is an index error
        raise CorruptFile(
            f"{path or 'log file'}: the record positions of the block at offset {offset} cannot be read: {cause}",
            context={"path": path, "offset": offset},
        ) from cause


def _positions(data: bytes, most: int) -> Int64s:
    bitmap = BitMap64.deserialize(data)  # checks what it reads, from release 1.1 on
    if len(bitmap) > most:  # counted without making them: a few bytes may stand for billions
        raise ValueError("there are more of them than records")
    if len(bitmap) and bitmap.max() >= _TOO_LARGE:
        raise ValueError("they are beyond 63 bits")
    return np.array(bitmap.to_array(), np.uint64).view(np.int64)
