"""Ctrl-C at any line: afterwards nothing of the interrupted call is held, in this process or in storage."""

from __future__ import annotations

import inspect
import itertools
import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest

import lakebed
from lakebed.concurrency import heartbeat, lock, process_queue, providers
from lakebed.concurrency.lock import default_lock
from lakebed.concurrency.providers import NestedLock
from lakebed.errors import LockTimeout
from lakebed.model import LOCK_FILE, Action
from lakebed.operations import group_commit, transaction, write_transaction
from lakebed.storage import Storage, open_storage
from support.counting_lease import CountingLease
from support.processes import another_process

Line = tuple[CodeType, int, int]
_BACKGROUND = ("table-lock", "heartbeat-")


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(group_commit, "_LOOK_SECONDS", 0.01)


def code_of(modules: tuple[ModuleType, ...]) -> set[CodeType]:
    """All functions that are written in these modules."""
    found: set[CodeType] = set()
    for module in modules:
        classes = [one for _, one in inspect.getmembers(module, inspect.isclass) if one.__module__ == module.__name__]
        for owner in (module, *classes):
            for member in vars(owner).values():
                plain = getattr(inspect.unwrap(getattr(member, "__func__", member)), "__code__", None)
                plain = plain or getattr(getattr(member, "fget", None), "__code__", None)
                if plain is not None and plain.co_filename == module.__file__:
                    found.add(plain)
    return found


@contextmanager
def traced(codes: set[CodeType], met: Callable[[FrameType], None]) -> Generator[None]:
    """Calls `met` before each line of these functions, in this thread."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code not in codes:
            return None
        if event == "line":
            met(frame)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def lines_of(codes: set[CodeType], work: Callable[[], object], times: int) -> list[Line]:
    """The lines that `work` runs, each up to so many times."""
    found: dict[Line, None] = {}
    counts: dict[tuple[CodeType, int], int] = {}

    def met(frame: FrameType) -> None:
        at = frame.f_code, frame.f_lineno
        counts[at] = counts.get(at, 0) + 1
        if counts[at] <= times:
            found[(*at, counts[at])] = None

    with traced(codes, met):
        work()
    return list(found)


def interrupted_at(line: Line, codes: set[CodeType], work: Callable[[], object]) -> bool:
    """Run `work`, and raise KeyboardInterrupt before a line. False where it did not come to that line."""
    code, number, nth = line
    count = itertools.count(1)

    def met(frame: FrameType) -> None:
        if (frame.f_code, frame.f_lineno) == (code, number) and next(count) == nth:
            raise KeyboardInterrupt

    try:
        with traced(codes, met):
            work()
    except KeyboardInterrupt:
        return True
    return False


def soon(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def is_free_for_others(storage: Storage, path: str = LOCK_FILE) -> bool:
    """Whether another process would find the lock file free."""
    if storage.head(path) is None:
        return True
    return bool(json.loads(storage.read(path))["expired"])


def background() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(_BACKGROUND)]


def check_nothing_is_held(storage: Storage, line: Line) -> None:
    where = f"interrupted at {line[0].co_qualname}, line {line[1]}, time {line[2]}"
    taken: list[bool] = []

    def take() -> None:
        with default_lock(storage, wait_seconds=5):
            taken.append(True)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(10)
    assert taken, where
    assert soon(lambda: is_free_for_others(storage)), where
    assert soon(lambda: not background()), f"{where}: {background()}"
    assert soon(lambda: not lock.holding), where
    assert not any(process_queue._queues.values()), where


def test_an_interrupt_at_any_line_of_a_call_that_takes_the_lock_leaves_nothing_held() -> None:
    table = lakebed.create(f"memory://{uuid.uuid4().hex}/t", [{"id": 1, "v": 0}], key="id")
    storage = open_storage(table.uri)
    codes = code_of((lock, process_queue))
    numbers = itertools.count(10)

    def work() -> None:
        table.configure({"hoodie.cleaner.commits.retained": next(numbers)})

    work()
    lines = lines_of(codes, work, times=2)
    assert {"LeasedLock.acquire", "LeasedLock.release", "FileLock._let_go", "QueueEntry.take", "QueueEntry.leave"} <= {
        one.co_qualname for one, *_ in lines
    }
    for line in lines:
        assert interrupted_at(line, codes, work), line
        check_nothing_is_held(storage, line)


# What of a write takes, keeps and gives back.
_KEEPING = (
    "Transaction.locked", "Transaction.begin", "Transaction.cleaned_up", "Transaction.__exit__",
    "Transaction.start_heartbeat", "Transaction.remove_heartbeat", "Transaction.tidy", "Transaction._tidy_heartbeat",
    "WriteTransaction.request", "Heartbeat.", "PeriodicTask.", "_with_others", "_enter", "_leave", "_Member.",
)  # fmt: skip


def test_an_interrupt_of_a_write_leaves_neither_lock_nor_heartbeat_nor_a_queue_of_upserts() -> None:
    table = lakebed.create(f"memory://{uuid.uuid4().hex}/t", [{"id": 1, "v": 0}], key="id")
    storage = open_storage(table.uri)
    found = code_of((transaction, write_transaction, heartbeat, group_commit))
    codes = {code for code in found if code.co_qualname.startswith(_KEEPING)}
    numbers = itertools.count(1)

    def work() -> None:
        table.upsert([{"id": 1, "v": next(numbers)}])

    work()
    lines = lines_of(codes, work, times=1)
    assert all(any(code.co_qualname.startswith(name) for code, *_ in lines) for name in _KEEPING if "__" not in name)
    for line in lines:
        assert interrupted_at(line, codes, work), line
        check_nothing_is_held(storage, line)
        assert not heartbeat._beating, line
        done: list[lakebed.WriteResult] = []
        thread = threading.Thread(target=lambda: done.append(table.upsert([{"id": 2, "v": line[1]}])))  # noqa: B023
        thread.start()
        thread.join(20)
        assert done, line
        assert table.get([2]).column("v").to_pylist() == [line[1]], line


def test_an_interrupt_at_any_line_of_two_locks_as_one_leaves_none_of_them_held() -> None:
    storage = open_storage(f"memory://{uuid.uuid4().hex}")
    held: set[object] = set()
    codes = code_of((lock, providers))

    def work() -> None:
        with NestedLock(CountingLease(held), default_lock(storage), 1.0) as both:
            assert both.lock_is_held()

    # as a call of lakebed: what a call leaves ends with it
    call = FunctionType(work.__code__, {**globals(), "__name__": "lakebed"}, closure=work.__closure__)
    call()
    for line in lines_of(codes, call, times=1):
        assert interrupted_at(line, codes, call), line
        check_nothing_is_held(storage, line)
        assert soon(lambda: not held), line


def test_a_lock_that_was_not_got_is_not_waited_for_after_an_interrupt() -> None:
    storage = open_storage(f"memory://{uuid.uuid4().hex}")
    codes = code_of((lock, process_queue))

    def work() -> None:
        with default_lock(storage, wait_seconds=0):
            raise AssertionError("it is held")

    call = FunctionType(work.__code__, {**globals(), "__name__": "lakebed"}, closure=work.__closure__)

    def refused() -> None:
        with pytest.raises(LockTimeout):
            call()

    with default_lock(storage):
        lines = lines_of(codes, refused, times=1)
    for line in lines:
        with default_lock(storage):
            interrupted_at(line, codes, refused)
        check_nothing_is_held(storage, line)


INTERRUPTED = """
    import os, random, signal, sys, threading, time
    import lakebed
    from lakebed.concurrency.lock import default_lock
    from lakebed.storage import open_storage

    armed, stopped, chance = False, 0, random.Random(5)

    def interrupt(*_):
        global armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    table, storage = lakebed.open(sys.argv[1]), open_storage(sys.argv[1])
    table.upsert([{"id": 1, "v": 0}])  # with the imports of a first write
    started = time.monotonic()
    table.upsert([{"id": 1, "v": 0}])
    usual = time.monotonic() - started
    for n in range(1, 17):
        timer = threading.Timer(chance.uniform(0.0, usual), os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            armed = True
            table.upsert([{"id": 1, "v": n}])
            armed = False
        except KeyboardInterrupt:
            stopped += 1
        timer.join()
        with default_lock(storage, wait_seconds=5):
            pass
    print("ready" if stopped > 2 else stopped, flush=True)
    sys.stdin.read()
"""


def test_signals_leave_a_table_that_others_write_while_the_interrupted_process_lives(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), [{"id": 1, "v": -1}], key="id")
    storage = open_storage(table.uri)
    with another_process(INTERRUPTED, table.uri):
        assert soon(lambda: is_free_for_others(storage))
        table.upsert([{"id": 2, "v": 7}])
        assert table.get([2]).column("v").to_pylist() == [7]
        # the plan of a clean that the signal cut off is taken up when its heartbeat is old
        assert {instant.action for instant in table.timeline.pending} <= {Action.CLEAN}
