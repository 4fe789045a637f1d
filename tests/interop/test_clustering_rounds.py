"""Clusterings that one of lakebed and real Hudi plans and the other runs, with writes of both before and after."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata
from interop.test_mor_rounds import NEVER, SCHEMA, Case, batch, check, data_of, write_by_hudi
from lakebed.table import Table
from oracle.client import HudiOracle
from property.model import DictTable
from support.compaction_tables import pending
from support.sampling import INTEROP, todays

CASES = (
    ("mor", Case(9, "record", True, ("column_stats", "partition_stats"))),
    ("cow", Case(9, "simple", True, ("bloom_filters",))),
    ("cow", Case(8, "record", False, ("column_stats",))),
    ("cow", Case(6, "simple", True)),
)
OLDER = (("1.0.2", ("cow", Case(8, "simple", False))), ("0.15.0", ("cow", Case(6, "simple", False))))
SMALL = {"hoodie.parquet.small.file.limit": "0", "hoodie.compact.inline": "false"}
SORTS = {"hoodie.clustering.plan.strategy.sort.columns": "ts,id"}
QUIET = {**NEVER, **SMALL, "hoodie.clustering.inline": "false"}
PLANS = {
    **QUIET,
    **SORTS,
    "hoodie.clustering.schedule.inline": "true",
    "hoodie.clustering.async.max.commits": "1",
    "hoodie.clustering.inline.max.commits": "1",
}
RUNS = {**QUIET, **SORTS, "hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}


@pytest.mark.full
@pytest.mark.parametrize(("kind", "case"), todays(CASES, 6, INTEROP), ids=str)
def test_plans_of_one_are_run_by_the_other(kind: Any, case: Case, tmp_path: Path, oracle: HudiOracle) -> None:
    plan_and_run(oracle, created(tmp_path, kind, case), case)


@pytest.mark.full
@pytest.mark.parametrize(("older_oracle", "given"), todays(OLDER, 2, INTEROP), indirect=["older_oracle"], ids=str)
def test_plans_of_older_releases_and_for_them(older_oracle: HudiOracle, given: Any, tmp_path: Path) -> None:
    plan_and_run(older_oracle, created(tmp_path, *given), given[1])


def created(folder: Path, kind: Any, case: Case) -> Table:
    return lakebed.create(
        str(folder / "clustered"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts" if case.ordering else None,
        type=kind,
        index=case.index,
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

    def write(by_hudi: bool, how: dict[str, str]) -> None:
        nonlocal turn
        turn += 1
        # real Hudi notes a range from 0 to 0 of nothing but nulls
        rows = [row | {"v": row["v"] or 7, "price": row["price"] or "0.01"} for row in batch(chance, turn, new=False)]
        if by_hudi:
            write_by_hudi(oracle, table, "upsert", rows, [], options | how)
        else:
            table.upsert(data_of(rows), options=SMALL)
        model.upsert(rows)

    write(False, QUIET)
    write(True, QUIET)
    # lakebed clusters, in files as bytes and then sorted
    assert table.maintenance.cluster().runs
    check(oracle, table, case, model, turn)
    write(True, QUIET)
    assert table.maintenance.cluster(["price", "v"], layout="zorder").runs
    check(oracle, table, case, model, turn)
    # real Hudi plans, lakebed runs the plan
    write(False, QUIET)
    write(True, PLANS)
    (plan,) = pending(table)
    done = table.maintenance.cluster()
    assert done.instants[:1] == (plan.time,), done
    check(oracle, table, case, model, turn)
    # lakebed plans; real Hudi runs the plan, once it has written elsewhere
    write(False, QUIET)
    planned = table.maintenance.cluster(["ts"], partitions=["rome"], plan_only=True).planned
    assert planned is not None
    turn += 1
    rows = [row | {"city": "new"} for row in batch(chance, turn, new=True)[:3]]
    rows = [row | {"id": 10_000 + at} for at, row in enumerate(rows)]
    write_by_hudi(oracle, table, "upsert", rows, [], options | RUNS)
    model.upsert(rows)
    assert planned not in [i.time for i in pending(table)]
    # real Hudi 1.2.0 counts the rows of replaced files in the ranges of a partition path that it clusters
    check(oracle, table, case, model, turn, without=["partition_stats"])
    write(False, QUIET)
    check(oracle, table, case, model, turn, without=["partition_stats"])
