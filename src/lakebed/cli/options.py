"""`lakebed options`: what each option does here."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebed.cli.output import Form, Output, show_facts, show_records
from lakebed.config.option_table import Option, canonical, nearest
from lakebed.config.option_table import options as known_options
from lakebed.errors import InvalidOption

app = typer.Typer(help="The options of a write or read, and what becomes of them.", no_args_is_help=True)


@app.command("list")
def list_options(
    verdict: Annotated[str, typer.Option(help="Only these: implemented, refused or ignored.")] = "",
    contains: Annotated[str, typer.Option(help="Only keys that contain this text.")] = "",
    output: Output = Form.TABLE,
) -> None:
    """All options with default and verdict."""
    rows = [
        _facts(option)
        for option in known_options().values()
        if option.verdict.startswith(verdict) and contains in option.key
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


def _facts(option: Option) -> dict[str, object]:
    return {
        "option": option.key,
        "default": option.default,
        "verdict": option.verdict,
        "values": "" if option.values == "off" else option.values.replace("|", ", "),
        "older names": list(option.aliases),
        "note": option.note,
    }
