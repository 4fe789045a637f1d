"""What `lakebed serve` takes for a request: loads of one table from a warm cache, and its memory over many requests.

    python bench/catalog.py                       100,000 requests on 8 connections
    python bench/catalog.py --requests 20000

The server is a process of its own, its clients are threads of this one. Requests a second are of a core of the server:
its requests over its CPU seconds. Its memory is noted after each tenth of the requests.

Bars: 200 requests a second and core, and at most 5 % more memory after the last tenth than after the second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import lakebed

CONNECTIONS = 8
PARTS = 10


def ask(address: str, path: str, count: int) -> None:
    """Send requests on one connection, one after the other."""
    connection = HTTPConnection(address, timeout=60)
    for _ in range(count):
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        response.read()
    connection.close()


def usage(process: int) -> tuple[float, float]:
    """The CPU seconds and the resident megabytes of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(address: str, process: int, requests: int) -> dict[str, object]:
    """The figures of a server that has one table, `sales.orders`."""
    path = "/v1/namespaces/sales/tables/orders"
    ask(address, path, 10)
    megabytes: list[float] = []
    before, started = usage(process)[0], time.monotonic()
    for _ in range(PARTS):
        count = requests // PARTS // CONNECTIONS
        clients = [threading.Thread(target=ask, args=(address, path, count)) for _ in range(CONNECTIONS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        megabytes.append(round(usage(process)[1], 1))
    sent = PARTS * (requests // PARTS // CONNECTIONS) * CONNECTIONS
    seconds = usage(process)[0] - before
    return {
        "requests": sent,
        "requests_a_second_and_core": round(sent / seconds),
        "requests_a_second": round(sent / (time.monotonic() - started)),
        "megabytes": megabytes,
        "growth": round(megabytes[-1] / megabytes[1] - 1, 3),
    }


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="catalog-"))
    rows = {"id": list(range(1_000)), "city": [f"city-{n % 9}" for n in range(1_000)]}
    table = lakebed.load(str(folder / "sales" / "orders"), rows, key="id", progress=False)
    for version in range(20):
        table.upsert({"id": [version], "city": ["Oslo"]})
    command = [sys.executable, "-m", "lakebed", "serve", "--port", "0", "--quiet", "--warehouse", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().split()[3]).netloc
        print(json.dumps(measure(address, process.pid, chosen.requests)))
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    run()
