"""Another lakebed or Hudi table as a source: the rows that its commits wrote, or each change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.api import open as open_table
from lakebed.errors import InvalidOption
from lakebed.ingestion.description import build
from lakebed.ingestion.source import IngestPoll, IngestSource
from lakebed.model import IS_DELETED_COLUMN
from lakebed.secrets import masked_repr

QUERIES = ("incremental", "cdc")
_START = "000"
# How a user of Hudi names where to start, in place of a completion time.
_REQUESTED, _COMPLETED = "resumeFromInstantRequestTime:", "resumeFromInstantCompletionTime:"


@dataclass(frozen=True, repr=False)
class TableSettings:
    """The settings of `kind = "table"`. `query` is "incremental" (rows in their latest state, without deletes) or "cdc"
    (inserts, updates and deletes of a table with a change log). `columns` and `where` select columns and rows. `start`
    is "earliest", "latest" or an instant. A round reads at most `max_commits`."""

    uri: str
    query: str = "incremental"
    columns: tuple[str, ...] | None = None
    where: str | None = None
    start: str = "earliest"
    max_commits: int = 100
    storage_options: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    __repr__ = masked_repr


class TableSource(IngestSource):
    """A source that reads the changes of a table. The checkpoint is the completion time of the last commit that was
    read, as in Hudi; for a table before version 8 its requested time."""

    def __init__(self, settings: TableSettings) -> None:
        if settings.query not in QUERIES:
            raise InvalidOption(f"[source] query is {settings.query!r}", hint=f"it is one of {', '.join(QUERIES)}")
        if settings.query == "cdc" and settings.where is not None:
            raise InvalidOption("[source] where does not go with query = 'cdc'", hint="filter in the transform")
        if settings.max_commits < 1:
            raise InvalidOption(f"[source] max_commits is {settings.max_commits}", hint="give 1 or more")
        self._settings = settings
        self.read_uris = (settings.uri,)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TableSource:
        """The source of a description."""
        return cls(build(TableSettings, values, "[source]"))

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        settings = self._settings
        table = open_table(settings.uri, storage_options=settings.storage_options)
        start = self._start(checkpoint)
        if start is None:  # the table as it is now is where the job begins
            return IngestPoll(None, None, table.changes(_START).end)
        commits = table.changes(start).range
        if not commits.commits:
            return IngestPoll(None, None, checkpoint, lag={"commits": 0})
        # of version 8 and later by completion, before by requested time
        times = sorted(instant.completion_time or instant.time for instant in commits.commits)
        selected = times[: settings.max_commits]
        end = commits.end if len(selected) == len(times) else selected[-1]
        columns = None if settings.columns is None else list(settings.columns)
        if settings.query == "cdc":
            rows = _changed_rows(table.cdc(start, end, columns=columns).to_arrow())
        else:
            rows = table.changes(start, end, columns=columns, where=settings.where).to_arrow()
        left = len(times) - len(selected)
        return IngestPoll(rows, None, end, more=bool(left), lag={"commits": left})

    def _start(self, checkpoint: str | None) -> str | None:
        """The position from which to read; None for the end of the table."""
        if checkpoint is not None:
            return checkpoint.removeprefix(_REQUESTED).removeprefix(_COMPLETED)
        start = self._settings.start
        return None if start == "latest" else _START if start == "earliest" else start


def _changed_rows(changes: pa.Table) -> pa.Table:
    """Each changed row in its state after the change, a deleted one in its state before with the mark of a delete; in
    the order of the commits. Erased rows, which have no state, are left out."""
    changes = changes.filter(pc.or_(pc.is_valid(changes.column("before")), pc.is_valid(changes.column("after"))))
    changes = changes.take(pc.sort_indices(changes, sort_keys=[("ts_ms", "ascending")]))
    is_delete = pc.equal(changes.column("op"), "d")
    before, after = changes.column("before"), changes.column("after")
    rows: dict[str, Any] = {}
    for column in after.type:
        states = [pc.struct_field(state, column.name) for state in (before, after)]
        rows[column.name] = pc.if_else(is_delete, *states)
    return pa.table({**rows, IS_DELETED_COLUMN: is_delete})
