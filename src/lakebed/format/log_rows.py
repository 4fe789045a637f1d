"""The rows of one log file as they were logged, for what is known of files rather than of merged rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakebed.format.data_block import DataBlock, open_data_block
from lakebed.format.hfile.source import FileSource
from lakebed.format.log_file import BlockType
from lakebed.format.log_scan import scan_blocks
from lakebed.storage.base import Storage

_DATA = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA)


def data_blocks(storage: Storage, path: str, size: int | None) -> Iterator[DataBlock]:
    """The data blocks of a log file, in its order. Raises `CorruptFile`."""
    for head in scan_blocks(FileSource(storage, path, size)):
        if head.type in _DATA:
            yield open_data_block(head, path)


def read_log_rows(storage: Storage, path: str, size: int | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of all rows in a log file's data blocks, those that a block lacks left out. Raises `CorruptFile`."""
    for block in data_blocks(storage, path, size):
        yield block.read(columns)
