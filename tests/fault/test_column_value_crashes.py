"""Setting a default, and adding a column with one, struck at each of their mutations."""

from __future__ import annotations

import pytest

import lakebed
from lakebed.testing import Killed, Mode, crash_at
from support.crash_tables import copied, leftovers, prepared, strike_each

MODES: list[Mode] = ["fail", "lost", "unacknowledged", "doubtful"]
CASES: list[tuple[str, int, Mode]] = list(
    zip(("bucket", "mor-bucket", "simple", "bloom"), (9, 8, 6, 9), MODES, strict=True)
)


def crash_of_default(index: str, version: int, mode: Mode, at: int) -> int | None:
    """Strike one mutation of `columns.set_default`; where it has none, the number that it has."""
    files, model = prepared(index, version)
    with copied("memory", files) as uri:
        is_set = True
        with crash_at(at, mode) as struck:
            try:
                lakebed.open(uri).columns.set_default("v", "'none'")
            except (Killed, lakebed.LakebedError):
                is_set = False
        if not struck.fired:
            return len(struck.mutations)
        table = lakebed.open(uri)
        default = {column.name: column.default for column in table.columns}["v"]
        assert default == "'none'" if is_set else default in ("", "'none'")
        assert table.columns.set_default("v", "'later'").default == "'later'"
        (row,) = table.get([1]).to_pylist()
        table.upsert([{name: value for name, value in {**row, "ts": 9}.items() if name != "v"}])
        assert table.get([1]).to_pylist() == [{**row, "v": "later", "ts": 9}]
        assert {key["id"] for key in table.scan(["id"]).to_arrow().to_pylist()} == set(model)
        assert leftovers(uri) == []
    return None


def crash_of_column(index: str, version: int, mode: Mode, at: int) -> int | None:
    """Strike one mutation of `columns.add` with a default; where it has none, the number that it has."""
    files, model = prepared(index, version)
    with copied("memory", files) as uri:
        added = True
        with crash_at(at, mode) as struck:
            try:
                lakebed.open(uri).columns.add("tip", "int", default=7)
            except (Killed, lakebed.LakebedError):
                added = False
        if not struck.fired:
            return len(struck.mutations)
        table = lakebed.open(uri)
        columns = {column.name: column.default for column in table.columns}
        assert columns.get("tip", "") == "7" if added else columns.get("tip", "") in ("", "7")
        if "tip" not in columns:
            table.columns.add("tip", "int", default=7)
        table.columns.set_default("tip", 8)
        (row,) = table.get([1]).to_pylist()
        assert row["tip"] is None
        table.upsert([{name: value for name, value in {**row, "ts": 9}.items() if name != "tip"}])
        assert table.get([1]).to_pylist() == [{**row, "tip": 8, "ts": 9}]
        assert {key["id"] for key in table.scan(["id"]).to_arrow().to_pylist()} == set(model)
        assert leftovers(uri) == []
    return None


@pytest.mark.parametrize(("index", "version", "mode"), CASES)
def test_a_default_is_there_or_not_after_each_crash(index: str, version: int, mode: Mode) -> None:
    assert strike_each(lambda at: crash_of_default(index, version, mode, at), 1, "default", index, version, mode) >= 4


@pytest.mark.parametrize(("index", "version", "mode"), CASES)
def test_a_column_is_added_with_its_default_or_can_get_it_after_each_crash(
    index: str, version: int, mode: Mode
) -> None:
    assert strike_each(lambda at: crash_of_column(index, version, mode, at), 5, "column", index, version, mode) >= 8
