"""What a Spark job of lakebed's fails with: the error that a task met, or one that says how to mend what is wrong."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from lakebed.engine.spark_session import is_connect
from lakebed.engine.spark_worker import HOW, LACKING, PYTHON
from lakebed.errors import CorruptFile, LakebedError, UnsupportedFeature, from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OTHER_PYTHON = "PYTHON_VERSION_MISMATCH"
_UNREAD = re.compile(r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (.+?\.parquet)")
_NOT_FOUND = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.+?\.parquet)")
_GONE = "FILE_NOT_EXIST"
_CARRIED = "lakebed error in a task: "

T = TypeVar("T")


class TaskError(Exception):
    """An error of a task, as text that Spark gives to the driver."""


def carrying(rows: Iterator[T]) -> Iterator[T]:
    """The rows of a task. An error of lakebed's, or a file that is not there, is raised again by `job_errors`."""
    try:
        yield from rows
    except LakebedError as error:
        raise TaskError(f"{error}\n{_CARRIED}{error.to_json()}") from error
    except FileNotFoundError as error:
        path = str(error.filename or error)
        raise TaskError(f"{error}\n{_CARRIED}{json.dumps({'missing': path})}") from error


def _carried(told: str) -> Exception | None:
    """The error of the task whose text this is."""
    at = told.find(_CARRIED)
    if at < 0:
        return None
    text = told[at + len(_CARRIED) :].partition("\n")[0]
    try:
        fields, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:  # Spark Connect cuts long messages off
        return None
    if "missing" in fields:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), fields["missing"])
    return from_json(json.dumps(fields))


@contextmanager
def job_errors(spark: SparkSession) -> Generator[None]:
    """Workers that lack what a task needs as `UnsupportedFeature`, a base file that is missing or damaged as
    `CorruptFile` with its path, what a task was `carrying` as it was; anything else as it is."""
    try:
        yield
    except Exception as error:
        told = str(error)
        if LACKING in told:
            line = told[told.index(LACKING) :].partition("\n")[0]
            raise UnsupportedFeature(
                line.partition(". To go on, ")[0], hint=HOW + _unset(spark), context={"feature": "workers"}
            ) from None
        if _OTHER_PYTHON in told:
            raise UnsupportedFeature(
                f"Spark's workers run another Python than this process, which is {sys.version.partition(' ')[0]}",
                hint=f"set {PYTHON} to a Python of the same version that has lakebed, before the session begins",
                context={"feature": "workers"},
            ) from error
        if (met := _carried(told)) is not None:
            raise met from error
        if found := _UNREAD.search(told):
            raise _corrupt(found[2], gone=found[1] == _GONE) from error
        if found := _NOT_FOUND.search(told):
            raise _corrupt(found[1], gone=True) from error
        raise


def _corrupt(path: str, *, gone: bool) -> CorruptFile:
    if gone:
        return CorruptFile(
            f"base file {path} is missing, and the table lists it",
            hint="open the table again: it may have been cleaned since. Otherwise restore the file, or roll back the"
            " commit that wrote it",
            context={"path": path},
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
