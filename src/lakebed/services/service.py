"""The transaction of a table service: its plan is requested, and later taken up by one process that runs and
completes it; and its progress on the terminal.

Unlike a write a service may die and be run again from its plan. The lock is held while it is planned, taken up and
completed, never in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lakebed.concurrency.conflicts import check_nothing_undone, is_requested, is_rolled_back
from lakebed.concurrency.heartbeat import heartbeat_path, is_dead, writer_of
from lakebed.errors import CommitConflict, ConflictKind, LakebedError
from lakebed.model import Action, CommitMetadata, Instant, State
from lakebed.operations.leftovers import delete_data_files, remove_lost, remove_unfinished
from lakebed.operations.transaction import Transaction
from lakebed.read.reopening import MISSING
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.plans import RequestedBody, compaction_operations
from lakebed.timeline.instants import completes_as
from lakebed.timeline.plain_keys import note_keys
from lakebed.timeline.timeline import Timeline
from lakebed.timeline.transitions import TimelineWriter
from lakebed.write_status import WriteStatus

MakePlan = Callable[[Snapshot, str], RequestedBody | None]
"""Makes the plan of a service, given the table and the service's instant; None where there is nothing to do."""


def can_be_run(storage: Storage, plan: Instant) -> bool:
    """Whether a pending plan is not being run by any process."""
    return plan.state is State.REQUESTED or is_dead(storage, plan.time)


@dataclass
class ServiceTransaction(Transaction):
    """The transaction of a table service: call `request` or `take_up`, and then `finish`. As a context manager it takes
    a run back if the block raises an error.

    `resumes`: the work of a run that died or raised stays, and the next run does the rest (a clean). `hooks` add what a
    kind of service needs.
    """

    resumes: bool = field(default=False, kw_only=True)
    _taken_up: bool = field(default=False, init=False)
    _requested: RequestedBody | None = field(default=None, init=False)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        conflict = self._conflict_behind(error)
        super().__exit__(kind, error, trace)
        if conflict is not None:
            raise conflict from error

    def _conflict_behind(self, error: BaseException | None) -> CommitConflict | None:
        """The error for a run that finds a file missing, because another process removed its plan and the file was
        cleaned; None for any other error."""
        if not self._taken_up or not isinstance(error, MISSING):
            return None
        try:
            with suppress(OSError):
                self.require_pending(self.load())
        except CommitConflict as conflict:
            return conflict
        except LakebedError:
            return None
        return None

    def request(self, make: MakePlan, *, run: bool) -> RequestedBody | None:
        """Write a plan to the timeline, and with `run` begin its run under the same lock. Returns its body, None if
        there is nothing to do. Every commit completes before the plan or after it."""
        with self.begin():
            self.prepare_metadata()
            instant = self.clock.next(after=self.greatest_time())
            body = make(self.snapshot, instant)
            if body is None:
                return None
            self.instant, self._requested = instant, body
            writer = TimelineWriter(self.storage, self.config)
            # without a run it makes later writers look for leftovers, in case this process dies now
            self.start()
            requested = writer.request(self.action, instant, body.encode())
            if not self.lock_is_held():
                writer.remove_pending(requested)
                self.remove_heartbeat()
                self.refuse_lost("begin")
            if run:
                self.inflight()
            else:
                self.remove_heartbeat()
        return body

    def take_up(self, instant: str) -> Instant:
        """Begin to run a plan, and return its instant. The leftovers of a process that died are removed first. Raises
        `CommitConflict` if the plan is removed, completed, or run by another process."""
        self.instant = instant
        with self.begin():
            pending = self._pending_plan(self.timeline)
            began = pending.state is State.INFLIGHT
            if began and not is_dead(self.storage, instant):
                run = "carried out" if self.resumes else "run"
                raise CommitConflict(
                    f"{self.action} {instant} is being {run} by another process",
                    hint=f"Leave it to that one; if it dies the plan can be {run} again.",
                    context={"instant": instant},
                    kind=ConflictKind.BUSY,
                )
            if began and not self.resumes:
                self.rollbacks().roll_back(self.timeline, pending)
                self.rolled_back.append(instant)
                self.timeline = self.load()
                pending = self._pending_plan(self.timeline)
            if began or self.storage.head(heartbeat_path(instant)) is not None:
                remove_unfinished(self.storage, self.timeline, instant)
            self.prepare_metadata()
            self.start()
            if pending.state is State.REQUESTED:
                self.inflight()
        return pending

    def start(self) -> None:
        """Record that this process runs the plan. If the run raises an error from here on, it is taken back."""
        self.start_heartbeat()
        self._taken_up = True

    def _pending_plan(self, timeline: Timeline) -> Instant:
        instant = timeline.find(self.instant, self.action)
        if instant is None or instant.is_completed:
            state = "is not on the timeline any more" if instant is None else "was completed by another process"
            raise CommitConflict(
                f"{self.action} {self.instant} {state}", context={"instant": self.instant}, kind=ConflictKind.TAKEN_BACK
            )
        return instant

    def finish(self, metadata: CommitMetadata, statuses: Sequence[WriteStatus]) -> Instant:
        """Update the metadata table, make the run visible, and return its completed instant. Raises `CommitConflict` if
        another process has undone the run meanwhile; nothing is visible then."""
        with self.locked() as (config,):
            timeline = self.load()
            if self._requested is not None:
                timeline.remember_plan(self.action, self.instant, self._requested.record)
            self.require_pending(timeline)
            check_nothing_undone(self.timeline, timeline)
            if self.context.engine.is_distributed:
                delete_data_files(self.storage, self.unnamed(metadata), self.instant)
            self.use(config)
            self.hooks.before_completion(self, timeline, metadata, statuses)
            watched = self.context.watched_keys(self.snapshot.schema)
            if watched:
                note_keys(timeline, self.instant, watched, metadata, statuses, self._merged(timeline))
            self.metadata_upkeep(timeline).record_action(self.instant, metadata, statuses, unchanged_rows=True)
            self.continue_history(timeline, metadata)
            self.refuse_lost("complete")
            done = self.publish_commit(timeline, metadata)
            is_settled = self.lock_is_held()
        if not is_settled:
            self.resolve_late(
                lambda now: self._reason_to_take_back(now, timeline),
                # then it is inflight, and undone like a failed run; another process may also have completed it
                lambda _: self.storage.delete(f"{self.config.timeline_path}/{done.file_name}"),
            )
        self.tidy(metadata)
        return done

    def _merged(self, timeline: Timeline) -> set[str]:
        """The names of the files that a plan of compaction merges."""
        if self.action is not Action.COMPACTION:
            return set()
        operations = compaction_operations(timeline.plan(self._pending_plan(timeline)))
        return {name for operation in operations for name in (operation.base_file, *operation.log_files)}

    def abort(self) -> None:
        """Take this run back now; the plan stays. If this fails, the next process that runs the plan does it."""
        self.stop_heartbeat()
        if self._taken_up and not self.resumes:
            with suppress(Exception), self.locked():
                timeline = self.load()
                instant = timeline.find(self.instant, self.action)
                if instant is not None and instant.state is State.INFLIGHT and self._is_mine():
                    self.rollbacks().roll_back(timeline, instant)
                elif instant is not None and instant.state is State.REQUESTED and self._is_mine():
                    self.remove_heartbeat()
                elif instant is None or instant.is_completed:
                    # written after another process had taken the plan off, or completed it
                    remove_lost(self.storage, timeline, self.instant)
        self.hooks.aborted(self)

    def require_pending(self, timeline: Timeline) -> None:
        """Raise `CommitConflict` if another process took this run back, or if this kind of service cannot complete."""
        pending = self._pending_plan(timeline)
        if pending.state is not State.INFLIGHT or not self._is_mine():
            raise CommitConflict(
                f"{self.action} {self.instant} was taken back by another process, which took this one for dead",
                hint="Run it again; a longer heartbeat interval helps where the process is often suspended.",
                context={"instant": self.instant},
                kind=ConflictKind.TAKEN_BACK,
            )
        self.hooks.check(self, timeline)

    def _is_mine(self) -> bool:
        """Whether the heartbeat is that of this run."""
        return writer_of(self.storage, self.instant) == self.writer_id

    def _reason_to_take_back(self, timeline: Timeline, checked: Timeline) -> str | None:
        """The reason to take this run back, if it was undone meanwhile; otherwise None: other commits do not affect a
        service."""
        if not is_requested(timeline, self.instant, self.action):
            return "another process took its plan off the timeline"
        if is_rolled_back(self.instant, timeline, checked):
            return "another process took it back"
        completed = [
            name
            for name in timeline.files
            if name.startswith(f"{self.instant}_") and name.endswith(f".{completes_as(self.action)}")
        ]
        if len(completed) > 1:
            return "another process completed it"
        return self.hooks.reason_to_take_back(self, timeline)
