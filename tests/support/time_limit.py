"""A test's question that must come to an end."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager


class Hangs(BaseException):
    """Not an `Exception`: nobody on the way takes it for an answer."""


@contextmanager
def limited(seconds: int) -> Generator[None]:
    """Raises `Hangs` in what takes longer."""

    def ring(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
