"""The search for many keys by tasks: comparisons are counted first, then each task gets a file, or a part of its keys.

Two passes over the keys where they are, and one shuffle: of the keys that a range lets through, once a file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Engine, Rows, Task
from lakebed.format.bloom import ChainedHashes
from lakebed.format.hashes import java_hash
from lakebed.index.base import KeyLookup
from lakebed.index.bloom.found import PLACES, FoundPlaces, places_in
from lakebed.index.bloom.known_files import Filters
from lakebed.index.bloom.options import SearchOptions
from lakebed.index.bloom.slice_search import SliceSearch
from lakebed.index.bloom.sweep import Sweep
from lakebed.merge.locations import IsNotNull, IsNull
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileSlice

Int64s = npt.NDArray[np.int64]
# Keys of a task that are swept at a time.
_KEYS_TOGETHER = 1 << 18
_BATCH_ROWS = 1 << 16
# Up to so many places are sent to every task of the join, instead of a shuffle.
_FEW_PLACES = 500_000
_COUNTS = pa.schema([("number", pa.int32()), ("keys", pa.int64())])
_ALL_KEYS = -1
_PAIRS = pa.schema([(PARTITION_PATH, pa.string()), (GROUP, pa.int32()), (RECORD_KEY, pa.string())])
# Beside the places one row a unit, without a key, of what was done.
_SUMMED = ("tagged", "asked", "absent", "false_positives", "opened", "bytes")
_DONE = pa.schema([(name, pa.int64()) for name in ("unit", *_SUMMED, "read")])
_FOUND = pa.schema([*PLACES, *_DONE])


@dataclass(frozen=True, slots=True)
class Units:
    """The parts of the search, the largest first: `slices` has the slice number of each. The keys of a slice with many
    comparisons are spread over several parts, `parts` from its `first` one on (both by slice number)."""

    slices: list[int]
    first: Int64s
    parts: Int64s

    @classmethod
    def of(cls, comparisons: Mapping[int, int], most: int) -> Units:
        """No part has more than `most` of a slice's comparisons, or hardly."""
        counts = {number: math.ceil(keys / most) for number, keys in comparisons.items()}
        order = sorted(counts, key=lambda number: (-comparisons[number] / counts[number], number))
        first, parts = (np.zeros(max(order, default=-1) + 1, np.int64) for _ in range(2))
        slices: list[int] = []
        for number in order:
            first[number], parts[number] = len(slices), counts[number]
            slices += [number] * counts[number]
        return cls(slices, first, parts)

    def of_pairs(self, numbers: Int64s, keys: pa.Array) -> Int64s:
        """The part that looks for each key in the slice of this number."""
        parts = self.parts[numbers]
        return self.first[numbers] + (java_hash(keys).astype(np.int64) & 0x7FFFFFFF) % parts


def search_in_tasks(
    engine: Engine,
    keys: Rows,
    slices: Sequence[FileSlice],
    sweep: Sweep,
    search: SliceSearch,
    filters: Filters,
    options: SearchOptions,
) -> FoundPlaces:
    """The places of these keys; they are persisted, and the caller releases them."""
    counts = engine.collect(engine.map(keys, _CountCandidates(sweep), _COUNTS))
    totals = counts.group_by("number", use_threads=False).aggregate([("keys", "sum")]).sort_by("number")
    by_slice = dict(zip(*(totals.column(n).to_pylist() for n in ("number", "keys_sum")), strict=True))  # one a file
    total = by_slice.pop(_ALL_KEYS, 0)
    units = Units.of(by_slice, options.keys_per_task)
    paired = engine.map(keys, _PairKeys(sweep, units), _PAIRS)
    searching = _SearchUnit(search, filters.to_be_sent(), {u: slices[n] for u, n in enumerate(units.slices)})
    mapped = engine.group_map(paired, searching, _FOUND, groups=max(1, len(units.slices)), one_group_per_task=True)
    held = engine.persist(mapped)
    done = engine.collect(engine.derive(engine.filter(held, IsNull(RECORD_KEY)), {}, keep=_DONE.names))
    sums = {name: int(pc.sum(done.column(name)).as_py() or 0) for name in _SUMMED}
    read = {units.slices[u] for u in done.filter(pc.greater(done.column("read"), 0)).column("unit").to_pylist()}
    lookup = KeyLookup(
        keys=total,
        files=len(slices),
        out_of_range=len(slices) - len(by_slice),
        filtered=len(by_slice) - len(read),
        searched=len(read),
    )
    return FoundPlaces(
        engine.derive(engine.filter(held, IsNotNull(RECORD_KEY)), {}, keep=PLACES.names),
        replace(lookup, **sums),
        small=sums["tagged"] <= _FEW_PLACES,
        held=held,
    )


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The keys of a task, many at a time."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(one.num_rows for one in some) >= _KEYS_TOGETHER:
            yield pa.Table.from_batches(some)
            some = []
    if some:
        yield pa.Table.from_batches(some)


@dataclass(frozen=True, slots=True)
class _CountCandidates:
    """Sent to the tasks: how many keys each slice is asked for, and how many there are."""

    sweep: Sweep

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        counts: dict[int, int] = {}
        for keys in _together(batches):
            for numbers, texts, spans in self.sweep.spans(keys):
                counts[_ALL_KEYS] = counts.get(_ALL_KEYS, 0) + len(texts)
                for at in np.flatnonzero(spans.counts).tolist():
                    number = int(numbers[at])
                    counts[number] = counts.get(number, 0) + int(spans.counts[at])
        yield pa.RecordBatch.from_arrays(
            [pa.array(list(counts), pa.int32()), pa.array(list(counts.values()), pa.int64())], schema=_COUNTS
        )


@dataclass(frozen=True, slots=True)
class _PairKeys:
    """Sent to the tasks: every key with the parts of the search that look for it."""

    sweep: Sweep
    units: Units

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for keys in _together(batches):
            for numbers, asked, spans in self.sweep.spans(keys):
                at, own = spans.pairs()
                for start in range(0, len(at), _KEYS_TOGETHER):
                    piece = slice(start, start + _KEYS_TOGETHER)
                    texts = asked.take(pa.array(own[piece]))
                    units = self.units.of_pairs(numbers[at[piece]], texts)
                    path = pa.repeat(pa.scalar(""), len(texts))
                    yield pa.RecordBatch.from_arrays([path, pa.array(units, pa.int32()), texts], schema=_PAIRS)


@dataclass(frozen=True, slots=True)
class _SearchUnit:
    """Sent to the tasks: looks for the keys of one part."""

    search: SliceSearch
    filters: Filters
    slices: Mapping[int, FileSlice]

    def __call__(
        self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        one = self.slices[group]
        keys = pc.unique(pa.chunked_array([batch.column(RECORD_KEY) for batch in batches], pa.string()))
        (bloom,) = self.filters.of_slices([one], self.search.reader).values()
        held = self.search.run(one, ChainedHashes(keys), np.arange(len(keys)), bloom)
        places = places_in(one, held)
        summed = [len(held.found), held.asked, held.absent, held.false_positives, held.opened, held.bytes]
        done = [group, *summed, int(held.reads)]
        nothing = [pa.nulls(len(places), field.type) for field in _DONE]
        yield from pa.Table.from_arrays([*places.columns, *nothing], schema=_FOUND).to_batches(_BATCH_ROWS)
        none = [pa.nulls(1, field.type) for field in PLACES]
        yield pa.RecordBatch.from_arrays([*none, *(pa.array([n], pa.int64()) for n in done)], schema=_FOUND)
