"""Upsert, insert and bulk insert. A bulk insert makes new file groups only: no lookup, no packing; rows stay in
their task.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from lakebed.engine.base import Rows
from lakebed.errors import UnsupportedFeature
from lakebed.operations.checks import Judged, judged_rows
from lakebed.operations.context import (
    WriteContext,
    check_similar_names,
    incoming_rows,
    keyed_by_meta,
    require_columns,
    schema_for_write,
    warn_of_unknown_stats_columns,
)
from lakebed.operations.pipeline import RowsVerb, admit, explain, refuse_clustered_groups, run
from lakebed.operations.placement import Placed, TaskLayout, placed
from lakebed.operations.plan import WritePlan
from lakebed.operations.result import WriteResult
from lakebed.operations.write import RowMatch, Write, check_partitions


def upsert(context: WriteContext, data: Any) -> WriteResult:
    """Insert rows of new keys and replace rows of existing keys, by the table's merge mode."""
    settings = context.settings
    if settings.drop_duplicates or settings.dup_policy != "none":
        return insert(context, data)
    return run(context, _upsert(context, data))


def _check_partial(context: WriteContext, operation: str) -> None:
    """Raise an error for partial rows unless the write is an upsert into a table with stored keys whose rows never
    move."""
    index = context.index
    reason = hint = None
    if operation != "UPSERT":
        reason, hint = f"{operation.lower()} adds rows", "upsert them, or give all columns"
    elif context.rules.merger is not None:
        reason, hint = "the table merges rows by a merger of the user's, which takes whole rows", "give all columns"
    elif (
        index.is_global
        and context.config.partition_fields
        and index.for_existence_checks().settings() != index.settings()
    ):
        reason = "under its index a row that names another partition path moves there, with all its columns"
        hint = "give all columns, or use an index that leaves rows where they are (update_partition_path=False)"
    if reason is not None:
        raise UnsupportedFeature(
            f"table {context.config.name!r} takes no partial rows: {reason}",
            hint=hint or "",
            context={"option": "lakebed.write.partial", "operation": operation},
        )


def insert(context: WriteContext, data: Any) -> WriteResult:
    """Add rows without looking for their keys; with drop_duplicates or a duplicate policy, look and drop or refuse."""
    return run(context, _insert(context, data))


def explain_insert(context: WriteContext, data: Any) -> WritePlan:
    """The plan of `insert(data)`. Nothing is written."""
    return explain(context, _insert(context, data))


def _insert(context: WriteContext, data: Any) -> RowsVerb:
    settings = context.settings
    if settings.dup_policy == "fail":
        match = RowMatch("fail")
    elif settings.drop_duplicates or settings.dup_policy == "drop":
        match = RowMatch("skip")
    elif settings.allow_duplicate_on_inserts:
        match = RowMatch("none", settings.combine_before_insert)
    else:
        match = RowMatch("keys")
    judged = admitted_rows(context, data, "INSERT", match)
    return RowsVerb(
        operation="INSERT", match=match, rows=judged.rows, judged=judged, unique=match.looks_up, repeatable=False
    )


def explain_upsert(context: WriteContext, data: Any) -> WritePlan:
    """The plan of `upsert(data)`."""
    verb = _upsert(context, data)
    refuse_clustered_groups(context, verb)
    return explain(context, verb)


def _upsert(context: WriteContext, data: Any) -> RowsVerb:
    # Rows of one key are always combined, since a key that comes twice would be stored twice; the shuffle by file
    # group brings them together anyhow, so that leaving it out would save nothing.
    match = RowMatch("keys")
    judged = admitted_rows(context, data, "UPSERT", match)
    partial = context.settings.partial
    return RowsVerb(operation="UPSERT", match=match, rows=judged.rows, judged=judged, partial=partial)


def admitted_rows(context: WriteContext, data: Any, operation: str, match: RowMatch) -> Judged:
    """The caller's rows, judged by the table's checks; data that can be refused is refused here, before the write
    begins."""
    admit(context, operation)
    settings = context.settings
    if settings.partial:
        _check_partial(context, operation)
    if match.looks_up:
        keyed_by_meta(context, operation.lower())
    rows = incoming_rows(context, data)
    if context.config.defaults or context.config.generated:
        from lakebed.operations.column_values import filled

        rows = filled(context, rows)
    require_columns(context, context.engine.schema(rows))
    schema = schema_for_write(context, context.opened, rows, partial=settings.partial)
    if settings.stats_columns:
        warn_of_unknown_stats_columns(context.storage, context.config.name, settings.stats_columns, schema.data)
    check_similar_names(context, rows)
    check_partitions(context, rows)
    if not context.judges or not context.config.checks:
        return Judged(rows)
    present = set(context.engine.schema(rows).names)
    return judged_rows(
        context, rows, schema.data, [name for name in schema.data.names if settings.partial and name not in present]
    )


def bulk_insert(context: WriteContext, data: Any) -> WriteResult:
    """Write all rows to new file groups, in the session's sort mode. Keys are not looked up.

    Where the index hashes keys, rows go to their file groups; an existing one takes them in, in addition to its rows.
    """
    match = RowMatch("none", context.settings.combine_before_insert)
    judged = admitted_rows(context, data, "BULK_INSERT", match)
    verb = BulkInsert(
        operation="BULK_INSERT", match=match, rows=judged.rows, judged=judged, unique=False, repeatable=False
    )
    return run(context, verb)


@dataclass(frozen=True, kw_only=True)
class BulkInsert(RowsVerb):
    """The verb of bulk inserts: no shuffle by file group, unless the index hashes keys or has its own handle."""

    def place(self, write: Write, prepared: Rows) -> AbstractContextManager[Placed]:
        index = write.context.index
        if index.hashing is not None or index.insert_handle is not None:
            return placed(write, prepared)
        return nullcontext(TaskLayout(write, prepared))
