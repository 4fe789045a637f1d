"""EXPLAIN of a statement that changes a table: its plan as text, and the table as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from support.checks import files_below

ROWS = {"id": [1, 2, 3], "city": ["Oslo", "Rome", "Oslo"], "fare": [1.0, 2.0, 3.0]}


@pytest.fixture
def t(tmp_path: Path) -> lakebed.Table:
    return lakebed.load(str(tmp_path / "t"), ROWS, key="id", partition_by="city", index="simple")


PLANS: dict[str, tuple[str, ...]] = {
    "DELETE FROM t WHERE city = 'Oslo'": ("delete from table 't', rows with", "engine      local", "1 of 2"),
    "EXTENDED DELETE FROM t": ("delete from table 't', rows with true", "2 of 2"),
    "UPDATE t SET fare = fare + 1 WHERE city = 'Rome'": ("merge into table 't' by", "writes      fare", "1 of 2"),
    "INSERT INTO t VALUES (4, 'Bern', 4.0)": ("insert into table 't'", "engine", "index"),
    "MERGE INTO t USING s ON t.id = s.id AND t.city = s.city WHEN MATCHED THEN UPDATE SET fare = s.fare": (
        "by key",
        "writes      fare",
    ),
    "FORMATTED MERGE INTO t USING s ON t.city = s.city WHEN MATCHED THEN DELETE": ("merge into table 't' by join",),
}


@pytest.mark.parametrize("statement", PLANS)
def test_a_plan_says_how_it_would_run_and_nothing_is_written(t: lakebed.Table, statement: str) -> None:
    before = files_below(t.uri)
    source = {"id": [1], "city": ["Rome"], "fare": [9.0]}
    plan = lakebed.sql(f"EXPLAIN {statement}", {"t": t, "s": source})
    for part in PLANS[statement]:
        assert part in plan, plan
    assert repr(plan) == str(plan)
    assert files_below(t.uri) == before


def test_values_of_args_are_those_of_the_statement(t: lakebed.Table) -> None:
    plan = lakebed.sql("EXPLAIN DELETE FROM t WHERE city = :city", {"t": t}, {"city": "Rome"})
    assert "1 of 2" in plan
    assert t.count() == 3


WRONG: list[tuple[str, type[LakebedError], str]] = [
    ("EXPLAIN UPDATE t SET nope = 1", InvalidOption, "nope"),
    ("EXPLAIN UPDATE t SET id = 1", UnsupportedFeature, "key"),
    ("EXPLAIN DELETE FROM t WHERE", InvalidOption, "condition"),
    ("EXPLAIN DELETE FROM nothing WHERE id = 1", InvalidOption, "no table of lakebed"),
    ("EXPLAIN INSERT INTO t VALUES (1)", InvalidOption, "1 values for 3 columns"),
    ("EXPLAIN INSERT OVERWRITE t VALUES (1, 'a', 2.0)", UnsupportedFeature, "no plan of an INSERT that replaces"),
    ("EXPLAIN INSERT INTO t REPLACE WHERE id = 1 VALUES (1, 'a', 2.0)", UnsupportedFeature, "no plan of an INSERT"),
    ("EXPLAIN MERGE INTO t USING s ON t.id = s.id", InvalidOption, "WHEN is missing"),
]


def test_what_cannot_be_explained_is_refused(t: lakebed.Table) -> None:
    before = files_below(t.uri)
    for text, error, match in WRONG:
        with pytest.raises(error, match=match):
            lakebed.sql(text, {"t": t, "s": {"id": [1]}})
    assert files_below(t.uri) == before


def test_the_command_line_prints_a_plan(t: lakebed.Table, capsys: pytest.CaptureFixture[str]) -> None:
    arguments: Any = ["sql", "EXPLAIN DELETE FROM t WHERE id = 1", "--table", f"t={t.uri}"]
    assert invoke(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("delete from table 't'")
    assert invoke([*arguments, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"] == text.rstrip("\n")
    assert t.count() == 3
