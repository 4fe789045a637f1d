"""The fold of the layers of a text index into one.

Entries that count stay. Rows that a search reads from the table stay without their words; those that were inserted
again, and written after that, have two rows without words in each of their file groups, which tells later views what
they are (see `StoredText`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.row_addresses import Hashes
from lakebed.schema.plain_arrow import as_numpy, one_array
from lakebed.text_index.lists import LayerHead, LayerWriter, TextLayer, TextRows, ranks
from lakebed.text_index.search import StoredText, named_rows
from lakebed.text_index.words import Numbers
from lakebed.vector_index.layers import Changes, Groups

Flags = npt.NDArray[np.bool_]
_BLOCKS_TOGETHER: Final = 64
"""The blocks of words of the largest layer whose entries are in memory at a time."""


class Locations(Protocol):
    """Where rows are now: `at` are their numbers, `groups` the numbers of the file groups that have them; a row that is
    gone is missing, a row whose key is in several file groups comes for each. `is_moved` marks those that were in
    another file group."""

    @property
    def at(self) -> Numbers: ...
    @property
    def groups(self) -> Numbers: ...
    @property
    def is_moved(self) -> Flags: ...


class Relocation(Protocol):
    """Finds rows whose file groups are no longer in the table."""

    @property
    def groups(self) -> Groups:
        """The file groups whose numbers `locations` gives."""
        ...

    def locations(self, hashes: Hashes, groups: npt.NDArray[np.integer[Any]]) -> Locations:
        """Where the rows with these hashes are that were in file groups with these numbers."""
        ...


def folded(text: StoredText, relocation: Relocation) -> Generator[bytes, None, LayerHead]:
    """The layers of a view as the blocks of one layer, block after block; returns its head. The entries of some words
    are in memory at a time."""
    rows = _FoldedRows.of(text, relocation)
    blocks: list[bytes] = []
    writer = LayerWriter(rows.rows, blocks.append)
    for bound in _bounds(text.layers):
        yield from blocks
        blocks.clear()
        writer.add(*_entries_of(text.layers, rows.positions, *bound))
    head = writer.finish(relocation.groups, Changes(possible=rows.possible), np.empty(0, np.int64))
    yield from blocks
    return head


@dataclass(frozen=True, eq=False)
class _FoldedRows:
    """The rows of the layer of a fold, the number among them of each row of the layers before (-1: its entries do not
    count), and the hashes of the rows that a search reads."""

    rows: TextRows
    positions: Numbers
    possible: Hashes

    @staticmethod
    def of(text: StoredText, relocation: Relocation) -> _FoldedRows:
        numbers = np.concatenate([np.flatnonzero(text.is_live), text.uncertain])
        locations = relocation.locations(text.rows.hashes[numbers], text.rows.groups[numbers])
        numbers, groups = numbers[locations.at], locations.groups
        hashes, is_live = text.rows.hashes[numbers], text.is_live[numbers]
        # nothing tells which of several rows of one key an entry that was moved is of
        _, of_hashes, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        moved_entries = np.bincount(of_hashes, is_live & locations.is_moved, minlength=len(counts))
        is_repeated = ((moved_entries > 0) & (counts > 1))[of_hashes] | np.isin(hashes, text.repeated)
        is_live &= ~is_repeated
        names = np.flatnonzero(~is_live)
        names = names[np.lexsort((groups[names], hashes[names]))]
        is_first = np.ones(len(names), np.bool_)
        is_first[1:] = (np.diff(hashes[names]) != 0) | (np.diff(groups[names]) != 0)
        names = names[is_first]
        twice = names[is_repeated[names]]
        selected = np.concatenate([np.flatnonzero(is_live), names, twice])
        lengths = np.where(is_live, text.rows.lengths[numbers], np.where(is_repeated, 0, -1))
        keys = one_array(named_rows(text.layers, text.groups, text.rows, numbers[selected])["key"])
        rows = TextRows(keys, hashes[selected], groups[selected], lengths[selected])
        order = rows.order()
        positions = np.full(len(text.rows), -1)
        is_entry = is_live[selected][order]
        positions[numbers[selected][order][is_entry]] = np.flatnonzero(is_entry)
        return _FoldedRows(rows.take(order), positions, np.union1d(text.possible_hashes(), hashes[names]))


def _bounds(layers: Sequence[TextLayer]) -> Iterator[tuple[str, str]]:
    """Ranges of words, which have a bounded number of entries: the last word before each, and the last word of each."""
    lasts = [layer.head.lasts.to_pylist() for layer in layers]
    largest = max(lasts, key=len)
    ends = [*largest[_BLOCKS_TOGETHER - 1 :: _BLOCKS_TOGETHER], *(words[-1] for words in lasts if words)]
    before = ""
    for end in sorted(set(ends), key=str.encode):
        yield before, end
        before = end


def _entries_of(
    layers: Sequence[TextLayer], positions: Numbers, before: str, last: str
) -> tuple[pa.StringArray, Numbers, Numbers, Numbers]:
    """The words after one word and up to another one, with their entries in the rows of a fold (`InvertedLists`)."""
    none = np.empty(0, np.int64)
    words, codes, entries, counts, start = [pa.array([], pa.string())], [none], [none], [none], 0
    different = 0
    for layer in layers:
        for of_block, of_entries, rows, numbers in layer.every_entry(layer.head.blocks_of(before, last)):
            is_in = as_numpy(pc.and_(pc.greater(of_block, before), pc.less_equal(of_block, last)))
            at = positions[start + rows]
            is_taken = is_in[of_entries] & (at >= 0)
            words.append(of_block)
            codes.append(different + of_entries[is_taken])
            entries.append(at[is_taken])
            counts.append(numbers[is_taken])
            different += len(of_block)
        start += layer.head.rows
    every: Any = pa.concat_arrays(words).dictionary_encode()
    of_words = as_numpy(every.indices).astype(np.int64)[np.concatenate(codes)]
    dictionary = one_array(every.dictionary)
    in_order = (ranks(dictionary) - 1)[of_words]
    rows = np.concatenate(entries)
    order = np.lexsort((rows, in_order))
    numbers, sizes = np.unique(in_order, return_counts=True)
    ordered = dictionary.take(pc.array_sort_indices(dictionary))
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return one_array(ordered.take(pa.array(numbers))), starts, rows[order], np.concatenate(counts)[order]
