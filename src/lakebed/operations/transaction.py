"""One write on the timeline: begin, commit or abort. Nothing is visible before the completed instant exists."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from lakebed.concurrency.heartbeat import HEARTBEAT_FOLDER, Heartbeat
from lakebed.concurrency.lock import FileLock
from lakebed.concurrency.markers import (
    TEMP_FOLDER,
    Marker,
    appended_again,
    delete_markers,
    list_markers,
)
from lakebed.concurrency.providers import NestedLock, writers_lock
from lakebed.config.settings import WriteSettings
from lakebed.errors import (
    CommitConflict,
    CommitStateUnknown,
    ConflictKind,
    LakebedError,
    StorageError,
    UnsupportedFeature,
)
from lakebed.index.base import Index
from lakebed.index.registry import recorded_index
from lakebed.metadata.lookups import snapshot_of
from lakebed.metadata_records.layout import FILES
from lakebed.metadata_upkeep.maintain import MetadataUpkeep
from lakebed.metadata_upkeep.store import StoredState, read_stored
from lakebed.model import (
    Action,
    CommitMetadata,
    Instant,
    State,
)
from lakebed.operations.context import WriteContext
from lakebed.operations.leftovers import delete_data_files, remove_leftovers
from lakebed.operations.once import Once
from lakebed.operations.rollback import Rollbacks, without_dead_savepoints, without_refused_rollbacks
from lakebed.properties.file import load_same_table, refuse_other_table, update_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import aside, at_once
from lakebed.timeline.bodies.commit import commit_from_record, commit_record, encode_record
from lakebed.timeline.index_changes import (
    abandoned_changes,
    finish_interrupted_changes,
)
from lakebed.timeline.instants import InstantClock
from lakebed.timeline.schema_files import continued, write_history
from lakebed.timeline.schema_versions import Version
from lakebed.timeline.streams import metadata_taken_over, records_of_batch
from lakebed.timeline.timeline import Timeline, load_table, load_timeline, remember_commit
from lakebed.timeline.transitions import TimelineWriter
from lakebed.write_status import WriteStatus

_State = tuple[TableConfig, Timeline, StoredState | None]
_Leftovers = tuple[Sequence[str], Sequence[str]]


class TransactionHooks:
    """The steps that one kind of action adds to its transaction. The transaction calls these methods under the table
    lock and passes itself. The defaults do nothing."""

    def check(self, tx: Transaction, timeline: Timeline, others: Sequence[CommitMetadata] = ()) -> None:
        """Raise `CommitConflict` if the action cannot complete on this timeline. `others` are the commits since a write
        began; empty for a service."""

    def before_completion(
        self, tx: Transaction, timeline: Timeline, metadata: CommitMetadata, statuses: Sequence[WriteStatus]
    ) -> None:
        """Do the last work before the metadata table is written. It comes after the last check that can stop a
        service."""

    def reason_to_take_back(self, tx: Transaction, timeline: Timeline) -> str | None:
        """The reason why a service that was published without the lock must be taken back, as a phrase to be followed
        by "while"; None if it can stay. `timeline` has its completed instant."""
        return None

    def aborted(self, tx: Transaction) -> None:
        """Clean up when a service that raised an error is undone. The caller does not have the lock."""


@dataclass
class Transaction:
    """The common part of every action on the timeline: the lock, the instant, the heartbeat, and how it begins and
    becomes visible. `WriteTransaction` commits rows; services have transactions that run plans and undo instants.

    The lock is held while an action begins and while it completes. A small write on a slow storage keeps it in between
    (`keeps_lock`), since taking it again and reading what is under it would take longer than writing its files.
    `snapshot` is the table as it was when the action began, `config` has its newest properties, `published` is the
    content of its commit. `writer_id` goes into the commit, so that an answer in doubt can be resolved by reading it
    back. `during_restore`: an unfinished restore does not prevent the action.

    As a context manager it aborts the action if the block raises.
    """

    context: WriteContext
    action: Action
    operation: str
    hooks: TransactionHooks = field(default_factory=TransactionHooks, kw_only=True)
    during_restore: bool = field(default=False, kw_only=True)
    keeps_lock: bool = field(default=False, kw_only=True)
    storage: Storage = field(init=False)
    config: TableConfig = field(init=False)
    settings: WriteSettings = field(init=False)
    instant: str = field(default="", init=False)
    timeline: Timeline = field(init=False)
    snapshot: Snapshot = field(init=False)
    writer_id: str = field(default_factory=lambda: uuid.uuid4().hex, init=False)
    rolled_back: list[str] = field(default_factory=list[str], init=False)
    clock: InstantClock = field(init=False)
    published: CommitMetadata | None = field(default=None, init=False)
    _heartbeat: Heartbeat | None = field(default=None, init=False)
    _newest_heartbeat: str = field(default="", init=False)
    _copied_as: frozenset[str] = field(default=frozenset(), init=False)
    _stored: StoredState | None = field(default=None, init=False)
    _view: Snapshot | None = field(default=None, init=False)
    _lock: FileLock | NestedLock | None = field(default=None, init=False)
    _kept: ExitStack | None = field(default=None, init=False)
    _process: int = field(default_factory=os.getpid, init=False)

    def __post_init__(self) -> None:
        self.storage, self.config, self.settings = self.context.storage, self.context.config, self.context.settings
        self.clock = InstantClock(self.config.timezone)

    @property
    def index(self) -> Index:
        """The table's index. A service uses it only if rows move or are deleted."""
        return self.context.index

    def abort(self) -> None:
        """End an action that raised an error. Subclasses undo its work; if that fails, the next writer does it."""
        self.stop_heartbeat()

    def forget(self, instant: str) -> None:
        """Let the index remove its records of an instant that is undone."""
        self.index.rollback(instant, snapshot_of(self.storage, self.config, self.timeline))

    def view(self, timeline: Timeline) -> Snapshot:
        """The table with the present settings and this timeline: one view as long as both stay what they are."""
        view = self._view
        if view is None or view.timeline is not timeline or view.config is not self.config:
            self._view = view = snapshot_of(self.storage, self.config, timeline)
        return view

    def rollbacks(self, forget: Callable[[str], None] = lambda _: None) -> Rollbacks:
        """An object that undoes instants under the lock that this transaction holds; `forget` is called with each of
        them."""
        return Rollbacks(self.storage, self.config, self.clock, self.lock_is_held, forget)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or self._process != os.getpid():  # a forked process leaves it to its parent
            return
        if self._lock is not None and not isinstance(error, Exception):
            self._lock.release()  # an interrupt may have come before `locked` could do it
        self.let_lock_go()
        if isinstance(error, CommitStateUnknown) or not isinstance(error, Exception | KeyboardInterrupt):
            self.stop_heartbeat()
        elif self.instant:
            self.abort()

    @contextmanager
    def locked(self, *reads: Callable[[], object]) -> Generator[list[Any]]:
        """Hold the table lock during the block, which gets the results of `reads`. These functions read storage and
        change nothing; they may be called while the lock is taken, and again if another process had it. One of them
        reads the table's settings, for `use`; without `reads` the block gets these settings alone.

        Raises an error if the table was renamed, dropped or replaced meanwhile."""
        if not reads:
            reads = (partial(load_same_table, self.storage, self.config),)
        self._lock = writers_lock(self.storage, self.settings, self.config.name)
        with ExitStack() as stack:
            stack.push(self._lock)  # before it is taken: an interrupt may come right after that
            yield self._lock.acquire_reading(self.settings.lock_wait_seconds, partial(at_once, self.storage, *reads))()
            if self.keeps_lock:
                self._kept = stack.pop_all()

    def let_lock_go(self) -> None:
        """Release the lock if it was kept after the beginning of the action."""
        stack, self._kept, self.keeps_lock = self._kept, None, False
        if stack is not None:
            stack.close()

    @property
    def lock_is_held(self) -> Callable[[], bool]:
        """A function that returns whether this transaction still holds the lock that it took last."""
        assert self._lock is not None
        return self._lock.lock_is_held

    @contextmanager
    def begin(self) -> Generator[None]:
        """Roll back the leftovers of dead writers, then hold the lock during the block, in which the metadata table is
        prepared and the write is requested."""
        with self.cleaned_up():
            yield
            self.refuse_lost("begin")

    @contextmanager
    def cleaned_up(self) -> Generator[None]:
        """Hold the table lock during the block, after reading the table and rolling back the leftovers of dead
        writers."""
        # a write that keeps the lock does not list the other folders later
        partitions = None if self.keeps_lock else [FILES]
        with self.locked(partial(self._read_state, partitions), self._leftovers) as (state, left):
            self.timeline = self._take_state(state)
            for instant in self.timeline.void:
                TimelineWriter(self.storage, self.config).remove_completed(instant)
            self.rolled_back = self._roll_back_dead() if self.timeline.pending else []
            self._settle_index()
            if self.rolled_back:
                left = self._leftovers()
            with suppress(StorageError, FileNotFoundError):  # leftovers can wait for the next writer
                marked, heartbeats = left
                if marked or heartbeats or self.rolled_back:
                    self._newest_heartbeat = remove_leftovers(
                        self.storage,
                        self.timeline,
                        marked,
                        heartbeats,
                        after_rollback=bool(self.rolled_back),
                        roll_back_again=self._roll_back_late,
                    )
            yield

    def _read_state(self, partitions: Sequence[str] | None = None) -> _State:
        """The table's settings and timeline, and the stored state of its metadata table, with the folders of these
        partitions (None: of all). For `locked`."""
        before = self.config
        table, stored = at_once(
            self.storage,
            partial(load_table, self.storage, before),
            partial(read_stored, self.storage, before, partitions),
        )
        return *table, stored

    def _take_state(self, state: _State) -> Timeline:
        """Use the state that was read under the lock, and return its timeline."""
        config, timeline, self._stored = state
        self.use(config)
        return self._checked(timeline)

    def _leftovers(self) -> _Leftovers:
        """The instants that have markers, and the files in the folder of heartbeats."""
        try:
            marked, heartbeats = at_once(
                self.storage,
                partial(self.storage.list_folders, TEMP_FOLDER),
                partial(self.storage.list_names, HEARTBEAT_FOLDER),
            )
        except (StorageError, FileNotFoundError):
            return (), ()
        return marked, heartbeats

    def _roll_back_dead(self) -> list[str]:
        """Roll back the leftovers of dead writers, and load the timeline again; returns the instants that were rolled
        back."""
        self._stored = None
        self.timeline = without_refused_rollbacks(self.storage, self.config, self.timeline)
        self.timeline = without_dead_savepoints(self.storage, self.config, self.timeline)
        done = self.rollbacks(self.forget).roll_back_dead_writers(self.timeline)
        if done:
            self.timeline = self.load()
        return done

    def _roll_back_late(self, instant: str) -> None:
        """Undo the files that a writer wrote after it was rolled back."""
        self._stored = None
        self.rollbacks().roll_back_late(self.load(), Instant(instant, self.action, State.INFLIGHT))
        self.timeline = self.load()

    def _settle_index(self) -> None:
        """Make the properties name the index that the timeline has, after an interrupted change of it."""
        if not self.view(self.timeline).may_have_changed_index:
            return
        self._stored = None
        forgotten = abandoned_changes(self.config, self.timeline)
        for change in forgotten:
            index = recorded_index(change.after, missing_ok=True)
            if index is not None:
                index.rollback(change.instant, snapshot_of(self.storage, self.config, self.timeline))
        if changes := finish_interrupted_changes(self.config, self.timeline):
            self.config = update_table_config(self.storage, changes, self.lock_is_held)

    def prepare_metadata(self) -> None:
        """Build missing partitions of the metadata table, and compact and clean it if due."""
        self.snapshot = self.metadata_upkeep(self.timeline).prepare().of_last_commit()
        self.config = self.snapshot.config

    def start_heartbeat(self) -> None:
        """Show that this process runs the instant."""
        stage, interval = self.context.stage, self.settings.heartbeat_interval_seconds
        call = None if stage is None else stage.open
        self._heartbeat = Heartbeat(self.storage, self.instant, self.writer_id, interval=interval, call=call)
        self._heartbeat.start()

    def stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def remove_heartbeat(self) -> None:
        """Stop the heartbeat and delete its file."""
        if self._heartbeat is not None:
            self._heartbeat.remove()

    def greatest_time(self) -> str:
        """The greatest time on both timelines. The metadata table's services took their instants after the data table's
        last one; if clocks differ, this write could get one of these instants, and its rollback would delete their
        files. Instants with a heartbeat count too: their writers may be suspended before they write them to the
        timeline."""
        metadata = self.snapshot.metadata if self.config.metadata_partitions else None
        newest = metadata.slices.timeline.greatest_time if metadata else ""
        return max(self.timeline.greatest_time, newest, self._newest_heartbeat)

    def inflight(self, profile: bytes = b"") -> None:
        """Write the inflight instant; `profile` is the encoded plan, empty if file groups are known only at run
        time."""
        # tasks of other processes write files after it
        durable = self.context.engine.is_distributed or "later"
        TimelineWriter(self.storage, self.config).inflight(self.action, self.instant, profile, durable=durable)

    def publish(self, timeline: Timeline, body: bytes, *, is_inflight: bool = False) -> Instant:
        """Create the completed instant on the timeline, and return it. The caller holds the lock, and checked
        `timeline` under it. With `is_inflight` the caller has just checked that the instant is inflight."""
        completion = self.clock.next(after=max(self.instant, timeline.greatest_time))
        writer = TimelineWriter(self.storage, self.config)
        return writer.complete(self.action, self.instant, completion, body, is_inflight=is_inflight)

    def publish_commit(
        self, timeline: Timeline, metadata: CommitMetadata, once: Once | None = None, *, is_inflight: bool = False
    ) -> Instant:
        """Create the completed instant of a commit, which records the stream batches of earlier commits as well, and
        return it."""
        records = metadata_taken_over(timeline, self.settings.rolling_metadata_keys)
        if once is not None:
            records |= records_of_batch(records, timeline, once.stream, once.batch, once.identifier)
        self.published = metadata = replace(metadata, extra={**records, **metadata.extra})
        record = commit_record(metadata, self.action)
        body = encode_record(record, self.config.version)
        done = self.publish(timeline, body, is_inflight=is_inflight)
        remember_commit(self.storage, self.config, done, commit_from_record(record), len(body))
        return done

    def resolve_late(
        self, reason_of: Callable[[Timeline], str | None], take_back: Callable[[Timeline], object]
    ) -> None:
        """Resolve an instant that was published while the lock ran out. If `reason_of` returns a reason against it on
        the newest timeline, the instant is taken back and `CommitConflict` is raised. An instant that is archived
        meanwhile is kept."""
        try:
            with self.locked():
                timeline = self.load()
                if timeline.find(self.instant, self.action) is None and timeline.is_completed_or_archived(self.instant):
                    return
                reason = reason_of(timeline)
                if reason is None:
                    return
                self.refuse_lost("be taken back")
                take_back(timeline)
        except (LakebedError, OSError) as cause:
            raise CommitStateUnknown(
                f"instant {self.instant} of {self.storage.url()} was published after the table lock was lost, and"
                " whether it may be kept could not be found out",
                hint="Nothing was cleaned up. Look at the timeline when storage answers again.",
                context={"instant": self.instant},
                instant=self.instant,
            ) from cause
        raise CommitConflict(
            f"instant {self.instant} was taken back: {reason} while this process was suspended without the table lock",
            hint="Run the write again; a longer heartbeat interval helps where the process is often suspended.",
            context={"instant": self.instant},
            kind=ConflictKind.TAKEN_BACK,
        )

    def commit_metadata(
        self, statuses: Sequence[WriteStatus], schema: str, replaced: Mapping[str, tuple[str, ...]]
    ) -> CommitMetadata:
        stats: dict[str, list[WriteStatus]] = {}
        for status in (*statuses, *appended_again(self.storage, self.config, self.instant, statuses)):
            if status.path is not None:
                stats.setdefault(status.partition, []).append(status)
        extra = {**self.settings.extra_metadata, **self.context.writer_notes(self.writer_id), "schema": schema}
        return CommitMetadata(
            operation=self.operation,
            stats={p: tuple([s.stat() for s in group]) for p, group in sorted(stats.items())},
            replaced=dict(replaced),
            extra=extra,
        )

    def continue_history(self, timeline: Timeline, metadata: CommitMetadata, versions: Sequence[Version] = ()) -> None:
        """Extend the schema history of a table that has one, or begin one with `versions`. The caller holds the
        lock."""
        newest = timeline.last_completed
        if not versions and newest is not None and timeline.commit_metadata(newest).has_schema_history:
            versions = continued(self.storage, timeline, self.instant, metadata.table_schema)
        if versions:
            completion = self.clock.next(after=max(self.instant, timeline.greatest_time))
            metadata.extra.update(write_history(self.storage, timeline, self.instant, completion, versions))

    def use(self, config: TableConfig) -> None:
        """Use settings that were read again: indexes may have been created or dropped since. Files and instants of
        another version are laid out in another way."""
        refuse_other_table(self.config, config, self.storage.url())
        if config.version != self.config.version:
            raise CommitConflict(
                f"table {config.name!r} was of version {self.config.version} when this began, and is of version"
                f" {config.version} now: it was upgraded or downgraded meanwhile",
                hint="Run it again.",
                context={"version": config.version},
                kind=ConflictKind.TABLE,
            )
        self.config = config

    def metadata_upkeep(self, timeline: Timeline) -> MetadataUpkeep:
        stored, self._stored = self._stored, None  # valid until the first change
        engine = self.context.engine
        return MetadataUpkeep(self.view(timeline), self.settings, engine, self.lock_is_held, stored)

    def refuse_lost(self, step: str) -> None:
        if not self.lock_is_held():
            raise CommitConflict(
                f"the table lock was lost before instant {self.instant} could {step}",
                hint="another writer took it after it expired; run the write again",
                kind=ConflictKind.LOCK_LOST,
            )

    def load(self) -> Timeline:
        """The newest timeline of the table."""
        return self._checked(load_timeline(self.storage, self.config))

    def _checked(self, timeline: Timeline) -> Timeline:
        for pending in () if self.during_restore else timeline.pending:
            if pending.action is Action.RESTORE:
                raise UnsupportedFeature(
                    f"a restore of the table is unfinished (instant {pending.time})",
                    hint="Finish it: t.restore() or `lakebed restore URI`; what another process runs is left to it.",
                    context={"feature": "unfinished restore", "instant": pending.time},
                )
        return timeline

    def unnamed(self, metadata: CommitMetadata, markers: Sequence[Marker] | None = None) -> list[str]:
        """The files of lost task attempts, which have a marker but no write stat; attempts may still write them."""
        named = set(metadata.paths)
        all_markers = list_markers(self.storage, self.instant) if markers is None else markers
        return [m.path for m in all_markers if m.path not in named]

    def tidy(self, metadata: CommitMetadata) -> None:
        """Remove the markers and the heartbeat. The commit is valid: an error from here on only leaves files that later
        writers remove."""
        work = partial(at_once, self.storage, partial(self._tidy_markers, metadata), self._tidy_heartbeat)
        if self.context.engine.is_distributed:
            work()  # files of lost task attempts must be deleted before this returns
        else:
            aside(self.storage, work)

    def _tidy_markers(self, metadata: CommitMetadata) -> None:
        with suppress(Exception):
            # files of lost attempts in other processes; an attempt that ends later finds its marker missing and removes
            # its file itself
            lost = self.unnamed(metadata) if self.context.engine.is_distributed else []
            delete_markers(self.storage, self.instant)
            if lost:
                delete_data_files(self.storage, lost, self.instant, self._copied_as)

    def _tidy_heartbeat(self) -> None:
        with suppress(Exception):
            self.remove_heartbeat()
