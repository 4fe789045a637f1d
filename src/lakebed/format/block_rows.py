"""What the kinds of data blocks share: their errors, and columns put together as a batch."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptFile, SchemaConflict, UnsupportedFeature
from lakebed.format.avro.cursors import Damage
from lakebed.format.log_file import BlockHead
from lakebed.model import COMMIT_TIME, FILE_NAME, PARTITION_PATH

Int64s = npt.NDArray[np.int64]
# The columns that are (nearly) equal in all rows of a block.
DICTIONARY_COLUMNS = frozenset({COMMIT_TIME, PARTITION_PATH, FILE_NAME})
_HINT = "Restore the file from a copy, or roll back the commit that wrote it."


@contextmanager
def naming_block(head: BlockHead, path: str) -> Generator[None]:
    """Turn any error about broken bytes into `CorruptFile` that names the path and the block's offset."""
    try:
        yield
    except (CorruptFile, UnsupportedFeature) as error:
        if (error.context.get("path"), error.context.get("offset")) == (path, head.offset):
            raise
        raise type(error)(
            f"{path}: the {head.type.name} block at offset {head.offset}: {error.message}",
            hint=error.hint,
            context={**error.context, "path": path, "offset": head.offset},
        ) from error
    except (Damage, IndexError, ValueError, KeyError, OverflowError, RecursionError, pa.ArrowException) as cause:
        why = "it ends too soon" if isinstance(cause, IndexError) else str(cause) or repr(cause)
        raise corrupt(head, path, why) from cause
    except SchemaConflict as error:
        raise corrupt(head, path, str(error)) from error


def corrupt(head: BlockHead, path: str, why: str) -> CorruptFile:
    return CorruptFile(
        f"{path}: the {head.type.name} block at offset {head.offset} cannot be decoded: {why}",
        hint=_HINT,
        context={"path": path, "offset": head.offset},
    )


def batch_of(arrays: Sequence[pa.Array], fields: Sequence[pa.Field], rows: int) -> pa.RecordBatch:
    """The columns as a batch of `rows` rows; the columns in `DICTIONARY_COLUMNS` are dictionaries."""
    if not arrays:
        return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["none"]).select([])
    columns: list[pa.Array] = []
    typed_fields: list[pa.Field] = []
    for array, field in zip(arrays, fields, strict=True):
        if field.name in DICTIONARY_COLUMNS and pa.types.is_string(array.type):
            array = array.dictionary_encode()
        columns.append(array)
        typed_fields.append(field.with_type(array.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(typed_fields))
