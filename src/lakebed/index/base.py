"""What an index is: it finds the file group of a record key. Read this file first.

A write hands the index its rows (record key in `_hoodie_record_key`, partition path in `_hoodie_partition_path`) and
gets them back tagged. How the location is found is the index's own business: by a hash (bucket), by the keys that
stand in the base files (simple), by a lookup in an index of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

from lakebed.engine.base import Engine, Rows
from lakebed.merge.rules import MergeRules
from lakebed.slices.snapshot import Snapshot

__all__ = ["Index"]


@runtime_checkable
class Index(Protocol):
    """Third-party indexes implement this and register under the entry-point group `lakebed.indexes`."""

    name: ClassVar[str]
    """As in `index="..."` and in the table's `lakebed.index.type`."""

    is_global: bool
    """Whether a key is unique over the table (else within its partition path)."""

    hashes_to_groups: bool
    """Whether the file group follows from the key alone (bucket): then there is nothing to look up or to assign."""

    def settings(self) -> Mapping[str, str]:
        """What the table must remember, as properties without the prefix `lakebed.index.` (`type` among them)."""
        ...

    def tag(self, rows: Rows, snapshot: Snapshot, engine: Engine, rules: MergeRules) -> Rows:
        """Add `FILE_ID` and `INSTANT` (both null for a key that the table does not hold) to every row.

        A global index may change `_hoodie_partition_path` to where the key lives, or give back two rows for a key that
        moves: one with `DELETE` true for its old place, one without location for the new one. A key that lives in
        several file groups comes back once per place.
        """
        ...

    def update(self, statuses: Sequence[object], instant: str) -> None:
        """Called under the lock before the commit completes, with the write statuses of all file groups."""
        ...

    def rollback(self, instant: str) -> None:
        """Forget what a failed or undone instant told the index."""
        ...

    def explain(self) -> str:
        """One line for people: what this index does to find a key here."""
        ...
