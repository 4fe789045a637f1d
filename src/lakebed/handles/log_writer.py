"""Writing the log files of one file group: names and versions, markers, roll-over, one file after another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from lakebed.concurrency.markers import MarkerKind, check_marker, write_marker, write_markers
from lakebed.engine.base import Task
from lakebed.expressions.plain_keys import PlainKeys
from lakebed.format.column_ranges import RowRanges, as_stream
from lakebed.format.file_names import log_file_name
from lakebed.format.log_file import LogBlock, block_bytes
from lakebed.handles.file_writer import FileFormat
from lakebed.model import has_completion_times, path_in
from lakebed.storage.base import Durable, Storage, Upload
from lakebed.storage.exactly_once import create_exactly_once

# Bytes of a file that are buffered and then written in one go; a larger one is written as its blocks come.
_BUFFERED_BYTES = 16 << 20
# Write tokens are three numbers that fit into an `int` of Java.
_TOKEN_NUMBERS = (1 << 31) - 1


def token_of(instant: str, partition: int, attempt: int) -> str:
    """The write token of a log file whose name has its slice's instant and so does not show the writer. The tokens of
    different instants differ."""
    return f"{partition}-{int(instant) % _TOKEN_NUMBERS}-{attempt}"


@dataclass(slots=True)
class WrittenLogFile:
    """One log file with the counts of its own blocks; `ranges` are the column ranges of its data blocks, `plain_keys`
    is whether no key in them can be misread. `blind_rows` and `blind_deletes` are the updates and deletes whose keys
    were not looked up."""

    name: str
    version: int
    size: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    blind_rows: int = 0
    blind_deletes: int = 0
    millis: int = 0
    ranges: bytes | None = None
    plain_keys: bool | None = None

    @property
    def rows(self) -> int:
        """The number of rows in its data blocks."""
        return self.inserts + self.updates


@dataclass(slots=True)
class LogWriter:
    """A writer that writes blocks to log files of one file group; `done` are the closed files.

    `log_instant` is the instant in their names: from table version 8 on that of the write, before it that of the file
    slice. No file is overwritten or appended to: where a name is taken, the next version is used. A file's marker is
    written before the file. `durable` is when a closed one outlasts a power cut.
    """

    storage: Storage
    format: FileFormat
    table_version: int
    instant: str
    log_instant: str
    partition: str
    file_id: str
    task: Task
    next_version: int
    durable: Durable = True
    done: list[WrittenLogFile] = field(default_factory=list[WrittenLogFile])
    _file: WrittenLogFile | None = None
    _buffered: list[bytes] = field(default_factory=list[bytes])
    _upload: Upload | None = None
    _ranges: RowRanges | None = None
    _row_ranges: pa.RecordBatch | None = None
    _texts: PlainKeys | None = None
    _started: float = 0.0

    @property
    def marker_kind(self) -> MarkerKind:
        """The kind of a log file's marker. Before version 8 the file may have blocks of other writers, so a rollback
        keeps it."""
        return "CREATE" if has_completion_times(self.table_version) else "APPEND"

    @property
    def file(self) -> WrittenLogFile:
        """The open file; if there is none, the next file is opened."""
        return self.begin() if self._file is None else self._file

    def begin(self, *, marked: bool = False) -> WrittenLogFile:
        """Open the next file. With `marked` the caller writes its marker, before anything is appended."""
        self._started = time.monotonic()
        self._file = self._named(self.next_version)
        self._ranges = self._row_ranges = None
        self._texts = self.format.key_texts()
        if not marked:
            self._mark()
        return self._file

    def see(self, rows: pa.RecordBatch) -> None:
        """Record the ranges and the key texts of rows for the open file."""
        _ = self.file
        if self._texts is not None:
            self._texts.add(rows)
        if self._ranges is None and self.format.range_columns:
            self._ranges = RowRanges(self.format.schema, self.format.range_columns)
        if self._ranges is not None:
            self._ranges.see(rows)

    def add_statistics(self, ranges: pa.RecordBatch | None, plain_keys: bool | None) -> None:
        """Record statistics of all rows of the open file: their ranges, and whether no key can be misread (None: not
        requested)."""
        _ = self.file
        self._row_ranges = ranges
        if self._texts is not None:
            self._texts.hold = bool(plain_keys)

    def append(self, block: LogBlock) -> None:
        """Write a block; a file that is larger than the maximum then is closed."""
        file, data = self.file, block_bytes(block)
        file.size += len(data)
        self._buffered.append(data)
        if self._upload is None and file.size > _BUFFERED_BYTES:
            self._open_upload()
        if self._upload is not None:
            for part in self._buffered:
                self._upload.write(part)
            self._buffered.clear()
        if file.size > self.format.settings.log_file_bytes:
            self.close()

    def close(self) -> None:
        """Make the open file durable and visible, if there is one."""
        if self._file is None:
            return
        if not has_completion_times(self.table_version):
            self._check_marker()  # what is visible under a slice's name may be in another writer's commit
        if self._upload is not None:
            self._upload.close()
            self._upload = None
        else:
            data = b"".join(self._buffered)
            while not create_exactly_once(self.storage, self._path, data, durable=self.durable):
                self._take_next_version()
            self._buffered.clear()
        self._check_marker()
        file = self._file
        file.millis = int((time.monotonic() - self._started) * 1000)
        if self.format.range_columns:
            ranges = self._ranges or RowRanges(self.format.schema, self.format.range_columns)
            file.ranges = as_stream(ranges.row() if self._row_ranges is None else self._row_ranges)
        file.plain_keys = None if self._texts is None else self._texts.hold
        self.done.append(file)
        self.next_version, self._file = file.version + 1, None

    def abort(self) -> None:
        """Abandon the open file, which does not become visible."""
        self._buffered.clear()
        if self._upload is not None:
            self._upload.abort()
            self._upload = None

    @property
    def _path(self) -> str:
        assert self._file is not None
        return path_in(self.partition, self._file.name)

    def _named(self, version: int) -> WrittenLogFile:
        return WrittenLogFile(log_file_name(self.file_id, self.log_instant, version, self._token()), version)

    def _token(self) -> str:
        if self.log_instant == self.instant or not self.instant.isdecimal():
            return self.task.write_token
        return token_of(self.instant, self.task.partition, self.task.attempt)

    def _mark(self) -> None:
        assert self._file is not None
        may_be_late = self.task.may_be_late
        write_marker(
            self.storage, self.instant, self.partition, self._file.name, self.marker_kind, may_be_late=may_be_late
        )

    def _take_next_version(self) -> None:
        assert self._file is not None
        following = self._named(self._file.version + 1)
        self._file.name, self._file.version = following.name, following.version
        self._mark()

    def _open_upload(self) -> None:
        """Open the upload of the next file, under a name that no file has. The token makes the name unique to the
        writer."""
        while self.storage.head(self._path) is not None:
            self._take_next_version()
        self._upload = self.storage.create(self._path)

    def _check_marker(self) -> None:
        assert self._file is not None
        is_own = has_completion_times(self.table_version)
        give_up = None if is_own else partial(self._mark_again, self._file.name)
        check_marker(self.storage, self.instant, self._path, self.marker_kind, give_up)

    def _mark_again(self, name: str) -> None:
        """Write the file's marker again, with the kind by which a rollback hides its blocks and keeps the file."""
        if self.storage.head(path_in(self.partition, name)) is not None:
            write_marker(self.storage, self.instant, self.partition, name, self.marker_kind)


def mark_all(logs: Sequence[LogWriter]) -> None:
    """Write the markers of the open files of these writers, which belong to one write."""
    if logs:
        files = [(log.partition, log.file.name) for log in logs]
        write_markers(logs[0].storage, logs[0].instant, files, logs[0].marker_kind)
