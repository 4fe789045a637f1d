"""Rewriting a file group whose rows are kept in the order of their keys: new rows are put in their places.

What order the old file has is told from the file alone, never from the table's word: any writer may have written it.
A file whose row groups follow one another by their statistics is merged a few row groups at a time, each put in order
where it is not; every other file is sorted as a whole, once, since what comes out has such row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.spill import Spill
from lakebed.format.footer_cache import key_ranges
from lakebed.format.key_order import insert_places, key_order
from lakebed.handles.file_writer import FileWriter, with_meta
from lakebed.handles.merge_file import FileMerge, Match, Positions
from lakebed.merge.incoming import gather
from lakebed.model import FILE_NAME, RECORD_KEY

# Rows merged at a time: whole row groups up to about the first, no more than the others.
_STEP_ROWS = 1 << 16
_MOST_ROWS = 1 << 18
_MOST_BYTES = 128 << 20


@dataclass(slots=True)
class SortedMerge(FileMerge):
    """One base file against one group's incoming rows, in the order of the keys.

    No more than `room` new rows are put among the old ones, so that the file keeps to its size; the others come out of
    `rest`. `memory` bounds the rows held where all are sorted.
    """

    room: int | None = None
    memory: int = 512 << 20

    def __post_init__(self) -> None:
        self.incoming = self.incoming.by_key()
        FileMerge.__post_init__(self)

    def run(self, writer: FileWriter) -> None:
        self._changes = writer.changes
        start = 0
        with Spill(self.memory) as spill:
            for batch, following in self._steps(spill):
                # a key that equals the first of what follows may have rows on both sides
                end = self._incoming_below(following)
                match = self._match(batch, start, self._incoming_below(following, or_equal=True))
                self.counts.unchanged += match.lost
                fresh = self._fresh(start, end)
                writer.write(self._woven(batch, match, fresh), new_keys=self.incoming.keys.take(pa.array(fresh)))
                start = end

    def _steps(self, spill: Spill) -> Iterator[tuple[pa.RecordBatch, str | None]]:
        """Old rows in order, each batch with a key that no later row is below (None: no row follows)."""
        steps = row_group_steps(self.footer.metadata)
        if steps is None:
            yield from self._sorted_as_a_whole(spill)
            return
        batches = self._read(None)
        for rows, following in steps:
            parts: list[pa.RecordBatch] = []
            while sum(part.num_rows for part in parts) < rows:
                parts.append(self._as_stored(next(batches)))
            batch = parts[0] if len(parts) == 1 else _one_batch(parts)
            order = key_order(batch.column(RECORD_KEY))
            yield batch if order is None else batch.take(pa.array(order)), following

    def _sorted_as_a_whole(self, spill: Spill) -> Iterator[tuple[pa.RecordBatch, str | None]]:
        spill.extend(_decoded(self._as_stored(batch)) for batch in self._read(None))
        table = spill.table(pa.schema([(RECORD_KEY, pa.string())]))
        if not table.num_rows:
            return
        keys = table.column(RECORD_KEY).combine_chunks()
        order = key_order(keys)
        order = np.arange(len(keys)) if order is None else order
        size = max(1, min(_STEP_ROWS, _MOST_BYTES * len(keys) // max(1, table.nbytes)))
        for start in range(0, len(order), size):
            following = keys[int(order[start + size])].as_py() if start + size < len(order) else None
            yield gather(table, order[start : start + size]), following

    def _incoming_below(self, key: str | None, *, or_equal: bool = False) -> int:
        """How many incoming rows have a smaller key; all where nothing follows."""
        if key is None:
            return self.incoming.rows
        compare = pc.less_equal if or_equal else pc.less
        return pc.sum(compare(self.incoming.keys, key)).as_py() or 0

    def _fresh(self, start: int, end: int) -> Positions:
        """Incoming rows of a part that are new, as many as there is room for."""
        fresh = start + np.flatnonzero(~self._seen[start:end] & ~self.incoming.deletes[start:end])
        if self.room is not None:
            fresh = fresh[: max(0, self.room - self.counts.inserts)]
        self.counts.inserts += len(fresh)
        self._seen[fresh] = True
        return fresh

    def _woven(self, batch: pa.RecordBatch, match: Match, fresh: Positions) -> pa.RecordBatch:
        """The old batch with winners in place, deleted rows gone and new rows where their keys belong."""
        if not len(match.stored) and not len(fresh):
            return batch
        gone = self.incoming.deletes[match.incoming]
        at, source, deleted = match.stored[~gone], match.incoming[~gone], match.stored[gone]
        self.counts.updates += len(at)
        self.counts.deletes += len(deleted)
        order = np.arange(batch.num_rows)
        order[at] = batch.num_rows + np.arange(len(at))
        order[deleted] = -1
        taken = np.concatenate([source, fresh])
        if not len(taken):
            self._tell(batch, at, deleted, batch.slice(0, 0))
            return batch.take(pa.array(order[order >= 0]))
        keys = self.incoming.keys.take(pa.array(taken))
        data = self.incoming.take(taken)
        new = with_meta(data, keys, self.format, self.instant, self.base.partition, self.task)
        self._tell(batch, at, deleted, new)
        places = insert_places(batch.column(RECORD_KEY), keys.slice(len(at)))
        order = np.insert(order, places, batch.num_rows + len(at) + np.arange(len(fresh)))
        rows = pa.array(order[order >= 0])
        names = [name for name in batch.schema.names if name != FILE_NAME]
        return pa.RecordBatch.from_arrays([_joined(batch.column(n), new.column(n), rows) for n in names], names=names)

    def _tell(self, before: pa.RecordBatch, at: Positions, deleted: Positions, new: pa.RecordBatch) -> None:
        """Note keys that come and go; `new` are the updated rows and the fresh ones."""
        if self._changes is None:
            return
        old, new = self._told_columns(before), self._told_columns(new)
        self._changes.removed(old.take(pa.array(deleted)))
        self._changes.added(new.slice(len(at)))
        if self._changes.fields:
            self._changes.updated(old.take(pa.array(at)), new.slice(0, len(at)))


def row_group_steps(footer: Any) -> list[tuple[int, str | None]] | None:
    """Runs of row groups that follow one another in the order of their keys: rows of each, and a key that no later row
    is below. None where a run would be too large to be held, or the file does not tell.
    """
    ranges = [r for r in key_ranges(footer) if r is not None]
    count = footer.num_row_groups
    if len(ranges) < count:
        return None
    # Python orders texts by code points, which is the order of their UTF-8 bytes
    greatest = list(accumulate((high for _, high in ranges), max))
    least = list(accumulate((low for low, _ in reversed(ranges)), min))[::-1]
    steps: list[tuple[int, str | None]] = []
    rows = size = 0
    for number in range(count):
        group = footer.row_group(number)
        rows, size = rows + group.num_rows, size + group.total_byte_size
        if rows > _MOST_ROWS or size > _MOST_BYTES:
            return None
        following = least[number + 1] if number + 1 < count else None
        fits = following is None or greatest[number] <= following
        if fits and (following is None or rows + footer.row_group(number + 1).num_rows > _STEP_ROWS):
            steps.append((rows, following))
            rows = size = 0
    return [step for step in steps if step[0]]


def _one_batch(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(parts).unify_dictionaries().combine_chunks().to_batches()[0]


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without dictionaries, of which a file of batches can have one a column only."""
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _joined(old: pa.Array, new: pa.Array, rows: pa.Array) -> pa.Array:
    """Rows of `old` followed by `new`, by position."""
    if pa.types.is_dictionary(old.type) and not pa.types.is_dictionary(new.type):
        new = new.dictionary_encode()
    elif pa.types.is_dictionary(new.type) and not pa.types.is_dictionary(old.type):
        new = new.dictionary_decode()
    if not pa.types.is_dictionary(old.type):
        return pa.concat_arrays([old, new]).take(rows)
    both = pa.chunked_array([old.cast(new.type), new]).unify_dictionaries()
    codes = pa.concat_arrays([chunk.indices for chunk in both.chunks]).take(rows)
    return pa.DictionaryArray.from_arrays(codes, both.chunk(0).dictionary)
