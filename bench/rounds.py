"""Requests and rounds on an object store: how many a call makes, and how many of them wait for one another.

python bench/rounds.py --peers .venvs/bench/bin/python     lakebed, deltalake, pyiceberg and Lance: bench/rounds.json
python bench/rounds.py --only lakebed                      one side again; the others stay
python bench/rounds.py --delay 0.1                         seconds that the store waits before each answer

The store is an S3 server on this machine (moto) that waits before each answer and notes when each request came and was
answered. The rounds of a call are its longest chain: the most requests of which each came after the answer to the one
before. A noisy machine only adds to that, so the least of the runs counts.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
SIDES = ("lakebed", "deltalake", "pyiceberg", "lance")
# Tasks of a process that has just begun, and those of one that goes on; the first make the table.
FRESH = ("count", "partition", "lookup", "upsert")
LONG = ("commit", "count", "changes", "delete")
# Seconds, and rounds, after a call for what it does in the background.
_AFTER, _ROUNDS_AFTER = 0.5, 30
KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region": "us-east-1"}


@dataclass(frozen=True)
class Request:
    """A request with the seconds at which it came and was answered."""

    begin: float
    end: float
    text: str


def chain(requests: Sequence[Request]) -> int:
    """The most requests of which each came after the answer to the one before."""
    rounds, last = 0, float("-inf")
    for request in sorted(requests, key=lambda r: r.end):
        if request.begin >= last:
            rounds, last = rounds + 1, request.end
    return rounds


def serve(port: int, delay: float, log: str) -> None:
    """Run the store. `/__mark?text` writes a line with the text into the log."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    moto, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.RLock()
    lines = open(log, "a", buffering=1, encoding="utf-8")  # noqa: SIM115 (until the process ends)

    def answer(request: dict[str, Any], start: Any) -> Any:
        if request["PATH_INFO"] == "/__mark":
            lines.write(f"{time.monotonic()} mark {request['QUERY_STRING']}\n")
            start("200 OK", [("Content-Length", "0")])
            return [b""]
        begin = time.monotonic()
        size = int(request.get("CONTENT_LENGTH") or 0)
        if size and not request.get("HTTP_TRANSFER_ENCODING"):
            request["wsgi.input"] = io.BytesIO(request["wsgi.input"].read(size))
        time.sleep(delay)
        end = time.monotonic()
        with one_at_a_time:  # moto checks a condition and writes in two steps
            body = list(moto(request, start))
        lines.write(f"{begin} {end} {request['REQUEST_METHOD']} {request['PATH_INFO']} {request['QUERY_STRING']}\n")
        return body

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_: Any) -> None:
            return None

    run_simple("127.0.0.1", port, answer, threaded=True, request_handler=Handler)


@contextmanager
def store(delay: float, log: Path) -> Iterator[str]:
    """The URL of a running store with the bucket `lake`."""
    import boto3

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--serve", str(port), "--delay", str(delay), "--log", str(log)]
    environment = {**os.environ, "S3_IGNORE_SUBDOMAIN_BUCKETNAME": "true"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/__mark?ready", timeout=5).read()
                break
            except OSError:
                time.sleep(0.2)
        names = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=url, **names).create_bucket(Bucket="lake")
        yield url
    finally:
        process.terminate()
        process.wait()


def run(python: str, side: str, url: str, task: str, folder: str, delay: float) -> list[str]:
    """Run a process of a side; gives the reasons for tasks that it cannot do, and its version, as lines."""
    environment = {
        **os.environ,
        **{f"AWS_{name.upper().removeprefix('AWS_')}": value for name, value in KEYS.items()},
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    command = [python, str(_HERE / "rounds_sides.py"), side, url, task, folder, str(_AFTER + _ROUNDS_AFTER * delay)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} {task}: {done.stderr[-2000:]}")
    return done.stdout.splitlines()


def read_log(log: Path) -> Iterator[tuple[str, list[Request], float]]:
    """Each call in the log: its name, its requests, and when it returned."""
    name, returned = "", 0.0
    requests: list[Request] = []
    for line in log.read_text(encoding="utf-8").splitlines():
        first, second, *rest = line.split(" ", 2)
        if second != "mark":
            requests.append(Request(float(first), float(second), rest[0]))
            continue
        what, _, named = rest[0].partition("=")
        if what == "begin":
            name, requests = named, []
        elif what == "returned":
            returned = float(first)
        elif what == "end":
            yield name, requests, returned
            requests = []


def measure(side: str, python: str, delay: float, repeats: int) -> dict[str, Any]:
    """Requests and rounds of each task of a side, and its version."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with store(delay, log) as url:
            lines = run(python, side, url, "long", folder, delay)
            for task in FRESH * repeats:
                run(python, side, url, task, folder, delay)
        found: dict[str, list[dict[str, int]]] = {}
        for name, requests, returned in read_log(log):
            waited = [request for request in requests if request.end <= returned]
            found.setdefault(name, []).append({"requests": len(requests), "rounds": chain(waited)})
    # the first two commits of a process fill its caches
    runs = {name: calls[2:] if name == "long_commit" else calls for name, calls in found.items()}
    return {
        "version": next(line.partition(" ")[2] for line in lines if line.startswith("version ")),
        "missing": dict(line.split(" ", 2)[1:] for line in lines if line.startswith("missing ")),
        "tasks": {
            name: {key: min(call[key] for call in calls) for key in ("requests", "rounds")}
            for name, calls in runs.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=sys.executable, help="the interpreter of the other formats")
    parser.add_argument("--only", nargs="*", choices=SIDES, default=SIDES)
    parser.add_argument("--delay", type=float, default=0.03)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, default=_HERE / "rounds.json")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--log", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.delay, given.log)
        return
    results = json.loads(given.results.read_text()) if given.results.exists() else {"sides": {}}
    for side in given.only:
        python = sys.executable if side == "lakebed" else given.peers
        results["sides"][side] = measure(side, python, given.delay, given.repeats)
        print(side, json.dumps(results["sides"][side]), flush=True)
    results["sides"] = {side: results["sides"][side] for side in SIDES if side in results["sides"]}
    results["delay"] = given.delay
    given.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
