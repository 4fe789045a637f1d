"""How much indexes rule out: how far the ranges of columns overlap from file to file, and how many absent keys bloom
filters let through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filters.text import resolve_columns
from lakebed.format.base_file import read_footer
from lakebed.format.bloom import BloomFilter
from lakebed.metadata_records.layout import BLOOM_FILTERS, COLUMN_STATS
from lakebed.model import RECORD_KEY, BaseFile
from lakebed.read.plan import data_columns
from lakebed.read.skip import StatisticsIndex
from lakebed.read.statistics import bounds_of_files, can_bound, written_by_lakebed
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map

BLOOM_RATES = pa.schema([("partition", pa.string()), ("file_name", pa.string()), ("rate", pa.float64())])
_READERS, _WORD_BITS = 16, 32


@dataclass(frozen=True)
class ColumnRanges:
    """The least and greatest value of a column in each base file that has a known range; `files` is the number of all
    base files."""

    low: pa.Array
    high: pa.Array
    files: int

    def overlap(self) -> float:
        """The share of all files that may hold a value, averaged over the least values of files: 0.1 means that a
        condition on one value opens a tenth of the files. Files without a range count as holding every value."""
        range_count = len(self.low)
        if not range_count:
            return 1.0
        ranks = self._ranks()
        low, high = np.sort(ranks[:range_count]), np.sort(ranks[range_count:])
        opened = np.searchsorted(low, ranks[:range_count], side="right") - np.searchsorted(
            high, ranks[:range_count], side="left"
        )
        return float((opened.mean() + self.files - range_count) / self.files)

    def positions(self) -> npt.NDArray[np.float64]:
        """The ranges as pairs of numbers from 0 to 1: by value for numbers and times, otherwise by rank."""
        range_count = len(self.low)
        try:
            bounds = pa.concat_arrays([self.low, self.high])
            if pa.types.is_temporal(bounds.type):
                bounds = bounds.cast(pa.int32() if bounds.type.bit_width == _WORD_BITS else pa.int64())
            bounds = as_numpy(bounds.cast(pa.float64()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            bounds = self._ranks().astype(np.float64)
        bounds = np.nan_to_num(bounds, posinf=np.finfo(np.float64).max / 4, neginf=np.finfo(np.float64).min / 4)
        least, spread = bounds.min(initial=np.inf), np.ptp(bounds) if len(bounds) else 0.0
        scaled = (bounds - least) / spread if spread else np.full(len(bounds), 0.5)
        return np.column_stack([scaled[:range_count], scaled[range_count:]])

    def _ranks(self) -> npt.NDArray[np.uint64]:
        bounds = pa.concat_arrays([self.low, self.high])
        return as_numpy(pc.rank(bounds, tiebreaker="dense"))


def column_ranges(snapshot: Snapshot, names: Sequence[str] | None = None) -> Mapping[str, ColumnRanges]:
    """The ranges of columns (None: all that have statistics) in the base files of the latest slices, from the column
    statistics of the metadata table. Empty for a table without them. Raises `InvalidOption` for columns that the table
    does not have."""
    columns = [pa.field(RECORD_KEY, pa.string()), *data_columns(snapshot)]
    names = None if names is None else resolve_columns(names, pa.schema(columns))
    metadata = snapshot.metadata
    if metadata is None or not metadata.has(COLUMN_STATS):
        return {}
    index = StatisticsIndex.of(snapshot, metadata)
    types = {
        field.name: field.type
        for field in columns
        if (names is None or field.name in names)
        and (index.columns is None or field.name in index.columns)
        and can_bound(field.type, version=index.version, exact=index.has_exact_ranges)
    }
    files = snapshot.base_files()
    stats = metadata.column_stats(list(types), None, types)
    written = np.zeros(len(files), np.bool_)
    if any(pa.types.is_floating(kind) for kind in types.values()):
        written = written_by_lakebed(snapshot.timeline, [file.instant for file in files])
    file_names = pa.array([file.name for file in files], pa.string())
    ranges: dict[str, ColumnRanges] = {}
    for name, kind in types.items():
        bounds = bounds_of_files(stats.get(name), file_names, written, kind)
        has_bounds = pc.and_(bounds.low.is_valid(), bounds.high.is_valid())
        ranges[name] = ColumnRanges(bounds.low.filter(has_bounds), bounds.high.filter(has_bounds), len(files))
    return ranges


def bloom_rates(snapshot: Snapshot, limit: int) -> pa.Table:
    """The share of absent keys that the bloom filter lets through, by its set bits (1.0 for the filter that accepts
    every key), for at most `limit` evenly chosen base files of the latest slices that have a bloom filter.

    The filters come from the metadata table where it has them, else from the files' footers.
    """
    files = snapshot.base_files()
    selected = [files[at] for at in np.unique(np.linspace(0, len(files) - 1, min(limit, len(files))).astype(int))]
    metadata = snapshot.metadata
    if metadata is not None and metadata.has(BLOOM_FILTERS):
        stored = metadata.bloom_filters([(file.partition, file.name) for file in selected]).to_pylist()
        blooms = [BloomFilter.from_text(record["bloom"], record["type"], path=record["file_name"]) for record in stored]
        rows = [
            (record["partition"], record["file_name"], bloom.rate) for record, bloom in zip(stored, blooms, strict=True)
        ]
    else:

        def rate(file: BaseFile) -> float | None:
            bloom = read_footer(snapshot.storage, file.path, file.size or None).bloom()
            return None if bloom is None else bloom.rate

        rates = parallel_map(rate, selected, _READERS)
        rows = [
            (file.partition, file.name, share) for file, share in zip(selected, rates, strict=True) if share is not None
        ]
    columns = zip(*sorted(rows), strict=True) if rows else [()] * len(BLOOM_RATES)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, BLOOM_RATES, strict=True)]
    return pa.Table.from_arrays(arrays, schema=BLOOM_RATES)
