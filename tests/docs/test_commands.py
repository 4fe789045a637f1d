"""The `lakebed` commands that the pages name: all of them parse, and those of the runbook run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

import lakebed
from lakebed.cli.main import app
from support.documented_examples import ROOT

PROGRAM: Any = typer.main.get_command(app)
_SPAN = re.compile(r"`(lakebed [a-z][^`\n]*)`")
_LINE = re.compile(r"^ *(lakebed [a-z-]+ .*)$", re.MULTILINE)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# made from the program itself; changes of the past
_APART = {"cli.md", "api.md"}
# Commands that go on until they are stopped.
_ENDLESS = ("lakebed inspect", "lakebed maintenance run URI")


def commands_of(page: str) -> Iterator[str]:
    """Commands in code spans and shell blocks of a page; spans without an argument only name a command."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for language, block in _FENCE.findall(text):
        if language not in ("", "sh", "bash"):
            continue
        yield from (line.split("  #")[0].split(" #")[0].strip() for line in _LINE.findall(block))
    spans = _FENCE.sub("", text.replace("\\|", "|"))
    yield from (span for span in _SPAN.findall(spans) if re.search(r" (URI|s3://|[a-z]+\.[a-z]+$)", span))


def _parse(command: str) -> None:
    """Parse a command as the program does, and run nothing. Raises `click.UsageError`."""
    words = shlex.split(command)[1:]
    words = words[: words.index(">")] if ">" in words else words
    group: Any = PROGRAM
    while hasattr(group, "commands"):
        name = words.pop(0)
        if name not in group.commands:
            raise click.UsageError(f"no command {name!r}")
        group = group.commands[name]
    group.make_context(group.name, words)


PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in _APART)


@pytest.mark.rest
def test_the_commands_of_the_first_table_run_in_an_empty_folder(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "first_table.md").read_text(encoding="utf-8")
    (block,) = (block for language, block in _FENCE.findall(text) if language == "sh")
    script = f'set -e\nlakebed() {{ "{sys.executable}" -m lakebed "$@"; }}\n{block}'
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "upsert" in done.stdout
    assert re.search(r"1 inserted, 1 updated", done.stdout)
    rows = lakebed.open(str(tmp_path / "rides")).scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["fare"]) for row in rows] == [("a", 9.5), ("b", 14.0), ("c", 7.25), ("d", 20.0)]


def test_every_command_on_a_page_parses() -> None:
    commands = {(page, command) for page in PAGES for command in commands_of(page)}
    assert len(commands) > 80
    wrong: list[str] = []
    for page, command in sorted(commands):
        try:
            _parse(command)
        except Exception as error:
            if not str(error).endswith("does not exist."):  # a file of the reader's
                wrong.append(f"{page}: {command}: {error}")
    assert wrong == []


# Commands about files or keys that a bucket index has rules of its own for.
_SIMPLE = ("merge-small-files", "indexes create URI driver")


def _table(folder: Path, command: str) -> tuple[str, str, str]:
    """A merge-on-read table with two commits and a consumer: its path and the instants."""
    rows = pa.table(
        {"id": [1, 2], "driver": ["ann", "bob"], "day": ["2020-01-01", "2026-01-01"], "city": ["oslo", "rome"]}
    )
    index = {"index": "record"} if any(one in command for one in _SIMPLE) else {"index": "bucket", "buckets": 2}
    kinds: dict[str, Any] = {"key": "id", "partition_by": "day", "type": "mor", **index}
    t = lakebed.create(str(folder / "trips"), rows, **kinds)
    first, last = t.upsert(rows), t.upsert(rows.slice(1))
    t.consumers.start("daily", "earliest")
    pq.write_table(rows, folder / "rows.parquet")
    return t.uri, first.instant, last.instant


RUNBOOK = [command for command in dict.fromkeys(commands_of("runbook.md")) if " URI" in command]


@pytest.mark.rest
@pytest.mark.every_case
@pytest.mark.parametrize("command", [one for one in RUNBOOK if not one.startswith(_ENDLESS) or "--" in one])
def test_a_command_of_the_runbook_does_what_it_is_named_for(command: str, tmp_path: Path) -> None:
    uri, first, last = _table(tmp_path, command)
    words = {"URI": uri, "NAME": "daily", "KEY": "1", "INSTANT": first if "restore" in command else last}
    words["rows.parquet"] = str(tmp_path / "rows.parquet")
    arguments = [words.get(word, word) for word in shlex.split(command)[1:]]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == (1 if "doctor" in command and done.exit_code == 1 else 0), done.output + repr(
        done.exception
    )
    assert lakebed.open(uri).count() == (1 if "restore" in command and "--dry-run" not in command else 2)
