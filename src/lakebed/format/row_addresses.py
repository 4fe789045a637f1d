"""A fingerprint of each record key in a base file, in the order of the rows: what a lookup reads in place of the key
column. A file of 250,000 rows has three bytes a row.

The fingerprints are bytes between the last row group and the footer of the file, which shows them by `ADDRESSES_KEY`.
So they come, move and go with the file, and no other reader of Parquet looks at them. They are hints: the key of a row
is compared when the row is read. At their end is a checksum in which the file's name takes part, so that fingerprints
that are broken, or those of another file, are seen.

The lower 16 bits of all fingerprints come first, two bytes a row. Each further bit is a plane of one bit a row. A
lookup compares the lower bits of all rows, and looks into the planes for the few rows that are left. More bits leave
fewer rows that have another key; there are as many as keep the fingerprints a small part of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from isal import isal_zlib

from lakebed.format.bounded_cache import BoundedCache
from lakebed.format.hashes import plain_strings, value_buffer
from lakebed.sharing import once

Rows = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Fingerprints = npt.NDArray[np.uint32]
Read = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | memoryview]]
"""Gives the bytes of each (offset, length) of a file."""

ADDRESSES_KEY: Final = "lakebed.row.addresses"
_VERSION: Final = "2"
_HALF: Final = np.uint64(32)
_LOW_BITS: Final = 16
_MAX_BITS: Final = 32
_CHECKSUM_BYTES: Final = 4
# Bits beyond those of the number of rows: of a key that a file lacks, one row in two to the power of these is read.
_SPARE_BITS: Final = 6
_MIN_SPARE_BITS: Final = 1
# The share of a file's bytes that fingerprints may take, unless they would have fewer than the least bits.
_MAX_SHARE: Final = 0.06
# So few fingerprints are compared one by one.
_MAX_COMPARED: Final = 8
_MAX_BYTES: Final = 64 << 20
# Longer keys are hashed one by one, the others eight bytes at a time, all together. Part of the format, as all that
# decides a fingerprint.
_LONG: Final = 256
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_LAST_FACTOR: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_LAST_SHIFT: Final = np.uint64(29)
_MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)


def fingerprints(keys: pa.Array) -> Fingerprints:
    """The upper half of the hash of each text; a null has the hash of the empty text.

    >>> fingerprints(pa.array(["a", "", "a key of more than eight bytes"])).tolist()
    [3915325677, 0, 1175910786]
    """
    return (key_hashes(keys) >> _HALF).astype(np.uint32)


def key_hashes(keys: pa.Array) -> Hashes:
    """A hash of 64 bits of each text; a null has the hash of the empty text. The hashes are equal in all releases,
    since files store them.

    >>> [hex(n) for n in key_hashes(pa.array(["a", ""])).tolist()]
    ['0xe95f20ed295dd79f', '0x0']
    """
    array = plain_strings(keys)
    data, offsets = value_buffer(array)
    if not len(array):
        return np.empty(0, np.uint64)
    lengths = np.diff(offsets)
    longest = int(lengths.max())
    hashes = lengths.astype(np.uint64) * _FACTOR
    if longest == int(lengths.min()) and longest <= _LONG:
        padded = np.zeros((len(array), -(-longest // 8) * 8), np.uint8)
        padded[:, :longest] = data[offsets[0] : offsets[-1]].reshape(len(array), longest)
        words = padded.view("<u8")
        for number in range(words.shape[1]):
            _mix(hashes, words[:, number])
    else:
        _hash_words(hashes, data, offsets[:-1], np.where(lengths > _LONG, 0, lengths))
        for at in np.flatnonzero(lengths > _LONG).tolist():
            hashes[at] = xxhash.xxh64_intdigest(data[offsets[at] : offsets[at + 1]].tobytes())
    hashes ^= hashes >> _LAST_SHIFT
    hashes *= _LAST_FACTOR
    return hashes


def _mix(hashes: Hashes, words: Hashes) -> None:
    hashes ^= words
    hashes *= _FACTOR
    hashes ^= hashes >> _HALF


def _hash_words(hashes: Hashes, data: npt.NDArray[np.uint8], starts: Rows, lengths: Rows) -> None:
    """Mix the words of texts of any length into their hashes."""
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    at_any_byte = np.ndarray((len(data) + 1,), "<u8", padded, strides=(1,))
    live, number = np.flatnonzero(lengths > 0), 0
    while len(live):
        left = lengths[live] - 8 * number
        live_hashes = hashes[live]
        _mix(live_hashes, at_any_byte[starts[live] + 8 * number] & _MASKS[np.minimum(left, 8)])
        hashes[live] = live_hashes
        live = live[left > 8]
        number += 1


def bits_of(rows: int, size: int) -> int:
    """The bits of a fingerprint in a file with so many rows in `size` bytes.

    >>> bits_of(250_000, 13_000_000), bits_of(250_000, 12_000_000), bits_of(1_000, 100_000)
    (24, 23, 16)
    """
    least = max(_LOW_BITS, rows.bit_length() + _MIN_SPARE_BITS)
    within = int(8 * _MAX_SHARE * size / max(1, rows))
    return min(_MAX_BITS, max(least, min(rows.bit_length() + _SPARE_BITS, within)))


class AddressWriter:
    """A writer of row addresses, which collects the fingerprints of a file's keys in the order of the rows.

    >>> writer = AddressWriter()
    >>> writer.add(fingerprints(pa.array(["a", "b"])))
    >>> addresses, data = writer.encoded("file.parquet", offset=4, size=1_000)
    >>> addresses.text, len(data)
    ('2 4 2 16', 8)
    """

    def __init__(self) -> None:
        self._parts: list[Fingerprints] = []
        self._bits = _MAX_BITS

    def add(self, row_fingerprints: Fingerprints, bits: int | None = None) -> None:
        """Add the fingerprints of the next rows, of which the lower `bits` bits are known (None: all)."""
        self._parts.append(row_fingerprints)
        self._bits = min(self._bits, bits or _MAX_BITS)

    def encoded(self, name: str, offset: int, size: int) -> tuple[RowAddresses, bytes]:
        """The addresses of the file of this name, which starts with `size` bytes of rows, and their bytes, which are
        written at `offset`."""
        values = np.concatenate(self._parts or [np.empty(0, np.uint32)])
        bits = min(self._bits, bits_of(len(values), size))
        addresses = RowAddresses(name, offset, len(values), bits)
        parts = [values.astype("<u2").tobytes()]
        parts += [np.packbits((values >> bit & 1).astype(np.uint8)).tobytes() for bit in range(_LOW_BITS, bits)]
        data = b"".join(parts)
        return addresses, data + addresses.checksum(data).to_bytes(_CHECKSUM_BYTES, "little")


@dataclass(frozen=True)
class RowAddresses:
    """The row addresses of the file with this name: their offset in the file, the number of rows that they cover, and
    the bits of a fingerprint."""

    name: str
    offset: int
    rows: int
    bits: int

    @classmethod
    def of(cls, texts: Mapping[str, str], path: str, rows: int, size: int) -> RowAddresses | None:
        """The row addresses of a file, from the texts in its footer, its path, and its numbers of rows and bytes. None
        if the footer does not name any, or names the addresses of another file."""
        parts = texts.get(ADDRESSES_KEY, "").split(" ")
        if len(parts) != 4 or parts[0] != _VERSION or not all(part.isascii() and part.isdigit() for part in parts):
            return None
        offset, count, bits = map(int, parts[1:])
        if count != rows or not rows or not _LOW_BITS <= bits <= _MAX_BITS:
            return None
        addresses = cls(path.rpartition("/")[2], offset, count, bits)
        return addresses if offset + addresses.nbytes <= size else None

    @property
    def text(self) -> str:
        """The value of `ADDRESSES_KEY` in the footer."""
        return f"{_VERSION} {self.offset} {self.rows} {self.bits}"

    @property
    def nbytes(self) -> int:
        """The bytes of the addresses in the file."""
        return 2 * self.rows + (self.bits - _LOW_BITS) * self._plane_bytes + _CHECKSUM_BYTES

    @property
    def _plane_bytes(self) -> int:
        return -(-self.rows // 8)

    def checksum(self, data: bytes | memoryview) -> int:
        """The checksum of the bytes before it."""
        return isal_zlib.crc32(data, isal_zlib.crc32(f"{self.name} {self.rows} {self.bits}".encode()))

    def read(self, read: Read) -> StoredFingerprints | None:
        """The fingerprints of the rows; None if the addresses are damaged, or belong to another file."""
        data = memoryview(read([(self.offset, self.nbytes)])[0]).cast("B")
        end = self.nbytes - _CHECKSUM_BYTES
        if len(data) != self.nbytes or self.checksum(data[:end]) != int.from_bytes(data[end:], "little"):
            return None
        planes = np.frombuffer(data[2 * self.rows : end], np.uint8).reshape(self.bits - _LOW_BITS, self._plane_bytes)
        return StoredFingerprints(np.frombuffer(data[: 2 * self.rows], "<u2"), planes)


@dataclass(frozen=True)
class StoredFingerprints:
    """The fingerprints of a file's rows: the lower 16 bits of each, and for each further bit a plane of one bit a
    row."""

    low: npt.NDArray[np.uint16]
    planes: npt.NDArray[np.uint8]

    @property
    def bits(self) -> int:
        """The bits of a fingerprint."""
        return _LOW_BITS + len(self.planes)

    @property
    def nbytes(self) -> int:
        """The bytes that the fingerprints take in memory."""
        return self.low.nbytes + self.planes.nbytes

    def find(self, keys: pa.Array) -> Rows:
        """The rows (ascending) that may have one of the keys: all rows that have one, and rarely a row with another
        key."""
        searched = np.unique(fingerprints(keys) & np.uint32((1 << self.bits) - 1))
        low = np.unique(searched.astype(np.uint16))
        if len(low) <= _MAX_COMPARED:
            parts = [np.flatnonzero(self.low == value) for value in low]
            rows = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        else:
            is_searched = np.zeros(1 << _LOW_BITS, np.bool_)
            is_searched[low] = True
            rows = np.flatnonzero(is_searched[self.low])
        return rows[np.isin(self._at(rows), searched)]

    def locate(self, keys: pa.Array, hints: Rows) -> tuple[Rows, Rows]:
        """The rows that may have each of the keys, as pairs of the number of a key and a row: the row that `hints` has
        for the key, where that is the only row that may have it, else all that may. A hint of -1 is none."""
        requested = fingerprints(keys) & np.uint32((1 << self.bits) - 1)
        is_row = (hints >= 0) & (hints < len(self.low))
        is_right = is_row & (self._at(np.where(is_row, hints, 0)) == requested) & ~np.isin(requested, self._repeated)
        others = np.flatnonzero(~is_right)
        rows = self.find(keys.take(pa.array(others)))
        # of each row the range of the other keys with its fingerprint
        others = others[np.argsort(requested[others], kind="stable")]
        stored = self._at(rows)
        starts = np.searchsorted(requested[others], stored, "left")
        counts = np.searchsorted(requested[others], stored, "right") - starts
        at = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        numbers = np.concatenate([np.flatnonzero(is_right), others[at]])
        return numbers, np.concatenate([hints[is_right], np.repeat(rows, counts)])

    @once
    def _repeated(self) -> Fingerprints:
        """The fingerprints that several rows have: rows of one key, which was inserted again, and rarely others."""
        ordered = np.sort(self.all())
        return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])

    def all(self) -> Fingerprints:
        """The fingerprint of each row, of which the lower `bits` bits are known."""
        values = self.low.astype(np.uint32)
        for number, plane in enumerate(self.planes):
            values |= np.unpackbits(plane, count=len(values)).astype(np.uint32) << np.uint32(_LOW_BITS + number)
        return values

    def _at(self, rows: Rows) -> Fingerprints:
        values = self.low[rows].astype(np.uint32)
        octets, shifts = rows >> 3, (7 - (rows & 7)).astype(np.uint8)
        for number, plane in enumerate(self.planes):
            values |= (plane[octets] >> shifts & 1).astype(np.uint32) << np.uint32(_LOW_BITS + number)
        return values


FINGERPRINTS = BoundedCache[StoredFingerprints](_MAX_BYTES)
"""By a file's URL and size."""
