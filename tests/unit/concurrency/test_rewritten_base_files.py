"""Writes that write a base file of a merge-on-read table again, while services plan for the same file groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.operations.placement import AssignedRows
from lakebed.table import Table
from lakebed.write_status import WriteStatus
from support.write_tables import content, rows

Make = Callable[..., Table]
KEYS = range(20)
# A key that comes back after a delete: its row goes to the base file that has it, which is written again.
RETURNS = (3, "a", "new", 11)
SERVICES: dict[str, Callable[[Table], Any]] = {
    "plan of a compaction": lambda table: table.maintenance.compact(plan_only=True),
    "compaction": lambda table: table.maintenance.compact(),
    "plan of a log compaction": lambda table: table.maintenance.compact(logs=True, plan_only=True, options=MAX_BLOCKS),
    "log compaction": lambda table: table.maintenance.compact(logs=True, options=MAX_BLOCKS),
}
MAX_BLOCKS = {"hoodie.log.compaction.blocks.threshold": 2}
OLD = {key: (key, "a", "old", 10) for key in KEYS}


def new_table(make: Make, version: int) -> Table:
    table = make(type="mor", index="bloom", table_version=version, properties={"hoodie.compact.inline": False})
    table.upsert(rows(*OLD.values()))
    table.delete([3, 5])
    table.delete([7])
    return table


WITHOUT = sorted(old for key, old in OLD.items() if key not in (3, 5, 7))
EXPECTED = sorted([*WITHOUT, RETURNS])


def with_service(monkeypatch: pytest.MonkeyPatch, table: Table, service: str) -> None:
    """The service runs when the next write has written its files, before it commits."""
    run = AssignedRows.run

    def then_the_service(layout: AssignedRows) -> list[WriteStatus]:
        monkeypatch.setattr(AssignedRows, "run", run)
        written = run(layout)
        assert any((status.path or "").endswith(".parquet") for status in written)
        SERVICES[service](lakebed.open(table.uri))
        return written

    monkeypatch.setattr(AssignedRows, "run", then_the_service)


def check_after_services(table: Table) -> None:
    assert content(table) == EXPECTED
    table.maintenance.compact(logs=True, options=MAX_BLOCKS)
    assert content(table) == EXPECTED
    table.maintenance.compact()
    assert content(table) == EXPECTED
    assert lakebed.open(table.uri).indexes.verify().ok


@pytest.mark.parametrize("service", list(SERVICES))
@pytest.mark.parametrize("version", [9, 8])
def test_a_plan_made_during_the_write_is_a_conflict(
    make: Make, monkeypatch: pytest.MonkeyPatch, version: int, service: str
) -> None:
    table = new_table(make, version)
    with_service(monkeypatch, table, service)
    with pytest.raises(CommitConflict, match="was changed by"):
        table.upsert(rows(RETURNS))
    table = lakebed.open(table.uri)
    assert content(table) == WITHOUT
    table.upsert(rows(RETURNS))
    check_after_services(table)


@pytest.mark.parametrize("service", list(SERVICES))
def test_version_6_plans_nothing_during_a_write(make: Make, monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    table = new_table(make, 6)
    with_service(monkeypatch, table, service)
    table.upsert(rows(RETURNS))
    check_after_services(lakebed.open(table.uri))


@pytest.mark.parametrize("service", ["plan of a compaction", "plan of a log compaction"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_plan_made_before_does_not_hide_them(make: Make, version: int, service: str) -> None:
    table = new_table(make, version)
    SERVICES[service](table)
    table.upsert(rows(RETURNS))
    check_after_services(table)
