"""Which indexes a table can have in its metadata table: told before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.expressions.base import Column
from lakebed.index.base import Index
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.expression_indexes import FIRST_VERSION, ExpressionIndex
from lakebed.metadata.kinds.index_names import IndexName
from lakebed.metadata.kinds.key_changes import can_index
from lakebed.metadata.layout import COLUMN_STATS, PARTITION_STATS, RECORD_INDEX
from lakebed.timeline.table_config import TableConfig


def check_new_indexes(wanted: Sequence[IndexName], config: TableConfig, schema: pa.Schema, index: Index) -> None:
    """Raise `InvalidOption`, `SchemaConflict` or `UnsupportedFeature` for an index that the table cannot have, with
    the ones it has and the others that are `wanted`. `index` is the one that writes use."""
    there = {*config.metadata_partitions, *(name.partition for name in (*wanted, *index.metadata_indexes))}
    for name in wanted:
        if name.partition == RECORD_INDEX:
            _check_record_index(name, config, index)
        elif name.column is not None:
            _check_one_place(config, index, "a secondary index has one value for it")
            _check_secondary_index(name, config, schema, has_record_index=RECORD_INDEX in there)
        elif name.expression is not None:
            _check_expression_index(name.expression, config, schema)
        elif name.partition == PARTITION_STATS:
            _check_partition_stats(config, has_stats=COLUMN_STATS in there or config.version >= 9)


def _check_record_index(name: IndexName, config: TableConfig, index: Index) -> None:
    _check_stored_keys(config, "a record index")
    if name.partitioned and config.version < 9:
        raise UnsupportedFeature(
            f"a record index for each partition path on a table of version {config.version}",
            hint="Versions before 9 have a global one only.",
            context={"feature": "partitioned record index"},
        )
    if not name.partitioned:
        _check_one_place(config, index, "a global record index has one place for it")


def _check_one_place(config: TableConfig, index: Index, why: str) -> None:
    if config.partition_fields and not index.is_global:
        raise InvalidOption(
            f"with the index {index.name!r} a key of table {config.name!r} may stand in each partition path, and {why}",
            hint="Make the table with index='record' or 'global_simple', or a record index for each partition path.",
            context={"index": index.name},
        )


def _check_secondary_index(name: IndexName, config: TableConfig, schema: pa.Schema, *, has_record_index: bool) -> None:
    assert name.column is not None
    _check_stored_keys(config, "a secondary index")
    if config.version < 8:
        raise UnsupportedFeature(
            "tables of version 6 have no secondary index",
            hint="Upgrade the table to version 9.",
            context={"feature": "secondary index"},
        )
    if not has_record_index:
        raise InvalidOption(
            f"a secondary index on {name.column!r} gives record keys, and the table has no record index to find them",
            hint="Create 'record_index' first.",
            context={"column": name.column},
        )
    if len(schema) and not can_index(kind := Column(name.column).type_in(schema)):
        raise UnsupportedFeature(
            f"a secondary index on column {name.column!r} of type {kind}",
            hint="Index a text, an integer, a floating number, a date or a timestamp.",
            context={"feature": "secondary index", "column": name.column, "type": str(kind)},
        )


def _check_expression_index(definition: IndexDefinition, config: TableConfig, schema: pa.Schema) -> None:
    if config.version < FIRST_VERSION:
        raise UnsupportedFeature(
            f"an expression index on a table of version {config.version}",
            hint="Upgrade the table to version 9: Hudi 1.2 does not write to an older one that has such an index.",
            context={"feature": "expression index"},
        )
    if not len(schema):
        raise InvalidOption(
            f"table {config.name!r} has no columns yet that an expression index could be on",
            hint="Create it when the table has rows.",
            context={"index": definition.name},
        )
    ExpressionIndex.of(definition, schema)


def _check_partition_stats(config: TableConfig, *, has_stats: bool) -> None:
    if config.version < 8 or not config.partition_fields or not has_stats:
        raise InvalidOption(
            f"table {config.name!r} cannot have partition statistics",
            hint="They are for partitioned tables from version 8 on that have column_stats.",
        )


def _check_stored_keys(config: TableConfig, what: str) -> None:
    if not config.populate_meta_fields or not config.key_fields:
        raise InvalidOption(
            f"{what} needs record keys that are stored, and table {config.name!r} has none",
            hint="Make the table with key fields and with meta fields.",
        )
