"""The transaction of a table service: its plan is requested, and later taken up by one process that runs and
completes it; and its progress on the terminal.

Unlike a write a service may die and be run again from its plan. The lock is held while it is planned, taken up and
completed, never in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from lakebed.concurrency.conflicts import check_nothing_gone, is_requested, is_rolled_back
from lakebed.concurrency.heartbeat import Heartbeat, heartbeat_path, is_dead, remove_heartbeat
from lakebed.concurrency.lock import Lock
from lakebed.errors import CommitConflict, LakebedError
from lakebed.index.base import Index
from lakebed.metadata.lookups import snapshot_of
from lakebed.model import Action, CommitMetadata, Instant, State
from lakebed.operations.context import WriteContext
from lakebed.operations.rollback import delete_data_files, remove_unfinished, roll_back
from lakebed.operations.transaction import Transaction
from lakebed.read.reopening import MISSING
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.commit import encode_commit
from lakebed.timeline.bodies.plans import compaction_operations
from lakebed.timeline.instants import completes_as
from lakebed.timeline.plain_keys import note_keys
from lakebed.timeline.timeline import Timeline
from lakebed.timeline.transitions import TimelineWriter
from lakebed.write_status import WriteStatus

PlanBody = Callable[[Snapshot, str], bytes | None]
"""Makes the plan of a service, given the table and the service's instant; None where there is nothing to do."""


def can_be_run(storage: Storage, plan: Instant) -> bool:
    """Whether nobody runs a pending plan."""
    return plan.state is State.REQUESTED or is_dead(storage, plan.time)


@dataclass
class ServiceTransaction(Transaction):
    """See the module. `plan`, or `take_up` and then `finish`; as a context manager it takes a run back that raised."""

    context: WriteContext = field(init=False)
    _taken_up: bool = field(default=False, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        conflict = self._conflict_behind(error)
        super().__exit__(kind, error, trace)
        if conflict is not None:
            raise conflict from error

    def _conflict_behind(self, error: BaseException | None) -> CommitConflict | None:
        """Why a run found a file missing: another process took its plan off, and the file was cleaned then."""
        if not self._taken_up or not isinstance(error, MISSING):
            return None
        try:
            with suppress(OSError):
                self._check_still_mine(self._load())
        except CommitConflict as conflict:
            return conflict
        except LakebedError:
            return None
        return None

    @classmethod
    def of(cls, context: WriteContext, action: Action, operation: str) -> Self:
        """A service of this table."""
        # the index is asked only about what dead writers left
        index = cast("Index", None)
        tx = cls(
            context.storage, context.config, action, operation, context.settings, engine=context.engine, index=index
        )
        tx.context = context
        return tx

    def _forget(self, instant: str) -> None:
        self.context.index.rollback(instant, snapshot_of(self.storage, self.config, self.timeline))

    def plan(self, make: PlanBody) -> str | None:
        """Put a plan on the timeline as requested; gives its instant. Every commit has completed before it, or
        completes after it."""
        with self.begin():
            self.prepare_metadata()
            instant = self._clock.next(after=self._greatest_time())
            body = make(self.snapshot, instant)
            if body is None:
                return None
            writer = TimelineWriter(self.storage, self.config)
            # tells later writers to look for what is left, should this be the last that this process does
            with Heartbeat(self.storage, instant, self.writer_id):
                requested = writer.request(self.action, instant, body)
                if not self._held.still_mine():
                    writer.remove_pending(requested)
            remove_heartbeat(self.storage, instant)
        return instant

    def refuse_lost(self, what: str) -> None:
        """Raise `CommitConflict` where the lock of `begin` is lost."""
        self._refuse_lost(self._held, what)

    def take_up(self, instant: str) -> None:
        """Begin to run a plan; what a runner left that died is taken back first. Raises `CommitConflict` where the plan
        is gone, completed, or run by another process."""
        self.instant = instant
        with self.begin():
            pending = self._pending_plan(self.timeline)
            if pending.state is State.INFLIGHT:
                if not is_dead(self.storage, instant):
                    raise CommitConflict(
                        f"{self.action} {instant} is being run by another process",
                        hint="Leave it to that one; if it dies the plan can be run again.",
                        context={"instant": instant},
                    )
                still_mine = self._held.still_mine
                roll_back(self.storage, self.config, self.timeline, pending, self._clock, still_mine)
                self.rolled_back.append(instant)
                self.timeline = self._load()
                self._pending_plan(self.timeline)
                remove_unfinished(self.storage, self.timeline, instant)
            elif self.storage.head(heartbeat_path(instant)) is not None:
                remove_unfinished(self.storage, self.timeline, instant)
            self.prepare_metadata()
            self._heartbeat = Heartbeat(
                self.storage, instant, self.writer_id, interval=self.settings.heartbeat_interval_seconds
            )
            self._heartbeat.start()
            self._taken_up = True
            self.inflight()

    def _pending_plan(self, timeline: Timeline) -> Instant:
        found = timeline.find(self.instant, self.action)
        if found is None or found.is_completed:
            what = "is not on the timeline any more" if found is None else "was completed by another process"
            raise CommitConflict(f"{self.action} {self.instant} {what}", context={"instant": self.instant})
        return found

    def finish(self, metadata: CommitMetadata, statuses: Sequence[WriteStatus]) -> Instant:
        """Tell the metadata table, and make the run visible. Raises `CommitConflict` where another process has taken
        the run back meanwhile; nothing is visible then."""
        with self._lock() as lock:
            timeline = self._load()
            self._check_still_mine(timeline)
            check_nothing_gone(self.timeline, timeline)
            delete_data_files(self.storage, self._unnamed(metadata), self.instant)
            self._read_config_again()
            self._before_completion(timeline, metadata, statuses)
            watched = self.context.watched_keys(self.snapshot.schema)
            if watched:
                note_keys(timeline, self.instant, watched, metadata, statuses, self._merged(timeline))
            self._metadata_upkeep(timeline, lock).record_action(self.instant, metadata, statuses, rows_stay=True)
            self._refuse_lost(lock, "complete")
            completion = self._clock.next(after=max(self.instant, timeline.greatest_time))
            body = encode_commit(metadata, self.config.version, self.action)
            done = TimelineWriter(self.storage, self.config).complete(self.action, self.instant, completion, body)
            is_settled = lock.still_mine()
        if not is_settled:
            self._settle(done, timeline)
        self._tidy(metadata)
        return done

    def _merged(self, timeline: Timeline) -> set[str]:
        """The names of the files that a plan of compaction merges."""
        if self.action is not Action.COMPACTION:
            return set()
        operations = compaction_operations(timeline.plan(self._pending_plan(timeline)))
        return {name for one in operations for name in (one.base_file, *one.log_files)}

    def _before_completion(self, timeline: Timeline, metadata: CommitMetadata, statuses: Sequence[WriteStatus]) -> None:
        """What a kind of service does under the lock before the metadata table is told."""

    def abort(self) -> None:
        """Take this run back now; the plan stays. What fails here the next runner does."""
        self._stop_heartbeat()
        if not self._taken_up:
            return
        with suppress(Exception), self._lock() as lock:
            timeline = self._load()
            mine = timeline.find(self.instant, self.action)
            if mine is not None and mine.state is State.INFLIGHT and self._is_mine():
                roll_back(self.storage, self.config, timeline, mine, self._clock, lock.still_mine)
            elif mine is not None and mine.state is State.REQUESTED and self._is_mine():
                self._remove_heartbeat()

    def _check_still_mine(self, timeline: Timeline) -> None:
        pending = self._pending_plan(timeline)
        if pending.state is not State.INFLIGHT or not self._is_mine():
            raise CommitConflict(
                f"{self.action} {self.instant} was taken back by another process, which took this one for dead",
                hint="Run it again; a longer heartbeat interval helps where the process is often suspended.",
                context={"instant": self.instant},
            )

    def _is_mine(self) -> bool:
        """Whether the heartbeat is that of this run: who takes a plan up again puts another in its place."""
        try:
            body = json.loads(self.storage.read(heartbeat_path(self.instant)) or b"{}")
        except (FileNotFoundError, ValueError):
            return False
        return isinstance(body, dict) and body.get("writerId") == self.writer_id

    def _take_back(self, done: Instant, timeline: Timeline, lock: Lock) -> None:
        """It is inflight then, and undone as one that raised. Another process may have completed it as well."""
        self.storage.delete(f"{self.config.timeline_path}/{done.file_name}")

    def _reason_to_take_back(self, timeline: Timeline, checked: Timeline) -> str | None:
        """Others may commit beside a service: it stands unless it was taken back in between."""
        if not is_requested(timeline, self.instant, self.action):
            return "another process took its plan off the timeline"
        if is_rolled_back(self.instant, timeline, checked):
            return "another process took it back"
        completed = [
            name
            for name in timeline.files
            if name.startswith(f"{self.instant}_") and name.endswith(f".{completes_as(self.action)}")
        ]
        return "another process completed it" if len(completed) > 1 else None


Advance = Callable[[int], None]


@contextmanager
def progress(what: str, total: int, *, counted: bool) -> Generator[Advance]:
    """Shows that something goes on, since when and (where it is `counted`) how far; gone when it is done. Gives what is
    called with the number of parts that are done."""
    console = Console(stderr=True)
    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    if counted:
        columns += [BarColumn(), MofNCompleteColumn()]
    shown = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal)
    with shown:
        task = shown.add_task(what, total=total if counted else None)
        yield lambda parts: shown.advance(task, parts)
