"""Checks of a table as a whole: evaluated over the table with a write, before it commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import CheckFailed, CommitConflict, InvalidOption, SchemaConflict
from lakebed.operations import table_checks
from support.checks import rows_and_instants

ROWS = {"id": [1, 2], "vin": ["a", "b"], "n": [1, 2]}
UNIQUE = "count(DISTINCT vin) = count(*)"


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lakebed.Table:
    table = lakebed.load(str(tmp_path / "cars"), ROWS, key="id", type=request.param, index="bucket", buckets=1)
    table.checks.add("unique_vin", UNIQUE, on="table")
    return table


def vins(table: lakebed.Table) -> dict[int, str]:
    return {row["id"]: row["vin"] for row in table.scan(["id", "vin"]).to_arrow().to_pylist()}


def test_a_write_that_breaks_one_leaves_nothing(table: lakebed.Table) -> None:
    before = rows_and_instants(table.uri)
    second = {"id": [3], "vin": ["a"], "n": [3]}
    for write in (
        lambda: table.upsert(second),
        lambda: table.insert(second),
        lambda: table.bulk_insert(second),
        lambda: table.update({"vin": "'b'"}),
        lambda: table.insert_overwrite({"id": [7, 8], "vin": ["c", "c"], "n": [1, 1]}, "table"),
    ):
        with pytest.raises(CheckFailed, match="breaks checks of the table as a whole: unique_vin") as caught:
            write()
        assert (caught.value.checks, caught.value.rows) == ({"unique_vin": 0}, [])
    assert rows_and_instants(table.uri) == before
    assert vins(table) == {1: "a", 2: "b"}


def test_a_write_under_which_it_holds_commits(table: lakebed.Table) -> None:
    table.upsert({"id": [1, 3], "vin": ["c", "a"], "n": [1, 3]})
    table.delete([2])
    assert vins(table) == {1: "c", 3: "a"}
    assert table.checks.run()
    assert str(table.checks.run()) == f"unique_vin ({UNIQUE}): holds"


def test_a_delete_is_judged(table: lakebed.Table) -> None:
    table.checks.add("some", "count(*) >= 2 OR count(*) IS NULL", on="table")
    with pytest.raises(CheckFailed, match="some"):
        table.delete([1])
    assert table.count() == 2


def test_null_holds_and_a_warning_lets_the_write_pass(table: lakebed.Table, caplog: pytest.LogCaptureFixture) -> None:
    table.checks.add("unknown", "max(CASE WHEN n > 100 THEN n END) > 200", on="table")
    table.checks.add("small", "sum(n) < 10", on="table", on_failure="warn")
    table.upsert({"id": [3], "vin": ["c"], "n": [50]})
    assert "the write breaks the check small (sum(n) < 10)" in caplog.text
    assert [run.check.name for run in table.checks.run() if not run] == ["small"]


def test_a_commit_beside_it_makes_the_write_lose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lakebed.load(str(tmp_path / "cars"), ROWS, key="id", index="simple")
    table.checks.add("unique_vin", UNIQUE, on="table")
    refuse, other, calls = table_checks.refuse_broken_table, lakebed.open(table.uri), list[int]()

    def refuse_and_let_another_commit(*arguments: Any) -> None:
        refuse(*arguments)
        calls.append(1)
        if len(calls) == 1:
            other.bulk_insert({"id": [4], "vin": ["c"], "n": [4]})

    monkeypatch.setattr(table_checks, "refuse_broken_table", refuse_and_let_another_commit)
    with pytest.raises(CommitConflict, match="while the checks of the table as a whole were evaluated"):
        table.bulk_insert({"id": [3], "vin": ["c"], "n": [3]})
    assert vins(table) == {1: "a", 2: "b", 4: "c"}
    table.delete([4])
    calls.clear()
    with pytest.raises(CheckFailed):
        table.bulk_insert({"id": [3], "vin": ["c"], "n": [3]}, retries=2)
    assert vins(table) == {1: "a", 2: "b", 4: "c"}


def test_a_stage_is_judged_when_it_commits(table: lakebed.Table) -> None:
    with table.stage() as staged:
        staged.upsert({"id": [3], "vin": ["a"], "n": [3]})
        assert staged.count() == 3
        with pytest.raises(CheckFailed):
            staged.commit()
    assert vins(table) == {1: "a", 2: "b"}


def test_conditions_that_are_no_truth_about_the_table_are_refused(table: lakebed.Table) -> None:
    for condition, error in {
        "vin > 'a'": "is not one truth about all rows",
        "count(*)": "is not one truth about all rows",
        "count( > 5": "is no SQL condition",
        "count(zz) > 5": "cannot be evaluated",
    }.items():
        with pytest.raises(InvalidOption, match=error):
            table.checks.add("odd", condition, on="table", validate=False)
    with pytest.raises(InvalidOption, match="no single row breaks it"):
        table.checks.add("odd", "count(vin) > 5", on="table", on_failure="quarantine")
    with pytest.raises(CheckFailed, match="breaks checks of the table as a whole: many"):
        table.checks.add("many", "count(*) > 5", on="table")
    with pytest.raises(SchemaConflict, match="the check unique_vin"):
        table.columns.rename("vin", "number")
    assert table.checks.add("count(*) > 0", on="table").name == "table_check"
    assert len(table.checks) == 2
