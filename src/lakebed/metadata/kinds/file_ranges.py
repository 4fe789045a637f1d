"""Ranges of a file that is there already: from its footer where that can be trusted, from its rows where not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.format.base_file import read_base_file, read_footer
from lakebed.format.column_ranges import COUNTS, ColumnRanges
from lakebed.format.data_block import open_data_block
from lakebed.format.log_file import BlockType, scan_blocks
from lakebed.format.parquet_encodings import leaves
from lakebed.format.row_groups.nan_chunks import leaves_out_bounds
from lakebed.format.sources import FileSource
from lakebed.schema.arrow import leaf_paths
from lakebed.schema.conversion import cast_column
from lakebed.storage.base import Storage

DATA_BLOCKS = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA)


def ranges_of_file(storage: Storage, path: str, size: int, kinds: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    """A row as of `ColumnRanges`, for the columns (Parquet paths) of `kinds` that the file has, in those types.

    Rows are read for floating columns whose footer says nothing reliable of NaN, for columns stored in another type,
    and for those of which a row group has no statistics; the others cost the footer only. Raises `CorruptFile`.
    """
    footer = read_footer(storage, path, size)
    stored = dict(leaf_paths(footer.schema))
    present = {column: kind for column, kind in kinds.items() if column in stored}
    footer_ranges = ColumnRanges(footer.schema, list(present)).row(footer.metadata)
    exact = leaves_out_bounds(path, footer.metadata.created_by)
    read = [
        column
        for column, kind in present.items()
        if not _is_known(footer_ranges, column, stored[column], kind, exact=exact)
    ]
    counted = _Extremes({column: present[column] for column in read})
    if read:
        known_names = frozenset(footer.schema.names)
        tops = sorted({column if column in known_names else column.split(".")[0] for column in read})
        for batch in read_base_file(storage, path, size, tops):
            counted.see(batch)
    rows = {
        c: counted.row(c, footer_ranges) if c in read else footer_ranges.column(c)
        for c in present
        if c in footer_ranges.schema.names
    }
    return pa.RecordBatch.from_arrays(list(rows.values()), names=list(rows))


def ranges_of_log(storage: Storage, path: str, size: int, kinds: Mapping[str, pa.DataType]) -> pa.RecordBatch | None:
    """The same of the records in a log file's data blocks; None where it has none. Columns that a block lacks are left
    out. Raises `CorruptFile`."""
    counted = _Extremes(kinds)
    everywhere = set(kinds)
    rows = 0
    for head in scan_blocks(FileSource(storage, path, size)):
        if head.type not in DATA_BLOCKS:
            continue
        block = open_data_block(head, path)
        stored = dict(leaf_paths(block.schema))
        everywhere &= stored.keys()
        known_names = frozenset(block.schema.names)
        tops = {column if column in known_names else column.split(".")[0] for column in everywhere}
        counted.see(block.read(sorted(tops)))
        rows += block.rows
    if not rows:
        return None
    present = [column for column in kinds if column in everywhere]
    return pa.RecordBatch.from_arrays([counted.row(column) for column in present], names=present)


def unknown_ranges(kinds: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    """A row for a file of which no range is known: there may be values, and nulls."""
    columns: list[pa.StructArray] = []
    for kind in kinds.values():
        fields = {side: pa.nulls(1, kind) for side in ("min", "max")}
        fields |= {name: pa.array([UNKNOWN_COUNTS[name]], pa.int64()) for name in COUNTS}
        columns.append(pa.StructArray.from_arrays(list(fields.values()), names=list(fields)))
    return pa.RecordBatch.from_arrays(columns, names=list(kinds))


def _is_known(
    footer_ranges: pa.RecordBatch, column: str, stored: pa.DataType, kind: pa.DataType, *, exact: bool
) -> bool:
    if (pt.is_floating(stored) and not exact) or stored != kind or column not in footer_ranges.schema.names:
        return False
    row = footer_ranges.column(column)[0].as_py()
    if row["null_count"] is None:
        return False
    return row["null_count"] == row["value_count"] or None not in (row["min"], row["max"])


# Of these some are null, and some are not.
UNKNOWN_COUNTS = {"value_count": 2, "null_count": 1, "total_size": 0, "total_uncompressed": 0}


class _Extremes:
    """Smallest and greatest value of columns, batch by batch; NaN is the greatest."""

    def __init__(self, kinds: Mapping[str, pa.DataType]) -> None:
        self._kinds = kinds
        self._found: dict[str, list[Any]] = {column: [] for column in kinds}
        self._nan: set[str] = set()
        self._nulls = dict.fromkeys(kinds, 0)
        self._values = dict.fromkeys(kinds, 0)

    def see(self, batch: pa.RecordBatch) -> None:
        for top in batch.schema.names:
            for path, values in leaves(top, batch.column(top)):
                if path in self._kinds:
                    self._add(path, cast_column(values, self._kinds[path]))

    def _add(self, path: str, values: pa.Array) -> None:
        self._nulls[path] += values.null_count
        self._values[path] += len(values)
        if pt.is_floating(values.type):
            isnan = pc.fill_null(pc.is_nan(values), False)
            if pc.any(isnan).as_py():
                self._nan.add(path)
                values = values.filter(pc.invert(isnan))
        extremes = pc.min_max(values)
        if extremes["min"].is_valid:
            self._found[path] += [extremes["min"].as_py(), extremes["max"].as_py()]

    def row(self, path: str, footer_ranges: pa.RecordBatch | None = None) -> pa.StructArray:
        """The column's struct, with the footer's counts where there is one."""
        kind = self._kinds[path]
        extremes = pc.min_max(pa.array(self._found[path], kind))
        low, high = extremes["min"], extremes["max"]
        if path in self._nan:
            high = pa.scalar(float("nan"), kind)
            low = low if low.is_valid else high
        fields = {"min": pa.repeat(low, 1), "max": pa.repeat(high, 1)}
        if footer_ranges is None:
            counts = {"value_count": self._values[path]}
            fields |= {name: pa.array([counts.get(name, 0)], pa.int64()) for name in COUNTS}
        else:
            fields |= {name: footer_ranges.column(path).field(name) for name in COUNTS}
        fields["null_count"] = pa.array([self._nulls[path]], pa.int64())
        return pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
