"""A process that is forked beside threads that write: the copy waits for none of them, and holds nothing of theirs."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import lakebed
from lakebed import sharing
from lakebed.concurrency.heartbeat import Heartbeat, heartbeat_path, is_dead
from lakebed.concurrency.lock import FileLock, default_lock
from lakebed.model import LOCK_FILE
from lakebed.operations.transaction import Transaction
from lakebed.storage import open_storage

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
SOURCE = Path(lakebed.__file__).parent


def in_a_fork(work: Callable[[], object]) -> int:
    """The exit code of a forked process that does this, 0 where it is right; it is killed after a while."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(30)
            work()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_beside_writing_threads_writes_too(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), [{"id": -1, "v": 0}], key="id")
    is_over = threading.Event()

    def write(number: int) -> None:
        while not is_over.is_set():
            table.upsert([{"id": number, "v": 1}], retries=30)
            time.sleep(0.05)  # the fork writes in between

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(100, 104):
            assert in_a_fork(lambda n=number: table.upsert([{"id": n, "v": n}], retries=30)) == 0
            assert in_a_fork(lambda n=number: lakebed.open(table.uri).get([n]).to_pylist()) == 0
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert {(row["id"], row["v"]) for row in table.scan().to_arrow().to_pylist()} == {
 *((n, 1) for n in range(3)), *((n, n) for n in range(100, 104))
    }  # fmt: skip


def test_locks_that_threads_hold_are_free_in_a_fork(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), [{"id": 1, "v": 0}], key="id")
    table.get([1])
    began, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        locks = list(sharing._locks)
        for lock in locks:
            lock.acquire()
        began.set()
        is_over.wait(30)
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    assert began.wait(10)

    def work() -> None:
        table.upsert([{"id": 1, "v": 1}])
        assert table.get([1]).column("v").to_pylist() == [1]
        other = lakebed.create(f"memory://{uuid.uuid4().hex}/t", [{"id": 2, "v": 2}], key="id")
        other.upsert([{"id": 2, "v": 2}])
        assert other.get([2]).column("v").to_pylist() == [2]

    code = in_a_fork(work)
    is_over.set()
    thread.join()
    assert code == 0


def test_a_lock_is_held_and_given_back_by_the_process_that_took_it(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    with default_lock(storage) as lock:
        before = storage.read(LOCK_FILE)

        def work() -> None:
            assert not lock.lock_is_held()
            assert not lock.renew()
            lock.release()
            assert storage.read(LOCK_FILE) == before

        assert in_a_fork(work) == 0
        assert lock.lock_is_held()
        assert lock.renew()
    with FileLock(storage, wait_seconds=0):
        pass


def test_a_heartbeat_beats_in_the_process_that_began_it(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    path = heartbeat_path("20240101000000000")
    with Heartbeat(storage, "20240101000000000", interval=0.01) as heartbeat:

        def work() -> None:
            storage.write(path, b"{}")
            time.sleep(0.1)
            assert "heartbeat" not in " ".join(thread.name for thread in threading.enumerate())
            heartbeat.remove()
            assert storage.head(path) is not None

        assert in_a_fork(work) == 0
        deadline = time.monotonic() + 10
        while is_dead(storage, "20240101000000000"):
            assert time.monotonic() < deadline
        assert storage.head(path) is not None


def test_a_fork_in_a_write_does_not_take_the_write_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lakebed.create(str(tmp_path / "t"), [{"id": 1, "v": 0}], key="id")
    codes: list[int] = []
    real = Transaction.inflight

    def forks(self: Transaction, profile: bytes = b"") -> None:
        real(self, profile)
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            raise ChildProcessError
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    monkeypatch.setattr(Transaction, "inflight", forks)
    try:
        table.upsert([{"id": 1, "v": 1}])
    except ChildProcessError:
        os._exit(7)  # the fork, with the stack of its parent
    assert codes == [7]
    assert table.get([1]).column("v").to_pylist() == [1]


def test_no_lock_of_the_process_is_one_that_a_fork_would_find_taken() -> None:
    """Those of one call, of a server and of tests apart."""
    apart = {"testing.py", "sharing.py", "inspector/tables.py", "concurrency/process_queue.py", "engine/shuffle.py"}
    apart |= {"catalog_server/tables.py"}
    found: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text("utf-8")
        lines = re.findall(
            r"^.*(?:threading\.R?Lock\(|default_factory=threading\.R?Lock|import .*cached_property).*$", text, re.M
        )
        if lines and name not in apart:
            found[name] = [line.strip() for line in lines]
    assert found == {
        # of one file or write
        "storage/streams.py": ["self._lock = threading.Lock()"],
        "concurrency/markers.py": ["self._lock = threading.Lock()"],
        "progress.py": ["lines, count, lock = active.lines, [0], threading.Lock()"],
        # of dbt, which runs its models in threads
        "dbt_plugin/plugin.py": ["self._lock = threading.Lock()", "self._views = threading.Lock()"],
        # made anew in a fork
        "storage/atomic_file.py": ["self._lock = threading.Lock()"],
        "format/bounded_cache.py": ["self._lock = threading.Lock()"],
    }
