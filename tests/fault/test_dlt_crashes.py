"""Every storage mutation of one load of dlt's tables as the place where the process dies: loaded again, each table has
each row of the load once, in one commit.

Some mutations are struck each day; `LAKEBED_CRASH=all` strikes all of them.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.model import COMMIT_ACTIONS
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed, Mode, crash_at
from support.sampling import CRASH, is_todays

pytest.importorskip("dlt", reason="dlt is not installed")

from lakebed.dlt_destination.chain import Dataset, LoadedTable, TableChain

BEFORE = {
    "trips": [{"id": 1, "_dlt_id": "r1", "gone": False}, {"id": 2, "_dlt_id": "r2", "gone": False}],
    "tags": [{"k": "a", "_dlt_root_id": "r1", "_dlt_id": "a"}, {"k": "b", "_dlt_root_id": "r2", "_dlt_id": "b"}],
}
LOAD = {
    "trips": [{"id": 1, "_dlt_id": "r1", "gone": True}, {"id": 3, "_dlt_id": "r3", "gone": False}],
    "tags": [{"k": "c", "_dlt_root_id": "r3", "_dlt_id": "c"}, {"k": "d", "_dlt_root_id": "r1", "_dlt_id": "d"}],
}
AFTER: dict[str, dict[str, list[Any]]] = {
    "append": {"trips": [1, 1, 2, 3], "tags": ["a", "b", "c", "d"]},
    "replace": {"trips": [1, 3], "tags": ["c", "d"]},
    "merge": {"trips": [2, 3], "tags": ["b", "c"]},
}


def chain(folder: str, files: Path, load: str, disposition: str, rows: dict[str, list[dict[str, Any]]]) -> TableChain:
    tables: list[LoadedTable] = []
    for name, extra in (("trips", {"key": ["id"], "deletes": "gone"}), ("tags", {"root_id": "_dlt_root_id"})):
        path, data = files / f"{load}-{disposition}-{name}.parquet", pa.Table.from_pylist(rows[name])
        pq.write_table(data, path)
        tables.append(LoadedTable(name, data.schema, [str(path)], **extra))  # type: ignore[arg-type]
    options = {"lakebed.write.tasks": 1, "hoodie.write.lock.wait_time_ms": 5000}
    return TableChain(load, disposition, tables, Dataset(folder, {}, {"type": "mor"}, options))


def state(folder: str) -> dict[str, list[Any]]:
    return {
        name: sorted(lakebed.open(f"{folder}/{name}").to_arrow()[column].to_pylist())
        for name, column in (("trips", "id"), ("tags", "k"))
    }


@pytest.mark.parametrize("disposition", list(AFTER))
@pytest.mark.parametrize("mode", ["kill", "unacknowledged"])
def test_a_load_that_died_anywhere_is_in_each_table_once(disposition: str, mode: Mode, tmp_path: Path) -> None:
    name = f"dlt-{uuid.uuid4().hex}"
    chain(f"memory://{name}", tmp_path, "1", disposition, BEFORE).write()
    with crash_at(0) as counted:
        chain(f"memory://{name}", tmp_path, "2", disposition, LOAD).write()
    assert state(f"memory://{name}") == AFTER[disposition]
    MemoryStorage.drop(name)
    points = [at for at in range(1, len(counted.mutations) + 1) if is_todays(at, 40, CRASH, disposition, mode, "dlt")]
    for at in points:
        folder = f"memory://{name}-{at}"
        chain(folder, tmp_path, "1", disposition, BEFORE).write()
        with crash_at(at, mode) as crash, suppress(Killed):
            chain(folder, tmp_path, "2", disposition, LOAD).write()
        assert crash.dead, at
        for _ in range(2):
            chain(folder, tmp_path, "2", disposition, LOAD).write()
            assert state(folder) == AFTER[disposition], crash
        for table in ("trips", "tags"):
            instants = lakebed.open(f"{folder}/{table}").timeline
            assert sum(i.is_completed and i.action in COMMIT_ACTIONS for i in instants) == 2, crash
        MemoryStorage.drop(f"{name}-{at}")
