"""Bulk insert: new file groups only, no lookup, no packing; the rows stay in the task they come in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from lakebed.engine.base import Rows
from lakebed.operations.context import WriteContext
from lakebed.operations.pipeline import RowsVerb, run
from lakebed.operations.placement import Placed, TaskRows, placed
from lakebed.operations.result import WriteResult
from lakebed.operations.upsert import admitted_rows
from lakebed.operations.write import RowMatch, Write


def bulk_insert(context: WriteContext, data: Any) -> WriteResult:
    """Write all rows to new file groups, in the session's sort mode. Keys are not looked at.

    Where the index hashes keys, rows go to their file groups; one that is there already takes them in beside its rows.
    """
    match = RowMatch("none", context.settings.combine_before_insert)
    rows = admitted_rows(context, data, "INSERT", match)
    return run(context, BulkInsert(operation="BULK_INSERT", match=match, rows=rows, unique=False))


@dataclass(frozen=True, kw_only=True)
class BulkInsert(RowsVerb):
    """Rows are not brought together by file group, unless the index hashes them or has a handle of its own."""

    def place(self, write: Write, prepared: Rows) -> AbstractContextManager[Placed]:
        index = write.context.index
        if index.is_hashed or index.insert_handle is not None:
            return placed(write, prepared)
        return nullcontext(TaskRows(write, prepared))
