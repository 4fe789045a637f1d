"""`PeriodicTask`: something done every so often until it is stopped, as locks and heartbeats are renewed."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable


class PeriodicTask:
    """Calls `action` every `seconds`, first when they are over, until `stop` or an answer of False. After an error it
    goes on, as the next call may get through.

    It has a thread of its own, so that storage that hangs holds nobody else up, but only from the first call on: most
    writes are over by then, and one thread of the process waits for all of them.
    """

    def __init__(self, seconds: float, action: Callable[[], bool], name: str) -> None:
        self._seconds = seconds
        self._action = action
        self._name = name
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        _waker.call(self._seconds, self._begin)

    def stop(self) -> None:
        """No call is under way when this returns, and none follows (unless the action itself says stop)."""
        with self._lock:
            self._stopped.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _begin(self) -> None:
        with self._lock:
            if not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while self._goes_on() and not self._stopped.wait(self._seconds):
            pass

    def _goes_on(self) -> bool:
        try:
            return self._action()
        except Exception:
            return True
        except BaseException:
            return False


class _Waker:
    """The thread that waits; there is none before something waits for it."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._runs = False

    def call(self, seconds: float, action: Callable[[], None]) -> None:
        """Call the action when the time is over."""
        with self._changed:
            one = (time.monotonic() + seconds, next(self._numbers), action)
            heapq.heappush(self._waiting, one)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="lakebed-waker", daemon=True).start()
            elif self._waiting[0] is one:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while (left := self._left()) is None or left > 0:
                    self._changed.wait(left)
                _, _, action = heapq.heappop(self._waiting)
            with contextlib.suppress(RuntimeError):  # no thread to be had: what is not renewed, its owner notices
                action()

    def _left(self) -> float | None:
        """Seconds until something is due; None with nothing waiting."""
        return self._waiting[0][0] - time.monotonic() if self._waiting else None


_waker = _Waker()


def _forget() -> None:
    """A child process has none of its parent's threads."""
    global _waker
    _waker = _Waker()


os.register_at_fork(after_in_child=_forget)
