"""Named consumers: how far each has read a table, in files of the table; and the oldest commit that each needs yet.

A position is the time that the commits before it completed by (version 6: were requested by), as `end` of a read of
changes. Cleaning and archival retain what comes after it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from lakebed.errors import CommitConflict, ConflictKind, CorruptFile, InvalidOption, StorageError
from lakebed.model import Action, Instant
from lakebed.storage.base import Storage
from lakebed.timeline.timeline import Timeline, completed_at, key_of

FOLDER = ".hoodie/lakebed/consumers"
CONSUMERS = "lakebed.consumers"
"""The property of a table that has consumers, or had some: without it no writer looks for them."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_END = ".json"
# Operations, as bodies name them, that only rewrite rows which other commits changed.
_SERVICES = frozenset({Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING})


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer in the form of its file. `position` is empty before the first commit, `batches` is the number of
    batches read. With `every_commit` it also needs the files of clusterings and compactions, which change no row."""

    name: str
    position: str
    created: datetime
    moved: datetime
    batches: int = 0
    every_commit: bool = False
    pending: str = ""
    """The end of a batch that was written under `once` and is not recorded as read yet: a repetition reads to the same
    end."""
    stream: str = ""
    """Names the consumer's reading since it was made or moved by hand, for `once` of what is written from it."""
    version: str | None = None
    """The version of the file that was read; None for a consumer without one."""


class ConsumerFiles:
    """The files of a table's consumers. Each file is replaced completely, and only by a process that has read its
    latest version."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read_all(self) -> list[Consumer]:
        """All consumers, ordered by name."""
        names = (name for name in sorted(self._storage.list_names(FOLDER)) if not name.startswith("."))
        consumers = (self.find(name.removesuffix(_END)) for name in names if name.endswith(_END))
        return [consumer for consumer in consumers if consumer is not None]

    def find(self, name: str) -> Consumer | None:
        """The consumer of this name; None if there is none."""
        path = _path(name)
        try:
            file = self._storage.read_versioned(path)
        except FileNotFoundError:
            return None
        return _decode(file.data, file.version, self._storage.url(path))

    def get(self, name: str) -> Consumer:
        """The consumer of this name. Raises `InvalidOption` if there is none."""
        consumer = self.find(name)
        if consumer is None:
            names = ", ".join(existing.name for existing in self.read_all())
            raise InvalidOption(
                f"{self._storage.url()} has no consumer {name!r}",
                hint=f"It has {names}." if names else "t.consume(name) makes one, and so does t.consumers.start(name).",
                context={"consumer": name},
            )
        return consumer

    def create(self, name: str, position: str, *, every_commit: bool = False) -> Consumer:
        """Create a consumer, and return it. Raises `InvalidOption` if there is one of this name."""
        now = datetime.now(UTC)
        stream = uuid.uuid4().hex
        if not self._put(Consumer(name, position, now, now, every_commit=every_commit, stream=stream)):
            raise InvalidOption(
                f"{self._storage.url()} has a consumer {name!r} already",
                hint="Move it with t.consumers.move(name, to), or choose another name.",
                context={"consumer": name},
            )
        return self.get(name)

    def read_to(self, consumer: Consumer, end: str) -> Consumer:
        """Record where the batch after the consumer's position ends, and return the consumer as it is recorded. Raises
        `CommitConflict` if another process has moved or deleted the consumer since it was read."""
        return self._replace(consumer, replace(consumer, pending=end), end)

    def move(self, consumer: Consumer, to: str) -> Consumer:
        """Record that a batch up to a position is read, and return the consumer as it is recorded. Raises
        `CommitConflict` if another process has moved or deleted the consumer since it was read; then nothing is
        changed."""
        batches = consumer.batches + 1
        return self._replace(
            consumer, replace(consumer, position=to, moved=datetime.now(UTC), batches=batches, pending=""), to
        )

    def put_at(self, consumer: Consumer, position: str) -> Consumer:
        """Record a new position for the consumer, whose batches count as another stream from then on; returns the
        consumer as it is recorded. Raises `CommitConflict` if another process has moved or deleted it since it was
        read."""
        stream = uuid.uuid4().hex
        return self._replace(
            consumer, replace(consumer, position=position, moved=datetime.now(UTC), pending="", stream=stream), position
        )

    def _replace(self, consumer: Consumer, by: Consumer, to: str) -> Consumer:
        if self._put(by):
            return self.get(consumer.name)
        now = self.find(consumer.name)
        where = "deleted it" if now is None else f"moved it to {now.position or 'the beginning'}"
        raise CommitConflict(
            f"consumer {consumer.name!r} was not moved from {consumer.position or 'the beginning'} to {to}: another"
            f" process has {where} meanwhile",
            hint="Each consumer is for one process at a time: give every process a name of its own, or read again from"
            " the new position.",
            context={
                "consumer": consumer.name,
                "position": consumer.position,
                "to": to,
                "recorded": None if now is None else now.position,
                "retryable": False,
            },
            kind=ConflictKind.CHANGED,
        )

    def delete(self, name: str) -> bool:
        """Delete a consumer; returns False if there was none."""
        return self._storage.delete(_path(name))

    def _put(self, consumer: Consumer) -> bool:
        """Replace the file if it is still the version that was read; returns whether it was replaced. An uncertain
        answer is resolved by reading it."""
        path, mark = _path(consumer.name), uuid.uuid4().hex
        body = _encode(consumer, mark)
        try:
            return self._storage.put_if_match(path, body, consumer.version)
        except StorageError as error:
            if not error.context.get("doubtful"):
                raise
            try:
                if self._storage.read_versioned(path).data == body:
                    return True
            except (FileNotFoundError, StorageError):
                pass
            raise


def check_consumer_name(name: str) -> None:
    """Raise `InvalidOption` for a text that cannot be the name of a consumer: its file is named after it."""
    if not _NAME.fullmatch(name):
        raise InvalidOption(
            f"{name!r} is no name of a consumer",
            hint="a name has letters, digits, '_', '-' and '.', at most 100, and begins with a letter or digit",
            context={"consumer": name},
        )


@dataclass(frozen=True, slots=True)
class ConsumerNeed:
    """The commit with the lowest requested time that a consumer has not read and that is not too old for it."""

    consumer: str
    commit: Instant

    def __str__(self) -> str:
        return f"consumer {self.consumer!r} has not read commit {self.commit.time} yet"


def consumer_needs(timeline: Timeline, consumers: Iterable[Consumer], since: str) -> list[ConsumerNeed]:
    """The commits that must be retained for these consumers, the oldest first. Commits that completed before `since`
    are too old: no consumer holds them back."""
    needs: list[ConsumerNeed] = []
    for consumer in consumers:
        later = timeline.commits_completed_after(consumer.position)
        recent = [i for i in later if completed_at(i) >= since]
        unread = [i for i in recent if consumer.every_commit or not is_service(timeline, i)]
        if unread:
            needs.append(ConsumerNeed(consumer.name, min(unread, key=_time)))
    return sorted(needs, key=lambda need: (need.commit.time, need.consumer))


def is_service(timeline: Timeline, commit: Instant) -> bool:
    """Whether a table service, which changes no row, made a completed commit. No commit body is read. On version 6 the
    plan of a replacecommit is read, since clusterings have the same action."""
    requested = timeline.requested.get(key_of(commit), "")
    if commit.action is Action.REPLACECOMMIT and f".{Action.REPLACECOMMIT.value}." in requested:
        return timeline.config.version < 8 and bool(timeline.plan(commit).get("clusteringPlan"))
    return any(f".{action.value}." in requested for action in _SERVICES)


def _path(name: str) -> str:
    check_consumer_name(name)
    return f"{FOLDER}/{name}{_END}"


def _encode(consumer: Consumer, mark: str) -> bytes:
    record = {
        "name": consumer.name,
        "position": consumer.position,
        "created": consumer.created.isoformat(timespec="milliseconds"),
        "moved": consumer.moved.isoformat(timespec="milliseconds"),
        "batches": consumer.batches,
        **({"every_commit": True} if consumer.every_commit else {}),
        **({"pending": consumer.pending} if consumer.pending else {}),
        "stream": consumer.stream,
        "mark": mark,
    }
    return json.dumps(record, indent=1).encode()


def _decode(body: bytes, version: str, url: str) -> Consumer:
    try:
        record: dict[str, Any] = json.loads(body)
        created, moved = (datetime.fromisoformat(record[field]) for field in ("created", "moved"))
        batches, every_commit = int(record["batches"]), bool(record.get("every_commit"))
        pending, stream = str(record.get("pending", "")), str(record.get("stream") or record["created"])
        return Consumer(
            record["name"], record["position"], created, moved, batches, every_commit, pending, stream, version
        )
    except (ValueError, KeyError, TypeError) as cause:
        raise CorruptFile(
            f"{url} is no record of a consumer: {cause}",
            hint="Restore it from a copy, or delete it and start the consumer again.",
            context={"path": url},
        ) from cause


def _time(instant: Instant) -> str:
    return instant.time
