"""The row of each record key in a base file, in eight bytes a key: what a lookup reads in place of the key column.

The addresses are bytes between the last row group and the footer of the file, which shows them by `ADDRESSES_KEY`. So
they come, move and go with the file, and no other reader of Parquet looks at them. They are hints: the key of a row is
compared when the row is read. Each block has a checksum in which the file's name takes part, so that addresses that are
broken, or those of another file, are seen.

An entry has a fingerprint of the key in its upper half and the number of the row in the lower one. Entries are in
ascending order, in blocks of as many bytes as a page of memory, whose last eight bytes are the checksum. Fingerprints
spread evenly, so that the place of one follows from its value, and few blocks are read for a key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from isal import isal_zlib

from lakebed.format.hashes import plain_strings, value_buffer

Rows = npt.NDArray[np.int64]
Entries = npt.NDArray[np.uint64]
Fingerprints = npt.NDArray[np.uint32]
Read = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | memoryview]]
"""Gives the bytes of each (offset, length) of a file."""

ADDRESSES_KEY: Final = "lakebed.row.addresses"
_VERSION: Final = "1"
_WORDS: Final = 512
_ENTRIES: Final = _WORDS - 1
_BLOCK_BYTES: Final = 8 * _WORDS
_ROW_MASK: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
# Longer keys are hashed one by one, the others eight bytes at a time, all together. Part of the format, as all that
# decides a fingerprint.
_LONG: Final = 256
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_LAST_FACTOR: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_LAST_SHIFT: Final = np.uint64(29)
_MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
# A fingerprint is within so many standard deviations (half the root of the rows, at most) of where it is looked for.
_DEVIATIONS: Final = 6
# From this share of the blocks on all of them are read.
_SHARE: Final = 2


def fingerprints(keys: pa.Array) -> Fingerprints:
    """A hash of each text; a null has the hash of the empty text. The hashes are equal in all releases, since files
    store them.

    >>> fingerprints(pa.array(["a", "", "a key of more than eight bytes"])).tolist()
    [3915325677, 0, 1175910786]
    """
    array = plain_strings(keys)
    data, offsets = value_buffer(array)
    if not len(array):
        return np.empty(0, np.uint32)
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
    return (hashes >> _HALF).astype(np.uint32)


def _mix(hashes: Entries, words: Entries) -> None:
    hashes ^= words
    hashes *= _FACTOR
    hashes ^= hashes >> _HALF


def _hash_words(hashes: Entries, data: npt.NDArray[np.uint8], starts: Rows, lengths: Rows) -> None:
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


class AddressWriter:
    """A writer of row addresses, which collects the keys of a file's rows in the order of the rows.

    >>> writer = AddressWriter()
    >>> writer.add(fingerprints(pa.array(["a", "b"])))
    >>> len(writer.encoded("file.parquet"))
    4096
    """

    def __init__(self) -> None:
        self._parts: list[Fingerprints] = []

    def add(self, row_fingerprints: Fingerprints) -> None:
        """Add the fingerprints of the next rows."""
        self._parts.append(row_fingerprints)

    @property
    def rows(self) -> int:
        """The number of rows added so far."""
        return sum(map(len, self._parts))

    def encoded(self, name: str) -> memoryview:
        """The bytes for the file of this name."""
        rows = self.rows
        count = -(-rows // _ENTRIES)
        entries = np.full(count * _ENTRIES, ~np.uint64(0))
        entries[:rows] = np.concatenate(self._parts or [np.empty(0, np.uint32)])
        entries[:rows] <<= _HALF
        entries[:rows] |= np.arange(rows, dtype=np.uint64)
        entries.sort()
        blocks = np.zeros((count, _WORDS), "<u8")
        blocks[:, :_ENTRIES] = entries.reshape(count, _ENTRIES)
        blocks[:, _ENTRIES] = _checksums(blocks, np.arange(count), name, rows)
        return blocks.data.cast("B")


def _checksums(blocks: Entries, numbers: Rows, name: str, rows: int) -> Entries:
    seed = isal_zlib.crc32(f"{name} {rows}".encode())
    data = np.ascontiguousarray(blocks).data.cast("B")
    checksums = [
        isal_zlib.crc32(data[at * _BLOCK_BYTES : (at + 1) * _BLOCK_BYTES - 8], seed ^ number)
        for at, number in enumerate(numbers.tolist())
    ]
    return np.array(checksums, np.uint64)


def addresses_text(offset: int, rows: int) -> str:
    """The value of `ADDRESSES_KEY` for addresses of `rows` rows that start at an offset of the file."""
    return f"{_VERSION} {offset} {rows}"


@dataclass(frozen=True)
class RowAddresses:
    """The row addresses of the file with this name: their offset in the file, and the number of rows that they
    cover."""

    name: str
    offset: int
    rows: int

    @classmethod
    def of(cls, texts: Mapping[str, str], path: str, rows: int, size: int) -> RowAddresses | None:
        """The row addresses of a file, from the texts in its footer, its path, and its numbers of rows and bytes. None
        if the footer does not name any, or names the addresses of another file."""
        parts = texts.get(ADDRESSES_KEY, "").split(" ")
        if len(parts) != 3 or parts[0] != _VERSION or not all(part.isascii() and part.isdigit() for part in parts):
            return None
        offset, count = int(parts[1]), int(parts[2])
        addresses = cls(path.rpartition("/")[2], offset, count)
        return addresses if count == rows > 0 and offset + addresses._blocks * _BLOCK_BYTES <= size else None

    @property
    def _blocks(self) -> int:
        return -(-self.rows // _ENTRIES)

    def find(self, read: Read, keys: pa.Array) -> Rows | None:
        """The rows (ascending) that may have one of the keys: all rows that have one, and rarely a row with another
        key. None if the addresses are damaged, or belong to another file."""
        searched = np.unique(fingerprints(keys)).astype(np.uint64)
        count = self._blocks
        margin = int(_DEVIATIONS * math.sqrt(self.rows) / 2) // _ENTRIES + 1
        near = (searched * np.uint64(self.rows) >> _HALF).astype(np.int64) // _ENTRIES
        first, end = np.maximum(near - margin, 0), np.minimum(near + margin + 1, count)
        steps = np.zeros(count + 1, np.int64)
        np.add.at(steps, first, 1)
        np.add.at(steps, end, -1)
        needed = np.cumsum(steps)[:-1] > 0
        if needed.sum() * _SHARE < count:
            entries = self._read(read, np.flatnonzero(needed))
            if entries is None:
                return None
            before = np.append(0, np.cumsum(needed)) * _ENTRIES
            low, high = _spans(entries, searched)
            if (((first == 0) | (low > before[first])) & ((end == count) | (high < before[end]))).all():
                return self._rows(entries, low, high)
        entries = self._read(read, np.arange(count))
        return None if entries is None else self._rows(entries, *_spans(entries, searched))

    def fingerprints(self, read: Read) -> Fingerprints | None:
        """The fingerprint of each row's key; None if the addresses are damaged."""
        entries = self._read(read, np.arange(self._blocks))
        if entries is None:
            return None
        entries = entries[: self.rows]
        row_fingerprints = np.empty(self.rows, np.uint32)
        row_fingerprints[entries & _ROW_MASK] = entries >> _HALF
        return row_fingerprints

    def _read(self, read: Read, numbers: Rows) -> Entries | None:
        """The entries of the blocks with these ascending numbers; None if a block is damaged."""
        starts = numbers[np.diff(numbers, prepend=-2) > 1]
        ends = numbers[np.diff(numbers, append=numbers[-1] + 2) > 1] + 1
        lengths = ((ends - starts) * _BLOCK_BYTES).tolist()
        offsets = (self.offset + starts * _BLOCK_BYTES).tolist()
        parts = read(list(zip(offsets, lengths, strict=True)))
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if len(data) != len(numbers) * _BLOCK_BYTES:
            return None
        blocks = np.frombuffer(data, "<u8").reshape(-1, _WORDS)
        if not np.array_equal(blocks[:, _ENTRIES], _checksums(blocks, numbers, self.name, self.rows)):
            return None
        return blocks[:, :_ENTRIES].ravel()

    def _rows(self, entries: Entries, low: Rows, high: Rows) -> Rows:
        counts = high - low
        at = np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        rows = np.sort((entries[at] & _ROW_MASK).astype(np.int64))
        return rows[rows < self.rows]


def _spans(entries: Entries, searched: Entries) -> tuple[Rows, Rows]:
    """The start and the end of the entries of each searched fingerprint."""
    low = searched << _HALF
    return np.searchsorted(entries, low, "left"), np.searchsorted(entries, low | _ROW_MASK, "right")
