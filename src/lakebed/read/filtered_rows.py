"""Rows of base files that fulfil a condition, without decoding what no such row needs.

Row groups are ruled out by the statistics in the file's footer. Of the others the columns of the condition are read
first, and then of all other columns only what matching rows need: no row group without one, and only pages that hold
one where these are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.filters.predicates import Predicate
from lakebed.filters.ranges import Bounds, Path, may_match
from lakebed.format.base_file import Footer, column_chunks, naming_damage, open_base_file, row_reader
from lakebed.format.file_names import has_exact_ranges
from lakebed.format.footer_cache import FOOTERS, KeyFooter
from lakebed.merge.log_entries import Flags
from lakebed.model import BaseFile, FileSlice
from lakebed.read.plan import TableColumns
from lakebed.read.statistics import with_nan
from lakebed.schema.plain_arrow import as_numpy, matching_rows
from lakebed.sharing import once
from lakebed.slices.key_rows import rows_by_pages
from lakebed.slices.reader import BATCH_ROWS, SliceReader
from lakebed.storage.parallel import is_remote

Rows = npt.NDArray[np.int64]

# Of fewer rows all columns are decoded at once.
_MIN_ROWS = 16_384
# A smaller file of a remote store is read by one request for all columns, not by two.
_REMOTE_BYTES = 8 << 20
# Row groups with more bytes of the columns that are decoded first are read by batches of all columns.
_FIRST_BYTES = 64 << 20
# If at most one row in so many matches, single pages are looked at.
_MAX_ITEMS = 8
_ROW = "\0row"


@dataclass(frozen=True)
class FilteredRows:
    """The rows of a base file that fulfil the condition of `predicate` (for Arrow: `condition`). `first` are the
    columns in the condition, `rest` the other columns."""

    reader: SliceReader
    file_slice: FileSlice
    base: BaseFile
    predicate: Predicate
    condition: pc.Expression
    first: TableColumns
    rest: TableColumns
    page_checksums: bool = True

    @property
    def pays(self) -> bool:
        """Whether reading the filtered columns first saves work for this file."""
        if not self.first.stored or (is_remote(self.reader.storage) and self.base.size < _REMOTE_BYTES):
            return False
        footer, names = self._footer.footer, frozenset(self.first.stored)
        if footer.rows < _MIN_ROWS or names.isdisjoint(footer.schema.names):
            return False
        groups = (footer.metadata.row_group(number) for number in range(footer.row_groups))
        chunks = ([group.column(n) for n in range(group.num_columns)] for group in groups)
        sizes = (sum(c.total_uncompressed_size for c in g if c.path_in_schema.split(".")[0] in names) for g in chunks)
        return max(sizes, default=0) <= _FIRST_BYTES

    def batches(self, groups: Sequence[int] | None = None, without: Flags | None = None) -> Iterator[pa.RecordBatch]:
        """The matching rows with all columns, of the row groups `groups` (None: of all), except the flagged rows
        `without`."""
        every = self._matching_groups()
        matching = every if groups is None else [number for number in every if number in groups]
        rows: dict[int, Rows] = {}
        parts: list[pa.RecordBatch] = []
        waiting = 0
        for number, row_numbers, part in self._matches(matching, without):
            rows[number] = row_numbers
            parts += part
            waiting += len(row_numbers)
            if waiting >= BATCH_ROWS:
                yield from self._joined(rows, parts)
                rows, parts, waiting = {}, [], 0
        if waiting:
            yield from self._joined(rows, parts)

    def positions(self) -> Rows:
        """The positions in the file of the matching rows, in ascending order."""
        starts = self._footer.footer.group_starts
        matches = self._matches(self._matching_groups(), None)
        return np.concatenate([np.empty(0, np.int64), *(rows + starts[number] for number, rows, _ in matches)])

    @once
    def _footer(self) -> KeyFooter:
        return FOOTERS.read(self.reader.storage, self.base.path, self.base.size)

    def _matching_groups(self) -> list[int]:
        """The row groups that may have matching rows, by the footer's statistics."""
        footer = self._footer.footer
        exact = has_exact_ranges(self.base.write_token)
        bounds = {
            (source.name,): bounds_of_groups(footer, source.stored, exact=exact)
            for source in self.first.sources
            if source.stored is not None
            and source.stored in footer.schema.names
            and footer.schema.field(source.stored).type == self.first.schema.field(source.name).type
        }
        bounds_by_path: Mapping[Path, Bounds] = {path: b for path, b in bounds.items() if b is not None}
        return np.flatnonzero(may_match(self.predicate.root, bounds_by_path, footer.row_groups)).tolist()

    def _matches(
        self, groups: Sequence[int], without: Flags | None
    ) -> Iterator[tuple[int, Rows, list[pa.RecordBatch]]]:
        """For each row group with matching rows, its number, the positions of these rows in the group, and the rows as
        batches with the columns `self.first`. Rows with a flag in `without` are left out."""
        starts = self._footer.footer.group_starts
        batches = self._read(self.first, groups)
        for number in groups:
            row_numbers: list[Rows] = []
            parts: list[pa.RecordBatch] = []
            at, count = 0, starts[number + 1] - starts[number]
            while at < count:
                rows = self.first.of(next(batches), self.file_slice.partition)
                numbered = rows.append_column(_ROW, pa.array(np.arange(at, at + rows.num_rows)))
                part = matching_rows(numbered, self.condition)
                if without is not None:
                    start = starts[number] + at
                    stays = ~without[start : start + rows.num_rows][as_numpy(part.column(_ROW)) - at]
                    part = part.filter(pa.array(stays))
                if part.num_rows:
                    row_numbers.append(as_numpy(part.column(_ROW)))
                    parts.append(part)
                at += rows.num_rows
            if parts:
                yield number, np.concatenate(row_numbers), parts

    def _joined(self, rows: Mapping[int, Rows], parts: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The matching rows with all columns."""
        first = pa.Table.from_batches(parts).drop_columns([_ROW]).combine_chunks()
        at = 0
        for batch in self._rest_of(rows):
            others = self.rest.of(batch, self.file_slice.partition)
            columns = [column.combine_chunks() for column in first.slice(at, others.num_rows).columns]
            at += others.num_rows
            names = [*first.schema.names, *others.schema.names]
            yield pa.RecordBatch.from_arrays([*columns, *others.columns], names=names)

    def _rest_of(self, rows: Mapping[int, Rows]) -> Iterator[pa.RecordBatch]:
        """The stored columns of `rest` of rows, by row groups and their numbers in these."""
        metadata = self._footer.metadata
        count = sum(map(len, rows.values()))
        known_names = frozenset(self._footer.footer.schema.names)
        stored = [name for name in self.rest.stored if name in known_names]
        if not stored:
            yield pa.RecordBatch.from_struct_array(pa.nulls(count, pa.struct([])))
            return
        if count * _MAX_ITEMS <= sum(metadata.row_group(number).num_rows for number in rows):
            storage, base = self.reader.storage, self.base
            with naming_damage(base.path), open_base_file(storage, base.path, base.size) as source:
                file = row_reader(source, self._footer.footer)
                by_page = rows_by_pages(storage, base, self._footer, file, rows, stored)
            if by_page is not None:
                yield from by_page
                return
        for number, row_numbers in rows.items():
            at = 0
            for batch in self._read(self.rest, [number]):
                start, end = np.searchsorted(row_numbers, [at, at + batch.num_rows]).tolist()
                if end - start == batch.num_rows:
                    yield batch
                elif end > start:
                    yield batch.take(pa.array(row_numbers[start:end] - at))
                at += batch.num_rows
                if end == len(row_numbers):
                    break

    def _read(self, columns: TableColumns, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        footer = self._footer.footer
        return self.reader.read(
            self.file_slice, columns.stored, row_groups=groups, footer=footer, page_checksums=self.page_checksums
        )


def bounds_of_groups(footer: Footer, column: str, *, exact: bool) -> Bounds | None:
    """The bounds of a column in each row group, from the statistics of a base file; None for a type whose statistics
    are not reliable. `exact` is whether the file's writer has correct ranges for columns with NaN."""
    kind = footer.schema.field(column).type
    is_whole = pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_date32(kind)
    is_time = pt.is_timestamp(kind) and kind.unit != "ns"
    if not (is_whole or is_time or pt.is_string(kind) or (pt.is_floating(kind) and exact)):
        return None
    chunks = column_chunks(footer.metadata, column)
    if len(chunks) != footer.row_groups or any(chunk.physical_type == "INT96" for chunk in chunks):
        return None
    statistics = [chunk.statistics for chunk in chunks]
    rows = np.diff(footer.group_starts).tolist()
    nulls = [s.null_count if s is not None and s.has_null_count else None for s in statistics]
    try:
        spans = [(s.min, s.max) if s is not None and s.has_min_max else (None, None) for s in statistics]
        least, greatest = (pa.array([span[side] for span in spans], kind) for side in (0, 1))
    except (OverflowError, ValueError, pa.ArrowException):  # dates beyond Python's
        return None
    may_hold = [null is None or null < count for null, count in zip(nulls, rows, strict=True)]
    may_null = [null != 0 for null in nulls]
    return Bounds(least, with_nan(least, greatest), np.array(may_hold, np.bool_), np.array(may_null, np.bool_))
