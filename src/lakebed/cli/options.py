"""`lakebed options`: what each option does here."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lakebed.cli.files import read_options
from lakebed.cli.output import Form, Output, show_facts, show_records
from lakebed.config.option_table import Option, canonical, nearest
from lakebed.config.option_table import options as known_options
from lakebed.config.options import check_options
from lakebed.errors import InvalidOption

_VERDICTS = ("implemented", "refused", "ignored")
app = typer.Typer(help="The options of a write or read, and what becomes of them.", no_args_is_help=True)


@app.command("list")
def list_options(
    verdict: Annotated[str, typer.Option(help="Only these: implemented, refused or ignored.")] = "",
    contains: Annotated[str, typer.Option(help="Only keys that contain this text.")] = "",
    output: Output = Form.TABLE,
) -> None:
    """All options with default and verdict."""
    if verdict and verdict not in _VERDICTS:
        raise InvalidOption(f"there is no verdict {verdict!r}", hint=f"take {' or '.join(_VERDICTS)}")
    rows = [
        _facts(option)
        for option in known_options().values()
        if verdict in ("", option.verdict) and contains in option.key
    ]
    show_records(rows, ["option", "default", "verdict", "note"], output)


@app.command("show")
def show_option(
    key: Annotated[str, typer.Argument(help="The option, by key or older name.")], output: Output = Form.TABLE
) -> None:
    """One option."""
    name = canonical(key)
    if name is None:
        near = nearest(key)
        raise InvalidOption(f"unknown option {key}", hint=f"did you mean {near}?" if near else "")
    show_facts(_facts(known_options()[name]), output)


@app.command("check")
def check(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A JSON object of options, or lines `key=value`.")
    ],
    output: Output = Form.TABLE,
) -> None:
    """What would become of each option of a job. The exit code is 5 where one is refused, wrong or unknown."""
    verdicts = check_options(read_options(file))
    show_records([asdict(v) for v in verdicts], ["option", "value", "verdict", "note"], output)
    if not all(v.is_taken for v in verdicts):
        raise typer.Exit(InvalidOption.exit_code)


def _facts(option: Option) -> dict[str, object]:
    return {
        "option": option.key,
        "default": option.default,
        "verdict": option.verdict,
        "values": "" if option.values == "off" else option.values.replace("|", ", "),
        "older_names": list(option.aliases),
        "note": option.note,
    }
