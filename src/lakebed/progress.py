"""The progress of a long call on a terminal: nothing for two seconds, then lines on standard error that are removed at
the end. Without a terminal nothing is shown.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lakebed.sharing import shared_lock

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DELAY_SECONDS = 2.0
"""For these seconds nothing is shown: most calls end before."""

Advance = Callable[[int], None]


class _Display:
    """The progress lines of one call. A timer begins to show them."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=20)
        done = TextColumn("{task.fields[done]}", markup=False)
        console = Console(stderr=True)
        self.lines: Progress = Progress(*columns, done, TimeElapsedColumn(), console=console, transient=True)
        # shown while no stage of the call has a line: while it waits for rows, or plans
        self._call = self.lines.add_task("working", total=None, done="")
        self._lock = shared_lock()
        self._is_over = self._is_visible = False
        self._timer = threading.Timer(DELAY_SECONDS, self._show)
        self._timer.daemon = True
        if DELAY_SECONDS > 0:
            self._timer.start()
        else:
            self._show()

    def _show(self) -> None:
        with self._lock, suppress(Exception):  # the terminal has another display: the work goes on without one
            if not self._is_over:
                self.lines.start()
                self._is_visible = True

    def add(self, label: str, total: int | None) -> TaskID:
        """A line for a stage of the call."""
        task = self.lines.add_task(label, total=total, done="")
        self.lines.update(self._call, visible=False)
        return task

    def remove(self, task: TaskID) -> None:
        self.lines.remove_task(task)
        self.lines.update(self._call, visible=len(self.lines.task_ids) == 1)

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._is_visible:
                self.lines.stop()


_display: _Display | None = None
_lock = shared_lock()
_silent = threading.local()


@contextmanager
def display(*, enabled: bool = True) -> Generator[None]:
    """Show the progress of the call in the block, on a terminal. Another `display` inside the block does nothing.
    Without `enabled` the block shows nothing."""
    global _display
    if not enabled:
        before = getattr(_silent, "on", False)
        _silent.on = True
        try:
            yield
        finally:
            _silent.on = before
        return
    opened = None
    if is_terminal() and not getattr(_silent, "on", False):
        with _lock:
            if _display is None:
                opened = _display = _Display()
    try:
        yield
    finally:
        if opened is not None:
            with _lock:
                _display = None
            opened.close()


def is_terminal() -> bool:
    """Whether standard error is a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def _nothing(parts: int) -> None:
    return None


@contextmanager
def progress(label: str, total: int | None = None, unit: str = "") -> Generator[Advance]:
    """Show a running stage and its time during the block. Yields a function that any thread may call with the number of
    further finished parts, which are then shown as well."""
    active = None if getattr(_silent, "on", False) else _display
    if active is None:
        yield _nothing
        return
    lines, count, lock = active.lines, [0], threading.Lock()
    task = active.add(label, total)

    def advance(parts: int) -> None:
        with lock:
            count[0] += parts
            of = "" if total is None else f" of {total:,}"
            lines.update(task, completed=count[0], done=f"{count[0]:,}{of} {unit}".rstrip())

    try:
        yield advance
    finally:
        active.remove(task)
