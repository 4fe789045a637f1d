"""The record keys that an action added to and removed from file groups, for the indexes of record keys.

Write tasks report them, inline or in side files next to the markers: each row is a key, whether it was in the file
group before and is now, and for each indexed field its text then and now. If a task did not report them (the index is
newer than the write), the slice is compared with the slice before it. `KeyIndexKind` is a kind that is maintained from
them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.concurrency.conflicts import CLUSTER_OPERATION
from lakebed.concurrency.markers import marker_folder
from lakebed.engine.base import GROUP
from lakebed.errors import UnsupportedFeature
from lakebed.expressions.base import Column
from lakebed.format.hashes import plain_strings
from lakebed.metadata_kinds.base import PartitionKind, StoredTable, TableAction
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_kinds.stored import stored_rows
from lakebed.metadata_records.definitions import IndexDefinition, load_definitions
from lakebed.metadata_records.group_files import FileGroup
from lakebed.metadata_records.records import RecordForm, Records
from lakebed.model import PARTITION_PATH, RECORD_INDEX, RECORD_KEY, FileSlice
from lakebed.properties.table_config import TableConfig
from lakebed.schema.java_text import to_java_text
from lakebed.sharing import once
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map
from lakebed.write_status import WriteStatus, on_slice

KEY, BEFORE, AFTER = "key", "was", "is"


def changes_schema(fields: Sequence[str] = ()) -> pa.Schema:
    """The columns of key changes: `key`, `was`, `is`, and `was.<field>`, `is.<field>` for each indexed field."""
    flags = [(KEY, pa.string()), (BEFORE, pa.bool_()), (AFTER, pa.bool_())]
    return pa.schema([*flags, *((f"{side}.{name}", pa.string()) for name in fields for side in (BEFORE, AFTER))])


def secondary_text(values: pa.Array) -> pa.StringArray:
    """The values of an indexed field as a secondary index stores them: numbers in Java's form, dates as days and
    timestamps as microseconds since 1970, null as null. A floating-point number has the shortest text that gives the
    same number, as Java prints it from version 19 on; older versions print more digits for some (2.0**60), and real
    Hudi on an older Java does not find these by the index.

    >>> from datetime import date
    >>> secondary_text(pa.array([date(1970, 1, 3), None])).to_pylist()
    ['2', None]

    Raises `UnsupportedFeature` for types of which Hudi has no such index.
    """
    kind = values.type.value_type if pt.is_dictionary(values.type) else values.type
    if not can_index(kind):
        raise UnsupportedFeature(
            f"a secondary index on a column of type {kind}",
            hint="Index a text, an integer, a floating number, a date or a timestamp.",
            context={"feature": "secondary index", "type": str(kind)},
        )
    if pt.is_date(kind):
        values = values.cast(pa.date32()).cast(pa.int32())
    elif pt.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", kind.tz), safe=False)
    return plain_strings(to_java_text(values)).cast(pa.string())


def can_index(kind: pa.DataType) -> bool:
    """Whether a column of this type can have a secondary index."""
    plain = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_integer(kind) or pt.is_floating(kind)
    return plain or pt.is_date(kind) or pt.is_timestamp(kind)


@dataclass(slots=True)
class KeyChanges:
    """A collection of key changes while a file is written. `fields` are the fields of secondary indexes, by dotted
    path."""

    fields: tuple[str, ...] = ()
    _parts: list[pa.RecordBatch] = field(default_factory=list[pa.RecordBatch])

    @property
    def columns(self) -> list[str]:
        """The columns that rows must have: the key, and the columns of the fields (rows of a file without such a column
        lack it)."""
        return [RECORD_KEY, *dict.fromkeys(name.partition(".")[0] for name in self.fields)]

    def added(self, rows: pa.RecordBatch) -> None:
        """Record rows whose keys the file group did not have."""
        self._put(rows.column(RECORD_KEY), None, rows)

    def removed(self, rows: pa.RecordBatch) -> None:
        """Record rows that the file group does not hold any more."""
        self._put(rows.column(RECORD_KEY), rows, None)

    def updated(self, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
        """Record the rows in which an indexed value changes: rows and their replacements, in the same order."""
        if self.fields:
            self._put(before.column(RECORD_KEY), before, after)

    def table(self) -> pa.Table:
        """The recorded key changes."""
        return pa.Table.from_batches(self._parts, changes_schema(self.fields))

    def _put(self, keys: pa.Array, before: pa.RecordBatch | None, after: pa.RecordBatch | None) -> None:
        rows = len(keys)
        if not rows:
            return
        flags = [pa.repeat(pa.scalar(side is not None, pa.bool_()), rows) for side in (before, after)]
        values = [_texts(side, name, rows) for name in self.fields for side in (before, after)]
        columns = [plain_strings(keys).cast(pa.string()), *flags, *values]
        batch = pa.RecordBatch.from_arrays(columns, schema=changes_schema(self.fields))
        if before is not None and after is not None:
            batch = batch.filter(_differ(batch, self.fields))
        if batch.num_rows:
            self._parts.append(batch)


def as_bytes(changes: pa.Table, *, compressed: bool = False) -> bytes:
    """Key changes as an Arrow stream; `from_bytes` reads it."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compressed else None)
    with pa.ipc.new_stream(sink, changes.schema, options=options) as stream:
        stream.write_table(changes)
    return sink.getvalue().to_pybytes()


def from_bytes(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()


def field_of(changes: pa.Table, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The texts of an indexed field before and after the change."""
    return changes[f"{BEFORE}.{name}"], changes[f"{AFTER}.{name}"]


def _texts(rows: pa.RecordBatch | None, name: str, count: int) -> pa.Array:
    if rows is None or name.partition(".")[0] not in rows.schema.names:
        return pa.nulls(count, pa.string())
    return secondary_text(Column(name).arrow(rows))


def _differ(batch: pa.RecordBatch, fields: Sequence[str]) -> pa.Array:
    """Flags of the rows in which one of the fields has another value than before; null is a value."""
    differs = pa.repeat(pa.scalar(False), batch.num_rows)
    for name in fields:
        before, after = (batch.column(f"{side}.{name}") for side in (BEFORE, AFTER))
        unequal = pc.fill_null(pc.not_equal(before, after), False)
        differs = pc.or_(differs, pc.or_(unequal, pc.xor(before.is_null(), after.is_null())))
    return differs


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """The key changes of one file group by one action."""

    partition: str
    file_id: str
    changes: pa.Table


# Changes up to this size travel with the status through the driver, larger ones in a file.
INLINE_BYTES = 16 << 10


def report_changes(storage: Storage, instant: str, path: str, changes: KeyChanges) -> dict[str, Any]:
    """The fields of a status with the keys that a file gained and lost. Many keys are written to a side file in the
    instant's marker folder, which is deleted with the folder."""
    table = changes.table()
    if not table.num_rows:  # only these fields: an index that was created meanwhile may have another one
        return {"changes": as_bytes(table)}
    reported: dict[str, Any] = {"changed_keys": table.num_rows}
    if table.nbytes <= INLINE_BYTES:
        return reported | {"changes": as_bytes(table)}
    side_file = f"{marker_folder(instant)}/{path}.keys"
    storage.write(side_file, as_bytes(table, compressed=True))
    return reported | {"changes_file": side_file}


def is_reported(status: WriteStatus) -> bool:
    """Whether the task that wrote the file recorded which keys it gained and lost."""
    return status.changes is not None or status.changes_file is not None


def changes_in(storage: Storage, changes: bytes | None, changes_file: str | None, fields: Sequence[str]) -> pa.Table:
    """The changed keys of a status."""
    data = storage.read(changes_file) if changes_file else changes
    return from_bytes(data) if data else changes_schema(fields).empty_table()


def group_changes(
    reader: SliceReader, statuses: Sequence[WriteStatus], fields: Sequence[str] = ()
) -> list[GroupChanges]:
    """The key changes of each file that was written."""

    def read(status: WriteStatus) -> GroupChanges:
        if is_reported(status):
            changes = changes_in(reader.storage, status.changes, status.changes_file, fields)
            if set(changes_schema(fields).names) <= set(changes.column_names):
                return GroupChanges(status.partition, status.file_id, changes)
        return GroupChanges(status.partition, status.file_id, compared(reader, status, fields))

    return parallel_map(read, [s for s in statuses if s.path is not None])


def on_their_slices(
    statuses: Sequence[WriteStatus], appended: Collection[str], snapshot: Snapshot
) -> list[WriteStatus]:
    """The statuses; those of log files in the file groups `appended` also have all files of the slices to which the
    logs were added."""
    if not appended:
        return list(statuses)
    paths = {s.partition for s in statuses if s.file_id in appended}
    slices = snapshot.file_slices(paths, groups_of_ids(appended))
    stored = {(s.partition, s.file_id): s for s in slices if s.file_id in appended}
    return [on_slice(s, stored.get((s.partition, s.file_id))) if s.file_id in appended else s for s in statuses]


def compared(reader: SliceReader, status: WriteStatus, fields: Sequence[str]) -> pa.Table:
    """The key changes of a file group, from the keys (and indexed fields) of its slice and of its previous slice."""
    changes = KeyChanges(tuple(fields))
    earlier, written = status.slices()
    after = stored_rows(reader, written, changes.columns)
    if earlier is None:
        changes.added(after)
        return changes.table()
    note_differences(changes, stored_rows(reader, earlier, changes.columns), after)
    return changes.table()


def note_differences(changes: KeyChanges, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
    """Record in `changes` the changes from `before` to `after`, rows of one file group at two times."""
    at = pc.index_in(before.column(RECORD_KEY), value_set=after.column(RECORD_KEY))
    changes.removed(before.filter(at.is_null()))
    changes.added(after.filter(pc.invert(pc.is_in(after.column(RECORD_KEY), value_set=before.column(RECORD_KEY)))))
    changes.updated(before.filter(at.is_valid()), after.take(at.drop_null()))


def removed_changes(
    reader: SliceReader, slices: Collection[FileSlice], fields: Sequence[str] = ()
) -> list[GroupChanges]:
    """The key changes of file groups that are replaced: all their keys are removed."""

    def read(file_slice: FileSlice) -> GroupChanges:
        changes = KeyChanges(tuple(fields))
        changes.removed(stored_rows(reader, file_slice, changes.columns))
        return GroupChanges(file_slice.partition, file_slice.file_id, changes.table())

    return parallel_map(read, list(slices))


_IS_PARTITIONED = "isPartitioned"
_FIRST_VERSION_WITH_DEFINITION = 9


@dataclass(frozen=True, slots=True)
class KeyIndexes:
    """The indexes of record keys of a table. `secondary` has each secondary index's definition by its partition;
    `partitioned` is whether the record index is partitioned."""

    record_index: bool = False
    partitioned: bool = False
    secondary: Mapping[str, IndexDefinition] = field(default_factory=dict[str, IndexDefinition])

    @classmethod
    def of(cls, storage: Storage, config: TableConfig) -> KeyIndexes:
        """The indexes that every write must maintain, complete or being built. Reads the definitions if there are
        any."""
        if not config.key_indexes:
            return cls()
        definitions = load_definitions(storage, config)
        secondary = {n: definitions[n] for n in config.key_indexes if n != RECORD_INDEX and n in definitions}
        return cls(RECORD_INDEX in config.key_indexes, is_partitioned(definitions.get(RECORD_INDEX)), secondary)

    def of_partitions(self, partitions: Collection[str]) -> KeyIndexes:
        """The index names among some partitions of the metadata table."""
        secondary = {name: definition for name, definition in self.secondary.items() if name in partitions}
        return KeyIndexes(self.record_index and RECORD_INDEX in partitions, self.partitioned, secondary)

    def __bool__(self) -> bool:
        return self.record_index or bool(self.secondary)

    @property
    def partitions(self) -> list[str]:
        """The partitions of the metadata table that these indexes are in."""
        return [*([RECORD_INDEX] if self.record_index else []), *self.secondary]

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields whose values are reported with the keys."""
        return tuple(dict.fromkeys(indexed_field(definition) for definition in self.secondary.values()))


def is_partitioned(definition: IndexDefinition | None) -> bool:
    """Whether a record index consists of one index per partition path of the data."""
    return definition is not None and definition.options.get(_IS_PARTITIONED, "").lower() == "true"


def indexed_field(definition: IndexDefinition) -> str:
    """The field that a secondary index is on."""
    return definition.source_fields[0]


def record_index_definition(version: int, *, partitioned: bool) -> IndexDefinition | None:
    """The definition of a record index; None for tables before version 9."""
    if version < _FIRST_VERSION_WITH_DEFINITION:
        return None
    return IndexDefinition(RECORD_INDEX, RECORD_INDEX, options={_IS_PARTITIONED: str(partitioned).lower()})


def secondary_index_definition(name: str, column: str, version: int) -> IndexDefinition:
    """The definition of a secondary index, which has the partition `name`."""
    return IndexDefinition(name, "secondary_index", "identity", (column,), version=2 if version >= 9 else 1)


class ActionKeys:
    """The indexes of record keys that an action must update, and the keys that it changed."""

    def __init__(self, action: TableAction) -> None:
        self._action = action
        snapshot = action.snapshot
        self.indexes = KeyIndexes.of(snapshot.storage, snapshot.config).of_partitions(action.partitions)

    @once
    def changes(self) -> list[GroupChanges]:
        """The key changes of all file groups: first those of replaced file groups, whose keys are read."""
        reader, fields, replaced = self._action.snapshot.reader, self.indexes.fields, self.replaced
        action_reader = replace(reader, blocks=reader.blocks.with_writer_of(self._action.instant))
        removed = removed_changes(reader, replaced, fields) if replaced else []
        return [*removed, *group_changes(action_reader, self._on_their_slices(), fields)]

    def _on_their_slices(self) -> list[WriteStatus]:
        """The statuses; log files whose keys may have to be read have all files of their slice."""
        statuses = list(self._action.statuses)
        logs = [s for s in statuses if s.path is not None and s.log_files is not None]
        return on_their_slices(
            statuses, {s.file_id for s in logs if self.indexes.fields or not is_reported(s)}, self._action.snapshot
        )

    @once
    def replaced(self) -> list[FileSlice]:
        """The slices of the replaced file groups whose keys may be deleted. Empty for a clustering, whose keys move to
        other file groups."""
        if self._action.commit.operation == CLUSTER_OPERATION:
            return []
        ids = {(path, name) for path, names in self._action.commit.replaced.items() for name in names}
        if not ids:
            return []
        slices = self._action.snapshot.file_slices({p for p, _ in ids}, groups_of_ids({name for _, name in ids}))
        return [s for s in slices if (s.partition, s.file_id) in ids]


def stored_key_indexes(table: StoredTable) -> KeyIndexes:
    """The indexes of record keys that a table keeps."""
    return KeyIndexes.of(table.snapshot.storage, table.snapshot.config)


# The columns by which a job shuffles rows to the file groups of an index.
GROUPED = ((PARTITION_PATH, pa.string()), (GROUP, pa.int32()))


class KeyIndexKind(PartitionKind):
    """The work of tasks after an action that changed many keys: they make rows of `changes_schema` from the changes of
    the table's file groups, and records from all rows of one file group of the index."""

    changes_schema: pa.Schema

    def grouped_changes(
        self, partition: str, part: GroupChanges, indexes: KeyIndexes, groups: Sequence[FileGroup]
    ) -> pa.Table:
        """The changes of one file group of the table, each with the number of the file group of the index that stores
        it."""
        raise NotImplementedError

    def group_records(self, rows: pa.Table, instant: str, form: RecordForm) -> Records:
        """The records of one file group of the index, from its rows."""
        raise NotImplementedError


def key_kind_of(partition: str) -> KeyIndexKind:
    """The kind of an index of record keys."""
    kind = kind_of(partition)
    assert isinstance(kind, KeyIndexKind)
    return kind
