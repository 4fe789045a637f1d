"""Stored rows of file slices for the indexes that are kept over them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model import RECORD_KEY, BaseFile, FileSlice
from lakebed.slices.key_rows import rows_of_keys
from lakebed.slices.reader import SliceReader


def stored_rows(
    reader: SliceReader, file_slice: FileSlice, columns: Sequence[str], keys: pa.Array | None = None
) -> pa.RecordBatch:
    """Some columns of a file slice as one batch, of the rows with these `keys` or of all; a column that it does not
    have is left out."""
    if keys is None:
        batches = list(reader.read(file_slice, columns))
    else:
        batches = rows_of_keys(reader, file_slice, keys.take(pc.sort_indices(keys)), columns)
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], pa.string())], names=[RECORD_KEY])
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def base_slice(partition: str, file_id: str, path: str, size: int = 0) -> FileSlice:
    """The slice that a base file alone makes; a size of 0 is looked up when it is read."""
    return FileSlice(partition, file_id, "", BaseFile(partition, file_id, "", "", path.rpartition("/")[2], size))
