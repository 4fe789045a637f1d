from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakebed
from lakebed.cli.main import invoke


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of two writes, the first of which has a savepoint named kept."""
    table = lakebed.create(str(tmp_path / "t"), {"id": ["a"], "n": [1]}, key="id")
    table.upsert({"id": ["a", "b"], "n": [1, 1]}, message="load")
    table.savepoints.create(name="kept")
    table.upsert({"id": ["b", "c"], "n": [2, 2]}, metadata={"ticket": "OPS-7"})
    return table.uri


def test_versions_lists_commits_with_numbers_and_notes(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["versions", uri, "--output", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["number"], row["operation"], row["message"], row["metadata"]) for row in rows] == [
        (1, "upsert", "load", None),
        (2, "upsert", None, '{"ticket": "OPS-7"}'),
    ]
    assert invoke(["versions", uri, "--limit", "1"]) == 0
    shown = capsys.readouterr()
    assert "load" not in shown.out
    assert "the newest 1 of 2 versions" in shown.err


def test_history_lists_the_versions_of_a_row(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["history", uri, "b", "--output", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["change"], row["message"], row["after"]) for row in rows] == [
        ("update", None, {"id": "b", "n": 2}),
        ("insert", "load", {"id": "b", "n": 1}),
    ]


@pytest.mark.parametrize("start", ["1", "kept"])
def test_diff_prints_the_rows_that_differ(uri: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["diff", uri, start, "--output", "json"]) == 0
    shown = capsys.readouterr()
    rows = json.loads(shown.out)
    assert [(row["change"], row["before"], row["after"]) for row in rows] == [
        ("insert", None, {"id": "c", "n": 2}),
        ("update", {"id": "b", "n": 1}, {"id": "b", "n": 2}),
    ]
    assert "1 inserted, 1 updated (n 1), 0 deleted" in shown.err
    assert invoke(["diff", uri, start, "--limit", "1"]) == 0
    assert "the first 1 row" in capsys.readouterr().err


def test_undo_asks_before_it_changes_anything(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["undo", uri, "--dry-run"]) == 0
    assert "would be undone" in capsys.readouterr().out
    assert invoke(["undo", uri]) == 2
    shown = capsys.readouterr().err
    assert "would be undone" in shown
    assert "give --yes to undo this write" in shown
    assert lakebed.open(uri).count() == 3
    assert invoke(["undo", uri, "--yes", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["operation"] == "upsert"
    assert lakebed.open(uri).count() == 2


def test_writes_take_a_message(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("id,n\nd,4\n")
    assert invoke(["upsert", uri, str(tmp_path / "rows.csv"), "--message", "by hand"]) == 0
    assert invoke(["delete", uri, "d", "--message", "again"]) == 0
    assert invoke(["update", uri, "--set", "n=n+1", "--message", "raise"]) == 0
    assert invoke(["scan", uri, "--as-of", "kept", "--output", "json"]) == 0
    assert [version.message for version in lakebed.open(uri).versions] == ["load", None, "by hand", "again", "raise"]
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])) == 2


def test_every_command_that_writes_takes_metadata(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, note = str(tmp_path / "rows.csv"), ["--metadata", "ticket=OPS=7", "--metadata", "by=ann"]
    Path(rows).write_text("id,n\nd,4\n")
    commands: list[list[str]] = [
        ["upsert", uri, rows],
        ["update", uri, "--set", "n=n+1"],
        ["merge", uri, rows],
        ["sql", "UPDATE t SET n = 3", "--table", f"t={uri}"],
        ["delete", uri, "d"],
        ["insert", uri, rows],
        ["insert-overwrite", uri, rows, "--scope", "table"],
        ["erase", uri, "--key", "d", "--yes"],
        ["bulk-insert", uri, rows],
        ["delete-partitions", uri, "*"],
    ]
    for command in commands:
        assert invoke([*command, *note]) == 0, (command, capsys.readouterr().err)
        version = lakebed.open(uri).versions[-1]
        assert json.loads(version.metadata or "{}") == {"by": "ann", "ticket": "OPS=7"}, command
    assert invoke(["merge", uri, rows, "--message", "joined"]) == 0
    assert lakebed.open(uri).versions[-1].message == "joined"
    assert invoke(["upsert", uri, rows, "--metadata", "ticket"]) == 2
    assert "'ticket' is not KEY=VALUE" in capsys.readouterr().err
    assert invoke(["upsert", uri, rows, "--metadata", "hoodie.x=1"]) == 5
