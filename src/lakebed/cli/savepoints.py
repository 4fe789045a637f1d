"""`lakebed savepoints`: commits that are kept; `lakebed restore` and `lakebed rollback`, which go back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import lakebed
from lakebed.cli.command import DryRun, WriteOptions, open_table, table_command
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts, show_records

if TYPE_CHECKING:
    from lakebed.services.restore import RestoreResult, RollbackResult
    from lakebed.services.savepoint import Savepoint

app = typer.Typer(help="Commits that are kept for `lakebed restore`.", no_args_is_help=True)


@app.command("list")
def list_savepoints(uri: Uri, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """List the table's savepoints, oldest commit first."""
    from lakebed.table_savepoints import SCHEMA

    savepoints = open_table(uri, storage_option).savepoints.list()
    show_records([savepoint.to_dict() for savepoint in savepoints], SCHEMA.names, output)


@app.command()
@table_command("making a savepoint")
def create(
    table: lakebed.Table,
    options: dict[str, str],
    instant: Annotated[str | None, typer.Argument(help="The commit to keep; by default the last one.")] = None,
    name: Annotated[str, typer.Option(help="Its name, which restore and --as-of take; Hudi has it as comment.")] = "",
    user: Annotated[str | None, typer.Option(help="Who makes it; by default the user who runs the command.")] = None,
) -> Savepoint:
    """Keep a commit for `lakebed restore`: cleaning and archival then leave it alone."""
    return table.savepoints.create(instant, name=name, user=user, options=options)


@app.command()
def delete(
    uri: Uri,
    instant: Annotated[str, typer.Argument(help="The commit of the savepoint, or its name.", show_default=False)],
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Delete the savepoint of a commit: cleaning and archival may then remove what it kept."""
    done = open_table(uri, storage_option).savepoints.delete(instant, options=pairs(option, "--option"))
    if output.is_for_programs:
        show_facts({"deleted": done.to_dict() if done else {"instant": instant}}, output)
    else:
        typer.echo(f"deleted {done or 'what was left of savepoint ' + instant}")


@table_command("restoring")
def restore(
    table: lakebed.Table,
    options: dict[str, str],
    instant: Annotated[
        str | None,
        typer.Argument(
            help="The commit to go back to, or a savepoint's name; without it, an interrupted restore is finished."
        ),
    ] = None,
    dry_run: DryRun = False,
) -> RestoreResult:
    """Go back to the table as it was when a commit completed. All later commits are rolled back for good."""
    return table.restore(instant, dry_run=dry_run, options=options)


@table_command("rolling back")
def rollback(
    table: lakebed.Table,
    options: dict[str, str],
    instant: Annotated[str, typer.Argument(help="The table's last completed commit.")],
    dry_run: DryRun = False,
) -> RollbackResult:
    """Undo the last completed commit. `lakebed restore` undoes several."""
    return table.rollback(instant, dry_run=dry_run, options=options)
