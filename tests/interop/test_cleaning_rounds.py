"""Cleaning and archival in turn: a clean that lakebed or real Hudi plans the other carries out, both archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.timeline.timeline import load_timeline
from oracle.client import HudiOracle
from support.sampling import INTEROP, todays

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())])
CASES = (("cow", 9), ("mor", 9), ("cow", 8), ("cow", 6))
ROUNDS = 5
SHORT = {
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
    "hoodie.compact.inline": "false",
}
RUNS = {**SHORT, "hoodie.clean.automatic": "true", "hoodie.archive.automatic": "true"}
QUIET = {**SHORT, "hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def rows(turn: int) -> pa.Table:
    numbers = [1, 2, 100 + turn]
    data = {"id": numbers, "city": [f"c{n % 2}" for n in numbers], "v": [f"t{turn}"] * 3, "ts": [turn] * 3}
    return pa.table(data, schema=SCHEMA)


@pytest.mark.full
@pytest.mark.parametrize(("type", "version"), todays(CASES, 4, INTEROP))
def test_plans_of_one_are_carried_out_by_the_other(type: Any, version: int, tmp_path: Path, oracle: HudiOracle) -> None:
    words: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "simple"}
    uri = str(tmp_path / "cleaned")
    table = lakebed.create(uri, SCHEMA, type=type, table_version=version, properties=dict(QUIET), **words)
    job = {**hudi_job(table), **keeping_metadata(table)}
    storage, expected, turn = open_storage(uri), dict[int, str](), 0

    def write(by_hudi: bool, how: dict[str, str]) -> None:
        nonlocal turn
        turn += 1
        if by_hudi:
            oracle.write(uri, rows(turn), "upsert", job | how)
        else:
            lakebed.open(uri).upsert(rows(turn), options=how)
        expected.update({1: f"t{turn}", 2: f"t{turn}", 100 + turn: f"t{turn}"})

    def cleans(*, pending: bool) -> list[str]:
        instants = load_timeline(storage, load_table_config(storage)).instants
        return [i.time for i in instants if i.action is Action.CLEAN and i.is_completed is not pending]

    def check() -> None:
        for found in (lakebed.open(uri).scan().to_arrow(), oracle.read(uri)):
            assert {row["id"]: row["v"] for row in found.to_pylist()} == expected
        changed = lakebed.open(uri).changes("000").to_arrow()
        assert {row["id"]: row["v"] for row in changed.to_pylist()} == expected
        assert lakebed.open(uri).indexes.verify().ok
        assert oracle.problems(uri) == []

    for n in range(3):
        write(bool(n % 2), QUIET)
    by_hudi = 0
    for _ in range(ROUNDS):
        # lakebed plans, real Hudi carries it out within a write, and archives
        write(False, QUIET)
        lakebed.open(uri).maintenance.clean(plan_only=True, options=QUIET)
        planned = cleans(pending=True)
        write(True, RUNS)
        assert cleans(pending=True) == []
        assert set(planned) <= set(cleans(pending=False)) or not planned
        # real Hudi plans, lakebed carries it out and archives
        write(True, QUIET)
        new = oracle.ask("service", table=uri, call="schedule_clean", instant="", options=job | SHORT)["new_instants"]
        theirs = cleans(pending=True)
        assert len(theirs) == len(new) <= 1, new  # none where no file group has a version that is not retained
        by_hudi += len(new)
        done = lakebed.open(uri).maintenance.clean(options=SHORT)
        assert set(theirs) <= set(done.instants), done
        lakebed.open(uri).maintenance.archive(options=SHORT)
        check()
    assert by_hudi >= ROUNDS - 1
    assert lakebed.open(uri).savepoints.list() == []
    archived = load_timeline(storage, load_table_config(storage)).archived().instants
    assert len([i for i in archived if i.action in (Action.COMMIT, Action.DELTACOMMIT)]) >= ROUNDS
