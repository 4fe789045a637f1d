"""Savepoints: commits whose files cleaning keeps and whose instants archival leaves, until the savepoint is deleted."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lakebed.concurrency.heartbeat import Heartbeat, remove_heartbeat, this_user
from lakebed.config.commit_notes import check_writable
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption
from lakebed.model import Action, FileSlice, Instant, has_completion_times
from lakebed.operations.context import WriteContext
from lakebed.read.moments import instant_of, is_found_by_name
from lakebed.services.undo import StateWithout, UndoTransaction, completed_commit, first_commit, retained_from
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.rollback import encode_savepoint, savepointed_names
from lakebed.timeline.timeline import Timeline
from lakebed.timeline.transitions import TimelineWriter
from lakebed.wording import Printed, count_text

_log = logging.getLogger("lakebed")


@dataclass(frozen=True, repr=False)
class Savepoint(Printed):
    """A savepoint of the commit `instant`: its user, its name, which is Hudi's comment, its
    time, and the names of its files by partition path."""

    instant: str
    user: str
    name: str
    created: datetime
    files: Mapping[str, Sequence[str]]

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "instant": self.instant,
            "user": self.user,
            "name": self.name,
            "created": self.created.isoformat(timespec="milliseconds"),
            "partitions": len(self.files),
            "files": sum(map(len, self.files.values())),
        }

    def __str__(self) -> str:
        count = sum(map(len, self.files.values()))
        by = " by " + self.user if self.user else ""
        note = f": {self.name}" if self.name else ""
        partitions = count_text(len(self.files), "partition")
        return f"savepoint {self.instant}{by}, {count_text(count, 'file')} in {partitions}{note}"


def savepoint(
    context: WriteContext, instant: str | None = None, *, name: str = "", user: str | None = None
) -> Savepoint:
    """Protect a completed commit from cleaning and archival; the last commit if none is named.

    Raises `InvalidOption` if there is no such commit, it has a savepoint, or files of it may be cleaned already. Warns
    of a name by which no read finds it.
    """
    check_writable(name, "the name of the savepoint")
    with UndoTransaction.of(context, Action.SAVEPOINT, "savepoint") as tx, tx.locked_view() as snapshot:
        timeline = snapshot.timeline
        target = _target(timeline, instant)
        old = timeline.find(target.time, Action.SAVEPOINT)
        if old is not None and old.is_completed:
            raise InvalidOption(
                f"{target.action} {target.time} has a savepoint already: {_stored(timeline, old)}",
                hint="Delete that one first to give it another name: t.savepoints.delete(instant).",
                context={"instant": target.time},
            )
        files = _files(snapshot, target)
        at = time.time_ns() // 1_000_000
        made_by = this_user() if user is None else user
        body = encode_savepoint(files, user=made_by, comment=name, at_millis=at)
        writer = TimelineWriter(tx.storage, tx.config)
        # shows that this process lives, while its savepoint is pending
        with Heartbeat(tx.storage, target.time, tx.writer_id):
            if old is None:
                writer.inflight(Action.SAVEPOINT, target.time)
            if not tx.lock_is_held():
                raise CommitConflict(
                    f"the table lock was lost before commit {target.time} had its savepoint",
                    hint="Another process took it after it expired; make the savepoint again.",
                    kind=ConflictKind.LOCK_LOST,
                )
            completed = tx.clock.next(after=timeline.greatest_time)
            writer.complete(Action.SAVEPOINT, target.time, completed, body)
        remove_heartbeat(tx.storage, target.time)
        if name and not is_found_by_name(name):
            _log.warning(
                "as_of=%r is a time or the number of a version, and not the savepoint of that name: read it as of %s",
                name,
                target.time,
            )
        return Savepoint(target.time, made_by, name, _moment(at), files)


def savepoints(timeline: Timeline) -> list[Savepoint]:
    """The table's savepoints, oldest commit first."""
    return [_stored(timeline, i) for i in timeline.completed if i.action is Action.SAVEPOINT]


def delete_savepoint(context: WriteContext, instant: str) -> Savepoint | None:
    """Delete the savepoint of an instant, or of a name, so that cleaning and archival may remove its files. Returns it,
    None if it was never completed. Raises `InvalidOption` if there is none."""
    with UndoTransaction.of(context, Action.SAVEPOINT, "savepoint") as tx, tx.locked_view() as snapshot:
        instant = instant_of(instant, snapshot.timeline)
        savepoint = snapshot.timeline.find(instant, Action.SAVEPOINT)
        if savepoint is None and context.opened.timeline.find(instant, Action.SAVEPOINT) is not None:
            return None  # the process that began it is dead
        if savepoint is None:
            existing_times = ", ".join(i.time for i in snapshot.timeline.completed if i.action is Action.SAVEPOINT)
            raise InvalidOption(
                f"instant {instant} has no savepoint",
                hint=f"There are savepoints of {existing_times}." if existing_times else "The table has no savepoint.",
                context={"instant": instant},
            )
        writer = TimelineWriter(tx.storage, tx.config)
        if not savepoint.is_completed:
            writer.remove_pending(savepoint)
            return None
        old = _stored(snapshot.timeline, savepoint)
        writer.remove_completed(savepoint)
        return old


def _target(timeline: Timeline, instant: str | None) -> Instant:
    if instant is not None:
        if not any(map(str.isdigit, instant)):
            raise InvalidOption(
                f"{instant!r} is no instant of a commit that a savepoint could retain",
                hint=f"A savepoint gets a name so: t.savepoints.create(name={instant!r}).",
                context={"instant": instant},
            )
        return completed_commit(timeline, instant_of(instant, timeline), "savepoint")
    if timeline.last_completed is None:
        raise InvalidOption("the table has no commit yet, there is nothing to savepoint", hint="Write to it first.")
    return timeline.last_completed


def _files(snapshot: Snapshot, target: Instant) -> dict[str, list[str]]:
    """The names of the files of the table as of that commit, by partition path. Raises `InvalidOption` if some may be
    missing."""
    timeline = snapshot.timeline
    retained = retained_from(timeline) or first_commit(timeline)
    later = {i.time for i in timeline.instants if i.time > target.time}
    state = StateWithout(snapshot, later)
    lost = state.lost()
    if target.time < retained or lost:
        subject = f"{count_text(len(lost), 'file')}, {lost[0]} among them" if lost else "files"
        raise InvalidOption(
            f"{target.action} {target.time} cannot have a savepoint: {subject} of it may be cleaned already"
            f" (everything is kept from {retained} on)",
            hint="Choose a later commit: t.savepoints.create() takes the last one.",
            context={"instant": target.time, "retained": retained, "files": lost[:20]},
        )
    files: dict[str, list[str]] = {}
    for file_slice in state.full_slices():
        files.setdefault(file_slice.partition, []).extend(_names(file_slice, timeline))
    return files


def _names(file_slice: FileSlice, timeline: Timeline) -> Iterator[str]:
    """The names in Hudi's order: the base file, then the log files, from version 8 on newest first."""
    if file_slice.base_file is not None:
        yield file_slice.base_file.name
    logs = [log.name for log in file_slice.log_files]
    yield from reversed(logs) if has_completion_times(timeline.config.version) else logs


def _stored(timeline: Timeline, instant: Instant) -> Savepoint:
    record = timeline.metadata(instant)
    return Savepoint(
        instant.time,
        record.get("savepointedBy") or "",
        record.get("comments") or "",
        _moment(record.get("savepointedAt") or 0),
        savepointed_names(record),
    )


def _moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)
