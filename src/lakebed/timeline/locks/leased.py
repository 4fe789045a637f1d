"""`LeasedLock`: what the locks of services have in common. They hold for a time, and are prolonged in the background.

A holder counts its own time on a clock that nobody sets, from before its last request that succeeded, and believes to
have less of it than the service grants.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar

from lakebed.errors import LockTimeout, StorageError
from lakebed.storage.clocks import steady
from lakebed.timeline.locks.periodic import PeriodicTask


class LeasedLock(ABC):
    """See the module. `where` names the lock in messages; not re-entrant."""

    pauses: ClassVar[tuple[float, float]] = (0.05, 1.0)
    """Seconds between two tries: the shortest, and the longest of who has waited for long."""

    def __init__(self, where: str, wait_seconds: float) -> None:
        self.where = where
        self._wait_seconds = wait_seconds
        self._held = False
        self._valid_until = 0.0
        self._periodic: PeriodicTask | None = None
        self._changing = threading.Lock()

    @property
    @abstractmethod
    def validity(self) -> float:
        """For how many seconds it holds after a request that succeeded; known once one did."""

    @abstractmethod
    def _try(self) -> bool:
        """Take it, if it is free. Raises `StorageError` where the service does not answer."""

    def _pause(self, seconds: float) -> None:
        """Wait for so long, or until it may be free."""
        time.sleep(seconds)

    @abstractmethod
    def _prolong(self) -> bool:
        """Ask whether it is held yet, for another while."""

    @abstractmethod
    def _let_go(self) -> None:
        """Give it back, or what was begun to get it, and what connections there are. What fails here runs out."""

    @abstractmethod
    def _holder(self) -> str:
        """Who has it, for messages."""

    def acquire(self, timeout: float) -> None:
        if self._held:
            raise RuntimeError("the lock is held by this object already")
        started = time.monotonic()
        try:
            while not self._taken(started + timeout):
                waited = time.monotonic() - started
                if waited >= timeout:
                    raise LockTimeout(
                        f"no lock on the table within {timeout:g} seconds: {self.where} is held by {self._holder()}",
                        hint="run it again when the other writer is done",
                        context={"path": self.where},
                    )
                least, most = self.pauses
                self._pause(min(random.uniform(0.5, 1.5) * min(most, max(least, waited / 4)), timeout - waited))
        except BaseException:
            self._let_go()
            raise
        self._held = True
        self._periodic = PeriodicTask(self.validity / 3, self.renew, "table-lock")
        self._periodic.start()

    def _taken(self, deadline: float) -> bool:
        started = steady()
        try:
            taken = self._try()
        except StorageError as error:
            if not error.retryable or time.monotonic() >= deadline:
                raise
            return False
        if taken:
            self._valid_until = started + self.validity
        return taken

    def renew(self) -> bool:
        with self._changing:
            if not self._held:
                return False
            started = steady()
            try:
                if self._prolong():
                    self._valid_until = started + self.validity
                    return True
            except StorageError as error:
                if error.retryable and self.still_mine():
                    return True  # nobody else can have it yet, and the next request may be answered
            self._valid_until = 0.0
            return False

    def still_mine(self) -> bool:
        return self._held and steady() < self._valid_until

    def release(self) -> None:
        if not self._held:
            return
        if self._periodic is not None:
            self._periodic.stop()
        with self._changing:
            self._held = False
            self._valid_until = 0.0
            self._let_go()

    def __enter__(self) -> LeasedLock:
        self.acquire(self._wait_seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
