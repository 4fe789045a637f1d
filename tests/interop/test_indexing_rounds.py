"""Indexes that one of lakebed and real Hudi plans on the timeline and the other builds, with writes of both around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata
from lakebed.table import Table
from oracle.client import HudiOracle

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())])
SHARED = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
ENABLED = {
    "BLOOM_FILTERS": {"hoodie.metadata.index.bloom.filter.enable": "true"},
    "RECORD_INDEX": {"hoodie.metadata.global.record.level.index.enable": "true"},
}


def rows(*numbers: int, v: str) -> pa.Table:
    data = {"id": list(numbers), "city": [f"c{n % 2}" for n in numbers], "v": [v] * len(numbers)}
    return pa.table({**data, "ts": [1] * len(numbers)}, schema=SCHEMA)


def check(oracle: HudiOracle, table: Table, index: str, expected: dict[int, str]) -> None:
    found = lakebed.open(table.uri).scan().to_arrow().to_pylist()
    assert {row["id"]: row["v"] for row in found} == expected
    theirs = oracle.read(table.uri).to_pylist()
    assert {row["id"]: row["v"] for row in theirs} == expected
    assert index in [fact.name for fact in table.indexes.list()]
    verified = table.indexes.verify()
    assert verified.ok, verified
    assert oracle.problems(table.uri) == []


@pytest.mark.full
@pytest.mark.parametrize("type", ["cow", "mor"])
def test_plans_of_one_are_built_by_the_other(type: Any, tmp_path: Path, oracle: HudiOracle) -> None:
    table = lakebed.create(
        str(tmp_path / "indexed"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        type=type,
        index="global_simple",
    )
    model: dict[int, str] = {}

    def write(by_hudi: bool, v: str, *numbers: int) -> None:
        if by_hudi:
            oracle.write(table.uri, rows(*numbers, v=v), "upsert", {**hudi_job(table), **keeping_metadata(table)})
        else:
            table.upsert(rows(*numbers, v=v))
        model.update(dict.fromkeys(numbers, v))

    def service(call: str, what: str, index: str) -> list[dict[str, Any]]:
        settings = {**hudi_job(table), **keeping_metadata(table), **SHARED, **ENABLED[index]}
        return oracle.ask("service", table=table.uri, call=call, instant=what, options=settings)["new_instants"]

    write(False, "a", 1, 2, 3)
    write(True, "b", 3, 4)
    # real Hudi plans, lakebed builds
    service("schedule_indexing", "BLOOM_FILTERS", "BLOOM_FILTERS")
    (plan,) = table.indexes.waiting
    assert plan.partitions == ("bloom_filters",)
    write(False, "c", 4, 5)
    assert [run.instant for run in table.indexes.build().runs] == [plan.instant]
    check(oracle, table, "bloom_filters", model)
    write(True, "d", 1, 6)
    check(oracle, table, "bloom_filters", model)
    # lakebed plans, real Hudi builds
    mine = table.indexes.create("record_index", wait=False)
    assert mine is not None
    write(False, "e", 2, 7)
    service("index", mine.instant, "RECORD_INDEX")
    assert table.indexes.waiting == []
    check(oracle, table, "record_index", model)
    write(True, "f", 5, 8)
    write(False, "g", 6, 9)
    check(oracle, table, "record_index", model)
