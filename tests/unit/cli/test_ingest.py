"""`lakebed ingest`: a line for each round, JSON for programs, and the exit code of the error that ended a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakebed
from lakebed.cli.main import invoke


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Two jobs of files; that named `b` has a line that is no row."""
    lines = []
    for name, text in (("a", "id,n\n1,1\n2,2\n"), ("b", "id,n\n1,1\n2,2,2\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.csv").write_text(text)
        lines.append(f'[jobs.{name}.source]\nkind = "files"\npath = "{tmp_path}/{name}"\n')
        lines.append(f'[jobs.{name}.target]\nuri = "{tmp_path}/t-{name}"\ncreate = {{ key = "id" }}\n')
    path = tmp_path / "jobs.toml"
    path.write_text("".join(lines))
    return path


def test_a_job_is_a_line_for_each_round_and_its_sum(jobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["ingest", str(jobs), "--once", "--job", "a"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert "a: 2 rows, checkpoint " in first
    assert last.startswith("a: 2 rows in 1 commit, checkpoint ")
    assert lakebed.open(str(jobs.parent / "t-a")).count() == 2
    assert invoke(["ingest", str(jobs), "--once", "--job", "a"]) == 0
    assert "a: nothing new" in capsys.readouterr().out


def test_for_programs_each_event_is_a_json_line_and_the_error_is_one(
    jobs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["ingest", str(jobs), "--once", "--output", "json"]) == lakebed.InvalidRecord.exit_code
    shown = capsys.readouterr()
    events = [json.loads(line) for line in shown.out.splitlines()]
    assert [(event["job"], event["event"]) for event in events] == [("a", "committed"), ("b", "failed")]
    assert (events[0]["rows"], events[0]["lag"], events[0]["write"]["inserted"]) == (2, {"files": 0, "bytes": 0}, 2)
    assert events[1]["error"]["context"]["position"] == "x.csv:3"
    assert json.loads(shown.err)["error"]["exit_code"] == lakebed.InvalidRecord.exit_code


def test_a_job_that_the_file_does_not_have_and_a_wrong_key_are_named(
    jobs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["ingest", str(jobs), "--once", "--job", "c"]) == 2
    assert "has no job 'c'" in capsys.readouterr().err
    jobs.write_text(jobs.read_text().replace("path =", "paht ="))
    assert invoke(["ingest", str(jobs), "--once"]) == lakebed.InvalidOption.exit_code
    assert "Did you mean path?" in capsys.readouterr().err
