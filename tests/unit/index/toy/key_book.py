"""A whole index in one file, as a third party would bring it: the places of keys in a SQLite file beside the table.

Every instant's changes are kept under its name, so that what was rolled back is forgotten. New file groups are written
by a handle of the index's own, which notes their ids.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lakebed.engine.base import Engine, Rows
from lakebed.handles.base import GroupWrite
from lakebed.handles.create import CreateHandle
from lakebed.index.base import Index, Tagged
from lakebed.merge.incoming import Incoming
from lakebed.metadata_kinds.key_changes import AFTER, KEY, group_changes
from lakebed.model import FILE_ID, INSTANT, PARTITION_PATH, RECORD_KEY
from lakebed.slices.snapshot import Snapshot
from lakebed.write_status import WriteStatus

_TABLES = """
create table if not exists place (instant text, partition text, key text, file_id text);
create table if not exists file_group (instant text, file_id text);
"""


class NotingHandle(CreateHandle):
    """Writes base files and notes the ids of their file groups."""

    def __init__(self, group: GroupWrite, path: str) -> None:
        super().__init__(group)
        self._path, self._instant = path, group.instant

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        statuses = super().write(incoming)
        with book(self._path) as db:
            rows = [(self._instant, status.file_id) for status in statuses if status.path is not None]
            db.executemany("insert into file_group values (?, ?)", rows)
        return statuses


@dataclass(frozen=True)
class Noting:
    """Makes the handle in a task."""

    path: str

    def __call__(self, group: GroupWrite) -> NotingHandle:
        return NotingHandle(group, self.path)


class KeyBook(Index):
    """A key has one place in each partition path."""

    name = "key_book"
    is_global = False

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> KeyBook:
        return cls(settings["path"])

    def settings(self) -> Mapping[str, str]:
        return {"type": self.name, "path": self.path}

    @property
    def insert_handle(self) -> Noting:
        return Noting(self.path)

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        places = [(key, partition, id_, snapshot.instant) for (partition, key), id_ in self.places().items()]
        names = (RECORD_KEY, PARTITION_PATH, FILE_ID, INSTANT)
        columns = {name: pa.array([place[at] for place in places], pa.string()) for at, name in enumerate(names)}
        stored = engine.from_arrow(pa.table(columns))
        return Tagged(engine.join(rows, stored, [RECORD_KEY, PARTITION_PATH], "left", small=True))

    def update(
        self,
        statuses: Sequence[WriteStatus],
        instant: str,
        snapshot: Snapshot,
        replaced: Mapping[str, Sequence[str]],
    ) -> None:
        gone = {(partition, id_) for partition, ids in replaced.items() for id_ in ids}
        changes = [(*place, None) for place, id_ in self.places().items() if (place[0], id_) in gone]
        for group in group_changes(snapshot.reader, statuses):
            keys, there = (group.changes[column].to_pylist() for column in (KEY, AFTER))
            ids = [group.file_id if is_there else None for is_there in there]
            changes += [(group.partition, key, file_id) for key, file_id in zip(keys, ids, strict=True)]
        with book(self.path) as db:
            db.executemany("insert into place values (?, ?, ?, ?)", [(instant, *change) for change in changes])

    def rollback(self, instant: str, snapshot: Snapshot) -> None:
        with book(self.path) as db:
            for table in ("place", "file_group"):
                db.execute(f"delete from {table} where instant = ?", (instant,))

    def explain(self) -> str:
        return f"key_book: looks keys up in {Path(self.path).name}"

    def places(self) -> dict[tuple[str, str], str]:
        """The file group of every (partition path, key), as the newest instants have it."""
        with book(self.path) as db:
            found = db.execute("select partition, key, file_id from place order by instant, file_id is not null")
            newest = {(partition, key): file_id for partition, key, file_id in found}
        return {place: file_id for place, file_id in newest.items() if file_id is not None}

    def file_groups(self) -> set[str]:
        """The ids of all file groups that the handle began."""
        with book(self.path) as db:
            return {file_id for (file_id,) in db.execute("select file_id from file_group")}

    def instants(self) -> set[str]:
        """Every instant that is noted."""
        with book(self.path) as db:
            return {i for (i,) in db.execute("select instant from place union select instant from file_group")}


@contextmanager
def book(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(_TABLES)
        yield db
