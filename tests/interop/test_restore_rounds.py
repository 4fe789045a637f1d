"""Savepoints, restores and rollbacks in turn: what one of lakebed and real Hudi saves or writes the other goes back to
or takes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.service_turns import ServiceTurns
from lakebed.model import Action
from oracle.client import HudiOracle
from support.sampling import INTEROP, rounds, todays

CASES = (("cow", 9, "simple"), ("mor", 9, "bucket"), ("cow", 8, "simple"), ("mor", 8, "bucket"), ("cow", 6, "simple"))
ROUNDS = rounds(5)
# On version 6 real Hudi goes back to no commit that is older than the metadata table's base files.
LATE = {"hoodie.metadata.compact.max.delta.commits": "100"}


@pytest.mark.rest
@pytest.mark.parametrize(("kind", "version", "index"), todays(CASES, 8, INTEROP))
def test_each_writer_restores_savepoints_of_the_other(
    kind: str, version: int, index: str, tmp_path: Path, oracle: HudiOracle
) -> None:
    turns = ServiceTurns(tmp_path, oracle, kind, version, index, LATE)
    turns.write(by_hudi=False)
    for n in range(ROUNDS):
        # lakebed saves, both write, real Hudi goes back
        saved, rows = turns.write(by_hudi=bool(n % 2)), dict(turns.expected)
        assert turns.table.savepoints.create(saved).instant == saved
        turns.write(by_hudi=True)
        turns.write(by_hudi=False)
        turns.ask("restore", saved)
        turns.expected = rows
        turns.check()
        turns.ask("delete_savepoint", saved)
        assert turns.table.savepoints.list() == []
        # real Hudi saves, both write, lakebed goes back
        saved, rows = turns.write(by_hudi=not n % 2), dict(turns.expected)
        turns.ask("savepoint", saved)
        assert [s.instant for s in turns.table.savepoints.list()] == [saved]
        turns.write(by_hudi=False)
        turns.write(by_hudi=True)
        turns.table.restore(saved)
        turns.expected = rows
        turns.check()
        turns.table.savepoints.delete(saved)
    assert len(turns.instants(Action.RESTORE)) == 2 * ROUNDS


@pytest.mark.rest
@pytest.mark.parametrize(("kind", "version", "index"), todays(CASES, 8, INTEROP))
def test_each_writer_rolls_back_commits_of_the_other(
    kind: str, version: int, index: str, tmp_path: Path, oracle: HudiOracle
) -> None:
    turns = ServiceTurns(tmp_path, oracle, kind, version, index, {})
    turns.write(by_hudi=False)
    turns.write(by_hudi=True)
    for _ in range(2):
        rows = dict(turns.expected)
        turns.ask("rollback", turns.write(by_hudi=False))
        turns.expected = dict(rows)
        turns.check()
        turns.table.rollback(turns.write(by_hudi=True))
        turns.expected = rows
        turns.write(by_hudi=False)
        turns.check()
    assert len(turns.instants(Action.ROLLBACK)) == 4
