"""Other Python processes for tests: they run a program, say when they are ready, and are killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Generator


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
