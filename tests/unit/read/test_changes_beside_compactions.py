"""Change data of writes beside a compaction that was planned and has not run yet: before version 8 their log files are
named after it."""

from __future__ import annotations

import itertools

import pytest

import lakebed
from crash_tables import rows
from lakebed.table import Table

_numbers = itertools.count()


def told(table: Table, start: str) -> list[tuple[str, int, str | None, str | None]]:
    found: list[tuple[str, int, str | None, str | None]] = []
    for row in lakebed.open(table.uri).cdc(start).to_arrow().to_pylist():
        before, after = row["before"] or {}, row["after"] or {}
        found.append((row["op"], (after or before)["id"], before.get("v"), after.get("v")))
    return sorted(found, key=str)


@pytest.mark.parametrize("is_compacted", [True, False], ids=["base-file-and-logs", "logs-alone"])
@pytest.mark.parametrize("index", ["bucket", "consistent", "simple"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_write_beside_a_planned_compaction_is_told_with_what_was_before(
    version: int, index: str, is_compacted: bool
) -> None:
    table = lakebed.create(
        f"memory://changes-beside-compactions/t{next(_numbers)}",
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type="mor",
        index=index,
        buckets=None if index == "simple" else 1,
        table_version=version,
        properties={"hoodie.table.cdc.enabled": True, "hoodie.compact.inline": False},
    )
    table.upsert(rows((0, "c0", "a", 0), (1, "c0", "a", 0)))
    if is_compacted:
        table.upsert(rows((0, "c0", "b", 1)))
        table.compact()
    for turn, value in ((2, "c"), (3, "d")):
        table.upsert(rows((0, "c0", value, turn)))
    start = table.cdc("000").end
    assert table.compact(plan_only=True).plan is not None
    table.upsert(rows((0, "c0", "e", 4), (2, "c0", "e", 4)))
    table.upsert(rows((0, "c0", "f", 5)))
    expected = [("i", 2, None, "e"), ("u", 0, "d", "e"), ("u", 0, "e", "f")]
    assert told(table, start) == expected
    table.compact()
    assert told(table, start) == expected
    table.delete([1])
    assert told(table, start) == sorted([*expected, ("d", 1, "a", None)])
