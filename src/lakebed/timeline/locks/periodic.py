"""`PeriodicTask`: renews locks and heartbeats in the background."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable


class PeriodicTask:
    """Calls `action` every `seconds` in a thread of its own until `stop`, or until `action` returns False.

    The first call comes after the first interval. An error does not end it: the next call may succeed.
    """

    def __init__(self, seconds: float, action: Callable[[], bool], name: str) -> None:
        self._seconds = seconds
        self._action = action
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        # without a thread to be had nothing is renewed, which the owner of a lock or heartbeat notices as it commits
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def stop(self) -> None:
        """End it, and wait for a call that is running, unless that call is what stops it."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            if not self._goes_on():
                return

    def _goes_on(self) -> bool:
        try:
            return self._action()
        except Exception:
            return True
        except BaseException:
            return False
