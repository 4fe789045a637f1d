"""Compactions that one of lakebed and real Hudi plans and the other runs, with writes of both in between."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata
from interop.test_mor_rounds import NEVER, NOW, SCHEMA, Case, batch, check, write_by_hudi, write_by_lakebed
from lakebed.model import Action
from lakebed.table import Table
from oracle.client import HudiOracle
from property.model import DictTable
from support.compaction_tables import log_files, pending
from support.sampling import INTEROP, todays

CASES = (
    Case(9, "bucket", True, ("column_stats", "partition_stats")),
    Case(9, "record", False, ("bloom_filters", "column_stats")),
    Case(8, "bucket", False),
    Case(6, "bucket", True, ("column_stats",)),
)
OLDER = (("1.0.2", Case(8, "bucket", False)), ("0.15.0", Case(6, "bucket", False)))
# A write of real Hudi that plans, and leaves the plan.
PLANS = {**NOW, "hoodie.compact.inline": "false", "hoodie.compact.schedule.inline": "true"}
RUNS = {**NOW, "hoodie.compact.inline": "true"}
WRITES = {**NEVER, "hoodie.compact.inline": "false"}


@pytest.mark.full
@pytest.mark.parametrize("case", todays(CASES, 6, INTEROP), ids=str)
def test_plans_of_one_are_run_by_the_other(case: Case, tmp_path: Path, oracle: HudiOracle) -> None:
    plan_and_run(oracle, created(tmp_path, case), case)


@pytest.mark.full
@pytest.mark.parametrize(("older_oracle", "case"), todays(OLDER, 2, INTEROP), indirect=["older_oracle"], ids=str)
def test_plans_of_older_releases_and_for_them(older_oracle: HudiOracle, case: Case, tmp_path: Path) -> None:
    plan_and_run(older_oracle, created(tmp_path, case), case)


def created(folder: Path, case: Case) -> Table:
    return lakebed.create(
        str(folder / "compacted"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts" if case.ordering else None,
        type="mor",
        index=case.index,
        buckets=2 if case.index == "bucket" else None,
        indexes=case.indexes,
        table_version=case.version,
        properties={
            "hoodie.compact.inline": False,
            **({"hoodie.record.index.update.partition.path": True} if case.index == "record" else {}),
        },
    )


def plan_and_run(oracle: HudiOracle, table: Table, case: Case) -> None:
    chance = random.Random(str(case))
    options = {**hudi_job(table), **keeping_metadata(table)}
    model = DictTable(event_time=False, is_global=case.index == "record", moves=True)
    turn = 0

    def write(by_hudi: bool, how: dict[str, str], *, gone: bool = False) -> None:
        nonlocal turn
        turn += 1
        # real Hudi notes a range from 0 to 0 of nothing but nulls
        rows = [row | {"v": row["v"] or 7, "price": row["price"] or "0.01"} for row in batch(chance, turn, new=False)]
        deleted = chance.sample(sorted({key for _, key in model.rows}), 4) if gone else []
        kind = "delete" if gone else "upsert"
        if by_hudi:
            write_by_hudi(oracle, table, kind, rows, deleted, options | how)
        else:
            write_by_lakebed(table, kind, rows, deleted)
        model.delete_ids(deleted) if gone else model.upsert(rows)

    write(False, WRITES)
    write(True, WRITES)
    write(False, WRITES, gone=True)
    # real Hudi plans, both write, lakebed runs the plan
    write(True, PLANS)
    (plan,) = pending(table)
    assert plan.action is Action.COMPACTION
    write(False, WRITES)
    write(True, WRITES, gone=True)
    check(oracle, table, case, model, turn)
    done = table.maintenance.compact()
    assert done.instants[:1] == (plan.time,), done
    check(oracle, table, case, model, turn)
    assert log_files(table) == 0
    # lakebed plans, both write, real Hudi runs the plan
    write(False, WRITES)
    planned = table.maintenance.compact(plan_only=True).planned
    assert planned is not None
    write(False, WRITES, gone=True)
    write(True, WRITES)
    check(oracle, table, case, model, turn)
    write(True, RUNS)
    commits = [i.time for i in table.timeline if i.action is Action.COMMIT and i.is_completed]
    assert planned in commits
    assert pending(table) == []
    check(oracle, table, case, model, turn)


@pytest.mark.full
@pytest.mark.parametrize("case", todays(CASES[:1] + CASES[2:], 6, INTEROP), ids=str)
def test_real_hudi_goes_on_after_a_compaction_of_the_due_slices_alone(
    case: Case, tmp_path: Path, oracle: HudiOracle
) -> None:
    table = created(tmp_path, case)
    table.configure({"lakebed.compact.log.files": 1})
    assert table.properties["lakebed.compact.due"] == "logs"
    chance = random.Random(str(case))
    model = DictTable(event_time=False, is_global=False, moves=True)
    options = {**hudi_job(table), **keeping_metadata(table)}
    city = "oslo"
    for turn in range(4):
        rows = [row | {"v": row["v"] or 7, "price": row["price"] or "0.01"} for row in batch(chance, turn, new=False)]
        city = rows[0]["city"] if turn == 2 else city
        rows = [row for row in rows if turn < 2 or row["city"] == city]
        write_by_lakebed(table, "upsert", rows, [])
        model.upsert(rows)
    done = table.maintenance.compact(when_due=True)
    assert {file_slice.partition for file_slice in done.slices} == {city}
    assert 0 < log_files(table) < 6
    check(oracle, table, case, model, 4)
    # real Hudi logs more, and compacts what is left
    for turn, how in ((5, WRITES), (6, RUNS)):
        rows = [row | {"v": row["v"] or 7, "price": row["price"] or "0.01"} for row in batch(chance, turn, new=False)]
        write_by_hudi(oracle, table, "upsert", rows, [], options | how)
        model.upsert(rows)
        check(oracle, table, case, model, turn)
    assert log_files(table) == 0
