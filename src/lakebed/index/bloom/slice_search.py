"""Which of some keys one file slice holds: by its key range, its bloom filter, then the key column of the row groups
whose range has keys that are left. The result has the places of the keys and what was read to find them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Rows
from lakebed.format.base_file import check_rows, naming_damage, open_base_file, row_reader
from lakebed.format.bloom import BloomFilter, ChainedHashes
from lakebed.format.footer_cache import FOOTERS
from lakebed.format.hashes import plain_strings
from lakebed.format.key_order import KeyRanges, Spans
from lakebed.format.read_tally import ReadTally, column_bytes
from lakebed.index.base import KeyLookup
from lakebed.index.bloom.known_files import Range
from lakebed.model import FILE_ID, INSTANT, OLD_PARTITION, PARTITION_PATH, POSITION, RECORD_KEY, BaseFile, FileSlice
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.key_rows import rows_of_keys
from lakebed.slices.reader import SliceReader

Int64s = npt.NDArray[np.int64]
# Rows of the key column that are decoded at a time: files of other writers may be one row group.
_BATCH_ROWS = 1 << 20
_KEY = pa.schema([(RECORD_KEY, pa.string())])


@dataclass(frozen=True, slots=True)
class SearchedSlice:
    """The requested keys that a slice holds (a key as often as it is stored), and the row number of each in the base
    file (null for a row of a log file). `keys` is the number of requested keys. The filter was asked about
    `filter_queries` of them and let `passed` through. `reads` is whether stored keys were read; for them `opened` files
    were opened, and `bytes` of key columns and log files read."""

    stored_keys: pa.Array
    positions: pa.Array
    keys: int
    filter_queries: int = 0
    passed: int = 0
    reads: bool = True
    opened: int = 0
    bytes: int = 0

    @property
    def absent(self) -> int:
        """The number of keys that were looked up in the bloom filter and that the slice does not have."""
        return max(0, self.filter_queries - len(self.stored_keys)) if self.filter_queries else 0

    @property
    def false_positives(self) -> int:
        """The number of keys that the bloom filter let through although the slice does not hold them."""
        return max(0, self.passed - len(self.stored_keys)) if self.filter_queries else 0


@dataclass(frozen=True, slots=True)
class SliceSearch:
    """A search for keys in file slices. It can be sent to tasks. With `numbered` the result has the numbers of the rows
    in base files."""

    reader: SliceReader
    numbered: bool = False

    def run(
        self, file_slice: FileSlice, hashes: ChainedHashes, rows: Int64s, bloom: BloomFilter | None
    ) -> SearchedSlice:
        """Search the slice for the keys at the positions `rows` of `hashes`, all of them different."""
        tally = ReadTally()
        counting = replace(self, reader=replace(self.reader, tally=tally))
        answer = counting._run(file_slice, hashes, rows, bloom)
        return replace(answer, opened=tally.total("opened"), bytes=tally.total("bytes"))

    def _run(
        self, file_slice: FileSlice, hashes: ChainedHashes, rows: Int64s, bloom: BloomFilter | None
    ) -> SearchedSlice:
        if self.reader.is_merged(file_slice):
            return self._in_merged(file_slice, hashes.keys.take(pa.array(rows)))
        base = file_slice.base_file
        if base is None:
            return SearchedSlice(pa.array([], pa.string()), pa.array([], pa.int64()), len(rows), reads=False)
        left, probes = rows, 0
        if bloom is not None:
            left, probes = rows[bloom.holds(hashes, rows)], len(rows)
        stored_keys, positions = self._in_base(base, hashes.keys.take(pa.array(left)))
        return SearchedSlice(stored_keys, positions, len(rows), probes, len(left) if probes else 0, reads=len(left) > 0)

    def _in_base(self, base: BaseFile, keys: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The keys of the base file, and their positions."""
        stored_keys: list[pa.Array] = [pa.array([], pa.string())]
        positions: list[Int64s] = [np.empty(0, np.int64)]
        footer = FOOTERS.read(self.reader.storage, base.path, base.size) if len(keys) else None
        spans = KeyRanges(footer.ranges, java_order=False).spans(keys) if footer is not None else None
        if footer is None or spans is None or not spans.counts.any():
            return stored_keys[0], pa.array(positions[0])
        groups = np.flatnonzero(spans.counts).tolist()
        starts = footer.footer.group_starts
        first, before, group_keys = 0, -1, keys
        for group, stored in key_batches(self.reader, base, groups):
            if group != before:
                first, before, group_keys = starts[group], group, keys.take(pa.array(np.sort(spans.of(group))))
            hits = np.flatnonzero(as_numpy(pc.is_in(stored, value_set=group_keys)))
            if len(hits):
                stored_keys.append(stored.take(pa.array(hits)).cast(pa.string()))
                positions.append(hits + first)
            first += len(stored)
        return pa.concat_arrays(stored_keys), pa.array(np.concatenate(positions))

    def _in_merged(self, file_slice: FileSlice, keys: pa.Array) -> SearchedSlice:
        """The keys that a slice with log files holds, by a merge of the rows of these keys."""
        ordered = keys.take(pc.sort_indices(keys))
        rows = rows_of_keys(self.reader, file_slice, ordered, [], schema=_KEY)
        merged_keys = pa.concat_arrays(
            [pa.array([], pa.string()), *(plain_strings(b.column(RECORD_KEY)) for b in rows)]
        )
        positions: Any = pa.nulls(len(merged_keys), pa.int64())
        if self.numbered and file_slice.base_file is not None and len(merged_keys):
            stored, numbers = self._in_base(file_slice.base_file, pc.unique(merged_keys))
            positions = numbers.take(pc.index_in(merged_keys, value_set=stored))
        return SearchedSlice(merged_keys, positions, len(keys))


def key_batches(reader: SliceReader, base: BaseFile, groups: Sequence[int]) -> Iterator[tuple[int, pa.Array]]:
    """The record keys of some row groups of a base file: pairs of a row group's number and its keys."""
    footer = FOOTERS.read(reader.storage, base.path, base.size)
    if reader.tally is not None:
        reader.tally.add("opened")
        reader.tally.add("bytes", column_bytes(footer.metadata, [RECORD_KEY], groups))
    with naming_damage(base.path), open_base_file(reader.storage, base.path, base.size) as source:
        file = row_reader(source, footer.footer)
        for group in groups:
            rows = 0
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[RECORD_KEY], use_threads=False):
                rows += batch.num_rows
                yield group, plain_strings(batch.column(0))
            check_rows(base.path, rows, footer.metadata.row_group(group).num_rows)


# The numbers of some slices, the keys of a partition path, each once, and those of each slice among them.
Asked = tuple[Int64s, pa.Array, Spans]
_NO_SLICES = np.empty(0, np.int64)


@dataclass(frozen=True)
class RangeSearch:
    """File slices with their key ranges, by the partition path in which they are asked; under None those that are asked
    for every key. `numbers` are the numbers of the slices, in the order of the ranges.

    `numbers` are those of the slices, in the order of the ranges.
    """

    ranges: Mapping[str | None, KeyRanges]
    numbers: Mapping[str | None, Int64s]

    @classmethod
    def of(cls, slices: Sequence[FileSlice], ranges: Sequence[Range | None], *, in_path: bool) -> RangeSearch:
        numbers: dict[str | None, list[int]] = {}
        for number, file_slice in enumerate(slices):
            numbers.setdefault(file_slice.partition if in_path else None, []).append(number)
        return cls(
            {path: KeyRanges([ranges[n] for n in slice_numbers]) for path, slice_numbers in numbers.items()},
            {path: np.array(slice_numbers, np.int64) for path, slice_numbers in numbers.items()},
        )

    def spans(self, keys: pa.Table) -> list[Asked]:
        """For each partition path, the keys for which its slices are searched.

        `keys` has the record keys, and the partition paths where they are asked in these."""
        candidates: list[Asked] = []
        for path, texts in self._by_path(keys):
            once = plain_strings(pc.unique(texts).drop_null())
            ranges = self.ranges.get(path, KeyRanges([]))
            candidates.append((self.numbers.get(path, _NO_SLICES), once, ranges.spans(once)))
        return candidates

    def _by_path(self, keys: pa.Table) -> list[tuple[str | None, pa.ChunkedArray]]:
        texts = keys.column(RECORD_KEY)
        if None in self.ranges or PARTITION_PATH not in keys.column_names:
            return [(None, texts)]
        codes = keys.column(PARTITION_PATH).combine_chunks().dictionary_encode(null_encoding="encode")
        if len(codes.dictionary) == 1:
            return [(codes.dictionary[0].as_py(), texts)]
        at = as_numpy(codes.indices)
        order = np.argsort(at, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(at[order])) + 1)
        return [(codes.dictionary[int(at[p[0]])].as_py(), texts.take(pa.array(p))) for p in parts if len(p)]


LOCATIONS = pa.schema(
    [(RECORD_KEY, pa.string()), (OLD_PARTITION, pa.string()), (FILE_ID, pa.string()), (INSTANT, pa.string()),
     (POSITION, pa.int64())]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SearchedLocations:
    """A row of `LOCATIONS` for every location of a key. `small` is whether there are few; `persisted` are rows that the
    caller releases."""

    rows: Rows
    lookup: KeyLookup
    small: bool
    persisted: Rows | None = None


def locations_in(file_slice: FileSlice, searched: SearchedSlice) -> pa.Table:
    """The rows, in the schema `LOCATIONS`, of the keys that a slice has."""
    location_columns = [
        pa.repeat(pa.scalar(text, pa.string()), len(searched.stored_keys))
        for text in (file_slice.partition, file_slice.file_id, file_slice.instant)
    ]
    return pa.Table.from_arrays([searched.stored_keys, *location_columns, searched.positions], schema=LOCATIONS)


def counted_lookup(answers: Sequence[SearchedSlice], *, keys: int, files: int, asked_files: int) -> KeyLookup:
    """The summed counts of what the search found and read in all slices."""
    return KeyLookup(
        keys=keys,
        tagged=sum(len(answer.stored_keys) for answer in answers),
        files=files,
        out_of_range=files - asked_files,
        filtered=sum(1 for answer in answers if not answer.reads),
        searched=sum(1 for answer in answers if answer.reads),
        asked=sum(answer.filter_queries for answer in answers),
        absent=sum(answer.absent for answer in answers),
        false_positives=sum(answer.false_positives for answer in answers),
        opened=sum(answer.opened for answer in answers),
        bytes=sum(answer.bytes for answer in answers),
    )
