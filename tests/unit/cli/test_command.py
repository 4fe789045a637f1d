"""Commands as typer runs them: their parameters are read on demand."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from lakebed.cli import output
from lakebed.cli.main import app


def test_a_program_reads_the_parameters_of_no_command_before_they_are_asked_for() -> None:
    program: Any = typer.main.get_command(app)
    get, scan = program.commands["get"], program.commands["scan"]
    assert "_read" not in {*vars(get), *vars(scan)}
    assert [parameter.name for parameter in get.params][:2] == ["uri", "keys"]
    assert "_read" not in vars(scan)


@pytest.mark.parametrize(
    ("columns", "rows", "header"),
    [
        (["id", "city"], [["1", "rome"], ["22222", "x"]], True),
        (["id", "city"], [], True),
        (["", ""], [["a", "1"], ["bbb", ""]], False),
        (["x"], [["  a  "], [""]], True),
        (["id", "b", "c"], [["", "", ""], ["1" * 300, "[b]y[/b]", ":smile:"]], True),
    ],
)
def test_a_plain_table_is_printed_as_rich_prints_it(
    columns: list[str],
    rows: list[list[str]],
    header: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output._print_table(columns, rows, header=header)
    plain = capsys.readouterr().out
    # rich prints what is not plain: no output but this shows its form of the same rows
    monkeypatch.setattr(output, "_is_plain", lambda text: False)
    output._print_table(columns, rows, header=header)
    assert plain == capsys.readouterr().out
