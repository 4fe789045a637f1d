"""The order in which two writers, a service and a reader take their steps, their clocks, deaths and doubts, drawn from
seeds: 20,000 on each day, others on the next one.

A seed that fails is in the message, and is run again, with all its steps, by
`LAKEBED_SCHEDULE=<seed> pytest tests/property/simulation/test_schedules.py`; `LAKEBED_SCHEDULES` says how many are run.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator

import pytest

from property.simulation.schedules import TABLES, WITH_METADATA, Schedule, Table, tiny_rows
from property.simulation.world import Installed
from support.sampling import so_many, today

COUNT = int(os.environ.get("LAKEBED_SCHEDULES") or so_many(20_000, small=2_000))
COUNT_WITH_METADATA = COUNT // 100
SHARDS = 20
FIRST = today() * 10_000_000
ONLY = os.environ.get("LAKEBED_SCHEDULE")


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    with Installed().here() as one, tiny_rows():
        logging.getLogger("lakebed").setLevel(logging.ERROR)
        # what is made in a schedule goes with it
        gc.collect()
        gc.disable()
        yield one
        gc.enable()
        logging.getLogger("lakebed").setLevel(logging.NOTSET)


def run(installed: Installed, seed: int, table: Table) -> None:
    try:
        Schedule(installed, seed, table).run()
    except Exception as error:
        raise AssertionError(f"schedule {seed} of {table}: run it again with LAKEBED_SCHEDULE={seed}") from error


@pytest.mark.skipif(ONLY is not None, reason="one schedule is run")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_schedule_leaves_a_table_that_is_right(shard: int, installed: Installed) -> None:
    seeds = range(FIRST + shard, FIRST + COUNT, SHARDS)
    print(f"schedules {seeds[0]} to {seeds[-1]}, every {SHARDS}th")
    for seed in seeds:
        run(installed, seed, table_of(seed))
    gc.collect()


@pytest.mark.skipif(ONLY is not None, reason="one schedule is run")
def test_schedules_with_a_metadata_table(installed: Installed) -> None:
    for seed in range(FIRST + COUNT, FIRST + COUNT + COUNT_WITH_METADATA):
        run(installed, seed, table_of(seed))
    gc.collect()


@pytest.mark.parametrize("seed", [FIRST + 1, FIRST + 2, FIRST + 4])
def test_a_schedule_replays(seed: int, installed: Installed) -> None:
    logs = [steps_of(installed, seed) for _ in range(2)]
    assert logs[0] == logs[1]
    assert len(logs[0]) > 30


@pytest.mark.skipif(ONLY is None, reason="LAKEBED_SCHEDULE names the schedule")
def test_the_schedule_that_the_variable_names(installed: Installed) -> None:
    seed = int(ONLY or 0)
    schedule = Schedule(installed, seed, table_of(seed), keeps_log=True)
    try:
        schedule.run()
    finally:
        print("\n".join(schedule.world.log))


def table_of(seed: int) -> Table:
    """The last ones of a day's seeds have a metadata table."""
    tables = WITH_METADATA if seed % 10_000_000 >= COUNT else TABLES
    return tables[seed % len(tables)]


def steps_of(installed: Installed, seed: int) -> list[str]:
    schedule = Schedule(installed, seed, table_of(seed), keeps_log=True)
    schedule.run()
    return schedule.world.log
