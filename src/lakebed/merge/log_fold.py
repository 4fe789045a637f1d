"""Of several log records of one key the one that stays, for all keys of a slice at once: no loop over records.

The rules are Hudi's fold of a log into one record a key. A commit-time delete takes the place of whatever is before it,
and ordered deletes behind it do nothing until a data record comes; of the rest the greatest ordering value stays, of
equals the latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.merge.key_table import key_codes
from lakebed.merge.rules import MergeRules

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LogEntries:
    """What tells which log records stay, oldest first: record keys, values of the ordering fields (none under
    commit-time ordering), and which are deletes. `forced` marks commit-time deletes, that win whatever the ordering
    values say. `block` and `row` say where each record lies.

    `positions` are the records' rows in the base file, where all blocks tell them.
    """

    keys: pa.Array
    ordering: tuple[pa.Array, ...]
    deletes: Flags
    forced: Flags
    block: npt.NDArray[np.int32]
    row: Positions
    positions: Positions | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, places: Positions) -> LogEntries:
        """Some of the entries, in that order."""
        if len(places) == len(self) and (places == np.arange(len(self))).all():
            return self
        at = pa.array(places)
        return LogEntries(
            self.keys.take(at),
            tuple(values.take(at) for values in self.ordering),
            self.deletes[places],
            self.forced[places],
            self.block[places],
            self.row[places],
            None if self.positions is None else self.positions[places],
        )

    def of_block(self, number: int, rows: range) -> LogEntries:
        """Some entries that follow one another, as those of this block."""
        if len(rows) == len(self) and int(self.block[0] if len(self) else number) == number:
            return self
        some = slice(rows.start, rows.stop)
        count = len(rows)
        return LogEntries(
            self.keys[some],
            tuple(values[some] for values in self.ordering),
            self.deletes[some],
            self.forced[some],
            np.full(count, number, np.int32),
            np.arange(count),
        )


def fold(entries: LogEntries, rules: MergeRules, *, by_position: bool = False) -> Positions:
    """Places of the entries that stay, one a key (or a row of the base file), ascending."""
    codes, distinct = record_codes(entries, by_position=by_position)
    if distinct == len(entries):
        return np.arange(len(entries))
    if not rules.ordering:
        return np.sort(_last_of(codes, distinct, np.arange(len(entries))))
    single = np.bincount(codes, minlength=distinct)[codes] == 1
    several = np.flatnonzero(~single)
    stays = single
    stays[several[_latest_or_greatest(entries.take(several), codes[several], rules)]] = True
    return np.flatnonzero(stays)


def record_codes(entries: LogEntries, *, by_position: bool = False) -> tuple[Positions, int]:
    """Each entry's key (or row of the base file) as a number from 0, and how many different ones there are."""
    if by_position:
        assert entries.positions is not None
        found, codes = np.unique(entries.positions, return_inverse=True)
        return codes, len(found)
    return key_codes(entries.keys)


def _latest_or_greatest(entries: LogEntries, codes: Positions, rules: MergeRules) -> Positions:
    """Under event-time ordering, of entries whose keys come several times."""
    places = np.arange(len(entries))
    distinct = int(codes.max()) + 1
    counts = np.ones(len(entries), np.bool_)
    if entries.forced.any():
        counts = ~_undone(entries, codes, distinct, places)
    ranks = _ranks(rules.comparable(entries.ordering))
    best = np.full(distinct, np.iinfo(np.int64).min)
    np.maximum.at(best, codes[counts], ranks[counts])
    counts &= ranks == best[codes]
    return _last_of(codes[counts], distinct, places[counts])


def _undone(entries: LogEntries, codes: Positions, distinct: int, places: Positions) -> Flags:
    """Entries that commit-time deletes leave out: what is before the last one of a key, ordered deletes behind it that
    no data record is before, and the delete itself where a data record follows."""
    forced = entries.forced
    last = np.full(distinct, -1)
    last[codes[forced]] = places[forced]
    of_key = last[codes]
    behind = places > of_key
    data = behind & ~entries.deletes & (of_key >= 0)
    first = np.full(distinct, len(entries))
    first[codes[data][::-1]] = places[data][::-1]
    begins = first[codes]
    undone = ~behind & ~((places == of_key) & (begins == len(entries)))
    return undone | (behind & (of_key >= 0) & (places < begins))


def _last_of(codes: Positions, distinct: int, places: Positions) -> Positions:
    """The last of the places of each code that there is."""
    last = np.full(distinct, -1)
    last[codes] = places
    return last[last >= 0]


def _ranks(columns: Sequence[pa.Array]) -> Positions:
    """Numbers that compare as the rows of the columns do from left to right, nulls first."""
    found: Positions | None = None
    for values in columns:
        ranks = _ranks_of(values)
        if found is None:
            found = ranks
            continue
        _, ranks = np.unique(ranks, return_inverse=True)
        _, found = np.unique(found, return_inverse=True)
        found = found * (int(ranks.max(initial=0)) + 1) + ranks
    assert found is not None
    return found


def _ranks_of(values: pa.Array) -> Positions:
    kind = values.type
    if not values.null_count and (pt.is_integer(kind) or pt.is_timestamp(kind) or pt.is_date32(kind)):
        plain = pa.int32() if kind.bit_width == 32 and not pt.is_integer(kind) else None
        numbers = values.view(plain or (kind if pt.is_integer(kind) else pa.int64()))
        return numbers.to_numpy(zero_copy_only=False).astype(np.int64)
    if pt.is_null(kind):
        return np.zeros(len(values), np.int64)
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy(zero_copy_only=False)
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    ranks[len(order)] = 0
    codes = pc.fill_null(encoded.indices.cast(pa.int64()), len(order)).to_numpy(zero_copy_only=False)
    return ranks[codes]
