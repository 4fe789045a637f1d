"""Reads file slices: all rows, some columns, or the number of rows. Everything that needs stored rows reads here.

A slice without log files is its base file. Slices with log files are refused, in this module alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from lakebed.config.features import TableFacts, check_read
from lakebed.format.base_file import Footer, read_base_file, read_footer
from lakebed.model import BaseFile, FileSlice
from lakebed.storage.base import Storage
from lakebed.timeline.table_config import TableConfig

Query = Literal["snapshot", "read_optimized"]

BATCH_ROWS = 65_536


def readable_slices(config: TableConfig, slices: Iterable[FileSlice], query: Query = "snapshot") -> list[FileSlice]:
    """The slices as a query reads them: a read-optimized one, and any of a copy-on-write table, from base files only.

    Raises `UnsupportedFeature` for a table or log files that the query cannot read right.
    """
    found = list(slices)
    check_read(config.properties, TableFacts(log_files=any(s.log_files for s in found)), query)
    if query == "read_optimized" or config.table_type == "cow":
        return base_files_only(found)
    return found


def base_files_only(slices: Iterable[FileSlice]) -> list[FileSlice]:
    """The slices without their log files; those that have no base file are left out."""
    return [s.without_logs() for s in slices if s.base_file is not None]


@dataclass(frozen=True, slots=True)
class SliceReader:
    """Reads the file slices of one table. It can be sent to tasks: a storage pickles as what opens it."""

    storage: Storage
    config: TableConfig

    def base_file(self, file_slice: FileSlice) -> BaseFile | None:
        """The base file that alone holds the slice's rows; None for a slice without rows.

        Raises `UnsupportedFeature` where log files have to be merged.
        """
        if file_slice.log_files:
            readable_slices(self.config, [file_slice])
        return file_slice.base_file

    def read(
        self,
        file_slice: FileSlice,
        columns: Sequence[str] | None = None,
        *,
        batch_rows: int = BATCH_ROWS,
        dictionary: Sequence[str] = (),
        row_groups: Sequence[int] | None = None,
        footer: Footer | None = None,
        page_checksums: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The rows by batches in the order and with the types of the file; memory is bounded by a batch or two.

        `columns` None gives all; those that the slice lacks are left out. The options are those of `read_base_file`.
        """
        base = self.base_file(file_slice)
        if base is None:
            return
        yield from read_base_file(
            self.storage,
            base.path,
            base.size or None,  # not known where a write stat alone names the file
            columns,
            batch_rows=batch_rows,
            dictionary=dictionary,
            row_groups=row_groups,
            footer=footer,
            page_checksums=page_checksums,
        )

    def count(self, file_slice: FileSlice) -> int:
        """The number of rows; only the footer is read."""
        base = self.base_file(file_slice)
        return 0 if base is None else read_footer(self.storage, base.path, base.size).rows
