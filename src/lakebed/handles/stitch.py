"""Files put together to one: the row groups of each as bytes, where they can be copied."""

from __future__ import annotations

import pyarrow as pa

from lakebed.handles.file_writer import FileFormat, FileWriter
from lakebed.handles.stored_rows import StoredRows
from lakebed.model import RECORD_KEY, FileSlice
from lakebed.slices.reader import BATCH_ROWS, SliceReader

# Row groups of fewer rows, and of a smaller share of a full one, are encoded anew together with those beside them.
_SMALL_ROWS = 8_192
_SMALL_SHARE = 4


def put_file(writer: FileWriter, reader: SliceReader, format_: FileFormat, file_slice: FileSlice) -> int:
    """Put the rows of a slice without log files behind those of an open file (with `copies`), in their order and with
    their meta columns but for the file's name; gives how many.

    The new file's key range, bloom filter and key changes take them in. Of a row group that is copied nothing is
    decoded but the columns that these need, which is none where a key range is all.
    """
    base = reader.base_file(file_slice)
    if base is None:
        return 0
    stored = StoredRows(reader, format_, file_slice, base)
    before = writer.rows
    with stored.groups(any_size=True) as source:
        if source is None:
            for batch in stored.rows(BATCH_ROWS):
                writer.write(batch, new_keys=None)
            return writer.rows - before
        columns = _noted_columns(writer, stored)
        small = min(_SMALL_ROWS, stored.parquet.row_group_rows // _SMALL_SHARE)
        for number, group in enumerate(source.groups):
            if group.rows < small:
                writer.write(source.columns(number, source.footer.schema.names), new_keys=None)
                continue
            if columns:
                _take_in(writer, source.columns(number, columns))
            writer.copy(source, number)
    return writer.rows - before


def _noted_columns(writer: FileWriter, stored: StoredRows) -> list[str]:
    """The columns of copied rows that the new file's footer and key changes need."""
    if not writer.format.populate_meta:
        return []
    span = stored.footer.key_range
    if span is not None:
        writer.keys.add(pa.array(span))
    needed = [RECORD_KEY] if writer.bloom is not None or span is None else []
    if writer.changes is not None:
        known_names = frozenset(stored.footer.schema.names)
        needed += [name for name in writer.changes.columns if name in known_names]
    return list(dict.fromkeys(needed))


def _take_in(writer: FileWriter, rows: pa.RecordBatch) -> None:
    keys = rows.column(RECORD_KEY)
    writer.keys.add(keys)
    if writer.bloom is not None:
        writer.bloom.add(keys)
    if writer.changes is not None:
        writer.changes.added(rows)
