"""Data blocks whose content is a whole Parquet file: PARQUET_DATA."""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.format.base_file import AVRO_SCHEMA_KEY, without_shreds
from lakebed.format.block_rows import DICTIONARY_COLUMNS, batch_of, corrupt, naming_block
from lakebed.format.log_file import BlockHead
from lakebed.format.parquet_encodings import as_dictionaries
from lakebed.format.parquet_footer import page_sizes, read_metadata
from lakebed.format.parquet_writer import BaseFileWriter, ParquetSettings
from lakebed.format.sources import ReadRange
from lakebed.schema.avro import avro_to_arrow
from lakebed.schema.conversion import cast_column
from lakebed.sharing import once

Int64s = npt.NDArray[np.int64]
# As Hudi writes them.
BLOCK_SETTINGS: Final = ParquetSettings(compression="gzip", level=None)
_MODEL_KEY, _MODEL = "writer.model.name", "avro"
# Rows that are decoded at a time, and what they may take together: bytes to spare, and for each byte of the content.
_BATCH_ROWS: Final = 8192
_SPARE_BYTES, _BYTES_A_BYTE, _INFLATED_A_BYTE = 256 << 20, 1024, 64


class ParquetBlock:
    """A Parquet file inside the log file, read by ranges."""

    def __init__(self, head: BlockHead, path: str, avro_schema: str) -> None:
        self._head, self._path = head, path
        with naming_block(head, path):
            self.schema: pa.Schema = avro_to_arrow(avro_schema)

    @once
    def _bytes(self) -> _RangeFile:
        return _RangeFile(self._head.content)

    @once
    def _file(self) -> pq.ParquetFile:
        source = pa.PythonFile(self._bytes, "r")
        with _naming_parquet(self._head, self._path):
            metadata = read_metadata(source)
            groups = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
            if sum(groups) != metadata.num_rows or min(groups, default=0) < 0:
                raise ValueError(f"its row groups have {groups} rows, its footer has {metadata.num_rows}")
            paths = [column.path for column in _columns(metadata.schema) if "." not in column.path]
            options: dict[str, Any] = {
                "metadata": metadata,
                # a long text in a dictionary costs its bytes once
                "read_dictionary": as_dictionaries(metadata, paths),
                "coerce_int96_timestamp_unit": "us",
                "page_checksum_verification": True,
            }
            return pq.ParquetFile(source, **options)

    @property
    def rows(self) -> int:
        return self._file.metadata.num_rows

    def read(self, columns: Sequence[str], rows: Int64s | None = None) -> pa.RecordBatch:
        known_names = frozenset(self.schema.names)
        fields = [self.schema.field(name) for name in columns if name in known_names]
        stored = self._file.schema_arrow.names
        names = [field.name for field in fields if field.name in stored]
        count = self.rows if rows is None else len(rows)
        with _naming_parquet(self._head, self._path):
            batches = list(self._batches(names, rows)) if names and count else []
            arrays = [_column(batches, field, count) for field in fields]
        return batch_of(arrays, fields, count)

    def _batches(self, names: list[str], rows: Int64s | None) -> Iterator[pa.RecordBatch]:
        room = _Room(_SPARE_BYTES + _BYTES_A_BYTE * self._head.content_length)
        start = 0
        for group in range(self._file.metadata.num_row_groups):
            expected = self._file.metadata.row_group(group).num_rows
            selected = None if rows is None else _between(rows, start, start + expected)
            if expected and (selected is None or len(selected)):
                self._fetch(group, names)
                read = 0
                for batch in self._file.iter_batches(_BATCH_ROWS, [group], names, use_threads=False):
                    part = (
                        batch if selected is None else batch.take(pa.array(_between(selected, read, read + len(batch))))
                    )
                    read += len(batch)
                    yield without_shreds(room.taken(part))
                if read != expected:
                    raise ValueError(f"it gives {read} rows of a row group with {expected}")
            start += expected

    def _fetch(self, group: int, names: list[str]) -> None:
        """Read the pages of the columns `names` by one request; their headers are checked before Arrow reads them."""
        row_group = self._file.metadata.row_group(group)
        ranges: list[tuple[int, int]] = []
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            if column.path_in_schema.partition(".")[0] in names:
                first = column.data_page_offset
                # an offset of 0 is none: the magic is there
                ranges.append((min(first, column.dictionary_page_offset or first), column.total_compressed_size))
        if any(offset < 0 or size < 0 or offset + size > self._bytes.size for offset, size in ranges):
            raise ValueError("a column chunk is beyond the end")
        max_declared = _SPARE_BYTES + _INFLATED_A_BYTE * self._head.content_length
        inflated = values = 0
        for chunk in self._bytes.hold(ranges):
            sizes = page_sizes(bytes(chunk))
            inflated, values = inflated + sizes.inflated, values + sizes.values
        if inflated > max_declared or values > max_declared:
            raise ValueError(f"its pages declare {inflated} bytes and {values} values")


class _Room:
    """The bytes of memory that the rows of a block may still take."""

    def __init__(self, size: int) -> None:
        self._left = size

    def taken(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with dictionaries decoded, except in the columns that are requested as dictionaries."""
        arrays: list[pa.Array] = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            is_dictionary = pa.types.is_dictionary(column.type)
            if is_dictionary and name not in DICTIONARY_COLUMNS:
                lengths = pc.binary_length(column.dictionary).take(column.indices)
                self._take(pc.sum(lengths).as_py() or 0)
                arrays.append(column.dictionary.take(column.indices))
            else:
                self._take(column.indices.nbytes if is_dictionary else column.nbytes)
                arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueError(f"its rows take more than {_BYTES_A_BYTE} times as much as its bytes")


def write_parquet(
    rows: Sequence[pa.RecordBatch], avro_schema: str, settings: ParquetSettings = BLOCK_SETTINGS
) -> bytes:
    """The Parquet file of a block. The batches have the schema's columns by name; any may be a dictionary."""
    schema = avro_to_arrow(avro_schema)
    sink: Any = _Buffer()
    writer = BaseFileWriter(sink, schema, settings)
    for batch in rows:
        writer.write(batch.select(schema.names))
    writer.close({AVRO_SCHEMA_KEY: avro_schema, _MODEL_KEY: _MODEL})
    return sink.data


def _columns(schema: Any) -> Iterator[Any]:
    return (schema.column(number) for number in range(len(schema)))


def _column(batches: Sequence[pa.RecordBatch], field: pa.Field, count: int) -> pa.Array:
    if not batches or field.name not in batches[0].schema.names:
        return pa.nulls(count, field.type)
    chunks = [batch.column(field.name) for batch in batches]
    if pa.types.is_dictionary(chunks[0].type) and pa.types.is_string(field.type):
        chunked = pa.chunked_array(chunks).unify_dictionaries()
        return pa.concat_arrays(chunked.chunks)
    return cast_column(pa.concat_arrays(chunks), field.type)


def _between(rows: Int64s, start: int, end: int) -> Int64s:
    """The positions from `start` up to `end`, minus `start`."""
    first, last = np.searchsorted(rows, [start, end]).tolist()
    return rows[first:last] - start


@contextmanager
def _naming_parquet(head: BlockHead, path: str) -> Generator[None]:
    """Raise `CorruptFile` for errors in the block, as `naming_block` does, and also for Arrow's errors about broken
    pages, which are `OSError`s without a number."""
    with naming_block(head, path):
        try:
            yield
        except (OSError, MemoryError, TypeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise corrupt(head, path, str(error) or repr(error)) from error


class _RangeFile(io.RawIOBase):
    """A range of a file in the form in which Arrow reads files; parts of it can be cached."""

    def __init__(self, source: ReadRange) -> None:
        self._source = source
        self._at = 0
        self._buffered: list[tuple[int, bytes | memoryview]] = []
        self.size = source.size

    def hold(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        """Read these ranges, and cache them until other ranges are requested."""
        parts = self._source.read_many(ranges)
        self._buffered = [(offset, data) for (offset, _), data in zip(ranges, parts, strict=True)]
        return parts

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> Any:
        left = max(0, self.size - self._at)
        length = left if size < 0 else min(size, left)
        data = self._read(self._at, length) if length else b""
        self._at += len(data)
        return data

    def _read(self, at: int, length: int) -> bytes | memoryview:
        for start, data in self._buffered:
            if start <= at and at + length <= start + len(data):
                return data[at - start : at - start + length]
        return self._source.read(at, length)


class _Buffer(io.BytesIO):
    """An upload into memory; the bytes remain available after it is closed."""

    data = b""

    def close(self) -> None:
        self.data = self.getvalue()
        super().close()

    def abort(self) -> None:
        super().close()
