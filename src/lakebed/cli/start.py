"""The console script. It answers `--version` itself: the commands import a hundred times what that takes."""

from __future__ import annotations

import sys

import lakebed


def run() -> None:
    """Run the command line of this process; ends the process with the exit code."""
    if sys.argv[1:] == ["--version"]:
        print(f"lakebed {lakebed.__version__}")
        return
    from lakebed.cli.main import run as run_commands

    run_commands()
