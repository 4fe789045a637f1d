"""The search for keys in files: which file groups can hold them, which row groups of a file, which rows."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.filters.predicates import Column, In, Literal, Predicate
from lakebed.format.base_file import check_rows, naming_damage
from lakebed.format.file_names import bucket_of_file_id
from lakebed.format.footer_cache import FOOTERS, KeyFooter
from lakebed.format.key_positions import POSITIONS, KeyPositions
from lakebed.model import RECORD_KEY, BaseFile, FileSlice
from lakebed.read.arrow_scan import FileReader
from lakebed.read.lookup_keys import LookupKeys, plain_texts
from lakebed.read.plan import FileSet, ScanPlan, plan_scan, table_columns
from lakebed.read.pruning import MAX_KEYS
from lakebed.read.record_index import FoundKeys, find_keys
from lakebed.read.skipping import skip_slices
from lakebed.read.table_keys import bucket_layout, key_generator_of
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import is_remote, parallel_map

# Row groups beyond this many bytes are read by batches.
_LARGE_ROW_GROUP = 256 << 20
# Reading the footers of so many files costs less than asking the metadata table for their key ranges.
_FEW_FILES = 16


class KeySearch:
    """The files that can hold the keys, and the matching rows of each.

    The record index names the file group of each key where the table has one that speaks of this view; else the bucket
    hash does, else files are ruled out by the key ranges and bloom filters in their footers.
    """

    def __init__(self, snapshot: Snapshot, wanted: LookupKeys, columns: Sequence[str]) -> None:
        self.snapshot = snapshot
        self.wanted = wanted
        self.columns = list(columns)
        self.keys = plain_texts(wanted.texts.drop_null().unique())
        self.meta = snapshot.config.populate_meta_fields

    @cached_property
    def partitions(self) -> frozenset[str] | None:
        """The partition paths that were asked for; None: all."""
        if self.wanted.partitions is None:
            return None
        return frozenset(p for p in self.wanted.partitions.unique().to_pylist() if p is not None)

    @cached_property
    def indexed(self) -> FoundKeys | None:
        """The record index's answer; None where it has none."""
        if not len(self.keys):
            return None
        found = find_keys(self.snapshot, self.keys, self.partitions)
        if found is None or self.wanted.partitions is None:
            return found
        return found.of_pairs(pa.table({"key": self.wanted.texts, "partition": self.wanted.partitions}))

    @cached_property
    def slices(self) -> list[FileSlice]:
        """The file slices that can hold a key."""
        if not len(self.keys):
            return []
        if self.indexed is not None:
            found = self.indexed.slices(self.snapshot)
            if found is not None:
                return found
            self.indexed = None
        slices = self.snapshot.file_slices(self.partitions)
        bucketed = bucket_layout(self.snapshot.config, table_columns(self.snapshot))
        if bucketed is None:
            return self._by_statistics(slices)
        numbers = set(bucketed[0].groups_of(self.keys).to_pylist())
        return [s for s in slices if (b := bucket_of_file_id(s.file_id)) is None or b in numbers]

    def _by_statistics(self, slices: Sequence[FileSlice]) -> list[FileSlice]:
        """Those whose range of keys, as the metadata table knows it, has one of them: fewer footers are read then."""
        if len(slices) <= _FEW_FILES or len(self.keys) > MAX_KEYS or not self.meta:
            return list(slices)
        column = Column((RECORD_KEY,), pa.string())
        wanted = Predicate(In(column, tuple(Literal(key, column.type) for key in self.keys.to_pylist())))
        return skip_slices(self.snapshot, wanted, slices, table_columns(self.snapshot), log_files=True)[0]

    @cached_property
    def plan(self) -> ScanPlan:
        return plan_scan(self.snapshot, None, self.columns, slices=self.slices)

    def texts(self, rows: pa.Table) -> pa.Array:
        """The key text of found rows."""
        if self.meta:
            return plain_texts(rows.column(RECORD_KEY))
        config = self.snapshot.config
        return plain_texts(key_generator_of(config).key_text_of(rows.select(list(config.key_fields))))

    def run(self) -> Iterator[tuple[BaseFile, pa.Table]]:
        """Every file that was opened, with its matching rows."""
        jobs = [(file, group) for group in self.plan.groups for file in group.files]
        readers = {
            id(g): FileReader(g.sources, self.plan.read_schema, self.plan.columns, None, self.plan.partition_values)
            for g in self.plan.groups
        }

        def search(job: tuple[BaseFile, FileSet]) -> tuple[BaseFile, pa.Table]:
            file, group = job
            return file, self._rows(file, readers[id(group)])

        cores = os.cpu_count() or 1
        yield from parallel_map(search, jobs, min(8, 2 * cores if is_remote(self.snapshot.storage) else cores))

    def _rows(self, file: BaseFile, reader: FileReader) -> pa.Table:
        keys = self._keys_in(file)
        if not self.meta:
            return pa.Table.from_batches(self._from_all(file, reader, keys), self.plan.schema)
        footer = FOOTERS.read(self.snapshot.storage, file.path, file.size)
        wanted = wanted_row_groups(footer, keys)
        if wanted and self.indexed is None and footer.bloom is not None:
            wanted = wanted_row_groups(footer, keys.filter(footer.bloom.might_contain(keys)))
        found = self._from_row_groups(file, reader, footer, wanted) if wanted else []
        return pa.Table.from_batches(found, self.plan.schema)

    def _keys_in(self, file: BaseFile) -> pa.Array:
        if self.indexed is not None:
            return self.indexed.groups[file.partition, file.file_id]
        if self.wanted.partitions is None:
            return self._sorted_keys
        here = pc.and_(pc.equal(self.wanted.partitions, file.partition), pc.is_valid(self.wanted.texts))
        return _in_order(plain_texts(self.wanted.texts.filter(here).unique()))

    @cached_property
    def _sorted_keys(self) -> pa.Array:
        return _in_order(self.keys)

    def _from_all(
        self, file: BaseFile, reader: FileReader, keys: pa.Array, row_groups: Sequence[int] | None = None
    ) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        for batch in reader.read(self.snapshot.storage, file, row_groups):
            mask = pc.is_in(self.texts(pa.Table.from_batches([batch])), value_set=keys)
            batches.append(batch.filter(mask))
        return batches

    def _from_row_groups(
        self, file: BaseFile, reader: FileReader, footer: KeyFooter, wanted: Mapping[int, pa.Array]
    ) -> list[pa.RecordBatch]:
        """Rows of the row groups whose range fits, with only those read that hold a key."""
        batches: list[pa.RecordBatch] = []
        metadata = footer.metadata
        storage = self.snapshot.storage
        place = storage.url(file.path), file.size
        maybe = {number: POSITIONS.get((*place, number)) for number in wanted}
        rows = {number: held.rows(wanted[number]) for number, held in maybe.items() if held is not None}
        if all(number in rows and not len(rows[number]) for number in wanted):
            return []
        with naming_damage(file.path):
            source = storage.open_input(file.path, file.size)
            options: dict[str, Any] = {
                "metadata": metadata,
                "coerce_int96_timestamp_unit": "us",
                "page_checksum_verification": True,
                # a remote file's columns in one request; on a local disk or in memory that costs more than it saves
                "pre_buffer": isinstance(source, pa.PythonFile),
            }
            with source, pq.ParquetFile(source, **options) as parquet:
                for number, keys in wanted.items():
                    if metadata.row_group(number).total_byte_size > _LARGE_ROW_GROUP:
                        batches += self._from_all(file, reader, keys, [number])
                        continue
                    hits = rows.get(number)
                    if hits is None:
                        stored = plain_texts(parquet.read_row_group(number, columns=[RECORD_KEY], use_threads=False)[0])
                        check_rows(file.path, len(stored), metadata.row_group(number).num_rows)
                        held = KeyPositions.of(stored)
                        POSITIONS.put((*place, number), held)
                        hits = held.rows(keys)
                    if len(hits):
                        batches += reader.take(parquet, number, hits, file, keys)
        return batches


def wanted_row_groups(footer: KeyFooter, keys: pa.Array) -> dict[int, pa.Array]:
    """The row groups of a file that can hold some of the keys (in ascending order), each with these keys."""
    ordered: list[str] = keys.to_pylist()
    found: dict[int, pa.Array] = {}
    for number, held in enumerate(footer.ranges):
        # Python orders texts by code points, which is the order of their UTF-8 bytes
        start, end = (0, len(keys)) if held is None else (bisect_left(ordered, held[0]), bisect_right(ordered, held[1]))
        if start < end:
            found[number] = keys.slice(start, end - start)
    return found


def _in_order(keys: pa.Array) -> pa.Array:
    return keys.take(pc.sort_indices(keys))
