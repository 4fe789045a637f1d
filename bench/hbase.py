"""Lookups in an HBase index: rows a second and client CPU of batches made column by column.

    python bench/hbase.py [--rows 100000] [--rounds 3] [--probe FILE] [--port PORT of a ZooKeeper with HBase]

Without a port a server of tests/services is started. `--probe` names a module with a `Client` that makes a message
object for each row (`Client(host, port)`, `.get(table, rows, family)`): the two look the same keys up in turn, half of
which are there, by requests of 1000, and the ratio of the medians is shown. The bar is 1.5.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

# in the place of this folder, whose services.py is not the package meant here
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from lakebed.index.hbase.client import client_of
from services.hbase_admin import Admin
from services.hbase_server import HBase

BAR = 1.5


def timed(run: Callable[[], int], expected: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = run()
    assert found == expected, (found, expected)
    return time.perf_counter() - wall, time.process_time() - cpu


def probe_of(path: str, info: dict[str, Any]) -> Any:
    sys.path.insert(0, str(Path(path).parent))
    spec = importlib.util.spec_from_file_location("probe", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Client(info["quorum"], info["port"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--probe")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    server = HBase()
    with nullcontext() if given.port else server:
        measure(given, {"quorum": "127.0.0.1", "port": given.port, "znode": "/hbase"} if given.port else server.info)


def measure(given: argparse.Namespace, info: dict[str, Any]) -> None:
    admin = Admin(info)
    name = f"bench{int(time.time())}"
    admin.create(name)
    client = client_of(admin.table(name))
    keys = [b"key-%09d" % (n * 7919 % (2 * given.rows)) for n in range(given.rows)]
    rows = pa.array(keys, pa.binary())
    stored = rows.slice(0, given.rows // 2)
    ids = pa.array([b"%08d-0000-0000-0000-000000000000-0" % (n % 64) for n in range(len(stored))], pa.binary())
    cells = {"instant": b"20240101000000000", "file_id": ids, "partition": b"city=oslo"}
    wall, cpu = timed(lambda: client.put(stored, cells) or 0, 0)
    print(f"puts      {len(stored):>8} rows  {wall:6.2f} s  {cpu:5.2f} s CPU")
    sides: dict[str, Callable[[], int]] = {"lakebed": lambda: client.get(rows).num_rows}
    if given.probe:
        probe = probe_of(given.probe, info)
        steps = range(0, len(keys), 1000)
        sides["probe"] = lambda: sum(
            1 for at in steps for row in probe.get(name.encode(), keys[at : at + 1000], b"_s") if row
        )
    measured: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for side, run in sides.items():
        timed(run, len(stored))  # warm
        measured[side] = []
    for _ in range(given.rounds):
        for side, run in sides.items():
            measured[side].append(timed(run, len(stored)))
    medians = {side: [statistics.median(one) for one in zip(*pairs, strict=True)] for side, pairs in measured.items()}
    for side, (wall, cpu) in medians.items():
        print(f"{side:<9} {given.rows:>8} rows  {wall:6.2f} s  {cpu:5.2f} s CPU")
    if given.probe:
        ratio = medians["lakebed"][0] / medians["probe"][0]
        cpu = medians["lakebed"][1] / medians["probe"][1]
        print(f"lakebed / probe: {ratio:.2f} of the time (bar {BAR}), {cpu:.2f} of the CPU")
    admin.close()


if __name__ == "__main__":
    main()
