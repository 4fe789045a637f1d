"""Services that have no transaction of a write take the lock that a job names, as real Hudi's writers do."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.options import resolve_options
from lakebed.engine.local import LocalEngine
from lakebed.errors import CommitConflict, LockTimeout
from lakebed.model import LOCK_FILE
from lakebed.properties.file import BACKUP_PATH
from lakebed.services.build_index import build_planned
from lakebed.services.repair import repair_table
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from support.frozen import FrozenWriter

FILE_LOCK = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.lock.wait_time_ms": 100,
}
HELD = ".hoodie/lock"


def test_repairs_and_builds_of_indexes_wait_for_the_lock_of_real_hudi() -> None:
    uri = "memory://locks-of-services/t"
    table = lakebed.create(uri, {"id": [1], "v": [1]}, key="id", index="global_simple")
    table.upsert(pa.table({"id": [1, 2], "v": [1, 2]}))
    table.indexes.create("record_index", wait=False)
    storage, settings = open_storage(uri), resolve_options(FILE_LOCK).write
    storage.write(HELD, b"")  # as real Hudi's file system lock is
    with pytest.raises(LockTimeout):
        build_planned(storage, settings, LocalEngine())
    assert [plan.partitions for plan in table.indexes.waiting] == [("record_index",)]
    with pytest.raises(LockTimeout):
        repair_table(storage, ["metadata"], options=FILE_LOCK)
    storage.delete(HELD)
    assert build_planned(storage, settings, LocalEngine()).built == ("record_index",)
    assert repair_table(storage, ["metadata"], options=FILE_LOCK).parts[0].found == ()
    assert lakebed.open(uri).get([1, 2])["v"].to_pylist() == [1, 2]
    MemoryStorage.drop("locks-of-services")


CHANGES: dict[str, Callable[[lakebed.Table], object]] = {
    "create": lambda t: t.indexes.create("record_index", options=FILE_LOCK),
    "plan": lambda t: t.indexes.create("record_index", wait=False, options=FILE_LOCK),
    "build": lambda t: t.indexes.build(options=FILE_LOCK),
    "drop": lambda t: t.indexes.drop("column_stats", options=FILE_LOCK),
    "reshard": lambda t: t.indexes.reshard("record_index", 2, options=FILE_LOCK),
    "repair": lambda t: t.indexes.repair(options=FILE_LOCK),
    "adopt": lambda t: t.indexes.adopt("simple", options=FILE_LOCK),
    "drop the table": lambda t: lakebed.drop(t.uri, options=FILE_LOCK),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_indexes_and_drop_wait_for_the_lock_that_options_name(change: str) -> None:
    uri = "memory://locks-of-indexes/t"
    table = lakebed.create(uri, {"id": [1], "v": [1]}, key="id", index="global_simple")
    table.upsert(pa.table({"id": [1, 2], "v": [1, 2]}))
    if change in ("build", "reshard"):
        table.indexes.create("record_index", groups=1, wait=change == "reshard")
    storage = open_storage(uri)
    before = {info.path: storage.read(info.path) for info in storage.list("")}
    storage.write(HELD, b"")
    with pytest.raises(LockTimeout):
        CHANGES[change](table)
    storage.delete(HELD)
    after = {info.path: storage.read(info.path) for info in storage.list("")}
    assert after == {**before, LOCK_FILE: after[LOCK_FILE]}
    CHANGES[change](table)
    assert change == "drop the table" or table.get([1, 2])["v"].to_pylist() == [1, 2]
    assert bool(lakebed.list_tables(uri, depth=0)) == (change != "drop the table")
    MemoryStorage.drop("locks-of-indexes")


@pytest.mark.parametrize("change", ["drop", "adopt"])
def test_a_change_of_an_index_stops_where_its_lock_is_lost(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "memory://locks-of-indexes/lost"
    table = lakebed.create(uri, {"id": [1]}, key="id", index="global_simple")
    table.upsert({"id": [1]})
    before = table.properties
    with monkeypatch.context() as patch:
        frozen = FrozenWriter(uri, CHANGES[change], lambda mutation: mutation.path == BACKUP_PATH, patch)
        assert frozen.freeze()
        frozen.lose_lock()
        frozen.thaw()
        assert isinstance(frozen.error, CommitConflict), frozen.error
    assert lakebed.open(uri).properties == before
    MemoryStorage.drop("locks-of-indexes")
