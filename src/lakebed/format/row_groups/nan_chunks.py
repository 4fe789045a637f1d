"""Column chunks that hold NaN: they have no min and max, as parquet-mr writes them.

Arrow leaves NaN out of the min and max of a chunk. Readers for which NaN is the greatest number, such as Spark and
DuckDB, take these bounds for those of all values and skip rows that match.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.format.file_names import has_exact_ranges, parse_base_file
from lakebed.format.parquet_encodings import leaves
from lakebed.format.row_groups.chunks import (
    LIST,
    STRUCT,
    Field,
    read_list,
    read_struct,
    write_list,
    write_struct,
)
from lakebed.schema.arrow import leaf_paths

# Fields by their numbers in parquet.thrift: of the footer, a row group, a chunk, its entry, its statistics.
_ROW_GROUPS, _COLUMNS, _META_DATA, _STATISTICS = 4, 1, 3, 12
# max, min, max_value, min_value, is_max_value_exact, is_min_value_exact
_BOUNDS: Final = frozenset({1, 2, 5, 6, 7, 8})
# Writers whose chunks with NaN have no min and max.
_EXACT_WRITERS: Final = "parquet-mr version 1.1"


def leaves_out_bounds(path: str, created_by: str | None) -> bool:
    """Whether chunks with NaN have no min and max in a base file, by the file's name and its writer."""
    file = parse_base_file("", path.rpartition("/")[2], 0)
    by_name = file is not None and has_exact_ranges(file.write_token)
    return by_name or (created_by or "").startswith(_EXACT_WRITERS)


def floating_leaves(schema: pa.Schema) -> dict[str, dict[str, list[int]]]:
    """The numbers of the floating leaves of each column that can hold NaN in a file, by their paths.

    >>> floating_leaves(pa.schema([("id", pa.int64()), ("fare", pa.float64())]))
    {'fare': {'fare': [1]}}
    """
    floating: dict[str, dict[str, list[int]]] = {}
    number = 0
    for field in schema:
        for path, kind in leaf_paths([field]):
            if pt.is_floating(kind):
                floating.setdefault(field.name, {}).setdefault(path, []).append(number)
            number += 1
    return floating


class NanChunks:
    """A search for the chunks that contain NaN in a file with these `floating_leaves`, row group by row group."""

    def __init__(self, leaves: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        self._leaves = leaves
        self._groups = 0
        self._chunks: dict[int, set[int]] = {}

    def add(self, *parts: pa.Table) -> None:
        """Inspect the next row group: its columns, or at least those that may contain NaN although they have a min and
        max."""
        for part in parts:
            for name, paths in self._leaves.items():
                at = part.schema.get_field_index(name)
                if at >= 0:
                    self._see(name, part.column(at), paths)
        self._groups += 1

    def _see(self, name: str, column: pa.ChunkedArray, paths: Mapping[str, Collection[int]]) -> None:
        for chunk in column.chunks:
            for path, values in leaves(name, chunk):
                if path in paths and holds_nan(values):
                    self._chunks.setdefault(self._groups, set()).update(paths[path])

    def doubtful(self, group: Any, columns: Collection[str]) -> list[str]:
        """The columns of a stored row group (given as Parquet's metadata) that may contain NaN although they have a min
        and max, since its writer ignores NaN in both."""
        return [
            name
            for name, paths in self._leaves.items()
            if name in columns and any(_has_bounds(group.column(n)) for numbers in paths.values() for n in numbers)
        ]

    def without_bounds(self, footer: bytes) -> bytes:
        """The footer of the file without the min and max of the chunks that contain NaN."""
        return without_bounds(footer, self._chunks) if self._chunks else footer

    @property
    def found(self) -> bool:
        """Whether any chunk that `add` or `doubtful` saw holds NaN under a min and max."""
        return bool(self._chunks)


def holds_nan(values: pa.Array) -> bool:
    """Whether there is a NaN among floating-point numbers; for a dictionary array true also if no row has the NaN."""
    if pt.is_dictionary(values.type):
        values = values.dictionary
    return pc.any(pc.is_nan(values)).as_py() is True


def without_bounds(footer: bytes, which: Mapping[int, Collection[int]]) -> bytes:
    """The footer without the min and max of some chunks: `which` has the numbers of row groups, and for each the
    numbers of the leaves. Counts of nulls are retained."""
    fields, _ = read_struct(footer)
    at = next(n for n, field in enumerate(fields) if field.number == _ROW_GROUPS)
    _, groups = read_list(fields[at].value)
    for number, leaf_numbers in which.items():
        groups[number] = _group_without(groups[number], leaf_numbers)
    fields[at] = Field(_ROW_GROUPS, LIST, write_list(STRUCT, groups))
    return write_struct(fields)


def _group_without(group: bytes, leaf_numbers: Collection[int]) -> bytes:
    fields, _ = read_struct(group)
    at = next(n for n, field in enumerate(fields) if field.number == _COLUMNS)
    _, chunks = read_list(fields[at].value)
    for number in leaf_numbers:
        chunks[number] = _changed(chunks[number], (_META_DATA, _STATISTICS))
    fields[at] = Field(_COLUMNS, LIST, write_list(STRUCT, chunks))
    return write_struct(fields)


def _changed(struct: bytes, path: Sequence[int]) -> bytes:
    """The struct without the bounds in the inner struct at this path of fields."""
    fields, _ = read_struct(struct)
    if not path:
        return write_struct([field for field in fields if field.number not in _BOUNDS])
    return write_struct([f._replace(value=_changed(f.value, path[1:])) if f.number == path[0] else f for f in fields])


def _has_bounds(chunk: Any) -> bool:
    return chunk.is_stats_set and chunk.statistics is not None and chunk.statistics.has_min_max
