"""`lakebed checks`: what each command prints, for people and for programs, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakebed
from lakebed.cli.main import app


@pytest.fixture
def uri(tmp_path: Path) -> str:
    rows = {"id": [1, 2], "city": ["Oslo", "Rome"], "fare": [1.0, 20.0]}
    return lakebed.load(str(tmp_path / "trips"), rows, key="id", partition_by="city").uri


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["checks", *arguments])
    return done.exit_code, done.output.strip()


def facts(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--output", "json")[1])


def test_checks_are_added_listed_and_dropped(uri: str) -> None:
    assert run("add", uri, "positive", "fare >= 0") == (0, "positive: fare >= 0 (reject)")
    added = facts("add", uri, "some", "count(*) > 0", "--on", "table", "--on-failure", "warn")
    assert added == {"name": "some", "condition": "count(*) > 0", "on": "table", "on_failure": "warn"}
    assert run("require", uri, "city") == (0, "city_not_null: `city` IS NOT NULL (reject)")
    assert [check["name"] for check in facts("list", uri)] == ["city_not_null", "positive", "some"]
    assert run("drop", uri, "some") == (0, "some: count(*) > 0 (warn)")
    assert len(facts("list", uri)) == 2


def test_a_run_ends_with_1_where_rows_break_a_check(uri: str) -> None:
    run("add", uri, "cheap", "fare < 10", "--no-validate")
    assert run("run", uri) == (1, "cheap (fare < 10): broken by 1 row of the table (Rome: 1)")
    found = facts("run", uri, "cheap")
    assert (found["ok"], found["checks"][0]["partitions"]) == (False, {"Rome": 1})
    run("drop", uri, "cheap")
    run("add", uri, "positive", "fare >= 0")
    assert run("run", uri) == (0, "positive (fare >= 0): no row breaks it")


def test_rows_that_were_put_aside_are_shown(uri: str) -> None:
    run("add", uri, "cheap", "fare < 100", "--on-failure", "quarantine")
    lakebed.open(uri).upsert({"id": [3, 4], "city": ["Rome", "Rome"], "fare": [500.0, 600.0]})
    assert sorted(row["row"]["id"] for row in facts("rejects", uri)) == [3, 4]
    assert len(facts("rejects", uri, "--limit", "1")) == 1


def test_doctor_names_a_check_that_stored_rows_break(uri: str) -> None:
    table = lakebed.open(uri)
    table.checks.add("cheap", "fare < 10", validate=False)
    table.checks.add("positive", "fare >= 0")
    table.checks.add("some", "count(*) > 5", on="table", on_failure="warn")
    findings = {finding.text: finding for finding in table.maintenance.doctor().of_check("checks")}
    broken, warned, fine = findings.values()
    assert broken.severity.name == "ERROR"
    assert broken.text.startswith("cheap (fare < 10): broken by 1 row of the table (Rome: 1)")
    assert broken.remedy == f"lakebed checks run {uri} cheap --output json"
    assert (warned.severity.name, warned.text.partition(":")[0]) == ("WARNING", "some (count(*) > 5)")
    assert (fine.severity.name, fine.text) == ("FINE", "positive (fare >= 0): no row breaks it")
