"""The help of every command: its examples are right, and its words are for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
import typer

import lakebed
from lakebed.cli.examples import EXAMPLES
from lakebed.cli.main import app, invoke

PROGRAM: Any = typer.main.get_command(app)


def commands(group: Any = PROGRAM, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


def test_every_command_has_examples_that_name_it() -> None:
    assert set(EXAMPLES) == {name for name, _ in commands()}
    assert [line for name, lines in EXAMPLES.items() for line in lines if not line.startswith(f"{name} ")] == []


def test_every_example_is_a_command_line_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rows.parquet", "rows.csv", "rows.json", "job.properties", "keys.txt", "rides.toml", "jobs.toml"):
        (tmp_path / name).touch()
    for name, command in commands():
        for line in EXAMPLES[name]:
            command.make_context(name, shlex.split(line)[len(name.split()) :])


def test_help_shows_examples_and_no_types_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    for name, _ in commands():
        assert invoke([*name.split(), "--help"]) == 0
        text = capsys.readouterr().out
        assert f"\n    lakebed {EXAMPLES[name][0]}\n" in text
        assert "list[" not in text
        assert " range>" not in text


def test_several_columns_are_given_with_commas_or_one_by_one(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "day": [1, 2], "city": ["a", "b"], "ts": [1, 1]})
    pacsv.write_csv(rows, tmp_path / "rows.csv")
    for number, key in enumerate((["--key", "id,day"], ["--key", "id", "--key", "day"])):
        uri = str(tmp_path / str(number))
        assert invoke(["table", "create", uri, "--schema-from", str(tmp_path / "rows.csv"), *key]) == 0
        assert lakebed.open(uri).properties["hoodie.table.recordkey.fields"] == "id,day"
        assert invoke(["upsert", uri, str(tmp_path / "rows.csv")]) == 0
        assert invoke(["scan", uri, "--columns", "id,city", "--columns", "ts"]) == 0
        assert invoke(["cluster", uri, "--sort", "city,ts", "--dry-run"]) == 0
        assert invoke(["repair", uri, "--part", "orphans,metadata", "--dry-run"]) == 0
    assert invoke(["advise", str(tmp_path / "rows.csv"), "--key", "id,day", "--batch-rows", "2"]) == 0
