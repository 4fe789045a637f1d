"""lakebed rescales a bucket table between turns of real Hudi, which goes on with the new count: keys stay unique."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata
from interop.test_mor_rounds import NEVER, SCHEMA, Case, batch, check, data_of, write_by_hudi
from oracle.client import HudiOracle
from property.model import DictTable
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays

CASES = (
    ("cow", Case(9, "bucket", False, ("column_stats", "partition_stats"))),
    ("mor", Case(9, "bucket", False)),
    ("mor", Case(8, "bucket", False)),
    ("cow", Case(6, "bucket", False)),
)
QUIET = {**NEVER, "hoodie.compact.inline": "false"}
RESCALES: tuple[dict[str, Any], ...] = (
    {"buckets": 6},
    {"buckets": 3},
    {"buckets": 4},
    {"buckets": 8, "partitions": "rome"},
)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "case"), todays(CASES, 6, INTEROP), ids=str)
def test_real_hudi_goes_on_with_the_new_count(kind: Any, case: Case, tmp_path: Path, oracle: HudiOracle) -> None:
    table = lakebed.create(
        str(tmp_path / "rescaled"),
        SCHEMA,
        key="id",
        partition_by="city",
        type=kind,
        index=case.index,
        buckets=2,
        indexes=case.indexes,
        table_version=case.version,
        properties={"hoodie.compact.inline": False},
    )
    chance = random.Random(str(case))
    model = DictTable(event_time=False, is_global=False, moves=False)
    turn = 0

    def write(by_hudi: bool) -> None:
        nonlocal turn
        turn += 1
        # real Hudi notes a range from 0 to 0 of nothing but nulls
        rows = [row | {"v": row["v"] or 7, "price": row["price"] or "0.01"} for row in batch(chance, turn, new=False)]
        if by_hudi:
            write_by_hudi(oracle, table, "upsert", rows, [], {**hudi_job(table), **keeping_metadata(table), **QUIET})
        else:
            table.upsert(data_of(rows), options={"hoodie.compact.inline": "false"})
        model.upsert(rows)

    write(False)
    write(True)
    for rescale in RESCALES:
        done = table.maintenance.rescale(**rescale)
        assert done.instant is not None, rescale
        check(oracle, table, case, model, turn, without=["partition_stats"])
        write(True)
        fresh = lakebed.open(table.uri)
        fresh.indexes.index.check(fresh.opened.snapshot())
        write(False)
        # real Hudi 1.2.0 counts the rows of replaced files in the ranges of a partition path that it writes to
        check(oracle, table, case, model, turn, without=["partition_stats"])
    # split buckets are for lakebed's writes; real Hudi reads them
    largest = max(one.size for one in table.files)
    assert table.maintenance.rescale(split_over=largest - 1).plan.way == "split"
    write(False)
    check(oracle, table, case, model, turn, without=["partition_stats"])


@pytest.mark.parametrize("rules", todays(("^rome$,3", None), 2, INTEROP), ids=str)
def test_counts_that_real_hudis_procedure_changes_are_followed(
    rules: str | None, tmp_path: Path, oracle: HudiOracle
) -> None:
    """Also where the table had one count for all partition paths, and no file of Hudi's that says so."""
    table = lakebed.create(
        str(tmp_path / "counted"),
        SCHEMA,
        key="id",
        partition_by="city",
        index="bucket",
        buckets=2,
        partition_buckets=rules,
    )
    chance = random.Random(0)
    first, second = (data_of(batch(chance, turn, new=True)) for turn in range(2))
    table.upsert(first)
    call = "call partition_bucket_index_manager(table => 'counted', overwrite => '^rome$,5', bucket_number => 2,"
    oracle.ask("sql", table=table.uri, sql=f"{call} dry_run => false)")
    opened = lakebed.open(table.uri)
    assert opened.indexes.index.settings()["bucket.partitions"] == "^rome$,5"
    assert_same_rows(opened.scan().to_arrow(), first)
    assert opened.upsert(first).inserted == 0
    opened.upsert(second)
    opened.indexes.index.check(opened.opened.snapshot())
    everything = pa.concat_tables([first, second])
    assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), everything)
    assert_same_rows(oracle.read(table.uri), everything)
    numbers = {int(one.file_id[:8]) for one in opened.files if one.partition == "rome"}
    assert numbers <= set(range(5))
    assert max(numbers) > 2
