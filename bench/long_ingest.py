"""A day of small rounds of ingest: 10,000 rounds of 100 rows with the services that the table's settings make due.

    python bench/long_ingest.py                     merge-on-read, bucket index
    python bench/long_ingest.py --rounds 2000 --type cow

Prints what a round costs as the table grows old: CPU time of this process with its services, files, memory. At the end
the table is held to a model: each round in one commit, each row in its last state. Bars, of the last tenth of the
rounds against the second one: cost of a round at most 1.3 times, files at most 1.5 times.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from bars import Bar
from long_life import files, instants, resident

import lakebed
from lakebed.ingestion.source import IngestPoll, IngestSource

ROWS, KEYS, BUCKETS = 100, 20_000, 4


def round_of(number: int) -> pa.Table:
    """The rows of a round: keys by chance, each once, all of the round's number."""
    ids = np.random.default_rng(number).choice(KEYS, ROWS, replace=False)
    return pa.table({"id": ids, "n": np.full(ROWS, number), "text": pa.array([f"row {number}"] * ROWS)})


class Rounds(IngestSource):
    """So many rounds, one a poll."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        number = int(checkpoint or 0)
        if number == self.rounds:
            return IngestPoll(None, None, checkpoint)
        return IngestPoll(round_of(number), None, str(number + 1), more=True)


def run(uri: str, rounds: int, kind: str) -> list[dict[str, float]]:
    stop = threading.Event()
    spent: list[float] = []
    found: list[dict[str, float]] = []
    services: Counter[str] = Counter()
    last = time.process_time()

    def note(event: lakebed.IngestEvent) -> None:
        nonlocal last
        if event.kind == "failed":
            raise RuntimeError(event.text)
        if event.kind == "nothing":
            stop.set()
        if event.kind != "committed":
            return
        now = time.process_time()
        spent.append((now - last) * 1e3)
        last = now
        services.update(line.split(": ", 1)[1].split()[0] for line in event.services)
        if len(spent) % (rounds // 10) == 0:
            window = spent[-(rounds // 10) :]
            row: dict[str, float] = {"rounds": len(spent), "CPU ms": statistics.mean(window), "MB": resident()}
            found.append(row | {"files": files(uri), "instants": instants(uri)})
            print("  ".join(f"{name} {value:,.0f}" for name, value in found[-1].items()), flush=True)
            last = time.process_time()

    words = {"key": "id", "ordering": "n", "type": kind, "index": "bucket", "buckets": BUCKETS}
    job: dict[str, Any] = {"source": Rounds(rounds), "target": {"uri": uri, "create": words}}
    lakebed.ingest(job, stop=stop, on_event=note)
    print("services: " + ", ".join(f"{name} {count}" for name, count in sorted(services.items())))
    return found


def check(uri: str, rounds: int) -> None:
    """Raise `AssertionError` where a row is not in its last state."""
    newest = np.full(KEYS, -1)
    for number in range(rounds):
        newest[round_of(number)["id"].to_numpy()] = number
    table = lakebed.open(uri).scan(["id", "n", "text"]).to_arrow().sort_by("id")
    ids = np.flatnonzero(newest >= 0)
    assert table["id"].to_numpy().tolist() == ids.tolist()
    assert table["n"].to_numpy().tolist() == newest[ids].tolist()
    assert table["text"].to_pylist() == [f"row {n}" for n in newest[ids]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--type", choices=("mor", "cow"), default="mor")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(f"{folder}/table", asked.rounds, asked.type)
        check(f"{folder}/table", asked.rounds)
        verified = lakebed.open(f"{folder}/table").indexes.verify()
        assert verified.ok, verified
    second, last = found[1], found[-1]
    print(Bar("a round, CPU time: last tenth / second", last["CPU ms"] / second["CPU ms"], 1.3, False).line())
    print(Bar("files: at the end / after two tenths", last["files"] / second["files"], 1.5, False).line())


if __name__ == "__main__":
    main()
