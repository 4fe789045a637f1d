"""The partitions `secondary_index_*`: which record keys have a value in the indexed field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.expressions.base import Column
from lakebed.format.hashes import plain_strings
from lakebed.metadata_kinds.base import (
    FirstBuild,
    NewIndex,
    NewPartition,
    StoredTable,
    TableAction,
    required,
    under_keys,
)
from lakebed.metadata_kinds.key_changes import (
    AFTER,
    BEFORE,
    GROUPED,
    KEY,
    ActionKeys,
    GroupChanges,
    KeyIndexes,
    KeyIndexKind,
    can_index,
    field_of,
    indexed_field,
    secondary_index_definition,
    secondary_text,
    stored_key_indexes,
)
from lakebed.metadata_kinds.routing import grouped
from lakebed.metadata_kinds.stored import COMPARED, joined, stored_rows
from lakebed.metadata_records.definitions import IndexDefinition, IndexName
from lakebed.metadata_records.group_files import FileGroup
from lakebed.metadata_records.layout import GroupSizing, secondary_file_groups, secondary_keys, split_secondary_keys
from lakebed.metadata_records.records import (
    RecordForm,
    Records,
    RecordType,
    SubRecord,
    enter,
    leave,
    value_head,
    value_tail,
)
from lakebed.model import RECORD_INDEX, RECORD_KEY, SECONDARY_INDEX, FileSlice
from lakebed.schema.java_text import to_java_text
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map

SCHEMA = pa.schema([("value", pa.string()), ("record_key", pa.string()), ("is_deleted", pa.bool_())])
_FIELD = SubRecord.SECONDARY_INDEX


def encode(table: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """The keys and values of records, from `value` (the indexed field as Java's text of it, or null), `record_key`,
    `is_deleted`."""
    if not form.has_secondary:
        raise UnsupportedFeature("tables of version 6 have no secondary index", context={"feature": "secondary index"})
    rows = table.select(SCHEMA.names).combine_chunks()
    keys = secondary_keys(plain_strings(rows["value"]), plain_strings(rows["record_key"]))
    live, deleted = (
        pa.scalar(value_head(RecordType.SECONDARY_INDEX, _FIELD) + flag + value_tail(form, _FIELD), pa.binary())
        for flag in (b"\x00", b"\x01")
    )
    return keys, pc.if_else(rows["is_deleted"].combine_chunks(), deleted, live)


def decode(keys: pa.Array, values: pa.BinaryArray, schema_json: str) -> pa.Table:
    """Decode records that `encode` made, rows in the given order. Raises `CorruptFile`."""
    encoded = values.dictionary_encode()
    cursors, form = enter(encoded.dictionary, schema_json, _FIELD)
    deleted = pa.array(cursors.booleans())
    leave(cursors, form, _FIELD)
    texts, record_keys = split_secondary_keys(keys)
    return pa.Table.from_arrays([texts, record_keys, deleted.take(encoded.indices)], schema=SCHEMA)


# From this index version on records without a value are in the index too.
_FIRST_WITH_NULLS = 2


def secondary_index_records(
    groups: Sequence[GroupChanges], field: str, form: RecordForm, *, index_version: int
) -> Records:
    """The records of the index on a field: the value of each key that was added or changed, and deletes of its former
    value.

    A record that moves to another file group with its value is deleted and inserted, which is an insert.
    """
    deleted = [_texts(g.changes, field, BEFORE, index_version) for g in groups]
    written = [_texts(g.changes, field, AFTER, index_version) for g in groups]
    keys, values = entries(_joined(written), form)
    removed = _joined(deleted)
    return Records(keys, values, pc.unique(secondary_keys(removed["value"], removed["record_key"])))


def entries(pairs: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """The keys and values of the index entries for pairs (`value`, `record_key`), each pair once."""
    if not pairs.num_rows:
        return pa.array([], pa.string()), pa.array([], pa.binary())
    live = pairs.append_column("is_deleted", pa.repeat(pa.scalar(False), pairs.num_rows))
    keys, values = encode(live, form)
    # the payload is the same for all of them
    once = pc.unique(keys)
    return once, values.slice(0, len(once))


def indexed_pairs(values: pa.Array, keys: pa.Array, index_version: int) -> pa.Table:
    """The pairs `value` and `record_key` that an index of this version stores; version 1 does not store nulls."""
    pairs = pa.table({"value": plain_strings(values), "record_key": plain_strings(keys)})
    return pairs if index_version >= _FIRST_WITH_NULLS else pairs.filter(pairs["value"].is_valid())


def pairs_of(changes: pa.Table, field: str, index_version: int) -> pa.Table:
    """A table of `value`, `record_key` and `added`: the entries that an index on the field gains and loses by a file
    group's changes."""
    parts = [(_texts(changes, field, side, index_version), side == AFTER) for side in (BEFORE, AFTER)]
    flagged = [pairs.append_column("added", pa.repeat(pa.scalar(added), pairs.num_rows)) for pairs, added in parts]
    return pa.concat_tables(flagged).combine_chunks()


def _texts(changes: pa.Table, field: str, side: str, index_version: int) -> pa.Table:
    """The pairs of the records before (`was`) or after (`is`) the changes, for which the value differs between both."""
    before, after = field_of(changes, field)
    same = pc.or_(pc.fill_null(pc.equal(before, after), False), pc.and_(before.is_null(), after.is_null()))
    stays = pc.and_(pc.and_(changes[BEFORE], changes[AFTER]), same)
    rows = changes.filter(pc.and_(changes[side], pc.invert(stays)))
    return indexed_pairs(rows[f"{side}.{field}"], rows[KEY], index_version)


def _joined(pairs: Sequence[pa.Table]) -> pa.Table:
    empty = pa.table({"value": pa.array([], pa.string()), "record_key": pa.array([], pa.string())})
    return pa.concat_tables([empty, *pairs])


def _shard(keys: pa.Array, file_groups: int, index_version: int) -> npt.NDArray[np.int32]:
    return secondary_file_groups(keys, file_groups, version=index_version)


def _describe(definition: IndexDefinition | None) -> str:
    return "secondary index"


class SecondaryIndexKind(KeyIndexKind):
    changes_schema: ClassVar[pa.Schema] = pa.schema(
        [("value", pa.string()), ("record_key", pa.string()), ("added", pa.bool_()), *GROUPED]
    )

    def definition(self, name: IndexName, snapshot: Snapshot, settings: WriteSettings) -> IndexDefinition | None:
        assert name.column is not None
        return secondary_index_definition(name.partition, name.column, snapshot.config.version)

    def records_of_action(self, partition: str, action: TableAction) -> Records | None:
        keys = action.shared(ActionKeys)
        definition = keys.indexes.secondary.get(partition)
        if definition is None:
            return None
        return secondary_index_records(
            keys.changes, indexed_field(definition), action.form, index_version=definition.version
        )

    def first_records(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        assert name.column is not None
        definition = secondary_index_definition(name.partition, name.column, build.snapshot.config.version)
        keys, values = entries(stored_pairs(build.snapshot, name.column, definition.version), build.form)
        groups = [(None, n) for n in range(sizing.file_groups(len(keys)))]
        return grouped(name.partition, Records.upserts(keys, values), groups, definition.version), definition

    def check_new(self, index: NewIndex) -> None:
        column = index.name.column
        if column is None:
            return
        kind = Column(column).type_in(index.schema) if len(index.schema) else None  # raises for an unknown column
        index.require_one_location("a secondary index has one value for it")
        index.require_stored_keys("a secondary index")
        if index.config.version < 8:
            raise UnsupportedFeature(
                "tables of version 6 have no secondary index",
                hint="Upgrade the table to version 9.",
                context={"feature": "secondary index"},
            )
        if RECORD_INDEX not in index.partitions:
            raise InvalidOption(
                f"a secondary index on {column!r} gives record keys, and the table has no record index to find them",
                hint="Create 'record_index' first.",
                context={"column": column},
            )
        if kind is not None and not can_index(kind):
            raise UnsupportedFeature(
                f"a secondary index on column {column!r} of type {kind}",
                hint="Index a text, an integer, a floating number, a date or a timestamp.",
                context={"feature": "secondary index", "column": column, "type": str(kind)},
            )

    def is_comparable(self, partition: str, table: StoredTable) -> bool:
        return partition in table.shared(stored_key_indexes).secondary

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        return _comparable(_stored(partition, table))

    def found(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> pa.Table:
        definition = table.shared(stored_key_indexes).secondary[partition]
        live = [t.filter(pc.invert(t["is_deleted"])) for t in metadata.entries(partition)]
        # in indexes of the first version, real Hudi also stores records without a value, which no reader looks up
        pairs = [indexed_pairs(t["value"], t["record_key"], definition.version) for t in live]
        kind = Column(indexed_field(definition)).type_in(table.snapshot.schema)
        if pt.is_floating(kind):
            pairs = [_shortest(t, kind, self.expected(partition, table)["key"]) for t in pairs]
        return joined([_comparable(t) for t in pairs])

    def repair_missing(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        records = Records.upserts(*entries(_stored(partition, table), table.form))
        return under_keys(records, rows["key"].combine_chunks())

    def index_name(self, partition: str, definition: IndexDefinition | None) -> IndexName:
        return IndexName(partition, column=indexed_field(required(partition, definition)))

    # in jobs

    def grouped_changes(
        self, partition: str, part: GroupChanges, indexes: KeyIndexes, groups: Sequence[FileGroup]
    ) -> pa.Table:
        definition = indexes.secondary[partition]
        pairs = pairs_of(part.changes, indexed_field(definition), definition.version)
        keys = secondary_keys(pairs["value"], pairs["record_key"])
        shards = secondary_file_groups(keys, len(groups), version=definition.version)
        path = pa.repeat(pa.scalar(""), len(keys))
        columns = [*pairs.columns, path, pa.array(shards, pa.int32())]
        return pa.Table.from_arrays(columns, schema=self.changes_schema)

    def group_records(self, rows: pa.Table, instant: str, form: RecordForm) -> Records:
        added, removed = rows.filter(rows["added"]), rows.filter(pc.invert(rows["added"]))
        keys, values = entries(added.select(["value", "record_key"]), form)
        return Records(keys, values, pc.unique(secondary_keys(removed["value"], removed["record_key"])))


def _stored(partition: str, table: StoredTable) -> pa.Table:
    """The values and record keys of the stored rows."""
    definition = table.shared(stored_key_indexes).secondary[partition]
    return stored_pairs(table.snapshot, indexed_field(definition), definition.version)


def stored_pairs(snapshot: Snapshot, field: str, index_version: int) -> pa.Table:
    """The `value` and `record_key` of every stored row, read from the latest file slices."""

    def read(file_slice: FileSlice) -> pa.Table:
        rows = stored_rows(snapshot.reader, file_slice, [RECORD_KEY, field.partition(".")[0]])
        missing = field.partition(".")[0] not in rows.schema.names
        texts = pa.nulls(rows.num_rows, pa.string()) if missing else secondary_text(Column(field).arrow(rows))
        return indexed_pairs(texts, rows.column(RECORD_KEY), index_version)

    empty = pa.table({"value": pa.array([], pa.string()), "record_key": pa.array([], pa.string())})
    return pa.concat_tables([empty, *parallel_map(read, list(snapshot.file_slices()))])


def _comparable(pairs: pa.Table) -> pa.Table:
    keys = secondary_keys(pairs["value"], pairs["record_key"])
    empty = pa.repeat(pa.scalar(""), len(keys))
    return pa.Table.from_arrays([keys, empty, keys, empty], schema=COMPARED)


def _shortest(pairs: pa.Table, kind: pa.DataType, stored_keys: pa.ChunkedArray) -> pa.Table:
    """The pairs with the texts that lakebed writes, if their keys are in `stored_keys`: Java before version 19 printed
    some floating-point numbers with more digits, which mean the same number."""
    texts = to_java_text(pairs["value"].cast(kind))
    differs = pc.fill_null(pc.not_equal(texts, pairs["value"]), False)
    if not pc.any(differs).as_py():
        return pairs
    is_known = pc.is_in(secondary_keys(texts, pairs["record_key"]), value_set=stored_keys.combine_chunks())
    texts = pc.if_else(pc.and_(differs, is_known), texts, pairs["value"])
    return pairs.set_column(pairs.column_names.index("value"), "value", texts)


KIND = SecondaryIndexKind(
    SECONDARY_INDEX,
    is_prefix=True,
    grows=True,
    shard=_shard,
    shard_by_version=True,
    decode=decode,
    build_position=50,
    describe=_describe,
)
