"""The facts about a base file in a list of another format: rows, partition values and statistics, from the file's
footer.

Statistics come from footers, not from the metadata table, where those of real Hudi are wrong for some values
(`read/statistics.py`). A footer also has the file's own types and partition values, and one read gives all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import UnsupportedFeature
from lakebed.expressions.key_text import value_of_key_text
from lakebed.format.base_file import Footer, format_name, read_footer
from lakebed.model import BaseFile
from lakebed.properties.table_config import TableConfig
from lakebed.schema.logical_types import is_vector
from lakebed.schema.plain_arrow import is_list
from lakebed.slices.schema_history import SchemaHistory
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map

MAX_TEXT = 256
"""A column with longer least or greatest texts is published without its range."""
# Key generators whose partition paths have the values of the fields themselves.
_PLAIN = ("SIMPLE", "COMPLEX", "GLOBAL_DELETE")


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """The number of nulls and the least and greatest value of one column in a file. None is unknown; a column with only
    nulls has no values."""

    nulls: int | None = None
    low: Any = None
    high: Any = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A base file in the form in which lists of other formats name it. `partition` has the values of the partition
    columns, `columns` the statistics of top-level columns, `types` the types that the file stores."""

    base: BaseFile
    rows: int
    partition: Mapping[str, Any]
    columns: Mapping[str, ColumnStats]
    types: pa.Schema


def partition_columns(config: TableConfig, schema: pa.Schema) -> tuple[str, ...]:
    """The partition columns of the published table: partition fields whose values are unchanged in the path, with types
    that every format can express. Other partition fields are published as plain columns, since their values are in the
    files.

    Raises `UnsupportedFeature` if such other values are only in the paths, in a changed form.
    """
    fields = config.partition_fields
    kinds = config.partition_types or (config.key_generator,) * len(fields)
    plain = [
        name
        for name, kind in zip(fields, kinds, strict=False)
        if name in schema.names and kind.upper() in _PLAIN and _can_name(schema.field(name).type)
    ]
    if config.drop_partition_columns and len(plain) < len(fields):
        hidden_column = next(name for name in fields if name not in plain)
        raise UnsupportedFeature(
            f"partition column {hidden_column} is stored in partition paths only, and not as a plain value",
            hint="A table that keeps its partition columns in its files can be published.",
            context={"column": hidden_column},
        )
    return tuple(plain)


def read_data_files(
    storage: Storage, config: TableConfig, files: Sequence[BaseFile], schema: pa.Schema
) -> list[DataFile]:
    """Read the footers of base files of a table with this schema, side by side.

    Raises `UnsupportedFeature` for a file that is not Parquet, and for one whose rows are in a file outside of the
    table."""
    named = partition_columns(config, schema)

    def read(base: BaseFile) -> DataFile:
        if not base.is_parquet:
            raise UnsupportedFeature(
                f"{base.path} is not a Parquet file, and readers of published lists read Parquet alone",
                hint="Write the rows to a new table with Parquet base files, and publish that.",
                context={"path": base.path, "format": format_name(base.path)},
            )
        if base.is_skeleton:
            raise UnsupportedFeature(
                f"the columns of {base.path} are in a file outside of the table, which no list can name with it",
                hint="Rewrite the files with t.maintenance.cluster(), then publish again.",
                context={"path": base.path},
            )
        footer = read_footer(storage, base.path, base.size or None)
        columns = _column_stats(footer, schema)
        partition = {name: _value(config, base, name, schema, columns.get(name), footer.rows) for name in named}
        return DataFile(base, footer.rows, partition, columns, footer.schema)

    return parallel_map(read, files)


def read_data_file(storage: Storage, base: BaseFile, schema: pa.Schema, partition: Mapping[str, Any]) -> DataFile:
    """Read the footer of a file whose rows all have these values in the partition columns."""
    footer = read_footer(storage, base.path, base.size or None)
    return DataFile(base, footer.rows, partition, _column_stats(footer, schema), footer.schema)


def check_types(
    files: Iterable[DataFile], schema: pa.Schema, history: SchemaHistory | None, widening: Sequence[tuple[str, str]]
) -> None:
    """Raise `UnsupportedFeature` if readers by name would read a column of a file wrongly: another column had its name,
    the column had another name, or readers do not widen its type."""
    for file in files:
        renaming = history.renaming(file.base.instant) if history is not None else None
        stored = {name.lower(): name for name in file.types.names}
        for field in schema:
            in_file = field.name if renaming is None else renaming.stored.get(field.name)
            by_name = stored.get(field.name.lower())
            if renaming is not None and (in_file or "").lower() != field.name.lower() and (in_file or by_name):
                difference = f"is column {in_file} in" if in_file else "is not the column of that name in"
                raise _refused(field.name, f"{difference} {file.base.path}", file)
            if by_name is None:
                continue
            was, now = _type_text(file.types.field(by_name).type), _type_text(field.type)
            if was != now and (was, now) not in widening:
                raise _refused(field.name, f"has type {now}, and {was} in {file.base.path}", file)


def _refused(column: str, problem: str, file: DataFile) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"column {column} {problem}: readers of a published table go by the names and types of the files",
        hint="Rewrite older files with t.maintenance.cluster(), then publish again.",
        context={"column": column, "path": file.base.path},
    )


def _type_text(kind: pa.DataType) -> str:
    """A type as text for comparisons; names of list items and nullability are left out."""
    if is_vector(kind):
        return "binary"
    if is_list(kind):
        return f"list<{_type_text(kind.value_type)}>"
    if pt.is_map(kind):
        return f"map<{_type_text(kind.key_type)}, {_type_text(kind.item_type)}>"
    if pt.is_struct(kind):
        return f"struct<{', '.join(f'{f.name}: {_type_text(f.type)}' for f in kind)}>"
    if pt.is_timestamp(kind):
        return f"timestamp[{kind.unit}{', UTC' if kind.tz else ''}]"
    if pt.is_fixed_size_binary(kind):
        return "binary"
    return str(kind)


def _can_name(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_date32(kind)


def _column_stats(footer: Footer, schema: pa.Schema) -> dict[str, ColumnStats]:
    """The statistics of top-level columns. Floating-point columns have no range: footers leave out NaN, which some
    readers treat as the greatest number."""
    metadata = footer.metadata
    positions = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
    groups = [metadata.row_group(n) for n in range(footer.row_groups)]
    stats: dict[str, ColumnStats] = {}
    for field in schema:
        position = positions.get(field.name)
        if position is None:
            continue
        kind = footer.schema.field(field.name).type
        has_range = kind == field.type and (_can_name(kind) or pt.is_timestamp(kind) or pt.is_decimal(kind))
        stats[field.name] = _stats_of([group.column(position) for group in groups], has_range=has_range)
    return stats


def _stats_of(chunks: Sequence[Any], *, has_range: bool) -> ColumnStats:
    """The statistics of a column from those of its chunks; a value that one chunk does not have is unknown."""
    nulls = 0
    lows: list[Any] = []
    highs: list[Any] = []
    for chunk in chunks:
        stats = chunk.statistics
        if stats is None or not stats.has_null_count:
            return ColumnStats()
        nulls += stats.null_count
        if stats.null_count == chunk.num_values:
            continue
        if not has_range or not stats.has_min_max:
            has_range = False
            continue
        lows.append(stats.min)
        highs.append(stats.max)
        if isinstance(stats.max, str) and max(len(stats.min), len(stats.max)) > MAX_TEXT:
            has_range = False
    return ColumnStats(nulls, min(lows), max(highs)) if has_range and lows else ColumnStats(nulls)


def _value(
    config: TableConfig, base: BaseFile, column: str, schema: pa.Schema, stats: ColumnStats | None, rows: int
) -> Any:
    """The value of a partition column that all rows of a file have: from the statistics, or from the path if the file
    does not store the column or has no statistics of it."""
    if stats is not None and stats.nulls == rows:
        return None
    if stats is not None and stats.nulls == 0 and stats.low is not None:
        if stats.low == stats.high:
            return stats.low
        raise _several(base, column)
    if stats is not None and stats.nulls:
        raise _several(base, column)
    text = config.keys.partition_values(base.partition).get(column)
    return value_of_key_text(text, schema.field(column).type)


def _several(base: BaseFile, column: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{base.path} has several values of partition column {column}",
        hint="The partition path does not follow from the column alone (an empty text and null have the same path), and"
        " lists of other formats name one value a file.",
        context={"path": base.path, "column": column},
    )
