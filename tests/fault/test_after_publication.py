"""A disk that fails right after it did what it was asked: what is there by then is committed, what is not is not."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.concurrency.lock import default_lock
from lakebed.errors import CommitStateUnknown, LakebedError
from lakebed.model import LOCK_FILE
from lakebed.properties.file import load_table_config, update_table_config
from lakebed.storage import open_storage
from support.crash_tables import OPTIONS, copied, leftovers, prepared, put, rows, state
from support.locks import held
from support.sampling import CRASH, todays

VERBS = ("fsync", "close", "link", "rename", "unlink", "pwrite", "utime")
INSERT = {**OPTIONS, "hoodie.merge.allow.duplicate.on.inserts": True}
OURS = [(100, "c0", "ours", 1), (101, "c1", "ours", 1)]


@contextmanager
def failing(verb: str, when: Callable[[int, tuple[Any, ...]], bool]) -> Generator[list[str]]:
    """The call of `os.<verb>` of which `when(number, arguments)` says so is done, and ends in an error. Gives the
    calls."""
    real = getattr(os, verb)
    calls: list[str] = []

    def act(*given: Any, **named: Any) -> Any:
        calls.append(f"{verb} {place(given)}")
        at = len(calls)
        now = when(at, given)
        done = real(*given, **named)
        if now:
            raise OSError(errno.EIO, "Input/output error")
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, verb, act)
        yield calls


def place(given: tuple[Any, ...]) -> str:
    """The file a call is about."""
    if isinstance(given[0], int):
        return os.readlink(f"/proc/self/fd/{given[0]}")
    return " ".join(map(str, given))


def insert(uri: str) -> Any:
    return lakebed.open(uri).insert(rows(*OURS), options=INSERT)


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "rename"])
def test_an_insert_is_there_once_or_not_at_all(verb: str, version: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "lakebed")
    files, old = prepared("simple", version)
    with copied("local", files) as uri, failing(verb, lambda _at, _given: False) as calls:
        insert(uri)
    assert calls
    new = put(old, *OURS)
    for at in todays(range(1, len(calls) + 1), 1 + len(calls) // 3, CRASH):
        with copied("local", files) as uri:
            with failing(verb, lambda number, _given, at=at: number == at) as calls:
                try:
                    insert(uri)
                except CommitStateUnknown as error:
                    raise AssertionError(f"{calls[at - 1]}: it can be read back") from error
                except LakebedError:
                    assert state(uri) == old, f"{calls[at - 1]}: there, although the write was said to have failed"
                    insert(uri)
            # `state` fails where a key is there twice
            assert state(uri) == new, calls[at - 1]
            lakebed.open(uri).upsert(rows((0, "c0", "next", 9)), options=OPTIONS)
            assert state(uri) == put(new, (0, "c0", "next", 9)), calls[at - 1]
            assert leftovers(uri) == [], calls[at - 1]


def completes(uri: str) -> Callable[[int, tuple[Any, ...]], bool]:
    """Whether this is the sync of the timeline's folder that comes after the completed instant."""
    folder = Path(uri, ".hoodie/timeline")
    before = len([*folder.glob("*.commit")])
    struck: list[bool] = []

    def when(_number: int, given: tuple[Any, ...]) -> bool:
        if struck or place(given) != str(folder) or len([*folder.glob("*.commit")]) == before:
            return False
        struck.append(True)
        return True

    return when


def test_a_completed_instant_that_may_not_last_is_acknowledged_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    files, old = prepared("simple", 9)
    with copied("local", files) as uri:
        with failing("fsync", completes(uri)):
            result = insert(uri)
        assert state(uri) == put(old, *OURS)
        assert f"{result.instant}_" in caplog.text
        assert ".commit is there, although writing it ended in" in caplog.text


def test_a_commit_that_cannot_be_read_back_is_unknown_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    files, old = prepared("simple", 9)
    with copied("local", files) as uri:
        known = {path.rpartition("/")[2] for path in files}
        real = open

        def unreadable(file: Any, *given: Any, **named: Any) -> Any:
            if str(file).endswith(".commit") and str(file).rpartition("/")[2] not in known:
                raise OSError(errno.EIO, "Input/output error")
            return real(file, *given, **named)

        with failing("fsync", completes(uri)), monkeypatch.context() as patch:
            patch.setattr("builtins.open", unreadable)
            with pytest.raises(CommitStateUnknown) as unknown:
                insert(uri)
        assert not unknown.value.retryable
        assert state(uri) == put(old, *OURS)
        result = lakebed.open(uri).upsert(rows((0, "c0", "next", 9)), options=OPTIONS)
        assert result.rolled_back == ()
        assert state(uri) == put(put(old, *OURS), (0, "c0", "next", 9))


@pytest.mark.parametrize("verb", VERBS)
def test_a_failed_system_call_leaves_settings_as_the_verb_says(verb: str) -> None:
    files, _ = prepared("simple", 9)
    with copied("local", files) as uri, failing(verb, lambda _at, _given: False) as calls:
        configure(uri)
    for at in range(1, len(calls) + 1):
        with copied("local", files) as uri:
            with failing(verb, lambda number, _given, at=at: number == at) as calls:
                try:
                    configure(uri)
                except LakebedError:
                    assert changed(uri) is False, calls[at - 1]
                    configure(uri)
            assert changed(uri) is True, calls[at - 1]
            configure(uri, "7")
            assert not Path(uri, ".hoodie/hoodie.properties.backup").exists()


def configure(uri: str, value: str = "5") -> None:
    with default_lock(open_storage(uri)):
        update_table_config(open_storage(uri), {"hoodie.some.setting": value}, held)


def changed(uri: str) -> bool:
    return load_table_config(open_storage(uri)).properties.get("hoodie.some.setting") == "5"


@pytest.mark.parametrize("verb", VERBS)
def test_a_lock_whose_change_fails_after_it_was_made_is_held_and_given_back(verb: str, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    with default_lock(storage), failing(verb, lambda _at, _given: False):
        pass
    with failing(verb, lambda _at, _given: False) as calls, default_lock(storage):
        pass
    for at in range(1, len(calls) + 1):
        with failing(verb, lambda number, _given, at=at: number == at), default_lock(storage, wait_seconds=5) as lock:
            assert lock.lock_is_held(), calls[at - 1]
        assert b'"expired": true' in storage.read(LOCK_FILE), calls[at - 1]
