"""Slices with log files on Spark, where the logs touch few rows: Spark's own reader gives the rows of the base files
that no log record touches, and only the others come through Python.

Tasks in Python find which rows of a base file log records replace or delete: a bit for each row. A scalar subquery
collects the bits, and Spark drops the rows whose bit is set, by the number of the row in its file. So conditions and
columns that are asked for later reach the Parquet reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakebed.engine.spark_session import parallelism
from lakebed.engine.spark_worker import for_workers
from lakebed.merge.log_entries import Flags
from lakebed.merge.rules import MergeRules
from lakebed.model import FileSlice
from lakebed.properties.table_config import TableConfig
from lakebed.read.batches import RowReader, row_readers
from lakebed.read.plan import ColumnSource, ScanPlan, SliceSet, is_native
from lakebed.read.reopening import in_task
from lakebed.slices.reader import SliceReader

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# For smaller base files a job more, and plans that Spark compiles for it, cost more than rows through Python.
_MIN_BYTES = 256 << 20
# Each task of the scan gets all bits: 40 MB where a row takes 50 bytes of a file.
_MAX_BYTES = 16 << 30
# The bytes of log files, which are not compressed, in those of their base file: beyond it a slice goes through Python.
_LOGS_OF_BASE = 0.5
# So many files have their bits in one subquery; Spark plans a scan for each.
_FILES_OF_SCAN = 128
_MAX_SCANS = 8
_BITS = 64
# Spark's column of what it knows of a row's file; a column of the table may hide it.
_METADATA = "_metadata"
_DDL = "file INT, bits ARRAY<BIGINT>"
_SCHEMA = pa.schema([("file", pa.int32()), ("bits", pa.list_(pa.int64()))])
_ALL_BITS = "transform(array_sort(collect_list(struct(file, bits))), x -> x.bits)"
_CHANGED = "lakebed: a base file is not the one that the table has listed; read the table again"


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """The rows of base files that log records change, as bits per file. `divisor` and `numbers` map the size of a file
    to its number."""

    bits: Column
    divisor: int
    numbers: Sequence[int]

    def dropped_from(self, files: DataFrame) -> DataFrame:
        """A scan of the files without these rows."""
        from pyspark.sql import functions as F

        numbers = F.from_json(F.lit(str(list(self.numbers))), "array<int>")
        file = F.get(numbers, (F.col(f"{_METADATA}.file_size") % self.divisor).cast("int"))
        row = F.col(f"{_METADATA}.row_index")
        word = F.get(F.get(self.bits, file), F.shiftright(row, 6).cast("int"))
        bit = F.bit_get(word, row.bitwiseAND(_BITS - 1).cast("int"))
        return files.where(F.coalesce(bit, F.raise_error(F.lit(_CHANGED)).cast("tinyint")) == 0)


@dataclass(frozen=True, slots=True)
class UntouchedPart:
    """Slices with log files, and the same slices as base files of different sizes: Spark identifies a file by its
    size."""

    merged: SliceSet
    base_files: SliceSet

    def touched(self, plan: ScanPlan, spark: SparkSession, slices: SliceReader, *, tuning: bool) -> TouchedRows:
        """The rows that log records replace or delete, which tasks find when the scan runs."""
        from pyspark.sql import functions as F

        file_slices = self.merged.slices
        _, reader = row_readers(replace(plan, sets=(self.merged,)), None)[0]
        find = for_workers(partial(_read_bits, slices, reader, file_slices), tuning=tuning)
        tasks = min(len(file_slices), parallelism(spark))
        bits = spark.range(0, len(file_slices), 1, tasks).mapInArrow(find, _DDL)
        sizes = np.array([file.size for file in self.base_files.files], np.int64)
        divisor = len(sizes)
        while len(np.unique(sizes % divisor)) < len(sizes):
            divisor += 1
        numbers = np.full(divisor, -1)
        numbers[sizes % divisor] = np.arange(len(sizes))
        return TouchedRows(bits.groupBy().agg(F.expr(_ALL_BITS)).scalar(), divisor, numbers.tolist())


def divided(
    plan: ScanPlan, sets: Sequence[SliceSet], config: TableConfig
) -> tuple[list[UntouchedPart], list[SliceSet]]:
    """The slices with log files whose unchanged rows Spark reads, and the remaining sets."""
    if plan.since or plan.query != "snapshot" or not MergeRules.of_table(config).picks_winners:
        return [], list(sets)
    parts = [part for slice_set in sets for part in _parts(plan, slice_set)][:_MAX_SCANS]
    if not parts:
        return [], list(sets)
    native = {file_slice for part in parts for file_slice in part.merged.slices}
    others = [replace(s, slices=tuple(file_slice for file_slice in s.slices if file_slice not in native)) for s in sets]
    return parts, [s for s in others if s.slices]


def _parts(plan: ScanPlan, merged: SliceSet) -> list[UntouchedPart]:
    named = [[(source.stored or "").lower() for source in sources] for sources in plan.base_sources.values()]
    numbered = {instant for instant, names in zip(plan.base_sources, named, strict=True) if _METADATA not in names}
    by_size = {size: file_slice for file_slice in merged.slices if (size := _size(file_slice, numbered))}
    sizes = sorted(by_size, reverse=True)
    if sum(sizes) < _MIN_BYTES:
        return []
    by_columns: dict[tuple[ColumnSource, ...], list[FileSlice]] = {}
    for size, so_far in zip(sizes, accumulate(sizes), strict=True):
        base = by_size[size].base_file
        if base is not None and so_far <= _MAX_BYTES:
            by_columns.setdefault(plan.base_sources[base.instant], []).append(by_size[size])
    parts: list[UntouchedPart] = []
    for sources, largest in by_columns.items():
        for start in range(0, len(largest), _FILES_OF_SCAN):
            slices = tuple(largest[start : start + _FILES_OF_SCAN])
            base_files = tuple(file_slice.without_logs() for file_slice in slices)
            base_set = SliceSet(base_files, sources, is_native(sources, plan.read_schema))
            parts.append(UntouchedPart(replace(merged, slices=slices), base_set))
    return parts


def _size(file_slice: FileSlice, numbered: Set[str]) -> int:
    """The bytes of the base file, 0 if the slice is read in Python. Spark can number the rows of base files of the
    instants in `numbered`."""
    base = file_slice.base_file
    if base is None or base.is_skeleton or not file_slice.log_files or base.instant not in numbered:
        return 0
    return base.size if file_slice.log_bytes <= _LOGS_OF_BASE * base.size else 0


def bits_of(flags: Flags) -> pa.ListArray:
    """The flags as bits, in one list of 64-bit words, the first flag in the lowest bit.

    >>> bits_of(np.array([False, True] + [False] * 62 + [True])).to_pylist()
    [[2, 1]]
    """
    padded = np.zeros(-(-len(flags) // _BITS) * _BITS, np.bool_)
    padded[: len(flags)] = flags
    words = pa.array(np.packbits(padded, bitorder="little").view(np.int64))
    return pa.ListArray.from_arrays(pa.array([0, len(words)], pa.int32()), words)


def _read_bits(
    slices: SliceReader, reader: RowReader, file_slices: Sequence[FileSlice], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    def read() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                base = file_slices[number].base_file
                assert base is not None
                bits = bits_of(reader.touched(slices, file_slices[number], base).flags())
                yield pa.RecordBatch.from_arrays([pa.array([number], pa.int32()), bits], schema=_SCHEMA)

    return in_task(slices.storage, read())
