"""`lakebed options`: the options of a write or read, and what becomes of those of a job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli.hints import as_commands
from lakebed.cli.output import Form, Output, show_facts, show_records
from lakebed.errors import InvalidOption
from lakebed.wording import count_text

if TYPE_CHECKING:
    from lakebed.config.option_table import Option
    from lakebed.config.options import OptionVerdict

# The verdicts of a job's options, those first that stop it.
_ORDER = ("wrong", "unknown", "refused", "not installed", "ignored", "implemented")
_LINK = re.compile(r"\[[^\]]+\]\((\w+\.md)\)")
_VERDICTS = ("implemented", "refused", "ignored")
app = typer.Typer(help="The options of a write or read, and what becomes of them.", no_args_is_help=True)


@app.command("list")
def list_options(
    verdict: Annotated[str, typer.Option(help="Only options that are implemented, refused or ignored.")] = "",
    contains: Annotated[str, typer.Option(help="Only options whose keys contain this text.")] = "",
    output: Output = Form.TABLE,
) -> None:
    """List all options, with default and verdict."""
    from lakebed.config.option_table import options as known_options

    if verdict and verdict not in _VERDICTS:
        raise InvalidOption(f"there is no verdict {verdict!r}", hint=f"take one of {', '.join(_VERDICTS)}")
    rows = [
        _option_facts(option)
        for option in known_options().values()
        if verdict in ("", option.verdict) and contains in option.key
    ]
    show_records(rows, ["option", "default", "verdict", "note"], output)


@app.command("show")
def show_option(
    key: Annotated[str, typer.Argument(help="The option, by its key or an older name.")], output: Output = Form.TABLE
) -> None:
    """Show one option."""
    from lakebed.config.option_table import canonical, nearest
    from lakebed.config.option_table import options as known_options

    name = canonical(key)
    if name is None:
        near = nearest(key)
        raise InvalidOption(f"unknown option {key}", hint=f"did you mean {near}?" if near else "")
    show_facts(_option_facts(known_options()[name]), output)


@app.command("check")
def check(
    file: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="A .properties file, or a JSON object of options."),
    ],
    ignore_sync: Annotated[
        bool,
        typer.Option(
            "--ignore-sync", help="Take options of catalog sync as ignored, as with lakebed.catalog.sync=ignore."
        ),
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Check the options of a Hudi job. Those that stop the job come first.

    The exit code is 5 if an option is refused, wrong, unknown, or needs a package that is not installed.
    """
    from lakebed.config.java_properties import read_options
    from lakebed.config.options import CATALOG_SYNC, check_options

    options = read_options(file)
    verdicts = check_options({**options, CATALOG_SYNC: "ignore"} if ignore_sync else options)
    file_verdicts = [v for v in verdicts if v.option in options]
    file_verdicts.sort(key=lambda v: _ORDER.index(v.verdict))
    rows = [asdict(v) | {"note": _plain(as_commands(v.note))} for v in file_verdicts]
    show_records(rows, ["option", "value", "verdict", "note"], output)
    if not output.is_for_programs:
        typer.echo(_conclusion(file_verdicts))
    if not all(v.is_taken for v in file_verdicts):
        raise typer.Exit(InvalidOption.exit_code)


def _plain(note: str) -> str:
    """A note in which each link is replaced by the path of the page in docs."""
    return _LINK.sub(r"docs/\1", note)


def _conclusion(verdicts: Sequence[OptionVerdict]) -> str:
    """The line below the verdicts: whether the job runs, and how many options have each verdict."""
    counts = Counter(v.verdict for v in verdicts)
    parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _ORDER if counts[verdict])
    stops = sum(not v.is_taken for v in verdicts)
    start = f"the job does not run: {count_text(stops, 'option')} to correct" if stops else "the job runs"
    return f"{start} ({parts})" if parts else f"{start} (no options)"


def _option_facts(option: Option) -> dict[str, object]:
    return {
        "option": option.key,
        "default": option.default,
        "verdict": option.verdict,
        "values": "" if option.values == "off" else option.values.replace("|", ", "),
        "older_names": list(option.aliases),
        "note": _plain(option.note),
    }
