"""A table is moved to another folder: whatever the call is stopped at, the same call finishes it, and no reader sees
half of it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, CorruptFile, LakebedError, TableExists, TableNotFound
from lakebed.operations.recreate import exists
from lakebed.services.rename import rename
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from lakebed.storage.opening import wrapping
from lakebed.testing import Crash, FaultPlan, FaultyStorage, Killed

ROWS = pa.table({"id": [1, 2, 3], "city": ["a", "b", "b"]})
SETTINGS = WriteSettings()


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
    with pytest.raises(TableExists, match="being renamed to db.new"):
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


def test_a_writer_that_began_before_the_rename_does_not_commit() -> None:
    root = new_table()
    before = lakebed.open(f"{root}/db/old")
    rename(open_storage(root), "db/old", "db/new", SETTINGS)
    with pytest.raises((TableNotFound, CommitConflict)):
        before.upsert({"id": [9], "city": ["a"]})
    assert ids(f"{root}/db/new") == [1, 2, 3, 4]
    assert lakebed.list_tables(root) == [f"{root}/db/new"]
