"""The result of a write task for each file group: one small Arrow row, with its error if there was one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from lakebed.errors import CheckFailed, from_json
from lakebed.format.file_names import parse_log_file
from lakebed.model import BaseFile, FileSlice, LogWeight, WriteStat

LOOKUP_COUNTS = ("keys", "tagged", "files", "out_of_range", "filtered", "searched", "opened", "bytes")
"""The numbers in `WriteStatus.lookup`, by the names of `lakebed.index.base.KeyLookup`."""


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """The outcome of a write for one file group. `path` is None if nothing had to be written.

    Of a log file `base_file` and `log_files` name the files of its slice, the log file among them, `log_version` and
    `log_offset` are its version and where its blocks begin; None for a base file. `log_weight` are the numbers of the
    slice's `LogWeight` with the file, and `oldest_log` is its instant.

    `ranges` is the file's row of `column_ranges.ColumnRanges` as a compressed Arrow stream, None if not requested. With
    `ranged_paths` it has a row for each of these files: one status has the ranges of many.
    `changes` are its `key_changes` as one, empty for none, None if not requested; where they are large the file
    `changes_file` holds them. `changed_keys` counts them. `cdc_stats` are the change logs that were written with the
    file: paths and sizes. `plain_keys` is whether no key in the file can be misread, None if not requested.
    `lookup` has the `LOOKUP_COUNTS` of a task that looked keys up itself. Of the updates and deletes `num_blind_rows`
    and `num_blind_deletes` were written without looking whether their keys are stored. `received` is the number of rows
    that came to the task, before any was combined, dropped or made by a clause. `clauses` are the rows that each
    clause of a merge acted on, `shares` the counts of each of several upserts that are one action, as
    `lakebed.merge.shares` encodes them.
    """

    partition: str
    file_id: str = ""
    path: str | None = None
    prev_commit: str = "null"
    prev_base_file: str | None = None
    base_file: str | None = None
    log_files: Sequence[str] | None = None
    log_version: int | None = None
    log_offset: int | None = None
    log_weight: Sequence[int] | None = None
    oldest_log: str | None = None
    rows_in: int = 0
    num_writes: int = 0
    num_inserts: int = 0
    num_updates: int = 0
    num_deletes: int = 0
    num_unchanged: int = 0
    num_combined: int = 0
    num_blind_rows: int = 0
    num_blind_deletes: int = 0
    file_size: int = 0
    millis: int = 0
    ranges: bytes | None = None
    ranged_paths: Sequence[str] | None = None
    changes: bytes | None = None
    changes_file: str | None = None
    changed_keys: int = 0
    cdc_stats: Sequence[tuple[str, int]] | None = None
    plain_keys: bool | None = None
    lookup: Sequence[int] | None = None
    received: int = 0
    clauses: Sequence[int] | None = None
    shares: Sequence[int] | None = None
    error: str | None = None

    def stat(self) -> WriteStat:
        """The write stat that goes into the commit."""
        shared: dict[str, Any] = {name: getattr(self, name) for name in _STAT_FIELDS}
        shared["path"] = self.path or ""
        shared["log_files"] = None if self.log_files is None else tuple(self.log_files)
        shared["cdc_stats"] = None if self.cdc_stats is None else dict(self.cdc_stats)
        rewrite = self.prev_base_file is not None or self.log_files is not None
        shared["upsert_millis" if rewrite else "create_millis"] = self.millis
        return WriteStat(**shared)

    def weight(self) -> LogWeight | None:
        """The weight of the slice's log files after the write; None for a base file."""
        if self.log_weight is None:
            return None
        base_bytes, log_files, log_bytes = self.log_weight
        return LogWeight(base_bytes, log_files, log_bytes, self.oldest_log or "")

    def slices(self) -> tuple[FileSlice | None, FileSlice]:
        """The file slice before the write, which is None if there was none, and the file slice after the write."""
        assert self.path is not None
        if self.log_files is None:
            before = self._slice(self.prev_base_file, ()) if self.prev_base_file else None
            return before, self._slice(self.path, ())
        file_name = self.path.rpartition("/")[2]
        earlier = [name for name in self.log_files if name != file_name]
        before = self._slice(self.base_file, earlier) if self.base_file or earlier else None
        return before, self._slice(self.base_file, self.log_files)

    def _slice(self, base: str | None, logs: Sequence[str]) -> FileSlice:
        name = (base or "").rpartition("/")[2]
        base_file = BaseFile(self.partition, self.file_id, "", "", name, 0) if name else None
        log_files = [log for text in logs if (log := parse_log_file(self.partition, text, 0)) is not None]
        return FileSlice(self.partition, self.file_id, "", base_file, tuple(log_files))


_ARROW_TYPES = {
    "str": pa.string(),
    "int": pa.int64(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
    "Sequence[str]": pa.list_(pa.string()),
    "Sequence[int]": pa.list_(pa.int64()),
    "Sequence[tuple[str, int]]": pa.map_(pa.string(), pa.int64()),
}
STATUS_SCHEMA = pa.schema(
    [(field.name, _ARROW_TYPES[str(field.type).removesuffix(" | None")]) for field in fields(WriteStatus)]
)
"""The columns of a `WriteStatus` row, in the order of its fields."""
# This many rows are decoded to dictionaries at a time; each takes 2 KB.
_DECODED_ROWS = 1024
_NAMES, _ROW = STATUS_SCHEMA.names, pa.struct(STATUS_SCHEMA)
_STAT_FIELDS = [field.name for field in fields(WriteStat) if field.name in _NAMES]


def on_slice(status: WriteStatus, file_slice: FileSlice | None) -> WriteStatus:
    """The status of a log file, with the names of all files of the slice to which the log file was added."""
    if file_slice is None or status.log_files is None:
        return status
    base = file_slice.base_file.name if file_slice.base_file is not None else ""
    names = [log.name for log in file_slice.log_files]
    return replace(status, base_file=base, log_files=[*names, *(n for n in status.log_files if n not in names)])


def of_slice(file_slice: FileSlice) -> WriteStatus:
    """The status of an unchanged slice, whose `slices` return the slice as the one after the write."""
    base, logs = file_slice.base_file, file_slice.log_files
    return WriteStatus(
        file_slice.partition,
        file_slice.file_id,
        path=base.path if base is not None else logs[-1].path,
        base_file=base.name if base is not None and logs else None,
        log_files=[log.name for log in logs] or None,
        file_size=base.size if base is not None else 0,
    )


def to_batch(statuses: list[WriteStatus]) -> pa.RecordBatch:
    rows = pa.array([{name: getattr(status, name) for name in _NAMES} for status in statuses], _ROW)
    return pa.RecordBatch.from_struct_array(rows)


def from_table(table: pa.Table) -> Iterator[WriteStatus]:
    """The statuses that a job returned, one for each file group. They are decoded in parts, since decoding takes more
    memory than the result."""
    for batch in table.select(STATUS_SCHEMA.names).to_batches(max_chunksize=_DECODED_ROWS):
        for row in batch.to_pylist():
            yield WriteStatus(**row)


def checked_statuses(collected: pa.Table) -> list[WriteStatus]:
    """The tasks' statuses. Raises the first error of a task, with the number of file groups that failed."""
    statuses = list(from_table(collected))
    failed = [status.error for status in statuses if status.error]
    if failed:
        error = from_json(failed[0])
        if isinstance(error, CheckFailed):
            from lakebed.properties.checks import joined

            others = map(from_json, failed[1:])
            error = joined([error, *(other for other in others if isinstance(other, CheckFailed))])
        if len(failed) > 1:
            error.context["failed_groups"] = len(failed)
        raise error
    return statuses
