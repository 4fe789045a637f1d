"""Writes of this process on a slow store: no file before marker and inflight instant, nothing left under way."""

from __future__ import annotations

import threading

import pytest

from lakebed.concurrency.markers import (
    check_marker,
    delete_markers,
    list_markers,
    local_write,
    write_marker,
    write_markers,
)
from lakebed.errors import CommitConflict
from lakebed.storage.memory import MemoryStorage

INSTANT = "20260101000000000"
FILE = "f1_0-0-0_20260101000000000.parquet"


@pytest.fixture
def storage() -> MemoryStorage:
    MemoryStorage.drop("local-writes")
    return MemoryStorage("local-writes")


@pytest.mark.parametrize("several", [False, True])
def test_a_marker_is_written_at_once_and_its_file_waits_for_the_inflight_instant(
    storage: MemoryStorage, several: bool
) -> None:
    allowed, shown = threading.Event(), threading.Event()

    def show() -> None:
        assert allowed.wait(10)
        shown.set()

    seen: list[bool] = []

    def task() -> None:
        if several:
            write_markers(storage, INSTANT, [("p", FILE)], "CREATE")
        else:
            write_marker(storage, INSTANT, "p", FILE, "CREATE")
        seen.append(shown.is_set())

    with local_write(storage, INSTANT, show):
        writer = threading.Thread(target=task)
        writer.start()
        while not list_markers(storage, INSTANT):
            assert writer.is_alive()
        assert not shown.is_set()
        assert not seen
        allowed.set()
        writer.join(10)
    assert seen == [True]


def test_each_marker_raises_what_kept_the_instant_from_being_inflight(storage: MemoryStorage) -> None:
    def show() -> None:
        raise CommitConflict("another writer has created it already")

    def write() -> None:
        with local_write(storage, INSTANT, show):
            for _ in range(2):
                with pytest.raises(CommitConflict, match="created it already"):
                    write_marker(storage, INSTANT, "p", FILE, "CREATE")

    with pytest.raises(CommitConflict, match="created it already"):
        write()


def test_a_block_that_fails_ends_after_all_that_is_under_way(storage: MemoryStorage) -> None:
    allowed, done = threading.Event(), list[str]()

    def slow(what: str) -> None:
        assert allowed.wait(10)
        done.append(what)

    def write() -> None:
        with local_write(storage, INSTANT, lambda: slow("inflight")) as write:
            write.begin(lambda: slow("look"))
            threading.Timer(0.05, allowed.set).start()
            raise ValueError("of a task")

    with pytest.raises(ValueError, match="of a task"):
        write()
    assert sorted(done) == ["inflight", "look"]


def test_a_missing_marker_deletes_the_file_and_stops_the_write_when_it_completes(storage: MemoryStorage) -> None:
    with local_write(storage, INSTANT, lambda: None) as write:
        write_marker(storage, INSTANT, "p", FILE, "CREATE")
        storage.write(f"p/{FILE}", b"rows")
        check_marker(storage, INSTANT, f"p/{FILE}", "CREATE")
    write.finish()
    assert storage.read(f"p/{FILE}") == b"rows"
    with local_write(storage, INSTANT, lambda: None) as write:
        delete_markers(storage, INSTANT)  # as another writer's rollback does
        check_marker(storage, INSTANT, f"p/{FILE}", "CREATE")
    with pytest.raises(CommitConflict, match=f"{INSTANT} was over before .*{FILE} was written"):
        write.finish()
    assert storage.head(f"p/{FILE}") is None


def test_a_write_of_another_instant_or_process_is_looked_at_where_it_is_written(storage: MemoryStorage) -> None:
    storage.write(f"p/{FILE}", b"rows")
    with (
        local_write(storage, "20260101000000001", lambda: None),
        pytest.raises(CommitConflict, match="was over before"),
    ):
        check_marker(storage, INSTANT, f"p/{FILE}", "CREATE")
    assert storage.head(f"p/{FILE}") is None
