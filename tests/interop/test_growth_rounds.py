"""Real Hudi writes between upserts of lakebed that split buckets, with the counts that the table has then; and it reads
and fills merge-on-read tables whose new keys went to small files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata
from interop.test_mor_rounds import NEVER, SCHEMA, Case, batch, check, data_of, write_by_hudi
from oracle.client import HudiOracle
from property.model import DictTable
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, rounds, todays

CASES = (
    ("cow", Case(9, "bucket", False, ("column_stats", "partition_stats")), "city"),
    ("mor", Case(9, "bucket", False), None),
    ("mor", Case(8, "bucket", False), "city"),
    ("cow", Case(6, "bucket", False), None),
)
QUIET = {**NEVER, "hoodie.compact.inline": "false"}
ADVISED = "lakebed.index.bucket.advised.bytes"


@pytest.mark.parametrize(("kind", "case", "path"), todays(CASES, 4, INTEROP), ids=str)
def test_real_hudi_goes_on_after_a_write_that_split_buckets(
    kind: Any, case: Case, path: str | None, tmp_path: Path, oracle: HudiOracle
) -> None:
    table = lakebed.create(
        str(tmp_path / "grown"),
        SCHEMA,
        key="id",
        partition_by=path,
        type=kind,
        index=case.index,
        buckets=2,
        indexes=case.indexes,
        table_version=case.version,
        properties={"hoodie.compact.inline": False, "lakebed.index.bucket.grow": True, ADVISED: 1 << 30},
    )
    chance = random.Random(str(case))
    model = DictTable(event_time=False, is_global=path is None, moves=False)

    def write(turn: int, *, by_hudi: bool, limit: int | None = None) -> tuple[str, ...]:
        # real Hudi notes a range from 0 to 0 of nothing but nulls
        rows = [row | {"v": row["v"] or 7, "price": row["price"] or "0.01"} for row in batch(chance, turn, new=False)]
        model.upsert(rows)
        if by_hudi:
            write_by_hudi(oracle, table, "upsert", rows, [], {**hudi_job(table), **keeping_metadata(table), **QUIET})
            return ()
        options = {"hoodie.compact.inline": "false", **({} if limit is None else {ADVISED: limit})}
        return lakebed.open(table.uri).upsert(data_of(rows), options=options).bucket_changes

    write(1, by_hudi=False)
    write(2, by_hudi=True)
    for turn in (3, 6)[: rounds(2)]:
        before = lakebed.open(table.uri)
        last = before.timeline.last
        assert last is not None
        least = min(one.base_file.size for one in before.files if one.base_file is not None)
        assert write(turn, by_hudi=False, limit=least - 1)
        fresh = lakebed.open(table.uri)
        check(oracle, fresh, case, model, turn, without=["partition_stats"])
        start = last.completion_time or last.time
        assert_same_rows(oracle.incremental(table.uri, start), fresh.changes(start).to_arrow())
        write(turn + 1, by_hudi=True)
        fresh = lakebed.open(table.uri)
        fresh.indexes.index.check(fresh.opened.snapshot())
        write(turn + 2, by_hudi=False)
        # real Hudi 1.2.0 counts the rows of replaced files in the ranges of a partition path that it writes to
        check(oracle, lakebed.open(table.uri), case, model, turn, without=["partition_stats"])


@pytest.mark.parametrize("version", todays((9, 8, 6), 3, INTEROP))
def test_real_hudi_and_lakebed_take_turns_with_new_keys_in_small_files(
    version: int, tmp_path: Path, oracle: HudiOracle
) -> None:
    case = Case(version, "record", False)
    table = lakebed.create(
        str(tmp_path / "small"),
        SCHEMA,
        key="id",
        type="mor",
        index="record",
        table_version=version,
        properties={"hoodie.compact.inline": False},
    )
    assert table.properties["lakebed.small_files"] == "deferred"
    chance = random.Random(version)
    model = DictTable(event_time=False, is_global=True, moves=False)
    for turn in range(1, 6):
        rows = [row | {"v": row["v"] or 7, "price": row["price"] or "0.01"} for row in batch(chance, turn, new=True)]
        rows += [{**row, "note": f"turn {turn}"} for row in list(model.rows.values())[::3]]
        if turn == 4:
            write_by_hudi(oracle, table, "upsert", rows, [], {**hudi_job(table), **keeping_metadata(table), **QUIET})
        else:
            count = len(table.files)
            lakebed.open(table.uri).upsert(data_of(rows), options={"hoodie.compact.inline": "false"})
            assert len(lakebed.open(table.uri).files) == count + 1
        model.upsert(rows)
        table = lakebed.open(table.uri)
    check(oracle, table, case, model, 5)
    assert table.maintenance.merge_small_files().runs
    check(oracle, lakebed.open(table.uri), case, model, 5)
    assert len(lakebed.open(table.uri).files) == 1
