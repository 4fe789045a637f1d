"""The contents of any file of a table, whatever its format: all its bytes, decompressed, and the values of its columns.

A file is known by its first bytes: Parquet, a log file, an HFile, an Avro file; any other is plain bytes. For those
who look for a value wherever it may be, not for readers of rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import CorruptFile, LakebedError
from lakebed.format.base_file import naming_damage, other_format
from lakebed.format.data_block import open_data_block
from lakebed.format.delete_block import Deletes, decode_deletes
from lakebed.format.hfile import blocks
from lakebed.format.hfile.reader import open_hfile
from lakebed.format.log_file import MAGIC, BlockType, HeaderKey, scan_blocks
from lakebed.format.parquet_footer import footer_in, parse_footer
from lakebed.format.row_groups.chunks import FALSE, number_in, read_struct
from lakebed.format.sources import BytesSource
from lakebed.schema.plain_arrow import is_list

Buffer = bytes | memoryview
PARQUET_MAGIC: Final = b"PAR1"
AVRO_MAGIC: Final = b"Obj\x01"
_BATCH_ROWS: Final = 1 << 16
# Fields by their numbers in parquet.thrift: of a page its sizes and the head of a data page of version 2, of which
# these are the lengths of its levels, which are never compressed, and whether the rest is.
_INFLATED, _STORED, _DATA_PAGE_V2 = 2, 3, 8
_LEVELS, _IS_COMPRESSED = (5, 6), 7
_ROWS = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA, BlockType.CDC_DATA)
_fastavro: Any = fastavro  # its stubs leave streams half typed


def byte_runs(data: Buffer, path: str) -> Iterator[Buffer]:
    """The bytes of the file, then the decompressed bytes of each of its compressed parts. Raises `CorruptFile` if a
    part cannot be decompressed."""
    yield data
    head = bytes(data[: len(blocks.TRAILER_MAGIC)])
    try:
        if head.startswith(PARQUET_MAGIC):
            yield from _pages(data)
        elif head.startswith(MAGIC):
            for block in scan_blocks(BytesSource(data)):
                yield from byte_runs(block.read(), path) if block.type in _ROWS else ()
        elif head.startswith(AVRO_MAGIC):
            for block in _fastavro.block_reader(io.BytesIO(data)):
                yield block.bytes_.getvalue()
        elif is_hfile(data):
            end, at = len(data) - blocks.TRAILER_BYTES, 0
            codec = blocks.read_trailer(data[end:], len(data)).codec
            while at < end:
                payload, at = blocks.read_block(data, at, bytes(data[at : at + len(blocks.TRAILER_MAGIC)]), codec)
                yield payload
    except LakebedError:
        raise
    except Exception as cause:  # broken bytes lead Arrow and fastavro to any exception
        raise CorruptFile(f"{path} cannot be decompressed: {cause!r}", context={"path": path}) from cause


def is_hfile(data: Buffer) -> bool:
    """Whether the bytes end as an HFile does."""
    trailer = data[-blocks.TRAILER_BYTES :]
    return len(trailer) == blocks.TRAILER_BYTES and bytes(trailer[: len(blocks.TRAILER_MAGIC)]) == blocks.TRAILER_MAGIC


def _pages(data: Buffer) -> Iterator[Buffer]:
    """The pages of a Parquet file, decompressed."""
    metadata = parse_footer(footer_in(bytes(data)))
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            if column.compression == "UNCOMPRESSED":
                continue  # part of the file's bytes
            start = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset is not None:
                start = min(start, column.dictionary_page_offset)
            chunk = bytes(data[start : start + column.total_compressed_size])
            yield from _inflated(chunk, column.compression.lower())


def _inflated(chunk: bytes, codec: str) -> Iterator[Buffer]:
    at = 0
    while at < len(chunk):
        fields, at = read_struct(chunk, at)
        fields_by_number = {field.number: field for field in fields}
        stored, plain = (number_in(fields_by_number[number].value) for number in (_STORED, _INFLATED))
        second = [] if _DATA_PAGE_V2 not in fields_by_number else read_struct(fields_by_number[_DATA_PAGE_V2].value)[0]
        levels = sum(number_in(field.value) for field in second if field.number in _LEVELS)
        body = chunk[at + levels : at + stored]
        is_plain = any(field.number == _IS_COMPRESSED and field.kind == FALSE for field in second)
        if body and plain > levels and not is_plain:
            codec_name = {"lz4": "lz4_raw"}.get(codec, codec)
            yield pa.decompress(body, decompressed_size=plain - levels, codec=codec_name, asbytes=True)
        at += stored


def row_batches(data: Buffer, path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a base file, or the rows of all data blocks of a log file as they were logged; for a change log the
    columns are those of its entries. Raises `CorruptFile`."""
    head = bytes(data[: len(MAGIC)])
    other = other_format(path)
    if other is not None:
        with naming_damage(path), other.open_bytes(data) as source:
            footer = other.footer(source, path)
            yield from other.rows(source, footer).iter_batches(
                _BATCH_ROWS, range(footer.row_groups), footer.schema.names
            )
        return
    try:
        if head.startswith(PARQUET_MAGIC):
            yield from pq.ParquetFile(pa.BufferReader(data)).iter_batches(_BATCH_ROWS)
        elif head.startswith(MAGIC):
            for block in scan_blocks(BytesSource(data)):
                if block.type in _ROWS:
                    opened = open_data_block(block, path)
                    yield opened.read(opened.schema.names)
    except pa.ArrowException as cause:
        raise CorruptFile(f"{path} cannot be decoded: {cause}", context={"path": path}) from cause


def deletes_in(data: Buffer, path: str) -> Iterator[Deletes]:
    """The deletes of each delete block of a log file. Raises `CorruptFile`."""
    if bytes(data[: len(MAGIC)]) == MAGIC:
        for block in scan_blocks(BytesSource(data)):
            if block.type is BlockType.DELETE:
                yield decode_deletes(block.read(), path, block.offset)


def entries_in(data: Buffer, path: str) -> Iterator[tuple[pa.Array, pa.Array, str]]:
    """The keys, the values and the Avro schema of the values, for an HFile or for each HFile in the blocks of a log
    file."""
    if is_hfile(data):
        file = open_hfile(data)
        for entries in file.batches():
            yield entries.keys, entries.values, file.schema_json
    elif bytes(data[: len(MAGIC)]) == MAGIC:
        for block in scan_blocks(BytesSource(data)):
            if block.type is BlockType.HFILE_DATA:
                schema = block.header(HeaderKey.SCHEMA) or ""
                for entries in open_hfile(block.read()).batches():
                    yield entries.keys, entries.values, schema


def footer_ranges(data: Buffer, path: str) -> Iterator[tuple[str, pa.Array]]:
    """The smallest and the largest value of each column chunk by the footer of a Parquet file, as texts. Raises
    `CorruptFile`."""
    if bytes(data[: len(PARQUET_MAGIC)]) != PARQUET_MAGIC:
        return
    try:
        metadata = parse_footer(footer_in(bytes(data)))
    except (ValueError, pa.ArrowException) as cause:
        raise CorruptFile(f"{path} cannot be decoded: {cause}", context={"path": path}) from cause
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            ranges = column.statistics if column.is_stats_set else None
            if ranges is not None and ranges.has_min_max:
                yield column.path_in_schema, as_texts(pa.array([ranges.min, ranges.max]))
    stored = metadata.metadata or {}
    yield "", pa.array([value.decode("utf-8", "replace") for value in stored.values()], pa.string())


def leaf_values(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The non-null values of a column, each once, as texts (binary values stay binary), with the names of the fields
    that lead to them. A list and its entries have one name, so that the names are equal in files of all formats."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        # a dictionary may have values that no row has
        yield from leaf_values(name, column.cast(kind.value_type))
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from leaf_values(f"{name}.{kind.field(number).name}", column.flatten()[number])
    elif pa.types.is_map(kind):
        flat = column.drop_null()
        yield from leaf_values(f"{name}.key", flat.keys)
        yield from leaf_values(f"{name}.value", flat.items)
    elif is_list(kind):
        yield from leaf_values(name, column.flatten())
    elif not pa.types.is_null(kind) and not pa.types.is_boolean(kind):
        values = as_texts(pc.unique(column).drop_null())
        if len(values):
            yield name, values


def as_texts(values: pa.Array) -> pa.Array:
    """The values as texts that compare equal in all file formats; binary values stay binary."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return values
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64()).cast(pa.string())
    return values.cast(pa.string())
