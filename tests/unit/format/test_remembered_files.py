"""Small files that a process has written to a slow store are not read from there again."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from lakebed.format.sources import MAX_REMEMBERED_FILE, FileSource, forget_written, remember_written
from lakebed.storage.base import Storage
from lakebed.storage.memory import MemoryStorage
from support.request_rounds import RemoteStorage, RequestClock


@pytest.fixture
def memory() -> Generator[MemoryStorage]:
    forget_written()
    yield MemoryStorage("remembered")
    MemoryStorage.drop("remembered")
    forget_written()


def reads(storage: Storage, clock: RequestClock, data: bytes) -> int:
    """The requests that the reading of a file takes that was written and remembered."""
    storage.write("a", data)
    remember_written(storage, "a", data)
    clock.requests.clear()
    whole = FileSource(storage, "a", len(data))
    assert bytes(whole.read(0, len(data))) == data
    assert [bytes(part) for part in whole.read_many([(2, 3), (7, 1)])] == [data[2:5], data[7:8]]
    return len(clock.requests)


@pytest.mark.parametrize(("size", "requests"), [(MAX_REMEMBERED_FILE, 0), (MAX_REMEMBERED_FILE + 1, 2)])
def test_a_small_file_of_a_slow_store_is_remembered(memory: MemoryStorage, size: int, requests: int) -> None:
    clock = RequestClock()
    assert (
        reads(RemoteStorage(memory, clock), clock, bytes(range(256)) * (size // 256) + b"x" * (size % 256)) == requests
    )


def test_files_of_a_fast_store_are_read(memory: MemoryStorage) -> None:
    remember_written(memory, "a", b"remembered")
    memory.write("a", b"as written")
    assert bytes(FileSource(memory, "a", 10).read(0, 10)) == b"as written"


def test_a_file_of_another_size_is_read(memory: MemoryStorage) -> None:
    storage = RemoteStorage(memory, RequestClock())
    remember_written(storage, "a", b"before")
    storage.write("a", b"afterwards")
    assert bytes(FileSource(storage, "a", 10).read(0, 10)) == b"afterwards"
