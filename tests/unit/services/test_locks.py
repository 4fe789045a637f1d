"""Services that have no transaction of a write take the lock that a job names, as real Hudi's writers do."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.options import resolve_options
from lakebed.engine.local import LocalEngine
from lakebed.errors import LockTimeout
from lakebed.services.build_index import build_planned
from lakebed.services.repair import repair_table
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage

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
