"""Work side by side: results in order, the first error, no more threads than asked for, nobody waits for a thread."""

from __future__ import annotations

import os
import threading
import time

import pytest

from lakebed.sharing import once
from lakebed.storage import open_storage
from lakebed.storage.parallel import in_background, parallel_map, threads_of_files


@pytest.mark.parametrize("threads", [1, 2, 8, 100])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_results_are_in_the_items_order(count: int, threads: int) -> None:
    def slow_at_first(number: int) -> int:
        time.sleep(0.001 * (count - number) / max(1, count))
        return number * number

    assert parallel_map(slow_at_first, range(count), threads) == [n * n for n in range(count)]


@pytest.mark.parametrize(
    ("uri", "sizes", "threads"),
    [
        ("memory://small", [1 << 20, (1 << 20) - 1], 1),
        ("memory://large", [1 << 20, 1 << 20], 8),
        ("memory://mixed", [1, 1 << 30], 8),
        ("memory://none", [], 8),
        ("s3://bucket/table", [1], 8),
    ],
)
def test_small_files_are_read_by_one_thread_where_answers_are_quick(uri: str, sizes: list[int], threads: int) -> None:
    assert threads_of_files(open_storage(uri), sizes) == threads


def test_no_more_calls_than_the_limit_run_at_a_time() -> None:
    lock, running, most = threading.Lock(), 0, 0

    def work(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1

    parallel_map(work, range(40), 4)
    assert 2 <= most <= 4


def test_the_first_error_is_raised_and_no_call_starts_after_it() -> None:
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        if number in (3, 4):
            raise ValueError(number)

    with pytest.raises(ValueError, match="3"):
        parallel_map(work, range(1000), 1)
    assert begun == [0, 1, 2, 3]
    begun.clear()
    with pytest.raises(ValueError, match=r"[34]"):
        parallel_map(work, range(100_000), 4)
    assert len(begun) < 100_000
    assert parallel_map(abs, [-1, -2]) == [1, 2], "the threads are there afterwards"


@pytest.mark.rest
def test_nested_work_ends_though_all_threads_wait() -> None:
    def outer(number: int) -> int:
        return sum(parallel_map(lambda n: sum(parallel_map(lambda k: k, [n, number, 1])), range(20), 16))

    assert parallel_map(outer, range(64), 64) == [sum(n + number + 1 for n in range(20)) for number in range(64)]


def test_a_background_call_gives_its_result_or_its_error() -> None:
    started = threading.Event()
    result = in_background(started.set)
    result()
    assert started.is_set()

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_background(fails)()


def test_the_waiting_thread_runs_work_that_no_other_has_started() -> None:
    gate = threading.Event()
    waiting = [in_background(gate.wait) for _ in range(64)]
    assert in_background(lambda: 7)() == 7
    gate.set()
    assert all(end() for end in waiting)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    parallel_map(abs, [-1, -2])
    child = os.fork()
    if not child:
        os._exit(0 if parallel_map(abs, [-1, -2, -3], 3) == [1, 2, 3] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class _Meeting:
    """Its value is there when as many make theirs at the same time as the barrier waits for."""

    def __init__(self, barrier: threading.Barrier) -> None:
        self.barrier = barrier
        self.made = 0

    @once
    def value(self) -> int:
        self.made += 1
        return self.barrier.wait(10)


def test_objects_of_one_class_make_their_values_at_the_same_time_each_once() -> None:
    barrier = threading.Barrier(3)
    meetings = [_Meeting(barrier) for _ in range(3)]
    assert sorted(parallel_map(lambda m: m.value, meetings, 3)) == [0, 1, 2]
    assert [m.value for m in meetings] == [m.__dict__["value"] for m in meetings]
    assert [m.made for m in meetings] == [1, 1, 1]


def test_calls_that_follow_each_other_go_to_one_thread() -> None:
    in_background(threading.get_ident)()
    threads: set[int] = set()
    for _ in range(50):
        done = threading.Event()
        in_background(lambda done=done: (threads.add(threading.get_ident()), done.set()))
        assert done.wait(10)
        time.sleep(0.001)  # the thread is idle again
    assert len(threads) <= 2


def test_many_calls_at_a_time_each_have_a_thread() -> None:
    together = threading.Barrier(20)
    waiting = [in_background(lambda: together.wait(10)) for _ in range(19)]
    together.wait(10)
    assert {call() for call in waiting} <= {*range(20)}
