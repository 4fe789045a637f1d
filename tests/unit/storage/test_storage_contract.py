"""What every storage promises. The S3 and HDFS tests run the same class on real servers."""

from __future__ import annotations

import io
import itertools
import pickle
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import CorruptFile, StorageError
from lakebed.storage import Storage, open_storage, open_storage_spec
from lakebed.storage.folder import FolderStorage
from lakebed.storage.local import LocalStorage
from lakebed.testing import CountingStorage, FaultyStorage


@pytest.fixture(params=["local", "local-named", "memory", "counting", "faulty", "folder"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    memory = f"memory://{uuid.uuid4().hex}/table"
    kinds: dict[str, Callable[[], Storage]] = {
        "local": lambda: open_storage(str(tmp_path / "new" / "table")),
        "local-named": lambda: LocalStorage(str(tmp_path / "table"), unlinked=False),
        "memory": lambda: open_storage(memory),
        "counting": lambda: CountingStorage(open_storage(memory)),
        "faulty": lambda: FaultyStorage(open_storage(memory)),
        "folder": lambda: FolderStorage(open_storage(memory), "a/b"),
    }
    return kinds[request.param]()


def paths(storage: Storage, prefix: str = "", *, recursive: bool = True) -> list[str]:
    return sorted(info.path for info in storage.list(prefix, recursive=recursive))


class TestStorageContract:
    def test_a_written_file_is_read_and_replaced(self, storage: Storage) -> None:
        storage.write("a/b/c.txt", b"one")
        assert storage.read("a/b/c.txt") == b"one"
        storage.write("a/b/c.txt", b"")
        assert storage.read("a/b/c.txt") == b""
        assert paths(storage) == ["a/b/c.txt"]

    def test_files_that_got_the_same_bytes_at_once_change_one_by_one(self, storage: Storage) -> None:
        storage.write_same(["a/x", "a/y", "a/z"], b"one")
        storage.write_same(["a/y", "a/new"], b"two")  # one of them is there
        storage.write("a/z", b"three")
        assert storage.delete("a/x")
        assert {path: storage.read(path) for path in paths(storage)} == {
            "a/new": b"two",
            "a/y": b"two",
            "a/z": b"three",
        }

    def test_a_missing_file_is_an_error_or_none(self, storage: Storage) -> None:
        assert storage.head("no") is None
        assert paths(storage, "no/such") == []
        assert list(storage.list_folders("no")) == []
        assert list(storage.list_names("no")) == []
        assert storage.delete("no/file") is False
        storage.delete_folder("no/such")
        for call in (
            storage.read,
            storage.read_versioned,
            storage.open_input,
            lambda p: storage.read_ranges(p, [(0, 1)]),
        ):
            with pytest.raises(FileNotFoundError) as error:
                call("no/file")
            assert "no/file" in str(error.value)

    def test_head_gives_path_size_and_time(self, storage: Storage) -> None:
        storage.write("f/x", b"12345")
        info = storage.head("f/x")
        assert info is not None
        assert (info.path, info.size) == ("f/x", 5)
        assert info.modified > 1_600_000_000_000
        assert storage.head("f") is None

    def test_listing_gives_files_below_a_prefix_and_folders_in_it(self, storage: Storage) -> None:
        names = ["top", "p=1/a", "p=1/b", "p=1/deep/c", "p=10/d", "q/e"]
        for name in names:
            storage.write(name, name.encode())
        assert paths(storage) == sorted(names)
        assert paths(storage, "p=1") == ["p=1/a", "p=1/b", "p=1/deep/c"]
        assert sorted(storage.list_names("p=1")) == ["a", "b"]
        assert sorted(storage.list_names()) == ["top"]
        assert paths(storage, "p=1/") == ["p=1/a", "p=1/b", "p=1/deep/c"]
        assert paths(storage, "p=1", recursive=False) == ["p=1/a", "p=1/b"]
        assert paths(storage, recursive=False) == ["top"]
        assert sorted(storage.list_folders()) == ["p=1", "p=10", "q"]
        assert sorted(storage.list_folders("p=1")) == ["deep"]
        assert {i.path: i.size for i in storage.list("q")} == {"q/e": 3}
        assert paths(storage, "top") == []

    def test_odd_names_come_back_as_they_are(self, storage: Storage) -> None:
        names = [
            "a b/c%2Fd",
            "p=é/ü~*[x]",
            "k=#1&2/+",
            ".hoodie/.temp/1/x.marker.CREATE",
            "__HIVE_DEFAULT_PARTITION__/f",
        ]
        for name in names:
            storage.write(name, name.encode())
        assert paths(storage) == sorted(names)
        assert all(storage.read(name) == name.encode() for name in names)
        assert "c%2Fd" in storage.url("a b/c%2Fd")

    @pytest.mark.every_case
    @pytest.mark.parametrize("path", ["/a", "../a", "a/../b", "a//b", "./a", ""])
    def test_paths_outside_are_refused(self, storage: Storage, path: str) -> None:
        with pytest.raises(StorageError):
            storage.write(path, b"1")

    def test_put_if_absent_creates_once(self, storage: Storage) -> None:
        assert storage.put_if_absent("t/1.commit", b"first") is True
        assert storage.put_if_absent("t/1.commit", b"second") is False
        assert storage.read("t/1.commit") == b"first"
        assert storage.put_if_absent("t/empty", b"") is True
        assert storage.put_if_absent("t/empty", b"") is False
        assert paths(storage) == ["t/1.commit", "t/empty"]

    def test_put_if_absent_has_one_winner(self, storage: Storage) -> None:
        wins: list[int] = []

        def put(number: int) -> None:
            if storage.put_if_absent("race", str(number).encode()):
                wins.append(number)

        threads = [threading.Thread(target=put, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(wins) == 1
        assert storage.read("race") == str(wins[0]).encode()

    def test_put_if_match_replaces_only_the_version_that_was_read(self, storage: Storage) -> None:
        assert storage.put_if_match("lock", b"1", None) is True
        assert storage.put_if_match("lock", b"2", None) is False
        seen = storage.read_versioned("lock")
        assert seen.data == b"1"
        assert storage.put_if_match("lock", b"2", seen.version) is True
        assert storage.put_if_match("lock", b"3", seen.version) is False
        assert storage.read("lock") == b"2"
        latest = storage.read_versioned("lock")
        storage.delete("lock")
        assert storage.put_if_match("lock", b"4", latest.version) is False
        assert storage.head("lock") is None

    def test_put_if_match_of_any_size(self, storage: Storage) -> None:
        """Also where a change that keeps the size is made another way."""
        bodies = [b"a" * 100, b"b" * 100, b"c" * 90, b"d" * 2000, b"e" * 2000, b"f" * 100, b"", b"g" * 512, b"h" * 512]
        assert storage.put_if_match("lock", bodies[0], None) is True
        for before, body in itertools.pairwise(bodies):
            seen = storage.read_versioned("lock")
            assert seen.data == before
            assert storage.put_if_match("lock", body, seen.version) is True
            assert storage.put_if_match("lock", b"late", seen.version) is False
            assert storage.read("lock") == body
        assert storage.read("lock") == bodies[-1]
        assert paths(storage) == ["lock"] or {".lock.guard", "lock"} == set(paths(storage))

    def test_writes_without_durability_are_done_all_the_same(self, storage: Storage) -> None:
        storage.write("b/beat", b"1", durable=False)
        storage.write("b/beat", b"2", durable=False)
        assert storage.read("b/beat") == b"2"
        assert storage.delete("b/beat", durable=False) is True
        storage.write("m/1/a", b"")
        storage.delete_folder("m/1", durable=False)
        assert not any(path.startswith(("b/", "m/")) for path in paths(storage))

    def test_put_if_match_loses_no_update(self, storage: Storage) -> None:
        storage.write("n", b"0")

        def add() -> None:
            done = 0
            while done < 5:
                seen = storage.read_versioned("n")
                done += storage.put_if_match("n", str(int(seen.data) + 1).encode(), seen.version)

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert storage.read("n") == b"20"

    def test_an_upload_appears_complete_when_it_is_closed(self, storage: Storage) -> None:
        upload = storage.create("p/data.parquet")
        upload.write(b"x" * 3_000_000)
        upload.write(memoryview(b"y" * 10))
        upload.write(pa.py_buffer(b"z"))
        assert upload.tell() == 3_000_011
        assert storage.head("p/data.parquet") is None
        upload.close()
        assert upload.closed
        assert storage.read("p/data.parquet") == b"x" * 3_000_000 + b"y" * 10 + b"z"
        assert paths(storage) == ["p/data.parquet"]
        with storage.create("p/data.parquet") as again:
            again.write(b"new")
        assert storage.read("p/data.parquet") == b"new"

    def test_create_abort_leaves_nothing(self, storage: Storage) -> None:
        upload = storage.create("p/data.parquet")
        upload.write(b"x" * 3_000_000)
        upload.abort()
        upload.abort()
        upload.close()
        with pytest.raises(ValueError, match="closed"):
            upload.write(b"1")
        with pytest.raises(TypeError), storage.create("p/data.parquet") as other:
            other.write(b"1" * (1 + len(None)))  # type: ignore[arg-type]
        assert storage.head("p/data.parquet") is None
        assert paths(storage) == []

    def test_an_upload_of_nothing_makes_an_empty_file(self, storage: Storage) -> None:
        storage.create("e").close()
        assert storage.read("e") == b""

    def test_ranges_come_back_in_the_order_asked(self, storage: Storage) -> None:
        data = bytes(range(256)) * 8192
        storage.write("f", data)
        ranges = [(1_500_000, 7), (0, 4), (6, 4), (2, 6), (100, 0), (len(data) - 3, 3), (300_000, 200_000)]
        assert storage.read_ranges("f", ranges) == [data[o : o + n] for o, n in ranges]
        assert storage.read_ranges("f", []) == []
        with pytest.raises((CorruptFile, StorageError)) as error:
            storage.read_ranges("f", [(len(data) - 3, 10)])
        assert "f" in str(error.value)

    def test_a_file_is_read_at_any_place(self, storage: Storage) -> None:
        data = bytes(range(256)) * 20_000
        storage.write("f", data)
        for size in (None, len(data)):
            file = storage.open_input("f", size)
            assert file.size() == len(data)
            file.seek(4_000_000)
            assert file.read(10) == data[4_000_000:4_000_010]
            assert bytes(file.read_at(5, len(data) - 5)) == data[-5:]
            file.seek(-3, io.SEEK_END)
            assert file.read() == data[-3:]
            assert file.read(5) == b""
            file.seek(0)
            assert file.read() == data
            file.close()

    def test_parquet_is_written_to_an_upload_and_read_from_an_input(self, storage: Storage) -> None:
        table = pa.table({"id": np.arange(60_000), "s": np.arange(60_000).astype(str)})
        with storage.create("p/t.parquet") as upload:
            pq.write_table(table, upload, row_group_size=20_000)
        with storage.open_input("p/t.parquet") as file:
            reader = pq.ParquetFile(file, pre_buffer=False)
            batches = list(reader.iter_batches(batch_size=10_000, columns=["s", "id"]))
        assert pa.Table.from_batches(batches).select(["id", "s"]) == table

    def test_deleting_returns_whether_the_file_was_there(self, storage: Storage) -> None:
        storage.write("a/x", b"1")
        assert storage.delete("a/x") is True
        assert storage.delete("a/x") is False
        assert paths(storage) == []

    def test_move_renames_a_file_replacing_another(self, storage: Storage) -> None:
        storage.write("a/f", b"one")
        storage.write("b/g", b"two")
        storage.move("a/f", "b/g")
        assert (storage.read("b/g"), storage.head("a/f")) == (b"one", None)
        storage.move("b/g", "new/folder/h")
        assert [info.path for info in storage.list()] == ["new/folder/h"]
        with pytest.raises(FileNotFoundError):
            storage.move("b/g", "new/folder/h")
        assert storage.read("new/folder/h") == b"one"

    def test_deleting_a_folder_deletes_all_below_and_nothing_next_to_it(self, storage: Storage) -> None:
        for name in ("a/1", "a/b/2", "a/b/c/3", "ab/4"):
            storage.write(name, b"1")
        storage.delete_folder("a")
        assert paths(storage) == ["ab/4"]
        assert list(storage.list_folders()) == ["ab"]

    def test_a_folder_that_is_made_holds_nothing_and_keeps_what_is_there(self, storage: Storage) -> None:
        storage.make_folder("a/b")
        assert paths(storage) == []
        storage.write("a/b/1", b"1")
        storage.make_folder("a/b")
        assert paths(storage) == ["a/b/1"]

    def test_a_pickled_spec_opens_the_same_storage(self, storage: Storage) -> None:
        storage.write("x", b"1")
        spec = pickle.loads(pickle.dumps(storage.spec))
        assert open_storage_spec(spec).read("x") == b"1"
