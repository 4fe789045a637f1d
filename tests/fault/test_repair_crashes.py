"""Every storage mutation of a repair as the place where it fails, dies, is torn, or gets no answer: rows are as they
were, or without the copies that were to go, and the next repair does the rest.

Some mutations are struck, others each day; `LAKEBED_CRASH=all` strikes all of them, on all kinds of tables.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import cache

import pytest

import lakebed
from fault.test_compaction_crashes import _faulty
from lakebed.properties.file import BACKUP_PATH, PROPERTIES_PATH
from lakebed.services.repair import PARTS
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed, Mode
from support.crash_tables import NEXT, OPTIONS, copied, create, rows, strike_each
from support.sampling import CRASH, whole

KINDS = (("simple", 9, "memory"), ("mor-simple", 8, "local"), ("simple", 6, "local"))
FAULTS: tuple[Mode, ...] = ("unacknowledged", "torn", "fail", "doubtful", "lost")
Rows = list[tuple[object, ...]]
_APART = {**OPTIONS, "hoodie.parquet.small.file.limit": 0}


@cache
def prepared(index: str, version: int) -> dict[str, bytes]:
    """The files of a table with everything wrong with it that a repair mends."""
    name = f"prepared-{uuid.uuid4().hex}"
    uri = f"memory://{name}/t"
    create(uri, index, version)
    table = lakebed.open(uri)
    first = table.insert(rows((1, "c0", "old", 1), (2, "c0", "x", 1), (3, "c1", "x", 1)), options=_APART)
    table.insert(rows((1, "c0", "new", 1), (1, "c0", "new", 1)), options=_APART)
    storage = open_storage(uri)
    base = next(path for path in first.files if path.startswith("c0/"))
    storage.write(base.replace(first.instant, str(int(first.instant) + 1)), storage.read(base))
    storage.delete("c1/.hoodie_partition_metadata")
    storage.write(BACKUP_PATH, storage.read(PROPERTIES_PATH))
    storage.write(PROPERTIES_PATH, storage.read(PROPERTIES_PATH)[:100])
    files = {info.path: storage.read(info.path) for info in storage.list()}
    MemoryStorage.drop(name)
    return files


OLD: Rows = [(1, "new"), (1, "new"), (1, "old"), (2, "x"), (3, "x")]
HALF: Rows = [(1, "new"), (1, "new"), (2, "x"), (3, "x")]  # copies in other files are deleted first
NEW: Rows = [(1, "new"), (2, "x"), (3, "x")]


def visible_rows(uri: str) -> Rows:
    """All rows, by the metadata table and by the folders."""
    found: list[Rows] = []
    for listed in (True, False):
        table = lakebed.open(uri, options={"hoodie.metadata.enable": listed})
        found.append(sorted(tuple(row.values()) for row in table.scan(["id", "v"]).to_arrow().to_pylist()))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (kind, mode)
        for at, mode in enumerate(FAULTS)
        for kind in (KINDS if whole(CRASH) else KINDS[at % 3 : at % 3 + 1])
        if mode != "torn" or kind[2] == "local"
    ],
)
def test_the_next_repair_completes_an_interrupted_one(kind: tuple[str, int, str], mode: Mode) -> None:
    assert strike_each(lambda at: _crash(kind, mode, at), 17, kind, mode) >= 1


def _crash(kind: tuple[str, int, str], mode: Mode, at: int) -> int | None:
    with copied(kind[2], prepared(*kind[:2])) as uri:
        with _faulty(kind[2], uri, at, mode) as crash, suppress(Killed, lakebed.LakebedError):
            lakebed.maintenance.repair(uri, PARTS, options=OPTIONS)
        if not crash.fired:
            return len(crash.mutations)
        try:
            assert visible_rows(uri) in (OLD, HALF, NEW)
            lakebed.maintenance.repair(uri, ["properties"])
            NEXT.run(lakebed.open(uri))  # a writer that died in it is taken back
            assert lakebed.maintenance.repair(uri, PARTS, options=OPTIONS).ok
            again = lakebed.maintenance.repair(uri, dry_run=True)
            assert [part.found for part in again.parts] == [()] * len(PARTS)
            assert [row for row in visible_rows(uri) if row[1] != "next"] == NEW
        except Exception as error:
            error.add_note(f"{kind} {mode} {at}: {crash}")
            raise
    return None
