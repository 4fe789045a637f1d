"""Commands that take names: `--warehouse`, `LAKEBED_WAREHOUSE`, and `lakebed warehouse`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.model import WAREHOUSE


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv(WAREHOUSE, raising=False)
    monkeypatch.chdir(tmp_path)
    lake = str(tmp_path / "lake")
    lakebed.load(f"{lake}/sales/orders", {"id": [1, 2], "city": ["Oslo", "Rome"]}, key="id", progress=False)
    return lake


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> object:
    assert invoke([*arguments, "--output", "json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_commands_take_names_by_the_option_and_by_the_environment(
    lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": 1, "city": "Oslo"}, {"id": 2, "city": "Rome"}]
    assert output(capsys, "scan", "sales.orders", "--warehouse", lake) == rows
    assert WAREHOUSE not in os.environ
    monkeypatch.setenv(WAREHOUSE, lake)
    assert output(capsys, "scan", "sales.orders") == rows
    assert output(capsys, "sql", "select count(*) as n from sales.orders") == [{"n": 2}]
    assert output(capsys, "sql", "show tables") == [{"database": "sales", "table": "orders"}]
    assert output(capsys, "count", "sales.orders", "--where", "id = 1") == {"rows": 1}
    facts = output(capsys, "describe", "sales.orders")
    assert isinstance(facts, dict)
    assert facts["location"] == f"{lake}/sales/orders"
    assert invoke(["maintenance", "run", "sales.orders", "--once"]) == 0
    assert invoke(["maintenance", "doctor", "sales.orders"]) == 0
    assert os.environ[WAREHOUSE] == lake


def test_the_option_comes_before_the_environment(
    lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAREHOUSE, "/nowhere")
    assert output(capsys, "warehouse", "list", "--warehouse", lake) == [{"name": "sales.orders"}]
    assert os.environ[WAREHOUSE] == "/nowhere"


def test_databases_and_tables_are_made_listed_renamed_and_dropped(
    lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAREHOUSE, lake)
    assert output(capsys, "warehouse", "create-database", "hr") == {"database": "hr"}
    assert output(capsys, "warehouse", "databases") == [{"database": "hr"}, {"database": "sales"}]
    renamed = output(capsys, "warehouse", "rename", "sales.orders", "hr.staff")
    assert renamed == {"name": "hr.staff", "location": f"{lake}/hr/staff"}
    assert output(capsys, "warehouse", "list", "hr") == [{"name": "hr.staff"}]
    dropped = output(capsys, "drop", "hr.staff", "--yes")
    assert isinstance(dropped, dict)
    assert dropped["dropped"] is True
    assert output(capsys, "warehouse", "list") == []


def test_a_job_writes_to_a_name(lake: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        '[source]\nkind = "table"\nuri = "sales.orders"\n[target]\nuri = "sales.copied"\ncreate = { key = "id" }\n'
    )
    assert invoke(["ingest", "job.toml", "--once", "--warehouse", lake]) == 0
    assert lakebed.open(f"{lake}/sales/copied").count() == 2


def test_names_are_refused_without_a_warehouse(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["scan", "sales.orders"]) == lakebed.TableNotFound.exit_code
    assert WAREHOUSE in capsys.readouterr().err
    assert invoke(["warehouse", "list"]) == lakebed.InvalidOption.exit_code
    assert invoke(["scan", "Sales.Orders", "--warehouse", lake]) == lakebed.InvalidOption.exit_code
    assert "capital letters" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["list", "databases"])
def test_a_warehouse_that_is_not_there_is_named_before_the_empty_list(
    command: str, lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["warehouse", command, "--warehouse", f"{lake}/typo", "--output", "json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == []
    assert f"warning: there is nothing at {lake}/typo" in printed.err
    Path(lake, "empty").mkdir()
    for existing in (lake, f"{lake}/empty"):
        assert invoke(["warehouse", command, "--warehouse", existing, "--output", "json"]) == 0
        assert "warning" not in capsys.readouterr().err
