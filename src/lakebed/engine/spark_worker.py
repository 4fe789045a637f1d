"""What runs in Spark's Python workers: how functions get there, which of the worker's own work is left out, and how
errors come back.

A function of lakebed goes to a worker inside one that needs nothing but Python, so that a worker without lakebed
reports that in one sentence.

Spark reuses its Python workers. Before each task a worker calls `importlib.invalidate_caches()`. Its PySpark is in a
zip file, and up to Python 3.12 every finder of a package in that zip (some fifteen) reads and parses the zip's
directory again: 0.2 CPU seconds a task, more than a small task's work. After each task the worker collects garbage
among all objects of all imported modules: 0.05 s more. The workers are shared with the application's own Python
functions, so tuning is an option (`lakebed.spark.worker.tuning`), described in docs/spark.md.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import sys
import zipimport
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.engine.base import changed_input
from lakebed.engine.spark_python import HOW, LACKING, PYTHON
from lakebed.engine.spark_session import is_connect
from lakebed.errors import CorruptFile, LakebedError, UnsupportedFeature, from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_tuned_processes: set[int] = set()


def for_workers(fn: Callable[..., Any], *, tuning: bool = False) -> Callable[..., Any]:
    """The function in a form that a worker without lakebed can load; such a worker then reports in one sentence what it
    lacks. With `tuning` it tunes the worker first."""
    from pyspark import cloudpickle  # pyright: ignore[reportAttributeAccessIssue]

    sent, checked = cloudpickle.dumps(_Tuning(fn) if tuning else fn), _Checked()
    unpacked: list[Callable[..., Any]] = []

    def run(*arguments: Any) -> Any:
        # nested, so that it is pickled by its code and not by the name of a module that the worker may lack
        import pickle

        if not unpacked:
            unpacked.append(pickle.loads(sent))
        _ = checked
        return unpacked[0](*arguments)

    return run


class _Checked:
    """A part of a function that is sent to workers. Loading it raises an error if they lack a package, before PySpark
    itself imports pyarrow, whose error would not name the worker's Python."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        lacking, how = LACKING, HOW

        def check() -> None:
            import sys

            for package in ("lakebed", "pyarrow"):
                try:
                    __import__(package)
                except ImportError as error:
                    message = f"{lacking}{error.name or package}: {sys.executable} ({error})"
                    raise ImportError(f"{message}. To go on, {how}.") from None

        return check, ()


class SentToWorkers:
    """An object of lakebed that Spark itself sends to its workers, rebuilt there as by `for_workers`."""

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return for_workers(partial(_rebuilt, type(self), vars(self))), ()


def _rebuilt(kind: type[Any], state: dict[str, Any]) -> Any:
    instance: Any = object.__new__(kind)
    vars(instance).update(state)
    return instance


@dataclass(frozen=True, slots=True)
class _Tuning:
    """A task function that tunes its worker before it calls the function of the task."""

    fn: Callable[[Iterator[Any]], Iterator[Any]]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        tune_worker()
        return self.fn(batches)


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
    last_version = _version(finder.archive)

    def invalidate_caches() -> None:
        nonlocal last_version
        now = _version(finder.archive)
        if now != last_version:
            last_version = now
            read_again()

    finder.invalidate_caches = invalidate_caches


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


_NO_PYARROW = re.compile(r"No module named 'pyarrow'|PyArrow >= [\d.]+ must be installed")
_OTHER_PYTHON = "PYTHON_VERSION_MISMATCH"
_UNREAD = re.compile(r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (.+?\.parquet)")
_NOT_FOUND = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.+?\.parquet)")
_FILE_NOT_EXIST = "FILE_NOT_EXIST"
# Spark's words for rows that were lost and came back as others, or cannot come back.
_CHANGED = re.compile(
    r"A shuffle map stage with indeterminate output was failed|rolling back due to indeterminate output"
    r"|depending on the indeterminate stage|CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|Checkpoint block rdd_\w+ not found"
)
_RAISED = re.compile(r"^lakebed\.errors\.(\w+): (.+)$", re.MULTILINE)
_CARRIED = "lakebed error in a task: "

T = TypeVar("T")


class TaskError(Exception):
    """An error of a task, as text that Spark passes to the driver."""


def carrying(rows: Iterator[T]) -> Iterator[T]:
    """The rows of a task. An error of lakebed's, or a missing file, is raised again by `job_errors`."""
    try:
        yield from rows
    except LakebedError as error:
        raise TaskError(f"{error}\n{_CARRIED}{error.to_json()}") from error
    except FileNotFoundError as error:
        path = str(error.filename or error)
        raise TaskError(f"{error}\n{_CARRIED}{json.dumps({'missing': path})}") from error


def _carried(message: str) -> Exception | None:
    """The task's error from this text; None if it has none."""
    at = message.find(_CARRIED)
    if at < 0:  # of a DataFrame that reads a table, whose tasks show users the error as it is
        raised = _RAISED.search(message)
        fields = None if raised is None else {"type": raised[1], "message": raised[2], "hint": "", "context": {}}
        return None if fields is None else from_json(json.dumps(fields))
    text = message[at + len(_CARRIED) :].partition("\n")[0]
    try:
        fields, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:  # Spark Connect cuts long messages off
        return None
    if "missing" in fields:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), fields["missing"])
    return from_json(json.dumps(fields))


@contextmanager
def job_errors(spark: SparkSession) -> Generator[None]:
    """Turn errors of a job into lakebed's: workers that lack a package raise `UnsupportedFeature`, a missing or damaged
    base file raises `CorruptFile` with its path, lost rows that cannot be computed again raise `SourceError`, and an
    error that a task was `carrying` is raised unchanged. Other errors are unchanged."""
    try:
        yield
    except Exception as error:
        message = str(error)
        if LACKING in message:
            line = message[message.index(LACKING) :].partition("\n")[0]
            raise UnsupportedFeature(
                line.partition(". To go on, ")[0], hint=HOW + _unset(spark), context={"feature": "workers"}
            ) from None
        if _NO_PYARROW.search(message):  # Spark's own words, before anything of lakebed's runs
            raise UnsupportedFeature(
                f"{LACKING}pyarrow", hint=HOW + _unset(spark), context={"feature": "workers"}
            ) from None
        if _OTHER_PYTHON in message:
            raise UnsupportedFeature(
                f"Spark's workers run another Python than this process, which is {sys.version.partition(' ')[0]}",
                hint=f"set {PYTHON} to a Python of the same version that has lakebed, before the session begins",
                context={"feature": "workers"},
            ) from error
        if (met := _carried(message)) is not None:
            raise met from error
        if _CHANGED.search(message):
            raise changed_input("a part of them was lost with the machine or the files that held it") from error
        if match := _UNREAD.search(message):
            raise _corrupt(match[2], missing=match[1] == _FILE_NOT_EXIST) from error
        if match := _NOT_FOUND.search(message):
            raise _corrupt(match[1], missing=True) from error
        raise


def _corrupt(path: str, *, missing: bool) -> CorruptFile:
    if missing:
        return CorruptFile(
            f"base file {path} is missing, and the table lists it",
            hint="open the table again: it may have been cleaned since. Otherwise restore the file, or roll back the"
            " commit that wrote it",
            context={"path": path, "missing": True},
        )
    return CorruptFile(
        f"base file {path} cannot be read by Spark",
        hint="restore the file, or roll back the commit that wrote it",
        context={"path": path},
    )


def _unset(spark: SparkSession) -> str:
    if os.environ.get(PYTHON) or sys.prefix == sys.base_prefix or is_connect(spark):
        return ""
    return f". {PYTHON} is not set, while this process runs in {sys.prefix}: set it before the session begins"
