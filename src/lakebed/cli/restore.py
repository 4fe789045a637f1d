"""`lakebed savepoint`, `lakebed restore`, `lakebed rollback`: keep a commit, go back to it, take the last one back."""

from __future__ import annotations

from typing import Annotated

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts, show_records
from lakebed.cli.rows import WriteOptions
from lakebed.services.restore import RestoreResult
from lakebed.services.rollback import RollbackResult

_COLUMNS = ["instant", "user", "comment", "created", "partitions", "files"]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


def savepoint(
    uri: Uri,
    instant: Annotated[str | None, typer.Argument(help="The commit to keep; the last one where none is named.")] = None,
    comment: Annotated[str, typer.Option(help="What the savepoint is for.")] = "",
    user: Annotated[str | None, typer.Option(help="Who makes it; whoever runs this where not named.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the table's savepoints, make none.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the savepoint of INSTANT.")] = False,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Keep a commit for `lakebed restore`: cleaning leaves its files, archival its instant."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    if show:
        show_records([one.to_dict() for one in table.savepoints()], _COLUMNS, output)
        return
    if delete:
        if instant is None:
            raise typer.BadParameter("--delete needs the INSTANT of the savepoint", param_hint="INSTANT")
        done = table.delete_savepoint(instant)
        if output.is_for_programs:
            show_facts({"deleted": done.to_dict() if done else {"instant": instant}}, output)
        else:
            typer.echo(f"deleted {done or 'what was left of savepoint ' + instant}")
        return
    made = table.savepoint(instant, comment=comment, user=user)
    if output.is_for_programs:
        show_facts(made.to_dict(), output)
    else:
        typer.echo(str(made))


def restore(
    uri: Uri,
    instant: Annotated[
        str | None, typer.Argument(help="The commit to go back to; without it a restore that was cut off is finished.")
    ] = None,
    dry_run: DryRun = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Make the table what it was when a commit completed: all that came later is rolled back for good."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    _show(table.restore(instant, dry_run=dry_run, options=pairs(option, "--option")), output)


def rollback(
    uri: Uri,
    instant: Annotated[str, typer.Argument(help="The table's last completed commit.")],
    dry_run: DryRun = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Take the last completed commit back; `lakebed restore` takes back more."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    _show(table.rollback(instant, dry_run=dry_run, options=pairs(option, "--option")), output)


def _show(done: RestoreResult | RollbackResult, output: Form) -> None:
    if output.is_for_programs:
        show_facts(done.to_dict(), output)
    else:
        typer.echo(str(done))
