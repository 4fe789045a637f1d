"""Progress of a service on the terminal, if standard error is one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Advance = Callable[[int], None]


@contextmanager
def progress(what: str, total: int, *, counted: bool) -> Generator[Advance]:
    """Shows that something goes on, since when and (where it is `counted`) how far; gone when it is done. Gives what is
    called with the number of parts that are done."""
    console = Console(stderr=True)
    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    if counted:
        columns += [BarColumn(), MofNCompleteColumn()]
    shown = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal)
    with shown:
        task = shown.add_task(what, total=total if counted else None)
        yield lambda parts: shown.advance(task, parts)
