"""Writing the change log of one base file: which rows a merge inserted, updated and deleted, in Hudi's form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.concurrency.markers import check_marker, write_marker
from lakebed.engine.base import Task
from lakebed.format.data_block import (
    AFTER,
    BEFORE,
    COLUMNS,
    DELETE,
    INSERT,
    KEY,
    OP,
    TIME,
    UPDATE,
    LogMode,
    change_log_block,
    change_log_schema,
)
from lakebed.format.file_names import exact_token, log_file_name
from lakebed.format.hashes import plain_strings
from lakebed.format.log_file import block_bytes
from lakebed.merge.row_merge import Merged
from lakebed.model import ALL_META_COLUMNS, COMMIT_TIME, RECORD_KEY, path_in
from lakebed.schema.avro import avro_without_meta
from lakebed.storage.base import Storage, Upload

# Changes that are buffered before they become a block.
_BLOCK_BYTES = 32 << 20


@dataclass(slots=True)
class ChangeLogWriter:
    """Logs the changes that one instant makes to one file group. No file is written if there are no changes.

    `schema` are the columns of the base file, `avro_schema` the same with meta columns. A file that grows beyond
    `max_bytes` is followed by another.
    """

    storage: Storage
    mode: LogMode
    schema: pa.Schema
    avro_schema: str
    max_bytes: int
    instant: str
    partition: str
    file_id: str
    task: Task
    done: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    _buffered: list[pa.RecordBatch] = field(default_factory=list[pa.RecordBatch])
    _buffered_bytes: int = 0
    _name: str = ""
    _size: int = 0
    _upload: Upload | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that changed rows must have."""
        if self.mode == "OP_KEY_ONLY":
            return [RECORD_KEY, COMMIT_TIME]
        return [RECORD_KEY, *self._images]

    @property
    def _images(self) -> list[str]:
        return [name for name in self.schema.names if name not in ALL_META_COLUMNS]

    def merged(self, merged: Merged) -> None:
        """Log the changes of a merged batch."""
        if merged.removed is not None:
            self._log(DELETE, merged.removed, None)
        if merged.before is not None:
            self._log(UPDATE, merged.before, merged.after)
        if merged.added is not None:
            self.added(merged.added)

    def added(self, rows: pa.RecordBatch) -> None:
        """Log new rows."""
        self._log(INSERT, None, rows)

    def _log(self, op: str, before: pa.RecordBatch | None, after: pa.RecordBatch | None) -> None:
        either = before if before is not None else after
        if either is None or not either.num_rows:
            return
        rows = either.num_rows
        values = {
            OP: lambda: pa.repeat(pa.scalar(op), rows),
            KEY: lambda: plain_strings(either.column(RECORD_KEY)).cast(pa.string()),
            TIME: lambda: pa.repeat(pa.scalar(self.instant), rows),
            BEFORE: lambda: self._image(before, rows),
            AFTER: lambda: self._image(after, rows),
        }
        names = COLUMNS[self.mode]
        batch = pa.RecordBatch.from_arrays([values[name]() for name in names], names=list(names))
        self._buffered.append(batch)
        self._buffered_bytes += batch.nbytes
        if self._buffered_bytes > _BLOCK_BYTES:
            self._flush()

    def _image(self, rows: pa.RecordBatch | None, count: int) -> pa.Array:
        fields = [self.schema.field(name) for name in self._images]
        if rows is None:
            return pa.nulls(count, pa.struct(fields))
        columns = [_plain(rows.column(f.name), f.type) for f in fields]
        return pa.StructArray.from_arrays(columns, fields=fields)

    def _flush(self) -> None:
        """Write the buffered changes as one block."""
        if not self._buffered:
            return
        schema = change_log_schema(self.mode, avro_without_meta(self.avro_schema))
        data = block_bytes(change_log_block(self._buffered, schema, self.instant))
        self._buffered, self._buffered_bytes = [], 0
        if self._upload is None:
            self._open()
        assert self._upload is not None
        self._upload.write(data)
        self._size += len(data)
        if self._size > self.max_bytes:
            self._close_file()

    def _open(self) -> None:
        """Write the marker, then open the file: a file without a marker would outlive a failed write."""
        version = len(self.done) + 1
        token = exact_token(self.task.write_token)  # that of the base file written with it
        self._name = log_file_name(self.file_id, self.instant, version, token, cdc=True)
        may_be_late = self.task.may_be_late
        write_marker(self.storage, self.instant, self.partition, self._name, "CREATE", may_be_late=may_be_late)
        self._upload = self.storage.create(path_in(self.partition, self._name))
        self._size = 0

    def _close_file(self) -> None:
        assert self._upload is not None
        self._upload.close()
        self._upload = None
        path = path_in(self.partition, self._name)
        check_marker(self.storage, self.instant, path, "CREATE")
        self.done.append((path, self._size))

    def close(self) -> Sequence[tuple[str, int]]:
        """Make the log durable and visible; returns the paths of its files with their sizes."""
        self._flush()
        if self._upload is not None:
            self._close_file()
        return self.done

    def abort(self) -> None:
        """Abandon the open file, which does not become visible."""
        self._buffered.clear()
        if self._upload is not None:
            self._upload.abort()
            self._upload = None


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type.equals(kind) else column.cast(kind)
