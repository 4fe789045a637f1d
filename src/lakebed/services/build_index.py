"""Building indexes while others write. Writers log to the new file groups as soon as these exist. The base files are
then made from the table of that moment, outside the lock. At the end, under the lock, log files and base files become
the index.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from lakebed.concurrency.heartbeat import Heartbeat, heartbeat_path, is_dead, writer_of
from lakebed.concurrency.lock import Lock, no_lock
from lakebed.concurrency.providers import writers_lock
from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Engine
from lakebed.errors import CommitConflict, ConflictKind, IndexInconsistent, LakebedError
from lakebed.metadata.lookups import open_snapshot, snapshot_of
from lakebed.metadata_kinds.base import FirstBuild
from lakebed.metadata_kinds.expression_results import ExpressionIndex
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_records.definitions import IndexName
from lakebed.metadata_records.group_files import WrittenBase
from lakebed.metadata_records.layout import EXPRESSION_INDEX, FILES, METADATA_FOLDER, GroupSizing
from lakebed.metadata_upkeep.build_jobs import can_build, file_group_counts, is_large, written_by_job, written_here
from lakebed.metadata_upkeep.creation import (
    NewPartition,
    begin_building,
    complete_building,
    current_groups,
    drop,
    unpublished,
)
from lakebed.metadata_upkeep.maintain import MetadataUpkeep, metadata_settings
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.model import Action, Instant, State
from lakebed.operations.advice import indexes_to_rebuild
from lakebed.properties.file import load_table_config
from lakebed.services.create_index import named_indexes, note_zone, pending_indexings
from lakebed.services.dead_writers import finish_interrupted
from lakebed.services.driver import Service, ServiceState
from lakebed.services.vector_indexes import rebuild_index
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.plans import PlannedIndex, encode_index_metadata, planned_indexes
from lakebed.timeline.instants import InstantClock
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.timeline.transitions import TimelineWriter
from lakebed.wording import Printed

# A build waits this long for writers of other engines that began before it.
PATIENCE_SECONDS = 900.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, repr=False)
class IndexRun(Printed):
    """One run of an indexing plan: the `instant` of the plan, the partitions of the metadata table that were built, and
    the number of entries in their base files."""

    instant: str
    built: tuple[str, ...]
    entries: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        names = ", ".join(self.built)
        return f"indexing {self.instant}: built {names} with {self.entries:,} entries ({self.seconds:.2f} s)"


@dataclass(frozen=True, repr=False)
class IndexingResult(Printed):
    """The result of `build`: the `runs`, one per plan; `notes`, the reasons why a plan was not run; and `at_once`, the
    partitions that were built under the lock because the table's settings request them."""

    runs: tuple[IndexRun, ...] = ()
    notes: tuple[str, ...] = ()
    at_once: tuple[str, ...] = ()

    @property
    def built(self) -> tuple[str, ...]:
        """All partitions of the metadata table that were built."""
        return (*(name for run in self.runs for name in run.built), *self.at_once)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {"runs": [run.to_dict() for run in self.runs], "at_once": list(self.at_once), "notes": list(self.notes)}

    def __str__(self) -> str:
        return "\n".join([*map(str, self.runs), *self.notes]) or "no index waits to be built"


class Indexing(Service[IndexingResult]):
    """The service that builds planned indexes while others write, then, under the lock, missing indexes that the
    settings request."""

    name = "indexing"
    title = "indexing"
    reads = "files"

    def due(self, state: ServiceState) -> str | None:
        context, timeline = state.context, state.timeline
        if why := state.waiting(pending_indexings(timeline)):
            return why
        if not timeline.commits:
            return None
        missing = self._missing(state)
        if missing:
            return f"{', '.join(missing)} of the metadata table are to be built"
        rebuilt = indexes_to_rebuild(context.opened)
        return "; ".join(f"{name} is to be built again: {why}" for name, why in rebuilt.items()) or None

    def is_done_by_writes(self, state: ServiceState) -> bool:
        return bool(self._missing(state))

    @staticmethod
    def _missing(state: ServiceState) -> list[str]:
        """The partitions that the settings request and that are missing: the next write builds them as well."""
        context = state.context
        return MetadataUpkeep(context.opened, context.settings, context.engine, no_lock).missing()

    def serve(self, state: ServiceState) -> IndexingResult:
        context = state.context
        done = IndexingResult()
        if pending_indexings(state.timeline):
            done = build_planned(context.storage, context.settings, context.engine)
        finished = finish_interrupted(context)
        notes = (str(finished),) if finished.built or finished.rolled_back else ()
        rebuilt: list[str] = []
        for name in indexes_to_rebuild(open_snapshot(context.storage)):
            try:
                rebuild_index(context.storage, name, settings=context.settings)
            except CommitConflict as conflict:
                notes += (f"{name} was not built again: {conflict.message}",)
            else:
                rebuilt.append(name)
                notes += (f"{name} was built again",)
        return IndexingResult(done.runs, (*done.notes, *notes), (*finished.built, *rebuilt))

    def has_changed(self, outcome: IndexingResult) -> bool:
        return bool(outcome.built)


def build_planned(storage: Storage, settings: WriteSettings, engine: Engine) -> IndexingResult:
    """Build the planned indexes, including real Hudi's plans, oldest plan first. An index that another process builds
    is left to it. Raises the error of a build that fails; its plan stays for the next try, unless the index cannot be
    built at all."""
    runs: list[IndexRun] = []
    notes: list[str] = []
    for instant in pending_indexings(load_timeline(storage, load_table_config(storage))):
        try:
            runs.append(run_indexing(storage, instant.time, settings, engine))
        except CommitConflict as conflict:
            notes.append(f"indexing {instant.time} was not run: {conflict.message}")
    return IndexingResult(tuple(runs), tuple(notes))


def run_indexing(storage: Storage, instant: str, settings: WriteSettings, engine: Engine) -> IndexRun:
    """Run a plan. Raises `CommitConflict` if another process runs it or has removed it, and `IndexInconsistent` for
    keys over which no index can be built; then the plan is removed."""
    started = time.monotonic()
    build = _Build(storage, instant, settings, engine)
    with build.running():
        parts = build.begin()
        build.wait_for_others()
        entries = 0
        for part in parts:
            written = build.write(part)
            entries += sum(base.entries for base in written)
            build.add(part, written)
        build.complete()
    return IndexRun(instant, tuple(index.partition for index in build.planned), entries, time.monotonic() - started)


@dataclass(frozen=True)
class _Part:
    """An index of a plan that is not complete yet, with its file groups."""

    name: IndexName
    new: NewPartition


@dataclass
class _Build:
    """One run of a plan. `base_view` is the view of the table from which base files are made."""

    storage: Storage
    instant: str
    settings: WriteSettings
    engine: Engine
    writer_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    planned: Sequence[PlannedIndex] = ()
    base_view: Snapshot = field(init=False)
    _others: frozenset[str] = frozenset()
    _heartbeat: Heartbeat | None = None

    @contextmanager
    def running(self) -> Generator[None]:
        """Record, at the end of the block, that no process runs the plan any more. If the block raises an error the
        plan stays, to be run again; after `IndexInconsistent` it is removed, since no index can be built."""
        try:
            yield
        except IndexInconsistent:
            self._stop()
            self._remove()
            raise
        except Exception:
            self._stop()
            self._give_back()
            raise
        except BaseException:
            self._stop()
            raise
        self._stop()
        with suppress(Exception):
            self.storage.delete(heartbeat_path(self.instant), durable=False)

    def begin(self) -> list[_Part]:
        """Begin or resume the plan. When this returns its file groups exist, and writers log to them."""
        with self._locked() as lock:
            config = load_table_config(self.storage)
            timeline = load_timeline(self.storage, config)
            pending = self._pending(timeline)
            if pending.state is State.INFLIGHT and not is_dead(self.storage, self.instant):
                raise CommitConflict(
                    f"indexing {self.instant} is being run by another process",
                    hint="Leave it to that one; if it dies the plan can be run again.",
                    context={"instant": self.instant},
                    kind=ConflictKind.BUSY,
                )
            self._heartbeat = Heartbeat(
                self.storage, self.instant, self.writer_id, interval=self.settings.heartbeat_interval_seconds
            )
            self._heartbeat.start()
            self.planned = planned_indexes(timeline.plan(pending))
            view = snapshot_of(self.storage, config, timeline)
            named = named_indexes(view, self.planned)
            if pending.state is State.REQUESTED:
                TimelineWriter(self.storage, config).inflight(Action.INDEXING, self.instant)
            upkeep = MetadataUpkeep(view, self.settings, self.engine, lock.lock_is_held)
            if FILES not in config.metadata_partitions:  # small, and every other partition needs it
                config = upkeep.add()
            parts = [part for name, sizing in named for part in self._begin(config, timeline, lock, name, sizing)]
            self.base_view = snapshot_of(self.storage, load_table_config(self.storage), timeline)
            self._others = self._of_other_engines(timeline)
        return parts

    def _begin(
        self,
        config: Any,
        timeline: Timeline,
        lock: Lock,
        name: IndexName,
        sizing: GroupSizing | None,
    ) -> list[_Part]:
        if name.partition in config.metadata_partitions:
            return []  # a write whose settings ask for it was faster
        snapshot = snapshot_of(self.storage, load_table_config(self.storage), timeline)
        counts = file_group_counts(snapshot, name, sizing)
        definition = kind_of(name.partition).definition(name, snapshot, self.settings)
        new = begin_building(self._store(timeline, lock), name.partition, counts, definition, timeline.greatest_time)
        return [] if new is None else [_Part(name, new)]

    def wait_for_others(self) -> None:
        """Wait for writers of other engines that began before the file groups existed, since they do not log to them.
        Then base the build on the table with their commits. Raises `CommitConflict` after `PATIENCE_SECONDS`."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self._others:
            timeline = load_timeline(self.storage, self.base_view.config)
            left = {i.time for i in timeline.pending if i.time in self._others and not is_dead(self.storage, i.time)}
            self.base_view = replace(self.base_view, timeline=timeline)
            if not left:
                return
            if time.monotonic() > until:
                raise CommitConflict(
                    f"the writer of instant {min(left)}, which knows nothing of the new index, is not done",
                    hint="Run it again when it is: t.indexes.build() or `lakebed maintenance run`.",
                    context={"instant": min(left)},
                    kind=ConflictKind.BUSY,
                )
            time.sleep(_LOOK_SECONDS)

    def write(self, part: _Part) -> list[WrittenBase]:
        """Write the base files of an index while other writers continue."""
        view = snapshot_of(self.storage, self.base_view.config, self.base_view.timeline, use_metadata=False)
        timeline = load_timeline(self.storage, self.base_view.config)
        store = self._store(timeline)
        new = current_groups(store, part.new)
        if can_build(part.name.partition) and is_large(view, self.engine):
            return written_by_job(view, part.name, new, self.engine)
        sizing = GroupSizing(minimum=1, maximum=1)
        groups, definition = kind_of(part.name.partition).first_records(
            part.name, FirstBuild(view, self.settings, self.engine), sizing
        )
        return written_here(store, new, groups, definition)

    def add(self, part: _Part, written: Sequence[WrittenBase]) -> None:
        """Complete an index whose base files are written. Raises `CommitConflict` if a commit that it was made from was
        taken back. Then its base files are removed, unless its delta commit is already published, since others may have
        continued from it."""
        try:
            self._add(part, written)
        except CommitConflict:
            store = self._store(load_timeline(self.storage, self.base_view.config))
            for base in unpublished(store, part.new, written):
                self.storage.delete(f"{METADATA_FOLDER}/{base.partition}/{base.name}")
            raise

    def _add(self, part: _Part, written: Sequence[WrittenBase]) -> None:
        with self._locked() as lock:
            timeline = self._checked()
            lost_commit = next((i for i in self.base_view.timeline.commits if not timeline.is_committed(i.time)), None)
            if lost_commit is not None:
                raise CommitConflict(
                    f"{lost_commit.action} {lost_commit.time} was taken back while {part.name.partition} was built",
                    hint="Build it again.",
                    context={"instant": lost_commit.time},
                    kind=ConflictKind.TAKEN_BACK,
                )
            config = complete_building(self._store(timeline, lock), part.new, written)
            if part.name.partition.startswith(EXPRESSION_INDEX) and part.name.expression is not None:
                snapshot = snapshot_of(self.storage, config, timeline)
                expression = ExpressionIndex.of(part.name.expression, snapshot.schema)
                note_zone(snapshot, config, expression, lock.lock_is_held)

    def complete(self) -> None:
        """Complete the indexing plan on the timeline."""
        with self._locked():
            timeline = self._checked()
            config = load_table_config(self.storage)
            completion = InstantClock(config.timezone).next(after=max(self.instant, timeline.greatest_time))
            body = encode_index_metadata(self.planned)
            TimelineWriter(self.storage, config).complete(Action.INDEXING, self.instant, completion, body)

    def _checked(self) -> Timeline:
        timeline = load_timeline(self.storage, load_table_config(self.storage))
        if self._pending(timeline).state is not State.INFLIGHT or not self._is_mine():
            raise CommitConflict(
                f"indexing {self.instant} was taken up by another process, which took this one for dead",
                hint="Leave it to that one.",
                context={"instant": self.instant},
                kind=ConflictKind.TAKEN_BACK,
            )
        return timeline

    def _pending(self, timeline: Timeline) -> Instant:
        indexing = timeline.find(self.instant, Action.INDEXING)
        if indexing is None or indexing.is_completed:
            state = "is not on the timeline any more" if indexing is None else "was completed by another process"
            raise CommitConflict(
                f"indexing {self.instant} {state}", context={"instant": self.instant}, kind=ConflictKind.TAKEN_BACK
            )
        return indexing

    def _is_mine(self) -> bool:
        return writer_of(self.storage, self.instant) == self.writer_id

    def _of_other_engines(self, timeline: Timeline) -> frozenset[str]:
        """The pending instants of writers that do not read the table's settings again when they commit. Writers of
        lakebed do; their heartbeats identify them."""
        writes = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT, Action.COMPACTION, Action.CLUSTERING)
        pending = (i for i in timeline.pending if i.action in writes and i.state is State.INFLIGHT)
        return frozenset(i.time for i in pending if not writer_of(self.storage, i.time))

    def _store(self, timeline: Timeline, lock: Lock | None = None) -> MetadataStore:
        config = load_table_config(self.storage)
        settings, lock_is_held = metadata_settings(self.settings), no_lock if lock is None else lock.lock_is_held
        return MetadataStore(self.storage, config, timeline, settings, lock_is_held=lock_is_held)

    def _locked(self) -> Any:
        name = load_table_config(self.storage).name
        return writers_lock(self.storage, self.settings, name)

    def _stop(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def _give_back(self) -> None:
        """Leave the plan to the next process. If this fails, the stopped heartbeat shows that the plan can be run."""
        with suppress(Exception), self._locked():
            if self._heartbeat is not None and self._is_mine():
                config = load_table_config(self.storage)
                pending = self._pending(load_timeline(self.storage, config))
                TimelineWriter(self.storage, config).remove_inflight(pending)
                self.storage.delete(heartbeat_path(self.instant), durable=False)

    def _remove(self) -> None:
        """Remove the unfinished partitions of an index that cannot be built, and its plan."""
        with suppress(LakebedError, OSError), self._locked() as lock:
            config = load_table_config(self.storage)
            timeline = load_timeline(self.storage, config)
            pending = self._pending(timeline)
            partitions = [
                index.partition for index in self.planned if index.partition in config.metadata_partitions_inflight
            ]
            if partitions:
                drop(self._store(timeline, lock), partitions)
            TimelineWriter(self.storage, config).remove_pending(pending)
            self.storage.delete(heartbeat_path(self.instant), durable=False)
