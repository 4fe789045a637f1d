"""The order of record keys in sorted base files: by the bytes of their UTF-8, as Parquet's statistics have it.

Hudi's smallest and greatest key of a file are in another order, that of Java strings (`lakebed.format.key_range`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings, value_buffer

SORTED_BY = "lakebed.sorted.by"
"""Footer key of a base file whose rows are in the order of this column."""
Positions = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
_WORD = 8


def in_order(keys: pa.Array, *, strictly: bool = False) -> bool:
    """Whether no key is smaller than the one before it; `strictly`: each is greater.

    >>> in_order(pa.array(["a", "b", "b"])), in_order(pa.array(["a", "b", "b"]), strictly=True)
    (True, False)
    """
    if len(keys) < 2:
        return True
    compare = pc.less if strictly else pc.less_equal
    return pc.all(compare(keys[:-1], keys[1:])).as_py()


class Ascending:
    """Whether keys come in ascending order, one batch after another.

    >>> seen = Ascending()
    >>> seen.add(pa.array(["a", "b"])), seen.add(pa.array(["b", "c"])), seen.holds
    (None, None, True)
    >>> seen.add(pa.array(["a"])), seen.holds
    (None, False)
    """

    def __init__(self) -> None:
        self.holds = True
        self._last: str | None = None

    def add(self, keys: pa.Array) -> None:
        """Keys to come next."""
        if self.holds and len(keys):
            texts = plain_strings(keys)
            self.holds = texts.null_count == 0 and in_order(texts)
            self.add_range(texts[0].as_py(), texts[-1].as_py())

    def add_range(self, low: str | None, high: str | None) -> None:
        """Keys in order, of which the first and last are known (None: nothing is)."""
        if low is None or high is None or (self._last is not None and low < self._last):
            self.holds = False
        self._last = high


def key_order(keys: pa.Array) -> Positions | None:
    """The positions of the keys in ascending order, equal keys as they come; None where they are in order already.

    A few times faster than Arrow's sort of texts: eight bytes at a time are compared as one number, and only keys that
    are equal so far are looked at further.

    >>> key_order(pa.array(["b", "a", "ab"])).tolist()
    [1, 2, 0]
    """
    if in_order(keys):
        return None
    texts = _Texts(keys)
    at = shared_prefix(keys)
    words = texts.words(at)
    order = np.argsort(words)  # equal keys are put in their order at the end
    starts = _changes(words[order])
    while True:
        places = _tied(starts)
        if not len(places):
            return order
        at += _WORD
        rows, group = order[places], np.cumsum(starts)[places]
        if at >= texts.longest(rows):
            # what is left differs in trailing NULs at most
            order[places] = rows[np.lexsort((rows, texts.lengths[rows], group))]
            return order
        words = texts.words(at, rows)
        inner = np.lexsort((words, group))
        order[places] = rows[inner]
        starts[places] |= _changes(words[inner])


def insert_places(keys: pa.Array, inserted: pa.Array) -> Positions:
    """For each wanted key how many of the keys, which are in order, are not greater: where it goes, behind its equals.

    >>> insert_places(pa.array(["b", "d", "d"]), pa.array(["a", "d", "c"])).tolist()
    [0, 3, 1]
    """
    if not len(keys) or not len(inserted):
        return np.zeros(len(inserted), np.int64)
    at = shared_prefix(keys[:1], keys[-1:], inserted)
    stored, inserted_words = _Texts(keys).words(at), _Texts(inserted).words(at)
    low = np.searchsorted(stored, inserted_words, "left").astype(np.int64)
    high = np.searchsorted(stored, inserted_words, "right").astype(np.int64)
    while len(rows := np.flatnonzero(low < high)):  # the bytes looked at are equal: all of them decide
        middle = (low[rows] + high[rows]) >> 1
        fits = pc.less_equal(keys.take(pa.array(middle)), inserted.take(pa.array(rows)))
        behind = fits.to_numpy(zero_copy_only=False)
        low[rows[behind]] = middle[behind] + 1
        high[rows[~behind]] = middle[~behind]
    return low


def shared_prefix(*columns: pa.Array) -> int:
    """How many bytes all the keys begin with alike."""
    ends: list[bytes] = []
    for keys in columns:
        if len(keys):
            found = pc.min_max(keys.cast(pa.binary())).as_py()
            ends += [found["min"], found["max"]]
    least, greatest = min(ends, default=b""), max(ends, default=b"")
    return next((n for n, (a, b) in enumerate(zip(least, greatest, strict=False)) if a != b), len(least))


class _Texts:
    """Bytes of a column of keys, eight of each key at a time."""

    def __init__(self, keys: pa.Array) -> None:
        data, offsets = value_buffer(plain_strings(keys))
        begin, end = int(offsets[0]), int(offsets[-1])
        padded = np.zeros(end - begin + _WORD, np.uint8)
        padded[: end - begin] = data[begin:end]
        self._starts = offsets[:-1] - begin
        self.lengths = np.diff(offsets)
        # the eight bytes from every byte on
        self._at = np.ndarray((end - begin + 1,), dtype=">u8", buffer=padded.data, strides=(1,))

    def __len__(self) -> int:
        return len(self.lengths)

    def longest(self, rows: Positions) -> int:
        return int(self.lengths[rows].max())

    def words(self, at: int, rows: Positions | None = None) -> Words:
        """Eight bytes from byte `at` on as a number in the order of the bytes; NUL stands behind a key's end."""
        starts, lengths = (self._starts, self.lengths) if rows is None else (self._starts[rows], self.lengths[rows])
        if int(lengths.min()) >= at + _WORD:
            return self._at[starts + at].astype(np.uint64)
        found = self._at[np.minimum(starts + at, len(self._at) - 1)].astype(np.uint64)
        # two shifts, since one by all 64 bits is no shift to the processor
        cut = ((_WORD - np.clip(lengths - at, 0, _WORD)) * 4).astype(np.uint64)
        return found >> cut >> cut << cut << cut


def _changes(words: Words) -> npt.NDArray[np.bool_]:
    """Where a run of equal words begins."""
    starts = np.ones(len(words), np.bool_)
    starts[1:] = words[1:] != words[:-1]
    return starts


def _tied(starts: npt.NDArray[np.bool_]) -> Positions:
    """Places in runs of more than one."""
    return np.flatnonzero(~(starts & np.append(starts[1:], True)))
