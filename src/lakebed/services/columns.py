"""Changing a table's columns without writing its files again: Hudi's schema on read.

A change is one commit without files, made under the table lock: the commit and the schema history have the new
version of the columns, and files of earlier instants are read by the ids of their columns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.types as pt

from lakebed.concurrency.conflicts import reason_to_take_back
from lakebed.concurrency.providers import writers_lock
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption, SchemaConflict, UnsupportedFeature
from lakebed.metadata.lookups import open_again
from lakebed.metadata_records.definitions import load_definitions
from lakebed.metadata_records.layout import COLUMN_STATS, PARTITION_STATS
from lakebed.model import ALTER_OPERATION, DEFAULT_PREFIX, Action, Instant
from lakebed.operations.checks import condition_of
from lakebed.operations.column_values import check_new_values, default_value
from lakebed.operations.context import WriteContext, refuse_reserved
from lakebed.operations.table_checks import columns_of_check
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.properties.column_values import properties_of
from lakebed.properties.features import check_write
from lakebed.properties.file import load_same_table, update_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.schema.avro import arrow_to_avro, avro_to_arrow, check_avro_names
from lakebed.schema.column_changes import ChangedSchema, ColumnChange, changed, field_at
from lakebed.slices.schema_history import nested_problem
from lakebed.slices.snapshot import Snapshot, table_features
from lakebed.timeline.schema_files import begun, continued
from lakebed.timeline.schema_versions import (
    Version,
    comments_of,
    document,
    paths,
    type_of,
    unreadable_columns,
)
from lakebed.timeline.timeline import Timeline
from lakebed.wording import Printed

# Changes that a column in use does not allow: files hold its values, or its name is on the timeline and in the
# settings.
_FIXED_FOR = ("drop", "rename", "widen")
_DELETED = "_hoodie_is_deleted"


@dataclass(frozen=True, repr=False)
class ColumnsChanged(Printed):
    """A change of a table's columns that was committed. Prints in a line.

    `instant` is its requested time, `checkpoint` the argument for the next `changes(start=...)`, `change` what it did.
    """

    instant: str
    checkpoint: str
    change: str
    seconds: float = field(default=0.0)

    def __str__(self) -> str:
        return f"{self.change} (instant {self.instant}, {self.seconds:.2f} s)"


@dataclass(frozen=True, slots=True)
class _Planned:
    """The result of a change: the table's Avro schema, the versions of its columns (newest first; none for a column
    that needs no schema history), a line of text, and the table properties that follow the commit."""

    avro: str
    versions: tuple[Version, ...]
    text: str
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


def change_columns(context: WriteContext, change: ColumnChange) -> ColumnsChanged:
    """Make a change of the table's columns. Everything is checked before anything is written.

    Raises `SchemaConflict` for names and types that do not fit, and for columns that keys, partition paths, ordering,
    indexes or settings use; `CommitConflict` where a service is planned whose files would have the old names;
    `UnsupportedFeature` for a table whose columns cannot be read by ids.
    """
    began = time.monotonic()
    check_write(context.config, table_features(context.opened), "alter_columns")
    tx = _ColumnTransaction(
        context, Action.DELTACOMMIT if context.config.table_type == "mor" else Action.COMMIT, ALTER_OPERATION
    )
    with tx:
        done, planned = tx.run(change)
    return ColumnsChanged(tx.instant, done.completion_time or tx.instant, planned.text, time.monotonic() - began)


@dataclass
class _ColumnTransaction(WriteTransaction):
    """A write that is requested, checked and completed while the lock is held, so that no other instant writes files in
    between."""

    def run(self, change: ColumnChange) -> tuple[Instant, _Planned]:
        with self.cleaned_up():
            _refuse_pending(self.timeline)
            self.prepare_metadata()
            planned = _plan(self.context, self.snapshot, change)
            if self.context.config.base_format == "LANCE":
                from lakebed.format.lance_file import check_lance_columns

                check_lance_columns(avro_to_arrow(planned.avro))
            self.request()
            self.inflight()
            timeline = self.load()
            metadata = self.commit_metadata([], planned.avro, {})
            self.metadata_upkeep(timeline).record_action(self.instant, metadata, [], unchanged_rows=True)
            if planned.versions:
                newest, *older = planned.versions
                if newest["version_id"] == _UNKNOWN:
                    newest = {**newest, "version_id": int(self.instant)}
                self.continue_history(timeline, metadata, [newest, *older])
            self.refuse_lost("complete")
            done = self.publish_commit(timeline, metadata)
            if planned.properties:
                update_table_config(self.storage, planned.properties, self.lock_is_held)
            is_settled = self.lock_is_held()
        if not is_settled:
            self.resolve_late(
                lambda now: reason_to_take_back(self.instant, self.action, self.config, now, timeline),
                lambda now: self.rollbacks(self.forget).roll_back(now, done),
            )
        self.tidy(metadata)
        return done, planned


def _plan(context: WriteContext, snapshot: Snapshot, change: ColumnChange) -> _Planned:
    """The table's schema and schema history after the change. Raises `SchemaConflict` if the table cannot have it."""
    config = snapshot.config
    if not len(snapshot.schema):
        raise SchemaConflict(
            f"table {config.name!r} has no columns yet", hint="its first write, or create(uri, schema), gives it some"
        )
    if config.drop_partition_columns:
        raise UnsupportedFeature(
            f"table {config.name!r} leaves its partition columns out of its files, and Hudi's schema history has no"
            " place for them",
            hint="make a new table with lakebed.create and write the rows of this one to it",
            context={"feature": "schema history without partition columns"},
        )
    changed_schema = changed(snapshot.schema, change)
    refuse_reserved(changed_schema.schema.names)
    check_avro_names(changed_schema.schema)
    if change.verb != "add":
        _check_free(context, snapshot, change, changed_schema)
    new_properties = _default_of_new(config, change, changed_schema)
    avro, renamed = _avro(snapshot, change, changed_schema)
    if snapshot.history is None:
        versions = begun(snapshot.avro_schema, avro, str(_UNKNOWN), renamed)
    else:
        versions = continued(snapshot.storage, snapshot.timeline, str(_UNKNOWN), avro, renamed)
    unreadable = unreadable_columns(versions[0])
    if unreadable and snapshot.history is None and _is_at_end(change):
        # real Hudi finds such a column in the schema of the commit, as one that an upsert brings
        return _Planned(avro, (), changed_schema.text, new_properties)
    if unreadable:
        raise UnsupportedFeature(
            f"a schema history with the {'columns' if len(unreadable) > 1 else 'column'} {', '.join(unreadable)}: real"
            " Hudi cannot read the names of their types there, nor then the table",
            hint="times of day, timestamps of milliseconds and those without a time zone are such types. A column can"
            " be added at the end (t.columns.add(name, type)); for another change load the rows into a new table:"
            " lakebed.load(new_uri, rows, key=...)",
            context={"feature": "types of a schema history", "columns": unreadable},
        )
    if change.verb == "widen":
        _check_texts(changed_schema, versions)
    if nested_problem(versions) is not None:
        path = changed_schema.path if change.verb == "add" else change.column
        raise SchemaConflict(
            f"the field {path} inside a column cannot be {_PAST[change.verb]}: files still have one of this name, and"
            " fields inside columns are found by their names",
            hint="take a name that the column never had" if change.verb == "add" else "add a field, and write it",
            context={"column": path},
        )
    return _Planned(avro, versions, changed_schema.text, new_properties)


def _default_of_new(config: TableConfig, change: ColumnChange, changed_schema: ChangedSchema) -> dict[str, str]:
    """The property that records the default of a column that is added; empty without one."""
    if change.default is None:
        return {}
    return properties_of(*check_new_values(config, changed_schema.schema, {changed_schema.path: change.default}, {}))


def set_default(context: WriteContext, column: str, value: Any) -> str:
    """Record the default of a column, or remove it for None. Returns the column in the table's spelling. Stored rows
    are left as they are.

    Raises `SchemaConflict` for an unknown column or one that is generated or in the key, `InvalidOption` for a value
    that is not a constant, or for None where the column has no default.
    """
    storage, snapshot = context.storage, open_again(context.storage, context.config)
    name = field_path(snapshot, column)
    config, schema = snapshot.config, snapshot.schema
    if name in config.generated:
        raise SchemaConflict(
            f"column {name!r} of table {config.name!r} is generated: it has the value of {config.generated[name]}",
            hint="a generated column needs no default",
            context={"column": name},
        )
    if value is None and name not in config.defaults:
        raise InvalidOption(
            f"column {name!r} of table {config.name!r} has no default",
            hint=f"defaults have {', '.join(config.defaults)}" if config.defaults else "no column has one",
            context={"column": name},
        )
    changes: dict[str, str | None] = {DEFAULT_PREFIX + name: None}
    if value is not None:
        changes.update(properties_of(*check_new_values(config, schema, {name: value}, {})))
    with writers_lock(storage, context.settings, config.name) as lock:
        now = open_again(storage, load_same_table(storage, config))
        if value is not None and (name not in now.schema.names or now.schema.field(name) != schema.field(name)):
            raise CommitConflict(
                f"another writer has changed the columns of table {config.name!r} since this default was checked",
                hint="Nothing was changed. Set it again.",
                context={"column": name},
                kind=ConflictKind.SCHEMA,
            )
        update_table_config(storage, changes, lock.lock_is_held)
    return name


def _is_at_end(change: ColumnChange) -> bool:
    """Whether the change adds a column after all others."""
    return change.verb == "add" and "." not in change.column and not change.first and change.after is None


def _check_texts(changed_schema: ChangedSchema, versions: Sequence[Version]) -> None:
    """Raise `SchemaConflict` for a number that becomes a text and had another type before: a value would be read as the
    text of its file's type (10), and, once the file is rewritten, as the text of the newer type (10.0)."""
    if not pt.is_string(field_at(changed_schema.schema, changed_schema.path).type):
        return
    number = dict(paths(versions[0]))[changed_schema.path]
    kinds = [kind for version in reversed(versions[1:]) if (kind := type_of(version, number)) is not None]
    looks = list(dict.fromkeys(_LOOKS.get(kind, kind) for kind in kinds))
    if len(looks) > 1:
        raise SchemaConflict(
            f"column {changed_schema.path} cannot become STRING: it was {kinds[0]} before it was {kinds[-1]}, and"
            " values of its older files would be other texts than those of newer ones",
            hint="read the table, cast the column, and write the rows with insert_overwrite(rows, 'table')",
            context={"column": changed_schema.path},
        )


# Types whose values have the same texts.
_LOOKS = {"int": "long", "float": "double"}
_PAST = {"add": "added", "rename": "renamed", "drop": "dropped", "widen": "widened", "comment": "", "move": "moved"}
# Stands for the instant of a version that is still planned; greater than every instant.
_UNKNOWN = 10**17 * 9


def _avro(snapshot: Snapshot, change: ColumnChange, changed_schema: ChangedSchema) -> tuple[str, dict[str, str]]:
    """The table's Avro schema after the change, and the old path of each renamed column by its new path."""
    old_path = field_path(snapshot, change.column) if change.verb != "add" else ""
    renamed = {changed_schema.path: old_path} if change.verb == "rename" else {}
    comments = {_moved(path, renamed): text for path, text in comments_of(snapshot.avro_schema).items()}
    if change.verb == "drop":
        comments = {p: text for p, text in comments.items() if p != old_path and not p.startswith(f"{old_path}.")}
    if change.comment is not None:
        comments[changed_schema.path] = change.comment
    return document(arrow_to_avro(changed_schema.schema, snapshot.config.name), comments), renamed


def _moved(path: str, renamed: Mapping[str, str]) -> str:
    for new, old in renamed.items():
        if path == old or path.startswith(f"{old}."):
            return new + path.removeprefix(old)
    return path


def field_path(snapshot: Snapshot, path: str) -> str:
    """The path of a column in the table's spelling."""
    parts = path.split(".")
    spelled: list[str] = []
    for number, part in enumerate(parts, 1):
        is_part = part in ("element", "value") and number > 1
        prefix = ".".join([*spelled, part])
        spelled.append(part if is_part and not _is_field(snapshot, prefix) else field_at(snapshot.schema, prefix).name)
    return ".".join(spelled)


def _is_field(snapshot: Snapshot, path: str) -> bool:
    try:
        field_at(snapshot.schema, path)
    except SchemaConflict:
        return False
    return True


def _refuse_pending(timeline: Timeline) -> None:
    """Raise `CommitConflict` while a service is planned. Its files will have an earlier instant, so readers would read
    them under the old names."""
    plans = timeline.groups_of_services()
    for plan in plans.values():
        raise CommitConflict(
            f"{plan.action.value} {plan.time} is planned: its files would be read under the columns of its instant",
            hint="Run it first (t.maintenance.compact(), t.maintenance.compact(logs=True),"
            " t.maintenance.cluster()), then change the columns.",
            context={"instant": plan.time},
            kind=ConflictKind.PLANNED,
        )


def _check_free(context: WriteContext, snapshot: Snapshot, change: ColumnChange, changed_schema: ChangedSchema) -> None:
    """Raise `SchemaConflict` for a column that is in use, for example by the key or an index."""
    if change.verb not in _FIXED_FOR:
        return
    path = field_path(snapshot, change.column)
    for fields, role in _fixed(context, snapshot):
        if _meets(path, fields):
            raise SchemaConflict(
                f"column {path} cannot be {_PAST[change.verb]}: it is {role} of table {snapshot.config.name!r}",
                hint="make a new table with lakebed.create and write the rows of this one to it",
                context={"column": path},
            )
    for name, fields in _indexed(snapshot):
        if _meets(path, fields):
            raise SchemaConflict(
                f"column {path} cannot be {_PAST[change.verb]}: the index {name} goes by it",
                hint=f"drop the index first: t.indexes.drop({name!r}), and create it again after the change",
                context={"column": path, "index": name},
            )
    for check in snapshot.config.checks:
        is_of_rows = check.on == "row"
        columns = list(condition_of(check, snapshot.schema).columns) if is_of_rows else columns_of_check(check)
        if change.verb == "widen" and is_of_rows:
            condition_of(check, changed_schema.schema)  # which the wider type may not fit
        elif change.verb != "widen" and _meets(path, columns):
            raise SchemaConflict(
                f"column {path} cannot be {_PAST[change.verb]}: the check {check.name} ({check.condition}) names it",
                hint=f"the generated column {check.generates!r} needs it as it is"
                if check.generates
                else f"drop the check first: t.checks.drop({check.name!r}), and add it again after the change",
                context={"column": path, "check": check.name},
            )
    _check_default(snapshot.config, change, changed_schema, path)
    if change.verb == "widen":
        return
    for key, text in snapshot.config.properties.items():
        names = [name.strip().partition(":")[0] for name in text.split(",") if name.strip()]
        if key.endswith((".columns", ".column.list", ".sort.columns")) and _meets(path, names):
            raise SchemaConflict(
                f"column {path} cannot be {_PAST[change.verb]}: the table's setting {key} names it",
                hint=f"change the setting first: t.configure({{{key!r}: ...}})",
                context={"column": path, "option": key},
            )


def _check_default(config: TableConfig, change: ColumnChange, changed_schema: ChangedSchema, path: str) -> None:
    """Raise an error for a column with a default that is dropped or renamed, or widened to a type that does not take
    the default."""
    if path not in config.defaults:
        return
    if change.verb == "widen":
        default_value(config.defaults[path], changed_schema.schema.field(path))
        return
    raise SchemaConflict(
        f"column {path} cannot be {_PAST[change.verb]}: it has the default {config.defaults[path]}",
        hint=f"drop the default first: t.columns.drop_default({path!r}), and set it again after the change",
        context={"column": path, "default": config.defaults[path]},
    )


def _fixed(context: WriteContext, snapshot: Snapshot) -> Iterator[tuple[list[str], str]]:
    config = snapshot.config
    yield list(config.key_fields), "a key field"
    yield list(config.partition_fields), "a partition column"
    yield list(config.ordering_fields), "an ordering field"
    yield [name for name in (config.delete_field, _DELETED) if name], "what marks deleted rows"
    hashing = context.index.hashing
    if hashing is not None:
        yield list(hashing.hashed_fields(context.keys.key_fields)), "a hash field of the bucket index"


def _indexed(snapshot: Snapshot) -> Iterator[tuple[str, list[str]]]:
    """The indexes of the metadata table on values of certain columns, with these columns. Statistics are not among
    them, since they use the names in their files."""
    config = snapshot.config
    definitions = load_definitions(snapshot.storage, config)
    for partition in (*config.metadata_partitions, *config.metadata_partitions_inflight):
        definition = definitions.get(partition)
        if definition is not None and partition not in (COLUMN_STATS, PARTITION_STATS):
            yield partition, list(definition.source_fields)


def _meets(path: str, fields: list[str]) -> bool:
    """Whether the column of a path is one of the fields, contains one, or is inside one."""
    folded = path.lower()
    names = [name.lower() for name in fields]
    return any(n == folded or n.startswith(f"{folded}.") or folded.startswith(f"{n}.") for n in names)
