"""A table is moved to another folder: whatever the call is stopped at, the same call finishes it, and no reader sees
half of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.concurrency.lock import FileLock
from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, CorruptFile, LakebedError, StorageError, TableExists, TableNotFound
from lakebed.operations.recreate import exists
from lakebed.properties.file import moving_properties
from lakebed.services.rename import rename
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from lakebed.storage.folder import WrappedStorage
from lakebed.storage.opening import wrapping
from lakebed.testing import Crash, FaultPlan, FaultyStorage, Killed
from support.published import check_published, quiet

ROWS = pa.table({"id": [1, 2, 3], "city": ["a", "b", "b"]})
SETTINGS = WriteSettings()
quiet_readers = pytest.fixture(quiet)


def new_table(**options: object) -> str:
    root = f"memory://rename-{uuid.uuid4().hex}"
    table = lakebed.create(f"{root}/db/old", ROWS, key="id", partition_by="city", type="mor", **options)
    table.upsert(ROWS)
    table.upsert({"id": [4], "city": ["a"]})
    return root


def ids(uri: str) -> list[int]:
    return sorted(lakebed.open(uri).scan().to_arrow().column("id").to_pylist())


def state(uri: str) -> object:
    """The rows at a URI, or the class of the error of who opens it."""
    try:
        return ids(uri)
    except LakebedError as error:
        return type(error)


def steps() -> int:
    root = new_table()
    crash = Crash(FaultPlan())
    with wrapping(lambda storage: FaultyStorage(storage, crash=crash)):
        rename(open_storage(root), "db/old", "db/new", SETTINGS)
    return len(crash.mutations)


@pytest.mark.rest
def test_a_call_that_dies_at_any_step_is_finished_by_the_same_call() -> None:
    count = steps()
    assert count > 20
    for at in range(1, count + 1):
        root = new_table()
        crash = Crash(FaultPlan(at))
        try:
            with wrapping(lambda storage, crash=crash: FaultyStorage(storage, crash=crash)):
                rename(open_storage(root), "db/old", "db/new", SETTINGS)
        except Killed:
            pass
        states = (state(f"{root}/db/old"), state(f"{root}/db/new"))
        # all rows under one of the names, or under neither while files are moved: never some of them
        assert states in (
            ([1, 2, 3, 4], TableNotFound),
            ([1, 2, 3, 4], CommitConflict),
            (CommitConflict, CommitConflict),
            (CommitConflict, [1, 2, 3, 4]),
            (TableNotFound, [1, 2, 3, 4]),
        ), (at, states)
        storage = open_storage(root)
        for name in storage.list_names("db/old/.hoodie/.locks"):  # the lock of the process that died
            storage.delete(f"db/old/.hoodie/.locks/{name}")
        if states[0] is not TableNotFound:
            rename(storage, "db/old", "db/new", SETTINGS)
        assert state(f"{root}/db/old") is TableNotFound
        assert [info.path for info in storage.list("db/old") if "/.locks/" not in info.path] == []
        assert state(f"{root}/db/new") == [1, 2, 3, 4], at
        assert lakebed.open(f"{root}/db/new").upsert({"id": [5], "city": ["a"]}).rows == 1
        assert ids(f"{root}/db/new") == [1, 2, 3, 4, 5]


def test_an_interrupted_call_is_not_continued_to_another_name() -> None:
    root = new_table()
    storage = open_storage(root)
    crash = Crash(FaultPlan(lambda mutation: mutation.verb == "move"))
    with wrapping(lambda inner: FaultyStorage(inner, crash=crash)), pytest.raises(Killed):
        rename(open_storage(root), "db/old", "db/new", SETTINGS)
    for name in storage.list_names("db/old/.hoodie/.locks"):
        storage.delete(f"db/old/.hoodie/.locks/{name}")
    with pytest.raises(TableExists, match=r"being renamed to db\.new"):
        rename(storage, "db/old", "db/other", SETTINGS)
    with pytest.raises(TableExists):
        lakebed.create(f"{root}/db/new", ROWS, key="id")
    rename(storage, "db/old", "db/new", SETTINGS)
    assert ids(f"{root}/db/new") == [1, 2, 3, 4]


def test_other_data_in_the_new_folder_stays() -> None:
    root = new_table()
    storage = open_storage(root)
    storage.write("db/new/notes.txt", b"mine")
    with pytest.raises(TableExists):
        rename(storage, "db/old", "db/new", SETTINGS)
    assert (storage.read("db/new/notes.txt"), ids(f"{root}/db/old")) == (b"mine", [1, 2, 3, 4])


def interrupted(root: str, verb: str) -> Storage:
    """The storage of a warehouse in which a rename died at its first mutation of a kind, without its lock."""
    storage = open_storage(root)
    crash = Crash(FaultPlan(lambda mutation: mutation.verb == verb))
    with wrapping(lambda inner: FaultyStorage(inner, crash=crash)), pytest.raises(Killed):
        rename(open_storage(root), "db/old", "db/new", SETTINGS)
    for name in storage.list_names("db/old/.hoodie/.locks"):
        storage.delete(f"db/old/.hoodie/.locks/{name}")
    return storage


def test_a_mark_that_cannot_be_read_is_named() -> None:
    root = new_table()
    storage = interrupted(root, "move")
    mark = storage.read("db/old/.hoodie/rename.json")
    storage.write("db/old/.hoodie/rename.json", b"{")
    with pytest.raises(CorruptFile, match=r"rename\.json"):
        rename(storage, "db/old", "db/new", SETTINGS)
    storage.write("db/old/.hoodie/rename.json", mark)
    rename(storage, "db/old", "db/new", SETTINGS)
    assert ids(f"{root}/db/new") == [1, 2, 3, 4]


@pytest.mark.parametrize("folder", ["old", "new"])
def test_neither_name_is_free_while_files_are_moved(folder: str) -> None:
    root = new_table()
    storage, uri = interrupted(root, "move"), f"{root}/db/{folder}"
    words = "the table db.old is being renamed to db.new"
    with pytest.raises(TableExists):
        lakebed.create(uri, ROWS, key="id")
    for call in (
        lambda: lakebed.open(uri),
        lambda: lakebed.drop(uri),
        lambda: lakebed.write(ROWS, uri, {"hoodie.datasource.write.recordkey.field": "id"}, mode="overwrite"),
        lambda: lakebed.load(uri, ROWS, key="id"),
    ):
        with pytest.raises((CommitConflict, TableExists), match=f"{words}|there is a table"):
            call()
    assert exists(open_storage(uri))
    rename(storage, "db/old", "db/new", SETTINGS)
    assert ids(f"{root}/db/new") == [1, 2, 3, 4]


def test_a_call_that_died_after_the_move_leaves_the_new_table_as_it_became_since() -> None:
    root = new_table()
    storage = open_storage(root)
    crash = Crash(FaultPlan(lambda mutation: mutation.verb == "delete" and mutation.path.endswith("rename.json")))
    with wrapping(lambda inner: FaultyStorage(inner, crash=crash)), pytest.raises(Killed):
        rename(open_storage(root), "db/old", "db/new", SETTINGS)
    storage.delete_folder("db/old/.hoodie/.locks")
    lakebed.open(f"{root}/db/new").upsert({"id": [5], "city": ["c"]})
    lakebed.open(f"{root}/db/new").configure({"hoodie.compact.inline": True})
    rename(storage, "db/old", "db/new", SETTINGS)
    assert ids(f"{root}/db/new") == [1, 2, 3, 4, 5]
    assert lakebed.open(f"{root}/db/new").properties["lakebed.compact.inline"] == "true"
    assert state(f"{root}/db/old") is TableNotFound


def test_a_name_is_free_after_a_rename_also_where_a_writer_waited_for_the_lock() -> None:
    root = new_table()
    storage = open_storage(root)
    rename(storage, "db/old", "db/new", SETTINGS)
    storage.write("db/old/.hoodie/.locks/table_lock.json", b"{}")  # of a writer that waited, and found no table
    rename(storage, "db/new", "db/old", SETTINGS)
    assert ids(f"{root}/db/old") == [1, 2, 3, 4]
    assert lakebed.create(f"{root}/db/new", ROWS, key="id").count() == 0


def test_files_of_others_beside_a_published_list_move_with_the_table(tmp_path: Path) -> None:
    lakebed.create(str(tmp_path / "db/old"), ROWS, key="id").upsert(ROWS)
    lakebed.open(str(tmp_path / "db/old")).catalogs.publish("iceberg")
    (tmp_path / "db/old/metadata/notes.avro").write_text("mine")
    rename(open_storage(str(tmp_path)), "db/old", "db/new", SETTINGS)
    assert sorted(path.name for path in (tmp_path / "db/new/metadata").iterdir()) == ["notes.avro"]
    assert not (tmp_path / "db/old").exists()
    assert lakebed.open(str(tmp_path / "db/new")).catalogs.publish("iceberg")
    left = lakebed.drop(str(tmp_path / "db/new"))
    assert left == ["metadata/notes.avro"]
    assert (tmp_path / "db/new/metadata/notes.avro").read_text() == "mine"


@pytest.mark.usefixtures("quiet_readers")
def test_a_fresh_list_is_written_again_after_a_rename_and_leaves_with_a_dropped_table(tmp_path: Path) -> None:
    old, new = tmp_path / "db/old", tmp_path / "db/new"
    table = lakebed.load(str(old), ROWS, key="id", type="mor", progress=False)
    table.upsert(ROWS)
    table.catalogs.publish("iceberg", fresh=True)
    assert len([*old.glob("metadata/*-rows.parquet"), *old.glob("metadata/*-masks.parquet")]) == 2
    rename(open_storage(str(tmp_path)), "db/old", "db/new", SETTINGS)
    assert (old.exists(), (new / "metadata").exists()) == (False, False)
    moved = lakebed.open(str(new))
    moved.catalogs.publish("iceberg", fresh=True)
    check_published(moved, "iceberg", fresh=True)
    assert lakebed.drop(str(new)) == []
    assert not (new / "metadata").exists()


def test_a_writer_that_began_before_the_rename_does_not_commit() -> None:
    root = new_table()
    before = lakebed.open(f"{root}/db/old")
    rename(open_storage(root), "db/old", "db/new", SETTINGS)
    with pytest.raises((TableNotFound, CommitConflict)):
        before.upsert({"id": [9], "city": ["a"]})
    assert ids(f"{root}/db/new") == [1, 2, 3, 4]
    assert lakebed.list_tables(root) == [f"{root}/db/new"]


class Between(WrappedStorage):
    """A storage that calls `act` once, before the first request for which `when` says so."""

    def __init__(self, inner: Storage, when: Callable[[str, str], bool], act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._when, self._act = when, act

    def _before(self, verb: str, path: str) -> None:
        if self._when(verb, path):
            self._act()


@contextmanager
def once_before(when: Callable[[str, str], bool], act: Callable[[], object]) -> Generator[list[bool]]:
    """Call `act` before the first request of the block for which `when` says so, with a storage of its own."""
    done: list[bool] = []

    def first(verb: str, path: str) -> bool:
        return not done and when(verb, path)

    def run() -> None:
        done.append(True)
        act()

    with wrapping(lambda storage: storage if done else Between(storage, first, run)):
        yield done


@contextmanager
def before_the_lock(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> Generator[None]:
    """Call `act` when the block first asks for a lock, as if it had waited while others had it."""
    acquire, done = FileLock.acquire_reading, list[bool]()

    def acquired(self: FileLock, *arguments: Any) -> Any:
        if not done:
            done.append(True)
            act()
        return acquire(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(FileLock, "acquire_reading", acquired)
        yield
    assert done


OTHER = pa.table({"id": [7, 8, 9], "city": ["c", "c", "c"]})
KEYED = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "city"}
WAITERS: dict[str, Callable[[str], object]] = {
    "overwrite": lambda uri: lakebed.write(OTHER, uri, KEYED, mode="overwrite"),
    "drop": lakebed.drop,
    "configure": lambda uri: lakebed.open(uri).configure({"hoodie.compact.inline": False}),
    "index": lambda uri: lakebed.open(uri).indexes.create("column_stats"),
    "upsert": lambda uri: lakebed.open(uri).upsert({"id": [50], "city": ["a"]}, retries=0),
    "savepoint": lambda uri: lakebed.open(uri).savepoints.create(),
    "delete": lambda uri: lakebed.open(uri).delete({"id": [1], "city": ["a"]}, retries=0),
}


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("waiter", sorted(WAITERS))
def test_a_process_that_waited_for_the_lock_leaves_a_table_that_got_the_name_meanwhile(
    waiter: str, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = new_table()
    uri = f"{root}/db/old"
    before: list[object] = []

    def act() -> None:
        rename(open_storage(root), "db/old", "db/new", SETTINGS)
        if anew:
            lakebed.load(uri, OTHER, key="id", partition_by="city", progress=False)
            before.append((lakebed.open(uri).properties, lakebed.open(uri).timeline.to_arrow().num_rows))

    with before_the_lock(monkeypatch, act), pytest.raises((CommitConflict, TableNotFound)):
        WAITERS[waiter](uri)
    assert ids(f"{root}/db/new") == [1, 2, 3, 4]
    left = [info.path for info in open_storage(root).list() if "/.overwrite/" in info.path]
    assert left == []
    if anew:
        assert ids(uri) == [7, 8, 9]
        assert before == [(lakebed.open(uri).properties, lakebed.open(uri).timeline.to_arrow().num_rows)]
    else:
        assert lakebed.list_tables(root) == [f"{root}/db/new"]
        assert lakebed.create(uri, OTHER, key="id").count() == 0


def test_a_drop_that_waited_leaves_a_table_that_was_made_after_another_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    root = new_table()
    uri = f"{root}/db/old"

    def act() -> None:
        lakebed.drop(uri)
        lakebed.load(uri, OTHER, key="id", progress=False)

    with before_the_lock(monkeypatch, act), pytest.raises(CommitConflict, match="another one"):
        lakebed.drop(uri)
    assert ids(uri) == [7, 8, 9]


@pytest.mark.parametrize("step", ["first", "middle", "whole"])
@pytest.mark.parametrize("metadata", [False, True])
def test_a_reader_never_gets_no_rows_during_a_rename(metadata: bool, step: str) -> None:
    """The rename happens before the n-th request of the reader, for each n."""
    for n in range(1, 40):
        root = f"memory://rename-{uuid.uuid4().hex}"
        options = {"hoodie.metadata.enable": str(metadata).lower()}
        lakebed.load(f"{root}/db/old", ROWS, key="id", partition_by="city", options=options, progress=False)
        requests = 0

        def is_next(verb: str, path: str, n: int = n) -> bool:
            nonlocal requests
            requests += 1
            return requests == n

        def act(root: str = root) -> None:
            verbs = {"first": "put_if_match", "middle": "delete"}
            plan = FaultPlan(lambda mutation: mutation.verb == verbs.get(step) and "properties" in mutation.path)
            crash = Crash(plan)
            with (
                wrapping(lambda storage: FaultyStorage(storage, crash=crash)) if step != "whole" else nullcontext(),
                suppress(Killed),
            ):
                rename(open_storage(root), "db/old", "db/new", SETTINGS)

        with once_before(is_next, act) as done:
            try:
                found: object = ids(f"{root}/db/old")
            except LakebedError as error:
                found = type(error)
        assert found in ([1, 2, 3], CommitConflict, TableNotFound, CorruptFile), (n, found)
        if not done:
            break
    assert n > 5


def test_a_folder_that_cannot_be_used_is_refused_before_anything_is_claimed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    root = tmp_path / "lake"
    lakebed.load(str(root / "a/x"), ROWS, key="id", progress=False)
    (root / "b").symlink_to(tmp_path / "other")
    storage = open_storage(str(root))
    with pytest.raises(StorageError, match="is a link"):
        rename(storage, "a/x", "b/x", SETTINGS)
    assert ids(str(root / "a/x")) == [1, 2, 3]
    rename(storage, "a/x", "a/y", SETTINGS)
    assert ids(str(root / "a/y")) == [1, 2, 3]


def test_a_rename_that_fails_before_a_file_was_moved_is_taken_back() -> None:
    root = new_table()

    class Full(WrappedStorage):
        def move(self, path: str, to: str) -> None:
            raise StorageError("no space is left", "free some")

    with wrapping(Full), pytest.raises(StorageError, match="no space"):
        rename(open_storage(root), "db/old", "db/new", SETTINGS)
    assert ids(f"{root}/db/old") == [1, 2, 3, 4]
    assert lakebed.list_tables(root) == [f"{root}/db/old"]
    assert lakebed.open(f"{root}/db/old").upsert({"id": [5], "city": ["a"]}).rows == 1
    assert lakebed.create(f"{root}/db/new", ROWS, key="id").count() == 0


@pytest.mark.rest
def test_the_opposite_call_undoes_one_that_died_at_any_step_and_itself_may_die() -> None:
    count = steps()
    for at in range(1, count + 1, 3):
        for back_at in (2, 5, 9, None):
            root = new_table()
            for plan, move in ((FaultPlan(at), ("db/old", "db/new")), (FaultPlan(back_at), ("db/new", "db/old"))):
                crash = Crash(plan)
                with (
                    wrapping(lambda inner, crash=crash: FaultyStorage(inner, crash=crash)),
                    suppress(Killed, TableNotFound),
                ):
                    rename(open_storage(root), *move, SETTINGS)
                for folder in move:
                    open_storage(root).delete_folder(f"{folder}/.hoodie/.locks")
            for move in (("db/new", "db/old"), ("db/old", "db/new")):
                if state(f"{root}/db/old") == [1, 2, 3, 4]:
                    break
                with suppress(TableNotFound, CommitConflict, TableExists):
                    rename(open_storage(root), *move, SETTINGS)
            states = [state(f"{root}/db/{name}") for name in ("old", "new")]
            assert states in ([[1, 2, 3, 4], TableNotFound], [TableNotFound, [1, 2, 3, 4]]), (at, back_at, states)


def test_a_claim_whose_table_went_elsewhere_is_void() -> None:
    root = new_table()
    storage = open_storage(root)
    storage.write("db/new/.hoodie/hoodie.properties", moving_properties("db/old", "db/new"))
    assert lakebed.list_tables(root) == [f"{root}/db/old"]
    assert state(f"{root}/db/new") is TableNotFound
    rename(storage, "db/old", "db/third", SETTINGS)
    rename(storage, "db/third", "db/new", SETTINGS)
    assert ids(f"{root}/db/new") == [1, 2, 3, 4]
    storage.write("db/old/.hoodie/hoodie.properties", moving_properties("db/third", "db/old"))
    assert lakebed.load(f"{root}/db/old", OTHER, key="id", progress=False).count() == 3


def test_a_table_that_takes_a_claimed_folder_stays_and_the_renamed_one_keeps_its_name() -> None:
    """The claim of the new folder is not confirmed before the old one is claimed."""
    root = new_table()
    with (
        once_before(
            lambda verb, path: verb == "put_if_match" and path == ".hoodie/hoodie.properties",
            lambda: lakebed.load(f"{root}/db/new", OTHER, key="id", progress=False),
        ),
        pytest.raises(TableExists),
    ):
        rename(open_storage(root), "db/old", "db/new", SETTINGS)
    assert (ids(f"{root}/db/old"), ids(f"{root}/db/new")) == ([1, 2, 3, 4], [7, 8, 9])


@pytest.mark.parametrize("content", [None, b"hoodie.table.name=old\n"])
def test_a_table_whose_settings_are_in_their_backup_is_renamed(content: bytes | None) -> None:
    root = new_table()
    storage = open_storage(root)
    path = "db/old/.hoodie/hoodie.properties"
    storage.write(f"{path}.backup", storage.read(path))
    storage.delete(path)
    if content is not None:
        storage.write(path, content)
    rename(storage, "db/old", "db/new", SETTINGS)
    assert (ids(f"{root}/db/new"), state(f"{root}/db/old")) == ([1, 2, 3, 4], TableNotFound)


def test_a_damaged_table_claims_no_name() -> None:
    root = new_table()
    storage = open_storage(root)
    storage.write("db/old/.hoodie/hoodie.properties", b"hoodie.table.name=old\n")
    with pytest.raises(CorruptFile):
        rename(storage, "db/old", "db/new", SETTINGS)
    assert list(storage.list("db/new")) == []


def test_heartbeats_and_markers_move_so_that_dead_writers_are_rolled_back_at_once() -> None:
    root = new_table()
    table = lakebed.open(f"{root}/db/old")
    storage = open_storage(f"{root}/db/old")
    crash = Crash(FaultPlan(lambda mutation: mutation.verb == "put_if_absent" and "deltacommit" in mutation.path))
    with wrapping(lambda inner: FaultyStorage(inner, crash=crash)), pytest.raises(Killed):
        lakebed.open(table.uri).upsert({"id": [1], "city": ["a"]})
    storage.delete_folder(".hoodie/.locks")
    storage.write(".hoodie/.heartbeat/20240101000000000", b"")
    hearts = storage.list_names(".hoodie/.heartbeat")
    rename(open_storage(root), "db/old", "db/new", SETTINGS)
    moved = open_storage(f"{root}/db/new").list_names(".hoodie/.heartbeat")
    assert (sorted(moved), open_storage(f"{root}/db/old").list_names(".hoodie/.heartbeat")) == (sorted(hearts), [])
