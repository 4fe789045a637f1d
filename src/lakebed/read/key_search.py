"""The search for keys: which file slices can hold them, and the rows of each slice."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filters.predicates import Column, In, Literal, Predicate
from lakebed.model import RECORD_KEY, FileSlice
from lakebed.read.arrow_scan import RowReader, row_readers
from lakebed.read.bucket_pruning import buckets_of_keys
from lakebed.read.lookup_keys import LookupKeys, plain_texts
from lakebed.read.plan import ScanPlan, plan_scan, table_columns
from lakebed.read.record_index import FoundKeys, find_keys
from lakebed.read.skipping import skip_slices
from lakebed.read.table_keys import bucket_layout, key_generator_of
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import is_remote, once, parallel_map

# Reading the footers of so many files costs less than asking the metadata table for their key ranges.
_FEW_FILES = 16
# Key ranges rule nothing out for more keys than so many.
_MOST_BY_STATISTICS = 10_000


@dataclass(frozen=True, slots=True)
class Candidates:
    """The file slices that can hold a key. `indexed` is the record index's answer where it named them."""

    slices: Sequence[FileSlice]
    indexed: FoundKeys | None = None


class KeySearch:
    """The file slices that can hold the keys, and the matching rows of each.

    The record index names the file group of each key where the table has one that speaks of this view; else the bucket
    hash does, else files are ruled out by the key ranges and bloom filters in their footers.
    """

    def __init__(self, snapshot: Snapshot, lookup: LookupKeys, columns: Sequence[str]) -> None:
        self.snapshot = snapshot
        self.lookup = lookup
        self.columns = list(columns)
        self.keys = plain_texts(lookup.texts.drop_null().unique())
        self.meta = snapshot.config.populate_meta_fields

    @once
    def partitions(self) -> frozenset[str] | None:
        """The partition paths to look in; None: all."""
        if self.lookup.partitions is None:
            return None
        return frozenset(p for p in self.lookup.partitions.unique().to_pylist() if p is not None)

    @once
    def candidates(self) -> Candidates:
        """The file slices that can hold a key, and the index's answer if it named them."""
        if not len(self.keys):
            return Candidates(())
        indexed = self._indexed()
        named = None if indexed is None else indexed.slices(self.snapshot)
        if named is not None:
            return Candidates(named, indexed)
        slices = self.snapshot.file_slices(self.partitions)
        bucketed = bucket_layout(self.snapshot, table_columns(self.snapshot))
        if bucketed is None:
            return Candidates(self._by_statistics(slices))
        return Candidates(buckets_of_keys(slices, bucketed.places, self.keys))

    def _indexed(self) -> FoundKeys | None:
        """The record index's answer; None where it has none."""
        found = find_keys(self.snapshot, self.keys, self.partitions)
        if found is None or self.lookup.partitions is None:
            return found
        return found.of_pairs(pa.table({"key": self.lookup.texts, "partition": self.lookup.partitions}))

    def _by_statistics(self, slices: Sequence[FileSlice]) -> list[FileSlice]:
        """Those whose range of keys, as the metadata table knows it, has one of them: fewer footers are read then."""
        if len(slices) <= _FEW_FILES or len(self.keys) > _MOST_BY_STATISTICS or not self.meta:
            return list(slices)
        column = Column((RECORD_KEY,), pa.string())
        of_keys = Predicate(In(column, tuple(Literal(key, column.type) for key in self.keys.to_pylist())))
        return skip_slices(self.snapshot, of_keys, slices, table_columns(self.snapshot), log_files=True)[0]

    @once
    def plan(self) -> ScanPlan:
        return plan_scan(self.snapshot, None, self.columns, slices=self.candidates.slices)

    def texts(self, rows: pa.Table) -> pa.Array:
        """The key text of found rows."""
        if self.meta:
            return plain_texts(rows.column(RECORD_KEY))
        config = self.snapshot.config
        return plain_texts(key_generator_of(config).key_text_of(rows.select(list(config.key_fields))))

    def run(self) -> Iterator[tuple[FileSlice, pa.Table]]:
        """Every file slice that was searched, with its matching rows."""
        jobs = row_readers(self.plan, None)

        def search(job: tuple[FileSlice, RowReader]) -> tuple[FileSlice, pa.Table]:
            file_slice, reader = job
            return file_slice, pa.Table.from_batches(self._rows(file_slice, reader), self.plan.schema)

        cores = os.cpu_count() or 1
        yield from parallel_map(search, jobs, min(8, 2 * cores if is_remote(self.snapshot.storage) else cores))

    def _rows(self, file_slice: FileSlice, reader: RowReader) -> list[pa.RecordBatch]:
        keys, slices = self._keys_in(file_slice), self.snapshot.reader
        if self.meta:
            return reader.rows_of_keys(slices, file_slice, keys, use_bloom=self.candidates.indexed is None)
        found: list[pa.RecordBatch] = []
        for batch in reader.read(slices, file_slice):
            mask = pc.is_in(self.texts(pa.Table.from_batches([batch])), value_set=keys)
            found.append(batch.filter(mask))
        return found

    def _keys_in(self, file_slice: FileSlice) -> pa.Array:
        if self.candidates.indexed is not None:
            return self.candidates.indexed.groups[file_slice.partition, file_slice.file_id]
        if self.lookup.partitions is None:
            return self._sorted_keys
        here = pc.and_(pc.equal(self.lookup.partitions, file_slice.partition), pc.is_valid(self.lookup.texts))
        return _in_order(plain_texts(self.lookup.texts.filter(here).unique()))

    @cached_property
    def _sorted_keys(self) -> pa.Array:
        return _in_order(self.keys)


def _in_order(keys: pa.Array) -> pa.Array:
    return keys.take(pc.sort_indices(keys))
