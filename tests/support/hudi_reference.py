"""Hudi's hashes and bloom filters in plain Python, one value at a time: what the kernels are held against."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Sequence

MASK = 0xFFFFFFFF


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def java_string_hash(text: str) -> int:
    total, units = 0, text.encode("utf-16-le", "surrogatepass")
    for i in range(0, len(units), 2):
        total = (31 * total + (units[i] | units[i + 1] << 8)) & MASK
    return signed(total)


def java_list_hash(values: Sequence[str | None]) -> int:
    total = 1
    for value in values:
        total = (31 * total + (0 if value is None else java_string_hash(value))) & MASK
    return signed(total)


def extract(key: str, fields: Sequence[str]) -> list[str | None]:
    """Hudi's parser; its endless loop is cut where it would start."""
    if "," not in key or ":" not in key:
        return [key]
    wants_all = not fields or list(fields) == [""]
    out: list[str | None] = []
    at, size = 0, len(key)
    while at < size:
        colon = key.find(":", at)
        name, following = key[at:colon], key.find(":", colon + 1)
        wanted = wants_all or name in fields
        if following < 0:
            end = after = size
        else:
            comma = key.rfind(",", 0, following + 1)
            while comma < colon:
                following = key.find(":", following + 1)
                if following < 0:
                    comma = -1
                    break
                comma = key.rfind(",", 0, following + 1)
            if comma > 0 if wanted else comma >= 0:
                end, after = comma, comma + 1
            else:
                end = after = size
        if wanted:
            value = key[colon + 1 : end]
            out.append(None if value == "__null__" else "" if value == "__empty__" else value)
        at = after
    return out or [key]


def bucket_id(key: str, fields: Sequence[str], buckets: int) -> int:
    return (java_list_hash(extract(key, fields)) & 0x7FFFFFFF) % buckets


def murmur2(data: bytes, seed: int) -> int:
    m, n = 0x5BD1E995, len(data)
    h = (seed ^ n) & MASK
    words = n >> 2
    for i in range(words):
        k = int.from_bytes(data[4 * i : 4 * i + 4], "little") * m & MASK
        k = (k ^ k >> 24) * m & MASK
        h = (h * m & MASK) ^ k
    tail = n - 4 * words
    java = [b - 256 if b > 127 else b for b in data]
    if tail:
        if tail >= 3:
            h ^= (java[n - 3] << 16) & MASK
        if tail >= 2:
            h ^= (java[n - 2] << 8) & MASK
        h ^= java[n - 1] & MASK
        h = h * m & MASK
    h = (h ^ h >> 13) * m & MASK
    return h ^ (h >> 15)


def positions(key: bytes, bits: int, hashes: int) -> Iterator[int]:
    seed = 0
    for _ in range(hashes):
        seed = murmur2(key, seed)
        yield abs(signed(seed)) % bits


class SimpleFilter:
    def __init__(self, entries: int, fpp: float) -> None:
        self.bits = math.ceil(entries * (-math.log(fpp) / (math.log(2) * math.log(2))))
        self.hashes = math.ceil(math.log(2) * self.bits / entries)
        self.row = bytearray((self.bits + 7) // 8)

    def add(self, key: bytes) -> None:
        for p in positions(key, self.bits, self.hashes):
            self.row[p >> 3] |= 1 << (p & 7)

    def has(self, key: bytes) -> bool:
        return all(self.row[p >> 3] >> (p & 7) & 1 for p in positions(key, self.bits, self.hashes))

    def raw(self) -> bytes:
        return struct.pack(">iibi", -1, self.hashes, 1, self.bits) + bytes(self.row)

    def text(self) -> str:
        return base64.b64encode(self.raw()).decode()


class DynamicFilter:
    def __init__(self, entries: int, fpp: float, max_entries: int) -> None:
        self.entries, self.fpp, self.max_entries = entries, fpp, max_entries
        self.rows = [SimpleFilter(entries, fpp)]
        self.current, self.full, self.turn = 0, False, 0

    def add(self, key: bytes) -> None:
        if self.full:
            row = self.rows[self.turn % len(self.rows)]
            self.turn += 1
        elif self.current >= self.entries and len(self.rows) * self.entries < self.max_entries:
            self.rows.append(SimpleFilter(self.entries, self.fpp))
            row, self.current = self.rows[-1], 0
        elif self.current >= self.entries:
            self.full, row = True, self.rows[0]
        else:
            row = self.rows[-1]
        row.add(key)
        self.current += 1

    def has(self, key: bytes) -> bool:
        return any(row.has(key) for row in self.rows)

    def text(self) -> str:
        first = self.rows[0]
        head = struct.pack(">iibi", -1, first.hashes, 1, first.bits)
        growth = struct.pack(">iii", self.entries, self.current, len(self.rows))
        return base64.b64encode(head + growth + b"".join(row.raw() for row in self.rows)).decode()
