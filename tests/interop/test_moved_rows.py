"""Rows that lakebed moves between partition paths, there and back, in real Hudi: the same rows, before and after its
compaction, and what its own upsert of a row with a lower ordering value leaves where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import assert_both_read, hudi_job
from oracle.client import HudiOracle
from support.sampling import some

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
COMPACT = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
CASES: list[tuple[Any, str]] = [(version, index) for version in (9, 8, 6) for index in ("bucket", "consistent")]


def rows(*given: tuple[int, str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, one, strict=True)) for one in given], SCHEMA)


@pytest.mark.parametrize(("version", "index"), some(CASES, (9, "bucket"), (8, "consistent"), (6, "bucket")))
def test_real_hudi_reads_rows_that_went_away_and_came_back(
    version: Any, index: str, tmp_path: Path, oracle: HudiOracle
) -> None:
    table = lakebed.create(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        partition_by="p",
        ordering="ts",
        type="mor",
        index=index,
        buckets=1,
        table_version=version,
        properties={"hoodie.metadata.enable": False},
    )
    table.upsert(rows((1, "a", 10, 1), (2, "a", 10, 1), (3, "a", 10, 1)))
    table.update({"p": "'b'", "ts": "9"}, where="id = 1")  # changes nothing
    table.update({"p": "'b'"}, where="id = 2")
    table.update({"p": "'a'"}, where="id = 2")
    table.delete([3])
    table.upsert(rows((3, "b", 5, 2)))
    table.update({"p": "'a'"}, where="id = 3")
    expected = rows((1, "a", 10, 1), (2, "a", 10, 1), (3, "a", 5, 2))
    assert_both_read(oracle, table, expected)
    if index == "consistent":  # whose clusterings Hudi plans by itself
        return
    oracle.write(table.uri, rows((4, "a", 1, 1)), options={**hudi_job(table), **COMPACT})
    assert_both_read(oracle, table, pa.concat_tables([expected, rows((4, "a", 1, 1))]))


@pytest.mark.parametrize("kind", some(["mor", "cow"], "mor"))
def test_a_late_row_of_another_partition_path_moves_nothing_in_real_hudi_either(
    kind: Any, tmp_path: Path, oracle: HudiOracle
) -> None:
    stored, late, equal = rows((1, "a", 10, 1), (2, "a", 10, 1)), rows((1, "b", 9, 2)), rows((2, "b", 10, 2))
    table = lakebed.create(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        partition_by="p",
        ordering="ts",
        type=kind,
        index="global_simple",
        properties={"hoodie.metadata.enable": False},
    )
    table.upsert(stored)
    oracle.write(table.uri, late, options=hudi_job(table))
    assert_both_read(oracle, table, stored)
    table.upsert(late)
    table.merge(late, "id").when_matched_update().execute()
    assert_both_read(oracle, table, stored)
    oracle.write(table.uri, equal, options=hudi_job(table))
    expected = rows((1, "a", 10, 1), (2, "b", 10, 2))
    assert_both_read(oracle, table, expected)
    table.merge(rows((2, "a", 10, 3)), "id").when_matched_update().execute()
    assert_both_read(oracle, table, rows((1, "a", 10, 1), (2, "a", 10, 3)))
