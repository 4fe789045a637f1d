"""A table that a process looks after: what is due is run while it has the lease; what fails is tried again later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from lakebed.concurrency.providers import ServicesLease
from lakebed.config.options import resolve_options
from lakebed.errors import LakebedError
from lakebed.operations.context import WriteContext
from lakebed.operations.job import session_engine, write_context
from lakebed.properties.file import load_table_config
from lakebed.services.after_write import engine_for, engine_for_all
from lakebed.services.running.due import SERVICES, TableService, settings_of
from lakebed.services.running.event import ServiceEvent
from lakebed.slices.reopening import read_again
from lakebed.slices.snapshot import Snapshot, open_snapshot
from lakebed.storage import open_storage
from lakebed.storage.base import Storage

T = TypeVar("T")
# What one service did may make another one due: so often all of them are looked at in a turn.
_ROUNDS = 3
_FIRST_RETRY_SECONDS = 10.0
_LONGEST_RETRY_SECONDS = 900.0
_OPENING = "opening"


@dataclass
class _Failure:
    count: int = 0
    until: float = 0.0


@dataclass
class ServedTable:
    """See the module. `options` are those of every service that runs; `stopping` says whether no other is to begin.
    What fails is told with the seconds after which it is tried again, if this `goes_on`."""

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

    def due(self) -> Iterator[ServiceEvent]:
        """What is due now; nothing is done."""
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
        """Run what is due, unless another process looks after the table."""
        if self._waits(_OPENING):
            return
        found = list(self.due())
        yield from (event for event in found if event.kind == "failed")
        if not any(event.kind == "due" for event in found):
            return
        assert self._storage is not None
        lease = ServicesLease(self._storage)
        try:
            is_mine = lease.take()
        except Exception as error:
            yield self._failed(_OPENING, error)
            return
        if not is_mine:
            yield ServiceEvent("held", self.uri, text=lease.holder() or "another process")
            return
        try:
            yield from self._rounds(lease)
        finally:
            lease.release()

    def _rounds(self, lease: ServicesLease) -> Iterator[ServiceEvent]:
        for _ in range(_ROUNDS):
            has_run = False
            for service in SERVICES:
                if self.stopping() or not lease.still_mine():
                    return
                for event in self._served(service):
                    has_run = has_run or event.kind == "ran"
                    yield event
            if not has_run:
                return

    def _served(self, service: TableService) -> Iterator[ServiceEvent]:
        """Run one service if it is due as the table is now."""
        try:
            why, context = self._again(self._context(), lambda now: self._why(service, now))
            if why is None:
                return
            yield ServiceEvent("due", self.uri, service.name, why)
            started = time.monotonic()
            done, context = self._again(context, lambda now: service.run(self._sized(now, service), settings_of(now)))
        except Exception as error:
            yield self._failed(service.name, error)
            return
        self._failures.pop(service.name, None)
        seconds = time.monotonic() - started
        if service.did(done):
            self._in_vain.pop(service.name, None)
            yield ServiceEvent("ran", self.uri, service.name, str(done), done.to_dict(), seconds)
        else:
            self._in_vain[service.name] = (context.opened, why)
            yield ServiceEvent("nothing", self.uri, service.name, str(done), seconds=seconds)

    def _again(self, context: WriteContext, do: Callable[[WriteContext], T]) -> tuple[T, WriteContext]:
        """What `do` gives, of the table as it is then where something that it was to read is gone, with that view."""
        views = [context]

        def renew() -> bool:
            views.append(self._context())
            return True

        return read_again(context.storage, lambda: do(views[-1]), renew), views[-1]

    def _why(self, service: TableService, context: WriteContext) -> str | None:
        """Why a service is due. One that found nothing to do is not, until the table changes."""
        if self._waits(service.name):
            return None
        why = service.due(context, settings_of(context))
        known = self._in_vain.get(service.name)
        if known is not None and known[0].shows_same(context.opened) and known[1] == why:
            return None
        return why

    def _context(self) -> WriteContext:
        if self._storage is None:
            self._storage = open_storage(self.uri, self.storage_options)
        fresh = open_snapshot(self._storage, load_table_config(self._storage))
        # what a view has listed holds until a timeline changes
        self._view = self._view if self._view is not None and self._view.shows_same(fresh) else fresh
        options = resolve_options(self.options)
        context = write_context(self._storage, fresh.config, session_engine(None), options)
        self._failures.pop(_OPENING, None)
        return replace(context, opened=self._view)

    def _sized(self, context: WriteContext, service: TableService) -> WriteContext:
        """On Spark where there is a session and the service has much to read."""
        if service.clusters:
            return replace(context, engine=engine_for_all(context.opened, context.engine, self.spark))
        if service.merges:
            return replace(context, engine=engine_for(context.opened, context.engine, self.spark))
        return context

    def _waits(self, what: str) -> bool:
        failure = self._failures.get(what)
        return failure is not None and time.monotonic() < failure.until

    def _failed(self, what: str, error: Exception) -> ServiceEvent:
        failure = self._failures.setdefault(what, _Failure())
        seconds = min(_LONGEST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2**failure.count)
        failure.count += 1
        failure.until = time.monotonic() + seconds
        text = error.message if isinstance(error, LakebedError) else f"{type(error).__name__}: {error}"
        return ServiceEvent("failed", self.uri, what, text, seconds=seconds if self.goes_on else None, error=error)
