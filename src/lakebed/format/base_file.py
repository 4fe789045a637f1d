"""Base files: Parquet as Hudi and Spark read it back the same, written and read by batches in bounded
memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakebed.errors import CorruptFile, InvalidOption
from lakebed.format.parquet_encodings import choose_encodings
from lakebed.model import COMMIT_SEQNO, FILE_NAME
from lakebed.schema.arrow import leaf_paths

if TYPE_CHECKING:
    from lakebed.format.bloom import BloomFilter
    from lakebed.storage.base import Storage, Upload

BLOOM_KEY = "org.apache.hudi.bloomfilter"
OLD_BLOOM_KEY = "com.uber.hoodie.bloomfilter"
BLOOM_TYPE_KEY = "hoodie_bloom_filter_type_code"
MIN_KEY, MAX_KEY = "hoodie_min_record_key", "hoodie_max_record_key"
AVRO_SCHEMA_KEY = "parquet.avro.schema"
SPARK_VERSION_KEY = "org.apache.spark.version"
# Any version from 3.0 on tells Spark that dates before 1582 are in the proleptic calendar.
_SPARK_VERSION = "3.5.0"

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
_LEVELLED = frozenset({"zstd", "gzip", "brotli"})
_MIB = 1 << 20
_WRITE_BATCH = 16_384
_SAMPLE_ROWS = 8_192
# Row groups up to this many compressed bytes are fetched in few large ranges, larger ones by buffered pieces.
_PREFETCH_BYTES = 48 * _MIB
_READ_BUFFER = 256 * 1024
# A row's sequence number and file name are never searched for: their min and max would only fill the footer.
_NO_STATISTICS = frozenset({COMMIT_SEQNO, FILE_NAME})


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """How a base file is written. `level` is the codec's (None: its default), `page_size` in bytes;
    `dictionary_columns` (Parquet paths) replaces the choice that is otherwise made from the first rows."""

    compression: str = "zstd"
    level: int | None = 1
    row_group_rows: int = 131_072
    page_size: int = _MIB
    max_file_size: int = 120 * _MIB
    dictionary_columns: tuple[str, ...] | None = None

    @property
    def codec(self) -> str:
        """The codec in pyarrow's spelling; Hudi's names in any case are accepted."""
        codec = _CODECS.get(self.compression.lower())
        if codec is None:
            raise InvalidOption(
                f"unknown Parquet codec {self.compression!r}",
                hint=f"Use one of {', '.join(sorted(_CODECS))}.",
                context={"codec": self.compression},
            )
        return codec


def base_file_footer(
    *, avro_schema_with_meta: str, min_key: str | None, max_key: str | None, bloom: BloomFilter | None
) -> dict[str, str]:
    """The key-value pairs Hudi's readers look for in a base file's footer.

    Without `bloom` (tables without meta columns) there is no filter; Hudi's own bloom index fails on such a
    file.
    """
    footer = {SPARK_VERSION_KEY: _SPARK_VERSION, AVRO_SCHEMA_KEY: avro_schema_with_meta}
    if bloom is not None:
        footer[BLOOM_KEY] = bloom.to_text()
        if bloom.type_code != "SIMPLE":
            footer[BLOOM_TYPE_KEY] = bloom.type_code
    if min_key is not None and max_key is not None:
        footer[MIN_KEY], footer[MAX_KEY] = min_key, max_key
    return footer


class BaseFileWriter:
    """Writes one base file batch by batch, one row group in memory at a time.

    `schema` is the file's, meta columns included, in stored types (`lakebed.schema.arrow.normalise`).
    Columns of a batch may be dictionary-encoded. Encodings are chosen from the first row group. Writing
    releases the GIL.
    """

    def __init__(self, upload: Upload, schema: pa.Schema, settings: ParquetSettings | None = None) -> None:
        self._settings = settings or ParquetSettings()
        self._codec = self._settings.codec
        self._sink = _Sink(upload)
        self._schema = _plain_fields(schema)
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._flushed_rows = 0
        self._options: dict[str, Any] = {}
        self._writer: pq.ParquetWriter | None = None
        self._sampled: tuple[int, float] = (0, 0.0)

    def write(self, data: pa.RecordBatch | pa.Table) -> None:
        """Append rows: the schema's columns in its order. A null in a required column raises
        `pa.ArrowInvalid`.
        """
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        if not table.num_rows:
            return
        self._pending.append(self._in_file_types(table))
        self._pending_rows += table.num_rows
        while self._pending_rows >= self._settings.row_group_rows:
            self._flush(self._settings.row_group_rows)

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self._flushed_rows + self._pending_rows

    @property
    def bytes_written(self) -> int:
        """Size the file would have by now, without footer: bytes put out plus an estimate of the rows held
        back.
        """
        return self._sink.position + int(self._pending_rows * self._bytes_a_row())

    def close(self, footer: Mapping[str, str]) -> int:
        """Write what is left and the footer, make the file visible; gives its size in bytes."""
        try:
            if self._pending_rows or self._writer is None:
                self._flush(self._pending_rows)
            assert self._writer is not None
            self._writer.add_key_value_metadata({SPARK_VERSION_KEY: _SPARK_VERSION, **footer})
            self._writer.close()
        except BaseException:
            self.abort()
            raise
        self._sink.upload.close()
        return self._sink.position

    def abort(self) -> None:
        """Leave nothing behind."""
        self._pending.clear()
        self._pending_rows = 0
        self._sink.upload.abort()

    def _flush(self, rows: int) -> None:
        table = pa.concat_tables(self._pending) if self._pending else self._open_schema().empty_table()
        group, rest = table.slice(0, rows), table.slice(rows)
        self._pending = [rest] if rest.num_rows else []
        self._pending_rows = rest.num_rows
        if self._writer is None:
            self._options = self._writer_options(group)
            self._writer = pq.ParquetWriter(self._sink, group.schema, **self._options)
        if group.num_rows:
            # chunks with different dictionaries would make the encoder fall back to plain values
            self._writer.write_table(group.unify_dictionaries(), row_group_size=rows)
        self._flushed_rows += group.num_rows

    def _writer_options(self, first_rows: pa.Table) -> dict[str, Any]:
        settings = self._settings
        chosen = choose_encodings(first_rows)
        dictionary = chosen.dictionary if settings.dictionary_columns is None else settings.dictionary_columns
        plain = {path: how for path, how in chosen.encoding.items() if path not in dictionary}
        paths = dict(leaf_paths(self._schema))
        options: dict[str, Any] = {
            "compression": self._codec,
            "compression_level": settings.level if self._codec in _LEVELLED else None,
            "use_dictionary": list(dictionary),
            "column_encoding": plain or None,
            "write_statistics": [path for path in paths if path not in _NO_STATISTICS],
            "data_page_version": "1.0",
            "data_page_size": settings.page_size,
            "write_batch_size": _WRITE_BATCH,
            "store_schema": False,
        }
        if any(pt.is_time(kind) for kind in paths.values()):
            options["write_time_adjusted_to_utc"] = True
        return options

    def _bytes_a_row(self) -> float:
        """Compressed bytes of a row: of the row groups written, or of an encoded sample before the first."""
        if self._flushed_rows:
            return self._sink.position / self._flushed_rows
        sampled, estimate = self._sampled
        if self._pending_rows and (not sampled or self._pending_rows >= 4 * sampled):
            estimate = self._encoded_sample()
            self._sampled = (self._pending_rows, estimate)
        return estimate

    def _encoded_sample(self) -> float:
        rows = pa.concat_tables(self._pending)
        rows = rows.slice(max(rows.num_rows - _SAMPLE_ROWS, 0))
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, rows.schema, **self._writer_options(rows)) as writer:
            writer.write_table(rows.unify_dictionaries())
        return sink.tell() / rows.num_rows

    def _open_schema(self) -> pa.Schema:
        """The schema batches are brought to: fixed, with its dictionary columns, by the first batch."""
        return self._pending[0].schema if self._pending else self._writer_schema()

    def _writer_schema(self) -> pa.Schema:
        return self._writer.schema if self._writer is not None else self._schema

    def _in_file_types(self, table: pa.Table) -> pa.Table:
        is_first = not self._pending and self._writer is None
        target = _with_dictionaries(self._schema, table.schema) if is_first else self._open_schema()
        columns = [_to_field(column, field) for column, field in zip(table.columns, target, strict=True)]
        return pa.Table.from_arrays(columns, schema=target)


class _Sink:
    """Counts what goes into an upload, which pyarrow must not close."""

    closed = False

    def __init__(self, upload: Upload) -> None:
        self.upload = upload
        self.position = 0

    def write(self, data: Any) -> int:
        self.upload.write(data)
        size = memoryview(data).nbytes
        self.position += size
        return size

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        """Nothing is held here."""

    def writable(self) -> bool:
        return True


def _plain_fields(schema: pa.Schema) -> pa.Schema:
    """Without metadata, which Parquet would take for field ids or keep needlessly."""
    return pa.schema([pa.field(f.name, f.type, f.nullable) for f in schema])


def _with_dictionaries(schema: pa.Schema, given: pa.Schema) -> pa.Schema:
    """The file's schema with the columns as dictionaries that the first batch has as such."""
    return pa.schema(
        [
            pa.field(f.name, pa.dictionary(pa.int32(), f.type), f.nullable) if pt.is_dictionary(g.type) else f
            for f, g in zip(schema, given, strict=True)
        ]
    )


def _to_field(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    if pt.is_dictionary(field.type) and not pt.is_dictionary(column.type):
        column = column.cast(field.type.value_type).dictionary_encode()
    return column.cast(field.type)


@dataclass(frozen=True)
class Footer:
    """What a base file says of itself. `schema` is its Arrow schema in file types, `row_groups` their
    number.
    """

    path: str
    schema: pa.Schema
    key_values: Mapping[str, str]
    rows: int
    row_groups: int
    metadata: Any

    @property
    def key_range(self) -> tuple[str | None, str | None]:
        """Smallest and greatest record key, None where the file does not say."""
        return self.key_values.get(MIN_KEY), self.key_values.get(MAX_KEY)

    @cached_property
    def avro_schema(self) -> dict[str, Any] | None:
        """The writer's Avro schema, meta columns included; row writers leave it out."""
        text = self.key_values.get(AVRO_SCHEMA_KEY)
        return json.loads(text) if text else None

    def bloom(self) -> BloomFilter | None:
        """The bloom filter, None where the file has none."""
        from lakebed.format.bloom import BloomFilter

        text = self.key_values.get(BLOOM_KEY) or self.key_values.get(OLD_BLOOM_KEY)
        return BloomFilter.from_text(text, self.key_values.get(BLOOM_TYPE_KEY, "SIMPLE")) if text else None


def read_footer(storage: Storage, path: str, size: int | None = None) -> Footer:
    """Schema, key-values and counts of a base file; one or two small reads. `CorruptFile` if it is no
    Parquet file.
    """
    with storage.open_input(path, size) as source, _naming(path):
        return _footer_of(pq.ParquetFile(source, pre_buffer=False, coerce_int96_timestamp_unit="us"), path)


def _footer_of(file: pq.ParquetFile, path: str) -> Footer:
    stored = file.metadata.metadata or {}
    return Footer(
        path=path,
        schema=_with_zones(file.schema_arrow.remove_metadata(), file.schema),
        key_values={key.decode(): value.decode("utf-8", "replace") for key, value in stored.items()},
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
) -> Iterator[pa.RecordBatch]:
    """The rows of a base file by batches, in file order and file types.

    `columns` are top-level names (None: all); those that the file lacks are left out. `dictionary` names
    string columns to give as dictionary arrays. Memory stays at a batch and one compressed row group of
    normal size; larger row groups (files of other writers) are read through small buffers. Raises
    `CorruptFile` for what is no Parquet file.
    """
    with storage.open_input(path, size) as source, _naming(path):
        file = pq.ParquetFile(source, **_read_options(source, dictionary))
        footer = _footer_of(file, path)
        names = footer.schema.names if columns is None else [c for c in columns if c in footer.schema.names]
        schema = pa.schema([_read_as(footer.schema.field(name), dictionary) for name in names])
        for group in range(footer.row_groups) if row_groups is None else row_groups:
            for batch in file.iter_batches(batch_rows, row_groups=[group], columns=names, use_threads=False):
                yield _batch_as(batch, schema)


def _read_options(source: pa.NativeFile, dictionary: Sequence[str]) -> dict[str, Any]:
    metadata = pq.read_metadata(source)
    largest = max((_compressed_size(metadata.row_group(i)) for i in range(metadata.num_row_groups)), default=0)
    prefetch = largest <= _PREFETCH_BYTES
    return {
        "metadata": metadata,
        "read_dictionary": list(dictionary) or None,
        "pre_buffer": prefetch,
        "buffer_size": 0 if prefetch else _READ_BUFFER,
        "coerce_int96_timestamp_unit": "us",
    }


def _compressed_size(group: Any) -> int:
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))


def _read_as(field: pa.Field, dictionary: Sequence[str]) -> pa.Field:
    if field.name in dictionary and pt.is_string(field.type):
        return field.with_type(pa.dictionary(pa.int32(), field.type))
    return field


def _batch_as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns asked for, in that order: the reader gives file order, and `a.b` too where `a` was asked
    for.
    """
    columns = [batch.column(name) for name in schema.names]
    if not columns:
        return batch.select([])
    arrays = [c if c.type.equals(f.type) else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _with_zones(schema: pa.Schema, parquet: Any) -> pa.Schema:
    """INT96 columns, which Arrow gives without zone, are instants."""
    instants = {
        column.path for column in (parquet.column(i) for i in range(len(parquet))) if column.physical_type == "INT96"
    }
    if not instants:
        return schema
    return pa.schema([f.with_type(pa.timestamp("us", "UTC")) if f.name in instants else f for f in schema])


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Damage as `CorruptFile` with the path."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise CorruptFile(
            f"base file {path} cannot be read as Parquet: {error}",
            hint="Restore the file, or roll back the commit that wrote it.",
            context={"path": path},
        ) from error
