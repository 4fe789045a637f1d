"""Writes base files batch by batch, with one row group in memory: Parquet that Hudi and Spark read back unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakebed.errors import InvalidOption
from lakebed.format.bounded_cache import cached_by_schema
from lakebed.format.parquet_encodings import ColumnForm, choose_encodings
from lakebed.format.parquet_footer import TAIL, footer_in, framed, trust_footer
from lakebed.format.row_groups.nan_chunks import NanChunks, floating_leaves
from lakebed.format.row_groups.offset_index import without_column_indexes
from lakebed.model import COMMIT_SEQNO, FILE_NAME
from lakebed.schema.arrow import is_repeated, leaf_paths
from lakebed.schema.field_ids import with_field_ids
from lakebed.schema.layouts import fill_hidden_nulls
from lakebed.schema.logical_types import file_type, file_values, is_vector

if TYPE_CHECKING:
    from lakebed.format.column_ranges import ColumnRanges, StoredRanges
    from lakebed.storage.base import Upload

SPARK_VERSION_KEY = "org.apache.spark.version"
# Any version from 3.0 on marks for Spark that dates before 1582 are in the proleptic calendar.
SPARK_VERSION = "3.5.0"

_CODECS = {
    "zstd": "zstd",
    "gzip": "gzip",
    "snappy": "snappy",
    "brotli": "brotli",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "none": "none",
    "uncompressed": "none",
}
ROW_GROUP_ROWS = 131_072
# A lookup decodes the page of its row. Smaller ones make scans, and lookups of many keys, dearer.
PAGE_ROWS = 20_000
# Where rows are in the order of their keys a lookup reads few row groups. Many small ones make lookups of many keys
# dearer than in files that are not sorted.
SORTED_ROW_GROUP_ROWS = 2 * PAGE_ROWS
# Files whose first row group has no column with so many pages get no offset index.
INDEXED_PAGES = 2
_LEVELLED = frozenset({"zstd", "gzip", "brotli"})
_MIB = 1 << 20
_WRITE_BATCH = 16_384
# Up to this many rows are measured completely; of more rows, one run in several.
_SAMPLE_ROWS = 8_192
_RUN = 1_024
_RUNS_APART = 8
# Row groups whose rows are fewer than so many times their dictionary's values get a dictionary of their own.
_DICTIONARY_SHARE = 8
_SINK_BYTES = 256 * 1024
# pyarrow has it since release 23; before, pages end by their bytes alone.
_HAS_PAGE_ROWS = "max_rows_per_page" in signature(pq.ParquetWriter).parameters
# A row's sequence number and file name are never searched for: their min and max would only fill the footer.
_NO_STATISTICS = frozenset({COMMIT_SEQNO, FILE_NAME})
_TIMES_IN_UTC: Mapping[str, Any] = {"write_time_adjusted_to_utc": True}


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """The settings for writing a base file. A row group ends at the first of its limits that it reaches (bytes are
    counted in memory), and so does a page by `page_rows` and `page_size` (bytes). `level` is the codec's level (None:
    its default); `dictionary_columns` (Parquet paths) replaces the choice that is otherwise made from the first rows.
    With `text_codec`, the codec of texts, each column has a codec that fits its values, or none, and `compression` is
    that of columns whose values are too few to choose. With `field_ids` columns have the ids of their paths.
    `key_column` is the column of the record key, if its texts are the record keys."""

    compression: str = "zstd"
    level: int | None = 1
    text_codec: str | None = None
    row_group_rows: int = ROW_GROUP_ROWS
    row_group_bytes: int = 64 * _MIB
    page_size: int = _MIB
    page_rows: int = PAGE_ROWS
    max_file_size: int = 120 * _MIB
    dictionary_columns: tuple[str, ...] | None = None
    field_ids: bool = False
    key_column: str | None = None

    @property
    def codec(self) -> str:
        """The codec in pyarrow's spelling; Hudi's names in any case are accepted."""
        return _codec_named(self.compression)

    @property
    def codecs(self) -> frozenset[str]:
        """All codecs that the chunks of a file may have, in pyarrow's spelling."""
        if self.text_codec is None:
            return frozenset({self.codec})
        return frozenset({"none", self.codec, _codec_named(self.text_codec)})


def _codec_named(name: str) -> str:
    codec = _CODECS.get(name.lower())
    if codec is None:
        raise InvalidOption(
            f"unknown Parquet codec {name!r}",
            hint=f"Use one of {', '.join(sorted(_CODECS))}.",
            context={"codec": name},
        )
    return codec


@dataclass(frozen=True, slots=True, eq=False)
class FileColumns:
    """The columns of base files: what follows from their schema alone, computed once for all files that have it.

    `schema` is Arrow's of a file, without metadata, which Parquet would read as field ids or store needlessly.
    `leaves` are the types of the leaf columns by path, `leaf_counts` how many each column
    has. `flat` columns have one value a row. `with_statistics` are the leaves whose min and max are written. `floating`
    has for each column that can hold NaN the numbers of its floating leaves, by path.
    """

    schema: pa.Schema
    leaves: Mapping[str, pa.DataType]
    leaf_counts: Mapping[str, int]
    flat: frozenset[str]
    vectors: frozenset[str]
    with_statistics: tuple[str, ...]
    floating: Mapping[str, Mapping[str, Sequence[int]]]
    has_times: bool


@cached_by_schema
def columns_of_files(schema: pa.Schema) -> FileColumns:
    """The columns of base files with this schema, meta columns included."""
    plain = pa.schema([pa.field(f.name, file_type(f.type), f.nullable) for f in schema])
    vectors = frozenset(f.name for f in schema if is_vector(f.type))
    paths = {f.name: dict(leaf_paths([f])) for f in plain}
    leaves = {path: kind for of_column in paths.values() for path, kind in of_column.items()}
    return FileColumns(
        plain,
        leaves,
        {name: len(of_column) for name, of_column in paths.items()},
        frozenset(f.name for f in plain if not is_repeated(f.type)),
        vectors,
        tuple(path for path in leaves if path not in _NO_STATISTICS and path not in vectors),
        floating_leaves(plain),
        any(map(pt.is_time, leaves.values())),
    )


_numbered = cached_by_schema(with_field_ids)


@lru_cache(maxsize=64)
def _options_of_columns(
    columns: FileColumns,
    names: tuple[str, ...],
    settings: ParquetSettings,
    dictionaries: tuple[str, ...],
    encodings: tuple[tuple[str, str], ...],
    codecs: tuple[tuple[str, str], ...],
) -> Mapping[str, Any]:
    """Arrow's options for those columns of a file that have these names: what follows from the encodings and codecs of
    their leaves, which are given by path."""
    vectors, paths, with_statistics = columns.vectors, columns.leaves, columns.with_statistics
    with_dictionary = dictionaries if settings.dictionary_columns is None else settings.dictionary_columns
    dictionary = [path for path in with_dictionary if path not in vectors]
    plain = {path: how for path, how in encodings if path not in dictionary}
    if len(names) < len(columns.schema):
        paths = dict(leaf_paths(columns.schema.field(name) for name in columns.schema.names if name in names))
        with_statistics = [path for path in with_statistics if path in paths]
    # vectors do not compress, and a row of what is not compressed is one read of a known size
    codec_of = {p: "none" if p in vectors else dict(codecs).get(p, settings.codec) for p in paths}
    has_level = settings.level is not None
    levels = {path: settings.level for path, codec in codec_of.items() if has_level and codec in _LEVELLED}
    options: dict[str, Any] = {
        "compression": codec_of if codecs or vectors else settings.codec,
        "compression_level": (levels if codecs or vectors else settings.level) if levels else None,
        "use_dictionary": dictionary,
        "column_encoding": plain or None,
        "write_statistics": list(with_statistics),
        "data_page_version": "1.0",
        "data_page_size": settings.page_size,
        "store_schema": False,
        "write_page_checksum": True,
    }
    if _HAS_PAGE_ROWS:
        options["max_rows_per_page"] = settings.page_rows
    return {**options, **(_TIMES_IN_UTC if columns.has_times else {})}


@cached_by_schema
def _with_dictionaries_of(schema: pa.Schema, columns: FileColumns) -> pa.Schema:
    """The schema of a file whose first rows have this schema."""
    return with_dictionaries(columns.schema, schema)


class BaseFileWriter:
    """A writer that writes one base file batch by batch, one row group in memory at a time.

    `schema` is the file's, meta columns included, in stored types (`lakebed.schema.arrow.normalise`).
    Columns of a batch may be dictionary-encoded. Encodings are chosen from the first row group, but for
    those given (`parquet_encodings.encodings_of`). `ranges` sees every row group. A column chunk that holds NaN has no
    min and max. Writing releases the GIL.
    """

    def __init__(
        self,
        upload: Upload,
        schema: pa.Schema,
        settings: ParquetSettings | None = None,
        encodings: Mapping[str, ColumnForm] | None = None,
        ranges: ColumnRanges | None = None,
    ) -> None:
        self._settings = settings or ParquetSettings()
        self._full_rows = self._settings.row_group_rows
        self._codec = self._settings.codec
        self._encodings = encodings
        self._ranges = ranges
        self._sink = _Sink(upload)
        # Parquet's writer puts out hundreds of small pieces a file, and each crossing to Python costs
        self._buffered = pa.BufferedOutputStream(pa.PythonFile(self._sink, "w"), _SINK_BYTES)
        self._columns = columns_of_files(schema)
        self._schema = self._columns.schema
        self._nan = NanChunks(self._columns.floating)
        # with the dictionary columns that the first batch has: Parquet's writer needs the same in all batches
        self._written_schema: pa.Schema | None = None
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._is_ordinary = True
        self._group_bytes = 0
        self._flushed_rows = 0
        self._metadata: list[Any] = []
        self._writer: pq.ParquetWriter | None = None
        self._has_indexes = False
        self._measured = 0.0
        self._unmeasured: list[pa.Table] = []
        self._unmeasured_bytes = 0

    def write(self, data: pa.RecordBatch | pa.Table, *, is_ordinary: bool = False, nbytes: int | None = None) -> None:
        """Append rows, with the schema's columns in its order. Rows that `is_ordinary` are not searched for NaN and
        long texts (see `column_ranges.are_ordinary`). `nbytes` are the rows' bytes in memory, if they were counted.
        Raises `pa.ArrowInvalid` for a null in a required column."""
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        if not table.num_rows:
            return
        file_table, size = self._in_file_types(table), table.nbytes if nbytes is None else nbytes
        self._pending.append(file_table)
        self._pending_rows += table.num_rows
        self._pending_bytes += size
        self._is_ordinary &= is_ordinary
        self._unmeasured.append(file_table)
        self._unmeasured_bytes += size
        while self._pending_rows >= self._full_rows:
            self._flush(self._settings.row_group_rows)
        while self._pending_bytes >= self._settings.row_group_bytes:
            self._flush(self._rows_of_group())

    def _rows_of_group(self) -> int:
        """The number of buffered rows for the next row group: all, unless they have the bytes of several."""
        table, limit = self._pending_table(), self._settings.row_group_bytes
        rows, size = self._pending_rows, self._pending_bytes
        while rows > 1 and size >= 2 * limit:
            rows = max(1, -(-rows // (size // limit)))
            size = table.slice(0, rows).nbytes
        return rows

    @property
    def pending_rows(self) -> int:
        """The number of rows that are in no row group yet."""
        return self._pending_rows

    @property
    def rows(self) -> int:
        """The number of rows written so far."""
        return self._flushed_rows + self._pending_rows

    @property
    def max_bytes(self) -> int:
        """An upper bound of the file's size so far in bytes, without footer; buffered rows count as in memory."""
        return self._put_out + int(self._measured) + self._unmeasured_bytes

    @property
    def bytes_written(self) -> int:
        """The size of the file so far, without footer: the bytes written plus an estimate for the buffered rows from an
        encoded sample. It is expensive to call after every few rows."""
        if self._unmeasured:
            self._measured += self._encoded_size(pa.concat_tables(self._unmeasured))
            self._unmeasured, self._unmeasured_bytes = [], 0
        return self._put_out + int(self._measured)

    @property
    def _put_out(self) -> int:
        """The number of bytes of the file that are encoded so far."""
        return self._buffered.tell()

    def close(self, footer: Mapping[str, str]) -> int:
        """Write the remaining rows and the footer, and make the file visible. Returns its size in bytes."""
        try:
            if self._pending_rows or not self._flushed_rows:
                self._flush(self._pending_rows)
            self._finish({SPARK_VERSION_KEY: SPARK_VERSION, **footer})
        except BaseException:
            self.abort()
            raise
        self._sink.upload.close()
        return self._sink.position

    def end_rows(self) -> int:
        """Write the rows that are still buffered; returns the position after the last row group. No rows may be written
        afterwards."""
        if self._pending_rows:
            self._flush(self._pending_rows)
        return self._put_out

    def append(self, data: bytes | memoryview) -> None:
        """Write bytes after `end_rows`, where no reader of Parquet looks."""
        assert self._writer is not None, "a file has rows before other bytes"
        self._buffered.write(data)

    def range_row(self) -> pa.RecordBatch | None:
        """The row of column ranges of the closed file; None if the writer does not compute ranges."""
        return None if self._ranges is None else self._ranges.row(self._metadata[-1])

    def stored_ranges(self) -> StoredRanges | None:
        """The ranges of columns as the footer of the closed file has them; None if it does not have all of them."""
        return None if self._ranges is None else self._ranges.stored(self._metadata[-1])

    def abort(self) -> None:
        """Stop writing and remove the file."""
        self._sink.is_dead = True
        self._pending, self._pending_rows, self._writer = [], 0, None
        self._sink.upload.abort()

    def _flush(self, rows: int) -> None:
        group, self._group_bytes, remaining = self._pending_table(), self._pending_bytes, None
        if rows < group.num_rows:
            group, remaining = group.slice(0, rows), group.slice(rows)
            self._group_bytes = group.nbytes
        self._pending = [] if remaining is None else [remaining]
        self._pending_rows = 0 if remaining is None else remaining.num_rows
        self._pending_bytes = self._unmeasured_bytes = 0 if remaining is None else remaining.nbytes
        self._measured, self._unmeasured = 0.0, list(self._pending)
        if group.num_rows and self._ranges is not None and not self._is_ordinary:
            self._ranges.see(group)
        self._put(group)
        self._flushed_rows += group.num_rows
        self._is_ordinary |= remaining is None

    def _pending_table(self) -> pa.Table:
        """The buffered rows."""
        if len(self._pending) == 1:
            return self._pending[0]
        return pa.concat_tables(self._pending) if self._pending else self._schema.empty_table()

    def _put(self, group: pa.Table) -> None:
        """Encode and write a row group."""
        if self._writer is None:
            options = self._writer_options(group, nbytes=self._group_bytes)
            self._has_indexes = bool(options["write_page_index"])
            schema = self._written_names(group.schema)
            self._writer = pq.ParquetWriter(self._buffered, schema, **options)
        if group.num_rows:
            self._nan.add(*([] if self._is_ordinary else [group]))
            self._writer.write_table(small_dictionaries(group), row_group_size=group.num_rows)

    def _finish(self, footer: Mapping[str, str]) -> None:
        assert self._writer is not None
        self._writer.add_key_value_metadata(footer)
        self._buffered.flush()
        self._sink.hold()
        self._writer.close()
        self._buffered.flush()
        end, start = self._sink.taken(), self._sink.position
        footer_bytes = footer_in(end)
        before_footer = end[: len(end) - len(footer_bytes) - TAIL]
        if self._has_indexes:
            counts = self._columns.leaf_counts
            flat = [f.name in self._columns.flat for f in self._schema for _ in range(counts[f.name])]
            before_footer, footer_bytes = without_column_indexes(before_footer, footer_bytes, start, flat)
        footer_bytes = self._nan.without_bounds(footer_bytes)
        trust_footer(footer_bytes)
        self._sink.write(before_footer + framed(footer_bytes))

    def _writer_options(
        self, first_rows: pa.Table, *, is_estimate: bool = False, nbytes: int | None = None
    ) -> dict[str, Any]:
        """Arrow's options for a file that begins with these rows, of `nbytes` if they were counted; codecs are not
        chosen for an estimate."""
        settings, size = self._settings, first_rows.nbytes if nbytes is None else nbytes
        text_codec = None if is_estimate or settings.text_codec is None else _codec_named(settings.text_codec)
        vectors = self._columns.vectors
        others = [name for name in first_rows.column_names if name not in vectors]
        encodings = choose_encodings(first_rows.select(others), self._encodings, text_codec=text_codec)
        forms = encodings.dictionary, (*encodings.encoding.items(),), (*encodings.codec.items(),)
        return {
            **_options_of_columns(self._columns, tuple(first_rows.column_names), settings, *forms),
            # the writer checks whether a page is full after so many values: wide rows would make huge pages
            "write_batch_size": max(1, min(_WRITE_BATCH, settings.page_size * first_rows.num_rows // max(1, size))),
            "write_page_index": _has_several_pages(first_rows, size, settings),
            "metadata_collector": self._metadata,
        }

    def _encoded_size(self, rows: pa.Table) -> float:
        """An estimate of the bytes that rows take in the file; of many rows only some runs are encoded."""
        sample = rows
        if rows.num_rows > _SAMPLE_ROWS:
            sample = pa.concat_tables([rows.slice(at, _RUN) for at in range(0, rows.num_rows, _RUN * _RUNS_APART)])
        sink = pa.BufferOutputStream()
        options: dict[str, Any] = self._writer_options(sample, is_estimate=True) | {
            "metadata_collector": None,
            "write_page_index": False,
        }
        with pq.ParquetWriter(sink, sample.schema, **options) as to:
            to.write_table(small_dictionaries(sample))
            before = sink.tell()
        return before * rows.num_rows / sample.num_rows

    def _written_names(self, schema: pa.Schema) -> pa.Schema:
        """The schema of the file's columns, with the ids of its paths if the settings request them."""
        return _numbered(schema) if self._settings.field_ids else schema

    def _in_file_types(self, table: pa.Table) -> pa.Table:
        if self._written_schema is None:
            self._written_schema = _with_dictionaries_of(table.schema, self._columns)
        is_nested = len(self._columns.leaves) > len(self._schema)
        if not is_nested and table.schema.equals(self._written_schema, check_metadata=True):
            return table
        return in_types(table, self._written_schema)


def _has_several_pages(rows: pa.Table, nbytes: int, settings: ParquetSettings) -> bool:
    """Whether a column of the row group, which has `nbytes`, has pages enough for an offset index: by its rows, or by
    its bytes if they are wide."""
    if -(-rows.num_rows // settings.page_rows) >= INDEXED_PAGES:
        return True
    if nbytes < INDEXED_PAGES * settings.page_size:
        return False
    return max([column.nbytes for column in rows.columns], default=0) >= INDEXED_PAGES * settings.page_size


def written_schema(schema: pa.Schema) -> Any:
    """Parquet's schema of a file that is written with these columns."""
    metadata: list[Any] = []
    options: dict[str, Any] = {"store_schema": False, "metadata_collector": metadata}
    has_times = any(pt.is_time(kind) for _, kind in leaf_paths(schema))
    with pq.ParquetWriter(pa.BufferOutputStream(), schema, **options, **(_TIMES_IN_UTC if has_times else {})):
        pass
    return metadata[0].schema


class _Sink:
    """The file object for Arrow's writer: counts the bytes that go into an upload, which Arrow must not close."""

    closed = False

    def __init__(self, upload: Upload) -> None:
        self.upload = upload
        self.position = 0
        self.is_dead = False
        self._buffered: list[bytes] | None = None

    def hold(self) -> None:
        """Buffer the bytes that are written from now on, until they are taken."""
        self._buffered = []

    def taken(self) -> bytes:
        parts, self._buffered = self._buffered or [], None
        return b"".join(parts)

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.is_dead:  # pyarrow's writer puts out a footer even when it is thrown away
            return size
        if self._buffered is not None:
            self._buffered.append(bytes(data))
            return size
        self.upload.write(data)
        self.position += size
        return size

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        """Do nothing: this object buffers nothing."""

    def close(self) -> None:
        """Do nothing: the owner of the upload closes it."""

    def writable(self) -> bool:
        return True


def with_dictionaries(schema: pa.Schema, batch_schema: pa.Schema) -> pa.Schema:
    """The file's schema, with the columns as dictionaries that are dictionaries in the first batch."""
    return pa.schema(
        [
            pa.field(f.name, pa.dictionary(pa.int32(), f.type), f.nullable) if pt.is_dictionary(g.type) else f
            for f, g in zip(schema, batch_schema, strict=True)
        ]
    )


def small_dictionaries(group: pa.Table) -> pa.Table:
    """The rows with one dictionary per column, since several different ones make the encoder fall back to plain values.

    A large one without the values that only other row groups have: the encoder would put out all of them."""
    for at, field in enumerate(group.schema):
        if not pt.is_dictionary(field.type):
            continue
        chunks = group[at].chunks
        largest = max([len(c.dictionary) for c in chunks], default=0)
        if _DICTIONARY_SHARE * largest > group.num_rows:
            group = group.set_column(at, field, pa.chunked_array([_small_dictionary(c) for c in chunks]))
    return group.unify_dictionaries()


def _small_dictionary(column: pa.DictionaryArray) -> pa.DictionaryArray:
    used = column.indices.drop_null().unique()
    codes = pc.index_in(column.indices, value_set=used).cast(column.indices.type)
    return pa.DictionaryArray.from_arrays(codes, column.dictionary.take(used))


def in_types(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns in the types of a schema, that of a file with dictionaries."""
    columns = [_to_field(column, field) for column, field in zip(table.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _to_field(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type.equals(field.type) and not pt.is_nested(field.type):
        return column
    column = file_values(column)
    if column.type.equals(field.type):
        return fill_hidden_nulls(column) if pt.is_nested(field.type) else column
    if pt.is_dictionary(field.type) and not pt.is_dictionary(column.type):
        column = column.cast(field.type.value_type).dictionary_encode()
    return column.cast(field.type)
