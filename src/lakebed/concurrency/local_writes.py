"""Writes that this process makes on a store whose answers are slow, and the requests of theirs that go side by side.

A write is inflight and its markers are there before any of its files: neither needs the other, so that the inflight
instant is created while the first markers are. And each file is followed by a look at its marker, which has to be
answered before the write completes, not before it goes on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from lakebed.storage.base import Storage
from lakebed.storage.parallel import in_background

# By the URL of the table and the instant.
_writes: dict[tuple[str, str], LocalWrite] = {}


class LocalWrite:
    """The requests of one write that other steps do not wait for at once; `show` creates its inflight instant."""

    def __init__(self, show: Callable[[], object]) -> None:
        self._showing: Callable[[], object] | None = in_background(show)
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._checks: deque[Callable[[], object]] = deque()

    def wait_for_inflight(self) -> None:
        """Wait for the inflight instant. Each caller gets the error of its creation."""
        with self._lock:
            if self._showing is not None:
                try:
                    self._showing()
                except BaseException as error:
                    self._error = error
                self._showing = None
        if self._error is not None:
            raise self._error

    def begin(self, check: Callable[[], object]) -> None:
        """Begin to look at the marker of a file that was written."""
        self._checks.append(in_background(check))

    def finish(self) -> None:
        """Wait for all of it. Raises what a look found wrong."""
        self.wait_for_inflight()
        while self._checks:
            self._checks.popleft()()


@contextmanager
def local_write(storage: Storage, instant: str, show: Callable[[], object]) -> Generator[LocalWrite]:
    """A write whose files are written in the block, by threads of this process. What the block raises comes after all
    that is under way: nobody undoes a write while requests of it may still come through."""
    key = storage.url(), instant
    write = _writes[key] = LocalWrite(show)
    try:
        yield write
    except BaseException:
        with suppress(BaseException):
            write.finish()
        raise
    finally:
        del _writes[key]
    write.wait_for_inflight()


def wait_for_inflight(storage: Storage, instant: str) -> None:
    """Return when an instant is inflight whose creation this process has begun; at once for any other."""
    write = _writes.get((storage.url(), instant))
    if write is not None:
        write.wait_for_inflight()


def check_file(storage: Storage, instant: str, check: Callable[[], object]) -> None:
    """Look whether a file that was just written is still wanted: aside, where its write waits for that later."""
    write = _writes.get((storage.url(), instant))
    if write is None:
        check()
    else:
        write.begin(check)
