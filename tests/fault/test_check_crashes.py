"""Adding a check, and a write that puts rows aside, struck at each of their mutations."""

from __future__ import annotations

from contextlib import suppress

import pytest

import lakebed
from lakebed.testing import Killed, Mode, crash_at
from support.crash_tables import copied, leftovers, prepared, strike_each

MODES: list[Mode] = ["fail", "lost", "unacknowledged", "doubtful"]
CASES: list[tuple[str, int, Mode]] = list(
    zip(("bucket", "mor-bucket", "simple", "bloom"), (9, 8, 6, 9), MODES, strict=True)
)


def crash_of_adding(index: str, version: int, mode: Mode, at: int) -> int | None:
    """Strike one mutation of `checks.add`; where it has none, the number that it has."""
    files, model = prepared(index, version)
    with copied("memory", files) as uri:
        added = True
        with crash_at(at, mode) as struck:
            try:
                lakebed.open(uri).checks.add("low", "id < 1000")
            except (Killed, lakebed.LakebedError):
                added = False
        if not struck.fired:
            return len(struck.mutations)
        table = lakebed.open(uri)
        names = [check.name for check in table.checks]
        assert names in ([["low"]] if added else [[], ["low"]])
        table.checks.add("low", "id < 1000")
        table.checks.drop("low")  # which removes what the interrupted change left
        table.checks.add("low", "id < 1000")
        (row,) = table.get([1]).to_pylist()
        with pytest.raises(lakebed.CheckFailed):
            table.upsert([{**row, "id": 5000}])
        table.upsert([{**row, "v": "after", "ts": 9}])
        assert {key["id"] for key in table.scan(["id"]).to_arrow().to_pylist()} == set(model)
        assert leftovers(uri) == []
    return None


def crash_of_quarantine(index: str, version: int, mode: Mode, at: int) -> int | None:
    """Strike one mutation of an upsert that puts a row aside; where it has none, the number that it has."""
    files, model = prepared(index, version)
    with copied("memory", files) as uri:
        table = lakebed.open(uri)
        table.checks.add("low", "id < 1000", on_failure="quarantine")
        (row,) = table.get([1]).to_pylist()
        rows = [{**row, "v": "after", "ts": 9}, {**row, "id": 5000, "v": "aside", "ts": 9}]
        with crash_at(at, mode) as struck, suppress(Killed, lakebed.LakebedError):
            lakebed.open(uri).upsert(rows)
        if not struck.fired:
            return len(struck.mutations)
        table = lakebed.open(uri)
        assert {key["id"] for key in table.scan(["id"]).to_arrow().to_pylist()} == set(model)
        if table.get([1]).to_pylist()[0]["v"] == "after":  # then its row is aside, too
            assert [kept["row"]["id"] for kept in table.rejects.scan().to_arrow().to_pylist()] == [5000]
        table.upsert(rows)
        assert table.get([1]).to_pylist()[0]["v"] == "after"
        assert [kept["row"]["v"] for kept in table.rejects.scan().to_arrow().to_pylist()] == ["aside"]
        assert {key["id"] for key in table.scan(["id"]).to_arrow().to_pylist()} == set(model)
    return None


@pytest.mark.parametrize(("index", "version", "mode"), CASES)
def test_a_check_whose_adding_is_struck_is_there_or_not(index: str, version: int, mode: Mode) -> None:
    assert strike_each(lambda at: crash_of_adding(index, version, mode, at), 5, "checks", index, version, mode) >= 3


@pytest.mark.parametrize(("index", "version", "mode"), CASES)
def test_rows_that_are_put_aside_are_never_lost(index: str, version: int, mode: Mode) -> None:
    struck = strike_each(lambda at: crash_of_quarantine(index, version, mode, at), 7, "rejects", index, version, mode)
    assert struck >= 10
