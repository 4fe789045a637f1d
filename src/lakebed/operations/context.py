"""What every write of one table shares: storage, settings, engine; and the caller's rows under the table's column
names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from lakebed.concurrency.heartbeat import process_notes
from lakebed.config.commit_notes import MESSAGE, OPERATION
from lakebed.config.options import Options, service_settings
from lakebed.config.settings import WriteSettings
from lakebed.engine.arrow_data import arrow_rows, with_warning_of_nanoseconds
from lakebed.engine.base import Engine, Rows
from lakebed.errors import InvalidOption, SchemaConflict
from lakebed.expressions.base import Column, RowExpression
from lakebed.expressions.key_generators import NAMED, PLAIN, KeyGenerator
from lakebed.expressions.partition_paths import PathCheck
from lakebed.expressions.plain_keys import unhashed_texts
from lakebed.format.bounded_cache import cached_by_schema
from lakebed.handles.file_writer import FileFormat
from lakebed.index.base import Index
from lakebed.index.inference import check_requested
from lakebed.index.registry import check_same_index, index_of, job_index, recorded_index, recorded_settings
from lakebed.inputs.base import RowSource
from lakebed.inputs.files import DataFiles
from lakebed.inputs.python_rows import check_same_columns
from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds.column_stats import columns_with_stats
from lakebed.metadata_kinds.key_changes import KeyIndexes
from lakebed.model import ALL_META_COLUMNS, DERIVED, IS_DELETED_COLUMN, META_COLUMNS, WRITER_ID, has_completion_times
from lakebed.operations.once import Once
from lakebed.properties.features import check_write
from lakebed.properties.table_config import TableConfig
from lakebed.schema.arrow import (
    check_names,
    has_untyped,
    leaf_paths,
    list_of,
    map_of,
    normal_type,
    normalise,
    refuse_untyped,
    with_meta,
)
from lakebed.schema.avro import arrow_to_avro, avro_with_meta, check_avro_names, in_logical_types
from lakebed.schema.column_names import did_you_mean, similar_columns
from lakebed.schema.conversion import cast_column, may_lose
from lakebed.schema.evolution import EVOLUTION_OPTION, is_promotion, reconcile
from lakebed.schema.field_ids import BY_PATH, FIELD_IDS
from lakebed.schema.logical_types import type_text
from lakebed.schema.plain_arrow import is_list
from lakebed.schema.spark import spark_type
from lakebed.sharing import is_first_time, once
from lakebed.slices.newest_files import KEY_NOTE, NAMED_VERSION, OPERATIONS_NOTE
from lakebed.slices.schema_history import nested_problem
from lakebed.slices.snapshot import Snapshot, table_features, table_keys
from lakebed.storage.base import Storage
from lakebed.timeline.schema_files import continued
from lakebed.timeline.schema_versions import comments_of, document, next_version, unreadable_columns

if TYPE_CHECKING:
    from lakebed.operations.stage import Stage

_log = logging.getLogger("lakebed")
_STATS_COLUMNS = "hoodie.metadata.index.column.stats.column.list"
CONCURRENCY = "hoodie.write.concurrency.mode"
_KEY_ENCODING = "hoodie.write.complex.keygen.new.encoding"


@dataclass(frozen=True)
class WriteContext:
    """The table as it was when the write was requested, one engine, and one set of options.

    Index and key generator are read from the table when first needed: so a write that is refused for a feature of the
    table raises the error that names this feature. `stream_batch` is the batch that the write is to commit once.
    `spark` is the session that there is, also where the engine is that of this process. A write in a `stage` writes its
    files, and the stage commits it. A write that does not `judge` its rows copies those of a table: its checks and
    validators do not run.
    """

    opened: Snapshot
    engine: Engine
    options: Options
    stream_batch: Once | None = None
    spark: Any = None
    stage: Stage | None = None
    judges: bool = True

    @property
    def storage(self) -> Storage:
        return self.opened.storage

    @property
    def config(self) -> TableConfig:
        return self.opened.config

    @property
    def settings(self) -> WriteSettings:
        return self.options.write

    @once
    def services(self) -> Options:
        """The options of the table's services, from the job and the table."""
        return service_settings(self.options.explicit, self.config.properties)

    def check_write(self, operation: str) -> None:
        """Raise `UnsupportedFeature` if the table has a feature that this operation would damage."""
        check_write(self.config, table_features(self.opened), operation)

    @once
    def is_non_blocking(self) -> bool:
        """Whether other writers to the same file groups may commit during this write. If the table records this, but
        its index or version has changed since, its writers are checked for conflicts instead."""
        if self.settings.concurrency != "non_blocking":
            return False
        return CONCURRENCY in self.options.explicit or self.can_be_non_blocking

    @once
    def can_be_non_blocking(self) -> bool:
        """Whether writers of the table need not wait for one another: they only append, to file groups that follow from
        the key, and maintain no index of keys."""
        return self.has_appended_groups and not self.config.key_indexes

    @once
    def has_appended_groups(self) -> bool:
        """Whether rows are appended to file groups that follow from the key, and readers know the writer of each
        block."""
        config = self.config
        hashing = self.index.hashing
        fits = hashing is not None and hashing.has_fixed_groups
        return config.table_type == "mor" and has_completion_times(config.version) and fits

    @once
    def keys(self) -> KeyGenerator:
        options, stored, requested = self.options.table, self.opened.key_form, self.requested_key_form
        if stored and requested and stored != requested:
            example = "1" if stored == PLAIN else f"{self.config.key_fields[0]}:1"
            raise InvalidOption(
                f"the keys of table {self.config.name!r} are stored as {example!r}, and {_KEY_ENCODING} asks for the"
                " other form",
                hint="leave the option out: lakebed goes on with the form that the table has; with the option"
                ' t.maintenance.repair(["keys"]) gives all stored keys the other form',
                context={"option": _KEY_ENCODING},
            )
        return table_keys(self.opened, options.timestamp, options.partition_types, key_form=requested)

    @property
    def requested_key_form(self) -> str | None:
        """The form of complex keys of one field that the job requests; None for the default. As in real Hudi, the only
        form from version 9 on is the one with the field's name in front."""
        plain = self.settings.plain_key
        if plain is None or (plain and self.config.version >= NAMED_VERSION):
            return None
        return PLAIN if plain else NAMED

    @property
    def makes_keys(self) -> bool:
        """Whether the writer makes the keys (`<instant>_<task partition>_<row>`), not the rows' columns."""
        return not self.config.key_fields

    @property
    def stores_keys(self) -> bool:
        """Whether the files hold keys that identify rows."""
        return self.config.populate_meta_fields and not self.makes_keys

    def watched_keys(self, schema: pa.Schema, index: Index | None = None) -> tuple[str, ...]:
        """The key fields for which files record whether their texts can be misread, under the table's index or under
        `index`. Without this record, pruning and joins cannot use the hash fields alone."""
        keys = self.keys
        hashing = (index or self.index).hashing
        hashed = keys.key_fields if hashing is None else hashing.hashed_fields(keys.key_fields)
        if set(keys.key_fields) <= {*hashed} or not {*keys.key_fields} <= {*schema.names}:
            return ()  # all key fields are hash fields, or the files lack some key fields
        return unhashed_texts(keys, hashed, schema)

    @once
    def path_check(self) -> PathCheck:
        return PathCheck(self.keys.partition_path, dropped=self.config.drop_partition_columns)

    @once
    def index(self) -> Index:
        """The table's own index, with the lookup options of the job. Raises an error if the job names a different
        index."""
        return self._index_of_table().with_lookup_options(self.options.index)

    @property
    def file_settings(self) -> WriteSettings:
        """The settings with which the table's base files are written."""
        return replace(self.settings, bloom_filter=True) if self.index.needs_bloom_filters else self.settings

    def _index_of_table(self) -> Index:
        recorded = recorded_index(recorded_settings(self.opened))
        named = job_index(self.options.index, self.config.key_fields, recorded)
        if named is None:
            return index_of(self.opened)
        if recorded is None:
            check_requested(self.opened, named)
        else:
            check_same_index(index_of(self.opened), named)
        return named

    @once
    def rules(self) -> MergeRules:
        return MergeRules.of_table(self.config)

    @property
    def writes_operations(self) -> bool:
        """Whether files get the column `_hoodie_operation`: the newest files have it, or the option requests it."""
        return self.settings.operation_field or self.opened.has_operations

    @property
    def records_more(self) -> bool:
        """Whether the commit records something beside its rows: the batch of a stream, or the caller's metadata."""
        noted = self.settings.extra_metadata.keys() - {MESSAGE, OPERATION}
        return self.stream_batch is not None or bool(noted)

    def writer_notes(self, writer_id: str) -> dict[str, str]:
        """The entries of every commit about its writer and its files."""
        notes = {WRITER_ID: writer_id, **process_notes()}
        if self.writes_operations:
            notes[OPERATIONS_NOTE] = "true"
        if self.config.has_two_key_forms:
            notes[KEY_NOTE] = self.opened.key_form or self.requested_key_form or NAMED
        return notes


@dataclass(frozen=True)
class TableSchema:
    """The table's columns after a write, as in its files, and as the Avro text of the commit."""

    data: pa.Schema
    avro: str


def file_format(
    context: WriteContext, snapshot: Snapshot, schema: TableSchema | None = None, *, key_changes: bool = False
) -> FileFormat:
    """The format of base files and log blocks, for the table's present columns or another schema. With `key_changes`
    these are collected, if indexes of the table need them."""
    config, settings = snapshot.config, context.file_settings
    schema = schema or TableSchema(snapshot.schema, snapshot.avro_schema)
    indexes = KeyIndexes.of(snapshot.storage, config) if key_changes and config.key_indexes else None
    return FileFormat(
        with_meta(schema.data, operation=context.writes_operations),
        avro_with_meta(schema.avro, operation=context.writes_operations),
        settings,
        config.populate_meta_fields,
        tuple(columns_with_stats(snapshot, schema.data, settings)),
        change_fields=indexes.fields if indexes else None,
        sort=config.sorts_by_key,
        log_blocks=settings.log_block_format or config.log_block_format,
        change_log=config.change_log,
        plain_keys=context.watched_keys(schema.data),
        field_ids=config.properties.get(FIELD_IDS) == BY_PATH,
        key_column=config.key_copy,
        base_format=config.base_format,
    )


def schema_for_write(context: WriteContext, snapshot: Snapshot, rows: Rows, *, partial: bool = False) -> TableSchema:
    """The table's schema, widened by the columns of the incoming rows; `partial` rows may lack some of the table's
    columns. Raises `SchemaConflict`; nothing is written then."""
    incoming = incoming_schema(context.engine.schema(rows))
    current = snapshot.schema
    if not len(current):
        return table_schema(context, snapshot, incoming)
    if incoming.equals(current):
        return table_schema(context, snapshot, current)
    if partial:
        known_names = frozenset(incoming.names)
        incoming = pa.schema([*incoming, *(f for f in current if f.name not in known_names)])
    settings = context.settings
    reconciled = reconcile(current, incoming, missing=settings.missing_columns, evolution=settings.evolution)
    refuse_reserved(reconciled.names)
    _check_names_that_come_back(snapshot, reconciled)
    check_key_types(context, current, incoming)
    check_ordering_types(context, current, reconciled)
    return table_schema(context, snapshot, reconciled)


def check_similar_names(context: WriteContext, rows: Rows) -> None:
    """Warn of new columns whose names may be typos of the table's. Raises `SchemaConflict` for partial rows without the
    existing column, since nothing else would reveal the typo. A write that sets the schema evolution option itself is
    not checked."""
    settings, config = context.settings, context.config
    special = {*ALL_META_COLUMNS, IS_DELETED_COLUMN, config.delete_field}
    names, stored = [n for n in context.engine.schema(rows).names if n not in special], context.opened.schema.names
    if EVOLUTION_OPTION in context.options.explicit or not stored or set(names) <= set(stored):
        return
    for similar in similar_columns(stored, names):
        text = f"the data has the new column {similar.new!r}, and table {config.name!r} has {similar.existing!r}"
        if similar.is_absent and settings.partial:
            raise SchemaConflict(
                text,
                hint=f"rename it to {similar.existing!r}; or, if it is a column of its own, give"
                f" options={{{EVOLUTION_OPTION!r}: {settings.evolution!r}}}",
                context={"column": similar.new, "nearest": similar.existing},
            )
        if settings.evolution != "strict":
            _log.warning("%s; if it is a typo, restore the table to the commit before this write", text)


def warn_of_unknown_stats_columns(storage: Storage, table: str, named: Sequence[str], schema: pa.Schema) -> None:
    """Warn, once per process, of columns that the statistics option names and the table does not have."""
    columns = {*META_COLUMNS, *schema.names, *(path for path, _ in leaf_paths(schema))}
    for name in named:
        if name not in columns and is_first_time("unknown statistics column", storage.spec.uri, name):
            near = did_you_mean(name, schema.names)
            _log.warning("%s names %r, which is no column of table %r; %s", _STATS_COLUMNS, name, table, near)


def _check_names_that_come_back(snapshot: Snapshot, columns: pa.Schema) -> None:
    """Raise an error if a new column has the name of a dropped one that some files still have, unless its type is the
    old one or wider: files are read by column name, so it shows the old values again."""
    config = snapshot.config
    in_path = set(config.partition_fields) if config.drop_partition_columns else set[str]()
    known_names = frozenset(snapshot.schema.names)
    new = [f for f in columns if f.name not in known_names and f.name not in in_path]
    if not new or snapshot.history is not None:  # with a schema history, columns are read by id
        return
    for file_slice in {s.instant: s for s in snapshot.file_slices()}.values():
        stored = snapshot.schema_of(file_slice.without_logs())
        for field in new:
            if field.name not in stored.names:
                continue
            kind = normal_type(stored.field(field.name).type, field.name)
            if not (is_promotion(kind, field.type) and not may_lose(kind, field.type)):
                have, want = spark_type(kind), spark_type(field.type)
                raise SchemaConflict(
                    f"column {field.name} was taken off the table and comes back as {want}; {file_slice.label} still"
                    f" holds it as {have}",
                    hint=f"Write it as {have}, whose stored values come back with it, or under another name.",
                    context={"column": field.name, "stored": have, "data": want, "path": file_slice.label},
                )


def table_schema(context: WriteContext, snapshot: Snapshot, columns: pa.Schema) -> TableSchema:
    if context.config.base_format == "LANCE":
        from lakebed.format.lance_file import check_lance_columns

        check_lance_columns(columns)
    # as in real Hudi, columns that are only in paths are not in the commit's schema; readers take them from there
    dropped = set(context.keys.partition_fields) if context.config.drop_partition_columns else set()
    data = in_logical_types(pa.schema([f for f in columns if f.name not in dropped]))
    if snapshot.avro_schema and data.equals(snapshot.schema):
        return TableSchema(data, snapshot.avro_schema)
    column_names = frozenset(data.names)
    comments = comments_of(snapshot.avro_schema)
    comments = {path: text for path, text in comments.items() if path.partition(".")[0] in column_names}
    avro = document(arrow_to_avro(data, context.config.name), comments)
    if snapshot.history is not None:
        _check_history(snapshot, avro)
    return TableSchema(data, avro)


def _check_history(snapshot: Snapshot, avro: str) -> None:
    """Raise `SchemaConflict` for new columns that the table's schema history could not describe."""
    before, *_ = versions = continued(snapshot.storage, snapshot.timeline, "0", "")
    after = next_version(before, avro, 0)
    new = sorted(set(unreadable_columns(after)) - set(unreadable_columns(before)))
    if new:
        raise SchemaConflict(
            f"the new {'columns' if len(new) > 1 else 'column'} {', '.join(new)} cannot be part of the table's schema"
            " history: real Hudi does not read the names of their types there",
            hint="Cast them: times of day and timestamps of milliseconds or without a time zone are such types.",
            context={"columns": new},
        )
    path = nested_problem([after, *versions])
    if path is not None and nested_problem(versions) is None:
        raise SchemaConflict(
            f"the field {path} was taken off its column before, and files still hold its values under this name",
            hint="Write it under a name that the column never had.",
            context={"column": path},
        )


@cached_by_schema
def incoming_schema(schema: pa.Schema) -> pa.Schema:
    """The caller's columns in the types that a table has, without Hudi's own columns. Raises `SchemaConflict` for names
    that Hudi or lakebed reserves or that no Hudi table can have, and for columns without a type."""
    refuse_reserved(schema.names)
    columns = normalise(pa.schema([f for f in schema if f.name not in ALL_META_COLUMNS]))
    check_avro_names(columns)
    refuse_untyped(columns)
    return columns


def refuse_reserved(names: Iterable[str]) -> None:
    """Raise `SchemaConflict` for a name that Hudi or lakebed reserves, in any case."""
    for name in names:
        folded = name.lower()
        if folded.startswith(DERIVED) or (folded in META_COLUMNS and name not in META_COLUMNS):
            raise SchemaConflict(
                f"the column name {name!r} is reserved",
                hint=f"rename it: names that begin with {DERIVED} are lakebed's, {', '.join(META_COLUMNS)} are Hudi's",
                context={"column": name},
            )


def require_columns(context: WriteContext, schema: pa.Schema, *, ordering: bool = True) -> None:
    """Check that key, partition and ordering columns exist, and that their types can make a key or have an order."""
    columns = incoming_schema(schema)
    names = schema.names
    roles: list[tuple[str, Sequence[str]]] = [
        ("record key", context.keys.key_fields),
        ("partition", context.keys.partition_fields),
        ("ordering", context.rules.ordering if ordering else ()),
    ]
    for role, fields in roles:
        for name in fields:
            if name not in names and name.split(".")[0] not in names:
                raise SchemaConflict(
                    f"the {role} column {name!r} of table {context.config.name!r} is not in the data",
                    hint=did_you_mean(name, names, "add or rename it: the columns of the data are"),
                    context={"column": name, "role": role, "columns": names},
                )
            if role == "ordering":
                check_has_order(columns, name)
    check_makes_keys(context.keys, columns)


def check_has_order(schema: pa.Schema, name: str) -> None:
    """Raise `SchemaConflict` for an ordering column whose type has no order."""
    if name in schema.names and pa.types.is_nested(schema.field(name).type):
        kind = schema.field(name).type
        raise SchemaConflict(
            f"the ordering column {name!r} is a {type_text(kind)}, which has no order",
            hint="order by a number, a text, a date or a timestamp",
            context={"column": name, "type": str(kind)},
        )


def check_makes_keys(keys: KeyGenerator, schema: pa.Schema) -> None:
    """Raise `SchemaConflict` for key and partition columns of a type that no key or path is made of."""
    keys.record_key.sql(schema)
    if keys.partition_path.has_sql:
        keys.partition_path.sql(schema)
    else:
        keys.partition_path.arrow(pa.RecordBatch.from_pylist([], schema))


def check_key_types(context: WriteContext, table: pa.Schema, incoming: pa.Schema) -> None:
    """Raise `SchemaConflict` for key and partition columns whose type differs from the table's, except for integers of
    another width and timestamps of another unit: another type would write the same key differently (1 and 1.0)."""
    for role, fields in (("record key", context.keys.key_fields), ("partition", context.keys.partition_fields)):
        for name in fields:
            stored, incoming_type = _type_of(table, name), _type_of(incoming, name)
            if stored is None or incoming_type is None or stored.equals(incoming_type):
                continue
            integers = pa.types.is_integer(stored) and pa.types.is_integer(incoming_type)
            moments = pa.types.is_timestamp(stored) and pa.types.is_timestamp(incoming_type)
            if not integers and not (moments and bool(stored.tz) == bool(incoming_type.tz)):
                raise _other_type(context, role, name, stored, incoming_type)


def check_ordering_types(context: WriteContext, table: pa.Schema, evolved: pa.Schema) -> None:
    """Raise `SchemaConflict` for an ordering column that changes to another kind of type: as a text or a floating-point
    number it would have another order. Within its kind it may widen."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_timestamp)
    for name in context.rules.ordering:
        stored, new_type = _type_of(table, name), _type_of(evolved, name)
        if stored is None or new_type is None or stored.equals(new_type):
            continue
        if not any(kind(stored) and kind(new_type) for kind in kinds):
            raise _other_type(context, "ordering", name, stored, new_type)


def _type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    """The type of a column, or of a field inside structs by its dotted path; None if there is no such column."""
    if name in schema.names:
        return schema.field(name).type
    first, *inner_names = name.split(".")
    kind = schema.field(first).type if first in schema.names else None
    for part in inner_names:
        if kind is None or not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    return kind


def _other_type(
    context: WriteContext, role: str, name: str, stored: pa.DataType, incoming: pa.DataType
) -> SchemaConflict:
    return SchemaConflict(
        f"the {role} column {name!r} of table {context.config.name!r} is {stored}, the data has it as {incoming}",
        hint=f"cast it to {stored}",
        context={"column": name, "role": role, "table": str(stored), "data": str(incoming)},
    )


def keyed_by_meta(context: WriteContext, operation: str) -> None:
    """Raise `InvalidOption` for an update or delete of a table without meta columns or without keys, since these need
    stored keys."""
    if not context.config.populate_meta_fields:
        raise InvalidOption(
            f"table {context.config.name!r} keeps no meta fields, {operation} needs them",
            hint="a table with hoodie.populate.meta.fields=false takes insert and bulk_insert only",
            context={"operation": operation},
        )
    if context.makes_keys:
        raise InvalidOption(
            f"table {context.config.name!r} has generated record keys, {operation} by key has nothing to go by",
            hint="insert, bulk_insert, insert_overwrite or delete by predicate",
            context={"operation": operation},
        )


@dataclass(frozen=True, slots=True)
class InType:
    """An expression that gives a column of untyped nulls a type."""

    column: Column
    kind: pa.DataType

    @property
    def columns(self) -> tuple[str, ...]:
        return self.column.columns

    def sql(self, schema: pa.Schema) -> str:
        return f"CAST({self.column.sql(schema)} AS {spark_type(self.kind)})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return cast_column(self.column.arrow(batch), self.kind)


def incoming_rows(context: WriteContext, data: Any) -> Rows:
    """The rows of the caller's data. A column whose name differs from a table column only in case gets the table's
    name, unless another column has that name; a column of Arrow's type null (Spark's void) gets the table's type."""
    engine = context.engine
    types = {f.name: f.type for f in context.opened.schema}
    in_any_case = {name.lower(): kind for name, kind in types.items()} | types
    if isinstance(data, DataFiles):
        data = data.read(in_any_case, partial=context.settings.partial)
    if context.settings.partial and isinstance(data, list | tuple):
        check_same_columns(data, in_any_case)
    arrow = arrow_rows(data, in_any_case)
    if isinstance(arrow, pa.Table | RowSource) and "timestamp[ns" in str(arrow.schema):
        arrow = with_warning_of_nanoseconds(arrow, context.config.name)
    rows = engine.from_arrow(arrow) if isinstance(arrow, pa.Table) else engine.rows(arrow)
    schema = engine.schema(rows)
    check_names(schema.names)
    named = (*context.keys.key_fields, *context.keys.partition_fields, *context.config.ordering_fields)
    folded = {name.lower(): name for name in (*[n for n in named if "." not in n], *types)}
    fitted: dict[str, RowExpression] = {}
    renamed, present = set[str](), frozenset(schema.names)
    for field in schema:
        name = folded.get(field.name.lower(), field.name)
        if name != field.name and name not in present and name not in fitted:
            renamed.add(field.name)
            fitted[name] = Column(field.name)
        else:
            name = field.name
        kind = _typed(field.type, types[name]) if name in types else field.type
        if kind != field.type:
            fitted[name] = InType(Column(field.name), kind)
    if not fitted:
        return rows
    return engine.derive(rows, fitted, keep=[n for n in schema.names if n not in renamed])


def _typed(incoming: pa.DataType, stored: pa.DataType) -> pa.DataType:
    """The incoming type, with the stored type in place of every null type in it."""
    if pt.is_null(incoming):
        return stored
    if not has_untyped(incoming):
        return incoming
    if pt.is_struct(incoming) and pt.is_struct(stored):
        types = {f.name: f.type for f in stored}
        return pa.struct([f.with_type(_typed(f.type, types.get(f.name, f.type))) for f in incoming])
    if pt.is_map(incoming) and pt.is_map(stored):
        return map_of(_typed(incoming.item_type, stored.item_type), nullable=incoming.item_field.nullable)
    if is_list(incoming) and is_list(stored):
        return list_of(_typed(incoming.value_type, stored.value_type), nullable=incoming.value_field.nullable)
    return incoming
