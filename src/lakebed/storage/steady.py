"""`steady`: the clock that durations are measured by. Nobody sets it, and it goes on while the machine sleeps."""

from __future__ import annotations

import time

_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def steady() -> float:
    """Seconds since some moment, the same one for as long as this process runs. `time.monotonic` alone stands still
    while the machine is suspended (Linux), and a writer would not notice that its time is over."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
