"""A change of columns that is struck at each of its mutations leaves the table as before or after it."""

from __future__ import annotations

from typing import Any

import pytest

import lakebed
from lakebed.testing import Killed, Mode, crash_at
from support.crash_tables import copied, leftovers, prepared, strike_each

CASES: list[tuple[str, int, Mode]] = [
    ("mor-bucket", 9, "unacknowledged"),
    ("bucket", 6, "unacknowledged"),
    ("mor-bucket", 6, "fail"),
    ("bloom", 9, "doubtful"),
    ("simple", 8, "lost"),
]


def texts(uri: str) -> tuple[str, dict[int, Any]]:
    """The name of the column of texts, and its values by key."""
    table = lakebed.open(uri)
    (name,) = {"v", "word"} & set(table.schema.names)
    return name, {row["id"]: row[name] for row in table.scan(["id", name]).to_arrow().to_pylist()}


def crash(index: str, version: int, mode: Mode, at: int) -> int | None:
    """Strike one mutation of a change, and look at all that follows; where it has none, the number that it has."""
    files, model = prepared(index, version)
    before = {key: text for key, (_, text, _) in model.items()}
    with copied("memory", files) as uri:
        allowed = {"v", "word"}
        with crash_at(at, mode) as struck:
            try:
                lakebed.open(uri).columns.rename("v", "word")
                allowed = {"word"}
            except Killed:
                pass
            except lakebed.LakebedError:
                allowed = {"v"}
        if not struck.fired:
            return len(struck.mutations)
        try:
            name, found = texts(uri)
            assert name in allowed
            assert found == before
            table = lakebed.open(uri)
            if name == "v":
                table.columns.rename("v", "word")
            (row,) = table.get([1]).to_pylist()
            table.upsert([{**row, "word": "after", "ts": 9}])
            table.columns.add("v", "int")
            assert texts_of(uri, "word") == {**before, 1: "after"}
            assert set(texts_of(uri, "v").values()) == {None}
            assert leftovers(uri) == []
            verified = table.indexes.verify()
            assert verified.ok, verified
        except Exception as error:
            error.add_note(f"{index}, version {version}: {struck}")
            raise
    return None


def texts_of(uri: str, name: str) -> dict[int, Any]:
    rows = lakebed.open(uri).scan(["id", name]).to_arrow().to_pylist()
    return {row["id"]: row[name] for row in rows}


@pytest.mark.parametrize(("index", "version", "mode"), CASES)
def test_a_change_of_columns_that_is_struck_has_happened_or_not(index: str, version: int, mode: Mode):
    assert strike_each(lambda at: crash(index, version, mode, at), 9, "columns", index, version, mode) >= 8
