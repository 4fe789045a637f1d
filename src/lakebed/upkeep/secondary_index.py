"""Keeps `secondary_index_*` right: which record keys have a value in the indexed field."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.expressions.base import Column
from lakebed.metadata.keys import secondary_file_groups, secondary_keys
from lakebed.metadata.kinds import secondary_index
from lakebed.metadata.kinds.definitions import IndexDefinition, IndexName
from lakebed.metadata.kinds.key_changes import GroupChanges, can_index, secondary_text
from lakebed.metadata.kinds.key_indexes import KeyIndexes, indexed_field, secondary_index_definition
from lakebed.metadata.kinds.secondary_index import entries, indexed_pairs, pairs_of, secondary_index_records
from lakebed.metadata.layout import GroupSizing
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm
from lakebed.metadata.store.group_files import FileGroup
from lakebed.model import RECORD_INDEX, RECORD_KEY, FileSlice
from lakebed.schema.java_text import to_java_text
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map
from lakebed.upkeep.action_keys import ActionKeys, stored_key_indexes
from lakebed.upkeep.comparison import COMPARED, joined
from lakebed.upkeep.grouping import grouped
from lakebed.upkeep.key_kind import GROUPED, KeyIndexUpkeep
from lakebed.upkeep.kind import FirstBuild, NewIndex, NewPartition, StoredTable, TableAction, required, under_keys
from lakebed.upkeep.stored_rows import stored_rows


class SecondaryIndexUpkeep(KeyIndexUpkeep):
    kind = secondary_index.KIND
    changes_schema = pa.schema([("value", pa.string()), ("record_key", pa.string()), ("added", pa.bool_()), *GROUPED])

    def definition(self, name: IndexName, snapshot: Snapshot, settings: WriteSettings) -> IndexDefinition | None:
        assert name.column is not None
        return secondary_index_definition(name.partition, name.column, snapshot.config.version)

    def of_action(self, partition: str, action: TableAction) -> Records | None:
        keys = action.shared(ActionKeys)
        one = keys.indexes.secondary.get(partition)
        if one is None:
            return None
        return secondary_index_records(keys.changes, indexed_field(one), action.form, index_version=one.version)

    def initial(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        assert name.column is not None
        definition = secondary_index_definition(name.partition, name.column, build.snapshot.config.version)
        keys, values = entries(stored_pairs(build.snapshot, name.column, definition.version), build.form)
        groups = [(None, n) for n in range(sizing.file_groups(len(keys)))]
        return grouped(name.partition, Records.upserts(keys, values), groups, definition.version), definition

    def check_new(self, index: NewIndex) -> None:
        column = index.name.column
        if column is None:
            return
        index.require_one_place("a secondary index has one value for it")
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
        if len(index.schema) and not can_index(kind := Column(column).type_in(index.schema)):
            raise UnsupportedFeature(
                f"a secondary index on column {column!r} of type {kind}",
                hint="Index a text, an integer, a floating number, a date or a timestamp.",
                context={"feature": "secondary index", "column": column, "type": str(kind)},
            )

    def is_comparable(self, partition: str, table: StoredTable) -> bool:
        return partition in table.shared(stored_key_indexes).secondary

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        return _comparable(_stored(partition, table))

    def found(self, partition: str, metadata: MetadataTable, table: StoredTable) -> pa.Table:
        definition = table.shared(stored_key_indexes).secondary[partition]
        live = [t.filter(pc.invert(t["is_deleted"])) for t in metadata.entries(partition)]
        # real Hudi adds records without a value to indexes of the first version, which nobody looks up
        pairs = [indexed_pairs(t["value"], t["record_key"], definition.version) for t in live]
        kind = Column(indexed_field(definition)).type_in(table.snapshot.schema)
        if pt.is_floating(kind):
            pairs = [_shortest(t, kind, self.expected(partition, table)["key"]) for t in pairs]
        return joined([_comparable(t) for t in pairs])

    def missing_records(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        whole = Records.upserts(*entries(_stored(partition, table), table.form))
        return under_keys(whole, rows["key"].combine_chunks())

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
    """Values and record keys of the stored rows."""
    definition = table.shared(stored_key_indexes).secondary[partition]
    return stored_pairs(table.snapshot, indexed_field(definition), definition.version)


def stored_pairs(snapshot: Snapshot, field: str, index_version: int) -> pa.Table:
    """`value` and `record_key` of every stored row, read from the latest file slices."""

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


def _shortest(pairs: pa.Table, kind: pa.DataType, known: pa.ChunkedArray) -> pa.Table:
    """The pairs with the texts that lakebed writes, where those are `known`: Java before version 19 printed some
    floating numbers with more digits, and that says the same."""
    texts = to_java_text(pairs["value"].cast(kind))
    other = pc.fill_null(pc.not_equal(texts, pairs["value"]), False)
    if not pc.any(other).as_py():
        return pairs
    is_known = pc.is_in(secondary_keys(texts, pairs["record_key"]), value_set=known.combine_chunks())
    texts = pc.if_else(pc.and_(other, is_known), texts, pairs["value"])
    return pairs.set_column(pairs.column_names.index("value"), "value", texts)
