"""The table of rejects: rows that a check kept out of a table, complete, with the names of the checks and the time.

It is a table of its own below the `.hoodie` folder of the table, made by the first row that comes to it. A row has an
id that follows from its values, so that a write that is run again leaves it there once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.options import resolve_options, with_table_settings
from lakebed.config.settings import TableSettings
from lakebed.engine.base import Rows, Task
from lakebed.errors import SchemaConflict, TableNotFound
from lakebed.expressions.base import RowExpression
from lakebed.format.hashes import java_hash, java_list_hash
from lakebed.index.ranking import TableProfile
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import HOODIE
from lakebed.operations.checks import QUARANTINED, Judged
from lakebed.operations.context import WriteContext, schema_for_write
from lakebed.operations.create import create
from lakebed.operations.result import WriteResult
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.read.scan import Scan
from lakebed.schema.assignment import project_incoming
from lakebed.schema.evolution import EVOLUTION_OPTION
from lakebed.schema.java_text import to_java_text
from lakebed.storage.base import Storage
from lakebed.storage.folder import FolderStorage

REJECTS_FOLDER = f"{HOODIE}/lakebed_rejects"
# What follows the record key in an id: the names of checks, and a number.
_AFTER_KEY = r"\|[^|]*\|[0-9]+$"
# Stands between a partition path and a key; no folder has it in its name.
_BETWEEN = "\0"
# The table of rejects follows the columns of its table: those that went are null, those that were widened are wider.
_FOLLOWS_COLUMNS = {"hoodie.write.set.null.for.missing.columns": "true", EVOLUTION_OPTION: "widen"}


def time_column(name: str, rows: int) -> tuple[pa.Field, pa.Array]:
    """A column with the present time in each row: when a row was put aside."""
    field = pa.field(name, pa.timestamp("us", "UTC"))
    return field, pa.repeat(pa.scalar(time.time_ns() // 1000, pa.int64()).cast(field.type), rows)


def rejects_storage(storage: Storage) -> Storage:
    """The storage of the table of rejects of the table in `storage`."""
    return FolderStorage(storage, REJECTS_FOLDER)


def rejects_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of the table of rejects of a table with these columns."""
    row = pa.struct([field.with_nullable(True).remove_metadata() for field in columns])
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            ("check", pa.string()),
            ("rejected_at", pa.timestamp("us", "UTC")),
            ("row", row),
        ]
    )


@dataclass(frozen=True, slots=True)
class _Rejected:
    """A task function that makes rows of the table of rejects of quarantined rows."""

    schema: pa.Schema
    key: RowExpression | None

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        columns = pa.schema([field.with_nullable(True) for field in self.schema])
        for batch in batches:
            rows = project_incoming(batch, columns)
            keys = pa.repeat(pa.scalar(""), batch.num_rows) if self.key is None else self.key.arrow(batch)
            _, times = time_column("rejected_at", batch.num_rows)
            row = pa.StructArray.from_arrays(rows.columns, fields=list(rejects_schema(self.schema).field("row").type))
            ids = _ids(pc.fill_null(keys, ""), batch.column(QUARANTINED), rows)
            yield pa.RecordBatch.from_arrays(
                [ids, batch.column(QUARANTINED), times, row], schema=rejects_schema(self.schema)
            )


def _ids(keys: pa.Array, checks: pa.Array, rows: pa.RecordBatch) -> pa.Array:
    """A text for each row that follows from its key, its checks and its values: rows of one key that differ have
    different ones, up to a chance of 2**-64."""
    texts = [_text(column) for column in rows.columns]
    hashes = np.stack(
        [
            java_list_hash([java_hash(text) for text in texts]).astype(np.uint32),
            java_list_hash([java_hash(pc.utf8_reverse(text)) for text in reversed(texts)]).astype(np.uint32),
        ]
    ).astype(np.uint64)
    numbers = pa.array((hashes[0] << np.uint64(32)) | hashes[1], pa.uint64()).cast(pa.string())
    return pc.binary_join_element_wise(keys, checks, numbers, "|")


def _text(values: pa.Array) -> pa.Array:
    """The values as texts; those of nested columns one by one, for which Arrow has no text."""
    if pa.types.is_nested(values.type):
        return pa.array([str(value) for value in values.to_pylist()], pa.string())
    if pa.types.is_binary(values.type) or pa.types.is_fixed_size_binary(values.type):
        return pa.array([value.hex() if value is not None else None for value in values.to_pylist()], pa.string())
    return to_java_text(values)


def rejects_of(context: WriteContext, options: Mapping[str, str] = MappingProxyType({})) -> WriteContext | None:
    """The context of writes to the table of rejects of a table; None where it has none yet."""
    storage = rejects_storage(context.storage)
    try:
        config = load_table_config(storage)
    except TableNotFound:
        return None
    settings = with_table_settings(resolve_options(options), config.properties)
    return WriteContext(open_snapshot(storage, config), context.engine, settings)


def rejects_of_keys(context: WriteContext, rejects: WriteContext, keys: pa.Array, paths: pa.Array | None) -> pa.Table:
    """The rows of the table of rejects whose record keys are among these, in the partition path beside each key if
    paths are given: `id`, and the record key as `key`."""
    parts = [pa.table({"id": pa.array([], pa.string()), "key": pa.array([], pa.string())})]
    searched = keys if paths is None else pc.binary_join_element_wise(paths, keys, _BETWEEN)
    for batch in Scan(rejects.opened).of_columns(["id", "row"]).to_batches():
        texts = pc.replace_substring_regex(batch.column("id"), _AFTER_KEY, "")
        named = texts
        if paths is not None:
            rows = pa.RecordBatch.from_struct_array(batch.column("row"))
            named = pc.binary_join_element_wise(context.keys.partition_path.arrow(rows), texts, _BETWEEN)
        part = pa.table({"id": batch.column("id"), "key": texts})
        parts.append(part.filter(pc.fill_null(pc.is_in(named, value_set=searched), False)))
    return pa.concat_tables(parts)


def keep_rejects(context: WriteContext, judged: Judged, upsert: Callable[[WriteContext, Rows], WriteResult]) -> None:
    """Write the quarantined rows of a write to the table of rejects by `upsert`. The write calls it before it begins: a
    row is lost by neither if one of the two fails."""
    if judged.quarantined is None:
        return
    engine = context.engine
    columns = schema_for_write(context, context.opened, judged.rows, partial=context.settings.partial).data
    key = None if context.makes_keys else context.keys.record_key
    rows = engine.map(judged.quarantined, _Rejected(columns, key), rejects_schema(columns))
    storage = rejects_storage(context.storage)
    rejects = rejects_of(context, _FOLLOWS_COLUMNS)
    if rejects is None:
        _create(storage, context.config, columns)
        rejects = rejects_of(context, _FOLLOWS_COLUMNS)
        assert rejects is not None
    try:
        upsert(rejects, rows)
    except SchemaConflict as error:
        raise SchemaConflict(
            f"rows that break checks of table {context.config.name!r} do not fit into its table of rejects,"
            f" {storage.url()}: {error.message}",
            hint="a column of it has another type by now: read t.rejects, then lakebed.drop(t.rejects.uri); the next"
            " write makes it again. Nothing of this write is visible.",
            context=error.context,
        ) from error


def _create(storage: Storage, config: TableConfig, columns: pa.Schema) -> None:
    create(
        storage,
        rejects_schema(columns),
        settings=TableSettings(name=f"{config.name}_rejects", key_fields=("id",)),
        index="simple",
        buckets=None,
        hash_fields=(),
        update_partition_path=None,
        partition_buckets=None,
        properties={},
        profile=TableProfile,
    )
