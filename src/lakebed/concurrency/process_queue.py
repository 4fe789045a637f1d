"""The queue of the threads of one process for a lock: who waits for whom before they go to storage.

No lock of the interpreter is held meanwhile. A thread whose call was interrupted leaves an entry that the next one
removes, and a forked process begins with empty queues.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from lakebed.concurrency.running_call import RunningCall

# How long a thread waits before it looks again whether those before it still run.
_LOOK_SECONDS = 0.1
_queues: dict[str, list[QueueEntry]] = {}
os.register_at_fork(after_in_child=_queues.clear)


class QueueEntry:
    """A thread's entry in the queue for the lock at a URL; the first entry has the lock of the process. `call` is the
    call that waits for it, None for an entry that outlives calls.

    `is_returning`: the lock is being given back, which does not take long.
    """

    def __init__(self, url: str, call: RunningCall | None) -> None:
        self.call = call
        self.is_returning = False
        self._queue = _queues.setdefault(url, [])
        self._turn = threading.Lock()
        self._turn.acquire()

    def is_valid(self) -> bool:
        """Whether the entry's call is still running."""
        return self.call is None or self.call.is_running()

    def take(self, timeout: float) -> bool:
        """Wait until the entry is the first; False if that takes longer than `timeout` seconds."""
        self._queue.append(self)
        deadline = time.monotonic() + timeout
        while not self._is_first():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._turn.acquire(timeout=min(left, _LOOK_SECONDS))
        return True

    def first_is_returning(self) -> bool:
        """Whether another thread is just releasing the lock."""
        return True in [entry.is_returning for entry in self._queue[:1]]

    def _is_first(self) -> bool:
        for entry in list(self._queue):
            if entry is self:
                return True
            if entry.is_valid():
                return False
            entry.leave()
        return False

    def leave(self) -> None:
        """Remove the entry, and wake the next one. It may be called again."""
        with suppress(ValueError):
            self._queue.remove(self)
        for entry in self._queue[:1]:
            with suppress(RuntimeError):  # it was woken before
                entry._turn.release()
