"""Search in the layers of a text index: the rows with the highest scores for the words of a query.

An entry of a row counts unless a later commit changed the row. Where a commit may have changed it, the row is read from
the table, so that scores are exact: its entries do not count, and its text comes as a layer in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.bounded_cache import BoundedCache
from lakebed.format.row_addresses import Hashes, key_hashes
from lakebed.schema.plain_arrow import as_numpy, one_array
from lakebed.sharing import once
from lakebed.text_index.lists import TextLayer, TextRows
from lakebed.text_index.scores import Doubles, Query, Statistics
from lakebed.text_index.words import Numbers, Words
from lakebed.vector_index.layers import Groups, Newest, numbered_groups

Flags = npt.NDArray[np.bool_]
CACHE_BYTES: Final = 64 << 20
CANDIDATES: Final = pa.schema([("key", pa.string()), ("partition", pa.string()), ("file_id", pa.string())])


@dataclass(frozen=True, eq=False)
class _Entries:
    """The rows that have a word, and its share in their scores without its weight."""

    rows: Numbers
    parts: Doubles

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.parts.nbytes


@dataclass(frozen=True, eq=False)
class Best:
    """Rows with the highest scores: `rows` are those of `CANDIDATES`. `is_all` is whether no other row has any of the
    words."""

    rows: pa.Table
    scores: Doubles
    is_all: bool


class LayeredText:
    """The rows of one view of a table that have a text, by their words. Several threads may search it.

    `layers` have the entries, of which those count that are marked in `is_live`; `groups` are the file groups of all
    layers. `others` counts texts that none of the layers has, since they have no word that is searched for.
    """

    def __init__(
        self,
        layers: Sequence[TextLayer],
        groups: Groups,
        rows: TextRows,
        is_live: Flags,
        others: Statistics | None = None,
    ) -> None:
        self._layers, self._groups, self._rows, self._is_live = tuple(layers), groups, rows, is_live
        self._others = others or Statistics(0, 0)
        self._starts = np.cumsum([0, *(layer.head.rows for layer in layers)])
        self._cache = BoundedCache[_Entries](CACHE_BYTES)

    @classmethod
    def of_table(cls, layer: TextLayer, others: Statistics) -> LayeredText:
        """All rows of a table, which were read into one layer, and `others`, which were left out."""
        rows = layer.rows()
        return cls([layer], layer.head.groups, rows, np.ones(len(rows), np.bool_), others)

    @once
    def statistics(self) -> Statistics:
        """The number of texts whose entries count, and that of their words."""
        lengths = self._rows.lengths[self._is_live]
        return Statistics(len(lengths) + self._others.texts, int(lengths.sum()) + self._others.words)

    def query(self, words: Mapping[str, int]) -> Query:
        """The words with how many texts have each."""
        entries = self._entries(list(words))
        return Query(words, {word: len(of.rows) for word, of in entries.items()}, self.statistics)

    def search(self, query: Query, count: int, allowed: Hashes | None = None) -> Best:
        """The `count` rows with the highest scores for a query of this index; of equal scores those with the least
        keys. `allowed` are the hashes of the rows that a condition leaves."""
        scores = np.zeros(len(self._rows))
        for word, of_word in self._entries(list(query.words)).items():
            scores[of_word.rows] += query.weight(word) * of_word.parts
        matching = np.flatnonzero(scores)
        if allowed is not None:
            matching = matching[np.isin(self._rows.hashes[matching], allowed)]
        if len(matching) > count:
            of_matching = scores[matching]
            bound = np.partition(of_matching, len(matching) - count)[len(matching) - count]
            better, equal = matching[of_matching > bound], matching[of_matching == bound]
            # the rows of a layer are in the order of their keys
            cuts = np.searchsorted(equal, self._starts)
            firsts = [equal[start:end][: count - len(better)] for start, end in pairwise(cuts)]
            selected = np.concatenate([better, *firsts])
        else:
            selected = matching
        rows = named_rows(self._layers, self._groups, self._rows, selected)
        order = pc.sort_indices(
            rows.append_column("score", pa.array(scores[selected])),
            [("score", "descending"), ("key", "ascending"), ("partition", "ascending")],
        )
        best = order.slice(0, count)
        return Best(rows.take(best), scores[selected][as_numpy(best)], len(matching) <= count)

    def _entries(self, words: Sequence[str]) -> dict[str, _Entries]:
        cached = {word: self._cache.get(word) for word in words}
        missing = [word for word, entries in cached.items() if entries is None]
        for word, entries in self._read(missing).items() if missing else ():
            self._cache.put(word, entries)
            cached[word] = entries
        return {word: entries for word, entries in cached.items() if entries is not None}

    def _read(self, words: Sequence[str]) -> dict[str, _Entries]:
        of_layers = [layer.entries(words) for layer in self._layers]
        read: dict[str, _Entries] = {}
        for word in words:
            parts = [entries[word] for entries in of_layers]
            rows = [start + rows for start, (rows, _) in zip(self._starts, parts, strict=False)]
            together = np.concatenate([np.empty(0, np.int64), *rows])
            counts = np.concatenate([np.empty(0, np.int64), *(counts for _, counts in parts)])
            counting = self._is_live[together]
            together, counts = together[counting], counts[counting]
            read[word] = _Entries(together, self.statistics.parts(counts, self._rows.lengths[together]))
        return read


@dataclass(frozen=True, eq=False)
class StoredText:
    """The layers of a build and of later commits in the order in which they count, in one view of a table.

    `is_live` marks the rows whose entries count, `uncertain` are the numbers of rows that have to be read from the
    table: a later commit may have changed them. `repeated` are the hashes of those of them that were inserted again,
    and written after that.
    """

    layers: Sequence[TextLayer]
    groups: Groups
    rows: TextRows
    is_live: Flags
    uncertain: Numbers
    repeated: Hashes

    @classmethod
    def of(
        cls, layers: Sequence[TextLayer], uncovered: pa.Array | None = None, existing: pa.Array | None = None
    ) -> StoredText:
        """The layers of a view. `uncovered` are the ids of file groups whose entries do not count. `existing` are those
        of all file groups of the view, where commits without a layer may have moved or deleted rows of others."""
        heads = [layer.head for layer in layers]
        parts = [layer.rows() for layer in layers]
        groups, numbers = numbered_groups([head.groups for head in heads])
        rows = replace(
            TextRows.together(parts),
            groups=np.concatenate([of[part.groups] for of, part in zip(numbers, parts, strict=True)]),
        )
        of_layers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        replaced = Newest([head.changes.replaced for head in heads]).of(rows.hashes)
        possible = Newest([head.changes.possible for head in heads]).of(rows.hashes)
        rewritten = np.full(len(groups), -1)
        for number, (head, of_layer) in enumerate(zip(heads, numbers, strict=True)):
            rewritten[of_layer[head.rewritten]] = number
        is_dead = (replaced > of_layers) | (possible >= of_layers) | (rewritten[rows.groups] > of_layers)
        is_lacking = np.zeros(len(rows), np.bool_) if uncovered is None else _are_in(groups.ids, uncovered)[rows.groups]
        is_dead |= is_lacking | (rows.lengths < 0)
        is_uncertain = (possible >= 0) & (possible >= replaced)
        is_replacing = np.concatenate(
            [np.isin(part.hashes, head.changes.replaced) for part, head in zip(parts, heads, strict=True)]
        )
        of = np.flatnonzero(rows.lengths >= 0)
        is_repeated = _repeated(rows.hashes[of], of_layers[of], is_replacing[of], replaced[of] >= 0)
        is_uncertain[of] |= is_repeated
        if existing is not None:  # a row that was moved may be in a file group that is not covered
            is_uncertain |= ~is_dead & ~_are_in(groups.ids, existing)[rows.groups]
        if is_uncertain.any():
            is_uncertain = np.isin(rows.hashes, rows.hashes[is_uncertain])
        uncertain = np.flatnonzero(is_uncertain & ~is_lacking)
        return cls(layers, groups, rows, ~is_dead & ~is_uncertain, uncertain, rows.hashes[of][is_repeated])

    def uncertain_hashes(self) -> Hashes:
        """The hashes of the rows that have to be read from the table."""
        return np.unique(self.rows.hashes[self.uncertain])

    def possible_hashes(self) -> Hashes:
        """The hashes of the rows, also of those without entries, that commits may have changed and no later commit
        replaced."""
        possible = Newest([layer.head.changes.possible for layer in self.layers])
        replaced = Newest([layer.head.changes.replaced for layer in self.layers])
        return possible.hashes[possible.of(possible.hashes) >= replaced.of(possible.hashes)]

    def uncertain_rows(self) -> pa.Table:
        """The rows that have to be read from the table, as rows of `CANDIDATES`."""
        return named_rows(self.layers, self.groups, self.rows, self.uncertain)

    def with_rows(self, layer: TextLayer) -> LayeredText:
        """The index with rows that were read from the table: those that have to be, and those of file groups whose
        entries do not count."""
        groups, (of_stored, of_read) = numbered_groups([self.groups, layer.head.groups])
        read = layer.rows()
        stored = replace(self.rows, groups=of_stored[self.rows.groups])
        rows = TextRows.together([stored, replace(read, groups=of_read[read.groups])])
        is_live = np.concatenate([self.is_live, np.ones(len(read), np.bool_)])
        return LayeredText([*self.layers, layer], groups, rows, is_live)

    def marked_rows(self) -> tuple[pa.Table, Hashes]:
        """The rows whose entries count, as rows of `CANDIDATES`, and the mark of the words of each (`text_marks`)."""
        marks = np.zeros(len(self.rows), np.uint64)
        start = 0
        for layer in self.layers:
            for words, codes, rows, counts in layer.every_entry():
                np.add.at(marks, start + rows, key_hashes(words)[codes] * counts.astype(np.uint64))
            start += layer.head.rows
        live = np.flatnonzero(self.is_live)
        marks = marks[live] + self.rows.lengths[live].astype(np.uint64)
        return named_rows(self.layers, self.groups, self.rows, live), marks


def text_marks(words: Words) -> Hashes:
    """A number for each text, which depends on its words and on how often it has them."""
    marks = words.lengths.astype(np.uint64)
    np.add.at(marks, words.texts, key_hashes(words.different)[words.codes])
    return marks


def named_rows(layers: Sequence[TextLayer], groups: Groups, rows: TextRows, numbers: Numbers) -> pa.Table:
    """Some of the rows of all layers, by their numbers, as rows of `CANDIDATES`."""
    starts = np.cumsum([0, *(layer.head.rows for layer in layers)])
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    cuts = np.searchsorted(ordered, starts)
    keys = [
        layer.keys(ordered[begin:end] - start)
        for layer, start, begin, end in zip(layers, starts, cuts, cuts[1:], strict=False)
    ]
    every = pa.concat_arrays([pa.array([], pa.string()), *keys])
    back = np.empty(len(numbers), np.int64)
    back[order] = np.arange(len(numbers))
    at: Any = pa.array(rows.groups[numbers])
    columns = [one_array(every.take(pa.array(back))), groups.partitions.take(at), groups.ids.take(at)]
    return pa.Table.from_arrays(columns, schema=CANDIDATES)


def _are_in(ids: pa.Array, value_set: pa.Array) -> Flags:
    return as_numpy(pc.is_in(ids, value_set=value_set)) if len(ids) else np.empty(0, np.bool_)


def _repeated(hashes: Hashes, layers: Numbers, is_replacing: Flags, is_replaced: Flags) -> Flags:
    """Flags of entries of keys that were inserted again, and written after that: a later row may stand for several."""
    flags = np.zeros(len(hashes), np.bool_)
    order = np.lexsort((layers, hashes))
    is_same = np.diff(hashes[order]) == 0
    is_other_layer = np.diff(layers[order]) != 0
    again = order[1:]
    is_again = is_same & (~is_other_layer | ~is_replacing[again])
    flags[again[is_again & (is_other_layer | is_replaced[again])]] = True
    return flags
