"""`lakebed ingest` as processes that are killed at moments by chance, and what a table must hold afterwards.

A source gives rows with the ids 0, 1, 2, ... in this order, so its position is a number: that of the rows before it.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lakebed
from lakebed.ingestion.checkpoints import FULL, KEY_V2, read_checkpoint
from lakebed.model import Action, Instant
from lakebed.storage import open_storage
from lakebed.timeline.timeline import load_timeline

KILLS = 20
# So many rounds are waiting when a process starts, which runs less of them before it is killed.
ROUNDS_AHEAD, ROWS = 12, 2
# A process is killed so long after its first change of the table, which may be a rollback, or after its first commit.
_AFTER_FIRST_CHANGE, _AFTER_FIRST_COMMIT = 0.06, 0.5
_STANDSTILL = 120.0
# Services run every few rounds, so that processes are killed in them, too.
_SERVICES = {
    "hoodie.compact.inline.max.delta.commits": 3,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 6,
}


@dataclass(frozen=True)
class KilledJob:
    """A job of ingest. `add` puts the rows of round n, which are `ids_of(n)`, into its source; `position` is how many
    rows are before a checkpoint. `repeats_rows` is whether a commit may have rows of earlier ones again."""

    folder: Path
    source: dict[str, Any]
    create: dict[str, Any]
    operation: str
    add: Callable[[int], None]
    position: Callable[[str], int]
    repeats_rows: bool = False

    @property
    def uri(self) -> str:
        return str(self.folder / "t")

    def write(self) -> Path:
        """Create the target, and write the description of the job."""
        create: dict[str, Any] = {"key": "id", "properties": _SERVICES, **self.create}
        lakebed.create(self.uri, {"id": [0]}, **create)
        target = {"uri": self.uri, "operation": self.operation}
        lines = [f"interval = 0.02\nmax_rows = {ROWS}"]
        for section, values in (("source", self.source), ("target", target)):
            lines += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())]
        path = self.folder / "job.toml"
        path.write_text("\n".join(lines))
        return path


def ids_of(number: int) -> list[int]:
    """The ids of the rows of a round."""
    return list(range(ROWS * number, ROWS * (number + 1)))


def kill_often(job: KilledJob, chance: random.Random, kills: int = KILLS) -> None:
    """Kill so many processes of the job, one after another, and hold the table to the rounds that its source had."""
    path = job.write()
    rounds = 0
    for number in range(kills):
        ahead = len(commits(job)) + ROUNDS_AHEAD
        for n in range(rounds, ahead):
            job.add(n)
        rounds = max(rounds, ahead)
        with _process(path) as process:
            if number % 2:
                _wait(process, job, _changes_of(job))
                time.sleep(chance.uniform(0, _AFTER_FIRST_CHANGE))
            else:
                _wait(process, job, lambda: bool(_events(job)))
                time.sleep(chance.uniform(0, _AFTER_FIRST_COMMIT))
    with _process(path) as process:
        _wait(process, job, lambda: any(event["event"] == "nothing" for event in _events(job)))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    check(job, rounds)


def commits(job: KilledJob) -> list[tuple[str, str, int]]:
    """Instant, checkpoint and the number of new rows of each commit of the job, the first commit first. What is
    written to log files is not known to be new: all rows of a merge-on-read table count."""
    count = "num_writes" if job.create.get("type") == "mor" else "num_inserts"
    storage = open_storage(job.uri)
    timeline = load_timeline(storage, lakebed.open(job.uri).opened.config)
    archived = timeline.archived()
    instants = {instant: archived.commit_metadata(instant.time) for instant in archived.instants if _is_commit(instant)}
    instants |= {instant: timeline.commit_metadata(instant) for instant in timeline.commits if _is_commit(instant)}
    found: list[tuple[str, str, int]] = []
    for instant, body in sorted(instants.items(), key=lambda item: item[0].completion_time or ""):
        if KEY_V2 in body.extra and body.operation != "COMPACT":
            new = sum(getattr(stat, count) for stats in body.stats.values() for stat in stats)
            found.append((instant.time, body.extra.get(FULL, body.extra[KEY_V2]), new))
    return found


def _is_commit(instant: Instant) -> bool:
    return instant.is_completed and instant.action in (Action.COMMIT, Action.DELTACOMMIT)


def check(job: KilledJob, rounds: int) -> None:
    """Each commit has just the rows between the checkpoint before it and its own, and the table has each row once."""
    found = commits(job)
    ends = [job.position(checkpoint) for _, checkpoint, _ in found]
    starts = [0, *ends[:-1]]
    rows = lakebed.open(job.uri).scan(["_hoodie_commit_time", "id"]).to_arrow().sort_by("id")
    assert rows["id"].to_pylist() == list(range(rounds * ROWS))
    assert [new for _, _, new in found] == [end - start for start, end in zip(starts, ends, strict=True)]
    assert all(start < end for start, end in zip(starts, ends, strict=True))
    if not job.repeats_rows:
        expected = [instant for (instant, _, _), a, b in zip(found, starts, ends, strict=True) for _ in range(a, b)]
        assert rows["_hoodie_commit_time"].to_pylist() == expected
    stored = read_checkpoint(open_storage(job.uri)).value
    assert stored is not None
    assert job.position(stored) == rounds * ROWS


@contextmanager
def _process(path: Path) -> Generator[subprocess.Popen[bytes]]:
    """A process that runs the job; it is killed where it has not ended afterwards."""
    command = [sys.executable, "-m", "lakebed", "ingest", str(path), "--output", "json"]
    with (path.parent / "events").open("wb") as events, (path.parent / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=events, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _events(job: KilledJob) -> list[dict[str, Any]]:
    """The events that the running process has reported; a line that is not complete is none."""
    lines = (job.folder / "events").read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


def _changes_of(job: KilledJob) -> Callable[[], bool]:
    """Whether the table's timeline has other files than now."""
    timeline = job.folder / "t" / ".hoodie" / "timeline"
    before = set(timeline.iterdir())
    return lambda: set(timeline.iterdir()) != before


def _wait(process: subprocess.Popen[bytes], job: KilledJob, is_over: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _STANDSTILL
    while not is_over():
        log = (job.folder / "log").read_text()
        assert process.poll() is None, log
        assert time.monotonic() < deadline, f"it stands still: {_events(job)} {log}"
        time.sleep(0.001)
