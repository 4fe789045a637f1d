"""The search for many keys: in this process while they are few, else by tasks.

Tasks make two passes over the keys where they are, and one shuffle of the keys that a range lets through.
Comparisons are counted first; then each task gets a file, or a part of its keys.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Engine, Rows, Task, distinct_values
from lakebed.format.bloom import ChainedHashes
from lakebed.format.hashes import java_hash
from lakebed.index.base import KeyLookup
from lakebed.index.bloom.known_files import Filters, SearchOptions, ranges_of
from lakebed.index.bloom.slice_search import (
    LOCATIONS,
    Asked,
    RangeSearch,
    SearchedLocations,
    SearchedSlice,
    SliceSearch,
    counted_lookup,
    locations_in,
)
from lakebed.merge.locations import IsNotNull, IsNull
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileSlice
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map

Int64s = npt.NDArray[np.int64]
# How many keys of a task are compared with ranges at a time.
_KEYS_TOGETHER = 1 << 18
_BATCH_ROWS = 1 << 16
# Up to so many places are sent to every task of the join, instead of a shuffle.
_MAX_LOCATIONS = 500_000
_COUNTS = pa.schema([("number", pa.int32()), ("keys", pa.int64())])
_ALL_KEYS = -1
_PAIRS = pa.schema([(PARTITION_PATH, pa.string()), (GROUP, pa.int32()), (RECORD_KEY, pa.string())])
# In addition to the locations there is one row for each unit, without a key, with the unit's counts.
_SUMMED = ("tagged", "asked", "absent", "false_positives", "opened", "bytes")
_DONE = pa.schema([(name, pa.int64()) for name in ("unit", *_SUMMED, "read")])
_ANSWERS = pa.schema([*LOCATIONS, *_DONE])


@dataclass(frozen=True, slots=True)
class Units:
    """The parts of the search, the largest first: `slices` has the slice number of each. The keys of a slice with many
    comparisons are spread over several parts, `parts` from its `first` one on (both by slice number)."""

    slices: list[int]
    first: Int64s
    parts: Int64s

    @classmethod
    def of(cls, comparisons: Mapping[int, int], limit: int) -> Units:
        """Divide the comparisons of each slice into parts of about `limit` at most."""
        counts = {number: math.ceil(keys / limit) for number, keys in comparisons.items()}
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
    range_search: RangeSearch,
    search: SliceSearch,
    filters: Filters,
    options: SearchOptions,
) -> SearchedLocations:
    """The locations of these keys. The result is persisted, and the caller releases it."""
    counts = engine.collect(engine.map(keys, _CountCandidates(range_search), _COUNTS))
    totals = counts.group_by("number", use_threads=False).aggregate([("keys", "sum")]).sort_by("number")
    by_slice = dict(zip(*(totals.column(n).to_pylist() for n in ("number", "keys_sum")), strict=True))  # one a file
    total = by_slice.pop(_ALL_KEYS, 0)
    units = Units.of(by_slice, options.keys_per_task)
    paired = engine.map(keys, _PairKeys(range_search, units), _PAIRS)
    searching = _SearchUnit(search, filters.to_be_sent(), {u: slices[n] for u, n in enumerate(units.slices)})
    mapped = engine.group_map(paired, searching, _ANSWERS, groups=max(1, len(units.slices)), one_group_per_task=True)
    answers = engine.persist(mapped)
    done = engine.collect(engine.derive(engine.filter(answers, IsNull(RECORD_KEY)), {}, keep=_DONE.names))
    sums = {name: int(pc.sum(done.column(name)).as_py() or 0) for name in _SUMMED}
    read = {units.slices[u] for u in done.filter(pc.greater(done.column("read"), 0)).column("unit").to_pylist()}
    lookup = KeyLookup(
        keys=total,
        files=len(slices),
        out_of_range=len(slices) - len(by_slice),
        filtered=len(by_slice) - len(read),
        searched=len(read),
    )
    return SearchedLocations(
        engine.derive(engine.filter(answers, IsNotNull(RECORD_KEY)), {}, keep=LOCATIONS.names),
        replace(lookup, **sums),
        small=sums["tagged"] <= _MAX_LOCATIONS,
        persisted=answers,
    )


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches of a task combined into larger tables."""
    buffered: list[pa.RecordBatch] = []
    for batch in batches:
        buffered.append(batch)
        if sum(part.num_rows for part in buffered) >= _KEYS_TOGETHER:
            yield pa.Table.from_batches(buffered)
            buffered = []
    if buffered:
        yield pa.Table.from_batches(buffered)


@dataclass(frozen=True, slots=True)
class _CountCandidates:
    """A task function that counts the keys that each slice is searched for, and all keys."""

    range_search: RangeSearch

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        counts: dict[int, int] = {}
        for keys in _together(batches):
            for numbers, texts, spans in self.range_search.spans(keys):
                counts[_ALL_KEYS] = counts.get(_ALL_KEYS, 0) + len(texts)
                for at in np.flatnonzero(spans.counts).tolist():
                    number = int(numbers[at])
                    counts[number] = counts.get(number, 0) + int(spans.counts[at])
        yield pa.RecordBatch.from_arrays(
            [pa.array(list(counts), pa.int32()), pa.array(list(counts.values()), pa.int64())], schema=_COUNTS
        )


@dataclass(frozen=True, slots=True)
class _PairKeys:
    """A task function that pairs every key with the parts of the search that look for it."""

    range_search: RangeSearch
    units: Units

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for keys in _together(batches):
            for numbers, unique_keys, spans in self.range_search.spans(keys):
                at, key_numbers = spans.pairs()
                for start in range(0, len(at), _KEYS_TOGETHER):
                    piece = slice(start, start + _KEYS_TOGETHER)
                    texts = unique_keys.take(pa.array(key_numbers[piece]))
                    units = self.units.of_pairs(numbers[at[piece]], texts)
                    path = pa.repeat(pa.scalar(""), len(texts))
                    yield pa.RecordBatch.from_arrays([path, pa.array(units, pa.int32()), texts], schema=_PAIRS)


@dataclass(frozen=True, slots=True)
class _SearchUnit:
    """A task function that looks for the keys of one part in its slice."""

    search: SliceSearch
    filters: Filters
    slices: Mapping[int, FileSlice]

    def __call__(
        self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        file_slice = self.slices[group]
        keys = pc.unique(pa.chunked_array([batch.column(RECORD_KEY) for batch in batches], pa.string()))
        (bloom,) = self.filters.of_slices([file_slice], self.search.reader).values()
        answer = self.search.run(file_slice, ChainedHashes(keys), np.arange(len(keys)), bloom)
        locations = locations_in(file_slice, answer)
        summed = [
            len(answer.stored_keys),
            answer.filter_queries,
            answer.absent,
            answer.false_positives,
            answer.opened,
            answer.bytes,
        ]
        done = [group, *summed, int(answer.reads)]
        nothing = [pa.nulls(len(locations), field.type) for field in _DONE]
        yield from pa.Table.from_arrays([*locations.columns, *nothing], schema=_ANSWERS).to_batches(_BATCH_ROWS)
        none = [pa.nulls(1, field.type) for field in LOCATIONS]
        yield pa.RecordBatch.from_arrays([*none, *(pa.array([n], pa.int64()) for n in done)], schema=_ANSWERS)


# A slice, the hashes of the keys of its partition path, and which of these are looked for in it.
Job = tuple[FileSlice, ChainedHashes, Int64s]
# On an engine with tasks: up to so many keys, in so many candidate files, are looked up in this process.
KEYS_HERE = 500_000
_FILES_HERE = 256
_COMPARISONS_HERE = 20_000_000
# So many filters are in memory at a time.
_FILTERS_TOGETHER = 32


@dataclass(frozen=True)
class LocationSearch:
    """One search for the locations of keys. With `in_path` a key is looked for in its own partition path, otherwise in
    all."""

    snapshot: Snapshot
    engine: Engine
    options: SearchOptions
    in_path: bool
    numbered: bool = False

    def run(self, rows: Rows) -> SearchedLocations:
        """The places of the keys of these rows, which may be evaluated several times."""
        engine = self.engine
        columns = [RECORD_KEY, PARTITION_PATH] if self.in_path else [RECORD_KEY]
        keys = engine.derive(rows, {}, keep=columns)
        local_keys: pa.Table | None = None
        if engine.is_distributed:
            counted = engine.aggregate(keys, columns[1:])
            if (pc.sum(counted.column("rows")).as_py() or 0) <= KEYS_HERE:
                local_keys = engine.collect(keys)
        else:
            counted = local_keys = engine.collect(keys)
        slices = self._slices(counted)
        range_search = RangeSearch.of(
            slices, ranges_of(self.snapshot, slices, engine, self.options), in_path=self.in_path
        )
        if local_keys is not None:
            candidates = range_search.spans(local_keys)
            if not engine.is_distributed or _is_little(candidates):
                return self._found_here(slices, candidates)
        return search_in_tasks(
            engine, keys, slices, range_search, self.search, self._filters(len(slices)), self.options
        )

    def _slices(self, counted: pa.Table) -> tuple[FileSlice, ...]:
        """The file slices in which the keys can be."""
        if not self.in_path:
            return self.snapshot.file_slices()
        (touched,) = distinct_values(counted, PARTITION_PATH)
        return self.snapshot.file_slices(set(touched) & set(self.snapshot.partitions()))

    @property
    def search(self) -> SliceSearch:
        return SliceSearch(self.snapshot.reader, self.numbered)

    def _filters(self, files: int) -> Filters:
        return Filters.of(self.snapshot, files, self.options)

    def _found_here(self, slices: Sequence[FileSlice], candidates: Sequence[Asked]) -> SearchedLocations:
        jobs: list[Job] = []
        for numbers, texts, spans in candidates:
            hashes = ChainedHashes(texts)
            jobs += [(slices[int(numbers[n])], hashes, spans.of(n)) for n in np.flatnonzero(spans.counts).tolist()]
        filters = self._filters(len(jobs))
        answers: list[tuple[FileSlice, SearchedSlice]] = []
        for at in range(0, len(jobs), _FILTERS_TOGETHER):
            answers += self._searched(jobs[at : at + _FILTERS_TOGETHER], filters)
        locations = pa.concat_tables(
            [LOCATIONS.empty_table(), *(locations_in(file_slice, answer) for file_slice, answer in answers)]
        )
        keys = sum(len(texts) for _, texts, _ in candidates)
        lookup = counted_lookup([answer for _, answer in answers], keys=keys, files=len(slices), asked_files=len(jobs))
        return SearchedLocations(self.engine.from_arrow(locations.combine_chunks()), lookup, small=True)

    def _searched(self, jobs: Sequence[Job], filters: Filters) -> list[tuple[FileSlice, SearchedSlice]]:
        search = self.search
        blooms = filters.of_slices([file_slice for file_slice, _, _ in jobs], search.reader)
        for file_slice, hashes, _ in jobs:
            if blooms[file_slice.partition, file_slice.file_id] is not None:
                _ = hashes.levels  # once, before several threads ask for them

        def searched(job: Job) -> SearchedSlice:
            file_slice, hashes, rows = job
            return search.run(file_slice, hashes, rows, blooms[file_slice.partition, file_slice.file_id])

        done = parallel_map(searched, jobs, os.cpu_count() or 1)
        return [(file_slice, answer) for (file_slice, _, _), answer in zip(jobs, done, strict=True)]


def _is_little(candidates: Sequence[Asked]) -> bool:
    """Whether there is so little to compare that this process does it without tasks."""
    counts = [spans.counts for _, _, spans in candidates]
    return (
        sum(int(np.count_nonzero(file_counts)) for file_counts in counts) <= _FILES_HERE
        and sum(int(file_counts.sum()) for file_counts in counts) <= _COMPARISONS_HERE
    )
