"""The example of one warehouse: each door shows the flights as a straight computation has them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("duckdb", reason="DuckDB is not installed")
pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")

_EXAMPLES = Path(__file__).parents[2] / "examples"


def test_each_door_shows_the_flights_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_EXAMPLES))
    monkeypatch.setenv("PYTHONPATH", str(_EXAMPLES.parent / "src"), prepend=":")
    from open_doors.run import doors, fill, served
    from year_of_flights.flights import read_flights

    left = read_flights().filter(pl.col("month") == 1, pl.col("dep_time").is_not_null())
    minutes = left["dep_delay"].sum() + 5 * left.filter(pl.col("carrier") == "B6").height
    uri = str(tmp_path / "warehouse")
    warehouse = fill(uri)
    assert sum(len(file_slice.log_files) for file_slice in warehouse.open("flights.departures").files) >= 3
    with served(uri) as catalog:
        shown = dict(doors(warehouse, catalog))
    assert set(shown.values()) == {(left.height, left["distance"].sum(), minutes)}
    assert len(shown) == 6
