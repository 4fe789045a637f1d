"""A writer as a process of its own, to be killed or frozen: what it runs, and what a test sees of it.

It says what it does: `begin N`, then `done N` once the call has returned, or `raised N <error>`. Each of
its writes upserts a row that was there, one of its own from before, and a new one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import lakebed
from lakebed.concurrency.lock import FileLock
from lakebed.storage.opening import wrapping
from support.crash_tables import OPTIONS, rows

Given = tuple[int, str, str, int]

HEARTBEAT_SECONDS, LOCK_SECONDS = 0.2, 1.2
FROZEN_SECONDS = 1.8
"""Longer than lock and heartbeat of a frozen writer count for."""

_TOO_LONG = 60.0


@dataclass(frozen=True)
class Task:
    """What a writer does: `count` writes to one city. `number` (from 1 on) makes its keys and values its own;
    `known` is a key of the city that is in the table. With `stop_at` it freezes itself before (or after) so many calls
    of storage, on a host of its own."""

    uri: str
    number: int
    city: str
    known: int
    count: int
    stop_at: int = 0
    stop_after: bool = False
    elsewhere: bool = False

    def rows(self, n: int) -> list[Given]:
        """What the write of this number upserts."""
        first, order = 1_000 * self.number, 1_000 * self.number + n
        text = f"w{self.number}-{n}"
        return [(key, self.city, text, order) for key in (self.known, first, first + 1 + n)]


_PROCESSES = multiprocessing.get_context("forkserver")  # they begin with everything imported
_PROCESSES.set_forkserver_preload(["lakebed", "pyarrow.parquet", "support.crash_tables"])


class Writer:
    """The process, as the one who started it sees it."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._hears, says = _PROCESSES.Pipe(duplex=False)
        self._process = _PROCESSES.Process(target=_main, args=(task, says), daemon=True)
        self._process.start()
        says.close()
        self.said: list[str] = []

    def started(self) -> None:
        """Wait until it writes."""
        self.said.append(self._hears.recv())

    def kill(self) -> None:
        self._process.kill()
        self.finish()

    def freeze(self) -> bool:
        """Stop the process where it is; False where it has ended."""
        self._signal(signal.SIGSTOP)
        return self.is_frozen()

    def is_frozen(self) -> bool:
        """Wait until it stands still; False where it has ended instead."""
        deadline = time.monotonic() + _TOO_LONG
        while time.monotonic() < deadline:
            if not self._process.is_alive():
                return False
            with suppress(OSError):
                if Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                    return True
            time.sleep(0.005)
        raise TimeoutError("the writer neither stopped nor ended")

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def finish(self) -> None:
        """Wait for its end, and hear what it said."""
        with suppress(EOFError):
            while self._hears.poll(_TOO_LONG):
                self.said.append(self._hears.recv())
        self._process.join(_TOO_LONG)
        assert not self._process.is_alive(), f"{self} does not end"

    def end(self) -> None:
        """Whatever state it is in."""
        self._process.kill()
        self._process.join()
        self._hears.close()

    @property
    def acknowledged(self) -> list[int]:
        """The writes that it said were done, in order."""
        return [int(words[1]) for words in self._words() if words[0] == "done"]

    @property
    def in_doubt(self) -> list[int]:
        """The write that it was at when it was killed, and those of which it was told that nobody knows."""
        words = list(self._words())
        ended = {w[1] for w in words if w[0] in ("done", "raised") and w[-1] != "CommitStateUnknown"}
        return [int(w[1]) for w in words if w[0] == "begin" and w[1] not in ended]

    def _words(self) -> Iterator[list[str]]:
        return (line.split() for line in self.said)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def __str__(self) -> str:
        return f"{self.task}: {', '.join(self.said)}"


class _Stopping:
    """A storage whose calls are counted; at one of them the process stops itself."""

    calls = 0

    def __init__(self, inner: Any, task: Task) -> None:
        self._inner = inner
        self._task = task

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in ("url", "spec") or not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            _Stopping.calls += 1
            here = _Stopping.calls == self._task.stop_at
            if here and not self._task.stop_after:
                os.kill(os.getpid(), signal.SIGSTOP)
            try:
                return found(*given, **named)
            finally:
                if here and self._task.stop_after:
                    os.kill(os.getpid(), signal.SIGSTOP)

        return call


def _main(task: Task, says: Connection) -> None:
    options: dict[str, Any] = dict(OPTIONS)
    if task.elsewhere:
        socket.gethostname = lambda: f"host-{task.number}"
        options["hoodie.client.heartbeat.interval_in_ms"] = int(HEARTBEAT_SECONDS * 1000)
        defaults = FileLock.__init__.__kwdefaults__
        assert defaults is not None
        defaults |= {"validity": LOCK_SECONDS, "renew_every": LOCK_SECONDS / 6}
    with wrapping(lambda inner: _Stopping(inner, task)):  # pyright: ignore[reportArgumentType]
        table = lakebed.open(task.uri)
        for n in range(task.count):
            data = rows(*task.rows(n))
            says.send(f"begin {n}")
            try:
                table.upsert(data, options=options)
            except lakebed.LakebedError as error:
                says.send(f"raised {n} {type(error).__name__}")
            else:
                says.send(f"done {n}")
