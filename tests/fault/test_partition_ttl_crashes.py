"""Every storage mutation of an expiry as the place where it fails, dies, is torn, or gets no answer: all partition
paths that are over their time are there, or none; the next run does the rest and leaves nothing over.

Some mutations are struck, others each day; `LAKEBED_CRASH=all` strikes all of them, on all kinds of tables.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache

import pytest
import time_machine

import lakebed
from fault.test_compaction_crashes import _faulty
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed, Mode
from support.crash_tables import NEXT, OPTIONS, Model, copied, create, leftovers, put, rows, state, strike_each
from support.sampling import CRASH, whole

KINDS = (
    ("bucket", 9, "memory"),
    ("mor-bucket", 8, "local"),
    ("simple", 6, "local"),
    ("record", 9, "memory"),
    ("mor-record", 9, "local"),
)
FAULTS: tuple[Mode, ...] = ("unacknowledged", "torn", "fail", "doubtful", "lost")


@cache
def prepared(index: str, version: int) -> tuple[dict[str, bytes], Model, Model]:
    """The files of a table with a partition path of today and two of long ago, its rows, and those of the one."""
    name = f"prepared-{uuid.uuid4().hex}"
    uri = f"memory://{name}/t"
    old = [(n, f"c{n % 2}", "a", 1) for n in range(6)]
    new = [(n, "c2", "b", 2) for n in range(6, 9)]
    with time_machine.travel(datetime(2020, 1, 1, tzinfo=UTC), tick=True):
        create(uri, index, version)
        lakebed.open(uri).upsert(rows(*old), options=OPTIONS)
    lakebed.open(uri).upsert(rows(*new), options=OPTIONS)
    storage = open_storage(uri)
    files = {info.path: storage.read(info.path) for info in storage.list()}
    MemoryStorage.drop(name)
    return files, put(put({}, *old), *new), put({}, *new)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (kind, mode)
        for at, mode in enumerate(FAULTS)
        for kind in (KINDS if whole(CRASH) else KINDS[at : at + 1])
        if mode != "torn" or kind[2] == "local"
    ],
)
def test_an_expiry_deletes_all_partition_paths_or_none_and_the_next_run_the_rest(
    kind: tuple[str, int, str], mode: Mode
) -> None:
    assert strike_each(lambda at: _crash(kind, mode, at), 11, kind, mode) >= 1


def _crash(kind: tuple[str, int, str], mode: Mode, at: int) -> int | None:
    files, old, left = prepared(*kind[:2])
    with copied(kind[2], files) as uri:
        with _faulty(kind[2], uri, at, mode) as crash, suppress(Killed, lakebed.LakebedError):
            lakebed.open(uri).maintenance.expire_partitions(100, options=OPTIONS)
        if not crash.fired:
            return len(crash.mutations)
        try:
            assert state(uri) in (old, left)
            done = set(_expire(uri))
            assert state(uri) == left
            assert done <= {"c0", "c1"}
            assert _expire(uri) == []
            NEXT.run(lakebed.open(uri))
            assert state(uri) == NEXT.model(left)
            assert leftovers(uri) == []
            verified = lakebed.open(uri).indexes.verify()
            assert verified.ok, verified
        except Exception as error:
            error.add_note(f"{kind} {mode} {at}: {crash}")
            raise
    return None


def _expire(uri: str) -> list[str]:
    return list(lakebed.open(uri).maintenance.expire_partitions(100, options=OPTIONS).paths)
