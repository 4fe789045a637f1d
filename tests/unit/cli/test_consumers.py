"""`lakebed consume` and `lakebed consumers`: positions move after the output is flushed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.table import Table
from support.write_tables import SCHEMA, rows


@pytest.fixture
def table(tmp_path: Path) -> Table:
    properties = {"hoodie.table.cdc.enabled": True}
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", ordering="ts", index="simple", properties=properties)
    table.upsert(rows((1, "a", "1", 1), (2, "a", "2", 1)))
    table.upsert(rows((1, "a", "11", 2)))
    return table


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    assert invoke([*arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_changes_of_a_consumer_come_once(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("consume", table.uri, "daily", "--output", "ndjson", "--columns", "id,v")
    assert lines(capsys, *command, "--max-commits", "1") == [{"id": 1, "v": "1"}, {"id": 2, "v": "2"}]
    assert lines(capsys, *command) == [{"id": 1, "v": "11"}]
    assert lines(capsys, *command) == []
    assert table.consumers.get("daily").batches == 2


def test_json_has_a_list_a_batch_and_cdc_the_rows_before_and_after(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("consume", table.uri, "daily", "--cdc", "--output", "json", "--columns", "v")
    (first,) = lines(capsys, *command, "--max-commits", "1")
    assert [change["after"]["v"] for change in first] == ["1", "2"]
    ((second,),) = lines(capsys, *command)
    assert (second["op"], second["before"], second["after"]) == ("u", {"v": "1"}, {"v": "11"})
    assert lines(capsys, *command) == [[]]


def test_a_batch_is_printed_in_full_or_refused(table: Table) -> None:
    for words in (["--limit", "1"], ["--end", "20990101000000000"]):
        assert invoke(["consume", table.uri, "daily", *words]) == 2
    assert table.consumers.list() == []


def test_consumers_are_listed_reset_and_deleted(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    table.consumers.start("daily")
    ((listed,),) = lines(capsys, "consumers", "list", table.uri, "--output", "json")
    assert (listed["consumer"], listed["position"], listed["lag_commits"]) == ("daily", "", 2)
    (moved,) = lines(capsys, "consumers", "move", table.uri, "daily", "latest", "--output", "json")
    assert moved["lag_commits"] == 0
    assert invoke(["consumers", "delete", table.uri, "daily"]) == 0
    assert "is deleted" in capsys.readouterr().out
    assert table.consumers.list() == []


def test_the_position_stays_where_output_fails(
    table: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full:
        encoding = "utf-8"

        def write(self, text: str) -> int:
            return len(text)

        def flush(self) -> None:
            raise OSError(28, "No space left on device")

        def isatty(self) -> bool:
            return False

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Full())
        assert invoke(["consume", table.uri, "daily", "--output", "csv"]) == 1
    assert "No space left" in capsys.readouterr().err
    assert table.consumers.get("daily").position == ""


@pytest.mark.rest
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_following_ends_cleanly_on_a_signal(table: Table, number: signal.Signals) -> None:
    arguments = ["consume", table.uri, "daily", "--follow", "--interval", "0.05", "--output", "ndjson"]
    program = [sys.executable, "-m", "lakebed", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        assert sorted(json.loads(run.stdout.readline())["id"] for _ in range(2)) == [1, 2]
        table.upsert(rows((3, "b", "3", 1)))
        assert json.loads(run.stdout.readline())["id"] == 3
        run.send_signal(number)
        rest, errors = run.communicate(timeout=20)
    assert (run.returncode, rest) == (0, ""), errors
    assert table.consumers.get("daily").lag_commits == 0
