"""A table that finds keys among many by eight bytes of each; full texts are compared only where these bytes are equal.

A hash table of texts needs a random read for each key that is looked for. Here eight bytes show that a key is missing,
as most keys are, for a fifth of the work.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import value_buffer
from lakebed.schema.plain_arrow import as_numpy

Positions = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
_WORD: Final = 8
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
# The keys whose slots others have come into a table of their own, with another mix of their bytes, and so on.
_MIXES: Final = (_MIX, np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0xFF51AFD7ED558CCD))
# Slots a key, at least; and of few keys.
_ROOM: Final = 4
_MIN_SLOTS_LOG: Final = 6
# A table of texts is as good for fewer keys than the first number, or if more than one key in the second shares its
# slots in all tables. Fewer keys than the last number are numbered by texts.
_MAX_ITEMS: Final = 4
_MAX_CROWDED: Final = 5
_MIN_KEYS: Final = 1 << 12
# Keys that are sampled for the bytes in which they differ, and how far into a key these are looked for.
_SAMPLED: Final = 512
_MAX_OFFSET: Final = 256


class KeyTable:
    """A lookup table of keys without nulls. `find` returns the first position of each of other keys in it, -1 for a key
    that it does not have.

    >>> KeyTable(pa.array(["a", "b"])).find(pa.array(["b", "nobody", "a"])).tolist()
    [1, -1, 0]
    """

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys
        self._pays = False
        if len(keys) < _MAX_ITEMS:
            return
        self._offset = distinguishing_offset(keys)
        self._words = words_at(keys, self._offset)
        self._levels: list[_Level] = []
        left = np.arange(len(keys), dtype=np.int32)
        for mix in _MIXES:
            if len(left):
                level = _Level(self._words[left], left, mix)
                self._levels.append(level)
                left = left[level.others]
        # they have the words of others, mostly
        self._left = left
        self._pays = len(left) <= len(keys) // _MAX_CROWDED

    def find(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        if not self._pays:
            return as_numpy(pc.fill_null(pc.index_in(keys, value_set=self._keys), -1))
        numbers = np.full(len(keys), -1, np.int32)
        words, at = words_at(keys, self._offset), None
        for level in self._levels:
            slots = level.slots(words)
            every = level.first.take(slots)
            occupied = np.flatnonzero(every >= 0)
            candidates = every[occupied]
            same = self._words[candidates] == words[occupied]
            rows = occupied if at is None else at[occupied]
            same[same] = _equal(keys, rows[same], self._keys, candidates[same])
            numbers[rows[same]] = candidates[same]
            if not len(level.others):
                return numbers
            crowded = np.flatnonzero(level.crowded[slots[occupied]] & ~same)
            words, at = words[occupied[crowded]], rows[crowded]
        assert at is not None
        positions = pc.index_in(keys.take(pa.array(at)), value_set=self._keys.take(pa.array(self._left)))
        hits = np.flatnonzero(as_numpy(positions.is_valid()))
        numbers[at[hits]] = self._left[as_numpy(positions.drop_null())]
        return numbers


class _Level:
    """One level of the table: the slots of keys by their words, with the position of each slot's first key (-1: empty),
    flags of the slots that several keys have, and the positions of the other keys."""

    def __init__(self, words: Words, positions: npt.NDArray[np.int32], mix: np.uint64) -> None:
        self._mix, self._bits = mix, _slot_bits(len(words))
        slots = self.slots(words)
        self.first = np.full(1 << self._bits, -1, np.int32)
        self.first[slots[::-1]] = positions[::-1]  # the first of a slot is written last, and stays
        self.others = np.flatnonzero(self.first[slots] != positions)
        self.crowded = np.zeros(len(self.first), np.bool_)
        self.crowded[slots[self.others]] = True

    def slots(self, words: Words) -> Positions:
        """The slot of each word."""
        return _slots(words, self._bits, self._mix)


def key_codes(keys: pa.Array) -> tuple[Positions, int]:
    """A number from 0 for each key, equal for equal keys, and the number of different keys.

    >>> key_codes(pa.array(["a", "b", "a"]))[0].tolist()
    [0, 1, 0]
    """
    count = len(keys)
    if count < _MIN_KEYS:
        encoded = keys.dictionary_encode()
        return as_numpy(encoded.indices).astype(np.int64), len(encoded.dictionary)
    words = words_at(keys, distinguishing_offset(keys))
    bits = _slot_bits(count)
    slots = _slots(words, bits)
    table = np.empty(1 << bits, np.int32)
    table[slots[::-1]] = np.arange(count, dtype=np.int32)[::-1]
    firsts = table[slots].astype(np.int64)
    later = np.flatnonzero(firsts != np.arange(count))
    same = words[later] == words[firsts[later]]
    same[same] = _equal(keys, later[same], keys, firsts[later[same]])
    left = later[~same]
    if len(left):
        encoded = as_numpy(keys.take(pa.array(left)).dictionary_encode().indices)
        first = np.empty(int(encoded.max()) + 1, np.int64)
        first[encoded[::-1]] = left[::-1]
        firsts[left] = first[encoded]
    is_first = firsts == np.arange(count)
    return (np.cumsum(is_first) - 1)[firsts], int(is_first.sum())


def distinguishing_offset(keys: pa.Array) -> int:
    """The offset of the eight bytes in which these keys differ most."""
    if not len(keys):
        return 0
    sample = keys.take(pa.array(np.linspace(0, len(keys) - 1, min(len(keys), _SAMPLED)).astype(np.int64)))
    longest = min(int(np.diff(value_buffer(sample)[1]).max()), _MAX_OFFSET)
    offsets = [*range(0, max(1, longest - _WORD), _WORD), max(0, longest - _WORD)]
    return max(offsets, key=lambda offset: len(np.unique(words_at(sample, offset))))


def words_at(keys: pa.Array, offset: int) -> Words:
    """The eight bytes of each key from `offset` on, or its last eight bytes; all bytes of a shorter key."""
    if not len(keys):
        return np.empty(0, np.uint64)
    length = length_of_all(keys)
    if length >= _WORD:
        _, edges, raw = keys.buffers()
        first = int(np.frombuffer(edges, np.int32)[keys.offset]) + min(offset, length - _WORD)
        of_length: Any = np.ndarray((len(keys),), "<u8", raw, first, (length,))
        return of_length.astype(np.uint64)
    data, offsets = value_buffer(keys)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if int(offsets[-1]) + _WORD > len(data):
        first = int(offsets[0])
        data, starts = np.append(data[first : int(offsets[-1])], np.zeros(_WORD, np.uint8)), starts - first
    every: Any = np.ndarray((len(data) - _WORD + 1,), "<u8", data, 0, (1,))
    words: Words = every[starts + np.minimum(offset, np.maximum(lengths - _WORD, 0))]
    short = np.flatnonzero(lengths < _WORD)
    if len(short):  # what follows a short key is no part of it
        bits = (_WORD * lengths[short]).astype(np.uint64)
        words[short] &= (np.uint64(1) << bits) - np.uint64(1)
    return words


def length_of_all(keys: pa.Array) -> int:
    """The number of bytes that every text has; 0 if the lengths differ."""
    if not pa.types.is_string(keys.type):
        return 0
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    length = int(offsets[1]) - int(offsets[0])
    if int(offsets[-1]) - int(offsets[0]) != length * len(keys):
        return 0
    return length if (np.diff(offsets) == length).all() else 0


def _slot_bits(count: int) -> int:
    return max(_MIN_SLOTS_LOG, (_ROOM * count).bit_length())


def _slots(words: Words, bits: int, mix: np.uint64 = _MIX) -> Positions:
    mixed = words * mix
    mixed >>= np.uint64(64 - bits)
    return mixed.view(np.int64)


def _equal(texts: pa.Array, at: Positions, other: pa.Array, row_numbers: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Flags of the pairs whose texts are equal: the text at a position of `at`, and the text of `other` at the row
    number of the same pair."""
    if not len(at):
        return np.zeros(0, np.bool_)
    first, second = texts.take(pa.array(at)), other.take(pa.array(row_numbers))
    if first.equals(second):
        return np.ones(len(at), np.bool_)
    return as_numpy(pc.equal(first, second))
