"""The table lock: one holder at a time, in threads and processes, through crashes and lost answers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import time_machine

from lakebed.concurrency.heartbeat import this_process
from lakebed.concurrency.lock import FileLock, default_lock
from lakebed.errors import LockTimeout
from lakebed.model import HDFS_LOCK_FILE, LOCK_FILE
from lakebed.storage import Storage, open_storage
from lakebed.testing import CountingStorage, FaultPlan, FaultyStorage, Killed, Mode
from support.processes import another_process, kill
from support.request_rounds import RemoteStorage, RequestClock
from support.steady_time import later

HOLD = """
    import sys
    from lakebed.storage import open_storage
    from lakebed.concurrency.lock import default_lock
    with default_lock(open_storage(sys.argv[1])):
        print("ready", flush=True)
        sys.stdin.read()
"""


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return open_storage(f"memory://{uuid.uuid4().hex}" if request.param == "memory" else str(tmp_path))


def body_of(storage: Storage) -> dict[str, object]:
    return json.loads(storage.read(LOCK_FILE))


def put_body(storage: Storage, **fields: object) -> None:
    body = {"expired": False, "validUntil": int((time.time() + 300) * 1000), "owner": "their-uuid", **fields}
    storage.write(LOCK_FILE, json.dumps(body).encode())


def is_free(storage: Storage) -> bool:
    try:
        with default_lock(storage, wait_seconds=0):
            return True
    except LockTimeout:
        return False


def test_the_lock_file_has_hudis_fields(storage: Storage) -> None:
    before = time.time()
    with default_lock(storage) as lock:
        body = body_of(storage)
        assert list(body)[:3] == ["expired", "validUntil", "owner"]
        assert body["expired"] is False
        assert before + 299 < float(str(body["validUntil"])) / 1000 < time.time() + 301
        assert uuid.UUID(str(body["owner"]))
        assert lock.lock_is_held()
    assert body_of(storage) == {**body, "expired": True, "validUntil": body_of(storage)["validUntil"]}
    assert not lock.lock_is_held()
    assert is_free(storage)


def test_a_lock_object_is_reusable_but_not_twice_at_once(storage: Storage) -> None:
    lock = default_lock(storage)
    with lock:
        with pytest.raises(RuntimeError):
            lock.acquire(0)
        assert lock.lock_is_held()
    with lock:
        assert lock.lock_is_held()
    lock.release()


def test_the_lock_is_released_when_the_block_raises(storage: Storage) -> None:
    with pytest.raises(KeyError), default_lock(storage):
        raise KeyError
    assert is_free(storage)


def test_threads_that_count_under_the_lock_lose_no_count(storage: Storage) -> None:
    storage.write("n", b"0")

    def add() -> None:
        for _ in range(10):
            with default_lock(storage, wait_seconds=60):
                storage.write("n", str(int(storage.read("n")) + 1).encode())

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storage.read("n") == b"40"


@pytest.mark.rest
def test_processes_that_count_under_the_lock_lose_no_count(tmp_path: Path) -> None:
    program = """
        import sys
        from lakebed.storage import open_storage
        from lakebed.concurrency.lock import default_lock
        storage = open_storage(sys.argv[1])
        for _ in range(8):
            with default_lock(storage, wait_seconds=60):
                storage.write("n", str(int(storage.read("n")) + 1).encode())
    """
    storage = open_storage(str(tmp_path))
    storage.write("n", b"0")
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert storage.read("n") == b"16"


def test_timeout_names_the_holder(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    with another_process(HOLD, str(tmp_path)) as process:
        with pytest.raises(LockTimeout) as error, default_lock(storage, wait_seconds=0.05):
            pass
        owner = str(body_of(storage)["owner"])
        for part in (owner, f"process {process.pid}", LOCK_FILE, "until 20"):
            assert part in str(error.value)
        assert error.value.context["owner"] == owner
        assert error.value.retryable


def test_a_killed_process_frees_it_at_once(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    with another_process(HOLD, str(tmp_path)) as process:
        assert not is_free(storage)
        kill(process)
        assert is_free(storage)


def test_a_process_that_ends_well_frees_it(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    with another_process(HOLD, str(tmp_path)) as process:
        process.communicate("")
    assert body_of(storage)["expired"] is True


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_hudis_lock_is_over_when_it_stayed_unchanged_whatever_its_clock_said(storage: Storage, hours: int) -> None:
    put_body(storage, validUntil=int((time.time() + hours * 3600) * 1000))
    assert not is_free(storage)
    with later(300.4):
        assert not is_free(storage), "half a second of drift is allowed for"
    with later(300.6):
        assert is_free(storage)


def test_hudis_lock_that_was_given_back_is_free(storage: Storage) -> None:
    put_body(storage, expired=True)
    assert is_free(storage)


def test_a_renewal_by_another_host_restarts_the_time(storage: Storage) -> None:
    put_body(storage)
    assert not is_free(storage)
    with later(299):
        put_body(storage, validUntil=1)
        assert not is_free(storage)
    with later(599):
        assert not is_free(storage)
    with later(600):
        assert is_free(storage)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wall_clock_that_jumps_neither_frees_nor_loses_a_lock(storage: Storage, hours: int) -> None:
    with default_lock(storage) as lock, time_machine.travel(time.time() + hours * 3600):
        assert lock.lock_is_held()
        assert not is_free(storage)
    put_body(storage)
    with time_machine.travel(time.time() + hours * 3600):
        assert not is_free(storage)


def test_a_lock_says_for_how_long_it_is_valid(storage: Storage) -> None:
    body = {**this_process().to_json(), "host": "elsewhere", "validitySeconds": 20.0}
    put_body(storage, **body)
    assert not is_free(storage)
    with later(20.6):
        assert is_free(storage)
    with FileLock(storage, validity=20.0):
        assert body_of(storage)["validitySeconds"] == 20.0


def test_attempts_that_gave_up_count_and_the_error_says_what_is_left(storage: Storage) -> None:
    put_body(storage)
    with pytest.raises(LockTimeout, match="another 300 seconds"), default_lock(storage, wait_seconds=0):
        pass
    with (
        later(240),
        pytest.raises(LockTimeout, match=r"this process takes the lock over .* another 60 seconds"),
        default_lock(storage, wait_seconds=0),
    ):
        pass


@pytest.mark.rest
def test_where_storage_stamps_files_a_new_process_knows_the_dead(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    put_body(storage)
    os.utime(tmp_path / LOCK_FILE, (time.time() - 290, time.time() - 290))
    with pytest.raises(LockTimeout, match=r"another (8|9|10) seconds"), default_lock(storage, wait_seconds=1.5):
        pass
    put_body(storage, validUntil=int((time.time() + 3600) * 1000))
    os.utime(tmp_path / LOCK_FILE, (time.time() - 303, time.time() - 303))
    with time_machine.travel(time.time() - 3600), default_lock(storage, wait_seconds=5) as lock:
        assert lock.lock_is_held()
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == [".table_lock.json.guard", "table_lock.json"]


@pytest.mark.parametrize("unlike", [{"host": "elsewhere"}, {"boot": "other"}, {"pidNamespace": "pid:[1]"}])
def test_a_process_of_another_machine_is_never_taken_for_dead(storage: Storage, unlike: dict[str, str]) -> None:
    put_body(storage, **{**this_process().to_json(), "pid": 4_000_000, **unlike})
    assert not is_free(storage)


def test_a_lock_that_this_process_abandoned_is_free(storage: Storage) -> None:
    put_body(storage, **this_process().to_json())
    assert is_free(storage)


def test_a_forked_child_waits_its_turn_and_gets_it(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    with default_lock(storage):
        child = os.fork()
        if child == 0:
            try:
                with default_lock(storage, wait_seconds=30):
                    os._exit(0)
            finally:
                os._exit(1)
        time.sleep(0.02)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_someone_elses_object_in_this_process_keeps_it(storage: Storage) -> None:
    with default_lock(storage):
        assert not is_free(storage)


def test_renewal_prolongs_the_lock(storage: Storage) -> None:
    with FileLock(storage, renew_every=0.005) as lock:
        first = body_of(storage)
        while body_of(storage)["validUntil"] == first["validUntil"]:
            time.sleep(0.002)
        assert body_of(storage)["owner"] == first["owner"]
        assert lock.lock_is_held()
        assert lock.renew()


def test_a_lock_whose_time_is_over_is_not_held(storage: Storage) -> None:
    with default_lock(storage) as lock:
        with later(299):
            assert lock.lock_is_held()
        with later(299.7):
            assert not lock.lock_is_held()
            assert lock.renew()
            assert lock.lock_is_held()


def test_a_lock_whose_time_was_over_is_given_back_all_the_same(storage: Storage) -> None:
    with default_lock(storage):
        inside = later(400)
        inside.__enter__()
    inside.__exit__(None, None, None)
    assert body_of(storage)["expired"] is True


def test_a_lock_that_was_taken_over_is_not_given_back(storage: Storage) -> None:
    with default_lock(storage) as lock:
        put_body(storage)
        assert not lock.renew()
        assert not lock.lock_is_held()
    assert body_of(storage)["owner"] == "their-uuid"
    assert body_of(storage)["expired"] is False


@pytest.mark.parametrize("mode", ["doubtful", "lost"])
@pytest.mark.parametrize("at", [1, 2])
def test_lost_answers_are_settled(storage: Storage, mode: Mode, at: int) -> None:
    faulty = FaultyStorage(storage, FaultPlan(at, mode))
    with default_lock(faulty, wait_seconds=5) as lock:
        assert lock.lock_is_held()
        assert not is_free(storage)
    assert is_free(storage)


@pytest.mark.parametrize("mode", ["kill", "torn", "unacknowledged"])
@pytest.mark.parametrize("at", [1, 2])
def test_a_dead_writer_leaves_it_free(storage: Storage, mode: Mode, at: int) -> None:
    faulty = FaultyStorage(storage, FaultPlan(at, mode))
    with pytest.raises(Killed), default_lock(faulty):
        pass
    assert is_free(storage)
    assert is_free(storage)


@pytest.mark.parametrize("body", [b"{not json", b"", b"[1]", b'{"owner": "x", "validUntil": NaN}', b"[" * 100_000])
def test_a_file_that_is_no_lock_is_taken_over_when_it_stays_so(storage: Storage, body: bytes) -> None:
    storage.write(LOCK_FILE, body)
    with (
        pytest.raises(LockTimeout, match=r"table_lock\.json is held by a file that is no lock file"),
        default_lock(storage, wait_seconds=0),
    ):
        pass
    with later(301):
        assert is_free(storage)
    assert body_of(storage)["expired"] is True


STAND = """
    import fcntl, os, sys
    fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    print("ready", flush=True)
    os.kill(os.getpid(), 19)
"""


@pytest.mark.rest
def test_a_process_that_is_stopped_while_it_changes_the_file_delays_others_no_longer_than_the_timeout(
    tmp_path: Path,
) -> None:
    storage = open_storage(str(tmp_path))
    assert is_free(storage)
    with another_process(STAND, str(tmp_path / ".hoodie/.locks/.table_lock.json.guard")) as process:
        started = time.monotonic()
        with pytest.raises(LockTimeout, match="process that is stopped"), default_lock(storage, wait_seconds=0.5):
            pass
        assert 0.5 <= time.monotonic() - started < 3
        os.kill(process.pid, signal.SIGCONT)
        process.wait(timeout=60)
        assert is_free(storage)


SMALL = """
    import resource, sys
    from lakebed.errors import StorageError
    from lakebed.storage import open_storage
    from lakebed.concurrency.lock import default_lock
    from lakebed.model import LOCK_FILE
    storage = open_storage(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    try:
        default_lock(storage, wait_seconds=5).acquire(5)
    except StorageError as error:
        print("ready" if not error.context.get("doubtful") else error, flush=True)
"""


def test_a_write_that_is_cut_short_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    assert is_free(storage)
    before = storage.read(LOCK_FILE)
    with another_process(SMALL, str(tmp_path)):
        assert storage.read(LOCK_FILE) == before
    assert is_free(storage)


@pytest.mark.rest
def test_a_waiting_thread_gets_the_lock_before_others_have_had_it_often(tmp_path: Path) -> None:
    program = """
        import sys, time
        from pathlib import Path
        from lakebed.storage import open_storage
        from lakebed.concurrency.lock import default_lock
        storage, turns = open_storage(sys.argv[1]), Path(sys.argv[1], "turns")
        print("ready", flush=True)
        name = sys.stdin.readline()
        while len(turns.read_text().split()) < 200:
            with default_lock(storage, wait_seconds=60):
                with turns.open("a") as file:
                    file.write(name)
                time.sleep(0.01)
    """
    (tmp_path / "turns").touch()
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(another_process(program, str(tmp_path))) for _ in range(4)]
        for process, name in zip(processes, "abcd", strict=True):
            assert process.stdin is not None
            process.stdin.write(f"{name}\n")
            process.stdin.flush()
        for process in processes:
            assert process.wait(timeout=120) == 0
    turns = "".join((tmp_path / "turns").read_text().split())
    longest_without = {name: max(map(len, turns.split(name))) for name in "abcd"}
    # in a line it would be 3; whoever wants the lock and is starved waits for all 200
    assert max(longest_without.values()) < 150, longest_without


def test_a_lock_that_timed_out_in_its_queue_reads_the_file_for_the_error_alone(storage: Storage) -> None:
    counting = CountingStorage(storage)
    with default_lock(storage), pytest.raises(LockTimeout), default_lock(counting, wait_seconds=0):
        pass
    assert counting.opened == [LOCK_FILE]
    assert counting.written == []


class TestLockThatIsThereOrNot:
    """Hudi's file-system lock, as on HDFS."""

    @staticmethod
    def lock(storage: Storage, wait_seconds: float = 0.0) -> FileLock:
        return FileLock(storage, HDFS_LOCK_FILE, wait_seconds=wait_seconds, release_deletes=True)

    def test_the_lock_file_of_hdfs_exists_while_the_lock_is_held(self, storage: Storage) -> None:
        with self.lock(storage) as lock:
            assert storage.head(".hoodie/lock") is not None
            assert lock.renew()
            with pytest.raises(LockTimeout), self.lock(storage):
                pass
        assert storage.head(".hoodie/lock") is None

    def test_hudis_empty_file_is_kept(self, storage: Storage) -> None:
        storage.write(".hoodie/lock", b"")
        with pytest.raises(LockTimeout, match="without a time limit"), self.lock(storage):
            pass
        storage.delete(".hoodie/lock")
        with self.lock(storage):
            pass

    def test_a_dead_writers_file_is_taken_over(self, storage: Storage) -> None:
        faulty = FaultyStorage(storage, FaultPlan(2, "kill"))
        with pytest.raises(Killed), self.lock(faulty):
            pass
        assert storage.head(".hoodie/lock") is not None
        with self.lock(storage):
            pass
        assert storage.head(".hoodie/lock") is None


class TestReadingBeside:
    """What the lock protects is read while it is taken, where it was seen free before on a slow store."""

    @pytest.fixture
    def inner(self) -> Storage:
        return open_storage(f"memory://{uuid.uuid4().hex}")

    @pytest.fixture
    def remote(self, inner: Storage) -> Storage:
        inner.write("state", b"1")
        storage = RemoteStorage(inner, RequestClock())
        with FileLock(storage, wait_seconds=0):  # its file is read ahead when it is given back
            pass
        for thread in threading.enumerate():
            if thread.name == "lakebed-aside":
                thread.join(30)
        return storage

    @staticmethod
    def reads(inner: Storage, seen: list[bytes]) -> bytes:
        seen.append(inner.read("state"))
        return seen[-1]

    def test_acquiring_an_unchanged_lock_gives_the_early_read(self, inner: Storage, remote: Storage) -> None:
        lock, seen = FileLock(remote), list[bytes]()
        result = lock.acquire_reading(0, lambda: self.reads(inner, seen))
        assert result() == b"1"
        assert seen == [b"1"]
        lock.release()

    def test_an_early_read_is_repeated_where_another_writer_had_the_lock(
        self, inner: Storage, remote: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with FileLock(inner, wait_seconds=0):  # the file has another version after that
            pass
        lock, seen, looked = FileLock(remote), list[bytes](), threading.Event()
        put = remote.put_if_match

        def put_after_the_look(*arguments: Any, **options: Any) -> bool:
            assert looked.wait(30)
            return put(*arguments, **options)

        def read() -> bytes:
            value = self.reads(inner, seen)
            inner.write("state", b"2")  # as the other writer does, after this look
            looked.set()
            return value

        monkeypatch.setattr(remote, "put_if_match", put_after_the_look)
        result = lock.acquire_reading(0, read)
        assert lock.lock_is_held()
        assert result() == b"2"
        assert seen == [b"1", b"2"]
        lock.release()

    def test_a_lock_that_is_held_is_waited_for_and_nothing_read_before_counts(
        self, inner: Storage, remote: Storage
    ) -> None:
        put_body(inner)  # of another process
        lock, seen = FileLock(remote), list[bytes]()

        def give_back() -> None:
            inner.write("state", b"2")
            put_body(inner, expired=True)

        threading.Timer(0.2, give_back).start()
        result = lock.acquire_reading(10, lambda: self.reads(inner, seen))
        assert result() == b"2"
        assert seen[-1] == b"2"
        lock.release()

    def test_an_error_of_the_read_comes_when_the_lock_is_held(self, remote: Storage) -> None:
        def read() -> None:
            raise ValueError("no such table")

        lock = FileLock(remote)
        result = lock.acquire_reading(0, read)
        assert lock.lock_is_held()
        with pytest.raises(ValueError, match="no such table"):
            result()
        lock.release()

    def test_near_storage_is_read_when_the_lock_is_held(self, storage: Storage) -> None:
        default_lock(storage, wait_seconds=0).__enter__().release()
        lock, held = FileLock(storage), list[bool]()
        result = lock.acquire_reading(0, lambda: held.append(lock.lock_is_held()))
        assert not held
        result()
        assert held == [True]
        lock.release()
