"""Hudi's bloom filters, as base-file footers and the metadata table carry them: SIMPLE and DYNAMIC_V0."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.murmur2 import KeyBlock, key_blocks

TypeCode = Literal["SIMPLE", "DYNAMIC_V0"]
_VERSIONED = -1
_MURMUR = 1
_HEADER = struct.Struct(">iibi")
_GROWTH = struct.Struct(">iii")
_DEFAULT_MAX_ENTRIES = 100_000
# Beyond any rate of false positives; a damaged filter must not be asked for ever.
_MOST_HASHES = 1024
Bits = npt.NDArray[np.uint8]


class BloomFilter:
    """A set of record keys that may say yes to a key it does not hold, never no to one it holds.

    The bytes are Hudi's: a filter built from the same keys in the same order is the same text.

    >>> keys = BloomFilter.simple(2, 0.1)
    >>> keys.add(pa.array(["a", "b"]))
    >>> keys.to_text()
    '/////wAAAAQBAAAACr0C'
    >>> BloomFilter.from_text(keys.to_text(), "SIMPLE").might_contain(pa.array(["a", "zz"])).to_pylist()
    [True, False]
    """

    def __init__(
        self,
        type_code: TypeCode,
        rows: list[Bits],
        *,
        bits: int,
        hashes: int,
        entries: int = 0,
        max_entries: int = 0,
        current: int = 0,
    ) -> None:
        self.type_code: TypeCode = type_code
        self.bits = bits
        self.hashes = hashes
        self._rows = rows
        self._entries = entries
        self._max_entries = max_entries
        self._current = current
        self._full = False
        self._turn = 0

    @classmethod
    def simple(cls, entries: int = 60_000, fpp: float = 1e-9) -> BloomFilter:
        """An empty filter of fixed size for that many keys at that rate of false positives."""
        bits, hashes = _size(entries, fpp)
        return cls("SIMPLE", [_empty(bits)], bits=bits, hashes=hashes)

    @classmethod
    def dynamic(cls, entries: int = 60_000, fpp: float = 1e-9, max_entries: int = _DEFAULT_MAX_ENTRIES) -> BloomFilter:
        """An empty filter that takes a further row of bits each `entries` keys until it has room for `max_entries`.

        >>> keys = BloomFilter.dynamic(2, 0.1, max_entries=3)
        >>> keys.add(pa.array(["a", "b", "c"]))
        >>> keys.to_text()
        '/////wAAAAQBAAAACgAAAAIAAAABAAAAAv////8AAAAEAQAAAAq9Av////8AAAAEAQAAAAo2AA=='
        """
        bits, hashes = _size(entries, fpp)
        return cls("DYNAMIC_V0", [_empty(bits)], bits=bits, hashes=hashes, entries=entries, max_entries=max_entries)

    def add(self, keys: Any) -> None:
        """Add every key of a string column; nulls are left out."""
        strings = pc.drop_null(keys)
        if self.type_code == "SIMPLE":
            self._put(0, strings)
            return
        at, total = 0, len(strings)
        while at < total and not self._full:
            if self._current >= self._entries and len(self._rows) * self._entries < self._max_entries:
                self._rows.append(_empty(self.bits))
                self._current = 0
            elif self._current >= self._entries:
                # the key that finds the filter full still goes to the first row
                self._full = True
            room = 1 if self._full else self._entries - self._current
            taken = min(room, total - at)
            self._put(0 if self._full else len(self._rows) - 1, strings.slice(at, taken))
            self._current += taken
            at += taken
        if at < total:
            self._add_in_turn(strings.slice(at))

    def _add_in_turn(self, strings: pa.Array) -> None:
        """A full filter takes keys row by row in turn."""
        rows = len(self._rows)
        order = np.arange(len(strings))
        for row in range(rows):
            own = order[(row - self._turn) % rows :: rows]
            if len(own):
                self._put(row, strings.take(pa.array(own)))
        self._turn += len(strings)
        self._current += len(strings)

    def _put(self, row: int, strings: pa.Array) -> None:
        flags = np.zeros(self.bits, np.bool_)
        for block in key_blocks(strings):
            for position in self._positions(block):
                flags[position] = True
        self._rows[row] |= np.packbits(flags, bitorder="little")

    def might_contain(self, keys: Any) -> pa.BooleanArray:
        """For each key whether the filter may hold it; null for a null key."""
        found = np.zeros(len(keys), np.bool_)
        bits = [np.unpackbits(row, count=self.bits, bitorder="little") for row in self._rows]
        for block in key_blocks(keys):
            found[block.rows] = self._found(block, bits)
        valid = keys.is_valid() if keys.null_count else None
        return pa.array(found, mask=None if valid is None else pc.invert(valid).to_numpy(zero_copy_only=False))

    def _found(self, block: KeyBlock, bits: list[Bits]) -> npt.NDArray[np.bool_]:
        hits = [np.ones(len(block.rows), np.bool_) for _ in bits]
        for position in self._positions(block):
            for hit, row in zip(hits, bits, strict=True):
                hit &= row[position].view(np.bool_)
            if not any(hit.any() for hit in hits):
                break
        return np.logical_or.reduce(hits)

    def _positions(self, block: KeyBlock) -> Any:
        """The bit of each key under each hash, one array a hash; each hash is seeded with the one before."""
        seed: Any = np.uint32(0)
        for _ in range(self.hashes):
            seed = block.murmur2(seed)
            # the hash counts as a signed int
            yield np.abs(seed.view(np.int32).astype(np.int64)) % self.bits

    def to_text(self) -> str:
        """Base64 text as footers have it."""
        header = _HEADER.pack(_VERSIONED, self.hashes, _MURMUR, self.bits)
        if self.type_code == "SIMPLE":
            return base64.b64encode(header + self._rows[0].tobytes()).decode()
        growth = _GROWTH.pack(self._entries, self._current, len(self._rows))
        rows = b"".join(header + row.tobytes() for row in self._rows)
        return base64.b64encode(header + growth + rows).decode()

    @classmethod
    def from_text(
        cls, text: str | bytes, type_code: str = "SIMPLE", *, max_entries: int = _DEFAULT_MAX_ENTRIES, path: str = ""
    ) -> BloomFilter:
        """The filter in a footer's text. A dynamic filter's limit is not in the text: `max_entries` says how far it may
        grow when keys are added. Raises `CorruptFile` for text that is no filter."""
        try:
            data = base64.b64decode(text, validate=True)
            if type_code == "SIMPLE":
                bits, hashes, row, at = _read_row(data, 0)
                if at != len(data):
                    raise ValueError(f"it goes on for {len(data) - at} bytes behind its end")
                return cls("SIMPLE", [row], bits=bits, hashes=hashes)
            if type_code != "DYNAMIC_V0":
                raise ValueError("such filters do not exist")
            entries, current, count = _GROWTH.unpack_from(data, _HEADER.size)
            at, rows, shapes = _HEADER.size + _GROWTH.size, list[Bits](), set[tuple[int, int]]()
            bits = hashes = 0
            for _ in range(count):
                bits, hashes, row, at = _read_row(data, at)
                rows.append(row)
                shapes.add((bits, hashes))
            if len(shapes) != 1 or at != len(data):
                raise ValueError(f"it has rows of {len(shapes)} sizes, and ends at {at} of {len(data)} bytes")
        except (ValueError, struct.error) as error:
            raise CorruptFile(
                f"{path or 'a base file'} has no {type_code} bloom filter: {error}",
                hint="Restore the file, or roll back the commit that wrote it.",
                context={"path": path},
            ) from error
        return cls(
            "DYNAMIC_V0", rows, bits=bits, hashes=hashes, entries=entries, max_entries=max_entries, current=current
        )


def all_ones() -> BloomFilter:
    """A filter of one byte that holds every key: Hudi's bloom lookup then goes by the key range alone, and stays right.

    >>> all_ones().might_contain(pa.array(["anything"])).to_pylist()
    [True]
    """
    return BloomFilter("SIMPLE", [np.full(1, 0xFF, np.uint8)], bits=8, hashes=1)


def _size(entries: int, fpp: float) -> tuple[int, int]:
    """Number of bits and of hashes."""
    bits = math.ceil(entries * (-math.log(fpp) / (math.log(2) * math.log(2))))
    return bits, math.ceil(math.log(2) * bits / entries)


def _empty(bits: int) -> Bits:
    return np.zeros((bits + 7) // 8, np.uint8)


def _read_row(data: bytes, at: int) -> tuple[int, int, Bits, int]:
    """Bits, hashes and bytes of a row of bits, and where the next one starts."""
    version, hashes, kind, bits = _HEADER.unpack_from(data, at)
    if version != _VERSIONED or kind != _MURMUR:
        raise ValueError(f"version {version} with hash type {kind} is unknown")
    at += _HEADER.size
    size = (bits + 7) // 8
    if bits <= 0 or not 0 < hashes <= _MOST_HASHES or at + size > len(data):
        raise ValueError("its bits end too soon, or its hashes are too many")
    return bits, hashes, np.frombuffer(data, np.uint8, size, at).copy(), at + size


ALL_ONES_TEXT = all_ones().to_text()
