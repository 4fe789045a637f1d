"""Expression indexes by their definitions, and their records: ranges of a function's results in files, or bloom
filters.

The time zone of the results matters, and Hudi records it nowhere: it uses the zone of the session that writes. For
indexes that lakebed built and wrote, a table property records the zone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.engine.base import Engine, each
from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from lakebed.expressions.index_functions import EXPRESSION, IDENTITY, IndexFunction, index_function
from lakebed.format.base_file import read_base_file
from lakebed.format.bloom import BloomFilter
from lakebed.format.data_block import read_log_rows
from lakebed.format.file_names import parse_log_file
from lakebed.format.text import parse_properties
from lakebed.metadata_kinds import bloom_filters
from lakebed.metadata_kinds.stats_values import combined_partition_stats, without_nan
from lakebed.metadata_kinds.stored import live_files
from lakebed.metadata_records import stats_codec
from lakebed.metadata_records.definitions import IndexDefinition
from lakebed.metadata_records.layout import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION_INDEX,
    METADATA_FOLDER,
    column_stats_keys,
    file_keys,
)
from lakebed.metadata_records.records import RecordForm, Records, RecordType, record_form
from lakebed.metadata_records.stats_codec import Stats, stats_schema
from lakebed.model import path_in
from lakebed.schema.column_names import near_or_nothing
from lakebed.schema.conversion import cast_column
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map

Kind = Literal["column_stats", "bloom_filters"]
KINDS: tuple[Kind, ...] = (COLUMN_STATS, BLOOM_FILTERS)
# Hudi 1.2 fails on the next write to a table of version 8 that has one, and before that there were none.
FIRST_VERSION = 9
_BLOOM_OPTIONS = ("filtertype", "numentries", "fpp", "maxentries")
_FILTER_TYPES = ("SIMPLE", "DYNAMIC_V0")


@dataclass(frozen=True)
class ExpressionIndex:
    """An expression index that lakebed maintains: its definition, and the function over its column."""

    definition: IndexDefinition
    function: IndexFunction

    @classmethod
    def of(cls, definition: IndexDefinition, schema: pa.Schema) -> ExpressionIndex:
        """The index over a column of this schema. Raises `UnsupportedFeature` or `InvalidOption` for an index that
        lakebed cannot maintain."""
        if definition.type not in KINDS:
            raise UnsupportedFeature(
                f"an expression index of kind {definition.type!r}",
                hint=f"There are {' and '.join(KINDS)}.",
                context={"feature": "expression index", "kind": definition.type},
            )
        column = definition.source_fields[0] if len(definition.source_fields) == 1 else ""
        if column not in schema.names:
            column_name = next(iter(definition.source_fields), "")
            raise UnsupportedFeature(
                f"an expression index on {', '.join(definition.source_fields) or 'no column'}",
                hint=f"{near_or_nothing(column_name, schema.names)}It is on one column of the table:"
                f" {', '.join(schema.names)}.",
                context={"feature": "expression index", "columns": list(definition.source_fields)},
            )
        options = {k: v for k, v in definition.options.items() if not (_is_bloom(definition) and k in _BLOOM_OPTIONS)}
        function = index_function(definition.function or IDENTITY, options, schema.field(column).type)
        if function.name == IDENTITY and not _is_bloom(definition):
            raise InvalidOption(
                f"an expression index of column stats on {column!r} without a function",
                hint="That is what the index 'column_stats' keeps.",
                context={"index": definition.name, "column": column},
            )
        if _is_bloom(definition):
            new_filter(definition)
            if not (pt.is_string(function.result) or pt.is_integer(function.result)):
                raise UnsupportedFeature(
                    f"bloom filters over results of type {function.result} ({function.name} of {column})",
                    hint="They are kept of texts and whole numbers; take kind='column_stats'.",
                    context={"feature": "expression index", "function": function.name, "type": str(function.result)},
                )
        return cls(definition, function)

    @property
    def partition(self) -> str:
        """The index's partition of the metadata table."""
        return self.definition.name

    @property
    def column(self) -> str:
        """The source column of the index."""
        return self.definition.source_fields[0]

    @property
    def has_filters(self) -> bool:
        """Whether the index's records are bloom filters; otherwise they are ranges."""
        return _is_bloom(self.definition)


def expression_partition(name: str) -> str:
    """The partition of the index to which a user gives this name, with or without Hudi's prefix.

    >>> expression_partition("by_day"), expression_partition("expr_index_by_day")
    ('expr_index_by_day', 'expr_index_by_day')
    """
    return EXPRESSION_INDEX + name.removeprefix(EXPRESSION_INDEX)


def expression_index_definition(
    name: str, column: str, function: str, options: Mapping[str, Any], kind: str
) -> IndexDefinition:
    """The definition as Hudi's CREATE INDEX makes it: the function is among the options as well.

    >>> expression_index_definition("d", "at", "date_format", {"format": "yyyy"}, "column_stats").options
    {'expr': 'date_format', 'format': 'yyyy'}
    """
    texts = {EXPRESSION: function, **{key: str(value) for key, value in options.items()}}
    return IndexDefinition(expression_partition(name), kind, function, (column,), texts, version=2)


def maintained_indexes(
    partitions: Collection[str], definitions: Mapping[str, IndexDefinition], schema: pa.Schema
) -> list[ExpressionIndex]:
    """The expression indexes among these partitions, without those that lakebed cannot maintain."""
    names = sorted(p for p in partitions if p.startswith(EXPRESSION_INDEX))
    return [index for name in names if not isinstance(index := _maintained(definitions.get(name), schema), str)]


def reason_not_maintained(definition: IndexDefinition | None, schema: pa.Schema, version: int) -> str | None:
    """The reason why lakebed cannot keep an expression index up to date; None if it can. An empty schema (of a table
    without commits) refuses no index."""
    if version < FIRST_VERSION:
        return f"an expression index of a table of version {version}"
    index_or_reason = _maintained(definition, schema)
    return index_or_reason if isinstance(index_or_reason, str) and len(schema) else None


def new_filter(definition: IndexDefinition) -> BloomFilter:
    """An empty filter by the index's options, with Hudi's defaults for the others. Raises `InvalidOption`."""
    options = definition.options
    kind = options.get("filtertype", "DYNAMIC_V0").upper()
    try:
        entries, fpp = int(options.get("numentries", 60_000)), float(options.get("fpp", 1e-9))
        max_entries = int(options.get("maxentries", 100_000))
        if kind not in _FILTER_TYPES or entries < 1 or max_entries < 1 or not 0 < fpp < 1:
            raise ValueError
    except ValueError:
        raise InvalidOption(
            f"a bloom filter with {', '.join(f'{k}={options[k]!r}' for k in _BLOOM_OPTIONS if k in options)}",
            hint=f"filtertype is one of {', '.join(_FILTER_TYPES)}, numentries and maxentries are counts, fpp a rate.",
        ) from None
    return BloomFilter.simple(entries, fpp) if kind == "SIMPLE" else BloomFilter.dynamic(entries, fpp, max_entries)


def _is_bloom(definition: IndexDefinition) -> bool:
    return definition.type == BLOOM_FILTERS


def _maintained(definition: IndexDefinition | None, schema: pa.Schema) -> ExpressionIndex | str:
    if definition is None:
        return "an expression index without a definition"
    try:
        return ExpressionIndex.of(definition, schema)
    except LakebedError as refusal:
        return refusal.message


@dataclass(frozen=True, slots=True)
class FileResults:
    """The results of one index over one file: the numbers of rows with and without a result, and the range or the
    filter of the results."""

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
    """The results of each index over a base or log file (partition path, name, size), by index name. The columns are
    read once, in the types of `schema`. An index whose results may differ from Spark's is missing, and every index for
    a file without rows.

    Raises `CorruptFile`.
    """
    partition, name, size = file
    path = path_in(partition, name)
    collected = [_Collected(index) for index in indexes]
    for batch in _rows(storage, path, size, sorted({index.column for index in indexes})):
        for collector in collected:
            collector.see(_column(batch, collector.index.column, schema))
    results_by_index = {collector.index.partition: collector.results(file) for collector in collected}
    return {index: results for index, results in results_by_index.items() if results is not None}


def result_texts(
    storage: Storage, file: tuple[str, str, int], index: ExpressionIndex, schema: pa.Schema
) -> Iterator[pa.Array]:
    """The results over a base file in the form that bloom filters store, batch by batch, without unknown results."""
    partition, name, size = file
    path = path_in(partition, name)
    for batch in _rows(storage, path, size, [index.column]):
        results = index.function.apply(_column(batch, index.column, schema))
        if results is not None:
            yield _texts(results)


def _rows(storage: Storage, path: str, size: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a base or log file, with the columns `columns`."""
    if parse_log_file("", path.rpartition("/")[2], 0) is not None:
        return read_log_rows(storage, path, size, columns)
    return read_base_file(storage, path, size, columns)


def stats_of_results(index: ExpressionIndex, results: Sequence[FileResults]) -> pa.Table:
    """A stats table as Hudi 1.2 fills it: value counts are those of non-null values, the sizes are the file's size and
    twice the file's size."""
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
    schema = stats_schema(kind)
    return without_nan(pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema))


def stats_records_of(index: ExpressionIndex, stats: pa.Table, form: RecordForm) -> Records:
    """The records of a stats table of files."""
    version = index.definition.version
    return Records.upserts(*stats_codec.encode({index.column: stats}, form, index_version=version))


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
    """The results of one index so far, collected batch by batch."""

    index: ExpressionIndex
    is_known: bool = True
    values: int = 0
    nulls: int = 0
    bounds: list[pa.Scalar] = field(default_factory=list[pa.Scalar])
    bloom: BloomFilter | None = None

    def see(self, values: pa.Array) -> None:
        results = self.index.function.apply(values) if self.is_known else None
        if results is None:
            self.is_known = False
            return
        self.values += len(results) - results.null_count
        self.nulls += results.null_count
        if self.index.has_filters:
            self.bloom = self.bloom or new_filter(self.index.definition)
            self.bloom.add(_texts(results))
            return
        extremes = pc.min_max(results)
        if extremes["min"].is_valid:
            self.bounds += [extremes["min"], extremes["max"]]

    def results(self, file: tuple[str, str, int]) -> FileResults | None:
        if not self.is_known or not self.values + self.nulls:
            return None
        extremes = pc.min_max(_scalars(self.bounds, self.index.function.result))
        return FileResults(*file, self.values, self.nulls, extremes["min"], extremes["max"], self.bloom)


def _column(batch: pa.RecordBatch, name: str, schema: pa.Schema) -> pa.Array:
    """The column in its present type; nulls if the file is older than the column."""
    kind = schema.field(name).type
    at = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows, kind) if at < 0 else cast_column(batch.column(at), kind)


def _texts(values: pa.Array) -> pa.Array:
    return values if pt.is_string(values.type) else values.cast(pa.string())


def _scalars(values: Sequence[pa.Scalar], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays([pa.array([], kind), *(pa.repeat(value, 1) for value in values)])


def by_index(files: Sequence[Mapping[str, FileResults]]) -> Iterator[tuple[str, list[FileResults]]]:
    """The results of several files, by index."""
    names = dict.fromkeys(name for file_results in files for name in file_results)
    for name in names:
        yield name, [file_results[name] for file_results in files if name in file_results]


# Bytes of base files from which on a job reads them.
LARGE_BYTES = 256 << 20
_File = tuple[str, str, int]
Live = Mapping[str, Collection[str]]


def first_records(snapshot: Snapshot, index: ExpressionIndex, instant: str, engine: Engine | None = None) -> Records:
    """The first records of a new index: those of the latest base files, as in real Hudi, and those of the partition
    paths. `engine` runs a job if the files have many bytes."""
    slices = snapshot.file_slices()
    bases = [s.base_file for s in slices if s.base_file is not None]
    files = [(b.partition, b.name, b.size) for b in bases]
    if engine is not None and engine.is_distributed and sum(b.size for b in bases) >= LARGE_BYTES:
        file_results = each(engine, ResultsOf(snapshot.storage, (index,), snapshot.schema), files)
    else:
        file_results = results_of_files(snapshot, files, [index])
    results = dict(by_index(file_results)).get(index.partition, [])
    form = record_form(snapshot.config.version)
    if index.has_filters:
        return filter_records_of(results, instant, form)
    new = stats_of_results(index, results)
    of_paths, _ = partition_stats_of(index, {}, {index.column: new}, live_files(slices))
    return range_records(index, new, of_paths, [], form)


def range_records(
    index: ExpressionIndex, of_files: pa.Table, of_paths: Stats, deleted: Sequence[str], form: RecordForm
) -> Records:
    """The records of files and of partition paths together, with deletes of the keys in `deleted`."""
    files = stats_records_of(index, of_files, form)
    kind, version = RecordType.PARTITION_STATS, index.definition.version
    keys, values = stats_codec.encode(of_paths, form, index_version=version, record_type=kind)
    keys_and_values = [pa.concat_arrays([files.keys, keys]), pa.concat_arrays([files.values, values])]
    return Records(keys_and_values[0], keys_and_values[1], deleted=pa.array(deleted, pa.string()))


@dataclass(frozen=True, slots=True)
class ResultsOf:
    """A task function: `results_of_file` on a storage that the task opens itself."""

    storage: Storage
    indexes: tuple[ExpressionIndex, ...]
    schema: pa.Schema

    def __call__(self, file: _File) -> dict[str, FileResults]:
        return results_of_file(self.storage, file, self.indexes, self.schema)


def results_of_files(
    snapshot: Snapshot, files: Sequence[_File], indexes: Sequence[ExpressionIndex], schema: pa.Schema | None = None
) -> list[dict[str, FileResults]]:
    """The results of the indexes over these base files (partition path, name, size), some files at a time."""
    if not indexes:
        return []
    columns = snapshot.schema if schema is None else schema
    return parallel_map(lambda file: results_of_file(snapshot.storage, file, indexes, columns), list(files))


def partition_stats_of(
    index: ExpressionIndex, existing: Stats, new: Stats, live: Live, *, tight: bool = True
) -> tuple[Stats, list[str]]:
    """The statistics of the partition paths in `live` by an index, and the keys of the paths that have none."""
    kinds = {index.column: index.function.result}
    return combined_partition_stats(existing, new, live, kinds, of_expression=True, tight=tight)


ZONES_PROPERTY = "lakebed.metadata.expression.zones"
_PARTITION_METADATA = ".hoodie_partition_metadata"
_UTC = frozenset({"UTC", "ETC/UTC", "GMT", "Z", "+00:00"})


@dataclass(frozen=True, slots=True)
class ZoneNote:
    """The `zone` of an index that was `created` at this instant of the metadata table, from the files up to the `built`
    instant of the table."""

    zone: str
    created: str
    built: str


def zone_notes(properties: Mapping[str, str]) -> dict[str, ZoneNote]:
    """The recorded zones of expression indexes, by the index's partition.

    >>> zone_notes({ZONES_PROPERTY: "expr_index_day UTC 00000000000000002 20240101000000000"})["expr_index_day"].zone
    'UTC'
    """
    rows = (text.split() for text in properties.get(ZONES_PROPERTY, "").split(","))
    return {row[0]: ZoneNote(*row[1:]) for row in rows if len(row) == 4}


def noting(properties: Mapping[str, str], partition: str, note: ZoneNote | None) -> dict[str, str | None]:
    """The change of properties that records the zone of one index, or removes it (None)."""
    notes = zone_notes(properties)
    notes.pop(partition, None)
    if note is not None:
        notes[partition] = note
    texts = [
        f"{name} {zone_note.zone} {zone_note.created} {zone_note.built}" for name, zone_note in sorted(notes.items())
    ]
    return {ZONES_PROPERTY: ",".join(texts) or None} if texts or ZONES_PROPERTY in properties else {}


def created_at(storage: Storage, partition: str) -> str:
    """The instant at which a partition of the metadata table was created; empty if it cannot be read. `storage` is the
    data table's."""
    try:
        body = storage.read(f"{METADATA_FOLDER}/{partition}/{_PARTITION_METADATA}")
    except FileNotFoundError:
        return ""
    return parse_properties(body).get("commitTime", "")


def is_same_zone(zone: str, other: str) -> bool:
    """Whether two names mean one time zone; the names of UTC are equal."""
    return zone == other or (zone.upper() in _UTC and other.upper() in _UTC)
