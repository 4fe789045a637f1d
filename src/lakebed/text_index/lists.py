"""Inverted lists: for each word the texts that have it, with how often, and the rows of the texts.

A layer of an index is a head and numbered blocks: those of the rows (hashes, lengths and file groups), those of their
keys, and those of the words in ascending order with their lists. The rows are in ascending order of their keys, so
that the first of equally good rows are those with the least keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.row_addresses import Hashes
from lakebed.schema.plain_arrow import as_numpy, one_array
from lakebed.sharing import once
from lakebed.text_index.scores import Statistics
from lakebed.text_index.words import Numbers, Words
from lakebed.vector_index.frame import Kind, pack, unpack
from lakebed.vector_index.layers import Blocks, Changes, Groups

_INDEX: Final = "text index"
_HEAD: Final = Kind(b"LTIH", 1, "the head of a layer", _INDEX)
_ROWS: Final = Kind(b"LTIR", 1, "a block of rows", _INDEX)
_KEYS: Final = Kind(b"LTIK", 1, "a block of keys", _INDEX)
_WORDS: Final = Kind(b"LTIW", 1, "a block of words", _INDEX)
ROWS_IN_BLOCK: Final = 1 << 15
KEYS_IN_BLOCK: Final = 1 << 11
ENTRIES_IN_BLOCK: Final = 1 << 13
_NARROW: Final = ((0xFF, np.uint8), (0xFFFF, np.uint16), (0xFFFFFFFF, np.uint32))
# A word that comes more often in a text counts as if it came so often.
_MAX_COUNT: Final = 0xFFFF


@dataclass(frozen=True, eq=False)
class TextRows:
    """Rows of an index: their keys, hashes (`row_hashes`), the numbers of their file groups in a list, and the number
    of words of each. A row that is `-1` words long has no text here: a search reads it from the table."""

    keys: pa.StringArray
    hashes: Hashes
    groups: Numbers
    lengths: Numbers

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, rows: Numbers) -> TextRows:
        """The rows with these numbers, in their order."""
        keys = one_array(self.keys.take(pa.array(rows)))
        return TextRows(keys, self.hashes[rows], self.groups[rows], self.lengths[rows])

    def order(self) -> Numbers:
        """The numbers of the rows in the order of a layer: by their keys, then by their file groups."""
        return np.lexsort((self.groups, ranks(self.keys)))

    @staticmethod
    def together(parts: Sequence[TextRows]) -> TextRows:
        """The rows of all parts, in order."""
        none = np.empty(0, np.int64)
        return TextRows(
            pa.concat_arrays([pa.array([], pa.string()), *(part.keys for part in parts)]),
            np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)]),
            np.concatenate([none, *(part.groups for part in parts)]),
            np.concatenate([none, *(part.lengths for part in parts)]),
        )


@dataclass(frozen=True, eq=False)
class InvertedLists:
    """The lists of all words: the entries of word `n` are those from `starts[n]` to `starts[n + 1]`, each the number of
    a row, in ascending order, with how often it has the word. The words are in ascending order."""

    rows: TextRows
    words: pa.StringArray
    starts: Numbers
    entries: Numbers
    counts: Numbers

    @staticmethod
    def of(parts: Sequence[tuple[TextRows, Words]]) -> InvertedLists:
        """The lists of rows and their words."""
        rows = TextRows.together([part for part, _ in parts])
        order = rows.order()
        positions = np.empty(len(order), np.int64)
        positions[order] = np.arange(len(order))
        starts = np.cumsum([0, *(len(part) for part, _ in parts)])
        texts = [positions[start + words.texts] for start, (_, words) in zip(starts, parts, strict=False)]
        dictionaries = [words.different for _, words in parts]
        every: Any = pa.chunked_array(dictionaries, pa.string()).combine_chunks().dictionary_encode()
        different = one_array(every.dictionary)
        of_codes = (ranks(different) - 1)[as_numpy(every.indices).astype(np.int64)]
        firsts = np.cumsum([0, *(len(dictionary) for dictionary in dictionaries)])
        codes = [of_codes[first + words.codes] for first, (_, words) in zip(firsts, parts, strict=False)]
        none = np.empty(0, np.int64)
        size = max(1, len(rows))
        pairs = np.sort(np.concatenate([none, *codes]) * size + np.concatenate([none, *texts]))
        is_first = np.diff(pairs, prepend=-1) != 0
        at = np.flatnonzero(is_first)
        counts = np.minimum(np.diff(np.append(at, len(pairs))), _MAX_COUNT)
        entries = pairs[at]
        word_starts = np.searchsorted(entries, np.arange(len(different) + 1) * size)
        words = different.take(pc.array_sort_indices(different))
        return InvertedLists(rows.take(order), one_array(words), word_starts, entries % size, counts)


def ranks(texts: pa.StringArray) -> Numbers:
    """The rank of each text in ascending order of their bytes; equal texts have one."""
    return as_numpy(pc.rank(texts, tiebreaker="min")).astype(np.int64) if len(texts) else np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class LayerHead:
    """The head of a layer: its file groups, what the commit changed, the file groups (by their numbers) whose earlier
    entries do not count any more, the number of rows, and the first and the last word of each block of words."""

    groups: Groups
    changes: Changes
    rewritten: Numbers
    rows: int
    firsts: pa.StringArray
    lasts: pa.StringArray

    @property
    def row_blocks(self) -> int:
        """The number of blocks of rows; the blocks of their keys follow them, and then those of words."""
        return -(-self.rows // ROWS_IN_BLOCK)

    @property
    def first_word_block(self) -> int:
        """The number of the first block of words."""
        return self.row_blocks + -(-self.rows // KEYS_IN_BLOCK)

    @property
    def block_count(self) -> int:
        """The number of all blocks."""
        return self.first_word_block + len(self.firsts)

    @once
    def _bounds(self) -> tuple[list[bytes], list[bytes]]:
        firsts, lasts = ([word.encode() for word in words.to_pylist()] for words in (self.firsts, self.lasts))
        return firsts, lasts

    def blocks_of(self, word: str, last: str | None = None) -> list[int]:
        """The numbers of the blocks that may have entries of a word, or of words from this one to the `last`."""
        firsts, lasts = self._bounds
        first, end = bisect_left(lasts, word.encode()), bisect_right(firsts, (word if last is None else last).encode())
        return list(range(self.first_word_block + first, self.first_word_block + end))

    def to_bytes(self) -> bytes:
        """The record of the index with this head."""
        groups, changes = self.groups, self.changes
        numbers = [np.array([self.rows], np.uint32), self.rewritten.astype(np.uint32)]
        texts = [changes.partitions, groups.partitions, groups.ids, self.firsts, self.lasts]
        return pack(_HEAD, [*numbers, changes.replaced, changes.possible, *texts])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> LayerHead:
        """The head in a record. Raises `CorruptFile` for damaged bytes, `UnsupportedFeature` for a record of a newer
        release."""
        (rows, rewritten, replaced, possible, deleted, partitions, ids, firsts, lasts) = unpack(_HEAD, data)
        if len(rows) != 1 or len(partitions) != len(ids) or len(firsts) != len(lasts):
            raise _damaged("the head of a layer has columns of other lengths")
        changes = Changes(replaced, possible, deleted)
        return cls(Groups(partitions, ids), changes, rewritten.astype(np.int64), int(rows[0]), firsts, lasts)


@dataclass(frozen=True, eq=False)
class TextLayer:
    """A layer of an index: its head, and how its blocks are read."""

    head: LayerHead
    blocks: Blocks

    def rows(self) -> TextRows:
        """All rows, without their keys."""
        parts = [unpack(_ROWS, data) for data in self._read(range(self.head.row_blocks))]
        hashes = np.concatenate([np.empty(0, np.uint64), *(part[0] for part in parts)])
        lengths = np.concatenate([np.empty(0, np.int64), *(part[1] for part in parts)])
        groups = np.concatenate([np.empty(0, np.int64), *(part[2] for part in parts)])
        is_right = len(hashes) == len(lengths) == len(groups) == self.head.rows
        if not is_right or int(groups.max(initial=-1)) >= len(self.head.groups):
            raise _damaged("a block of rows is of another layer")
        return TextRows(pa.array([], pa.string()), hashes, groups.astype(np.int64), lengths.astype(np.int64) - 1)

    def keys(self, rows: Numbers) -> pa.StringArray:
        """The keys of the rows with these numbers, in their order."""
        if not len(rows):
            return pa.array([], pa.string())
        numbers = np.unique(rows // KEYS_IN_BLOCK)
        parts = [unpack(_KEYS, data)[0] for data in self._read(self.head.row_blocks + numbers)]
        keys = pa.concat_arrays(parts)
        positions = np.searchsorted(numbers, rows // KEYS_IN_BLOCK) * KEYS_IN_BLOCK + rows % KEYS_IN_BLOCK
        if int(positions.max()) >= len(keys):
            raise _damaged("a block of keys is of another layer")
        return one_array(keys.take(pa.array(positions)))

    def entries(self, words: Sequence[str]) -> dict[str, tuple[Numbers, Numbers]]:
        """The rows that have each of these words, and how often they have it."""
        of_words = {word: self.head.blocks_of(word) for word in words}
        numbers = sorted({number for blocks in of_words.values() for number in blocks})
        blocks = dict(zip(numbers, map(_WordBlock.of, self._read(numbers)), strict=True))
        of_each: dict[str, tuple[Numbers, Numbers]] = {}
        for word, of_word in of_words.items():
            parts = [blocks[number].entries(word) for number in of_word]
            none = np.empty(0, np.int64)
            rows = np.concatenate([none, *(rows for rows, _ in parts)])
            if int(rows.max(initial=-1)) >= self.head.rows:
                raise _damaged("a block of words is of another layer")
            of_each[word] = rows, np.concatenate([none, *(counts for _, counts in parts)])
        return of_each

    def every_entry(
        self, numbers: Iterable[int] | None = None
    ) -> Iterable[tuple[pa.StringArray, Numbers, Numbers, Numbers]]:
        """The words of each block, and of each entry the position of its word, its row and its count. `numbers` are
        those of some blocks of words (None: all)."""
        for number in range(self.head.first_word_block, self.head.block_count) if numbers is None else numbers:
            (data,) = self._read([number])
            block = _WordBlock.of(data)
            sizes = np.diff(block.starts)
            yield block.words, np.repeat(np.arange(len(sizes)), sizes), block.rows, block.counts

    def _read(self, numbers: Iterable[int] | Numbers) -> Sequence[Any]:
        listed = [int(number) for number in numbers]
        return self.blocks(listed) if listed else []


@dataclass(frozen=True, eq=False)
class _WordBlock:
    words: pa.StringArray
    starts: Numbers
    rows: Numbers
    counts: Numbers

    @classmethod
    def of(cls, data: bytes | memoryview) -> _WordBlock:
        words, sizes, rows, counts = unpack(_WORDS, data)
        starts = np.cumsum(np.concatenate([[0], sizes]).astype(np.int64))
        if len(words) != len(sizes) or len(rows) != len(counts) or int(starts[-1]) != len(rows):
            raise _damaged("a block of words has columns of other lengths")
        return cls(words, starts, rows.astype(np.int64), counts.astype(np.int64))

    def entries(self, word: str) -> tuple[Numbers, Numbers]:
        at = pc.index(self.words, pa.scalar(word)).as_py()
        part = slice(0, 0) if at < 0 else slice(int(self.starts[at]), int(self.starts[at + 1]))
        return self.rows[part], self.counts[part]


def write_layer(
    lists: InvertedLists, groups: Groups, changes: Changes, rewritten: Numbers, write: Callable[[bytes], object]
) -> LayerHead:
    """Write the blocks of a layer, the first of which has the number 0; its head."""
    writer = LayerWriter(lists.rows, write)
    writer.add(lists.words, lists.starts, lists.entries, lists.counts)
    return writer.finish(groups, changes, rewritten)


class LayerWriter:
    """Writes the blocks of one layer: those of its rows at once, those of words as they come. `write` gets the bytes of
    each block; the first has the number 0. A word with many entries is in several blocks."""

    def __init__(self, rows: TextRows, write: Callable[[bytes], object]) -> None:
        self._rows, self._write = len(rows), write
        self._firsts: list[str] = []
        self._lasts: list[str] = []
        none = np.empty(0, np.int64)
        self._waiting = (pa.array([], pa.string()), np.zeros(1, np.int64), none, none)
        for at in range(0, len(rows), ROWS_IN_BLOCK):
            span = slice(at, at + ROWS_IN_BLOCK)
            lengths, numbers = rows.lengths[span] + 1, rows.groups[span]
            write(pack(_ROWS, [rows.hashes[span], _narrow(lengths), _narrow(numbers)]))
        for at in range(0, len(rows), KEYS_IN_BLOCK):
            write(pack(_KEYS, [rows.keys[at : at + KEYS_IN_BLOCK]]))

    def add(self, words: pa.StringArray, starts: Numbers, entries: Numbers, counts: Numbers) -> None:
        """Write the entries of words, which come in ascending order (see `InvertedLists`), each with all of its
        entries."""
        of_words, of_starts, of_entries, of_counts = self._waiting
        words = pa.concat_arrays([of_words, words])
        starts = np.concatenate([of_starts[:-1], of_starts[-1] + starts])
        entries, counts = np.concatenate([of_entries, entries]), np.concatenate([of_counts, counts])
        complete = len(entries) // ENTRIES_IN_BLOCK * ENTRIES_IN_BLOCK
        for begin in range(0, complete, ENTRIES_IN_BLOCK):
            self._put(words, starts, entries, counts, begin)
        first = int(np.searchsorted(starts, complete, side="right")) - 1
        self._waiting = (
            words[first:],
            np.maximum(starts[first:] - complete, 0),
            entries[complete:],
            counts[complete:],
        )

    def _put(self, words: pa.StringArray, starts: Numbers, entries: Numbers, counts: Numbers, begin: int) -> None:
        end = min(begin + ENTRIES_IN_BLOCK, len(entries))
        first = int(np.searchsorted(starts, begin, side="right")) - 1
        last = int(np.searchsorted(starts, end, side="left"))
        sizes = np.diff(np.clip(starts[first : last + 1], begin, end))
        of_block = words[first:last]
        self._write(pack(_WORDS, [of_block, _narrow(sizes), _narrow(entries[begin:end]), _narrow(counts[begin:end])]))
        self._firsts.append(of_block[0].as_py())
        self._lasts.append(of_block[-1].as_py())

    def finish(self, groups: Groups, changes: Changes, rewritten: Numbers) -> LayerHead:
        """Write the last block; the head of the layer. The hashes of changes are sorted here."""
        if len(self._waiting[2]):
            self._put(*self._waiting, 0)
        changes = Changes(np.unique(changes.replaced), np.unique(changes.possible), changes.partitions)
        firsts, lasts = pa.array(self._firsts, pa.string()), pa.array(self._lasts, pa.string())
        return LayerHead(groups, changes, rewritten, self._rows, firsts, lasts)


def _narrow(numbers: Numbers) -> npt.NDArray[Any]:
    """The numbers with as few bytes as the largest of them has."""
    largest = int(numbers.max(initial=0))
    return numbers.astype(next(kind for limit, kind in _NARROW if largest <= limit))


def _damaged(why: str) -> CorruptFile:
    return CorruptFile(
        f"{why} of a text index", hint="Build the text index again: drop it, and create it with the same name."
    )


def memory_layer(lists: InvertedLists, groups: Groups) -> TextLayer:
    """A layer that is in memory alone."""
    blocks: list[bytes] = []
    head = write_layer(lists, groups, Changes(), np.empty(0, np.int64), blocks.append)
    return TextLayer(head, lambda numbers: [blocks[number] for number in numbers])


def matching_rows(rows: TextRows, words: Words, only: Collection[str]) -> tuple[TextRows, Words, Statistics]:
    """The rows that have one of some words, with these words alone, and the statistics of the other rows."""
    is_searched = as_numpy(pc.is_in(words.different, value_set=pa.array(only, pa.string())))
    is_match = is_searched[words.codes]
    matching = np.unique(words.texts[is_match])
    codes = np.flatnonzero(is_searched)
    matched = Words(
        np.searchsorted(matching, words.texts[is_match]),
        np.searchsorted(codes, words.codes[is_match]),
        one_array(words.different.take(pa.array(codes))),
        words.lengths[matching],
    )
    others = Statistics(len(rows) - len(matching), int(words.lengths.sum() - matched.lengths.sum()))
    return rows.take(matching), matched, others
