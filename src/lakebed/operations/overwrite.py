"""Replacing file groups: insert_overwrite (of the partitions written, or the table) and delete_partitions."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Rows, persisted
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption, InvalidRecord
from lakebed.index.base import Tagged
from lakebed.model import FILE_ID, PARTITION_PATH, RECORD_KEY, Action
from lakebed.operations.context import TableSchema, WriteContext
from lakebed.operations.pipeline import RowsVerb, Verb, admit, refuse_clustered, rows_of_groups, run
from lakebed.operations.placement import EmptyLayout, Placed
from lakebed.operations.result import WriteResult
from lakebed.operations.upsert import admitted_rows
from lakebed.operations.write import RowMatch, Write
from lakebed.schema.column_names import nearest_name
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.rollback import encode_requested_replace
from lakebed.write_status import WriteStatus

Scope = Literal["partitions", "table"]
_NO_LOOKUP = RowMatch("none")
_OPERATIONS: Mapping[Scope, str] = {"partitions": "INSERT_OVERWRITE", "table": "INSERT_OVERWRITE_TABLE"}


def insert_overwrite(context: WriteContext, data: Any, scope: Scope = "partitions") -> WriteResult:
    """Write the rows to new file groups and replace all existing file groups of the partitions of the rows, or of the
    table."""
    if scope not in ("partitions", "table"):
        raise InvalidOption(f"insert_overwrite has no scope {scope!r}", hint='use "partitions" or "table"')
    match = RowMatch("none", context.settings.combine_before_insert)
    judged = admitted_rows(context, data, "INSERT", match)
    for partition in context.settings.overwrite_partitions:
        context.path_check.require(partition)
    verb = InsertOverwrite(operation=_OPERATIONS[scope], match=match, rows=judged.rows, judged=judged, scope=scope)
    return run(context, verb)


@dataclass(frozen=True, kw_only=True)
class InsertOverwrite(RowsVerb):
    """The verb that replaces all rows in the partitions of its rows, or in the table, by its rows."""

    scope: Scope
    action: Action = Action.REPLACECOMMIT
    request: bytes = encode_requested_replace(None)
    new_groups_only: bool = True

    def prepare(self, write: Write) -> Rows:
        if self.scope == "table":
            _refuse_clustered(write.context, write.snapshot, None)
        return super().prepare(write)

    @contextmanager
    def place(self, write: Write, prepared: Rows) -> Generator[Placed]:
        context, engine = write.context, write.context.engine
        is_checked = context.index.is_global and context.stores_keys and self.scope == "partitions"
        with persisted(engine, prepared) if is_checked else nullcontext(prepared) as incoming:
            if is_checked:
                _refuse_keys_elsewhere(write, engine.derive(incoming, {}, keep=[RECORD_KEY, PARTITION_PATH]))
            with super().place(write, incoming) as rows:
                yield rows

    def replaced(self, write: Write, statuses: list[WriteStatus]) -> Mapping[str, tuple[str, ...]]:
        written = {s.partition for s in statuses if s.path is not None}
        written |= set(write.context.settings.overwrite_partitions)
        return replaced_file_ids(write.snapshot, None if self.scope == "table" else written)


def _refuse_keys_elsewhere(write: Write, keys: Rows) -> None:
    """Raise an error if, under a global index, a row's key is stored in a partition path that is not overwritten: it
    would be a second row of the key, which such an index stores once in the table."""
    context, engine = write.context, write.context.engine
    overwritten = set(engine.aggregate(keys, [PARTITION_PATH]).column(PARTITION_PATH).to_pylist())
    overwritten |= set(context.settings.overwrite_partitions)
    answer = context.index.for_existence_checks().place(keys, write.snapshot, engine)
    if not isinstance(answer, Tagged):
        return
    with answer.released(engine) as rows, persisted(engine, rows) as tagged:
        locations = engine.aggregate(tagged, [PARTITION_PATH, FILE_ID])
    stored = locations.filter(pc.is_valid(locations[FILE_ID]))
    elsewhere = stored.filter(
        pc.invert(pc.is_in(stored[PARTITION_PATH], value_set=pa.array(sorted(overwritten), pa.string())))
    )
    if elsewhere.num_rows:
        path = elsewhere[PARTITION_PATH][0].as_py()
        raise InvalidRecord(
            f"{pc.sum(elsewhere['rows']).as_py()} row(s) have keys that live in partitions which are not overwritten,"
            f" e.g. in {path!r}: under the index {context.index.name!r} a key is stored once in the table",
            hint="Upsert these rows, or delete the keys where they are first.",
            context={"partition": path},
        )


def delete_partitions(context: WriteContext, partitions: Sequence[str], *, dry_run: bool = False) -> WriteResult:
    """Delete all file groups of the partitions. `*` in a path matches any text. A dry run counts their rows."""
    admit(context, "delete_partition")
    paths = match_partitions(partitions, context.opened.partitions())
    _refuse_clustered(context, context.opened, paths)
    _refuse_planned(context.opened, paths)
    if dry_run:
        groups = replaced_file_ids(context.opened, set(paths))
        return WriteResult(
            "",
            "",
            "delete_partition",
            replaced_file_groups=sum(map(len, groups.values())),
            replaced_rows=rows_of_groups(context.opened, groups),
            dry_run=True,
        )
    return run(context, DeletePartitions(partitions=tuple(paths)))


@dataclass(frozen=True, kw_only=True)
class DeletePartitions(Verb):
    """The verb that deletes all file groups of some partition paths."""

    partitions: tuple[str, ...]
    operation: str = "DELETE_PARTITION"
    match: RowMatch = _NO_LOOKUP
    action: Action = Action.REPLACECOMMIT
    request: bytes = encode_requested_replace("DELETE_PARTITION")
    unique: bool = False
    new_groups_only: bool = True

    def schema(self, context: WriteContext, snapshot: Snapshot) -> TableSchema:
        return TableSchema(snapshot.schema, snapshot.avro_schema)

    def prepare(self, write: Write) -> Rows:
        return None

    def place(self, write: Write, prepared: Rows) -> AbstractContextManager[Placed]:
        return nullcontext(EmptyLayout(write))

    def replaced(self, write: Write, statuses: list[WriteStatus]) -> Mapping[str, tuple[str, ...]]:
        return replaced_file_ids(write.snapshot, set(self.partitions))


def match_partitions(patterns: Sequence[str], partitions: Sequence[str]) -> list[str]:
    """The partition paths that a list of paths and `*` patterns names. Raises an error for a path or pattern that
    matches none."""
    paths: list[str] = []
    for pattern in patterns:
        if "*" in pattern:
            any_text = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
            matches = [p for p in partitions if any_text.fullmatch(p)]
        else:
            matches = [p for p in partitions if p == pattern.strip("/")]
        if not matches:
            near = nearest_name(pattern, partitions)
            listed = f"{', '.join(map(repr, partitions[:5])) or 'none'}{', ...' if len(partitions) > 5 else ''}"
            raise InvalidOption(
                f"the table has no partition {pattern!r}",
                hint=f"{'' if near is None else f'Did you mean {near!r}? '}It has {listed}",
                context={"partition": pattern},
            )
        paths += [p for p in matches if p not in paths]
    return paths


def refuse_no_partitions(partitions: Sequence[str], verb: str) -> None:
    """Raise `InvalidOption` for an empty list, which settings take for all partition paths."""
    if not partitions:
        raise InvalidOption(
            f"the list of partitions for {verb} is empty",
            hint="leave it out for all partition paths",
            context={"method": verb, "argument": "partitions"},
        )


def replaced_file_ids(snapshot: Snapshot, partitions: set[str] | None) -> dict[str, tuple[str, ...]]:
    """The file ids of all current file groups by partition path (None: of the whole table, including empty partitions).
    Before version 8 log files are listed before their write completes; file groups that begin with a pending log file
    are left out."""
    paths = snapshot.partitions() if partitions is None else sorted(partitions)
    ids: dict[str, list[str]] = {p: [] for p in paths}
    existing = [p for p in paths if p in set(snapshot.partitions())]
    for file_slice in snapshot.file_slices(None if partitions is None else existing):
        if file_slice.base_file is not None or snapshot.is_visible(file_slice.instant):
            ids[file_slice.partition].append(file_slice.file_id)
    return {p: tuple(file_ids) for p, file_ids in ids.items()}


def _refuse_planned(snapshot: Snapshot, partitions: Sequence[str]) -> None:
    """Raise an error for partition paths with a planned compaction: if it ran after the delete, it would restore their
    rows."""
    timeline = snapshot.timeline
    planned = {**timeline.pending_log_compaction, **timeline.pending_compaction}
    met = sorted(group for group in planned if group[0] in partitions)
    if met:
        instant = planned[met[0]]
        raise CommitConflict(
            f"partition {met[0][0]!r} cannot be deleted: {instant.action} {instant.time} is pending in it",
            hint="Run it first: t.maintenance.compact().",
            context={"partition": met[0][0], "instant": instant.time},
            kind=ConflictKind.PLANNED,
        )


def _refuse_clustered(context: WriteContext, snapshot: Snapshot, partitions: Sequence[str] | None) -> None:
    """Raise `CommitConflict` if file groups of these partition paths (None: of the table) are in a pending clustering
    that does not give way: of two actions that replace one file group, one is lost."""
    groups = snapshot.timeline.pending_clustering
    refuse_clustered(snapshot, context.settings, [k for k in groups if partitions is None or k[0] in partitions])
