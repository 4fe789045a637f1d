"""The demo: events come in parts, the steps follow, two of their processes are killed, and all tables are checked."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import polars as pl

import lakebed
from flight_stream.check import Mismatch, check
from flight_stream.events import events_of, flights_of, rounds_of
from flight_stream.source import Source, open_source
from flight_stream.steps import Lake, prepare, to_bronze, to_gold, to_silver
from lakebed.errors import InvalidOption


@dataclass
class Done:
    """What has happened: kills by step, batches of gold that a killed process had written, service runs by kind."""

    source: str = ""
    killed: list[str] = field(default_factory=list[str])
    skipped: int = 0
    services: Counter[str] = field(default_factory=Counter[str])
    seconds: Counter[str] = field(default_factory=Counter[str])
    equal: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])


def run(path: str | None = None, *, days: int = 59, rounds: int = 12, source: str = "auto") -> Done:
    """Stream the flights of the first days of 2013 through the tables, and print what happens.

    Raises `Mismatch` where a table differs from the straight computation.
    """
    if rounds < 4:
        raise InvalidOption(f"the demo needs 4 rounds or more, not {rounds}", context={"option": "rounds"})
    started = time.perf_counter()
    folder = Path(path or tempfile.mkdtemp(prefix="flight-stream-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidOption(f"{folder} is not empty", hint="name a new folder", context={"path": str(folder)})
    flights = flights_of(days)
    events = events_of(flights)
    kinds = events.unique("event").group_by("kind").len().sort("kind").rows()
    print(
        f"{flights.height:,} flights that left New York in the first {days} days of 2013 as {events.height:,} events:"
    )
    repeats = events.height - events["event"].n_unique()
    print(f"  {', '.join(f'{count:,} {kind}' for kind, count in kinds)}, and {repeats:,} repeats")
    if source != "files":
        print("A Kafka broker is started (the first time it is downloaded).", flush=True)
    feed, why_not = open_source(source, folder)
    if why_not:
        print(f"No Kafka broker here ({why_not}): the same events come from {feed.name}.")
    done = Done(feed.name)
    lake = Lake(folder)
    try:
        prepare(lake, feed.section)
        print(
            f"\nThey come by {feed.name}, in {rounds} parts. After each one run bronze, silver, gold and the services."
        )
        for number, part in enumerate(rounds_of(events, rounds)):
            _round(done, lake, feed, part, number, rounds)
    finally:
        feed.close()
    _say_services(done)
    done.equal = check(lake, events, flights)
    for name, count in done.equal:
        print(f"  equal: {name}: {count:,} rows, every value")
    spent = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in done.seconds.items())
    print(f"\n{time.perf_counter() - started:.0f} s ({spent}). The tables are in {folder}")
    return done


def _round(done: Done, lake: Lake, feed: Source, part: pl.DataFrame, number: int, rounds: int) -> None:
    clock = _Clock(done)
    feed.send(part)
    clock.note("produce")
    if number == rounds // 3:
        _kill(done, "bronze", [sys.executable, "-m", "lakebed", "ingest", str(lake.job), "--once", "--output", "json"])
    before = part.height - to_bronze(lake).rows
    clock.note("bronze")
    flown = to_silver(lake)
    clock.note("silver")
    by_killed = f" ({before:,} committed by the killed process)" if before else ""
    came = f"  {number + 1:2}: {part.height:,} events{by_killed}, {0 if flown is None else flown.rows:,} of them new"
    if number == rounds // 2:
        _kill(done, "gold", [sys.executable, "-m", "flight_stream.steps", "gold", str(lake.folder), "--hold"])
        print(f"{came}; gold goes on in the next round")
    else:
        added = to_gold(lake)
        changes = sum((one.changes for one in added), Counter[str]())
        skipped = sum(one.skipped for one in added)
        done.skipped += skipped
        again = f" (1 of {len(added)} batches had been written by the killed process)" if skipped else ""
        print(f"{came}; flights: {changes['i']:,} inserted, {changes['u']:,} updated, {changes['d']:,} deleted{again}")
    clock.note("gold")
    for event in lakebed.maintenance.run(lake.tables, once=True):
        if event.kind == "ran":
            done.services[f"{event.service} {Path(event.table).name}"] += 1
    clock.note("services")


class _Clock:
    def __init__(self, done: Done) -> None:
        self._done, self._at = done, time.perf_counter()

    def note(self, step: str) -> None:
        """Add the seconds since the last call to those of the step."""
        now = time.perf_counter()
        self._done.seconds[step] += now - self._at  # pyright: ignore[reportArgumentType]
        self._at = now


def _kill(done: Done, step: str, command: list[str]) -> None:
    """Run a step as a process and kill it after its first commit."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        output: IO[str] | None = process.stdout
        assert output is not None
        line = output.readline()
        process.send_signal(signal.SIGKILL)
    if process.returncode != -signal.SIGKILL or not line:
        raise Mismatch(
            f"the process of {step} was to be killed after its first commit, and ended with {process.returncode}"
        )
    done.killed.append(step)
    print(f"      the process of {step} is killed after its first commit (SIGKILL)", flush=True)


def _say_services(done: Done) -> None:
    runs = ", ".join(f"{count} x {name}" for name, count in sorted(done.services.items()))
    print(f"\nServices between the rounds: {runs}")
    if done.skipped != 1:
        raise Mismatch(f"gold skipped {done.skipped} batches, it must be the one that the killed process had written")
