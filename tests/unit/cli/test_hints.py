"""Hints name commands on the command line, where a command does the same as the call."""

from __future__ import annotations

import pytest

import lakebed
from lakebed.cli.hints import as_commands
from lakebed.cli.main import app, invoke


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("Finish it first: t.restore().", "Finish it first: `lakebed restore URI`."),
        ("t.rescale(buckets=8), or t.cluster()", "`lakebed rescale URI --buckets 8`, or `lakebed cluster URI`"),
        ("t.indexes.use('bucket', buckets=...)", "`lakebed index use URI bucket --buckets ...`"),
        ("t.repair(['orphans', 'metadata'])", "`lakebed repair URI --part orphans,metadata`"),
        ("t.delete_savepoint('20261126')", "`lakebed savepoint URI --delete 20261126`"),
        ("t.upsert(rows), t.nothing(), t.cluster(of=1), t.indexes()",) * 2,
        ("give t.delete(where=condition)",) * 2,
    ],
)
def test_calls_become_commands(hint: str, expected: str) -> None:
    assert as_commands(hint, app) == expected


def test_an_error_of_a_command_names_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    table = lakebed.create("memory://hints/t", {"id": [1], "v": ["a"]}, key="id", type="mor", index="bucket", buckets=1)
    table.upsert({"id": [1], "v": ["a"]})
    table.upsert({"id": [1], "v": ["b"]})
    table.compact(plan_only=True)
    assert invoke(["columns", "rename", table.uri, "v", "w"]) != 0
    said = capsys.readouterr().err
    assert "`lakebed compact URI`" in said
    assert "t.compact()" not in said
