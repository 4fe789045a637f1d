"""The console script. It answers `--version` itself: the commands import a hundred times what that takes."""

from __future__ import annotations

import gc
import sys

import lakebed

# Modules make many objects while they load, and these stay: the collector would look through them 160 times.
_COLLECTED_AFTER = 250_000


def run() -> None:
    """Run the command line of this process; ends the process with the exit code."""
    if sys.argv[1:] == ["--version"]:
        print(f"lakebed {lakebed.__version__}")
        return
    gc.set_threshold(_COLLECTED_AFTER)
    from lakebed.cli.main import run as run_commands

    run_commands()
