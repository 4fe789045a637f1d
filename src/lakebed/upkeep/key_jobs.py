"""Many key changes of one action: tasks read what the writers told, a shuffle by file group, tasks write the log files.

The same as `KeyRecords` does in one process for few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Engine, Rows, Task
from lakebed.engine.groups import GROUP
from lakebed.metadata.keys import file_group, secondary_file_groups, secondary_keys
from lakebed.metadata.kinds.key_indexes import KeyIndexes, indexed_field
from lakebed.metadata.kinds.record_index_updates import GroupChanges, encoded_places, latest_places, places_of
from lakebed.metadata.kinds.secondary_updates import entries, pairs_of
from lakebed.metadata.layout import RECORD_INDEX, data_partition_of
from lakebed.metadata.schemas import form_of_version
from lakebed.metadata.store.group_files import FileGroup, WrittenLog, write_log
from lakebed.metadata.store.writer import MetadataWriter
from lakebed.model import FILE_ID, PARTITION_PATH, BaseFile
from lakebed.storage.base import Storage
from lakebed.upkeep.changed_keys import group_changes, removed_changes
from lakebed.upkeep.write_status import STATUS_SCHEMA, WriteStatus, from_table

# Changed keys of an action from which on jobs make their records: this process makes a million in 1.5 s.
LARGE_KEYS = 2_000_000
# What is told of a file group: a status, or a base file that is replaced.
_TOLD = pa.schema([*STATUS_SCHEMA, ("replaced", pa.bool_()), (PARTITION_PATH, pa.string()), (GROUP, pa.int32())])
_OLD_PARTITION = "old_partition"
_PLACES = pa.schema(
    [
        ("key", pa.string()),
        (_OLD_PARTITION, pa.string()),
        (FILE_ID, pa.string()),
        ("came", pa.bool_()),
        (PARTITION_PATH, pa.string()),
        (GROUP, pa.int32()),
    ]
)
_PAIRS = pa.schema(
    [
        ("value", pa.string()),
        ("record_key", pa.string()),
        ("came", pa.bool_()),
        (PARTITION_PATH, pa.string()),
        (GROUP, pa.int32()),
    ]
)
_LOGS = pa.schema(
    [
        ("file_id", pa.string()),
        ("name", pa.string()),
        ("size", pa.int64()),
        ("writes", pa.int64()),
        ("deletes", pa.int64()),
        ("millis", pa.int64()),
    ]
)


def is_large(statuses: Sequence[WriteStatus], engine: Engine | None) -> bool:
    """Whether an action changed so many keys that jobs are worth while."""
    return engine is not None and engine.is_distributed and sum(s.changed_keys for s in statuses) >= LARGE_KEYS


@dataclass(frozen=True)
class KeyJobs:
    """Writes the log files of one action to the indexes of record keys."""

    engine: Engine
    storage: Storage
    instant: str
    indexes: KeyIndexes

    def run(
        self, writer: MetadataWriter, statuses: Sequence[WriteStatus], replaced: Sequence[BaseFile]
    ) -> list[WrittenLog]:
        """Begin the delta commit and write the log files of all file groups that get records.

        None where a partitioned record index has no file groups yet for some of the partition paths.
        """
        indexes = [*([RECORD_INDEX] if self.indexes.record_index else []), *self.indexes.secondary]
        if self.indexes.partitioned:
            known = {data_partition_of(group.file_id) for group in writer.file_groups(RECORD_INDEX)}
            if not {s.partition for s in statuses if s.path is not None} <= known:
                return []
        groups = writer.begin(self.instant, indexes)
        told = self._told(statuses, replaced)
        return [log for partition, its in groups.items() for log in self._written(partition, tuple(its), told)]

    def _told(self, statuses: Sequence[WriteStatus], replaced: Sequence[BaseFile]) -> pa.Table:
        gone = [WriteStatus(f.partition, f.file_id, path=f.path, file_size=f.size) for f in replaced]
        listed = [*gone, *(s for s in statuses if s.path is not None)]
        columns = [pa.array([getattr(s, f.name) for s in listed], f.type) for f in STATUS_SCHEMA]
        columns.append(pa.array([i < len(gone) for i in range(len(listed))]))
        columns.append(pa.repeat(pa.scalar(""), len(listed)))
        return pa.Table.from_arrays([*columns, pa.array(range(len(listed)), pa.int32())], schema=_TOLD)

    def _written(self, partition: str, groups: tuple[FileGroup, ...], told: pa.Table) -> list[WrittenLog]:
        read = ChangeReader(self.storage, self.indexes, partition, groups)
        schema = _PLACES if partition == RECORD_INDEX else _PAIRS
        changes = self._by_group(self.engine.from_arrow(told), read, schema, told.num_rows)
        write = LogWriter(self.storage, self.instant, partition, groups)
        done = self.engine.collect(self._by_group(changes, write, _LOGS, len(groups)))
        known = {group.file_id: group for group in groups}
        return [
            WrittenLog(known[row["file_id"]], self.instant, *(row[name] for name in _LOGS.names[1:]))
            for row in done.to_pylist()  # one a file group
        ]

    def _by_group(self, rows: Rows, fn: ChangeReader | LogWriter, schema: pa.Schema, groups: int) -> Rows:
        return self.engine.group_map(rows, fn, schema, groups=max(1, groups), one_group_per_task=True)


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """Sent to the tasks: key changes of file groups, with the file group of the index that each goes to."""

    storage: Storage
    indexes: KeyIndexes
    partition: str
    groups: tuple[FileGroup, ...]

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        storage = self.storage
        for batch in batches:
            table = pa.Table.from_batches([batch])
            gone, written = (table.filter(m) for m in (table["replaced"], pc.invert(table["replaced"])))
            files = [
                BaseFile(s.partition, s.file_id, "", "", (s.path or "").rpartition("/")[2], s.file_size)
                for s in from_table(gone)
            ]
            changes = removed_changes(storage, files, self.indexes.fields) if files else []
            changes += group_changes(storage, list(from_table(written)), self.indexes.fields)
            for part in changes:
                yield from (self._places(part) if self.partition == RECORD_INDEX else self._pairs(part)).to_batches()

    def _places(self, part: GroupChanges) -> pa.Table:
        keys, came = places_of(part.changes)
        path = part.partition if self.indexes.partitioned else ""
        mine = [g for g in self.groups if (data_partition_of(g.file_id) or "") == path]
        first = self.groups.index(mine[0])
        n = len(keys)
        texts = [pa.repeat(pa.scalar(text), n) for text in (part.partition, part.file_id)]
        shards = pa.array(file_group(keys, len(mine)) + first, pa.int32())
        return pa.Table.from_arrays([keys, *texts, came, pa.repeat(pa.scalar(""), n), shards], schema=_PLACES)

    def _pairs(self, part: GroupChanges) -> pa.Table:
        definition = self.indexes.secondary[self.partition]
        pairs = pairs_of(part.changes, indexed_field(definition), definition.version)
        keys = secondary_keys(pairs["value"], pairs["record_key"])
        shards = secondary_file_groups(keys, len(self.groups), version=definition.version)
        path = pa.repeat(pa.scalar(""), len(keys))
        return pa.Table.from_arrays([*pairs.columns, path, pa.array(shards, pa.int32())], schema=_PAIRS)


@dataclass(frozen=True, slots=True)
class LogWriter:
    """Sent to the tasks: writes the log file of one file group from all that goes to it."""

    storage: Storage
    instant: str
    partition: str
    groups: tuple[FileGroup, ...]

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        storage = self.storage
        rows = pa.Table.from_batches(list(batches))
        came, went = rows.filter(rows["came"]), rows.filter(pc.invert(rows["came"]))
        group = self.groups[number]
        form = form_of_version(group.version)
        if self.partition == RECORD_INDEX:
            names = ["key", "partition", "file_id"]
            places = came.select(["key", _OLD_PARTITION, FILE_ID]).rename_columns(names)
            places = places.append_column("instant", pa.repeat(pa.scalar(self.instant), places.num_rows))
            keys, values = encoded_places(latest_places(places, partitioned=False), form)
            gone = pc.unique(went["key"])
        else:
            keys, values = entries(came.select(["value", "record_key"]), form)
            gone = pc.unique(secondary_keys(went["value"], went["record_key"]))
        gone = gone.filter(pc.invert(pc.is_in(gone, value_set=keys)))
        if not len(keys) and not len(gone):
            return
        log = write_log(storage, group, self.instant, keys, values, gone, token=task.write_token)
        row = [group.file_id, log.name, log.size, log.writes, log.deletes, log.millis]
        columns = [pa.array([value], field.type) for value, field in zip(row, _LOGS, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=_LOGS)
