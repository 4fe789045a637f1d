"""How answers are shown: a table for people, JSON for programs."""

from __future__ import annotations

import base64
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, Any, cast

import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table


class Form(StrEnum):
    """The forms of `--output`."""

    TABLE = "table"
    JSON = "json"


_SCREENFUL = 20

Output = Annotated[Form, typer.Option("--output", "-o", help="table or json.")]
StorageOptions = Annotated[
    list[str] | None, typer.Option("--storage-option", help="KEY=VALUE for the storage, e.g. region=eu-west-1.")
]
Uri = Annotated[str, typer.Argument(help="The table: a path or a URI.", show_default=False)]


def pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a dict."""
    found: dict[str, str] = {}
    for text in given or ():
        key, separator, value = text.partition("=")
        if not separator:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        found[key.strip()] = value
    return found


@contextmanager
def working(what: str) -> Generator[None]:
    """Shows on standard error, if that is a terminal, that something goes on and since when; gone when it is done."""
    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(what, total=None)
        yield


def shown_rows(limit: int | None, form: Form) -> int:
    """How many rows to show, 0 for all: programs get all unless they say otherwise, people a screenful."""
    if limit is not None and limit < 0:
        raise typer.BadParameter(f"{limit} is less than 0", param_hint="--limit")
    if limit is None:
        return 0 if form is Form.JSON else _SCREENFUL
    return limit


def tell_cut(shown: str, form: Form) -> None:
    """Say on standard error that there is more than was shown."""
    text = f"only {shown} are shown; --limit 0 shows all"
    typer.echo(json.dumps({"cut": text}) if form is Form.JSON else text, err=True)


def show_rows(table: pa.Table, form: Form) -> None:
    """Rows: a JSON list of objects, or a table that fits the terminal."""
    if form is Form.JSON:
        _print_json(table.to_pylist())
        return
    shown = [[_cell(value) for value in row.values()] for row in table.to_pylist()]
    _print_table(table.column_names, shown)


def show_records(records: Iterable[Mapping[str, Any]], columns: Sequence[str], form: Form) -> None:
    """Records of one shape, in the columns given."""
    listed = [{column: record.get(column) for column in columns} for record in records]
    if form is Form.JSON:
        _print_json(listed)
        return
    _print_table(columns, [[_cell(value) for value in record.values()] for record in listed])


def show_facts(facts: Mapping[str, Any], form: Form) -> None:
    """One thing's facts: a JSON object, or a line each."""
    if form is Form.JSON:
        _print_json(facts)
        return
    _print_table(["", ""], [[name, _cell(value)] for name, value in facts.items()], header=False)


def show_text(text: str, form: Form) -> None:
    """A text that prints well by itself, e.g. a plan."""
    if form is Form.JSON:
        _print_json({"text": text})
    else:
        typer.echo(text)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, default=_plain, ensure_ascii=False))


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, header: bool = True) -> None:
    table = Table(show_header=header, box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False, emoji=False).print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(part) for part in cast("Sequence[object]", value))
    return str(_plain(value))


def _plain(value: object) -> object:
    """Values that JSON does not have, as text: numbers keep all their digits, binary is base64."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (Decimal, timedelta)):
        return str(value)
    return str(value)
