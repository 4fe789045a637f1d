"""The versions of a key's rows that can still be read, from commit to commit, newest first.

A row carries the time of the commit that wrote it, so that under a global index one lookup goes from a version to the
commit before it. Where a key may be in several partition paths, or rows carry no times, commits are looked at in turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed.config.commit_notes import MESSAGE, operation_of
from lakebed.errors import InvalidOption
from lakebed.index.registry import index_of
from lakebed.model import (
    ALL_META_COLUMNS,
    COMMIT_TIME,
    META_COLUMNS,
    PARTITION_PATH,
    SERVICE_OPERATIONS,
    USER,
    CommitMetadata,
    Instant,
)
from lakebed.read import lookup
from lakebed.read.lookup import parse_lookup_keys
from lakebed.read.moments import to_instant_time
from lakebed.read.plan import data_columns
from lakebed.read.scan import Frames, refuse_cleaned
from lakebed.slices.snapshot import Snapshot
from lakebed.wording import marked_pair, rows_html

Row = Mapping[str, Any]
# The rows of the key in one view, by partition path and number.
State = Mapping[tuple[str, int], Row]
# A version is the difference of two lookups; a walk makes progress with at least three.
_MIN_LOOKUPS = 3


@dataclass(frozen=True, slots=True)
class RowVersion:
    """The change that one commit made to a row: `change` is "insert", "update", "delete", or "write" for a row whose
    previous state cannot be read. `before` and `after` are the row's columns, None if there is no row.
    `completion_time` is None for an archived commit, and on version 6. `user` and `message` are who made the commit,
    and what was noted with it, None where that is not known."""

    instant: str
    completion_time: str | None
    operation: str
    change: str
    partition_path: str
    before: Row | None
    after: Row | None
    user: str | None = None
    message: str | None = None

    @property
    def changed(self) -> tuple[str, ...]:
        """The columns whose values an update changed."""
        before, after = self.before, self.after
        if before is None or after is None:
            return ()
        return tuple(name for name in after if before.get(name) != after[name])


class RowHistory(Frames, Sequence[RowVersion]):
    """The versions of a key's rows, newest first. Prints as a table."""

    def __init__(self, versions: Sequence[RowVersion], columns: pa.Schema, before: str | None, note: str) -> None:
        self._versions = tuple(versions)
        self._columns = columns
        self.before = before
        """The instant to go on from with `t.history(keys, before=...)`; None where nothing older can be read."""
        self.note = note
        """Why older versions are not among them; empty where these are all."""

    def __getitem__(self, at: Any) -> Any:
        return self._versions[at]

    def __len__(self) -> int:
        return len(self._versions)

    def to_arrow(self) -> pa.Table:
        """A table with the columns instant, completion_time, operation, change, partition_path, user, message, changed
        (the names of the columns that an update changed), and before and after as structs of the table's columns."""
        texts = ("instant", "completion_time", "operation", "change", "partition_path", "user", "message")
        rows = pa.struct(list(self._columns))
        columns = {name: pa.array([getattr(version, name) for version in self], pa.string()) for name in texts}
        columns["changed"] = pa.array([list(version.changed) for version in self], pa.list_(pa.string()))
        for name in ("before", "after"):
            columns[name] = pa.array([getattr(version, name) for version in self], rows)
        return pa.table(columns)

    def __repr__(self) -> str:
        def text_of(version: RowVersion) -> str:
            before, after = version.before, version.after
            if before is None or after is None:
                return str(after or before)
            changes = [f"{name!r}: {before.get(name)!r} -> {after[name]!r}" for name in version.changed]
            return f"{after}  changed: {', '.join(changes) or 'nothing'}"

        lines = [f"{version.instant}  {version.change:6}  {version.operation}  {text_of(version)}" for version in self]
        return "\n".join([*lines, *([self.note] if self.note else [])]) or "no version"

    def _repr_html_(self) -> str:
        names = ("instant", "operation", "change", "user", "message", "before", "after")
        return rows_html(
            names,
            ([*(getattr(v, n) for n in names[:5]), *marked_pair(v.before, v.after, v.changed)] for v in self),
        )


def row_history(snapshot: Snapshot, key: Any, *, before: str | None, lookups: int) -> RowHistory:
    """The versions of one key's rows in the commits of this view, or in the commits before an instant. At most
    `lookups` lookups of the key are made.

    `key` is as in `lookup.get`, with one key. Raises `InvalidOption` for several keys and for a key of another type.
    """
    count = len(parse_lookup_keys(snapshot, key).texts)
    if count != 1:
        raise InvalidOption(f"a history is of one key, not of {count}", hint="Call it for each key.")
    walk = _Walk(snapshot, key, lookups)
    commits = walk.commits
    if before is not None:
        time = to_instant_time(before, snapshot.config.timezone, option="before")
        before = before if before.isdigit() else time  # an instant of 14 digits is compared as it is written
    end = len(commits) if before is None else bisect_left([i.time for i in commits], before)
    versions = list(walk.run(end - 1)) if end else []
    return RowHistory(versions, data_columns(snapshot), walk.next, walk.note)


class _Walk:
    """A walk over commits, from the newest to older ones. `next` is the instant to continue from, `note` the reason why
    the walk ended early."""

    def __init__(self, snapshot: Snapshot, key: Any, lookups: int) -> None:
        self._snapshot = snapshot
        self._key = key
        self._left = max(_MIN_LOOKUPS, lookups)
        self._is_exhausted = False
        self.commits = snapshot.commits
        self.next: str | None = None
        self.note = ""
        is_global = not snapshot.config.partition_fields or index_of(snapshot, for_write=False).is_global
        self._jumps = snapshot.config.populate_meta_fields and is_global

    def run(self, at: int) -> Iterator[RowVersion]:
        state = self._state(at)
        while state is not None and at >= 0:
            writer, earlier = self._step(at, state)
            previous = self._state(earlier)
            if previous is not None:
                yield from self._versions(writer, previous, state)
            elif self._is_exhausted:
                self.next = self.commits[at + 1].time
                self.note = f"commits before {self.next} were not looked at"
            else:
                for location, row in state.items():
                    yield from self._versions(str(row.get(COMMIT_TIME, writer)), {}, {location: row}, "write")
            at, state = earlier, previous

    def _step(self, at: int, state: State) -> tuple[str, int]:
        """The commit that may have changed the rows last, and the position of the previous commit."""
        if self._jumps and len(state) == 1:
            writer = str(next(iter(state.values()))[COMMIT_TIME])
            return writer, bisect_left(self.commits, writer, key=lambda i: i.time) - 1
        while at > 0 and self._commit(self.commits[at]).operation in SERVICE_OPERATIONS:
            at -= 1
        return self.commits[at].time, at - 1

    def _state(self, at: int) -> State | None:
        """The rows as of a commit; None if they cannot be read, with the reason in `note`."""
        if at < 0:
            first = self.commits[0].time
            if not self._snapshot.timeline.archived().instants:
                return {}
            self.note = f"commits before {first} are archived"
            return None
        if not self._left:
            self._is_exhausted = True
            return None
        self._left -= 1
        view = self._snapshot.at(self.commits[at].time)
        try:
            refuse_cleaned(view)
        except InvalidOption as cleaned:
            self.note = cleaned.message
            return None
        meta = META_COLUMNS if self._snapshot.config.populate_meta_fields else ()
        columns = [*meta, *(name for name in data_columns(view).names)]
        rows = lookup.get(view, self._key, columns).to_pylist()
        state: dict[tuple[str, int], Row] = {}
        for row in rows:
            path = str(row.get(PARTITION_PATH) or "")
            state[path, sum(stored_path == path for stored_path, _ in state)] = row
        return state

    def _versions(self, writer: str, before: State, after: State, change: str = "") -> Iterator[RowVersion]:
        names = {instant.time: instant for instant in self.commits[bisect_left(self.commits, writer, key=_time) :][:1]}
        instant = names.get(writer)
        commit = None if instant is None else self._commit(instant)
        operation = "" if commit is None else operation_of(commit.operation, commit.extra)
        user, message = (None, None) if commit is None else map(commit.extra.get, (USER, MESSAGE))
        for location in sorted({*before, *after}):
            old, new = before.get(location), after.get(location)
            if old is not None and new is not None and _compared(old) == _compared(new):
                continue
            kind = change or ("insert" if old is None else "delete" if new is None else "update")
            completed = None if instant is None else instant.completion_time
            yield RowVersion(writer, completed, operation, kind, location[0], _data(old), _data(new), user, message)

    def _commit(self, instant: Instant) -> CommitMetadata:
        return self._snapshot.timeline.commit_metadata(instant)


def _time(instant: Instant) -> str:
    return instant.time


def _compared(row: Row) -> Row:
    """The values of a row that make it a different version, without its file: services only move rows between files."""
    return {name: value for name, value in row.items() if name == COMMIT_TIME or name not in ALL_META_COLUMNS}


def _data(row: Row | None) -> Row | None:
    return None if row is None else {name: value for name, value in row.items() if name not in ALL_META_COLUMNS}
