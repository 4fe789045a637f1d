"""Change data of writes beside a pending split or merge of the buckets of a consistent hashing index: such a write goes
to the buckets that there are and to those that come, and is told once, also when the clustering is done."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import lakebed
from crash_tables import rows
from lakebed.table import Table

SPLITS: dict[str, Any] = {"hoodie.bucket.index.max.num.buckets": 8, "hoodie.parquet.max.file.size": 1_000}
MERGES: dict[str, Any] = {"hoodie.bucket.index.min.num.buckets": 1, "hoodie.bucket.index.merge.threshold": 1.5}
OLD = "old" * 20
_numbers = itertools.count()


def told(table: Table, start: str) -> list[tuple[str, int, str | None, str | None]]:
    found: list[tuple[str, int, str | None, str | None]] = []
    for row in table.cdc(start).to_arrow().to_pylist():
        before, after = row["before"] or {}, row["after"] or {}
        found.append((row["op"], (after or before)["id"], before.get("v"), after.get("v")))
    return sorted(found)


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize(("sizes", "count"), [(SPLITS, 2), (MERGES, 4)], ids=["split", "merge"])
def test_a_write_beside_a_resize_is_told_once(sizes: dict[str, Any], count: int, version: int) -> None:
    table = lakebed.create(
        f"memory://changes-beside-resizes/t{next(_numbers)}",
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type="mor",
        index="consistent",
        buckets=count,
        table_version=version,
        properties={"hoodie.table.cdc.enabled": True, "hoodie.compact.inline": False},
    )
    table.upsert(rows(*((n, "c0", OLD, 0) for n in range(20))))
    start = table.cdc("000").end
    assert table.cluster(plan_only=True, options=sizes).plan is not None
    table.upsert(rows((0, "c0", "new", 1), (30, "c0", "new", 1)))
    table.delete([1])
    expected = [("d", 1, OLD, None), ("i", 30, None, "new"), ("u", 0, OLD, "new")]
    assert told(table, start) == expected
    assert table.cluster(options=sizes).runs
    assert told(table, start) == expected
    table.upsert(rows((30, "c0", "newer", 2)))
    assert told(table, start) == sorted([*expected, ("u", 30, "new", "newer")])
