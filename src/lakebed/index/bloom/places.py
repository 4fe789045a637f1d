"""The places of rows' keys by ranges and bloom filters: in this process for as many keys as fit well, else by tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Engine, Rows, distinct_values
from lakebed.format.bloom import ChainedHashes
from lakebed.index.bloom.found import PLACES, FoundPlaces, counted_lookup, places_in
from lakebed.index.bloom.known_files import Filters, ranges_of
from lakebed.index.bloom.options import SearchOptions
from lakebed.index.bloom.slice_search import SearchedSlice, SliceSearch
from lakebed.index.bloom.sweep import Asked, Sweep
from lakebed.index.bloom.tasks import search_in_tasks
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileSlice
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map

Int64s = npt.NDArray[np.int64]
# A slice, the hashes of the keys of its partition path, and which of these are looked for in it.
Job = tuple[FileSlice, ChainedHashes, Int64s]
# On an engine with tasks: up to so many keys, in so many candidate files, are looked up in this process.
KEYS_HERE = 500_000
_FILES_HERE = 256
_COMPARISONS_HERE = 20_000_000
# So many filters are held at a time.
_FILTERS_TOGETHER = 32


@dataclass(frozen=True)
class PlaceSearch:
    """One search. With `in_path` a key is looked for in its own partition path, else in all."""

    snapshot: Snapshot
    engine: Engine
    options: SearchOptions
    in_path: bool
    numbered: bool = False

    def run(self, rows: Rows) -> FoundPlaces:
        """The places of the keys of these rows, which may be evaluated several times."""
        engine = self.engine
        columns = [RECORD_KEY, PARTITION_PATH] if self.in_path else [RECORD_KEY]
        keys = engine.derive(rows, {}, keep=columns)
        here: pa.Table | None = None
        if engine.is_distributed:
            counted = engine.aggregate(keys, columns[1:])
            if (pc.sum(counted.column("rows")).as_py() or 0) <= KEYS_HERE:
                here = engine.collect(keys)
        else:
            counted = here = engine.collect(keys)
        slices = self._slices(counted)
        sweep = Sweep.of(slices, ranges_of(self.snapshot, slices, engine, self.options), in_path=self.in_path)
        if here is not None:
            asked = sweep.spans(here)
            if not engine.is_distributed or _is_little(asked):
                return self._found_here(slices, asked)
        return search_in_tasks(engine, keys, slices, sweep, self.search, self._filters(len(slices)), self.options)

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

    def _found_here(self, slices: Sequence[FileSlice], asked: Sequence[Asked]) -> FoundPlaces:
        jobs: list[Job] = []
        for numbers, texts, spans in asked:
            hashes = ChainedHashes(texts)
            jobs += [(slices[int(numbers[n])], hashes, spans.of(n)) for n in np.flatnonzero(spans.counts).tolist()]
        filters = self._filters(len(jobs))
        found: list[tuple[FileSlice, SearchedSlice]] = []
        for at in range(0, len(jobs), _FILTERS_TOGETHER):
            found += self._searched(jobs[at : at + _FILTERS_TOGETHER], filters)
        places = pa.concat_tables([PLACES.empty_table(), *(places_in(one, held) for one, held in found)])
        keys = sum(len(texts) for _, texts, _ in asked)
        lookup = counted_lookup([held for _, held in found], keys=keys, files=len(slices), asked_files=len(jobs))
        return FoundPlaces(self.engine.from_arrow(places.combine_chunks()), lookup, small=True)

    def _searched(self, jobs: Sequence[Job], filters: Filters) -> list[tuple[FileSlice, SearchedSlice]]:
        search = self.search
        blooms = filters.of_slices([one for one, _, _ in jobs], search.reader)
        for one, hashes, _ in jobs:
            if blooms[one.partition, one.file_id] is not None:
                _ = hashes.levels  # once, before several threads ask for them

        def searched(job: Job) -> SearchedSlice:
            one, hashes, rows = job
            return search.run(one, hashes, rows, blooms[one.partition, one.file_id])

        done = parallel_map(searched, jobs, os.cpu_count() or 1)
        return [(one, held) for (one, _, _), held in zip(jobs, done, strict=True)]


def _is_little(asked: Sequence[Asked]) -> bool:
    """Whether a process does by itself what tasks could do."""
    counts = [spans.counts for _, _, spans in asked]
    return (
        sum(int(np.count_nonzero(each)) for each in counts) <= _FILES_HERE
        and sum(int(each.sum()) for each in counts) <= _COMPARISONS_HERE
    )
