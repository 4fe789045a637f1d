"""Partition TTL of lakebed and of real Hudi, within a write each, on two copies of one table: the same partition paths
go, each side reads what the other left, and goes on writing to it.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import time_machine

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata
from lakebed.model import Action
from lakebed.table import Table
from oracle.client import HudiOracle
from support.cleaning_tables import timeline
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays
from support.write_tables import rows

TTL = "hoodie.partition.ttl."
# Real Hudi looks at partitions only where cleaning or another service runs within writes, too.
QUIET = {
    "hoodie.archive.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.parquet.small.file.limit": "0",
}
BY_TIME = {TTL + "inline": "true", TTL + "strategy.days.retain": "100"}
BY_CREATION = {**BY_TIME, TTL + "management.strategy.type": "KEEP_BY_CREATION_TIME"}
SELECTED = {**BY_TIME, TTL + "strategy.partition.selected": "b,d"}
CASES = (
    ("cow", 9, BY_TIME, "bc"),
    ("mor", 9, BY_TIME, "bce"),
    ("cow", 8, BY_CREATION, "abce"),
    ("mor", 9, SELECTED, "b"),
)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "version", "how", "gone"), todays(CASES, 2, INTEROP), ids=str)
def test_both_expire_the_same_partitions(
    kind: Any, version: int, how: dict[str, str], gone: str, tmp_path: Path, oracle: HudiOracle
) -> None:
    ours, theirs = _aged(tmp_path, kind, version)
    new = rows((9, "new", "n", 9))
    told = ours.upsert(new, options={**QUIET, **how})
    assert [line.split()[0] for line in told.services] == ["expire"]
    job = {**hudi_job(theirs), **keeping_metadata(theirs), **QUIET}
    oracle.write(theirs.uri, new, options=job | how)
    assert _replaced(ours) == _replaced(theirs)
    assert _replaced(ours)[1].keys() == set(gone)
    for table in (ours, theirs):
        _same_for_both(oracle, table, {"a", "b", "c", "d", "e", "new"} - set(gone))
    # what is gone comes again, by the other one
    again = rows((2, "b", "again", 20), (1, "d", "again", 20))
    theirs.upsert(again, options=QUIET)
    oracle.write(ours.uri, again, options={**hudi_job(ours), **keeping_metadata(ours), **QUIET})
    for table in (ours, theirs):
        _same_for_both(oracle, table, {"a", "b", "c", "d", "e", "new"} - set(gone) | {"b", "d"})
    assert_same_rows(_rows(ours), _rows(theirs))


def _aged(folder: Path, kind: Any, version: int) -> tuple[Table, Table]:
    """Two copies: a, b, c and e of long ago, a written anew since, e in log files where there are any, d of today."""
    with time_machine.travel(datetime(2020, 3, 1, tzinfo=UTC), tick=True):
        table = lakebed.create(
            str(folder / "ours" / "t"),
            rows((0, "a", "", 0)).schema,
            key="id",
            partition_by="city",
            ordering="ts",
            type=kind,
            index="simple",
            table_version=version,
        )
        first = [(k, city, "old", 1) for k, city in enumerate("abce")]
        table.upsert(rows(*first), options=QUIET)
    table.insert_overwrite(rows((0, "a", "new", 2)), options=QUIET)
    table.upsert(rows((3, "e", "new", 2), (1, "d", "new", 2)), options=QUIET)
    shutil.copytree(folder / "ours", folder / "theirs")
    return table, lakebed.open(str(folder / "theirs" / "t"))


def _replaced(table: Table) -> tuple[str, dict[str, tuple[str, ...]]]:
    """What the last replacecommit is, and the file groups that it replaces by partition path."""
    now = timeline(table)
    last = [i for i in now.commits if i.action is Action.REPLACECOMMIT][-1]
    commit = now.commit_metadata(last)
    return commit.operation, {path: tuple(sorted(ids)) for path, ids in commit.replaced.items()}


def _rows(table: Table) -> pa.Table:
    return lakebed.open(table.uri).scan().to_arrow()


def _same_for_both(oracle: HudiOracle, table: Table, cities: set[str]) -> None:
    found = _rows(table)
    assert set(found["city"].to_pylist()) == cities
    for listed in ("true", "false"):
        assert_same_rows(oracle.read(table.uri, option={"hoodie.metadata.enable": listed}), found)
    verified = table.indexes.verify()
    assert verified.ok, verified
