"""Deletion vectors: the numbers of the rows of a data file that are not shown, as a compressed bitmap. Delta Lake and
Iceberg (version 3) have the same bytes, in files of other forms."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lakebed.format.log_file import positions_bitmap

_MAGIC = 1681511377
_DELTA_VERSION = b"\x01"
_PUFFIN = b"PFA1"
_ROW_POSITION_ID = 2147483645
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deletion_vector(positions: npt.NDArray[np.int64]) -> bytes:
    """The vector of row numbers, ascending and each once.

    >>> deletion_vector(np.array([3, 4]))[:4].hex()
    'd1d33964'
    """
    return struct.pack("<I", _MAGIC) + positions_bitmap(positions)


def framed_vector(vector: bytes) -> bytes:
    """A vector as files have it: after its length, and before its checksum."""
    return struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))


def delta_vector_file(vectors: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """The bytes of a Delta file with these vectors, and the offset of each.

    >>> delta_vector_file([b"abc"])
    (b'\\x01\\x00\\x00\\x00\\x03abc5$A\\xc2', [1])
    """
    body, offsets = _DELTA_VERSION, []
    for vector in vectors:
        offsets.append(len(body))
        body += framed_vector(vector)
    return body, offsets


def puffin_file(vectors: Sequence[tuple[str, int, bytes]]) -> tuple[bytes, list[tuple[int, int]]]:
    """The bytes of an Iceberg file with vectors, each given with the location of its data file and the number of its
    rows; and the offset and length of each."""
    body, spans, blobs = _PUFFIN, list[tuple[int, int]](), list[dict[str, object]]()
    for location, rows, vector in vectors:
        framed = framed_vector(vector)
        spans.append((len(body), len(framed)))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [_ROW_POSITION_ID],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(body),
                "length": len(framed),
                "properties": {"referenced-data-file": location, "cardinality": str(rows)},
            }
        )
        body += framed
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": "lakebed"}}, ensure_ascii=False).encode()
    return body + _PUFFIN + footer + struct.pack("<I", len(footer)) + bytes(4) + _PUFFIN, spans


def z85_of(number: uuid.UUID) -> str:
    """The 20 letters by which a Delta log names a file of vectors.

    >>> z85_of(uuid.UUID(int=1))
    '00000000000000000001'
    """
    letters: list[str] = []
    for word in struct.unpack(">4I", number.bytes):
        letters += [_Z85[word // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(letters)


def uuid_of_z85(text: str) -> uuid.UUID:
    """The number that 20 letters of a Delta log mean.

    >>> uuid_of_z85(z85_of(uuid.UUID(int=1 << 100))) == uuid.UUID(int=1 << 100)
    True
    """
    words = [sum(_Z85.index(c) * 85 ** (4 - n) for n, c in enumerate(text[at : at + 5])) for at in range(0, 20, 5)]
    return uuid.UUID(bytes=struct.pack(">4I", *words))
