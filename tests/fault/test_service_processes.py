"""`lakebed maintenance run` as real processes: two share three tables that a writer goes on writing to; one is killed
with a lease in its hands, or told to stop. No row is lost, and no work is done twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.concurrency.providers import ServicesLease
from lakebed.model import Action, State
from lakebed.storage import open_storage
from lakebed.timeline.timeline import completed_at
from support.cleaning_tables import timeline
from support.compaction_tables import pending
from support.crash_tables import Model, leftovers, place, put, rows, state
from support.sampling import CRASH, whole

EVERY = 3
QUIET: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.compact.inline.max.delta.commits": EVERY,
    "hoodie.clean.commits.retained": 2,
    # all instants stay to be looked at
    "hoodie.keep.min.commits": 200,
    "hoodie.keep.max.commits": 201,
}
WRITES = 40 if whole(CRASH) else 5
_SECONDS = 60.0

# Says when it is about to merge, and waits there for a line on its standard input.
SLOW = """
import sys
from lakebed.cli.main import run
from lakebed.services import compaction
merge = compaction.run_operations
def slow(*given):
    print("merging", flush=True)
    sys.stdin.readline()
    return merge(*given)
compaction.run_operations = slow
run()
"""
PLAIN = "from lakebed.cli.main import run; run()"


class Runner:
    """`lakebed maintenance run` of these tables, and what it says."""

    def __init__(self, *arguments: str, code: str = PLAIN) -> None:
        command = [sys.executable, "-c", code, "maintenance", "run", *arguments, "-o", "json"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def until(self, word: str) -> None:
        """Read on to a line that has this in it."""
        assert self.process.stdout is not None
        while word not in (line := self.process.stdout.readline()):
            assert line, f"it ended: {self.process.communicate()}"

    def end(self, number: int = signal.SIGTERM, said: str = "") -> list[dict[str, Any]]:
        """What it told, when it has ended well."""
        self.process.send_signal(number)
        out, err = self.process.communicate(said, timeout=_SECONDS)
        assert (self.process.returncode, err) == (0, "")
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


@contextmanager
def running(*runners: Runner) -> Iterator[None]:
    try:
        yield
    finally:
        for runner in runners:
            runner.process.kill()
            runner.process.wait()
            for stream in (runner.process.stdin, runner.process.stdout, runner.process.stderr):
                if stream is not None and not stream.closed:
                    stream.close()


@pytest.fixture
def folder() -> Iterator[str]:
    with place("local") as uri:
        yield uri


def create(uri: str, kind: str = "mor", **properties: Any) -> lakebed.Table:
    return lakebed.create(
        uri,
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,  # pyright: ignore[reportArgumentType]
        index="bucket",
        buckets=1,
        properties=QUIET | properties,
    )


def input_rows(n: int) -> list[tuple[int, str, str, int]]:
    return [(n % 4, f"c{n % 2}", f"v{n}", n), (100 + n, f"c{n % 2}", f"w{n}", n)]


@pytest.mark.full
def test_two_processes_share_the_services_of_three_tables(folder: str) -> None:
    uris = [f"{folder}/{name}" for name in ("a", "b", "c")]
    tables = [
        create(uris[0], "mor"),
        create(uris[1], "mor", **{"hoodie.metadata.enable": False}),
        create(uris[2], "cow", **{"hoodie.metadata.enable": False}),
    ]
    models: list[Model] = [{}, {}, {}]
    runners = [Runner(*uris, "--interval", "0.3") for _ in range(2)]
    with running(*runners):
        for runner in runners:
            runner.until('"waiting"')
        for n in range(WRITES):
            for at, table in enumerate(tables):
                table.upsert(rows(*input_rows(n)), options={"lakebed.write.tasks": 1})
                models[at] = put(models[at], *input_rows(n))
        deadline = time.monotonic() + _SECONDS
        while list(lakebed.maintenance.run(uris, dry_run=True)) and time.monotonic() < deadline:
            time.sleep(0.2)
        told = [runner.end() for runner in runners]
    events = [event for one in told for event in one]
    assert [event for event in events if event["event"] == "failed"] == []
    assert [one[-1]["event"] for one in told] == ["stopped", "stopped"]
    for uri, model in zip(uris, models, strict=True):
        assert list(lakebed.maintenance.run(uri, dry_run=True)) == []
        assert state(uri) == model
        _each_once(uri, [event for event in events if event.get("table") == uri])
        assert pending(lakebed.open(uri)) == []
        assert ServicesLease(open_storage(uri)).holder() == ""
        litter = [name for name in leftovers(uri) if "services_lease" not in name and not name.startswith("missing")]
        assert [name for name in litter if "pending" in name or ".temp" in name or ".heartbeat" in name] == []
        verified = lakebed.open(uri).indexes.verify()
        assert verified.ok, verified


def _each_once(uri: str, events: list[dict[str, Any]]) -> None:
    """Every instant of a service was told by the process that ran it, and none was there before it was due."""
    instants = [i for i in timeline(lakebed.open(uri)).instants if i.state is State.COMPLETED]
    deltas = [completed_at(i) for i in instants if i.action is Action.DELTACOMMIT]
    compactions = [i for i in instants if i.action is Action.COMMIT and deltas]
    cleans = [i for i in instants if i.action is Action.CLEAN]
    runs = [run["instant"] for event in events if event["event"] == "ran" for run in event["detail"]["runs"]]
    assert sorted(runs) == sorted(i.time for i in (*compactions, *cleans))
    assert cleans or deltas
    bounds = ["", *(i.time for i in compactions)]
    for start, end in pairwise(bounds):
        assert sum(start < at <= end for at in deltas) >= EVERY
    assert not deltas or sum(at > bounds[-1] for at in deltas) < EVERY


def due(folder: str, **properties: Any) -> tuple[str, Model]:
    """A table of which a compaction is due."""
    uri, model = f"{folder}/t", put({}, *input_rows(0))
    table = create(uri, **properties, **{"hoodie.metadata.enable": False})
    for n in range(EVERY):
        table.upsert(rows(*input_rows(n)))
        model = put(model, *input_rows(n))
    return uri, model


@pytest.mark.rest
def test_the_lease_and_the_plan_of_a_killed_process_are_taken_over(folder: str) -> None:
    uri, model = due(folder)
    slow = Runner(uri, "--once", code=SLOW)
    with running(slow):
        slow.until("merging")
        (held,) = lakebed.maintenance.run(uri, once=True)
        assert (held.kind, held.text) == ("held", f"process {slow.process.pid} on {os.uname().nodename}")
        lakebed.open(uri).upsert(rows(*input_rows(50)))  # a writer is not held up
        slow.process.kill()
        slow.process.wait()
    model = put(model, *input_rows(50))
    (plan,) = pending(lakebed.open(uri))
    assert (plan.action, plan.state) == (Action.COMPACTION, State.INFLIGHT)
    done = list(lakebed.maintenance.run(uri, once=True))
    assert [(event.kind, event.service) for event in done] == [("due", "compact"), ("ran", "compact")]
    assert [run["instant"] for run in done[1].detail["runs"]] == [plan.time]
    assert state(uri) == model
    assert list(lakebed.maintenance.run(uri, dry_run=True)) == []


def test_sigterm_lets_the_service_that_runs_end(folder: str) -> None:
    uri, model = due(folder, **{"hoodie.clean.commits.retained": 1})
    slow = Runner(uri, "--interval", "3600", code=SLOW)
    with running(slow):
        slow.until("merging")
        told = slow.end(said="go on\n")
    assert [(one["event"], one.get("service")) for one in told] == [("ran", "compact"), ("stopped", None)]
    assert state(uri) == model
    assert pending(lakebed.open(uri)) == []
    assert ServicesLease(open_storage(uri)).holder() == ""


@pytest.mark.full
def test_a_second_signal_leaves_the_plan_to_others(folder: str) -> None:
    uri, model = due(folder)
    slow = Runner(uri, "--interval", "3600", code=SLOW)
    with running(slow):
        slow.until("merging")
        slow.process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # two signals of a kind at once are one
        slow.process.send_signal(signal.SIGINT)
        slow.process.communicate(timeout=_SECONDS)
        assert slow.process.returncode != 0
    (plan,) = pending(lakebed.open(uri))
    assert (plan.action, plan.state) == (Action.COMPACTION, State.REQUESTED)
    assert ServicesLease(open_storage(uri)).holder() == ""
    assert invoke(["maintenance", "run", uri, "--once"]) == 0
    assert pending(lakebed.open(uri)) == []
    assert state(uri) == model
