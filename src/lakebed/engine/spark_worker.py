"""What runs in Spark's Python workers: how functions get there, and which of the worker's own work is left out.

A function of lakebed goes to a worker inside one that needs nothing but Python, so that a worker without lakebed says
so in one sentence.

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
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakebed.engine.spark_session import is_connect, is_in_one_process
from lakebed.errors import UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LACKING = "Spark's workers have no lakebed"
_OTHER_PYTHON = "PYTHON_VERSION_MISMATCH"
_HOW = (
    "install lakebed for that Python on every worker, or send an environment that has it along"
    " (spark-submit --archives env.tar.gz#env with PYSPARK_PYTHON=./env/bin/python)"
)
_PYTHON = "PYSPARK_PYTHON"
_CONFIGURED = ("spark.pyspark.python", "spark.executorEnv.PYSPARK_PYTHON")
_tuned_processes: set[int] = set()


def for_workers(fn: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function as one that a worker without lakebed can take and answer with a sentence that says what it lacks."""
    from pyspark import cloudpickle  # pyright: ignore[reportAttributeAccessIssue]

    sent, lacking, how = cloudpickle.dumps(fn), _LACKING, _HOW

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        # nested, so that it is pickled by its code and not by the name of a module that the worker may lack
        import pickle
        import sys

        try:
            __import__("lakebed")
        except ImportError as error:
            raise ImportError(f"{lacking}: {sys.executable} ({error}). To go on, {how}.") from None
        yield from pickle.loads(sent)(batches)

    return run


@contextmanager
def worker_errors(spark: SparkSession) -> Generator[None]:
    """What workers lack as one `UnsupportedFeature`, that says what to do."""
    try:
        yield
    except Exception as error:
        told = str(error)
        if _LACKING in told:
            line = told[told.index(_LACKING) :].partition("\n")[0]
            raise UnsupportedFeature(
                line.partition(". To go on, ")[0], hint=_HOW + _unset(spark), context={"feature": "workers"}
            ) from None
        if _OTHER_PYTHON in told:
            raise UnsupportedFeature(
                f"Spark's workers run another Python than this process, which is {sys.version.partition(' ')[0]}",
                hint=f"set {_PYTHON} to a Python of the same version that has lakebed, before the session begins",
                context={"feature": "workers"},
            ) from error
        raise


def _unset(spark: SparkSession) -> str:
    if os.environ.get(_PYTHON) or sys.prefix == sys.base_prefix or is_connect(spark):
        return ""
    return f". {_PYTHON} is not set, while this process runs in {sys.prefix}: set it before the session begins"


def use_own_python(spark: SparkSession) -> None:
    """Where Spark runs in this process and nobody chose a Python for its workers, let them be this one: "python3" of
    the path, which Spark takes otherwise, is another one when a program runs in a virtual environment by its path."""
    if not is_in_one_process(spark) or os.environ.get(_PYTHON):
        return
    context = spark.sparkContext
    if any(context.getConf().get(key) for key in _CONFIGURED):
        return
    if context.pythonExec == "python3":  # pyright: ignore[reportUnknownMemberType]
        context.pythonExec = sys.executable


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
