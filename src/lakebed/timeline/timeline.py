"""`Timeline`: all instants of a table at one moment, in order, with their metadata, which is read on demand.

The next timeline is made from the one before: only new file names are parsed.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebed.errors import CorruptFile
from lakebed.format.bounded_cache import BoundedCache, CacheEntry
from lakebed.format.file_names import BASE_EXTENSIONS
from lakebed.model import Action, CommitMetadata, FileGroupId, Instant, State, has_completion_times
from lakebed.properties.file import load_same_table, load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.sharing import once
from lakebed.storage.base import FileInfo, Storage, refused
from lakebed.storage.parallel import at_once, parallel_map
from lakebed.timeline.bodies.commit import decode_commit
from lakebed.timeline.instants import (
    INITIAL_INSTANT,
    completed_name,
    completes_as,
    following,
    format_millis,
    holds_everything,
    parse_instant_file,
)

if TYPE_CHECKING:
    from lakebed.timeline.archive import ArchivedTimeline

COMMITS = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)

TimelineFiles = Mapping[str, FileInfo | None]
"""Files of the timeline's folder by name; None where size and time were not asked for."""

Key = tuple[str, Action]
"""The identity of an action: its requested time, and what it completes as."""

# Any storage lists this many files in one answer, which shows one moment. For more files, up to this many pairs of
# listings are tried, in 5 s and what the listings take: an archive run deletes many files one after another.
_FILES_AN_ANSWER = 256
_MAX_PAIRS = 25
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.001, 0.3

# Bytes of a name, its entries in the mappings, and its share of an instant, which has three files.
_BYTES_A_FILE = 500


def key_of(instant: Instant) -> Key:
    return instant.time, completes_as(instant.action)


def completed_at(instant: Instant) -> str:
    """The completion time of a completed instant; its requested time if it does not have one."""
    return instant.completion_time or instant.time


def _by_kind(changed: list[Instant], highest: Mapping[Key, Instant], before: Timeline | None) -> dict[str, Any]:
    """The fields of a `Timeline` with instants by kind: the earlier instants with the changed ones, ascending."""
    completed = [i for i in changed if i.is_completed]
    commits = [i for i in completed if i.action in COMMITS]
    commit_times = {*(before.commit_times if before else ()), *[i.time for i in commits]}
    times = dict(before.completion_times) if before else {}
    for i in completed:
        if i.completion_time and (i.action in COMMITS or i.time not in commit_times):
            times[i.time] = i.completion_time
    pending = [i for i in before.pending if highest[key_of(i)] is i] if before else []
    by_completion = sorted(commits, key=_by_completion)
    saved = [i.time for i in changed if i.action is Action.SAVEPOINT]
    greatest = before.latest_time if before else ""
    return {
        "instants": _joined(before.instants if before else (), changed),
        "completed": _joined(before.completed if before else (), completed),
        "pending": _joined(pending, [i for i in changed if not i.is_completed]),
        "commits": _joined(before.commits if before else (), commits),
        "commits_by_completion": _joined(before.commits_by_completion if before else (), by_completion, _by_completion),
        "commit_times": commit_times,
        "savepoints": {*(before.savepoints if before else ()), *saved},
        "completion_times": times,
        "latest_time": max((greatest, *[max(i.time, i.completion_time or "") for i in changed])),
    }


def _by_completion(instant: Instant) -> tuple[str, Key]:
    return completed_at(instant), key_of(instant)


def _joined(
    existing: Iterable[Instant], changed: list[Instant], sort_key: Callable[[Instant], Any] = key_of
) -> tuple[Instant, ...]:
    """The instants in ascending order, in which changed ones replace their earlier state or are inserted."""
    instants = [*existing]
    for instant in changed:
        key = sort_key(instant)
        if not instants or sort_key(instants[-1]) < key:
            instants.append(instant)
            continue
        at = bisect_left(instants, key, key=sort_key)
        instants[at : at + (sort_key(instants[at]) == key)] = [instant]
    return tuple(instants)


def _with_completion_time(instant: Instant, info: FileInfo | None, config: TableConfig) -> Instant:
    """The instant with its completion time: a completed file without one, left by an upgrade, completed when it was
    last modified."""
    if info is None or holds_everything(instant.file_name, config.version) or not has_completion_times(config.version):
        return instant
    return replace(instant, completion_time=format_millis(info.modified, config.timezone))


_READERS = 16
# Actions whose requested file is a plan, which may be removed from the timeline.
PLANNED = (Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING, Action.REPLACECOMMIT, Action.INDEXING)
# Hudi's special times (zeros and one or two digits) sort before all times of a clock.
_FIRST_TIME, _NO_TIMES_FROM = "1", "9999"
_LISTED_BYTES = 64 << 20
_BODIES_BYTES = 128 << 20
_SETTINGS_BYTES = 4 << 20
_BYTES_A_PROPERTY = 200
# A decoded body takes several times its size.
_MEMORY_OF_A_BYTE = 6


@dataclass(frozen=True, eq=False)
class Timeline:
    """The active timeline, from one listing of its folder. It never changes; `load_timeline` returns the next one.

    - `files`: the files of the folder; `requested`: those that request an action, by its key.
    - `highest`: each action once, in its highest state, by its key; `instants`: the same by requested time.
    - `completed`, `pending`: of them the completed ones, and those that are requested or inflight.
    - `commits`: completed commits, delta commits and replace commits (compactions and clusterings among them).
    - `commits_by_completion`: the commits in the order in which they completed.
    - `commit_times`: requested times of the commits; `savepoints`: those of the savepoints.
    - `completion_times`: completion times by requested time.
    - `latest_time`: the greatest requested or completion time there is, empty on a new table.
    - `void`: completed instants that are in none of these: each was rolled back before its writer, which had lost the
      table lock, published it. The next writer deletes them.
    - `bodies`: the bodies, by file name, of commits that are shown as completed and are not (`with_commit`).

    Four methods give the state of a requested time:

    | method | a commit of it is completed | what it knows of the archive |
    |---|---|---|
    | `is_completed` | on the active timeline | nothing |
    | `is_committed` | there, or in the archive | what is older than the active timeline, and not pending, is archived |
    | `is_completed_or_archived` | there, or in the archive | reads it |
    | `is_taken_off` | nowhere: no instant of any state has the time | reads it |
    """

    storage: Storage = field(repr=False)
    config: TableConfig = field(repr=False)
    files: TimelineFiles = field(repr=False)
    requested: Mapping[Key, str] = field(repr=False)
    highest: Mapping[Key, Instant] = field(repr=False)
    instants: tuple[Instant, ...] = field(repr=False)
    completed: tuple[Instant, ...] = field(repr=False)
    pending: tuple[Instant, ...] = field(repr=False)
    commits: tuple[Instant, ...] = field(repr=False)
    commits_by_completion: tuple[Instant, ...] = field(repr=False)
    commit_times: Set[str] = field(repr=False)
    savepoints: Set[str] = field(repr=False)
    completion_times: Mapping[str, str] = field(repr=False)
    latest_time: str
    void: tuple[Instant, ...] = ()
    bodies: Mapping[str, CommitMetadata] = field(default_factory=dict[str, CommitMetadata], repr=False)

    @classmethod
    def of_files(
        cls, storage: Storage, config: TableConfig, files: TimelineFiles, before: Timeline | None = None
    ) -> Timeline:
        """The timeline of these files. `before` is the previous timeline; if none of its files has disappeared, only
        new files are parsed."""
        new: Collection[str] = files
        if before is not None:
            previous = before.files
            new = [name for name in files if name not in previous]
            are_there = len(files) - len(new) == len(previous)
            if not are_there or (any(previous.values()) and not previous.items() <= files.items()):
                before, new = None, files
        requested: dict[Key, str] = dict(before.requested) if before else {}
        highest: dict[Key, Instant] = dict(before.highest) if before else {}
        changed: set[Key] = set()
        for name in new:
            instant = parse_instant_file(name, config.version)
            if instant is None:
                continue
            key = key_of(instant)
            if instant.state is State.REQUESTED:
                requested[key] = name
            previous = highest.get(key)
            if previous is None or previous.state < instant.state:
                highest[key] = _with_completion_time(instant, files[name], config)
                changed.add(key)
        kinds = _by_kind([highest[key] for key in sorted(changed)], highest, before)
        return cls(storage, config, files, requested, highest, **kinds)

    def with_files(self, names: Iterable[str]) -> Timeline:
        """This timeline with further files, which the caller has just created under the table lock."""
        return Timeline.of_files(self.storage, self.config, {**self.files, **dict.fromkeys(names)}, self)

    def with_commit(self, action: Action, time: str, body: CommitMetadata) -> Timeline:
        """This timeline with a pending commit as completed, after all others, with this body: what its own writer sees
        before it completes."""
        completion = following(max(time, self.greatest_time))
        name = completed_name(action, time, completion, self.config.version)
        return replace(self.with_files([name]), bodies={**self.bodies, name: body})

    def without_files(self) -> Timeline:
        """The timeline with only its instants, for tasks on other machines: it has no plans, and no next timeline can
        be made from it."""
        return replace(self, files={}, requested={})

    @property
    def nbytes(self) -> int:
        """The approximate bytes of the timeline in memory."""
        return _BYTES_A_FILE * len(self.files)

    @property
    def last_completed(self) -> Instant | None:
        """The completed commit with the greatest requested time; None if there is no completed commit."""
        return self.commits[-1] if self.commits else None

    @once
    def replacecommits(self) -> tuple[Instant, ...]:
        """The completed replace commits: clusterings, overwrites, changes of the index."""
        return tuple([i for i in self.commits if i.action is Action.REPLACECOMMIT])

    @once
    def start(self) -> str | None:
        """The first completed commit, None if there is none. Older instants that are not listed and not pending are
        archived.

        A pending instant does not count: archival stops at the last commit before it, unless a writer requested it
        late, after losing the table lock. Builds of the metadata table's partitions are left out if there are other
        commits: they sort before all instants, and a partition may be built after later instants are archived.
        Savepointed commits are left out, too, since archival may have passed them. If a restore has left only those, it
        is the last of them.
        """
        if not self.commits:
            return None
        last = self.commits[-1].time  # builds sort before all others
        for instant in self.commits:
            is_left_out = instant.time.startswith(INITIAL_INSTANT) and not last.startswith(INITIAL_INSTANT)
            if not is_left_out and instant.time not in self.savepoints:
                return instant.time
        return last

    def find(self, time: str, action: Action) -> Instant | None:
        """The instant of this requested time that completes in the way that `action` does; None if there is no such
        instant."""
        return self.highest.get((time, completes_as(action)))

    def commit(self, time: str) -> Instant | None:
        """The completed commit, delta commit or replace commit of this requested time; None if there is no such
        commit."""
        if time not in self.commit_times:
            return None
        of_time = [self.highest.get((time, action)) for action in COMMITS]
        completed = [instant for instant in of_time if instant is not None and instant.is_completed]
        return completed[0]

    def completed_after(self, time: str) -> Sequence[Instant]:
        """The completed instants of a later requested time."""
        return self.completed[bisect_right(self.completed, time, key=_time) :]

    def commits_after(self, time: str) -> Sequence[Instant]:
        """The completed commits, delta commits and replace commits of a later requested time."""
        return self.commits[bisect_right(self.commits, time, key=_time) :]

    def commits_completed_after(self, time: str) -> Sequence[Instant]:
        """The commits, delta commits and replace commits that completed after `time`, in the order of completion."""
        return self.commits_by_completion[bisect_right(self.commits_by_completion, time, key=completed_at) :]

    @once
    def greatest_time(self) -> str:
        """The `latest_time` for a writer, whose instant must be greater.

        Times ahead of this machine's clock are followed, however far: a clock may have been wrong, and what it wrote
        stays. From the year 9999 on, and where the digits are no time, no time follows: raises `CorruptFile`.
        """
        greatest = self.latest_time
        if greatest >= _NO_TIMES_FROM or (greatest >= _FIRST_TIME and not following(greatest)):
            name = next(i.file_name for i in self.instants if greatest in (i.time, i.completion_time))
            raise CorruptFile(
                f"no instant can follow {greatest}, the time of {self.storage.url(self._path(name))}",
                hint="No clock gave this time: remove the file if nothing was written under it, else restore the "
                "table's timeline from a copy",
                context={"path": self._path(name), "instant": greatest},
            )
        return greatest

    def before_completion(self, time: str) -> Timeline:
        """This timeline with the completed commit of this requested time as inflight."""
        done = self.commit(time)
        if done is None:
            return self
        files = {name: info for name, info in self.files.items() if name != done.file_name}
        return Timeline.of_files(self.storage, self.config, files)

    def is_completed(self, time: str) -> bool:
        """Whether data written by this instant is committed by an instant on the active timeline."""
        return time in self.commit_times

    def is_committed(self, time: str) -> bool:
        """Whether data written by this instant is visible: committed, or older than the timeline and thus archived."""
        if time in self.commit_times:
            return True
        return time not in self.pending_writes and self.start is not None and time < self.start

    def begins_slices(self, time: str) -> bool:
        """Whether log files named after this instant (before version 8: their slice's) belong to an existing slice: one
        of a commit, or one that a compaction or clustering is about to begin. Others were added to a slice that was
        taken back."""
        return self.is_committed(time) or time in self._planned_slices

    @once
    def _planned_slices(self) -> frozenset[str]:
        kinds = (Action.COMPACTION, Action.CLUSTERING, Action.REPLACECOMMIT)
        return frozenset(i.time for i in self.pending if i.action in kinds)

    def completion_time(self, time: str) -> str | None:
        """The completion time of the instant, from the active or the archived timeline; None while it is pending and on
        version 6."""
        recorded = self.completion_times.get(time)
        if recorded is not None or not has_completion_times(self.config.version) or time in self.pending_writes:
            return recorded
        if self.start is not None and time > self.start:
            return None
        return self.archived().completion_time(time)

    def commit_metadata(self, instant: Instant) -> CommitMetadata:
        """The body of a completed commit. Kept in a cache that all timelines of the process share.

        One that was archived since is read there. Raises `CorruptFile`, and `FileNotFoundError` where the instant was
        rolled back since.
        """
        if not instant.file_name:
            return self.archived().commit_metadata(instant.time)
        if instant.file_name in self.bodies:
            return self.bodies[instant.file_name]
        path, key = self._path(instant.file_name), self._body_key(instant)
        cached = _BODIES.get(key)
        if cached is None:
            try:
                body = self.storage.read(path)
            except FileNotFoundError as error:
                return self._archived_since(instant, error)
            if not body:
                raise CorruptFile(
                    f"{path} is empty: nothing shows what the completed {instant.action.value} {instant.time} did",
                    hint="Restore the file from a copy. Where there is none, delete it: the next write then undoes the "
                    "whole action.",
                    context={"path": self.storage.url(path), "instant": instant.time},
                )
            cached = CacheEntry(
                _without_carried_files(decode_commit(body, path), instant, path), _MEMORY_OF_A_BYTE * len(body)
            )
            if instant.file_name in self.files:
                _BODIES.put(key, cached)
        return cached.content

    def _body_key(self, instant: Instant) -> tuple[str, FileInfo | None]:
        return self.storage.url(self._path(instant.file_name)), self.files.get(instant.file_name)

    def commits_metadata(self, instants: Iterable[Instant]) -> list[CommitMetadata]:
        """The bodies of several commits in the given order, read side by side."""
        requested = list(instants)
        cached = [_BODIES.get(self._body_key(instant)) for instant in requested if instant.file_name]
        bodies = [body.content for body in cached if body is not None]
        if len(bodies) == len(requested):
            return bodies
        return parallel_map(self.commit_metadata, requested, _READERS)

    def plan(self, instant: Instant) -> dict[str, Any]:
        """The body of the instant's requested file with Hudi's field names; empty if the file is empty or missing.

        If a service's plan was archived or removed since, the plan in the archive is returned, and an empty one if
        there is none. Raises `FileNotFoundError` for other missing instants. The plan of a pending instant is read
        once: a caller that asks several times gets the same plan.
        """
        name = self.requested.get(key_of(instant))
        if not name:
            return {}
        if name not in self._plans:
            plan = self._plan_now(instant, name)
            if instant.is_completed:
                return plan
            self._plans.setdefault(name, plan)
        return self._plans[name]

    def remember_plan(self, action: Action, time: str, plan: dict[str, Any]) -> None:
        """Keep the plan that this process wrote for a pending instant, so that it is not read."""
        name = self.requested.get((time, completes_as(action)))
        if name:
            self._plans[name] = plan

    @once
    def _plans(self) -> dict[str, dict[str, Any]]:
        return {}

    def _plan_now(self, instant: Instant, name: str) -> dict[str, Any]:
        from lakebed.timeline.archive import ArchivedTimeline

        try:
            return self._body(name)
        except FileNotFoundError:
            if instant.action not in PLANNED:
                raise
        try:
            return ArchivedTimeline(self.storage, self.config).plan(instant.time)
        except FileNotFoundError:
            return {}

    def undone_by(self, rollback: Instant) -> str:
        """The requested time of the instant that a rollback undoes; empty if its plan cannot be read."""
        from lakebed.timeline.bodies.rollback import rollback_target

        with suppress(CorruptFile):
            return rollback_target(self.plan(rollback))
        return ""

    def metadata(self, instant: Instant) -> dict[str, Any]:
        """The body of the file that proves the instant's state, with Hudi's field names."""
        return self._body(instant.file_name)

    def groups_of_services(self) -> dict[FileGroupId, Instant]:
        """All file groups, as (partition, file id), that a planned service will rewrite, with the instants of the
        plans."""
        return {**self.pending_compaction, **self.pending_clustering, **self.pending_log_compaction}

    def is_pending_clustering(self, instant: Instant) -> bool:
        """Whether a pending instant is a clustering; on version 6 only the plan of a replacecommit shows it."""
        if instant.is_completed or instant.action is Action.CLUSTERING:
            return not instant.is_completed
        return instant.action is Action.REPLACECOMMIT and bool(self.plan(instant).get("clusteringPlan"))

    def is_taken_off(self, time: str) -> bool:
        """Whether the instant of this requested time, after which files are named, was removed from the timeline:
        neither the timeline nor the archive has it. Reads the archive."""
        if any(i.time == time for i in self.instants):
            return False
        archived = {i.time for i in self.archived().instants}
        return time not in archived and time > min(archived, default=self.start or "")

    def is_completed_or_archived(self, time: str) -> bool:
        """Whether a commit of this requested time is completed, on the timeline or in the archive."""
        if self.is_completed(time):
            return True
        if any(i.time == time for i in self.pending) or not self.is_committed(time):
            return False
        return any(i.time == time for i in self.archived().instants)

    def archived(self) -> ArchivedTimeline:
        """The instants that are not on the active timeline any more; read on demand."""
        return self._archived

    def archived_commits(self) -> list[Instant]:
        """The completed commits that archival moved off the active timeline; reads the archive."""
        return [i for i in self.archived().instants if i.is_completed and i.action in COMMITS]

    @once
    def _archived(self) -> ArchivedTimeline:
        from lakebed.timeline.archive import ArchivedTimeline

        return ArchivedTimeline(self.storage, self.config)

    @once
    def pending_writes(self) -> frozenset[str]:
        """The requested times of the pending actions that complete as a commit."""
        return frozenset([i.time for i in self.pending if completes_as(i.action) in COMMITS])

    @once
    def replaced_files(self) -> dict[FileGroupId, Instant]:
        """The file groups, as (partition, file id), that a completed instant replaced, each with the first such
        instant."""
        replaced: dict[FileGroupId, Instant] = {}
        for instant, meta in zip(self.replacecommits, self.commits_metadata(self.replacecommits), strict=True):
            for partition, file_ids in meta.replaced.items():
                for file_id in file_ids:
                    replaced.setdefault((partition, file_id), instant)
        return replaced

    @once
    def pending_clustering(self) -> dict[FileGroupId, Instant]:
        """The file groups, as (partition, file id), that a pending clustering will replace, with its instant."""
        from lakebed.timeline.bodies.rollback import clustering_groups

        kinds = (Action.CLUSTERING, Action.REPLACECOMMIT)
        return {group: i for i in self.pending if i.action in kinds for group in clustering_groups(self.plan(i))}

    @once
    def pending_compaction(self) -> dict[FileGroupId, Instant]:
        """The file groups, as (partition, file id), in a pending compaction, which begins a slice of each, with its
        instant."""
        return self._groups_in(Action.COMPACTION)

    @once
    def pending_log_compaction(self) -> dict[FileGroupId, Instant]:
        """The file groups, as (partition, file id), in a pending log compaction, which begins no slice, with its
        instant."""
        return self._groups_in(Action.LOGCOMPACTION)

    def _groups_in(self, action: Action) -> dict[FileGroupId, Instant]:
        plans = [(i, self.plan(i)) for i in self.pending if i.action is action]
        if not plans:
            return {}
        from lakebed.timeline.bodies.plans import compaction_operations

        return {(op.partition, op.file_id): i for i, plan in plans for op in compaction_operations(plan)}

    def _archived_since(self, instant: Instant, error: FileNotFoundError) -> CommitMetadata:
        """The body of a commit that was archived since the timeline was listed. Raises `error` if it was not."""
        from lakebed.timeline.archive import ArchivedTimeline

        try:
            return ArchivedTimeline(self.storage, self.config).commit_metadata(instant.time)
        except FileNotFoundError:
            raise error from None

    def _body(self, name: str) -> dict[str, Any]:
        from lakebed.timeline.bodies.rollback import decode_action

        path = self._path(name)
        return decode_action(self.storage.read(path), path)

    def _path(self, name: str) -> str:
        return f"{self.config.timeline_path}/{name}"


def remember_commit(storage: Storage, config: TableConfig, instant: Instant, body: CommitMetadata, size: int) -> None:
    """Cache the body of a commit that this process has just completed, so that it is not read again. If listings
    distinguish files by more than their names, it is nevertheless read again. `size` is the size of its file in
    bytes."""
    if has_completion_times(config.version):
        key = storage.url(f"{config.timeline_path}/{instant.file_name}"), None
        _BODIES.put(key, CacheEntry(body, _MEMORY_OF_A_BYTE * size))


def load_timeline(storage: Storage, config: TableConfig) -> Timeline:
    """The active timeline, from one listing; from two if an upgrade left instants without completion time.

    Raises `TableNotFound` or `CommitConflict` if it is empty because the table was dropped or renamed meanwhile."""
    timeline = _load_timeline(storage, config)
    if not timeline.files:
        load_same_table(storage, config)
    return timeline


def _load_timeline(storage: Storage, config: TableConfig) -> Timeline:
    key = storage.url(config.timeline_path), config.version, config.timezone
    cached = _LISTED.get(key)
    files = _files(storage, config, cached.files if cached else {})
    if cached is None or cached.files is not files:
        if cached is not None:  # drop archived bodies, which would fill the cache of a long-running process
            for name in cached.files.keys() - files.keys():
                _BODIES.drop((storage.url(f"{config.timeline_path}/{name}"), cached.files[name]))
        cached = _without_void(Timeline.of_files(storage, config, files, cached))
        _LISTED.put(key, cached)
    # a copy, which does not share what other users of the cached one read later
    return replace(cached, storage=storage, config=config)


def _without_void(timeline: Timeline) -> Timeline:
    """The timeline without commits that were published after their rollback. A rollback deletes the requested file of
    its instant; the plans of rollbacks are read only if the requested file of a commit is missing."""
    unrequested = timeline.highest.keys() - timeline.requested.keys()  # in each savepoint that Hudi writes, too
    suspects = {time for time, action in unrequested if action in COMMITS and time in timeline.commit_times}
    if not suspects:
        return timeline
    rollbacks = [i for i in timeline.instants if i.action is Action.ROLLBACK and i.time > min(suspects)]

    def target(rollback: Instant) -> str:
        with suppress(FileNotFoundError):  # archived since the listing
            return timeline.undone_by(rollback)
        return ""

    undone = suspects & set(parallel_map(target, rollbacks))
    if not undone:
        return timeline
    void = tuple(i for i in timeline.commits if i.time in undone and key_of(i) in unrequested)
    names = {i.file_name for i in void}
    files = {name: info for name, info in timeline.files.items() if name not in names}
    return replace(Timeline.of_files(timeline.storage, timeline.config, files), void=void)


def load_table(
    storage: Storage, expected: TableConfig | None = None, *, likely: TableConfig | None = None
) -> tuple[TableConfig, Timeline]:
    """A table's present settings and active timeline. If the settings are still the `expected` ones (or those that this
    process read last), both are read at the same time. `likely` are, for an unknown table, the settings of a table
    whose timeline has the same folder and form."""
    url = storage.url()
    if expected is None and (cached := _SETTINGS.get(url)) is not None:
        expected = cached.content
    guess = expected or likely
    if guess is None:
        config = load_table_config(storage)
        timeline = load_timeline(storage, config)
    else:
        config, timeline = at_once(
            storage, partial(load_table_config, storage), partial(_load_timeline, storage, guess)
        )
        if config == guess:
            config = guess  # what was parsed from it before is not parsed again
        else:
            # times in names are the same in every time zone
            is_same = expected is None and _form(config) == _form(guess) and not any(timeline.files.values())
            timeline = replace(timeline, config=config) if is_same else _load_timeline(storage, config)
        if not timeline.files:
            load_same_table(storage, config)
    _SETTINGS.put(url, CacheEntry(config, _BYTES_A_PROPERTY * len(config.properties)))
    return config, timeline


def _form(config: TableConfig) -> tuple[object, ...]:
    return config.version, config.timeline_path


def _files(storage: Storage, config: TableConfig, cached: TimelineFiles) -> TimelineFiles:
    """The files of the timeline's folder: by name alone if names suffice (the size of a file is a separate request on a
    local disk), otherwise with size and time, which then distinguish files of one name and tables at one path."""
    folder = config.timeline_path
    if has_completion_times(config.version):
        files = _at_one_moment(storage, folder, cached, names_only=True)
        if files == cached:
            return cached
        new = [name for name in files if name not in cached or cached[name] is not None]
        if not [name for name in new if not holds_everything(name, config.version)]:
            return files

    files = _at_one_moment(storage, folder, cached, names_only=False)
    return cached if files == cached else files


def _at_one_moment(storage: Storage, folder: str, previous: TimelineFiles, *, names_only: bool) -> TimelineFiles:
    """The files of a folder at one moment. A long list comes in several answers, between which files may be archived or
    added. It is listed until two results are equal; `previous` is the last known result."""
    pause = _FIRST_PAUSE_SECONDS
    for _ in range(_MAX_PAIRS):
        for _ in range(2):
            files: TimelineFiles
            if names_only:
                files = dict.fromkeys(storage.list_names(folder))
            else:
                files = {info.path.rpartition("/")[2]: info for info in storage.list(folder, recursive=False)}
            if len(files) <= _FILES_AN_ANSWER or files == previous:
                return files
            previous = files
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
    raise refused(
        f"the files of {storage.url(folder)} change faster than they can be listed",
        "Try again. A lower hoodie.keep.max.commits leaves fewer of them.",
        url=storage.url(folder),
        retryable=True,
    )


_BODIES = BoundedCache[CacheEntry[CommitMetadata]](_BODIES_BYTES, "commit metadata")
"""Decoded commit bodies."""

_SETTINGS = BoundedCache[CacheEntry[TableConfig]](_SETTINGS_BYTES)
"""The settings of each table as they were read last."""

_LISTED = BoundedCache[Timeline](_LISTED_BYTES, "timelines")
"""The timeline of each table as its folder was listed last."""


def _without_carried_files(meta: CommitMetadata, instant: Instant, path: str) -> CommitMetadata:
    """The body, unchanged. Raises `CorruptFile` if it names a base file of another instant, which the name of the file
    shows."""
    ends = tuple([f"_{instant.time}{extension}" for extension in BASE_EXTENSIONS])
    for stats in meta.stats.values():
        foreign_paths = [s.path for s in stats if s.path.endswith(BASE_EXTENSIONS) and not s.path.endswith(ends)]
        if foreign_paths:
            raise CorruptFile(
                f"{path} names {foreign_paths[0]}, a file of another instant",
                hint="It was overwritten by another commit's body; restore it from a copy.",
                context={"path": path},
            )
    return meta


def _time(instant: Instant) -> str:
    return instant.time
