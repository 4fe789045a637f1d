"""`lakebed configure`: change settings of a living table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts
from lakebed.cli.rows import WriteOptions


def configure(
    uri: Uri,
    settings: Annotated[list[str] | None, typer.Argument(help="KEY=VALUE, e.g. hoodie.compact.inline=false.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="KEY to take off: the default holds.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Change settings that the table remembers, under its lock."""
    given: dict[str, Any] = {**pairs(settings, "SETTINGS"), **dict.fromkeys(remove or [])}
    if not given:
        raise typer.BadParameter("name a setting to change or to remove", param_hint="SETTINGS")
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    done = table.configure(given, dry_run=dry_run, options=pairs(option, "--option"))
    if output.is_for_programs:
        show_facts(done.to_dict(), output)
    else:
        typer.echo(str(done))
