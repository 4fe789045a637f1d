"""Base files, read by batches in bounded memory: Parquet as Hudi and Spark read it back the same, and by their
extensions the formats of `lakebed.format.base_formats`."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakebed.errors import CorruptFile, LakebedError
from lakebed.format.parquet_footer import footer_in, parse_footer, read_end, read_metadata
from lakebed.format.read_tally import ReadTally, column_bytes
from lakebed.format.text import parse_json_object
from lakebed.model import BOOTSTRAP_INSTANT, META_COLUMNS
from lakebed.schema.arrow import plain_type, without_field_metadata
from lakebed.schema.logical_types import is_shredded, unshredded_type
from lakebed.sharing import once
from lakebed.storage.base import from_os_error

if TYPE_CHECKING:
    from lakebed.format.base_formats import OtherFormat, RowGroupReader
    from lakebed.format.bloom import BloomFilter
    from lakebed.format.bootstrap import SourceFile
    from lakebed.storage.base import Storage

BLOOM_KEY = "org.apache.hudi.bloomfilter"
OLD_BLOOM_KEY = "com.uber.hoodie.bloomfilter"
BLOOM_TYPE_KEY = "hoodie_bloom_filter_type_code"
MIN_KEY, MAX_KEY = "hoodie_min_record_key", "hoodie_max_record_key"
AVRO_SCHEMA_KEY = "parquet.avro.schema"
_MIB = 1 << 20
# Row groups up to this many compressed bytes are fetched in few large ranges, larger ones by buffered pieces.
_PREFETCH_BYTES = 48 * _MIB
_READ_BUFFER = 256 * 1024
SMALL_BYTES = 64 * 1024
"""A file up to this size is read as a whole, by one request."""
# Decoded size of a batch, about: wide rows come in fewer a batch.
_BATCH_BYTES = 32 << 20
_HINT = "Restore the file, or roll back the commit that wrote it."
_SOURCE_HINT = (
    "Restore the file as it was. A table that was made over files of another folder (hoodie.bootstrap.base.path) needs"
    " them unchanged until clustering or updates have written their rows to files of its own"
)


def other_format(path: str) -> OtherFormat | None:
    """The format of a base file by its path; None for a Parquet file.

    >>> other_format("p/f_0-1-0_1.orc").name, other_format("p/f_0-1-0_1.parquet")
    ('ORC', None)
    """
    if path.endswith(".orc"):
        from lakebed.format.orc_file import ORC

        return ORC
    if path.endswith(".lance"):
        from lakebed.format.lance_file import LANCE

        return LANCE
    return None


def format_name(path: str) -> str:
    """The name of a base file's format, by its path.

    >>> format_name("p/f_0-1-0_1.parquet")
    'Parquet'
    """
    other = other_format(path)
    return "Parquet" if other is None else other.name


def open_base_file(storage: Storage, path: str, size: int | None) -> AbstractContextManager[Any]:
    """The open base file, for `row_reader`."""
    other = other_format(path)
    return storage.open_input(path, size) if other is None else other.open(storage, path, size)


def row_reader(source: Any, footer: Footer) -> RowGroupReader:
    """The reader of the rows of an open base file whose footer is known."""
    other = other_format(footer.path)
    if other is not None:
        return other.rows(source, footer)
    options: dict[str, Any] = {"coerce_int96_timestamp_unit": "us", "page_checksum_verification": True}
    # a remote file's columns in one request; on a local disk or in memory that costs more than it saves
    return pq.ParquetFile(source, metadata=footer.metadata, pre_buffer=isinstance(source, pa.PythonFile), **options)


def base_file_footer(
    *, avro_schema_with_meta: str, min_key: str | None, max_key: str | None, bloom: BloomFilter | None
) -> dict[str, str]:
    """The key-value pairs Hudi's readers look for in a base file's footer.

    Without `bloom` (tables without meta columns) there is no filter; Hudi's own bloom index fails on such a
    file.
    """
    from lakebed.format.parquet_writer import SPARK_VERSION, SPARK_VERSION_KEY

    footer = {SPARK_VERSION_KEY: SPARK_VERSION, AVRO_SCHEMA_KEY: avro_schema_with_meta}
    if bloom is not None:
        footer[BLOOM_KEY] = bloom.to_text()
        if bloom.type_code != "SIMPLE":
            footer[BLOOM_TYPE_KEY] = bloom.type_code
    if min_key is not None and max_key is not None:
        footer[MIN_KEY], footer[MAX_KEY] = min_key, max_key
    return footer


@dataclass(frozen=True)
class Footer:
    """The metadata of a base file. `schema` is its Arrow schema in file types, `row_groups` the number of row groups,
    and `encoded` the footer's bytes. `before` are the bytes in front of the footer that were read with it, if the file
    has offset indexes in them. Both are empty if the caller did not ask for them.

    For a skeleton file `source` is the footer of its `source_file`, whose columns are part of `schema`. All other
    fields describe the skeleton.
    """

    path: str
    schema: pa.Schema
    key_values: Mapping[str, str]
    rows: int
    row_groups: int
    metadata: Any
    encoded: bytes = field(default=b"", repr=False)
    before: bytes = field(default=b"", repr=False)
    source: Footer | None = field(default=None, repr=False)
    source_file: SourceFile | None = field(default=None, repr=False)

    @once
    def avro_schema(self) -> dict[str, Any] | None:
        """The writer's Avro schema with the meta columns; None for a file of a row writer, which does not store a
        schema."""
        text = self.key_values.get(AVRO_SCHEMA_KEY)
        return parse_json_object(text, self.path) if text else None

    def bloom(self, max_entries: int = 100_000) -> BloomFilter | None:
        """The bloom filter, None if the file does not have one; a dynamic filter may grow for up to `max_entries`
        keys."""
        from lakebed.format.bloom import BloomFilter

        stored = self.stored_bloom
        if stored is None:
            return None
        return BloomFilter.from_text(stored[1], stored[0], max_entries=max_entries, path=self.path)

    @property
    def stored_bloom(self) -> tuple[str, str] | None:
        """The type code and the text of the bloom filter; None if the file does not have one."""
        text = self.key_values.get(BLOOM_KEY) or self.key_values.get(OLD_BLOOM_KEY)
        return (self.key_values.get(BLOOM_TYPE_KEY) or "SIMPLE", text) if text else None

    def constant(self, column: str) -> Any:
        """The value that the column named `column` has in all rows; None if the statistics do not show such a value.

        Texts, whole numbers, dates and booleans: others may be rounded or left out of statistics.
        """
        if self.source is not None and column not in META_COLUMNS:
            return self.source.constant(column)
        kind = self.schema.field(column).type if column in self.schema.names else pa.null()
        if not (pt.is_string(kind) or pt.is_integer(kind) or pt.is_date32(kind) or pt.is_boolean(kind)):
            return None
        values: list[Any] = []
        for chunk in column_chunks(self.metadata, column):
            stats = chunk.statistics
            if stats is None or not (stats.has_min_max and stats.has_null_count) or stats.null_count:
                return None
            values += [stats.min, stats.max]
        return values[0] if values and all(value == values[0] for value in values) else None

    @property
    def group_starts(self) -> list[int]:
        """The number of the first row of each row group, and that of all rows."""
        return list(accumulate([self.metadata.row_group(n).num_rows for n in range(self.row_groups)], initial=0))

    @property
    def key_range(self) -> tuple[str, str] | None:
        """The smallest and the largest record key; None if the footer does not have them."""
        low, high = self.key_values.get(MIN_KEY), self.key_values.get(MAX_KEY)
        return None if low is None or high is None else (low, high)


def column_chunks(metadata: Any, name: str) -> list[Any]:
    """Parquet's metadata of the chunks of a column, one per row group. Empty for a column of several leaves, for a
    column that the file does not have, and if a nested column has the same path."""
    schema = metadata.schema
    numbers = [n for n in range(len(schema)) if schema.column(n).path == name]
    if not numbers or ("." in name and len(numbers) > 1):
        return []
    return [metadata.row_group(number).column(numbers[0]) for number in range(metadata.num_row_groups)]


def read_footer(storage: Storage, path: str, size: int | None = None, *, encoded: bool = False) -> Footer:
    """The schema, key-values and counts of a base file, and with `encoded` the footer's bytes. It takes one or two
    small reads, and as many more for a skeleton file, whose source file is read as well. Raises `CorruptFile` if the
    file is not of the format that its name shows."""
    footer = _footer_at(storage, path, size, encoded=encoded, naming=naming_damage(path))
    source = _source_of(storage, path)
    return footer if source is None else _joined_footer(footer, source)


def _source_of(storage: Storage, path: str) -> SourceFile | None:
    if f"_{BOOTSTRAP_INSTANT}." not in path:
        return None
    from lakebed.format.bootstrap import source_file

    return source_file(storage, path)


def _footer_at(
    storage: Storage, path: str, size: int | None, *, encoded: bool, naming: AbstractContextManager[None]
) -> Footer:
    other = other_format(path)
    if other is not None:
        with naming, other.open(storage, path, size) as source:
            return other.footer(source, path)
    with naming, storage.open_input(path, size) as source:
        _check_size(source, size)
        data, before = read_end(source)
        metadata = parse_footer(data)
        options: dict[str, Any] = {
            "metadata": metadata,
            "pre_buffer": False,
            "coerce_int96_timestamp_unit": "us",
        }
        footer = _footer_of(pq.ParquetFile(source, **options), path)
        return replace(footer, encoded=data, before=before if _has_indexes(metadata) else b"") if encoded else footer


def _has_indexes(metadata: Any) -> bool:
    """Whether a file has offset indexes, by its first column."""
    return bool(metadata.num_row_groups and metadata.num_columns and metadata.row_group(0).column(0).has_offset_index)


def _joined_footer(skeleton: Footer, source: SourceFile) -> Footer:
    """The footer of a skeleton file together with its source file."""
    naming = naming_source(source)
    source_footer = _footer_at(source.storage, source.path, source.size, encoded=False, naming=naming)
    if source_footer.rows != skeleton.rows:
        raise _changed(
            source, f"has {source_footer.rows} rows, and {skeleton.path}, which names it, has {skeleton.rows}"
        )
    plain = pa.schema([f.with_type(plain_type(f.type)) for f in source_footer.schema])
    source_footer = replace(source_footer, schema=plain)
    columns = [f for f in plain if f.name not in META_COLUMNS]
    names = {f.name for f in columns}
    columns += [pa.field(name, value.type) for name, value in source.values.items() if name not in names]
    meta_columns = [f for f in skeleton.schema if f.name in META_COLUMNS]
    texts = {key: text for key, text in skeleton.key_values.items() if key != AVRO_SCHEMA_KEY}
    return replace(
        skeleton,
        schema=pa.schema([*meta_columns, *columns]),
        key_values=texts,
        source=source_footer,
        source_file=source,
    )


def _schema_of(file: pq.ParquetFile) -> pa.Schema:
    """The schema of a file. Raises `ValueError` if its numbers of rows contradict each other."""
    from lakebed.format.optional_map_keys import with_maps

    groups = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
    if sum(groups) != file.metadata.num_rows or min(groups, default=0) < 0:
        raise ValueError(f"its row groups have {groups} rows, its footer has {file.metadata.num_rows}")
    schema = _with_zones(pa.schema([without_field_metadata(field) for field in file.schema_arrow]), file.schema)
    if not any(map(pt.is_nested, schema.types)):
        return schema
    return with_maps(pa.schema([field.with_type(unshredded_type(field.type)) for field in schema]))


def _footer_of(file: pq.ParquetFile, path: str) -> Footer:
    stored = file.metadata.metadata or {}
    return Footer(
        path=path,
        schema=_schema_of(file),
        key_values={key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in stored.items()},
        rows=file.metadata.num_rows,
        row_groups=file.metadata.num_row_groups,
        metadata=file.metadata,
    )


def read_base_file(
    storage: Storage,
    path: str,
    size: int | None = None,
    columns: Sequence[str] | None = None,
    *,
    batch_rows: int = 65_536,
    dictionary: Sequence[str] = (),
    row_groups: Sequence[int] | None = None,
    footer: Footer | None = None,
    page_checksums: bool = True,
    tally: ReadTally | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a base file by batches, in file order and file types.

    `columns` are top-level names (None: all); those that the file lacks are left out. `dictionary` names string columns
    to give as dictionary arrays; a `footer` that is known is not read again. Memory stays at a batch and one compressed
    row group of normal size; larger row groups (files of other writers) are read through small buffers. Checksums of
    pages are checked where the file has some, but for callers that do without. The file and the bytes
    of the columns that are read are added to a `tally`. Raises `CorruptFile` for a file that is not of the format that
    its name shows.
    """
    reading = _Reading(batch_rows, dictionary, page_checksums, tally)
    source = _source_of(storage, path)
    if source is not None:
        joined = replace(footer or read_footer(storage, path, size), source_file=source)
        yield from _read_joined(storage, joined, size, columns, row_groups, reading)
        return
    with naming_damage(path), open_base_file(storage, path, size) as opened:
        other = other_format(path)
        if other is not None:
            footer = footer or other.footer(opened, path)
            yield from reading.row_groups(
                other.rows(opened, footer), footer.schema, footer.metadata, path, columns, row_groups
            )
            return
        _check_size(opened, size)
        yield from reading.batches(opened, path, footer, columns, row_groups)


@dataclass(frozen=True)
class _Reading:
    """The settings for reading the rows of files: the options of `read_base_file`."""

    batch_rows: int
    dictionary: Sequence[str]
    page_checksums: bool
    tally: ReadTally | None

    def batches(
        self,
        opened: pa.NativeFile,
        path: str,
        footer: Footer | None,
        columns: Sequence[str] | None,
        row_groups: Sequence[int] | None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of an open file; for a skeleton file without the columns of its source file."""
        from lakebed.format.optional_map_keys import is_about_map_keys
        from lakebed.format.parquet_encodings import coded_texts

        if footer is None and opened.size() <= SMALL_BYTES and not self.dictionary and self.tally is None:
            # only Arrow's reader looks into this footer, so it needs no check here
            options: dict[str, Any] = {
                "coerce_int96_timestamp_unit": "us",
                "page_checksum_verification": self.page_checksums,
            }
            data = opened.read()
            try:
                file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, **options)
            except pa.ArrowInvalid as error:
                if not is_about_map_keys(error):
                    raise
                options["metadata"] = parse_footer(footer_in(data))
                file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, **options)
            stored, metadata = _schema_of(file), file.metadata
        else:
            metadata = read_metadata(opened) if footer is None else footer.metadata
            coded = coded_texts(metadata, columns)
            file = pq.ParquetFile(opened, **_read_options(metadata, [*self.dictionary, *coded], self.page_checksums))
            stored = (footer or _footer_of(file, path)).schema
            if footer is None and coded:
                stored = pa.schema([f.with_type(pa.string()) if f.name in coded else f for f in stored])
        yield from self.row_groups(file, stored, metadata, path, columns, row_groups)

    def row_groups(
        self,
        file: RowGroupReader,
        stored: pa.Schema,
        metadata: Any,
        path: str,
        columns: Sequence[str] | None,
        row_groups: Sequence[int] | None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file with the columns `stored`, row group by row group."""
        known_names = frozenset(stored.names)
        names = stored.names if columns is None else [c for c in columns if c in known_names]
        schema = pa.schema([_read_as(stored.field(name), self.dictionary) for name in names])
        groups = range(metadata.num_row_groups) if row_groups is None else row_groups
        if self.tally is not None:
            self.tally.add("opened")
            self.tally.add("bytes", column_bytes(metadata, names, groups))
        for group in groups:
            expected = metadata.row_group(group)
            # of wide rows a batch has fewer
            rows = min(self.batch_rows, int(_BATCH_BYTES * expected.num_rows / max(1, expected.total_byte_size)))
            read = 0
            for batch in file.iter_batches(max(1, rows), row_groups=[group], columns=names, use_threads=False):
                read += batch.num_rows
                yield _batch_as(batch, schema)
            if names:
                check_rows(path, read, expected.num_rows)


def _read_joined(
    storage: Storage,
    footer: Footer,
    size: int | None,
    columns: Sequence[str] | None,
    row_groups: Sequence[int] | None,
    reading: _Reading,
) -> Iterator[pa.RecordBatch]:
    """The rows of a skeleton file: its columns and those of its source file side by side, and the values in the names
    of the source file's folders."""
    source = footer.source_file
    assert source is not None
    assert footer.source is not None
    known_names = frozenset(footer.schema.names)
    names = footer.schema.names if columns is None else [name for name in columns if name in known_names]
    schema = pa.schema([_read_as(footer.schema.field(name), reading.dictionary) for name in names])
    in_source = frozenset(footer.source.schema.names)
    meta_columns = [name for name in names if name in META_COLUMNS]
    source_columns = [name for name in names if name not in meta_columns and name in in_source]
    groups = range(footer.row_groups) if row_groups is None else row_groups
    skeleton = replace(footer, source=None)
    with naming_damage(footer.path), storage.open_input(footer.path, size) as opened:
        _check_size(opened, size)
        rows = reading.batches(opened, footer.path, skeleton, meta_columns, groups)
        if source_columns:
            rows = _side_by_side(rows, _source_rows(footer, source_columns, groups, reading))
        for batch in rows:
            arrays: list[pa.Array] = []
            for field_ in schema:
                if field_.name in meta_columns or field_.name in source_columns:
                    arrays.append(batch.column(field_.name))
                else:
                    arrays.append(pa.repeat(source.values[field_.name], batch.num_rows).cast(field_.type))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch.select([])


def _source_rows(
    footer: Footer, columns: Sequence[str], groups: Sequence[int], reading: _Reading
) -> Iterator[pa.RecordBatch]:
    """The rows of the source file that belong to these row groups of the skeleton file."""
    source = footer.source_file
    assert source is not None
    assert footer.source is not None
    starts, parts = footer.group_starts, footer.source.group_starts
    with naming_source(source), source.storage.open_input(source.path, source.size) as opened:
        for group in groups:
            start, end = starts[group], starts[group + 1]
            overlapping = [n for n in range(footer.source.row_groups) if parts[n] < end and parts[n + 1] > start]
            at = parts[overlapping[0]] if overlapping else start
            for batch in reading.batches(opened, source.url, footer.source, columns, overlapping):
                first, last = max(start - at, 0), min(end - at, batch.num_rows)
                at += batch.num_rows
                if first < last:
                    yield batch.slice(first, last - first)


def _side_by_side(batches: Iterator[pa.RecordBatch], other: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The columns of two streams of batches side by side; both streams have the same number of rows."""
    left = right = None
    while True:
        left = left if left is not None and left.num_rows else next(batches, None)
        right = right if right is not None and right.num_rows else next(other, None)
        if left is None or right is None:
            assert left is right, "a skeleton file and its source file have as many rows"
            return
        rows = min(left.num_rows, right.num_rows)
        columns = [*left.slice(0, rows).columns, *right.slice(0, rows).columns]
        yield pa.RecordBatch.from_arrays(columns, names=[*left.schema.names, *right.schema.names])
        left, right = left.slice(rows), right.slice(rows)


def _read_options(metadata: Any, dictionary: Sequence[str], page_checksums: bool) -> dict[str, Any]:
    from lakebed.format.parquet_encodings import as_dictionaries

    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = [sum([group.column(i).total_compressed_size for i in range(group.num_columns)]) for group in groups]
    prefetch = max(sizes, default=0) <= _PREFETCH_BYTES
    return {
        "metadata": metadata,
        "read_dictionary": as_dictionaries(metadata, dictionary) or None,
        "pre_buffer": prefetch,
        "buffer_size": 0 if prefetch else _READ_BUFFER,
        "coerce_int96_timestamp_unit": "us",
        "page_checksum_verification": page_checksums,
    }


def _read_as(field: pa.Field, dictionary: Sequence[str]) -> pa.Field:
    if field.name in dictionary and pt.is_string(field.type):
        return field.with_type(pa.dictionary(pa.int32(), field.type))
    return field


def without_shreds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a file with its shredded variants put together."""
    if not [kind for kind in batch.schema.types if pt.is_struct(kind) and is_shredded(kind)]:
        return batch
    from lakebed.format.variants import unshredded

    return unshredded(batch)


def _batch_as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of `schema`, in its order. (Arrow's reader returns columns in file order, and for `a`
    also a column `a.b`.)"""
    from lakebed.format.optional_map_keys import as_maps

    batch = without_shreds(batch)
    columns = [batch.column(name) for name in schema.names]
    if not columns:
        return batch.select([])
    arrays = [
        c if c.type.equals(f.type) else c.dictionary_encode() if pt.is_dictionary(f.type) else as_maps(c, f.type)
        for c, f in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _with_zones(schema: pa.Schema, parquet: Any) -> pa.Schema:
    """The schema with UTC as the time zone of INT96 columns, for which Arrow has no zone."""
    if not any(map(pt.is_timestamp, schema.types)):
        return schema
    instants = {
        column.path for column in (parquet.column(i) for i in range(len(parquet))) if column.physical_type == "INT96"
    }
    if not instants:
        return schema
    return pa.schema([f.with_type(pa.timestamp("us", "UTC")) if f.name in instants else f for f in schema])


def _check_size(source: Any, size: int | None) -> None:
    if size is not None and source.size() != size:
        raise ValueError(f"it has {source.size()} bytes and should have {size}")


def check_rows(path: str, read: int, expected: int) -> None:
    """Raise `CorruptFile` if the number of rows read from a row group differs from the number in the footer: a page
    header, which has no checksum, may have been changed."""
    if read != expected:
        raise CorruptFile(
            f"base file {path} gives {read} rows of a row group with {expected}",
            hint=_HINT,
            context={"path": path},
        )


@contextmanager
def naming_parquet(path: str, hint: str = _HINT, label: str = "base file") -> Generator[None]:
    """Turn every error of Arrow about broken bytes into `CorruptFile` with the path, and an error of the operating
    system into `StorageError`."""
    try:
        yield
    except (LakebedError, FileNotFoundError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # Arrow's about broken pages have no number
            raise from_os_error(error, "read", path) from error
        if isinstance(error, MemoryError):
            hint = "The machine has no memory left, or the file gives a page a size that is too large."
        raise CorruptFile(
            f"{label} {path} cannot be read as {format_name(path)}: {error}", hint=hint, context={"path": path}
        ) from error


@contextmanager
def naming_damage(path: str) -> Generator[None]:
    """Raise `CorruptFile` with the path of the base file for errors in the block, as `naming_parquet` does, and also if
    the file is missing, since the table lists it."""
    try:
        with naming_parquet(path):
            yield
    except FileNotFoundError as error:
        raise CorruptFile(
            f"base file {path} is missing, and the table lists it",
            hint="Open the table again: it may have been cleaned since. Otherwise restore the file, or roll back the "
            "commit that wrote it",
            context={"path": path},
        ) from error


@contextmanager
def naming_source(source: SourceFile) -> Generator[None]:
    """Raise `CorruptFile` with the path of the source file for errors in the block, as `naming_damage` does, and also
    if its size is not the recorded size."""
    try:
        with naming_parquet(source.url, _SOURCE_HINT, "source file"):
            info = source.storage.head(source.path)
            if info is not None and info.size != source.size:
                raise _changed(source, f"has {info.size} bytes, and had {source.size} when the table was made")
            yield
    except FileNotFoundError as error:
        raise _changed(source, "is missing") from error


def _changed(source: SourceFile, how: str) -> CorruptFile:
    return CorruptFile(
        f"source file {source.url}, which holds rows of the table, {how}",
        hint=_SOURCE_HINT,
        context={"path": source.url},
    )
