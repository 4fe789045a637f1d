"""The parsed sources of a folder, for tests that read code."""

from __future__ import annotations

import ast
import gc
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def without_collections() -> Generator[None]:
    """The garbage collector does not run: where many objects are made that all stay, it takes most of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parsed_files(folder: Path, pattern: str = "*.py") -> list[tuple[str, ast.Module]]:
    """The path of each file below a folder, relative to it, and its syntax tree."""
    with without_collections():
        return [
            (path.relative_to(folder).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
            for path in sorted(folder.rglob(pattern))
        ]
