"""Everything that takes the URI of a table takes a `pathlib.Path`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.model import WAREHOUSE

CALLS: dict[str, tuple[Callable[[Path], Any], Any]] = {
    "open": (lambda p: lakebed.open(p).count(), 2),
    "polars.scan": (lambda p: lakebed.polars.scan(p).collect().height, 2),
    "list_tables": (lambda p: lakebed.list_tables(p.parent), None),
    "maintenance.erase": (lambda p: lakebed.maintenance.erase({p: [2]}).is_clean, True),
    "maintenance.repair": (lambda p: lakebed.maintenance.repair(p, dry_run=True) is not None, True),
    "maintenance.run of one": (lambda p: list(lakebed.maintenance.run(p, once=True)) == [], None),
    "maintenance.run of several": (lambda p: list(lakebed.maintenance.run([p, p], once=True)) == [], None),
    "sql": (lambda p: lakebed.sql("select count(*) as n from t", {"t": p}).to_pylist(), [{"n": 2}]),
    "drop": (lambda p: lakebed.drop(p, dry_run=True), []),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_path_object_is_taken(tmp_path: Path, name: str) -> None:
    place = tmp_path / "t"
    lakebed.load(place, {"id": [1, 2]}, key="id", progress=False)
    call, expected = CALLS[name]
    result = call(place)
    assert expected is None or result == expected
    if name == "list_tables":
        assert result == [os.fspath(place)]
    if name == "maintenance.erase":
        assert lakebed.open(place).count() == 1


def test_a_path_object_is_never_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lakebed.load(Path("sales.orders"), {"id": [1, 2]}, key="id", progress=False)
    monkeypatch.setenv(WAREHOUSE, str(tmp_path / "warehouse"))
    events = list(lakebed.maintenance.run([Path("sales.orders")], once=True))
    assert not [event for event in events if event.kind == "failed"]
    assert lakebed.maintenance.erase({Path("sales.orders"): [1]}).is_clean
    assert lakebed.open(Path("sales.orders")).count() == 1
