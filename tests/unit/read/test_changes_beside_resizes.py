"""Change data of writes beside a pending split or merge of the buckets of a consistent hashing index: such a write goes
to the buckets that there are and to those that come, and is told once, also when the clustering is done."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import lakebed
from lakebed.table import Table
from support.crash_tables import rows

SPLITS: dict[str, Any] = {"hoodie.bucket.index.max.num.buckets": 8, "hoodie.parquet.max.file.size": 1_000}
MERGES: dict[str, Any] = {"hoodie.bucket.index.min.num.buckets": 1, "hoodie.bucket.index.merge.threshold": 1.5}
OLD = "old" * 20
_numbers = itertools.count()


def change_rows(table: Table, start: str) -> list[tuple[str, int, str | None, str | None]]:
    found: list[tuple[str, int, str | None, str | None]] = []
    for row in table.cdc(start).to_arrow().to_pylist():
        before, after = row["before"] or {}, row["after"] or {}
        found.append((row["op"], (after or before)["id"], before.get("v"), after.get("v")))
    return sorted(found)


def new_table(count: int, version: int) -> Table:
    return lakebed.create(
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


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize(("sizes", "count"), [(SPLITS, 2), (MERGES, 4)], ids=["split", "merge"])
def test_a_write_during_a_resize_warns_once(sizes: dict[str, Any], count: int, version: int) -> None:
    table = new_table(count, version)
    table.upsert(rows(*((n, "c0", OLD, 0) for n in range(20))))
    start = table.cdc("000").end
    assert table.maintenance.cluster(plan_only=True, options=sizes).plan is not None
    table.upsert(rows((0, "c0", "new", 1), (30, "c0", "new", 1)))
    table.delete([1])
    expected = [("d", 1, OLD, None), ("i", 30, None, "new"), ("u", 0, OLD, "new")]
    assert change_rows(table, start) == expected
    assert table.maintenance.cluster(options=sizes).runs
    assert change_rows(table, start) == expected
    table.upsert(rows((30, "c0", "newer", 2)))
    assert change_rows(table, start) == sorted([*expected, ("u", 30, "new", "newer")])


@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_write_during_a_resize_that_is_removed_warns_once(version: int) -> None:
    """What it wrote for the buckets that were to come is gone."""
    table = new_table(2, version)
    table.upsert(rows(*((n, f"c{n % 2}", OLD, 0) for n in range(40))))
    start = table.cdc("000").end
    plan = table.maintenance.cluster(plan_only=True, options=SPLITS).planned
    table.upsert(rows((0, "c0", "new", 1), (50, "c0", "new", 1)))
    expected = [("i", 50, None, "new"), ("u", 0, OLD, "new")]
    end = table.cdc(start).end
    assert change_rows(table, start) == expected
    table.delete_partitions(["c1"])
    assert plan not in [i.time for i in lakebed.open(table.uri).timeline]
    found = lakebed.open(table.uri).cdc(start, end).to_arrow().to_pylist()
    shown = [(row["op"], (row["after"] or row["before"])["id"], (row["before"] or {}).get("v")) for row in found]
    assert sorted(shown) == [("i", 50, None), ("u", 0, OLD)]
    changed = lakebed.open(table.uri).changes(start).to_arrow().to_pylist()
    assert sorted((row["id"], row["v"]) for row in changed) == [(0, "new"), (50, "new")]
