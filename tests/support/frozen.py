"""Writers that stand still in the middle of a write for longer than their lock and their heartbeat are valid."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed.concurrency import heartbeat, lock, process_queue
from lakebed.concurrency.lock import FileLock
from lakebed.operations import group_commit
from lakebed.table import Table
from lakebed.testing import Mutation, crash_at


class FrozenWriter:
    """One write in a thread that stands still before its `at`-th change of storage; with it all it has to do there.
    Afterwards it goes on, until it `dies` before a change.

    `time_is_over` makes what it holds look as if it had stood so for hours: its lock and its heartbeat are nobody's.
    """

    def __init__(
        self,
        uri: str,
        write: Callable[[Table], Any],
        at: int | Callable[[Mutation], bool],
        patch: pytest.MonkeyPatch,
        dies: Callable[[Mutation], bool] = lambda _: False,
    ) -> None:
        patch.setattr(group_commit, "MAX_BYTES", -1)  # it is as a writer of another process
        self._dies = dies
        self.result: Any = None
        self.error: BaseException | None = None
        self.mutation: Mutation | None = None
        self._at = at
        self._count = 0
        self._queues = dict[str, list[process_queue.QueueEntry]]()
        self._stopped = threading.Event()
        self._thaw = threading.Event()
        with crash_at(self._stands) as self.crash:
            table = lakebed.open(uri)
        self._lost = lost = set[str]()
        real = FileLock.lock_is_held
        patch.setattr(FileLock, "lock_is_held", lambda self: self._owner not in lost and real(self))
        self._thread = threading.Thread(target=self._run, args=(write, table), daemon=True)

    def freeze(self) -> bool:
        """Let it go until it stands still; False where it ended before."""
        self._thread.start()
        assert self._stopped.wait(60)
        return self.mutation is not None

    def time_is_over(self, *, of_heartbeat: bool = True, is_noticed: bool = True) -> None:
        """From here on this process takes what is held for abandoned, and the writer knows that its time is over."""
        self._lost |= set(lock.holding) if is_noticed else set()
        self._queues = dict(process_queue._queues)
        lock.holding.clear()
        process_queue._queues.clear()
        if of_heartbeat:
            heartbeat._beating.clear()

    def lose_lock(self) -> None:
        """The writer finds its lock gone from here on."""
        self._lost |= set(lock.holding)

    def thaw(self) -> None:
        process_queue._queues.update(self._queues)
        self._thaw.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def stand(self) -> None:
        """Called in the writer's thread: stand still until it thaws."""
        self._stopped.set()
        assert self._thaw.wait(120)

    def _stands(self, mutation: Mutation) -> bool:
        self._count += 1
        here = self._count == self._at if isinstance(self._at, int) else self._at(mutation)
        if here and self.mutation is None:
            self.mutation = mutation
            self.stand()
            return False
        return self.mutation is not None and self._dies(mutation)

    def _run(self, write: Callable[[Table], Any], table: Table) -> None:
        try:
            self.result = write(table)
        except BaseException as error:
            self.error = error
        finally:
            self._stopped.set()
