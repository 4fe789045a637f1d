"""What only a local disk has: links, leftovers of dead writers, Hadoop's checksum files, folders that change."""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakebed.errors import StorageError
from lakebed.storage import atomic_file, open_storage
from lakebed.storage.atomic_file import aside_name
from lakebed.storage.local import LocalStorage
from support.torn_listings import before_each_size

LOG_FILE = re.compile(r"^\.([^._]+)_([^.]*)\.(log|archive)\.(\d+)(_((\d+)-(\d+)-(\d+))(\.cdc)?)?$")
BASE_FILE = re.compile(r"^[A-Za-z0-9-]+_[A-Za-z0-9-]+_[0-9]+\.[A-Za-z0-9]+$")


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("name", ["f1-0_0-1-0_20240101000000000.parquet", ".f1-0_20240101000000000.log.1_0-1-0"])
def test_no_reader_takes_an_unfinished_file_for_data(name: str) -> None:
    assert not LOG_FILE.match(aside_name(name))
    assert not BASE_FILE.match(aside_name(name))


@pytest.mark.parametrize("unlinked", [True, False])
def test_files_get_the_permissions_of_any_new_file(tmp_path: Path, unlinked: bool) -> None:
    (tmp_path / "plain").write_bytes(b"")
    storage = LocalStorage(str(tmp_path), unlinked=unlinked)
    storage.write("w", b"1")
    storage.put_if_absent("p", b"1")
    with storage.create("c") as upload:
        upload.write(b"1")
    assert {(tmp_path / n).stat().st_mode for n in "wpc"} == {(tmp_path / "plain").stat().st_mode}


def test_checksum_files_of_the_jvm_go_with_their_file(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    for name in ("write", "put", "create", "delete", "match"):
        (tmp_path / f".{name}.crc").write_bytes(b"crc\0")
        if name != "put":
            (tmp_path / name).write_bytes(b"old")
    storage.write("write", b"new")
    storage.put_if_absent("put", b"new")
    storage.create("create").close()
    storage.delete("delete")
    storage.put_if_match("match", b"new", storage.read_versioned("match").version)
    assert [n for n in names(tmp_path) if n.endswith(".crc")] == []


def test_a_writer_that_dies_leaves_nothing(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    upload = storage.create("p/f.parquet")
    upload.write(b"x" * 5_000_000)
    upload.leave()
    assert names(tmp_path) == []


def test_a_linked_file_that_is_left_is_deleted_with_its_name(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path), unlinked=False)
    upload = storage.create("p/f.parquet")
    upload.write(b"x" * 5_000_000)
    upload.leave()
    assert names(tmp_path) == ["p/.f.parquet.tmp"]
    assert storage.delete("p/f.parquet") is False
    assert names(tmp_path) == []
    storage.leave_torn("p/f.parquet", b"12345678")
    with storage.create("p/f.parquet") as again:
        again.write(b"whole")
    assert names(tmp_path) == ["p/f.parquet"]


def test_replacing_clears_what_a_dead_replacement_left(tmp_path: Path) -> None:
    (tmp_path / ".f.tmp").write_bytes(b"left")
    storage = LocalStorage(str(tmp_path))
    storage.write("f", b"1")
    storage.write("f", b"2")
    assert names(tmp_path) == ["f"]
    assert storage.read("f") == b"2"


@pytest.mark.parametrize("unlinked", [True, False])
def test_threads_that_replace_one_file_leave_it_intact(tmp_path: Path, unlinked: bool) -> None:
    storage = LocalStorage(str(tmp_path), unlinked=unlinked)
    bodies = [bytes([65 + i]) * 10_000 for i in range(4)]
    seen: set[bytes] = set()

    def replace(body: bytes) -> None:
        for _ in range(30):
            storage.write("f", body)
            seen.add(storage.read("f"))

    threads = [threading.Thread(target=replace, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen <= set(bodies)
    assert names(tmp_path) == ["f"]


def test_replacing_while_others_delete(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))

    def replace() -> None:
        for _ in range(50):
            storage.write("f", b"whole")

    threads = [threading.Thread(target=replace) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        storage.delete("f")
    for thread in threads:
        thread.join()
    storage.write("f", b"last")
    assert names(tmp_path) == ["f"]


def test_without_folder_locks_replacing_works_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lock(*_args: object) -> None:
        raise OSError(errno.EBADF, "no locks on folders here")

    storage = LocalStorage(str(tmp_path))
    storage.write("f", b"1")
    monkeypatch.setattr(atomic_file.fcntl, "flock", no_lock)
    storage.write("f", b"2")
    assert storage.read("f") == b"2"
    assert names(tmp_path) == ["f"]


@pytest.mark.parametrize("unlinked", [True, False])
def test_without_links_creation_is_exclusive_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unlinked: bool
) -> None:
    def no_link(*_args: object, **_options: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_link)
    storage = LocalStorage(str(tmp_path), unlinked=unlinked)
    assert storage.put_if_absent("f", b"first") is True
    assert storage.put_if_absent("f", b"second") is False
    assert storage.read("f") == b"first"
    assert names(tmp_path) == ["f"]


def test_each_verb_syncs_only_what_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.write("f/x", b"1")
    synced: list[int] = []
    fsync = os.fsync

    def counted(fd: int) -> None:
        synced.append(fd)
        fsync(fd)

    def changed(data: bytes, *, durable: bool = True) -> bool:
        return storage.put_if_match("f/lock", data, storage.read_versioned("f/lock").version, durable=durable)

    monkeypatch.setattr(atomic_file.os, "fsync", counted)
    counts: dict[str, int] = {}
    for name, act in {
        "put": lambda: storage.put_if_absent("f/1.commit", b"1"),
        "marker": lambda: storage.put_if_absent("f/1.marker", b""),
        "requested": lambda: storage.put_if_absent("f/2.commit.requested", b"", durable=False),
        "replace": lambda: storage.write("f/x", b"2"),
        "delete": lambda: storage.delete("f/x"),
        "nothing to delete": lambda: storage.delete("f/x"),
        "heartbeat": lambda: storage.write("f/beat", b"1", durable=False),
        "its end": lambda: storage.delete("f/beat", durable=False),
        "lock": lambda: storage.put_if_match("f/lock", b"mine", None),
        "record": lambda: changed(b"ours"),
        "lock changes hands": lambda: changed(b"hers", durable=False),
        "lock grows": lambda: changed(b"theirs"),
        "markers go": lambda: storage.delete_folder("f", durable=False),
    }.items():
        synced.clear()
        act()
        counts[name] = len(synced)
    lasting = {"put": 2, "marker": 1, "replace": 2, "delete": 1, "nothing to delete": 0, "record": 2}
    passing = {
        "requested": 0,
        "heartbeat": 0,
        "its end": 0,
        "lock": 2,
        "lock changes hands": 0,
        "lock grows": 2,
        "markers go": 0,
    }
    assert counts == lasting | passing


def test_a_name_that_may_last_later_is_synced_before_the_next_file_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(str(tmp_path / "t"))
    storage.write("a/x", b"1")
    events: list[str] = []
    fsync, link, unlink = os.fsync, os.link, os.unlink

    def noted(fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}").removeprefix(f"{tmp_path}/")
        events.append("bytes" if "#" in path else f"sync {path}")
        fsync(fd)

    def linked(source: str, name: str, **given: Any) -> None:
        events.append(f"name {name}")
        link(source, name, **given)

    def unlinked(path: str, **given: Any) -> None:
        unlink(path, **given)
        events.append(f"delete {os.path.basename(path)}")

    monkeypatch.setattr(atomic_file.os, "fsync", noted)
    monkeypatch.setattr(atomic_file.os, "link", linked)
    monkeypatch.setattr(atomic_file.os, "unlink", unlinked)

    def events_of(act: Callable[[], object]) -> list[str]:
        events.clear()
        act()
        return [*events]

    assert events_of(lambda: storage.put_if_absent("a/1.inflight", b"", durable="later")) == ["name 1.inflight"]
    assert events_of(lambda: storage.write("m/1/marker", b"", durable="later")) == ["name marker"]
    beside = LocalStorage(str(tmp_path / "t"))  # the same table, opened again
    *synced, name = events_of(lambda: beside.put_if_absent("a/data", b"rows", durable="later"))
    assert sorted(synced) == ["bytes", "sync t", "sync t/a", "sync t/m", "sync t/m/1"]
    assert name == "name data"
    assert events_of(lambda: storage.write("b", b"", durable=False)) == ["name b"]  # waits for nothing
    put = events_of(lambda: storage.put_if_absent("a/1.done", b"body"))
    assert (sorted(put[:2]), put[2:]) == (["bytes", "sync t/a"], ["name 1.done", "sync t/a"])
    storage.write("a/2.inflight", b"", durable="later")
    assert events_of(lambda: storage.delete("a/x")) == ["sync t/a", "delete x", "sync t/a"]
    storage.write("m/2/marker", b"", durable="later")
    storage.delete_folder("m", durable=False)
    storage.write("a/3.inflight", b"", durable="later")
    assert events_of(lambda: storage.put_if_absent("a/3.done", b"")) == ["sync t/a", "name 3.done", "sync t/a"]


def test_a_folder_that_cannot_be_synced_keeps_the_next_file_from_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.write("a/inflight", b"", durable="later")
    fsync = os.fsync

    def full(fd: int) -> None:
        if os.path.isdir(os.readlink(f"/proc/self/fd/{fd}")):
            raise OSError(errno.EIO, "no")
        fsync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_file.os, "fsync", full)
        with pytest.raises(StorageError) as caught:
            storage.put_if_absent("b/done", b"1")
    assert "doubtful" not in caught.value.context, "it was not done"
    assert storage.head("b/done") is None
    assert storage.put_if_absent("b/done", b"1"), "what was not synced is synced then"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_folders_that_its_parent_syncs(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.write("a/marker", b"", durable="later")
    with storage._unsynced._lock:  # pyright: ignore[reportPrivateUsage]
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                written = storage.put_if_absent("b/x", b"1")
                os._exit(0 if written else 1)
            except BaseException:
                os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert storage.read("b/x") == b"1"
    assert storage.put_if_absent("b/y", b"2")


def test_a_lock_of_another_users_changes_hands_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put_if_match("lock", b"mine", None)
    first = os.stat(tmp_path / "lock")
    assert storage.put_if_match("lock", b"ours", storage.read_versioned("lock").version, durable=False)
    second = os.stat(tmp_path / "lock")
    assert second.st_ino == first.st_ino
    assert second.st_mtime_ns > first.st_mtime_ns

    def refused(*given: object, **named: object) -> None:
        raise PermissionError

    monkeypatch.setattr(atomic_file.os, "utime", refused)
    assert storage.put_if_match("lock", b"hers", storage.read_versioned("lock").version, durable=False)
    assert storage.read("lock") == b"hers"
    assert os.stat(tmp_path / "lock").st_ino != first.st_ino


def test_listing_goes_on_when_files_vanish(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    for folder in "abc":
        for number in range(3):
            storage.write(f"{folder}/{number}", b"1")
    found: list[str] = []
    for info in storage.list():
        found.append(info.path)
        storage.delete("a/2")
        storage.delete_folder("b")
    assert found == ["a/0", "a/1", "a/2", "c/0", "c/1", "c/2"]


def test_a_listing_is_that_of_one_moment_though_files_go_before_their_size_is_known(tmp_path: Path) -> None:
    """A file is left out only if it was gone when the names were read last."""
    storage = LocalStorage(str(tmp_path))
    for number in range(5):
        storage.write(f"f/{number}", b"1" * number)
    os.symlink("nothing", tmp_path / "f" / "link")

    def go(path: str) -> None:
        if path.endswith("/3"):
            for number in (0, 1, 2, 3):
                storage.delete(f"f/{number}")

    with before_each_size(str(tmp_path / "f"), go):
        assert [(info.path, info.size) for info in storage.list("f", recursive=False)] == [("f/4", 4)]


def test_errors_name_path_and_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    storage = LocalStorage(str(tmp_path))
    with pytest.raises(StorageError) as error:
        storage.write("n" * 300, b"1")
    assert "file://" in str(error.value)
    assert "File name too long" in str(error.value)
    with pytest.raises((FileNotFoundError, StorageError)):
        storage.write("file/below", b"1")
    with pytest.raises(FileNotFoundError):
        storage.read("file/below")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileNotFoundError):
        storage.read("folder")


def test_paths_and_file_uris_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for uri in (str(tmp_path / "t"), f"file://{tmp_path}/t", f"file:{tmp_path}/t/", "t", "./t"):
        storage = open_storage(uri)
        assert storage.spec.uri == str(tmp_path / "t")
        assert storage.url("a b%20") == f"file://{tmp_path}/t/a b%20"


def test_a_folder_is_not_made_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("x")
    with pytest.raises(StorageError, match="a file is in its place"):
        LocalStorage(str(tmp_path / "t")).make_folder(".hoodie")
    assert (tmp_path / "t").read_text() == "x"


def test_a_place_that_takes_no_folder_is_named() -> None:
    with pytest.raises(
        StorageError, match=r"cannot make the folder file:///proc/none/t/\.hoodie: no folder can be made"
    ):
        LocalStorage("/proc/none/t").make_folder(".hoodie")
