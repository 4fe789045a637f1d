"""`lakebed.maintenance.run`: one process that maintains many tables. Several such processes share the tables.

A process runs the services that are due on a table while it has the table's lease. A failed service is tried again
later. Each event is a record for programs and a line of text.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from lakebed import telemetry
from lakebed.catalog.names import table_uri, uri_of_path
from lakebed.concurrency.providers import ServicesLease
from lakebed.config.arguments import checks_arguments
from lakebed.config.options import resolve_options
from lakebed.errors import InvalidOption, LakebedError
from lakebed.metadata.lookups import open_snapshot
from lakebed.operations.context import WriteContext
from lakebed.operations.hudi_job import session_engine, write_context
from lakebed.properties.file import load_table_config
from lakebed.read.reopening import read_again
from lakebed.secrets import masked_repr
from lakebed.services.driver import Service, ServiceState, fitting_context
from lakebed.services.due import SERVICES
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from lakebed.wording import Printed

Kind = Literal["due", "ran", "nothing", "failed", "held", "waiting", "stopped"]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, repr=False)
class ServiceEvent(Printed):
    """An event of a `table`, in a `service` if one is named.

    - `due`: the service is due, `text` is the reason. Unless it is a dry run one of the next three follows.
    - `ran`: `text` is what it did, `detail` the same for programs.
    - `nothing`: it found nothing to do; `text` is the reason.
    - `failed`: `text` is the `error`; it is tried again after `seconds`.
    - `held`: another process runs services on the table, `text` names it.
    - `waiting`: nothing is done for `seconds`.
    - `stopped`: this process was asked to end, and does.
    """

    kind: Kind
    table: str = ""
    service: str = ""
    text: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seconds: float | None = None
    error: Exception | None = None
    at: str = field(default_factory=_now)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        error = None
        if isinstance(self.error, LakebedError):
            error = {"type": type(self.error).__name__, "message": self.error.message, "hint": self.error.hint}
        elif self.error is not None:
            error = {"type": type(self.error).__name__, "message": str(self.error), "hint": ""}
        record = {
            "at": self.at,
            "event": self.kind,
            "table": self.table,
            "service": self.service,
            "text": self.text,
            "detail": dict(self.detail),
            "seconds": None if self.seconds is None else round(self.seconds, 4),
            "error": error,
        }
        return {name: value for name, value in record.items() if value not in (None, "", {}) or name == "event"}

    def __str__(self) -> str:
        match self.kind:
            case "held":
                return f"{self.table}: left to {self.text}"
            case "waiting":
                return f"nothing more is due; looking again in {self.seconds:g} s"
            case "stopped":
                return "stopped"
            case "failed":
                again = "" if self.seconds is None else f" (tried again in {self.seconds:.0f} s)"
                return f"{self.table}: {self.service} failed: {self.text}{again}"
            case "due":
                return f"{self.table}: {self.service} is due: {self.text}"
            case _:
                return f"{self.table}: {self.text}"


T = TypeVar("T")
# One service may make another one due, so each turn checks all of them this many times.
_ROUNDS = 3
_FIRST_RETRY_SECONDS = 10.0
_MAX_RETRY_SECONDS = 900.0
_OPENING = "opening"


@dataclass
class _Failure:
    count: int = 0
    until: float = 0.0


@dataclass(repr=False)
class ServedTable:
    """A table that this process maintains (see the module). `options` are those of every service that runs; no service
    is begun when `stopping` returns true. A failure is reported with the seconds until the next try, if this
    `goes_on`."""

    uri: str
    options: Mapping[str, Any]
    storage_options: Mapping[str, str] | None = None
    spark: Any | None = None
    stopping: Callable[[], bool] = lambda: False
    goes_on: bool = True
    _storage: Storage | None = None
    _view: Snapshot | None = None
    # by service: the view and the reason of a run that found nothing to do
    _in_vain: dict[str, tuple[Snapshot, str]] = field(default_factory=dict[str, tuple[Snapshot, str]])
    _failures: dict[str, _Failure] = field(default_factory=dict[str, _Failure])

    __repr__ = masked_repr

    def due(self) -> Iterator[ServiceEvent]:
        """An event for each service that is due now; nothing is run."""
        try:
            context = self._context()
        except Exception as error:
            yield self._failed(_OPENING, error)
            return
        for service in SERVICES:
            try:
                why, context = self._again(context, lambda now, service=service: self._why(service, now))
            except Exception as error:
                yield self._failed(service.name, error)
                continue
            if why is not None:
                yield ServiceEvent("due", self.uri, service.name, why)

    def turn(self) -> Iterator[ServiceEvent]:
        """Run the services that are due, and yield their events. If another process maintains the table, none runs: an
        event of the kind `held` names that process."""
        if self._waits(_OPENING):
            return
        events = list(self.due())
        due = [event.service for event in events if event.kind == "due"]
        telemetry.services_due(self.uri, [service.name for service in SERVICES], due)
        yield from (event for event in events if event.kind == "failed")
        if not any(event.kind == "due" for event in events):
            return
        assert self._storage is not None
        lease = ServicesLease(self._storage)
        try:
            try:
                is_mine = lease.take()
            except Exception as error:
                yield self._failed(_OPENING, error)
                return
            if not is_mine:
                yield ServiceEvent("held", self.uri, text=lease.holder() or "another process")
                return
            yield from self._rounds(lease)
        finally:
            lease.release()

    def _rounds(self, lease: ServicesLease) -> Iterator[ServiceEvent]:
        for _ in range(_ROUNDS):
            has_run = False
            for service in SERVICES:
                if self.stopping() or not lease.lock_is_held():
                    return
                for event in self._served(service):
                    has_run = has_run or event.kind == "ran"
                    yield event
            if not has_run:
                return

    def _served(self, service: Service[Any]) -> Iterator[ServiceEvent]:
        """Run one service if it is due in the table's present state; yields its events."""
        try:
            why, context = self._again(self._context(), lambda now: self._why(service, now))
            if why is None:
                return
            yield ServiceEvent("due", self.uri, service.name, why)
            started = time.monotonic()
            done, context = self._again(
                context, lambda now: service.serve(ServiceState(fitting_context(now, service.reads, self.spark)))
            )
        except Exception as error:
            yield self._failed(service.name, error)
            return
        self._failures.pop(service.name, None)
        seconds = time.monotonic() - started
        if service.has_changed(done):
            self._in_vain.pop(service.name, None)
            yield ServiceEvent("ran", self.uri, service.name, str(done), done.to_dict(), seconds)
        else:
            self._in_vain[service.name] = (context.opened, why)
            yield ServiceEvent("nothing", self.uri, service.name, str(done), seconds=seconds)

    def _again(self, context: WriteContext, do: Callable[[WriteContext], T]) -> tuple[T, WriteContext]:
        """The result of `do`, with a view of the table. If a file of the view is missing, `do` is run again with a
        later view."""
        views = [context]

        def renew() -> bool:
            views.append(self._context())
            return True

        return read_again(context.storage, lambda: do(views[-1]), renew), views[-1]

    def _why(self, service: Service[Any], context: WriteContext) -> str | None:
        """The reason why a service is due, as a sentence; None if it is not. A service that had nothing to do is not
        due until the table changes."""
        if self._waits(service.name):
            return None
        why = service.due(ServiceState(context))
        previous = self._in_vain.get(service.name)
        if previous is not None and previous[0].shows_same(context.opened) and previous[1] == why:
            return None
        return why

    def _context(self) -> WriteContext:
        if self._storage is None:
            self._storage = open_storage(table_uri(self.uri), self.storage_options)
        fresh = open_snapshot(self._storage, load_table_config(self._storage))
        # the listings of a view stay valid until a timeline changes
        self._view = self._view if self._view is not None and self._view.shows_same(fresh) else fresh
        options = resolve_options(self.options)
        context = write_context(self._storage, fresh.config, session_engine(None), options)
        self._failures.pop(_OPENING, None)
        return replace(context, opened=self._view)

    def _waits(self, service: str) -> bool:
        failure = self._failures.get(service)
        return failure is not None and time.monotonic() < failure.until

    def _failed(self, service: str, error: Exception) -> ServiceEvent:
        telemetry.service_failed(self.uri, service)
        failure = self._failures.setdefault(service, _Failure())
        seconds = min(_MAX_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2**failure.count)
        failure.count += 1
        failure.until = time.monotonic() + seconds
        text = error.message if isinstance(error, LakebedError) else f"{type(error).__name__}: {error}"
        return ServiceEvent("failed", self.uri, service, text, seconds=seconds if self.goes_on else None, error=error)


@checks_arguments
def run(
    tables: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    once: bool = False,
    interval: float = 60.0,
    dry_run: bool = False,
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark: Any | None = None,
    stop: threading.Event | None = None,
) -> Iterator[ServiceEvent]:
    """Run the services that are due on each of these tables, and look again every `interval` seconds.

    Yields events; it works only while the caller asks for more. The settings of each table, or `options` in their
    place, decide what is due: cleaning, archival, compaction, log compaction, clustering, expiry of partitions, planned
    indexes, rollback of dead writers. Several such processes share the tables: the one that runs services on a table
    has a lease on it, which ends with the process. Writers continue meanwhile. After a service fails, an event has its
    error, the other services run, and it is tried again later.

    With `once` it ends when nothing more is due; with `dry_run` it only yields what is due. After `stop` is set the
    running service is completed, and no other begun. Raises `InvalidOption` for wrong options and an empty list of
    tables.

    >>> import lakebed, pyarrow as pa
    >>> rows = pa.table({"id": [1], "ts": [1]})
    >>> settings = {"hoodie.clean.automatic": False, "hoodie.clean.commits.retained": 1}
    >>> t = lakebed.create("memory://docs/served", rows, key="id", index="bucket", buckets=1, properties=settings)
    >>> for n in range(3): _ = t.upsert(rows)
    >>> for event in lakebed.maintenance.run([t.uri], once=True): print(event)
    memory://docs/served: clean is due: ...
    memory://docs/served: clean ...: 1 file in 1 partition deleted, ... (... s)
    """
    resolve_options(options)
    listed = [tables] if isinstance(tables, str | os.PathLike) else tables
    uris = list(dict.fromkeys(map(uri_of_path, listed)))
    if not uris:
        raise InvalidOption("there are no tables to run services on", hint="name one or more")
    if interval < 0:
        raise InvalidOption(f"an interval of {interval:g} seconds", hint="give 0 or more")
    ended = stop or threading.Event()
    served = [
        ServedTable(uri, options or {}, storage_options, spark, ended.is_set, not once and not dry_run) for uri in uris
    ]
    if dry_run:
        return (event for table in served for event in table.due())
    return _turns(served, ended, None if once else interval)


def _turns(served: Sequence[ServedTable], stop: threading.Event, interval: float | None) -> Iterator[ServiceEvent]:
    while True:
        for table in served:
            if not stop.is_set():
                yield from table.turn()
        if stop.is_set():
            yield ServiceEvent("stopped")
            return
        if interval is None:
            return
        yield ServiceEvent("waiting", seconds=interval)
        stop.wait(interval)
