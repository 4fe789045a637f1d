"""Many key changes of one action: tasks read what the writers reported, a shuffle by file group, tasks write the log
files.

The same as `of_action` of their kinds does in one process for few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Engine, Rows, Task
from lakebed.metadata.kinds.key_indexes import KeyIndexes
from lakebed.metadata.kinds.registry import kind_of
from lakebed.metadata.schemas import form_of_version
from lakebed.metadata.store.group_files import FileGroup, WrittenLog, write_log
from lakebed.metadata.store.writer import MetadataWriter
from lakebed.model import FileSlice
from lakebed.slices.reader import SliceReader
from lakebed.storage.base import Storage
from lakebed.upkeep.changed_keys import group_changes, removed_changes
from lakebed.upkeep.key_kind import GROUPED, KeyIndexUpkeep
from lakebed.upkeep.registry import key_upkeep_of
from lakebed.upkeep.repeated_keys import KeyCheck, RepeatedKeys
from lakebed.write_status import STATUS_SCHEMA, WriteStatus, from_table, of_slice

# Changed keys of an action from which on jobs make their records: this process makes a million in 1.5 s.
LARGE_KEYS = 2_000_000
# The same where they are looked for in the record index as well.
CHECKED_KEYS = 50_000
# What is known of a file group: its status, or its slice where it is replaced.
_REPORTED = pa.schema([*STATUS_SCHEMA, ("replaced", pa.bool_()), *GROUPED])
_LOGS = pa.schema(
    [
        ("file_id", pa.string()),
        ("name", pa.string()),
        ("size", pa.int64()),
        ("writes", pa.int64()),
        ("deletes", pa.int64()),
        ("millis", pa.int64()),
        ("repeats", pa.bool_()),
    ]
)


def is_large(statuses: Sequence[WriteStatus], engine: Engine | None, *, looks: bool = False) -> bool:
    """Whether an action changed so many keys that jobs are worth while: fewer, where keys are looked for (`looks`)."""
    least = CHECKED_KEYS if looks else LARGE_KEYS
    return engine is not None and engine.is_distributed and sum(s.changed_keys for s in statuses) >= least


@dataclass(frozen=True)
class KeyJobs:
    """Writes the log files of one action to the indexes of record keys."""

    engine: Engine
    reader: SliceReader
    instant: str
    indexes: KeyIndexes

    def run(
        self,
        writer: MetadataWriter,
        statuses: Sequence[WriteStatus],
        replaced: Sequence[FileSlice],
        repeats: RepeatedKeys,
    ) -> list[WrittenLog]:
        """Begin the delta commit and write the log files of all file groups that get records; note whether one of the
        keys `repeats`.

        None where an index by partition path has no file groups yet for some of the partition paths.
        """
        paths = {s.partition for s in statuses if s.path is not None}
        by_path = [p for p in self.indexes.partitions if self.indexes.partitioned and kind_of(p).by_data_partition]
        for partition in by_path:
            data_partition_of = kind_of(partition).data_partition_of
            if not paths <= {data_partition_of(group.file_id) for group in writer.file_groups(partition)}:
                return []
        groups = writer.begin(self.instant, self.indexes.partitions)
        reported = self._reported(statuses, replaced)
        return [
            log for partition, its in groups.items() for log in self._written(partition, tuple(its), reported, repeats)
        ]

    def _reported(self, statuses: Sequence[WriteStatus], replaced: Sequence[FileSlice]) -> pa.Table:
        removed = [of_slice(file_slice) for file_slice in replaced]
        listed = [*removed, *(s for s in statuses if s.path is not None)]
        columns = [pa.array([getattr(s, f.name) for s in listed], f.type) for f in STATUS_SCHEMA]
        columns.append(pa.array([i < len(removed) for i in range(len(listed))]))
        columns.append(pa.repeat(pa.scalar(""), len(listed)))
        return pa.Table.from_arrays([*columns, pa.array(range(len(listed)), pa.int32())], schema=_REPORTED)

    def _written(
        self, partition: str, groups: tuple[FileGroup, ...], reported: pa.Table, repeats: RepeatedKeys
    ) -> list[WrittenLog]:
        upkeep = key_upkeep_of(partition)
        read = ChangeReader(self.reader, self.indexes, partition, groups, upkeep)
        changes = self._by_group(self.engine.from_arrow(reported), read, upkeep.changes_schema, reported.num_rows)
        check = repeats.in_tasks(partition)
        write = LogWriter(self.reader.storage, self.instant, groups, upkeep, check)
        done = self.engine.collect(self._by_group(changes, write, _LOGS, len(groups)))
        if check is not None:
            repeats.checked(any(done["repeats"].to_pylist()))
        known = {group.file_id: group for group in groups}
        return [
            WrittenLog(known[row["file_id"]], self.instant, *(row[name] for name in _LOGS.names[1:-1]))
            for row in done.to_pylist()  # one a file group
        ]

    def _by_group(self, rows: Rows, fn: ChangeReader | LogWriter, schema: pa.Schema, groups: int) -> Rows:
        return self.engine.group_map(rows, fn, schema, groups=max(1, groups), one_group_per_task=True)


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """Sent to the tasks: key changes of file groups, with the file group of the index that each goes to."""

    reader: SliceReader
    indexes: KeyIndexes
    partition: str
    groups: tuple[FileGroup, ...]
    upkeep: KeyIndexUpkeep

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            removed, written = (table.filter(m) for m in (table["replaced"], pc.invert(table["replaced"])))
            slices = [status.slices()[1] for status in from_table(removed)]
            changes = removed_changes(self.reader, slices, self.indexes.fields) if slices else []
            changes += group_changes(self.reader, list(from_table(written)), self.indexes.fields)
            for part in changes:
                rows = self.upkeep.grouped_changes(self.partition, part, self.indexes, self.groups)
                yield from rows.to_batches()


@dataclass(frozen=True, slots=True)
class LogWriter:
    """Sent to the tasks: writes the log file of one file group from all that goes to it."""

    storage: Storage
    instant: str
    groups: tuple[FileGroup, ...]
    upkeep: KeyIndexUpkeep
    check: KeyCheck | None = None

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        group = self.groups[number]
        rows = pa.Table.from_batches(list(batches))
        records = self.upkeep.group_records(rows, self.instant, form_of_version(group.version))
        deleted = records.deleted.filter(pc.invert(pc.is_in(records.deleted, value_set=records.keys)))
        if not len(records.keys) and not len(deleted):
            return
        log = write_log(
            self.storage, group, self.instant, records.keys, records.values, deleted, token=task.write_token
        )
        repeats = self.check is not None and self.check.of_group(rows, group.file_id)
        row = [group.file_id, log.name, log.size, log.writes, log.deletes, log.millis, repeats]
        columns = [pa.array([value], field.type) for value, field in zip(row, _LOGS, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=_LOGS)
