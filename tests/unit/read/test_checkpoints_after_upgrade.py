"""Checkpoints that were taken on version 6, where they are requested times, hold after an upgrade, also when their
commits are archived by then."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
SHORT_RETENTION = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 1}


def changed(table: Table, start: str, end: str | None = None) -> list[int]:
    return sorted(table.changes(start, end).to_arrow()["id"].to_pylist())


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("to", [8, 9])
def test_a_checkpoint_of_version_6_replaces_its_archived_commit(kind: str, to: int, tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", type=kind, index="simple", table_version=6)  # type: ignore[arg-type]
    checkpoints = {-1: "earliest"}
    for n in range(4):
        table.upsert([{"id": n, "v": n}])
        checkpoints[n] = table.changes(checkpoints[n - 1]).end
    table.maintenance.upgrade(to=to)
    table = lakebed.open(table.uri)
    active = {n: [changed(table, start), changed(table, start, checkpoints[3])] for n, start in checkpoints.items()}
    for n in range(4, 12):
        table.upsert([{"id": n, "v": n}], options=SHORT_RETENTION)
        table.maintenance.clean(options=SHORT_RETENTION)
        table.maintenance.archive(options=SHORT_RETENTION)
    table = lakebed.open(table.uri)
    assert not set(checkpoints.values()) & {i.time for i in table.timeline}
    for n, start in checkpoints.items():
        assert active[n] == [[*range(n + 1, 4)]] * 2
        assert changed(table, start) == [*range(n + 1, 12)]
        assert changed(table, start, checkpoints[3]) == [*range(n + 1, 4)]
