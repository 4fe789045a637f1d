"""Log compactions that one of lakebed and real Hudi plans and the other runs, with writes of both in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.service_turns import ServiceTurns
from lakebed.model import Action
from oracle.client import HudiOracle
from support.sampling import INTEROP, todays

CASES = ((9, "bucket"), (8, "bucket"))
ROUNDS = 5
OFTEN = {"hoodie.log.compaction.blocks.threshold": "2"}
# Said to real Hudi where it plans: a table that says so has it done after each write.
ENABLED = {"hoodie.log.compaction.enable": "true"}


@pytest.mark.full
@pytest.mark.parametrize(("version", "index"), todays(CASES, 4, INTEROP))
def test_plans_of_one_are_run_by_the_other(version: int, index: str, tmp_path: Path, oracle: HudiOracle) -> None:
    turns = ServiceTurns(tmp_path, oracle, "mor", version, index, OFTEN)
    turns.write(by_hudi=False)
    for n in range(ROUNDS):
        # lakebed plans, real Hudi runs it
        turns.write(by_hudi=True)
        turns.write(by_hudi=False)
        planned = turns.table.maintenance.compact(logs=True, plan_only=True, options=OFTEN).planned
        assert planned is not None
        assert turns.instants(Action.LOGCOMPACTION, pending=True) == [planned]
        turns.ask("log_compact", planned)
        assert _ran(turns, planned)
        turns.check()
        # real Hudi plans, lakebed runs it
        turns.write(by_hudi=True)
        turns.write(by_hudi=False)
        turns.ask("schedule_log_compaction", **ENABLED)
        (theirs,) = turns.instants(Action.LOGCOMPACTION, pending=True)
        assert theirs in turns.table.maintenance.compact(logs=True, options=OFTEN).instants
        assert _ran(turns, theirs)
        if n % 2:
            turns.table.maintenance.compact(options=OFTEN)
        turns.check()


def _ran(turns: ServiceTurns, instant: str) -> bool:
    """Whether the plan is gone and its blocks are a completed delta commit."""
    done = instant in turns.instants(Action.DELTACOMMIT)
    return done and turns.instants(Action.LOGCOMPACTION, pending=True) == []
