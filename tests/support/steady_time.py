"""Waiting without waiting: the clock that durations are measured by is set forward, which no real one can be."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from lakebed.storage import clocks


@contextmanager
def later(seconds: float) -> Generator[None]:
    """In the block so many seconds more have passed in this process. What the clocks on the wall show stays."""
    real: Any = clocks.time

    def shown(*_clock: int) -> float:
        return time.monotonic() + seconds + _ORIGIN

    clocks.time = SimpleNamespace(clock_gettime=shown, monotonic=shown)  # type: ignore[assignment]
    try:
        yield
    finally:
        clocks.time = real


_ORIGIN = clocks.monotonic_seconds() - time.monotonic()
