"""Crowds of processes on one table: no error but those that are to be expected, no row that was not written, none lost,
and a table that is whole at the end.

What processes do at the same time is another thing each time, so `make test`, which is the same each time, has none of
them: its writers cross in a given order (`test_two_writers.py`, `property/simulation`). Three crowds of 4 s are in a
day's run, 60 of 20 s in a full one. `LAKEBED_CROWD=<seed>` runs one again. A failure names a copy of the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fault.crowd import Crowd, first_findings
from fault.crowd_tables import Shape
from support.crash_tables import place
from support.sampling import CRASH, today, whole

SECONDS = float(os.environ.get("LAKEBED_CROWD_SECONDS") or (20.0 if whole(CRASH) else 4.0))
ONLY = os.environ.get("LAKEBED_CROWD")
_MANY = 60


def seeds() -> list[int]:
    if ONLY:
        return [int(ONLY)]
    if whole(CRASH):
        return list(range(_MANY))
    return [today() * 3 + n for n in range(3)]


@pytest.mark.full
@pytest.mark.parametrize("seed", seeds())
def test_many_writers_read_written_rows_and_leave_an_intact_table(seed: int) -> None:
    shape = Shape.of(seed)
    with place("local") as uri:
        crowd = Crowd(Path(uri).parent, shape, SECONDS)
        findings = crowd.run()
        assert not findings, f"LAKEBED_CROWD={seed} {shape} {crowd.copy}\n{crowd.counts()}\n{first_findings(findings)}"
