"""Rows of a file slice by their positions, read from only the row groups, pages and values that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.base_file import open_base_file, other_format, row_reader
from lakebed.format.footer_cache import FOOTERS
from lakebed.model import BaseFile, FileSlice
from lakebed.read.batches import RowReader
from lakebed.slices.key_rows import rows_by_pages
from lakebed.slices.reader import SliceReader
from lakebed.storage.parallel import parallel_map

Rows = npt.NDArray[np.int64]


def rows_at(slices: SliceReader, file_slice: FileSlice, reader: RowReader, numbers: Rows) -> pa.Table:
    """The rows with these positions, in ascending order, among those that the reader gives of the slice."""
    schema = pa.schema([reader.read_schema.field(name) for name in reader.columns])
    if not len(schema):
        return pa.Table.from_struct_array(pa.nulls(len(numbers), pa.struct([])))
    base = file_slice.base_file
    batches = None
    if base is not None and reader.predicate is None and is_placed(file_slice):
        batches = _of_file(slices, file_slice, base, reader, numbers)
    if batches is None:
        batches = list(_picked(reader.read(slices, file_slice), numbers))
    return pa.Table.from_batches(batches, schema).combine_chunks()


def is_placed(file_slice: FileSlice) -> bool:
    """Whether the rows of a slice are those of its base file, with the positions that they have in it."""
    base = file_slice.base_file
    return base is not None and not base.is_skeleton and file_slice.is_base_file


def gathered_rows(parts: Rows, rows: Rows, read: Callable[[int, Rows], pa.Table], threads: int) -> pa.Table | None:
    """Rows by the number of their part and their position in it, in this order; None for no rows. `read` gives the
    rows of a part with some positions, in ascending order; it is called once for each part, by several threads."""
    needed = np.unique(parts).tolist()
    positions = {number: np.unique(rows[parts == number]) for number in needed}
    tables = parallel_map(lambda number: read(number, positions[number]), needed, threads)
    indices, start = np.empty(len(rows), np.int64), 0
    for number, table in zip(needed, tables, strict=True):
        of_part = parts == number
        indices[of_part] = start + np.searchsorted(positions[number], rows[of_part])
        start += table.num_rows
    return pa.concat_tables(tables).take(pa.array(indices)) if tables else None


def _of_file(
    slices: SliceReader, file_slice: FileSlice, base: BaseFile, reader: RowReader, numbers: Rows
) -> list[pa.RecordBatch] | None:
    """The rows of a base file; None for a file that has none of the reader's columns."""
    footer = FOOTERS.read(slices.storage, base.path, base.size)
    starts = np.array(footer.footer.group_starts)
    groups = np.searchsorted(starts, numbers, side="right") - 1
    hits = {int(n): numbers[groups == n] - starts[n] for n in np.unique(groups)}
    known_names = frozenset(footer.footer.schema.names)
    stored = [name for name in reader.stored if name in known_names]
    if not stored:
        return None
    rows = None
    if other_format(base.path) is None:  # without opening the file, where all columns can be read so
        rows = rows_by_pages(slices.storage, base, footer, None, hits, stored)
    if rows is None:
        with open_base_file(slices.storage, base.path, base.size) as source:
            rows = rows_by_pages(slices.storage, base, footer, row_reader(source, footer.footer), hits, stored)
    if rows is None:
        of_file = replace(slices, history=None)  # the names are those of the file
        rows = [
            part
            for number, picked in hits.items()
            for part in _picked(of_file.read(file_slice, stored, row_groups=[number], footer=footer.footer), picked)
        ]
    return [shaped for batch in rows for shaped in reader.shaped(batch, file_slice.partition)]


def _picked(batches: Iterator[pa.RecordBatch], numbers: Rows) -> Iterator[pa.RecordBatch]:
    """The rows with these positions, in ascending order; no batch after the last of them is read."""
    start = 0
    for batch in batches:
        first, last = np.searchsorted(numbers, [start, start + batch.num_rows]).tolist()
        if last > first:
            yield batch.take(pa.array(numbers[first:last] - start))
        start += batch.num_rows
        if last == len(numbers):
            return
