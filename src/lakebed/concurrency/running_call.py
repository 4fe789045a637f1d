"""Whether the call of lakebed that holds a lock, or shows a heartbeat, still runs.

An interrupt (Ctrl-C) may come between any two instructions, also just before those that would give a lock back. What a
call holds is therefore worth something only while that call is on the stack of its thread: other threads of the process
take it over afterwards, and the thread that renews it gives it back.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from lakebed.sharing import shared_rlock

# The packages of lakebed's own functions, and of those that only take or test locks.
_OWN, _BELOW = ("lakebed", "pyspark_lakebed"), ("lakebed.concurrency", "lakebed.testing")
# A generator that pauses while its thread is looked at ends the walk too early; so it is looked at more than once.
_LOOKS, _PAUSE_SECONDS = 3, 0.002
# A finalizer of what a frame that is gone held may ask again.
_one_walk = shared_rlock()


class RunningCall:
    """The call of lakebed that this thread runs: its outermost function of lakebed on the stack. If code outside
    lakebed takes a lock directly, there is no such function, and the call counts as running."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        greenlet: Any = sys.modules.get("greenlet")
        # the stacks of greenlets are not to be seen from other threads
        is_hidden = "gevent" in sys.modules or (greenlet is not None and greenlet.getcurrent().parent is not None)
        self._frame = None if is_hidden else _outermost(sys._getframe())  # pyright: ignore[reportPrivateUsage]

    def is_running(self) -> bool:
        """Whether the call has not yet returned or raised. Any thread may ask."""
        if self._frame is None:
            return True
        for look in range(_LOOKS):
            if look:
                time.sleep(_PAUSE_SECONDS)
            if has_frame(self._thread, lambda frame: frame is self._frame):
                return True
        return False


def has_frame(thread: int, matches: Callable[[FrameType], bool]) -> bool:
    """Whether a frame on the stack of a thread (by its number) matches; False for a thread that has ended.

    Python 3.11 may collect garbage while it makes the object of a frame. Finalizers then let the other thread go on,
    and the object is that of a frame which is gone: its attributes are any memory. So garbage is collected afterwards.
    """
    with _one_walk:
        collects = gc.isenabled()
        try:
            gc.disable()
            frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
            while frame is not None and not matches(frame):
                frame = frame.f_back
            return frame is not None
        finally:
            if collects:
                gc.enable()


def surely(end: Callable[[], object]) -> None:
    """Call `end`, and a second time if an interrupt cut it off, so that all of it is done."""
    try:
        end()
    except Exception:
        raise
    except BaseException:
        end()
        raise


def _outermost(frame: FrameType | None) -> FrameType | None:
    outermost = None
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith(_OWN) and name.partition(".")[0] in _OWN and not name.startswith(_BELOW):
            outermost = frame
        frame = frame.f_back
    return outermost
