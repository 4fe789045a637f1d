"""Upserts of several threads that wait for one another for certain: the first one stands still when its action has
begun, until all others wait for it in their order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import lakebed
from lakebed.concurrency.running_call import has_frame
from lakebed.operations import group_commit
from lakebed.testing import Mode, Mutation, crash_at

Outcome = lakebed.WriteResult | BaseException


def waiting() -> int:
    """How many upserts of this process wait for others."""
    queues = group_commit._queues  # pyright: ignore[reportPrivateUsage]
    return sum(len(queue.waiting) for queue in list(queues.values()))


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "upserts do not wait as expected"
        time.sleep(0.001)


class Upserts:
    """One thread for each batch of rows. `strike` is the number of the mutation of storage, after the first upsert has
    gone on, at which a process would die or its storage fail by this mode. `meanwhile` is called before each of these
    mutations."""

    def __init__(
        self,
        uri: str,
        batches: Sequence[Any],
        *,
        strike: int = 0,
        mode: Mode = "unacknowledged",
        meanwhile: Callable[[Mutation], None] = lambda _: None,
        **words: Any,
    ) -> None:
        self.outcomes: list[Outcome | None] = [None] * len(batches)
        self.later = 0
        self._strike, self._meanwhile = strike, meanwhile
        self._first: threading.Thread | None = None
        self._stands_in = ""
        self._stands, self._goes_on = threading.Event(), threading.Event()
        with crash_at(self._strikes, mode) as self.crash:
            self.tables = [lakebed.open(uri) for _ in batches]
        self.threads = [
            threading.Thread(target=self._run, args=(at, rows, words), daemon=True) for at, rows in enumerate(batches)
        ]

    @property
    def results(self) -> list[lakebed.WriteResult]:
        """Of upserts that have all succeeded."""
        done: list[lakebed.WriteResult] = []
        for outcome in self.outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            assert outcome is not None
            done.append(outcome)
        return done

    def begin(self, *, are_joined: bool = True) -> None:
        """Start all threads: the first one stands still when it has taken its others, and those that come now wait for
        it. If they are not to be joined, it stands still with the table lock, for which they wait."""
        self._first, self._stands_in = self.threads[0], ".inflight" if are_joined else ""
        self._first.start()
        assert self._stands.wait(60)
        for at, thread in enumerate(self.threads[1:], 1):
            thread.start()
            if are_joined:
                wait_for(lambda at=at: waiting() == at)
            else:
                self.stop_in("lock.py", thread)
        assert are_joined or not waiting()

    def stop_in(self, name: str, thread: threading.Thread) -> None:
        """Wait until a thread stands in a function of this file."""

        wait_for(lambda: has_frame(thread.ident or 0, lambda frame: frame.f_code.co_filename.endswith(name)))

    def finish(self) -> Sequence[Outcome | None]:
        """Let the first one go on, and wait for all."""
        self._goes_on.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()
        return self.outcomes

    def _run(self, at: int, rows: Any, words: dict[str, Any]) -> None:
        try:
            self.outcomes[at] = self.tables[at].upsert(rows, progress=False, **words)
        except BaseException as error:
            self.outcomes[at] = error

    def _strikes(self, mutation: Mutation) -> bool:
        if not self._goes_on.is_set():
            if threading.current_thread() is self._first and mutation.path.endswith(self._stands_in):
                self._stands.set()
                assert self._goes_on.wait(60)
            return False
        self._meanwhile(mutation)
        self.later += 1
        return self.later == self._strike


def together(uri: str, batches: Sequence[Any], **words: Any) -> list[lakebed.WriteResult]:
    """Results of upserts that wait for one another, in their order."""
    upserts = Upserts(uri, batches, **words)
    upserts.begin()
    upserts.finish()
    return upserts.results


def commits(results: Sequence[lakebed.WriteResult]) -> list[list[int]]:
    """The upserts of each action by their numbers, in the order of the actions."""
    found: dict[str, list[int]] = {}
    for at, result in enumerate(results):
        found.setdefault(result.instant, []).append(at)
    return [found[instant] for instant in sorted(found)]
