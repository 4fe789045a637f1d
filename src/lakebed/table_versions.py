"""`Table.versions`: the table's commits with small numbers, and who wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed.config.arguments import is_integer
from lakebed.config.commit_notes import NOTES, notes_of, operation_of
from lakebed.errors import InvalidOption
from lakebed.opened_table import OpenedTable
from lakebed.slices.snapshot import Snapshot
from lakebed.table_views import EntriesView, without_empty_notes
from lakebed.timeline.commit_names import no_version, numbered_commits

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
    the commits that they take back. Commits of services count, too. `t.versions[2]` is the version of that number,
    which `as_of=2` reads; `t.versions[-1]` is the newest one.

    >>> [(version.number, version.operation, version.inserted) for version in t.versions]
    [(1, 'upsert', 3)]
    >>> t.versions[1].inserted, t.versions[-1].number
    (3, 1)
    """

    _newest_last = True

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened

    def _entries(self) -> Sequence[Version]:
        return self._opened.steadily(_versions)

    def __reversed__(self) -> Iterator[Version]:
        return reversed(self._entries())

    def __getitem__(self, number: int) -> Version:
        if not is_integer(number):
            raise InvalidOption(
                f"versions are taken by number, not by {number!r}",
                hint="Write t.versions[2], or t.versions[-1] for the newest; list(t.versions) is sliced by position.",
                context={"version": str(number)},
            )
        versions = self._entries()
        if -len(versions) <= number < 0:
            return versions[number]
        for version in versions:
            if version.number == number:
                return version
        raise no_version(self._opened.config.name, number, versions[-1].number if versions else 0)

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
