"""Other Python processes for tests: they run a program, say when they are ready, and are killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Generator


@contextlib.contextmanager
def another_process(program: str, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """A process that runs `program` up to where it printed a line."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def wait_for(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until something holds that another thread or process is about to do."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it does not hold after {seconds:g} s"
        time.sleep(0.02)
