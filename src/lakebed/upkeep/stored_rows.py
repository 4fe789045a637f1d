"""Stored rows of file slices for the indexes that are kept over them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.model import RECORD_KEY, BaseFile, FileSlice
from lakebed.slices.reader import SliceReader


def stored_rows(reader: SliceReader, file_slice: FileSlice, columns: Sequence[str]) -> pa.RecordBatch:
    """Some columns of a file slice as one batch; one that it does not have is left out."""
    batches = list(reader.read(file_slice, columns))
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], pa.string())], names=[RECORD_KEY])
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def base_slice(partition: str, file_id: str, path: str, size: int = 0) -> FileSlice:
    """The slice that a base file alone makes; a size of 0 is looked up when it is read."""
    return FileSlice(partition, file_id, "", BaseFile(partition, file_id, "", "", path.rpartition("/")[2], size))
