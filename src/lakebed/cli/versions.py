"""Commands about the table in time: its versions, the versions of one row, the difference between two times, undo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import lakebed
from lakebed.cli.command import DryRun, WriteOptions, ask_first, open_table, show_result
from lakebed.cli.hints import as_commands
from lakebed.cli.keys import KeyFields, key_texts
from lakebed.cli.output import (
    Form,
    Output,
    StorageOptions,
    Uri,
    names,
    pairs,
    print_cut,
    row_limit,
    show_newest,
    show_rows,
    working,
)
from lakebed.cli.rows import Columns, Limit
from lakebed.wording import count_text

if TYPE_CHECKING:
    import pyarrow as pa

_MOMENT = "an instant, a time, a date, the number of a version or the name of a savepoint"


def versions(uri: Uri, limit: Limit = None, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """List the table's commits with their numbers, oldest first: what they did, who wrote them and why."""
    show_newest(open_table(uri, storage_option).versions.to_arrow(), limit, output, "version")


def history(
    uri: Uri,
    record_key: Annotated[
        str | None,
        typer.Argument(metavar="KEY", help="A record key, e.g. 42, or id:42,day:7.", show_default=False),
    ] = None,
    key: KeyFields = None,
    before: Annotated[str | None, typer.Option(help="Only versions before this instant.")] = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """List the versions of one row, newest first: what each commit changed, who wrote it and why."""
    table = open_table(uri, storage_option)
    texts = key_texts(table, [record_key] if record_key is not None else None, key)
    with working("reading"):
        result = table.history(lakebed.KeyText(texts, typed=True), before=before)
        rows = result.to_arrow()
    show_rows(rows, output)
    if result.note:
        typer.echo(as_commands(result.note), err=True)


def diff(
    uri: Uri,
    start: Annotated[str, typer.Argument(help=f"The earlier state: {_MOMENT}.", show_default=False)],
    end: Annotated[str | None, typer.Argument(help="The later state; by default that of now.")] = None,
    columns: Columns = None,
    limit: Limit = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Print the rows that differ between two states of the table, and on standard error how many there are."""
    with working("comparing"):
        result = open_table(uri, storage_option).diff(start, end, columns=names(columns))
        rows: pa.Table = result.to_arrow()
    max_rows = row_limit(limit, output)
    show_rows(rows.slice(0, max_rows) if max_rows else rows, output)
    if 0 < max_rows < rows.num_rows:
        print_cut(f"the first {count_text(max_rows, 'row')}", output)
    typer.echo(str(result.summary), err=True)


def undo(
    uri: Uri,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Take back the newest write, with what services did after it. It shows what would be undone, and asks."""
    table, options = open_table(uri, storage_option), pairs(option, "--option")
    if dry_run or not yes:
        planned = table.undo(dry_run=True, options=options)
        if dry_run:
            return show_result(planned, output)
        typer.echo(as_commands(str(planned)), err=True)
        ask_first("undo it?", "undo this write")
    with working("undoing"):
        done = table.undo(options=options)
    return show_result(done, output)
