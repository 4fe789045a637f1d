"""The protocol of table services, and how one with plans is run: pending plans first, then a new plan, which is
requested under the table lock.

A service decides whether it is due by the settings of the table and its timeline, and where that is not enough by the
list of its files. `SERVICES` in `services/due.py` lists all of them.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from lakebed import lineage, telemetry
from lakebed.config.options import Options
from lakebed.engine.local import LocalEngine
from lakebed.errors import CommitConflict, LakebedError
from lakebed.metadata.lookups import open_again
from lakebed.model import Action, Instant, LogWeight, State
from lakebed.operations.context import WriteContext
from lakebed.operations.hudi_job import IN_PROCESS_BYTES, JOB_BYTES, session_engine
from lakebed.operations.result import WriteResult
from lakebed.read.reopening import read_again, reopened
from lakebed.services.service import ServiceTransaction, can_be_run
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.plans import RequestedBody
from lakebed.timeline.instants import InstantClock, by_this_clock
from lakebed.timeline.timeline import Timeline
from lakebed.wording import Printed

_log = logging.getLogger("lakebed")


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The reason why a service has nothing to plan."""

    why: str


class ServicePlan(Protocol):
    """A plan of a service, which prints."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, repr=False)
class ServiceRun(Printed):
    """One run of a plan. `checkpoint` is when it completed, `rolled_back` are the instants of dead writers that it
    rolled back before."""

    instant: str
    checkpoint: str
    seconds: float = field(default=0.0, kw_only=True)
    rolled_back: tuple[str, ...] = field(default=(), kw_only=True)

    def counts(self) -> Mapping[str, int]:
        """The counts of the run by name, for metrics."""
        return {}


Plan = TypeVar("Plan", bound=ServicePlan)
Run = TypeVar("Run", bound=ServiceRun)


@dataclass(frozen=True, repr=False)
class ServiceResult(Printed, Generic[Plan, Run]):
    """The result of a service: `runs`, one per plan; `plan`, a plan that was made but not run, with its instant
    `planned` (None after a dry run); `notes`, the reasons why something was not done."""

    runs: tuple[Run, ...] = ()
    plan: Plan | None = None
    planned: str | None = None
    notes: tuple[str, ...] = ()
    # The beginning of a plan of a dry run, and the text where there is nothing to print.
    _preview: ClassVar[str] = "to be done: "
    _nothing: ClassVar[str] = ""

    @property
    def instants(self) -> tuple[str, ...]:
        """The instants of the plans that this call ran, in the order in which they ran."""
        return tuple(run.instant for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        planned = None if self.plan is None else {"instant": self.planned, **self.plan.to_dict()}
        return {"runs": [run.to_dict() for run in self.runs], "planned": planned, "notes": list(self.notes)}

    def __str__(self) -> str:
        lines = [str(run) for run in self.runs]
        if self.plan is not None:
            lines.append((f"planned {self.planned}: " if self.planned else self._preview) + str(self.plan))
        return "\n".join([*lines, *self.notes]) or self._nothing


Reads = Literal["little", "logs", "files"]
Result = TypeVar("Result", bound=ServiceResult[Any, Any])
Outcome = TypeVar("Outcome", bound=Printed)


class ServiceState:
    """The state of the table from which services decide whether they are due. Until a service calls `reload`, `context`
    shows the table before the write `written`. With `plan_only` plans are made and not run."""

    def __init__(self, context: WriteContext, written: WriteResult | None = None, *, plan_only: bool = False) -> None:
        self.context = context
        self.plan_only = plan_only
        self._written = written

    def reload(self) -> None:
        """Read the table again, with the write."""
        if self._written is not None:
            self.context = replace(self.context, opened=open_again(self.context.storage, self.context.config))
            self._written = None

    @property
    def settings(self) -> Options:
        """The options of the table's services, from the job and the table."""
        return self.context.services

    @property
    def timeline(self) -> Timeline:
        return self.context.opened.timeline

    @property
    def commits(self) -> Sequence[Instant]:
        """The completed commits that this process has read, and the commit that it has just made."""
        return (*self.timeline.commits, *self._made)

    @property
    def instants(self) -> Sequence[Instant]:
        """The instants of the timeline that this process has read, with the commit that it has just made."""
        return (*self.timeline.instants, *self._made)

    @property
    def _made(self) -> Sequence[Instant]:
        written = self._written
        if written is None or self.timeline.is_completed(written.instant):
            return ()
        action = Action.DELTACOMMIT if self.context.config.table_type == "mor" else Action.COMMIT
        return (Instant(written.instant, action, State.COMPLETED, written.checkpoint),)

    @property
    def written_logs(self) -> Sequence[LogWeight] | None:
        """The weights of the log files of the file slices that the write appended to; None without a write, and after
        `reload`."""
        return None if self._written is None else self._written.log_weights

    @property
    def now(self) -> str:
        """The instant time that ages count from."""
        instant = self._written.instant if self._written is not None else next_instant(self.context)
        return by_this_clock(instant, self.context.config.timezone)

    def waiting(self, plans: Iterable[Instant]) -> str | None:
        """A text that names those of these plans that are waiting to be run; None if none is."""
        if self.plan_only:
            return None
        waiting = [plan.time for plan in plans if can_be_run(self.context.storage, plan)]
        return f"the plan of {', '.join(waiting)} waits to be run" if waiting else None


def next_instant(context: WriteContext) -> str:
    """The instant that a service would get now."""
    return InstantClock(context.config.timezone).next(after=context.opened.timeline.greatest_time)


class Service(ABC, Generic[Outcome]):
    """One kind of work that maintains a table. Its settings are named as in `Options`."""

    name: ClassVar[str]
    # What messages call the work.
    title: ClassVar[str]
    # The settings that make it run after a write (any of them), and the one that makes it only plan then.
    after_write: ClassVar[tuple[str, ...]] = ()
    plan_after_write: ClassVar[str] = ""
    # The setting with the number of completed commits up to which nothing is due, if it has one.
    due_over: ClassVar[str] = ""
    # Which files of the table it may read: all, or the file slices with log files.
    reads: ClassVar[Reads] = "little"

    def runs_after_write(self, settings: Options, timeline: Timeline) -> bool:
        """Whether the settings request the service, or a plan of it, after each write, and this timeline of the table
        before the write does not show that nothing is due."""
        if not is_set(settings, (*self.after_write, self.plan_after_write)):
            return False
        if not self.due_over or timeline.pending:
            return True
        return len(timeline.commits) + 1 > attrgetter(self.due_over)(settings)

    @abstractmethod
    def due(self, state: ServiceState) -> str | None:
        """The reason why the service is due, as a sentence; None if it is not."""

    def is_done_by_writes(self, state: ServiceState) -> bool:
        """Whether the next write does the work that is due, with whatever settings."""
        return False

    @abstractmethod
    def serve(self, state: ServiceState) -> Outcome:
        """Run the service, and return its outcome."""

    @abstractmethod
    def has_changed(self, outcome: Outcome) -> bool:
        """Whether the outcome says that the service changed something."""

    def lines(self, outcome: Outcome) -> list[str]:
        """The lines of text that report the outcome of the service."""
        return str(outcome).splitlines()


class PlannedService(Service[Result], ABC, Generic[Plan, Run, Result]):
    """A service with plans on the timeline, of one action. Plans of real Hudi are run as well."""

    action: ClassVar[Action]
    operation: ClassVar[str]
    # What notes call one plan.
    noun: ClassVar[str]
    # The settings that allow a process new plans, any of them; empty where it always makes them.
    asked_by: ClassVar[tuple[str, ...]] = ()
    # Whether nothing is planned while a plan is pending.
    is_one_at_a_time: ClassVar[bool] = False
    # Whether the next run continues what a run that died has done, instead of undoing it.
    resumes: ClassVar[bool] = False
    # Errors after which a pending plan is left to another run, and the words of the note about it.
    leaves: ClassVar[tuple[type[LakebedError], ...]] = (CommitConflict,)
    left: ClassVar[str] = "was not run"

    result: type[Result]

    @abstractmethod
    def plan(self, context: WriteContext, snapshot: Snapshot, instant: str, *, when_due: bool) -> Plan | NothingToDo:
        """The plan of this service for the table; with `when_due` only if it is due. Otherwise `NothingToDo` with the
        reason."""

    @abstractmethod
    def body(self, snapshot: Snapshot, plan: Plan) -> RequestedBody:
        """The body of the requested instant."""

    @abstractmethod
    def run(self, context: WriteContext, tx: ServiceTransaction, plan: Mapping[str, Any]) -> Run:
        """Run the plan of `tx.instant`, whose run has begun; `plan` is its body on the timeline."""

    def admit(self, context: WriteContext) -> None:
        """Raise for a table that the service cannot work on."""

    def pending(self, timeline: Timeline) -> list[Instant]:
        """The plans that are to be run, oldest first."""
        return [i for i in timeline.pending if i.action is self.action]

    def transaction(self, context: WriteContext) -> ServiceTransaction:
        return ServiceTransaction(context, self.action, self.operation, resumes=self.resumes)

    def is_asked(self, settings: Options) -> bool:
        """Whether the settings ask for new plans."""
        return is_set(settings, self.asked_by) or not self.asked_by

    def serve(self, state: ServiceState) -> Result:
        is_requested = self.is_asked(state.settings)
        return run_service(state.context, self, plan_only=state.plan_only, when_due=True, pending_only=not is_requested)

    def has_changed(self, outcome: Result) -> bool:
        return bool(outcome.runs or outcome.plan)

    def lines(self, outcome: Result) -> list[str]:
        return str(replace(outcome, notes=())).splitlines()


def is_set(settings: Options, names: Iterable[str]) -> bool:
    """Whether one of these settings, named as in `Options`, is switched on."""
    return any(attrgetter(name)(settings) for name in names if name)


def run_service(
    context: WriteContext,
    service: PlannedService[Plan, Run, Result],
    *,
    plan_only: bool = False,
    dry_run: bool = False,
    when_due: bool = False,
    pending_only: bool = False,
) -> Result:
    """Run the pending plans, then (without `pending_only`) make a plan for the remaining work and run it.

    `plan_only` makes the plan for another job to run, `dry_run` only shows it; `when_due` makes one only where the
    service is due. Plans that another process runs are left to it.
    """
    service.admit(context)
    waiting = service.pending(context.opened.timeline)
    if dry_run:
        notes = [f"{service.noun} {plan.time} waits to be run" for plan in waiting]
        preview = service.plan(context, context.opened, next_instant(context), when_due=when_due)
        if isinstance(preview, NothingToDo):
            return service.result(notes=(*notes, preview.why))
        return service.result(plan=preview, notes=tuple(notes))
    runs: list[Run] = []
    notes = list[str]()
    for plan in () if plan_only else waiting:
        try:
            runs.append(run_plan(context, service, plan.time))
        except service.leaves as cause:
            notes.append(f"{service.noun} {plan.time} {service.left}: {cause.message}")
    if pending_only:
        return service.result(tuple(runs), notes=tuple(notes))
    with service.transaction(context) as tx:
        planned, body = _request(context, service, tx, when_due=when_due, run=not plan_only)
        if isinstance(planned, NothingToDo):
            return service.result(tuple(runs), notes=(*notes, planned.why))
        if body is None:
            return service.result((), planned, tx.instant, tuple(notes))
        runs.append(_run(context, service, tx, body))
    return service.result(tuple(runs), notes=tuple(notes))


def run_plan(context: WriteContext, service: PlannedService[Any, Run, Any], instant: str) -> Run:
    """Run a plan. Raises `CommitConflict` if another process runs it or has completed it; after an error nothing is
    visible."""
    with service.transaction(context) as tx:
        pending = tx.take_up(instant)
        return _run(context, service, tx, tx.timeline.plan(pending))


def _run(
    context: WriteContext, service: PlannedService[Any, Run, Any], tx: ServiceTransaction, plan: Mapping[str, Any]
) -> Run:
    started, uri = time.monotonic(), context.storage.spec.uri
    # a service reads the table that it writes
    with lineage.reported(uri, context.config.name, service.name, [uri]) as outcome:
        done = service.run(context, tx, plan)
        outcome.instant = tx.instant
    done = replace(done, seconds=time.monotonic() - started, rolled_back=tuple(tx.rolled_back))
    if telemetry.is_active():
        telemetry.service_completed(uri, service.name, done.seconds, done.counts(), done.rolled_back)
    return done


def _request(
    context: WriteContext,
    service: PlannedService[Plan, Any, Any],
    tx: ServiceTransaction,
    *,
    when_due: bool,
    run: bool,
) -> tuple[Plan | NothingToDo, Mapping[str, Any] | None]:
    """The plan that was written to the timeline, or the reason why there is none, and None. With `run` the plan is also
    begun, and its body is returned in place of None."""
    plans: list[Plan | NothingToDo] = []

    def make(snapshot: Snapshot, instant: str) -> RequestedBody | None:
        waiting = service.pending(snapshot.timeline) if service.is_one_at_a_time else ()
        if waiting:
            plan = NothingToDo(f"no {service.noun} was planned: {waiting[0].time} is pending")
        else:
            plan = service.plan(context, snapshot, instant, when_due=when_due)
        plans.append(plan)
        return None if isinstance(plan, NothingToDo) else service.body(snapshot, plan)

    body = tx.request(make, run=run)
    return plans[-1], body.record if body is not None and run else None


def fitting_context(context: WriteContext, reads: Reads, spark: Any | None) -> WriteContext:
    """The context with the engine that suits the amount of data a service reads: Spark if there is a session and the
    files are larger than this process handles alone. After a write on Spark files are read in this process if that
    takes less time than a job."""
    snapshot, options = context.opened, context.options
    if reads == "little" or snapshot.storage.spec.in_this_process:
        return context
    on_spark = context.engine.is_distributed
    if options.spark.local_rows == 0 if on_spark else spark is None:
        return context
    size = sum(file_slice.size for file_slice in snapshot.file_slices() if reads == "files" or file_slice.log_files)
    if on_spark:
        return replace(context, engine=LocalEngine(options.write.tasks)) if size <= JOB_BYTES else context
    return replace(context, engine=session_engine(spark)) if size > IN_PROCESS_BYTES else context


def run_after_write(
    services: Sequence[Service[Any]], context: WriteContext, result: WriteResult, spark: Any | None = None
) -> WriteResult:
    """Run the services that the settings of the table and the job request and that are due. Returns the result of the
    write with a line about each. A failure here does not fail the write: it is logged, and the next write tries again.
    If nothing is due, cleaning and archival read no storage."""
    if not result.instant or result.skipped:
        return result
    views = [context]

    def renew() -> bool:
        """Open the table again: while a service is planned, other writers may archive, clean, and build or drop
        indexes."""
        opened = reopened(views[-1].opened)
        if opened is not None:
            views.append(replace(context, opened=opened))
        return opened is not None

    lines: list[str] = []
    settings, timeline = context.services, context.opened.timeline
    due = [s for s in services if s.runs_after_write(settings, timeline)] if settings.compaction.services else []
    for service in due:
        try:
            lines += read_again(context.storage, lambda: _run_after(views[-1], result, service, spark), renew)  # noqa: B023
        except CommitConflict as conflict:
            _log.info("the write %s leaves its %s to another process: %s", result.instant, service.title, conflict)
        except Exception as error:
            _log.warning("the write %s is valid; %s after it failed: %s", result.instant, service.title, error)
    return replace(result, services=tuple(lines)) if lines else result


def _run_after(context: WriteContext, result: WriteResult, service: Service[Any], spark: Any | None) -> list[str]:
    """Run one service after a write, if it is due; returns the lines of text that report it."""
    state = ServiceState(context, result, plan_only=is_set(context.services, [service.plan_after_write]))
    if service.due(state) is None:
        return []
    state.context = fitting_context(state.context, service.reads, spark)
    outcome = service.serve(state)
    return service.lines(outcome) if service.has_changed(outcome) else []
