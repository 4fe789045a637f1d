"""Runs several calls at a time on threads that the process keeps, since the calls mostly wait for storage."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from operator import call
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.model import path_in

if TYPE_CHECKING:
    from lakebed.storage.base import Storage

T = TypeVar("T")
R = TypeVar("R")
_MAX_THREADS = 32
# How many small files are written or deleted at a time where answers are slow.
_AT_A_TIME = 16
# Threads at a time where a caller does not say. One alone reads files on a local disk that are smaller, in the mean.
_READERS = 8
_SMALL_FILE = 1 << 20
# So many calls at a time go to the threads that were used last.
_MAX_THREADS_AT_ONCE = 8
_pool: _Threads | None = None
_log = logging.getLogger("lakebed")


def parallel_map(work: Callable[[T], R], items: Sequence[T], threads: int = _READERS) -> list[R]:
    """The results of `work` for the items, in the order of `items`, computed on at most `threads` threads, including
    the caller's.

    After an error no further item is begun, and the error of the first item that had one is raised. `work` may call
    this function itself: a caller that waits works on its own items, so no thread waits for a free one.

    >>> parallel_map(str.upper, ["a", "b"])
    ['A', 'B']
    """
    if len(items) < 2 or threads < 2:
        return [work(item) for item in items]
    left = deque(range(len(items)))
    results: dict[int, R] = {}
    errors: dict[int, BaseException] = {}

    def run() -> None:
        while not errors:
            try:
                at = left.popleft()
            except IndexError:
                return
            try:
                results[at] = work(items[at])
            except BaseException as error:
                errors[at] = error

    helpers = [_threads().submit(run) for _ in range(min(threads, len(items)) - 1)]
    run()
    for helper in helpers:
        if not helper.cancel():  # one that has not begun is not needed any more
            helper.result()
    if errors:
        raise errors[min(errors)]
    return [results[at] for at in range(len(items))]


def is_remote(storage: Storage) -> bool:
    """Whether the storage is slow. On a fast storage threads for small amounts of work cost more than they save."""
    return not storage.url().startswith(("file:", "memory:"))


def threads_of_files(storage: Storage, sizes: Sequence[int]) -> int:
    """The number of threads to read files of these sizes in bytes: one for small files on a fast storage. Most of that
    work is Python, and threads take the interpreter from each other: measured twice the CPU time of one, and no
    gain."""
    is_small = sum(sizes) < _SMALL_FILE * len(sizes)
    return 1 if is_small and not is_remote(storage) else _READERS


def delete_files(
    storage: Storage, folder: str, names: Sequence[str], done: Callable[[str], None] | None = None
) -> None:
    """Delete files of one folder, several at a time if that is faster; `done` is called for each. Their deletion is
    made durable once, with the last of them."""

    def delete(name: str) -> None:
        storage.delete(path_in(folder, name), durable=name == names[-1])
        if done is not None:
            done(name)

    _one_last(storage, delete, names)


def write_each(storage: Storage, paths: Sequence[str], data: bytes) -> None:
    """`Storage.write_same` for a storage in which a file has only one name: several files at a time if that is faster.
    The last write makes all of them durable."""

    def write(path: str) -> None:
        storage.write(path, data, durable="later" if path == paths[-1] else False)

    _one_last(storage, write, paths)


def _one_last(storage: Storage, work: Callable[[T], R], items: Sequence[T]) -> None:
    """Call `work` for each item, several at a time on slow storage; the call for the last item starts after all others
    have ended."""
    parallel_map(work, items[:-1], _AT_A_TIME if is_remote(storage) else 1)
    parallel_map(work, items[-1:])


def in_background(work: Callable[[], R]) -> Callable[[], R]:
    """Start `work` on another thread. The returned function waits for its result, or calls `work` itself if no thread
    has begun it."""
    future = _threads().submit(work)

    def result() -> R:
        return work() if future.cancel() else future.result()

    return result


def at_once(storage: Storage, *work: Callable[[], object]) -> list[Any]:
    """The results of several independent calls: made at the same time on a slow storage, otherwise one after the other.
    Raises the error of the first call that has one."""
    return parallel_map(call, work, _AT_A_TIME if is_remote(storage) else 1)


def begun(storage: Storage, work: Callable[[], R]) -> Callable[[], R]:
    """Start `work`, whose result is needed later. The returned function waits for the result, and raises the errors of
    `work`. On a fast storage `work` runs immediately."""
    if is_remote(storage):
        return in_background(work)
    result = work()
    return lambda: result


def aside(storage: Storage, work: Callable[[], object]) -> None:
    """Call `work`, which no later step of this thread needs. On a slow storage another thread does it: the process
    waits for it when it ends, and its errors are logged."""

    def run() -> None:
        try:
            work()
        except BaseException:
            _log.debug("what was done aside failed", exc_info=True)

    if is_remote(storage):
        with suppress(RuntimeError):  # no thread begins while the process ends
            Thread(target=run, name="lakebed-aside").start()
            return
    work()


class _Threads:
    """A set of threads that gives a call to the thread that became idle last; if more calls than usual run at a time,
    to a thread of a pool.

    What a thread frees stays with it, in Arrow's pool and in the C library: if calls go to few threads, few hold it.
    """

    def __init__(self) -> None:
        self._idle: list[ThreadPoolExecutor] = []
        # a pool starts its thread with its first call
        self._unused = [ThreadPoolExecutor(1, thread_name_prefix=f"lakebed-{n}") for n in range(_MAX_THREADS_AT_ONCE)]
        self._others = ThreadPoolExecutor(_MAX_THREADS - _MAX_THREADS_AT_ONCE, thread_name_prefix="lakebed")

    def submit(self, work: Callable[[], R]) -> Future[R]:
        thread: ThreadPoolExecutor | None = None
        with suppress(IndexError):  # another thread may have taken the last one meanwhile
            thread = self._idle.pop() if self._idle else self._unused.pop()
        if thread is None:
            return self._others.submit(work)
        future = thread.submit(work)
        future.add_done_callback(lambda _: self._idle.append(thread))
        return future


def _threads() -> _Threads:
    global _pool
    if _pool is None:
        _pool = _Threads()
    return _pool


def _forget() -> None:
    """Start without threads in a forked process, which has none of its parent's."""
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget)
