"""Errors of Spark tasks: what a task was carrying reaches the driver as it was."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any, cast

import pytest

from lakebed.engine import spark_session
from lakebed.engine.spark_worker import TaskError, carrying, job_errors
from lakebed.errors import CommitConflict, CorruptFile, LakebedError, StorageError, UnsupportedFeature

SESSION = cast("Any", None)  # asked only for its class, where workers lack a package


def raising(error: Exception) -> Iterator[int]:
    yield 1
    raise error


def text_of(error: Exception) -> str:
    """What Spark tells the driver of a task that raised the error."""
    rows = carrying(raising(error))
    assert next(rows) == 1
    with pytest.raises(TaskError) as raised:
        next(rows)
    return (
        f"Job aborted: Traceback (most recent call last):\n  File x\nlakebed.TaskError: {raised.value}\n\n\tat org.Task"
    )


@pytest.mark.parametrize(
    "error",
    [
        CorruptFile("log file a\nb is missing", hint="open it again", context={"path": 'é "x"', "offset": 7}),
        CommitConflict("another writer", context={"instant": "1"}),
        StorageError("gone", context={"retryable": True}),
    ],
)
def test_an_error_of_a_task_is_raised_as_it_was(error: LakebedError) -> None:
    with pytest.raises(type(error)) as raised, job_errors(SESSION):
        raise RuntimeError(text_of(error))
    met = raised.value
    assert (met.message, met.hint, met.context, met.retryable) == (
        error.message,
        error.hint,
        error.context,
        error.retryable,
    )


def test_a_missing_file_is_named() -> None:
    path = "file:///t/c0/.f-0_1.log.1_0-0-0"
    gone = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    with pytest.raises(FileNotFoundError) as raised, job_errors(SESSION):
        raise RuntimeError(text_of(gone))
    assert raised.value.filename == path


def test_other_errors_and_texts_that_were_cut_off_stay_what_they_are() -> None:
    with pytest.raises(ZeroDivisionError):
        list(carrying(raising(ZeroDivisionError())))
    whole = text_of(CorruptFile("x", context={"path": "p"}))
    cut = whole[: whole.index('"message"')]
    with pytest.raises(RuntimeError) as raised, job_errors(SESSION):
        raise RuntimeError(cut)
    assert str(raised.value) == cut


@pytest.mark.parametrize(
    "text",
    [
        "ModuleNotFoundError: No module named 'pyarrow'",
        "[PACKAGE_NOT_INSTALLED] PyArrow >= 15.0.0 must be installed; however, it was not found.",
    ],
)
def test_workers_without_pyarrow_are_named_in_one_sentence(text: str) -> None:
    with pytest.raises(UnsupportedFeature, match="Spark's workers have no pyarrow") as raised, job_errors(SESSION):
        raise RuntimeError(f"Job aborted: Traceback\n  File x\n{text}\n\n\tat org.Task")
    assert "Install lakebed for that Python" in raised.value.hint


def test_pyspark_without_pandas_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(spark_session, "find_spec", lambda name: None)
    spark_session.require_spark.cache_clear()
    with pytest.raises(UnsupportedFeature, match=r"without pandas, which is not installed.*lakebed\[spark\]"):
        spark_session.require_spark()
    monkeypatch.undo()
    spark_session.require_spark()
