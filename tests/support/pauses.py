"""What a test does in place of the pauses of its own thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def in_place_of_pauses(monkeypatch: pytest.MonkeyPatch, call: Callable[[float], object]) -> None:
    """Call `call` with the seconds where this thread would sleep. Other threads, such as those of heartbeats, sleep."""
    here, sleep = threading.get_ident(), time.sleep

    def pause(seconds: float) -> None:
        if threading.get_ident() == here:
            call(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", pause)
