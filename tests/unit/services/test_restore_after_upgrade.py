"""A table that is restored to before its upgrade: what later commits of version 6 had appended to its log files stays
hidden, also when they are archived times."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
SHORT_RETENTION = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 1}
OFF = {"hoodie.compact.inline": False, "hoodie.clean.automatic": False, "hoodie.archive.automatic": False}


def values(table: Table, **options: object) -> dict[int, int]:
    rows = lakebed.open(table.uri, options=options).scan().to_arrow().to_pylist()
    return {row["id"]: row["v"] for row in rows}


@pytest.mark.parametrize("index", ["simple", "bucket"])
@pytest.mark.parametrize("to", [8, 9])
def test_blocks_that_were_undone_do_not_come_back(to: int, index: str, tmp_path: Path) -> None:
    table = lakebed.create(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        type="mor",
        index=index,
        buckets=1 if index == "bucket" else None,
        table_version=6,
        properties=OFF,
    )
    table.upsert([{"id": n, "v": 0} for n in range(4)])
    table.upsert([{"id": 0, "v": 1}])
    saved = table.savepoints.create()
    table.upsert([{"id": 1, "v": 2}, {"id": 2, "v": 2}])
    table.maintenance.upgrade(to=to)
    table = lakebed.open(table.uri)
    assert values(table) == {0: 1, 1: 2, 2: 2, 3: 0}
    table.restore(saved.instant)
    table = lakebed.open(table.uri)
    assert values(table) == {0: 1, 1: 0, 2: 0, 3: 0}
    table.savepoints.delete(saved.instant)
    for n in range(8):
        table.upsert([{"id": 3, "v": 10 + n}])
        table.maintenance.archive(options=SHORT_RETENTION)
    table = lakebed.open(table.uri)
    assert values(table) == {0: 1, 1: 0, 2: 0, 3: 17}
    assert values(table, **{"hoodie.metadata.enable": False}) == {0: 1, 1: 0, 2: 0, 3: 17}
    assert table.indexes.verify().ok
