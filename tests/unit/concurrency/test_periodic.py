"""What is renewed in the background: often enough, never after its end, and nobody waits for another."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.concurrency.heartbeat import PeriodicTask


def test_an_action_is_repeated_until_it_is_stopped() -> None:
    calls: list[float] = []
    task = PeriodicTask(0.005, lambda: calls.append(time.monotonic()) is None, "p")
    started = time.monotonic()
    task.start()
    while len(calls) < 3:
        time.sleep(0.002)
    task.stop()
    assert calls[0] - started >= 0.005
    seen = len(calls)
    time.sleep(0.05)
    assert len(calls) == seen


def test_an_action_ends_its_repetition() -> None:
    calls: list[int] = []
    task = PeriodicTask(0.002, lambda: len(calls) < 2 and calls.append(1) is None, "p")
    task.start()
    while len(calls) < 2:
        time.sleep(0.002)
    time.sleep(0.03)
    assert len(calls) == 2
    task.stop()


def test_stopped_ones_leave_no_thread() -> None:
    before = threading.active_count()
    for _ in range(50):
        task = PeriodicTask(0.2, lambda: pytest.fail("it was stopped"), "short")
        task.start()
        task.stop()
        assert threading.active_count() == before
    time.sleep(0.3)
    assert threading.active_count() == before


def test_a_task_that_was_not_started_can_be_stopped() -> None:
    PeriodicTask(60, lambda: True, "never").stop()


def test_nothing_is_called_where_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    task = PeriodicTask(0.001, lambda: pytest.fail("there is no thread"), "none")
    task.start()
    task.stop()


def test_an_action_may_stop_it() -> None:
    calls: list[int] = []

    def once() -> bool:
        calls.append(1)
        task.stop()
        return True

    task = PeriodicTask(0.001, once, "once")
    task.start()
    while not calls:
        time.sleep(0.001)
    time.sleep(0.02)
    assert calls == [1]


def test_stopping_waits_for_a_call_under_way() -> None:
    began, go, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> bool:
        began.set()
        go.wait(10)
        ended.set()
        return True

    task = PeriodicTask(0.001, slow, "slow")
    task.start()
    assert began.wait(10)
    threading.Timer(0.05, go.set).start()
    task.stop()
    assert ended.is_set()


def test_an_action_that_hangs_delays_no_other() -> None:
    go, beats = threading.Event(), threading.Event()
    hanging = PeriodicTask(0.001, lambda: go.wait(10), "hanging")
    hanging.start()
    time.sleep(0.02)
    other = PeriodicTask(0.001, lambda: beats.set() is None, "other")
    other.start()
    assert beats.wait(10)
    go.set()
    hanging.stop()
    other.stop()


def test_an_earlier_one_does_not_wait_for_a_later_one() -> None:
    late = PeriodicTask(60, lambda: True, "late")
    late.start()
    called = threading.Event()
    soon = PeriodicTask(0.005, lambda: called.set() is None, "soon")
    soon.start()
    assert called.wait(10)
    soon.stop()
    late.stop()


def test_a_forked_child_has_its_own() -> None:
    PeriodicTask(60, lambda: True, "parent").start()
    pid = os.fork()
    if pid == 0:
        called = threading.Event()
        PeriodicTask(0.005, lambda: called.set() is None, "child").start()
        os._exit(0 if called.wait(10) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_an_interval_longer_than_any_that_the_system_waits_for_keeps_the_thread() -> None:
    task = PeriodicTask((1 << 63) / 1000, lambda: True, "p")
    task.start()
    time.sleep(0.01)
    assert "p" in {thread.name for thread in threading.enumerate()}
    task.stop()
    assert "p" not in {thread.name for thread in threading.enumerate()}


def test_rows_are_freed_with_the_call_that_wrote_them(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1], "v": [1]}, key="id", type="mor", index="simple")
    calls = {
        "upsert": table.upsert,
        "insert": table.insert,
        "bulk_insert": table.bulk_insert,
        "delete": table.delete,
        "insert_overwrite": lambda rows: table.insert_overwrite(rows, scope="table"),
    }
    gc.collect()
    gc.disable()
    try:
        for name, call in calls.items():
            rows = pa.table({"id": [1, 2], "v": [3, 4]})
            held = weakref.ref(rows)
            call(rows)
            del rows
            assert held() is None, name
    finally:
        gc.enable()
