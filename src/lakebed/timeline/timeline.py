"""`Timeline`: all instants of a table at one moment, in order, with the metadata behind them read when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from lakebed.errors import CorruptFile
from lakebed.format.bounded_cache import BoundedCache, Kept
from lakebed.model import Action, CommitMetadata, Instant, State
from lakebed.storage.base import FileInfo, Storage
from lakebed.storage.side_by_side import side_by_side
from lakebed.timeline.actions import FileGroup, clustering_groups, compaction_groups, decode_action
from lakebed.timeline.archive import ArchivedTimeline
from lakebed.timeline.clock import following
from lakebed.timeline.commit_metadata import decode_commit
from lakebed.timeline.instants import (
    completes_as,
    format_millis,
    has_completion_times,
    parse_instant_file,
    says_all,
)
from lakebed.timeline.table_config import TableConfig

TimelineFiles = Mapping[str, FileInfo | None]
"""Files of the timeline's folder by name; None where size and time were not asked for."""

_COMMITS = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)
_READERS = 16
# Special times of Hudi, all zeros with a digit or two behind, sort before any that a clock gives.
_FIRST_TIME, _NO_TIMES_FROM = "1", "9999"
_BYTES_A_FILE = 1_000
_LISTED_BYTES = 16 << 20
_BODIES_BYTES = 32 << 20


@dataclass(frozen=True, eq=False)
class Timeline:
    """The active timeline as one listing showed it: `instants` has each action once, in its highest state, by requested
    time. It never changes; `load_timeline` gives the next one.
    """

    storage: Storage = field(repr=False)
    config: TableConfig = field(repr=False)
    instants: tuple[Instant, ...]
    files: TimelineFiles = field(repr=False)
    requested: Mapping[tuple[str, Action], str] = field(repr=False)

    @cached_property
    def completed(self) -> tuple[Instant, ...]:
        return tuple(i for i in self.instants if i.is_completed)

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        """Requested and inflight instants."""
        return tuple(i for i in self.instants if not i.is_completed)

    @cached_property
    def commits(self) -> tuple[Instant, ...]:
        """Completed commits, delta commits and replace commits (compactions and clusterings among them)."""
        return tuple(i for i in self.completed if i.action in _COMMITS)

    @property
    def last_completed(self) -> Instant | None:
        """The completed commit with the greatest requested time."""
        return self.commits[-1] if self.commits else None

    @cached_property
    def start(self) -> str | None:
        """The first instant that wrote data; what is older and not listed is archived.

        Savepointed commits are left out: archival may have gone past them.
        """
        saved = {i.time for i in self.instants if i.action is Action.SAVEPOINT}
        return next((i.time for i in self.instants if _writes(i) and i.time not in saved), None)

    @cached_property
    def greatest_known(self) -> str:
        """The greatest requested or completion time there is, empty on a new table."""
        return max((max(i.time, i.completion_time or "") for i in self.instants), default="")

    @cached_property
    def greatest_time(self) -> str:
        """The same for a writer, whose times go beyond it.

        Times ahead of this machine's clock are followed, however far: a clock may have been wrong, and what it wrote
        stays. From the year 9999 on, and where the digits are no time, no time follows: raises `CorruptFile`.
        """
        found = self.greatest_known
        if found >= _NO_TIMES_FROM or (found >= _FIRST_TIME and not following(found)):
            name = next(i.file_name for i in self.instants if found in (i.time, i.completion_time))
            raise CorruptFile(
                f"no instant can follow {found}, the time of {self.storage.url(self._path(name))}",
                hint="No clock gave this time: remove the file if nothing was written under it, else restore the "
                "table's timeline from a copy",
                context={"path": self._path(name), "instant": found},
            )
        return found

    def is_completed(self, time: str) -> bool:
        """Whether data written by this instant is committed by an instant on the active timeline."""
        return time in self._completed_times

    def is_committed(self, time: str) -> bool:
        """Whether data written by this instant is visible: committed, or older than the timeline and thus archived."""
        if time in self._completed_times:
            return True
        return time not in self._pending_times and self.start is not None and time < self.start

    def completion_time(self, time: str) -> str | None:
        """When the instant completed, from the active or the archived timeline; None while pending and on version 6."""
        known = self._completion_times.get(time)
        if known is not None or not has_completion_times(self.config.version) or time in self._pending_times:
            return known
        if self.start is not None and time > self.start:
            return None
        return self.archived().completion_time(time)

    def commit_metadata(self, instant: Instant) -> CommitMetadata:
        """The body of a completed commit. Kept in a cache that all timelines of the process share.

        Raises `CorruptFile`, and `FileNotFoundError` where the instant is gone (archived or rolled back) since.
        """
        if not instant.file_name:
            return self.archived().commit_metadata(instant.time)
        path = self._path(instant.file_name)
        key = (self.storage.url(path), self.files.get(instant.file_name))
        known = _BODIES.get(key)
        if known is None:
            body = self.storage.read(path)
            if not body:
                raise CorruptFile(
                    f"{path} is empty: nothing tells what the completed {instant.action.value} {instant.time} did",
                    hint="Restore the file from a copy. Where there is none, delete it: the next write then undoes the "
                    "whole action.",
                    context={"path": self.storage.url(path), "instant": instant.time},
                )
            known = Kept(decode_commit(body, path), len(body))
            if instant.file_name in self.files:
                _BODIES.put(key, known)
        return known.content

    def commits_metadata(self, instants: Iterable[Instant]) -> list[CommitMetadata]:
        """The bodies of several commits in the given order, read side by side."""
        return side_by_side(self.commit_metadata, list(instants), _READERS)

    def plan(self, instant: Instant) -> dict[str, Any]:
        """The body of the instant's requested file with Hudi's field names; empty where it is empty or missing."""
        name = self.requested.get((instant.time, completes_as(instant.action)))
        return self._body(name) if name else {}

    def metadata(self, instant: Instant) -> dict[str, Any]:
        """The body of the file that proves the instant's state, with Hudi's field names."""
        return self._body(instant.file_name)

    def replaced_files(self) -> Mapping[FileGroup, Instant]:
        """(partition, file id) of every file group that a completed instant replaced, with the (first) one that did."""
        return self._replaced

    def pending_clustering(self) -> Mapping[FileGroup, Instant]:
        """(partition, file id) of the file groups that a pending clustering is about to replace."""
        return self._pending_clustering

    def pending_compaction(self) -> Mapping[FileGroup, Instant]:
        """(partition, file id) of the file groups in a pending compaction or log compaction."""
        return self._pending_compaction

    def is_pending_clustering(self, instant: Instant) -> bool:
        """Whether a pending instant is a clustering; on version 6 only the plan of a replacecommit tells."""
        if instant.is_completed or instant.action is Action.CLUSTERING:
            return not instant.is_completed
        return instant.action is Action.REPLACECOMMIT and bool(self.plan(instant).get("clusteringPlan"))

    def archived(self) -> ArchivedTimeline:
        """The instants that are not on the active timeline any more; nothing is read before it is asked."""
        return self._archived

    @cached_property
    def _archived(self) -> ArchivedTimeline:
        return ArchivedTimeline(self.storage, self.config)

    @cached_property
    def _completed_times(self) -> frozenset[str]:
        return frozenset(i.time for i in self.commits)

    @cached_property
    def _pending_times(self) -> frozenset[str]:
        return frozenset(i.time for i in self.pending if _writes(i))

    @cached_property
    def _completion_times(self) -> dict[str, str]:
        """By requested time; a commit's before those of a savepoint or clean of the same time."""
        others = {i.time: i.completion_time for i in self.completed if i.completion_time}
        return others | {i.time: i.completion_time for i in self.commits if i.completion_time}

    @cached_property
    def _replaced(self) -> dict[FileGroup, Instant]:
        replaced: dict[FileGroup, Instant] = {}
        instants = [i for i in self.commits if i.action is Action.REPLACECOMMIT]
        for instant, meta in zip(instants, self.commits_metadata(instants), strict=True):
            for partition, file_ids in meta.replaced.items():
                for file_id in file_ids:
                    replaced.setdefault((partition, file_id), instant)
        return replaced

    @cached_property
    def _pending_clustering(self) -> dict[FileGroup, Instant]:
        kinds = (Action.CLUSTERING, Action.REPLACECOMMIT)
        return {group: i for i in self.pending if i.action in kinds for group in clustering_groups(self.plan(i))}

    @cached_property
    def _pending_compaction(self) -> dict[FileGroup, Instant]:
        kinds = (Action.COMPACTION, Action.LOGCOMPACTION)
        return {group: i for i in self.pending if i.action in kinds for group in compaction_groups(self.plan(i))}

    def _body(self, name: str) -> dict[str, Any]:
        path = self._path(name)
        return decode_action(self.storage.read(path), path)

    def _path(self, name: str) -> str:
        return f"{self.config.timeline_path}/{name}"


def load_timeline(storage: Storage, config: TableConfig) -> Timeline:
    """The active timeline, by one listing; by two where an upgrade left instants without completion time."""
    place = storage.url(config.timeline_path), config.version, config.timezone
    known = _LISTED.get(place)
    files = _files(storage, config, known.files if known else {})
    if known is None or known.files != files:
        known = _Listed.of(files, config, known)
        _LISTED.put(place, known)
    return Timeline(storage, config, known.instants, known.files, known.requested)


def _files(storage: Storage, config: TableConfig, known: TimelineFiles) -> TimelineFiles:
    """The files of the timeline's folder: by name alone where a name says all (the size of a file is a request of its
    own on a local disk), else with size and time, which then tell files of one name and tables at one place apart."""
    folder = config.timeline_path
    if has_completion_times(config.version):
        files: TimelineFiles = dict.fromkeys(storage.list_names(folder))
        new = files.items() - known.items()
        if all(says_all(name, config.version) for name, _ in new):
            return files
    return {info.path.rpartition("/")[2]: info for info in storage.list(folder, recursive=False)}


@dataclass(frozen=True)
class _Listed:
    """What the files of a timeline's folder say; of most listings little is new since the one before."""

    files: TimelineFiles
    highest: Mapping[tuple[str, Action], Instant]
    requested: Mapping[tuple[str, Action], str]

    @cached_property
    def instants(self) -> tuple[Instant, ...]:
        return tuple(self.highest[key] for key in sorted(self.highest))

    @property
    def nbytes(self) -> int:
        """What it takes in memory, about."""
        return _BYTES_A_FILE * len(self.files)

    @classmethod
    def of(cls, files: TimelineFiles, config: TableConfig, before: _Listed | None) -> _Listed:
        """`before`: what the folder said last; files that came since are looked at alone."""
        new: Iterable[str] = files
        requested: dict[tuple[str, Action], str] = {}
        highest: dict[tuple[str, Action], Instant] = {}
        if before is not None and before.files.items() <= files.items():
            new = [name for name in files if name not in before.files]
            requested.update(before.requested)
            highest.update(before.highest)
        for name in new:
            instant = parse_instant_file(name, config.version)
            if instant is None:
                continue
            key = instant.time, completes_as(instant.action)
            if instant.state is State.REQUESTED:
                requested[key] = name
            known = highest.get(key)
            if known is None or known.state < instant.state:
                highest[key] = _with_completion_time(instant, files[name], config)
        return cls(files, highest, requested)


_BODIES = BoundedCache[Kept[CommitMetadata]](_BODIES_BYTES)
"""Decoded commit bodies, by their encoded size."""

_LISTED = BoundedCache[_Listed](_LISTED_BYTES)
"""What a timeline's folder showed last."""


def _with_completion_time(instant: Instant, info: FileInfo | None, config: TableConfig) -> Instant:
    """Completed files that an upgrade left without completion time completed when they were last modified."""
    if info is None or says_all(instant.file_name, config.version) or not has_completion_times(config.version):
        return instant
    return replace(instant, completion_time=format_millis(info.modified, config.timezone))


def _writes(instant: Instant) -> bool:
    return completes_as(instant.action) in _COMMITS
