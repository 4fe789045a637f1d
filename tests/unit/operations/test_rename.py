"""A table is moved to another folder: whatever the call is stopped at, the same call finishes it, and no reader sees
half of it."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, CorruptFile, LakebedError, TableExists, TableNotFound
from lakebed.operations.rename import rename
from lakebed.storage import open_storage
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
            ([1, 2, 3, 4], CorruptFile),
            (TableNotFound, CorruptFile),
            (TableNotFound, [1, 2, 3, 4]),
        ), (at, states)
        storage = open_storage(root)
        for name in storage.list_names("db/old/.hoodie/.locks"):  # the lock of the process that died
            storage.delete(f"db/old/.hoodie/.locks/{name}")
        if states[1] != [1, 2, 3, 4]:
            rename(storage, "db/old", "db/new", SETTINGS)
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
    with pytest.raises(TableExists, match="being renamed to db/new"):
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


def test_a_mark_that_cannot_be_read_is_named() -> None:
    root = new_table()
    storage = open_storage(root)
    storage.write("db/old/.hoodie/rename.json", b"{")
    with pytest.raises(CorruptFile, match=r"rename\.json"):
        rename(storage, "db/old", "db/new", SETTINGS)
    assert ids(f"{root}/db/old") == [1, 2, 3, 4]


def test_a_writer_that_began_before_the_rename_does_not_commit() -> None:
    root = new_table()
    before = lakebed.open(f"{root}/db/old")
    rename(open_storage(root), "db/old", "db/new", SETTINGS)
    with pytest.raises((TableNotFound, CommitConflict)):
        before.upsert({"id": [9], "city": ["a"]})
    assert ids(f"{root}/db/new") == [1, 2, 3, 4]
    assert lakebed.list_tables(root) == [f"{root}/db/new"]
