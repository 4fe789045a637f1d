"""What expression indexes say of base and log files: ranges of the function's results, or bloom filters over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.format.base_file import read_base_file
from lakebed.format.bloom import BloomFilter
from lakebed.format.data_block import read_log_rows
from lakebed.format.file_names import parse_log_file
from lakebed.metadata.keys import column_stats_keys, file_keys
from lakebed.metadata.kinds import bloom_filters, stats_records
from lakebed.metadata.kinds.expression_indexes import ExpressionIndex, new_filter
from lakebed.metadata.kinds.stats_records import stats_schema
from lakebed.metadata.kinds.updates import without_nan
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm
from lakebed.model import path_in
from lakebed.schema.conversion import cast_column
from lakebed.storage.base import Storage


@dataclass(frozen=True, slots=True)
class FileResults:
    """One index over one file: rows with a result and without, and the range or the filter of the results."""

    partition: str
    name: str
    size: int
    values: int
    nulls: int
    low: pa.Scalar
    high: pa.Scalar
    bloom: BloomFilter | None = None


def results_of_file(
    storage: Storage,
    file: tuple[str, str, int],
    indexes: Sequence[ExpressionIndex],
    schema: pa.Schema,
) -> dict[str, FileResults]:
    """The results of each index over a base or log file (partition path, name, size), whose columns are read once, as
    those of `schema`. Left out: an index whose results are not known to be Spark's, and one over a file without rows.

    Raises `CorruptFile`.
    """
    partition, name, size = file
    path = path_in(partition, name)
    collected = [_Collected(index) for index in indexes]
    for batch in _rows(storage, path, size, sorted({index.column for index in indexes})):
        for one in collected:
            one.see(_column(batch, one.index.column, schema))
    found = {one.index.partition: one.results(file) for one in collected}
    return {index: results for index, results in found.items() if results is not None}


def result_texts(
    storage: Storage, file: tuple[str, str, int], index: ExpressionIndex, schema: pa.Schema
) -> Iterator[pa.Array]:
    """The results over a base file as bloom filters take them, batch by batch; unknown ones are left out."""
    partition, name, size = file
    path = path_in(partition, name)
    for batch in _rows(storage, path, size, [index.column]):
        found = index.function.apply(_column(batch, index.column, schema))
        if found is not None:
            yield _texts(found)


def _rows(storage: Storage, path: str, size: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of a base or log file."""
    if parse_log_file("", path.rpartition("/")[2], 0) is not None:
        return read_log_rows(storage, path, size, columns)
    return read_base_file(storage, path, size, columns)


def stats_of_results(index: ExpressionIndex, results: Sequence[FileResults]) -> pa.Table:
    """A stats table as Hudi 1.2 fills it: values are those that are not null, sizes the file's and twice the file's."""
    kind = index.function.result
    keys = column_stats_keys(index.column, file_keys([r.partition for r in results], [r.name for r in results]))
    columns: Mapping[str, Any] = {
        "key": keys,
        "file_name": pa.array([r.name for r in results], pa.string()),
        "min": _scalars([r.low for r in results], kind),
        "max": _scalars([r.high for r in results], kind),
        "null_count": pa.array([r.nulls for r in results], pa.int64()),
        "value_count": pa.array([r.values for r in results], pa.int64()),
        "total_size": pa.array([r.size for r in results], pa.int64()),
        "total_uncompressed": pa.array([2 * r.size for r in results], pa.int64()),
        "is_deleted": pa.repeat(pa.scalar(False), len(results)),
        "is_tight": pa.repeat(pa.scalar(False), len(results)),
    }
    made = stats_schema(kind)
    return without_nan(pa.Table.from_arrays([columns[name] for name in made.names], schema=made))


def stats_records_of(index: ExpressionIndex, stats: pa.Table, form: RecordForm) -> Records:
    """The records of a stats table of files."""
    version = index.definition.version
    return Records.upserts(*stats_records.encode({index.column: stats}, form, index_version=version))


def filter_records_of(results: Sequence[FileResults], instant: str, form: RecordForm) -> Records:
    """The records of files' filters."""
    having = [(r, r.bloom) for r in results if r.bloom is not None]
    columns = [
        file_keys([r.partition for r, _ in having], [r.name for r, _ in having]),
        pa.array([bloom.type_code for _, bloom in having], pa.string()),
        pa.repeat(pa.scalar(instant), len(having)),
        pa.array([bloom.to_text().encode() for _, bloom in having], pa.binary()),
        pa.repeat(pa.scalar(False), len(having)),
    ]
    return Records.upserts(*bloom_filters.encode(pa.Table.from_arrays(columns, schema=bloom_filters.SCHEMA), form))


@dataclass
class _Collected:
    """The results of one index, batch by batch."""

    index: ExpressionIndex
    is_known: bool = True
    values: int = 0
    nulls: int = 0
    bounds: list[pa.Scalar] = field(default_factory=list[pa.Scalar])
    bloom: BloomFilter | None = None

    def see(self, values: pa.Array) -> None:
        found = self.index.function.apply(values) if self.is_known else None
        if found is None:
            self.is_known = False
            return
        self.values += len(found) - found.null_count
        self.nulls += found.null_count
        if self.index.has_filters:
            self.bloom = self.bloom or new_filter(self.index.definition)
            self.bloom.add(_texts(found))
            return
        extremes = pc.min_max(found)
        if extremes["min"].is_valid:
            self.bounds += [extremes["min"], extremes["max"]]

    def results(self, file: tuple[str, str, int]) -> FileResults | None:
        if not self.is_known or not self.values + self.nulls:
            return None
        extremes = pc.min_max(_scalars(self.bounds, self.index.function.result))
        return FileResults(*file, self.values, self.nulls, extremes["min"], extremes["max"], self.bloom)


def _column(batch: pa.RecordBatch, name: str, schema: pa.Schema) -> pa.Array:
    """The column in its type of today; nulls where the file is older than the column."""
    kind = schema.field(name).type
    at = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows, kind) if at < 0 else cast_column(batch.column(at), kind)


def _texts(found: pa.Array) -> pa.Array:
    return found if pt.is_string(found.type) else found.cast(pa.string())


def _scalars(values: Sequence[pa.Scalar], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays([pa.array([], kind), *(pa.repeat(value, 1) for value in values)])


def by_index(found: Sequence[Mapping[str, FileResults]]) -> Iterator[tuple[str, list[FileResults]]]:
    """The results of several files, by index."""
    names = dict.fromkeys(name for one in found for name in one)
    for name in names:
        yield name, [one[name] for one in found if name in one]
