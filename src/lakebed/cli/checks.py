"""`lakebed checks`: conditions that the rows of a table have to fulfil."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

import lakebed
from lakebed.cli.command import open_table, show_result, table_command
from lakebed.cli.output import Form, Output, StorageOptions, Uri, row_limit, show_rows, working

if TYPE_CHECKING:
    from lakebed.properties.checks import Check, CheckedOn, OnFailure

app = typer.Typer(help="Conditions that every write to a table tests its rows by.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The name of the check.")]
Column = Annotated[str, typer.Argument(help="A column, or a field of a nested one, e.g. address.city.")]
Validate = Annotated[bool, typer.Option("--validate/--no-validate", help="Read the stored rows first, or not.")]


@app.command("list")
def list_all(uri: Uri, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """List the checks of a table."""
    show_rows(open_table(uri, storage_option).checks.to_arrow(), output)


@app.command()
@table_command("adding the check {name}")
def add(
    table: lakebed.Table,
    options: dict[str, str],
    name: Name,
    condition: Annotated[str, typer.Argument(help="The condition in SQL, such as 'fare >= 0'.")],
    on: Annotated[
        str, typer.Option(metavar="row|table", help="What it is about: one row, or aggregates of all rows.")
    ] = "row",
    on_failure: Annotated[
        str, typer.Option(metavar="reject|quarantine|warn", help="What a write does with rows that break it.")
    ] = "reject",
    validate: Validate = True,
) -> Check:
    """Add a check. The stored rows are read first: the check is refused if some break it."""
    return table.checks.add(
        name,
        condition,
        on=cast("CheckedOn", on),
        on_failure=cast("OnFailure", on_failure),
        validate=validate,
        options=options,
    )


@app.command()
@table_command("requiring values in {column}")
def require(table: lakebed.Table, options: dict[str, str], column: Column, validate: Validate = True) -> Check:
    """Add the check that a column is not null."""
    return table.checks.require(column, validate=validate, options=options)


@app.command()
@table_command("dropping the check {name}")
def drop(table: lakebed.Table, options: dict[str, str], name: Name) -> Check:
    """Drop a check."""
    return table.checks.drop(name, options=options)


@app.command()
def run(
    uri: Uri,
    name: Annotated[str | None, typer.Argument(help="The check to run; by default all.", show_default=False)] = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Run the checks, or one, over the stored rows. The exit code is 1 if rows break a check."""
    with working("reading rows"):
        report = open_table(uri, storage_option).checks.run(name)
    show_result(report, output)
    if not report:
        raise typer.Exit(1)


@app.command()
def rejects(
    uri: Uri,
    limit: Annotated[int | None, typer.Option(help="So many rows at most.")] = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Show the rows that checks with --on-failure quarantine kept out of the table."""
    rows, count = open_table(uri, storage_option).rejects.scan(), row_limit(limit, output)
    show_rows((rows.limit(count) if count else rows).to_arrow(), output)
