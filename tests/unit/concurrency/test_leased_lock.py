"""What all locks share, shown by a lock of a service in memory: the queue of the process, renewal, and forks."""

from __future__ import annotations

import os
import threading
import uuid

import pytest

from lakebed.concurrency import lock
from lakebed.concurrency.lock import LeasedLock, default_lock
from lakebed.errors import LockTimeout, StorageError
from lakebed.model import LOCK_FILE
from lakebed.storage import open_storage
from lakebed.storage.base import refused
from support.counting_lease import CountingLease
from support.steady_time import later


@pytest.fixture
def where() -> str:
    return f"a test {uuid.uuid4().hex}"


def failure(*, retryable: bool) -> StorageError:
    return refused("the service does not answer", url="a test", retryable=retryable)


def test_a_thread_that_waits_for_another_one_asks_the_service_nothing(where: str) -> None:
    held: set[object] = set()
    first, second = CountingLease(held, where), CountingLease(held, where)
    with first:
        with pytest.raises(LockTimeout, match=f"within 0.05 seconds: {where} is held by a test"):
            second.acquire(0.05)
        assert "try" not in second.asked
    with second:
        assert held == {second}
    assert first.asked == ["try", "let go"]
    assert not held


def test_a_thread_that_waits_takes_the_lock_when_it_is_given_back(where: str) -> None:
    held: set[object] = set()
    first, second = CountingLease(held, where), CountingLease(held, where)
    seen: list[set[object]] = []

    def take() -> None:
        second.acquire(30)
        seen.append(set(held))
        second.release()

    with first:
        thread = threading.Thread(target=take)
        thread.start()
    thread.join(30)
    assert seen == [{second}]
    assert not held


@pytest.mark.parametrize("retryable", [False, True])
def test_a_renewal_that_fails_keeps_the_lock_until_its_time_is_over(where: str, retryable: bool) -> None:
    with CountingLease(set(), where) as lease:
        lease.fails = failure(retryable=retryable)
        with later(59.9):
            assert lease.renew()
            assert lease.lock_is_held()
        with later(60.1):
            assert not lease.lock_is_held()
            with pytest.raises(StorageError, match="does not answer"):
                lease.renew()
            lease.fails = None
            assert lease.renew()
            assert lease.lock_is_held()


def test_a_lock_that_another_writer_took_is_lost_at_once(where: str) -> None:
    held: set[object] = set()
    with CountingLease(held, where) as lease:
        held.clear()
        assert not lease.renew()
        assert not lease.lock_is_held()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_drops_a_lock_without_a_request_and_can_take_it_itself(where: str) -> None:
    held: set[object] = set()
    with CountingLease(held, where) as lease:
        child = os.fork()
        if child == 0:
            try:
                asked = len(lease.asked)
                assert not lease.lock_is_held()
                assert not lease.renew()
                lease.release()
                assert len(lease.asked) == asked
                held.clear()
                with lease:
                    assert lease.lock_is_held()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert lease.lock_is_held()
    assert lease.asked == ["try", "let go"]


def test_a_lock_has_another_owner_each_time_it_is_taken(where: str) -> None:
    lease, owners = CountingLease(set(), where), set[str]()
    for _ in range(2):
        with lease:
            owners |= set(lock.holding)
    assert len(owners) == 2
    assert not lock.holding


def test_a_file_is_a_lease_like_that_of_a_service() -> None:
    assert isinstance(default_lock(open_storage(f"memory://{uuid.uuid4().hex}")), LeasedLock)


def test_a_file_lock_that_was_not_taken_is_given_back_without_a_request() -> None:
    storage = open_storage(f"memory://{uuid.uuid4().hex}")
    with default_lock(storage):
        before = storage.read_versioned(LOCK_FILE)
        with pytest.raises(LockTimeout):
            default_lock(storage).acquire(0.0)
        after = storage.read_versioned(LOCK_FILE)
    assert (after.data, after.version) == (before.data, before.version)
