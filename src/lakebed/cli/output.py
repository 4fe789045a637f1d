"""The output of commands, as a table or as JSON for programs, and the naming of data files."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import lakebed
from lakebed.progress import display, progress
from lakebed.wording import count_text

if TYPE_CHECKING:
    import pyarrow as pa


class Form(StrEnum):
    """The forms of `--output`."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"

    @property
    def is_for_programs(self) -> bool:
        return self is not Form.TABLE


class Partitioning(StrEnum):
    """The values of `--partitioning`."""

    HIVE = "hive"
    NONE = "none"


_SCREENFUL = 20

Output = Annotated[Form, typer.Option("--output", "-o", help="How to print the result.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="A setting of the storage, e.g. region=eu-west-1; give it once for each.",
    ),
]
Uri = Annotated[str, typer.Argument(help="The table: a path, a URI, or a name in the warehouse.", show_default=False)]


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a dict."""
    values: dict[str, str] = {}
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        values[key.strip()] = value
    return values


def names(texts: Sequence[str] | None) -> list[str] | None:
    """The names of an option that may be given several times, each time with one name or several separated by commas;
    None if it is not given.

    >>> names(["city,day", " hour"])
    ['city', 'day', 'hour']
    """
    return [name for text in texts or () for part in text.split(",") if (name := part.strip())] or None


@contextmanager
def working(label: str) -> Generator[None]:
    """Show on standard error, if that is a terminal, an activity and its duration, until the block ends."""
    with display(), progress(label):
        yield


def row_limit(limit: int | None, form: Form) -> int:
    """The number of rows to show, 0 for all: for programs all unless they set a limit, otherwise a screenful."""
    if limit is not None and limit < 0:
        raise typer.BadParameter(f"{limit} is less than 0", param_hint="--limit")
    if limit is None:
        return 0 if form.is_for_programs else _SCREENFUL
    return limit


def print_cut(printed_rows: str, form: Form) -> None:
    """Print on standard error that there are more rows than were printed."""
    text = f"only {printed_rows} are shown; --limit 0 shows all"
    typer.echo(json.dumps({"cut": text}) if form.is_for_programs else text, err=True)


def show_rows(table: pa.Table, form: Form) -> None:
    """Print rows: as a JSON list of objects or one object per line, as CSV, or as a table that fits the terminal.
    Variants are printed as the JSON that they hold; a table has texts in place of vectors and blobs, too."""
    if not any(kind.num_fields for kind in table.schema.types):
        return _print_rows(table.column_names, table.to_pylist(), form)
    from lakebed.row_texts import KINDS, with_texts

    readable = with_texts(table, KINDS if form is Form.TABLE else ("VARIANT",))
    rows = readable.to_pylist()
    if form in (Form.JSON, Form.NDJSON):
        documents = [new.name for old, new in zip(table.schema, readable.schema, strict=True) if old.type != new.type]
        rows = [{**row, **{name: json.loads(row[name] or "null") for name in documents}} for row in rows]
    return _print_rows(table.column_names, rows, form)


def show_newest(rows: pa.Table, limit: int | None, form: Form, noun: str) -> None:
    """Print the last rows of those of a timeline, as many as `--limit` says; people see no note that has no value."""
    from lakebed.table_views import without_empty_notes

    max_rows = row_limit(limit, form)
    newest = rows.slice(max(0, rows.num_rows - max_rows)) if max_rows else rows
    show_rows(newest if form.is_for_programs else without_empty_notes(newest), form)
    if newest.num_rows < rows.num_rows:
        print_cut(f"the newest {max_rows} of {count_text(rows.num_rows, noun)}", form)


def show_records(records: Iterable[Mapping[str, Any]], columns: Sequence[str], form: Form) -> None:
    """Print records of one shape, in these columns."""
    listed = [{column: record.get(column) for column in columns} for record in records]
    _print_rows(columns, listed, form)


def _print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], form: Form) -> None:
    if form is Form.JSON:
        _print_json(rows)
    elif form is Form.NDJSON:
        for row in rows:
            _print_json(row)
    elif form is Form.CSV:
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row.values()] for row in rows)
    else:
        _print_table(columns, [[_cell(value) for value in row.values()] for row in rows])


def show_facts(facts: Mapping[str, Any], form: Form) -> None:
    """Print the facts of one thing: as a JSON object, a CSV row, or one line each."""
    if form is Form.TABLE:
        lines = [[name.replace("_", " "), _cell(value)] for name, value in facts.items()]
        _print_table(["", ""], lines, header=False)
    elif form is Form.CSV:
        _print_rows(list(facts), [facts], form)
    else:
        _print_json(facts)


def show_dropped(message: str, left: Sequence[str]) -> None:
    """Print a line about the files that were dropped, and the files in the folder that stay."""
    typer.echo(message)
    if left:
        typer.echo(f"{count_text(len(left), 'other file')} in the folder:")
    for path in left:
        typer.echo(f"  {path}")


def show_text(text: str, form: Form) -> None:
    """Print a text that is readable unchanged, for example a plan."""
    if form.is_for_programs:
        _print_json({"text": text})
    else:
        typer.echo(text)


def _print_json(value: object) -> None:
    try:
        text = json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)
    except ValueError:  # JSON has no NaN and no infinity: they are texts, as in Spark's JSON, and no null
        text = json.dumps(_with_texts(value), default=_plain, ensure_ascii=False, allow_nan=False)
    typer.echo(text)


def _with_texts(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _with_texts(part) for key, part in cast("Mapping[str, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_with_texts(part) for part in cast("Sequence[object]", value)]
    return value


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, header: bool = True) -> None:
    rows = list(rows)
    printed = [columns, *rows] if header else rows
    # for rich these variables stand for a terminal, too
    is_terminal = sys.stdout.isatty() or os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1"
    if columns and not is_terminal and all(map(_is_plain, chain.from_iterable(printed))):
        # as rich prints it for another program, without its import, which takes longer than a lookup
        widths = [max(map(len, column)) for column in zip(*printed, strict=True)]
        for row in printed:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            sys.stdout.write(line.rstrip(" ") + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False, emoji=False)
    table = Table(show_header=header, box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=not console.is_terminal)
    for row in rows:
        table.add_row(*row)
    if not console.is_terminal:  # another program reads lines: none is broken
        console.width = max(
            console.width, console.measure(table, options=console.options.update_width(1 << 20)).maximum
        )
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.file.write(_without_padding(line) + "\n")


def _is_plain(text: str) -> bool:
    """Whether the text is one line in which each character takes one column of a terminal."""
    return text.isascii() and text.isprintable()


_RESET = "\x1b[0m"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def _without_padding(line: str) -> str:
    """The line without the spaces at its end and the codes of styles between them; a style that the text has is ended.

    One pass from the end: a pattern for it takes hours for a cell of thousands of spaces.
    """
    text, ends_style = line.rstrip(" "), False
    while text.endswith("m") and (code := _STYLE.fullmatch(text, max(text.rfind("\x1b"), 0))):
        ends_style = ends_style or code.group() == _RESET
        text = text[: code.start()].rstrip(" ")
    return text + _RESET if text and ends_style else text


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
    """The value in a form that JSON has: numbers retain all their digits, binary is base64 text."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        import base64

        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (Decimal, timedelta)):
        return str(value)
    return str(value)


Delimiter = Annotated[str | None, typer.Option(help="The character between the fields of a CSV file.")]
Encoding = Annotated[
    str | None, typer.Option(help="The encoding of CSV and JSON files, such as latin-1 or utf-16 (default: UTF-8).")
]
PartitioningOption = Annotated[
    Partitioning,
    typer.Option(help="hive: folders named column=value give the rows in them that column; none: they do not."),
]


Reading = Annotated[
    list[str] | None,
    typer.Option(
        "--read",
        metavar="KEY=VALUE",
        help="How files are read: rename=snake, index_column=NAME, date_format=%d.%m.%Y or columns.NAME=TYPE; give it"
        " once for each.",
    ),
]
_READ_SETTINGS = ("rename", "index_column", "date_format")


def data_files(
    path: str,
    delimiter: str | None = None,
    encoding: str | None = None,
    partitioning: Partitioning = Partitioning.HIVE,
    read: list[str] | None = None,
) -> lakebed.DataFiles:
    """The data files that a command reads rows from. `read` are settings of `--read`."""
    settings = pairs(read, "--read")
    columns = {key.removeprefix("columns."): kind for key, kind in settings.items() if key.startswith("columns.")}
    named: dict[str, Any] = {key: value for key, value in settings.items() if not key.startswith("columns.")}
    unknown = next((key for key in named if key not in _READ_SETTINGS), None)
    if unknown is not None:
        raise typer.BadParameter(
            f"{unknown!r} is none of {', '.join(_READ_SETTINGS)} and columns.NAME", param_hint="--read"
        )
    return lakebed.DataFiles(
        path,
        partitioning=partitioning.value,
        delimiter=delimiter,
        encoding=encoding,
        columns=columns or None,
        **named,
    )
