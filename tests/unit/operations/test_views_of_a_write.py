"""A write looks at its table three times: as it is opened, under the first lock, and under the second."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata.lookups import snapshot_of
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table


def rows(first: int) -> pa.Table:
    return pa.table({"id": [first, first + 1, first + 2], "city": ["a", "b", "a"], "ts": [1, 1, 1]})


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest) -> Generator[Table]:
    kind: Literal["cow", "mor"] = request.param
    uri = f"memory://views-of-a-write/{kind}"
    made = lakebed.create(
        uri, rows(0), key="id", partition_by="city", ordering="ts", type=kind, index="bucket", buckets=2
    )
    for _ in range(2):  # the first one makes the metadata table, which the properties say after it
        made.upsert(rows(0))
    yield made
    MemoryStorage.drop("views-of-a-write")


def looks(run: Callable[[], object]) -> Counter[str]:
    """How often the table was looked at: views, listings of timelines by folder, reads of properties by path."""
    found: Counter[str] = Counter()

    def called(frame: FrameType, event: str, arg: Any) -> None:
        if event != "call":
            return
        if frame.f_code is snapshot_of.__code__:
            found["view"] += 1
        elif frame.f_code is MemoryStorage.list_names.__code__:
            found[f"list {frame.f_locals['prefix']}"] += 1
        elif frame.f_code is MemoryStorage.read.__code__ and frame.f_locals["path"].endswith("hoodie.properties"):
            found[f"read {frame.f_locals['path']}"] += 1

    before = sys.getprofile()
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    return found


def test_a_small_upsert_looks_at_its_table_three_times(table: Table) -> None:
    found = looks(lambda: table.upsert(rows(0)))
    assert {what: times for what, times in found.items() if "heartbeat" not in what} == {
        "view": 3,
        "list .hoodie/timeline": 3,
        "read .hoodie/hoodie.properties": 3,
        "list .hoodie/metadata/.hoodie/timeline": 2,
        "read .hoodie/metadata/.hoodie/hoodie.properties": 2,
    }
