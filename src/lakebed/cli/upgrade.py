"""`lakebed upgrade`, `lakebed downgrade`: give a table another version."""

from __future__ import annotations

from typing import Annotated

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts
from lakebed.cli.restore import DryRun
from lakebed.cli.rows import WriteOptions
from lakebed.services.upgrading.change import VersionChange


def upgrade(
    uri: Uri,
    to: Annotated[int, typer.Option(help="The table version: 8 or 9.")] = 9,
    dry_run: DryRun = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Make a table one of a later version, with the same rows."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    _show(table.upgrade(to=to, dry_run=dry_run, options=pairs(option, "--option")), output)


def downgrade(
    uri: Uri,
    to: Annotated[int, typer.Option(help="The table version: 8 or 6.")],
    dry_run: DryRun = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Make a table one of an earlier version, which older releases of Hudi read, with the same rows."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    _show(table.downgrade(to=to, dry_run=dry_run, options=pairs(option, "--option")), output)


def _show(done: VersionChange, output: Form) -> None:
    if output.is_for_programs:
        show_facts(done.to_dict(), output)
    else:
        typer.echo(str(done))
