"""Cleaning of the metadata table looks through its folders only where the timeline says that something is to be found:
what stays is what would stay if it looked every time."""

from __future__ import annotations

import uuid
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata_upkeep import services
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage

COMMITS = 75
FOLDER = ".hoodie/metadata"


def files_after_each_commit(version: int) -> tuple[list[Counter[tuple[str, str]]], int]:
    """How many files of which kind each partition of the metadata table has after each commit, and how often the
    folders were looked through for cleaning."""
    name = uuid.uuid4().hex
    uri = f"memory://{name}/table"
    rows = pa.table({"id": ["a", "b"], "ts": [1, 1], "v": [1.0, 2.0]})
    table = lakebed.create(uri, rows, key="id", ordering="ts", index="bucket", buckets=1, table_version=version)
    storage = open_storage(uri)
    seen: list[Counter[tuple[str, str]]] = []
    plan, looks = services._plan, 0  # pyright: ignore[reportPrivateUsage]

    def counted(*given: object) -> object:
        nonlocal looks
        looks += 1
        return plan(*given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        # a plan lists no folder that other services do not list, too: only calls show how often it is made
        patch.setattr(services, "_plan", counted)
        for number in range(COMMITS):
            table.upsert(rows.set_column(1, "ts", pa.array([number + 2] * 2)))
            paths = [info.path.removeprefix(f"{FOLDER}/") for info in storage.list(FOLDER)]
            data = [path.split("/") for path in paths if not path.startswith(".hoodie/") and path.count("/") == 1]
            seen.append(Counter((folder, "log" if ".log." in file else "base") for folder, file in data))
    MemoryStorage.drop(name)
    return seen, looks


@pytest.mark.rest
@pytest.mark.parametrize("version", [9, 8, 6])
def test_what_is_cleaned_does_not_depend_on_how_often_it_is_looked_for(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, looks = files_after_each_commit(version)
    monkeypatch.setattr(services, "has_expired_since", lambda *_: True)
    expected, every = files_after_each_commit(version)
    assert seen == expected
    assert any(after["files", "log"] < before["files", "log"] for before, after in pairwise(seen))
    assert max(after["files", "base"] for after in seen) < 10  # a compaction every seven commits or so made one
    assert looks <= every < COMMITS / 4


@pytest.mark.rest
@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_the_metadata_table_is_cleaned_however_often_it_is_compacted(after: int) -> None:
    name = uuid.uuid4().hex
    rows = pa.table({"id": ["a"], "v": [1.0]})
    settings = {"hoodie.metadata.compact.max.delta.commits": after}
    table = lakebed.create(f"memory://{name}/table", rows, key="id", index="bucket", buckets=1, properties=settings)
    storage = open_storage(f"memory://{name}/table")
    kept: list[int] = []
    for _ in range(50):
        table.upsert(rows)
        names = storage.list_names(f"{FOLDER}/files")
        kept.append(sum(file.endswith(".hfile") for file in names))
    MemoryStorage.drop(name)
    assert max(kept[-20:]) <= 20 // after + 4
    assert kept[-1] > 1
