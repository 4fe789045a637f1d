"""`Table.versions`: the table's commits with small numbers, and who wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed.config.commit_notes import NOTES, notes_of, operation_of
from lakebed.opened_table import OpenedTable
from lakebed.slices.snapshot import Snapshot
from lakebed.table_views import EntriesView, without_empty_notes
from lakebed.timeline.commit_names import numbered_commits

_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        *((name, pa.string()) for name in ("instant", "completion_time", "operation")),
        *((name, pa.int64()) for name in ("inserted", "updated", "deleted")),
        *((name, pa.string()) for name in NOTES),
    ]
)


@dataclass(frozen=True, slots=True)
class Version:
    """A commit with its number, which `as_of` takes, as it takes the version itself. `metadata` is a JSON object of
    what its caller noted. The notes are None where the commit has none."""

    number: int
    instant: str
    completion_time: str | None
    operation: str
    inserted: int
    updated: int
    deleted: int
    user: str | None
    host: str | None
    program: str | None
    message: str | None
    metadata: str | None

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {name: getattr(self, name) for name in _SCHEMA.names}


class VersionsView(EntriesView[Version]):
    """The commits of the active timeline, oldest first, each with its number: iterable, and printed as a table.

    The table's first commit is number 1. A number stays with its commit; `rollback`, `undo` and `restore` free those of
    the commits that they take back. Commits of services count, too.

    >>> [(version.number, version.operation, version.inserted) for version in t.versions]
    [(1, 'upsert', 3)]
    """

    _newest_last = True

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened

    def _entries(self) -> Sequence[Version]:
        return self._opened.steadily(_versions)

    def to_arrow(self) -> pa.Table:
        """A table with the columns number, instant, completion_time, operation, inserted, updated, deleted, user, host,
        program, message and metadata (a JSON object).

        >>> _ = t.upsert(rows, message="once more")
        >>> t.versions.to_arrow().select(["number", "message"]).to_pylist()
        [{'number': 1, 'message': None}, {'number': 2, 'message': 'once more'}]
        """
        return pa.Table.from_pylist([version.to_dict() for version in self], _SCHEMA)

    def _preview(self) -> tuple[pa.Table, int]:
        preview, total = super()._preview()
        return without_empty_notes(preview), total


def _versions(view: Snapshot) -> Sequence[Version]:
    first, commits = numbered_commits(view.timeline)
    versions: list[Version] = []
    for number, (instant, body) in enumerate(zip(commits, view.timeline.commits_metadata(commits), strict=True), first):
        operation = operation_of(body.operation, body.extra)
        counts: dict[str, Any] = {**body.row_counts, **notes_of(body.extra)}
        versions.append(Version(number, instant.time, instant.completion_time, operation, **counts))
    return versions
