"""`Table.savepoints`: commits that cleaning and archival retain, so that `restore` can return to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakebed.config.arguments import public_methods_check_arguments
from lakebed.opened_table import OpenedTable
from lakebed.services.savepoint import Savepoint, delete_savepoint, savepoint, savepoints
from lakebed.table_views import EntriesView

SCHEMA = pa.schema(
    [
        ("instant", pa.string()),
        ("user", pa.string()),
        ("name", pa.string()),
        ("created", pa.timestamp("ms", "UTC")),
        ("partitions", pa.int64()),
        ("files", pa.int64()),
    ]
)


@public_methods_check_arguments
class SavepointsView(EntriesView[Savepoint]):
    """The table's savepoints: iterable, and printed as a table.

    >>> saved = t.savepoints.create(name="before the import")
    >>> [(one.instant == saved.instant, one.name) for one in t.savepoints]
    [(True, 'before the import')]
    """

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened

    def _entries(self) -> Sequence[Savepoint]:
        return self.list()

    def list(self) -> list[Savepoint]:
        """The table's savepoints, oldest commit first.

        >>> saved = t.savepoints.create()
        >>> [one.instant for one in t.savepoints.list()] == [saved.instant]
        True
        """
        return self._opened.steadily(lambda view: savepoints(view.timeline))

    def create(
        self,
        instant: str | None = None,
        *,
        name: str = "",
        user: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Savepoint:
        """Retain a completed commit (None: the last one), so that `restore` can return to it.

        Cleaning retains its files and archival its instant until `delete`. `restore` and `as_of` take its `name`, which
        Hudi has as the comment. `user` is recorded (None: the user of this process). Raises `InvalidOption` for an
        instant that is no completed commit, or is already cleaned.

        >>> t.savepoints.create(name="before the import").name
        'before the import'
        """
        return self._opened.again(
            lambda: savepoint(self._opened.context(None, options, "savepoint"), instant, name=name, user=user)
        )

    def delete(self, instant: str, *, options: Mapping[str, Any] | None = None) -> Savepoint | None:
        """Delete the savepoint of a commit, or of that name: cleaning and archival may then remove what it retained.

        Returns the savepoint; None where only the remains of one were deleted. Raises `InvalidOption` if there is
        none.

        >>> saved = t.savepoints.create()
        >>> t.savepoints.delete(saved.instant).instant == saved.instant, len(t.savepoints)
        (True, 0)
        """
        return self._opened.again(lambda: delete_savepoint(self._opened.context(None, options, "savepoint"), instant))

    def to_arrow(self) -> pa.Table:
        """A table with the columns instant, user, name, created, and the numbers of partitions and files of each
        savepoint.

        >>> _ = t.savepoints.create(user="ada")
        >>> t.savepoints.to_arrow().select(["user", "files"]).to_pylist()
        [{'user': 'ada', 'files': 2}]
        """
        rows = [saved.to_dict() | {"created": saved.created} for saved in self.list()]
        return pa.Table.from_pylist(rows, SCHEMA)
