"""The rows of a log file's data blocks as Arrow, and back: Avro, Parquet and HFile contents behind one interface."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import UnsupportedFeature
from lakebed.format.avro.record_writer import write_records
from lakebed.format.avro_block import AvroBlock, HFileBlock
from lakebed.format.block_rows import DICTIONARY_COLUMNS, corrupt
from lakebed.format.hfile.source import FileSource
from lakebed.format.log_file import BlockType, HeaderKey, LogBlock
from lakebed.format.log_scan import BlockHead, scan_blocks
from lakebed.format.parquet_block import BLOCK_SETTINGS, ParquetBlock, write_parquet
from lakebed.format.parquet_writer import ParquetSettings
from lakebed.storage.base import Storage

__all__ = ["DICTIONARY_COLUMNS", "DataBlock", "encode_data_block", "open_data_block", "read_log_rows"]

Int64s = npt.NDArray[np.int64]
_AVRO_HEAD = struct.Struct(">ii")
_AVRO_VERSION = 3
_OF_ROWS = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA)


class DataBlock(Protocol):
    """An open data block. Nothing but what tells its rows is read before `read`."""

    @property
    def schema(self) -> pa.Schema:
        """The block's schema in Arrow types, meta columns among them."""
        ...

    @property
    def rows(self) -> int: ...

    def read(self, columns: Sequence[str], rows: Int64s | None = None) -> pa.RecordBatch:
        """These columns in this order, those that the block lacks left out; of the rows at these positions (ascending),
        else of all. Only what is asked for is decoded. Raises `CorruptFile`.

        Commit time, partition path and file name come as dictionaries (int32 to string), all else in the types of the
        schema.
        """
        ...


def open_data_block(head: BlockHead, path: str) -> DataBlock:
    """The block of AVRO_DATA, CDC_DATA, PARQUET_DATA or HFILE_DATA; its content is read once, or by ranges.

    Raises `CorruptFile` with path and offset.
    """
    schema = head.header(HeaderKey.SCHEMA)
    if schema is None:
        raise corrupt(head, path, "it has no schema")
    opener = _KINDS.get(head.type)
    if opener is None:
        raise UnsupportedFeature(f"{path}: the block at offset {head.offset} of type {head.type.name} holds no rows")
    return opener(head, path, schema)


def read_log_rows(storage: Storage, path: str, size: int | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of all rows in a log file's data blocks, as they were logged; those that a block lacks are left out.
    Raises `CorruptFile`."""
    for head in scan_blocks(FileSource(storage, path, size)):
        if head.type in _OF_ROWS:
            yield open_data_block(head, path).read(columns)


def encode_data_block(
    rows: Sequence[pa.RecordBatch],
    avro_schema: str,
    headers: Mapping[int, str],
    kind: BlockType = BlockType.AVRO_DATA,
    settings: ParquetSettings = BLOCK_SETTINGS,
) -> LogBlock:
    """A block of these rows, which have the schema's columns (found by name) in stored types; any column may be a
    dictionary. `headers` go into the block as they are; SCHEMA is added. `settings` are those of a Parquet block."""
    if kind is BlockType.PARQUET_DATA:
        content = write_parquet(rows, avro_schema, settings)
    elif kind in (BlockType.AVRO_DATA, BlockType.CDC_DATA):
        return avro_block(*write_records(rows, avro_schema), avro_schema, headers, kind)
    else:
        raise UnsupportedFeature(f"blocks of type {kind.name} are not written")
    return LogBlock(kind, {**headers, int(HeaderKey.SCHEMA): avro_schema}, content)


def avro_block(
    records: Sequence[bytes],
    count: int,
    avro_schema: str,
    headers: Mapping[int, str],
    kind: BlockType = BlockType.AVRO_DATA,
) -> LogBlock:
    """A block of so many records, that are encoded already (`write_records`)."""
    content = b"".join([_AVRO_HEAD.pack(_AVRO_VERSION, count), *records])
    return LogBlock(kind, {**headers, int(HeaderKey.SCHEMA): avro_schema}, content)


_KINDS: dict[BlockType, Callable[[BlockHead, str, str], DataBlock]] = {
    BlockType.AVRO_DATA: AvroBlock,
    BlockType.CDC_DATA: AvroBlock,
    BlockType.PARQUET_DATA: ParquetBlock,
    BlockType.HFILE_DATA: HFileBlock,
}
