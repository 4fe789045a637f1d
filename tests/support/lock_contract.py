"""What every kind of lock must do, whoever keeps it: one suite, run over each."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from lakebed.concurrency.lock import Lock
from lakebed.errors import LockTimeout, StorageError
from support.steady_time import later

SECONDS = 3.0
"""For how long the locks of the suite are valid."""

_HOLD = """
    with make() as lock:
        print("ready", flush=True)
        sys.stdin.read()
"""
_TAKE = """
    print("ready", flush=True)
    with make() as lock:
        assert lock.lock_is_held()
        print(time.monotonic(), flush=True)
"""
_COUNT = """
    counter = Path(sys.argv[1])
    for _ in range(5):
        with make() as lock:
            seen = int(counter.read_text())
            time.sleep(0.005)
            assert lock.lock_is_held()
            counter.write_text(str(seen + 1))
"""


class LockContract(ABC):
    """A kind of lock says how it is made, here and in another process, how it is taken from its holder, and how it is
    when nobody answers."""

    @abstractmethod
    def code(self) -> str:
        """A Python expression of one that waits 60 seconds; another process makes it, too."""

    @abstractmethod
    def steal(self) -> None:
        """Take it from its holder, as someone does who thinks that it is dead."""

    @abstractmethod
    def unanswered(self) -> Lock | None:
        """One whose service is down; None for a kind without service."""

    def make(self) -> Lock:
        return eval(f"[{self.code()} for _ in '1'][0]", _names())

    def test_one_holder_at_a_time(self) -> None:
        first, second = self.make(), self.make()
        with first:
            assert first.lock_is_held()
            started = time.monotonic()
            with pytest.raises(LockTimeout) as told:
                second.acquire(0.4)
            assert 0.3 < time.monotonic() - started < 5
            assert "is held by" in told.value.message
            assert not second.lock_is_held()
            assert first.renew()
            assert first.lock_is_held()
        assert not first.lock_is_held()
        with second:
            assert second.lock_is_held()

    def test_it_is_not_taken_twice_by_one_object(self) -> None:
        lock = self.make()
        with lock:
            with pytest.raises(RuntimeError, match="held by this object"):
                lock.acquire(0)
            assert lock.lock_is_held()
        with lock:
            assert lock.lock_is_held()
        lock.release()
        lock.release()

    def test_who_waits_gets_it(self) -> None:
        first, second = self.make(), self.make()
        got: list[float] = []

        def waits() -> None:
            with second:
                got.append(time.monotonic())

        with first:
            thread = threading.Thread(target=waits)
            thread.start()
            time.sleep(0.5)
            assert not got
            let_go = time.monotonic()
        thread.join(30)
        assert got
        assert got[0] >= let_go

    def test_processes_that_count_lose_no_count(self, tmp_path: Path) -> None:
        counter = tmp_path / "counter"
        counter.write_text("0")
        writers = [self._process(_COUNT, str(counter)) for _ in range(3)]
        for writer in writers:
            out, err = writer.communicate(timeout=120)
            assert writer.returncode == 0, out + err
        assert counter.read_text() == "15"

    def test_a_holder_that_dies_loses_it(self) -> None:
        holder = self._process(_HOLD)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n", holder.communicate()
        with pytest.raises(LockTimeout):
            self.make().acquire(0.1)
        holder.kill()
        holder.communicate()
        started = time.monotonic()
        with self.make() as lock:
            assert lock.lock_is_held()
        assert time.monotonic() - started < 10 * SECONDS

    def test_a_frozen_holder_knows_that_its_time_is_over(self) -> None:
        with self.make() as lock:
            assert lock.lock_is_held()
            with later(400):
                assert not lock.lock_is_held()

    def test_a_holder_that_lost_its_lock_gets_an_error(self) -> None:
        lock = self.make()
        with lock:
            self.steal()
            assert not lock.renew()
            assert not lock.lock_is_held()
        with self.make() as other:
            lock.release()
            assert other.lock_is_held()
            assert other.renew()

    def test_a_service_that_is_down(self) -> None:
        lock = self.unanswered()
        if lock is None:
            pytest.skip("there is no service")
        with pytest.raises(StorageError) as told:
            lock.acquire(0.1)
        assert "does not answer" in told.value.message
        assert told.value.hint
        assert told.value.retryable
        assert not lock.lock_is_held()

    def _process(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        setting = f"import sys, time\nfrom pathlib import Path\n{_IMPORTS}\nmake = lambda: {self.code()}\n"
        return subprocess.Popen(
            [sys.executable, "-c", setting + textwrap.dedent(program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


class QueuedLockContract(LockContract):
    """Of locks whose service keeps a queue: whoever is next is the only one who can take it."""

    def test_the_queue_moves_on_at_once(self) -> None:
        with self.make():
            waiters = [self._process(_TAKE) for _ in range(4)]
            for waiter in waiters:
                assert waiter.stdout is not None
                assert waiter.stdout.readline() == "ready\n", waiter.communicate()
            time.sleep(4)
            started = time.monotonic()
        answers = [waiter.communicate(timeout=60) for waiter in waiters]
        assert [waiter.returncode for waiter in waiters] == [0] * len(waiters), answers
        assert max(float(out) for out, _ in answers) - started < 2


_IMPORTS = """
from lakebed.storage import open_storage
from lakebed.concurrency.dynamodb import DynamoDbLock
from lakebed.concurrency.hive import HiveMetastoreLock
from lakebed.concurrency.lock import FileLock, default_lock
from lakebed.model import HDFS_LOCK_FILE
from lakebed.concurrency.providers import NestedLock
from lakebed.concurrency.zookeeper import ZooKeeperLock
"""


def _names() -> dict[str, object]:
    names: dict[str, object] = {}
    exec(_IMPORTS, names)
    return names
