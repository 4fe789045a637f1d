"""Consistent hashing beside real Hudi: both write in turn, and each runs the resizes that the other planned, with
writes of both beside the pending plan."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata
from interop.test_mor_rounds import NEVER, SCHEMA, Case, batch, check, data_of, theirs
from lakebed.table import Table
from oracle.client import HudiOracle
from property.model import RingTable
from sampling import INTEROP, todays

CASES = (Case(9, "consistent", False, ("column_stats",)), Case(8, "consistent", False))
CLUSTERING = "org.apache.hudi.client.clustering."
SIZES = {
    "hoodie.bucket.index.max.num.buckets": "6",
    "hoodie.bucket.index.min.num.buckets": "1",
    "hoodie.parquet.max.file.size": "1000",
}
QUIET = {
    **NEVER,
    **SIZES,
    "hoodie.compact.inline": "false",
    "hoodie.clustering.inline": "false",
    "hoodie.clustering.plan.strategy.class": f"{CLUSTERING}plan.strategy.SparkConsistentBucketClusteringPlanStrategy",
    "hoodie.clustering.execution.strategy.class": (
        f"{CLUSTERING}run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
    ),
    "hoodie.clustering.updates.strategy": f"{CLUSTERING}update.strategy.SparkConsistentBucketDuplicateUpdateStrategy",
}


@pytest.mark.parametrize("case", todays(CASES, 2, INTEROP), ids=str)
def test_rings_and_resizes_of_both(case: Case, tmp_path: Path, oracle: HudiOracle) -> None:
    table = lakebed.create(
        str(tmp_path / "ring"),
        SCHEMA,
        key="id",
        partition_by="city",
        type="mor",
        index="consistent",
        buckets=2,
        indexes=case.indexes,
        table_version=case.version,
        properties={"hoodie.compact.inline": False},
    )
    turns = Turns(oracle, table, case)
    turns.write(by_hudi=False)
    turns.write(by_hudi=True)
    turns.delete(by_hudi=True)
    turns.delete(by_hudi=False)
    # lakebed plans, both write beside the plan, lakebed runs it
    planned = table.cluster(plan_only=True, options=SIZES).planned
    assert planned is not None
    turns.write(by_hudi=False)
    turns.write(by_hudi=True)
    turns.delete(by_hudi=False)
    assert table.cluster(options=SIZES).instants[:1] == (planned,)
    turns.check()
    turns.write(by_hudi=True)
    turns.write(by_hudi=False)
    table.compact()
    turns.check()


class Turns:
    """Writes of the two, and what must be there after each."""

    def __init__(self, oracle: HudiOracle, table: Table, case: Case) -> None:
        self.oracle, self.table, self.case = oracle, table, case
        self.chance, self.turn = random.Random(str(case)), 0
        self.model = RingTable(event_time=False)
        self.options = {**hudi_job(table), **keeping_metadata(table)}

    def write(self, *, by_hudi: bool, how: dict[str, str] = QUIET) -> None:
        self.turn += 1
        rows = [
            row | {"v": row["v"] or 7, "price": row["price"] or "0.01"}
            for row in batch(self.chance, self.turn, new=False)
        ]
        if by_hudi:
            theirs(self.oracle, self.table, "upsert", rows, [], self.options | how)
        else:
            self.table.upsert(data_of(rows))
        self.model.upsert(rows)
        self.check()

    def delete(self, *, by_hudi: bool) -> None:
        self.turn += 1
        gone = self.chance.sample(sorted({key for _, key in self.model.rows}), 4)
        if by_hudi:
            theirs(self.oracle, self.table, "delete", [], gone, self.options | QUIET)
        else:
            self.table.delete(gone)
        self.model.delete_ids(gone)
        self.check()

    def check(self) -> None:
        check(self.oracle, self.table, self.case, self.model, self.turn)
