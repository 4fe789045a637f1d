"""Tuning of a Python worker of Spark: work that the worker repeats after every task, for nothing, is left out.

Spark reuses its Python workers. Before each task a worker calls `importlib.invalidate_caches()`. Its PySpark lies in a
zip file, and up to Python 3.12 every finder of a package in that zip (some fifteen) reads and parses the zip's whole
directory anew: 0.2 CPU seconds a task, more than a small task's work. After each task the worker collects garbage
among all objects of all imported modules: 0.05 s more.

The workers are shared with the application's own Python functions, so tuning is an option
(`lakebed.spark.worker.tuning`), described in docs/spark.md.
"""

from __future__ import annotations

import gc
import os
import sys
import zipimport
from typing import Any

_tuned_processes: set[int] = set()


def tune_worker() -> None:
    """Tune the process that calls this, once; a worker stays tuned until it ends.

    Finders of zip files read their zip's directory again only if the file has changed. The objects that exist now are
    exempt from garbage collection (`gc.freeze`).

    >>> tune_worker()
    """
    if os.getpid() in _tuned_processes:
        return
    _tuned_processes.add(os.getpid())
    for finder in list(sys.path_importer_cache.values()):
        if isinstance(finder, zipimport.zipimporter):
            _reread_only_if_changed(finder)
    gc.collect()
    gc.freeze()


def _reread_only_if_changed(finder: Any) -> None:
    read_again = finder.invalidate_caches
    known = _version(finder.archive)

    def invalidate_caches() -> None:
        nonlocal known
        now = _version(finder.archive)
        if now != known:
            known = now
            read_again()

    finder.invalidate_caches = invalidate_caches


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
