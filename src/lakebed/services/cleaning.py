"""Cleaning: files that no commit which is kept can see any more are deleted, by plans on the timeline.

A plan is made under the table lock and carried out outside it, while writes go on; what a runner left that died is
carried out again: a file that is gone already counts as deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebed.concurrency.heartbeat import Heartbeat, heartbeat_path, is_dead, remove_heartbeat
from lakebed.config.features import check_write
from lakebed.config.options import service_settings
from lakebed.config.settings import CleaningSettings
from lakebed.errors import CommitConflict
from lakebed.format.file_names import is_data_path, parse_base_file, parse_log_file
from lakebed.model import Action, Instant, State, path_in
from lakebed.operations.context import WriteContext
from lakebed.operations.leftovers import remove_unfinished
from lakebed.services.cleaning_plan import check_filters, find_cleanable, plan_clean
from lakebed.services.cleaning_result import CleanResult, CleanRun
from lakebed.services.progress import progress
from lakebed.services.service_transaction import ServiceTransaction
from lakebed.slices.facts import table_features
from lakebed.slices.listing import PARTITION_METADATA
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import delete_files
from lakebed.timeline.bodies.plans import CleanPlan, clean_files, encode_clean_metadata, encode_clean_plan
from lakebed.timeline.bodies.rollback import decode_action
from lakebed.timeline.instants import InstantClock, completes_as
from lakebed.timeline.timeline import COMMITS, Timeline
from lakebed.timeline.transitions import TimelineWriter
from lakebed.wording import count_text

_OPERATION = "CLEAN"

Planner = Callable[[Snapshot, str], "CleanPlan | str"]
"""Gives the plan of a clean, or why there is none, for the table under the lock and the instant."""


def clean(
    context: WriteContext, *, plan_only: bool = False, dry_run: bool = False, when_due: bool = False
) -> CleanResult:
    """Carry out the clean that is pending, real Hudi's too, then plan one of what no kept commit can see, and do it.

    `plan_only` makes the plan for another job to run, `dry_run` only shows it, `when_due` makes one only where commits
    since the last clean have left something behind. A clean that has nothing to do writes nothing.
    """
    settings = settings_of(context)
    check_filters(settings)
    check_write(context.config.properties, table_features(context.opened), "clean")
    planner = _planner(settings, when_due=when_due)
    if dry_run:
        snapshot = context.opened
        now = InstantClock(context.config.timezone).next(after=snapshot.timeline.greatest_time)
        found = planner(snapshot, now)
        return CleanResult(notes=(found,)) if isinstance(found, str) else CleanResult(plan=found)
    runs: list[CleanRun] = []
    waiting = [i for i in context.opened.timeline.pending if i.action is Action.CLEAN]
    for instant in [] if plan_only else waiting:
        try:
            runs.append(run_clean(context, instant.time))
        except CommitConflict as conflict:
            return CleanResult(tuple(runs), notes=(f"clean {instant.time} was left: {conflict.message}",))
    with CleanTransaction.of(context, Action.CLEAN, _OPERATION) as tx:
        planned = tx.start(planner, run=not plan_only)
        if isinstance(planned, str):
            return CleanResult(tuple(runs), notes=(planned,))
        if plan_only:
            return CleanResult(tuple(runs), planned, tx.instant)
        runs.append(_carry_out(tx))
    return CleanResult(tuple(runs))


def settings_of(context: WriteContext) -> CleaningSettings:
    """How the table is cleaned, as the job's options and the table say."""
    return service_settings(context.options.given, context.config.properties).cleaning


def run_clean(context: WriteContext, instant: str) -> CleanRun:
    """Carry out a plan. Raises `CommitConflict` where another process does, or has done it."""
    with CleanTransaction.of(context, Action.CLEAN, _OPERATION) as tx:
        tx.take_up(instant)
        return _carry_out(tx)


def _planner(settings: CleaningSettings, *, when_due: bool) -> Planner:
    def plan(snapshot: Snapshot, instant: str) -> CleanPlan | str:
        timeline = snapshot.timeline
        found = find_cleanable(timeline, timeline.commits, settings, instant, when_due=when_due)
        if isinstance(found, str):
            return found
        made = plan_clean(snapshot, found, settings)
        return made if made.files else "nothing to clean: no file is one that only commits see which are not kept"

    return plan


def _carry_out(tx: CleanTransaction) -> CleanRun:
    started = time.monotonic()
    files = {partition: _data_files(partition, names) for partition, names in clean_files(tx.record).items()}
    count = sum(map(len, files.values()))
    with progress(f"deleting {count_text(count, 'file')}", count, counted=True) as advance:
        for partition, names in files.items():
            delete_files(tx.storage, partition, names, lambda _: advance(1))
    done, gone = tx.finish_clean(files, int((time.monotonic() - started) * 1000))
    return CleanRun(
        tx.instant,
        done.completion_time or tx.instant,
        {partition: tuple(names) for partition, names in files.items() if names},
        tuple(gone),
        (tx.record.get("earliestInstantToRetain") or {}).get("timestamp") or "",
        time.monotonic() - started,
        tuple(tx.rolled_back),
    )


def _data_files(partition: str, names: Sequence[str]) -> list[str]:
    """Of the names in a plan those of base and log files in this folder: nothing else is deleted, whoever planned."""
    return [
        name
        for name in names
        if is_data_path(path_in(partition, name))
        and (parse_base_file(partition, name, 0) or parse_log_file(partition, name, 0)) is not None
    ]


@dataclass
class CleanTransaction(ServiceTransaction):
    """A clean between its requested and its completed instant. A run that dies or raises leaves the plan: what it has
    deleted stays deleted, the next run does the rest. `record` is the plan, decoded."""

    record: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def start(self, planner: Planner, *, run: bool) -> CleanPlan | str:
        """Put a plan on the timeline, and with `run` take it up; or say why there is none."""
        with self.begin():
            self.prepare_metadata()
            waiting = next((i for i in self.timeline.pending if i.action is Action.CLEAN), None)
            if waiting is not None:
                return f"no clean was planned: {waiting.time} is pending"
            instant = self._clock.next(after=self._greatest_time())
            found = planner(self.snapshot, instant)
            if isinstance(found, str):
                return found
            self.instant = instant
            self._beat()
            writer = TimelineWriter(self.storage, self.config)
            body = encode_clean_plan(self.storage.url(), found)
            requested = writer.request(Action.CLEAN, instant, body)
            if not self._held.still_mine():
                writer.remove_pending(requested)
                remove_heartbeat(self.storage, instant)
                self._refuse_lost(self._held, "begin")
            if run:
                self.inflight()
            else:
                self._stop_heartbeat()
                self._remove_heartbeat()
            self.record = decode_action(body)
        return found

    def take_up(self, instant: str) -> None:
        """Begin to carry out a plan, or go on where a runner died. Raises `CommitConflict` where the plan is gone,
        completed, or carried out by another process."""
        self.instant = instant
        with self.begin():
            pending = self._pending_plan(self.timeline)
            if pending.state is State.INFLIGHT and not is_dead(self.storage, instant):
                raise CommitConflict(
                    f"clean {instant} is being carried out by another process",
                    hint="Leave it to that one; if it dies the plan is carried out again.",
                    context={"instant": instant},
                )
            if pending.state is State.INFLIGHT or self.storage.head(heartbeat_path(instant)) is not None:
                remove_unfinished(self.storage, self.timeline, instant)
            self.prepare_metadata()
            self.record = self.timeline.plan(pending)
            self._beat()
            if pending.state is State.REQUESTED:
                self.inflight()

    def finish_clean(self, files: Mapping[str, Sequence[str]], millis: int) -> tuple[Instant, Sequence[str]]:
        """Tell the metadata table, delete what is left of partition paths without files, and complete the clean; gives
        those paths too."""
        with self._lock() as lock:
            timeline = self._load()
            self._check_still_mine(timeline)
            self._read_config_again()
            upkeep = self._metadata_upkeep(timeline, lock)
            gone = self._gone(timeline)
            upkeep.record_removal(self.instant, files, gone)
            self._refuse_lost(lock, "complete")
            for partition in gone:
                self.storage.delete_folder(partition)
            completion = self._clock.next(after=max(self.instant, timeline.greatest_time))
            body = encode_clean_metadata(self.instant, self.record, millis, gone=gone)
            done = TimelineWriter(self.storage, self.config).complete(Action.CLEAN, self.instant, completion, body)
        self._stop_heartbeat()
        self._remove_heartbeat()
        return done, gone

    def abort(self) -> None:
        """Leave the plan to the next run."""
        self._stop_heartbeat()

    def _beat(self) -> None:
        self._heartbeat = Heartbeat(
            self.storage, self.instant, self.writer_id, interval=self.settings.heartbeat_interval_seconds
        )
        self._heartbeat.start()
        self._taken_up = True

    def _gone(self, timeline: Timeline) -> list[str]:
        """The partition paths of the plan that have nothing left now. Whoever began to write since has seen the folder
        as it was: while somebody writes, and where somebody wrote, it stays."""
        if any(completes_as(i.action) in COMMITS for i in timeline.pending):
            return []
        chosen = [p for p in self.record.get("partitionsToBeDeleted") or () if p and is_data_path(p)]
        return [p for p in chosen if self._is_empty(p)]

    def _is_empty(self, partition: str) -> bool:
        names = (info.path.removeprefix(f"{partition}/") for info in self.storage.list(partition))
        return all(name.startswith(PARTITION_METADATA) for name in names)
