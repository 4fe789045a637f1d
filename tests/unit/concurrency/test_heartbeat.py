"""Who is dead: by the heartbeat's age, by the process it names, by the traces of a write without one."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

import pytest
import time_machine

from lakebed.concurrency.heartbeat import (
    Heartbeat,
    ProcessIdentity,
    has_ended,
    heartbeat_path,
    is_dead,
    process_start,
    remove_heartbeat,
    this_process,
)
from lakebed.concurrency.markers import write_marker
from lakebed.storage import Storage, open_storage
from lakebed.testing import FaultPlan, FaultyStorage, Killed
from support.processes import another_process, kill
from support.steady_time import later

T = "20240101000000000"


@pytest.fixture
def storage() -> Storage:
    return open_storage(f"memory://{uuid.uuid4().hex}")


def body_of(storage: Storage) -> dict[str, object]:
    return json.loads(storage.read(heartbeat_path(T)))


def test_a_beating_write_lives_and_a_stopped_one_does_not(storage: Storage) -> None:
    heartbeat = Heartbeat(storage, T, "w1")
    heartbeat.start()
    assert not is_dead(storage, T)
    assert body_of(storage) == {**this_process().to_json(), "writerId": "w1", "intervalSeconds": 60.0}
    heartbeat.stop()
    heartbeat.stop()
    assert storage.head(heartbeat_path(T)) is not None
    assert is_dead(storage, T)
    heartbeat.remove()
    assert storage.head(heartbeat_path(T)) is None


def test_another_writer_of_this_process_with_the_same_instant_is_another(storage: Storage) -> None:
    with Heartbeat(storage, T, "w1"):
        pass
    with Heartbeat(storage, T, "w2"):
        assert not is_dead(storage, T)
    assert is_dead(storage, T)


def test_a_started_heartbeat_is_written_again_and_again(storage: Storage) -> None:
    first = Heartbeat(storage, T, "w1", interval=0.005)
    first.start()
    seen = storage.read_versioned(heartbeat_path(T)).version
    while storage.read_versioned(heartbeat_path(T)).version == seen:
        time.sleep(0.002)
    first.remove()
    assert storage.head(heartbeat_path(T)) is None


def test_a_killed_writer_is_dead_at_once() -> None:
    inner = open_storage(f"memory://{uuid.uuid4().hex}")
    faulty = FaultyStorage(inner, FaultPlan(2, "kill"))
    heartbeat = Heartbeat(faulty, T, "w1", interval=0.005)
    heartbeat.start()
    while not is_dead(inner, T):
        time.sleep(0.002)
    assert faulty.crash.dead
    heartbeat.stop()
    with pytest.raises(Killed):
        heartbeat.remove()


def test_a_start_that_fails_leaves_nothing_beating(storage: Storage) -> None:
    faulty = FaultyStorage(storage, FaultPlan(1, "unacknowledged"))
    with pytest.raises(Killed):
        Heartbeat(faulty, T, "w1").start()
    assert storage.head(heartbeat_path(T)) is not None
    assert is_dead(storage, T)


@pytest.mark.parametrize(
    "unlike", [{"host": "elsewhere"}, {"boot": "other"}, {"pidNamespace": "pid:[1]"}, {"boot": ""}]
)
def test_a_process_elsewhere_is_judged_by_age(storage: Storage, unlike: dict[str, str]) -> None:
    body = {**this_process().to_json(), "pid": 4_000_000, "writerId": "w", **unlike}
    storage.write(heartbeat_path(T), json.dumps(body).encode())
    assert not is_dead(storage, T)
    with later(119):
        assert not is_dead(storage, T)
    with later(121):
        assert not is_dead(storage, T, interval=300)
        assert is_dead(storage, T)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_process_elsewhere_is_not_judged_by_the_clock_here(storage: Storage, hours: int) -> None:
    storage.write(heartbeat_path(T), b"")
    assert not is_dead(storage, T)
    with time_machine.travel(time.time() + hours * 3600):
        assert not is_dead(storage, T)
        storage.write(heartbeat_path(T), b"")
        assert not is_dead(storage, T)
        with later(121):
            assert is_dead(storage, T)


def test_a_beat_restarts_the_time(storage: Storage) -> None:
    for beat in range(4):
        storage.write(heartbeat_path(T), b"")
        with later(100 * beat):
            assert not is_dead(storage, T)
        time.sleep(0.002)
    with later(421):
        assert is_dead(storage, T)


def test_where_storage_stamps_files_a_new_process_knows_the_dead(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.write(heartbeat_path(T), b"")
    for hours in (-1, 1):
        with time_machine.travel(time.time() + hours * 3600):
            stamp = time.time() - hours * 3600
            os.utime(tmp_path / heartbeat_path(T), (stamp - 115, stamp - 115))
            assert not is_dead(storage, T)
            os.utime(tmp_path / heartbeat_path(T), (stamp - 122, stamp - 122))
            assert is_dead(storage, T)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [T]


@pytest.mark.parametrize("interval", [float("nan"), float("inf"), True, "60"])
def test_an_unreadable_interval_counts_as_the_default(storage: Storage, interval: object) -> None:
    storage.write(heartbeat_path(T), json.dumps({"intervalSeconds": interval}).encode())
    assert not is_dead(storage, T)
    with later(121):
        assert is_dead(storage, T)


def test_the_body_says_its_own_interval(storage: Storage) -> None:
    body = {**this_process().to_json(), "host": "elsewhere", "intervalSeconds": 300}
    storage.write(heartbeat_path(T), json.dumps(body).encode())
    assert not is_dead(storage, T)
    with later(599):
        assert not is_dead(storage, T)
    with later(601):
        assert is_dead(storage, T)


@pytest.mark.parametrize("body", [b"", b"\0garbage", b"[1]", b"[" * 100_000])
def test_hudis_own_heartbeat_is_judged_by_age(storage: Storage, body: bytes) -> None:
    storage.write(heartbeat_path(T), body)
    assert not is_dead(storage, T)
    with later(61):
        assert is_dead(storage, T, tolerable_misses=1)
    with later(119):
        assert not is_dead(storage, T)
    with later(121):
        assert is_dead(storage, T)


def test_a_process_id_that_came_back_is_another_process(storage: Storage) -> None:
    body = {**this_process().to_json(), "pid": os.getppid(), "processStart": "1"}
    storage.write(heartbeat_path(T), json.dumps(body).encode())
    assert is_dead(storage, T)
    body["processStart"] = process_start(os.getppid())
    storage.write(heartbeat_path(T), json.dumps(body).encode())
    assert not is_dead(storage, T)


def test_a_process_of_this_machine_lives_until_it_is_killed(tmp_path: Path) -> None:
    program = """
        import sys
        from lakebed.storage import open_storage
        from lakebed.concurrency.heartbeat import Heartbeat
        Heartbeat(open_storage(sys.argv[1]), sys.argv[2], "w").start()
        print("ready", flush=True)
        sys.stdin.read()
    """
    storage = open_storage(str(tmp_path))
    with another_process(program, str(tmp_path), T) as process:
        assert not is_dead(storage, T)
        kill(process)
        assert is_dead(storage, T)


class TestWithoutHeartbeat:
    """Real Hudi's single writers."""

    def test_a_write_without_any_trace_is_dead(self, storage: Storage) -> None:
        assert is_dead(storage, T)

    @pytest.mark.parametrize("path", [f".hoodie/timeline/{T}.inflight", f".hoodie/{T}.commit.requested"])
    def test_a_fresh_timeline_file_keeps_a_write_without_heartbeat_alive(self, storage: Storage, path: str) -> None:
        storage.write(path, b"")
        self.dies_after_grace(storage)

    def test_a_timeline_in_another_folder_is_looked_at_too(self, storage: Storage) -> None:
        storage.write(f".hoodie/other/{T}.inflight", b"")
        assert not is_dead(storage, T, timeline_folder=".hoodie/other")

    def test_a_fresh_marker_keeps_a_write_without_heartbeat_alive(self, storage: Storage) -> None:
        write_marker(storage, T, "p", "f_0_1.parquet", "CREATE")
        self.dies_after_grace(storage)

    def test_a_data_file_that_grows_keeps_a_write_without_heartbeat_alive(self, tmp_path: Path) -> None:
        storage = open_storage(str(tmp_path))
        write_marker(storage, T, "p", "f_0_1.parquet", "CREATE")
        marker = next(tmp_path.rglob("*.marker.CREATE"))
        os.utime(marker, (1, 1))
        assert is_dead(storage, T)
        storage.write("p/f_0_1.parquet", b"growing")
        self.dies_after_grace(storage)

    def test_traces_of_another_instant_do_not_count(self, storage: Storage) -> None:
        storage.write(".hoodie/timeline/20240101000000001.inflight", b"")
        assert is_dead(storage, T)

    @staticmethod
    def dies_after_grace(storage: Storage) -> None:
        assert not is_dead(storage, T, grace=60)
        with later(59):
            assert not is_dead(storage, T, grace=60)
        with later(61):
            assert is_dead(storage, T, grace=60)


def test_removing_a_heartbeat_that_is_not_there_is_no_error(storage: Storage) -> None:
    remove_heartbeat(storage, T)


def test_this_process_has_an_identity_and_is_alive() -> None:
    here = this_process()
    assert here == ProcessIdentity.from_json(here.to_json())
    assert here.pid == os.getpid()
    assert here.start
    assert not has_ended(here)
    assert ProcessIdentity.from_json({}) is None
