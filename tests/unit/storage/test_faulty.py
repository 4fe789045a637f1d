"""Faults strike where they are told to, leave what they say, and can be run again."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from lakebed.errors import StorageError
from lakebed.storage import Storage, open_storage
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import MODES, FaultPlan, FaultyStorage, Killed, Mode, crash_at


def work(storage: Storage) -> None:
    """Six mutations, of every kind."""
    storage.put_if_absent("t/1.requested", b"request")
    with storage.create("p/data") as upload:
        upload.write(b"12345678")
    storage.put_if_match("lock", b"mine", None)
    storage.write("t/x", b"properties")
    storage.delete("t/x")
    storage.write("m/1", b"")
    storage.delete_folder("m")


def run(storage: Storage) -> type[BaseException] | None:
    try:
        work(storage)
    except (StorageError, Killed) as error:
        return type(error)
    return None


def state(storage: Storage) -> dict[str, bytes]:
    return {info.path: storage.read(info.path) for info in storage.list()}


def test_counting_run_names_every_mutation() -> None:
    storage = FaultyStorage(MemoryStorage(uuid.uuid4().hex))
    assert run(storage) is None
    assert [str(m) for m in storage.mutations] == [
        "put_if_absent t/1.requested",
        "create p/data",
        "put_if_match lock",
        "write t/x",
        "delete t/x",
        "write m/1",
        "delete m/1",
    ]
    assert not storage.crash.fired


@pytest.mark.every_case
@pytest.mark.parametrize("at", range(1, 8))
@pytest.mark.parametrize("mode", MODES)
def test_every_point_in_every_mode(at: int, mode: Mode) -> None:
    before, after = _prefix_state(at - 1), _prefix_state(at)
    inner = MemoryStorage(uuid.uuid4().hex)
    storage = FaultyStorage(inner, FaultPlan(at, mode))
    raised = run(storage)
    assert raised is (Killed if mode in ("kill", "torn", "unacknowledged") else StorageError)
    assert storage.crash.fired
    assert state(inner) == (after if mode in ("unacknowledged", "doubtful") else before)
    if raised is Killed:
        for call in _every_call(storage):
            with pytest.raises(Killed):
                call()
        assert len(storage.mutations) == at
    else:
        work(FaultyStorage(MemoryStorage(uuid.uuid4().hex)))


def _prefix_state(count: int) -> dict[str, bytes]:
    inner = MemoryStorage(uuid.uuid4().hex)
    run(FaultyStorage(inner, FaultPlan(count + 1, "kill")))
    return state(inner)


def _every_call(storage: FaultyStorage) -> list[Callable[[], object]]:
    return [
        lambda: storage.read("x"),
        lambda: storage.head("x"),
        lambda: list(storage.list()),
        lambda: storage.list_folders(),
        lambda: storage.read_versioned("x"),
        lambda: storage.read_ranges("x", [(0, 1)]),
        lambda: storage.open_input("x"),
        lambda: storage.write("x", b""),
        lambda: storage.put_if_absent("x", b""),
        lambda: storage.create("x"),
        lambda: storage.delete("x"),
        lambda: storage.delete_folder("x"),
    ]


@pytest.mark.parametrize("mode", ["doubtful", "lost"])
def test_a_lost_answer_is_an_error_in_doubt(mode: Mode) -> None:
    inner = MemoryStorage(uuid.uuid4().hex)
    with pytest.raises(StorageError) as error:
        FaultyStorage(inner, FaultPlan(1, mode)).put_if_absent("x", b"1")
    assert error.value.context["doubtful"] is True
    assert error.value.retryable
    assert (inner.head("x") is not None) == (mode == "doubtful")


def test_a_torn_folder_deletion_leaves_the_other_files() -> None:
    inner = MemoryStorage(uuid.uuid4().hex)
    for number in range(4):
        inner.write(f"m/{number}", b"")
    with pytest.raises(Killed):
        FaultyStorage(inner, FaultPlan(3, "kill")).delete_folder("m")
    assert sorted(state(inner)) == ["m/2", "m/3"]


def test_a_power_cut_on_a_local_disk(tmp_path: Path) -> None:
    for unlinked, left in ((True, []), (False, [".data.tmp"])):
        root = tmp_path / str(unlinked)
        inner = LocalStorage(str(root), unlinked=unlinked)
        storage = FaultyStorage(inner, FaultPlan(1, "torn"))
        with pytest.raises(Killed), storage.create("p/data") as upload:
            upload.write(b"x" * 3_000_000)
        assert sorted(p.name for p in root.rglob("*") if p.is_file()) == left
        with pytest.raises(Killed):
            FaultyStorage(inner, FaultPlan(1, "torn")).write("q", b"12345678")
        assert inner.head("q") is None


def test_crash_at_reaches_storages_that_others_open(tmp_path: Path) -> None:
    uri = str(tmp_path)
    with crash_at(2) as crash:
        open_storage(uri).write("a", b"1")
        with pytest.raises(Killed):
            open_storage(uri).write("b", b"1")
        with pytest.raises(Killed):
            open_storage(uri).read("a")
    assert crash.fired
    assert str(crash) == "kill at mutation 2; 2 mutations\n   1. write a\n-> 2. write b"
    assert sorted(state(open_storage(uri))) == ["a"]
    with crash_at(0) as count:
        work(open_storage(uri))
    assert len(count.mutations) == 7
