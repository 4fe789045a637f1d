"""The first stage of a write: record key and partition path of every row, and its file group where keys are hashed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.engine.base import GROUP, Rows
from lakebed.expressions.base import RowExpression
from lakebed.expressions.key_text import SingleKey
from lakebed.model import IS_DELETED_COLUMN, PARTITION_PATH, RECORD_KEY
from lakebed.operations.context import TableSchema, WriteContext


def prepare(context: WriteContext, rows: Rows, schema: TableSchema) -> Rows:
    """Key, partition path (and number of the file group) in front of the columns that go into the files."""
    present = context.engine.schema(rows)
    wanted = set(schema.data.names)
    extra = {IS_DELETED_COLUMN, context.config.delete_field}
    keep = [n for n in present.names if n in wanted or n in extra]
    return derive_keys(context, rows, present, keep)


def check_partitions(context: WriteContext, rows: Rows) -> None:
    """Raise `InvalidRecord` for values that make no partition path of the table, where the rows are at hand: what a
    DataFrame holds is seen by the tasks alone, which refuse such a path too."""
    if not context.engine.is_distributed and context.keys.partition_fields:
        context.path_check.require_values(context.engine.collect(rows))


def derivable(context: WriteContext, prepared: pa.Schema) -> dict[str, RowExpression]:
    """What `prepare` put in front that a task makes anew for next to nothing: a key that is the text of one column,
    and the one partition path of a table without partitions.
    """
    made: dict[str, RowExpression] = {}
    key, fields = context.keys.record_key, context.keys.key_fields
    texts = {f.name for f in prepared if pa.types.is_string(f.type)}
    if isinstance(key, SingleKey) and fields[0] in texts:
        made[RECORD_KEY] = key
    if not context.keys.partition_fields:
        made[PARTITION_PATH] = context.keys.partition_path
    return made


def derive_keys(context: WriteContext, rows: Rows, present: pa.Schema, keep: Sequence[str]) -> Rows:
    columns: dict[str, RowExpression] = {
        RECORD_KEY: context.keys.record_key,
        PARTITION_PATH: context.keys.partition_path,
    }
    key_hash = context.index.key_hash
    if key_hash is None:
        return context.engine.derive(rows, columns, keep=keep)
    group = key_hash.group_column(context.keys, present)
    if columns.keys() & set(group.columns):  # of the two that are derived here
        derived = context.engine.derive(rows, columns, keep=keep)
        return context.engine.derive(derived, {GROUP: group})
    return context.engine.derive(rows, {**columns, GROUP: group}, keep=keep)
