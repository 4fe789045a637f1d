"""A write of rows between its requested and its completed instant: the steps of its commit, in order."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from lakebed.concurrency.conflicts import (
    Attempt,
    EarlyConflicts,
    StartedAt,
    TouchedFiles,
    check_conflicts,
    clusterings_that_give_way,
    is_requested,
    reason_to_take_back,
)
from lakebed.concurrency.heartbeat import writer_of
from lakebed.concurrency.lock import no_lock
from lakebed.concurrency.markers import (
    LocalWrite,
    Marker,
    list_markers,
    local_write,
)
from lakebed.errors import (
    CommitConflict,
    ConflictKind,
    LakebedError,
)
from lakebed.format.file_names import written_files
from lakebed.index.base import Index, Resizes, key_hash_of, pending_resizes
from lakebed.metadata.slices import MetadataSlices
from lakebed.metadata_records.layout import FILES, PARTITION_STATS
from lakebed.metadata_upkeep.commit import begin_ahead
from lakebed.metadata_upkeep.rollback import remove_instant
from lakebed.metadata_upkeep.store import StoredState
from lakebed.model import (
    Action,
    CommitMetadata,
    FileGroupId,
    Instant,
    has_completion_times,
)
from lakebed.operations.leftovers import delete_data_files
from lakebed.operations.once import check_once
from lakebed.operations.transaction import Transaction
from lakebed.operations.uniqueness import Uniqueness, check_unique
from lakebed.properties.checks import Check
from lakebed.properties.file import update_table_config
from lakebed.slices.recorded_slices import RecordedSlices
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import in_background, is_remote
from lakebed.timeline.bodies.rollback import undone_by_restore
from lakebed.timeline.index_changes import (
    COMMITTED_CHANGE,
    IndexChange,
    Settings,
    property_change_for,
    settings_at,
)
from lakebed.timeline.plain_keys import note_keys
from lakebed.timeline.timeline import Timeline
from lakebed.timeline.transitions import TimelineWriter
from lakebed.write_status import WriteStatus


@dataclass(frozen=True, slots=True)
class _Written:
    """The results of a write for its commit. `resizes` are the pending resizes of the table's buckets."""

    statuses: Sequence[WriteStatus]
    metadata: CommitMetadata
    resizes: Resizes


@dataclass
class WriteTransaction(Transaction):
    """A write between its requested and its completed instant.

    A `non_blocking` write lets others append to the file groups that it appends to. `planned_index` has the index
    settings of the time when the write was planned: under other settings its rows would belong elsewhere. `new_index`
    is the index that the table gets by this instant. `planned_checks` are the checks that its rows have passed. A write
    that does not look keys up (`looks_up`) may store a key again. A `repeatable` write leaves the same rows when it is
    done twice. `plain_keys` are key fields whose texts files are asked about. After the commit `duplicates` has the
    number of rows whose key is stored another time, None if unknown. `judged_timeline` is the timeline for which the
    checks of the table as a whole hold.
    """

    unique: Uniqueness = field(default="nowhere", kw_only=True)
    planned_index: Settings | None = field(default=None, kw_only=True)
    planned_checks: tuple[Check, ...] | None = field(default=None, kw_only=True)
    new_index: Index | None = field(default=None, kw_only=True)
    non_blocking: bool = field(default=False, kw_only=True)
    looks_up: bool = field(default=True, kw_only=True)
    repeatable: bool = field(default=True, kw_only=True)
    plain_keys: tuple[str, ...] = field(default=(), kw_only=True)
    duplicates: int | None = field(default=None, init=False)
    judged_timeline: Timeline | None = field(default=None, init=False)
    _started: StartedAt | None = field(default=None, init=False)
    _may_be_shown: bool = field(default=False, init=False)
    _local: LocalWrite | None = field(default=None, init=False)
    _metadata_begun: bool = field(default=False, init=False)
    _has_first_lock: bool = field(default=False, init=False)

    def request(self, body: bytes = b"", *, instant: str = "") -> None:
        """Take an instant (or use `instant`, for a commit with a fixed one), start the heartbeat, and write the
        requested instant."""
        self._refuse_other_settings(self.view(self.timeline))
        self.instant = instant or self.clock.next(after=self.greatest_time())
        self._started = StartedAt.of(self.timeline)
        opened_ahead = in_background(self._open_files_ahead) if is_remote(self.storage) else None
        self.start_heartbeat()
        self.refuse_lost("begin")
        writer = TimelineWriter(self.storage, self.config)
        self._may_be_shown = True
        try:
            requested = writer.request(self.action, self.instant, body)
        except CommitConflict:
            self._may_be_shown = False
            raise
        if opened_ahead is not None:
            opened_ahead()
        if not self.lock_is_held():
            writer.remove_pending(requested)
            self._may_be_shown = False
            self.refuse_lost("begin")

    @contextmanager
    def showing(self, profile: bytes) -> Generator[None]:
        """Write the inflight instant, for the block that writes the files. If this process writes them to a slow store,
        the first markers are written at the same time. No file is begun before both exist."""
        follows_marker = not has_completion_times(self.config.version)  # at once, for other writers' slices
        if self.context.engine.is_distributed or follows_marker or not is_remote(self.storage):
            self.inflight(profile)
            yield
            return
        lock_is_held = no_lock if self._kept is None else self.lock_is_held
        with local_write(self.storage, self.instant, lambda: self.inflight(profile), lock_is_held) as self._local:
            if self._kept is not None and self.config.metadata_partitions:
                self._metadata_begun = True
                self._stored = self._stored_by_begin()
                store = self.metadata_upkeep(self.timeline).store
                self._local.begin(lambda: begin_ahead(store, self.instant))
            yield

    def _stored_by_begin(self) -> StoredState | None:
        """The state of the metadata table as this write left it under the lock that it keeps."""
        metadata = self.snapshot.metadata if self.config.metadata_partitions else None
        slices = None if metadata is None else metadata.slices
        return (
            StoredState(slices.config, slices.timeline, opened=slices) if isinstance(slices, MetadataSlices) else None
        )

    def _open_files_ahead(self) -> None:
        """Open the metadata table's list of files, which has the sizes of file groups. A write that keeps the lock also
        opens the statistics of partition paths, which its commit continues."""
        metadata = self.snapshot.metadata if self.config.metadata_partitions else None
        if metadata is not None:
            used = [FILES, PARTITION_STATS] if self.keeps_lock and metadata.has(PARTITION_STATS) else [FILES]
            with suppress(LakebedError, OSError):  # its first user opens it again, and reports the error
                metadata.open_ahead(used)

    def _refuse_other_settings(self, view: Snapshot) -> None:
        now = view.index_settings
        if self.planned_index is not None and now != self.planned_index:
            raise CommitConflict(
                f"the index of table {self.config.name!r} was changed while this write was planned or written",
                hint="Nothing of it is visible; run it again, by the index that the table has now.",
                context={"planned": dict(self.planned_index), "table": now},
                kind=ConflictKind.TABLE,
            )

        if self.planned_checks is not None and view.config.checks != self.planned_checks:
            raise CommitConflict(
                f"the checks of table {self.config.name!r} were changed while this write was planned or written",
                hint="Nothing of it is visible; run it again, under the checks that the table has now.",
                context={"checks": [check.name for check in view.config.checks]},
                kind=ConflictKind.TABLE,
            )

    def _refuse_other_commits(self, judged: Timeline, timeline: Timeline) -> None:
        """Raise `CommitConflict` if another commit completed since the checks of the table as a whole were evaluated:
        they may be false for the rows of both."""
        if judged.commits != timeline.commits:
            raise CommitConflict(
                f"another writer committed to table {self.config.name!r} while the checks of the table as a whole were"
                " evaluated",
                hint="Nothing of this write is visible. Run it again: retries=3 on a write method does that.",
                context={"checks": [check.name for check in self.config.table_checks]},
                kind=ConflictKind.COMMITTED,
            )

    def early_conflicts(self) -> EarlyConflicts | None:
        """The check for concurrent writers to a file group, made before it is written; None if the settings do not
        request it."""
        if not self.settings.early_conflicts or self.non_blocking:
            return None
        assert self._started is not None
        writes = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)
        services = {i.time for i in self.timeline.pending if i.action not in writes}
        concurrent_writers = {
            time for time, action in self._started.pending if action in writes and time not in services
        }
        return EarlyConflicts(tuple(sorted(concurrent_writers)), by_bucket=key_hash_of(self.index) is not None)

    def check_early(self, groups: frozenset[FileGroupId]) -> None:
        """Raise `CommitConflict` if other writers have committed to these file groups since this write began."""
        self._refuse_touched(TouchedFiles(groups, by_bucket=key_hash_of(self.index) is not None), self.load())

    def check_written(self, metadata: CommitMetadata, timeline: Timeline) -> None:
        """Raise `CommitConflict` if other writers have committed to the file groups of this commit since it began."""
        self._refuse_touched(self._touched(metadata), timeline)

    def _refuse_touched(self, touched: TouchedFiles, now: Timeline) -> None:
        assert self._started is not None
        clusterings = {i.time for i in now.pending_clustering.values()}
        check_conflicts(Attempt(touched, now, self._started, giving_way=clusterings))

    def commit(
        self,
        statuses: Sequence[WriteStatus],
        schema: str,
        replaced: Mapping[str, tuple[str, ...]],
        *,
        unchanged_rows: bool = False,
    ) -> Instant:
        """Check for conflicts, update the index and the metadata table, and make the write visible. Raises
        `CommitConflict`, and nothing is visible then."""
        metadata = self.commit_metadata(statuses, schema, replaced)
        resizes = pending_resizes(self.index, self.snapshot).without(replaced)
        written = _Written(statuses, metadata, resizes)
        with self._locked_again() as (timeline, markers):
            if self._local is not None:
                self._local.finish()
            now = self.view(timeline)
            if self._started is not None and self._started.is_unchanged(timeline, self.instant):
                self._view = now = now.with_slices_of(self.snapshot)  # as they were under the first lock
            self._check_pending(now.timeline)
            self._check_others(written, now.timeline)
            self._refuse_other_settings(now)
            if self.judged_timeline is not None:
                self._refuse_other_commits(self.judged_timeline, now.timeline)
            if has_completion_times(self.config.version):
                self._copied_as = frozenset(resizes.children.values())
            if lost := self.unnamed(metadata, markers):  # of lost task attempts; before version 8 their log files stay
                delete_data_files(self.storage, lost, self.instant, self._copied_as)
            self.index.update(statuses, self.instant, now, replaced)
            self._record(written, now, unchanged_rows=unchanged_rows)
            self._note(written, now.timeline)
            self.refuse_lost("complete")
            done = self.publish_commit(now.timeline, written.metadata, self.context.stream_batch, is_inflight=True)
            is_settled = self.lock_is_held()
            if is_settled:
                with suppress(Exception):  # the commit is valid; without what is kept the next one lists files
                    self._keep_slices(written, now.timeline, done)
            if is_settled and (self.new_index is not None or now.timeline.pending_clustering):
                self._follow_up(written, now.timeline)
        if not is_settled:
            self.resolve_late(
                lambda later: reason_to_take_back(self.instant, self.action, self.config, later, now.timeline),
                # rolled back by write stats: other writers may have removed the markers since
                lambda later: self.rollbacks(self.forget).roll_back(later, done),
            )
        self.tidy(written.metadata)
        with suppress(Exception):  # the commit is valid
            self.index.committed(self.instant, now)
        return done

    @contextmanager
    def _locked_again(self) -> Generator[tuple[Timeline, Sequence[Marker]]]:
        """Hold the table lock during the block, which gets the timeline and the markers of this write. With the lock of
        its beginning nothing is read again: no other writer has changed the table. If that lock was lost meanwhile,
        the write takes it again like any other."""
        if self._kept is not None and self._local is not None and self.lock_is_held():
            stack, self._kept, self.keeps_lock, self._has_first_lock = self._kept, None, False, True
            with stack:
                writer = TimelineWriter(self.storage, self.config)
                self._stored = self._stored_by_begin()
                yield self.timeline.with_files(writer.pending_names(self.action, self.instant)), self._local.markers
            return
        self.let_lock_go()
        if self._metadata_begun and self._local is not None:
            self._local.finish()
            self._metadata_begun = False  # what it began under the lost lock is taken back
        reads = self._read_state, lambda: list_markers(self.storage, self.instant)
        with self.locked(*reads) as (state, markers):
            yield self._take_state(state), markers

    def _check_pending(self, timeline: Timeline) -> None:
        """Raise where another writer took this one for dead, or the batch of a stream was committed meanwhile."""
        instant = timeline.find(self.instant, self.action)
        if instant is None or instant.is_completed or not is_requested(timeline, self.instant, self.action):
            raise _taken_back(timeline, self.instant)
        if (once := self.context.stream_batch) is not None:
            check_once(timeline, once, repeatable=self.repeatable)

    def _check_others(self, written: _Written, timeline: Timeline) -> None:
        """Raise `CommitConflict` if changes by others since this write began conflict with it. Sets the schema that the
        commit must carry."""
        assert self._started is not None
        resizes = written.resizes
        if self._started.is_unchanged(timeline, self.instant) and not resizes.children:
            self.hooks.check(self, timeline)
            return
        attempt = Attempt(
            self._touched(written.metadata),
            timeline,
            self._started,
            self.instant,
            written.metadata.extra["schema"],
            giving_way=clusterings_that_give_way(self.storage, timeline, self.settings),
            resized={**resizes.parents, **resizes.children},
            named_after=resizes.children,
            appended=written.metadata if self.non_blocking else None,
        )
        written.metadata.extra["schema"] = check_conflicts(attempt)
        others = [metadata for _, metadata in attempt.since]
        self.hooks.check(self, timeline, others)
        if self.index.resizing is not None:
            self.index.resizing.check_commits(written.metadata, others)
        if self.unique != "nowhere":
            check_unique(self.snapshot.reader, written.statuses, others, self.unique)

    def _touched(self, metadata: CommitMetadata) -> TouchedFiles:
        by_bucket = key_hash_of(self.index) is not None
        return TouchedFiles.of(metadata, by_bucket=by_bucket, non_blocking=self.non_blocking)

    def _record(self, written: _Written, now: Snapshot, *, unchanged_rows: bool) -> None:
        """Write the records of this commit into the metadata table."""
        writer, upkeep = TimelineWriter(self.storage, self.config), self.metadata_upkeep(now.timeline)
        if self._metadata_begun:
            upkeep.store.shown_inflight.add(self.instant)
        self.duplicates = upkeep.record_action(
            self.instant,
            written.metadata,
            written.statuses,
            unchanged_rows=unchanged_rows,
            looks_up=self.looks_up,
            meanwhile=partial(self._check_inflight, writer),
        )

    def _check_inflight(self, writer: TimelineWriter) -> None:
        """Raise `CommitConflict` if this write is not inflight any more. Under the lock of its beginning no other
        writer can have rolled it back."""
        if not self._has_first_lock or not self.lock_is_held():
            writer.check_inflight(self.action, self.instant)

    def _note(self, written: _Written, timeline: Timeline) -> None:
        """Put into the commit what it says beside its files: a change of the index, the schema history, plain keys."""
        if self.new_index is not None:
            self._note_index(timeline, written.metadata, self.new_index)
        self.continue_history(timeline, written.metadata)
        if self.plain_keys:
            note_keys(timeline, self.instant, self.plain_keys, written.metadata, written.statuses)

    def _keep_slices(self, written: _Written, timeline: Timeline, done: Instant) -> None:
        """Keep the file slices that this commit leaves, for the next one of this process; the caller holds the lock."""
        assert self._started is not None
        metadata, storage = written.metadata, self.storage
        if not self._started.is_unchanged(timeline, self.instant) or metadata.replaced or self.new_index is not None:
            RecordedSlices.forget(storage)
            return
        files = list(written_files(metadata))
        if None in files:  # the path of an emptied base file
            RecordedSlices.forget(storage)
            return
        RecordedSlices.after_commit(
            storage, self.config, timeline, [done], self.snapshot.last_commit, [f for f in files if f is not None]
        )

    def _follow_up(self, written: _Written, timeline: Timeline) -> None:
        """Change the timeline as the commit requires. If a step fails here, later writers and services do it."""
        with suppress(LakebedError, OSError):
            if self.new_index is not None:
                self.timeline = self.load()
                self._settle_index()
            if timeline.pending_clustering:
                self.rollbacks().remove_overtaken_plans(
                    self.load(), self._touched(written.metadata), written.resizes.parents
                )

    def _note_index(self, timeline: Timeline, metadata: CommitMetadata, index: Index) -> None:
        """Record that the table gets this index, in the commit and in the properties; it becomes valid when the instant
        completes."""
        change = self.index_change(timeline, index)
        metadata.extra[COMMITTED_CHANGE] = change.committed()
        if index.hashing is not None:
            index.hashing.before_change(self.instant, self.storage)
        changes = property_change_for(self.config, timeline, change)
        self.config = update_table_config(self.storage, changes, self.lock_is_held)

    def index_change(self, timeline: Timeline, index: Index) -> IndexChange:
        """The change by which the table gets this index."""
        return IndexChange(self.instant, settings_at(timeline, self.config), index.settings())

    def abort(self) -> None:
        """Undo this write now: its files, then its pending instant. If a step fails, the next writer does it.

        If this write has not shown its instant, files of that instant are another process's, which chose the same one.
        """
        self.stop_heartbeat()
        if not self._may_be_shown:
            with suppress(Exception):
                if writer_of(self.storage, self.instant) == self.writer_id:
                    self.remove_heartbeat()
            return
        with suppress(Exception), self.locked():
            timeline = self.load()
            instant = timeline.find(self.instant, self.action)
            if instant is not None and not instant.is_completed:
                self.rollbacks(self.forget).roll_back(timeline, instant)
            elif not timeline.is_completed_or_archived(self.instant):
                # another writer has rolled it back, with its markers, while this one still wrote
                self.forget(self.instant)
                remove_instant(self.metadata_upkeep(timeline).store, self.instant)
                self._roll_back_late(self.instant)
                self.remove_heartbeat()


def _taken_back(timeline: Timeline, instant: str) -> CommitConflict:
    """The error of a write whose pending instant others have removed."""
    restores = (done for done in timeline.completed_after(instant) if done.action is Action.RESTORE)
    restore = next((done for done in restores if instant in undone_by_restore(timeline.metadata(done))), None)
    if restore is not None:
        return CommitConflict(
            f"a restore of the table ({restore.time}) removed instant {instant}, which was not committed yet",
            hint="Nothing of it is visible. Run the write again on the table as it is now.",
            context={"instant": instant, "restore": restore.time},
            kind=ConflictKind.TAKEN_BACK,
        )
    return CommitConflict(
        f"instant {instant} was rolled back by another writer, which took this one for dead",
        hint="run the write again; a longer heartbeat interval helps where the process is often suspended",
        context={"instant": instant},
        kind=ConflictKind.TAKEN_BACK,
    )
