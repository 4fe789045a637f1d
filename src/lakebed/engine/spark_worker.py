"""What a Python worker of Spark repeats for every task although nothing changed, done once.

A worker that is used again calls `importlib.invalidate_caches()` before each task. Its PySpark lies in a zip file,
and up to Python 3.12 every finder inside that zip (one a package, some fifteen) reads and parses the zip's whole
directory anew: 0.2 CPU seconds a task, more than a small task's work. After each task it collects garbage, over all
objects of all imported modules: 0.05 s more.
"""

from __future__ import annotations

import gc
import os
import sys
import zipimport
from typing import Any

_settled: set[int] = set()


def settle_worker() -> None:
    """Leaves nothing but real work between this worker's tasks; a zip file that did change is read again.

    >>> settle_worker()
    """
    if os.getpid() in _settled:
        return
    _settled.add(os.getpid())
    for finder in list(sys.path_importer_cache.values()):
        if isinstance(finder, zipimport.zipimporter):
            _reread_only_if_changed(finder)
    gc.collect()
    gc.freeze()


def _reread_only_if_changed(finder: Any) -> None:
    read_again = finder.invalidate_caches
    seen = _version(finder.archive)

    def invalidate() -> None:
        nonlocal seen
        now = _version(finder.archive)
        if now != seen:
            seen = now
            read_again()

    finder.invalidate_caches = invalidate


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
