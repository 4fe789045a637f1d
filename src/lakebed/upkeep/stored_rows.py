"""Stored rows of file slices for the indexes that are kept over them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.errors import UnsupportedFeature
from lakebed.format.base_file import read_base_file
from lakebed.model import RECORD_KEY, BaseFile, FileSlice
from lakebed.storage.base import Storage


def stored_rows(storage: Storage, file_slice: FileSlice, columns: Sequence[str]) -> pa.RecordBatch:
    """Some columns of a file slice as one batch; one that it does not have is left out.

    Raises `UnsupportedFeature` where log files have to be merged.
    """
    if file_slice.log_files:
        raise UnsupportedFeature(
            f"an index over file group {file_slice.file_id} with log files",
            hint="Compact the table first.",
            context={"feature": "merge-on-read with log files", "file_id": file_slice.file_id},
        )
    base = file_slice.base_file
    batches = [] if base is None else list(read_base_file(storage, base.path, base.size or None, columns))
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], pa.string())], names=[RECORD_KEY])
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def base_slice(partition: str, file_id: str, path: str, size: int = 0) -> FileSlice:
    """The slice that a base file alone makes; a size of 0 is looked up when it is read."""
    return FileSlice(partition, file_id, "", BaseFile(partition, file_id, "", "", path.rpartition("/")[2], size))
