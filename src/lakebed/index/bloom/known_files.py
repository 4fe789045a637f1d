"""Key ranges and bloom filters of file slices, from the metadata table or from the footers of base files; how they
go to tasks as Arrow rows; and the options of the search.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import IndexSettings
from lakebed.engine.base import GROUP, Engine, Task
from lakebed.format.bloom import BloomFilter
from lakebed.format.footer_cache import FOOTERS
from lakebed.format.key_order import orders_agree
from lakebed.metadata_records.layout import BLOOM_FILTERS, COLUMN_STATS
from lakebed.model import PARTITION_PATH, RECORD_KEY, BaseFile, FileGroupId, FileSlice
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot, metadata_damage_named
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The options of a search. With `use_metadata` None, ranges and filters come from the metadata table if that costs
    less than reading footers. With `prune_by_ranges` False the filters of all files are asked. A task gets at most
    `keys_per_task` keys of a file."""

    prune_by_ranges: bool = True
    use_metadata: bool | None = None
    keys_per_task: int = 2_000_000

    @classmethod
    def of(cls, settings: IndexSettings) -> SearchOptions:
        """The search options that a job's settings name."""
        return cls(
            settings.prune_by_ranges,
            settings.use_metadata,
            settings.keys_per_bucket or cls().keys_per_task,
        )


def sent_slices(slices: Sequence[FileSlice], group_size: int) -> pa.Table:
    """The slices as a table to send to tasks in groups of `group_size` rows: an empty partition path, the number of the
    group, the number of the slice, and the pickled slice."""
    return pa.table(
        {
            PARTITION_PATH: pa.repeat(pa.scalar(""), len(slices)),
            GROUP: pa.array(np.arange(len(slices)) // group_size, pa.int32()),
            "number": pa.array(np.arange(len(slices)), pa.int32()),
            "slice": pa.array(map(pickle.dumps, slices), pa.binary()),
        }
    )


def slices_in(batch: pa.RecordBatch) -> tuple[list[int], list[FileSlice]]:
    """The slice numbers and the slices in the rows that `sent_slices` made."""
    return batch.column("number").to_pylist(), [pickle.loads(payload) for payload in batch.column("slice").to_pylist()]


Range = tuple[str, str]

# Footers of so few files are read faster than the metadata table is asked.
_MAX_FILES = 16
# Up to so many footers are read in this process, whatever the engine.
_FOOTERS_HERE = 200
_SLICES_A_TASK = 64
# Up to so many partition paths are asked for one by one.
_MAX_PARTITIONS = 32
_RANGES = pa.schema([("number", pa.int32()), ("low", pa.string()), ("high", pa.string())])


def metadata_for(snapshot: Snapshot, files: int, partition: str, options: SearchOptions) -> MetadataLookups | None:
    """The metadata table, if it can answer for this view and `options` choose it for `files` files; otherwise None."""
    if options.use_metadata is False or (options.use_metadata is None and files <= _MAX_FILES):
        return None
    metadata = snapshot.metadata
    return metadata if metadata is not None and metadata.has(partition) else None


def ranges_of(
    snapshot: Snapshot, slices: Sequence[FileSlice], engine: Engine, options: SearchOptions
) -> list[Range | None]:
    """The range of keys of each file slice, in the order of Java strings; None if unknown."""
    if not options.prune_by_ranges:
        return [None] * len(slices)
    metadata = metadata_for(snapshot, len(slices), COLUMN_STATS, options)
    recorded_ranges: Mapping[str, Range] = {}
    if metadata is not None:
        with metadata_damage_named(snapshot.storage):
            recorded_ranges = _ranges_by_file(metadata, slices)
    ranges = [
        _range_of_slice(file_slice, recorded_ranges)
        if snapshot.reader.is_merged(file_slice)
        else _base_range(file_slice, recorded_ranges)
        for file_slice in slices
    ]
    unknown = [
        n for n, file_slice in enumerate(slices) if ranges[n] is None and not snapshot.reader.is_merged(file_slice)
    ]
    for number, key_range in zip(unknown, _from_footers([slices[n] for n in unknown], snapshot, engine), strict=True):
        ranges[number] = key_range
    return ranges


def _ranges_by_file(metadata: MetadataLookups, slices: Sequence[FileSlice]) -> dict[str, Range]:
    """The key ranges by file name, of the files that have statistics."""
    partitions = {file_slice.partition for file_slice in slices}
    few = partitions if len(partitions) <= _MAX_PARTITIONS else None
    stats = metadata.column_stats([RECORD_KEY], few, {RECORD_KEY: pa.string()}).get(RECORD_KEY)
    if stats is None:
        return {}
    stats = stats.filter(pc.and_(stats["min"].is_valid(), stats["max"].is_valid()))
    rows = zip(*(stats[name].cast(pa.string()).to_pylist() for name in ("file_name", "min", "max")), strict=True)
    # one a file; statistics are in the order of bytes, those of log files in Java's
    return {name: (low, high) for name, low, high in rows if orders_agree(low) and orders_agree(high)}


def _base_range(file_slice: FileSlice, recorded_ranges: Mapping[str, Range]) -> Range | None:
    return recorded_ranges.get(file_slice.base_file.name) if file_slice.base_file is not None else None


def _range_of_slice(file_slice: FileSlice, recorded_ranges: Mapping[str, Range]) -> Range | None:
    """The key range of a slice with log files, which may have keys that the base file does not have. None if the range
    of one of its files is unknown."""
    files = [file.name for file in (file_slice.base_file, *file_slice.log_files) if file is not None]
    ranges = [recorded_ranges[name] for name in files if name in recorded_ranges]
    if len(ranges) < len(files):
        return None
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _from_footers(slices: Sequence[FileSlice], snapshot: Snapshot, engine: Engine) -> list[Range | None]:
    """The key ranges in the footers of base files; tasks read many files. None for a file without a range."""
    reader = snapshot.reader
    if not engine.is_distributed or len(slices) <= _FOOTERS_HERE:
        return parallel_map(lambda file_slice: _footer_range(reader.storage, file_slice.base_file), slices)
    rows = engine.from_arrow(sent_slices(slices, _SLICES_A_TASK))
    tasks = -(-len(slices) // _SLICES_A_TASK)
    mapped = engine.group_map(rows, _FooterRanges(reader), _RANGES, groups=tasks, one_group_per_task=False)
    ranges: list[Range | None] = [None] * len(slices)
    for row in engine.collect(mapped).to_pylist():  # one a file
        ranges[row["number"]] = None if row["low"] is None else (row["low"], row["high"])
    return ranges


@dataclass(frozen=True, slots=True)
class _FooterRanges:
    """A task function that reads the key ranges in the footers of base files."""

    reader: SliceReader

    def __call__(
        self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers, slices = slices_in(batch)
            ranges = parallel_map(lambda file_slice: _footer_range(self.reader.storage, file_slice.base_file), slices)
            low, high = ([None if key_range is None else key_range[side] for key_range in ranges] for side in (0, 1))
            yield pa.RecordBatch.from_arrays(
                [pa.array(numbers, pa.int32()), pa.array(low, pa.string()), pa.array(high, pa.string())], schema=_RANGES
            )


def _footer_range(storage: Storage, base: BaseFile | None) -> Range | None:
    if base is None:
        return None
    footer = FOOTERS.read(storage, base.path, base.size)
    if footer.footer.key_range is not None:
        return footer.footer.key_range
    groups = [key_range for key_range in footer.ranges if key_range is not None and all(map(orders_agree, key_range))]
    if not groups or len(groups) < len(footer.ranges):
        return None
    return min(low for low, _ in groups), max(high for _, high in groups)


@dataclass(frozen=True, slots=True)
class Filters:
    """The bloom filters of base files. It can be sent to tasks."""

    storage: Storage
    metadata: MetadataLookups | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, files: int, options: SearchOptions) -> Filters:
        """The filters of `files` files, from the metadata table if `options` choose it for that number."""
        return cls(snapshot.storage, metadata_for(snapshot, files, BLOOM_FILTERS, options))

    def to_be_sent(self) -> Filters:
        """These filters in a form that tasks can get: without the open metadata table."""
        return self if self.metadata is None else Filters(self.storage, self.metadata.to_be_sent(BLOOM_FILTERS))

    def of_slices(self, slices: Sequence[FileSlice], reader: SliceReader) -> dict[FileGroupId, BloomFilter | None]:
        """The filter of each slice by its file group. None if it does not have one, if the filter accepts nearly
        everything, and if log files may hold other keys."""
        files = [s.base_file for s in slices if s.base_file is not None and not reader.is_merged(s)]
        filters = {(f.partition, f.file_id): bloom for f, bloom in zip(files, self._read(files), strict=True)}
        return {(s.partition, s.file_id): filters.get((s.partition, s.file_id)) for s in slices}

    def _read(self, files: Sequence[BaseFile]) -> list[BloomFilter | None]:
        recorded_filters: dict[tuple[str, str], BloomFilter] = {}
        if self.metadata is not None and files:
            with metadata_damage_named(self.storage):
                rows = self.metadata.bloom_filters([(file.partition, file.name) for file in files])
            for row in rows.select(["partition", "file_name", "type", "bloom"]).to_pylist():  # one a file
                name = row["partition"], row["file_name"]
                recorded_filters[name] = BloomFilter.from_text(row["bloom"], row["type"], path="/".join(name))
        return parallel_map(
            lambda file: _useful(recorded_filters.get((file.partition, file.name)) or self._of_footer(file)), files
        )

    def _of_footer(self, file: BaseFile) -> BloomFilter | None:
        return FOOTERS.read(self.storage, file.path, file.size).bloom


def _useful(bloom: BloomFilter | None) -> BloomFilter | None:
    """The filter; None for one that accepts every key by design, or that has many more keys than it was made for."""
    return bloom if bloom is not None and bloom.rate < 0.5 else None
